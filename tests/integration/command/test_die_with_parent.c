/*
 * --die-with-parent: a daemon ends with the process that started it, and does not start without one.
 */
#include <signal.h>
#include <unistd.h>

#include "tests/support/fixture/cli_fixture.h"
#include "tests/support/test.h"

#include "base/os/clock.h"

#define ON_FIXTURE(test) TEST_WITH(test, cli_fixture_open, cli_fixture_close)

struct tied {
	char path[512];
	int pid_fd; /* the daemon's pid is written to it */
	bool late;  /* it starts when its parent has ended */
};

static int start_tied(void *ctx)
{
	const struct tied *tied = ctx;
	pid_t parent = getpid(), pid = fork();

	if (pid == 0) {
		while (tied->late && getppid() == parent)
			usleep(1000);
		if (tied->late && getppid() != 1)
			_exit(TEST_EXIT_SKIP); /* a subreaper is beyond what it can tell */
		execl(tied->path, "relive-metad", "--store", "tied", "--die-with-parent", NULL);
		_exit(127);
	}
	if (write(tied->pid_fd, &pid, sizeof(pid)) != sizeof(pid))
		return 1;
	if (!tied->late)
		pause();
	return 0;
}

static bool has_ended(void *pid)
{
	return kill(*(pid_t *)pid, 0) != 0;
}

static void tie(struct cli_fixture *f, bool late)
{
	struct tied tied = { .late = late };
	char socket[PROCESSES_PATH + 64];
	int fds[2];
	pid_t parent, pid;

	snprintf(tied.path, sizeof(tied.path), "%s/relive-metad", getenv("RLV_BIN_DIR"));
	processes_path(&f->ps, "tied/metad.sock", socket);
	assert_int_equal(pipe(fds), 0);
	tied.pid_fd = fds[1];
	parent = processes_fork(&f->ps, start_tied, &tied);
	assert_int_equal(read(fds[0], &pid, sizeof(pid)), sizeof(pid));
	close(fds[0]);
	close(fds[1]);
	if (late) {
		assert_int_equal(processes_wait(&f->ps, parent, PROCESSES_WAIT_MS), 0);
	} else {
		for (int i = 0; i < PROCESSES_WAIT_MS / 5 && access(socket, F_OK); i++)
			processes_sleep_ns(5 * CLOCK_NS_PER_MS);
		assert_int_equal(access(socket, F_OK), 0);
		processes_kill(&f->ps, parent, SIGKILL);
	}
	assert_true(processes_until(has_ended, &pid));
	if (late)
		assert_int_equal(access(socket, F_OK), -1);
}

ON_FIXTURE(die_with_parent__a_daemon_ends_with_who_started_it)
{
	tie(*state, false);
}

ON_FIXTURE(die_with_parent__a_daemon_whose_parent_has_ended_does_not_start)
{
	tie(*state, true);
}

int main(void)
{
	return test_run(NULL, NULL);
}
