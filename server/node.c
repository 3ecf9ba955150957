#include "server/node.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <event2/event.h>

#include "wire/dial.h"

#include "base/log.h"

/* -------- connection -------- */

void node_disconnect(struct node *node)
{
	if (!node->up)
		return;
	event_free(node->hangup);
	node->hangup = NULL;
	channel_fini(&node->channel);
	node->up = false;
}

void node_close_transport(struct node *node)
{
	transport_close(&node->tr);
}

static int down(const struct node *node)
{
	return error_set(-EHOSTDOWN, "memory node %s is down", node->name);
}

/* Asks; any failure of the connection is the end of it. */
static int ask(struct node *node, uint16_t type, const ProtobufCMessage *request,
	       const ProtobufCMessageDescriptor *kind, ProtobufCMessage **reply_out)
{
	uint64_t deadline = deadline_after(clock_monotonic(), NODE_TIMEOUT_NS);
	struct channel_frame frame;
	ProtobufCMessage *reply = NULL;
	int ret;

	if (!node->up)
		return down(node);
	if (type == RELIVE__TYPE__TYPE_NODE_FENCE) /* it may have to wait for a death */
		deadline += NODE_DEATH_NS;
	if (type == RELIVE__TYPE__TYPE_NODE_PERSIST) /* it writes whole pools */
		deadline += NODE_PERSIST_NS;
	ret = channel_call(&node->channel, type, request, deadline, &frame);
	if (ret == 0) {
		reply = channel_unpack(kind, &frame);
		ret = reply ? 0 : -EPROTO;
	}
	if (ret) {
		log_warn("ask node %s type %u: %s", node->name, type, error_last());
		node_disconnect(node);
		return down(node);
	}
	*reply_out = reply;
	return 0;
}

/* The answer is nothing but a status. */
static int tell(struct node *node, uint16_t type, const ProtobufCMessage *request)
{
	ProtobufCMessage *reply;
	int ret = ask(node, type, request, &relive__status_reply__descriptor, &reply);

	if (ret)
		return ret;
	ret = dial_status(((const Relive__StatusReply *)reply)->status);
	protobuf_c_message_free_unpacked(reply, NULL);
	return ret ? error_prefix(ret, "memory node %s: ", node->name) : 0;
}

/* -------- regions -------- */

int node_region_new(struct node *node, struct target_region *spec)
{
	Relive__NodeRegion request = RELIVE__NODE_REGION__INIT;
	const Relive__NodeRegionReply *answer;
	ProtobufCMessage *reply;
	int ret;

	request.kind = spec->kind;
	request.table_id = spec->table_id;
	request.shard = spec->shard;
	request.size = spec->size;
	ret = ask(node, RELIVE__TYPE__TYPE_NODE_REGION_NEW, &request.base,
		  &relive__node_region_reply__descriptor, &reply);
	if (ret)
		return ret;
	answer = (const Relive__NodeRegionReply *)reply;
	ret = dial_status(answer->status);
	if (ret == 0 && !answer->region)
		ret = error_set(-EPROTO, "no region in the answer");
	if (ret == 0) {
		spec->id = answer->region->region;
		spec->size = answer->region->size;
		node->used_bytes += spec->size;
	}
	protobuf_c_message_free_unpacked(reply, NULL);
	return ret ? error_prefix(ret, "memory node %s: ", node->name) : 0;
}

int node_region_free(struct node *node, uint32_t region)
{
	Relive__NodeRegion request = RELIVE__NODE_REGION__INIT;

	request.region = region;
	return tell(node, RELIVE__TYPE__TYPE_NODE_REGION_FREE, &request.base);
}

int node_grant(struct node *node, uint64_t client_id, uint32_t region, uint32_t rights,
	       struct region_grant *grant_out)
{
	Relive__NodeGrantRequest request = RELIVE__NODE_GRANT_REQUEST__INIT;
	const Relive__NodeGrantReply *answer;
	ProtobufCMessage *reply;
	int ret;

	request.client_id = client_id;
	request.region = region;
	request.rights = rights;
	ret = ask(node, RELIVE__TYPE__TYPE_NODE_GRANT, &request.base,
		  &relive__node_grant_reply__descriptor, &reply);
	if (ret)
		return ret;
	answer = (const Relive__NodeGrantReply *)reply;
	ret = dial_status(answer->status);
	if (ret == 0 && answer->grant.len > sizeof(grant_out->data))
		ret = error_set(-EPROTO, "grant of %zu bytes", answer->grant.len);
	if (ret == 0) {
		memset(grant_out, 0, sizeof(*grant_out));
		grant_out->bytes = (uint32_t)answer->grant.len;
		memcpy(grant_out->data, answer->grant.data, answer->grant.len);
	}
	protobuf_c_message_free_unpacked(reply, NULL);
	return ret ? error_prefix(ret, "memory node %s: ", node->name) : 0;
}

int node_fence(struct node *node, uint64_t client_id, enum fence_how how,
	       enum fence_result *result_out)
{
	Relive__NodeFenceRequest request = RELIVE__NODE_FENCE_REQUEST__INIT;
	const Relive__NodeFenceReply *answer;
	ProtobufCMessage *reply;
	int ret;

	request.client_id = client_id;
	request.how = (uint32_t)how;
	ret = ask(node, RELIVE__TYPE__TYPE_NODE_FENCE, &request.base,
		  &relive__node_fence_reply__descriptor, &reply);
	if (ret)
		return ret;
	answer = (const Relive__NodeFenceReply *)reply;
	ret = dial_status(answer->status);
	if (ret == 0)
		*result_out = answer->result == FENCE_DEAD ? FENCE_DEAD : FENCE_ALIVE;
	protobuf_c_message_free_unpacked(reply, NULL);
	return ret ? error_prefix(ret, "memory node %s: ", node->name) : 0;
}

int node_persist(struct node *node)
{
	Relive__Empty request = RELIVE__EMPTY__INIT;

	return tell(node, RELIVE__TYPE__TYPE_NODE_PERSIST, &request.base);
}

int node_stats(struct node *node)
{
	Relive__Empty request = RELIVE__EMPTY__INIT;
	const Relive__NodeStatsReply *answer;
	ProtobufCMessage *reply;
	int ret = ask(node, RELIVE__TYPE__TYPE_NODE_STATS, &request.base,
		      &relive__node_stats_reply__descriptor, &reply);

	if (ret)
		return ret;
	answer = (const Relive__NodeStatsReply *)reply;
	ret = dial_status(answer->status);
	if (ret == 0 && answer->info) {
		node->pool_bytes = answer->info->pool_bytes;
		node->used_bytes = answer->info->used_bytes;
		node->regions = answer->info->regions;
		snprintf(node->pages, sizeof(node->pages), "%s", answer->info->pages);
	}
	protobuf_c_message_free_unpacked(reply, NULL);
	return ret;
}

/* -------- our own attachments -------- */

int node_attach(struct node *node, uint32_t region, struct region **region_out)
{
	struct region_grant grant;
	int ret;

	if (!node->tr) {
		const struct transport_opts opts = {
			.timeout_ns = NODE_TIMEOUT_NS,
			.client_id = node->attach_client_id,
		};

		ret = transport_open(node->uri, &opts, &node->tr);
		if (ret)
			return error_prefix(ret, "memory node %s: ", node->name);
	}
	ret = node_grant(node, node->attach_client_id, region, RIGHT_ALL, &grant);
	return ret ? ret : transport_attach(node->tr, &grant, region_out);
}
