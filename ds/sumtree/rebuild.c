#include "ds/sumtree/rebuild.h"

#include "ds/part/slot.h"
#include "ds/sumtree/migrate.h"

#include "transport/barrier.h"
#include "transport/transport.h"

#include "wire/ring_layout.h"

#include "base/bits.h"

#include <errno.h>
#include <stddef.h>
#include <time.h>

#define SEIZE_TRIES 1000 /* CAS retries on a word that few parties change */

#define ZERO_BYTES 32768u
#define NO_DIRTY UINT64_MAX /* this pass cannot be clean */

static const uint8_t zeros[ZERO_BYTES];

/* A pass in progress. */
struct pass {
	struct shard *shard;
	const struct rebuild_opts *opts;
	struct rebuild_report *report;
	uint64_t word;  /* the epoch word as we own it */
	uint64_t dirty; /* when the waiting began */
	uint64_t lost;  /* answers lost in this pass */
};

static int load_dirty(struct shard *shard, uint64_t *dirty_out)
{
	return transport_load(shard->tree,
			      part_word_off(&shard->part, offsetof(struct part_words, dirty)),
			      dirty_out);
}

/*
 * Raises the dirty word, again while the answer is lost: it may be raised then or not, and raising
 * it twice does no harm.
 */
static int raise_dirty(struct shard *shard)
{
	int rc = -EIO;

	for (int i = 0; rc == -EIO && i < SEIZE_TRIES; i++)
		rc = part_mark_dirty(&shard->part);
	return rc;
}

/*
 * E5 pairs with E6: an array is zeroed, or whole, then the epoch word names it. Swaps that word;
 * -EAGAIN = it held another value. The target names us and a state that nobody else writes, so
 * after a lost answer the word itself shows whether the swap was done.
 */
static int swap_epoch(struct shard *shard, uint64_t from, uint64_t to)
{
	uint64_t off = part_word_off(&shard->part, offsetof(struct part_words, epoch)), old;
	int rc = transport_cas_word(shard->tree, off, from, to, &old);

	for (int i = 0; rc == -EIO && i < SEIZE_TRIES; i++) {
		rc = transport_cas_word(shard->tree, off, from, to, &old);
		if (!rc && old == to)
			return 0;
	}
	return rc ? rc : (old == from ? 0 : -EAGAIN);
}

/* -------- becoming the rebuilder -------- */

/*
 * Takes over the unfinished pass of the epoch word. -EBUSY while the slot of its owner, if another,
 * is live; only a fence changes that. An invalid mode restarts the pass from ZERO. In DUAL dirty is
 * raised.
 */
static int take_over(struct pass *pass, uint64_t word)
{
	struct shard *shard = pass->shard;
	enum epoch_mode mode = epoch_mode_of(word) == EPOCH_DUAL ? EPOCH_DUAL : EPOCH_ZERO;
	uint32_t owner = epoch_owner(word), self = pass->opts->owner;
	uint64_t mine = epoch_make(epoch_number(word), mode, self);
	struct slot_info info = { .state = SLOT_FREE };
	int rc = 0;

	if (owner != self && owner > 0 && owner <= shard->desc.max_clients)
		rc = slot_read(&shard->part, owner - 1, &info);
	if (!rc && info.state == SLOT_LIVE)
		return error_set(-EBUSY, "rebuild is run by owner %u (pid %u)", owner,
				 info.process.pid);
	if (!rc && word != mine)
		rc = swap_epoch(shard, word, mine);
	/* The predecessor held unposted additions, now lost: only dirty records that. */
	if (!rc && mode == EPOCH_DUAL)
		rc = raise_dirty(shard);
	if (rc)
		return rc;
	pass->word = mine;
	pass->report->takeovers++;
	return 0;
}

static int rebuild_seize(struct pass *pass)
{
	struct shard *shard = pass->shard;
	uint64_t off = part_word_off(&shard->part, offsetof(struct part_words, epoch));

	for (int i = 0; i < SEIZE_TRIES; i++) {
		uint64_t word, mine;
		int rc = transport_load(shard->tree, off, &word);

		if (rc)
			return rc;
		if (epoch_mode_of(word) != EPOCH_NORMAL) {
			rc = take_over(pass, word);
		} else {
			mine = epoch_make(epoch_number(word), EPOCH_ZERO, pass->opts->owner);
			rc = swap_epoch(shard, word, mine);
			pass->word = mine;
		}
		if (rc != -EAGAIN)
			return rc;
	}
	return error_set(-EAGAIN, "rebuild: the epoch word kept changing");
}

/* -------- waiting for pins -------- */

/* *blocked_out: a live slot has a pin that blocks the pass; report->wait then describes it. */
static int look_at_slots(struct pass *pass, bool *blocked_out)
{
	struct slot_info infos[SLOT_READ_MAX];
	uint32_t all = pass->shard->desc.max_clients, epoch = epoch_number(pass->word);

	*blocked_out = false;
	for (uint32_t first = 0; first < all; first += SLOT_READ_MAX) {
		uint32_t n = all - first < SLOT_READ_MAX ? all - first : SLOT_READ_MAX;
		int rc = slot_read_many(&pass->shard->part, first, n, infos);

		if (rc)
			return rc;
		for (const struct slot_info *info = infos; info < infos + n; info++) {
			if (info->state != SLOT_LIVE || !epoch_blocks_pass(info->pin, epoch))
				continue;
			pass->report->wait = (struct rebuild_wait){ .owner = info->slot + 1,
								    .pid = info->process.pid,
								    .pin = info->pin,
								    .epoch = epoch };
			*blocked_out = true;
			return 0;
		}
	}
	return 0;
}

static int wait_for_pins(struct pass *pass)
{
	const struct rebuild_opts *opts = pass->opts;
	const struct clock *clock = opts->clock ? opts->clock : clock_monotonic();
	const struct rebuild_wait *wait = &pass->report->wait;
	const struct timespec nap = { .tv_nsec = 200000 };
	bool blocked;
	/*
	 * E2 pairs with E1: our swap of the epoch, then our read of the pins.
	 * E8 pairs with E7: the leaves of the previous pass, all moved, then the pins.
	 */
	int rc = transport_order(pass->shard->tree->tr);

	while (!rc) {
		rc = look_at_slots(pass, &blocked);
		if (rc || !blocked)
			break;
		pass->report->waiting = true;
		if (deadline_expired(clock, opts->deadline_ns))
			return error_set(-EAGAIN, "rebuild waits for owner %u (pid %u)",
					 wait->owner, wait->pid);
		if (opts->idle)
			rc = opts->idle(opts->ctx, wait);
		else
			nanosleep(&nap, NULL);
	}
	if (rc)
		return rc;
	pass->report->waiting = false;
	/* E4 pairs with E3: their additions, then our zeros. */
	return transport_order(pass->shard->tree->tr);
}

static int zero_spare(struct pass *pass)
{
	struct shard *shard = pass->shard;
	uint32_t e = epoch_number(pass->word);
	uint64_t dual = epoch_make(e, EPOCH_DUAL, pass->opts->owner);
	int rc = load_dirty(shard, &pass->dirty);

	if (!rc)
		rc = wait_for_pins(pass);
	for (uint32_t v = 0; !rc && v < shard->desc.n_views; v++) {
		const struct sumtree *tree = &shard->trees[v];
		uint64_t off = tree->inner_off[(e + 1) & 1], bytes = tree->geo.inner_bytes;

		for (uint64_t i = 0; !rc && i < bytes; i += ZERO_BYTES)
			rc = transport_store(tree->region, off + i, zeros,
					     (uint32_t)min_u64(bytes - i, ZERO_BYTES));
	}
	if (!rc)
		rc = transport_order(shard->tree->tr);
	if (!rc)
		rc = swap_epoch(shard, pass->word, dual);
	if (!rc)
		pass->word = dual;
	return rc;
}

/* -------- the pass -------- */

/*
 * Ends the pass: the epoch word becomes {e + 1, NORMAL}. Before, `clean` is written if the sums are
 * exact, while the word is still ours: one writer at a time. If we die between the two, the
 * successor raises dirty, which revokes it.
 */
static int rebuild_flip(struct pass *pass)
{
	struct shard *shard = pass->shard;
	uint32_t next = epoch_number(pass->word) + 1;
	uint64_t dirty;
	bool clean;
	int rc = transport_order(shard->tree->tr);

	if (!rc && pass->lost)
		rc = raise_dirty(shard);
	/* D2 pairs with D1: we see slots that block nothing, then read dirty. */
	if (!rc)
		rc = load_dirty(shard, &dirty);
	if (rc)
		return rc;
	clean = !pass->lost && pass->dirty != NO_DIRTY && dirty == pass->dirty;
	if (clean)
		rc = transport_store(
			shard->tree,
			part_word_off(&shard->part, offsetof(struct part_words, clean)), &dirty,
			sizeof(dirty));
	if (!rc)
		rc = transport_order(shard->tree->tr);
	if (!rc)
		rc = swap_epoch(shard, pass->word, epoch_make(next, EPOCH_NORMAL, 0));
	if (rc)
		return rc;
	pass->report->epoch = next;
	pass->report->passes++;
	pass->report->clean = clean;
	return 0;
}

int sumtree_rebuild_pass(struct shard *shard, const struct rebuild_opts *opts,
			 struct rebuild_report *report)
{
	struct pass pass = { .shard = shard, .opts = opts, .report = report, .dirty = NO_DIRTY };
	struct migrate_counts counts = { 0 };
	int rc;

	if (opts->owner == 0 || opts->owner > shard->desc.max_clients)
		return error_set(-EINVAL, "rebuild opts: owner %u: the table has owners 1 to %u",
				 opts->owner, shard->desc.max_clients);
	report->clean = false;
	report->waiting = false;
	report->live_leaves = 0;
	rc = rebuild_seize(&pass);
	if (rc)
		return rc;
	report->epoch = epoch_number(pass.word);
	if (epoch_mode_of(pass.word) == EPOCH_ZERO)
		rc = zero_spare(&pass);
	for (uint32_t v = 0; !rc && v < shard->desc.n_views; v++)
		rc = sumtree_migrate(shard, v, epoch_number(pass.word), &counts);
	pass.lost += counts.lost_answers;
	report->live_leaves += counts.live_leaves;
	report->repaired_tags += counts.repaired_tags;
	if (!rc)
		rc = rebuild_flip(&pass);
	report->lost_answers += pass.lost;
	return rc;
}

int sumtree_rebuild_until_clean(struct shard *shard, const struct rebuild_opts *opts,
				uint32_t max_passes, struct rebuild_report *report)
{
	for (uint32_t i = 0; i < max_passes; i++) {
		int rc = sumtree_rebuild_pass(shard, opts, report);

		if (rc || report->clean)
			return rc;
	}
	return error_set(-EAGAIN, "rebuild: not clean after %u passes", max_passes);
}
