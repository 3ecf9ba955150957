/*
 * Random schedules of jobs over a pool on the host device. The device itself is the oracle: work on
 * a stream writes its tensor's tag when it begins and looks for it when it ends, so memory that is
 * anybody else's too early, or twice at a time, is seen.
 */
#include <errno.h>
#include <string.h>

#include "base/rng.h"
#include "device/host/backend_host.h"
#include "device/pool.h"
#include "tests/support/test.h"

#define EXTENT ((uint64_t)16 << 10)
#define DEVICE 24u
#define JOBS 4u
#define STREAMS 6u /* of a job: more than an extent has room for marks */
#define TENSORS 96u
#define WORKS 4096u

struct tensor {
	bool used;
	uint32_t job;
	uint64_t va, bytes, tag;
	uint64_t ready_ns; /* end of the work that its stream had when it was allocated */
};

struct work {
	uint64_t va, bytes, tag;
	struct world *world;
};

struct world {
	struct rng rng;
	struct backend *dev;
	struct pool *pool;
	uint64_t budget, held, next_tag, early, ran;
	uint32_t job[JOBS], stream[JOBS][STREAMS];
	uint64_t busy_ns[BACKEND_STREAMS]; /* end of the work of a stream */
	struct tensor tensors[TENSORS];
	struct work works[WORKS]; /* a ring: the device is drained before it wraps */
	uint32_t n_works;
	uint32_t refused, granted;
};

static uint64_t *last_word(const struct work *work)
{
	return (uint64_t *)(uintptr_t)(work->va + work->bytes - 8);
}

static void work_begins(void *ctx)
{
	const struct work *work = ctx;

	*(uint64_t *)(uintptr_t)work->va = work->tag;
	*last_word(work) = work->tag;
}

static void work_ends(void *ctx)
{
	const struct work *work = ctx;

	work->world->ran++;
	work->world->early += *(const uint64_t *)(uintptr_t)work->va != work->tag ||
			      *last_word(work) != work->tag;
}

static void attach(struct world *w, uint32_t job)
{
	char name[16];
	struct pool_job opts = { .name = name };

	snprintf(name, sizeof(name), "job %u", job);
	opts.keep = rng_uniform_u64(&w->rng, 3) * EXTENT;
	opts.quota = (4 + rng_uniform_u64(&w->rng, DEVICE - 4)) * EXTENT;
	assert_int_equal(pool_attach(w->pool, &opts, &w->job[job]), 0);
	for (uint32_t i = 0; i < STREAMS; i++)
		assert_int_equal(pool_stream(w->pool, w->job[job], NULL, &w->stream[job][i]), 0);
}

static void drain(struct world *w)
{
	backend_host_advance(w->dev, 1000000);
	w->n_works = 0;
}

/* Work on a stream of its job that writes the tensor, and later finds it as it was. */
static void use(struct world *w, const struct tensor *t, uint32_t stream)
{
	uint64_t first = rng_uniform_u64(&w->rng, 50), second = rng_uniform_u64(&w->rng, 200);
	struct work *work;
	uint64_t now;

	if (w->n_works == WORKS)
		drain(w);
	now = w->dev->ops->now_ns(w->dev);
	w->busy_ns[stream] = (now > w->busy_ns[stream] ? now : w->busy_ns[stream]) + first + second;
	work = &w->works[w->n_works++];
	*work = (struct work){ t->va, t->bytes, t->tag, w };
	assert_int_equal(backend_host_work(w->dev, stream, first, work_begins, work), 0);
	assert_int_equal(backend_host_work(w->dev, stream, second, work_ends, work), 0);
}

static void allocate(struct world *w, struct tensor *t)
{
	uint32_t job = (uint32_t)rng_uniform_u64(&w->rng, JOBS);
	uint32_t on = (uint32_t)rng_uniform_u64(&w->rng, STREAMS);
	bool large = rng_uniform_u64(&w->rng, 8) == 0;
	const struct pool_tensor wish = {
		w->job[job], w->stream[job][on],
		(enum tensor_class)rng_uniform_u64(&w->rng, TENSOR_CLASSES),
		8 + rng_uniform_u64(&w->rng, large ? 4 * EXTENT : EXTENT / 3)
	};
	int ret = pool_alloc(w->pool, &wish, &t->va);

	if (ret) {
		assert_true(ret == -EAGAIN || ret == -ENOSPC);
		w->refused++;
		return;
	}
	w->granted++;
	t->bytes = wish.bytes / 8 * 8;
	t->job = job;
	t->tag = ++w->next_tag;
	t->used = true;
	t->ready_ns = w->busy_ns[wish.stream];
	for (uint32_t i = 0; i < TENSORS; i++) {
		const struct tensor *o = &w->tensors[i];

		assert_true(o == t || !o->used || t->va + t->bytes <= o->va ||
			    o->va + o->bytes <= t->va);
	}
	use(w, t, wish.stream);
}

static void free_tensor(struct world *w, struct tensor *t)
{
	assert_int_equal(pool_free(w->pool, w->job[t->job], t->va), 0);
	t->used = false;
}

/* Kills a job and starts it anew. */
static void restart(struct world *w, uint32_t job)
{
	int ret;

	for (uint32_t i = 0; i < TENSORS; i++)
		w->tensors[i].used &= w->tensors[i].job != job;
	for (int i = 0; (ret = pool_detach(w->pool, w->job[job])) == -EAGAIN && i < 10; i++)
		drain(w);
	assert_int_equal(ret, 0);
	attach(w, job);
}

static void check_budget(struct world *w)
{
	struct pool_stats stats;

	pool_stats(w->pool, &stats);
	assert_true(stats.held <= w->budget || stats.held <= w->held);
	assert_true(stats.used <= stats.held);
	assert_true(stats.created <= DEVICE * EXTENT);
	w->held = stats.held;
}

static void step(struct world *w)
{
	struct tensor *t = &w->tensors[rng_uniform_u64(&w->rng, TENSORS)];
	uint64_t what = rng_uniform_u64(&w->rng, 1000);

	if (what < 1) {
		restart(w, (uint32_t)rng_uniform_u64(&w->rng, JOBS));
	} else if (what < 5) {
		w->budget = (8 + rng_uniform_u64(&w->rng, DEVICE - 7)) * EXTENT;
		assert_int_equal(pool_limit(w->pool, w->budget), 0);
	} else if (what < 200) {
		backend_host_advance(w->dev, rng_uniform_u64(&w->rng, 100));
	} else if (what < 250) {
		assert_int_equal(pool_poll(w->pool), 0);
	} else if (!t->used) {
		allocate(w, t);
	} else if (what < 500) {
		uint32_t on = w->stream[t->job][rng_uniform_u64(&w->rng, STREAMS)];

		/* Work of a job on another stream is ordered behind the tensor's allocation. */
		if (w->dev->ops->now_ns(w->dev) <= t->ready_ns)
			return;
		assert_int_equal(pool_use(w->pool, w->job[t->job], t->va, on), 0);
		use(w, t, on);
	} else {
		free_tensor(w, t);
	}
	check_budget(w);
}

static void run(bool strict, uint64_t steps, uint64_t seed)
{
	static struct world w;
	const struct backend_host_opts host = { .device_bytes = DEVICE * EXTENT };
	struct pool_opts opts = { .extent_bytes = EXTENT, .strict = strict };

	memset(&w, 0, sizeof(w));
	rng_seed(&w.rng, seed, strict);
	w.budget = DEVICE * EXTENT;
	assert_int_equal(backend_host_open(&host, &w.dev), 0);
	opts.backend = w.dev;
	assert_int_equal(pool_open(&opts, &w.pool), 0);
	for (uint32_t i = 0; i < JOBS; i++)
		attach(&w, i);
	for (uint64_t i = 0; i < steps; i++) {
		step(&w);
		if (i % 1024 == 0)
			assert_int_equal(pool_check(w.pool), 0);
	}
	for (uint32_t i = 0; i < JOBS; i++)
		restart(&w, i);
	assert_int_equal(w.early, 0);
	assert_true(w.ran > steps / 8);
	assert_true(w.refused > 0 && w.granted > steps / 16);
	check_budget(&w);
	assert_int_equal(w.held, 0);
	for (uint32_t i = 0; i < JOBS; i++)
		assert_int_equal(pool_detach(w.pool, w.job[i]), 0);
	assert_int_equal(pool_close(&w.pool), 0);
	w.dev->ops->close(w.dev);
	print_message("%llu steps, %u tensors, %u refused, %llu uses, early reuse %llu\n",
		      (unsigned long long)steps, w.granted, w.refused, (unsigned long long)w.ran,
		      (unsigned long long)w.early);
}

TEST(trusted__random_schedules_have_no_early_reuse)
{
	run(false, 1000000, test_seed("trusted pool", 1));
}

TEST(strict__random_schedules_have_no_early_reuse)
{
	run(true, 200000, test_seed("strict pool", 2));
}

int main(void)
{
	return test_run(NULL, NULL);
}
