#include "cli/health.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "relive/relive.h"

#include "base/error.h"
#include "base/os/clock.h"
#include "cli/cli.h"
#include "cli/store_status.h"
#include "cli/tcp.h"

enum { WORDS_BYTES = 512, ANSWER_BYTES = 4096 };

/* -------- a store and its memory nodes -------- */

/*
 * Checks all nodes but those declared lost, or only the one called name, and says in words what it
 * found. -EHOSTDOWN: one is down or has broken regions, or none is up; -ENOENT: no such node.
 */
static int check_store(const char *uri, const char *name, int64_t timeout_ns, char *words)
{
	const struct rlv_node_info *ill = NULL;
	struct store_status status;
	uint32_t up = 0, known = 0;
	/* Half of the time for the connection, half for the request. */
	int ret = store_status_ask(uri, timeout_ns / 2, &status);

	if (ret) {
		snprintf(words, WORDS_BYTES, "%s", rlv_last_error());
		return ret;
	}
	if (name && !store_status_find(&status, name)) {
		snprintf(words, WORDS_BYTES, "the store has no memory node %s", name);
		return -ENOENT;
	}
	for (size_t i = 0; i < status.n_nodes; i++) {
		const struct rlv_node_info *node = &status.nodes[i];

		if (name && strcmp(node->name, name) != 0)
			continue;
		known += node->state != RLV_NODE_LOST;
		up += store_node_is_up(node);
		if (!ill && (node->state == RLV_NODE_DOWN || node->broken))
			ill = node;
	}
	if (name && up == 0)
		snprintf(words, WORDS_BYTES, "memory node %s is %s", name, known ? "down" : "lost");
	else if (ill && ill->broken)
		snprintf(words, WORDS_BYTES, "memory node %s: %u regions are broken", ill->name,
			 ill->broken);
	else if (name)
		snprintf(words, WORDS_BYTES, "memory node %s is up", name);
	else if (ill)
		snprintf(words, WORDS_BYTES, "%u of %u memory nodes are up, %s is down", up, known,
			 ill->name);
	else
		snprintf(words, WORDS_BYTES, "%u of %u memory nodes are up, %u tables", up, known,
			 status.info.n_tables);
	return ill || up == 0 ? -EHOSTDOWN : 0;
}

/* -------- one daemon: GET /healthz, within one deadline -------- */

/*
 * Asks a daemon for /healthz; reads until it closes or the buffer is full, and copies the body's
 * first line to words. -EHOSTDOWN: its status is not 200; -ETIMEDOUT, -EPROTO: not HTTP.
 */
static int check_daemon(const char *address, int64_t timeout_ns, char *words)
{
	static const char request[] = "GET /healthz HTTP/1.1\r\nHost: relive\r\n\r\n";
	uint64_t deadline = deadline_after(clock_monotonic(), timeout_ns);
	char answer[ANSWER_BYTES] = "";
	const char *body;
	size_t n = 1;
	int fd, ret = tcp_connect(address, deadline, &fd);

	if (ret)
		goto out;
	ret = tcp_send(fd, request, sizeof(request) - 1, deadline);
	for (size_t len = 0; ret == 0 && n && len < ANSWER_BYTES - 1; len += ret ? 0 : n)
		ret = tcp_receive(fd, answer + len, ANSWER_BYTES - 1 - len, deadline, &n);
	close(fd);
	body = strstr(answer, "\r\n\r\n");
	if (ret == 0 && (!body || strncmp(answer, "HTTP/1.1 ", 9) != 0))
		ret = error_set(-EPROTO,
				"%.64s: the answer is not HTTP: give the --metrics address of a "
				"daemon",
				address);
	if (ret == 0) {
		snprintf(words, WORDS_BYTES, "%.*s", (int)strcspn(body + 4, "\r\n"), body + 4);
		return strncmp(answer + 9, "200 ", 4) == 0 ? 0 : -EHOSTDOWN;
	}
out:
	snprintf(words, WORDS_BYTES, "%s", error_last());
	return ret;
}

int health_run(const char *uri, const char *node, const char *daemon, int64_t timeout_ns,
	       bool as_json)
{
	const char *of = daemon ? daemon : uri;
	char words[WORDS_BYTES] = "";
	struct json *json;
	int ret;

	if (daemon)
		ret = check_daemon(of, timeout_ns ? timeout_ns : 4 * CLOCK_NS_PER_S, words);
	else
		ret = check_store(of, node, timeout_ns ? timeout_ns : 3 * CLOCK_NS_PER_S, words);
	if (!as_json) {
		printf("%s: %s: %s\n", ret ? "not healthy" : "healthy", of, words);
		return ret ? CLI_FAILURE : CLI_OK;
	}
	json = cli_json_begin();
	json_put_string(json, "of", of);
	json_put_bool(json, "healthy", ret == 0);
	json_put_string(json, "words", words);
	return cli_json_end(json) || ret ? CLI_FAILURE : CLI_OK;
}
