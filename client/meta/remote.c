/*
 * The control plane of a store with daemons: every call is a request to its metadata server.
 *
 * One hidden thread for each open store renews the lease and reconnects; and it gives slots back that
 * handles left while the server was away. It touches nothing else. Without it a learner that computes
 * for a minute would look dead.
 */
#include "client/meta/remote.h"

#include "client/meta/waits.h"
#include "client/store/uri.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/os/futex.h"
#include "base/os/lock.h"
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define RENEW_TIMEOUT_NS CLOCK_NS_PER_S

enum {
	BELL_STOP = 1, /* the keeper thread must end */
	BELL_RING = 2, /* added: renew at once */
};

static LOCK_ROLE(watch_role, "layout watches", LOCK_RANK_LEAF);

/* A slot of a handle that is closed: the server does not know that yet. */
struct owed_slot {
	struct owed_slot *next;
	struct meta_object object;
	struct meta_slot slot;
};

struct remote {
	struct meta base;
	bool read_only;
	uint64_t timeout_ns; /* of data operations; 0 = the transport's own */
	pthread_t keeper;
	_Atomic uint32_t bell; /* futex of the keeper: BELL_STOP, and how often it was rung */
	struct lock lock;      /* watches, owed */
	struct meta_watch *watches LOCK_GUARDED_BY(watch_role);
	struct owed_slot *owed LOCK_GUARDED_BY(watch_role);
};

static struct remote *remote_of(struct meta *meta)
{
	return (struct remote *)meta;
}

static int take_grant(const ProtobufCBinaryData *bytes, struct region_grant *out)
{
	if (bytes->len == 0 || bytes->len > sizeof(out->data))
		return error_set(-EPROTO, "answer of the metadata server: a grant has %zu bytes",
				 bytes->len);
	memset(out, 0, sizeof(*out));
	out->bytes = (uint32_t)bytes->len;
	memcpy(out->data, bytes->data, bytes->len);
	return 0;
}

/* Only the owner of a client slot is granted its page. */
static int take_shard(const Relive__ShardPlace *place, struct meta_part *out)
{
	const ProtobufCBinaryData *grants[PART_PLACES] = {
		[REGION_TREE] = &place->tree_grant,
		[REGION_ROWS] = &place->rows_grant,
		[REGION_SLOTS] = &place->slots_grant,
		[PART_LIMITS] = &place->limits_grant,
		[PART_PAGE] = place->page_grant.len ? &place->page_grant : NULL,
	};
	int ret = 0;

	if (strlen(place->node_uri) >= sizeof(out->node_uri))
		return error_set(-EPROTO,
				 "answer of the metadata server: a node address has %zu bytes",
				 strlen(place->node_uri));
	if (place->state < RLV_SHARD_ACTIVE || place->state > RLV_SHARD_GONE)
		return error_set(
			-EPROTO,
			"answer of the metadata server: a shard is in the unknown state %u",
			place->state);
	memcpy(out->node_uri, place->node_uri, strlen(place->node_uri) + 1);
	snprintf(out->node, sizeof(out->node), "%s", place->node);
	out->state = place->state;
	out->weight = place->weight < META_WEIGHT_FULL ? place->weight : META_WEIGHT_FULL;
	out->ramp_ns = place->ramp_ns;
	out->incarnation = place->incarnation;
	if (out->state > RLV_SHARD_DRAINING) /* no grants are given */
		return 0;
	for (uint32_t at = REGION_TREE; ret == 0 && at < PART_PLACES; at++)
		if (grants[at])
			ret = take_grant(grants[at], &out->grants[at]);
	return ret;
}

static int take_object(const Relive__TableReply *reply, struct meta_opened *out)
{
	struct meta_place place = {
		.n_parts = (uint32_t)reply->n_shards,
		.control = reply->control,
		.layout = reply->layout,
	};
	int ret = 0;

	if (reply->desc.len == 0 || reply->uuid.len != sizeof(out->object.uuid))
		return error_set(-EPROTO,
				 "answer of the metadata server: a descriptor has %zu bytes, a "
				 "uuid %zu",
				 reply->desc.len, reply->uuid.len);
	if (reply->n_shards > OBJECT_MAX_PARTS || reply->control >= reply->n_shards)
		return error_set(-EPROTO,
				 "answer of the metadata server: %zu shards with control shard %u",
				 reply->n_shards, reply->control);
	out->object.number = reply->object;
	out->object.max_clients = reply->max_clients;
	memcpy(out->object.uuid, reply->uuid.data, sizeof(out->object.uuid));
	place.parts = mem_array(place.n_parts, sizeof(struct meta_part));
	out->desc = mem_alloc(reply->desc.len);
	out->desc_bytes = reply->desc.len;
	out->place = place;
	if (!place.parts || !out->desc)
		ret = error_set(-ENOMEM, "cannot allocate memory for %u shards", place.n_parts);
	else
		memcpy(out->desc, reply->desc.data, reply->desc.len);
	for (uint32_t s = 0; ret == 0 && s < place.n_parts; s++)
		ret = take_shard(reply->shards[s], &place.parts[s]);
	if (ret)
		meta_opened_fini(out);
	return ret;
}

/* Records that a layout of this version exists. */
static void hear_of(struct remote *remote, uint64_t layout)
{
	_Atomic uint64_t *newest = &remote->base.layout;
	uint64_t known = atomic_load_explicit(newest, memory_order_relaxed); /* a hint, as below */

	while (layout > known &&
	       !atomic_compare_exchange_weak_explicit(newest, &known, layout, memory_order_relaxed,
						      memory_order_relaxed))
		;
}

/* Asks for the object of that kind and name. */
static int ask_object(struct remote *remote, struct rpc_call *call, uint32_t kind, const char *name,
		      struct meta_opened *out)
{
	uint64_t known = atomic_load_explicit(&remote->base.layout, memory_order_relaxed);
	struct rpc_lease lease;
	ProtobufCMessage *reply;
	int ret;

	call->reply = &relive__table_reply__descriptor;
	ret = rpc_ask(remote->base.rpc, call, &reply);
	if (ret)
		return ret;
	*out = (struct meta_opened){ .object.kind = kind };
	snprintf(out->object.name, sizeof(out->object.name), "%s", name);
	ret = take_object((const Relive__TableReply *)reply, out);
	protobuf_c_message_free_unpacked(reply, NULL);
	if (ret == 0) {
		hear_of(remote, out->place.layout);
		/* It may have been another object's change that we had heard of. */
		out->place.layout = max_u64(out->place.layout, known);
	}
	/* The grants are for the lease of now. */
	rpc_lease(remote->base.rpc, &lease);
	atomic_store_explicit(&remote->base.client_id, lease.client_id, memory_order_relaxed);
	return ret;
}

static int remote_create(struct meta *meta, const struct meta_wish *wish, struct meta_opened *out)
{
	Relive__TableCreateRequest request = RELIVE__TABLE_CREATE_REQUEST__INIT;
	struct rpc_call call = {
		.type = RELIVE__TYPE__TYPE_TABLE_CREATE,
		.request = &request.base,
	};
	uint32_t fanout[TREE_MAX_LEVELS];

	request.kind = wish->kind;
	request.name = (char *)wish->name;
	request.desc = (ProtobufCBinaryData){ wish->desc_bytes, (uint8_t *)wish->desc };
	request.auto_shards = wish->auto_shards;
	request.crc_by_nodes = wish->crc_by_nodes;
	request.block = wish->block;
	request.fanout = fanout;
	while (wish->fanout && request.n_fanout < TREE_MAX_LEVELS &&
	       wish->fanout[request.n_fanout]) {
		fanout[request.n_fanout] = wish->fanout[request.n_fanout];
		request.n_fanout++;
	}
	return ask_object(remote_of(meta), &call, wish->kind, wish->name, out);
}

/* timeout_ns 0: as long as control calls wait, also for a server that is away. */
static int open_object(struct remote *remote, const struct meta_object *object,
		       const struct meta_access *access, int64_t timeout_ns,
		       struct meta_opened *out)
{
	Relive__TableOpenRequest request = RELIVE__TABLE_OPEN_REQUEST__INIT;
	struct rpc_call call = {
		.type = RELIVE__TYPE__TYPE_TABLE_OPEN,
		.request = &request.base,
		.timeout_ns = timeout_ns,
		.no_wait = timeout_ns != 0,
	};

	request.kind = object->kind;
	request.name = (char *)object->name;
	request.read_only = remote->read_only;
	request.access = (uint32_t)access->kind;
	request.owner = access->owner;
	return ask_object(remote, &call, object->kind, object->name, out);
}

static int remote_open(struct meta *meta, uint32_t kind, const char *name, struct meta_opened *out)
{
	struct meta_object object = { .kind = kind };

	snprintf(object.name, sizeof(object.name), "%s", name);
	return open_object(remote_of(meta), &object, META_LOOKS, 0, out);
}

static int remote_refresh(struct meta *meta, const struct meta_object *object,
			  const struct meta_access *access, int64_t timeout_ns,
			  struct meta_place *out)
{
	struct meta_opened opened;
	int ret = open_object(remote_of(meta), object, access, timeout_ns, &opened);

	if (ret == -ENOENT)
		return error_set(-ESTALE, "%s was dropped", object->name);
	if (ret)
		return ret;
	if (memcmp(opened.object.uuid, object->uuid, sizeof(object->uuid)) != 0) {
		meta_opened_fini(&opened);
		return error_set(-ESTALE, "%s was dropped, and created again under the same name",
				 object->name);
	}
	*out = opened.place;
	opened.place = (struct meta_place){ 0 };
	meta_opened_fini(&opened);
	return 0;
}

static int remote_connect(struct meta *meta, const char *node_uri, int64_t timeout_ns,
			  uint64_t replaces, struct transport **tr_out)
{
	const struct transport_opts opts = {
		.client_id = atomic_load_explicit(&meta->client_id, memory_order_relaxed),
		.replaces = replaces,
		.timeout_ns = remote_of(meta)->timeout_ns,
		.open_ns = timeout_ns > 0 ? (uint64_t)timeout_ns : 0,
	};

	return transport_open(node_uri, &opts, tr_out);
}

static int remote_drop(struct meta *meta, const char *name)
{
	Relive__TableDropRequest request = RELIVE__TABLE_DROP_REQUEST__INIT;

	request.name = (char *)name;
	return rpc_tell(meta->rpc, RELIVE__TYPE__TYPE_TABLE_DROP, &request.base, true);
}

static int remote_list(struct meta *meta, char (*names)[RLV_NAME_BYTES], size_t *n_inout)
{
	Relive__TableListRequest request = RELIVE__TABLE_LIST_REQUEST__INIT;
	const Relive__TableListReply *list;
	ProtobufCMessage *reply;
	int ret = rpc_get(meta->rpc, RELIVE__TYPE__TYPE_TABLE_LIST, &request.base,
			  &relive__table_list_reply__descriptor, &reply);

	if (ret)
		return ret;
	list = (const Relive__TableListReply *)reply;
	for (size_t i = 0; i < list->n_names && i < *n_inout; i++)
		snprintf(names[i], RLV_NAME_BYTES, "%s", list->names[i]);
	*n_inout = list->n_names;
	protobuf_c_message_free_unpacked(reply, NULL);
	return 0;
}

static void fill_slot(Relive__SlotRequest *request, const struct meta_object *object,
		      uint32_t owner)
{
	relive__slot_request__init(request);
	request->table_id = object->number;
	request->owner = owner;
	request->table_uuid =
		(ProtobufCBinaryData){ sizeof(object->uuid), (uint8_t *)object->uuid };
}

static int remote_slot_get(struct meta *meta, const struct meta_object *object, uint32_t streams,
			   int64_t timeout_ns, struct meta_slot *slot_out)
{
	Relive__SlotRequest request;
	struct rpc_call call = {
		.type = RELIVE__TYPE__TYPE_SLOT_GET,
		.request = &request.base,
		.reply = &relive__slot_reply__descriptor,
		.timeout_ns = timeout_ns,
	};
	ProtobufCMessage *reply;
	struct rpc_lease lease;
	uint32_t owner;
	int ret;

	fill_slot(&request, object, 0);
	request.streams = streams;
	ret = rpc_ask(meta->rpc, &call, &reply);
	if (ret)
		return ret;
	owner = ((const Relive__SlotReply *)reply)->owner;
	protobuf_c_message_free_unpacked(reply, NULL);
	if (owner == 0 || owner > object->max_clients)
		return error_set(-EPROTO, "slot: owner %u of %u", owner, object->max_clients);
	rpc_lease(meta->rpc, &lease);
	*slot_out = (struct meta_slot){ .owner = owner, .lease = lease.client_id };
	return 0;
}

static int put_slot(struct remote *remote, const struct meta_object *object,
		    const struct meta_slot *slot, int64_t timeout_ns)
{
	Relive__SlotRequest request;
	struct rpc_call call = {
		.type = RELIVE__TYPE__TYPE_SLOT_PUT,
		.request = &request.base,
		.reply = &relive__status_reply__descriptor,
		.timeout_ns = timeout_ns,
	};
	ProtobufCMessage *reply;
	int ret;

	fill_slot(&request, object, slot->owner);
	request.lease = slot->lease;
	ret = rpc_ask(remote->base.rpc, &call, &reply);
	if (ret == 0)
		protobuf_c_message_free_unpacked(reply, NULL);
	return ret;
}

static void remote_owe(struct remote *remote, struct owed_slot *owed)
{
	lock_acquire(&remote->lock, &watch_role);
	owed->next = remote->owed;
	remote->owed = owed;
	lock_release(&remote->lock, &watch_role);
}

static struct owed_slot *take_owed(struct remote *remote)
{
	struct owed_slot *owed;

	lock_acquire(&remote->lock, &watch_role);
	owed = remote->owed;
	if (owed)
		remote->owed = owed->next;
	lock_release(&remote->lock, &watch_role);
	return owed;
}

/*
 * If the request was not sent, the slot is put back when the server is there again. A request that was
 * sent is not repeated: it may be done, and the slot may belong to another handle of this client.
 */
static int remote_slot_put(struct meta *meta, const struct meta_object *object,
			   const struct meta_slot *slot, int64_t timeout_ns)
{
	int ret = put_slot(remote_of(meta), object, slot, timeout_ns);
	struct owed_slot *owed = ret == -ECONNREFUSED ? mem_alloc(sizeof(*owed)) : NULL;

	if (!owed)
		return ret;
	owed->object = *object;
	owed->slot = *slot;
	remote_owe(remote_of(meta), owed);
	return ret;
}

/* The server has just answered. */
static void put_owed(struct remote *remote)
{
	struct owed_slot *owed = take_owed(remote);

	while (owed) {
		int ret = put_slot(remote, &owed->object, &owed->slot, RENEW_TIMEOUT_NS);

		if (ret)
			log_warn("table %s: slot %u: %s", owed->object.name, owed->slot.owner,
				 error_last());
		if (ret == -ECONNREFUSED) {
			remote_owe(remote, owed);
			return;
		}
		mem_free(owed);
		owed = take_owed(remote);
	}
}

/* -------- layouts -------- */

static void remote_watch(struct meta *meta, struct meta_watch *watch)
{
	struct remote *remote = remote_of(meta);

	lock_acquire(&remote->lock, &watch_role);
	watch->next = remote->watches;
	remote->watches = watch;
	lock_release(&remote->lock, &watch_role);
}

static void remote_unwatch(struct meta *meta, struct meta_watch *watch)
{
	struct remote *remote = remote_of(meta);
	struct meta_watch **at;

	lock_acquire(&remote->lock, &watch_role);
	for (at = &remote->watches; *at && *at != watch; at = &(*at)->next)
		;
	if (*at)
		*at = watch->next;
	lock_release(&remote->lock, &watch_role);
}

/* The first word of a wait is passed on at once, the others with the next renewals. */
static void remote_wait(struct meta *meta, struct meta_watch *watch, const struct meta_wait *wait)
{
	struct remote *remote = remote_of(meta);
	bool fresh;

	lock_acquire(&remote->lock, &watch_role);
	fresh = meta_waits_note(watch, wait);
	lock_release(&remote->lock, &watch_role);
	if (!fresh)
		return;
	atomic_fetch_add_explicit(&remote->bell, BELL_RING, memory_order_release);
	futex_wake(&remote->bell, 1);
}

/* The oldest layout that any handle uses. */
static uint64_t oldest_layout(struct remote *remote)
{
	uint64_t oldest = atomic_load_explicit(&remote->base.layout, memory_order_relaxed);

	lock_acquire(&remote->lock, &watch_role);
	for (struct meta_watch *watch = remote->watches; watch; watch = watch->next) {
		uint64_t taken = atomic_load_explicit(&watch->layout, memory_order_relaxed);

		oldest = taken < oldest ? taken : oldest;
	}
	lock_release(&remote->lock, &watch_role);
	return oldest;
}

/* -------- the keeper of the lease -------- */

/* Returns true if calls wait: the next report is then due soon. */
static bool remote_renew(struct remote *remote)
{
	Relive__LeaseRenewRequest request = RELIVE__LEASE_RENEW_REQUEST__INIT;
	struct rpc_call call = {
		.type = RELIVE__TYPE__TYPE_LEASE_RENEW,
		.request = &request.base,
		.reply = &relive__lease_renew_reply__descriptor,
		.timeout_ns = RENEW_TIMEOUT_NS,
	};
	struct meta_waits told;
	ProtobufCMessage *reply;
	int ret;

	lock_acquire(&remote->lock, &watch_role);
	meta_waits_collect(remote->watches, &told);
	lock_release(&remote->lock, &watch_role);
	request.n_waits = told.n;
	request.waits = told.list;
	request.layout = oldest_layout(remote);
	ret = rpc_ask(remote->base.rpc, &call, &reply);
	if (ret) {
		log_debug("renew lease: %s %s", error_name(ret), error_last());
		return told.n > 0;
	}
	hear_of(remote, ((const Relive__LeaseRenewReply *)reply)->layout);
	protobuf_c_message_free_unpacked(reply, NULL);
	put_owed(remote);
	return told.n > 0;
}

static uint64_t next_renewal(struct remote *remote, bool waits)
{
	const int64_t least_ns = 20 * CLOCK_NS_PER_MS, waiting_ns = CLOCK_NS_PER_S;
	struct rpc_lease lease;
	int64_t pause;

	rpc_lease(remote->base.rpc, &lease);
	pause = (int64_t)(lease.lease_ns / 3);
	if (waits && pause > waiting_ns)
		pause = waiting_ns;
	return deadline_after(clock_monotonic(), pause < least_ns ? least_ns : pause);
}

static void *keep_lease(void *arg)
{
	struct remote *remote = arg;
	uint32_t heard = 0;
	bool waits = false;

	for (;;) {
		uint64_t deadline = next_renewal(remote, waits);
		uint32_t bell = heard;

		while (bell == heard && !deadline_expired(clock_monotonic(), deadline)) {
			(void)!futex_wait(&remote->bell, heard, deadline);
			/* S1 pairs with S2: nothing but the wish itself */
			bell = atomic_load_explicit(&remote->bell, memory_order_acquire);
		}
		if (bell & BELL_STOP)
			return NULL;
		heard = bell;
		waits = remote_renew(remote);
	}
}

/* The user's signals are not for our thread. */
static int start_keeper(struct remote *remote)
{
	sigset_t all, old;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = pthread_create(&remote->keeper, NULL, keep_lease, remote);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return ret ? error_set(-ret, "start the thread that renews the lease: %s", strerror(ret))
		   : 0;
}

static void remote_close(struct meta *meta)
{
	struct remote *remote = remote_of(meta);
	struct owed_slot *owed;

	if (!rpc_is_forked(remote->base.rpc)) {
		/* S2 pairs with S1 */
		atomic_fetch_or_explicit(&remote->bell, BELL_STOP, memory_order_release);
		futex_wake(&remote->bell, 1);
		pthread_join(remote->keeper, NULL);
		while ((owed = take_owed(remote)) != NULL) /* they end with our lease */
			mem_free(owed);
		lock_fini(&remote->lock);
	}
	rpc_close(&remote->base.rpc);
	mem_free(remote);
}

static const struct meta_ops remote_ops = {
	.create = remote_create,
	.open = remote_open,
	.refresh = remote_refresh,
	.drop = remote_drop,
	.list = remote_list,
	.connect = remote_connect,
	.slot_get = remote_slot_get,
	.slot_put = remote_slot_put,
	.drain_node = remote_drain_node,
	.drop_node = remote_drop_node,
	.clients = remote_clients,
	.forget_node = remote_forget_node,
	.rebalance = remote_rebalance,
	.backup = remote_backup,
	.token = remote_token,
	.info = remote_info,
	.nodes = remote_nodes,
	.persist = remote_persist,
	.close = remote_close,
	.watch = remote_watch,
	.unwatch = remote_unwatch,
	.wait = remote_wait,
	.waits = remote_waits,
};

/* -------- open -------- */

int meta_remote_open(const char *text, const struct rlv_store_opts *opts, struct meta **meta_out)
{
	struct rpc_opts rpc = {
		.token = opts->token,
		.tls = { opts->tls_cert, opts->tls_key, opts->tls_ca },
		.timeout_ns = opts->timeout_ns,
	};
	struct remote *remote;
	struct rpc_lease lease;
	struct uri uri;
	int ret = uri_parse(text, &uri);

	if (ret)
		return ret;
	remote = mem_zalloc(sizeof(*remote));
	if (!remote)
		return error_set(-ENOMEM, "store: cannot allocate memory");
	remote->base.ops = &remote_ops;
	remote->read_only = opts->read_only;
	remote->timeout_ns = opts->timeout_ns > 0 ? (uint64_t)opts->timeout_ns : 0;
	lock_init(&remote->lock, &watch_role);
	rpc.store = uri.kind == URI_SHM ? uri.text : NULL;
	rpc.host = uri.text;
	rpc.port = uri.port;
	ret = rpc_open(&rpc, &remote->base.rpc);
	if (ret)
		goto err_free;
	rpc_lease(remote->base.rpc, &lease);
	atomic_init(&remote->base.client_id, lease.client_id);
	remote->base.reader = lease.role == TOKEN_READ;
	ret = start_keeper(remote);
	if (ret)
		goto err_close;
	*meta_out = &remote->base;
	return 0;

err_close:
	rpc_close(&remote->base.rpc);
err_free:
	lock_fini(&remote->lock);
	mem_free(remote);
	return ret;
}
