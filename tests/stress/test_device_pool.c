/* Several threads on one pool: jobs take, use and free tensors, one is parked and returns, while another
   thread moves the device's clock and one changes the budget. No tensor is anybody else's too early. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/rng.h"
#include "device/host/backend_host.h"
#include "device/pool_park.h"
#include "tests/support/must.h"
#include "tests/support/test.h"

#define EXTENT ((uint64_t)16 << 10)
#define JOBS 3
#define HELD 4
#define STEPS 3000

static struct backend *dev;
static struct pool *pool;
static _Atomic bool over;
static _Atomic uint64_t wrong, checked;
static _Atomic uint64_t ticks; /* of the device's clock */

struct job {
	uint32_t number, stream;
	uint64_t seed;
	uint64_t va[HELD];
};

/* Work of the device on a tensor: it writes a tag at the begin, and looks for it at the end. */
struct work {
	uint8_t *bytes;
	uint8_t tag;
	bool ends;
};

static struct work works[JOBS][STEPS][2];

static void do_work(void *ctx)
{
	const struct work *work = ctx;

	if (!work->ends) {
		memset(work->bytes, work->tag, 512);
		return;
	}
	for (int i = 0; i < 512; i++) {
		if (work->bytes[i] != work->tag)
			atomic_fetch_add(&wrong, 1);
	}
	atomic_fetch_add(&checked, 1);
}

static void queue_work(const struct job *job, uint64_t va, uint64_t step)
{
	for (int i = 0; i < 2; i++) {
		struct work *work = &works[job->number][step][i];

		*work = (struct work){ (uint8_t *)(uintptr_t)va,
				       (uint8_t)(1 + (job->number * 80 + step) % 255), i == 1 };
		must(backend_host_work(dev, job->stream, 500, do_work, work), "work");
	}
}

/* Until the device has gone on: memory that it still uses may be free then. */
static void await_device(void)
{
	uint64_t seen = atomic_load(&ticks);

	while (atomic_load(&ticks) == seen)
		sched_yield();
}

/* Parks all and brings it back; others hold memory for a while only. */
static void park(uint32_t number)
{
	int ret;

	while ((ret = pool_park(pool, number, UINT64_MAX)) == -EAGAIN)
		sched_yield();
	must(ret, "park");
	while ((ret = pool_unpark(pool, number)) == -EAGAIN)
		sched_yield();
	must(ret, "unpark");
}

static void *run_job(void *arg)
{
	struct job *job = arg;
	struct rng rng;

	rng_seed(&rng, job->seed, 0);
	for (uint64_t step = 0; step < STEPS; step++) {
		uint64_t slot = rng_uniform_u64(&rng, HELD);
		const struct pool_tensor tensor = { job->number, job->stream,
						    (enum tensor_class)rng_uniform_u64(&rng, 3),
						    1 + rng_uniform_u64(&rng, 2 * EXTENT) };

		if (job->va[slot]) {
			must(pool_free(pool, job->number, job->va[slot]), "free");
			job->va[slot] = 0;
		} else if (pool_alloc(pool, &tensor, &job->va[slot]) == 0) {
			queue_work(job, job->va[slot], step);
		} else {
			job->va[slot] = 0;
			await_device();
			(void)!pool_poll(pool);
		}
		if (job->number == 0 && step % 300 == 299)
			park(job->number);
	}
	return NULL;
}

static void *run_clock(void *arg)
{
	(void)arg;
	while (!atomic_load(&over)) {
		backend_host_advance(dev, 300);
		atomic_fetch_add(&ticks, 1);
		sched_yield();
	}
	return NULL;
}

static void *run_operator(void *arg)
{
	(void)arg;
	for (uint64_t i = 0; !atomic_load(&over); i++) {
		struct pool_stats stats;

		must(pool_limit(pool, (16 + i % 8) * EXTENT), "limit");
		must(pool_check(pool), "check");
		pool_stats(pool, &stats);
		(void)pool_room(pool, (uint32_t)(i % JOBS));
		sched_yield();
	}
	return NULL;
}

TEST(pool__threads_of_several_jobs)
{
	const struct backend_host_opts host = { .device_bytes = 24 * EXTENT };
	struct pool_opts opts = { .extent_bytes = EXTENT };
	static const char *const names[JOBS] = { "a", "b", "c" };
	struct job jobs[JOBS];
	pthread_t threads[JOBS], clock, operator;

	must(backend_host_open(&host, &dev), "open");
	opts.backend = dev;
	must(pool_open(&opts, &pool), "pool_open");
	for (int i = 0; i < JOBS; i++) {
		jobs[i] = (struct job){ .seed = test_seed(names[i], (uint64_t)i + 1) };
		must(pool_attach(pool, &(struct pool_job){ .name = names[i] }, &jobs[i].number),
		     "attach");
		must(pool_stream(pool, jobs[i].number, NULL, &jobs[i].stream), "stream");
		assert_int_equal(jobs[i].number, i);
	}
	assert_int_equal(pthread_create(&clock, NULL, run_clock, NULL), 0);
	assert_int_equal(pthread_create(&operator, NULL, run_operator, NULL), 0);
	for (int i = 0; i < JOBS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, run_job, &jobs[i]), 0);
	for (int i = 0; i < JOBS; i++)
		pthread_join(threads[i], NULL);
	atomic_store(&over, true);
	pthread_join(clock, NULL);
	pthread_join(operator, NULL);
	backend_host_advance(dev, UINT64_C(1) << 40);
	for (int i = 0; i < JOBS; i++) {
		while (pool_detach(pool, jobs[i].number) == -EAGAIN)
			backend_host_advance(dev, 1000000);
	}
	assert_int_equal(atomic_load(&wrong), 0);
	assert_true(atomic_load(&checked) > STEPS / 4);
	must(pool_close(&pool), "pool_close");
	dev->ops->close(dev);
}

int main(void)
{
	return test_run(NULL, NULL);
}
