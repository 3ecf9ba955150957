/*
 * Memnode service: the requests that the metadata server sends over the connection opened by the
 * node.
 */
#ifndef RLV_SERVER_MEMNODE_SERVICE_H
#define RLV_SERVER_MEMNODE_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/transport.h"

#include "wire/control/channel.h"
#include "wire/control.pb-c.h"
#include "wire/rptr.h"

#include "base/error.h"

#define MEMNODE_CALL_NS (5 * CLOCK_NS_PER_S) /* deadline for the rest of a frame */

struct memnode_service {
	struct transport_target *target;
	const char *name;
	const char *uri;
	const char *why; /* why it serves by that transport, in words */
	bool persistent;
	uint64_t term; /* a request with a lower term is from a stale server: -ESTALE */
	/* CPU time in ns used by the thread that serves clients. */
	uint64_t (*agent_cpu_ns)(void *ctx);
	void *ctx;
};

/* Parts of an answer, with internal pointers: do not move the struct. */
struct memnode_answer {
	Relive__Status status;
	union { /* the message; each begins with a base and the status */
		Relive__StatusReply plain;
		Relive__NodeRegionReply region_reply;
		Relive__NodeGrantReply grant_reply;
		Relive__NodeFenceReply fence_reply;
		Relive__NodeStatsReply stats_reply;
	};
	Relive__NodeRegion region;
	struct region_grant grant;
	Relive__NodeInfo info;
	Relive__Gauge gauges[TARGET_GAUGES];
	Relive__Gauge *gauge_list[TARGET_GAUGES];
	uint8_t broken[RPTR_MAX_REGION / 8 + 1];
	char words[ERROR_TEXT_BYTES]; /* error message */
	const ProtobufCMessage *message;
};

/* Executes the request in frame and builds the answer in *out; after an error, e.g. for an unknown
   request, the answer is its status. Thread: any. */
void memnode_serve(const struct memnode_service *svc, const struct channel_frame *frame,
		   struct memnode_answer *out);

/*
 * Run if the answer of a request was not delivered: frees the region that the request created, if
 * it did, which the server would otherwise learn of at the next registration. Thread: any.
 */
void memnode_undo(const struct memnode_service *svc, const struct frame_header *head,
		  const struct memnode_answer *answer);

/* Queues by duration, so that short requests do not wait for long ones. */
enum memnode_line {
	MEMNODE_AT_ONCE, /* executed by the control loop */
	MEMNODE_WORK,    /* seconds: registers memory, waits for a death */
	MEMNODE_PERSIST, /* minutes: writes the pool out */
};
#define MEMNODE_LINES 3

enum memnode_line memnode_line_of(const struct channel_frame *frame);

/* Sends the answer to the request with header head over ch. After an error the channel must be
   closed. */
RLV_MUST_CHECK int memnode_reply(struct channel *ch, const struct frame_header *head,
				 const struct memnode_answer *answer);

/* Lists all regions of the pool in a new array, which the caller frees by mem_free. -ENOMEM. */
RLV_MUST_CHECK int memnode_list_regions(struct transport_target *target,
					struct target_region **regions_out, size_t *n_out);

/* Finds among n regions the one with that role in the same part as `of`; NULL: there is none. */
const struct target_region *memnode_region_beside(const struct target_region *regions, size_t n,
						  const struct target_region *of, uint32_t role);

/* The same list for a registration, with the regions' own headers. */
struct memnode_regions {
	Relive__NodeRegion **list;
	size_t n;
	struct memnode_region *parts; /* storage that list points to */
};

/* Describes all regions of the pool for a registration, in *out. with_descs: with the descriptors,
   which take 6 KiB for each shard of a table, of the 1 MiB of a frame. -ENOMEM. */
RLV_MUST_CHECK int memnode_regions_open(struct transport_target *target, bool with_descs,
					struct memnode_regions *out);
void memnode_regions_close(struct memnode_regions *regions);

#endif
