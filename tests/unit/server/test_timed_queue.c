/* Queues of things that end when their time is over. */
#include "tests/support/test.h"

#include "server/net/timed_queue.h"

#include "base/os/clock.h"

TEST(timed_queue_add__keeps_the_order_and_takes_from_the_former)
{
	struct timed_queue a = { .limit_ns = CLOCK_NS_PER_S }, b = { .limit_ns = 1 };
	struct timed_link links[3] = { { .until = 0 } };

	for (int i = 0; i < 3; i++)
		timed_queue_add(&a, &links[i]);
	assert_int_equal(a.n, 3);
	assert_ptr_equal(a.first, &links[0]);
	assert_true(timed_queue_end(&a) == links[0].until);
	timed_queue_add(&b, &links[1]);
	assert_int_equal(a.n, 2);
	assert_int_equal(b.n, 1);
	assert_ptr_equal(a.first->next, &links[2]);
	timed_queue_remove(&links[0]);
	timed_queue_remove(&links[0]);
	assert_ptr_equal(a.first, &links[2]);
	assert_ptr_equal(a.last, &links[2]);
	assert_int_equal(a.n, 1);
}

TEST(timed_queue_ended__only_when_the_time_is_over)
{
	struct timed_queue later = { .limit_ns = 3600 * CLOCK_NS_PER_S }, never = { 0 };
	struct timed_queue soon = { .limit_ns = 1 };
	struct timed_link links[3] = { { .until = 0 } };

	assert_null(timed_queue_ended(&soon));
	assert_true(timed_queue_end(&soon) == UINT64_MAX);
	timed_queue_add(&later, &links[0]);
	timed_queue_add(&never, &links[1]);
	timed_queue_add(&soon, &links[2]);
	while (!timed_queue_ended(&soon))
		;
	assert_ptr_equal(timed_queue_ended(&soon), &links[2]);
	assert_null(timed_queue_ended(&later));
	assert_null(timed_queue_ended(&never));
	assert_true(timed_queue_end(&never) == UINT64_MAX);
}

int main(void)
{
	return test_run(NULL, NULL);
}
