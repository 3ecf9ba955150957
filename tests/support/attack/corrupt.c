#include "tests/support/attack/corrupt.h"

#include "tests/support/test.h"

#include "wire/pool_layout.h"
#include "wire/region.h"
#include "wire/table_layout.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DB_HEADER_BYTES 100
#define DB_PAGE_BYTES 4096

const char *corrupt_class_name(enum corrupt_class class)
{
	static const char *const names[CORRUPT_CLASSES] = {
		"pool superblock", "extent table",  "region superblock", "state word", "mark words",
		"descriptor",      "shard words",   "client slots",      "view words", "inner sums",
		"leaves",          "block headers", "row columns",       "row tail",   "padding",
		"db header",       "db schema",     "db pages",          "db wal",
	};

	return names[class];
}

/* -------- the file -------- */

void corrupt_read(struct corrupt_file *file, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	memset(file, 0, sizeof(*file));
	snprintf(file->path, sizeof(file->path), "%s", path);
	if (fd < 0 && errno == ENOENT)
		return;
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	file->bytes = (size_t)st.st_size;
	file->image = malloc(file->bytes + 1);
	assert_non_null(file->image);
	assert_int_equal(read(fd, file->image, file->bytes), file->bytes);
	close(fd);
}

void corrupt_free(struct corrupt_file *file)
{
	free(file->image);
	free(file->ranges);
	memset(file, 0, sizeof(*file));
}

void corrupt_write(const struct corrupt_file *file, size_t off, uint8_t mask)
{
	int fd;

	if (!file->image) {
		(void)unlink(file->path);
		return;
	}
	/* A new inode: whoever still has the old one mapped changes nothing here. */
	(void)unlink(file->path);
	fd = open(file->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	file->image[off] ^= mask;
	assert_int_equal(write(fd, file->image, file->bytes), file->bytes);
	file->image[off] ^= mask;
	close(fd);
}

int corrupt_is_same(const struct corrupt_file *file, size_t off, uint8_t mask)
{
	struct corrupt_file now;
	int same;

	corrupt_read(&now, file->path);
	if (!file->image || !now.image || file->bytes != now.bytes) {
		same = !file->image && !now.image;
		corrupt_free(&now);
		return same;
	}
	now.image[off] ^= mask;
	same = memcmp(now.image, file->image, file->bytes) == 0;
	corrupt_free(&now);
	return same;
}

/* -------- maps -------- */

static void add(struct corrupt_file *file, enum corrupt_class class, size_t off, size_t len)
{
	if (file->n_ranges % 1024 == 0) {
		file->ranges =
			realloc(file->ranges, (file->n_ranges + 1024) * sizeof(*file->ranges));
		assert_non_null(file->ranges);
	}
	assert_true(off + len <= file->bytes);
	file->ranges[file->n_ranges++] = (struct corrupt_range){ class, off, len };
	file->total[class] += len;
}

static void map_superblock(struct corrupt_file *file, size_t off, uint32_t role)
{
	const size_t words = offsetof(struct region_superblock, mark);
	const size_t rest = offsetof(struct region_superblock, reserved2);

	add(file, CORRUPT_SUPERBLOCK, off, offsetof(struct region_superblock, reserved1));
	add(file, CORRUPT_PADDING, off + offsetof(struct region_superblock, reserved1),
	    sizeof(((struct region_superblock *)0)->reserved1));
	add(file, CORRUPT_STATE, off + offsetof(struct region_superblock, state), 8);
	for (size_t word = words; word < rest; word += WIRE_LINE)
		add(file, role == REGION_ROWS ? CORRUPT_MARK : CORRUPT_PADDING, off + word, 8);
	add(file, CORRUPT_PADDING, off + rest, REGION_SUPERBLOCK_BYTES - rest);
}

static void map_tree(struct corrupt_file *file, size_t off, const struct table_desc *desc)
{
	add(file, CORRUPT_DESCRIPTOR, off + DESC_OFF, sizeof(*desc));
	add(file, CORRUPT_SHARD_WORDS, off + desc->words_off, sizeof(struct shard_words));
	add(file, CORRUPT_BLOCK_HEADERS, off + desc->headers_off, desc->blocks * 8ull);
	for (uint32_t v = 0; v < desc->n_views; v++) {
		const struct view_desc *view = &desc->views[v];

		add(file, CORRUPT_VIEW_WORDS, off + view->words_off, sizeof(struct view_words));
		for (uint32_t k = 0; k < 2; k++)
			add(file, CORRUPT_INNER_SUMS, off + view->inner_off[k],
			    desc->tree.inner_bytes);
		add(file, CORRUPT_LEAVES, off + view->leaves_off, desc->slots * 8ull);
	}
}

static void map_rows(struct corrupt_file *file, size_t off, const struct table_desc *desc)
{
	for (uint32_t slot = 0; slot < desc->slots; slot++) {
		size_t row = off + ROWS_OFF + (size_t)slot * desc->row_bytes;
		struct row_tail tail;

		memcpy(&tail, file->image + row + desc->tail_off, sizeof(tail));
		if (tail.gen == 0) {
			add(file, CORRUPT_PADDING, row, desc->row_bytes);
			continue;
		}
		add(file, CORRUPT_ROW_COLUMNS, row, desc->tail_off);
		add(file, CORRUPT_ROW_TAIL, row + desc->tail_off, sizeof(tail));
	}
}

static void map_pages(struct corrupt_file *file, size_t off, const struct table_desc *desc)
{
	add(file, CORRUPT_VIEW_WORDS, off + LIMITS_OFF, desc->n_views * sizeof(struct view_limits));
	for (uint32_t i = 0; i < desc->max_clients; i++)
		add(file, CORRUPT_CLIENT_SLOTS, off + PAGES_OFF + i * (size_t)CLIENT_PAGE_BYTES,
		    offsetof(struct client_page, reserved));
}

void corrupt_map_region(struct corrupt_file *file, const struct corrupt_region *region)
{
	const size_t off = region->off;
	struct table_desc desc;

	assert_true(off + region->bytes <= file->bytes);
	map_superblock(file, off, region->role);
	memcpy(&desc, (region->tree ? region->tree : file->image + off) + DESC_OFF, sizeof(desc));
	assert_true(desc.magic == TABLE_DESC_MAGIC);
	switch (region->role) {
	case REGION_TREE:
		map_tree(file, off, &desc);
		break;
	case REGION_ROWS:
		map_rows(file, off, &desc);
		break;
	case REGION_SLOTS:
		add(file, CORRUPT_CLIENT_SLOTS, off + desc.slots_off,
		    desc.max_clients * sizeof(struct client_slot));
		break;
	default:
		map_pages(file, off, &desc);
	}
}

static const struct extent_entry *find_tree(const struct extent_table *table,
					    const struct extent_entry *of)
{
	for (uint32_t i = 0; i < table->n; i++) {
		const struct extent_entry *entry = &table->entries[i];

		if (entry->object == of->object && entry->part == of->part &&
		    entry->role == REGION_TREE && entry->state == EXTENT_LIVE)
			return entry;
	}
	fail_msg("a region without its tree");
	return NULL;
}

static void map_pool_superblock(struct corrupt_file *file, size_t off)
{
	add(file, CORRUPT_POOL_SUPERBLOCK, off, offsetof(struct pool_superblock, reserved2));
	add(file, CORRUPT_PADDING, off + offsetof(struct pool_superblock, reserved2),
	    sizeof(((struct pool_superblock *)0)->reserved2));
}

void corrupt_map_directory(struct corrupt_file *file)
{
	map_pool_superblock(file, 0);
	map_pool_superblock(file, POOL_DIRECTORY_OFF1);
}

void corrupt_map_pool(struct corrupt_file *file)
{
	const struct extent_table *table = (const void *)(file->image + POOL_TABLE_OFF0);
	const size_t used =
		offsetof(struct extent_table, entries) + table->n * sizeof(struct extent_entry);

	assert_true(table->magic == POOL_TABLE_MAGIC);
	map_pool_superblock(file, 0);
	map_pool_superblock(file, POOL_SUPERBLOCK_OFF1);
	add(file, CORRUPT_EXTENT_TABLE, POOL_TABLE_OFF0, used);
	add(file, CORRUPT_EXTENT_TABLE, POOL_TABLE_OFF1, used);
	add(file, CORRUPT_PADDING, POOL_TABLE_OFF0 + used, POOL_TABLE_BYTES - used);
	add(file, CORRUPT_PADDING, POOL_TABLE_OFF1 + used, POOL_TABLE_BYTES - used);
	for (uint32_t i = 0; i < table->n; i++) {
		const struct extent_entry *entry = &table->entries[i];
		struct corrupt_region region = { .role = entry->role,
						 .off = entry->first * POOL_EXTENT_BYTES,
						 .bytes = entry->extents * POOL_EXTENT_BYTES };

		if (entry->state != EXTENT_LIVE)
			continue;
		region.tree = file->image + find_tree(table, entry)->first * POOL_EXTENT_BYTES;
		corrupt_map_region(file, &region);
	}
}

void corrupt_map_db(struct corrupt_file *file)
{
	assert_true(file->bytes > DB_PAGE_BYTES);
	add(file, CORRUPT_DB_HEADER, 0, DB_HEADER_BYTES);
	add(file, CORRUPT_DB_SCHEMA, DB_HEADER_BYTES, DB_PAGE_BYTES - DB_HEADER_BYTES);
	add(file, CORRUPT_DB_PAGES, DB_PAGE_BYTES, file->bytes - DB_PAGE_BYTES);
}

void corrupt_map_wal(struct corrupt_file *file)
{
	if (file->bytes)
		add(file, CORRUPT_DB_WAL, 0, file->bytes);
}

size_t corrupt_pick(const struct corrupt_file *file, enum corrupt_class class, struct rng *rng)
{
	size_t at = (size_t)rng_uniform_u64(rng, file->total[class]);

	for (size_t i = 0; i < file->n_ranges; i++) {
		const struct corrupt_range *range = &file->ranges[i];

		if (range->class != class)
			continue;
		if (at < range->len)
			return range->off + at;
		at -= range->len;
	}
	fail_msg("no byte of class %s", corrupt_class_name(class));
	return 0;
}
