/* Where jobs go, by the needs of those that are there. */
#include <errno.h>

#include "device/placement.h"
#include "tests/support/must.h"
#include "tests/support/test.h"

#define DEVICES 3u

static struct gate gates[DEVICES];
static struct curve curves[16];
static uint32_t n_curves;

static void open_gates(enum gate_order order, const uint64_t budgets[DEVICES])
{
	n_curves = 0;
	for (uint32_t i = 0; i < DEVICES; i++) {
		const struct gate_opts opts = { .order = order, .budget = budgets[i] };

		must(gate_init(&gates[i], &opts, 8), "gate_init");
	}
}

static void close_gates(void)
{
	for (uint32_t i = 0; i < DEVICES; i++)
		gate_destroy(&gates[i]);
}

/* Places a job and enters it. Returns its device, or an error. */
static int place(uint64_t persistent, uint64_t peak)
{
	const struct gate *all[DEVICES] = { &gates[0], &gates[1], &gates[2] };
	struct gate_request request = { .persistent = persistent, .curve = &curves[n_curves] };
	uint32_t device, job;
	int ret;

	curves[n_curves++] = (struct curve){ .peak = peak };
	ret = placement_choose(all, DEVICES, &request, &device);
	if (ret)
		return ret;
	must(gate_arrive(&gates[device], &request, &job), "gate_arrive");
	return (int)device;
}

TEST(placement__spreads_by_room)
{
	open_gates(GATE_FIFO, (const uint64_t[]){ 100, 100, 200 });
	assert_int_equal(place(40, 20), 2);
	/* with it: 0.6, 0.6, 0.5 of each */
	assert_int_equal(place(40, 20), 2);
	/* 0.6, 0.6, 0.7 */
	assert_int_equal(place(40, 20), 0);
	/* 0.8, 0.4, 0.6 */
	assert_int_equal(place(20, 20), 1);
	/* 0.9, 0.7, 0.65 */
	assert_int_equal(place(30, 20), 2);
	close_gates();
}

TEST(placement__pack_fills_the_fullest_that_has_room)
{
	open_gates(GATE_PACK, (const uint64_t[]){ 100, 100, 100 });
	assert_int_equal(place(40, 20), 0);
	assert_int_equal(place(20, 20), 0);
	assert_int_equal(place(40, 20), 1);
	assert_int_equal(place(15, 20), 0);
	assert_int_equal(place(90, 10), 2);
	close_gates();
}

TEST(placement__waits_where_least_is_asked_and_never_where_it_cannot_run)
{
	open_gates(GATE_FIFO, (const uint64_t[]){ 100, 60, 50 });
	assert_int_equal(place(80, 20), 0);
	assert_int_equal(place(60, 0), 1);
	assert_int_equal(place(50, 0), 2);
	/* 1.2, 1.33, 1.4 times the budget */
	assert_int_equal(place(20, 20), 0);
	/* only the first could ever run it, however many wait there */
	assert_int_equal(place(100, 0), 0);
	expect(place(100, 1), -ENOSPC);
	close_gates();
}

TEST(placement__device_that_is_not_asked_gets_none)
{
	const struct curve curve = { .peak = 1 };
	struct gate_request request = { .persistent = 1, .curve = &curve };
	const struct gate *all[DEVICES] = { NULL, &gates[1], NULL };
	uint32_t device;

	open_gates(GATE_FIFO, (const uint64_t[]){ 100, 10, 100 });
	must(placement_choose(all, DEVICES, &request, &device), "choose");
	assert_int_equal(device, 1);
	close_gates();
}

int main(void)
{
	return test_run(NULL, NULL);
}
