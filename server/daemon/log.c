#include "server/daemon/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/os/clock.h"
#include "base/json.h"
#include "base/log.h"

#include "server/daemon/log_limit.h"

/* Written by setup; the descriptors also by the handler of SIGHUP. */
static struct {
	FILE *file;
	char path[PATH_MAX]; /* "" = stderr */
	int fds[3];          /* all descriptors of this file, -1 = none */
	enum log_level level;
	bool json;
	pthread_mutex_t mutex; /* held while writing */
	struct log_limit limit;
} to = { .fds = { -1, -1, -1 }, .level = LOG_LEVEL_INFO, .mutex = PTHREAD_MUTEX_INITIALIZER };

/* -------- lines -------- */

/* Writes a line with the time, as text or JSON. Errors are ignored: a full disk loses log lines
   only. */
static void write_line(enum log_level level, const char *where, const char *text)
{
	char stamp[40];
	struct json json;
	struct timespec ts;
	struct tm tm;
	size_t len;

	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	len = strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(stamp + len, sizeof(stamp) - len, ".%03ldZ", ts.tv_nsec / 1000000);
	if (to.json) {
		json_init(&json, to.file);
		json_object_begin(&json);
		json_put_string(&json, "time", stamp);
		json_put_string(&json, "level", log_level_name(level));
		json_put_string(&json, "where", where);
		json_put_string(&json, "message", text);
		json_object_end(&json);
		json_newline(&json);
		(void)!json_finish(&json);
	} else {
		fprintf(to.file, "%s %s %s: %s\n", stamp, log_level_name(level), where, text);
	}
	fflush(to.file);
}

/* -------- the file -------- */

/*
 * Handler of SIGHUP: opens the log file by name and replaces each old descriptor by dup3: a
 * concurrent write goes whole to one of the files. If the open fails, the old file stays in use.
 */
static void open_again(int number)
{
	static const char failed[] = "log: cannot be opened again by its name, and goes on here\n";
	int saved = errno, fd;

	(void)number;
	if (to.path[0]) {
		fd = open(to.path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
		if (fd < 0)
			(void)!write(to.fds[0], failed, sizeof(failed) - 1);
		for (size_t i = 0; i < ARRAY_LEN(to.fds) && fd >= 0; i++)
			if (to.fds[i] >= 0)
				(void)dup3(fd, to.fds[i], i == 0 ? O_CLOEXEC : 0);
		if (fd >= 0)
			close(fd);
	}
	errno = saved;
}

/* Renames a log FILE that has reached 8 MiB to FILE.1, in place of an older FILE.1, and begins a
   new FILE: a log never uses more than about 16 MiB. */
static void bound_file(void)
{
	char former[PATH_MAX + 2];
	struct stat st;

	if (!to.path[0] || fstat(to.fds[0], &st) || !S_ISREG(st.st_mode) || st.st_size < 8 << 20)
		return;
	snprintf(former, sizeof(former), "%s.1", to.path);
	if (rename(to.path, former) == 0 || errno == ENOENT)
		open_again(0);
}

/* Writes the line, unless the rate limit of its kind, `where`, suppresses it: peers can trigger any
   number of log lines. Numbers of suppressed lines come first. */
static void on_line(void *ctx, enum log_level level, const char *where, const char *text)
{
	const char *silenced;
	uint64_t left_out;
	char words[64];

	(void)ctx;
	pthread_mutex_lock(&to.mutex);
	if (log_limit_pass(&to.limit, where, clock_now_ns(clock_monotonic()))) {
		bound_file();
		while ((silenced = log_limit_take(&to.limit, &left_out)) != NULL) {
			snprintf(words, sizeof(words), "... and %" PRIu64 " more like this",
				 left_out);
			write_line(LOG_LEVEL_WARN, silenced, words);
		}
		write_line(level, where, text);
	}
	pthread_mutex_unlock(&to.mutex);
}

static bool is_same_file(int a, int b)
{
	struct stat of_a, of_b;

	return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
	       of_a.st_ino == of_b.st_ino;
}

void daemon_log_begin(void)
{
	struct sigaction action = { .sa_handler = open_again, .sa_flags = SA_RESTART };

	to.file = stderr;
	log_set(on_line, NULL, to.level);
	sigaction(SIGHUP, &action, NULL);
}

int daemon_log_open(const char *path)
{
	FILE *file;

	if (strlen(path) >= sizeof(to.path))
		return error_set(-EINVAL, "log %.64s: the name is too long", path);
	file = fopen(path, "ae");
	if (!file)
		return error_set(-EINVAL, "log %s: cannot be opened: %s", path, strerror(errno));
	to.file = file;
	to.fds[0] = fileno(file);
	to.fds[1] = is_same_file(to.fds[0], STDOUT_FILENO) ? STDOUT_FILENO : -1;
	to.fds[2] = is_same_file(to.fds[0], STDERR_FILENO) ? STDERR_FILENO : -1;
	memcpy(to.path, path, strlen(path) + 1);
	return 0;
}

int daemon_log_set_level(const char *name)
{
	for (int level = LOG_LEVEL_ERROR; level <= LOG_LEVEL_DEBUG; level++) {
		if (strcmp(name, log_level_name((enum log_level)level)) != 0)
			continue;
		to.level = (enum log_level)level;
		log_set(on_line, NULL, to.level);
		return 0;
	}
	return error_set(-EINVAL, "--log-level %.16s: want error, warn, info or debug", name);
}

int daemon_log_set_format(const char *name)
{
	to.json = strcmp(name, "json") == 0;
	if (!to.json && strcmp(name, "text") != 0)
		return error_set(-EINVAL, "--log-format %.16s: want text or json", name);
	return 0;
}

void daemon_log_failure(const char *program)
{
	bool in_log = to.path[0] || to.json;

	if (in_log)
		log_error("%s ends: %s", program, error_last());
	if (!in_log || (to.path[0] && to.fds[2] < 0))
		fprintf(stderr, "%s: %s\n", program, error_last());
}
