/*
 * Weights: values of a heap that make generations of tensors (docs/decisions/0026-weights.md).
 *
 *   key "newest"   weights_table: the generations that are kept, the newest first
 *   key "O/I"      entry I of the publisher with owner id O: a weights_entry, then
 *                    anchor   a weights_tensor for each tensor | names | payload: all tensors
 *                    delta    weights_change and its delta (wire/delta_layout.h) for each tensor that changed
 *
 * The put of the table makes a generation visible. Entries that the table does not name do not exist.
 */
#ifndef RLV_WIRE_WEIGHTS_LAYOUT_H
#define RLV_WIRE_WEIGHTS_LAYOUT_H

#include "wire/le.h"

#include <assert.h>
#include <stddef.h>

#define WEIGHTS_TABLE_MAGIC 0x32544757u /* "WGT2" */
#define WEIGHTS_ENTRY_MAGIC 0x31454757u /* "WGE1" */
#define WEIGHTS_KEEP_MAX 16u
#define WEIGHTS_ANCHOR_MAX 64u
#define WEIGHTS_GENS_MAX (WEIGHTS_KEEP_MAX + WEIGHTS_ANCHOR_MAX)
#define WEIGHTS_MOST (UINT64_C(1) << 56) /* bytes; so that sums of a few do not wrap */
#define WEIGHTS_DIMS_MAX 8u
#define WEIGHTS_NAME_MAX 1023u /* without the NUL */
#define WEIGHTS_ALIGN 64u      /* of each tensor in the payload */

/*
 *   offset size
 *        0    8  version of the entry's key in the heap; 0 = there is no such entry
 *        8    8  bytes of the entry
 */
struct weights_place {
	uint64_t entry;
	uint64_t bytes;
};

/*
 *   offset size
 *        0    8  version, as the publisher numbers it
 *        8    8  sequence: 1, 2, 3, ..
 *       16    8  sum of the payload behind the delta, kept up since the anchor before, which has 0
 *       24    8  hash of names, dtypes and shapes
 *       32    8  bytes of the payload
 *       40   16  the anchor
 *       56   16  the delta from the sequence before; a generation may have both
 *       72    4  owner id of the publisher
 *       76    2  number of the anchor's entry
 *       78    2  number of the delta's entry
 */
struct weights_gen {
	uint64_t version;
	uint64_t seq;
	uint64_t sum;
	uint64_t tree;
	uint64_t payload;
	struct weights_place anchor;
	struct weights_place delta;
	uint32_t owner;
	uint16_t anchor_index;
	uint16_t delta_index;
};

/*
 *   offset size
 *        0    4  magic
 *        4    4  number of generations; 0 = nothing was published yet
 *        8    4  generations to keep
 *       12    4  an anchor at the latest after so many generations; 1 = no deltas
 *       16    8  limit of a payload, in bytes
 *       24   40  reserved
 *       64       generations, of sequences that fall by 1; the last one has an anchor
 */
struct weights_table {
	uint32_t magic;
	uint32_t n;
	uint32_t keep;
	uint32_t anchor_every;
	uint64_t most;
	uint64_t reserved[5];
	struct weights_gen gens[WEIGHTS_GENS_MAX];
};

#define WEIGHTS_TABLE_HEAD offsetof(struct weights_table, gens)

/*
 *   offset size
 *        0    4  magic
 *        4    4  number of tensors; in a delta of those that changed
 *        8    8  sequence of the generation
 *       16    8  bytes of tensors and names, a multiple of 64; of the changes in a delta
 *       24    8  bytes of the payload
 *       32   32  reserved
 */
struct weights_entry {
	uint32_t magic;
	uint32_t n;
	uint64_t seq;
	uint64_t head_bytes;
	uint64_t payload;
	uint64_t reserved[4];
};

/*
 *   offset size
 *        0    8  offset in the payload, a multiple of 64; tied tensors have the same, and deltas are of the first of them
 *        8    8  bytes
 *       16   64  shape
 *       80    4  offset of its name, NUL-terminated, behind the entry's header
 *       84    2  bytes of the name, without the NUL
 *       86    1  dtype: enum rlv_dtype
 *       87    1  number of dimensions
 *       88    8  reserved
 */
struct weights_tensor {
	uint64_t off;
	uint64_t bytes;
	uint64_t shape[WEIGHTS_DIMS_MAX];
	uint32_t name_off;
	uint16_t name_len;
	uint8_t dtype;
	uint8_t n_dims;
	uint64_t reserved;
};

/*
 *   offset size
 *        0    4  number of the tensor
 *        4    4  reserved
 *        8    8  bytes of the delta behind it, a multiple of 8
 */
struct weights_change {
	uint32_t tensor;
	uint32_t reserved;
	uint64_t bytes;
};

WIRE_SIZE(weights_change, 16);
WIRE_AT(weights_change, bytes, 8);
WIRE_SIZE(weights_place, 16);
WIRE_SIZE(weights_gen, 80);
WIRE_AT(weights_gen, anchor, 40);
WIRE_AT(weights_gen, delta, 56);
WIRE_AT(weights_gen, owner, 72);
WIRE_AT(weights_gen, delta_index, 78);
WIRE_AT(weights_table, gens, 64);
WIRE_SIZE(weights_entry, 64);
WIRE_AT(weights_entry, payload, 24);
WIRE_SIZE(weights_tensor, 96);
WIRE_AT(weights_tensor, name_off, 80);
WIRE_AT(weights_tensor, dtype, 86);

#endif
