#include "tests/support/attack/other_user.h"

#include "tests/support/test.h"

#include <grp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

bool other_user_skips(void)
{
	bool skips = geteuid() != 0;

	if (skips)
		print_message("skipped: to be other users a test has to be run by root\n");
	return skips;
}

/* A change of uid takes /proc/self/fd away until the next exec. */
static int open_proc(void)
{
	return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

void other_user_begin(void)
{
	assert_int_equal(setresgid(OTHER_NODE, OTHER_NODE, 0), 0);
	assert_int_equal(setresuid(OTHER_NODE, OTHER_NODE, 0), 0);
	assert_int_equal(open_proc(), 0);
}

void other_user_end(void)
{
	assert_int_equal(setresuid(0, 0, 0), 0);
	assert_int_equal(setresgid(0, 0, 0), 0);
	assert_int_equal(open_proc(), 0);
}

static int become(uid_t uid, gid_t group)
{
	if (setresuid(0, 0, 0) || setgroups(group ? 1 : 0, &group) || setresgid(uid, uid, uid) ||
	    setresuid(uid, uid, uid))
		return -1;
	return open_proc();
}

int other_user_run(uid_t uid, gid_t group, int (*fn)(void *ctx), void *ctx)
{
	pid_t pid = fork();
	int status = 0;

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(become(uid, group) ? 127 : fn(ctx));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
