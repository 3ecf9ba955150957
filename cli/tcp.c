#include "cli/tcp.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/os/clock.h"

int tcp_limit_wait(int fd, uint64_t deadline_ns)
{
	int64_t left = deadline_left_ns(clock_monotonic(), deadline_ns) / CLOCK_NS_PER_US;
	struct timeval wait = { .tv_sec = left / 1000000, .tv_usec = left % 1000000 };

	if (left <= 0)
		return error_set(-ETIMEDOUT, "no answer in time");
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)); /* connect(2) too */
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	return 0;
}

int tcp_failed(const char *call)
{
	if (errno == EINPROGRESS || errno == EAGAIN)
		return error_set(-ETIMEDOUT, "no answer in time");
	return error_set(-errno, "%s: %m", call);
}

static int tcp_connect_one(const struct addrinfo *at, uint64_t deadline_ns, int *fd_out)
{
	int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int ret = fd < 0 ? tcp_failed("socket") : tcp_limit_wait(fd, deadline_ns);

	if (ret == 0 && connect(fd, at->ai_addr, at->ai_addrlen))
		ret = tcp_failed("connect");
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
