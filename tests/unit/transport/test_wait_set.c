/*
 * Chains of several transports at once, over wires: each in its order, all of them one phase,
 * whatever their length; and what the wire itself does to code that looks too early.
 */
#include "tests/support/test.h"
#include "tests/support/fake/wire_transport.h"

#include "tests/support/fake/fault.h"
#include "transport/transport.h"
#include "transport/wait_set.h"

#include "wire/region.h"

#include <errno.h>
#include <string.h>

#define NODES 3
#define CLIENT 5
#define LONG 1000 /* operations */

struct side {
	struct transport_target *tg;
	struct transport *fault;
	struct transport *tr;
	struct region *region;
};

static struct side sides[NODES];
static struct transport_wr wrs[NODES][LONG];
static struct wait_set set;

static void side_open(struct side *side)
{
	const struct target_opts opts = { .pool_bytes = 8u << 20, .private_memory = true };
	struct target_region spec = { .role = REGION_ROWS, .size = 2u << 20 };
	struct transport_opts tropts = { .client_id = CLIENT };
	struct region_grant grant;

	assert_int_equal(transport_target_open("shm", &opts, &side->tg), 0);
	assert_int_equal(side->tg->ops->register_region(side->tg, &spec), 0);
	assert_int_equal(transport_grant(side->tg, CLIENT, spec.id, RIGHT_ALL, &grant), 0);
	tropts.target = side->tg;
	assert_int_equal(transport_open("embed:", &tropts, &side->tr), 0);
	assert_int_equal(fault_wrap(side->tr, NULL, &side->fault), 0);
	side->tr = wire_wrap(side->fault);
	assert_int_equal(transport_attach(side->tr, &grant, &side->region), 0);
}

static int setup(void **state)
{
	(void)state;
	for (int i = 0; i < NODES; i++)
		side_open(&sides[i]);
	memset(wrs, 0, sizeof(wrs));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (int i = 0; i < NODES; i++) {
		transport_detach(&sides[i].region);
		transport_close(&sides[i].tr);
		transport_target_close(&sides[i].tg);
	}
	return 0;
}

static uint64_t phases(void)
{
	uint64_t sum = 0;

	for (int i = 0; i < NODES; i++)
		sum += sides[i].tr->stats.phases;
	return sum;
}

/* n additions of one to a word: each returns the sum of those before it. */
static void count_up(int side, size_t n)
{
	for (size_t i = 0; i < n; i++)
		wrs[side][i] = (struct transport_wr){
			.verb = VERB_FAA,
			.atomic = { .region = sides[side].region, .off = 64, .value = 1 },
		};
}

#define CASE(fn) TEST_WITH(fn, setup, teardown)

CASE(wait_set__chains_of_any_length_are_one_phase)
{
	uint64_t before = phases();

	wait_set_begin(&set);
	for (int i = 0; i < NODES; i++) {
		count_up(i, LONG);
		wait_set_chain(&set, sides[i].tr, wrs[i], LONG);
	}
	assert_int_equal(wait_set_wait(&set), 0);
	assert_int_equal(phases() - before, 1);
	for (int i = 0; i < NODES; i++)
		for (uint64_t k = 0; k < LONG; k++) {
			assert_int_equal(wrs[i][k].atomic.status, ATOMIC_DONE);
			assert_int_equal(wrs[i][k].atomic.old, k);
		}
}

CASE(wait_set__chains_of_one_transport_follow_each_other)
{
	uint64_t word = 0;
	struct transport_wr read = {
		.verb = VERB_READ,
		.io = { .region = sides[0].region, .off = 64, .dst = &word, .len = 8 },
	};

	count_up(0, 300);
	wait_set_begin(&set);
	wait_set_chain(&set, sides[0].tr, wrs[0], 300);
	wait_set_chain(&set, sides[0].tr, &read, 1);
	assert_int_equal(wait_set_wait(&set), 0);
	assert_int_equal(word, 300);
}

CASE(transport_run__a_full_queue_is_waited_for)
{
	struct transport_wr old[64];
	uint64_t ticket;

	count_up(0, 1);
	for (int i = 0; i < 64; i++) {
		old[i] = wrs[0][0];
		while (transport_submit(sides[0].tr, &old[i], 1, SUBMIT_ORDERED, &ticket) ==
		       -EAGAIN)
			fail_msg("the queue was full before");
	}
	assert_int_equal(transport_run(sides[0].tr, wrs[0], 1), 0);
	assert_int_equal(wrs[0][0].atomic.old, 64);
}

CASE(wait_set__one_lost_connection_spoils_no_other)
{
	const struct fault_plan plan = { .cut_at = 1 };

	fault_set(sides[1].fault, &plan);
	wait_set_begin(&set);
	for (int i = 0; i < NODES; i++) {
		count_up(i, 3);
		wait_set_chain(&set, sides[i].tr, wrs[i], 3);
	}
	assert_int_equal(wait_set_wait(&set), -ECONNRESET);
	assert_int_equal(set.legs[0].error, 0);
	assert_int_equal(set.legs[1].error, -ECONNRESET);
	assert_int_equal(set.legs[2].error, 0);
	assert_int_equal(sides[1].tr->broken, -ECONNRESET);
	assert_int_equal(wrs[2][2].atomic.old, 2);
	assert_int_equal(wrs[1][0].atomic.status, ATOMIC_UNKNOWN);
}

/* -------- reads in lots -------- */

#define LOTS (WAIT_LEGS / NODES + 10) /* more than a set has legs for */

static uint64_t lot_words[LOTS][NODES];

/* Adds a READ of each node; its word says which lot and node. Returns what wait_set_wait_first takes. */
static uint32_t add_lot(uint32_t lot)
{
	struct transport_io io[NODES];

	for (uint32_t i = 0; i < NODES; i++) {
		uint64_t word = lot * NODES + i + 1;

		assert_int_equal(transport_store(sides[i].region, 64 * lot, &word, 8), 0);
		lot_words[lot][i] = 0;
		io[i] = (struct transport_io){ .region = sides[i].region,
					       .off = 64 * lot,
					       .dst = &lot_words[lot][i],
					       .len = 8 };
	}
	assert_int_equal(wait_set_add_reads(&set, io, NODES), 0);
	return set.n;
}

static void expect_lot(uint32_t lot)
{
	for (uint32_t i = 0; i < NODES; i++)
		assert_int_equal(lot_words[lot][i], lot * NODES + i + 1);
}

CASE(wait_set_wait_first__what_was_added_later_stays_outstanding)
{
	uint32_t reads[3];
	uint64_t before;

	wait_set_begin(&set);
	for (uint32_t lot = 0; lot < 3; lot++)
		reads[lot] = add_lot(lot);
	before = phases();
	assert_int_equal(wait_set_wait_first(&set, reads[0]), 0);
	expect_lot(0);
	assert_int_equal(set.n, reads[2]);
	while (wait_set_look_first(&set, reads[1]) == -EAGAIN)
		continue;
	expect_lot(1);
	assert_int_equal(set.n, reads[2]);
	assert_int_equal(wait_set_wait(&set), 0);
	expect_lot(2);
	assert_int_equal(set.n, 0);
	assert_int_equal(phases() - before, 1); /* of all three */
	assert_int_equal(wait_set_wait_first(&set, reads[2]), 0);
}

CASE(wait_set_add_reads__a_full_set_is_waited_for)
{
	uint32_t reads[LOTS];

	wait_set_begin(&set);
	for (uint32_t lot = 0; lot < LOTS; lot++)
		reads[lot] = add_lot(lot);
	for (uint32_t lot = 0; lot < LOTS; lot++) {
		assert_int_equal(wait_set_wait_first(&set, reads[lot]), 0);
		expect_lot(lot);
	}
}

CASE(wait_set_add_reads__a_lost_connection_spoils_no_earlier_reads)
{
	const struct fault_plan plan = { .cut_at = 1 };
	struct transport_io io = { .region = sides[1].region, .dst = &lot_words[1][1], .len = 8 };
	uint32_t first;
	int ret;

	wait_set_begin(&set);
	first = add_lot(0);
	fault_set(sides[1].fault, &plan);
	ret = wait_set_add_reads(&set, &io, 1);
	assert_true(ret == 0 || ret == -ECONNRESET);
	ret = wait_set_wait_first(&set, first);
	assert_true(ret == 0 || ret == -ECONNRESET);
	assert_int_equal(set.legs[0].error, 0);
	assert_int_equal(lot_words[0][0], 1);
	assert_int_equal(lot_words[0][2], 3);
	assert_int_equal(wait_set_wait(&set), -ECONNRESET);
	assert_int_equal(set.n, 0);
}

CASE(transport_run__nothing_costs_nothing)
{
	uint64_t before = phases();

	assert_int_equal(transport_run(sides[0].tr, wrs[0], 0), 0);
	wait_set_begin(&set);
	wait_set_chain(&set, sides[0].tr, NULL, 0);
	assert_int_equal(wait_set_wait(&set), 0);
	assert_int_equal(phases(), before);
}

/* -------- the wire -------- */

CASE(wire__what_was_posted_is_garbage_until_it_is_polled)
{
	uint64_t ticket, early = 0;

	count_up(0, 1);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(transport_submit(sides[0].tr, wrs[0], 1, SUBMIT_ORDERED, &ticket),
				 0);
		early += wrs[0][0].atomic.status != ATOMIC_UNKNOWN;
		assert_int_equal(transport_poll(sides[0].tr, ticket, UINT64_MAX), 0);
		assert_int_equal(wrs[0][0].atomic.status, ATOMIC_DONE);
	}
	assert_int_equal(early, 0);
}

/* How often of 100 times a write of zero behind an addition of one was there first. */
static int overtaken(bool fence)
{
	const uint64_t zero = 0;
	uint64_t word, ones = 0;

	for (int i = 0; i < 100; i++) {
		count_up(0, 2);
		wrs[0][1] = (struct transport_wr){
			.verb = VERB_WRITE,
			.fence = fence,
			.io = { .region = sides[0].region, .off = 64, .src = &zero, .len = 8 },
		};
		assert_int_equal(transport_run(sides[0].tr, wrs[0], 2), 0);
		assert_int_equal(transport_load(sides[0].region, 64, &word), 0);
		ones += word;
		assert_int_equal(transport_store(sides[0].region, 64, &zero, 8), 0);
	}
	return (int)ones;
}

CASE(wire__a_write_passes_an_atomic_unless_it_is_fenced)
{
	assert_true(overtaken(false) > 10);
	assert_int_equal(overtaken(true), 0);
}

int main(void)
{
	return test_run(NULL, NULL);
}
