#include "server/node.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <event2/event.h>

#include "wire/dial.h"

#include "base/alloc.h"
#include "base/bits.h"
#include "base/log.h"

#define ATTACH_FIRST_NS (500 * (uint64_t)CLOCK_NS_PER_MS)
#define ATTACH_LAST_NS (30 * (uint64_t)CLOCK_NS_PER_S)
#define FRAME_NS (200 * CLOCK_NS_PER_MS) /* a frame that has begun must have come by then */

/* A request under way; in the node's list until its end was delivered. */
struct node_call {
	struct node_call *next;
	struct node_post post; /* done NULL: somebody waits for it, and takes it off the list */
	uint64_t id;
	uint64_t deadline;
	bool ended;
	int code;
	ProtobufCMessage *reply;
};

static uint64_t now(const struct node *node)
{
	return clock_now_ns(node->clock);
}

static int down(const struct node *node)
{
	return error_set(-EHOSTDOWN, "memory node %s is down", node->name);
}

/* -------- connection -------- */

void node_connect(struct node *node, const struct channel *ch, struct event *readable)
{
	node->channel = *ch;
	node->readable = readable;
	node->up = true;
	node->told = false;
	node->heard = now(node);
	node->asked = 0;
	node->pinged = 0;
	node->attach_after = 0;
}

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
	if (node->readable)
		event_free(node->readable);
	node->readable = NULL;
	channel_fini(&node->channel);
	node->up = false;
	node->down_since = now(node);
	for (struct node_call *call = node->calls; call; call = call->next)
		if (!call->ended)
			end_call(call, -EHOSTDOWN, NULL);
}

static void call_free(struct node_call *call)
{
	if (call->reply)
		protobuf_c_message_free_unpacked(call->reply, NULL);
	mem_free(call);
}

static void unlink_call(struct node *node, struct node_call *call)
{
	struct node_call **link = &node->calls;

	while (*link != call)
		link = &(*link)->next;
	*link = call->next;
}

void node_free(struct node *node)
{
	node_disconnect(node);
	while (node->calls) {
		struct node_call *call = node->calls;

		node->calls = call->next;
		call_free(call);
	}
	node_close_transport(node);
	mem_free(node);
}

void node_close_transport(struct node *node)
{
	transport_close(&node->tr);
}

/* -------- calls -------- */

static int begin(struct node *node, const struct node_post *post, struct node_call **call_out)
{
	struct node_call *call;
	int ret;

	if (!node->up)
		return down(node);
	call = mem_zalloc(sizeof(*call));
	if (!call)
		return error_set(-ENOMEM, "ask node %s: no memory", node->name);
	call->post = *post;
	call->id = ++node->channel.last_id;
	call->deadline = now(node) + post->timeout_ns;
	ret = channel_send(&node->channel, post->type, call->id, post->request,
			   deadline_after(clock_monotonic(), FRAME_NS));
	if (ret) {
		log_warn("ask node %s type %u: %s", node->name, post->type, error_last());
		mem_free(call);
		node_disconnect(node);
		return down(node);
	}
	node->asked = node->asked ? node->asked : now(node);
	call->next = node->calls;
	node->calls = call;
	if (call_out)
		*call_out = call;
	return 0;
}

int node_post(struct node *node, const struct node_post *post)
{
	return begin(node, post, NULL);
}

/* The Status in front of every answer. */
static int code_of(const ProtobufCMessage *reply)
{
	const ProtobufCFieldDescriptor *field =
		protobuf_c_message_descriptor_get_field(reply->descriptor, 1);
	const Relive__Status *status;

	memcpy(&status, (const char *)reply + field->offset, sizeof(void *));
	return dial_status(status);
}

/* An answer to nothing is one that came too late. -EPROTO: not an answer. */
static int take_answer(struct node *node, const struct channel_frame *frame)
{
	struct node_call *call = node->calls;
	ProtobufCMessage *reply;

	while (call && (call->id != frame->head.request_id || call->ended))
		call = call->next;
	if (!call)
		return frame->head.request_id <= node->channel.last_id
			       ? 0
			       : error_set(-EPROTO, "an answer, unasked");
	if (frame->head.type != (call->post.type | FRAME_ANSWER))
		return error_set(-EPROTO, "answer of type %u to a request of type %u",
				 frame->head.type & ~FRAME_ANSWER, call->post.type);
	reply = channel_unpack(call->post.reply, frame);
	if (!reply)
		return -EPROTO;
	end_call(call, code_of(reply), reply);
	return 0;
}

static bool can_be_read(const struct node *node)
{
	return node->up && channel_is_readable(&node->channel);
}

void node_read(struct node *node)
{
	while (can_be_read(node)) {
		struct channel_frame frame;
		int ret = channel_receive(&node->channel,
					  deadline_after(clock_monotonic(), FRAME_NS), &frame);

		if (ret == 0)
			ret = take_answer(node, &frame);
		if (ret) {
			log_warn("node %s: %s", node->name, error_last());
			node_disconnect(node);
			return;
		}
		node->heard = now(node);
		node->asked = 0;
	}
}

void node_deliver(struct node *node)
{
	struct node_call *call = node->calls;

	while (call) {
		if (!call->ended || !call->post.done) {
			call = call->next;
			continue;
		}
		unlink_call(node, call);
		call->post.done(call->post.ctx, call->post.tag, node, call->code, call->reply);
		call_free(call);
		call = node->calls; /* done() may have posted */
	}
}

/* -------- watching -------- */

void node_note_broken(struct node *node, uint32_t region)
{
	if (region <= RPTR_MAX_REGION)
		node->broken[region / 8] |= (uint8_t)(1u << region % 8);
}

bool node_is_broken(const struct node *node, uint32_t region)
{
	return region <= RPTR_MAX_REGION && (node->broken[region / 8] >> region % 8 & 1);
}

static void take_info(struct node *node, const Relive__NodeInfo *info)
{
	node->pool_bytes = info->pool_bytes;
	node->used_bytes = info->used_bytes;
	node->regions = info->regions;
	node->clients = info->clients;
	node->qps = info->qps;
	node->mrs = info->mrs;
	node->windows = info->windows;
	node->agent_cpu_ns = info->agent_cpu_ns;
	node->process_cpu_ns = info->process_cpu_ns;
	memset(node->broken, 0, sizeof(node->broken));
	if (info->broken.len == sizeof(node->broken))
		memcpy(node->broken, info->broken.data, sizeof(node->broken));
	snprintf(node->pages, sizeof(node->pages), "%s", info->pages);
	snprintf(node->transport, sizeof(node->transport), "%s", info->transport);
}

static void take_stats(void *ctx, uint64_t tag, struct node *node, int code,
		       const ProtobufCMessage *reply)
{
	const Relive__NodeStatsReply *stats = (const Relive__NodeStatsReply *)reply;

	(void)ctx;
	(void)tag;
	if (code == 0 && stats && stats->info)
		take_info(node, stats->info);
}

static void ping(struct node *node)
{
	const Relive__Empty request = RELIVE__EMPTY__INIT;
	const struct node_post post = {
		.type = RELIVE__TYPE__TYPE_NODE_STATS,
		.request = &request.base,
		.reply = &relive__node_stats_reply__descriptor,
		.timeout_ns = node->lease_ns,
		.done = take_stats,
	};

	node->pinged = now(node);
	if (node_post(node, &post))
		log_debug("ping node %s: %s", node->name, error_last());
}

static void end_late_calls(struct node *node)
{
	for (struct node_call *call = node->calls; call; call = call->next)
		if (!call->ended && now(node) >= call->deadline)
			end_call(call, -ETIMEDOUT, NULL);
}

uint64_t node_watch(struct node *node)
{
	uint64_t pause = node->lease_ns / NODE_PINGS;

	node_read(node); /* we may have been away ourselves */
	if (node->up && node->asked && now(node) - node->asked >= node->lease_ns) {
		log_warn("node %s: silent for %llu ms", node->name,
			 (unsigned long long)((now(node) - node->heard) / CLOCK_NS_PER_MS));
		node_disconnect(node);
	}
	if (!node->up)
		return UINT64_MAX;
	end_late_calls(node);
	if (now(node) - node->pinged >= pause)
		ping(node);
	return node->pinged + pause;
}

/* -------- asked, and waited for -------- */

/* Any failure of the connection is its end, and so is an answer that takes too long. */
static void wait_for_end(struct node *node, const struct node_call *call)
{
	while (!call->ended) {
		(void)!channel_wait(
			&node->channel,
			deadline_after(clock_monotonic(), (int64_t)(node->lease_ns / NODE_PINGS)));
		node_read(node);
		if (!call->ended && now(node) >= call->deadline) {
			log_warn("ask node %s type %u: no answer in time", node->name,
				 call->post.type);
			node_disconnect(node);
		}
		if (!call->ended)
			(void)node_watch(node);
	}
}

static int ask(struct node *node, uint16_t type, const ProtobufCMessage *request,
	       const ProtobufCMessageDescriptor *kind, ProtobufCMessage **reply_out)
{
	const struct node_post post = {
		.type = type,
		.request = request,
		.reply = kind,
		.timeout_ns = NODE_WAIT_NS,
	};
	struct node_call *call;
	int ret = begin(node, &post, &call);

	if (ret)
		return ret;
	wait_for_end(node, call);
	unlink_call(node, call);
	*reply_out = call->reply;
	call->reply = NULL;
	call_free(call);
	return *reply_out ? 0 : down(node);
}

int node_grant(struct node *node, uint64_t client_id, const struct region_range *range,
	       uint32_t rights, struct region_grant *grant_out)
{
	Relive__NodeGrantRequest request = RELIVE__NODE_GRANT_REQUEST__INIT;
	const Relive__NodeGrantReply *answer;
	ProtobufCMessage *reply;
	int ret;

	request.client_id = client_id;
	request.region = range->region;
	request.offset = range->off;
	request.length = range->len;
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

/* -------- posted -------- */

int node_post_region_new(struct node *node, const struct target_region *spec, node_done done,
			 void *ctx)
{
	Relive__NodeRegion request = RELIVE__NODE_REGION__INIT;
	const struct node_post post = {
		.type = RELIVE__TYPE__TYPE_NODE_REGION_NEW,
		.request = &request.base,
		.reply = &relive__node_region_reply__descriptor,
		.timeout_ns = NODE_WORK_NS,
		.done = done,
		.ctx = ctx,
	};

	request.kind = spec->kind;
	request.object = spec->object;
	request.part = spec->part;
	request.role = spec->role;
	request.size = spec->size;
	return node_post(node, &post);
}

int node_region_of(struct node *node, int code, const ProtobufCMessage *reply, uint32_t *id_out)
{
	const Relive__NodeRegionReply *answer = (const Relive__NodeRegionReply *)reply;

	if (code)
		return error_set(code, "memory node %s: %s", node->name,
				 answer && answer->status ? answer->status->message
							  : error_name(code));
	if (!answer->region)
		return error_set(-EPROTO, "memory node %s: no region in the answer", node->name);
	node->used_bytes += answer->region->size;
	node->regions++;
	*id_out = answer->region->region;
	return 0;
}

/* How much is free now decides where the next shard goes. */
void node_region_freed(struct node *node, uint64_t region, int code)
{
	if (code)
		log_warn("free region %llu of node %s: %s", (unsigned long long)region, node->name,
			 error_name(code));
	else
		ping(node);
}

int node_post_region_free(struct node *node, uint32_t region, node_done done, void *ctx)
{
	Relive__NodeRegion request = RELIVE__NODE_REGION__INIT;
	const struct node_post post = {
		.type = RELIVE__TYPE__TYPE_NODE_REGION_FREE,
		.request = &request.base,
		.reply = &relive__status_reply__descriptor,
		.timeout_ns = NODE_WORK_NS,
		.done = done,
		.ctx = ctx,
		.tag = region,
	};

	request.region = region;
	return node_post(node, &post);
}

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

int node_post_persist(struct node *node, uint64_t tag, node_done done, void *ctx)
{
	const Relive__Empty request = RELIVE__EMPTY__INIT;
	const struct node_post post = {
		.type = RELIVE__TYPE__TYPE_NODE_PERSIST,
		.request = &request.base,
		.reply = &relive__status_reply__descriptor,
		.timeout_ns = NODE_PERSIST_NS,
		.done = done,
		.ctx = ctx,
		.tag = tag,
	};

	return node_post(node, &post);
}

/* -------- our own attachments -------- */

/* Z2 pairs with Z1: nothing of the last connection lands behind what we do on this one. */
static int reach(struct node *node)
{
	const struct transport_opts opts = {
		.timeout_ns = node->lease_ns,
		.client_id = node->attach_client_id,
		.replaces = node->link,
	};
	struct transport *tr;
	int ret = transport_open(node->uri, &opts, &tr);

	if (ret)
		return error_prefix(ret, "memory node %s: ", node->name);
	node->tr = tr;
	node->link = tr->link;
	return 0;
}

static int attach(struct node *node, uint32_t region, struct region **region_out)
{
	const struct region_range all = { .region = region };
	struct region_grant grant;
	int ret = node->tr ? 0 : reach(node);

	if (ret)
		return ret;
	ret = node_grant(node, node->attach_client_id, &all, RIGHT_ALL, &grant);
	return ret ? ret : transport_attach(node->tr, &grant, region_out);
}

static void pause_attaching(struct node *node)
{
	node->attach_pause = node->attach_pause ? 2 * node->attach_pause : ATTACH_FIRST_NS;
	node->attach_pause = min_u64(node->attach_pause, ATTACH_LAST_NS);
	node->attach_after = now(node) + node->attach_pause;
}

int node_attach(struct node *node, uint32_t region, struct region **region_out)
{
	int ret;

	if (!node->up)
		return down(node);
	if (now(node) < node->attach_after)
		return error_set(-EAGAIN,
				 "memory node %s: its memory could not be reached just now",
				 node->name);
	ret = attach(node, region, region_out);
	if (ret == 0)
		node->attach_pause = 0;
	else if (!node->tr || ret == -ETIMEDOUT || ret == -ECONNRESET)
		pause_attaching(node);
	return ret;
}
