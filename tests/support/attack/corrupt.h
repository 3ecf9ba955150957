/*
 * corrupt.h - files with one bit flipped: what classes of bytes a file of each kind has, and where
 * they lie. Maps are made from a file that is whole; a store of several files has several maps.
 */
#ifndef RLV_TESTS_SUPPORT_ATTACK_CORRUPT_H
#define RLV_TESTS_SUPPORT_ATTACK_CORRUPT_H

#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"

enum corrupt_class {
	CORRUPT_POOL_SUPERBLOCK,
	CORRUPT_EXTENT_TABLE,
	CORRUPT_SUPERBLOCK, /* of a region: what its crc covers */
	CORRUPT_STATE,      /* the word of that name */
	CORRUPT_MARK,       /* mark, opener, found, recovered */
	CORRUPT_DESCRIPTOR,
	CORRUPT_SHARD_WORDS,
	CORRUPT_CLIENT_SLOTS,
	CORRUPT_VIEW_WORDS,
	CORRUPT_INNER_SUMS,
	CORRUPT_LEAVES,
	CORRUPT_BLOCK_HEADERS,
	CORRUPT_ROW_COLUMNS,
	CORRUPT_ROW_TAIL,
	CORRUPT_PADDING, /* what no format has a use for, and rows that were never written */
	CORRUPT_DB_HEADER,
	CORRUPT_DB_SCHEMA,
	CORRUPT_DB_PAGES,
	CORRUPT_DB_WAL,
	CORRUPT_CLASSES
};

const char *corrupt_class_name(enum corrupt_class class);

struct corrupt_range {
	enum corrupt_class class;
	size_t off, len;
};

/* A file as it is when it is whole, and what it consists of. */
struct corrupt_file {
	char path[256];
	uint8_t *image; /* NULL = it is not there */
	size_t bytes;
	struct corrupt_range *ranges;
	size_t n_ranges;
	size_t total[CORRUPT_CLASSES]; /* bytes */
};

/* Reads the file of that name. Fails the test on any error, as all of these do; -ENOENT is none. */
void corrupt_read(struct corrupt_file *file, const char *path);
/* Frees what it holds; the file stays. */
void corrupt_free(struct corrupt_file *file);
/* Makes the file as it was read, but for one bit; mask 0 = all of it. */
void corrupt_write(const struct corrupt_file *file, size_t off, uint8_t mask);
/* True if the file is as corrupt_write made it. */
int corrupt_is_same(const struct corrupt_file *file, size_t off, uint8_t mask);

/* Maps: of a pool in one file; of the superblock's file of a pool in a directory; of a database of
   SQLite's; of its WAL. */
void corrupt_map_pool(struct corrupt_file *file);
void corrupt_map_directory(struct corrupt_file *file);
void corrupt_map_db(struct corrupt_file *file);
void corrupt_map_wal(struct corrupt_file *file);

/* One region, which begins at off of the file. For pools that are made of other files than one. */
struct corrupt_region {
	uint32_t role; /* enum region_role */
	size_t off, bytes;
	const uint8_t *tree; /* the tree region of its shard; NULL = it is that */
};

void corrupt_map_region(struct corrupt_file *file, const struct corrupt_region *region);

/* Any byte of the class. The file has some. */
size_t corrupt_pick(const struct corrupt_file *file, enum corrupt_class class, struct rng *rng);

#endif
