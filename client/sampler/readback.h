/*
 * readback.h - TD errors on their way from a device to the tree (rlv_sampler_update_device).
 */
#ifndef RLV_CLIENT_SAMPLER_READBACK_H
#define RLV_CLIENT_SAMPLER_READBACK_H

#include <stdbool.h>

#include "client/landing/landing.h"

#define READBACKS 4 /* on their way at a time */

struct rlv_sampler;

struct readback {
	struct landing_mark mark; /* reached: td is here */
	uint32_t n;
	uint64_t *keys;
	float *td; /* in the memory below */
};

struct readbacks {
	struct readback ring[READBACKS];
	uint32_t first, n;
	void *memory; /* a buffer of the landing, for batch_size TD errors each; NULL: none yet */
	size_t bytes;
	uint64_t *keys;
};

/* For a sampler with opts.dest. -ENOMEM, and errors of rlv_landing_alloc. */
RLV_MUST_CHECK int readbacks_init(struct rlv_sampler *sp);
void readbacks_fini(struct rlv_sampler *sp);

/* Sets the priorities that have come, oldest first; wait: of all. After an error the update that met it is
   dropped. Errors of rlv_sampler_update, -ENODEV, -ETIMEDOUT. */
RLV_MUST_CHECK int readbacks_apply(struct rlv_sampler *sp, bool wait);

#endif
