/*
 * Two jobs and the broker that lends a permit to one at a time, as threads. A job asks by a "message", a lock, if it has
 * no permit. Never do two iterations run, never is one counted twice or not at all; and whenever the broker says that none
 * runs, none does.
 */
#include "wire/lease_permit.h"

#include "tests/support/test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define ITERATIONS 20000u /* of each job */
#define JOBS 2u

static struct job {
	pthread_t id;
	struct lease_permit permit;
	uint64_t counted; /* by the broker, as all below, under its lock */
	bool runs, lent;
	uint64_t by_permit; /* the job's own */
} jobs[JOBS];

static pthread_mutex_t broker = PTHREAD_MUTEX_INITIALIZER;
static uint64_t work; /* of iterations: whoever runs one changes it without a lock */
static _Atomic uint32_t done;
static pthread_barrier_t start;

static void recall_all(void)
{
	for (uint32_t i = 0; i < JOBS; i++) {
		struct lease_permit_use use;

		if (!jobs[i].lent)
			continue;
		use = lease_permit_recall(&jobs[i].permit);
		jobs[i].lent = false;
		jobs[i].counted += use.ended;
		jobs[i].runs = use.runs;
	}
}

static bool ask_begin(struct job *job)
{
	bool may = true;

	pthread_mutex_lock(&broker);
	recall_all();
	for (uint32_t i = 0; i < JOBS; i++)
		may = may && !jobs[i].runs;
	job->runs = may;
	job->lent = may;
	if (may)
		lease_permit_lend(&job->permit, 0);
	pthread_mutex_unlock(&broker);
	return may;
}

static void ask_end(struct job *job)
{
	pthread_mutex_lock(&broker);
	recall_all();
	assert_true(job->runs);
	job->runs = false;
	job->counted++;
	pthread_mutex_unlock(&broker);
}

static void *iterate(void *arg)
{
	struct job *job = arg;

	(void)pthread_barrier_wait(&start);
	for (uint32_t i = 0; i < ITERATIONS; i++) {
		bool permitted = lease_permit_begin(&job->permit, i);

		job->by_permit += permitted;
		while (!permitted && !ask_begin(job))
			sched_yield();
		work++;
		if (i % 16 == 0)
			sched_yield(); /* within an iteration */
		if (!lease_permit_end(&job->permit, i))
			ask_end(job);
		if (i % 16 == 8)
			sched_yield(); /* between two */
	}
	atomic_fetch_add(&done, 1);
	return NULL;
}

TEST(lease_permit__two_jobs_and_recalls)
{
	uint64_t recalls = 0;

	assert_int_equal(pthread_barrier_init(&start, NULL, JOBS + 1), 0);
	for (uint32_t i = 0; i < JOBS; i++)
		assert_int_equal(pthread_create(&jobs[i].id, NULL, iterate, &jobs[i]), 0);
	(void)pthread_barrier_wait(&start);
	while (atomic_load(&done) < JOBS) {
		pthread_mutex_lock(&broker);
		recall_all();
		pthread_mutex_unlock(&broker);
		recalls++;
		sched_yield();
	}
	for (uint32_t i = 0; i < JOBS; i++)
		assert_int_equal(pthread_join(jobs[i].id, NULL), 0);
	recall_all();
	assert_int_equal(work, JOBS * ITERATIONS);
	for (uint32_t i = 0; i < JOBS; i++) {
		assert_int_equal(jobs[i].counted, ITERATIONS);
		assert_false(jobs[i].runs);
		print_message("job %u: %llu of %u by its permit, %llu recalls\n", i,
			      (unsigned long long)jobs[i].by_permit, ITERATIONS,
			      (unsigned long long)recalls);
	}
	assert_true(jobs[0].by_permit + jobs[1].by_permit > 0);
}

int main(void)
{
	return test_run(NULL, NULL);
}
