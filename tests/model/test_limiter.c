/*
 * Random calls of several handles, and their deaths between admission and commit, against counts in
 * ordinary integers.
 */
#include "ds/limiter/limiter.h"

#include "ds/replay/settle.h"

#include "tests/support/fixture/shard_fixture.h"
#include "tests/support/test.h"

#include "base/rng.h"

#include <errno.h>

#define HANDLES 4
#define STEPS 20000

struct handle {
	struct limiter lim;
	uint64_t inserting, sampling; /* admitted and not yet committed */
};

struct model {
	double spi, min_diff, max_diff; /* multiples of 1/4: exact */
	uint64_t min_size;
	int64_t ia, ic, sa, sc;
};

static struct shard_fixture fx;
static struct handle handles[HANDLES];
static struct model model;
static struct rng rng;

static uint32_t owner_of(uint32_t h)
{
	return h + 1;
}

static void attach(uint32_t h)
{
	shard_fixture_take_slot(fx.shard, owner_of(h));
	limiter_init(&handles[h].lim, fx.shard, 0, owner_of(h));
	handles[h].inserting = handles[h].sampling = 0;
}

static bool may_insert(uint64_t n)
{
	return (double)(model.ia + (int64_t)n) * model.spi - (double)model.sc <= model.max_diff;
}

static bool may_sample(uint64_t n)
{
	return (uint64_t)model.ic >= model.min_size &&
	       (double)model.ic * model.spi - (double)model.sa - (double)n >= model.min_diff;
}

static void try_insert(struct handle *h)
{
	uint64_t n = 1 + rng_uniform_u64(&rng, 6);
	bool never = (double)n * model.spi > model.max_diff - model.min_diff;
	int want = never ? -EINVAL : may_insert(n) ? 0 : -EAGAIN;

	if (h->inserting)
		return;
	assert_int_equal(limiter_try_insert(&h->lim, n), want);
	if (want)
		return;
	h->inserting = n;
	model.ia += (int64_t)n;
}

static void try_sample(struct handle *h)
{
	uint64_t n = 1 + rng_uniform_u64(&rng, 6);
	bool never = (double)n > model.max_diff - model.min_diff;
	int want = never ? -EINVAL : may_sample(n) ? 0 : -EAGAIN;

	if (h->sampling)
		return;
	assert_int_equal(limiter_try_sample(&h->lim, n), want);
	if (want)
		return;
	h->sampling = n;
	model.sa += (int64_t)n;
}

static void commit(struct handle *h)
{
	uint64_t ins = h->inserting, smp = h->sampling;
	uint64_t ins_done = ins - (rng_next_u64(&rng) % 4 ? 0 : rng_uniform_u64(&rng, ins + 1));
	uint64_t smp_done = smp - (rng_next_u64(&rng) % 4 ? 0 : rng_uniform_u64(&rng, smp + 1));

	assert_int_equal(limiter_commit_insert(&h->lim, ins, ins_done), 0);
	assert_int_equal(limiter_commit_sample(&h->lim, smp, smp_done), 0);
	model.ic += (int64_t)ins_done;
	model.ia -= (int64_t)(ins - ins_done);
	model.sc += (int64_t)smp_done;
	model.sa -= (int64_t)(smp - smp_done);
	h->inserting = h->sampling = 0;
}

static void die(uint32_t h)
{
	assert_int_equal(shard_settle(fx.shard, owner_of(h), NULL), 0);
	model.ia -= (int64_t)handles[h].inserting;
	model.sa -= (int64_t)handles[h].sampling;
	attach(h);
}

static void assert_same(uint64_t step)
{
	struct limiter_words now;

	assert_int_equal(limiter_read(&handles[0].lim, &now), 0);
	if ((int64_t)now.ins_admitted != model.ia || (int64_t)now.ins_committed != model.ic ||
	    (int64_t)now.smp_admitted != model.sa || (int64_t)now.smp_committed != model.sc)
		fail_msg("step %llu: the words differ from the model", (unsigned long long)step);
}

static void run(double spi, uint64_t min_size, double min_diff, double max_diff)
{
	struct shard_fixture_opts opts = { 0 };
	struct limit_desc law;

	assert_int_equal(limit_desc_init(&law, min_size, spi, min_diff, max_diff), 0);
	assert_int_equal(limit_desc_check(&law, 1024), 0);
	opts.limit = &law;
	shard_fixture_open(&fx, &opts);
	model = (struct model){
		.spi = spi, .min_size = min_size, .min_diff = min_diff, .max_diff = max_diff
	};
	for (uint32_t h = 0; h < HANDLES; h++)
		attach(h);
	for (uint64_t step = 0; step < STEPS; step++) {
		uint32_t h = (uint32_t)rng_uniform_u64(&rng, HANDLES);
		uint64_t what = rng_uniform_u64(&rng, 100);

		if (what < 35)
			try_insert(&handles[h]);
		else if (what < 70)
			try_sample(&handles[h]);
		else if (what < 98)
			commit(&handles[h]);
		else
			die(h);
		assert_same(step);
	}
	assert_true(model.sc > 100);
	shard_fixture_close(&fx);
}

TEST(limiter__queue_as_the_model)
{
	rng_seed(&rng, test_seed("limiter__queue_as_the_model", 1), 0);
	run(1, 1, 0, 12);
}

TEST(limiter__ratio_as_the_model)
{
	rng_seed(&rng, test_seed("limiter__ratio_as_the_model", 2), 0);
	run(2.25, 20, 45 - 16, 45 + 16);
}

TEST(limiter__slow_ratio_as_the_model)
{
	rng_seed(&rng, test_seed("limiter__slow_ratio_as_the_model", 3), 0);
	run(0.25, 8, -2, 6);
}

int main(void)
{
	return test_run(NULL, NULL);
}
