/*
 * Logs of the daemons: SIGHUP opens them again, levels and JSON lines by option.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "tests/support/fixture/cli_fixture.h"
#include "tests/support/test.h"

struct log {
	char path[PROCESSES_PATH + 64];
	char old[PROCESSES_PATH + 96];
	char text[65536];
	const char *words; /* that are waited for */
};

static void log_of(const struct cli_fixture *f, const char *daemon, struct log *log_out)
{
	char name[64];

	snprintf(name, sizeof(name), "default/%s.log", daemon);
	processes_path(&f->ps, name, log_out->path);
	snprintf(log_out->old, sizeof(log_out->old), "%s.1", log_out->path);
}

static bool log_has_words(void *ctx)
{
	struct log *log = ctx;
	FILE *file = fopen(log->path, "re");
	size_t n;

	if (!file)
		return false;
	n = fread(log->text, 1, sizeof(log->text) - 1, file);
	fclose(file);
	log->text[n] = 0;
	return strstr(log->text, log->words) != NULL;
}

static void expect_words(struct log *log, const char *words)
{
	log->words = words;
	if (!processes_until(log_has_words, log))
		fail_msg("'%s' is not in %s:\n%s", words, log->path, log->text);
}

#define ON_FIXTURE(test) TEST_WITH(test, cli_fixture_open, cli_fixture_close)

/* -------- rotation -------- */

ON_FIXTURE(daemons__open_their_logs_again_at_sighup)
{
	struct cli_fixture *f = *state;
	struct log metad = { 0 }, node = { 0 };
	pid_t metad_pid, node_pid;

	cli_expect(f, "up --size 32M --json", 0);
	metad_pid = cli_pid(f, "\"metad_pid\":");
	node_pid = cli_pid(f, "\"memnode_pids\":[");
	log_of(f, "metad", &metad);
	log_of(f, "memnode-0", &node);
	assert_int_equal(rename(metad.path, metad.old), 0);
	assert_int_equal(rename(node.path, node.old), 0);
	assert_int_equal(kill(metad_pid, SIGHUP), 0);
	assert_int_equal(kill(node_pid, SIGHUP), 0);
	expect_words(&metad, "");
	expect_words(&node, "");
	cli_expect(f, "status", 0);
	cli_expect_words(f->out, "up");
	assert_int_equal(kill(node_pid, SIGTERM), 0);
	expect_words(&metad, "node"); /* later lines are in the new file */
	assert_int_equal(kill(metad_pid, SIGTERM), 0);
	expect_words(&metad, "stop: signal 15");
	strcpy(metad.path, metad.old);
	expect_words(&metad, "serve"); /* and earlier lines in the old one */
	assert_null(strstr(metad.text, "stop: signal"));
}

ON_FIXTURE(daemons__without_a_log_outlive_sighup)
{
	struct cli_fixture *f = *state;
	pid_t pid = processes_metad(&f->ps, "a", NULL);

	assert_int_equal(kill(pid, SIGHUP), 0);
	cli_expect(f, "table list shm:a", 0);
	assert_int_equal(kill(pid, SIGTERM), 0);
	assert_int_equal(processes_wait(&f->ps, pid, PROCESSES_WAIT_MS), 0);
}

/* -------- options -------- */

ON_FIXTURE(up__passes_the_format_and_level_of_logs_on)
{
	static const char *const daemons[] = { "metad", "memnode-0" };
	struct cli_fixture *f = *state;
	struct log log = { 0 };

	cli_expect(f, "up --size 32M --log-format json --log-level debug", 0);
	for (size_t i = 0; i < ARRAY_LEN(daemons); i++) {
		log_of(f, daemons[i], &log);
		expect_words(&log, "\"level\":\"info\"");
		for (const char *line = log.text; *line; line = strchr(line, '\n') + 1) {
			const char *end = strchr(line, '\n');

			assert_non_null(end);
			assert_memory_equal(line, "{\"time\":\"20", 11);
			assert_memory_equal(end - 2, "\"}", 2);
		}
	}
	cli_expect(f, "up --log-level warn", 1);
	cli_expect_words(f->err, "contradicts");
}

ON_FIXTURE(up__log_level_error_leaves_the_rest_out)
{
	struct cli_fixture *f = *state;
	struct log log = { 0 };

	cli_expect(f, "up --size 32M --log-level error", 0);
	log_of(f, "metad", &log);
	expect_words(&log, "");
	assert_string_equal(log.text, "");
}

int main(void)
{
	return test_run(NULL, NULL);
}
