/*
 * Copies: one part of a heap on several memory nodes (docs/decisions/0020-copies.md). They are mirrors,
 * in a line:
 *
 *   at[0] primary | at[1], ..  backups | at[n], .. being filled: nobody relies on them
 *   readers         changed before those in front of them
 *
 * One client owns the part and alone calls what is here; several: ds/heap/writers/writers.h. It moves a head in the last copy first, in the
 * primary last; so no head is ahead of the same head behind it, and a copy that becomes the primary
 * because those before it are lost has all that a reader ever saw.
 *
 * Thread: owner, for all.
 */
#ifndef RLV_DS_HEAP_COPIES_H
#define RLV_DS_HEAP_COPIES_H

#include "ds/heap/heap.h"

#define HEAP_LINE_MAX 8u

/* Chunks of a value that are filled already. */
struct heap_fill_at {
	uint64_t word; /* the head word that names them */
	uint32_t bucket, chunk;
};

struct heap_copies {
	struct heap *at[HEAP_LINE_MAX];
	uint32_t n;      /* whole */
	uint32_t n_all;  /* with those being filled */
	uint32_t filled; /* buckets below are the same in those, too */
	uint64_t line;   /* with several writers, a bit for each of them (heap_line.lost); else 0 */
	struct heap_fill_at fill_at;
};

/* The copy's bit in heap_line.lost. */
static inline uint64_t heap_copy_bit(const struct heap *copy)
{
	return UINT64_C(1) << (copy->part.number / copy->desc.n_parts & 63);
}

/* *whole_out: the copy has all that those before it have. Cost: 1 RT; none once it was true. */
RLV_MUST_CHECK int heap_is_whole(struct heap *heap, bool *whole_out);

/* -------- the owner -------- */

struct copies_owner {
	uint32_t owner; /* 1 + client slot */
	uint64_t lease; /* of the slot */
};

/*
 * Makes the client the owner in all copies. *settle_out: the word was not 0, so heap_copies_settle has
 * to follow; *newest_out: highest number of a copy that may have to be in the line. -EBUSY: a live
 * client owns the part, and the message names it; -EAGAIN: the server fills a copy and will leave the part to
 * us, or a copy has become whole. Cost: 2 RT for each copy, 3 to take over.
 */
RLV_MUST_CHECK int heap_copies_claim(const struct heap_copies *copies,
				     const struct copies_owner *self, bool *settle_out,
				     uint64_t *newest_out);

/*
 * After a former owner, or a put of ours in doubt: our extents become orphans, and heads the same in all
 * whole copies: what the one that is most ahead has, all have then. Cost: reads all heads of all copies.
 */
RLV_MUST_CHECK int heap_copies_settle(const struct heap_copies *copies, uint32_t owner);

/* Gives the part back: our extents become orphans, the owner's word 0, in the primary last. */
RLV_MUST_CHECK int heap_copies_release(const struct heap_copies *copies,
				       const struct copies_owner *self);

/* -------- puts -------- */

struct copies_put {
	const void *entry;
	uint32_t bytes, bucket;
	uint64_t from, to; /* head words; the latter's place is the entry's */
};

/* Writes the entry, if it has bytes, then swaps the head, which was *old_out. An error: it is not known
   whether. Cost: 1 RT. */
RLV_MUST_CHECK int heap_put_entry(struct heap *heap, const struct copies_put *put,
				  uint64_t *old_out);

/* Writes entry and head in each copy, the primary last. After an error it is not known how far it
   came: heap_copies_settle. Cost: 1 RT for each copy. */
RLV_MUST_CHECK int heap_copies_put(const struct heap_copies *copies, const struct copies_put *put);

/* Sets an extent word in all copies but the primary, which has it. Cost: 2 RT for each. */
RLV_MUST_CHECK int heap_copies_set(const struct heap_copies *copies, uint64_t off, uint64_t word);

/* -------- repair -------- */

/*
 * Fills the copies behind the whole ones from the primary, by about that many bytes, and counts them as
 * whole when they are. copies->filled is where it goes on. A value in chunks takes several calls if it is
 * longer than that. Cost: 3 RT for each entry and copy, and for each chunk.
 */
RLV_MUST_CHECK int heap_copies_fill(struct heap_copies *copies, uint64_t bytes);

/*
 * A piece of the same by the server, which owns the part until the copies are whole, or a client wants it:
 * -EBUSY, as of a part that a client owns. `self` is a client slot of the server. After an error it begins
 * again. *done_out: they are whole.
 */
RLV_MUST_CHECK int heap_copies_mend(struct heap_copies *copies, const struct copies_owner *self,
				    uint64_t bytes, bool *done_out);

/* Number of heads and entries that differ between whole copies; exact while nobody puts. */
RLV_MUST_CHECK int heap_copies_compare(const struct heap_copies *copies, uint64_t *differ_out);

#endif
