/*
 * Calls over regions of several transports: results go back to where their operations stood, the
 * whole is one phase, and one lost connection spoils nothing of the others.
 */
#include "tests/support/test.h"

#include "transport/fault/fault.h"
#include "transport/transport.h"

#include "wire/region.h"

#include <errno.h>

#define NODES 3
#define CLIENT 5

struct side {
	struct transport_target *tg;
	struct transport *tr;
	struct region *region;
};

static void side_open(struct side *side)
{
	const struct target_opts opts = { .pool_bytes = 8u << 20, .private_memory = true };
	struct target_region spec = { .kind = REGION_ROWS, .size = 2u << 20 };
	struct transport_opts tropts = { .client_id = CLIENT };
	struct region_grant grant;

	assert_int_equal(transport_target_open("shm", &opts, &side->tg), 0);
	assert_int_equal(side->tg->ops->register_region(side->tg, &spec), 0);
	assert_int_equal(side->tg->ops->grant(side->tg, CLIENT, spec.id, RIGHT_ALL, &grant), 0);
	tropts.target = side->tg;
	assert_int_equal(transport_open("embed:", &tropts, &side->tr), 0);
	assert_int_equal(fault_wrap(side->tr, NULL, &side->tr), 0);
	assert_int_equal(transport_attach(side->tr, &grant, &side->region), 0);
}

static int setup(void **state)
{
	static struct side sides[NODES];

	for (int i = 0; i < NODES; i++)
		side_open(&sides[i]);
	*state = sides;
	return 0;
}

static int teardown(void **state)
{
	struct side *sides = *state;

	for (int i = 0; i < NODES; i++) {
		transport_detach(&sides[i].region);
		transport_close(&sides[i].tr);
		transport_target_close(&sides[i].tg);
	}
	return 0;
}

static uint64_t phases(const struct side *sides)
{
	uint64_t sum = 0;

	for (int i = 0; i < NODES; i++)
		sum += sides[i].tr->stats.phases;
	return sum;
}

static void read_across__gives_each_its_own_bytes_in_one_phase(void **state)
{
	struct side *sides = *state;
	struct transport_io io[20];
	uint64_t got[20] = { 0 };
	uint64_t before;

	for (uint64_t i = 0; i < 20; i++) {
		uint64_t word = 100 + i;
		struct region *region = sides[(i * 7) % NODES].region;

		assert_int_equal(transport_store(region, i * 8, &word, 8), 0);
		io[i] = (struct transport_io){
			.region = region, .off = i * 8, .dst = &got[i], .len = 8
		};
	}
	before = phases(sides);
	assert_int_equal(transport_read_across(io, 20), 0);
	assert_int_equal(phases(sides) - before, 1);
	for (uint64_t i = 0; i < 20; i++) {
		assert_int_equal(got[i], 100 + i);
		assert_ptr_equal(io[i].dst, &got[i]);
	}
}

static void write_across__reaches_every_node(void **state)
{
	struct side *sides = *state;
	uint64_t words[NODES] = { 11, 22, 33 };
	struct transport_io io[NODES];

	for (int i = 0; i < NODES; i++)
		io[i] = (struct transport_io){
			.region = sides[i].region, .off = 64, .src = &words[i], .len = 8
		};
	assert_int_equal(transport_write_across(io, NODES), 0);
	for (int i = 0; i < NODES; i++) {
		uint64_t word;

		assert_int_equal(transport_load(sides[i].region, 64, &word), 0);
		assert_int_equal(word, words[i]);
	}
}

static void atomics_across__return_old_words_where_they_were_asked(void **state)
{
	struct side *sides = *state;
	struct transport_atomic ops[12];
	uint64_t before = phases(sides);

	for (uint64_t i = 0; i < 12; i++)
		ops[i] = (struct transport_atomic){ .region = sides[2 - i % NODES].region,
						    .off = i / NODES * 8,
						    .value = i + 1 };
	assert_int_equal(transport_faa_across(ops, 12), 0);
	for (uint64_t i = 0; i < 12; i++) {
		assert_int_equal(ops[i].old, 0);
		ops[i].expected = i + 1;
		ops[i].value = 1000 + i;
	}
	assert_int_equal(transport_cas_across(ops, 12), 0);
	assert_int_equal(phases(sides) - before, 2);
	for (uint64_t i = 0; i < 12; i++) {
		uint64_t word;

		assert_int_equal(ops[i].old, i + 1);
		assert_int_equal(transport_load(ops[i].region, ops[i].off, &word), 0);
		assert_int_equal(word, 1000 + i);
	}
}

static void view_across__points_everywhere_and_ends_everywhere(void **state)
{
	struct side *sides = *state;
	struct transport_view views[2 * NODES];

	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 2 * NODES; i++)
			views[i] = (struct transport_view){ .region = sides[i % NODES].region,
							    .off = 8 * (uint64_t)i,
							    .len = 8 };
		assert_int_equal(transport_view_across(views, 2 * NODES), 0);
		for (int i = 0; i < 2 * NODES; i++)
			assert_ptr_equal(views[i].ptr, sides[i % NODES].region->base + 8 * i);
		transport_view_end_across(views, 2 * NODES);
	}
}

static void read_across__a_lost_connection_is_named_and_spoils_no_other(void **state)
{
	struct side *sides = *state;
	const struct fault_plan plan = { .cut_at = 1 };
	uint64_t word = 77, got[NODES] = { 0 };
	struct transport_io io[NODES];

	assert_int_equal(transport_store(sides[0].region, 0, &word, 8), 0);
	assert_int_equal(transport_store(sides[2].region, 0, &word, 8), 0);
	fault_set(sides[1].tr, &plan);
	for (int i = 0; i < NODES; i++)
		io[i] = (struct transport_io){ .region = sides[i].region,
					       .dst = &got[i],
					       .len = 8 };
	assert_int_equal(transport_read_across(io, NODES), -ECONNRESET);
	assert_int_equal(got[0], 77);
	assert_int_equal(got[2], 77);
	assert_int_equal(sides[1].tr->broken, -ECONNRESET);
	assert_int_equal(sides[0].tr->broken, 0);
	assert_int_equal(sides[2].tr->broken, 0);
}

static void across__nothing_is_nothing_and_too_much_is_refused(void **state)
{
	struct side *sides = *state;
	struct transport_io io[TRANSPORT_VECTOR + 1];
	uint64_t before = phases(sides), word;

	assert_int_equal(transport_read_across(io, 0), 0);
	assert_int_equal(phases(sides), before);
	for (int i = 0; i <= TRANSPORT_VECTOR; i++)
		io[i] = (struct transport_io){ .region = sides[i % NODES].region,
					       .dst = &word,
					       .len = 8 };
	assert_int_equal(transport_read_across(io, TRANSPORT_VECTOR + 1), -EINVAL);
	io[1].region = NULL;
	assert_int_equal(transport_read_across(io, 3), -EINVAL);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(read_across__gives_each_its_own_bytes_in_one_phase),
		TEST(write_across__reaches_every_node),
		TEST(atomics_across__return_old_words_where_they_were_asked),
		TEST(view_across__points_everywhere_and_ends_everywhere),
		TEST(read_across__a_lost_connection_is_named_and_spoils_no_other),
		TEST(across__nothing_is_nothing_and_too_much_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
