#include "tests/support/command.h"

#include "tests/support/test.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define LINE_BYTES 1024

static void read_file(const char *path, char *text)
{
	FILE *file = fopen(path, "re");
	size_t n;

	assert_non_null(file);
	n = fread(text, 1, COMMAND_BYTES - 1, file);
	text[n] = 0;
	fclose(file);
}

int command_shell(const struct processes *ps, const char *line, char *out, char *err)
{
	char out_path[PROCESSES_PATH + 64], err_path[PROCESSES_PATH + 64], shell[2 * LINE_BYTES];
	const char *bin = getenv("RLV_BIN_DIR");
	int status;

	processes_path(ps, "out", out_path);
	processes_path(ps, "err", err_path);
	snprintf(shell, sizeof(shell), "exec timeout 120 %s/relive %s >%s 2>%s </dev/null",
		 bin ? bin : "bin", line, out_path, err_path);
	fflush(NULL);
	status = system(shell); /* NOLINT(cert-env33-c): the words are ours */
	read_file(out_path, out);
	read_file(err_path, err);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

int command_run(struct command *command, const char *fmt, ...)
{
	char line[LINE_BYTES];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	return command_shell(command->ps, line, command->out, command->err);
}

void command_expect(struct command *command, int status, const char *fmt, ...)
{
	char line[LINE_BYTES];
	va_list args;
	int got;

	va_start(args, fmt);
	(void)vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	got = command_shell(command->ps, line, command->out, command->err);
	if (got != status)
		fail_msg("relive %s: exit %d, not %d\n%s%s", line, got, status, command->out,
			 command->err);
}

void command_expect_words(const char *text, const char *words)
{
	if (!strstr(text, words))
		fail_msg("'%s' is not in:\n%s", words, text);
}
