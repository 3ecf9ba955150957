/*
 * What the kernel's TCP takes for itself, between two processes of this host and without Relive: CPU time
 * of both ends for a request and its answer, and MB/s of long answers. A store over TCP cannot take less
 * CPU than its lists times the first, nor move more than the second. Both ends sleep in recv.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/harness/micro.h"

#include "base/bits.h"
#include "base/os/clock.h"

#define LONGEST (1u << 20)
#define WINDOW_NS 200000000u
#define CALLS_CLOCK 16u /* calls between two looks at the clock */

/* A request and its answer. An append of 64 rows has about 6 KiB and 1 KiB; a phase of a sample of 256 has 4 and 64. */
struct tcp_case {
	uint32_t ask, answer;
};

static const struct tcp_case cases[] = {
	{ 64, 64 },
	{ 6 << 10, 1 << 10 },
	{ 4 << 10, 64 << 10 },
	{ 64, LONGEST },
};

static uint8_t buffer[LONGEST];
static int sock = -1;
static pid_t peer = -1;
static clockid_t peer_cpu;

static int fail(const char *what)
{
	perror(what);
	return -1;
}

static bool move_all(ssize_t (*move)(int, void *, size_t, int), int fd, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t now = move(fd, buffer + done, n - done, 0);

		if (now <= 0)
			return false;
		done += (size_t)now;
	}
	return true;
}

static ssize_t send_some(int fd, void *at, size_t n, int flags)
{
	return send(fd, at, n, flags | MSG_NOSIGNAL);
}

/* -------- the other end -------- */

/* Answers requests, whose first bytes say how long both are. */
static int answer_all(int fd)
{
	struct tcp_case c;

	while (move_all(recv, fd, sizeof(c))) {
		memcpy(&c, buffer, sizeof(c));
		if (!move_all(recv, fd, c.ask - sizeof(c)) || !move_all(send_some, fd, c.answer))
			break;
	}
	return 0;
}

static int begin(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	const int on = 1;
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), other;

	if (listener < 0 || bind(listener, (struct sockaddr *)&at, len) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&at, &len))
		return fail("listen");
	peer = fork();
	if (peer == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		other = accept(listener, NULL, NULL);
		(void)setsockopt(other, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		_exit(answer_all(other));
	}
	sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (peer < 0 || sock < 0 || connect(sock, (struct sockaddr *)&at, len) ||
	    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) ||
	    clock_getcpuclockid(peer, &peer_cpu))
		return fail("connect");
	close(listener);
	return 0;
}

/* -------- windows -------- */

static uint64_t cpu_ns(void)
{
	return clock_read_ns(CLOCK_PROCESS_CPUTIME_ID) + clock_read_ns(peer_cpu);
}

static int run_case(struct micro_case *at)
{
	const struct tcp_case *c = at->ctx;
	bool rate = at->result.higher;
	uint64_t start = time_wall_ns(), cpu = cpu_ns(), spent = 0, calls = 0;
	double n;

	while (spent < WINDOW_NS) {
		for (uint32_t i = 0; i < CALLS_CLOCK; i++, calls++) {
			memcpy(buffer, c, sizeof(*c));
			if (!move_all(send_some, sock, c->ask) || !move_all(recv, sock, c->answer))
				return fail("a call");
		}
		spent = time_wall_ns() - start;
	}
	cpu = cpu_ns() - cpu;
	n = (double)calls;
	series_add(&at->result.series,
		   rate ? n * c->answer / ((double)spent / 1e3) : (double)cpu / n / 1e3);
	return 0;
}

static void add_case(struct micro *b, const struct tcp_case *c)
{
	bool rate = c->answer == LONGEST;
	const struct micro_case shown = {
		.run = run_case,
		.ctx = (void *)(uintptr_t)c,
		.result = { .metric = rate ? "stream_mbps" : "call_cpu_us",
			    .unit = rate ? "MB/s" : "us",
			    .higher = rate,
			    .params = { { .key = "ask", .number = c->ask },
					{ .key = "answer", .number = c->answer } } }
	};

	(void)micro_add(b, &shown);
}

int main(int argc, char **argv)
{
	static struct micro b = {
		.name = "micro_tcp",
		.help = "Measures the kernel's TCP between two processes of this host, without "
			"Relive: CPU us of\nboth ends for a request and its answer, MB/s of "
			"answers of 1 MiB.",
		.store = "",
	};
	int status, ret;

	if (!micro_init(&b, argc, argv, &status))
		return status;
	ret = begin();
	for (size_t i = 0; ret == 0 && i < ARRAY_LEN(cases); i++)
		add_case(&b, &cases[i]);
	if (ret == 0)
		ret = micro_run(&b, "windows");
	if (peer > 0) {
		(void)kill(peer, SIGKILL);
		(void)waitpid(peer, NULL, 0);
	}
	return micro_finish(&b, ret == 0);
}
