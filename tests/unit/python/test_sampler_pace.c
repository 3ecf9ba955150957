/*
 * The way to batches ahead of Python's sampler: each is timed, the fastest is kept, and timed again later.
 */
#include "tests/support/test.h"

#include "python/src/sampler/pace.c" /* NOLINT: the extension is no library to link with */

#define DEPTH 3u
#define TIMED (DEPTH + 1 + PACE_GROUPS * GROUP) /* cycles of a way until it has been timed */

/* n cycles, each as long as its way takes. */
static void run(struct pace *p, uint32_t n, const int64_t cost_ns[PACE_WAYS], bool thread_can_pay)
{
	for (uint32_t i = 0; i < n; i++)
		pace_next(p, cost_ns[p->way], DEPTH, thread_can_pay);
}

TEST(pace_next__the_fastest_way_stays)
{
	for (enum pace_way best = PACE_LIBRARY; best < PACE_WAYS; best++) {
		int64_t cost_ns[PACE_WAYS] = { 150, 150, 150 };
		struct pace p = { 0 };

		cost_ns[best] = 100;
		run(&p, 1, cost_ns, true);
		for (enum pace_way way = PACE_LIBRARY; way < PACE_WAYS; way++) {
			assert_int_equal(p.way, way);
			run(&p, TIMED, cost_ns, true);
		}
		for (uint32_t stay = STAY_FIRST; stay <= STAY_MOST; stay *= 2) {
			assert_int_equal(p.way, best);
			run(&p, stay, cost_ns, true);
			assert_int_equal(p.way, best);
			run(&p, 1, cost_ns, true); /* timed again */
			assert_int_equal(p.way, PACE_LIBRARY);
			run(&p, PACE_WAYS * TIMED, cost_ns, true);
		}
		assert_int_equal(p.way, best);
		assert_int_equal(p.stay, STAY_MOST);
	}
}

TEST(pace_next__another_winner_is_checked_soon)
{
	const int64_t before_ns[] = { 100, 150, 150 }, after_ns[] = { 150, 100, 150 };
	struct pace p = { 0 };

	run(&p, 1 + 3 * TIMED + STAY_FIRST + 1 + 3 * TIMED, before_ns, true);
	assert_int_equal(p.way, PACE_LIBRARY);
	assert_int_equal(p.stay, 2 * STAY_FIRST);
	run(&p, 2 * STAY_FIRST + 1 + 3 * TIMED, after_ns, true);
	assert_int_equal(p.way, PACE_CALL);
	assert_int_equal(p.stay, STAY_FIRST);
}

TEST(pace_next__a_thread_that_cannot_pay_is_left_out)
{
	const int64_t cost_ns[] = { 150, 100, 1 };
	struct pace p = { 0 };

	run(&p, 1 + 2 * TIMED, cost_ns, false);
	assert_int_equal(p.way, PACE_CALL);
	assert_false(p.timing);
}

/* Long and short cycles by turns count by their mean; cycles that lost their core do not. */
TEST(pace_next__what_disturbs_a_few_cycles_does_not_count)
{
	struct pace p = { 0 };

	for (uint32_t i = 0; i < 1 + 3 * TIMED; i++) {
		int64_t ns = 100;

		if (p.way == PACE_LIBRARY)
			ns = i % 2 ? 20 : 160; /* mean 90 */
		if (p.way == PACE_LIBRARY && i % 16 == 7)
			ns = 100000;
		pace_next(&p, ns, DEPTH, true);
	}
	assert_int_equal(p.way, PACE_LIBRARY);
	assert_int_equal(p.mean_ns[PACE_LIBRARY], 90);
}

/* While batches of the way before are used up. */
TEST(pace_next__the_first_cycles_of_a_way_do_not_count)
{
	struct pace p = { 0 };
	uint32_t since = 0;
	enum pace_way last = PACE_LIBRARY;

	for (uint32_t i = 0; i < 1 + 3 * TIMED; i++) {
		since = p.way == last ? since + 1 : 1;
		last = p.way;
		pace_next(&p, since <= DEPTH + 1 ? 1 : 100 + (int64_t)p.way, DEPTH, true);
	}
	assert_int_equal(p.way, PACE_LIBRARY);
	assert_int_equal(p.mean_ns[PACE_THREAD], 100 + PACE_THREAD);
}

int main(void)
{
	return test_run(NULL, NULL);
}
