#include "client/table/admission.h"

#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static void admission_bind(struct admission *adm, const struct handle *h)
{
	adm->control = h->set.control;
	adm->owner = h->slot.owner;
	adm->opened = h->set.statuses[adm->control].opened;
	limiter_init(&adm->lim, handle_shard(h, adm->control), adm->view, adm->owner);
}

void admission_init(struct admission *adm, const struct handle *h, uint32_t view)
{
	const struct limit_desc *bounds = &h->desc->views[view].limit;

	*adm = (struct admission){ .view = view, .control = h->set.control };
	adm->here = part_set_has_control(&h->set);
	if (adm->here) {
		admission_bind(adm, h);
		return;
	}
	adm->lim.bounded_insert = bounds->max_diff != INT64_MAX;
	adm->lim.bounded_sample = bounds->min_diff != INT64_MIN;
	/* A draw detects by itself whether an item exists. */
	adm->lim.open_for_samples = bounds->min_size <= 1;
}

static int admission_store_slot(const struct admission *adm, const struct limiter_words *mine)
{
	const struct slot_limits words = limiter_slot(mine);

	return transport_store(adm->lim.page, adm->lim.slot_off, &words, sizeof(words));
}

/*
 * Makes the reservations in the slot equal to what the call in progress has admitted. Missing ones
 * were settled with the old control shard: they are reserved again, without asking the limiter.
 * Excess ones are of a call that failed: they are given back.
 */
static int admission_carry(struct admission *adm)
{
	struct limiter *lim = &adm->lim;
	struct limiter_words mine = lim->mine;
	uint64_t inserts = 0, samples = 0;
	bool gives;
	int ret = 0;

	if (lim->bounded_insert)
		inserts = mine.ins_committed + adm->inserts - mine.ins_admitted;
	if (lim->bounded_sample)
		samples = mine.smp_committed + adm->samples - mine.smp_admitted;
	mine.ins_admitted += inserts;
	mine.smp_admitted += samples;
	gives = (int64_t)inserts < 0 || (int64_t)samples < 0;
	if (!gives) /* the slot first when reserving, last when giving back (ds/limiter/limiter.h) */
		ret = admission_store_slot(adm, &mine);
	if (ret == 0)
		ret = limiter_words_add(lim->region,
					lim->words_off + offsetof(struct view_limits, ins_admitted),
					inserts);
	if (ret == 0)
		ret = limiter_words_add(lim->region,
					lim->words_off + offsetof(struct view_limits, smp_admitted),
					samples);
	if (ret == 0 && gives)
		ret = admission_store_slot(adm, &mine);
	if (ret == 0)
		lim->mine = mine;
	return ret;
}

int admission_follow(struct admission *adm, const struct handle *h)
{
	const struct part_set *set = &h->set;
	const struct limiter old = adm->lim;
	bool same = adm->control == set->control && adm->owner == h->slot.owner;

	adm->here = part_set_has_control(set);
	if (!adm->here || (same && adm->opened == set->statuses[adm->control].opened))
		return 0;
	/* The chain posted last lies in lim. A connection that was closed has done with it. */
	if (old.ticket && set->parts[adm->control] &&
	    set->statuses[adm->control].opened == adm->opened &&
	    transport_poll(old.region->tr, old.ticket, DEADLINE_NEVER))
		log_debug("read the limiter's counts of view %u: %s", adm->view, error_last());
	admission_bind(adm, h);
	adm->lim.open_for_samples = old.open_for_samples;
	if (same) /* our counts stand in the slot: they go on */
		adm->lim.mine = old.mine;
	return adm->owner ? admission_carry(adm) : 0;
}

static int admission_away(const struct admission *adm)
{
	return error_set(-EHOSTDOWN,
			 "shard %u, which keeps the counts of view %u, cannot be reached",
			 adm->control, adm->view);
}

int admission_try_insert(struct admission *adm, uint64_t n)
{
	int ret = 0;

	if (adm->here)
		ret = limiter_try_insert(&adm->lim, n);
	else if (adm->lim.bounded_insert)
		ret = admission_away(adm);
	adm->inserts = ret ? 0 : n;
	return ret;
}

int admission_try_sample(struct admission *adm, uint64_t n)
{
	int ret = 0;

	if (adm->here)
		ret = limiter_try_sample(&adm->lim, n);
	else if (adm->lim.bounded_sample || !adm->lim.open_for_samples)
		ret = admission_away(adm);
	adm->samples = ret ? 0 : n;
	return ret;
}

/* Returns ret, but 0 if the connection of the control shard has ended. After -EIO it polls the
   last posted chain first: the message is then that chain's error. */
static int admission_unless_lost(const struct admission *adm, int ret)
{
	struct transport *tr = adm->lim.region->tr;

	if (ret == -EIO && transport_poll(tr, adm->lim.ticket, clock_now_ns(tr->clock)))
		log_debug("read the limiter's counts of view %u: %s", adm->view, error_last());
	return ret && tr->broken ? 0 : ret;
}

int admission_commit_insert(struct admission *adm, uint64_t n, uint64_t done)
{
	adm->inserts = 0;
	if (!adm->here)
		return 0;
	return admission_unless_lost(adm, limiter_commit_insert(&adm->lim, n, done));
}

int admission_wait(struct admission *adm)
{
	return adm->here ? admission_unless_lost(adm, limiter_wait(&adm->lim)) : 0;
}

int admission_flush(struct admission *adm)
{
	uint64_t n = adm->held;

	if (!adm->here || n == 0)
		return 0;
	adm->held = 0;
	adm->held_calls = 0;
	return admission_unless_lost(adm, limiter_commit_sample(&adm->lim, n, n));
}

int admission_commit_sample(struct admission *adm, uint64_t n, uint64_t done)
{
	enum { HELD_CALLS = 16 };

	adm->samples = 0;
	if (!adm->here || !adm->owner) /* readers count nothing */
		return 0;
	if (adm->lim.bounded_insert || adm->lim.bounded_sample ||
	    transport_changes_in_place(adm->lim.region))
		return admission_unless_lost(adm, limiter_commit_sample(&adm->lim, n, done));
	adm->held += done;
	return ++adm->held_calls < HELD_CALLS ? 0 : admission_flush(adm);
}

int admission_read(struct admission *adm, struct limiter_words *out)
{
	return adm->here ? limiter_read(&adm->lim, out) : admission_away(adm);
}

/* -------- in words -------- */

#define BOUNDS_BYTES 80

/* Writes the ratio and that bound for a message into text; "" where there is no such bound. */
static void bound_explain(const struct limiter *lim, const char *name, int64_t bound, char *text)
{
	text[0] = 0;
	if (bound != INT64_MIN && bound != INT64_MAX)
		snprintf(text, BOUNDS_BYTES, "; samples_per_insert %g, %s %g",
			 limit_unscale((int64_t)lim->bounds.spi), name, limit_unscale(bound));
}

void admission_explain_insert(struct admission *adm, const struct table_desc *desc, uint64_t n,
			      char *text)
{
	struct limiter_words now;
	char bounds[BOUNDS_BYTES];
	uint64_t lacks;

	if (admission_read(adm, &now)) {
		snprintf(text, WATCH_TEXT_BYTES, "append to table %s: %s", desc->name,
			 error_last());
		return;
	}
	lacks = limiter_lacks_samples(&adm->lim, &now, n);
	bound_explain(&adm->lim, "max_diff", adm->lim.bounds.max_diff, bounds);
	snprintf(text, WATCH_TEXT_BYTES,
		 "append: the limiter of view %u of table %s waits for %" PRIu64
		 " more sample%s (%" PRIu64 " items inserted, %" PRIu64 " sampled%s)",
		 adm->view, desc->name, lacks, lacks == 1 ? "" : "s", now.ins_committed,
		 now.smp_committed, bounds);
}

void admission_explain_sample(struct admission *adm, const struct table_desc *desc, uint64_t n,
			      char *text)
{
	struct limiter_words now;
	char lacks_text[40] = "inserts: no item is left to draw";
	char bounds[BOUNDS_BYTES];
	uint64_t lacks;

	if (admission_read(adm, &now)) {
		snprintf(text, WATCH_TEXT_BYTES, "sample of %" PRIu64 " from table %s: %s", n,
			 desc->name, error_last());
		return;
	}
	lacks = limiter_lacks_inserts(&adm->lim, &now, n);
	if (lacks)
		snprintf(lacks_text, sizeof(lacks_text), "%" PRIu64 " more insert%s", lacks,
			 lacks == 1 ? "" : "s");
	bound_explain(&adm->lim, "min_diff", adm->lim.bounds.min_diff, bounds);
	snprintf(text, WATCH_TEXT_BYTES,
		 "sample of %" PRIu64 " from view %u of table %s: waits for %s (%" PRIu64
		 " items inserted, min_size %" PRIu64 ", %" PRIu64 " sampled%s)",
		 n, adm->view, desc->name, lacks_text, now.ins_committed, adm->lim.bounds.min_size,
		 now.smp_committed, bounds);
}
