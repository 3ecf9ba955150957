#include "tests/support/test.h"

#include "base/os/process.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(process_self__names_this_process)
{
	struct process_id id = { 0 };

	assert_int_equal(process_self(&id), 0);
	assert_int_equal(id.pid, getpid());
	assert_true(id.start_time > 0);
	assert_false(process_is_gone(&id));
}

TEST(process_read__unknown_pid_gives_esrch)
{
	struct process_id id = { .pid = 7 };

	assert_int_equal(process_read(0x7fffffff, &id), -ESRCH);
	assert_int_equal(id.pid, 7);
}

TEST(process_is_gone__another_start_time)
{
	struct process_id id;

	assert_int_equal(process_self(&id), 0);
	id.start_time++;
	assert_true(process_is_gone(&id));
}

TEST(process_is_gone__another_boot)
{
	struct process_id id;

	assert_int_equal(process_self(&id), 0);
	id.boot_id[3] ^= 1;
	assert_true(process_is_gone(&id));
}

/* A killed child is gone before its parent has waited for it; a stopped one is not. */
TEST(process_is_gone__killed_child_but_not_a_stopped_one)
{
	struct process_id id;
	siginfo_t info;
	pid_t pid = fork();

	if (pid == 0) {
		for (;;)
			pause();
	}
	assert_true(pid > 0);
	assert_int_equal(process_read((uint32_t)pid, &id), 0);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED), 0);
	assert_false(process_is_gone(&id));
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	assert_true(process_is_gone(&id));
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_true(process_is_gone(&id));
}

int main(void)
{
	return test_run(NULL, NULL);
}
