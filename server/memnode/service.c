#include "server/memnode/service.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "wire/region.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"

#include "server/memnode/pool.h"

#define MAX_REGIONS 4096u

/* A region must not be used before its mark is set. */
static int keep_region(const struct memnode_service *svc, const struct target_region *region)
{
	int ret = memnode_pool_made(svc->target, region);

	if (ret)
		(void)svc->target->ops->unregister_region(svc->target, region->id);
	return ret;
}

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

	if (ret == 0 && svc->persistent)
		ret = keep_region(svc, &spec);
	relive__node_region__init(&out->region);
	relive__node_region_reply__init(&out->region_reply);
	out->region.region = spec.id;
	out->region.kind = spec.kind;
	out->region.object = spec.object;
	out->region.part = spec.part;
	out->region.role = spec.role;
	out->region.size = spec.size;
	out->region_reply.status = &out->status;
	out->region_reply.region = ret ? NULL : &out->region;
	out->message = &out->region_reply.base;
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

	relive__node_grant_reply__init(&out->grant_reply);
	out->grant_reply.status = &out->status;
	if (ret == 0) {
		out->grant_reply.grant.data = out->grant.data;
		out->grant_reply.grant.len = out->grant.bytes;
	}
	out->message = &out->grant_reply.base;
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
	relive__node_fence_reply__init(&out->fence_reply);
	out->fence_reply.status = &out->status;
	out->fence_reply.result = (uint32_t)result;
	out->message = &out->fence_reply.base;
	return ret;
}

static uint64_t process_cpu_ns(void)
{
	struct timespec ts = { 0 };

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * CLOCK_NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void list_broken(const struct memnode_service *svc, struct memnode_answer *out)
{
	struct target_region *regions;
	size_t n;

	memset(out->broken, 0, sizeof(out->broken));
	if (memnode_list_regions(svc->target, &regions, &n)) {
		log_warn("broken regions: %s", error_last());
		return;
	}
	for (size_t i = 0; i < n; i++)
		if (regions[i].broken)
			out->broken[regions[i].id / 8] |= (uint8_t)(1u << regions[i].id % 8);
	mem_free(regions);
	out->info.broken = (ProtobufCBinaryData){ sizeof(out->broken), out->broken };
}

static void list_gauges(const struct target_stats *now, struct memnode_answer *out)
{
	out->info.n_gauges = now->n_gauges;
	out->info.gauges = out->gauge_list;
	for (uint32_t i = 0; i < now->n_gauges; i++) {
		relive__gauge__init(&out->gauges[i]);
		out->gauges[i].name = (char *)now->gauges[i].name;
		out->gauges[i].value = now->gauges[i].value;
		out->gauge_list[i] = &out->gauges[i];
	}
}

static int service_stats(const struct memnode_service *svc, const ProtobufCMessage *message,
			 struct memnode_answer *out)
{
	struct target_stats now;

	(void)message;
	svc->target->ops->stats(svc->target, &now);
	relive__node_info__init(&out->info);
	relive__node_stats_reply__init(&out->stats_reply);
	out->info.name = (char *)svc->name;
	out->info.uri = (char *)svc->uri;
	out->info.pool_bytes = now.pool_bytes;
	out->info.used_bytes = now.used_bytes;
	out->info.regions = now.regions;
	out->info.incarnation = svc->target->incarnation;
	out->info.state = RELIVE__NODE_STATE__NODE_UP;
	out->info.pages = (char *)now.page_kind;
	out->info.transport = (char *)svc->target->ops->name;
	out->info.clients = now.clients;
	list_gauges(&now, out);
	out->info.agent_cpu_ns = svc->agent_cpu_ns ? svc->agent_cpu_ns(svc->ctx) : 0;
	out->info.process_cpu_ns = process_cpu_ns();
	if (now.broken)
		list_broken(svc, out);
	out->stats_reply.status = &out->status;
	out->stats_reply.info = &out->info;
	out->message = &out->stats_reply.base;
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

/* Skips broken regions, which cannot be persisted: their shards are down. */
static int persist_all(const struct memnode_service *svc, const struct target_region *regions,
		       size_t n, bool rows)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < n; i++)
		if ((regions[i].role == REGION_ROWS) == rows && !regions[i].broken)
			ret = svc->target->ops->persist(svc->target, regions[i].id, 0, 0);
	return ret;
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
	/* Rows first: a durable leaf must never refer to rows that are not durable. */
	ret = persist_all(svc, regions, n, true);
	if (ret == 0)
		ret = persist_all(svc, regions, n, false);
	mem_free(regions);
	return ret;
}

static const struct service {
	uint16_t type;
	enum memnode_line line;
	const ProtobufCMessageDescriptor *kind;
	int (*serve)(const struct memnode_service *svc, const ProtobufCMessage *request,
		     struct memnode_answer *out);
} services[] = {
	{ RELIVE__TYPE__TYPE_NODE_REGION_NEW, MEMNODE_WORK, &relive__node_region__descriptor,
	  region_new },
	{ RELIVE__TYPE__TYPE_NODE_REGION_FREE, MEMNODE_WORK, &relive__node_region__descriptor,
	  region_free },
	{ RELIVE__TYPE__TYPE_NODE_GRANT, MEMNODE_AT_ONCE, &relive__node_grant_request__descriptor,
	  service_grant },
	{ RELIVE__TYPE__TYPE_NODE_REVOKE, MEMNODE_AT_ONCE, &relive__node_grant_request__descriptor,
	  take_back },
	{ RELIVE__TYPE__TYPE_NODE_FENCE, MEMNODE_AT_ONCE, &relive__node_fence_request__descriptor,
	  service_fence },
	{ RELIVE__TYPE__TYPE_NODE_STATS, MEMNODE_AT_ONCE, &relive__empty__descriptor,
	  service_stats },
	{ RELIVE__TYPE__TYPE_NODE_PERSIST, MEMNODE_PERSIST, &relive__empty__descriptor,
	  service_persist },
};

static const struct service *find_service(const struct channel_frame *frame)
{
	for (size_t i = 0; i < ARRAY_LEN(services); i++)
		if (services[i].type == frame->head.type)
			return &services[i];
	return NULL;
}

static bool is_kill(const struct channel_frame *frame)
{
	Relive__NodeFenceRequest *request = (Relive__NodeFenceRequest *)channel_unpack(
		&relive__node_fence_request__descriptor, frame);
	bool kill = request && request->how == FENCE_KILL;

	if (request)
		relive__node_fence_request__free_unpacked(request, NULL);
	return kill;
}

enum memnode_line memnode_line_of(const struct channel_frame *frame)
{
	const struct service *service = find_service(frame);

	if (service && service->type == RELIVE__TYPE__TYPE_NODE_FENCE && is_kill(frame))
		return MEMNODE_WORK;
	return service ? service->line : MEMNODE_AT_ONCE;
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
	message = channel_unpack(service->kind, frame);
	if (!message)
		return -EPROTO;
	ret = service->serve(svc, message, out);
	protobuf_c_message_free_unpacked(message, NULL);
	return ret;
}

void memnode_serve(const struct memnode_service *svc, const struct channel_frame *frame,
		   struct memnode_answer *out)
{
	out->message = NULL;
	relive__status__init(&out->status);
	relive__status_reply__init(&out->plain);
	out->plain.status = &out->status;
	error_clear();
	out->status.code = serve_frame(svc, frame, out);
	snprintf(out->words, sizeof(out->words), "%s", out->status.code ? error_last() : "");
	out->status.message = out->words;
	if (!out->message)
		out->message = &out->plain.base;
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
