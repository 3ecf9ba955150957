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
