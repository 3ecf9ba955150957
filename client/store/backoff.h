/*
 * backoff.h - sleeps between polls of shared state.
 */
#ifndef RLV_CLIENT_STORE_BACKOFF_H
#define RLV_CLIENT_STORE_BACKOFF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/os/clock.h"

struct backoff {
	int64_t first_ns;
	uint32_t doublings; /* of it, at most */
	uint32_t round;     /* sleeps so far; 0 at first */
	bool jitter;        /* half of each sleep to all of it: clients do not come in step */
};

/* Sleeps for first_ns, doubled with each call (`doublings` times at most), and never past the
   deadline. */
void backoff_sleep(struct backoff *backoff, const struct clock *clock, uint64_t deadline_ns);

#endif
