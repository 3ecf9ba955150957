/*
 * peers.c - links, from a connection to their end.
 */
#include "transport/ofi/peers.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/mem/alloc.h"
#include "base/os/clock.h"

enum {
	ROUNDS = 16, /* of one connection, served at a time */
	DRIVES = 64, /* of one port, while it says that it has more */
};

/* -------- all -------- */

int ofi_peers_open(struct target *target, const char *provider, int ring,
		   struct ofi_peers **peers_out)
{
	struct ofi_peers *peers = mem_zalloc(sizeof(*peers));
	struct process_id self = { 0 };
	int ret;

	if (!peers)
		return error_set(-ENOMEM, "cannot allocate memory for a table of links");
	ret = process_self(&self);
	if (ret) {
		mem_free(peers);
		return ret;
	}
	memcpy(peers->boot_id, self.boot_id, sizeof(peers->boot_id));
	(void)snprintf(peers->provider, sizeof(peers->provider), "%s", provider);
	peers->target = target;
	peers->ring = ring;
	*peers_out = peers;
	return 0;
}

int ofi_peers_try(struct ofi_peers *peers, const char *host)
{
	struct ofi_port_opts opts = { .provider = peers->provider, .host = host, .is_ours = true };
	struct ofi_port port = { .fd = -1 };
	int ret;

	if (!peers->provider[0])
		return 0;
	ret = ofi_port_open(&opts, &port);
	if (ret) {
		struct error_kept kept;

		error_keep(&kept);
		(void)!ofi_port_close(&port);
		error_restore(&kept);
		return ret;
	}
	return ofi_port_close(&port);
}

/* -------- a link's end -------- */

static void opening_free(struct ofi_peer *peer, uint32_t number)
{
	struct ofi_opening *opening = peer->openings.at[number];

	peer->openings.at[number] = NULL;
	peer->openings.n--;
	target_detach(peer->all->target, opening->map.region);
	mem_free(opening);
}

/* Ends what it permits, and its key. The link still holds the region. */
static void opening_close(struct ofi_peer *peer, struct ofi_opening *opening)
{
	if (opening->revoked)
		return;
	if (opening->mr)
		(void)fi_close(&opening->mr->fid);
	opening->mr = NULL;
	opening->revoked = true;
	peer->all->n_keys--;
}

static void peer_set_restless(struct ofi_peer *peer, bool restless)
{
	peer->all->n_restless += restless;
	peer->all->n_restless -= peer->restless;
	peer->restless = restless;
}

static void peer_set_holds(struct ofi_peer *peer, bool holds)
{
	peer->all->n_holding += holds;
	peer->all->n_holding -= peer->holds;
	peer->holds = holds;
}

/*
 * Closes and frees a link: nothing that it started lands when this returns 0. After an error, which
 * is logged, its regions stay held for ever.
 */
static int peer_drop(struct ofi_peer *peer)
{
	struct ofi_peers *peers = peer->all;
	int ret = ofi_port_end(&peer->port);

	if (ret)
		log_error("link of client %llu: %s", (unsigned long long)peer->client_id,
			  error_last());
	if (peer->port.fd >= 0)
		(void)epoll_ctl(peers->ring, EPOLL_CTL_DEL, peer->port.fd, NULL);
	peers->n_blind -= peer->port.calls && peer->port.fd < 0;
	peer_set_restless(peer, false);
	peer_set_holds(peer, false);
	close(peer->sock);
	for (uint32_t i = 0; i < peer->openings.room; i++) {
		if (!peer->openings.at[i])
			continue;
		opening_close(peer, peer->openings.at[i]);
		if (ret == 0)
			opening_free(peer, i);
	}
	mem_free(peer->openings.at);
	if (peer->port.calls && ofi_port_close(&peer->port) && ret == 0)
		log_warn("link of client %llu: %s", (unsigned long long)peer->client_id,
			 error_last());
	peers->slots[peer->slot] = NULL;
	peers->n--;
	peers->n_unproved -= !peer->proved;
	mem_free(peer);
	return ret;
}

void ofi_peers_close(struct ofi_peers *peers, bool forked)
{
	for (uint32_t i = 0; peers && i < OFI_PEERS_MAX; i++) {
		struct ofi_peer *peer = peers->slots[i];

		if (peer && !forked)
			(void)peer_drop(peer);
		else if (peer)
			mem_free(peer);
	}
	mem_free(peers);
}

static void give_up(struct ofi_peer *peer)
{
	log_debug("link of client %llu ends: %s", (unsigned long long)peer->client_id,
		  error_last());
	(void)peer_drop(peer);
}

/* -------- fencing -------- */

static bool is_fenced(const struct ofi_peers *peers, uint64_t client_id)
{
	uint64_t n = min_u64(peers->n_fenced, OFI_FENCED_MAX);

	for (uint64_t i = 0; i < n; i++) {
		if (peers->fenced[i] == client_id)
			return true;
	}
	return false;
}

int ofi_peers_fence(struct ofi_peers *peers, uint64_t client_id)
{
	int had = 0, failed = 0;

	if (!is_fenced(peers, client_id))
		peers->fenced[peers->n_fenced++ % OFI_FENCED_MAX] = client_id;
	for (uint32_t i = 0; i < OFI_PEERS_MAX; i++) {
		struct ofi_peer *peer = peers->slots[i];
		int ret;

		if (!peer || !peer->greeted || peer->client_id != client_id)
			continue;
		ret = peer_drop(peer);
		failed = failed ? failed : ret;
		had = 1;
	}
	return failed ? failed : had;
}

bool ofi_peers_have(const struct ofi_peers *peers, uint64_t client_id)
{
	for (uint32_t i = 0; i < OFI_PEERS_MAX; i++) {
		const struct ofi_peer *peer = peers->slots[i];

		if (peer && peer->proved && peer->client_id == client_id)
			return true;
	}
	return false;
}

uint32_t ofi_peers_count_clients(const struct ofi_peers *peers)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < OFI_PEERS_MAX; i++) {
		const struct ofi_peer *peer = peers->slots[i];
		bool counted = !peer || !peer->greeted ||
			       target_knows(peers->target, peer->client_id);

		for (uint32_t j = 0; !counted && j < i; j++)
			counted = peers->slots[j] && peers->slots[j]->greeted &&
				  peers->slots[j]->client_id == peer->client_id;
		n += !counted;
	}
	return n;
}

/* -------- regions -------- */

void ofi_peers_revoke(struct ofi_peers *peers, uint64_t client_id, uint32_t region)
{
	for (uint32_t i = 0; i < OFI_PEERS_MAX; i++) {
		struct ofi_peer *peer = peers->slots[i];

		if (!peer || peer->client_id != client_id)
			continue;
		for (uint32_t j = 0; j < peer->openings.room; j++) {
			struct ofi_opening *at = peer->openings.at[j];

			if (at && at->map.region->info.id == region)
				opening_close(peer, at);
		}
	}
}

/* -------- HELLO -------- */

/* Sends a message behind all answers. The connection takes it, or ends: nobody asks for so much. */
static int peer_send(struct ofi_peer *peer, union ofi_any *message, enum ofi_message type)
{
	struct ofi_stream stream = { .sock = peer->sock };
	int ret = ofi_carry_send(&peer->carry, peer->sock);

	if (ret == 0)
		ret = ofi_stream_send(&stream, message, type);
	return ret == -EAGAIN ? error_set(-ECONNRESET, "the client does not read its answers")
			      : ret;
}

static int refuse(struct ofi_peer *peer, int status)
{
	union ofi_any message = { .refusal.status = status };

	(void)snprintf(message.refusal.text, OFI_TEXT_BYTES, "%.*s", OFI_TEXT_BYTES - 1,
		       error_last());
	(void)!peer_send(peer, &message, OFI_REFUSAL);
	return status;
}

static struct ofi_peer *find_number(const struct ofi_peers *peers, uint64_t client_id,
				    uint64_t number)
{
	for (uint32_t i = 0; i < OFI_PEERS_MAX; i++) {
		struct ofi_peer *peer = peers->slots[i];

		if (peer && peer->greeted && peer->number == number && peer->client_id == client_id)
			return peer;
	}
	return NULL;
}

static int on_hello(struct ofi_peer *peer, const struct ofi_hello *hello)
{
	struct ofi_peers *peers = peer->all;
	union ofi_any message = { .welcome.incarnation = peers->target->tg.incarnation };
	struct ofi_peer *old = NULL;
	int ret = 0;

	if (peer->greeted || find_number(peers, hello->client_id, hello->link))
		return error_set(-EPROTO, "a second HELLO of one link");
	if (is_fenced(peers, hello->client_id))
		return refuse(peer, error_set(-EOWNERDEAD, "client %llu was fenced",
					      (unsigned long long)hello->client_id));
	/* Z1 pairs with Z2: its endpoint is gone before the client hears that the new link is
	   open. */
	if (hello->replaces)
		old = find_number(peers, hello->client_id, hello->replaces);
	if (old)
		ret = peer_drop(old);
	if (ret)
		return refuse(peer, ret);
	peer->greeted = true;
	peer->client_id = hello->client_id;
	peer->number = hello->link;
	memcpy(message.welcome.boot_id, peers->boot_id, sizeof(message.welcome.boot_id));
	memcpy(message.welcome.provider, peers->provider, sizeof(peers->provider));
	return peer_send(peer, &message, OFI_WELCOME);
}

/* -------- ATTACH and DETACH -------- */

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
		if (getrandom(&key, sizeof(key), 0) != sizeof(key))
			ret = error_set(-EIO, "getrandom: %s", strerror(errno));
		else
			ret = ofi_port_register(&peer->port, &memory, FI_REMOTE_READ, key,
						&opening->mr);
	}
	return ret;
}

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

/* The number of the opening that an ATTACH made; room: none. */
static uint32_t find_request(const struct ofi_peer *peer, uint32_t request)
{
	const struct ofi_openings *openings = &peer->openings;
	uint32_t number = 0;

	while (number < openings->room &&
	       (!openings->at[number] || openings->at[number]->request != request))
		number++;
	return number;
}

/* Opens what a grant names. An invalid grant is refused by the answer; the link stays. */
static int peer_attach(struct ofi_peer *peer, const struct ofi_attach *ask, uint32_t *number_out)
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

static int on_attach(struct ofi_peer *peer, const struct ofi_attach *ask)
{
	union ofi_any message = { .attached.request = ask->request };
	struct ofi_attached *answer = &message.attached;
	const struct ofi_opening *opening;

	if (!peer->greeted || find_request(peer, ask->request) < peer->openings.room)
		return error_set(-EPROTO, "request %u: before HELLO, or its number is in use",
				 ask->request);
	answer->status = peer_attach(peer, ask, &answer->opening);
	if (answer->status) {
		(void)snprintf(answer->text, OFI_TEXT_BYTES, "%.*s", OFI_TEXT_BYTES - 1,
			       error_last());
		return peer_send(peer, &message, OFI_ATTACHED);
	}
	opening = peer->openings.at[answer->opening];
	answer->region = opening->map.region->info.id;
	answer->rights = opening->map.rights;
	answer->size = opening->map.size;
	if (opening->mr && peer->port.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
		answer->address = (uintptr_t)opening->map.base;
	answer->key = opening->mr ? fi_mr_key(opening->mr) : 0;
	answer->endpoint_bytes = peer->name_bytes;
	memcpy(answer->endpoint, peer->name, sizeof(answer->endpoint));
	return peer_send(peer, &message, OFI_ATTACHED);
}

static void on_detach(struct ofi_peer *peer, const struct ofi_detach *detach)
{
	uint32_t number = find_request(peer, detach->request);

	if (number == peer->openings.room ||
	    peer->openings.at[number]->map.region->info.id != detach->region)
		return;
	opening_close(peer, peer->openings.at[number]);
	opening_free(peer, number);
}

/* -------- a connection -------- */

void ofi_peers_accept(struct ofi_peers *peers, int sock)
{
	struct epoll_event event = { .events = EPOLLIN };
	struct ofi_peer *peer = NULL;
	uint32_t slot = 0;
	int ret = ofi_stream_set(sock);

	while (slot < OFI_PEERS_MAX && peers->slots[slot])
		slot++;
	if (ret == 0 && (slot == OFI_PEERS_MAX || peers->n_unproved >= OFI_UNPROVED_MAX))
		ret = error_set(-ECONNREFUSED, "this node has %u links, as many as it serves",
				peers->n);
	if (ret == 0)
		peer = mem_zalloc(sizeof(*peer));
	event.data.u32 = slot;
	if (ret == 0 && (!peer || epoll_ctl(peers->ring, EPOLL_CTL_ADD, sock, &event)))
		ret = error_set(-ENOMEM, "cannot allocate memory for a link");
	if (ret) {
		log_info("refuse a connection: %s", error_last());
		mem_free(peer);
		close(sock);
		return;
	}
	peer->all = peers;
	peer->slot = slot;
	peer->sock = sock;
	peer->port.fd = -1;
	peer->deadline = deadline_after(peers->target->clock, OFI_PROOF_S * CLOCK_NS_PER_S);
	peers->slots[slot] = peer;
	peers->n++;
	peers->n_unproved++;
}

static int on_message(struct ofi_peer *peer, const union ofi_any *message)
{
	switch (message->head.type) {
	case OFI_HELLO:
		return on_hello(peer, &message->hello);
	case OFI_ATTACH:
		return on_attach(peer, &message->attach);
	case OFI_DETACH:
		on_detach(peer, &message->detach);
		return 0;
	}
	return error_set(-EPROTO, "a message of type %u is not expected", message->head.type);
}

/* Has the ring wait for what the connection must do next: take answers, or bring requests. */
static int peer_watch(struct ofi_peer *peer, bool blocked)
{
	struct epoll_event event = { .events = blocked ? EPOLLOUT : EPOLLIN,
				     .data.u32 = peer->slot };

	if (peer->blocked == blocked)
		return 0;
	peer->blocked = blocked;
	return epoll_ctl(peer->all->ring, EPOLL_CTL_MOD, peer->sock, &event)
		       ? error_set(-errno, "epoll_ctl: %s", strerror(errno))
		       : 0;
}

/*
 * Carries out all that was taken, and sends the answers unless all of them may wait. -EAGAIN: more must
 * come, or the connection takes no more answers.
 */
static int peer_carry(struct ofi_peer *peer)
{
	union ofi_any message;
	int ret, sent = 0;

	do {
		ret = ofi_carry_out(&peer->carry, &peer->openings, &message);
		if (ret == 0)
			ret = on_message(peer, &message);
		else if (ret == -ENOBUFS ||
			 (ret == -EAGAIN && !peer->carry.n && peer->carry.urgent))
			sent = ofi_carry_send(&peer->carry, peer->sock);
	} while (ret == 0 || (ret == -ENOBUFS && sent == 0));
	peer->all->lists += peer->carry.lists;
	peer->all->sends += peer->carry.sends;
	peer->carry.lists = peer->carry.sends = 0;
	peer_set_holds(peer, ofi_carry_holds(&peer->carry));
	if (ret != -EAGAIN && ret != -ENOBUFS)
		return ret;
	ret = peer_watch(peer, sent == -EAGAIN);
	return ret ? ret : sent ? sent : -EAGAIN;
}

static void serve_connection(struct ofi_peer *peer)
{
	bool drained = false;
	int ret = peer->blocked ? peer_carry(peer) : -EAGAIN;

	for (int i = 0; i < ROUNDS && ret == -EAGAIN && !peer->blocked && !drained; i++) {
		ret = ofi_carry_receive(&peer->carry, peer->sock, &drained);
		if (ret == -EAGAIN)
			return;
		if (ret == 0)
			ret = peer_carry(peer);
	}
	if (ret != -EAGAIN)
		give_up(peer);
}

static void serve_port(struct ofi_peer *peer)
{
	bool rests = !peer->port.calls;

	for (int i = 0; i < DRIVES && !rests; i++)
		rests = ofi_port_drive(&peer->port);
	peer_set_restless(peer, !rests);
}

void ofi_peers_serve(struct ofi_peers *peers, uint32_t event)
{
	uint32_t slot = event < OFI_PORT ? event : event - OFI_PORT;
	struct ofi_peer *peer = slot < OFI_PEERS_MAX ? peers->slots[slot] : NULL;

	if (peer && event < OFI_PORT)
		serve_connection(peer);
	else if (peer)
		serve_port(peer);
}

bool ofi_peers_drive(struct ofi_peers *peers)
{
	for (uint32_t i = 0; peers->n_blind + peers->n_restless && i < OFI_PEERS_MAX; i++) {
		struct ofi_peer *peer = peers->slots[i];

		if (peer && peer->port.calls && (peer->restless || peer->port.fd < 0))
			serve_port(peer);
	}
	return peers->n_restless > 0;
}

void ofi_peers_flush(struct ofi_peers *peers)
{
	for (uint32_t i = 0; peers->n_holding && i < OFI_PEERS_MAX; i++) {
		struct ofi_peer *peer = peers->slots[i];
		int ret;

		if (!peer || !peer->holds)
			continue;
		peer_set_holds(peer, false);
		ret = ofi_carry_send(&peer->carry, peer->sock);
		if (ret == -EAGAIN)
			ret = peer_watch(peer, true);
		if (ret)
			give_up(peer);
	}
}

void ofi_peers_look(struct ofi_peers *peers)
{
	for (uint32_t i = 0; peers->n_unproved && i < OFI_PEERS_MAX; i++) {
		struct ofi_peer *peer = peers->slots[i];

		if (!peer || peer->proved ||
		    !deadline_expired(peers->target->clock, peer->deadline))
			continue;
		(void)error_set(-ETIMEDOUT, "the client sent no valid grant in time");
		give_up(peer);
	}
}
