/* contract_data.c - results of the data operations. */
#include "tests/contract/suite/contract.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "transport/barrier.h"
#include "transport/wait_set.h"

#define THREADS 3
#define ADDS 3000

/* Number of repetitions: fewer where each takes long. */
static uint64_t many(uint64_t times)
{
	return getenv("RLV_TEST_SLOW") ? times / 20 : times;
}

static void read__returns_what_write_wrote(void **state)
{
	static const uint32_t lens[] = { 8, 16, 56, 64, 72, 128, 4096, 65536 };
	static uint64_t out[8192 + 8], in[8192];
	struct rig *rig = rig_of(state);

	for (size_t i = 0; i < 8192 + 8; i++)
		out[i] = i * 0x9e3779b97f4a7c15u;
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		struct transport_io io = {
			.region = rig->region, .off = 4096 + 8 * i, .src = out + i, .len = lens[i]
		};

		assert_int_equal(transport_write(rig->tr, &io, 1), 0);
		io.dst = in;
		assert_int_equal(transport_read(rig->tr, &io, 1), 0);
		assert_memory_equal(in, out + i, lens[i]);
	}
}

static void write__leaves_the_neighbours_alone(void **state)
{
	struct rig *rig = rig_of(state);
	uint64_t ones[3] = { UINT64_MAX, UINT64_MAX, UINT64_MAX };
	struct transport_io io = { .region = rig->region, .off = 512, .src = ones, .len = 24 };

	assert_int_equal(transport_write(rig->tr, &io, 1), 0);
	assert_int_equal(rig_load(rig->region, 504), 0);
	assert_int_equal(rig_load(rig->region, 536), 0);
}

static void read__takes_256_ranges(void **state)
{
	static uint64_t in[TRANSPORT_VECTOR], out[TRANSPORT_VECTOR];
	static struct transport_io io[TRANSPORT_VECTOR];
	struct rig *rig = rig_of(state);

	for (uint32_t i = 0; i < TRANSPORT_VECTOR; i++) {
		out[i] = i + 1;
		io[i] = (struct transport_io){
			.region = rig->region, .off = 8192 + i * 4096ull, .src = &out[i], .len = 8
		};
	}
	assert_int_equal(transport_write(rig->tr, io, TRANSPORT_VECTOR), 0);
	for (uint32_t i = 0; i < TRANSPORT_VECTOR; i++)
		io[i].dst = &in[i];
	assert_int_equal(transport_read(rig->tr, io, TRANSPORT_VECTOR), 0);
	assert_memory_equal(in, out, sizeof(in));
}

static void write__at_the_last_word_of_the_region(void **state)
{
	struct rig *rig = rig_of(state);

	rig_store(rig->region, RIG_REGION - 8, 77);
	assert_int_equal(rig_load(rig->region, RIG_REGION - 8), 77);
}

static void cas__swaps_the_expected_word(void **state)
{
	struct rig *rig = rig_of(state);
	uint64_t old = 1;

	rig_store(rig->region, 64, 5);
	assert_int_equal(transport_cas_word(rig->region, 64, 5, 6, &old), 0);
	assert_int_equal(old, 5);
	assert_int_equal(rig_load(rig->region, 64), 6);
}

static void cas__of_another_word_changes_nothing(void **state)
{
	struct rig *rig = rig_of(state);
	uint64_t old = 1;

	rig_store(rig->region, 64, 5);
	assert_int_equal(transport_cas_word(rig->region, 64, 4, 6, &old), 0);
	assert_int_equal(old, 5);
	assert_int_equal(rig_load(rig->region, 64), 5);
	assert_int_equal(rig->tr->stats.cas_failed, 1);
}

static void cas__of_256_words(void **state)
{
	static struct transport_atomic ops[TRANSPORT_VECTOR];
	struct rig *rig = rig_of(state);

	for (uint64_t i = 0; i < TRANSPORT_VECTOR; i += 2)
		rig_store(rig->region, 4096 + i * 64, 1); /* these fail */
	for (uint64_t i = 0; i < TRANSPORT_VECTOR; i++)
		ops[i] = (struct transport_atomic){
			.region = rig->region, .off = 4096 + i * 64, .value = i + 10, .status = 99
		};
	assert_int_equal(transport_cas(rig->tr, ops, TRANSPORT_VECTOR), 0);
	for (uint64_t i = 0; i < TRANSPORT_VECTOR; i++) {
		assert_int_equal(ops[i].status, ATOMIC_DONE);
		assert_int_equal(ops[i].old, i % 2 ? 0 : 1);
		assert_int_equal(rig_load(rig->region, 4096 + i * 64), i % 2 ? i + 10 : 1);
	}
	assert_int_equal(rig->tr->stats.cas_failed, TRANSPORT_VECTOR / 2);
}

static void faa__adds_and_wraps(void **state)
{
	struct rig *rig = rig_of(state);
	uint64_t old = 0;

	rig_store(rig->region, 64, 10);
	assert_int_equal(transport_faa_word(rig->region, 64, 5, &old), 0);
	assert_int_equal(old, 10);
	assert_int_equal(transport_faa_word(rig->region, 64, (uint64_t)-20, &old), 0);
	assert_int_equal(old, 15);
	assert_true(rig_load(rig->region, 64) == (uint64_t)-5);
}

static void faa__of_one_word_twice_in_a_call_adds_both(void **state)
{
	struct rig *rig = rig_of(state);
	struct transport_atomic ops[2] = {
		{ .region = rig->region, .off = 64, .value = 3 },
		{ .region = rig->region, .off = 64, .value = 4 },
	};

	assert_int_equal(transport_faa(rig->tr, ops, 2), 0);
	assert_int_equal(rig_load(rig->region, 64), 7);
}

static void faa__of_256_words(void **state)
{
	static struct transport_atomic ops[TRANSPORT_VECTOR];
	struct rig *rig = rig_of(state);

	for (uint64_t i = 0; i < TRANSPORT_VECTOR; i++)
		ops[i] = (struct transport_atomic){ .region = rig->region,
						    .off = 4096 + i * 8,
						    .value = i };
	assert_int_equal(transport_faa(rig->tr, ops, TRANSPORT_VECTOR), 0);
	assert_int_equal(transport_faa(rig->tr, ops, TRANSPORT_VECTOR), 0);
	for (uint64_t i = 0; i < TRANSPORT_VECTOR; i++) {
		assert_int_equal(ops[i].old, i);
		assert_int_equal(rig_load(rig->region, 4096 + i * 8), 2 * i);
	}
}

static void view__shows_the_bytes(void **state)
{
	struct rig *rig = rig_of(state);
	struct transport_view views[2] = {
		{ .region = rig->region, .off = 64, .len = 8 },
		{ .region = rig->region, .off = 4096, .len = 16 },
	};
	uint64_t word;

	rig_store(rig->region, 64, 11);
	rig_store(rig->region, 4104, 12);
	assert_int_equal(transport_view(rig->tr, views, 2), 0);
	memcpy(&word, views[0].ptr, 8);
	assert_int_equal(word, 11);
	memcpy(&word, (const uint8_t *)views[1].ptr + 8, 8);
	assert_int_equal(word, 12);
	transport_view_end(rig->tr);
}

static void view__of_an_addressable_region_copies_nothing(void **state)
{
	struct rig *rig = rig_of(state);
	struct transport_view view = { .region = rig->region, .off = 128, .len = 8 };

	assert_int_equal(transport_is_addressable(rig->tr), rig->region->base != NULL);
	assert_int_equal(transport_view(rig->tr, &view, 1), 0);
	if (rig->region->base)
		assert_ptr_equal(view.ptr, rig->region->base + 128);
	transport_view_end(rig->tr);
}

static void view__while_one_is_open_is_refused(void **state)
{
	struct rig *rig = rig_of(state);
	struct transport_view view = { .region = rig->region, .off = 128, .len = 8 };

	assert_int_equal(transport_view(rig->tr, &view, 1), 0);
	assert_error(transport_view(rig->tr, &view, 1), -EBUSY);
	transport_view_end(rig->tr);
	assert_int_equal(transport_view(rig->tr, &view, 1), 0);
	transport_view_end(rig->tr);
	transport_view_end(rig->tr); /* of none: nothing */
}

/* More than one call takes, of which some of the memory is known to devices and some is not. */
static void reads__posted_have_come_when_waited_for(void **state)
{
	enum { N = 3 * TRANSPORT_VECTOR + 5 };
	static struct transport_io io[N];
	static uint64_t out[N], in[N];
	struct wait_set reads;
	struct rig *rig = rig_of(state);
	int ret;

	for (uint32_t i = 0; i < N; i++) {
		out[i] = i + 1;
		assert_int_equal(transport_store(rig->region, 8192 + i * 256ull, &out[i], 8), 0);
		io[i] = (struct transport_io){
			.region = rig->region, .off = 8192 + i * 256ull, .dst = &in[i], .len = 8
		};
	}
	for (uint32_t way = 0; way < 2; way++) {
		memset(in, 0, sizeof(in));
		assert_int_equal(wait_set_read(&reads, io, N), 0);
		do
			ret = way ? wait_set_look(&reads) : wait_set_wait(&reads);
		while (ret == -EAGAIN);
		assert_int_equal(ret, 0);
		assert_memory_equal(in, out, sizeof(in));
	}
}

/* Several are under way at a time, and calls of other kinds come between. */
static void reads__posted_go_on_beside_other_calls(void **state)
{
	static uint64_t in[4][64];
	struct wait_set reads[4];
	struct rig *rig = rig_of(state);
	uint64_t old;

	for (uint32_t k = 0; k < 4; k++) {
		struct transport_io io = {
			.region = rig->region, .off = 4096 * (k + 1ull), .dst = in[k], .len = 512
		};
		uint64_t word = k + 9;

		assert_int_equal(transport_store(rig->region, io.off + 504, &word, 8), 0);
		assert_int_equal(wait_set_read(&reads[k], &io, 1), 0);
		assert_int_equal(transport_faa_word(rig->region, 64, 1, &old), 0);
		assert_int_equal(old, k);
	}
	for (uint32_t k = 4; k-- > 0;) { /* in any order */
		assert_int_equal(wait_set_wait(&reads[k]), 0);
		assert_int_equal(in[k][63], k + 9);
	}
	assert_int_equal(rig_load(rig->region, 64), 4);
}

static void post__runs_in_order(void **state)
{
	struct rig *rig = rig_of(state);
	uint64_t five = 5, seen = 0, ticket = 0;
	struct transport_wr wrs[4] = {
		{ .verb = VERB_WRITE,
		  .io = { .region = rig->region, .off = 64, .src = &five, .len = 8 } },
		{ .verb = VERB_FAA, .atomic = { .region = rig->region, .off = 64, .value = 2 } },
		{ .verb = VERB_CAS,
		  .atomic = { .region = rig->region, .off = 64, .expected = 7, .value = 100 } },
		{ .verb = VERB_READ,
		  .fence = true,
		  .io = { .region = rig->region, .off = 64, .dst = &seen, .len = 8 } },
	};

	assert_int_equal(transport_submit(rig->tr, wrs, 4, SUBMIT_ORDERED, &ticket), 0);
	assert_int_equal(transport_poll(rig->tr, ticket, DEADLINE_NEVER), 0);
	assert_int_equal(wrs[1].atomic.old, 5);
	assert_int_equal(wrs[2].atomic.old, 7);
	assert_int_equal(seen, 100);
}

/* A write behind an atomic, a write behind that, a read behind both: nobody passes another. */
static void post__chains_follow_each_other(void **state)
{
	struct rig *rig = rig_of(state);
	uint64_t one = 1, two = 2, seen, ticket = 0;
	struct transport_wr wrs[4] = {
		{ .verb = VERB_FAA, .atomic = { .region = rig->region, .off = 64, .value = 1 } },
		{ .verb = VERB_WRITE,
		  .fence = true,
		  .io = { .region = rig->region, .off = 128, .src = &one, .len = 8 } },
		{ .verb = VERB_WRITE,
		  .io = { .region = rig->region, .off = 128, .src = &two, .len = 8 } },
		{ .verb = VERB_READ,
		  .io = { .region = rig->region, .off = 128, .dst = &seen, .len = 8 } },
	};

	for (int i = 0; i < 50; i++) {
		seen = 0;
		assert_int_equal(transport_submit(rig->tr, wrs, 2, SUBMIT_ORDERED, &ticket), 0);
		assert_int_equal(transport_submit(rig->tr, wrs + 2, 1, SUBMIT_ORDERED, &ticket), 0);
		assert_int_equal(transport_submit(rig->tr, wrs + 3, 1, SUBMIT_ORDERED, &ticket), 0);
		assert_int_equal(transport_poll(rig->tr, ticket, DEADLINE_NEVER), 0);
		assert_int_equal(seen, 2);
	}
	assert_int_equal(rig_load(rig->region, 64), 50);
}

/* An atomic that follows writes, of its own chain and of others, sees them placed. */
static void post__atomics_see_the_writes_before_them(void **state)
{
	static uint64_t rows[4096];
	struct rig *rig = rig_of(state);
	uint64_t ticket = 0;
	struct transport_wr wrs[2] = {
		{ .verb = VERB_WRITE,
		  .io = { .region = rig->region, .off = 4096, .src = rows, .len = sizeof(rows) } },
		{ .verb = VERB_CAS,
		  .atomic = { .region = rig->region, .off = 4096 + sizeof(rows) - 8 } },
	};

	for (uint64_t i = 1; i <= 20; i++) {
		rows[4095] = i;
		wrs[1].atomic.expected = i;
		assert_int_equal(transport_submit(rig->tr, wrs, 1, SUBMIT_ORDERED, &ticket), 0);
		assert_int_equal(transport_submit(rig->tr, wrs + 1, 1, SUBMIT_ORDERED, &ticket), 0);
		assert_int_equal(transport_poll(rig->tr, ticket, DEADLINE_NEVER), 0);
		assert_int_equal(wrs[1].atomic.old, i);
	}
}

static void poll__of_a_chain_that_was_never_posted(void **state)
{
	struct rig *rig = rig_of(state);

	assert_error(transport_poll(rig->tr, 1, DEADLINE_NEVER), -EINVAL);
}

static void post__of_nothing_is_done_at_once(void **state)
{
	struct rig *rig = rig_of(state);
	uint64_t ticket = 9;

	assert_int_equal(transport_submit(rig->tr, NULL, 0, SUBMIT_ORDERED, &ticket), 0);
	assert_int_equal(transport_poll(rig->tr, ticket, 0), 0);
	assert_int_equal(rig->tr->stats.phases, 0);
}

/* In place there are no round trips. */
static uint64_t trips(const struct rig *rig, uint64_t over_a_wire)
{
	return rig->tr->caps & TRANSPORT_ASYNC ? over_a_wire : 0;
}

static void stats__count_every_call_exactly(void **state)
{
	struct rig *rig = rig_of(state);
	struct transport_stats *stats = &rig->tr->stats;
	struct transport_view view = { .region = rig->region, .off = 0, .len = 512 };
	uint64_t words[16] = { 0 }, old;
	struct transport_io io[2] = {
		{ .region = rig->region, .off = 64, .src = words, .len = 128 },
		{ .region = rig->region, .off = 4096, .src = words, .len = 8 },
	};

	assert_int_equal(transport_write(rig->tr, io, 2), 0);
	assert_int_equal(transport_read(rig->tr, io, 1), 0);
	assert_int_equal(transport_cas_word(rig->region, 64, 0, 1, &old), 0);
	assert_int_equal(transport_cas_word(rig->region, 64, 0, 1, &old), 0);
	assert_int_equal(transport_faa_word(rig->region, 64, 1, &old), 0);
	assert_int_equal(transport_view(rig->tr, &view, 1), 0);
	transport_view_end(rig->tr);
	/* Operations in the mapping are not counted as wire operations. */
	assert_int_equal(stats->phases, trips(rig, rig->region->base ? 3 : 6));
	assert_int_equal(stats->writes, 2);
	assert_int_equal(stats->write_bytes, 136);
	assert_int_equal(stats->reads, 2);
	assert_int_equal(stats->read_bytes, 640);
	assert_int_equal(stats->cas, 2);
	assert_int_equal(stats->cas_failed, 1);
	assert_int_equal(stats->faa, 1);
	assert_int_equal(stats->unknown, 0);
}

static void stats__chains_that_one_wait_covers_are_one_phase(void **state)
{
	struct rig *rig = rig_of(state);
	struct transport_wr wrs[2] = {
		{ .verb = VERB_FAA, .atomic = { .region = rig->region, .off = 64, .value = 1 } },
		{ .verb = VERB_FAA, .atomic = { .region = rig->region, .off = 128, .value = 1 } },
	};
	uint64_t first, second, third;

	assert_int_equal(transport_submit(rig->tr, &wrs[0], 1, SUBMIT_ORDERED, &first), 0);
	assert_int_equal(transport_submit(rig->tr, &wrs[1], 1, SUBMIT_ORDERED, &second), 0);
	assert_int_equal(rig->tr->stats.phases, 0); /* nobody waits yet */
	assert_int_equal(transport_poll(rig->tr, first, DEADLINE_NEVER), 0);
	assert_int_equal(transport_poll(rig->tr, second, DEADLINE_NEVER), 0);
	assert_int_equal(transport_poll(rig->tr, second, DEADLINE_NEVER), 0);
	assert_int_equal(rig->tr->stats.phases, trips(rig, 1));
	assert_int_equal(transport_submit(rig->tr, &wrs[0], 1, SUBMIT_ORDERED, &third), 0);
	assert_int_equal(transport_poll(rig->tr, third, DEADLINE_NEVER), 0);
	assert_int_equal(rig->tr->stats.phases, trips(rig, 2));
	assert_int_equal(rig->tr->stats.faa, 3);
}

static void order__is_no_error(void **state)
{
	assert_int_equal(transport_order(rig_of(state)->tr), 0);
}

struct adder {
	struct transport *tr;
	struct region *region;
	int errors;
};

static void *add_many(void *arg)
{
	struct adder *adder = arg;
	uint64_t old;

	for (uint64_t i = 0; i < many(ADDS); i++)
		adder->errors += transport_faa_word(adder->region, 64, 1, &old) != 0;
	return NULL;
}

/* Each thread has a transport; no increment is lost. */
static void faa__of_several_threads_loses_nothing(void **state)
{
	struct rig *rig = rig_of(state);
	struct adder adders[THREADS] = { 0 };
	pthread_t threads[THREADS];

	for (uint64_t i = 0; i < THREADS; i++) {
		adders[i].tr = rig_open(rig, 100 + i);
		adders[i].region = rig_attach(rig, adders[i].tr, 100 + i, RIGHT_ALL);
	}
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, add_many, &adders[i]), 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(adders[i].errors, 0);
		transport_close(&adders[i].tr);
	}
	assert_int_equal(rig_load(rig->region, 64), THREADS * many(ADDS));
}

struct courier {
	struct region *region;
	uint64_t wrong;
};

#define LETTERS 2000
#define LETTER_WORDS 32

/* Publishes a row: its bytes, then by CAS the word that says so. */
static void *publish(void *arg)
{
	struct courier *courier = arg;
	uint64_t row[LETTER_WORDS], old;
	struct transport_io io = {
		.region = courier->region, .off = 4096, .src = row, .len = sizeof(row)
	};

	for (uint64_t n = 1; n <= many(LETTERS); n++) {
		while (rig_load(courier->region, 64) != 2 * (n - 1)) /* taken? */
			sched_yield();
		for (int i = 0; i < LETTER_WORDS; i++)
			row[i] = n;
		courier->wrong += transport_write(io.region->tr, &io, 1) != 0;
		courier->wrong +=
			transport_cas_word(courier->region, 64, 2 * n - 2, 2 * n - 1, &old) != 0;
	}
	return NULL;
}

static void read__after_a_published_word_sees_the_row(void **state)
{
	struct rig *rig = rig_of(state);
	struct transport *tr = rig_open(rig, 100);
	struct courier courier = { .region = rig_attach(rig, tr, 100, RIGHT_ALL) };
	uint64_t row[LETTER_WORDS], old, wrong = 0;
	struct transport_io io = {
		.region = rig->region, .off = 4096, .dst = row, .len = sizeof(row)
	};
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, publish, &courier), 0);
	for (uint64_t n = 1; n <= many(LETTERS); n++) {
		while (rig_load(rig->region, 64) != 2 * n - 1)
			sched_yield();
		assert_int_equal(transport_read(rig->tr, &io, 1), 0);
		for (int i = 0; i < LETTER_WORDS; i++)
			wrong += row[i] != n;
		assert_int_equal(transport_cas_word(rig->region, 64, 2 * n - 1, 2 * n, &old), 0);
	}
	pthread_join(thread, NULL);
	assert_int_equal(wrong + courier.wrong, 0);
	transport_close(&tr);
}

const struct CMUnitTest contract_data_tests[] = {
	CONTRACT_TEST(read__returns_what_write_wrote),
	CONTRACT_TEST(write__leaves_the_neighbours_alone),
	CONTRACT_TEST(read__takes_256_ranges),
	CONTRACT_TEST(write__at_the_last_word_of_the_region),
	CONTRACT_TEST(cas__swaps_the_expected_word),
	CONTRACT_TEST(cas__of_another_word_changes_nothing),
	CONTRACT_TEST(cas__of_256_words),
	CONTRACT_TEST(faa__adds_and_wraps),
	CONTRACT_TEST(faa__of_one_word_twice_in_a_call_adds_both),
	CONTRACT_TEST(faa__of_256_words),
	CONTRACT_TEST(view__shows_the_bytes),
	CONTRACT_TEST(view__of_an_addressable_region_copies_nothing),
	CONTRACT_TEST(view__while_one_is_open_is_refused),
	CONTRACT_TEST(post__runs_in_order),
	CONTRACT_TEST(post__chains_follow_each_other),
	CONTRACT_TEST(post__atomics_see_the_writes_before_them),
	CONTRACT_TEST(poll__of_a_chain_that_was_never_posted),
	CONTRACT_TEST(post__of_nothing_is_done_at_once),
	CONTRACT_TEST(reads__posted_have_come_when_waited_for),
	CONTRACT_TEST(reads__posted_go_on_beside_other_calls),
	CONTRACT_TEST(stats__count_every_call_exactly),
	CONTRACT_TEST(stats__chains_that_one_wait_covers_are_one_phase),
	CONTRACT_TEST(order__is_no_error),
	CONTRACT_TEST(faa__of_several_threads_loses_nothing),
	CONTRACT_TEST(read__after_a_published_word_sees_the_row),
};
const size_t contract_data_count = sizeof(contract_data_tests) / sizeof(contract_data_tests[0]);
