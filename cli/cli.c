#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "program/spawn.h"

/* Errors printed on stderr, for the object that --json prints at the end. */
static struct {
	int code;           /* the first code, 0 = none */
	char message[1024]; /* all messages, in order */
	char hint[256];
} said;

int cli_parse(const struct args *args, int argc, char *const *argv)
{
	int ret = args_parse(args, argc, argv);

	if (ret == ARGS_HELP) {
		args_print_help(args, stdout);
		return CLI_OK;
	}
	if (ret) {
		cli_error("%s", error_last());
		return CLI_USAGE;
	}
	return CLI_CONTINUE;
}

const char *cli_store_uri(const char *store, char uri_out[CLI_STORE_BYTES])
{
	snprintf(uri_out, CLI_STORE_BYTES, "%s%s", strchr(store, ':') ? "" : "shm:", store);
	return uri_out;
}

int cli_take_uri(struct cli_common *common, const char **words, size_t room, size_t own)
{
	common->uri = CLI_DEFAULT_URI;
	if (common->store && (words[room - 1] || (words[0] && strchr(words[0], ':')))) {
		cli_error("%s and --store %s: give one of them", words[0], common->store);
		return CLI_USAGE;
	}
	if (common->store) {
		common->uri = cli_store_uri(common->store, common->uri_of_store);
	} else if (words[own]) {
		common->uri = words[0];
		memmove(words, words + 1, (room - 1) * sizeof(*words));
		words[room - 1] = NULL;
	}
	return CLI_CONTINUE;
}

int cli_parse_store(const struct args *args, struct cli_common *common, int argc, char *const *argv)
{
	int code = cli_parse(args, argc, argv);

	return code != CLI_CONTINUE ? code
				    : cli_take_uri(common, args->positional, args->max_positional,
						   args->min_positional);
}

struct json *cli_json_begin(void)
{
	static struct json json;

	json_init(&json, stdout);
	json_object_begin(&json);
	return &json;
}

int cli_json_end(struct json *json)
{
	json_object_end(json);
	return json_end(json) ? CLI_FAILURE : CLI_OK;
}

int cli_result(bool as_json, const struct param *values, size_t n, const char *fmt, ...)
{
	struct json *json;
	va_list args;

	if (!as_json) {
		va_start(args, fmt);
		vprintf(fmt, args);
		va_end(args);
		return CLI_OK;
	}
	json = cli_json_begin();
	result_params_json(json, values, n);
	return cli_json_end(json);
}

/*
 * Prints a line on stderr, after prefix, and appends its text to kept (room bytes) for --json:
 * separated by "; ", truncated to the room.
 */
RLV_PRINTF(4, 0)
static void cli_say(const char *prefix, char *kept, size_t room, const char *fmt, va_list args)
{
	char text[sizeof(said.message)];
	size_t len = strlen(kept);

	vsnprintf(text, sizeof(text), fmt, args);
	fflush(stdout);
	fprintf(stderr, "%s%s\n", prefix, text);
	snprintf(kept + len, room - len, "%s%s", len ? "; " : "", text);
}

void cli_error(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	cli_say("relive: ", said.message, sizeof(said.message), fmt, args);
	va_end(args);
}

void cli_hint(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	cli_say("  try: ", said.hint, sizeof(said.hint), fmt, args);
	va_end(args);
}

int cli_finish(int exit_code, int argc, char *const *argv)
{
	bool as_json = false;
	struct json *json;

	if (exit_code == CLI_USAGE && argc > 1 && !said.hint[0])
		cli_hint("relive %.20s --help", argv[1]);
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		as_json |= strcmp(argv[i], "--json") == 0;
	if (exit_code == CLI_OK || !said.message[0] || !as_json)
		return exit_code;
	if (!said.code)
		said.code = exit_code == CLI_USAGE     ? -EINVAL
			    : exit_code == CLI_REFUSED ? -ECANCELED
						       : -EIO;
	json = cli_json_begin();
	json_key(json, "error");
	json_object_begin(json);
	json_put_i64(json, "code", said.code);
	json_put_string(json, "name", rlv_error_name(said.code));
	json_put_string(json, "message", said.message);
	if (said.hint[0])
		json_put_string(json, "hint", said.hint);
	json_object_end(json);
	return cli_json_end(json) ? CLI_FAILURE : exit_code;
}

RLV_PRINTF(3, 0)
static void cli_print_failure(int code, const char *why, const char *fmt, va_list args)
{
	char what[256];
	size_t named;

	vsnprintf(what, sizeof(what), fmt, args);
	named = strlen(what);
	if (!said.code)
		said.code = code;
	why = *why ? why : strerror(-code);
	if (strncmp(why, what, named) == 0 && why[named] == ':') /* the library names it */
		cli_error("%s (%s)", why, rlv_error_name(code));
	else
		cli_error("%s: %s (%s)", what, why, rlv_error_name(code));
}

int cli_fail(int code, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	cli_print_failure(code, rlv_last_error(), fmt, args);
	va_end(args);
	return CLI_FAILURE;
}

int cli_fail_local(int code, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	cli_print_failure(code, error_last_code() == code ? error_last() : "", fmt, args);
	va_end(args);
	return CLI_FAILURE;
}

const char *cli_open_remedy(const char *uri, int code, char text_out[CLI_REMEDY_BYTES])
{
	bool down = code == -ECONNREFUSED || code == -ECONNRESET; /* the server has just ended */
	bool old = strstr(rlv_last_error(), "ask its owner");     /* it has the remedy */
	const char *text = "";

	if ((code == -ENOENT || down) && strncmp(uri, "shm:", 4) == 0) {
		snprintf(text_out, CLI_REMEDY_BYTES, "relive up --store %s", uri + 4);
		return text_out;
	}
	if (down)
		text = "relive up --store NAME on that host starts missing daemons";
	else if (code == -ETIMEDOUT)
		text = "a longer --timeout, as 30s; the log of relive-metad says why it is slow";
	else if (code == -EINVAL)
		text = "shm:NAME, relive://HOST:PORT or embed:FILE";
	else if (code == -EACCES && strstr(rlv_last_error(), "certificates do not agree"))
		text = "set RELIVE_TLS_CERT, RELIVE_TLS_KEY, RELIVE_TLS_CA to PEM files that the "
		       "server's CA signed, and its CA";
	else if (code == -EACCES && !old && strncmp(uri, "relive:", 7) == 0)
		text = "set RELIVE_TOKEN to the content of the file `token` in the store's directory on "
		       "its host";
	else if (code == -EACCES && !old)
		text = "run as the user who started the store";
	snprintf(text_out, CLI_REMEDY_BYTES, "%s", text);
	return text_out;
}

int cli_store_open(const char *uri, int64_t timeout_ns, bool read_only,
		   struct rlv_store **store_out)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	char remedy[CLI_REMEDY_BYTES];
	int ret;

	opts.timeout_ns = timeout_ns;
	opts.read_only = read_only;
	ret = rlv_store_open(uri, &opts, store_out);
	if (ret == 0)
		return 0;
	cli_fail(ret, "%s", uri);
	if (*cli_open_remedy(uri, ret, remedy))
		cli_hint("%s", remedy);
	return ret;
}

int cli_each_table(struct rlv_store *store, struct json *json,
		   int (*run)(struct rlv_store *store, const char *name, void *ctx), void *ctx)
{
	static char names[4096][RLV_NAME_BYTES];
	size_t n = ARRAY_LEN(names);
	int code = CLI_OK, ret = rlv_store_tables(store, names, &n);
	bool away = false; /* further requests are useless */

	if (ret)
		return cli_fail(ret, "list the tables");
	if (json)
		json_array_begin(json);
	for (size_t i = 0; i < n && i < ARRAY_LEN(names) && !away; i++) {
		ret = run(store, names[i], ctx);
		away = ret == -ETIMEDOUT || ret == -ECONNREFUSED || ret == -ECONNRESET;
		code = ret ? CLI_FAILURE : code;
	}
	if (json)
		json_array_end(json);
	return code;
}

bool cli_data_file(const char *name, char path[PATH_MAX])
{
	static const char *const folders[] = { "../share/relive", "../tests/data",
					       "../../tests/data", "../../../tests/data" };
	char file[64];

	snprintf(path, PATH_MAX, "tests/data/%s", name);
	if (access(path, R_OK) == 0)
		return true;
	for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
		snprintf(file, sizeof(file), "%s/%s", folders[i], name);
		if (spawn_beside(file, path))
			return true;
	}
	return false;
}

void cli_closed(int ret, const char *what)
{
	if (ret)
		cli_fail(ret, "close the %s", what);
}
