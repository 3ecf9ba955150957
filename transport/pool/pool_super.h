/*
 * pool_super.h - the superblock of a pool and its two copies: making, validation, choice of a copy.
 *
 * Nothing here touches a file. Superblocks read from a file are untrusted: check them before use.
 */
#ifndef RLV_TRANSPORT_POOL_POOL_SUPER_H
#define RLV_TRANSPORT_POOL_POOL_SUPER_H

#include <stdbool.h>

#include "wire/pool_layout.h"

#include "base/error.h"
#include "transport/transport.h"

/* Makes the superblock of a new pool: random uuid, no store yet. -EIO: no random bytes. */
RLV_MUST_CHECK int pool_super_make(struct pool_superblock *sb, enum pool_layout layout);

/* Sets the total bytes that the regions of a directory may take. */
void pool_super_set_bytes(struct pool_superblock *sb, uint64_t bytes);

/* Records the store that owns the pool; a name that is too long is cut. */
void pool_super_own(struct pool_superblock *sb, const uint8_t store_uuid[16],
		    const char *store_name);

void pool_super_identity(const struct pool_superblock *sb, struct pool_identity *out);

/*
 * Checks one copy of a superblock. -EPROTO: not that of a pool, an unknown format, or another
 * layout. -EBADMSG: damaged.
 */
RLV_MUST_CHECK int pool_super_check(const struct pool_superblock *sb, enum pool_layout layout);

/*
 * Reads both copies, at offset 0 and at off1; zeros stand for what is behind the end of the file.
 */
RLV_MUST_CHECK int pool_super_read(int fd, uint64_t off1, struct pool_superblock pair_out[2]);

/*
 * Returns the number of the copy to use: 1 if that is valid, else 0. If neither is valid, -EBADMSG
 * or -EPROTO (pool_super_check).
 */
RLV_MUST_CHECK int pool_super_choose(const struct pool_superblock pair[2], enum pool_layout layout);

/* True if both copies are equal. */
bool pool_super_same(const struct pool_superblock pair[2]);

#endif
