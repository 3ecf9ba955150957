/* relive pool corun: jobs as processes under a broker, and learners in a cgroup. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/pool/memory_group.h"
#include "tests/support/command.h"
#include "tests/support/must.h"

#define LIMIT ((uint64_t)16 << 20)

static struct processes ps;
static struct command command;

static int begin(void **state)
{
	(void)state;
	processes_init(&ps);
	command.ps = &ps;
	return 0;
}

static int end(void **state)
{
	(void)state;
	processes_fini(&ps);
	return 0;
}

static void glutton(const struct memory_group *group)
{
	char *all;

	if (memory_group_enter(group))
		_exit(1);
	all = mmap(NULL, 4 * LIMIT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (all == MAP_FAILED)
		_exit(2);
	memset(all, 1, 4 * LIMIT);
	_exit(3);
}

TEST_WITH(memory_group__ends_who_needs_more, begin, end)
{
	struct memory_group group;
	uint64_t kills, peak;
	int status;
	pid_t child;

	if (memory_group_make(LIMIT, &group) == -ENOTSUP) {
		print_message("skipped: %s\n", error_last());
		skip();
	}
	child = fork();
	if (child == 0)
		glutton(&group);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	must(memory_group_kills(&group, &kills), "memory_group_kills");
	must(memory_group_peak(&group, &peak), "memory_group_peak");
	memory_group_remove(&group);
	assert_int_equal(kills, 1);
	assert_in_range(peak, LIMIT / 2, LIMIT);
	assert_int_equal(access(group.folder, F_OK), -1);
}

/* The line of a metric, or the next one behind a line. */
static const char *line_of(const char *text, const char *metric, const char *params)
{
	char words[128];

	snprintf(words, sizeof(words), "\"metric\":\"%s\"", metric);
	for (; text && *text; text = strchr(text, '\n'), text += text != NULL) {
		const char *stop = strchr(text, '\n');
		const char *found = strstr(text, words), *with = strstr(text, params);

		if (stop && found && found < stop && with && with < stop)
			return found;
	}
	fail_msg("no %s of %s in %s", metric, params, command.out);
	return NULL;
}

TEST_WITH(memory_group__each_has_its_address_space, begin, end)
{
	struct memory_group group;
	int status;
	pid_t child;

	memory_group_each(LIMIT, &group);
	child = fork();
	if (child == 0)
		glutton(&group);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 2);
}

static void assert_learners(const char *set)
{
	static const char *const ways[] = { "serial", "sum of peaks", "gate" };

	for (size_t i = 0; i < 3; i++) {
		char params[96];

		snprintf(params, sizeof(params), "\"set\":\"%s\",\"policy\":\"%s\"", set, ways[i]);
		assert_non_null(strstr(line_of(command.out, "oom_kills", params), "\"value\":0,"));
		(void)line_of(command.out, "makespan_s", params);
	}
}

/* In a cgroup, or where none can be made each for itself, which a line says. */
TEST_WITH(pool_corun__learners_live_with_memory_of_less_than_two, begin, end)
{
	command_expect(&command, 0, "pool corun --set learners --rounds 1 --quick --json");
	if (!strstr(command.err, "RLIMIT_AS for each process: ")) {
		assert_learners("learners");
		(void)line_of(command.out, "oom_kills", "\"policy\":\"no gate\"");
		command_expect(
			&command, 0,
			"pool corun --set learners --limit address-space --rounds 1 --quick --json");
		assert_string_equal(command.err, "");
	}
	assert_learners("learners, each");
	assert_null(strstr(command.out, "no gate"));
}

TEST_WITH(pool_corun__predicts_what_it_runs, begin, end)
{
	command_expect(&command, 0, "pool corun --set tight --rounds 1 --quick --json");
	(void)line_of(command.out, "jct_s", "\"trace\":\"nature-cnn\"");
	(void)line_of(command.out, "predicted_jct_s", "\"trace\":\"lstm\"");
	(void)line_of(command.out, "predicted_over_measured", "\"trace\":\"\"");
	assert_null(strstr(command.out, "learners"));
}

int main(void)
{
	if (test_skips_msan("libevent"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
