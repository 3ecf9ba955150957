/*
 * Changes: the entry of a generation that is a delta (wire/weights_layout.h): for each tensor that changed
 * its number and its delta (ds/weights/delta.h). Sums of tensors begin with 0 at each anchor, whose bytes have a
 * checksum; so they tell whether all changes since then were made to the right values.
 *
 * Tensors that are tied have one place in the payload. A publisher has data[] of the first of them, and NULL of others;
 * so changes and sums are those of the first.
 *
 * Thread: owner of the copy, for all.
 */
#ifndef RLV_DS_WEIGHTS_CHANGES_H
#define RLV_DS_WEIGHTS_CHANGES_H

#include "ds/weights/delta.h"
#include "ds/weights/tree.h"

/* A payload, with the head that describes it, which was checked. */
struct weights_copy {
	const struct weights_entry *head;
	uint8_t *payload;
	uint64_t *sums; /* of each tensor */
	uint64_t *bases; /* of a full check: sums of all elements of each tensor when its sum was 0; else NULL */
};

/* About how many bytes the entry has. Cost: reads a sixteenth of a large payload. */
uint64_t weights_changes_guess(const struct weights_copy *copy, const void *const *data);

/* Room that an entry of up to `bytes` bytes may need to be made. */
uint64_t weights_changes_room(const struct weights_copy *copy, uint64_t bytes);

/*
 * Makes the entry of generation seq: what differs between the copy and the tensors at data[]. The copy is
 * then equal to them. -ENOSPC: `room` bytes at out, which is aligned to 8, do not suffice; then the sums are 0.
 */
RLV_MUST_CHECK int weights_changes_make(struct weights_copy *copy, const void *const *data,
					struct weights_entry *out, uint64_t room);

/* Copies all tensors; the sums are 0. */
void weights_copy_set(struct weights_copy *copy, const void *const *data);

/* The entry of a generation, of any n bytes. */
struct weights_delta {
	const struct weights_gen *gen;
	const void *bytes; /* aligned to 8 */
	uint64_t n;
};

/*
 * Applies n entries, of generations that follow each other, to a copy of the one before them, in one pass; n is 1 to
 * DELTA_CHAIN. All but the last have no anchor. -EBADMSG: one is damaged, or they do not lead to the last
 * generation's sum; what the copy holds is not known.
 */
RLV_MUST_CHECK int weights_changes_apply(struct weights_copy *copy,
					 const struct weights_delta *deltas, uint32_t n);

/* Sets the bases of a copy whose sums are 0. Cost: reads the payload. */
void weights_copy_base(const struct weights_copy *copy);

/* Adds up all elements of a copy that is generation gen. -EBADMSG: a tensor, which the message names, is not what its base and its sum
   say. Cost: reads the payload. */
RLV_MUST_CHECK int weights_copy_check(const struct weights_copy *copy,
				      const struct weights_gen *gen);

/* Of all tensors. */
uint64_t weights_copy_sum(const struct weights_copy *copy);

#endif
