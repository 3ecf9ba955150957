#include "server/memnode/service.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "wire/region.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"

#include "server/memnode/pool.h"

#define MAX_REGIONS 4096u

static int region_new(const struct memnode_service *svc, const ProtobufCMessage *message,
		      struct memnode_answer *out)
{
	const Relive__NodeRegion *request = (const Relive__NodeRegion *)message;
	struct target_region spec = {
		.kind = request->kind,
		.object = request->object,
		.part = request->part,
		.role = request->role,
		.size = request->size,
	};
	int ret = svc->target->ops->register_region(svc->target, &spec);

	/* A region must not be used before its mark is set. */
	if (ret == 0 && svc->persistent) {
		ret = memnode_pool_made(svc->target, &spec);
		if (ret)
			(void)svc->target->ops->unregister_region(svc->target, spec.id);
	}
	relive__node_region__init(&out->region);
	out->region.region = spec.id;
	out->region.kind = spec.kind;
	out->region.object = spec.object;
	out->region.part = spec.part;
	out->region.role = spec.role;
	out->region.size = spec.size;
	out->region_reply.region = ret ? NULL : &out->region;
	return ret;
}

static int region_free(const struct memnode_service *svc, const ProtobufCMessage *message,
		       struct memnode_answer *out)
{
	const Relive__NodeRegion *request = (const Relive__NodeRegion *)message;

	(void)out;
	return svc->target->ops->unregister_region(svc->target, request->region);
}

static int service_grant(const struct memnode_service *svc, const ProtobufCMessage *message,
			 struct memnode_answer *out)
{
	const Relive__NodeGrantRequest *request = (const Relive__NodeGrantRequest *)message;
	const struct region_range range = { .region = request->region,
					    .off = request->offset,
					    .len = request->length };
	int ret = svc->target->ops->grant(svc->target, request->client_id, &range, request->rights,
					  &out->grant);

	if (ret == 0) {
		out->grant_reply.grant.data = out->grant.data;
		out->grant_reply.grant.len = out->grant.bytes;
	}
	return ret;
}

static int take_back(const struct memnode_service *svc, const ProtobufCMessage *message,
		     struct memnode_answer *out)
{
	const Relive__NodeGrantRequest *request = (const Relive__NodeGrantRequest *)message;

	(void)out;
	return svc->target->ops->revoke(svc->target, request->client_id, request->region);
}

static int service_fence(const struct memnode_service *svc, const ProtobufCMessage *message,
			 struct memnode_answer *out)
{
	const Relive__NodeFenceRequest *request = (const Relive__NodeFenceRequest *)message;
	enum fence_result result = FENCE_ALIVE;
	int ret;

	if (request->how > FENCE_KILL)
		ret = error_set(-EINVAL, "fence: unknown request %u", request->how);
	else
		ret = svc->target->ops->fence(svc->target, request->client_id,
					      (enum fence_how)request->how, &result);
	out->fence_reply.result = (uint32_t)result;
	return ret;
}

static int service_stats(const struct memnode_service *svc, const ProtobufCMessage *message,
			 struct memnode_answer *out)
{
	struct target_region *regions;
	struct target_stats now;
	size_t n;

	(void)message;
	svc->target->ops->stats(svc->target, &now);
	relive__node_info__init(&out->info);
	out->info.name = (char *)svc->name;
	out->info.uri = (char *)svc->uri;
	out->info.pool_bytes = now.pool_bytes;
	out->info.used_bytes = now.used_bytes;
	out->info.regions = now.regions;
	out->info.incarnation = svc->target->incarnation;
	out->info.state = RELIVE__NODE_STATE__NODE_UP;
	out->info.pages = (char *)now.page_kind;
	out->info.transport = (char *)svc->target->ops->name;
	out->info.why = (char *)svc->why;
	out->info.clients = now.clients;
	out->info.n_gauges = now.n_gauges;
	out->info.gauges = out->gauge_list;
	for (uint32_t i = 0; i < now.n_gauges; i++) {
		relive__gauge__init(&out->gauges[i]);
		out->gauges[i].name = (char *)now.gauges[i].name;
		out->gauges[i].value = now.gauges[i].value;
		out->gauge_list[i] = &out->gauges[i];
	}
	out->info.agent_cpu_ns = svc->agent_cpu_ns ? svc->agent_cpu_ns(svc->ctx) : 0;
	out->info.process_cpu_ns = clock_read_ns(CLOCK_PROCESS_CPUTIME_ID);
	if (now.broken && memnode_list_regions(svc->target, &regions, &n)) {
		log_warn("broken regions: %s", error_last());
	} else if (now.broken) {
		memset(out->broken, 0, sizeof(out->broken));
		for (size_t i = 0; i < n; i++)
			if (regions[i].broken)
				out->broken[regions[i].id / 8] |=
					(uint8_t)(1u << regions[i].id % 8);
		mem_free(regions);
		out->info.broken = (ProtobufCBinaryData){ sizeof(out->broken), out->broken };
	}
	out->stats_reply.info = &out->info;
	return 0;
}

int memnode_list_regions(struct transport_target *target, struct target_region **regions_out,
			 size_t *n_out)
{
	struct target_region *regions = mem_array(MAX_REGIONS, sizeof(*regions));
	size_t n = MAX_REGIONS;
	int ret;

	if (!regions)
		return error_set(-ENOMEM, "regions: cannot allocate memory");
	ret = target->ops->list_regions(target, regions, &n);
	if (ret) {
		mem_free(regions);
		return ret;
	}
	*regions_out = regions;
	*n_out = n;
	return 0;
}

const struct target_region *memnode_region_beside(const struct target_region *regions, size_t n,
						  const struct target_region *of, uint32_t role)
{
	for (size_t i = 0; i < n; i++)
		if (regions[i].kind == of->kind && regions[i].object == of->object &&
		    regions[i].part == of->part && regions[i].role == role)
			return &regions[i];
	return NULL;
}

static int service_persist(const struct memnode_service *svc, const ProtobufCMessage *message,
			   struct memnode_answer *out)
{
	struct target_region *regions;
	size_t n;
	int ret;

	(void)message;
	(void)out;
	if (!svc->persistent)
		return 0;
	ret = memnode_list_regions(svc->target, &regions, &n);
	if (ret)
		return ret;
	/*
	 * Rows first: a durable leaf must never refer to rows that are not durable. Broken regions
	 * cannot be persisted: their shards are down.
	 */
	for (size_t i = 0; ret == 0 && i < 2 * n; i++) {
		const struct target_region *region = &regions[i < n ? i : i - n];

		if ((region->role == REGION_ROWS) == (i < n) && !region->broken)
			ret = svc->target->ops->persist(svc->target, region->id, 0, 0);
	}
	mem_free(regions);
	return ret;
}

static const struct service {
	uint16_t type;
	enum memnode_line line;
	const ProtobufCMessageDescriptor *request, *reply;
	int (*serve)(const struct memnode_service *svc, const ProtobufCMessage *request,
		     struct memnode_answer *out);
} services[] = {
	{ RELIVE__TYPE__TYPE_NODE_REGION_NEW, MEMNODE_WORK, &relive__node_region__descriptor,
	  &relive__node_region_reply__descriptor, region_new },
	{ RELIVE__TYPE__TYPE_NODE_REGION_FREE, MEMNODE_WORK, &relive__node_region__descriptor,
	  &relive__status_reply__descriptor, region_free },
	{ RELIVE__TYPE__TYPE_NODE_GRANT, MEMNODE_AT_ONCE, &relive__node_grant_request__descriptor,
	  &relive__node_grant_reply__descriptor, service_grant },
	{ RELIVE__TYPE__TYPE_NODE_REVOKE, MEMNODE_AT_ONCE, &relive__node_grant_request__descriptor,
	  &relive__status_reply__descriptor, take_back },
	{ RELIVE__TYPE__TYPE_NODE_FENCE, MEMNODE_AT_ONCE, &relive__node_fence_request__descriptor,
	  &relive__node_fence_reply__descriptor, service_fence },
	{ RELIVE__TYPE__TYPE_NODE_STATS, MEMNODE_AT_ONCE, &relive__empty__descriptor,
	  &relive__node_stats_reply__descriptor, service_stats },
	{ RELIVE__TYPE__TYPE_NODE_PERSIST, MEMNODE_PERSIST, &relive__empty__descriptor,
	  &relive__status_reply__descriptor, service_persist },
};

static const struct service *find_service(const struct channel_frame *frame)
{
	for (size_t i = 0; i < ARRAY_LEN(services); i++)
		if (services[i].type == frame->head.type)
			return &services[i];
	return NULL;
}

enum memnode_line memnode_line_of(const struct channel_frame *frame)
{
	const struct service *service = find_service(frame);
	enum memnode_line line = service ? service->line : MEMNODE_AT_ONCE;
	Relive__NodeFenceRequest *fence = NULL;

	if (frame->head.type == RELIVE__TYPE__TYPE_NODE_FENCE)
		fence = (Relive__NodeFenceRequest *)channel_unpack(
			&relive__node_fence_request__descriptor, frame);
	if (fence && fence->how == FENCE_KILL) /* waits for the death */
		line = MEMNODE_WORK;
	if (fence)
		relive__node_fence_request__free_unpacked(fence, NULL);
	return line;
}

static int serve_frame(const struct memnode_service *svc, const struct channel_frame *frame,
		       struct memnode_answer *out)
{
	const struct service *service = find_service(frame);
	ProtobufCMessage *message;
	int ret;

	if (frame->head.term < svc->term)
		return error_set(-ESTALE, "term %" PRIu64 ": this node knows %" PRIu64,
				 frame->head.term, svc->term);
	if (!service)
		return error_set(-ENOTSUP, "request of type %u: unknown to this memory node",
				 frame->head.type);
	message = channel_unpack(service->request, frame);
	if (!message)
		return -EPROTO;
	protobuf_c_message_init(service->reply, &out->plain.base);
	ret = service->serve(svc, message, out);
	protobuf_c_message_free_unpacked(message, NULL);
	return ret;
}

void memnode_serve(const struct memnode_service *svc, const struct channel_frame *frame,
		   struct memnode_answer *out)
{
	relive__status__init(&out->status);
	relive__status_reply__init(&out->plain);
	out->message = &out->plain.base;
	error_clear();
	out->status.code = serve_frame(svc, frame, out);
	out->plain.status = &out->status;
	snprintf(out->words, sizeof(out->words), "%s", out->status.code ? error_last() : "");
	out->status.message = out->words;
}

void memnode_undo(const struct memnode_service *svc, const struct frame_header *head,
		  const struct memnode_answer *answer)
{
	uint32_t id = answer->region.region;

	if (head->type != RELIVE__TYPE__TYPE_NODE_REGION_NEW || answer->status.code)
		return;
	log_info("free region %u: the server that asked for it has disconnected", id);
	if (svc->target->ops->unregister_region(svc->target, id))
		log_warn("free region %u: %s", id, error_last());
}

int memnode_reply(struct channel *ch, const struct frame_header *head,
		  const struct memnode_answer *answer)
{
	return channel_send(ch, (uint16_t)(head->type | FRAME_ANSWER), head->request_id,
			    answer->message, deadline_after(clock_monotonic(), MEMNODE_CALL_NS));
}
