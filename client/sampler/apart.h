/*
 * apart.h - large columns that come to a device by themselves, apart from the others: gathered by it
 * (RLV_LANDING_GATHER), or brought by READs (RLV_LANDING_DMABUF, RLV_LANDING_PEERMEM).
 *
 *   rows of all shards shared with the device --> each round: lists --> gathers queued
 *     small columns copied here meanwhile --> mark reached --> leaves again
 *
 *   device's side of each buffer reached --> each round: READs of rows without large values --> lists of these
 *     --> READs of them to the device; the others copied meanwhile --> leaves again
 *
 * A sampler's buffers are cut so that the large arrays, and the lists, lie behind all else. Private to
 * client/sampler/.
 */
#ifndef RLV_CLIENT_SAMPLER_APART_H
#define RLV_CLIENT_SAMPLER_APART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct rlv_sampler;
struct round;
struct batch;
struct async_sample;
struct transport_io;
struct window_output;

struct apart {
	bool wanted;    /* buffers are cut for it */
	bool direct;    /* by READs; else by gathers */
	bool ready;     /* the device has, or gets, the rows of all open shards */
	uint32_t large; /* columns whose values are so large, whether the sampler has them or not */
	const uint8_t **shared; /* by shard: where they begin; NULL = they are not */
	uint32_t n;
};

/* Sets `wanted`, of a sampler whose options are read, whose plan is made, and whose shards are open. -ENOTSUP: the
   landing takes no other path than one that this sampler, or its table, cannot have. */
RLV_MUST_CHECK int apart_choose(struct rlv_sampler *sp);

/* After shards came or went: shares those that are new, and sets `ready`. -ENOMEM. What the device does not take
   is logged: batches land by a copy then, or it is -ENOTSUP. */
RLV_MUST_CHECK int apart_follow(struct rlv_sampler *sp);

/* Before a shard is closed: its rows must not be unmapped while the device has them. */
void apart_leave(struct rlv_sampler *sp, uint32_t shard);
/* Before all are. */
void apart_end(struct rlv_sampler *sp);

void apart_fini(struct rlv_sampler *sp);

/* True: the output's array lies behind all else. */
bool apart_takes(const struct rlv_sampler *sp, const struct window_output *o);

/* Sets batch->is_apart: whether a batch that is begun now, in an idle buffer, comes so. Errors, of a landing that takes
   no other path: -ENOTSUP, those of connections. */
RLV_MUST_CHECK int apart_begin(struct rlv_sampler *sp, struct batch *batch);

/* Of the next async->rows_n items, over a wire: prepares READs of their rows without large values into async->rows,
   then, when these have come, of their large values to the device. Both make the requests in async->io. -ENOMEM. */
RLV_MUST_CHECK int apart_aim_near(struct rlv_sampler *sp, struct async_sample *async,
				  size_t *n_io_out);
RLV_MUST_CHECK int apart_aim_far(struct rlv_sampler *sp, struct async_sample *async,
				 size_t *n_io_out);

/* Gathers and verifies the round->found items of the scratch, in addressable shards. Errors: those of
   landing_gather and landing_await. */
RLV_MUST_CHECK int apart_gather(struct rlv_sampler *sp, const struct round *round);

#endif
