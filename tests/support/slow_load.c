#include "tests/support/slow_load.h"

#include "tests/support/must.h"

static void meet_twice(struct slow_load *slow)
{
	if (!slow->has_met)
		for (int i = 0; i < 2; i++)
			(void)pthread_barrier_wait(&slow->meet);
	slow->has_met = true;
}

static int meet_half_way(void *ctx, uint64_t done, uint64_t total)
{
	if (done > total / 2)
		meet_twice(ctx);
	return 0;
}

static void *load_slowly(void *arg)
{
	struct slow_load *slow = arg;
	struct rlv_table *table = NULL;

	slow->ret = rlv_table_load(slow->store, slow->path, &slow->opts, NULL, &table);
	if (slow->ret == 0)
		slow->ret = rlv_table_close(&table);
	meet_twice(slow); /* it failed early */
	return NULL;
}

void slow_load_begin(struct slow_load *slow)
{
	slow->has_met = false;
	slow->opts.progress = meet_half_way;
	slow->opts.ctx = slow;
	assert_int_equal(pthread_barrier_init(&slow->meet, NULL, 2), 0);
	assert_int_equal(pthread_create(&slow->thread, NULL, load_slowly, slow), 0);
	(void)pthread_barrier_wait(&slow->meet);
}

int slow_load_end(struct slow_load *slow)
{
	(void)pthread_barrier_wait(&slow->meet);
	assert_int_equal(pthread_join(slow->thread, NULL), 0);
	(void)pthread_barrier_destroy(&slow->meet);
	return slow->ret;
}
