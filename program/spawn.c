#include "program/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/os/clock.h"
#include "program/interrupt.h"

#define TAIL_BYTES 2048

bool spawn_beside(const char *file, char path_out[PATH_MAX])
{
	ssize_t len = readlink("/proc/self/exe", path_out, PATH_MAX - 1);
	char *slash;

	path_out[len > 0 ? len : 0] = 0;
	slash = strrchr(path_out, '/');
	if (slash && (size_t)(slash - path_out) + strlen(file) + 2 < PATH_MAX) {
		memcpy(slash + 1, file, strlen(file) + 1);
		if (access(path_out, R_OK) == 0)
			return true;
	}
	snprintf(path_out, PATH_MAX, "%s", file);
	return false;
}

/*
 * Runs in the child: it gets that signal when its parent ends, and exits if the parent has ended.
 */
static void tie_to(pid_t parent, int signal)
{
	prctl(PR_SET_PDEATHSIG, signal);
	if (getppid() != parent)
		_exit(CHAR_MAX); /* the parent had ended before prctl */
}

/*
 * Runs in the child: becomes the daemon by exec(2); never returns. An error goes through the pipe
 * `report`.
 */
static void spawn_become(const struct spawn_daemon *daemon, const char *path, pid_t parent,
			 int report)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE };
	char *argv[64] = { 0 };
	int in, out = STDOUT_FILENO, code;

	setsid();
	if (daemon->tied)
		tie_to(parent, SIGTERM);
	for (size_t i = 0; i < ARRAY_LEN(signals); i++)
		signal(signals[i], SIG_DFL);
	for (size_t i = 0; daemon->argv[i] && i + 1 < ARRAY_LEN(argv); i++)
		argv[i] = strdup(daemon->argv[i]);
	in = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (daemon->log_path)
		out = open(daemon->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (in >= 0 && dup2(in, STDIN_FILENO) >= 0 && out >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
	    (!daemon->log_path || dup2(out, STDERR_FILENO) >= 0))
		execvp(path, argv);
	code = -errno;
	if (write(report, &code, sizeof(code)) != sizeof(code))
		_exit(126);
	_exit(127);
}

int spawn_daemon(const struct spawn_daemon *daemon, pid_t *pid_out)
{
	pid_t parent = getpid(), pid;
	char path[PATH_MAX];
	int report[2], code = 0;

	(void)spawn_beside(daemon->binary, path); /* or as execvp finds it */
	if (pipe2(report, O_CLOEXEC))
		return error_set(-errno, "pipe for %s: %m", daemon->binary);
	fflush(NULL);
	pid = fork();
	if (pid < 0) {
		code = error_set(-errno, "fork for %s: %m", daemon->binary);
		close(report[0]);
		close(report[1]);
		return code;
	}
	if (pid == 0)
		spawn_become(daemon, path, parent, report[1]);
	close(report[1]);

	ssize_t got = read(report[0], &code, sizeof(code));

	close(report[0]);
	if (got == sizeof(code)) {
		waitpid(pid, NULL, 0);
		return error_set(code, "start %s: %s", path, strerror(-code));
	}
	*pid_out = pid;
	return 0;
}

int spawn_fork(pid_t *pid_out)
{
	pid_t parent = getpid(), pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0)
		return error_set(-errno, "fork: %m");
	if (pid == 0) {
		interrupt_ignore();
		tie_to(parent, SIGKILL);
	}
	*pid_out = pid;
	return 0;
}

bool spawn_ended(pid_t pid, int *status_out)
{
	pid_t got = waitpid(pid, status_out, WNOHANG);

	if (got < 0 && errno != EINTR)
		*status_out = 0;
	return got == pid || (got < 0 && errno != EINTR);
}

int spawn_wait(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

/*
 * Waits until the child has ended; false after timeout_ns. interrupt_sleep is not used, as a
 * pending signal must not shorten the wait.
 */
static bool wait_end(pid_t pid, int64_t timeout_ns)
{
	uint64_t deadline = deadline_after(clock_monotonic(), timeout_ns);
	int status;

	while (!spawn_ended(pid, &status)) {
		if (deadline_expired(clock_monotonic(), deadline))
			return false;
		usleep(10 * CLOCK_NS_PER_MS / CLOCK_NS_PER_US);
	}
	return true;
}

void spawn_stop(pid_t pid, int64_t grace_ns)
{
	int status;

	if (pid <= 0 || spawn_ended(pid, &status))
		return;
	kill(pid, SIGTERM);
	if (wait_end(pid, grace_ns))
		return;
	kill(pid, SIGKILL);
	wait_end(pid, -1);
}

const char *spawn_status_text(int status, char text[SPAWN_STATUS_BYTES])
{
	const char *name;

	if (WIFSIGNALED(status)) {
		name = sigabbrev_np(WTERMSIG(status));
		snprintf(text, SPAWN_STATUS_BYTES, "killed by SIG%s", name ? name : "?");
	} else {
		snprintf(text, SPAWN_STATUS_BYTES, "exit %d", WEXITSTATUS(status));
	}
	return text;
}

void spawn_log_tail(const char *log_path, FILE *file)
{
	char text[TAIL_BYTES + 1];
	FILE *log = fopen(log_path, "re");
	const char *start;
	size_t len;
	int lines = 0;

	if (!log)
		return;
	if (fseek(log, -TAIL_BYTES, SEEK_END))
		rewind(log);
	len = fread(text, 1, TAIL_BYTES, log);
	fclose(log);
	while (len && text[len - 1] == '\n')
		len--;
	text[len] = 0;
	for (start = text + len; start > text; start--) {
		if (start[-1] == '\n' && ++lines == 12)
			break;
	}
	fprintf(file, "  the end of %s:\n", log_path);
	for (const char *line = start; *line;) {
		size_t span = strcspn(line, "\n");

		fprintf(file, "    %.*s\n", (int)span, line);
		line += span + (line[span] == '\n');
	}
}
