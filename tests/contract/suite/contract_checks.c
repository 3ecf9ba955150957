/* contract_checks.c - invalid calls are refused and have no effect. */
#include "tests/contract/suite/contract.h"

#include <errno.h>
#include <string.h>

/* The first operation is good; the call does nothing of it. */
static void refuse_io(struct rig *rig, struct transport_io bad, int code)
{
	uint64_t words[4] = { 1, 1, 1, 1 };
	struct transport_io io[2] = {
		{ .region = rig->region, .off = 64, .src = words, .len = 8 },
		bad,
	};

	if (!io[1].src)
		io[1].src = words;
	assert_error(transport_write(rig->tr, io, 2), code);
	assert_error(transport_read(rig->tr, io, 2), code);
	assert_int_equal(rig->tr->stats.phases, 0);
	assert_int_equal(rig_load(rig->region, 64), 0);
}

static void write__behind_the_end(void **state)
{
	struct rig *rig = rig_of(state);

	refuse_io(rig, (struct transport_io){ .region = rig->region, .off = RIG_REGION, .len = 8 },
		  -EINVAL);
}

static void write__across_the_end(void **state)
{
	struct rig *rig = rig_of(state);

	refuse_io(rig,
		  (struct transport_io){ .region = rig->region, .off = RIG_REGION - 8, .len = 16 },
		  -EINVAL);
}

static void write__whose_end_wraps_around(void **state)
{
	struct rig *rig = rig_of(state);

	refuse_io(rig,
		  (struct transport_io){ .region = rig->region, .off = UINT64_MAX - 7, .len = 16 },
		  -EINVAL);
}

static void write__at_an_odd_offset(void **state)
{
	struct rig *rig = rig_of(state);

	refuse_io(rig, (struct transport_io){ .region = rig->region, .off = 12, .len = 8 },
		  -EINVAL);
}

static void write__of_an_odd_length(void **state)
{
	struct rig *rig = rig_of(state);

	refuse_io(rig, (struct transport_io){ .region = rig->region, .off = 8, .len = 12 },
		  -EINVAL);
}

static void write__from_an_odd_address(void **state)
{
	static uint64_t words[4];
	struct rig *rig = rig_of(state);

	refuse_io(rig,
		  (struct transport_io){
			  .region = rig->region, .off = 8, .src = (uint8_t *)words + 4, .len = 8 },
		  -EINVAL);
}

static void write__to_no_region(void **state)
{
	refuse_io(rig_of(state), (struct transport_io){ .off = 8, .len = 8 }, -EINVAL);
}

static void write__to_a_region_of_another_transport(void **state)
{
	struct rig *rig = rig_of(state);
	struct transport *tr = rig_open(rig, 8);
	struct region *other = rig_attach(rig, tr, 8, RIGHT_ALL);

	refuse_io(rig, (struct transport_io){ .region = other, .off = 8, .len = 8 }, -EINVAL);
	transport_close(&tr);
}

static void refuse_atomic(struct rig *rig, struct transport_atomic bad, int code)
{
	struct transport_atomic ops[2] = { { .region = rig->region, .off = 64, .value = 1 }, bad };

	assert_error(transport_cas(rig->tr, ops, 2), code);
	assert_error(transport_faa(rig->tr, ops, 2), code);
	assert_int_equal(rig->tr->stats.phases, 0);
	assert_int_equal(rig_load(rig->region, 64), 0);
}

static void atomic__behind_the_end(void **state)
{
	struct rig *rig = rig_of(state);

	refuse_atomic(rig, (struct transport_atomic){ .region = rig->region, .off = RIG_REGION },
		      -EINVAL);
}

static void atomic__at_the_largest_offset(void **state)
{
	struct rig *rig = rig_of(state);

	refuse_atomic(rig,
		      (struct transport_atomic){ .region = rig->region, .off = UINT64_MAX - 7 },
		      -EINVAL);
}

static void atomic__at_an_odd_offset(void **state)
{
	struct rig *rig = rig_of(state);

	refuse_atomic(rig, (struct transport_atomic){ .region = rig->region, .off = 4 }, -EINVAL);
}

static void atomic__on_no_region(void **state)
{
	refuse_atomic(rig_of(state), (struct transport_atomic){ .off = 8 }, -EINVAL);
}

/* The first of a call, where no region has been looked at yet. */
static void call__begins_with_no_region(void **state)
{
	struct rig *rig = rig_of(state);
	uint64_t word = 0;
	struct transport_io io = { .off = 8, .src = &word, .len = 8 };
	struct transport_atomic op = { .off = 8, .value = 1 };
	struct transport_view view = { .off = 8, .len = 8 };

	assert_error(transport_write(rig->tr, &io, 1), -EINVAL);
	assert_error(transport_read(rig->tr, &io, 1), -EINVAL);
	assert_error(transport_cas(rig->tr, &op, 1), -EINVAL);
	assert_error(transport_faa(rig->tr, &op, 1), -EINVAL);
	assert_error(transport_view(rig->tr, &view, 1), -EINVAL);
}

static void view__behind_the_end(void **state)
{
	struct rig *rig = rig_of(state);
	struct transport_view view = { .region = rig->region, .off = RIG_REGION - 8, .len = 16 };

	assert_error(transport_view(rig->tr, &view, 1), -EINVAL);
	view.len = 8;
	assert_int_equal(transport_view(rig->tr, &view, 1), 0); /* none was left open */
	transport_view_end(rig->tr);
}

static void post__with_one_bad_element_does_nothing(void **state)
{
	struct rig *rig = rig_of(state);
	struct transport_wr wrs[2] = {
		{ .verb = VERB_FAA, .atomic = { .region = rig->region, .off = 64, .value = 1 } },
		{ .verb = VERB_FAA, .atomic = { .region = rig->region, .off = 65, .value = 1 } },
	};
	uint64_t ticket = 0;

	assert_error(transport_submit(rig->tr, wrs, 2, SUBMIT_ORDERED, &ticket), -EINVAL);
	wrs[1].verb = (enum transport_verb)9;
	assert_error(transport_submit(rig->tr, wrs, 2, SUBMIT_ORDERED, &ticket), -EINVAL);
	assert_int_equal(rig_load(rig->region, 64), 0);
	assert_int_equal(rig->tr->stats.faa, 0);
}

static void calls__of_257_operations(void **state)
{
	static struct transport_io io[TRANSPORT_VECTOR + 1];
	static struct transport_atomic ops[TRANSPORT_VECTOR + 1];
	static struct transport_view views[TRANSPORT_VECTOR + 1];
	static struct transport_wr wrs[TRANSPORT_VECTOR + 1];
	struct transport *tr = rig_of(state)->tr;
	uint64_t ticket;

	assert_error(transport_read(tr, io, TRANSPORT_VECTOR + 1), -EINVAL);
	assert_error(transport_write(tr, io, TRANSPORT_VECTOR + 1), -EINVAL);
	assert_error(transport_cas(tr, ops, TRANSPORT_VECTOR + 1), -EINVAL);
	assert_error(transport_faa(tr, ops, TRANSPORT_VECTOR + 1), -EINVAL);
	assert_error(transport_view(tr, views, TRANSPORT_VECTOR + 1), -EINVAL);
	assert_error(transport_submit(tr, wrs, TRANSPORT_VECTOR + 1, SUBMIT_ORDERED, &ticket),
		     -EINVAL);
}

static void calls__of_nothing_count_nothing(void **state)
{
	struct transport *tr = rig_of(state)->tr;
	const struct transport_stats zero = { 0 };

	assert_int_equal(transport_read(tr, NULL, 0), 0);
	assert_int_equal(transport_write(tr, NULL, 0), 0);
	assert_int_equal(transport_cas(tr, NULL, 0), 0);
	assert_int_equal(transport_faa(tr, NULL, 0), 0);
	assert_int_equal(transport_view(tr, NULL, 0), 0);
	assert_memory_equal(&tr->stats, &zero, sizeof(zero));
}

static void rights__read_only(void **state)
{
	struct rig *rig = rig_of(state);
	struct region *region = rig_attach(rig, rig->tr, RIG_CLIENT, RIGHT_READ);
	struct transport_wr wr = { .verb = VERB_CAS, .atomic = { .region = region, .off = 64 } };
	uint64_t word = 1, ticket;

	rig_store(rig->region, 64, 5);
	assert_int_equal(rig_load(region, 64), 5);
	assert_error(transport_store(region, 64, &word, 8), -EACCES);
	assert_error(transport_cas_word(region, 64, 5, 6, &word), -EACCES);
	assert_error(transport_faa_word(region, 64, 1, &word), -EACCES);
	assert_error(transport_submit(rig->tr, &wr, 1, SUBMIT_ORDERED, &ticket), -EACCES);
	assert_int_equal(rig_load(rig->region, 64), 5);
	transport_detach(&region);
	assert_null(region);
}

static void rights__without_read(void **state)
{
	struct rig *rig = rig_of(state);
	struct region *region = rig_attach(rig, rig->tr, RIG_CLIENT, RIGHT_WRITE);
	struct transport_view view = { .region = region, .off = 64, .len = 8 };
	uint64_t word = 1;

	assert_error(transport_load(region, 64, &word), -EACCES);
	assert_error(transport_view(rig->tr, &view, 1), -EACCES);
	assert_error(transport_faa_word(region, 64, 1, &word), -EACCES);
	assert_int_equal(transport_store(region, 64, &word, 8), 0);
	transport_detach(&region);
}

/* Durable in a file; refused, not pretended, in memory. */
static void persist__does_what_the_capability_says(void **state)
{
	struct rig *rig = rig_of(state);
	int expected = rig->kind->in_file ? 0 : -ENOTSUP;

	assert_int_equal((rig->tr->caps & TRANSPORT_PERSISTENT) != 0, rig->kind->in_file);
	rig_store(rig->region, 8192, 5);
	assert_int_equal(transport_persist(rig->region, 8192, 8), expected);
	assert_int_equal(transport_persist(rig->region, 0, 0), expected);
}

static void persist__behind_the_end(void **state)
{
	struct rig *rig = rig_of(state);

	assert_error(transport_persist(rig->region, RIG_REGION, 8), -EINVAL);
	assert_error(transport_persist(rig->region, 8, UINT64_MAX), -EINVAL);
}

static int use_in_child(struct rig *rig)
{
	struct transport_atomic op = { .region = rig->region, .off = 64, .value = 1 };
	struct transport_io io = { .region = rig->region, .off = 64, .dst = &op.old, .len = 8 };
	struct transport_view view = { .region = rig->region, .off = 64, .len = 8 };
	struct transport_wr wr = { .verb = VERB_FAA, .atomic = op };
	struct target_stats stats;
	struct region_grant grant = { .bytes = 56 };
	struct region *region;
	uint64_t ticket;
	int wrong = 0;

	wrong += transport_faa(rig->tr, &op, 1) != -ECHILD;
	wrong += transport_cas(rig->tr, &op, 1) != -ECHILD;
	wrong += transport_read(rig->tr, &io, 1) != -ECHILD;
	wrong += transport_write(rig->tr, &io, 1) != -ECHILD;
	wrong += transport_view(rig->tr, &view, 1) != -ECHILD;
	wrong += transport_submit(rig->tr, &wr, 1, SUBMIT_ORDERED, &ticket) != -ECHILD;
	wrong += transport_poll(rig->tr, 0, 0) != -ECHILD;
	wrong += transport_order(rig->tr) != -ECHILD;
	wrong += transport_attach(rig->tr, &grant, &region) != -ECHILD;
	wrong += transport_persist(rig->region, 0, 8) != -ECHILD;
	wrong += !transport_is_forked(rig->tr);
	wrong += transport_grant(rig->tg, 9, rig->spec.id, RIGHT_ALL, &grant) != -ECHILD;
	wrong += rig->tg->ops->register_region(rig->tg, &rig->spec) != -ECHILD;
	wrong += rig->tg->ops->progress(rig->tg, 0) != -ECHILD;
	rig->tg->ops->stats(rig->tg, &stats);
	wrong += stats.regions != 0;
	transport_detach(&rig->region);
	transport_close(&rig->tr);
	transport_target_close(&rig->tg);
	return wrong;
}

static void calls__in_a_forked_child(void **state)
{
	struct rig *rig = rig_of(state);
	uint64_t old;

	rig_store(rig->region, 64, 3);
	assert_int_equal(rig_in_child(use_in_child, rig), 0);
	/* the child closed its copies; ours work */
	assert_false(transport_is_forked(rig->tr));
	assert_int_equal(transport_faa_word(rig->region, 64, 1, &old), 0);
	assert_int_equal(old, 3);
	rig_attach(rig, rig->tr, RIG_CLIENT, RIGHT_READ);
}

const struct CMUnitTest contract_checks_tests[] = {
	CONTRACT_TEST(write__behind_the_end),
	CONTRACT_TEST(write__across_the_end),
	CONTRACT_TEST(write__whose_end_wraps_around),
	CONTRACT_TEST(write__at_an_odd_offset),
	CONTRACT_TEST(write__of_an_odd_length),
	CONTRACT_TEST(write__from_an_odd_address),
	CONTRACT_TEST(write__to_no_region),
	CONTRACT_TEST(call__begins_with_no_region),
	CONTRACT_TEST(write__to_a_region_of_another_transport),
	CONTRACT_TEST(atomic__behind_the_end),
	CONTRACT_TEST(atomic__at_the_largest_offset),
	CONTRACT_TEST(atomic__at_an_odd_offset),
	CONTRACT_TEST(atomic__on_no_region),
	CONTRACT_TEST(view__behind_the_end),
	CONTRACT_TEST(post__with_one_bad_element_does_nothing),
	CONTRACT_TEST(calls__of_257_operations),
	CONTRACT_TEST(calls__of_nothing_count_nothing),
	CONTRACT_TEST(rights__read_only),
	CONTRACT_TEST(rights__without_read),
	CONTRACT_TEST(persist__does_what_the_capability_says),
	CONTRACT_TEST(persist__behind_the_end),
	CONTRACT_TEST(calls__in_a_forked_child),
};
const size_t contract_checks_count =
	sizeof(contract_checks_tests) / sizeof(contract_checks_tests[0]);
