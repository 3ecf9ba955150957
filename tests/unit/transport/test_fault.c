/* The fault decorator follows its plan, and repeats it for the same seed. */
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

#include "tests/support/fake/fake_clock.h"
#include "tests/support/fake/fault.h"

#define ALWAYS 65536u

struct rig {
	struct transport_target *tg;
	struct transport *tr;
	struct region *region;
};

static int setup(void **state)
{
	struct target_opts target_opts = { .pool_bytes = 2 << 20, .private_memory = true };
	struct target_region spec = { .kind = 1, .size = 2 << 20 };
	struct transport_opts opts = { .client_id = 1 };
	struct transport *inner = NULL;
	struct region_grant grant;
	struct rig *rig = calloc(1, sizeof(*rig));

	assert_non_null(rig);
	*state = rig;
	assert_int_equal(transport_target_open("shm", &target_opts, &rig->tg), 0);
	assert_int_equal(rig->tg->ops->register_region(rig->tg, &spec), 0);
	assert_int_equal(transport_grant(rig->tg, 1, spec.id, RIGHT_ALL, &grant), 0);
	opts.target = rig->tg;
	assert_int_equal(transport_open("embed:", &opts, &inner), 0);
	assert_int_equal(fault_wrap(inner, NULL, &rig->tr), 0);
	assert_int_equal(transport_attach(rig->tr, &grant, &rig->region), 0);
	return 0;
}

static int teardown(void **state)
{
	struct rig *rig = *state;

	transport_close(&rig->tr);
	transport_target_close(&rig->tg);
	free(rig);
	return 0;
}

static uint64_t word(struct rig *rig, uint64_t off)
{
	uint64_t value;

	memcpy(&value, rig->region->base + off, sizeof(value));
	return value;
}

static int add(struct rig *rig)
{
	uint64_t old;

	return transport_faa_word(rig->region, 64, 1, &old);
}

#define RIG_TEST(fn) TEST_WITH(fn, setup, teardown)

RIG_TEST(fail_at__hits_that_call_only)
{
	struct rig *rig = *state;
	struct fault_plan plan = { .fail_at = 3, .fail_code = -EHOSTDOWN };
	struct fault_counts counts;

	fault_set(rig->tr, &plan);
	assert_int_equal(add(rig), 0);
	assert_int_equal(add(rig), 0);
	assert_int_equal(add(rig), -EHOSTDOWN);
	assert_int_equal(add(rig), 0);
	assert_int_equal(word(rig, 64), 3); /* the third did nothing */
	fault_get(rig->tr, &counts);
	assert_int_equal(counts.calls, 4);
	assert_int_equal(counts.failed, 1);
}

RIG_TEST(cut_at__ends_the_connection)
{
	struct rig *rig = *state;
	struct fault_plan plan = { .cut_at = 2 };

	fault_set(rig->tr, &plan);
	assert_int_equal(add(rig), 0);
	for (int i = 0; i < 5; i++)
		assert_int_equal(add(rig), -ECONNRESET);
	assert_int_equal(word(rig, 64), 1);
	fault_set(rig->tr, NULL);
	assert_int_equal(add(rig), 0);
}

RIG_TEST(drop__does_nothing)
{
	struct rig *rig = *state;
	struct fault_plan plan = { .drop_rate = ALWAYS };
	uint64_t one = 1;

	fault_set(rig->tr, &plan);
	assert_int_equal(transport_store(rig->region, 64, &one, 8), -ETIMEDOUT);
	assert_int_equal(add(rig), -ETIMEDOUT);
	assert_int_equal(word(rig, 64), 0);
}

/* Some whole words of it and some not; which ones, the seed says. */
RIG_TEST(tear__writes_whole_words_of_a_part)
{
	struct rig *rig = *state;
	struct fault_plan plan = { .tear_rate = ALWAYS };
	uint64_t row[64], written, least = 64, most = 0;

	for (int i = 0; i < 64; i++)
		row[i] = UINT64_MAX;
	for (uint64_t seed = 1; seed <= 50; seed++) {
		memset(rig->region->base + 4096, 0, sizeof(row));
		plan.seed = seed;
		fault_set(rig->tr, &plan);
		assert_int_equal(transport_store(rig->region, 4096, row, sizeof(row)), -ETIMEDOUT);
		written = 0;
		for (uint64_t i = 0; i < 64; i++) {
			assert_true(word(rig, 4096 + 8 * i) == 0 ||
				    word(rig, 4096 + 8 * i) == UINT64_MAX);
			written += word(rig, 4096 + 8 * i) != 0;
		}
		assert_true(written < 64);
		least = written < least ? written : least;
		most = written > most ? written : most;
	}
	assert_true(least < 16 && most > 48);
	assert_int_equal(word(rig, 4096 + 512), 0);
}

static void advance(void *ctx, uint64_t delay_ns)
{
	fake_clock_advance(ctx, delay_ns);
}

RIG_TEST(delay__moves_the_clock)
{
	struct rig *rig = *state;
	struct fake_clock clock;
	struct fault_plan plan = { .delay_rate = ALWAYS, .delay_ns = 1000 };

	fake_clock_init(&clock, 5);
	plan.delay = advance;
	plan.delay_ctx = &clock;
	fault_set(rig->tr, &plan);
	for (int i = 0; i < 20; i++)
		assert_int_equal(add(rig), 0);
	assert_true(clock.time_ns > 5 && clock.time_ns <= 5 + 20 * 1000);
	assert_int_equal(word(rig, 64), 20);
}

RIG_TEST(reorder__changes_the_order_but_not_the_results)
{
	struct rig *rig = *state;
	struct fault_plan plan = { .reorder = true, .seed = 3 };
	struct transport_atomic ops[64];
	uint64_t seen = 0;
	bool in_order = true;

	fault_set(rig->tr, &plan);
	for (int i = 0; i < 64; i++)
		ops[i] = (struct transport_atomic){ .region = rig->region, .off = 64, .value = 1 };
	assert_int_equal(transport_faa(rig->tr, ops, 64), 0);
	for (uint64_t i = 0; i < 64; i++) {
		assert_int_equal(ops[i].status, ATOMIC_DONE);
		assert_true(ops[i].old < 64);
		seen |= (uint64_t)1 << ops[i].old; /* each turn was somebody's */
		in_order = in_order && ops[i].old == i;
	}
	assert_true(seen == UINT64_MAX);
	assert_false(in_order);
}

RIG_TEST(reorder__keeps_reads_with_their_buffers)
{
	struct rig *rig = *state;
	struct fault_plan plan = { .reorder = true, .seed = 3 };
	uint64_t out[32], in[32];
	struct transport_io io[32];

	fault_set(rig->tr, &plan);
	for (uint64_t i = 0; i < 32; i++) {
		out[i] = i + 1;
		io[i] = (struct transport_io){
			.region = rig->region, .off = 4096 + 64 * i, .src = &out[i], .len = 8
		};
	}
	assert_int_equal(transport_write(rig->tr, io, 32), 0);
	for (int i = 0; i < 32; i++)
		io[i].dst = &in[i];
	assert_int_equal(transport_read(rig->tr, io, 32), 0);
	assert_memory_equal(in, out, sizeof(in));
}

RIG_TEST(unknown__done)
{
	struct rig *rig = *state;
	struct fault_plan plan = { .unknown_rate = ALWAYS, .unknown = FAULT_UNKNOWN_DONE };

	fault_set(rig->tr, &plan);
	assert_int_equal(add(rig), -EIO);
	assert_int_equal(word(rig, 64), 1);
	assert_int_equal(rig->tr->stats.unknown, 1);
}

RIG_TEST(unknown__not_done)
{
	struct rig *rig = *state;
	struct fault_plan plan = { .unknown_rate = ALWAYS, .unknown = FAULT_UNKNOWN_NOT_DONE };
	uint64_t old;

	fault_set(rig->tr, &plan);
	assert_int_equal(add(rig), -EIO);
	assert_int_equal(transport_cas_word(rig->region, 64, 0, 9, &old), -EIO);
	assert_int_equal(word(rig, 64), 0);
}

RIG_TEST(unknown__of_some_in_a_call)
{
	struct rig *rig = *state;
	struct fault_plan plan = { .unknown_rate = ALWAYS / 2, .seed = 11 };
	struct transport_atomic ops[200];
	struct fault_counts counts;
	uint64_t unknown = 0, unknown_done = 0;

	fault_set(rig->tr, &plan);
	for (uint64_t i = 0; i < 200; i++)
		ops[i] = (struct transport_atomic){ .region = rig->region,
						    .off = 4096 + 8 * i,
						    .value = i + 1 };
	assert_int_equal(transport_cas(rig->tr, ops, 200), 0);
	for (uint64_t i = 0; i < 200; i++) {
		if (ops[i].status == ATOMIC_DONE) {
			assert_int_equal(word(rig, 4096 + 8 * i), i + 1);
			continue;
		}
		unknown++;
		unknown_done += word(rig, 4096 + 8 * i) != 0;
	}
	assert_in_range(unknown, 60, 140);
	assert_in_range(unknown_done, unknown / 4, 3 * unknown / 4); /* a fair coin */
	fault_get(rig->tr, &counts);
	assert_int_equal(counts.unknown, unknown);
	assert_int_equal(rig->tr->stats.unknown, unknown);
	assert_int_equal(rig->tr->stats.cas_failed, 0);
}

RIG_TEST(post__that_fails_says_so_at_poll)
{
	struct rig *rig = *state;
	struct fault_plan plan = { .fail_at = 1 };
	struct transport_wr wr = { .verb = VERB_FAA,
				   .atomic = { .region = rig->region, .off = 64, .value = 1 } };
	uint64_t first, second;

	fault_set(rig->tr, &plan);
	assert_int_equal(transport_submit(rig->tr, &wr, 1, SUBMIT_ORDERED, &first), 0);
	assert_int_equal(wr.atomic.status, ATOMIC_UNKNOWN);
	assert_int_equal(transport_submit(rig->tr, &wr, 1, SUBMIT_ORDERED, &second), 0);
	assert_int_equal(transport_poll(rig->tr, first, DEADLINE_NEVER), -ETIMEDOUT);
	assert_int_equal(transport_poll(rig->tr, second, DEADLINE_NEVER), 0);
	assert_int_equal(word(rig, 64), 1);
}

RIG_TEST(post__that_is_torn_ends_early)
{
	struct rig *rig = *state;
	struct fault_plan plan = { .tear_rate = ALWAYS, .seed = 5 };
	struct transport_wr wrs[16];
	uint64_t ticket, done = 0;

	fault_set(rig->tr, &plan);
	for (uint64_t i = 0; i < 16; i++)
		wrs[i] = (struct transport_wr){
			.verb = VERB_FAA,
			.atomic = { .region = rig->region, .off = 4096 + 8 * i, .value = 1 }
		};
	assert_int_equal(transport_submit(rig->tr, wrs, 16, SUBMIT_ORDERED, &ticket), 0);
	assert_int_equal(transport_poll(rig->tr, ticket, DEADLINE_NEVER), -ETIMEDOUT);
	for (uint64_t i = 0; i < 16; i++) {
		assert_int_equal(wrs[i].atomic.status, ATOMIC_UNKNOWN);
		assert_true(i == 0 || word(rig, 4096 + 8 * i) <= word(rig, 4088 + 8 * i));
		done += word(rig, 4096 + 8 * i);
	}
	assert_true(done < 16);
}

RIG_TEST(same_seed__same_faults)
{
	struct rig *rig = *state;
	struct fault_plan plan = { .seed = test_seed("fault", 42),
				   .fail_rate = ALWAYS / 4,
				   .drop_rate = ALWAYS / 4 };
	int first[100], failed = 0;

	fault_set(rig->tr, &plan);
	for (int i = 0; i < 100; i++)
		failed += (first[i] = add(rig)) != 0;
	assert_in_range(failed, 15, 75);
	fault_set(rig->tr, &plan);
	for (int i = 0; i < 100; i++)
		assert_int_equal(add(rig), first[i]);
}

int main(void)
{
	return test_run(NULL, NULL);
}
