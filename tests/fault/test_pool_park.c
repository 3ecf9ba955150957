/* Parking: tensors go to the host's memory and come back whole, whichever call or allocation fails. */
#include <errno.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "device/backend_fault.h"
#include "device/host/backend_host.h"
#include "device/pool_park.h"
#include "tests/support/must.h"
#include "tests/support/test.h"

#define EXTENT ((uint64_t)16 << 10)
#define DEVICE 8u
#define RATE 16u /* bytes a us: a copy of an extent takes 1024 us */
#define COPY_NS (EXTENT / RATE * 1000)

struct scene {
	struct backend *host;
	struct backend_fault fault;
	struct pool *pool;
	uint32_t one, two, stream, other, stream_two;
	uint64_t va[4];
};

static struct scene s;

static void begin_mode(bool strict, uint64_t rate)
{
	const struct backend_host_opts host = { .device_bytes = DEVICE * EXTENT,
						.bytes_per_us = rate };
	struct pool_opts opts = { .extent_bytes = EXTENT, .strict = strict };

	must(backend_host_open(&host, &s.host), "open");
	backend_fault_init(&s.fault, s.host, 0, -ENOMEM);
	opts.backend = &s.fault.base;
	must(pool_open(&opts, &s.pool), "pool_open");
	must(pool_attach(s.pool, &(struct pool_job){ .name = "one" }, &s.one), "attach");
	must(pool_attach(s.pool, &(struct pool_job){ .name = "two" }, &s.two), "attach");
	must(pool_stream(s.pool, s.one, NULL, &s.stream), "stream");
	must(pool_stream(s.pool, s.one, NULL, &s.other), "stream");
	must(pool_stream(s.pool, s.two, NULL, &s.stream_two), "stream");
}

static int begin(void **state)
{
	(void)state;
	begin_mode(false, RATE);
	return 0;
}

static int begin_strict(void **state)
{
	(void)state;
	begin_mode(true, RATE);
	return 0;
}

static void detach(uint32_t job)
{
	int ret;

	while ((ret = pool_detach(s.pool, job)) == -EAGAIN)
		backend_host_advance(s.host, COPY_NS);
	must(ret, "pool_detach");
}

static int end(void **state)
{
	(void)state;
	detach(s.one);
	detach(s.two);
	must(pool_check(s.pool), "pool_check");
	must(pool_close(&s.pool), "pool_close");
	s.host->ops->close(s.host);
	return 0;
}

static uint64_t take(uint32_t job, uint64_t extents, int value)
{
	const struct pool_tensor tensor = { job, job == s.one ? s.stream : s.stream_two,
					    TENSOR_PERSISTENT, extents * EXTENT };
	uint64_t va;

	must(pool_alloc(s.pool, &tensor, &va), "pool_alloc");
	memset((void *)(uintptr_t)va, value, extents * EXTENT);
	return va;
}

static void check_bytes(uint64_t va, uint64_t extents, int value)
{
	const uint8_t *bytes = (const uint8_t *)(uintptr_t)va;

	for (uint64_t i = 0; i < extents * EXTENT; i++)
		assert_int_equal(bytes[i], value);
}

/* Four tensors: of 1, 2, 1 and, over extents that are not in a row, 2 extents. */
static void take_all(void)
{
	uint64_t gap;

	s.va[0] = take(s.one, 1, 0x10);
	gap = take(s.one, 1, 0xee);
	s.va[1] = take(s.one, 2, 0x11);
	s.va[2] = take(s.one, 1, 0x12);
	(void)take(s.two, 2, 0x20);
	must(pool_free(s.pool, s.one, gap), "free");
	for (int i = 0; i < 3; i++) { /* in strict mode it is scrubbed */
		backend_host_advance(s.host, COPY_NS);
		must(pool_poll(s.pool), "poll");
	}
	s.va[3] = take(s.one, 2, 0x13);
}

static void check_all(void)
{
	static const uint64_t extents[] = { 1, 2, 1, 2 };

	for (int i = 0; i < 4; i++)
		check_bytes(s.va[i], extents[i], 0x10 + i);
}

static uint64_t created(void)
{
	struct pool_stats stats;

	pool_stats(s.pool, &stats);
	return stats.created / EXTENT;
}

/* Parks with the device's progress, until it is done or an error. */
static int park(uint64_t bytes)
{
	int ret;

	while ((ret = pool_park(s.pool, s.one, bytes)) == -EAGAIN)
		backend_host_advance(s.host, COPY_NS);
	return ret;
}

/* Waits for all tensors. Returns the number of other failures, of which there is one at most. */
static int wait_ready(void)
{
	int failures = 0;

	for (int i = 0; i < 4; i++) {
		int ret;

		while ((ret = pool_ready(s.pool, s.one, s.va[i])) != 0) {
			failures += ret != -EAGAIN;
			assert_true(failures < 2);
			backend_host_advance(s.host, COPY_NS);
		}
	}
	return failures;
}

static void round_trip(void)
{
	uint64_t before;

	take_all();
	before = created();
	must(park(UINT64_MAX), "park");
	assert_int_equal(created(), before - 6);
	assert_int_equal(pool_parked(s.pool, s.one), 6 * EXTENT);
	must(pool_check(s.pool), "pool_check");
	must(pool_unpark(s.pool, s.one), "unpark");
	assert_int_equal(wait_ready(), 0);
	check_all();
	assert_int_equal(pool_parked(s.pool, s.one), 0);
	assert_int_equal(created(), before);
}

TEST_WITH(pool_park__bytes_come_back_where_they_were, begin, end)
{
	round_trip();
}

TEST_WITH(pool_park__bytes_come_back_in_strict_mode, begin_strict, end)
{
	round_trip();
}

TEST_WITH(pool_park__furthest_next_use_goes_first, begin, end)
{
	static const int order[] = { 2, 0, 3, 1 };

	take_all();
	pool_iterate(s.pool, s.one);
	for (int i = 0; i < 4; i++)
		must(pool_use(s.pool, s.one, s.va[order[i]], s.stream), "use");
	must(pool_use(s.pool, s.one, s.va[2], s.stream), "use again");
	must(park(3 * EXTENT), "park");
	expect(pool_ready(s.pool, s.one, s.va[1]), -EBUSY);
	expect(pool_ready(s.pool, s.one, s.va[3]), -EBUSY);
	must(pool_ready(s.pool, s.one, s.va[0]), "still there");
	must(pool_ready(s.pool, s.one, s.va[2]), "still there");
	must(park(UINT64_MAX), "park");
	must(pool_unpark(s.pool, s.one), "unpark");
	for (int i = 0; i < 4; i++) { /* the job works with one while the next are copied */
		while (pool_ready(s.pool, s.one, s.va[order[i]]) == -EAGAIN)
			backend_host_advance(s.host, COPY_NS / 4);
		for (int k = i + 1; k < 4; k++)
			expect(pool_ready(s.pool, s.one, s.va[order[k]]), -EAGAIN);
	}
	check_all();
}

static void write_late(void *va)
{
	memset(va, 0x77, EXTENT);
}

TEST_WITH(pool_park__waits_for_the_work_of_all_streams, begin, end)
{
	uint64_t bytes;

	take_all();
	must(pool_use(s.pool, s.one, s.va[0], s.other), "use");
	must(backend_host_work(s.host, s.other, 5 * COPY_NS, write_late,
			       (void *)(uintptr_t)s.va[0]),
	     "work");
	expect(pool_park(s.pool, s.one, UINT64_MAX), -EAGAIN);
	expect(pool_use(s.pool, s.one, s.va[0], s.stream), -EBUSY);
	expect(pool_free(s.pool, s.one, s.va[0]), -EBUSY);
	expect(pool_alloc(s.pool, &(struct pool_tensor){ s.one, s.stream, TENSOR_ITERATION, 1 },
			  &bytes),
	       -EBUSY);
	must(park(UINT64_MAX), "park");
	must(pool_unpark(s.pool, s.one), "unpark");
	assert_int_equal(wait_ready(), 0);
	check_bytes(s.va[0], 1, 0x77);
	check_bytes(s.va[3], 2, 0x13);
}

TEST_WITH(pool_unpark__job_that_did_not_get_away_is_there, begin, end)
{
	take_all();
	must(backend_host_work(s.host, s.stream, COPY_NS, NULL, NULL), "work");
	for (int steps = 0; steps < 8; steps++) {
		for (int i = 0; i < steps; i++) {
			(void)!pool_park(s.pool, s.one, UINT64_MAX);
			backend_host_advance(s.host, COPY_NS / 2);
		}
		must(pool_unpark(s.pool, s.one), "unpark");
		must(pool_use(s.pool, s.one, s.va[1], s.stream), "use");
		assert_int_equal(wait_ready(), 0);
		check_all();
	}
}

TEST_WITH(pool_detach__parked_job_leaves_nothing, begin_strict, end)
{
	take_all();
	expect(pool_park(s.pool, s.one, UINT64_MAX), -EAGAIN);
	backend_host_advance(s.host, COPY_NS + 1);
	expect(pool_park(s.pool, s.one, UINT64_MAX), -EAGAIN);
}

/* Goes on after a failure, which must leave every byte. */
static int park_and_return(void)
{
	int failures = 0;

	while (park(UINT64_MAX)) {
		assert_true(++failures < 3);
		error_clear();
	}
	while (pool_unpark(s.pool, s.one))
		assert_true(++failures < 3);
	failures += wait_ready();
	check_all();
	must(pool_check(s.pool), "pool_check");
	return failures;
}

TEST_WITH(pool_park__each_call_of_the_backend_fails_once, begin, end)
{
	uint64_t n = 1;

	take_all();
	for (;; n++) {
		s.fault.calls = 0;
		s.fault.fail_at = n;
		if (!park_and_return() && s.fault.calls < n)
			break;
	}
	s.fault.fail_at = 0;
	assert_true(n > 30);
}

TEST_WITH(pool_park__each_allocation_fails_once, begin, end)
{
	uint64_t n = 1;

	take_all();
	do
		mem_fail_after(n++);
	while (park_and_return() || mem_fail_fired());
	mem_fail_after(0);
	assert_true(n > 4);
}

TEST_WITH(pool_park__full_host_keeps_the_job_whole, begin, end)
{
	take_all();
	mem_fail_after(1);
	expect(pool_park(s.pool, s.one, UINT64_MAX), -ENOMEM);
	mem_fail_after(0);
	assert_int_equal(pool_parked(s.pool, s.one), 0);
	must(pool_use(s.pool, s.one, s.va[0], s.stream), "use");
	check_all();
}

/* -------- by pieces that the test keeps -------- */

#define PIECE (EXTENT / 2)
#define PIECES 12u /* of all tensors */

static uint8_t kept[2 * PIECES][PIECE];

static int copy_piece(const struct pool_piece *piece, bool out)
{
	struct marks marks;
	int ret;

	assert_true(piece->number < 2 * PIECES);
	assert_int_equal(piece->bytes, PIECE);
	ret = pool_piece_copy(s.pool, piece, kept[piece->number], out, &marks);
	if (ret) { /* the copy may be queued: its end is seen all the same */
		for (int i = 0; pool_reached(s.pool, &marks); i++) {
			assert_true(i < 8);
			backend_host_advance(s.host, COPY_NS);
		}
		return ret;
	}
	while ((ret = pool_reached(s.pool, &marks)) == -EAGAIN)
		backend_host_advance(s.host, COPY_NS);
	return ret;
}

static int send(void)
{
	struct pool_piece piece;
	int ret;

	while ((ret = pool_hold(s.pool, s.one)) == -EAGAIN)
		backend_host_advance(s.host, COPY_NS);
	while (ret == 0 && (ret = pool_piece(s.pool, s.one, true, PIECE, &piece)) == 0)
		ret = copy_piece(&piece, true);
	return ret == -ENODATA ? pool_leave_pieces(s.pool, s.one) : ret;
}

/* Fetches so many pieces, or all. */
static int fetch(uint32_t n)
{
	struct pool_piece piece;
	int ret = 0;

	while (n-- && (ret = pool_piece(s.pool, s.one, false, PIECE, &piece)) == 0) {
		ret = copy_piece(&piece, false);
		if (ret)
			break;
	}
	return ret == -ENODATA ? 0 : ret;
}

TEST_WITH(pool_piece__bytes_come_back_from_where_the_caller_kept_them, begin, end)
{
	uint64_t before;

	take_all();
	before = created();
	must(send(), "send");
	assert_int_equal(created(), before - 6);
	assert_int_equal(pool_parked(s.pool, s.one), 6 * EXTENT);
	must(pool_unpark(s.pool, s.one), "unpark brings none of them");
	expect(pool_ready(s.pool, s.one, s.va[0]), -EBUSY);
	expect(pool_free(s.pool, s.one, s.va[0]), -EBUSY);
	must(send(), "send again");
	must(fetch(PIECES), "fetch");
	assert_int_equal(wait_ready(), 0);
	assert_int_equal(pool_parked(s.pool, s.one), 0);
	assert_int_equal(created(), before);
	check_all();
}

TEST_WITH(pool_piece__job_whose_pieces_nobody_kept_is_whole, begin, end)
{
	struct pool_piece piece;

	take_all();
	must(backend_host_work(s.host, s.stream, COPY_NS, NULL, NULL), "work");
	expect(pool_hold(s.pool, s.one), -EAGAIN);
	expect(pool_use(s.pool, s.one, s.va[0], s.stream), -EBUSY);
	backend_host_advance(s.host, 2 * COPY_NS);
	must(pool_hold(s.pool, s.one), "hold");
	must(pool_piece(s.pool, s.one, true, PIECE, &piece), "piece");
	must(copy_piece(&piece, true), "copy");
	memset(kept, 0xff, sizeof(kept));
	must(pool_unpark(s.pool, s.one), "unpark");
	assert_int_equal(wait_ready(), 0);
	check_all();
	must(send(), "send");
	must(fetch(PIECES), "fetch");
	assert_int_equal(wait_ready(), 0);
	check_all();
}

TEST_WITH(pool_piece__nearest_next_use_comes_first, begin, end)
{
	static const int order[] = { 2, 0, 3, 1 };

	take_all();
	pool_iterate(s.pool, s.one);
	for (int i = 0; i < 4; i++)
		must(pool_use(s.pool, s.one, s.va[order[i]], s.stream), "use");
	must(send(), "send");
	for (int i = 0; i < 4; i++) {
		must(fetch(order[i] % 2 ? 4 : 2), "fetch");
		for (int k = 0; k < 4; k++)
			expect(pool_ready(s.pool, s.one, s.va[order[k]]), k <= i ? 0 : -EBUSY);
	}
	check_all();
}

TEST_WITH(pool_piece__job_that_came_back_in_part_leaves_again, begin_strict, end)
{
	take_all();
	must(send(), "send");
	must(fetch(3), "fetch the first tensor, and a part of the next");
	must(send(), "send again");
	must(fetch(2 * PIECES), "fetch");
	assert_int_equal(wait_ready(), 0);
	check_all();
	must(send(), "send");
	must(fetch(1), "fetch"); /* and the job ends */
}

/* Goes on after a failure, which must leave every byte. */
static int send_and_fetch(void)
{
	int failures = 0;

	while (send()) {
		assert_true(++failures < 3);
		while (pool_unpark(s.pool, s.one))
			assert_true(++failures < 3);
		error_clear();
	}
	while (fetch(2 * PIECES))
		assert_true(++failures < 3);
	failures += wait_ready();
	check_all();
	must(pool_check(s.pool), "pool_check");
	return failures;
}

TEST_WITH(pool_piece__each_call_of_the_backend_fails_once, begin, end)
{
	uint64_t n = 1;

	take_all();
	for (;; n++) {
		s.fault.calls = 0;
		s.fault.fail_at = n;
		if (!send_and_fetch() && s.fault.calls < n)
			break;
	}
	s.fault.fail_at = 0;
	assert_true(n > 60);
}

int main(void)
{
	return test_run(NULL, NULL);
}
