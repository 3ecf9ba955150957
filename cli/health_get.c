/*
 * health_get.c - GET /healthz of a daemon, within one deadline.
 */
#include "cli/health.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/os/clock.h"

#define ANSWER_BYTES 4096

static int wait_for(int fd, short events, uint64_t deadline_ns)
{
	struct pollfd ready = { .fd = fd, .events = events };
	int64_t left = deadline_left_ns(clock_monotonic(), deadline_ns);

	if (left > 0 && poll(&ready, 1, (int)(left / CLOCK_NS_PER_MS) + 1) > 0)
		return 0;
	return error_set(-ETIMEDOUT, "no answer in time");
}

/* The default host is the loopback. */
static int look_up(const char *address, struct addrinfo **found_out)
{
	const struct addrinfo wish = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
	const char *colon = strrchr(address, ':');
	size_t skip = address[0] == '[' ? 1 : 0;
	char host[256] = "127.0.0.1";
	size_t len = colon ? (size_t)(colon - address) : 0;

	if (len >= sizeof(host) || len < 2 * skip)
		return error_set(-EINVAL, "address %.64s: give [HOST:]PORT", address);
	if (colon)
		snprintf(host, sizeof(host), "%.*s", (int)(len - 2 * skip), address + skip);
	if (getaddrinfo(host, colon ? colon + 1 : address, &wish, found_out))
		return error_set(-EINVAL, "address %.64s: give [HOST:]PORT", address);
	return 0;
}

static int connect_to(const char *address, uint64_t deadline_ns, int *fd_out)
{
	struct addrinfo *found = NULL;
	socklen_t len = sizeof(int);
	int fd, error = 0, ret = look_up(address, &found);

	if (ret)
		return ret;
	fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || (connect(fd, found->ai_addr, found->ai_addrlen) && errno != EINPROGRESS))
		ret = error_set(-errno, "connect %.64s: %s", address, strerror(errno));
	freeaddrinfo(found);
	if (ret == 0)
		ret = wait_for(fd, POLLOUT, deadline_ns);
	if (ret == 0 && (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) || error))
		ret = error_set(-error, "connect %.64s: %s", address, strerror(error));
	if (ret == 0)
		*fd_out = fd;
	else if (fd >= 0)
		close(fd);
	return ret;
}

/* Sends the request, and reads until the peer closes or the buffer is full. */
static int talk(int fd, uint64_t deadline_ns, char answer[ANSWER_BYTES])
{
	static const char request[] = "GET /healthz HTTP/1.1\r\nHost: relive\r\n\r\n";
	size_t len = 0;

	if (send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL) != (ssize_t)sizeof(request) - 1)
		return error_set(-errno, "send: %s", strerror(errno));
	for (;;) {
		ssize_t n;
		int ret = wait_for(fd, POLLIN, deadline_ns);

		if (ret)
			return ret;
		n = recv(fd, answer + len, ANSWER_BYTES - 1 - len, 0);
		if (n < 0)
			return error_set(-errno, "receive: %s", strerror(errno));
		len += (size_t)n;
		answer[len] = '\0';
		if (n == 0 || len == ANSWER_BYTES - 1)
			return 0;
	}
}

int health_get(const char *address, int64_t timeout_ns, char *words_out, size_t room)
{
	uint64_t deadline = deadline_after(clock_monotonic(), timeout_ns);
	char answer[ANSWER_BYTES] = "";
	const char *body;
	int fd = -1, ret = connect_to(address, deadline, &fd);

	if (ret)
		return ret;
	ret = talk(fd, deadline, answer);
	close(fd);
	if (ret)
		return ret;
	body = strstr(answer, "\r\n\r\n");
	if (!body || strncmp(answer, "HTTP/1.1 ", 9) != 0)
		return error_set(
			-EPROTO,
			"%.64s: the answer is not HTTP: give the --metrics address of a daemon",
			address);
	snprintf(words_out, room, "%.*s", (int)strcspn(body + 4, "\r\n"), body + 4);
	return strncmp(answer + 9, "200 ", 4) == 0 ? 0 : -EHOSTDOWN;
}
