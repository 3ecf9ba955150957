/*
 * peers.c - accepts queue pairs, and takes links down.
 */
#include "transport/verbs/peers.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"

enum {
	EVENTS = 64,     /* completion events served at a time */
	RNR_TIMER = 12,  /* 0.64 ms: so long a client waits when all receives are used up */
	RNR_RETRIES = 7, /* of a client's messages then: endless, its own deadline ends it */
};

/* -------- all -------- */

int peers_open(const struct verbs_calls *calls, struct ibv_context *context, struct target *target,
	       const struct alloc_hooks *buffers, struct peers **peers_out)
{
	struct peers *peers = mem_zalloc(sizeof(*peers));
	struct process_id self = { 0 };
	int ret;

	if (!peers)
		return error_set(-ENOMEM, "cannot allocate memory for a table of links");
	ret = process_self(&self);
	peers->buffers = buffers;
	memcpy(peers->boot_id, self.boot_id, sizeof(peers->boot_id));
	if (ret == 0)
		ret = verbs_device_get(calls, context, &peers->device);
	if (ret == 0)
		ret = rights_init(&peers->rights, peers->device, target);
	if (ret == 0)
		peers->channel = calls->create_comp_channel(context);
	if (ret == 0 && !peers->channel)
		ret = verbs_device_error(peers->device, "ibv_create_comp_channel");
	else if (ret == 0 && fcntl(peers->channel->fd, F_SETFL, O_NONBLOCK))
		ret = error_set(-errno, "fcntl: %s", strerror(errno));
	if (ret)
		peers_close(peers, false);
	else
		*peers_out = peers;
	return ret;
}

void peers_close(struct peers *peers, bool forked)
{
	if (!peers)
		return;
	while (!forked && peers->first)
		peers_drop(peers, peers->first);
	while (forked && peers->first) {
		struct peer *peer = peers->first;

		peers->first = peer->next;
		mem_free(peer);
	}
	if (forked) {
		mem_free(peers->rights.regions);
	} else {
		rights_fini(&peers->rights);
		if (peers->channel)
			(void)peers->device->calls->destroy_comp_channel(peers->channel);
		verbs_device_put(&peers->device);
	}
	mem_free(peers);
}

/* -------- a link's life -------- */

void peer_close_opening(struct peer *peer, struct opening **at)
{
	struct opening *opening = *at;

	*at = opening->next;
	peer->n_openings--;
	rights_close(&peer->all->rights, opening);
}

static void peer_destroy(struct peer *peer)
{
	struct peers *peers = peer->all;
	const struct verbs_calls *calls = peers->device->calls;
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };

	/* In the error state nothing lands any more: then the windows that are bound to the queue
	   pairs can be freed. */
	for (uint32_t i = 0; i < peer->n_qps; i++) {
		if (peer->ids[i])
			(void)verbs_device_ended(
				peers->device, "ibv_modify_qp",
				calls->modify_qp(peer->ids[i]->qp, &error, IBV_QP_STATE));
	}
	while (peer->openings)
		peer_close_opening(peer, &peer->openings);
	for (uint32_t i = 0; i < peer->n_qps; i++) {
		if (!peer->ids[i])
			continue;
		calls->cm_destroy_qp(peer->ids[i]);
		peers->n_qps--;
		/* tells the client, if there is one */
		(void)calls->cm_disconnect(peer->ids[i]);
		(void)calls->cm_destroy_id(peer->ids[i]);
	}
	if (peer->completions)
		(void)verbs_device_ended(peers->device, "ibv_destroy_cq",
					 calls->destroy_cq(peer->completions));
	(void)verbs_device_deregister(peers->device, peer->mr);
	peers->rights.n_mrs -= peer->mr != NULL;
	rights_domain_end(&peers->rights, peer->domain);
	alloc_buffer_free(peers->buffers, peer->buffers, sizeof(*peer->buffers));
	mem_free(peer);
}

void peers_drop(struct peers *peers, struct peer *peer)
{
	struct peer **at = &peers->first;

	while (*at != peer)
		at = &(*at)->next;
	*at = peer->next;
	peers->n--;
	peers->n_unproved -= !peer->proved;
	peer_destroy(peer);
}

static int peer_make(struct peers *peers, const struct verbs_hello *hello, struct peer **peer_out)
{
	struct verbs_device *device = peers->device;
	struct peer *peer = mem_zalloc(sizeof(*peer));
	struct mem memory;
	int ret;

	if (!peer)
		return error_set(-ENOMEM, "cannot allocate memory for a link");
	peer->all = peers;
	peer->client_id = hello->client_id;
	peer->number = hello->link;
	peer->n_qps = hello->n_qps;
	peer->deadline = deadline_after(peers->rights.target->clock, PEERS_PROOF_NS);
	peer->probed_ns = clock_now_ns(peers->rights.target->clock);
	ret = rights_domain(&peers->rights, &peer->domain);
	if (ret == 0)
		peer->buffers = alloc_buffer(peers->buffers, 64, sizeof(*peer->buffers));
	if (ret == 0 && !peer->buffers)
		ret = error_set(-ENOMEM, "cannot allocate memory for messages");
	if (ret)
		goto err_destroy;
	memory = chunk_mem(peer->buffers, sizeof(*peer->buffers));
	if (peer->domain != device->pd || !verbs_device_key(device, &memory, &peer->key)) {
		ret = verbs_device_register(device, peer->domain, &memory, IBV_ACCESS_LOCAL_WRITE,
					    &peer->mr);
		if (ret)
			goto err_destroy;
		peer->key = peer->mr->lkey;
		peers->rights.n_mrs++;
	}
	peer->completions = device->calls->create_cq(device->context, PEER_COMPLETIONS, peer,
						     peers->channel, 0);
	if (!peer->completions)
		ret = verbs_device_error(device, "ibv_create_cq");
	else if (ibv_req_notify_cq(peer->completions, 0))
		ret = error_set(-EIO, "device %s: ibv_req_notify_cq failed", device->name);
	if (ret)
		goto err_destroy;
	peer->next = peers->first;
	peers->first = peer;
	peers->n++;
	peers->n_unproved++;
	*peer_out = peer;
	return 0;

err_destroy:
	peer_destroy(peer);
	return ret;
}

/* -------- joining -------- */

static bool is_fenced(const struct peers *peers, uint64_t client_id)
{
	uint64_t n = min_u64(peers->n_fenced, PEERS_FENCED_MAX);

	for (uint64_t i = 0; i < n; i++) {
		if (peers->fenced[i] == client_id)
			return true;
	}
	return false;
}

static struct peer *find_number(const struct peers *peers, uint64_t client_id, uint64_t number)
{
	struct peer *peer = peers->first;

	while (peer && (peer->number != number || peer->client_id != client_id))
		peer = peer->next;
	return peer;
}

/*
 * Makes the queue pair that a HELLO asks for on id, and accepts it with WELCOME and the number of
 * READs that the device serves at a time. After an error the peer does not own id.
 */
static int peer_join(struct peer *peer, struct rdma_cm_id *id, const struct verbs_hello *hello,
		     const struct rdma_conn_param *param)
{
	struct peers *peers = peer->all;
	const struct verbs_device *device = peers->device;
	struct ibv_qp_init_attr attr = {
		.send_cq = peer->completions,
		.recv_cq = peer->completions,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = PEER_SENDS,
			 .max_recv_wr = hello->index == 0 ? PEER_RECEIVES : 1,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	struct ibv_qp_attr timer = { .min_rnr_timer = RNR_TIMER };
	union verbs_any message = { .welcome.incarnation = peers->rights.target->tg.incarnation };
	struct rdma_conn_param mine = {
		.private_data = message.bytes,
		.private_data_len = sizeof(message.welcome),
		.responder_resources = (uint8_t)min_u64(param->responder_resources,
							(uint64_t)device->attr.max_qp_rd_atom),
		.rnr_retry_count = RNR_RETRIES,
	};
	int ret = 0;

	if (device->calls->cm_create_qp(id, peer->domain, &attr))
		return verbs_device_error(device, "rdma_create_qp");
	peer->ids[hello->index] = id;
	for (uint32_t i = 0; ret == 0 && hello->index == 0 && i < PEER_RECEIVES; i++)
		ret = verbs_device_receive(id->qp, i, peer->buffers->in, peer->key);
	memcpy(message.welcome.boot_id, peers->boot_id, sizeof(message.welcome.boot_id));
	if (peers->rights.target->pool->persistent)
		message.welcome.flags = VERBS_PERSISTENT;
	message_seal(&message, VERBS_WELCOME);
	if (ret == 0 && device->calls->cm_accept(id, &mine))
		ret = verbs_device_error(device, "rdma_accept");
	if (ret) {
		peer->ids[hello->index] = NULL;
		device->calls->cm_destroy_qp(id);
		return ret;
	}
	/* if it fails, clients wait longer for a receive; nothing else changes */
	(void)device->calls->modify_qp(id->qp, &timer, IBV_QP_MIN_RNR_TIMER);
	id->context = peer;
	peer->joined++;
	peers->n_qps++;
	return 0;
}

int peers_connect(struct peers *peers, struct rdma_cm_id *id, const struct verbs_hello *hello,
		  const struct rdma_conn_param *param)
{
	struct peer *peer, *old = NULL;
	int ret = 0;

	if (is_fenced(peers, hello->client_id))
		return error_set(-EOWNERDEAD, "client %llu was fenced",
				 (unsigned long long)hello->client_id);
	if (id->verbs != peers->device->context)
		return error_set(-ENOTSUP, "this node uses device %s, not the one of that address",
				 peers->device->name);
	/* Z1 pairs with Z2: its queue pairs are gone before the client hears that the new one is
	   open. */
	if (hello->replaces)
		old = find_number(peers, hello->client_id, hello->replaces);
	if (old)
		peers_drop(peers, old);
	peer = find_number(peers, hello->client_id, hello->link);
	if (!peer && (peers->n >= PEERS_MAX || peers->n_unproved >= PEERS_UNPROVED_MAX))
		return error_set(
			-ECONNREFUSED,
			"this node has %u links, %u of them without a grant: no room for another",
			peers->n, peers->n_unproved);
	if (peer && (peer->n_qps != hello->n_qps || peer->ids[hello->index]))
		return error_set(-EPROTO, "queue pair %u of %u: the link has it already",
				 hello->index, hello->n_qps);
	if (!peer)
		ret = peer_make(peers, hello, &peer);
	if (ret)
		return ret;
	ret = peer_join(peer, id, hello, param);
	if (ret && peer->joined == 0)
		peers_drop(peers, peer);
	return ret;
}

/* -------- by client -------- */

bool peers_fence(struct peers *peers, uint64_t client_id)
{
	bool any = false;
	struct peer *next;

	if (!is_fenced(peers, client_id))
		peers->fenced[peers->n_fenced++ % PEERS_FENCED_MAX] = client_id;
	for (struct peer *peer = peers->first; peer; peer = next) {
		next = peer->next;
		if (peer->client_id != client_id)
			continue;
		peers_drop(peers, peer);
		any = true;
	}
	return any;
}

static const struct peer *find_client(const struct peer *first, uint64_t client_id)
{
	while (first && first->client_id != client_id)
		first = first->next;
	return first;
}

bool peers_have(const struct peers *peers, uint64_t client_id)
{
	return find_client(peers->first, client_id) != NULL;
}

uint32_t peers_count_clients(const struct peers *peers)
{
	uint32_t n = 0;

	/* each client is counted at its last link */
	for (const struct peer *peer = peers->first; peer; peer = peer->next)
		n += !find_client(peer->next, peer->client_id) &&
		     !target_knows(peers->rights.target, peer->client_id);
	return n;
}

void peers_revoke(struct peers *peers, uint64_t client_id, uint32_t region)
{
	struct peer *next;

	for (struct peer *peer = peers->first; peer; peer = next) {
		struct opening **at = &peer->openings;

		next = peer->next;
		if (peer->client_id != client_id)
			continue;
		/* A pending ATTACH of the region ends the link: no key of it becomes valid. */
		if (peer->binding && peer->binding->map.region->info.id == region) {
			peers_drop(peers, peer);
			continue;
		}
		while (*at) {
			if ((*at)->map.region->info.id == region)
				peer_close_opening(peer, at);
			else
				at = &(*at)->next;
		}
	}
}

/* -------- completions -------- */

static void give_up(struct peer *peer)
{
	log_debug("drop link of client %llu: %s", (unsigned long long)peer->client_id,
		  error_last());
	peers_drop(peer->all, peer);
}

/*
 * A client says goodbye with one message, and nobody hears it while the network is down. Its queue
 * pairs on this side would then wait for ever, since it is the client that does all the asking. So
 * every PROBE_NS each queue pair posts an RDMA WRITE of no bytes, which needs neither memory nor a
 * receive there. The client's device acknowledges it, whatever its process does, or else the
 * completion says that the link is dead. -ECONNRESET: no completion within PROBE_LIMIT_NS.
 */
static int probe_link(struct peer *peer, uint64_t now_ns)
{
	uint64_t past_ns = now_ns - peer->probed_ns;
	struct ibv_send_wr probe = { .wr_id = PEER_ID_PROBE,
				     .opcode = IBV_WR_RDMA_WRITE,
				     .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad = NULL;

	if (peer->probes && past_ns >= PROBE_LIMIT_NS)
		return error_set(-ECONNRESET, "the client's device does not answer");
	if (peer->probes || past_ns < PROBE_NS)
		return 0;
	peer->probed_ns = now_ns;
	for (uint32_t i = 0; i < peer->n_qps; i++)
		peer->probes += ibv_post_send(peer->ids[i]->qp, &probe, &bad) == 0; /* not full */
	return 0;
}

void peers_serve(struct peers *peers)
{
	const struct verbs_calls *calls = peers->device->calls;
	struct ibv_cq *cq = NULL;
	void *context = NULL;
	struct peer *next;

	for (int i = 0; i < EVENTS && calls->get_cq_event(peers->channel, &cq, &context) == 0;
	     i++) {
		struct peer *peer = context;

		calls->ack_cq_events(cq, 1);
		if (requests_serve(peer))
			give_up(peer);
	}
	/* Links that do not answer, or have not proved their client in time, are dropped. */
	for (struct peer *peer = peers->first; peer; peer = next) {
		int ret = 0;

		next = peer->next;
		if (peer->proved)
			ret = probe_link(peer, clock_now_ns(peers->rights.target->clock));
		else if (deadline_expired(peers->rights.target->clock, peer->deadline))
			ret = error_set(-ETIMEDOUT, "the client sent no valid grant in time");
		if (ret)
			give_up(peer);
	}
}
