#include "device/marks.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

void marks_queued(struct mark_clock *clock, uint32_t stream, uint64_t seq)
{
	clock->last = seq;
	clock->streams[stream].queued = seq;
}

int marks_progress(struct mark_clock *clock, uint32_t stream, uint64_t reached)
{
	if (reached > clock->streams[stream].queued || reached < clock->streams[stream].reached)
		return error_set(-EPROTO,
				 "progress of stream %" PRIu32 " is %" PRIu64 ", outside %" PRIu64
				 " to %" PRIu64,
				 stream, reached, clock->streams[stream].reached,
				 clock->streams[stream].queued);
	clock->streams[stream].reached = reached;
	return 0;
}

void marks_add(struct marks *marks, const struct mark_clock *clock, uint32_t stream)
{
	uint64_t seq = clock->streams[stream].queued;
	uint32_t i = 0;

	if (!marks->joined) {
		while (i < marks->n && marks->stream[i] != stream)
			i++;
		if (i < MARKS_ROOM) {
			marks->stream[i] = stream;
			marks->seq[i] = seq;
			marks->n = i == marks->n ? i + 1 : marks->n;
			return;
		}
	}
	memset(marks, 0, sizeof(*marks));
	marks->n = 1;
	marks->joined = true;
	marks->seq[0] = clock->last;
}

bool marks_reached(const struct marks *marks, const struct mark_clock *clock)
{
	if (marks->joined) {
		for (uint32_t i = 0; i < BACKEND_STREAMS; i++) {
			uint64_t reached = clock->streams[i].reached;

			if (reached < marks->seq[0] && reached < clock->streams[i].queued)
				return false;
		}
		return true;
	}
	for (uint32_t i = 0; i < marks->n; i++) {
		if (clock->streams[marks->stream[i]].reached < marks->seq[i])
			return false;
	}
	return true;
}
