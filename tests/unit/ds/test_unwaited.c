#include "tests/support/fixture/shard_fixture.h"
#include "tests/support/test.h"
#include "tests/support/fake/wire_transport.h"

#include "ds/part/unwaited.h"

#include "tests/support/fake/fault.h"

#include "base/mem/alloc.h"

#include <errno.h>

#define WORD 0u /* offset in the rows, which nobody formats or reads here */

static struct shard_fixture fx;
static struct shard_conn conn;
static struct transport *fault;
static struct unwaited unwaited;
static uint64_t max_seen[8];

static struct transport *wrap(struct transport *inner)
{
	assert_int_equal(fault_wrap(inner, NULL, &fault), 0);
	return wire_wrap(fault);
}

static int setup(void **state)
{
	(void)state;
	shard_fixture_open(&fx, NULL);
	shard_fixture_connect(&fx, wrap, &conn);
	unwaited_init(&unwaited, conn.tr, max_seen);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unwaited_fini(&unwaited);
	shard_fixture_disconnect(&conn);
	shard_fixture_close(&fx);
	return 0;
}

static uint64_t off(uint32_t i)
{
	return ROWS_OFF + 8 * (uint64_t)i;
}

static uint64_t word(uint32_t i)
{
	uint64_t w = 0;

	assert_int_equal(transport_load(fx.conn.rows, off(i), &w), 0);
	return w;
}

static void set_word(uint32_t i, uint64_t w)
{
	assert_int_equal(transport_store(fx.conn.rows, off(i), &w, 8), 0);
}

static struct wr_list *next(void)
{
	struct wr_list *list = NULL;

	assert_int_equal(unwaited_next(&unwaited, &list), 0);
	return list;
}

static void add(struct wr_list *list, uint32_t i)
{
	assert_int_equal(wr_list_reserve(list, list->n + 1), 0);
	*wr_list_add(list, NOTE_SUM) = (struct transport_wr){
		.verb = VERB_FAA,
		.atomic = { .region = conn.rows, .off = off(i), .value = 1 },
	};
}

static void add_cas(struct wr_list *list, uint32_t note, uint64_t expected, uint64_t value)
{
	assert_int_equal(wr_list_reserve(list, list->n + 1), 0);
	*wr_list_add(list, note) = (struct transport_wr){
		.verb = VERB_CAS,
		.atomic = { .region = conn.rows,
			    .off = off(WORD),
			    .expected = expected,
			    .value = value },
	};
}

#define CASE(fn) TEST_WITH(fn, setup, teardown)

CASE(unwaited_send__more_chains_than_there_are_lists)
{
	uint64_t phases = conn.tr->stats.phases;

	for (uint32_t i = 0; i < 10 * UNWAITED_CHAINS; i++) {
		struct wr_list *list = next();

		for (uint32_t k = 0; k < 300; k++) /* more than a post takes */
			add(list, k);
		assert_int_equal(unwaited_send(&unwaited), 0);
	}
	assert_int_equal(unwaited_wait(&unwaited), 0);
	for (uint32_t k = 0; k < 300; k++)
		assert_int_equal(word(k), 10 * UNWAITED_CHAINS);
	assert_false(unwaited.lost);
	assert_true(conn.tr->stats.phases - phases <= 10 * UNWAITED_CHAINS);
}

CASE(unwaited_next__gives_the_list_that_was_not_sent)
{
	struct wr_list *list = next();

	add(list, 1);
	assert_ptr_equal(next(), list);
	assert_int_equal(list->n, 1);
	assert_int_equal(unwaited_send(&unwaited), 0);
	assert_ptr_not_equal(next(), list);
}

CASE(unwaited_send__nothing_is_not_posted)
{
	uint64_t before = conn.tr->posted;

	next();
	assert_int_equal(unwaited_send(&unwaited), 0);
	assert_int_equal(conn.tr->posted, before);
}

CASE(unwaited_wait__a_lost_addition_is_lost)
{
	const struct fault_plan plan = { .unknown_rate = 65536 };

	add(next(), 1);
	assert_int_equal(unwaited_send(&unwaited), 0);
	fault_set(fault, &plan);
	assert_int_equal(unwaited_wait(&unwaited), 0);
	fault_set(fault, NULL);
	assert_true(unwaited.lost);
}

CASE(unwaited_wait__an_error_is_told_once)
{
	const struct fault_plan plan = { .fail_at = 1, .fail_code = -ECONNRESET };

	add(next(), 1);
	assert_int_equal(unwaited_send(&unwaited), 0);
	fault_set(fault, &plan);
	assert_int_equal(unwaited_wait(&unwaited), -ECONNRESET);
	assert_int_equal(unwaited_wait(&unwaited), 0);
	assert_true(unwaited.lost);
}

CASE(unwaited_wait__closed_by_another_is_fenced)
{
	set_word(WORD, 7);
	add_cas(next(), NOTE_CLOSE, 7, 8);
	assert_int_equal(unwaited_send(&unwaited), 0);
	assert_int_equal(unwaited_wait(&unwaited), 0);
	assert_false(unwaited.fenced);
	add_cas(next(), NOTE_CLOSE, 5, 6);
	assert_int_equal(unwaited_send(&unwaited), 0);
	assert_int_equal(unwaited_wait(&unwaited), 0);
	assert_true(unwaited.fenced);
	assert_int_equal(word(WORD), 8);
}

CASE(unwaited_wait__maxima_as_they_are_now)
{
	set_word(WORD, 7);
	add_cas(next(), NOTE_MAX + 3, 7, 9);
	assert_int_equal(unwaited_send(&unwaited), 0);
	assert_int_equal(unwaited_wait(&unwaited), 0);
	assert_int_equal(max_seen[3], 9);
	add_cas(next(), NOTE_MAX + 3, 8, 20); /* another was faster */
	assert_int_equal(unwaited_send(&unwaited), 0);
	assert_int_equal(unwaited_wait(&unwaited), 0);
	assert_int_equal(max_seen[3], 9);
}

CASE(wr_list_reserve__without_memory_keeps_what_is_there)
{
	struct wr_list *list = next();

	add(list, 1);
	for (uint64_t n = 1; n <= 2; n++) {
		mem_fail_after(n);
		assert_int_equal(wr_list_reserve(list, 100000), -ENOMEM);
		mem_fail_after(0);
	}
	assert_int_equal(list->n, 1);
	assert_int_equal(unwaited_send(&unwaited), 0);
	assert_int_equal(unwaited_wait(&unwaited), 0);
	assert_int_equal(word(1), 1);
}

int main(void)
{
	return test_run(NULL, NULL);
}
