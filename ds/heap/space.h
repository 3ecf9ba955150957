/*
 * Space: where a client's entries lie. It owns extents, each cut into slots of one size class, and
 * writes into no other extent.
 *
 *   FREE --- space_take ---> taken --- space_keep ---> LIVE --- sweep: no head names it ---> LIMBO
 *     ^                        |  space_give: never put                                       |
 *     +------------------------+------------- no client can read it any more -----------------+
 *
 * Heads are the truth: an entry is in use as long as the head of its bucket names it, and only its
 * extent's owner ever makes a head name it. So nothing is handed over when a version is replaced; the
 * count `retired` of an extent only tells its owner where a sweep is worth its reads, and a count that
 * a killed client lost delays a sweep, no more.
 *
 * A slot that a sweep at epoch e found out of use is reused when the epoch is above e and the pins of
 * all other clients are: a client that pins later reads heads that do not name it. Pins are lines of
 * the tree region, 0 = idle; an old pin is safe, it only delays. Nobody waits for a guessed time. A
 * stopped client inside a call holds back what was replaced since, until it goes on or is fenced.
 *
 * A client may hold an entry beyond a call (heap_hold). Its word in the client's line is first an epoch, as a
 * pin, and then, by one store, the head word that named the entry. From then on the entry alone, with its
 * chunks, stays in limbo.
 *
 * A client that returns its slot or dies leaves orphans (heap_settle). Who takes one over reads the
 * headers of its slots for their buckets, and sweeps it.
 *
 * With several writers of a part with copies, an entry is out of use when no copy's head names it, from the last copy
 * to the first, and is reused when the epochs and pins of all copies permit.
 *
 * Thread: owner. Cost: none, while slots are free; else a refill: reads of the counts, of the heads of
 * an extent's slots and of pins, and a CAS of the epoch or an extent word, 2 to 5 phases for at least
 * an eighth of an extent.
 */
#ifndef RLV_DS_HEAP_SPACE_H
#define RLV_DS_HEAP_SPACE_H

#include "ds/heap/heap.h"

#define SPACE_CLASSES 96u

/* An epoch of each copy into which several writers put; else of the part alone. */
struct space_epochs {
	uint64_t at[HEAP_COPIES_MAX];
};

struct space_extent {
	uint64_t word; /* its extent word, which only we change */
	uint32_t index, cls, n_slots;
	uint32_t n_free, n_live, n_limbo;
	uint32_t n_held;         /* of limbo slots, at the last look */
	uint32_t free, limbo;    /* first of each list */
	struct space_epochs tag; /* of the sweep that filled the limbo list; 0 = not set */
	uint64_t seen;           /* count of retired entries at the last sweep */
	uint32_t *slots;         /* LIVE: the bucket; else the next slot of its list */
	uint64_t *words; /* LIVE chunks: the head word that keeps them; else 0. NULL: no chunks */
	uint8_t *is_live;
};

struct heap_copies;

struct space {
	struct heap *heap;
	const struct heap_copies *copies; /* others with the same extent words; NULL: none */
	uint32_t owner;
	uint32_t next;  /* extent to try first */
	bool prefetchw; /* slots are in place, and the CPU can fetch lines to be written */
	bool stays;     /* extents stay ours until heap_settle */
	/* A copy is lost: nothing is swept before the calls have ended that do not know, which begin at `calm` or below. */
	bool restless;
	struct space_epochs calm;
	struct space_extent **extents;
	size_t n, room;
	uint64_t *holds; /* of all clients at the last look, sorted: hold_key */
	size_t n_holds, holds_room;
	struct space_extent *current[SPACE_CLASSES]; /* last used, may be NULL */
};

/* A slot that was taken: not in any list. */
struct space_slot {
	struct space_extent *extent;
	uint32_t number;
	uint64_t off; /* in the rows region */
};

void space_init(struct space *space, struct heap *heap, uint32_t owner);
/* Gives back extents without entries; the others stay ours until heap_settle. Errors are ignored. */
void space_fini(struct space *space);

/*
 * Takes a slot for an entry of that many bytes. The last free extent is only used if `last`: deletes
 * need space, too. -ENOSPC: the heap is full; -EAGAIN: entries that were
 * replaced may still be read, call again; -ENOMEM; errors of the transport.
 */
RLV_MUST_CHECK int space_take(struct space *space, uint64_t bytes, bool last,
			      struct space_slot *slot_out);

/* True if space_take will not have to look for a slot. */
bool space_has(struct space *space, uint64_t bytes);

/* The head of the bucket names the slot, or may. */
void space_keep(struct space *space, const struct space_slot *slot, uint32_t bucket);
/* The same of a chunk, as long as the bucket has that head word. -ENOMEM: it is given back later, by who
   takes over the extent. */
RLV_MUST_CHECK int space_keep_chunk(const struct space_slot *slot, uint32_t bucket, uint64_t word);
/* No head ever named it. */
void space_give(struct space *space, const struct space_slot *slot);

/* The epoch, from its word. */
static inline uint64_t space_epoch(uint64_t word)
{
	return word + 1;
}

#endif
