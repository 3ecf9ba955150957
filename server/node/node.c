#include "server/node/node.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <event2/event.h>

#include "wire/control/dial.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"

/* An outstanding request; in the node's list until its result is delivered. */
struct node_call {
	struct node_call *next;
	struct node_post post;
	uint64_t id;
	uint64_t deadline;
	bool ended;
	int code;
	ProtobufCMessage *reply;
};

int node_error_down(const struct node *node)
{
	return error_set(-EHOSTDOWN, "memory node %s is down", node->name);
}

/* -------- connection -------- */

static void end_call(struct node_call *call, int code, ProtobufCMessage *reply)
{
	call->ended = true;
	call->code = code;
	call->reply = reply;
}

void node_disconnect(struct node *node)
{
	if (!node->up)
		return;
	event_free(node->remote->readable);
	channel_fini(&node->remote->channel);
	node->up = false;
	node->down_since = node_now(node);
	for (struct node_call *call = node->remote->calls; call; call = call->next)
		if (!call->ended)
			end_call(call, -EHOSTDOWN, NULL);
	node_attach_forget(node);
}

static void call_free(struct node_call *call)
{
	if (call->reply)
		protobuf_c_message_free_unpacked(call->reply, NULL);
	mem_free(call);
}

void node_free(struct node *node)
{
	node_disconnect(node);
	while (node->remote->calls) {
		struct node_call *call = node->remote->calls;

		node->remote->calls = call->next;
		call_free(call);
	}
	node_attach_fini(node);
	node_close_transport(node);
	mem_free(node);
}

void node_close_transport(struct node *node)
{
	node_attach_forget(node);
	transport_close(&node->tr);
}

/* -------- calls -------- */

int node_post(struct node *node, const struct node_post *post)
{
	struct node_call *call;
	int ret;

	if (!node->up)
		return node_error_down(node);
	call = mem_zalloc(sizeof(*call));
	if (!call)
		return error_set(-ENOMEM, "ask node %s: cannot allocate memory", node->name);
	call->post = *post;
	call->id = ++node->remote->channel.last_id;
	call->deadline = node_now(node) + post->timeout_ns;
	ret = channel_send(&node->remote->channel, post->type, call->id, post->request,
			   deadline_after(clock_monotonic(), NODE_SEND_NS));
	if (ret) {
		log_warn("ask node %s type %u: %s", node->name, post->type, error_last());
		mem_free(call);
		node_disconnect(node);
		return node_error_down(node);
	}
	node->remote->asked = node->remote->asked ? node->remote->asked : node_now(node);
	call->next = node->remote->calls;
	node->remote->calls = call;
	return 0;
}

/* The Status of an answer, which is the first field of every answer's message. */
static const Relive__Status *status_of(const ProtobufCMessage *reply)
{
	const ProtobufCFieldDescriptor *field =
		protobuf_c_message_descriptor_get_field(reply->descriptor, 1);
	const Relive__Status *status;

	memcpy(&status, (const char *)reply + field->offset, sizeof(void *));
	return status;
}

/* Ends the call that the frame answers. An answer to a call that has ended is late: ignored.
   -EPROTO: no request had that id, or not with such an answer. */
static int take_answer(struct node *node, const struct channel_frame *frame)
{
	struct node_call *call = node->remote->calls;
	ProtobufCMessage *reply;

	while (call && (call->id != frame->head.request_id || call->ended))
		call = call->next;
	if (!call)
		return frame->head.request_id <= node->remote->channel.last_id
			       ? 0
			       : error_set(-EPROTO, "an answer without a request");
	if (frame->head.type != (call->post.type | FRAME_ANSWER))
		return error_set(-EPROTO, "answer of type %u to a request of type %u",
				 frame->head.type & ~FRAME_ANSWER, call->post.type);
	reply = channel_unpack(call->post.reply, frame);
	if (!reply)
		return -EPROTO;
	end_call(call, dial_status(status_of(reply)), reply);
	return 0;
}

/* Takes all complete frames, which end their calls; a partial frame stays in the channel. An error
   disconnects the node. */
void node_read(struct node *node)
{
	while (node->up) {
		struct channel_frame frame;
		int ret = channel_take(&node->remote->channel, &frame);

		if (ret == -EAGAIN)
			return;
		if (ret == 0)
			ret = take_answer(node, &frame);
		if (ret) {
			log_warn("node %s: %s", node->name, error_last());
			node_disconnect(node);
			return;
		}
		node->remote->heard = node_now(node);
		node->remote->asked = 0;
	}
}

/* -------- watching -------- */

static void on_stats(void *ctx, uint64_t tag, struct node *node, int code,
		     const ProtobufCMessage *reply)
{
	const Relive__NodeInfo *info = code ? NULL : ((const Relive__NodeStatsReply *)reply)->info;

	(void)ctx;
	(void)tag;
	if (!info)
		return;
	node->pool_bytes = info->pool_bytes;
	node->used_bytes = info->used_bytes;
	node->regions = info->regions;
	node->clients = info->clients;
	node->n_gauges = (uint32_t)min_u64(info->n_gauges, TARGET_GAUGES);
	for (uint32_t i = 0; i < node->n_gauges; i++) {
		struct node_gauge *gauge = &node->gauges[i];

		snprintf(gauge->name, sizeof(gauge->name), "%s", info->gauges[i]->name);
		gauge->value = info->gauges[i]->value;
	}
	node->agent_cpu_ns = info->agent_cpu_ns;
	node->process_cpu_ns = info->process_cpu_ns;
	memset(node->broken, 0, sizeof(node->broken));
	if (info->broken.len == sizeof(node->broken))
		memcpy(node->broken, info->broken.data, sizeof(node->broken));
	snprintf(node->pages, sizeof(node->pages), "%s", info->pages);
	snprintf(node->transport, sizeof(node->transport), "%s", info->transport);
	snprintf(node->why, sizeof(node->why), "%s", info->why);
}

static void node_ping(struct node *node)
{
	const Relive__Empty request = RELIVE__EMPTY__INIT;
	const struct node_post post = {
		.type = RELIVE__TYPE__TYPE_NODE_STATS,
		.request = &request.base,
		.reply = &relive__node_stats_reply__descriptor,
		.timeout_ns = node->remote->lease_ns,
		.done = on_stats,
	};

	node->remote->pinged = node_now(node);
	if (node_post(node, &post))
		log_debug("ping node %s: %s", node->name, error_last());
}

/* Calls region_done with the result of creating or freeing a region. A new region counts as used
   memory from now on; a creation that timed out disconnects the node. */
static void deliver_region(struct node *node, const struct node_call *call)
{
	const Relive__NodeRegion *region = NULL;
	uint32_t id = (uint32_t)call->post.tag; /* of a freed one */
	int ret = call->code;

	if (call->reply && id == 0)
		region = ((const Relive__NodeRegionReply *)call->reply)->region;
	if (ret == 0 && id) {
		/* Ask for the free memory, which decides the node of the next shard. */
		node_ping(node);
	} else if (ret == 0 && region && region->region && region->region <= RPTR_MAX_REGION) {
		node->used_bytes += region->size;
		node->regions++;
		id = region->region;
	} else if (ret == 0) {
		ret = error_set(-EPROTO, "memory node %s: no region in the answer", node->name);
	}
	/* It frees a region that it still creates, or is told to when it registers again. */
	if (ret == -ETIMEDOUT && id == 0)
		node_disconnect(node);
	call->post.region_done(call->post.ctx, node, ret, id);
}

void node_deliver(struct node *node)
{
	struct node_call **link = &node->remote->calls;

	while (*link) {
		struct node_call *call = *link;
		const Relive__Status *status;

		if (!call->ended) {
			link = &call->next;
			continue;
		}
		*link = call->next;
		status = call->reply ? status_of(call->reply) : NULL;
		if (call->code)
			(void)error_set(call->code, "memory node %s: %s", node->name,
					status ? status->message : error_name(call->code));
		if (call->post.region_done)
			deliver_region(node, call);
		else
			call->post.done(call->post.ctx, call->post.tag, node, call->code,
					call->reply);
		call_free(call);
		link = &node->remote->calls; /* done() may have posted */
	}
}

uint64_t node_watch(struct node *node)
{
	uint64_t pause = node->remote->lease_ns / NODE_PINGS;

	node_read(node); /* the server itself may have been stopped */
	if (node->up && node->remote->asked &&
	    node_now(node) - node->remote->asked >= node->remote->lease_ns) {
		log_warn("node %s: silent for %llu ms", node->name,
			 (unsigned long long)((node_now(node) - node->remote->heard) /
					      CLOCK_NS_PER_MS));
		node_disconnect(node);
	}
	if (!node->up)
		return UINT64_MAX;
	for (struct node_call *call = node->remote->calls; call; call = call->next)
		if (!call->ended && node_now(node) >= call->deadline)
			end_call(call, -ETIMEDOUT, NULL);
	if (node_now(node) - node->remote->pinged >= pause)
		node_ping(node);
	return node->remote->pinged + pause;
}

/* -------- posted -------- */

static int post_region(struct node *node, uint16_t type, const Relive__NodeRegion *request,
		       node_region_done done, void *ctx)
{
	const struct node_post post = {
		.type = type,
		.request = &request->base,
		.reply = type == RELIVE__TYPE__TYPE_NODE_REGION_NEW
				 ? &relive__node_region_reply__descriptor
				 : &relive__status_reply__descriptor,
		.timeout_ns = NODE_WORK_NS,
		.region_done = done,
		.ctx = ctx,
		.tag = request->region,
	};

	return node_post(node, &post);
}

static int region_new(struct node *node, const struct target_region *spec, node_region_done done,
		      void *ctx)
{
	Relive__NodeRegion request = RELIVE__NODE_REGION__INIT;

	request.kind = spec->kind;
	request.object = spec->object;
	request.part = spec->part;
	request.role = spec->role;
	request.size = spec->size;
	return post_region(node, RELIVE__TYPE__TYPE_NODE_REGION_NEW, &request, done, ctx);
}

static int region_free(struct node *node, uint32_t region, node_region_done done, void *ctx)
{
	Relive__NodeRegion request = RELIVE__NODE_REGION__INIT;

	request.region = region;
	return post_region(node, RELIVE__TYPE__TYPE_NODE_REGION_FREE, &request, done, ctx);
}

const struct node_ops node_remote_ops = {
	.region_new = region_new,
	.region_free = region_free,
	.grant = node_grant,
	.attach = node_attach,
	.is_attaching = node_is_attaching,
	.close = node_close_transport,
};

int node_post_fence(struct node *node, uint64_t client_id, enum fence_how how, node_done done,
		    void *ctx)
{
	Relive__NodeFenceRequest request = RELIVE__NODE_FENCE_REQUEST__INIT;
	const struct node_post post = {
		.type = RELIVE__TYPE__TYPE_NODE_FENCE,
		.request = &request.base,
		.reply = &relive__node_fence_reply__descriptor,
		.timeout_ns = NODE_DEATH_NS,
		.done = done,
		.ctx = ctx,
		.tag = client_id,
	};

	request.client_id = client_id;
	request.how = (uint32_t)how;
	return node_post(node, &post);
}
