#include "ds/limiter/limiter.h"

#include "transport/barrier.h"

#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* One of the two sides: the offsets of its words, and its counts in the slot. */
struct side {
	bool is_samples;
	bool bounded;
	uint64_t off;      /* of the view's words: admitted, committed */
	uint64_t slot_off; /* of the slot's */
	uint64_t *admitted, *committed;
};

static struct side side_of(struct limiter *lim, bool samples)
{
	return (struct side){
		.is_samples = samples,
		.bounded = samples ? lim->bounded_sample : lim->bounded_insert,
		.off = lim->words_off + (samples ? VIEW_LIMITS_SIDE : 0),
		.slot_off = lim->slot_off + (samples ? SLOT_LIMITS_SIDE : 0),
		.admitted = samples ? &lim->mine.smp_admitted : &lim->mine.ins_admitted,
		.committed = samples ? &lim->mine.smp_committed : &lim->mine.ins_committed,
	};
}

void limiter_init(struct limiter *lim, const struct shard *control, uint32_t view, uint32_t owner)
{
	*lim = (struct limiter){
		.region = control->part.limits,
		.words_off = shard_limits_off(control, view),
		.bounds = control->desc.views[view].limit,
	};
	if (owner) {
		lim->page = control->part.pages;
		lim->slot_off = part_page_off(&control->part, owner - 1) +
				offsetof(struct client_page, limits) +
				view * sizeof(struct slot_limits);
	}
	lim->bounded_insert = lim->bounds.max_diff != INT64_MAX;
	lim->bounded_sample = lim->bounds.min_diff != INT64_MIN;
}

/* -------- chains -------- */

int limiter_wait(struct limiter *lim)
{
	struct transport *tr = lim->region->tr;
	uint64_t ticket = lim->ticket;
	int rc;

	lim->ticket = 0;
	if (!ticket || !(tr->caps & TRANSPORT_ASYNC))
		return 0;
	rc = transport_poll(tr, ticket, DEADLINE_NEVER);
	if (rc)
		lim->ticket = ticket;
	return rc;
}

static int limiter_post(struct limiter *lim, size_t n)
{
	struct transport_span span;
	int rc = transport_submit_chain(lim->region->tr, lim->wrs, n, &span);

	lim->ticket = span.last;
	if (rc || lim->region->tr->caps & TRANSPORT_ASYNC)
		return rc;
	for (size_t i = 0; i < n; i++)
		if (lim->wrs[i].verb == VERB_FAA && lim->wrs[i].atomic.status != ATOMIC_DONE)
			return error_set(-EIO, "limiter: the answer to a count was lost");
	return 0;
}

/*
 * Builds the write of the handle's counts to its slot. fence: it goes behind the FAA that gives
 * counts back; else ahead of the reserving CAS.
 */
static struct transport_wr write_slot(struct limiter *lim, bool fence)
{
	struct transport_wr wr =
		wr_write(lim->page, lim->slot_off, &lim->stage, sizeof(lim->stage));

	lim->stage = limiter_slot(&lim->mine);
	wr.fence = fence;
	return wr;
}

/* -------- words -------- */

static void take_words(const struct view_limits *at, struct limiter_words *out)
{
	out->ins_admitted = rword64_load_acquire(&at->ins_admitted.word);
	out->ins_committed = rword64_load_acquire(&at->ins_committed.word);
	out->smp_admitted = rword64_load_acquire(&at->smp_admitted.word);
	out->smp_committed = rword64_load_acquire(&at->smp_committed.word);
}

int limiter_words_read(struct region *region, uint64_t off, struct limiter_words *out)
{
	struct view_limits copy;
	int rc = transport_fetch(region, off, &copy, sizeof(copy));

	if (!rc)
		take_words(&copy, out);
	return rc;
}

int limiter_words_add(struct region *region, uint64_t off, uint64_t value)
{
	uint64_t old;

	return value ? transport_faa_word(region, off, value, &old) : 0;
}

/*
 * Reads the view's words, in place where possible. L4 pairs with L3: the committed counts, then the
 * leaves that the caller reads.
 */
int limiter_read(struct limiter *lim, struct limiter_words *out)
{
	if (!lim->region->base)
		return limiter_words_read(lim->region, lim->words_off, out);
	take_words((const void *)(lim->region->base + lim->words_off), out);
	return 0;
}

/* -------- the bounds -------- */

/*
 * Admitted counts are signed: a kill between slot write and CAS gives back a reservation that
 * was never made, which may leave the count below zero.
 */
static __int128 signed_count(uint64_t admitted)
{
	return (int64_t)admitted;
}

static __int128 limiter_scaled(__int128 samples)
{
	return samples * ((__int128)1 << LIMIT_SPI_BITS);
}

static uint64_t steps_to(__int128 distance, __int128 step)
{
	__int128 steps = distance <= 0 ? 0 : (distance + step - 1) / step;

	return steps > UINT64_MAX ? UINT64_MAX : (uint64_t)steps;
}

/*
 * Returns the inserts missing until min_size and, if samples are bounded, min_diff allow a sample
 * of n. A bound implies samples_per_insert > 0, by which it divides.
 */
uint64_t limiter_lacks_inserts(const struct limiter *lim, const struct limiter_words *now,
			       uint64_t n)
{
	__int128 inserts = (__int128)now->ins_committed;
	uint64_t to_size = steps_to((__int128)lim->bounds.min_size - inserts, 1);
	uint64_t to_diff = 0;

	if (lim->bounded_sample)
		to_diff =
			steps_to(limiter_scaled(signed_count(now->smp_admitted) + n) +
					 lim->bounds.min_diff - inserts * (__int128)lim->bounds.spi,
				 (__int128)lim->bounds.spi);
	return max_u64(to_size, to_diff);
}

uint64_t limiter_lacks_samples(const struct limiter *lim, const struct limiter_words *now,
			       uint64_t n)
{
	__int128 inserts = signed_count(now->ins_admitted) + n;

	if (!lim->bounded_insert)
		return 0;
	return steps_to(inserts * (__int128)lim->bounds.spi - limiter_scaled(now->smp_committed) -
				lim->bounds.max_diff,
			limiter_scaled(1));
}

/*
 * -EINVAL if both sides are bounded and `move`, the change of the difference by n items, is larger
 * than the distance of the bounds: it never fits. what: "insert" or "sample".
 */
static int check_span(const struct limiter *lim, uint64_t n, __int128 move, const char *what)
{
	if (!lim->bounded_insert || !lim->bounded_sample ||
	    move <= (__int128)lim->bounds.max_diff - lim->bounds.min_diff)
		return 0;
	return error_set(-EINVAL,
			 "%s of %" PRIu64 " items: the limiter's bounds %g and %g never allow so "
			 "many at once",
			 what, n, limit_unscale(lim->bounds.min_diff),
			 limit_unscale(lim->bounds.max_diff));
}

/* -------- admission -------- */

static void announce_in_place(struct limiter *lim, const struct side *side)
{
	rword64_announce((void *)(lim->page->base + side->slot_off), *side->admitted);
}

/*
 * Adds n to the handle's admitted count, writes its slot, then reads the words of the view into
 * *now. L1 pairs with L2: the slot's count, then the CAS of the view's count. A client that dies
 * between the two costs one reservation of slack.
 */
static int limiter_announce(struct limiter *lim, const struct side *side, uint64_t n,
			    struct limiter_words *now)
{
	struct view_limits copy;
	struct transport_wr wrs[2];
	int rc;

	*side->admitted += n;
	/* Where a NIC changes words, our last write of the slot may be outstanding. */
	if (transport_changes_in_place(lim->region)) {
		announce_in_place(lim, side);
		return limiter_read(lim, now);
	}
	rc = limiter_wait(lim);
	if (rc)
		return rc;
	wrs[0] = write_slot(lim, false);
	wrs[1] = wr_read(lim->region, lim->words_off, &copy, sizeof(copy));
	rc = transport_run(lim->region->tr, wrs, 2);
	if (!rc)
		take_words(&copy, now);
	return rc;
}

static int limiter_admit(struct limiter *lim, const struct side *side, uint64_t n)
{
	struct limiter_words now;
	uint64_t *mine = side->is_samples ? &now.smp_admitted : &now.ins_admitted, old;
	int rc = limiter_announce(lim, side, n, &now);

	/* A failed CAS returns the newer count; the other side only grows, so old words are safe. */
	while (!rc && (side->is_samples ? limiter_lacks_inserts(lim, &now, n)
					: limiter_lacks_samples(lim, &now, n)) == 0) {
		rc = transport_cas_word(lim->region, side->off, *mine, *mine + n, &old);
		if (!rc && old == *mine)
			return 0;
		if (!rc)
			*mine = old;
	}
	if (rc && rc != -EAGAIN)
		return rc; /* unknown: the slot holds it until the fence */
	/* Refused: removes n from the slot. */
	*side->admitted -= n;
	if (transport_changes_in_place(lim->region)) {
		announce_in_place(lim, side);
		return -EAGAIN;
	}
	rc = limiter_wait(lim);
	if (rc)
		return rc;
	lim->wrs[0] = write_slot(lim, true);
	rc = limiter_post(lim, 1);
	return rc ? rc : -EAGAIN;
}

int limiter_try_insert(struct limiter *lim, uint64_t n)
{
	struct side side = side_of(lim, false);
	int rc;

	if (!side.bounded || !n)
		return 0;
	rc = check_span(lim, n, (__int128)n * (__int128)lim->bounds.spi, "insert");
	return rc ? rc : limiter_admit(lim, &side, n);
}

int limiter_try_sample(struct limiter *lim, uint64_t n)
{
	struct side side = side_of(lim, true);
	struct limiter_words now;
	int rc;

	if (side.bounded && n) {
		rc = check_span(lim, n, limiter_scaled(n), "sample");
		return rc ? rc : limiter_admit(lim, &side, n);
	}
	if (side.bounded || lim->open_for_samples)
		return 0;
	rc = limiter_read(lim, &now);
	if (rc)
		return rc;
	lim->open_for_samples = now.ins_committed >= lim->bounds.min_size;
	return lim->open_for_samples ? 0 : -EAGAIN;
}

/* -------- commit -------- */

/*
 * Adds `done` to the committed count and takes n - done off the admitted one. L3 pairs with L4:
 * items are published or consumed, then the count that admits others to them.
 */
static int limiter_commit(struct limiter *lim, const struct side *side, uint64_t n, uint64_t done)
{
	size_t count = 0;
	int rc = limiter_wait(lim);

	if (rc)
		return rc;
	if (done)
		lim->wrs[count++] =
			wr_add(lim->region, side->off + sizeof(struct rword64_line), done);
	if (side->bounded && n > done)
		lim->wrs[count++] = wr_add(lim->region, side->off, done - n);
	if (side->bounded && n) {
		*side->committed += done;
		*side->admitted -= n - done;
		lim->wrs[count++] = write_slot(lim, true);
	}
	return count ? limiter_post(lim, count) : 0;
}

int limiter_commit_insert(struct limiter *lim, uint64_t n, uint64_t done)
{
	struct side side = side_of(lim, false);

	return limiter_commit(lim, &side, n, done);
}

int limiter_commit_sample(struct limiter *lim, uint64_t n, uint64_t done)
{
	struct side side = side_of(lim, true);

	return limiter_commit(lim, &side, n, done);
}
