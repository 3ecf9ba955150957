/*
 * rpc_nodes.c - requests of memory nodes, and about them.
 */
#include "server/metad/rpc_call.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"

/* -------- register -------- */

static int answer_register(struct channel *ch, const struct metad *md, uint64_t request_id,
			   int code)
{
	Relive__NodeRegisterReply reply = RELIVE__NODE_REGISTER_REPLY__INIT;
	Relive__Status status = RELIVE__STATUS__INIT;

	status.code = code;
	if (code) {
		status.message = (char *)error_last();
		log_error("register node: %s", status.message);
	}
	reply.status = &status;
	reply.store_uuid = (ProtobufCBinaryData){ sizeof(md->store->ids.uuid),
						  (uint8_t *)md->store->ids.uuid };
	reply.store_name = (char *)md->opts.store;
	reply.lease_ns = md->nodes.lease_ns;
	return channel_send(ch, RELIVE__TYPE__TYPE_NODE_REGISTER | FRAME_ANSWER, request_id,
			    &reply.base, deadline_after(clock_monotonic(), NODE_SEND_NS));
}

/* Owns ch: joins the node, records its regions, answers, then attaches them. */
static void node_join(struct metad *md, struct channel *ch, uint64_t request_id,
		      struct catalog_arrival *arrival)
{
	const struct node_news *news = arrival->news;
	int ret = nodes_join(&md->nodes, news, ch, &arrival->node, &arrival->replaced);

	if (ret) {
		(void)!answer_register(ch, md, request_id, ret);
		channel_fini(ch);
		return;
	}
	ch = &arrival->node->remote->channel;
	ret = catalog_take(&md->catalog, arrival);
	if (ret) {
		(void)!answer_register(ch, md, request_id, ret);
		node_disconnect(arrival->node);
		return;
	}
	log_info("node %s at %s pool %llu", news->name, news->uri,
		 (unsigned long long)news->pool_bytes);
	if (answer_register(ch, md, request_id, 0)) {
		log_warn("register node %s: %s", news->name, error_last());
	} else {
		nodes_cut_former(&md->nodes, arrival->node);
		catalog_node_up(&md->catalog, arrival);
	}
	metad_hurry(md);
}

/* Copies a uuid to out, which stays zero if the uuid is missing. what: its name in the message.
   -EPROTO: it has not 16 bytes. */
static int take_uuid(const char *what, const ProtobufCBinaryData *uuid, uint8_t out[16])
{
	if (uuid->len != 0 && uuid->len != 16)
		return error_set(-EPROTO, "node: %s of %zu bytes, want 16", what, uuid->len);
	if (uuid->len)
		memcpy(out, uuid->data, 16);
	return 0;
}

int rpc_node_register(const struct call *call, const ProtobufCMessage *message)
{
	const Relive__NodeRegisterRequest *request = (const Relive__NodeRegisterRequest *)message;
	struct metad *md = call->md;
	struct node_news news = {
		.name = request->name,
		.uri = request->uri,
		.pages = request->pages,
		.incarnation = request->incarnation,
		.pool_bytes = request->pool_bytes,
		.persistent = request->persistent,
		.sole_opener = request->sole_opener,
	};
	struct catalog_arrival arrival = {
		.node = nodes_find(&md->nodes, request->name),
		.news = &news,
		.regions = (const Relive__NodeRegion *const *)request->regions,
		.n_regions = request->n_regions,
		.store_name = request->store_name,
		.claim = request->claim,
	};
	struct channel ch;
	int ret = take_uuid("pool uuid", &request->pool_uuid, news.pool);

	if (ret == 0)
		ret = take_uuid("store uuid", &request->store_uuid, arrival.store_uuid);
	if (ret == 0)
		ret = nodes_admit(&md->nodes, &news);
	if (ret == 0)
		ret = catalog_admit(&md->catalog, &arrival);
	if (ret) {
		log_warn("refuse node: %s", error_last());
		return ret;
	}
	if (conn_detach(call->conn, &ch)) {
		log_warn("register node %s: %s", request->name, error_last());
		conn_drop(call->conn);
	} else {
		node_join(md, &ch, call->head->request_id, &arrival);
	}
	return RPC_ANSWERED;
}

/* -------- leave -------- */

/* NULL: -ENOENT. */
static struct node *node_of(const struct call *call, const ProtobufCMessage *message)
{
	const Relive__NodeNameRequest *request = (const Relive__NodeNameRequest *)message;
	struct node *node = nodes_find(&call->md->nodes, request->name);

	if (!node)
		(void)error_set(-ENOENT, "no memory node %.64s in this store", request->name);
	return node;
}

/* Starts moving all shards off the node, and answers how many are still there. -ENOENT: no such
   node; -EHOSTDOWN: the node is down, or holds shards and no other node is up; -ENOTSUP: a shard
   cannot leave it. Store errors. */
int rpc_node_drain(const struct call *call, const ProtobufCMessage *message)
{
	Relive__NodeDrainReply reply = RELIVE__NODE_DRAIN_REPLY__INIT;
	struct node *node = node_of(call, message);
	struct catalog_leaving leaving = { 0 };
	struct metad *md = call->md;
	int ret;

	if (!node)
		return -ENOENT;
	if (!node->up)
		return error_set(-EHOSTDOWN, "memory node %s is down: drop it, or wait for it",
				 node->name);
	if (!node->draining) {
		if (nodes_count(&md->nodes, true) == 1 &&
		    catalog_parts_of(&md->catalog, node, NULL))
			return error_set(-EHOSTDOWN,
					 "memory node %s is the only one that is up: what it "
					 "holds has nowhere to go",
					 node->name);
		ret = catalog_may_drain(&md->catalog, node);
		if (ret == 0)
			ret = nodes_set_draining(&md->nodes, node, true);
		if (ret)
			return ret;
		for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++)
			if (md->catalog.objects[id])
				catalog_spread_soon(md->catalog.objects[id]);
		metad_hurry(md);
	}
	reply.shards = catalog_parts_of(&md->catalog, node, &leaving);
	reply.items_left = leaving.items_left;
	reply.items_begin = leaving.items_begin;
	return rpc_answer(call, &reply.base, &reply.status);
}

int rpc_node_drop(const struct call *call, const ProtobufCMessage *message)
{
	struct node *node = node_of(call, message);

	metad_hurry(call->md);
	return node ? nodes_drop(&call->md->nodes, node) : -ENOENT;
}

int rpc_node_forget(const struct call *call, const ProtobufCMessage *message)
{
	struct node *node = node_of(call, message);
	struct metad *md = call->md;
	int ret = 0;

	if (!node)
		return -ENOENT;
	if (node->up)
		node_read(node); /* it may have disconnected just now */
	if (!node->up)
		ret = catalog_node_forget(&md->catalog, node);
	if (ret)
		return ret;
	liveness_forget_node(&md->live, node);
	return nodes_forget(&md->nodes, node);
}
