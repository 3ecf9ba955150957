/*
 * Steady state enters the kernel not once: strace counts the same calls of ten thousand rounds of
 * append, sample and update as of a hundred. This program runs itself under strace.
 */
#include "tests/support/fixture/replay_fixture.h"
#include "tests/support/test.h"

#include "transport/barrier.h"

#include <ctype.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SELF RLV_TEST_BIN_DIR "/integration_test_syscalls"

/* The loop that strace observes. */
static int work(uint32_t rounds)
{
	const struct rlv_table_opts opts = { .capacity = 2048, .shards = 2 };
	struct rlv_sampler_opts how = { .batch_size = 32 };
	const float td[32] = { 0.5f };
	struct rlv_steps steps = RLV_STEPS_INIT;
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	sampler = replay_sampler(&fx, &how);
	steps.n = 8;
	steps.columns = replay_columns(&fx, 0, 0, 8);
	for (uint32_t i = 0; i < rounds + 1000; i++) { /* the first ones touch the memory */
		const struct rlv_batch *batch;

		if (rlv_writer_append(writer, 0, &steps, NULL) ||
		    rlv_sampler_sample(sampler, 32, 0, &batch) ||
		    rlv_sampler_update(sampler, batch->key, td, 32, NULL))
			return 1;
		rlv_batch_release(sampler, batch);
	}
	replay_end(&fx, &writer, &sampler);
	return 0;
}

/* Calls of a run as `strace -c` sums them up; -1: there is no strace here, or it may not trace. */
static long count_calls(const char *rounds)
{
	char command[1024], line[256];
	long calls = -1;
	FILE *out;

	snprintf(command, sizeof(command),
		 "strace -f -qq -c -U calls,name -o /dev/stdout %s %s 2>&1", SELF, rounds);
	out = popen(command, "r");
	if (!out)
		return -1;
	while (fgets(line, sizeof(line), out))
		if (strstr(line, "total") && isdigit((unsigned char)line[strspn(line, " ")]))
			calls = strtol(line, NULL, 10);
	return pclose(out) ? -1 : calls;
}

TEST(client__steady_state_makes_no_system_call)
{
	long few = count_calls("100"), many;

	if (few < 0) {
		print_message("skipped: strace cannot trace here\n");
		exit(TEST_EXIT_SKIP);
	}
	many = count_calls("10000");
	print_message("system calls: %ld and %ld\n", few, many);
	assert_int_equal(few, many);
}

int main(int argc, char **argv)
{
#if defined(__SANITIZE_ADDRESS__)
	const bool sanitized = true;
#else
	const bool sanitized = BARRIER_TSAN;
#endif

	if (argc == 1 && sanitized) {
		print_message("skipped: a sanitizer makes calls of its own\n");
		return TEST_EXIT_SKIP;
	}
	if (argc == 1 && getenv("RLV_TEST_SLOW")) {
		print_message("skipped: valgrind makes calls of its own\n");
		return TEST_EXIT_SKIP;
	}
	if (argc > 1)
		return work((uint32_t)strtoul(argv[1], NULL, 10));
	return test_run(NULL, NULL);
}
