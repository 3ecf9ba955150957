#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem/alloc.h"

/* Errors printed on stderr, for the object that --json prints at the end. */
static struct {
	int code;           /* the first code, 0 = none */
	char message[1024]; /* all messages, in order */
	char hint[256];
} said;

/* Length of "bench replay" in "bench replay [OPTIONS]": the leading words. */
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

const char *cli_store_uri(const char *store, char uri_out[CLI_STORE_BYTES])
{
	snprintf(uri_out, CLI_STORE_BYTES, "%s%s", strchr(store, ':') ? "" : "shm:", store);
	return uri_out;
}

int cli_parse_store(const struct args *args, struct cli_common *common, size_t before, int argc,
		    char *const *argv)
{
	const char **words = args->positional;
	size_t last = args->max_positional - 1;
	int code = cli_parse(args, argc, argv);

	if (code != CLI_CONTINUE || !common->store)
		return code;
	if (words[last] || (words[before] && strchr(words[before], ':'))) {
		cli_error("%s and --store %s: give one of them", words[before], common->store);
		return CLI_USAGE;
	}
	memmove(words + before + 1, words + before, (last - before) * sizeof(*words));
	words[before] = cli_store_uri(common->store, common->uri);
	return CLI_CONTINUE;
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

/* Append, separated by "; ", truncated to the room. */
static void remember_said(char *text, size_t bytes, const char *words)
{
	size_t len = strlen(text), n = strlen(words);

	if (len && len + 2 < bytes) {
		memcpy(text + len, "; ", 3);
		len += 2;
	}
	if (n > bytes - len - 1)
		n = bytes - len - 1;
	memcpy(text + len, words, n);
	text[len + n] = 0;
}

void cli_error(const char *fmt, ...)
{
	char text[sizeof(said.message)];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	fflush(stdout);
	fprintf(stderr, "relive: %s\n", text);
	remember_said(said.message, sizeof(said.message), text);
}

void cli_hint(const char *fmt, ...)
{
	char text[sizeof(said.hint)];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	fprintf(stderr, "  try: %s\n", text);
	remember_said(said.hint, sizeof(said.hint), text);
}

static bool wants_json(int argc, char *const *argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		if (strcmp(argv[i], "--json") == 0)
			return true;
	}
	return false;
}

static int code_of(int exit_code)
{
	if (said.code)
		return said.code;
	if (exit_code == CLI_USAGE)
		return -EINVAL;
	return exit_code == CLI_REFUSED ? -ECANCELED : -EIO;
}

int cli_finish(int exit_code, int argc, char *const *argv)
{
	struct json *json;

	if (exit_code == CLI_USAGE && argc > 1 && !said.hint[0])
		cli_hint("relive %.20s --help", argv[1]);
	if (exit_code == CLI_OK || !said.message[0] || !wants_json(argc, argv))
		return exit_code;
	json = cli_json_begin();
	json_key(json, "error");
	json_object_begin(json);
	json_put_i64(json, "code", code_of(exit_code));
	json_put_string(json, "name", rlv_error_name(code_of(exit_code)));
	json_put_string(json, "message", said.message);
	if (said.hint[0])
		json_put_string(json, "hint", said.hint);
	json_object_end(json);
	return cli_json_end(json) ? CLI_FAILURE : exit_code;
}

static void report_failure(const char *what, const char *why, int code)
{
	size_t named = strlen(what);

	if (!said.code)
		said.code = code;
	why = *why ? why : strerror(-code);
	if (strncmp(why, what, named) == 0 && why[named] == ':') /* the library names it already */
		cli_error("%s (%s)", why, rlv_error_name(code));
	else
		cli_error("%s: %s (%s)", what, why, rlv_error_name(code));
}

int cli_fail(int code, const char *fmt, ...)
{
	char what[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(what, sizeof(what), fmt, args);
	va_end(args);
	report_failure(what, rlv_last_error(), code);
	return CLI_FAILURE;
}

int cli_fail_local(int code, const char *fmt, ...)
{
	char what[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(what, sizeof(what), fmt, args);
	va_end(args);
	report_failure(what, error_last_code() == code ? error_last() : "", code);
	return CLI_FAILURE;
}

static void hint_store(const char *uri, int code)
{
	bool old = strstr(rlv_last_error(), "ask its owner") != NULL; /* it has the remedy */
	bool down = code == -ECONNREFUSED || code == -ECONNRESET; /* the server has just ended */

	if ((code == -ENOENT || down) && strncmp(uri, "shm:", 4) == 0)
		cli_hint("relive up --store %s", uri + 4);
	else if (down)
		cli_hint("relive up --store NAME on that host starts missing daemons");
	else if (code == -ETIMEDOUT)
		cli_hint("a longer --timeout, as 30s; the log of relive-metad says why it is slow");
	else if (code == -EINVAL)
		cli_hint("shm:NAME, relive://HOST:PORT or embed:FILE");
	else if (code == -EACCES && !old && strncmp(uri, "relive:", 7) == 0)
		cli_hint(
			"set RELIVE_TOKEN to the content of the file `token` in the store's directory on "
			"its host");
	else if (code == -EACCES && !old)
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

bool cli_is_away(int code)
{
	return code == -ETIMEDOUT || code == -ECONNREFUSED || code == -ECONNRESET;
}

int cli_each_table(struct rlv_store *store, struct json *json,
		   int (*run)(struct rlv_store *store, const char *name, void *ctx), void *ctx)
{
	const size_t most = 4096;
	char(*names)[RLV_NAME_BYTES] = mem_array(most, RLV_NAME_BYTES);
	int code = CLI_OK, ret = -ENOMEM;
	size_t n = most;

	if (!names)
		return cli_fail_local(ret, "list the tables");
	ret = rlv_store_tables(store, names, &n);
	if (ret) {
		mem_free(names);
		return cli_fail(ret, "list the tables");
	}
	if (json)
		json_array_begin(json);
	for (size_t i = 0; i < n && i < most && !cli_is_away(ret); i++) {
		ret = run(store, names[i], ctx);
		code = ret ? CLI_FAILURE : code;
	}
	if (json)
		json_array_end(json);
	mem_free(names);
	return code;
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
