/*
 * Recover: makes a shard sound that was left in any state, by somebody who has it alone
 * (embed:FILE opened again after kill -9, a node restarted on its file).
 *
 *   leaves        one tag; impossible ones retired; inner sums and sizes from them, in one pass
 *   headers       all closed
 *   head          beyond the largest ticket of any header or leaf, and never back
 *   limiter       admitted := committed: nobody holds an admission
 *   slots         free, idle
 *   epoch word    NORMAL, clean := dirty; written last
 *
 * Each step is a function of leaves and headers alone, so a recovery that is killed anywhere is
 * simply run again. It goes in small pieces, for who serves others meanwhile. The page cache keeps every store of a killed process. A power loss keeps pages
 * in any order: where the mark is set (wire/region.h) rows are checked against their leaves, and items
 * with a torn row retired.
 */
#ifndef RLV_DS_REPLAY_RECOVER_H
#define RLV_DS_REPLAY_RECOVER_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/replay/shard.h"

#include "base/error.h"

struct recover_opts {
	bool scan_rows; /* the mark was set: those of items are read */
};

struct recover_report {
	uint64_t items;    /* live leaves of all views, after */
	uint64_t retired;  /* items of torn rows, of another generation, or that cannot be */
	uint64_t head;     /* next ticket */
	uint32_t closed;   /* blocks found open */
	uint32_t repaired; /* headers that were behind their leaves or named another block */
	bool was_dirty;    /* the sums were not to be trusted */
};

/*
 * Recovers one shard. The caller has exclusive access: nobody else has the regions mapped.
 * report_out may be NULL. Errors: -ENOMEM, -EPROTO (head is no ticket), those of the transport;
 * after any of them run it again. Cost: reads and writes the tree twice; with scan_rows reads the
 * rows of all blocks with items. Thread: setup.
 */
RLV_MUST_CHECK int recover_shard(struct shard *shard, const struct recover_opts *opts,
				 struct recover_report *report_out);

struct recovery; /* on its way: nobody else touches the shard until it has ended */

/* The same in pieces. shard is borrowed until recover_end. -ENOMEM. */
RLV_MUST_CHECK int recover_begin(struct shard *shard, const struct recover_opts *opts,
				 struct recovery **rec_out);
/*
 * Goes on until that time of clock_monotonic(), and for one piece more: some milliseconds, the rows of
 * a block, or as long as 4 MiB take to become durable. -EAGAIN: there is more to do. Else as
 * recover_shard, and it is over.
 */
RLV_MUST_CHECK int recover_go_on(struct recovery *rec, uint64_t until_ns,
				 struct recover_report *report_out);
/* NULL is a no-op. */
void recover_end(struct recovery **rec);

#endif
