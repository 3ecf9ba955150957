/*
 * Shard check: walks a whole shard and verifies every invariant of its layout. Used by
 * rlv_table_verify, `relive inspect` and all levels of tests.
 *
 * Exact while nobody writes. On a shard in use it reports differences that are not errors. It
 * changes nothing.
 *
 *   words     no rebuild unfinished; head above every ticket used
 *   sums      inner nodes, size word and tags; wrong sums of a dirty shard are drift that the
 *             next rebuild repairs: counted, not a problem
 *   headers   ticket of the right block and below head, so no two blocks have the same one; owner
 *             in range, an open block's slot live
 *   leaves    a priority only where a block was claimed, of its generation or an older one, below
 *             max_prio, and not on the repeated rows at the head of a block
 *   rows      all rows of an item carry its generation (and the right crc); its anchor is a step
 *   limiter   committed <= admitted where it has bounds; nothing counted outside the control shard
 *   slots     states and pins
 */
#ifndef RLV_DS_REPLAY_SHARD_CHECK_H
#define RLV_DS_REPLAY_SHARD_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/replay/shard.h"

#include "base/error.h"

#define SHARD_CHECK_TEXTS 8
#define SHARD_CHECK_TEXT_BYTES 160

struct shard_check_opts {
	bool rows;            /* check the rows of live items */
	bool crc;             /* and their checksums, if they have any; implies rows */
	uint32_t control;     /* the table's control shard, 0 at first */
	uint64_t limit_slack; /* reservations that kills may give back twice (ds/replay/settle.h) */
};

struct shard_check_report {
	uint64_t problems; /* of all kinds; 0 = sound */
	uint32_t n_texts;  /* messages of the first problems */
	char text[SHARD_CHECK_TEXTS][SHARD_CHECK_TEXT_BYTES];

	uint64_t head;
	uint32_t epoch;
	bool dirty; /* a rebuild is due */
	uint32_t used_blocks, open_blocks;
	uint32_t live_slots, busy_slots; /* busy: with a pin */
	uint64_t live[RING_MAX_VIEWS];   /* items */
	uint64_t total[RING_MAX_VIEWS];  /* quanta */
	uint64_t wrong_nodes, wrong_tags, wrong_sizes;
	uint64_t wrong_headers, wrong_leaves, wrong_rows, wrong_limits, wrong_slots;
};

/*
 * Checks a whole shard and changes nothing. opts NULL = no rows, no slack. Returns 0 also if
 * problems were found: see *report_out. Errors: -ENOMEM, those of the transport. Cost: reads the
 * tree once, and the tails of all rows, or all bytes for the crc. Thread: any.
 */
RLV_MUST_CHECK int shard_check(struct shard *shard, const struct shard_check_opts *opts,
			       struct shard_check_report *report_out);

#endif
