#include "tests/support/sockets.h"
#include "tests/support/processes.h"

#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

#include "base/os/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOOK_US 5000
#define MAX_ARGS 32

/* The number of a started process is kept in its place, for its log's name. */
static uint32_t log_number[PROCESSES_MAX];

/*
 * Before main, so that the whole program is skipped: valgrind knows no pidfds before 3.20, and
 * without them nobody can be proved dead.
 */
static void __attribute__((constructor)) skip_without_pidfds(void)
{
	int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	if (fd < 0 && errno == ENOSYS) {
		dprintf(STDOUT_FILENO, "no pidfd_open here\n");
		_exit(TEST_EXIT_SKIP);
	}
	if (fd >= 0)
		close(fd);
}

void processes_init(struct processes *ps)
{
	memset(ps, 0, sizeof(*ps));
	temp_dir_make(ps->dir);
	assert_int_equal(setenv("RELIVE_RUNTIME_DIR", ps->dir, 1), 0);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

void processes_fini(struct processes *ps)
{
	for (uint32_t i = 0; i < PROCESSES_MAX; i++)
		if (ps->pids[i]) {
			kill(ps->pids[i], SIGKILL);
			waitpid(ps->pids[i], NULL, 0);
		}
	nftw(ps->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	unsetenv("RELIVE_RUNTIME_DIR");
}

void processes_sleep_ns(int64_t ns)
{
	struct timespec ts = { ns / 1000000000, ns % 1000000000 };

	nanosleep(&ts, NULL);
}

void processes_path(const struct processes *ps, const char *name, char out[PROCESSES_PATH + 64])
{
	snprintf(out, PROCESSES_PATH + 64, "%s/%s", ps->dir, name);
}

/* -------- start -------- */

static uint32_t find_place(const struct processes *ps, pid_t pid)
{
	uint32_t i = 0;

	while (i < PROCESSES_MAX && ps->pids[i] != pid)
		i++;
	assert_true(i < PROCESSES_MAX);
	return i;
}

static void log_path(const struct processes *ps, uint32_t place, char out[PROCESSES_PATH + 64])
{
	char name[32];

	snprintf(name, sizeof(name), "log.%u", log_number[place]);
	processes_path(ps, name, out);
}

/* In the child: dies with the test. */
static void become_child(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(126);
}

static void redirect(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);

	if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0)
		_exit(126);
	close(fd);
}

static void program_path(const char *program, char *out, size_t room)
{
	const char *bin = getenv("RLV_BIN_DIR");

	if (strchr(program, '/'))
		snprintf(out, room, "%s", program);
	else
		snprintf(out, room, "%s/%s", bin ? bin : "bin", program);
}

pid_t processes_start(struct processes *ps, const char *program, const char *const *args)
{
	uint32_t place = find_place(ps, 0), n = 0;
	char log[PROCESSES_PATH + 64], path[512];
	const char *argv[MAX_ARGS] = { program };
	pid_t parent = getpid(), pid;

	while (args && args[n]) {
		argv[n + 1] = args[n];
		n++;
		assert_true(n + 1 < MAX_ARGS);
	}
	log_number[place] = ps->n_started++;
	log_path(ps, place, log);
	program_path(program, path, sizeof(path));
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		become_child(parent);
		redirect(log);
		execv(path, (char *const *)argv);
		dprintf(STDERR_FILENO, "exec %s: %s\n", path, strerror(errno));
		_exit(127);
	}
	ps->pids[place] = pid;
	return pid;
}

pid_t processes_fork(struct processes *ps, int (*fn)(void *ctx), void *ctx)
{
	uint32_t place = find_place(ps, 0);
	pid_t parent = getpid(), pid;

	log_number[place] = ps->n_started++;
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		become_child(parent);
		_exit(fn(ctx));
	}
	ps->pids[place] = pid;
	return pid;
}

/* -------- end -------- */

int processes_wait(struct processes *ps, pid_t pid, int timeout_ms)
{
	const struct clock *clk = clock_monotonic();
	uint64_t deadline = deadline_after(clk, timeout_ms * CLOCK_NS_PER_MS);
	uint32_t place = find_place(ps, pid);
	int status;

	while (waitpid(pid, &status, WNOHANG) != pid) {
		if (deadline_expired(clk, deadline))
			return -1;
		usleep(LOOK_US);
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
		(void)processes_log_has(ps, pid, "\x01");
	ps->pids[place] = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void processes_kill(struct processes *ps, pid_t pid, int number)
{
	(void)find_place(ps, pid);
	assert_int_equal(kill(pid, number), 0);
	if (number == SIGKILL || number == SIGTERM || number == SIGINT)
		assert_true(processes_wait(ps, pid, PROCESSES_WAIT_MS) >= 0);
}

bool processes_runs(const struct processes *ps, pid_t pid)
{
	siginfo_t info = { 0 };

	(void)find_place(ps, pid);
	return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	       info.si_pid == 0;
}

bool processes_log_has(const struct processes *ps, pid_t pid, const char *words)
{
	char path[PROCESSES_PATH + 64], text[16384];
	uint32_t place = 0;
	ssize_t n;
	int fd;

	while (place < PROCESSES_MAX && ps->pids[place] != pid)
		place++;
	if (place == PROCESSES_MAX)
		return false;
	log_path(ps, place, path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	if (strstr(text, words))
		return true;
	print_message("log of %d:\n%s", (int)pid, text);
	return false;
}

/* -------- waiting -------- */

bool processes_until(bool (*fn)(void *ctx), void *ctx)
{
	const struct clock *clk = clock_monotonic();
	uint64_t deadline = deadline_after(clk, PROCESSES_WAIT_MS * CLOCK_NS_PER_MS);

	while (!fn(ctx)) {
		if (deadline_expired(clk, deadline))
			return false;
		usleep(LOOK_US);
	}
	return true;
}

struct listener {
	struct processes *ps;
	pid_t pid;
	char path[PROCESSES_PATH + 64];
};

static bool listens(void *ctx)
{
	struct listener *listener = ctx;
	bool seqpacket = strstr(listener->path, "memnode-") != NULL;
	int fd;

	if (!processes_runs(listener->ps, listener->pid)) {
		(void)processes_log_has(listener->ps, listener->pid, "\x01");
		fail_msg("process %d ended before it listened", (int)listener->pid);
	}
	fd = sockets_connect_unix(listener->path, seqpacket ? SOCK_SEQPACKET : SOCK_STREAM);
	if (fd < 0)
		return false;
	close(fd);
	return true;
}

static pid_t start_daemon(struct processes *ps, const char *program, const char *const *args,
			  const char *socket)
{
	struct listener listener = { .ps = ps };

	processes_path(ps, socket, listener.path);
	listener.pid = processes_start(ps, program, args);
	if (!processes_until(listens, &listener)) {
		(void)processes_log_has(ps, listener.pid, "\x01");
		fail_msg("%s does not listen", program);
	}
	return listener.pid;
}

static void append(const char **args, uint32_t n, const char *const *extra)
{
	for (uint32_t i = 0; extra && extra[i]; i++) {
		assert_true(n + 1 < MAX_ARGS);
		args[n++] = extra[i];
	}
	args[n] = NULL;
}

pid_t processes_metad(struct processes *ps, const char *store, const char *const *extra)
{
	const char *args[MAX_ARGS] = { "--store", store };
	char socket[64];

	append(args, 2, extra);
	snprintf(socket, sizeof(socket), "%.40s/metad.sock", store);
	return start_daemon(ps, "relive-metad", args, socket);
}

pid_t processes_memnode(struct processes *ps, const char *store, const char *name,
			const char *const *extra)
{
	const char *transport = getenv("RLV_TEST_TRANSPORT");
	const char *args[MAX_ARGS] = { "--store", store, "--name", name };
	char socket[64];

	if (transport) {
		args[4] = "--transport";
		args[5] = transport;
	}
	append(args, transport ? 6 : 4, extra);
	snprintf(socket, sizeof(socket), "%.24s/memnode-%.24s.sock", store, name);
	return start_daemon(ps, "relive-memnode", args, socket);
}

uint16_t processes_free_port(void)
{
	uint16_t port = 0;

	close(sockets_listen_tcp(&port));
	return port;
}

void processes_token(const struct processes *ps, const char *store, char *token)
{
	char path[2 * PROCESSES_PATH];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/%.64s/token", ps->dir, store);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	n = read(fd, token, PROCESSES_TOKEN_BYTES - 1);
	close(fd);
	assert_int_equal(n, PROCESSES_TOKEN_BYTES - 1);
	token[n] = '\0';
}
