/*
 * listen.c - binds, and finds an address for clients.
 */
#include "transport/ofi/listen.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 128 };

/* A socket that listens at one address. A wildcard of IPv6 takes IPv4, too. */
static int listen_at(const struct addrinfo *at, int *sock_out)
{
	const int on = 1, off = 0;
	int sock = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int ret = 0;

	if (sock < 0)
		return error_set(-errno, "socket: %s", strerror(errno));
	(void)setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (at->ai_family == AF_INET6)
		(void)setsockopt(sock, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (bind(sock, at->ai_addr, at->ai_addrlen) || listen(sock, BACKLOG))
		ret = error_set(-errno, "bind: %s", strerror(errno));
	if (ret)
		close(sock);
	else
		*sock_out = sock;
	return ret;
}

/*
 * Finds the first address of this host among those of loopback interfaces (IFF_LOOPBACK) or of the
 * others (0). False: none.
 */
static bool find_address(const struct ifaddrs *all, unsigned loopback, char *host_out, size_t room)
{
	for (const struct ifaddrs *at = all; at; at = at->ifa_next) {
		const struct sockaddr_in6 *in6 = (const void *)at->ifa_addr;
		bool v6 = in6 && at->ifa_addr->sa_family == AF_INET6;
		bool v4 = in6 && at->ifa_addr->sa_family == AF_INET;

		if ((at->ifa_flags & IFF_LOOPBACK) != loopback || !(at->ifa_flags & IFF_UP) ||
		    (!v6 && !v4) || (v6 && IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr)))
			continue;
		return getnameinfo(at->ifa_addr, v6 ? sizeof(*in6) : sizeof(struct sockaddr_in),
				   host_out, (socklen_t)room, NULL, 0, NI_NUMERICHOST) == 0;
	}
	return false;
}

/* Replaces port 0, and an empty host. */
static int name_listener(int sock, struct node_address *address)
{
	struct sockaddr_storage at = { 0 };
	socklen_t bytes = sizeof(at);
	struct ifaddrs *all = NULL;
	bool found = true;

	if (getsockname(sock, (struct sockaddr *)&at, &bytes) ||
	    getnameinfo((struct sockaddr *)&at, bytes, NULL, 0, address->port,
			sizeof(address->port), NI_NUMERICSERV))
		return error_set(-EIO, "getsockname: %s", strerror(errno));
	if (address->host[0])
		return 0;
	if (getifaddrs(&all))
		return error_set(-errno, "getifaddrs: %s", strerror(errno));
	found = find_address(all, 0, address->host, sizeof(address->host)) ||
		find_address(all, IFF_LOOPBACK, address->host, sizeof(address->host));
	freeifaddrs(all);
	return found ? 0 : error_set(-EADDRNOTAVAIL, "this host has no address");
}

int ofi_listen_open(struct node_address *address, int *sock_out)
{
	const struct addrinfo hints = { .ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM };
	const char *host = address->host[0] ? address->host : NULL;
	struct addrinfo *list = NULL;
	int unknown, sock = -1, ret = -ENOENT;

	unknown = getaddrinfo(host, address->port, &hints, &list);
	if (unknown)
		return error_set(-ENOENT, "listen on %s: %s", address->host, gai_strerror(unknown));
	/* without a host the IPv6 wildcard comes first, if there is one, and serves both */
	for (int v6 = 1; !host && ret && v6 >= 0; v6--) {
		for (const struct addrinfo *at = list; ret && at; at = at->ai_next) {
			if ((at->ai_family == AF_INET6) == v6)
				ret = listen_at(at, &sock);
		}
	}
	for (const struct addrinfo *at = list; host && ret && at; at = at->ai_next)
		ret = listen_at(at, &sock);
	freeaddrinfo(list);
	if (ret == 0)
		ret = name_listener(sock, address);
	if (ret) {
		ret = error_prefix(ret, "listen on %s port %s: ", host ? host : "every address",
				   address->port);
		if (sock >= 0)
			close(sock);
		return ret;
	}
	*sock_out = sock;
	return 0;
}
