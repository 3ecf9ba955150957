/*
 * profile.h - memory of a job's first iterations over their time, for the broker's gate.
 *
 * A job keeps what it takes until its iteration ends, so the profile only rises. The first iteration is not
 * measured: it allocates what stays, and warms caches. Of the next ones it has the most at each part of their
 * time. Plain object. Thread: one call at a time.
 */
#ifndef RLV_CLIENT_POOL_PROFILE_H
#define RLV_CLIENT_POOL_PROFILE_H

#include "device/curve.h"
#include "wire/lease_layout.h"

#define PROFILE_WARM 1u
#define PROFILE_ITERATIONS (PROFILE_WARM + 3u)
#define PROFILE_STEPS 256u /* of one iteration; further ones count from the last on */

struct profile {
	uint32_t iterations;                /* that have ended, at most PROFILE_ITERATIONS */
	uint64_t begin_ns, base, period_ns; /* period_ns: sum of those measured */
	uint32_t n;
	struct {
		uint64_t at_ns, bytes;
	} steps[PROFILE_STEPS];
	uint64_t bins[CURVE_BINS];
};

static inline bool profile_is_complete(const struct profile *profile)
{
	return profile->iterations == PROFILE_ITERATIONS;
}

/* An iteration begins; held: bytes that the job has. */
void profile_begin(struct profile *profile, uint64_t now_ns, uint64_t held);
/* It has that many bytes from now on. */
void profile_held(struct profile *profile, uint64_t now_ns, uint64_t held);
void profile_end(struct profile *profile, uint64_t now_ns);

/* A complete profile, of a job that said it needs `said` bytes; what is above by less than an extent is what
   extents round up. */
void profile_fill(const struct profile *profile, uint64_t said, uint64_t extent_bytes,
		  struct lease_profile *out);

#endif
