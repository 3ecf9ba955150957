#include "server/nodes.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include <event2/event.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/runtime_dir.h"

struct node *nodes_find(const struct nodes *nodes, const char *name)
{
	struct node *node = nodes->first;

	while (node && strcmp(node->name, name) != 0)
		node = node->next;
	return node;
}

uint32_t nodes_count(const struct nodes *nodes, bool only_up)
{
	uint32_t n = 0;

	for (const struct node *node = nodes->first; node; node = node->next)
		n += node->up || !only_up;
	return n;
}

static struct node *add(struct nodes *nodes, const char *name)
{
	struct node *node = mem_zalloc(sizeof(*node));

	if (!node)
		return NULL;
	snprintf(node->name, sizeof(node->name), "%s", name);
	node->attach_client_id = nodes->attach_client_id;
	node->next = nodes->first;
	nodes->first = node;
	return node;
}

static int load_one(void *ctx, const struct store_node *stored)
{
	struct node *node = add(ctx, stored->name);

	if (!node)
		return error_set(-ENOMEM, "nodes: no memory");
	snprintf(node->uri, sizeof(node->uri), "%s", stored->uri);
	node->incarnation = stored->incarnation;
	node->persistent = stored->persistent;
	return 0;
}

int nodes_load(struct nodes *nodes)
{
	return store_each_node(nodes->store, load_one, nodes);
}

void nodes_fini(struct nodes *nodes)
{
	while (nodes->first) {
		struct node *node = nodes->first;

		nodes->first = node->next;
		node_disconnect(node);
		node_close_transport(node);
		mem_free(node);
	}
}

/* -------- joining -------- */

/* Nothing comes unasked: what can be read is the end, or a node that babbles. */
static bool has_ended(const struct node *node)
{
	struct pollfd ready = { .fd = node->channel.stream.fd, .events = POLLIN };

	return poll(&ready, 1, 0) != 0;
}

static void take_down(struct nodes *nodes, struct node *node)
{
	log_warn("node %s: its connection has ended", node->name);
	node_disconnect(node);
	nodes->on_down(nodes->ctx, node);
}

int nodes_admit(struct nodes *nodes, const struct node_news *news)
{
	struct node *node;

	if (!runtime_name_is_valid(news->name))
		return error_set(-EINVAL, "node name \"%.64s\": not a name", news->name);
	if (strncmp(news->uri, "shm:/", 5) != 0 || strlen(news->uri) >= NODE_URI_BYTES)
		return error_set(-EINVAL, "node %s: address \"%.64s\": want shm:/PATH", news->name,
				 news->uri);
	if (news->incarnation == 0)
		return error_set(-EINVAL, "node %s: incarnation 0", news->name);
	node = nodes_find(nodes, news->name);
	if (node && node->up && has_ended(node))
		take_down(nodes, node);
	if (node && node->up)
		return error_set(-EEXIST, "memory node %s: one of that name is up at %s",
				 news->name, node->uri);
	return 0;
}

/* node is found by its channel's descriptor: libevent carries one pointer. */
static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct nodes *nodes = arg;
	struct node *node = nodes->first;

	(void)what;
	while (node && !(node->up && node->channel.stream.fd == fd))
		node = node->next;
	if (node && has_ended(node))
		take_down(nodes, node);
}

static int remember(struct nodes *nodes, const struct node *node)
{
	struct store_node stored = {
		.incarnation = node->incarnation,
		.persistent = node->persistent,
	};

	snprintf(stored.name, sizeof(stored.name), "%s", node->name);
	snprintf(stored.uri, sizeof(stored.uri), "%s", node->uri);
	return store_node_put(nodes->store, &stored);
}

static void take_news(struct node *node, const struct node_news *news)
{
	snprintf(node->uri, sizeof(node->uri), "%s", news->uri);
	snprintf(node->pages, sizeof(node->pages), "%s", news->pages);
	node->incarnation = news->incarnation;
	node->pool_bytes = news->pool_bytes;
	node->persistent = news->persistent;
	node->sole_opener = news->sole_opener;
}

int nodes_join(struct nodes *nodes, const struct node_news *news, struct channel *ch,
	       struct node **node_out, bool *replaced_out)
{
	struct node *node = nodes_find(nodes, news->name);
	bool replaced = node && node->incarnation && node->incarnation != news->incarnation;
	struct event *hangup;
	int ret;

	if (!node)
		node = add(nodes, news->name);
	if (!node)
		return error_set(-ENOMEM, "nodes: no memory");
	take_news(node, news);
	ret = remember(nodes, node);
	if (ret)
		return ret;
	hangup = event_new(nodes->base, ch->stream.fd, EV_READ | EV_PERSIST, on_readable, nodes);
	if (!hangup || event_add(hangup, NULL)) {
		if (hangup)
			event_free(hangup);
		return error_set(-ENOMEM, "node %s: no memory for an event", news->name);
	}
	nodes->generation += replaced;
	node->hangup = hangup;
	node->channel = *ch;
	node->up = true;
	*node_out = node;
	*replaced_out = replaced;
	return 0;
}

struct node *nodes_next(struct nodes *nodes)
{
	struct node *start = nodes->last_picked;

	for (uint32_t i = 0; i <= nodes_count(nodes, false); i++) {
		start = start && start->next ? start->next : nodes->first;
		if (start && start->up) {
			nodes->last_picked = start;
			return start;
		}
	}
	return NULL;
}
