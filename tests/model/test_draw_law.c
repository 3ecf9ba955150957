/*
 * The law of draws from private sums (docs/decisions/0016-private-sums.md), for each kernel, for one
 * tree and for eight side by side, with DRAWS draws each: while another learner updates; while the
 * priorities of one half rise tenfold, by at most D / S; and after learners have died and a rebuild.
 */
#include "tests/support/fixture/shard_fixture.h"
#include "tests/support/fixture/tree_fixture.h"
#include "tests/support/test.h"

#include "ds/part/slot.h"
#include "ds/replay/settle.h"
#include "ds/sumtree/rebuild.h"
#include "ds/sumtree/tops.h"

#include "base/bits.h"
#include "base/os/cpu.h"
#include "base/rng.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define LEAVES 65536u /* of all trees */
#define MOST_TREES 8u
#define BATCH 256u
#define REGIONS 256u
#define DRAWS 2000000u /* RLV_TEST_DRAWS of them, if it is set */
#define Z_MAX 5.0      /* one run in three million */

static const enum cpu_level levels[] = { CPU_PLAIN, CPU_AVX2, CPU_AVX512 };

static uint32_t shard[BATCH], slot[BATCH];
static uint64_t word[BATCH];
static double probability[BATCH];
static const struct draws out = { shard, slot, word, probability };

static uint64_t draws_to_make(void)
{
	const char *text = getenv("RLV_TEST_DRAWS");

	return text ? strtoull(text, NULL, 10) : DRAWS;
}

/* -------- two learners on a forest -------- */

/* A learner: a handle on each tree, and private sums. */
struct learner {
	struct tree_handle h[MOST_TREES];
	struct sumtree trees[MOST_TREES];
	struct epoch epochs[MOST_TREES];
	struct forest from;
	struct rng rng;
};

struct scene {
	uint32_t n_trees, leaves; /* of one tree */
	struct tree_fixture fx[MOST_TREES];
	uint64_t priority[LEAVES]; /* of leaf t * leaves + slot */
	struct learner drawer, updater;
};

static void learner_open(struct scene *s, struct learner *l, uint32_t client, uint64_t seed)
{
	struct sumtree_tops *tops;

	rng_seed(&l->rng, seed, client);
	assert_int_equal(sumtree_tops_open(&tops), 0);
	for (uint32_t t = 0; t < s->n_trees; t++) {
		tree_handle_open(&l->h[t], &s->fx[t], client, true);
		tree_deltas_show(l->h[t].deltas, &l->h[t].tree, tops, t);
		l->trees[t] = l->h[t].tree;
		l->epochs[t] = l->h[t].ep;
	}
	l->from = (struct forest){ l->trees, l->epochs, s->n_trees, tops };
}

static void learner_close(struct scene *s, struct learner *l)
{
	for (uint32_t t = 0; t < s->n_trees; t++)
		tree_handle_close(&l->h[t]);
	sumtree_tops_close(&l->from.tops);
}

static void scene_open(struct scene *s, uint32_t n_trees, uint64_t seed)
{
	struct rng rng;

	rng_seed(&rng, seed, 0);
	s->n_trees = n_trees;
	s->leaves = LEAVES / n_trees;
	for (uint32_t i = 0; i < LEAVES; i++)
		s->priority[i] = 1000 + rng_uniform_u64(&rng, 30000);
	for (uint32_t t = 0; t < n_trees; t++)
		tree_fixture_open(&s->fx[t], s->leaves, NULL);
	learner_open(s, &s->drawer, 0, seed);
	learner_open(s, &s->updater, 1, seed);
	for (uint32_t t = 0; t < n_trees; t++)
		for (uint32_t at = 0; at < s->leaves; at += BATCH) {
			const struct leaf_run run = { at, BATCH, 1 };

			tree_handle_fill(&s->updater.h[t], &run, s->priority + t * s->leaves + at);
		}
}

static void scene_close(struct scene *s)
{
	for (uint32_t t = 0; t < s->n_trees; t++)
		tree_handle_assert_exact(&s->updater.h[t]);
	learner_close(s, &s->drawer);
	learner_close(s, &s->updater);
	for (uint32_t t = 0; t < s->n_trees; t++)
		tree_fixture_close(&s->fx[t]);
}

/* The updater gives leaves of one tree, at most BATCH, the priorities that the scene has for them. */
static int update_leaves(struct scene *s, uint32_t tree, const uint32_t *slots, uint32_t n)
{
	struct tree_handle *h = &s->updater.h[tree];
	struct leaf_op ops[BATCH];
	int ret = epoch_enter(&h->ep);

	for (uint32_t i = 0; i < n; i++)
		ops[i] = (struct leaf_op){ .slot = slots[i],
					   .gen = 1,
					   .priority = s->priority[tree * s->leaves + slots[i]] };
	if (ret == 0)
		ret = sumtree_update(&h->tree, &h->ep, ops, n, h->deltas);
	if (ret == 0)
		ret = sumtree_flush(&h->tree, h->deltas);
	return ret ? ret : epoch_leave(&h->ep);
}

/* -------- while another learner updates -------- */

struct churn {
	struct scene *s;
	atomic_bool stop;
	atomic_int failed;
	atomic_uint rounds;
};

/* Swaps priorities of odd slots: the sum stays, the sums of nodes do not. */
static void *churn_odd_slots(void *arg)
{
	struct churn *churn = arg;
	struct scene *s = churn->s;
	struct rng *rng = &s->updater.rng;

	for (uint32_t t = 0; !atomic_load(&churn->stop); t = (t + 1) % s->n_trees) {
		uint64_t *of_tree = s->priority + t * s->leaves;
		uint32_t slots[BATCH];

		for (uint32_t i = 0; i < BATCH; i += 2) {
			uint64_t first;

			slots[i] = (uint32_t)rng_uniform_u64(rng, s->leaves / 2) * 2 + 1;
			slots[i + 1] = (uint32_t)rng_uniform_u64(rng, s->leaves / 2) * 2 + 1;
			first = of_tree[slots[i]];
			of_tree[slots[i]] = of_tree[slots[i + 1]];
			of_tree[slots[i + 1]] = first;
		}
		if (update_leaves(s, t, slots, BATCH))
			atomic_store(&churn->failed, 1);
		atomic_fetch_add(&churn->rounds, 1);
	}
	return NULL;
}

/* What the drawer found. Only even slots count: their priorities stay. */
struct tally {
	uint64_t by_region[REGIONS];
	uint64_t by_place[16]; /* in a node of level 1 and its neighbour */
	double sum;            /* of priority / probability over all draws */
	uint64_t n;
};

static void count_batch(const struct scene *s, struct tally *tally)
{
	for (uint32_t i = 0; i < BATCH; i++) {
		uint32_t leaf = shard[i] * s->leaves + slot[i];

		tally->sum += (double)leaf_priority(word[i]) / probability[i];
		tally->n++;
		if (leaf % 2)
			continue;
		tally->by_region[leaf / (LEAVES / REGIONS)]++;
		tally->by_place[leaf % 16]++;
	}
}

static double tally_z(const uint64_t *seen, const double *mass, uint32_t n)
{
	double expected[REGIONS], all = 0;
	uint64_t total = 0;

	for (uint32_t i = 0; i < n; i++) {
		total += seen[i];
		all += mass[i];
	}
	for (uint32_t i = 0; i < n; i++)
		expected[i] = (double)total * mass[i] / all;
	return test_chi_square_z(seen, expected, n);
}

static void expect_law(const struct scene *s, const struct tally *tally)
{
	double region[REGIONS] = { 0 }, place[16] = { 0 }, all = 0, off, z, z_place;
	uint64_t even_places[8];
	double even_mass[8];

	for (uint32_t i = 0; i < LEAVES; i++) {
		all += (double)s->priority[i];
		if (i % 2)
			continue;
		region[i / (LEAVES / REGIONS)] += (double)s->priority[i];
		place[i % 16] += (double)s->priority[i];
	}
	for (uint32_t k = 0; k < 8; k++) {
		even_places[k] = tally->by_place[2 * k];
		even_mass[k] = place[2 * k];
	}
	z = tally_z(tally->by_region, region, REGIONS);
	z_place = tally_z(even_places, even_mass, 8);
	off = tally->sum / (double)tally->n / all - 1;
	print_message("%llu draws: z %.2f by region, %.2f by place; priority / probability is off "
		      "the sum by %.6f\n",
		      (unsigned long long)tally->n, z, z_place, off);
	assert_true(z < Z_MAX && z_place < Z_MAX);
	assert_true(fabs(off) < 2e-4);
}

static void draw_while_another_updates(uint32_t n_trees, uint64_t seed)
{
	static struct scene s;
	static struct tally tally;
	struct churn churn = { .s = &s };
	uint64_t most = draws_to_make();
	pthread_t thread;

	memset(&tally, 0, sizeof(tally));
	scene_open(&s, n_trees, seed);
	assert_int_equal(pthread_create(&thread, NULL, churn_odd_slots, &churn), 0);
	/* On until the other has had its turns on a busy machine. */
	while (tally.n < most || atomic_load(&churn.rounds) < 1000) {
		const struct draw_opts opts = { .writes = true,
						.now_ns = clock_now_ns(clock_monotonic()) };

		assert_int_equal(sumtree_draw(&s.drawer.from, &opts, &s.drawer.rng, BATCH, &out),
				 0);
		count_batch(&s, &tally);
	}
	atomic_store(&churn.stop, true);
	pthread_join(thread, NULL);
	assert_int_equal(atomic_load(&churn.failed), 0);
	expect_law(&s, &tally);
	scene_close(&s);
}

/* Runs it for one tree, and for `most`, with each kernel of this CPU. */
static void each_kernel(void (*run)(uint32_t n_trees, uint64_t seed), uint32_t most, uint64_t seed)
{
	for (size_t l = 0; l < ARRAY_LEN(levels); l++)
		for (uint32_t n_trees = 1; n_trees <= most; n_trees *= MOST_TREES) {
			if (levels[l] > cpu_level())
				continue;
			cpu_level_limit(levels[l]);
			print_message("%s, trees %u: ", cpu_level_name(levels[l]), n_trees);
			run(n_trees, seed);
			cpu_level_limit(CPU_AVX512);
		}
}

TEST(sumtree_draw__keeps_the_law_while_another_learner_updates)
{
	each_kernel(draw_while_another_updates, MOST_TREES,
		    test_seed("law with another learner", 41));
}

/* -------- while priorities drift -------- */

struct drift {
	double hits, expected; /* draws from the raised half */
	double allowed;        /* sum of D / S over the draws */
	double variance;
	uint64_t n;
};

static uint64_t mass_of(const struct scene *s, uint32_t first, uint32_t n)
{
	uint64_t sum = 0;

	for (uint32_t i = first; i < first + n; i++)
		sum += s->priority[i];
	return sum;
}

/* Draws a batch; *changed is D, what has changed since the drawer read its sums. */
static void draw_drifted(struct scene *s, uint64_t half, uint64_t total, double *changed,
			 struct drift *d)
{
	const struct draw_opts opts = { .writes = true, .now_ns = 1 }; /* sums never age */
	double share = (double)half / (double)total;

	assert_int_equal(sumtree_draw(&s->drawer.from, &opts, &s->drawer.rng, BATCH, &out), 0);
	if (s->drawer.from.tops->draws == 0) /* read for this draw */
		*changed = 0;
	for (uint32_t i = 0; i < BATCH; i++)
		d->hits += shard[i] * s->leaves + slot[i] < LEAVES / 2;
	d->expected += BATCH * share;
	d->allowed += BATCH * *changed / (double)total;
	d->variance += BATCH * share * (1 - share);
	d->n += BATCH;
}

/* Raises the first half tenfold, or lowers it again, BATCH slots a draw. */
static void drift_half(struct scene *s, bool up, struct drift *d)
{
	uint64_t half = mass_of(s, 0, LEAVES / 2), total = mass_of(s, 0, LEAVES);
	double changed = 0;

	for (uint32_t first = 0; first < LEAVES / 2; first += BATCH) {
		uint32_t slots[BATCH], tree = first / s->leaves;

		for (uint32_t i = 0; i < BATCH; i++) {
			uint64_t *p = &s->priority[first + i], was = *p;

			slots[i] = (first + i) % s->leaves;
			*p = up ? was * 10 : was / 10;
			half += *p - was;
			total += *p - was;
			changed += fabs((double)*p - (double)was);
		}
		assert_int_equal(update_leaves(s, tree, slots, BATCH), 0);
		draw_drifted(s, half, total, &changed, d);
	}
}

static void expect_within_bound(const struct drift *d, const char *way)
{
	double n = (double)d->n, off = fabs(d->hits - d->expected) / n;
	double noise = sqrt(d->variance) / n, bound = d->allowed / n;

	print_message("%s: %llu draws, distance %.5f, noise %.5f, D / S %.5f\n", way,
		      (unsigned long long)d->n, off, noise, bound);
	assert_true(off <= bound + Z_MAX * noise);
	assert_true(off > Z_MAX * noise); /* stale sums show: the bound is of something */
}

static void draw_while_half_drifts(uint32_t n_trees, uint64_t seed)
{
	static struct scene s;
	struct drift up = { 0 }, down = { 0 };

	scene_open(&s, n_trees, seed);
	while (up.n + down.n < draws_to_make()) {
		drift_half(&s, true, &up);
		drift_half(&s, false, &down);
	}
	expect_within_bound(&up, "rising");
	expect_within_bound(&down, "falling");
	scene_close(&s);
}

TEST(sumtree_draw__is_at_most_d_by_s_off_while_a_half_drifts)
{
	each_kernel(draw_while_half_drifts, MOST_TREES, test_seed("law with drift", 42));
}

/* -------- after deaths and a rebuild -------- */

#define REBUILDER 16u
#define MORTAL 9u

/* Changes priorities and dies before the sums have them; the server settles it. */
static void die_in_update(struct shard *of, struct rng *rng, const struct table_desc *desc)
{
	struct leaf_op ops[32];
	struct access acc;

	shard_fixture_take_slot(of, MORTAL);
	shard_fixture_access(of, MORTAL, &acc);
	for (uint32_t i = 0; i < ARRAY_LEN(ops); i++) {
		uint32_t part = desc->slots / ARRAY_LEN(ops);
		uint64_t found = 0;

		ops[i] = (struct leaf_op){ .slot = i * part + (uint32_t)rng_uniform_u64(rng, part),
					   .priority = 1000 + rng_uniform_u64(rng, 30000) };
		assert_int_equal(
			transport_load(of->tree, shard_leaf_off(of, 0, ops[i].slot), &found), 0);
		ops[i].gen = leaf_gen(found);
		ops[i].word = found;
	}
	assert_int_equal(access_enter(&acc), 0);
	assert_int_equal(
		sumtree_update(&of->trees[0], &acc.epoch, ops, ARRAY_LEN(ops), acc.deltas[0]), 0);
	access_close(&acc);
	assert_int_equal(shard_settle(of, MORTAL, NULL), 0);
}

static void expect_law_of_leaves(struct shard *of, uint32_t slots, struct rng *rng)
{
	static uint64_t seen[LEAVES], packed[LEAVES];
	static double mass[LEAVES], expected[LEAVES];
	struct epoch ep;
	struct forest from = { &of->trees[0], &ep, 1, NULL };
	uint64_t made = draws_to_make();
	double all = 0, z;
	uint32_t n = 0;

	epoch_init(&ep, &of->part, 0);
	assert_int_equal(sumtree_tops_open(&from.tops), 0);
	memset(seen, 0, sizeof(seen));
	for (uint32_t i = 0; i < slots; i++) {
		uint64_t leaf = 0;

		assert_int_equal(transport_load(of->tree, shard_leaf_off(of, 0, i), &leaf), 0);
		mass[i] = (double)leaf_priority(leaf);
		all += mass[i];
	}
	for (uint64_t done = 0; done < made; done += BATCH) {
		const struct draw_opts opts = { .now_ns = 1 };

		assert_int_equal(sumtree_draw(&from, &opts, rng, BATCH, &out), 0);
		for (uint32_t i = 0; i < BATCH; i++)
			seen[slot[i]]++;
	}
	for (uint32_t i = 0; i < slots; i++) {
		if (mass[i] == 0) {
			assert_int_equal(seen[i], 0);
			continue;
		}
		packed[n] = seen[i];
		expected[n++] = (double)div_up(made, BATCH) * BATCH * mass[i] / all;
	}
	z = test_chi_square_z(packed, expected, n);
	print_message("%llu draws of %u leaves: z %.2f\n", (unsigned long long)made, n, z);
	assert_true(z < Z_MAX);
	sumtree_tops_close(&from.tops);
}

static void draw_after_a_rebuild(uint32_t n_trees, uint64_t seed)
{
	/* Planned for a wire: two levels, as in place of more than 2^17 leaves. */
	const struct shard_fixture_opts fixture = { .capacity = 8192,
						    .block = 128,
						    .remote = true };
	struct rebuild_opts opts = { .owner = REBUILDER };
	struct rebuild_report report = { 0 };
	struct shard_fixture fx;
	struct access acc;
	struct rng rng;

	(void)n_trees;
	rng_seed(&rng, seed, 3);
	shard_fixture_open_filled(&fx, &fixture, 64, &acc);
	assert_int_equal(fx.desc.tree.levels, 2);
	shard_fixture_take_slot(fx.shard, REBUILDER);
	for (uint32_t i = 0; i < 20; i++)
		die_in_update(fx.shard, &rng, &fx.desc);
	opts.deadline_ns = deadline_after(clock_monotonic(), 20 * CLOCK_NS_PER_S);
	assert_int_equal(access_flush(&acc), 0);
	assert_int_equal(sumtree_rebuild_until_clean(fx.shard, &opts, 3, &report), 0);
	expect_law_of_leaves(fx.shard, fx.desc.slots, &rng);
	access_close(&acc);
	shard_fixture_close(&fx);
}

TEST(sumtree_draw__keeps_the_law_after_deaths_and_a_rebuild)
{
	each_kernel(draw_after_a_rebuild, 1, test_seed("law after a rebuild", 43));
}

int main(void)
{
	return test_run(NULL, NULL);
}
