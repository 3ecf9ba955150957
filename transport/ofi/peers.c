/*
 * peers.c - links, from a connection to their end.
 */
#include "transport/ofi/openings.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
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
		ofi_opening_close(peer, peer->openings.at[i]);
		if (ret == 0)
			ofi_opening_free(peer, i);
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
				ofi_opening_close(peer, at);
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

static int on_attach(struct ofi_peer *peer, const struct ofi_attach *ask)
{
	union ofi_any message = { .attached.request = ask->request };
	struct ofi_attached *answer = &message.attached;

	if (!peer->greeted || ofi_opening_find(peer, ask->request) < peer->openings.room)
		return error_set(-EPROTO, "request %u: before HELLO, or its number is in use",
				 ask->request);
	answer->status = ofi_opening_grant(peer, ask, &answer->opening);
	if (answer->status) {
		(void)snprintf(answer->text, OFI_TEXT_BYTES, "%.*s", OFI_TEXT_BYTES - 1,
			       error_last());
		return peer_send(peer, &message, OFI_ATTACHED);
	}
	ofi_opening_describe(peer, answer);
	return peer_send(peer, &message, OFI_ATTACHED);
}

static void on_detach(struct ofi_peer *peer, const struct ofi_detach *detach)
{
	uint32_t number = ofi_opening_find(peer, detach->request);

	if (number == peer->openings.room ||
	    peer->openings.at[number]->map.region->info.id != detach->region)
		return;
	ofi_opening_close(peer, peer->openings.at[number]);
	ofi_opening_free(peer, number);
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
