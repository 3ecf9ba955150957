#include "cli/health.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "relive/relive.h"

#include "base/os/clock.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/store_status.h"

#define WORDS_BYTES 512

/* -------- memory nodes -------- */

static int check_node(const struct store_status *status, const char *name, char *words)
{
	const struct rlv_node_info *node = store_status_find(status, name);

	if (!node) {
		snprintf(words, WORDS_BYTES, "the store has no memory node %s", name);
		return -ENOENT;
	}
	if (!store_node_is_up(node))
		snprintf(words, WORDS_BYTES, "memory node %s is %s", name,
			 node->state == RLV_NODE_LOST ? "lost" : "down");
	else if (node->broken)
		snprintf(words, WORDS_BYTES, "memory node %s: %u regions are broken", name,
			 node->broken);
	else
		snprintf(words, WORDS_BYTES, "memory node %s is up", name);
	return store_node_is_up(node) && node->broken == 0 ? 0 : -EHOSTDOWN;
}

/* Nodes that were declared lost are ignored. */
static int check_all(const struct store_status *status, char *words)
{
	const struct rlv_node_info *ill = NULL;
	uint32_t up = 0, known = 0;

	for (size_t i = 0; i < status->n_nodes; i++) {
		const struct rlv_node_info *node = &status->nodes[i];

		known += node->state != RLV_NODE_LOST;
		up += store_node_is_up(node);
		if (!ill && (node->state == RLV_NODE_DOWN || node->broken))
			ill = node;
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

static int check_store(const struct health_opts *opts, char *words)
{
	struct store_status status;
	int64_t timeout_ns = opts->timeout_ns ? opts->timeout_ns : 3 * CLOCK_NS_PER_S;
	/* Half of the time for the connection, half for the request. */
	int ret = store_status_ask(opts->uri, timeout_ns / 2, &status);

	if (ret) {
		snprintf(words, WORDS_BYTES, "%s", rlv_last_error());
		return ret;
	}
	return opts->node ? check_node(&status, opts->node, words) : check_all(&status, words);
}

static int check_daemon(const struct health_opts *opts, char *words)
{
	int64_t timeout_ns = opts->timeout_ns ? opts->timeout_ns : 4 * CLOCK_NS_PER_S;
	int ret = health_get(opts->daemon, timeout_ns, words, WORDS_BYTES);

	if (ret && ret != -EHOSTDOWN)
		snprintf(words, WORDS_BYTES, "%s", error_last());
	return ret;
}

/* -------- report -------- */

int health_run(const struct health_opts *opts)
{
	const char *of = opts->daemon ? opts->daemon : opts->uri;
	char words[WORDS_BYTES] = "";
	int ret = opts->daemon ? check_daemon(opts, words) : check_store(opts, words);
	struct json *json;

	if (!opts->json) {
		printf("%s: %s: %s\n", ret ? "not healthy" : "healthy", of, words);
		return ret ? CLI_FAILURE : CLI_OK;
	}
	json = cli_json_begin();
	json_put_string(json, "of", of);
	json_put_bool(json, "healthy", ret == 0);
	json_put_string(json, "words", words);
	return cli_json_end(json) || ret ? CLI_FAILURE : CLI_OK;
}
