/*
 * Limiter: Reverb's samples-per-insert law for one table and view (rule 8), in words that every
 * client changes one-sided.
 *
 *   insert of n   CAS ins_admitted += n   if (ins_admitted + n) SPI - smp_committed <= max_diff
 *   sample of n   CAS smp_admitted += n   if ins_committed SPI - smp_admitted - n   >= min_diff
 *                                         and ins_committed >= min_size
 *   commit        FAA ins_committed / smp_committed after publish / delivery
 *   give back     FAA -n on admitted: a call that ends early
 *
 * The other side only grows, so check-then-CAS cannot overshoot. Each client's slot keeps the same four
 * counts, so that whoever fenced it gives admitted - committed back. A view without bounds skips
 * admission: committed is counted only.
 */
#ifndef RLV_DS_LIMITER_H
#define RLV_DS_LIMITER_H

#include "ds/shard.h"

struct limiter {
	struct region *region; /* tree region of the control shard */
	uint64_t words_off;    /* struct view_words */
	uint64_t slot_off;     /* struct slot_limits of this handle and view */
	struct limit_desc law;
	bool bounded_insert;     /* inserts can be refused */
	bool bounded_sample;     /* samples can be refused beyond min_size */
	struct slot_limits mine; /* as in the slot: only this handle writes it */
};

/* control: shard 0. Thread: owner, for all. */
void limiter_init(struct limiter *lim, const struct shard *control, uint32_t view, uint32_t owner);

/*
 * Admit n, or say why not: -EAGAIN (not now), -EINVAL (never: n larger than the law's span; the
 * message has the numbers). Cost: 0 RT if unbounded, else 2 (read, CAS).
 */
RLV_MUST_CHECK int limiter_try_insert(struct limiter *lim, uint64_t n);
RLV_MUST_CHECK int limiter_try_sample(struct limiter *lim, uint64_t n);

/* done of the admitted n happened; the rest is given back. Cost: posted, not waited for. */
RLV_MUST_CHECK int limiter_commit_insert(struct limiter *lim, uint64_t n, uint64_t done);
RLV_MUST_CHECK int limiter_commit_sample(struct limiter *lim, uint64_t n, uint64_t done);

/* Words as they are, for messages and info. */
struct limiter_words {
	uint64_t ins_admitted, ins_committed, smp_admitted, smp_committed;
};
RLV_MUST_CHECK int limiter_read(struct limiter *lim, struct limiter_words *out);

/*
 * Law from the user's doubles: samples_per_insert, bounds. -EINVAL: NaN, negative, min_diff > max_diff,
 * not representable, bounds without samples_per_insert.
 */
RLV_MUST_CHECK int limit_desc_init(struct limit_desc *law, uint64_t min_size, double spi,
				   double min_diff, double max_diff);

/* Built-in deadlocks, refused at create: min_size that items ever committed cannot reach before
   max_diff stops the inserts, and the like. -EINVAL with the numbers. */
RLV_MUST_CHECK int limit_desc_check(const struct limit_desc *law, uint64_t capacity);

#endif
