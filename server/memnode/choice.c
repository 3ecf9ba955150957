#include "server/memnode/choice.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "transport/transport.h"

#include "wire/announce.h"

#include "base/bits.h"

#include "server/net/tcp.h"

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
