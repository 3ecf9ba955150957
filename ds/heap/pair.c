#include "ds/heap/pair.h"

#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static uint64_t copy_most(uint32_t mode)
{
	return mode == HEAP_CENTRAL ? PAIR_CENTRAL_MOST : PAIR_MOST;
}

int pair_plan(const struct heap_wish *wish, struct heap_desc *desc)
{
	uint64_t bytes = wish->extent_bytes;

	if (!bytes)
		bytes = max_u64(PAIR_LEAST, min_u64(copy_most(wish->mode),
						    round_up(wish->bytes / wish->keys, WIRE_LINE)));
	if (bytes < PAIR_LEAST || bytes > copy_most(wish->mode) || bytes % WIRE_LINE)
		return error_set(-EINVAL,
				 "extent_bytes %" PRIu64
				 ": of a copy in this mode, a multiple of 64 from %u to %" PRIu64,
				 bytes, PAIR_LEAST, copy_most(wish->mode));
	desc->extent_bytes = bytes;
	if (!pair_sizes_fit(desc))
		return error_set(-EINVAL,
				 "4 x %" PRIu64 " keys in %u parts, of %" PRIu64
				 " bytes: 256 GiB in each at most",
				 wish->keys, wish->n_parts, bytes);
	return 0;
}

bool pair_sizes_fit(const struct heap_desc *desc)
{
	return desc->extents == 0 && desc->extent_bytes >= PAIR_LEAST &&
	       desc->extent_bytes <= copy_most(desc->mode) && desc->extent_bytes % WIRE_LINE == 0 &&
	       pair_bytes(desc) <= (uint64_t)256 << 30;
}

static int pair_check(const uint8_t *buf, uint64_t n, struct pair_at at, struct heap_entry *entry)
{
	uint64_t word;

	memcpy(entry, buf, sizeof(*entry));
	if (bits_all_zero((const uint8_t *)entry, sizeof(*entry)))
		return PAIR_NONE;
	word = head_make(entry->version, 0, entry->flags & ENTRY_DELETED ? HEAD_DELETED : 0);
	switch (chain_entry_check(buf, n, (struct chain_at){ word, at.bucket }, NULL, true)) {
	case CHAIN_OK:
		return PAIR_OK;
	case CHAIN_SHORT:
		return -EAGAIN;
	default:
		return PAIR_TORN;
	}
}

int pair_read(struct heap *heap, struct pair_at at, uint64_t guess, uint8_t *buf,
	      struct heap_entry *entry_out)
{
	uint64_t n = max_u64(guess, sizeof(*entry_out)), most = heap->desc.extent_bytes;
	int ret = -EAGAIN;

	for (uint32_t i = 0; i < 2 && ret == -EAGAIN; i++) {
		n = min_u64(n, most);
		ret = transport_fetch(heap->rows, pair_off(heap, at), buf, (uint32_t)n);
		if (ret)
			return ret;
		ret = pair_check(buf, n, at, entry_out);
		n = chain_entry_bytes(entry_out->key_len, min_u64(entry_out->len, most));
	}
	return ret == -EAGAIN ? (int)PAIR_TORN : ret;
}
