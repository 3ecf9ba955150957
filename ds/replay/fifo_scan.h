/*
 * FIFO scan: finds the next items of a fifo or lifo view.
 *
 * Items of one writer come in the order of its rows; blocks of different writers in the order of
 * their tickets, which their headers hold. A closed block without a live leaf stays empty until
 * it is claimed under a later ticket: each handle remembers such blocks and skips them. An open
 * block of a dead or slow writer is never waited for: it is read, passed, and read again later.
 *
 * Thread: owner.
 */
#ifndef RLV_DS_REPLAY_FIFO_SCAN_H
#define RLV_DS_REPLAY_FIFO_SCAN_H

#include "ds/replay/shard.h"

struct fifo_scan {
	struct shard *shard;
	uint32_t view;
	bool newest_first;
	uint64_t *headers; /* as read by this call */
	uint64_t *spent;   /* ticket under which each block was seen closed and empty */
};

/*
 * Begins a scan of one view of a shard, which is borrowed; newest_first: of a lifo view. Allocates
 * its arrays. -ENOMEM.
 */
RLV_MUST_CHECK int fifo_scan_init(struct fifo_scan *scan, struct shard *shard, uint32_t view,
				  bool newest_first);
void fifo_scan_fini(struct fifo_scan *scan);

/*
 * Finds the first n live items of the view, or all if there are fewer (*found_out), in order.
 * slots_out, words_out: their slots and leaf words. Errors: -ENODATA (there is none), those of the
 * transport.
 * Cost: 1 phase for the headers (8 B a block), 1 for each block read.
 */
RLV_MUST_CHECK int fifo_scan_find(struct fifo_scan *scan, uint32_t n, uint32_t *slots_out,
				  uint64_t *words_out, uint32_t *found_out);

#endif
