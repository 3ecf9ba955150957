/*
 * openings.c - from a grant to an opening and to its end; with a provider, ports and keys, too.
 */
#include "transport/ofi/openings.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "base/mem/alloc.h"
#include "base/os/random.h"

/* -------- ports and keys -------- */

/* The address of this host that the client has reached, as digits. */
static int local_host(const struct ofi_peer *peer, char host_out[NI_MAXHOST])
{
	struct sockaddr_storage at = { 0 };
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&at;
	socklen_t bytes = sizeof(at);

	if (getsockname(peer->sock, (struct sockaddr *)&at, &bytes))
		return error_set(-errno, "getsockname: %s", strerror(errno));
	if (at.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
		struct sockaddr_in v4 = { .sin_family = AF_INET };

		memcpy(&v4.sin_addr, &v6->sin6_addr.s6_addr[12], sizeof(v4.sin_addr));
		memcpy(&at, &v4, sizeof(v4));
		bytes = sizeof(v4);
	}
	if (getnameinfo((struct sockaddr *)&at, bytes, host_out, NI_MAXHOST, NULL, 0,
			NI_NUMERICHOST))
		return error_set(-EIO, "getnameinfo: an address without digits");
	return 0;
}

/* Opens the link's port, if it must have one and has none, and has the agent drive it. */
static int peer_open_port(struct ofi_peer *peer)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u32 = OFI_PORT + peer->slot };
	char host[NI_MAXHOST];
	struct ofi_port_opts opts = {
		.provider = peer->all->provider, .host = host, .is_ours = true, .sleeps = true
	};
	int ret;

	if (!peer->all->provider[0] || peer->name_bytes)
		return 0;
	ret = local_host(peer, host);
	if (ret == 0)
		ret = ofi_port_open(&opts, &peer->port);
	if (ret == 0)
		ret = ofi_port_name(&peer->port, peer->name, &peer->name_bytes);
	if (ret == 0 && peer->port.fd >= 0 &&
	    epoll_ctl(peer->all->ring, EPOLL_CTL_ADD, peer->port.fd, &event))
		ret = error_set(-errno, "epoll_ctl: %s", strerror(errno));
	if (ret) {
		struct error_kept kept;

		error_keep(&kept);
		(void)!ofi_port_close(&peer->port);
		error_restore(&kept);
		peer->name_bytes = 0;
		return ret;
	}
	if (peer->port.fd < 0) { /* nothing else says that it has work */
		peer->all->n_blind++;
		(void)eventfd_write(peer->all->bell, 1);
	}
	return 0;
}

/* Registers the range of map under a random key, where there is a provider. */
static int opening_register(struct ofi_peer *peer, struct ofi_opening *opening)
{
	struct iovec memory = { opening->map.base, opening->map.size };
	uint64_t key;
	int ret = -ENOKEY;

	if (!peer->name_bytes)
		return 0;
	for (int i = 0; ret == -ENOKEY && i < 8; i++) { /* in use: of no practical probability */
		ret = random_fill(&key, sizeof(key));
		if (ret == 0)
			ret = ofi_port_register(&peer->port, &memory, FI_REMOTE_READ, key,
						&opening->mr);
	}
	return ret;
}

/* -------- openings -------- */

/* Opens the range of map under the first number that is free. On success the opening owns the map. */
static int opening_make(struct ofi_peer *peer, uint32_t request, const struct target_map *map,
			uint32_t *number_out)
{
	struct ofi_openings *openings = &peer->openings;
	struct ofi_opening *opening = mem_zalloc(sizeof(*opening));
	uint32_t number = 0;
	int ret;

	while (number < openings->room && openings->at[number])
		number++;
	if (!opening || (number == openings->room &&
			 !mem_grow(&openings->at, number, 2 * number + 8, sizeof(void *)))) {
		mem_free(opening);
		return error_set(-ENOMEM, "cannot allocate memory for an attachment");
	}
	if (number == openings->room)
		openings->room = 2 * number + 8;
	opening->request = request;
	opening->map = *map;
	ret = map->rights & RIGHT_READ ? opening_register(peer, opening) : 0;
	if (ret) {
		mem_free(opening);
		return ret;
	}
	openings->at[number] = opening;
	openings->n++;
	peer->all->n_keys++;
	peer->all->attaches++;
	*number_out = number;
	return 0;
}

uint32_t ofi_opening_find(const struct ofi_peer *peer, uint32_t request)
{
	const struct ofi_openings *openings = &peer->openings;
	uint32_t number = 0;

	while (number < openings->room &&
	       (!openings->at[number] || openings->at[number]->request != request))
		number++;
	return number;
}

int ofi_opening_grant(struct ofi_peer *peer, const struct ofi_attach *ask, uint32_t *number_out)
{
	struct region_grant grant = { .bytes = ask->grant_bytes };
	struct target_map map = { 0 };
	int ret;

	memcpy(grant.data, ask->grant, ask->grant_bytes);
	ret = target_attach(peer->all->target, peer->client_id, &grant, &map);
	if (ret)
		return ret;
	peer->all->n_unproved -= !peer->proved;
	peer->proved = true;
	if (peer->openings.n >= OFI_OPENINGS_MAX)
		ret = error_set(-ENOSPC, "client %llu has %u regions open on one link",
				(unsigned long long)peer->client_id, peer->openings.n);
	if (ret == 0)
		ret = peer_open_port(peer);
	if (ret == 0)
		ret = opening_make(peer, ask->request, &map, number_out);
	if (ret)
		target_detach(peer->all->target, map.region);
	return ret;
}

void ofi_opening_describe(const struct ofi_peer *peer, struct ofi_attached *answer)
{
	const struct ofi_opening *opening = peer->openings.at[answer->opening];

	answer->region = opening->map.region->info.id;
	answer->rights = opening->map.rights;
	answer->size = opening->map.size;
	if (opening->mr && peer->port.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
		answer->address = (uintptr_t)opening->map.base;
	answer->key = opening->mr ? fi_mr_key(opening->mr) : 0;
	answer->endpoint_bytes = peer->name_bytes;
	memcpy(answer->endpoint, peer->name, sizeof(answer->endpoint));
}

void ofi_opening_free(struct ofi_peer *peer, uint32_t number)
{
	struct ofi_opening *opening = peer->openings.at[number];

	peer->openings.at[number] = NULL;
	peer->openings.n--;
	target_detach(peer->all->target, opening->map.region);
	mem_free(opening);
}

void ofi_opening_close(struct ofi_peer *peer, struct ofi_opening *opening)
{
	if (opening->revoked)
		return;
	if (opening->mr)
		(void)fi_close(&opening->mr->fid);
	opening->mr = NULL;
	opening->revoked = true;
	peer->all->n_keys--;
}
