#include "ds/heap/find.h"

#include "base/bits.h"

#include <errno.h>
#include <string.h>

static int next_once(struct heap_access *acc, uint32_t *bucket_inout, struct heap_key *out)
{
	uint32_t end = acc->heap->desc.buckets + HEAP_PROBES, bucket = *bucket_inout;
	struct heap_head heads[HEAP_RECORDS_AT_ONCE] = { 0 };
	struct heap_entry entry;
	struct chain_at at;

	for (uint32_t i = 0; bucket < end; bucket++, i++) {
		uint32_t n = (uint32_t)min_u64(end - bucket, HEAP_RECORDS_AT_ONCE);
		int ret = i % HEAP_RECORDS_AT_ONCE == 0
				  ? heap_access_read(acc, heap_head_off(acc->heap, bucket), heads,
						     n * (uint32_t)sizeof(heads[0]))
				  : 0;

		at = (struct chain_at){ heads[i % HEAP_RECORDS_AT_ONCE].word.raw, bucket };
		if (ret == 0 && at.word == HEAD_MOVED)
			ret = heap_away(acc);
		else if (ret == 0 && at.word && !(at.word & HEAD_DELETED))
			ret = heap_read_entry(acc, at, NULL, 0, false);
		else if (ret == 0)
			continue;
		if (ret)
			return ret < 0 ? ret : heap_torn(acc, bucket);
		memcpy(&entry, acc->stage, sizeof(entry));
		*out = (struct heap_key){ .ptr = acc->stage + sizeof(entry),
					  .len = entry.key_len,
					  .value_len = entry.flags & ENTRY_MANIFEST ? entry.epoch
										    : entry.len,
					  .version = entry.version };
		*bucket_inout = bucket + 1;
		return 0;
	}
	*bucket_inout = bucket;
	return error_set(-ENODATA, "no more keys");
}

int heap_next(struct heap_access *acc, uint32_t *bucket_inout, struct heap_key *out)
{
	int ret = -EAGAIN;

	if (acc->plane)
		return acc->plane->next(acc, bucket_inout, out);
	for (uint32_t i = 0; ret == -EAGAIN && i < HEAP_MOST_READS; i++) {
		if (i == 2 && acc->owner)
			heap_access_pin(acc);
		ret = next_once(acc, bucket_inout, out);
	}
	return heap_access_unpin(acc, ret);
}
