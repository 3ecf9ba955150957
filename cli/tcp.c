#include "cli/tcp.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/os/clock.h"

static int failed(const char *call)
{
	return error_set(-errno, "%s: %m", call);
}

static int wait_for(int fd, short events, uint64_t deadline_ns)
{
	struct pollfd ready = { .fd = fd, .events = events };

	for (;;) {
		int n = poll(&ready, 1, deadline_left_ms(clock_monotonic(), deadline_ns));

		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return failed("poll");
		if (deadline_expired(clock_monotonic(), deadline_ns))
			return error_set(-ETIMEDOUT, "no answer in time");
	}
}

int tcp_send(int fd, const void *bytes, size_t len, uint64_t deadline_ns)
{
	const char *at = bytes;

	while (len) {
		int ret = wait_for(fd, POLLOUT, deadline_ns);
		ssize_t n = ret ? 0 : send(fd, at, len, MSG_NOSIGNAL);

		if (ret)
			return ret;
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return failed("send");
		at += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
	}
	return 0;
}

int tcp_receive(int fd, void *bytes, size_t len, uint64_t deadline_ns, size_t *n_out)
{
	ssize_t n;

	do {
		int ret = wait_for(fd, POLLIN, deadline_ns);

		if (ret)
			return ret;
		n = recv(fd, bytes, len, 0);
	} while (n < 0 && (errno == EAGAIN || errno == EINTR));
	if (n < 0)
		return failed("receive");
	*n_out = (size_t)n;
	return 0;
}

static int tcp_connect_one(const struct addrinfo *at, uint64_t deadline_ns, int *fd_out)
{
	int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int ret = fd < 0 ? failed("socket") : 0;
	socklen_t len = sizeof(int);
	int error = 0;

	if (ret == 0 && connect(fd, at->ai_addr, at->ai_addrlen)) {
		if (errno != EINPROGRESS && errno != EINTR)
			ret = failed("connect");
		if (ret == 0)
			ret = wait_for(fd, POLLOUT, deadline_ns);
		if (ret == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error)
			ret = error_set(-error, "connect: %s", strerror(error));
	}
	if (ret && fd >= 0)
		close(fd);
	*fd_out = fd;
	return ret;
}

int tcp_connect(const char *address, uint64_t deadline_ns, int *fd_out)
{
	const struct addrinfo wish = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
	char host[256], port[32];
	struct addrinfo *found;
	int ret;

	if (sscanf(address, "[%255[^]]]:%31s", host, port) != 2 &&
	    sscanf(address, "%255[^:]:%31s", host, port) != 2) {
		snprintf(host, sizeof(host), "127.0.0.1");
		snprintf(port, sizeof(port), "%s", address);
	}
	ret = getaddrinfo(host, port, &wish, &found);
	if (ret)
		return error_set(-ENOENT, "address %.64s: %s: give [HOST:]PORT", address,
				 gai_strerror(ret));
	ret = -ENOENT; /* getaddrinfo gives one address at least */
	for (const struct addrinfo *at = found; at && ret; at = at->ai_next)
		ret = tcp_connect_one(at, deadline_ns, fd_out);
	freeaddrinfo(found);
	return ret;
}
