/*
 * Fuzzes superblocks and extent tables: first byte 0 = region superblock, 1 = pool superblock, else
 * the two copies of the extent table. Checksums are corrected, or hardly any input would pass them.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "ds/part/superblock.h"
#include "transport/pool/extents.h"
#include "transport/pool/pool_super.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void take(void *into, size_t room, const uint8_t **data, size_t *size)
{
	size_t n = *size < room ? *size : room;

	memset(into, 0, room);
	memcpy(into, *data, n);
	*data += n;
	*size -= n;
}

static void fuzz_region(const uint8_t *data, size_t size)
{
	struct region_superblock sb;

	take(&sb, sizeof(sb), &data, &size);
	(void)!superblock_check(&sb, OBJECT_TABLE, REGION_TREE, (uint64_t)4 << 20);
	sb.magic = REGION_MAGIC;
	sb.crc = crc32c(0, &sb, offsetof(struct region_superblock, crc));
	(void)!superblock_check(&sb, OBJECT_TABLE, REGION_TREE, (uint64_t)4 << 20);
}

static void fuzz_pool(const uint8_t *data, size_t size)
{
	struct pool_superblock sb;

	take(&sb, sizeof(sb), &data, &size);
	(void)!pool_super_check(&sb, POOL_EXTENTS);
	(void)!pool_super_check(&sb, POOL_DIRECTORY);
	sb.magic = POOL_MAGIC;
	sb.crc = crc32c(0, &sb, offsetof(struct pool_superblock, crc));
	(void)!pool_super_check(&sb, POOL_EXTENTS);
	(void)!pool_super_check(&sb, POOL_DIRECTORY);
}

/* Whatever is accepted must be safe to use. */
static void use(struct extent_table *table, uint64_t file_extents)
{
	uint64_t longest = 0, used = extents_used(table);
	uint64_t first = extents_find_run(table, 3, &longest);
	struct extent_entry *entry;

	if (used >= file_extents || (first && (first + 3 > table->extents || first == 0)))
		abort();
	if (!first && longest >= 3)
		abort();
	entry = extents_take_entry(table);
	if (!first || !entry)
		return;
	*entry = (struct extent_entry){
		.region = RPTR_MAX_REGION, .first = first, .extents = 3, .state = EXTENT_QUARANTINE
	};
	extents_seal(table);
	if (extents_check_table(table, file_extents))
		abort(); /* additions to a valid table leave it valid */
}

static void fuzz_table(const uint8_t *data, size_t size)
{
	struct extent_table *copies[2] = { malloc(sizeof(struct extent_table)),
					   malloc(sizeof(struct extent_table)) };
	uint64_t file_extents = 64;
	size_t half = size / 2;
	int chosen;

	for (int i = 0; i < 2 && copies[i]; i++) {
		size_t n = half;

		take(copies[i], sizeof(*copies[i]), &data, &n);
		copies[i]->magic = POOL_TABLE_MAGIC;
		if (copies[i]->n <= POOL_TABLE_ENTRIES)
			extents_seal(copies[i]);
	}
	if (copies[0] && copies[1]) {
		chosen = extents_choose((const struct extent_table **)(void *)copies, file_extents);
		if (chosen >= 0)
			use(copies[chosen], file_extents);
	}
	free(copies[0]);
	free(copies[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	if (data[0] == 0)
		fuzz_region(data + 1, size - 1);
	else if (data[0] == 1)
		fuzz_pool(data + 1, size - 1);
	else
		fuzz_table(data + 1, size - 1);
	return 0;
}
