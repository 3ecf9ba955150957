/*
 * The control plane of a store with daemons: every call is a request to its metadata server.
 *
 * One hidden thread for each open store renews the lease and reconnects; and it gives slots back that
 * handles left while the server was away. It touches nothing else. Without it a learner that computes
 * for a minute would look dead.
 */
#include "client/meta/remote.h"
#include "client/meta/report.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/os/futex.h"
#include "base/os/lock.h"
#include "base/os/thread.h"
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define RENEW_TIMEOUT_NS CLOCK_NS_PER_S

enum { BELL_STOP = 1 }; /* bit 0 of the bell: the keeper thread must end */

/* A slot of a handle that is closed: the server does not know that yet. */
struct owed_slot {
	struct owed_slot *next;
	struct meta_object object;
	struct meta_slot slot;
};

struct remote {
	struct meta base;
	bool read_only;
	pthread_t keeper;
	struct owed_slot *owed LOCK_GUARDED_BY(meta_role);
};

static struct remote *remote_of(struct meta *meta)
{
	return (struct remote *)meta;
}

int remote_get(struct meta *meta, uint16_t type, const ProtobufCMessage *request,
	       const ProtobufCMessageDescriptor *answer, void *reply_out)
{
	const struct rpc_call call = { .type = type, .request = request, .reply = answer };

	return rpc_ask(meta->rpc, &call, reply_out);
}

int remote_tell(struct meta *meta, uint16_t type, const ProtobufCMessage *request, bool once)
{
	const struct rpc_call call = { .type = type, .request = request, .once = once };

	return rpc_ask(meta->rpc, &call, NULL);
}

/* Copies the placement and grants of a part out of an answer; a page grant is there only for the
   owner of the client slot. -EPROTO: a field is not valid. */
static int take_part(const Relive__ShardPlace *place, struct meta_part *out)
{
	const ProtobufCBinaryData *grants[PART_PLACES] = {
		[REGION_TREE] = &place->tree_grant,
		[REGION_ROWS] = &place->rows_grant,
		[REGION_SLOTS] = &place->slots_grant,
		[PART_LIMITS] = &place->limits_grant,
		[PART_PAGE] = place->page_grant.len ? &place->page_grant : NULL,
	};

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
	for (uint32_t at = REGION_TREE; at < PART_PLACES; at++) {
		if (!grants[at])
			continue;
		if (grants[at]->len == 0 || grants[at]->len > sizeof(out->grants[at].data))
			return error_set(-EPROTO,
					 "answer of the metadata server: a grant has %zu bytes",
					 grants[at]->len);
		out->grants[at].bytes = (uint32_t)grants[at]->len;
		memcpy(out->grants[at].data, grants[at]->data, grants[at]->len);
	}
	return 0;
}

static int take_object(const Relive__TableReply *reply, struct meta_opened *out)
{
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
	out->place.n_parts = (uint32_t)reply->n_shards;
	out->place.control = reply->control;
	out->place.layout = reply->layout;
	out->place.parts = mem_array(reply->n_shards, sizeof(struct meta_part));
	out->desc = mem_alloc(reply->desc.len);
	out->desc_bytes = reply->desc.len;
	if (!out->place.parts || !out->desc)
		ret = error_set(-ENOMEM, "cannot allocate memory for %zu shards", reply->n_shards);
	else
		memcpy(out->desc, reply->desc.data, reply->desc.len);
	for (size_t s = 0; ret == 0 && s < reply->n_shards; s++)
		ret = take_part(reply->shards[s], &out->place.parts[s]);
	if (ret)
		meta_opened_fini(out);
	return ret;
}

/* Raises the newest known layout version to this one, if that is newer. */
static void hear_of(struct remote *remote, uint64_t layout)
{
	_Atomic uint64_t *newest = &remote->base.layout;
	uint64_t known = atomic_load_explicit(newest, memory_order_relaxed); /* a hint, as below */

	while (layout > known &&
	       !atomic_compare_exchange_weak_explicit(newest, &known, layout, memory_order_relaxed,
						      memory_order_relaxed))
		;
}

/* Makes the call, which answers with the object of that kind and name, and fills *out from the
   answer. Records the answer's layout and the current lease. */
static int ask_object(struct remote *remote, struct rpc_call *call, uint32_t kind, const char *name,
		      struct meta_opened *out)
{
	uint64_t known = atomic_load_explicit(&remote->base.layout, memory_order_relaxed);
	Relive__TableReply *reply;
	int ret;

	call->reply = &relive__table_reply__descriptor;
	ret = rpc_ask(remote->base.rpc, call, &reply);
	if (ret)
		return ret;
	*out = (struct meta_opened){ .object.kind = kind };
	snprintf(out->object.name, sizeof(out->object.name), "%s", name);
	ret = take_object(reply, out);
	protobuf_c_message_free_unpacked(&reply->base, NULL);
	if (ret == 0) {
		hear_of(remote, out->place.layout);
		/* It may have been another object's change that we had heard of. */
		out->place.layout = max_u64(out->place.layout, known);
	}
	/* The grants are for the lease of now. */
	atomic_store_explicit(&remote->base.client_id, rpc_lease(remote->base.rpc).client_id,
			      memory_order_relaxed);
	return ret;
}

static ProtobufCBinaryData uuid_of(const struct meta_object *object)
{
	return (ProtobufCBinaryData){ sizeof(object->uuid), (uint8_t *)object->uuid };
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
	if (wish->load) {
		request.loads = (ProtobufCBinaryData){ 16, (uint8_t *)wish->load->uuid };
		request.beside = wish->load->beside;
	}
	request.fanout = fanout;
	while (wish->fanout && request.n_fanout < TREE_MAX_LEVELS &&
	       wish->fanout[request.n_fanout]) {
		fanout[request.n_fanout] = wish->fanout[request.n_fanout];
		request.n_fanout++;
	}
	return ask_object(remote_of(meta), &call, wish->kind, wish->name, out);
}

static int remote_open(struct meta *meta, const struct meta_object *object,
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
	int ret;

	request.kind = object->kind;
	request.name = (char *)object->name;
	request.read_only = remote_of(meta)->read_only;
	request.access = (uint32_t)access->kind;
	request.owner = access->owner;
	if (object->number)
		request.uuid = uuid_of(object);
	ret = ask_object(remote_of(meta), &call, object->kind, object->name, out);
	if (!object->number)
		return ret;
	if (ret == -ENOENT)
		return error_set(-ESTALE, "%s was dropped", object->name);
	if (ret == 0 && memcmp(out->object.uuid, object->uuid, sizeof(object->uuid)) != 0) {
		meta_opened_fini(out);
		return error_set(-ESTALE, "%s was dropped, and created again under the same name",
				 object->name);
	}
	return ret;
}

static int remote_drop(struct meta *meta, const struct meta_object *object)
{
	Relive__TableDropRequest request = RELIVE__TABLE_DROP_REQUEST__INIT;
	bool any = bits_all_zero(object->uuid, sizeof(object->uuid));

	request.kind = object->kind;
	request.name = (char *)object->name;
	if (!any)
		request.uuid = uuid_of(object);
	return remote_tell(meta, RELIVE__TYPE__TYPE_TABLE_DROP, &request.base, any);
}

static int remote_commit(struct meta *meta, const struct meta_object *object)
{
	Relive__TableCommitRequest request = RELIVE__TABLE_COMMIT_REQUEST__INIT;

	request.kind = object->kind;
	request.name = (char *)object->name;
	request.uuid = uuid_of(object);
	return remote_tell(meta, RELIVE__TYPE__TYPE_TABLE_COMMIT, &request.base, false);
}

static int remote_abandon(struct meta *meta, const struct meta_object *object)
{
	Relive__TableDropRequest request = RELIVE__TABLE_DROP_REQUEST__INIT;

	request.kind = object->kind;
	request.name = (char *)object->name;
	request.uuid = uuid_of(object);
	request.unless_loaded = true;
	return remote_tell(meta, RELIVE__TYPE__TYPE_TABLE_DROP, &request.base, false);
}

static int remote_list(struct meta *meta, uint32_t kind, char (*names)[RLV_NAME_BYTES],
		       size_t *n_inout)
{
	Relive__TableListRequest request = RELIVE__TABLE_LIST_REQUEST__INIT;
	Relive__TableListReply *list;
	int ret;

	request.kind = kind;
	ret = remote_get(meta, RELIVE__TYPE__TYPE_TABLE_LIST, &request.base,
			 &relive__table_list_reply__descriptor, &list);

	if (ret)
		return ret;
	for (size_t i = 0; i < list->n_names && i < *n_inout; i++)
		snprintf(names[i], RLV_NAME_BYTES, "%s", list->names[i]);
	*n_inout = list->n_names;
	protobuf_c_message_free_unpacked(&list->base, NULL);
	return 0;
}

static void fill_slot(Relive__SlotRequest *request, const struct meta_object *object,
		      uint32_t owner)
{
	relive__slot_request__init(request);
	request->table_id = object->number;
	request->owner = owner;
	request->table_uuid = uuid_of(object);
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
	Relive__SlotReply *reply;
	uint32_t owner;
	int ret;

	fill_slot(&request, object, 0);
	request.streams = streams;
	ret = rpc_ask(meta->rpc, &call, &reply);
	if (ret)
		return ret;
	owner = reply->owner;
	protobuf_c_message_free_unpacked(&reply->base, NULL);
	if (owner == 0 || owner > object->max_clients)
		return error_set(-EPROTO, "slot: owner %u of %u", owner, object->max_clients);
	*slot_out = (struct meta_slot){ .owner = owner, .lease = rpc_lease(meta->rpc).client_id };
	return 0;
}

static struct owed_slot *take_owed(struct remote *remote)
{
	struct owed_slot *owed;

	lock_acquire(&remote->base.lock, &meta_role);
	owed = remote->owed;
	if (owed)
		remote->owed = owed->next;
	lock_release(&remote->base.lock, &meta_role);
	return owed;
}

/*
 * If the request was not sent, the slot is put back when the server is there again. A request that was
 * sent is not repeated: it may be done, and the slot may belong to another handle of this client.
 */
static int remote_slot_put(struct meta *meta, const struct meta_object *object,
			   const struct meta_slot *slot, int64_t timeout_ns)
{
	struct remote *remote = remote_of(meta);
	Relive__SlotRequest request;
	const struct rpc_call call = {
		.type = RELIVE__TYPE__TYPE_SLOT_PUT,
		.request = &request.base,
		.timeout_ns = timeout_ns,
	};
	struct owed_slot *owed;
	int ret;

	fill_slot(&request, object, slot->owner);
	request.lease = slot->lease;
	ret = rpc_ask(meta->rpc, &call, NULL);
	owed = ret == -ECONNREFUSED ? mem_alloc(sizeof(*owed)) : NULL;
	if (!owed)
		return ret;
	owed->object = *object;
	owed->slot = *slot;
	lock_acquire(&meta->lock, &meta_role);
	owed->next = remote->owed;
	remote->owed = owed;
	lock_release(&meta->lock, &meta_role);
	return ret;
}

/* Returns the slots that handles left while the server was away; called when it has just
   answered. Stops when it is away again. */
static void put_owed(struct remote *remote)
{
	struct owed_slot *owed;
	int ret = 0;

	while (ret != -ECONNREFUSED && (owed = take_owed(remote)) != NULL) {
		ret = remote_slot_put(&remote->base, &owed->object, &owed->slot, RENEW_TIMEOUT_NS);
		if (ret)
			log_warn("table %s: slot %u: %s", owed->object.name, owed->slot.owner,
				 error_last());
		mem_free(owed);
	}
}

/* -------- the keeper of the lease -------- */

/* Renews the lease and reports the waits of calls; if the server answers, also returns owed
   slots. Returns true if calls wait: the next report is then due soon. */
static bool remote_renew(struct remote *remote)
{
	struct report told;
	struct rpc_call call = {
		.type = RELIVE__TYPE__TYPE_LEASE_RENEW,
		.request = &told.request.base,
		.reply = &relive__lease_renew_reply__descriptor,
		.timeout_ns = RENEW_TIMEOUT_NS,
	};
	Relive__LeaseRenewReply *reply;
	int ret;

	report_make(&remote->base, &told);
	ret = rpc_ask(remote->base.rpc, &call, &reply);
	if (ret) {
		log_debug("renew lease: %s %s", error_name(ret), error_last());
	} else {
		hear_of(remote, reply->layout);
		protobuf_c_message_free_unpacked(&reply->base, NULL);
		put_owed(remote);
	}
	return told.request.n_waits > 0;
}

static void *keep_lease(void *arg)
{
	const uint64_t least_ns = 20 * CLOCK_NS_PER_MS, waiting_ns = CLOCK_NS_PER_S;
	struct remote *remote = arg;
	uint32_t heard = 0;
	bool waits = false;

	for (;;) {
		uint64_t pause = rpc_lease(remote->base.rpc).lease_ns / 3, deadline;
		uint32_t bell = heard;

		pause = max_u64(waits ? min_u64(pause, waiting_ns) : pause, least_ns);
		deadline = deadline_after(clock_monotonic(), (int64_t)pause);
		while (bell == heard && !deadline_expired(clock_monotonic(), deadline)) {
			(void)!futex_wait(&remote->base.bell, heard, deadline);
			/* S1 pairs with S2: nothing but the wish itself */
			bell = atomic_load_explicit(&remote->base.bell, memory_order_acquire);
		}
		if (bell & BELL_STOP)
			return NULL;
		heard = bell;
		waits = remote_renew(remote);
	}
}

static int start_keeper(struct remote *remote)
{
	int ret = thread_start(&remote->keeper, keep_lease, remote);

	return ret ? error_prefix(ret, "renew the lease: ") : 0;
}

static void remote_close(struct meta *meta)
{
	struct remote *remote = remote_of(meta);
	struct owed_slot *owed;

	if (!rpc_is_forked(remote->base.rpc)) {
		/* S2 pairs with S1 */
		atomic_fetch_or_explicit(&meta->bell, BELL_STOP, memory_order_release);
		futex_wake(&meta->bell, 1);
		pthread_join(remote->keeper, NULL);
		while ((owed = take_owed(remote)) != NULL) /* they end with our lease */
			mem_free(owed);
		meta_fini(meta);
	}
	rpc_close(&remote->base.rpc);
	mem_free(remote);
}

static const struct meta_ops remote_ops = {
	.create = remote_create,
	.open = remote_open,
	.drop = remote_drop,
	.commit = remote_commit,
	.abandon = remote_abandon,
	.list = remote_list,
	.connect = meta_connect,
	.slot_get = remote_slot_get,
	.slot_put = remote_slot_put,
	.drain_node = remote_drain_node,
	.remove_node = remote_remove_node,
	.clients = remote_clients,
	.rebalance = remote_rebalance,
	.backup = remote_backup,
	.token = remote_token,
	.info = remote_info,
	.nodes = remote_nodes,
	.persist = remote_persist,
	.close = remote_close,
	.waits = remote_waits,
	.heaps = remote_heaps,
	.lags = remote_lags,
	.heap_call = remote_heap_call,
};

/* -------- open -------- */

int meta_remote_open(const struct uri *uri, const struct rlv_store_opts *opts,
		     struct meta **meta_out)
{
	struct remote *remote = mem_zalloc(sizeof(*remote));
	struct rpc_lease lease;
	int ret;

	if (!remote)
		return error_set(-ENOMEM, "store: cannot allocate memory");
	meta_init(&remote->base, &remote_ops);
	remote->read_only = opts->read_only;
	remote->base.timeout_ns = opts->timeout_ns > 0 ? (uint64_t)opts->timeout_ns : 0;
	ret = rpc_open(uri, opts, &remote->base.rpc);
	if (ret == 0) {
		lease = rpc_lease(remote->base.rpc);
		atomic_init(&remote->base.client_id, lease.client_id);
		remote->base.reader = lease.role == TOKEN_READ;
		ret = start_keeper(remote);
	}
	if (ret == 0) {
		*meta_out = &remote->base;
		return 0;
	}
	rpc_close(&remote->base.rpc);
	meta_fini(&remote->base);
	mem_free(remote);
	return ret;
}
