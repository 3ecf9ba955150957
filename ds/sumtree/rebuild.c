#include "ds/sumtree/rebuild.h"

#include "ds/part/slot.h"
#include "ds/sumtree/migrate.h"

#include "transport/barrier.h"
#include "transport/transport.h"

#include "wire/ring_layout.h"

#include <errno.h>
#include <stddef.h>
#include <time.h>

#define SEIZE_TRIES 1000 /* CAS retries on a word that few parties change */
#define NAP_NS 200000
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

/* After a lost answer dirty may be raised or not: raising it again does no harm. */
static int raise_dirty(struct shard *shard)
{
	uint64_t old;
	int rc = -EIO;

	for (int i = 0; rc == -EIO && i < SEIZE_TRIES; i++)
		rc = transport_faa_word(
			shard->tree,
			part_word_off(&shard->part, offsetof(struct part_words, dirty)), 1, &old);
	return rc;
}

static int load_epoch(struct shard *shard, uint64_t *word_out)
{
	return transport_load(shard->tree,
			      part_word_off(&shard->part, offsetof(struct part_words, epoch)),
			      word_out);
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
 * Checks that the owner may be replaced: -EBUSY while its slot is live; only a fence changes
 * that.
 */
static int check_owner_dead(struct pass *pass, uint32_t owner)
{
	struct slot_info info;
	int rc;

	if (owner == 0 || owner > pass->shard->desc.max_clients)
		return 0;
	rc = slot_read(&pass->shard->part, owner - 1, &info);
	if (rc || info.state != SLOT_LIVE)
		return rc;
	return error_set(-EBUSY, "rebuild is run by owner %u (pid %u)", owner, info.process.pid);
}

/* An invalid mode restarts the pass from ZERO. */
static int take_over(struct pass *pass, uint64_t word)
{
	enum epoch_mode mode = epoch_mode_of(word) == EPOCH_DUAL ? EPOCH_DUAL : EPOCH_ZERO;
	uint32_t owner = epoch_owner(word);
	uint64_t mine = epoch_make(epoch_number(word), mode, pass->opts->owner);
	int rc = owner == pass->opts->owner ? 0 : check_owner_dead(pass, owner);

	if (!rc && word != mine)
		rc = swap_epoch(pass->shard, word, mine);
	/* The predecessor held unposted additions, now lost: only dirty records that. */
	if (!rc && mode == EPOCH_DUAL)
		rc = raise_dirty(pass->shard);
	if (rc)
		return rc;
	pass->word = mine;
	pass->report->takeovers++;
	return 0;
}

static int seize(struct pass *pass)
{
	for (int i = 0; i < SEIZE_TRIES; i++) {
		uint64_t word, mine;
		int rc = load_epoch(pass->shard, &word);

		if (rc)
			return rc;
		if (epoch_mode_of(word) != EPOCH_NORMAL) {
			rc = take_over(pass, word);
		} else {
			mine = epoch_make(epoch_number(word), EPOCH_ZERO, pass->opts->owner);
			rc = swap_epoch(pass->shard, word, mine);
			pass->word = mine;
		}
		if (rc != -EAGAIN)
			return rc;
	}
	return error_set(-EAGAIN, "rebuild: the epoch word kept changing");
}

/* -------- waiting for pins -------- */

static bool find_blocker(const struct slot_info *infos, uint32_t n, uint32_t epoch,
			 struct rebuild_wait *wait)
{
	for (uint32_t i = 0; i < n; i++) {
		if (infos[i].state != SLOT_LIVE || !epoch_blocks_pass(infos[i].pin, epoch))
			continue;
		*wait = (struct rebuild_wait){ .owner = infos[i].slot + 1,
					       .pid = infos[i].process.pid,
					       .pin = infos[i].pin,
					       .epoch = epoch };
		return true;
	}
	return false;
}

static int look_at_slots(struct pass *pass, bool *blocked_out)
{
	struct slot_info infos[SLOT_READ_MAX];
	uint32_t all = pass->shard->desc.max_clients;

	*blocked_out = false;
	for (uint32_t first = 0; !*blocked_out && first < all; first += SLOT_READ_MAX) {
		uint32_t n = all - first < SLOT_READ_MAX ? all - first : SLOT_READ_MAX;
		int rc = slot_read_many(&pass->shard->part, first, n, infos);

		if (rc)
			return rc;
		*blocked_out =
			find_blocker(infos, n, epoch_number(pass->word), &pass->report->wait);
	}
	return 0;
}

static int nap(void)
{
	const struct timespec time = { .tv_nsec = NAP_NS };

	nanosleep(&time, NULL);
	return 0;
}

static int wait_for_pins(struct pass *pass)
{
	const struct rebuild_opts *opts = pass->opts;
	const struct clock *clock = opts->clock ? opts->clock : clock_monotonic();
	const struct rebuild_wait *wait = &pass->report->wait;
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
		rc = opts->idle ? opts->idle(opts->ctx, wait) : nap();
	}
	if (rc)
		return rc;
	pass->report->waiting = false;
	/* E4 pairs with E3: their additions, then our zeros. */
	return transport_order(pass->shard->tree->tr);
}

static int zero_array(const struct sumtree *tree, uint64_t array_off)
{
	for (uint64_t done = 0; done < tree->geo.inner_bytes;) {
		uint64_t left = tree->geo.inner_bytes - done;
		uint32_t len = (uint32_t)(left < ZERO_BYTES ? left : ZERO_BYTES);
		int rc = transport_store(tree->region, array_off + done, zeros, len);

		if (rc)
			return rc;
		done += len;
	}
	return 0;
}

static int zero_spare(struct pass *pass)
{
	struct shard *shard = pass->shard;
	uint32_t e = epoch_number(pass->word);
	uint64_t dual = epoch_make(e, EPOCH_DUAL, pass->opts->owner);
	int rc = load_dirty(shard, &pass->dirty);

	if (!rc)
		rc = wait_for_pins(pass);
	for (uint32_t v = 0; !rc && v < shard->desc.n_views; v++)
		rc = zero_array(&shard->trees[v], shard->trees[v].inner_off[(e + 1) & 1]);
	if (!rc)
		rc = transport_order(shard->tree->tr);
	if (!rc)
		rc = swap_epoch(shard, pass->word, dual);
	if (!rc)
		pass->word = dual;
	return rc;
}

/* -------- the pass -------- */

static int migrate_views(struct pass *pass)
{
	struct shard *shard = pass->shard;
	struct migrate_counts counts = { 0 };
	int rc = 0;

	for (uint32_t v = 0; !rc && v < shard->desc.n_views; v++)
		rc = sumtree_migrate(shard, v, epoch_number(pass->word), &counts);
	pass->lost += counts.lost_answers;
	pass->report->live_leaves += counts.live_leaves;
	pass->report->repaired_tags += counts.repaired_tags;
	return rc;
}

/*
 * Writes `clean` while the word is still ours: one writer at a time. If we die before the flip,
 * the successor raises dirty, which revokes it.
 */
static int flip(struct pass *pass)
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
	int rc;

	if (opts->owner == 0 || opts->owner > shard->desc.max_clients)
		return error_set(-EINVAL, "rebuild opts: owner %u: the table has owners 1 to %u",
				 opts->owner, shard->desc.max_clients);
	report->clean = false;
	report->waiting = false;
	report->live_leaves = 0;
	rc = seize(&pass);
	if (rc)
		return rc;
	report->epoch = epoch_number(pass.word);
	if (epoch_mode_of(pass.word) == EPOCH_ZERO)
		rc = zero_spare(&pass);
	if (!rc)
		rc = migrate_views(&pass);
	if (!rc)
		rc = flip(&pass);
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
