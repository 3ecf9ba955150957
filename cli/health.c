#include "cli/health.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "relive/relive.h"

#include "base/os/clock.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/store_status.h"

#define STORE_NS (3 * CLOCK_NS_PER_S)
#define DAEMON_NS (4 * CLOCK_NS_PER_S)
#define WORDS_BYTES 512

/* -------- memory nodes -------- */

static const char *state_of(const struct rlv_node_info *node)
{
	return node->state == RLV_NODE_LOST ? "lost" : "down";
}

static int check_node(const struct store_status *status, const char *name, char *words)
{
	const struct rlv_node_info *node = store_status_find(status, name);

	if (!node) {
		snprintf(words, WORDS_BYTES, "the store knows no memory node %s", name);
		return -ENOENT;
	}
	if (!store_node_is_up(node))
		snprintf(words, WORDS_BYTES, "memory node %s is %s", name, state_of(node));
	else if (node->broken)
		snprintf(words, WORDS_BYTES, "memory node %s: %u regions are broken", name,
			 node->broken);
	else
		snprintf(words, WORDS_BYTES, "memory node %s is up", name);
	return store_node_is_up(node) && node->broken == 0 ? 0 : -EHOSTDOWN;
}

/* First unhealthy node. Nodes declared lost are ignored. */
static const struct rlv_node_info *find_ill(const struct store_status *status)
{
	for (size_t i = 0; i < status->n_nodes; i++)
		if (status->nodes[i].state == RLV_NODE_DOWN || status->nodes[i].broken)
			return &status->nodes[i];
	return NULL;
}

static int check_all(const struct store_status *status, char *words)
{
	const struct rlv_node_info *ill = find_ill(status);
	uint32_t up = 0, known = 0;

	for (size_t i = 0; i < status->n_nodes; i++) {
		known += status->nodes[i].state != RLV_NODE_LOST;
		up += store_node_is_up(&status->nodes[i]);
	}
	if (ill && ill->broken)
		snprintf(words, WORDS_BYTES, "memory node %s: %u regions are broken", ill->name,
			 ill->broken);
	else if (ill)
		snprintf(words, WORDS_BYTES, "%u of %u memory nodes are up, %s is down", up, known,
			 ill->name);
	else
		snprintf(words, WORDS_BYTES, "%u of %u memory nodes are up, %u tables", up, known,
			 status->info.n_tables);
	return ill || up == 0 ? -EHOSTDOWN : 0;
}

/* -------- the store -------- */

/* Half of the time for the connection, half for the request. */
static int ask_store(const struct health_opts *opts, struct store_status *status)
{
	struct rlv_store_opts store_opts = RLV_STORE_OPTS_INIT;
	struct rlv_store *store;
	int ret;

	store_opts.timeout_ns = (opts->timeout_ns ? opts->timeout_ns : STORE_NS) / 2;
	store_opts.read_only = true;
	ret = rlv_store_open(opts->uri, &store_opts, &store);
	if (ret)
		return ret;
	ret = store_status_read(store, status);
	if (ret == 0)
		return rlv_store_close(&store);
	(void)!rlv_store_close(&store);
	return ret;
}

static int check_store(const struct health_opts *opts, char *words)
{
	struct store_status status;
	int ret = ask_store(opts, &status);

	if (ret) {
		snprintf(words, WORDS_BYTES, "%s", rlv_last_error());
		return ret;
	}
	return opts->node ? check_node(&status, opts->node, words) : check_all(&status, words);
}

static int check_daemon(const struct health_opts *opts, char *words)
{
	int ret = health_get(opts->daemon, opts->timeout_ns ? opts->timeout_ns : DAEMON_NS, words,
			     WORDS_BYTES);

	if (ret && ret != -EHOSTDOWN)
		snprintf(words, WORDS_BYTES, "%s", error_last());
	return ret;
}

/* -------- report -------- */

static int print_json(const char *of, bool healthy, const char *words)
{
	struct json json;

	json_init(&json, stdout);
	json_object_begin(&json);
	json_put_string(&json, "of", of);
	json_put_bool(&json, "healthy", healthy);
	json_put_string(&json, "words", words);
	json_object_end(&json);
	json_newline(&json);
	return json_finish(&json) ? CLI_FAILURE : CLI_OK;
}

int health_run(const struct health_opts *opts)
{
	const char *of = opts->daemon ? opts->daemon : opts->uri;
	char words[WORDS_BYTES] = "";
	int ret = opts->daemon ? check_daemon(opts, words) : check_store(opts, words);
	int printed = CLI_OK;

	if (opts->json)
		printed = print_json(of, ret == 0, words);
	else
		printf("%s: %s: %s\n", ret ? "not healthy" : "healthy", of, words);
	return ret ? CLI_FAILURE : printed;
}
