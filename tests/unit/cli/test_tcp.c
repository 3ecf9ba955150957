#include "tests/support/sockets.h"
#include "tests/support/test.h"
#include "tests/support/ticks.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "cli/tcp.h"

static uint64_t soon(void)
{
	return deadline_after(clock_monotonic(), 10 * CLOCK_NS_PER_S);
}

/* Answers a request in two parts, the second once told is written to, and closes. */
static void serve(int listener, int told)
{
	char byte, request[4];
	int conn = accept(listener, NULL, NULL);
	bool right = recv(conn, request, sizeof(request), MSG_WAITALL) == sizeof(request) &&
		     send(conn, "ab", 2, 0) == 2 && read(told, &byte, 1) == 1 &&
		     send(conn, "c", 1, 0) == 1;

	_exit(right ? 0 : 1);
}

TEST(tcp_receive__signals_end_no_wait)
{
	char address[32], answer[8] = "";
	uint16_t port = 0;
	int listener = sockets_listen_tcp(&port), told[2], fd = -1, status = -1;
	size_t len = 0, n = 1;
	pid_t server;

	assert_int_equal(pipe(told), 0);
	server = fork();
	assert_true(server >= 0);
	if (server == 0 && close(told[1]) == 0)
		serve(listener, told[0]);
	snprintf(address, sizeof(address), "127.0.0.1:%u", port);
	assert_int_equal(tcp_connect(address, soon(), &fd), 0);
	assert_int_equal(tcp_send(fd, "ask!", 4, soon()), 0);
	ticks_begin(told[1]);
	for (; n; len += n)
		assert_int_equal(tcp_receive(fd, answer + len, 4 - len, soon(), &n), 0);
	ticks_end();
	assert_string_equal(answer, "abc");
	assert_int_equal(waitpid(server, &status, 0), server);
	assert_int_equal(status, 0);
	close(fd);
	close(listener);
	close(told[0]);
	close(told[1]);
}

TEST(tcp_connect__nobody_listens)
{
	char address[32];
	uint16_t port = 0;
	int listener = sockets_listen_tcp(&port), fd = -1;

	close(listener);
	snprintf(address, sizeof(address), "127.0.0.1:%u", port);
	assert_int_equal(tcp_connect(address, soon(), &fd), -ECONNREFUSED);
	assert_non_null(strstr(error_last(), "connect"));
}

TEST(tcp_receive__a_deadline_that_is_over)
{
	char address[32], byte;
	uint16_t port = 0;
	int listener = sockets_listen_tcp(&port), fd = -1;
	size_t n = 7;

	snprintf(address, sizeof(address), "%u", port);
	assert_int_equal(tcp_connect(address, soon(), &fd), 0);
	assert_int_equal(tcp_receive(fd, &byte, 1, 0, &n), -ETIMEDOUT);
	assert_int_equal(n, 7);
	close(fd);
	close(listener);
}

int main(void)
{
	return test_run(NULL, NULL);
}
