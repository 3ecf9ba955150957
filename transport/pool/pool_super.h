/*
 * pool_super.h - the superblock of a pool and its two copies: is one whole, and what does it say.
 *
 * Nothing here touches a file. What is read from one is untrusted: the checks come before any use.
 */
#ifndef RLV_TRANSPORT_POOL_POOL_SUPER_H
#define RLV_TRANSPORT_POOL_POOL_SUPER_H

#include <stdbool.h>

#include "wire/pool_layout.h"

#include "base/error.h"
#include "transport/transport.h"

/* Of a pool with a random uuid that belongs to no store yet. -EIO. */
RLV_MUST_CHECK int pool_super_make(struct pool_superblock *sb, enum pool_layout layout);

/* Bytes that the regions of a directory may take together. */
void pool_super_set_bytes(struct pool_superblock *sb, uint64_t bytes);

/* The pool belongs to that store from now on; a longer name is cut. */
void pool_super_own(struct pool_superblock *sb, const uint8_t store_uuid[16],
		    const char *store_name);

void pool_super_identity(const struct pool_superblock *sb, struct pool_identity *out);

/* -EPROTO: no pool, of a format that this library does not know, or laid out otherwise. -EBADMSG:
   damaged. */
RLV_MUST_CHECK int pool_super_check(const struct pool_superblock *sb, enum pool_layout layout);

/* Which of two copies holds: 0 or 1. -EBADMSG: damaged, both; -EPROTO as above, both. */
RLV_MUST_CHECK int pool_super_choose(const struct pool_superblock *const copies[2],
				     enum pool_layout layout);

/* Do both copies say the same? */
bool pool_super_same(const struct pool_superblock *const copies[2]);

/* Both copies are zero: no pool was made here yet. */
bool pool_super_is_blank(const struct pool_superblock *const copies[2]);

#endif
