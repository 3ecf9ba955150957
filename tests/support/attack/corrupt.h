/*
 * corrupt.h - files with one flipped bit: the classes of bytes in each kind of file, and their
 * places. Maps are made from an intact file; a store of several files has several maps.
 */
#ifndef RLV_TESTS_SUPPORT_ATTACK_CORRUPT_H
#define RLV_TESTS_SUPPORT_ATTACK_CORRUPT_H

#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"

enum corrupt_class {
	CORRUPT_POOL_SUPERBLOCK,
	CORRUPT_EXTENT_TABLE,
	CORRUPT_SUPERBLOCK, /* bytes of a region's superblock that its crc covers */
	CORRUPT_STATE,      /* word `clean` */
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
	CORRUPT_PADDING, /* bytes that no format uses, and rows that were never written */
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

/* An intact file and its classes of bytes. */
struct corrupt_file {
	char path[256];
	uint8_t *image; /* NULL = the file is missing */
	size_t bytes;
	struct corrupt_range *ranges;
	size_t n_ranges;
	size_t total[CORRUPT_CLASSES]; /* bytes */
};

/*
 * Reads the file of that name; a missing file is no error. Like all of these it fails the test on
 * any other error.
 */
void corrupt_read(struct corrupt_file *file, const char *path);
/* Frees the bytes in memory; the file stays. */
void corrupt_free(struct corrupt_file *file);
/* Writes the file as it was read, with one flipped bit; mask 0 = unchanged. */
void corrupt_write(const struct corrupt_file *file, size_t off, uint8_t mask);
/* True if the file still has the bytes of corrupt_write. */
int corrupt_is_same(const struct corrupt_file *file, size_t off, uint8_t mask);

/* Maps: of a pool in one file; of the superblock's file of a pool in a directory; of a database of
   SQLite's; of its WAL. */
void corrupt_map_pool(struct corrupt_file *file);
void corrupt_map_directory(struct corrupt_file *file);
void corrupt_map_db(struct corrupt_file *file);
void corrupt_map_wal(struct corrupt_file *file);

/* Maps one region that begins at off of the file, for pools of several files. */
struct corrupt_region {
	uint32_t role; /* enum region_role */
	size_t off, bytes;
	const uint8_t *tree; /* the tree region of its shard; NULL = this region is the tree region */
};

void corrupt_map_region(struct corrupt_file *file, const struct corrupt_region *region);

/* A random byte of the class, which the file must have. */
size_t corrupt_pick(const struct corrupt_file *file, enum corrupt_class class, struct rng *rng);

#endif
