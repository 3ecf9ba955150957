/*
 * Limiter: Reverb's samples-per-insert limiter for one table and view (rule 8), in words that
 * every client changes one-sided.
 *
 *   insert of n   CAS ins_admitted += n   if (ins_admitted + n) SPI - smp_committed <= max_diff
 *   sample of n   CAS smp_admitted += n   if ins_committed SPI - smp_admitted - n   >= min_diff
 *                                         and ins_committed >= min_size
 *   commit        FAA ins_committed / smp_committed after publish / delivery
 *   give back     FAA -n on admitted: a call that ends early
 *
 * The counts of the other side only grow, so check-then-CAS cannot overshoot. An unbounded side
 * skips admission and only commits.
 *
 * The page of a handle keeps the same counts of its bounded sides, so that a fence can give
 * admitted - committed back. The handle writes its slot before it reserves (slot, then CAS) and
 * after it gives back (FAA, then slot): a kill in between returns one reservation that was not
 * made, which is slack. The other order would lose a reservation, and a queue would wait for
 * ever.
 */
#ifndef RLV_DS_LIMITER_LIMITER_H
#define RLV_DS_LIMITER_LIMITER_H

#include "ds/replay/shard.h"

/* Snapshot of the words, for messages and info. */
struct limiter_words {
	uint64_t ins_admitted, ins_committed, smp_admitted, smp_committed;
};

/* Returns a handle's counts in the format that its page has. */
static inline struct slot_limits limiter_slot(const struct limiter_words *mine)
{
	return (struct slot_limits){
		.ins_admitted.raw = mine->ins_admitted,
		.ins_committed.raw = mine->ins_committed,
		.smp_admitted.raw = mine->smp_admitted,
		.smp_committed.raw = mine->smp_committed,
	};
}

/* Converts a bound or ratio of struct limit_desc, in units of 1/65536, to a number. */
static inline double limit_unscale(int64_t fixed)
{
	return (double)fixed / (double)(1 << LIMIT_SPI_BITS);
}

struct limiter {
	struct region *region; /* of the control shard */
	uint64_t words_off;    /* struct view_limits */
	struct region *page;   /* NULL = a reader, which admits nothing */
	uint64_t slot_off;     /* struct slot_limits of this handle and view */
	struct limit_desc bounds;
	bool bounded_insert;       /* inserts can be refused */
	bool bounded_sample;       /* samples can be refused beyond min_size */
	bool open_for_samples;     /* min_size was reached; it stays reached */
	struct limiter_words mine; /* as in the slot, which only this handle writes */
	uint64_t ticket;           /* of the last posted chain */
	struct slot_limits stage;  /* source buffer of its slot write */
	struct transport_wr wrs[3];
};

/*
 * Initialises the limiter of one view; its words are in the control shard. owner: the owner id
 * whose page gets its counts, all 0 now; 0 = a reader, which admits nothing. Thread: owner, for
 * all.
 */
void limiter_init(struct limiter *lim, const struct shard *control, uint32_t view, uint32_t owner);

/*
 * Admits n inserts, or n samples, if the bounds allow it now. Errors: -EAGAIN (not now), -EINVAL
 * (never: n exceeds the span of the bounds; the message has the numbers), -EIO (the answer was
 * lost). After any other error than the first two n may be reserved: it stays in the handle's slot
 * until a fence.
 * Cost: 0 RT if unbounded (samples: 1 until min_size is reached), else 2 (read, CAS).
 */
RLV_MUST_CHECK int limiter_try_insert(struct limiter *lim, uint64_t n);
RLV_MUST_CHECK int limiter_try_sample(struct limiter *lim, uint64_t n);

/*
 * Commits `done` of n admitted inserts, or samples, and gives the rest back. Errors: those of the
 * previous chain, -EIO (an answer was lost). Cost: posted, not waited for.
 */
RLV_MUST_CHECK int limiter_commit_insert(struct limiter *lim, uint64_t n, uint64_t done);
RLV_MUST_CHECK int limiter_commit_sample(struct limiter *lim, uint64_t n, uint64_t done);

/* Waits for the last posted chain, if there is one: its requests are in lim->wrs, which may be reused after it. Errors:
   its own, -EIO. Cost: 1 RT at most. */
RLV_MUST_CHECK int limiter_wait(struct limiter *lim);

/*
 * Returns how many more inserts must be committed before a sample of n fits; limiter_lacks_samples:
 * how many samples before an insert of n. now: the words as read. 0 = it fits now.
 */
uint64_t limiter_lacks_inserts(const struct limiter *lim, const struct limiter_words *now,
			       uint64_t n);
uint64_t limiter_lacks_samples(const struct limiter *lim, const struct limiter_words *now,
			       uint64_t n);

/* Reads the four limiter words of the view, in place where possible. Cost: 1 phase. */
RLV_MUST_CHECK int limiter_read(struct limiter *lim, struct limiter_words *out);
/* Reads the four words of the struct view_limits at off of the region, by the transport. */
RLV_MUST_CHECK int limiter_words_read(struct region *region, uint64_t off,
				      struct limiter_words *out);
/* Adds value to the word at off of the region; value 0: does nothing. -EIO: the answer was lost. */
RLV_MUST_CHECK int limiter_words_add(struct region *region, uint64_t off, uint64_t value);

/*
 * Builds the limiter bounds from the user's doubles. All zero but min_size = no bounds; an infinite
 * bound = none; a min_size of 0 means 1. -EINVAL: NaN, min_diff > max_diff, a finite bound beyond
 * 2^46, a samples_per_insert that is negative, above 2^32 or too small for 1/65536ths, bounds
 * without samples_per_insert.
 */
RLV_MUST_CHECK int limit_desc_init(struct limit_desc *bounds, uint64_t min_size, double spi,
				   double min_diff, double max_diff);

/*
 * Checks the bounds at create. -EINVAL, with the numbers: built-in deadlocks (a min_size beyond the
 * capacity or unreachable under max_diff; bounds so narrow that neither one insert nor one sample
 * may fit), and invalid values (min_size 0, min_diff > max_diff, a ratio that is 0 with bounds, or
 * above 2^32).
 */
RLV_MUST_CHECK int limit_desc_check(const struct limit_desc *bounds, uint64_t capacity);

#endif
