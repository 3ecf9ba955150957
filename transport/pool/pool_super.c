/*
 * pool_super.c - making and checking pool superblocks (wire/pool_layout.h).
 */
#include "transport/pool/pool_super.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/crc32c.h"
#include "base/os/random.h"

static void pool_super_seal(struct pool_superblock *sb)
{
	sb->crc = crc32c(0, sb, offsetof(struct pool_superblock, crc));
}

int pool_super_make(struct pool_superblock *sb, enum pool_layout layout)
{
	int ret;

	*sb = (struct pool_superblock){
		.magic = POOL_MAGIC,
		.format_major = POOL_FORMAT_MAJOR,
		.format_minor = POOL_FORMAT_MINOR,
		.extent_size = POOL_EXTENT_BYTES,
		.layout = (uint32_t)layout,
	};
	if (layout == POOL_EXTENTS) {
		sb->table_off[0] = POOL_TABLE_OFF0;
		sb->table_off[1] = POOL_TABLE_OFF1;
		sb->max_entries = POOL_TABLE_ENTRIES;
	}
	ret = random_fill(sb->uuid, sizeof(sb->uuid));
	if (ret == 0)
		pool_super_seal(sb);
	return ret;
}

void pool_super_own(struct pool_superblock *sb, const uint8_t store_uuid[16],
		    const char *store_name)
{
	memcpy(sb->store_uuid, store_uuid, sizeof(sb->store_uuid));
	memset(sb->store_name, 0, sizeof(sb->store_name));
	(void)snprintf(sb->store_name, sizeof(sb->store_name), "%s", store_name);
	pool_super_seal(sb);
}

void pool_super_set_bytes(struct pool_superblock *sb, uint64_t bytes)
{
	sb->bytes = bytes;
	pool_super_seal(sb);
}

void pool_super_identity(const struct pool_superblock *sb, struct pool_identity *out)
{
	memcpy(out->pool_uuid, sb->uuid, sizeof(out->pool_uuid));
	memcpy(out->store_uuid, sb->store_uuid, sizeof(out->store_uuid));
	memcpy(out->store_name, sb->store_name, sizeof(out->store_name));
}

int pool_super_check(const struct pool_superblock *sb, enum pool_layout layout)
{
	bool tables = layout == POOL_EXTENTS;

	if (sb->magic != POOL_MAGIC)
		return error_set(-EPROTO, "not a pool: its magic is %016llx",
				 (unsigned long long)sb->magic);
	if (sb->format_major != POOL_FORMAT_MAJOR)
		return error_set(-EPROTO, "pool format %u.%u: this library knows %u.x",
				 sb->format_major, sb->format_minor, POOL_FORMAT_MAJOR);
	if (sb->crc != crc32c(0, sb, offsetof(struct pool_superblock, crc)) ||
	    sb->store_name[sizeof(sb->store_name) - 1])
		return error_set(-EBADMSG, "pool superblock is damaged: crc32c is wrong");
	if (sb->layout == (uint32_t)(tables ? POOL_DIRECTORY : POOL_EXTENTS))
		return error_set(-EPROTO, tables ? "the head of a pool in a directory, not a pool"
						 : "a pool in one file, not in a directory");
	if (sb->layout != (uint32_t)layout || sb->extent_size != POOL_EXTENT_BYTES ||
	    sb->table_off[0] != (tables ? POOL_TABLE_OFF0 : 0) ||
	    sb->table_off[1] != (tables ? POOL_TABLE_OFF1 : 0) ||
	    sb->max_entries != (tables ? POOL_TABLE_ENTRIES : 0))
		return error_set(-EPROTO, "pool geometry is not that of format %u",
				 POOL_FORMAT_MAJOR);
	if (sb->incompat & ~POOL_INCOMPAT_KNOWN)
		return error_set(-EPROTO, "pool has features %llx that this library does not know",
				 (unsigned long long)(sb->incompat & ~POOL_INCOMPAT_KNOWN));
	if (sb->ro_compat & ~POOL_RO_COMPAT_KNOWN)
		return error_set(-EPROTO,
				 "pool has features %llx that this library may read but not write",
				 (unsigned long long)(sb->ro_compat & ~POOL_RO_COMPAT_KNOWN));
	return 0;
}

int pool_super_read(int fd, uint64_t off1, struct pool_superblock pair_out[2])
{
	memset(pair_out, 0, 2 * sizeof(*pair_out));
	if (pread(fd, &pair_out[0], sizeof(*pair_out), 0) < 0 ||
	    pread(fd, &pair_out[1], sizeof(*pair_out), (off_t)off1) < 0)
		return error_set(-errno, "read of the superblock: %s", strerror(errno));
	return 0;
}

/*
 * If neither copy is valid, the message is that of copy 0, or of copy 1 if only that has the magic.
 */
int pool_super_choose(const struct pool_superblock pair[2], enum pool_layout layout)
{
	int second = pool_super_check(&pair[1], layout);
	int first;

	if (second == 0)
		return 1;
	first = pool_super_check(&pair[0], layout);
	if (first == 0)
		return 0;
	if (pair[0].magic != POOL_MAGIC && pair[1].magic == POOL_MAGIC)
		first = pool_super_check(&pair[1], layout);
	if (first == -EBADMSG || second == -EBADMSG)
		return error_prefix(-EBADMSG, "both copies of the superblock are damaged: ");
	return first;
}

bool pool_super_same(const struct pool_superblock pair[2])
{
	return memcmp(&pair[0], &pair[1], offsetof(struct pool_superblock, reserved2)) == 0;
}
