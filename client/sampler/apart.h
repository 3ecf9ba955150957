/*
 * apart.h - large columns that a device gathers by itself (RLV_LANDING_GATHER), apart from the others.
 *
 *   rows of all shards shared with the device --> each round: lists --> gathers queued
 *     small columns copied here meanwhile --> mark reached --> leaves again
 *
 * A sampler's buffers are cut so that the large arrays, and the lists, lie behind all else. Private to
 * client/sampler/.
 */
#ifndef RLV_CLIENT_SAMPLER_APART_H
#define RLV_CLIENT_SAMPLER_APART_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct rlv_sampler;
struct round;

struct apart {
	bool wanted;            /* buffers are cut for it */
	bool ready;             /* the rows of all open shards are shared with the device */
	const uint8_t **shared; /* by shard: where they begin; NULL = they are not */
	uint32_t n;
};

/* Sets `wanted`, of a sampler whose options are read. */
void apart_choose(struct rlv_sampler *sp);

/* After shards came or went: shares those that are new, and sets `ready`. -ENOMEM. What the device does not take
   is logged: batches land by a copy then. */
RLV_MUST_CHECK int apart_follow(struct rlv_sampler *sp);

/* Before a shard is closed: its rows must not be unmapped while the device has them. */
void apart_leave(struct rlv_sampler *sp, uint32_t shard);
/* Before all are. */
void apart_end(struct rlv_sampler *sp);

void apart_fini(struct rlv_sampler *sp);

/* Gathers and verifies the round->found items of the scratch, in addressable shards. Errors: those of
   landing_gather and landing_await. */
RLV_MUST_CHECK int apart_gather(struct rlv_sampler *sp, const struct round *round);

#endif
