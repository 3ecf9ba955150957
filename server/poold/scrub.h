/*
 * scrub.h - zeros in extents that may still have the bytes of somebody else.
 *
 * Extents are mapped in a row, filled by one call, awaited, and unmapped. A device that is busy is awaited
 * no longer than the caller says; what it still fills then stays mapped until a later call.
 * Calls of the backend for n extents: 3 n + 2, but queries of progress. Thread: owner.
 */
#ifndef RLV_SERVER_POOLD_SCRUB_H
#define RLV_SERVER_POOLD_SCRUB_H

#include <stdbool.h>

#include "device/backend.h"

#include "base/os/clock.h"

struct scrub {
	struct backend *backend; /* borrowed */
	uint64_t extent_bytes, va;
	uint32_t room; /* extents at a time */
	uint32_t stream;
	uint32_t mapped;
	bool unmarked; /* a fill is queued without a mark behind it */
	uint64_t seq;  /* of the last mark */
};

/* Errors of the backend. */
RLV_MUST_CHECK int scrub_open(struct backend *backend, uint64_t extent_bytes, uint32_t room,
			      struct scrub *scrub_out);
/* No-op for a scrub that is all zero. Its backend's close awaits what still runs. */
void scrub_close(struct scrub *scrub);

/* 0: no extent is mapped for it. -EAGAIN: the device still fills some. */
RLV_MUST_CHECK int scrub_settle(struct scrub *scrub);

/*
 * Fills n <= room extents with zeros. -EAGAIN: it is not done at the deadline, or an earlier one is not: their
 * bytes are not zeros for sure. Errors of the backend.
 */
RLV_MUST_CHECK int scrub_extents(struct scrub *scrub, const uint64_t *handles, uint32_t n,
				 const struct clock *clock, uint64_t deadline_ns);

#endif
