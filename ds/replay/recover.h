/*
 * Recover: makes a shard sound from any state. The caller has exclusive access (embed:FILE
 * opened again after kill -9, a node restarted on its file).
 *
 *   leaves        one tag; impossible leaves retired; inner sums and sizes from them
 *   headers       all closed
 *   head          beyond the largest ticket of any header or leaf, and never back
 *   limiter       admitted := committed: no client holds an admission
 *   slots         free, idle
 *   epoch word    NORMAL, clean := dirty; written last
 *
 * Each step is a function of leaves and headers alone, so a killed recovery is simply run again.
 * It runs in small pieces, for callers that serve others meanwhile. The page cache keeps every
 * store of a killed process. A power loss keeps pages in any order: if the mark is set
 * (wire/region.h) rows are checked against their leaves, and items with a torn row retired.
 */
#ifndef RLV_DS_REPLAY_RECOVER_H
#define RLV_DS_REPLAY_RECOVER_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/replay/shard.h"

#include "base/error.h"

struct clock;

struct recover_opts {
	bool scan_rows; /* the mark was set: read the rows of items */
};

struct recover_report {
	uint64_t items;    /* live leaves of all views, afterwards */
	uint64_t retired;  /* items with torn rows, of another generation, or impossible */
	uint64_t head;     /* next ticket */
	uint32_t closed;   /* blocks found open */
	uint32_t repaired; /* headers older than their leaves, or that named another block */
	bool was_dirty;    /* the sums were not trustworthy */
};

/*
 * Recovers one shard. The caller has exclusive access: nobody else has the regions mapped.
 * report_out may be NULL. Errors: -ENOMEM, -EPROTO (head is not a ticket), those of the
 * transport; after any of them run it again. Cost: reads and writes the tree once; with
 * scan_rows reads the rows of all blocks with items. Thread: setup.
 */
RLV_MUST_CHECK int recover_shard(struct shard *shard, const struct recover_opts *opts,
				 struct recover_report *report_out);

struct recovery; /* in progress: nobody else touches the shard until recover_end */

/* Begins a recovery in pieces. shard is borrowed until recover_end. -ENOMEM. */
RLV_MUST_CHECK int recover_begin(struct shard *shard, const struct recover_opts *opts,
				 struct recovery **rec_out);
/*
 * Continues the recovery until the time until_ns of clk, plus one piece: some milliseconds, the
 * rows of a block, or the time to make 4 MiB durable. Reads the clock once after each piece.
 * -EAGAIN: more to do. Otherwise finished, with the result of recover_shard.
 */
RLV_MUST_CHECK int recover_go_on(struct recovery *rec, const struct clock *clk, uint64_t until_ns,
				 struct recover_report *report_out);
/* Frees the recovery. NULL is a no-op. */
void recover_end(struct recovery **rec);

#endif
