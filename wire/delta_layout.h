/*
 * Delta: the elements of an array whose bits differ from those of the version before.
 *
 *   delta_head | a count (u32) for each block of 65,536 elements, padded to 8 bytes
 *   | for each block: places in the block (u16), padded to 8 bytes; new values, padded to 8 bytes
 *
 * It starts at a multiple of 8 bytes. It is written once and never changed. The sum of an array is
 * over its bytes as words of 32 bits, the last one filled up with zeros, modulo 2^64:
 *
 *   sum over runs r of 4096 bytes:  delta_run_key(key, r) * (sum over words w of the run:  word * DELTA_KEY(w))
 *
 * so that the sum of a changed array follows from what it was and from the changed elements.
 */
#ifndef RLV_WIRE_DELTA_LAYOUT_H
#define RLV_WIRE_DELTA_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "wire/le.h"

#define DELTA_MAGIC 0x31544c44u /* "DLT1" */
#define DELTA_BLOCK 65536u      /* elements */
#define DELTA_RUN 4096u         /* bytes with one key */
#define DELTA_RUN_WORDS (DELTA_RUN / 4)

/* Keys of the sum: macros for a table of constants. */
#define DELTA_MIX(x) (((x) ^ (x) >> 32) * UINT64_C(0x9e3779b97f4a7c15))
#define DELTA_KEY(word) DELTA_MIX(DELTA_MIX((word) + UINT64_C(1)))

/* Of a run of an array with that key. */
static inline uint64_t delta_run_key(uint64_t key, uint64_t run)
{
	uint64_t mixed = DELTA_KEY(key) + run;

	return DELTA_KEY(mixed);
}

/*
 *   offset size  meaning
 *        0    4  magic
 *        4    4  bytes of an element: 1, 2, 4 or 8
 *        8    8  elements of the array
 *       16    8  elements that changed
 *       24    8  bytes of the delta, with this head
 *       32    8  sum of the array before
 *       40    8  sum of the array after
 */
struct delta_head {
	uint32_t magic;
	uint32_t element_bytes;
	uint64_t elements;
	uint64_t changed;
	uint64_t bytes;
	uint64_t before;
	uint64_t after;
};

WIRE_SIZE(delta_head, 48);
WIRE_AT(delta_head, element_bytes, 4);
WIRE_AT(delta_head, elements, 8);
WIRE_AT(delta_head, changed, 16);
WIRE_AT(delta_head, bytes, 24);
WIRE_AT(delta_head, before, 32);
WIRE_AT(delta_head, after, 40);

#endif
