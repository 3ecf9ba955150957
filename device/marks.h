/*
 * marks.h - when memory is truly free: which numbers its streams must have reached.
 *
 * Numbers of marks rise over all streams of a pool. A set keeps one mark for each stream that used
 * the memory. It has room for MARKS_ROOM streams; with more, it is joined into one number: all
 * streams must then have reached each of their marks up to it.
 *
 * Thread: owner, for all calls.
 */
#ifndef RLV_DEVICE_MARKS_H
#define RLV_DEVICE_MARKS_H

#include <stdbool.h>
#include <stdint.h>

#include "device/backend.h"

#define MARKS_ROOM 4u

/* Marks of all streams of a backend. All zero at first. */
struct mark_clock {
	uint64_t last; /* number given last, to any stream */
	struct {
		uint64_t queued;  /* number of its last mark */
		uint64_t reached; /* as the device wrote it */
	} streams[BACKEND_STREAMS];
};

/* All zero: nothing to wait for. */
struct marks {
	uint32_t n;
	bool joined; /* one number for all streams, in seq[0] */
	uint32_t stream[MARKS_ROOM];
	uint64_t seq[MARKS_ROOM];
};

/* Records that a stream has a new mark: seq is above all numbers before. */
void marks_queued(struct mark_clock *clock, uint32_t stream, uint64_t seq);

/* Takes over the progress of a stream. -EPROTO: it is above the last mark, or it went back. */
RLV_MUST_CHECK int marks_progress(struct mark_clock *clock, uint32_t stream, uint64_t reached);

/* Adds the last mark of a stream, in place of an earlier one of the stream. */
void marks_add(struct marks *marks, const struct mark_clock *clock, uint32_t stream);

/* True if all marks are reached. */
bool marks_reached(const struct marks *marks, const struct mark_clock *clock);

#endif
