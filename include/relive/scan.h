/*
 * Reads items without drawing them: all items of a view in order of insertion, or those with given keys.
 *
 *   rlv_sampler_scan_start ─> rlv_sampler_scan, until -ENODATA ─> rlv_batch_release of each batch
 *   rlv_sampler_gather
 *
 * Nothing is consumed: no limiter is asked or counts, max_times_sampled is left alone, priorities stay. Any
 * sampler of the view serves, and its options choose columns, layout and n-step return. Each item is
 * consistent, as in a sample. Items that are overwritten, consumed or retired meanwhile are left out.
 *
 * In these batches probability is 1, and table_size is that of the sampler's last sample. rlv_sampler_update
 * takes their keys. A view's max_staleness leaves nothing out. What refuses a sampler of a view (-EACCES: a token of
 * role read, or a store opened read-only, where the view counts its samples) refuses a scan of it, too.
 *
 * Conventions and errors are as in relive/relive.h. Thread: the sampler's owner.
 */
#ifndef RELIVE_SCAN_H
#define RELIVE_SCAN_H

#include "relive/relive.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Starts a scan of the items that are in the table now, from the oldest; a scan in progress ends.
 * rlv_sampler_scan then gives each item that is here now and stays, and perhaps some that are appended
 * meanwhile. A scan ends, however much is appended.
 * Order: blocks of rows (rlv_table_opts.block) as they were claimed, and the rows of a block as they were
 * appended. So a stream's items come in their order of insertion; with several shards, as long as these keep pace:
 * tickets of blocks are counted by shard, and those of a shard that joined later are only matched by their newest.
 * partial: leave out shards that are down. Else a scan is complete but for shards that are lost, and waits
 * for a shard that is down: -EHOSTDOWN after the timeout.
 * Errors: -EHOSTDOWN, -ESTALE, -ECHILD, -ENOMEM. Cost: 1 RT (scan_start).
 */
RLV_CHECKED int rlv_sampler_scan_start(struct rlv_sampler *sampler, bool partial,
				       int64_t timeout_ns);

/*
 * Gives the scan's next items, at most n (1..batch_size): fewer at its end, and where items were
 * overwritten meanwhile; never 0. Errors: -ENODATA (the scan is over, or none was started), -EBUSY (all batch buffers are held),
 * -EHOSTDOWN (as above: the scan stays at its place, so call again), -ESTALE, -ECHILD, -EINVAL.
 * Prefetched batches are dropped. Leaves are read ahead: with RLV_VERIFY_CRC, or without columns, priorities are
 * as of then, and an item that was consumed since may still be seen.
 * Cost: 2 RT (scan), or 1 RT (scan_sealed) with RLV_VERIFY_CRC; 1 more for each 8192 leaves, for views with
 * max_times_sampled above 1, and for each 32 MiB of rows.
 */
RLV_CHECKED int rlv_sampler_scan(struct rlv_sampler *sampler, uint32_t n, int64_t timeout_ns,
				 const struct rlv_batch **batch_out);

/*
 * Reads the items with n keys (1..batch_size), as batches give them: item i is that of keys[i]. Where it is
 * absent, overwritten, consumed, retired or of a lost shard, key[i] and priority[i] are 0 and its columns zeros.
 * Errors: -EINVAL (n; a key that is invalid or of another table: the message names the index), -EHOSTDOWN
 * (until the deadline some shard of a key was down), -EBUSY, -ESTALE, -ECHILD. Prefetched batches are dropped.
 * Cost: 2 RT (gather), also with RLV_VERIFY_CRC; 1 more for views with max_times_sampled above 1, and for each
 * 32 MiB of rows.
 */
RLV_CHECKED int rlv_sampler_gather(struct rlv_sampler *sampler, const uint64_t *keys, uint32_t n,
				   int64_t timeout_ns, const struct rlv_batch **batch_out);

/*
 * How often each item of a batch was sampled, as long as the batch is held. NULL: the view does not count
 * that (max_times_sampled is at most 1), or the batch was sampled. Thread: any.
 */
RLV_API const uint32_t *rlv_batch_times_sampled(const struct rlv_batch *batch);

#ifdef __cplusplus
}
#endif

#endif
