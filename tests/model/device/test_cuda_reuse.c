/*
 * Random schedules of jobs that share extents of the cuda backend by marks alone: an extent goes to another
 * stream when the mark behind its last use is reached, and never earlier. The fake driver sees every use
 * of memory that other work still has, and late work would leave its bytes. The control ignores marks.
 *
 * Jobs are killed, too: one that is killed queues nothing more, its process ends when the device is done with it,
 * and then its extents are free at once, whatever their marks; another job takes its place, with a new stream.
 */
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/rng.h"
#include "device/cuda/backend_cuda.h"
#include "tests/support/fake/fake_cuda.h"

#define EXTENT ((uint64_t)2 << 20)
#define EXTENTS 6
#define JOBS 4
#define TOUCHED 64u /* bytes that a job writes at both ends */
#define KILL_EVERY 300u

struct held {
	uint64_t va;
	int job;       /* that last had it, or -1 */
	uint64_t seq;  /* the mark behind its work */
	uint8_t value; /* which that work leaves */
};

enum way { MARKS, EVENTS, SHARED_EVENTS };

static struct {
	const struct fakecuda_control *fake;
	struct backend_progress *page; /* of shared events */
	struct backend *dev;
	uint32_t streams[JOBS];
	uint64_t seqs[JOBS]; /* by number of the stream: they go on in the next job that has it */
	struct held extents[EXTENTS];
	bool dies[JOBS];
	uint64_t uses, hand_overs, waits, kills;
} pool;

/* The page of a backend that was open before. */
static int page_made(void)
{
	struct backend *first;
	int fd;

	assert_int_equal(backend_cuda_open(&(struct backend_cuda_opts){ 0 }, &first), 0);
	assert_int_equal(first->ops->progress_export(first, &fd), 0);
	first->ops->close(first);
	return fd;
}

static void pool_open(enum way way)
{
	struct backend_cuda_opts opts = { .events = way != MARKS };
	uint64_t va, handle;

	memset(&pool, 0, sizeof(pool));
	pool.fake = fake_cuda_open();
	pool.fake->reset();
	pool.fake->watch_reuse(true);
	if (way == SHARED_EVENTS)
		opts.page_fd = page_made();
	assert_int_equal(backend_cuda_open(&opts, &pool.dev), 0);
	if (opts.page_fd) {
		pool.page = mmap(NULL, sizeof(*pool.page), PROT_READ, MAP_SHARED, opts.page_fd, 0);
		assert_ptr_not_equal(pool.page, MAP_FAILED);
		(void)close(opts.page_fd);
	}
	for (int job = 0; job < JOBS; job++)
		assert_int_equal(pool.dev->ops->stream_open(pool.dev, NULL, &pool.streams[job]), 0);
	for (int i = 0; i < EXTENTS; i++) {
		assert_int_equal(pool.dev->ops->reserve(pool.dev, EXTENT, &va), 0);
		assert_int_equal(pool.dev->ops->extent_create(pool.dev, EXTENT, &handle), 0);
		assert_int_equal(pool.dev->ops->map(pool.dev, va, EXTENT, handle), 0);
		assert_int_equal(
			pool.dev->ops->set_access(pool.dev, va, EXTENT, BACKEND_ACCESS_READ_WRITE),
			0);
		pool.extents[i] = (struct held){ .va = va, .job = -1 };
	}
	pool.fake->hold(1000);
}

/* Of shared events the jobs' own marks are not looked at: as a broker does it, for a process that is stopped. */
static bool quiet(const struct held *held)
{
	uint64_t seq;

	if (pool.page) {
		const struct backend_event *event = &pool.page->events[pool.streams[held->job]];
		int ret = pool.dev->ops->event_ask(pool.dev, event->handle);

		assert_true(ret == 0 || ret == -EAGAIN);
		return ret == 0;
	}
	assert_int_equal(pool.dev->ops->stream_progress(pool.dev, pool.streams[held->job], &seq),
			 0);
	return seq >= held->seq;
}

/* A use of an extent by a job: both ends of it, then a mark. */
static void use(struct held *held, int job, uint8_t value)
{
	const struct backend_ops *ops = pool.dev->ops;
	uint64_t *seq = &pool.seqs[pool.streams[job]];

	assert_int_equal(ops->fill(pool.dev, pool.streams[job], held->va, TOUCHED, value), 0);
	assert_int_equal(
		ops->fill(pool.dev, pool.streams[job], held->va + EXTENT - TOUCHED, TOUCHED, value),
		0);
	assert_int_equal(ops->stream_mark(pool.dev, pool.streams[job], ++*seq), 0);
	held->job = job;
	held->seq = *seq;
	held->value = value;
	pool.uses++;
}

/* What the last owner wrote is there, once its mark is reached. */
static void bytes_are_right(const struct held *held)
{
	const uint8_t *bytes = (const uint8_t *)(uintptr_t)held->va;

	assert_int_equal(bytes[0], held->value);
	assert_int_equal(bytes[EXTENT - 1], held->value);
}

/* Ends the process of a job that was killed, if the device is done with its work. */
static void end_of(int job)
{
	int ret = pool.dev->ops->stream_close(pool.dev, pool.streams[job]);

	if (ret == -EBUSY)
		return;
	assert_int_equal(ret, 0);
	for (int i = 0; i < EXTENTS; i++) {
		if (pool.extents[i].job == job)
			pool.extents[i].job = -1;
	}
	assert_int_equal(pool.dev->ops->stream_open(pool.dev, NULL, &pool.streams[job]), 0);
	assert_true(pool.streams[job] < JOBS);
	pool.dies[job] = false;
	pool.kills++;
}

static void step(struct rng *rng, bool careful)
{
	struct held *held = &pool.extents[rng_uniform_u64(rng, EXTENTS)];
	int job = (int)rng_uniform_u64(rng, JOBS);

	if (rng_uniform_u64(rng, 3) == 0)
		pool.fake->advance(rng_uniform_u64(rng, 8000));
	for (int i = 0; i < JOBS; i++) {
		if (pool.dies[i])
			end_of(i);
	}
	pool.dies[job] |= rng_uniform_u64(rng, KILL_EVERY) == 0;
	if (pool.dies[job])
		return;
	if (held->job >= 0 && held->job != job && careful) {
		if (!quiet(held)) {
			pool.waits++;
			return; /* the ledger keeps it from the job */
		}
		bytes_are_right(held);
		pool.hand_overs++;
	}
	use(held, job, (uint8_t)rng_next_u64(rng));
}

static void pool_close(void)
{
	pool.dev->ops->close(pool.dev);
	if (pool.page)
		(void)munmap(pool.page, sizeof(*pool.page));
	pool.fake->reset();
}

static uint64_t schedule(enum way way, bool careful, int steps)
{
	uint64_t violations;
	struct rng rng;

	pool_open(way);
	rng_seed(&rng, test_seed("schedule", 23), way);
	for (int i = 0; i < steps; i++)
		step(&rng, careful);
	violations = pool.fake->violations(NULL, 0);
	print_message("%llu uses, %llu hand-overs, %llu refused, %llu kills, %llu early\n",
		      (unsigned long long)pool.uses, (unsigned long long)pool.hand_overs,
		      (unsigned long long)pool.waits, (unsigned long long)pool.kills,
		      (unsigned long long)violations);
	pool_close();
	return violations;
}

static int steps_wanted(void)
{
	const char *text = getenv("RLV_TEST_SCHEDULES");

	return text ? atoi(text) : 20000;
}

TEST(reuse__never_early_by_marks)
{
	assert_int_equal(schedule(MARKS, true, steps_wanted()), 0);
	assert_true(pool.hand_overs > 1000 && pool.waits > 1000 && pool.kills > 10);
}

TEST(reuse__never_early_by_events)
{
	assert_int_equal(schedule(EVENTS, true, steps_wanted() / 4), 0);
	assert_true(pool.hand_overs > 100 && pool.waits > 100);
}

TEST(reuse__never_early_by_shared_events)
{
	assert_int_equal(schedule(SHARED_EVENTS, true, steps_wanted() / 4), 0);
	assert_true(pool.hand_overs > 100 && pool.waits > 100 && pool.kills > 1);
}

TEST(reuse__early_is_seen_where_marks_are_ignored)
{
	assert_true(schedule(MARKS, false, 2000) > 100);
}

int main(void)
{
	return test_run(NULL, NULL);
}
