/*
 * Memnode service: what the metadata server may ask of a memory node, on the connection that the
 * node has made.
 */
#ifndef RLV_SERVER_MEMNODE_SERVICE_H
#define RLV_SERVER_MEMNODE_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/transport.h"

#include "wire/channel.h"
#include "wire/control.pb-c.h"
#include "wire/rptr.h"

#include "base/error.h"

#define MEMNODE_CALL_NS (5 * CLOCK_NS_PER_S) /* a frame that has begun must have ended by then */

struct memnode_service {
	struct transport_target *target;
	const char *name;
	const char *uri;
	bool persistent;
	uint64_t term; /* a request of a lower one is a zombie's: -ESTALE */
	/* CPU time of the thread that serves clients, so far. */
	uint64_t (*agent_cpu_ns)(void *ctx);
	void *ctx;
};

/* Parts of an answer. They point at each other, so the struct must not be moved. */
struct memnode_answer {
	Relive__Status status;
	Relive__StatusReply plain;
	Relive__NodeRegion region;
	Relive__NodeRegionReply region_reply;
	struct region_grant grant;
	Relive__NodeGrantReply grant_reply;
	Relive__NodeFenceReply fence_reply;
	Relive__NodeInfo info;
	Relive__Gauge gauges[TARGET_GAUGES];
	Relive__Gauge *gauge_list[TARGET_GAUGES];
	Relive__NodeStatsReply stats_reply;
	uint8_t broken[RPTR_MAX_REGION / 8 + 1];
	char words[ERROR_TEXT_BYTES]; /* of a failure */
	const ProtobufCMessage *message;
};

/* Does what a request wants, and makes the answer, also to what nobody knows. Thread: any. */
void memnode_serve(const struct memnode_service *svc, const struct channel_frame *frame,
		   struct memnode_answer *out);

/*
 * Nobody was told of the answer to that request: a region that it made is freed, which the server
 * would learn of from the next registration only. Thread: any.
 */
void memnode_undo(const struct memnode_service *svc, const struct frame_header *head,
		  const struct memnode_answer *answer);

/* Queues of requests by how long they may take, so that short ones do not wait for long ones. */
enum memnode_line {
	MEMNODE_AT_ONCE, /* the control loop does it */
	MEMNODE_WORK,    /* seconds: registers memory, waits for a death */
	MEMNODE_PERSIST, /* minutes: writes the pool out */
};
#define MEMNODE_LINES 3

enum memnode_line memnode_line_of(const struct channel_frame *frame);

/* Sends an answer. An error is one of the channel: it is dead. */
RLV_MUST_CHECK int memnode_reply(struct channel *ch, const struct frame_header *head,
				 const struct memnode_answer *answer);

/* All regions of a pool; freed by mem_free. -ENOMEM. */
RLV_MUST_CHECK int memnode_list_regions(struct transport_target *target,
					struct target_region **regions_out, size_t *n_out);

/* The same as a node says it when it registers: with what the regions say of themselves. */
struct memnode_regions {
	Relive__NodeRegion **list;
	size_t n;
	struct memnode_region *parts; /* what list points to */
};

/* with_descs: descriptors of tables, too; 6 KiB a shard, of the 1 MiB that a frame has. -ENOMEM. */
RLV_MUST_CHECK int memnode_regions_open(struct transport_target *target, bool with_descs,
					struct memnode_regions *out);
void memnode_regions_close(struct memnode_regions *regions);

#endif
