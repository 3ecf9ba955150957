#include "server/memnode/choice.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/transport.h"

#include "wire/control/announce.h"

#include "base/bits.h"

#include "server/daemon/daemon.h"
#include "server/net/tcp.h"

/* -------- address -------- */

/* The first address of an interface, without link-local ones; IPv4 before IPv6. */
static int interface_host(const char *name, char host_out[256])
{
	struct ifaddrs *all;
	int ret = -ENODEV;

	if (getifaddrs(&all))
		return error_set(-errno, "getifaddrs: %s", strerror(errno));
	for (int v6 = 0; ret && v6 < 2; v6++)
		for (const struct ifaddrs *at = all; ret && at; at = at->ifa_next) {
			const struct sockaddr_in6 *in6 = (const void *)at->ifa_addr;
			socklen_t len = v6 ? sizeof(*in6) : sizeof(struct sockaddr_in);

			if (!in6 || strcmp(at->ifa_name, name) != 0 ||
			    in6->sin6_family != (v6 ? AF_INET6 : AF_INET) ||
			    (v6 && IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr)))
				continue;
			if (getnameinfo(at->ifa_addr, len, host_out, 256, NULL, 0,
					NI_NUMERICHOST) == 0)
				ret = 0;
		}
	freeifaddrs(all);
	return ret ? error_set(ret, "--interface %.32s: no such interface, or it has no address",
			       name)
		   : 0;
}

/* The first port of the range that nobody listens at. */
static int free_port(const char *host, const uint16_t ports[2], uint16_t *port_out)
{
	int fd, ret = 0;

	for (uint32_t port = ports[0]; port <= ports[1]; port++) {
		ret = tcp_bind(*host ? host : "0.0.0.0", (uint16_t)port, &fd, port_out);
		if (ret == -EADDRINUSE)
			continue;
		if (ret == 0)
			close(fd);
		return ret;
	}
	return error_set(ret, "--ports %u-%u: none is free", ports[0], ports[1]);
}

static int set_libfabric(const struct memnode_opts *opts)
{
	static const char *const range[] = { "FI_TCP_PORT_LOW_RANGE", "FI_TCP_PORT_HIGH_RANGE" };
	char text[8];
	int failed = opts->provider ? setenv("RLV_OFI_PROVIDER", opts->provider, 1) : 0;

	for (size_t i = 0; i < 2 && opts->ports[i]; i++) {
		snprintf(text, sizeof(text), "%u", opts->ports[i]);
		failed |= setenv(range[i], text, 1);
	}
	return failed ? error_set(-ENOMEM, "environment: cannot allocate memory") : 0;
}

int memnode_take_network(const struct memnode_opts *opts, char listen_out[CHOICE_LISTEN_BYTES])
{
	char host[256] = "";
	uint16_t port = 0;
	bool v6;
	int ret = set_libfabric(opts);

	listen_out[0] = 0;
	if (ret || (!opts->listen && !opts->interface && !opts->ports[0]))
		return ret;
	if (opts->listen)
		ret = daemon_parse_address(opts->listen, host, &port);
	if (ret == 0 && opts->interface && host[0])
		ret = error_set(-EINVAL, "--interface and a host in --listen: give one of them");
	else if (ret == 0 && opts->interface)
		ret = interface_host(opts->interface, host);
	if (ret == 0 && opts->ports[0] && !port)
		ret = free_port(host, opts->ports, &port);
	v6 = strchr(host, ':') != NULL;
	if (ret == 0)
		snprintf(listen_out, CHOICE_LISTEN_BYTES, "%s%s%s:%u", v6 ? "[" : "", host,
			 v6 ? "]" : "", port);
	return ret;
}

/* -------- transport -------- */

static const char *const networks[] = { "verbs", "ofi" }; /* the better ones first */

static void choice_set(struct memnode_choice *choice, const char *kind, const char *why)
{
	choice->kind = kind;
	snprintf(choice->why, sizeof(choice->why), "%s", why);
}

/* True if the metadata server is on this host: binding works only for an address of this host. */
static bool server_is_here(const char *host)
{
	uint16_t port;
	int fd;

	if (!host)
		return true;
	if (announce_path(host) || tcp_bind(host, 0, &fd, &port))
		return false;
	close(fd);
	return true;
}

/*
 * The first network that this host has; why: what the better ones lack, or "RDMA device here".
 * Without one: shm if nobody names an address, or a server elsewhere, that would need it.
 */
static int choose_network(const struct memnode_opts *opts, bool here,
			  struct memnode_choice *choice_out)
{
	char lacks[2 * CHOICE_WHY_BYTES] = "";
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_LEN(networks); i++) {
		if (transport_target_check(networks[i]) == 0) {
			choice_set(choice_out, networks[i], i ? lacks : "RDMA device here");
			return 0;
		}
		n += (size_t)snprintf(lacks + n, n < sizeof(lacks) ? sizeof(lacks) - n : 0, "%s%s",
				      i ? "; " : "", error_last());
	}
	if (here && (!opts->listen || strcmp(opts->listen, ":0") == 0)) {
		choice_set(choice_out, "shm", lacks);
		return 0;
	}
	return error_set(-ENODEV,
			 "transport auto: clients of other hosts cannot reach this node: %s",
			 lacks);
}

int memnode_choose(const struct memnode_opts *opts, struct memnode_choice *choice_out)
{
	const char *wish = opts->transport ? opts->transport : "auto";
	bool here = server_is_here(opts->host);

	if (strcmp(wish, "shm") == 0 && opts->listen)
		return error_set(-EINVAL,
				 "transport shm: takes no --listen, which is for networks");
	if (strcmp(wish, "shm") == 0) {
		choice_set(choice_out, "shm", "as --transport says");
		return 0;
	}
	for (size_t i = 0; i < ARRAY_LEN(networks); i++)
		if (strcmp(wish, networks[i]) == 0) {
			choice_set(choice_out, networks[i], "as --transport says");
			return 0;
		}
	if (strcmp(wish, "auto") != 0)
		return error_set(-EINVAL, "transport %.16s: want auto, shm, verbs or ofi", wish);
	if (!here || opts->listen)
		return choose_network(opts, here, choice_out);
	choice_set(choice_out, "shm", "server on this host");
	return 0;
}
