/*
 * large.h - private to ds/heap: values that are longer than an extent, in chunks that a manifest names
 * (wire/heap_layout.h).
 *
 *   put    take slots | write the shares | pin, find the key | write the headers of the chunks, which
 *          name the head word to come | the manifest, then CAS the head word, as any put
 *   get    pin, read the manifest | the shares, a window of them in each round trip; of a range those it is in
 *
 * The CAS of the head word puts all chunks into use at once, and the next one of that key ends it: a chunk
 * whose header names another word than its bucket has is free. So a client may be killed between any two
 * steps. With copies, all of them have shares and headers before the first head moves.
 *
 * Thread: owner, for all.
 */
#ifndef RLV_DS_HEAP_LARGE_H
#define RLV_DS_HEAP_LARGE_H

#include "ds/heap/find.h"

#define HEAP_WINDOW_MOST 64u /* chunks */
#define HEAP_PAST_BYTES \
	((uint64_t)2 << 20) /* values from there on are copied past the caches of cores */

static inline struct heap_piece *heap_pieces(const struct heap_manifest *manifest)
{
	return (struct heap_piece *)(uintptr_t)(manifest + 1);
}

/* How many chunks are read or written in one round trip. */
uint32_t heap_window(const struct heap_access *acc, uint64_t share);

/* Reads or writes the chunks of a window; one that is larger than the window by parts, one after the other. */
RLV_MUST_CHECK int heap_window_run(const struct heap_access *acc, const struct transport_io *ios,
				   uint32_t n, bool writes);

/* Chunk i is not what the manifest says: -EBADMSG; without a pin it may have been replaced: -EAGAIN. */
RLV_MUST_CHECK int heap_chunk_damaged(const struct heap_access *acc, uint32_t i);

/* Bytes of a value in chunks, and where they go. */
struct heap_wanted {
	const struct heap_manifest *manifest; /* of n chunks */
	uint64_t hash, version;               /* of the key, and of its value */
	uint64_t bytes;                       /* of the value */
	struct heap_range range;
	uint8_t *to;
};

/* Reads the chunks that the range is in, but for those that are here already, and at times the next ones. As heap_get_range. */
RLV_MUST_CHECK int heap_range_read(struct heap_access *acc, const struct heap_wanted *want);

/* A large value on its way in. */
struct heap_large {
	struct heap_manifest *manifest; /* with its pieces */
	struct space_slot *slots;
	uint64_t manifest_bytes, bytes, share;
	uint32_t n;
	uint32_t taken; /* slots that it has */
};

/* Takes slots and writes the shares. Errors: -ERANGE, -ENOMEM, those of space_take and of the transport;
   then *large holds nothing. */
RLV_MUST_CHECK int heap_large_begin(struct heap_access *acc, const struct heap_put *put,
				    struct heap_large *large);
/* Writes the headers of the chunks, for a manifest that the bucket is about to name. */
RLV_MUST_CHECK int heap_large_name(struct heap_access *acc, const struct heap_large *large,
				   uint32_t bucket, uint64_t word);
/* Keeps the chunks for that head word, or, if word is 0, gives them back; frees. */
void heap_large_end(struct heap_access *acc, struct heap_large *large, uint32_t bucket,
		    uint64_t word);

/* Reads the value whose manifest *out has, and pins to do so; of a range, or NULL, all of it. As heap_get,
   heap_get_range. */
RLV_MUST_CHECK int heap_large_get(struct heap_access *acc, const struct chain_key *key,
				  const struct heap_range *range, const struct heap_room *room,
				  struct heap_value *out);

#endif
