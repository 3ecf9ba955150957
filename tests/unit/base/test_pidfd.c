#include "tests/support/test.h"
#include "tests/support/ticks.h"

#include <sys/wait.h>
#include <unistd.h>

#include "base/os/pidfd.h"
#include "base/os/process.h"

TEST(pidfd_is_dead__signals_end_no_wait)
{
	struct process_id id;
	int told[2], pidfd = -1;
	pid_t child;
	char byte;

	assert_int_equal(pipe(told), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0 && close(told[1]) == 0)
		_exit(read(told[0], &byte, 1) == 1 ? 0 : 1);
	assert_int_equal(process_read((uint32_t)child, &id), 0);
	assert_int_equal(pidfd_open_process(&id, &pidfd), 0);
	assert_false(pidfd_is_dead(pidfd, 0));
	ticks_begin(told[1]);
	assert_true(pidfd_is_dead(pidfd, 10000));
	ticks_end();
	assert_int_equal(waitpid(child, NULL, 0), child);
	close(pidfd);
	close(told[0]);
	close(told[1]);
}

int main(void)
{
	return test_run(NULL, NULL);
}
