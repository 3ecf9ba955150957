#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Length of "bench replay" in "bench replay [OPTIONS]": the words without alternatives. */
static int command_length(const char *usage)
{
	size_t len = 0;

	for (;;) {
		size_t word = strcspn(usage + len, " ");

		if (word == 0 || strcspn(usage + len, "[|") < word)
			break;
		len += word;
		if (!usage[len])
			return (int)len;
		len++;
	}
	return len ? (int)len - 1 : 0;
}

int cli_parse(const struct args *args, int argc, char *const *argv)
{
	int ret = args_parse(args, argc, argv);

	if (ret == ARGS_HELP) {
		args_print_help(args, stdout);
		return CLI_OK;
	}
	if (ret) {
		cli_error("%s", error_last());
		cli_hint("relive %.*s --help", command_length(args->usage), args->usage);
		return CLI_USAGE;
	}
	return CLI_CONTINUE;
}

void cli_error(const char *fmt, ...)
{
	va_list args;

	fflush(stdout);
	fputs("relive: ", stderr);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
}

void cli_hint(const char *fmt, ...)
{
	va_list args;

	fputs("  try: ", stderr);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
}

static void report(const char *what, const char *why, int code)
{
	if (*why)
		cli_error("%s: %s (%s)", what, why, rlv_error_name(code));
	else
		cli_error("%s: %s (%s)", what, strerror(-code), rlv_error_name(code));
}

int cli_fail(int code, const char *fmt, ...)
{
	char what[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(what, sizeof(what), fmt, args);
	va_end(args);
	report(what, rlv_last_error(), code);
	return CLI_FAILURE;
}

int cli_fail_local(int code, const char *fmt, ...)
{
	char what[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(what, sizeof(what), fmt, args);
	va_end(args);
	report(what, error_last_code() == code ? error_last() : "", code);
	return CLI_FAILURE;
}

static void hint_store(const char *uri, int code)
{
	bool down = code == -ECONNREFUSED || code == -ECONNRESET; /* ended just now */

	if ((code == -ENOENT || down) && strncmp(uri, "shm:", 4) == 0)
		cli_hint("relive up --store %s", uri + 4);
	else if (down)
		cli_hint("relive up --store NAME on that host: it starts what is missing");
	else if (code == -ETIMEDOUT)
		cli_hint("--timeout 30s, or look at the log of relive-metad");
	else if (code == -EINVAL)
		cli_hint("shm:NAME, relive://HOST:PORT or embed:FILE");
	else if (code == -EACCES)
		cli_hint("run as the user who started the store");
}

int cli_store_open(const char *uri, int64_t timeout_ns, bool read_only,
		   struct rlv_store **store_out)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	int ret;

	opts.timeout_ns = timeout_ns;
	opts.read_only = read_only;
	ret = rlv_store_open(uri, &opts, store_out);
	if (ret) {
		cli_fail(ret, "%s", uri);
		hint_store(uri, ret);
	}
	return ret;
}

void cli_store_close(struct rlv_store **store)
{
	int ret = rlv_store_close(store);

	if (ret)
		cli_fail(ret, "close the store");
}

void cli_table_close(struct rlv_table **table)
{
	int ret = rlv_table_close(table);

	if (ret)
		cli_fail(ret, "close the table");
}
