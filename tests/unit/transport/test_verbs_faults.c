/*
 * The initiator when the device or the target fails: the error, unknown atomics, and that nothing
 * is posted twice, lands later, or leaks.
 */
#include "tests/support/fake/fake_verbs_pair.h"
#include "tests/support/test.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/mem/chunk.h"

#include <errno.h>
#include <string.h>

static struct fake_pair *pair_of(void **state)
{
	return *state;
}

/* Time goes by only while somebody waits. */
static void let_time_pass(struct fake_pair *pair)
{
	atomic_store(&pair->clock.step_ns, PAIR_TIMEOUT_NS / 8);
}

/* The connection has ended for good: everything says so, and nothing reaches the device. */
static void expect_lost(struct fake_pair *pair)
{
	struct transport_atomic op = { .region = pair->region, .off = 64, .value = 1 };
	uint32_t asked = fake_verbs.n_sent;
	uint64_t word = 0, ticket = 0;
	struct transport_wr wr = { .verb = VERB_FAA, .atomic = op };

	assert_int_equal(pair->tr->broken, -ECONNRESET);
	assert_int_equal(fake_verbs.destroyed, fake_verbs.connected);
	assert_int_equal(transport_load(pair->region, 64, &word), -ECONNRESET);
	assert_int_equal(transport_store(pair->region, 64, &word, 8), -ECONNRESET);
	assert_int_equal(transport_faa(pair->tr, &op, 1), -ECONNRESET);
	assert_int_equal(op.status, ATOMIC_UNKNOWN);
	wr.atomic.status = ATOMIC_DONE;
	assert_int_equal(transport_submit(pair->tr, &wr, 1, SUBMIT_ORDERED, &ticket), -ECONNRESET);
	assert_int_equal(wr.atomic.status, ATOMIC_UNKNOWN);
	assert_int_equal(transport_order(pair->tr), -ECONNRESET);
	assert_non_null(strstr(error_last(), "lost"));
	assert_int_equal(fake_verbs.n_sent, asked);
}

/* -------- links that take the place of others -------- */

/* An addition of the first link that is late: when it comes, the second one is open. */
static uint64_t word_after_a_late_addition(struct fake_pair *pair, uint64_t replaces)
{
	const struct transport_opts opts = {
		.clock = &pair->clock.clock,
		.timeout_ns = PAIR_TIMEOUT_NS,
		.client_id = PAIR_CLIENT,
		.replaces = replaces,
	};
	struct transport_wr late = {
		.verb = VERB_FAA,
		.atomic = { .region = pair->region, .off = 64, .value = 1 },
	};
	struct transport *second;
	uint64_t ticket, word;

	fake_verbs.hold = true;
	fake_verbs.hold_first = fake_verbs.connected;
	assert_int_equal(transport_submit(pair->tr, &late, 1, SUBMIT_ORDERED, &ticket), 0);
	if (transport_open(pair->tg->ops->uri(pair->tg), &opts, &second))
		fail_msg("%s", error_last());
	fake_verbs.hold = false;
	(void)!transport_poll(pair->tr, ticket, clock_now_ns(&pair->clock.clock) + 1);
	word = *fake_pair_word(pair, 64);
	transport_close(&second);
	return word;
}

#define PAIR_TEST(name) TEST_WITH(name, fake_pair_setup, fake_pair_teardown)

PAIR_TEST(open__in_the_place_of_a_link_lets_nothing_of_it_land)
{
	struct fake_pair *pair = pair_of(state);

	assert_int_equal(word_after_a_late_addition(pair, pair->tr->link), 0);
	assert_int_equal(pair->tr->broken, -ECONNRESET);
}

PAIR_TEST(open__beside_a_link_leaves_it)
{
	struct fake_pair *pair = pair_of(state);

	assert_int_equal(word_after_a_late_addition(pair, 0), 1);
	assert_int_equal(pair->tr->broken, 0);
}

/* -------- completions with an error -------- */

static void fail_next(enum ibv_wr_opcode opcode, uint32_t skip, enum ibv_wc_status status,
		      bool done)
{
	fake_verbs.fault = (struct fake_fault){
		.armed = true, .opcode = opcode, .skip = skip, .status = status, .done = done
	};
}

/* Whatever the error, and whether the word was changed or not: unknown, and asked once. */
TEST(cas__error_is_unknown_and_never_repeated)
{
	static const enum ibv_wc_status errors[] = {
		IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR,     IBV_WC_REM_ACCESS_ERR,
		IBV_WC_REM_OP_ERR,    IBV_WC_LOC_QP_OP_ERR,    IBV_WC_RNR_RETRY_EXC_ERR,
		IBV_WC_FATAL_ERR,     IBV_WC_RESP_TIMEOUT_ERR,
	};

	for (size_t i = 0; i < 2 * ARRAY_LEN(errors); i++) {
		struct transport_atomic op = { .off = 64, .value = 1, .old = 55 };
		struct fake_pair *pair;

		assert_int_equal(fake_pair_setup(state), 0);
		pair = pair_of(state);
		op.region = pair->region;
		fail_next(IBV_WR_ATOMIC_CMP_AND_SWP, 0, errors[i / 2], i % 2);
		assert_int_equal(transport_cas(pair->tr, &op, 1), -ECONNRESET);
		assert_int_equal(op.status, ATOMIC_UNKNOWN);
		assert_int_equal(*fake_pair_word(pair, 64), i % 2);
		assert_int_equal(pair->tr->stats.unknown, 1);
		expect_lost(pair);
		assert_int_equal(fake_verbs_count(IBV_WR_ATOMIC_CMP_AND_SWP, 0), 1);
		assert_int_equal(fake_pair_teardown(state), 0);
	}
}

/*
 * One queue pair: results before the error are known, though none of them asked for a completion.
 */
PAIR_TEST(faa__those_before_the_error_are_known)
{
	struct fake_pair *pair = pair_of(state);
	struct transport_atomic ops[8];

	for (uint64_t i = 0; i < 8; i++) {
		*fake_pair_word(pair, 8 * i) = 10 * i;
		ops[i] = (struct transport_atomic){ .region = pair->region,
						    .off = 8 * i,
						    .value = 1 };
	}
	fail_next(IBV_WR_ATOMIC_FETCH_AND_ADD, 5, IBV_WC_RETRY_EXC_ERR, true);
	assert_int_equal(transport_faa(pair->tr, ops, 8), -ECONNRESET);
	for (uint64_t i = 0; i < 8; i++) {
		assert_int_equal(ops[i].status, i < 5 ? ATOMIC_DONE : ATOMIC_UNKNOWN);
		if (i < 5)
			assert_int_equal(ops[i].old, 10 * i);
		assert_int_equal(*fake_pair_word(pair, 8 * i), 10 * i + (i < 6));
	}
	assert_int_equal(pair->tr->stats.unknown, 3);
	assert_int_equal(fake_verbs_count(IBV_WR_ATOMIC_FETCH_AND_ADD, 0), 8);
}

/* Two queue pairs: results of the other one are kept or unknown, never wrong. */
PAIR_TEST(faa__error_on_one_of_two_queue_pairs)
{
	struct fake_pair *pair = pair_of(state);
	struct transport_atomic ops[TRANSPORT_VECTOR];
	uint64_t unknown = 0;

	for (uint64_t i = 0; i < TRANSPORT_VECTOR; i++)
		ops[i] = (struct transport_atomic){ .region = pair->region,
						    .off = 8 * i,
						    .value = 1 };
	fail_next(IBV_WR_ATOMIC_FETCH_AND_ADD, 200, IBV_WC_REM_OP_ERR, false);
	assert_int_equal(transport_faa(pair->tr, ops, TRANSPORT_VECTOR), -ECONNRESET);
	for (uint64_t i = 0; i < TRANSPORT_VECTOR; i++) {
		unknown += ops[i].status == ATOMIC_UNKNOWN;
		if (ops[i].status == ATOMIC_DONE)
			assert_int_equal(ops[i].old, 0);
		assert_true(*fake_pair_word(pair, 8 * i) <= 1);
		assert_true(ops[i].status == ATOMIC_UNKNOWN || *fake_pair_word(pair, 8 * i) == 1);
	}
	assert_true(unknown >= 56);
	assert_int_equal(pair->tr->stats.unknown, unknown);
	assert_int_equal(fake_verbs_count(IBV_WR_ATOMIC_FETCH_AND_ADD, 0), TRANSPORT_VECTOR);
	expect_lost(pair);
}

PAIR_TEST(read__error_ends_the_connection)
{
	struct fake_pair *pair = pair_of(state);
	uint64_t word = 0;

	fail_next(IBV_WR_RDMA_READ, 0, IBV_WC_RETRY_EXC_ERR, false);
	assert_int_equal(transport_load(pair->region, 64, &word), -ECONNRESET);
	assert_non_null(strstr(error_last(), "retries exceeded"));
	expect_lost(pair);
}

PAIR_TEST(write__flush_as_the_first_error)
{
	struct fake_pair *pair = pair_of(state);
	uint64_t word = 1;

	fail_next(IBV_WR_RDMA_WRITE, 0, IBV_WC_WR_FLUSH_ERR, false);
	assert_int_equal(transport_store(pair->region, 64, &word, 8), -ECONNRESET);
	assert_non_null(strstr(error_last(), "flushed"));
	expect_lost(pair);
}

PAIR_TEST(poll__chain_that_fails_half_way)
{
	struct fake_pair *pair = pair_of(state);
	uint64_t row = 6, ticket = 0, other = 0;
	struct transport_wr wrs[] = {
		{ .verb = VERB_WRITE,
		  .io = { .region = pair->region, .off = 64, .src = &row, .len = 8 } },
		{ .verb = VERB_CAS, .atomic = { .region = pair->region, .off = 128, .value = 1 } },
		{ .verb = VERB_FAA, .atomic = { .region = pair->region, .off = 192, .value = 1 } },
	};
	struct transport_wr late = wrs[2];

	fail_next(IBV_WR_ATOMIC_CMP_AND_SWP, 0, IBV_WC_REM_OP_ERR, false);
	assert_int_equal(transport_submit(pair->tr, wrs, 3, SUBMIT_ORDERED, &ticket), 0);
	assert_int_equal(transport_submit(pair->tr, &late, 1, SUBMIT_ORDERED, &other), 0);
	assert_int_equal(transport_poll(pair->tr, other, DEADLINE_NEVER), -ECONNRESET);
	assert_int_equal(transport_poll(pair->tr, ticket, DEADLINE_NEVER), -ECONNRESET);
	assert_int_equal(*fake_pair_word(pair, 64), 6);
	assert_int_equal(*fake_pair_word(pair, 192), 0); /* nothing after the error */
	assert_int_equal(wrs[1].atomic.status, ATOMIC_UNKNOWN);
	assert_int_equal(wrs[2].atomic.status, ATOMIC_UNKNOWN);
	assert_int_equal(late.atomic.status, ATOMIC_UNKNOWN);
	assert_int_equal(pair->tr->stats.unknown, 3);
	expect_lost(pair);
}

/* -------- posting and polling that fail -------- */

PAIR_TEST(cas__device_takes_only_some)
{
	struct fake_pair *pair = pair_of(state);
	struct transport_atomic ops[6];

	for (uint64_t i = 0; i < 6; i++)
		ops[i] = (struct transport_atomic){ .region = pair->region,
						    .off = 8 * i,
						    .value = 1 };
	fake_verbs.post_room = 3 + 1;
	assert_int_equal(transport_cas(pair->tr, ops, 6), -ECONNRESET);
	for (uint64_t i = 0; i < 6; i++)
		assert_int_equal(ops[i].status, ATOMIC_UNKNOWN);
	assert_int_equal(fake_verbs.doorbells, 1); /* the rest was not tried again */
	expect_lost(pair);
}

PAIR_TEST(post__device_takes_nothing)
{
	struct fake_pair *pair = pair_of(state);
	struct transport_wr wr = { .verb = VERB_FAA,
				   .atomic = { .region = pair->region, .off = 64, .value = 1 } };
	uint64_t ticket = 0;

	fake_verbs.fail_call = 1;
	assert_int_equal(transport_submit(pair->tr, &wr, 1, SUBMIT_ORDERED, &ticket), -ECONNRESET);
	assert_int_equal(*fake_pair_word(pair, 64), 0);
	expect_lost(pair);
}

PAIR_TEST(read__completion_queue_overruns)
{
	struct fake_pair *pair = pair_of(state);
	uint64_t word = 0;

	fake_verbs.overrun = true;
	assert_int_equal(transport_load(pair->region, 64, &word), -ECONNRESET);
	expect_lost(pair);
	fake_verbs.overrun = false;
}

/* -------- deadlines -------- */

PAIR_TEST(cas__deadline_is_unknown_and_destroys_the_queue_pairs)
{
	struct fake_pair *pair = pair_of(state);
	struct transport_atomic op = { .region = pair->region, .off = 64, .value = 1 };

	fake_verbs.hold = true;
	let_time_pass(pair);
	assert_int_equal(transport_cas(pair->tr, &op, 1), -ETIMEDOUT);
	assert_int_equal(op.status, ATOMIC_UNKNOWN);
	assert_int_equal(fake_verbs.destroyed, fake_verbs.connected);
	fake_verbs.hold = false;
	expect_lost(pair);
	assert_int_equal(*fake_pair_word(pair, 64), 0);
	assert_int_equal(fake_verbs_count(IBV_WR_ATOMIC_CMP_AND_SWP, 0), 1);
}

PAIR_TEST(read__nothing_lands_after_the_deadline)
{
	struct fake_pair *pair = pair_of(state);
	struct mem buffer = { 0 };
	struct transport_io io = { .region = pair->region, .off = 64, .mem = &buffer, .len = 64 };
	uint64_t word;

	assert_true(chunk_make_room(&buffer, 64));
	io.dst = buffer.ptr;
	*fake_pair_word(pair, 64) = 9;
	fake_verbs.hold = true;
	let_time_pass(pair);
	assert_int_equal(transport_read(pair->tr, &io, 1), -ETIMEDOUT);
	fake_verbs.hold = false;
	expect_lost(pair);
	memcpy(&word, buffer.ptr, sizeof(word));
	assert_int_equal(word, 0);
	chunk_drop(&buffer);
}

/* The slow one of two queue pairs decides; time is looked at though the other one completes. */
PAIR_TEST(faa__deadline_of_one_of_two_queue_pairs)
{
	struct fake_pair *pair = pair_of(state);
	struct transport_atomic ops[TRANSPORT_VECTOR];
	uint64_t known = 0;

	for (uint64_t i = 0; i < TRANSPORT_VECTOR; i++)
		ops[i] = (struct transport_atomic){ .region = pair->region,
						    .off = 8 * i,
						    .value = 1 };
	fake_verbs.hold = true;
	fake_verbs.hold_first = 1;
	let_time_pass(pair);
	assert_int_equal(transport_faa(pair->tr, ops, TRANSPORT_VECTOR), -ETIMEDOUT);
	for (uint64_t i = 0; i < TRANSPORT_VECTOR; i++)
		known += ops[i].status == ATOMIC_DONE;
	assert_int_equal(known, TRANSPORT_VECTOR / 2);
	assert_int_equal(pair->tr->stats.unknown, TRANSPORT_VECTOR / 2);
	expect_lost(pair);
}

PAIR_TEST(poll__callers_deadline_leaves_the_chain_outstanding)
{
	struct fake_pair *pair = pair_of(state);
	struct transport_wr wr = { .verb = VERB_FAA,
				   .atomic = { .region = pair->region, .off = 64, .value = 1 } };
	uint64_t ticket = 0, now = clock_now_ns(&pair->clock.clock);

	fake_verbs.hold = true;
	assert_int_equal(transport_submit(pair->tr, &wr, 1, SUBMIT_ORDERED, &ticket), 0);
	assert_int_equal(transport_poll(pair->tr, ticket, now), -ETIMEDOUT);
	assert_int_equal(pair->tr->broken, 0);
	fake_verbs.hold = false;
	assert_int_equal(transport_poll(pair->tr, ticket, DEADLINE_NEVER), 0);
	assert_int_equal(wr.atomic.status, ATOMIC_DONE);
	assert_int_equal(*fake_pair_word(pair, 64), 1);
}

PAIR_TEST(poll__chains_own_deadline_ends_the_connection)
{
	struct fake_pair *pair = pair_of(state);
	struct transport_wr wr = { .verb = VERB_FAA,
				   .atomic = { .region = pair->region, .off = 64, .value = 1 } };
	uint64_t ticket = 0;

	fake_verbs.hold = true;
	assert_int_equal(transport_submit(pair->tr, &wr, 1, SUBMIT_ORDERED, &ticket), 0);
	let_time_pass(pair);
	assert_int_equal(transport_poll(pair->tr, ticket, DEADLINE_NEVER), -ETIMEDOUT);
	assert_int_equal(wr.atomic.status, ATOMIC_UNKNOWN);
	expect_lost(pair);
}

/* Nobody polls it: the next call that waits finds out. */
PAIR_TEST(read__behind_a_chain_that_is_late)
{
	struct fake_pair *pair = pair_of(state);
	struct transport_wr wr = { .verb = VERB_FAA,
				   .atomic = { .region = pair->region, .off = 64, .value = 1 } };
	uint64_t ticket = 0, word = 0;

	fake_verbs.hold = true;
	assert_int_equal(transport_submit(pair->tr, &wr, 1, SUBMIT_ORDERED, &ticket), 0);
	let_time_pass(pair);
	assert_int_equal(transport_load(pair->region, 64, &word), -ETIMEDOUT);
	assert_int_equal(transport_poll(pair->tr, ticket, DEADLINE_NEVER), -ECONNRESET);
	expect_lost(pair);
}

PAIR_TEST(close__of_what_hangs_ends_at_the_deadline)
{
	struct fake_pair *pair = pair_of(state);
	struct transport_wr wr = { .verb = VERB_FAA,
				   .atomic = { .region = pair->region, .off = 64, .value = 1 } };
	uint64_t ticket = 0;

	fake_verbs.hold = true;
	assert_int_equal(transport_submit(pair->tr, &wr, 1, SUBMIT_ORDERED, &ticket), 0);
	let_time_pass(pair);
	transport_close(&pair->tr);
	assert_int_equal(fake_verbs.destroyed, fake_verbs.connected);
}

PAIR_TEST(attach__target_that_does_not_answer)
{
	struct fake_pair *pair = pair_of(state);
	struct region *region = NULL;

	fake_verbs.idle = NULL;
	let_time_pass(pair);
	assert_int_equal(fake_pair_attach(pair, pair->tr, &region), -ETIMEDOUT);
	assert_null(region);
	expect_lost(pair);
}

PAIR_TEST(open__target_that_does_not_answer)
{
	struct fake_pair *pair = pair_of(state);
	struct transport *tr = NULL;

	fake_verbs.idle = NULL;
	let_time_pass(pair);
	assert_int_equal(fake_pair_open(pair, &tr), -ETIMEDOUT);
	assert_null(tr);
}

/* -------- events -------- */

PAIR_TEST(faa__target_hangs_up_meanwhile)
{
	struct fake_pair *pair = pair_of(state);
	struct transport_wr wr = {
		.verb = VERB_FAA,
		.atomic = { .region = pair->region, .off = 64, .value = 1 },
	};
	uint64_t ticket;

	fake_verbs.hold = true;
	assert_int_equal(transport_submit(pair->tr, &wr, 1, SUBMIT_UNORDERED, &ticket), 0);
	fake_verbs_event(RDMA_CM_EVENT_DISCONNECTED);
	assert_int_equal(transport_poll(pair->tr, ticket, DEADLINE_NEVER), -ECONNRESET);
	assert_int_equal(wr.atomic.status, ATOMIC_UNKNOWN);
	expect_lost(pair);
}

/* No completion ever comes of a device that is gone: the event must do. */
PAIR_TEST(faa__device_is_removed_meanwhile)
{
	struct fake_pair *pair = pair_of(state);
	struct transport_wr wr = {
		.verb = VERB_FAA,
		.atomic = { .region = pair->region, .off = 64, .value = 1 },
	};
	uint64_t ticket;

	fake_verbs.hold = true;
	assert_int_equal(transport_submit(pair->tr, &wr, 1, SUBMIT_UNORDERED, &ticket), 0);
	fake_verbs_event(RDMA_CM_EVENT_DEVICE_REMOVAL);
	assert_int_equal(transport_poll(pair->tr, ticket, DEADLINE_NEVER), -ECONNRESET);
	assert_int_equal(wr.atomic.status, ATOMIC_UNKNOWN);
	assert_int_equal(*fake_pair_word(pair, 64), 0);
	expect_lost(pair);
}

/* -------- the n-th call fails -------- */

/* A whole life; the first error, or 0. */
static int live(struct fake_pair *pair)
{
	uint64_t row[64] = { 5 }, seen[64] = { 0 }, ticket = 0;
	struct transport_io in = { .off = 512, .src = row, .len = sizeof(row) };
	struct transport_io out = { .off = 512, .dst = seen, .len = sizeof(seen) };
	struct transport_wr wr = { .verb = VERB_FAA, .atomic = { .off = 64, .value = 1 } };
	struct transport_atomic op = { .off = 128, .value = 1 };
	int ret = fake_pair_connect(pair);

	in.region = out.region = wr.atomic.region = op.region = pair->region;
	if (ret == 0)
		ret = transport_write(pair->tr, &in, 1);
	if (ret == 0)
		ret = transport_read(pair->tr, &out, 1);
	if (ret == 0)
		ret = transport_cas(pair->tr, &op, 1);
	if (ret == 0)
		ret = transport_submit(pair->tr, &wr, 1, SUBMIT_ORDERED, &ticket);
	if (ret == 0)
		ret = transport_poll(pair->tr, ticket, DEADLINE_NEVER);
	if (pair->region)
		transport_detach(&pair->region);
	transport_close(&pair->tr);
	if (ret == 0)
		assert_memory_equal(row, seen, sizeof(row));
	return ret;
}

static void expect_typed(int ret)
{
	static const int known[] = { 0,        -ENOMEM, -ECONNRESET, -ECONNREFUSED, -ETIMEDOUT,
				     -ENOTSUP, -ENOENT, -EIO,        -EPROTO };

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (ret == known[i])
			return;
	fail_msg("%d: %s", ret, error_last());
}

TEST(every__call_of_rdma_core_may_fail)
{
	uint32_t n, failed = 0;

	for (n = 1;; n++) {
		struct fake_pair pair = { 0 };
		int ret;

		fake_verbs_begin();
		fake_pair_listen(&pair);
		let_time_pass(&pair);
		fake_verbs.fail_call = n;
		ret = live(&pair);
		expect_typed(ret);
		failed += ret != 0;
		fake_verbs.fail_call = 0;
		fake_pair_close(&pair);
		if (!fake_verbs.fail_fired)
			break;
	}
	print_message("%u calls, %u of which matter\n", n - 1, failed);
	assert_true(n > 40);
	assert_true(failed > n / 2);
}

TEST(every__allocation_may_fail)
{
	uint32_t n;

	for (n = 1;; n++) {
		struct fake_pair pair = { 0 };
		bool fired;

		fake_verbs_begin();
		fake_pair_listen(&pair);
		let_time_pass(&pair);
		mem_fail_after(n);
		expect_typed(live(&pair));
		fired = mem_fail_fired();
		mem_fail_after(0);
		fake_pair_close(&pair);
		if (!fired)
			break;
	}
	assert_true(n > 10);
}

int main(void)
{
	return test_run(NULL, NULL);
}
