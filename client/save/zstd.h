/*
 * zstd.h - the system's zstd, opened when the first body is compressed or decompressed.
 */
#ifndef RLV_CLIENT_SAVE_ZSTD_H
#define RLV_CLIENT_SAVE_ZSTD_H

#include <stddef.h>

#include "base/error.h"

#define ZSTD_LEVEL_MAX 19

/* -ENOTSUP: there is no libzstd; the message says what to install. Thread: any. */
RLV_MUST_CHECK int zstd_load(void);

/* Room that a compressed body of that size needs. Only after zstd_load. */
size_t zstd_bound(size_t bytes);

/* Compresses bytes of src into *room_inout bytes of dst, of which it then says the used ones. Only after
   zstd_load. -ENOMEM. */
RLV_MUST_CHECK int zstd_pack(int level, const void *src, size_t bytes, void *dst,
			     size_t *room_inout);

/* Decompresses stored bytes of src into exactly bytes of dst. -EBADMSG: it is not that. Only after zstd_load. */
RLV_MUST_CHECK int zstd_unpack(void *dst, size_t bytes, const void *src, size_t stored);

#endif
