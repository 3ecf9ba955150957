#include "tests/support/attack/debtor.h"

#include "tests/support/attack/mid_call.h"
#include "tests/support/test.h"

#include "relive/relive.h"

#include "base/os/clock.h"

#define ITEMS 256

static void wait_to_pay(void *ctx)
{
	struct debtor *debtor = ctx;

	atomic_store(&debtor->owes, true);
	while (!atomic_load(&debtor->pays))
		processes_sleep_ns(CLOCK_NS_PER_MS);
}

static int run(void *ctx)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct debtor *debtor = ctx;
	const struct rlv_batch *batch;
	float priority[ITEMS];
	struct rlv_store *store;
	struct rlv_table *table;
	struct rlv_sampler *sampler;
	int ret = rlv_store_open("shm:s", NULL, &store);

	for (uint32_t i = 0; i < ITEMS; i++)
		priority[i] = 1.5f;
	if (ret == 0)
		ret = rlv_table_open(store, "t", &table);
	if (ret == 0)
		ret = rlv_sampler_open(table, &opts, &sampler);
	if (ret == 0)
		ret = rlv_sampler_sample(sampler, ITEMS, CLOCK_NS_PER_S, &batch);
	if (ret == 0)
		ret = mid_call_arm(wait_to_pay, debtor);
	if (ret == 0)
		ret = rlv_sampler_set_priorities(sampler, batch->key, priority, ITEMS, NULL);
	atomic_store(&debtor->owes, true); /* after a failure */
	if (ret == 0)
		ret = rlv_sampler_set_priorities(sampler, batch->key, priority, ITEMS, NULL);
	if (ret == 0)
		ret = rlv_sampler_close(&sampler);
	if (ret)
		snprintf(debtor->why, sizeof(debtor->why), "debtor: %s: %s", rlv_error_name(ret),
			 rlv_last_error());
	return ret ? 1 : 0;
}

static bool owes(void *debtor)
{
	return atomic_load(&((struct debtor *)debtor)->owes);
}

pid_t debtor_start(struct processes *ps, struct debtor *debtor, int signal)
{
	pid_t pid;

	atomic_store(&debtor->owes, false);
	pid = processes_fork(ps, run, debtor);
	assert_true(processes_until(owes, debtor));
	if (signal)
		processes_kill(ps, pid, signal);
	return pid;
}
