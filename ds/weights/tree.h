/*
 * Tree: the tensors of an anchor, as its head has them (wire/weights_layout.h). Bytes to be checked are
 * untrusted.
 *
 * Thread: any, for all.
 */
#ifndef RLV_DS_WEIGHTS_TREE_H
#define RLV_DS_WEIGHTS_TREE_H

#include "wire/weights_layout.h"

#include "base/error.h"

#include <stdbool.h>

/* The elements' bytes of a tensor of that dtype and shape; UINT64_MAX: there is no such tensor. */
uint64_t weights_tensor_bytes(const struct weights_tensor *tensor);

/* -EBADMSG: the n bytes are no anchor of that sequence: all offsets in it are good to follow, and
   names end where they say. */
RLV_MUST_CHECK int weights_anchor_check(const void *bytes, uint64_t n, uint64_t seq);

/* Hash of names, dtypes, shapes and places, of an anchor's head. */
uint64_t weights_tree_hash(const struct weights_entry *entry);

/* True if two heads, of which the first was checked and the other has as many bytes, have the same names, dtypes and shapes, in that order.
   Places may differ: what is tied in one may have memory of its own in the other. */
bool weights_trees_alike(const struct weights_entry *a, const struct weights_entry *b);

static inline const struct weights_tensor *weights_tensors(const struct weights_entry *entry)
{
	return (const void *)(entry + 1);
}

static inline const char *weights_name(const struct weights_entry *entry,
				       const struct weights_tensor *tensor)
{
	return (const char *)(entry + 1) + tensor->name_off;
}

static inline uint64_t weights_payload_off(const struct weights_entry *entry)
{
	return sizeof(*entry) + entry->head_bytes;
}

#endif
