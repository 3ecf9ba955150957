#include "tests/support/cli_fixture.h"

#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/test.h"

#include "base/process.h"

static void read_file(const char *path, char *text)
{
	FILE *file = fopen(path, "re");
	size_t n;

	assert_non_null(file);
	n = fread(text, 1, CLI_OUT_BYTES - 1, file);
	text[n] = 0;
	fclose(file);
}

int cli_run(struct cli_fixture *f, const char *line)
{
	char out[PROCESSES_PATH + 64], err[PROCESSES_PATH + 64], command[1024];
	const char *bin = getenv("RLV_BIN_DIR");
	int status;

	processes_path(&f->ps, "out", out);
	processes_path(&f->ps, "err", err);
	snprintf(command, sizeof(command), "exec timeout 120 %s/relive %s >%s 2>%s </dev/null",
		 bin ? bin : "bin", line, out, err);
	fflush(NULL);
	status = system(command); /* NOLINT(cert-env33-c): the words are ours */
	read_file(out, f->out);
	read_file(err, f->err);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

void cli_expect(struct cli_fixture *f, const char *line, int status)
{
	int got = cli_run(f, line);

	if (got != status)
		fail_msg("relive %s: exit %d, not %d\n%s%s", line, got, status, f->out, f->err);
}

void cli_expect_words(const char *text, const char *words)
{
	if (!strstr(text, words))
		fail_msg("'%s' is not in:\n%s", words, text);
}

pid_t cli_pid(const struct cli_fixture *f, const char *key)
{
	const char *at = strstr(f->out, key);

	if (!at)
		fail_msg("'%s' is not in:\n%s", key, f->out);
	return (pid_t)strtol(at + strlen(key), NULL, 10);
}

void cli_kill_daemon(pid_t pid)
{
	struct process_id id;

	assert_int_equal(process_read((uint32_t)pid, &id), 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	while (!process_is_gone(&id))
		processes_sleep_ns(1000000);
}

int cli_fixture_open(void **state)
{
	struct cli_fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	processes_init(&f->ps);
	/* Private stores of the bench and the demo go there, too. */
	assert_int_equal(setenv("TMPDIR", f->ps.dir, 1), 0);
	*state = f;
	return 0;
}

static bool is_ours(const char *pid, const char *dir)
{
	char path[300], text[CLI_OUT_BYTES];
	FILE *file;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%s/environ", pid);
	file = fopen(path, "re");
	if (!file)
		return false;
	n = fread(text, 1, sizeof(text), file);
	fclose(file);
	return memmem(text, n, dir, strlen(dir)) != NULL;
}

/* Daemons of `relive up` are nobody's children: ours have our directory in their environment. */
int cli_fixture_close(void **state)
{
	struct cli_fixture *f = *state;
	const struct dirent *entry;
	DIR *folder = opendir("/proc");

	assert_non_null(folder);
	while ((entry = readdir(folder)) != NULL) {
		pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (pid > 0 && pid != getpid() && is_ours(entry->d_name, f->ps.dir))
			kill(pid, SIGKILL);
	}
	closedir(folder);
	processes_fini(&f->ps);
	unsetenv("TMPDIR");
	free(f);
	return 0;
}
