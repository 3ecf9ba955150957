#include "server/net/tcp.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int tcp_bind(const char *host, uint16_t port, int *fd_out, uint16_t *port_out)
{
	struct addrinfo wanted = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;
	const char *name = host && *host ? host : "127.0.0.1";
	struct sockaddr_in6 bound = { .sin6_port = 0 }; /* sin_port of IPv4 is at the same offset */
	socklen_t len = sizeof(bound);
	const int one = 1;
	char service[8];
	int fd = -1, ret;

	snprintf(service, sizeof(service), "%u", port);
	ret = getaddrinfo(name, service, &wanted, &found);
	if (ret)
		return error_set(-EINVAL, "listen on %s: %s", name, gai_strerror(ret));
	/* The first address that this host has; one that another server has is not passed over. */
	for (const struct addrinfo *at = found; at && fd < 0 && ret != -EADDRINUSE;
	     at = at->ai_next) {
		fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (fd >= 0)
			(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		if (fd >= 0 && bind(fd, at->ai_addr, at->ai_addrlen) == 0)
			break;
		ret = error_set(-errno, "listen on %s:%u: %s", name, port, strerror(errno));
		if (fd >= 0)
			close(fd);
		fd = -1;
	}
	freeaddrinfo(found);
	if (fd < 0)
		return ret;
	(void)getsockname(fd, (struct sockaddr *)&bound, &len);
	*fd_out = fd;
	*port_out = ntohs(bound.sin6_port);
	return 0;
}

void tcp_set_no_delay(int fd)
{
	const int one = 1;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

void tcp_keep_alive(int fd)
{
	const int one = 1;
	const int idle = 30;           /* seconds before probes */
	const int pause = 10;          /* seconds between probes */
	const int probes = 3;          /* unanswered probes that end the connection */
	const int unheard = 60 * 1000; /* ms, limit for unacknowledged data */

	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &pause, sizeof(pause));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unheard, sizeof(unheard));
}
