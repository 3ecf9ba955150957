/*
 * test_ofi.c - the contract suite over the ofi transport, with the target in the same process.
 */
#include "tests/contract/suite/contract.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/fake/fault.h"
#include "wire/ofi_layout.h"

#include "tests/support/gauge.h"

#include "base/bits.h"

static int open_wrapped(struct rig *rig, uint64_t client_id, struct transport **tr_out)
{
	struct transport_opts opts = { .client_id = client_id };
	struct transport *inner = NULL;
	int ret = transport_open(rig->uri, &opts, &inner);

	if (ret == 0)
		ret = fault_wrap(inner, NULL, tr_out);
	if (ret == 0)
		(*tr_out)->caps &= ~(uint32_t)TRANSPORT_ASYNC; /* it waits for each call */
	return ret;
}

static uint64_t lists(struct rig *rig)
{
	struct target_stats stats;

	rig->tg->ops->stats(rig->tg, &stats);
	return gauge_of(stats, "lists");
}

/* What a call costs: 256 requests of any kinds are one list, and one answer; of a chain 1088 are. */
static void list__one_for_each_call(void **state)
{
	struct rig *rig = rig_of(state);
	static struct transport_wr wrs[OFI_LIST_MAX + 1];
	uint64_t words[TRANSPORT_VECTOR], before = lists(rig);
	struct transport_io io[TRANSPORT_VECTOR];
	struct transport_span span = { 0 };

	for (uint32_t i = 0; i < TRANSPORT_VECTOR; i++)
		io[i] = (struct transport_io){
			.region = rig->region, .off = 64 * i, .dst = &words[i], .len = 8
		};
	assert_int_equal(transport_read(rig->tr, io, TRANSPORT_VECTOR), 0);
	assert_int_equal(lists(rig), before + 1);
	for (uint32_t i = 0; i <= OFI_LIST_MAX; i++) {
		wrs[i] = (struct transport_wr){ .verb = i % 3 == 0 ? VERB_WRITE : VERB_FAA };
		if (i % 3 == 0)
			wrs[i].io = io[i % TRANSPORT_VECTOR];
		else
			wrs[i].atomic = (struct transport_atomic){ .region = rig->region,
								   .off = 1 << 20,
								   .value = 1 };
	}
	assert_int_equal(transport_submit_chain(rig->tr, wrs, OFI_LIST_MAX, &span), 0);
	assert_int_equal(transport_poll(rig->tr, span.last, DEADLINE_NEVER), 0);
	assert_int_equal(lists(rig), before + 1 + 1);
	assert_int_equal(rig_load(rig->region, 1 << 20), OFI_LIST_MAX - (OFI_LIST_MAX + 2) / 3);
	before = lists(rig);
	assert_int_equal(transport_submit_chain(rig->tr, wrs, OFI_LIST_MAX + 1, &span), 0);
	assert_int_equal(transport_poll(rig->tr, span.last, DEADLINE_NEVER), 0);
	assert_int_equal(lists(rig), before + 2);
}

/* A long READ is sent from the region itself, and yet shows what was there before the next request. */
static void list__long_read_comes_before_what_follows(void **state)
{
	struct rig *rig = rig_of(state);
	static uint64_t words[1024];
	struct transport_wr wrs[2] = {
		{ .verb = VERB_READ,
		  .io = { .region = rig->region, .dst = words, .len = sizeof(words) } },
		{ .verb = VERB_FAA,
		  .atomic = { .region = rig->region, .off = sizeof(words) - 8, .value = 1 } },
	};
	struct transport_span span = { 0 };

	for (uint64_t i = 0; i < 100; i++) {
		assert_int_equal(transport_submit_chain(rig->tr, wrs, 2, &span), 0);
		assert_int_equal(transport_poll(rig->tr, span.last, DEADLINE_NEVER), 0);
		assert_int_equal(words[1023] + 1, rig_load(rig->region, sizeof(words) - 8));
	}
}

/* The answer to a chain that nobody waits for comes with the next one, or soon. */
static void list__answered_with_the_next(void **state)
{
	struct rig *rig = rig_of(state);
	struct transport_wr add = { .verb = VERB_FAA,
				    .atomic = { .region = rig->region, .value = 1 } };
	struct target_stats stats, after;
	struct transport_span span = { 0 };
	uint64_t together = 0;

	/* A thread that has lost its processor may flush: not each time. */
	for (int i = 0; i < 200; i++) {
		rig->tg->ops->stats(rig->tg, &stats);
		assert_int_equal(transport_post_chain(rig->tr, &add, 1, &span), 0);
		assert_int_equal(rig_load(rig->region, 0), (uint64_t)i + 1);
		assert_int_equal(transport_look(rig->tr, span.last, 0), 0);
		rig->tg->ops->stats(rig->tg, &after);
		assert_int_equal(gauge_of(after, "lists"), gauge_of(stats, "lists") + 2);
		together += gauge_of(after, "sends") == gauge_of(stats, "sends") + 1;
	}
	assert_true(together > 0);
	add.atomic.status = ATOMIC_UNKNOWN;
	assert_int_equal(transport_post_chain(rig->tr, &add, 1, &span), 0);
	assert_int_equal(transport_poll(rig->tr, span.last, DEADLINE_NEVER), 0);
	assert_int_equal(add.atomic.status, ATOMIC_DONE);
	assert_int_equal(add.atomic.old, 200);
}

/* A draw of 256 reads so much of a level. A full connection may take an answer in parts: not each time. */
static void list__of_a_level_is_answered_by_one_send(void **state)
{
	enum { NODE_BYTES = 256 };
	struct rig *rig = rig_of(state);
	static uint8_t nodes[256 * NODE_BYTES];
	struct transport_io io[256];
	struct target_stats stats, after;
	uint64_t together = 0;

	for (uint32_t i = 0; i < 256; i++)
		io[i] = (struct transport_io){ .region = rig->region,
					       .off = (uint64_t)i * NODE_BYTES,
					       .dst = nodes + (size_t)i * NODE_BYTES,
					       .len = NODE_BYTES };
	for (int i = 0; i < 50; i++) {
		rig->tg->ops->stats(rig->tg, &stats);
		assert_int_equal(transport_read(rig->tr, io, 256), 0);
		rig->tg->ops->stats(rig->tg, &after);
		together += gauge_of(after, "sends") == gauge_of(stats, "sends") + 1;
	}
	assert_true(together > 0);
}

/* Guarded requests behind a CAS that finds another word are skipped, of that list only; others are not. */
static void list__guarded_requests_depend_on_the_cas(void **state)
{
	struct rig *rig = rig_of(state);
	const uint64_t mark = 77;
	struct transport_wr wrs[] = {
		{ .verb = VERB_FAA,
		  .guard = true,
		  .atomic = { .region = rig->region, .off = 64, .value = 1 } },
		{ .verb = VERB_CAS,
		  .atomic = { .region = rig->region, .off = 0, .expected = 5, .value = 6 } },
		{ .verb = VERB_FAA,
		  .guard = true,
		  .atomic = { .region = rig->region, .off = 64, .value = 10 } },
		{ .verb = VERB_WRITE,
		  .guard = true,
		  .io = { .region = rig->region, .off = 128, .src = &mark, .len = 8 } },
		{ .verb = VERB_FAA, .atomic = { .region = rig->region, .off = 64, .value = 100 } },
	};
	struct transport_span span = { 0 };

	for (uint64_t round = 0; round < 2; round++) {
		assert_int_equal(transport_submit_chain(rig->tr, wrs, ARRAY_LEN(wrs), &span), 0);
		assert_int_equal(transport_poll(rig->tr, span.last, DEADLINE_NEVER), 0);
		assert_int_equal(wrs[0].atomic.status, ATOMIC_DONE);
		assert_int_equal(wrs[2].atomic.status, round ? ATOMIC_DONE : ATOMIC_SKIPPED);
		assert_int_equal(wrs[4].atomic.status, ATOMIC_DONE);
		assert_int_equal(wrs[4].atomic.old, round ? 112 : 1);
		assert_int_equal(rig_load(rig->region, 128), round ? mark : 0);
		rig_store(rig->region, 0, 5);
	}
	assert_int_equal(rig_load(rig->region, 64), 212);
	wrs[1].guard = true; /* only what follows a CAS can be */
	assert_int_equal(transport_submit_chain(rig->tr, wrs, ARRAY_LEN(wrs), &span), -EINVAL);
	wrs[1].guard = false;
	wrs[3].io.len = 16;
	assert_int_equal(transport_submit_chain(rig->tr, wrs, ARRAY_LEN(wrs), &span), -EINVAL);
}

/* CPU time of the agent's thread in this process. */
static uint64_t agent_cpu_ns(void)
{
	unsigned long long ns = 0;
	glob_t tasks;

	assert_int_equal(glob("/proc/self/task/*", 0, NULL, &tasks), 0);
	for (size_t i = 0; i < tasks.gl_pathc && ns == 0; i++) {
		char path[64], name[32] = "";
		FILE *file;

		snprintf(path, sizeof(path), "%.40s/comm", tasks.gl_pathv[i]);
		file = fopen(path, "re");
		if (file && fgets(name, sizeof(name), file) && strcmp(name, "relive-ofi\n") == 0) {
			snprintf(path, sizeof(path), "%.40s/schedstat", tasks.gl_pathv[i]);
			file = freopen(path, "re", file);
			assert_non_null(file);
			assert_int_equal(fscanf(file, "%llu", &ns), 1); /* NOLINT(cert-err34-c) */
		}
		if (file)
			(void)fclose(file);
	}
	globfree(&tasks);
	return ns;
}

/*
 * A client is connected, and asks for nothing: less than a thousandth of a core. Not in each window: it
 * looks on for a moment, and that can be a long one on a busy machine.
 */
static void agent__sleeps_while_nobody_calls(void **state)
{
	const uint64_t window_us = 200000;
	struct rig *rig = rig_of(state);
	uint64_t before, used = UINT64_MAX;

	assert_int_equal(rig_load(rig->region, 0), 0);
	for (int i = 0; i < 20 && used >= window_us; i++) { /* ns, of a thousand times as many */
		before = agent_cpu_ns();
		if (before == 0) {
			print_message("no schedstat of the agent's thread\n");
			skip();
		}
		(void)usleep((useconds_t)window_us);
		used = agent_cpu_ns() - before;
		print_message("%llu us of CPU in 200 ms\n", (unsigned long long)used / 1000);
	}
	assert_true(used < window_us);
}

int main(void)
{
	static const struct contract_kind kinds[] = {
		{ .name = "ofi", .target = "ofi", .listens = true },
		{ .name = "ofi far", .target = "ofi", .listens = true, .far = true },
		{ .name = "ofi under the fault decorator",
		  .target = "ofi",
		  .listens = true,
		  .far = true,
		  .open = open_wrapped },
		{ .name = "ofi dir",
		  .target = "ofi",
		  .listens = true,
		  .in_file = true,
		  .in_dir = true },
	};
	static const struct CMUnitTest tests[] = {
		CONTRACT_TEST(list__one_for_each_call),
		CONTRACT_TEST(list__long_read_comes_before_what_follows),
		CONTRACT_TEST(list__answered_with_the_next),
		CONTRACT_TEST(list__of_a_level_is_answered_by_one_send),
		CONTRACT_TEST(list__guarded_requests_depend_on_the_cas),
		CONTRACT_TEST(agent__sleeps_while_nobody_calls),
	};
	int failed;

	if (contract_lacks_device("ofi"))
		return TEST_EXIT_SKIP;
	contract_use(&kinds[1]);
	failed = TEST_RUN(tests, NULL, NULL);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		failed += contract_run(&kinds[i]);
	return failed;
}
