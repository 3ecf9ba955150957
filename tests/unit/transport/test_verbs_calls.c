/*
 * test_verbs_calls.c - finding the module. A process looks for it once, so each test has its own.
 */
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transport/verbs/calls.h"

/* Result of fn in a process that has not looked for the module yet. */
static int in_child(int (*fn)(void))
{
	int status = 0;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(fn());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int load_what_is_not_there(void)
{
	const struct verbs_calls *calls = NULL;
	int wrong = 0;

	(void)setenv("RLV_VERBS_MODULE", "/nowhere/librelive-verbs.so", 1);
	for (int i = 0; i < 2; i++) {
		error_clear();
		wrong += verbs_calls_load(&calls) != -ENOTSUP || calls;
		wrong += !strstr(error_last(), "/nowhere/") || !strstr(error_last(), "rdma-core") ||
			 !strstr(error_last(), "RLV_VERBS_MODULE");
	}
	return wrong;
}

TEST(load__without_the_module_says_what_to_do)
{
	assert_int_equal(in_child(load_what_is_not_there), 0);
}

static int load_another_library(void)
{
	const struct verbs_calls *calls = NULL;

	(void)setenv("RLV_VERBS_MODULE", "libm.so.6", 1);
	return verbs_calls_load(&calls) != -ENOTSUP || !strstr(error_last(), "another version");
}

TEST(load__of_another_library_is_refused)
{
	assert_int_equal(in_child(load_another_library), 0);
}

static int load_in_grandchild(void)
{
	const struct verbs_calls *calls = NULL;

	return verbs_calls_load(&calls) != -ECHILD;
}

static int load_what_was_built(void)
{
	const struct verbs_calls *calls = NULL, *again = NULL;

	(void)unsetenv("RLV_VERBS_MODULE");
	if (verbs_calls_load(&calls) || verbs_calls_load(&again) || again != calls)
		return 1;
	return calls->version != VERBS_CALLS_VERSION || !calls->cm_connect ||
	       in_child(load_in_grandchild);
}

TEST(load__finds_the_module_and_refuses_forked_children)
{
	if (TEST_MSAN)
		skip();
	assert_int_equal(in_child(load_what_was_built), 0);
}

/* Before anybody registers memory, and once. */
static int load_in_a_shadow(void)
{
	const struct verbs_calls *calls = NULL;

	(void)unsetenv("SHADOW_FORK_INIT");
	(void)setenv("RLV_VERBS_MODULE", RLV_TEST_BIN_DIR "/../lib/shadow/librelive-verbs.so", 1);
	if (verbs_calls_load(&calls) || verbs_calls_load(&calls))
		return 1;
	return !getenv("SHADOW_FORK_INIT") || strcmp(getenv("SHADOW_FORK_INIT"), "once") != 0;
}

TEST(load__makes_rdma_core_ready_for_forks)
{
	if (TEST_MSAN)
		skip();
	assert_int_equal(in_child(load_in_a_shadow), 0);
}

static int load_what_is_used(void)
{
	static const struct verbs_calls mine = { .version = VERBS_CALLS_VERSION };
	const struct verbs_calls *calls = NULL;

	(void)setenv("RLV_VERBS_MODULE", "/nowhere", 1);
	verbs_calls_use(&mine);
	if (verbs_calls_load(&calls) || calls != &mine)
		return 1;
	verbs_calls_use(NULL);
	return verbs_calls_load(&calls) != -ENOTSUP;
}

TEST(use__comes_before_the_module)
{
	assert_int_equal(in_child(load_what_is_used), 0);
}

int main(void)
{
	return test_run(NULL, NULL);
}
