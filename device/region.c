#include "device/region.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem/alloc.h"

/* Four bins for each power of two: sizes in a bin differ by less than a quarter. */
static unsigned bin_of(uint64_t bytes)
{
	unsigned log = bits_log2_floor(bytes);

	return 4 * log + (unsigned)(bytes >> (log - 2) & 3);
}

static void bin_insert(struct region *region, struct block *block)
{
	unsigned bin = bin_of(block->bytes);

	block->previous = NULL;
	block->next = region->bins[bin];
	if (block->next)
		block->next->previous = block;
	region->bins[bin] = block;
	region->filled[bin / 64] |= UINT64_C(1) << bin % 64;
}

static void bin_remove(struct region *region, struct block *block)
{
	unsigned bin = bin_of(block->bytes);

	if (block->next)
		block->next->previous = block->previous;
	if (block->previous)
		block->previous->next = block->next;
	else
		region->bins[bin] = block->next;
	if (!region->bins[bin])
		region->filled[bin / 64] &= ~(UINT64_C(1) << bin % 64);
}

/* The next bin from this one on that is not empty; REGION_BINS if none is. */
static unsigned bin_filled(const struct region *region, unsigned bin)
{
	while (bin < REGION_BINS) {
		uint64_t word = region->filled[bin / 64] >> bin % 64;

		if (word)
			return bin + bits_ctz(word);
		bin = (bin / 64 + 1) * 64;
	}
	return REGION_BINS;
}

static struct block *region_best(const struct region *region, uint64_t bytes)
{
	unsigned bin = bin_filled(region, bin_of(bytes));
	struct block *best = NULL;

	for (; !best && bin < REGION_BINS; bin = bin_filled(region, bin + 1)) {
		for (struct block *block = region->bins[bin]; block; block = block->next) {
			if (block->bytes >= bytes && (!best || block->bytes < best->bytes))
				best = block;
		}
	}
	return best;
}

int region_add(struct region *region, struct chunk *chunk, uint64_t va, uint64_t bytes)
{
	struct block *block = mem_zalloc(sizeof(*block));

	if (!block)
		return error_set(-ENOMEM, "region: cannot allocate %zu bytes", sizeof(*block));
	block->va = va;
	block->bytes = bytes;
	block->chunk = chunk;
	chunk->region = region;
	chunk->va = va;
	chunk->bytes = bytes;
	chunk->first = block;
	chunk->live = chunk->limbo = 0;
	chunk->before = NULL;
	chunk->after = region->chunks;
	if (chunk->after)
		chunk->after->before = chunk;
	region->chunks = chunk;
	bin_insert(region, block);
	return 0;
}

void region_remove(struct chunk *chunk)
{
	struct region *region = chunk->region;
	struct block *block = chunk->first;

	while (block) {
		struct block *after = block->after;

		if (block->state == BLOCK_FREE)
			bin_remove(region, block);
		mem_free(block);
		block = after;
	}
	if (chunk->after)
		chunk->after->before = chunk->before;
	if (chunk->before)
		chunk->before->after = chunk->after;
	else
		region->chunks = chunk->after;
	chunk->first = NULL;
}

/* Cuts a free block that is in no bin; its rest is a new free block. */
static int region_cut(struct region *region, struct block *block, uint64_t bytes)
{
	struct block *rest;

	if (block->bytes == bytes)
		return 0;
	rest = mem_zalloc(sizeof(*rest));
	if (!rest)
		return error_set(-ENOMEM, "region: cannot allocate %zu bytes", sizeof(*rest));
	rest->va = block->va + bytes;
	rest->bytes = block->bytes - bytes;
	rest->chunk = block->chunk;
	rest->before = block;
	rest->after = block->after;
	if (rest->after)
		rest->after->before = rest;
	block->after = rest;
	block->bytes = bytes;
	bin_insert(region, rest);
	return 0;
}

int region_alloc(struct region *region, uint64_t bytes, struct block **block_out)
{
	struct block *block;
	int ret;

	if (bytes == 0 || bytes > UINT64_MAX / 2)
		return error_set(-EINVAL, "a tensor of %" PRIu64 " bytes", bytes);
	bytes = align_up(bytes, REGION_ALIGN);
	block = region_best(region, bytes);
	if (!block)
		return error_set(-EAGAIN, "no free block of %" PRIu64 " bytes", bytes);
	bin_remove(region, block);
	ret = region_cut(region, block, bytes);
	if (ret) {
		bin_insert(region, block);
		return ret;
	}
	block->state = BLOCK_USED;
	block->streams = 0;
	block->chunk->live++;
	region->used_bytes += bytes;
	*block_out = block;
	return 0;
}

/* Joins a block with the one after it, which is free and in no bin. */
static void block_join(struct block *block)
{
	struct block *after = block->after;

	block->bytes += after->bytes;
	block->after = after->after;
	if (block->after)
		block->after->before = block;
	mem_free(after);
}

static void block_release(struct block *block)
{
	struct region *region = block->chunk->region;
	struct block *before = block->before;

	block->state = BLOCK_FREE;
	if (block->after && block->after->state == BLOCK_FREE) {
		bin_remove(region, block->after);
		block_join(block);
	}
	if (before && before->state == BLOCK_FREE) {
		bin_remove(region, before);
		block_join(before);
		block = before;
	}
	bin_insert(region, block);
}

void region_free(struct block *block)
{
	block->chunk->live--;
	block->chunk->region->used_bytes -= block->bytes;
	if (block->streams == 0) {
		block_release(block);
		return;
	}
	block->state = BLOCK_LIMBO;
	block->chunk->limbo++;
	memset(&block->marks, 0, sizeof(block->marks));
}

void region_end_limbo(struct block *block)
{
	block->chunk->limbo--;
	block_release(block);
}

static int chunk_check(const struct region *region, const struct chunk *chunk, uint64_t *used)
{
	uint64_t va = chunk->va;
	uint32_t live = 0, limbo = 0;

	for (const struct block *block = chunk->first; block; block = block->after) {
		if (block->va != va || block->bytes == 0 || block->chunk != chunk)
			return error_set(-EPROTO, "block at 0x%" PRIx64 " does not tile", va);
		if (block->after && block->state == BLOCK_FREE && block->after->state == BLOCK_FREE)
			return error_set(-EPROTO, "blocks at 0x%" PRIx64 " are not merged", va);
		live += block->state == BLOCK_USED;
		limbo += block->state == BLOCK_LIMBO;
		*used += block->state == BLOCK_USED ? block->bytes : 0;
		va += block->bytes;
	}
	if (va != chunk->va + chunk->bytes || live != chunk->live || limbo != chunk->limbo ||
	    chunk->region != region)
		return error_set(-EPROTO, "chunk at 0x%" PRIx64 ": size or counts differ",
				 chunk->va);
	return 0;
}

int region_check(const struct region *region)
{
	uint64_t used = 0;

	for (const struct chunk *chunk = region->chunks; chunk; chunk = chunk->after) {
		int ret = chunk_check(region, chunk, &used);

		if (ret)
			return ret;
	}
	for (unsigned bin = 0; bin < REGION_BINS; bin++) {
		for (const struct block *block = region->bins[bin]; block; block = block->next) {
			if (block->state != BLOCK_FREE || bin_of(block->bytes) != bin)
				return error_set(-EPROTO, "block at 0x%" PRIx64 " is in bin %u",
						 block->va, bin);
		}
	}
	if (used != region->used_bytes)
		return error_set(-EPROTO, "region uses %" PRIu64 " bytes, not %" PRIu64, used,
				 region->used_bytes);
	return 0;
}

const char *tensor_class_name(enum tensor_class class)
{
	static const char *const names[] = { "persistent", "iteration", "ephemeral", "staging" };

	return (unsigned)class < ARRAY_LEN(names) ? names[class] : "?";
}
