#include "tests/support/attack/kill_step.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/test.h"

#define NO_PTRACE 86 /* exit status of a child that cannot be traced */

static _Noreturn void child(const struct kill_step *step)
{
	int log = open(step->log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	int in = open("/dev/null", O_RDONLY | O_CLOEXEC);

	setpgid(0, 0);
	/* LeakSanitizer traces the program itself, which one that is traced cannot have. */
	setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
	if (log < 0 || in < 0 || dup2(in, STDIN_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 ||
	    dup2(log, STDERR_FILENO) < 0)
		_exit(126);
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		_exit(NO_PTRACE);
	raise(SIGSTOP);
	execv(step->path, (char *const *)step->argv);
	_exit(127);
}

/* Calls that make, change, remove, send, signal or start something; others look or wait. */
static bool is_step(const struct __ptrace_syscall_info *info)
{
	switch (info->entry.nr) {
	case SYS_openat:
		return (info->entry.args[2] & O_CREAT) != 0;
#ifdef SYS_mkdir
	case SYS_mkdir:
	case SYS_unlink:
	case SYS_rmdir:
	case SYS_rename:
	case SYS_link:
	case SYS_fork:
	case SYS_vfork:
#endif
	case SYS_mkdirat:
	case SYS_unlinkat:
	case SYS_renameat:
	case SYS_renameat2:
	case SYS_linkat:
	case SYS_write:
	case SYS_writev:
	case SYS_pwrite64:
	case SYS_ftruncate:
	case SYS_fallocate:
	case SYS_fsync:
	case SYS_fdatasync:
	case SYS_fcntl:
	case SYS_flock:
	case SYS_clone:
	case SYS_clone3:
	case SYS_connect:
	case SYS_bind:
	case SYS_sendto:
	case SYS_sendmsg:
	case SYS_kill:
	case SYS_exit_group:
		return true;
	default:
		return false;
	}
}

/* The signal that a stop hands on. */
static int look_at_stop(const struct kill_step *step, pid_t tid, int status,
			struct kill_step_report *report)
{
	struct __ptrace_syscall_info info;

	if (WSTOPSIG(status) != (SIGTRAP | 0x80))
		return WSTOPSIG(status) == SIGTRAP || WSTOPSIG(status) == SIGSTOP
			       ? 0
			       : WSTOPSIG(status);
	if (ptrace(PTRACE_GET_SYSCALL_INFO, tid, (void *)sizeof(info), &info) <= 0 ||
	    info.op != PTRACE_SYSCALL_INFO_ENTRY || !(step->finest || is_step(&info)))
		return 0;
	if (step->at && report->steps + 1 == step->at)
		report->killed = true;
	else
		report->steps++;
	return 0;
}

static void end_all(pid_t pid)
{
	kill(pid, SIGKILL);
	while (waitpid(-pid, NULL, __WALL) > 0 || errno == EINTR)
		;
}

static void trace(const struct kill_step *step, pid_t pid, struct kill_step_report *report)
{
	int status, number;
	pid_t tid;

	while ((tid = waitpid(-pid, &status, __WALL)) > 0) {
		if (tid == pid && !WIFSTOPPED(status)) {
			report->status = status;
			return;
		}
		if (!WIFSTOPPED(status))
			continue;
		number = look_at_stop(step, tid, status, report);
		if (report->killed) {
			end_all(pid);
			return;
		}
		ptrace(PTRACE_SYSCALL, tid, NULL, (void *)(intptr_t)number);
	}
}

void kill_step_run(const struct kill_step *step, struct kill_step_report *report_out)
{
	const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL;
	int status = 0;
	pid_t pid;

	*report_out = (struct kill_step_report){ 0 };
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		child(step);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == NO_PTRACE) {
		print_message("skipped: no ptrace here\n");
		skip();
	}
	assert_true(WIFSTOPPED(status));
	assert_int_equal(ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)options), 0);
	assert_int_equal(ptrace(PTRACE_SYSCALL, pid, NULL, NULL), 0);
	trace(step, pid, report_out);
}
