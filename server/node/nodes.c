#include "server/node/nodes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <event2/event.h>

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"
#include "base/os/runtime_dir.h"

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

bool nodes_is_witness(const struct node *node, uint64_t generation)
{
	return generation >= node->since || !node->persistent || node->sole_opener;
}

static struct node *nodes_add(struct nodes *nodes, const char *name)
{
	struct {
		struct node node;
		struct node_remote remote;
	} *made = mem_zalloc(sizeof(*made));
	struct node *node = &made->node, **link = &nodes->first;

	if (!made)
		return NULL;
	node->ops = &node_remote_ops;
	node->remote = &made->remote;
	snprintf(node->name, sizeof(node->name), "%s", name);
	node->number = bits_ctz(~nodes->numbers);
	nodes->numbers |= UINT64_C(1) << node->number % NODES_MAX;
	nodes->n++;
	node->remote->clock = nodes->clock;
	node->remote->lease_ns = nodes->lease_ns;
	node->down_since = clock_now_ns(nodes->clock);
	node->told = true;
	node->remote->attach_client_id = nodes->attach_client_id;
	while (*link)
		link = &(*link)->next;
	*link = node;
	return node;
}

static int load_one(void *ctx, const void *record)
{
	const struct store_node *stored = record;
	struct nodes *nodes = ctx;
	struct node *node = nodes->n < NODES_MAX ? nodes_add(nodes, stored->name) : NULL;

	if (!node)
		return error_set(-ENOMEM, "nodes: cannot allocate memory, or more than %u",
				 NODES_MAX);
	snprintf(node->uri, sizeof(node->uri), "%s", stored->uri);
	node->incarnation = stored->incarnation;
	node->persistent = stored->persistent;
	node->draining = stored->draining;
	node->lost = stored->lost;
	memcpy(node->pool, stored->pool, sizeof(node->pool));
	return 0;
}

int nodes_load(struct nodes *nodes)
{
	if (!nodes->lease_ns)
		nodes->lease_ns = NODE_LEASE_NS;
	if (!nodes->lost_ns)
		nodes->lost_ns = NODES_LOST_NS;
	return store_each(nodes->store, STORE_NODES, load_one, nodes);
}

void nodes_fini(struct nodes *nodes)
{
	while (nodes->first) {
		struct node *node = nodes->first;

		nodes->first = node->next;
		node_free(node);
	}
}

static int nodes_remember(struct nodes *nodes, const struct node *node)
{
	struct store_node row = {
		.incarnation = node->incarnation,
		.persistent = node->persistent,
		.draining = node->draining,
		.lost = node->lost,
	};

	snprintf(row.name, sizeof(row.name), "%s", node->name);
	snprintf(row.uri, sizeof(row.uri), "%s", node->uri);
	memcpy(row.pool, node->pool, sizeof(row.pool));
	return store_put(nodes->store, STORE_NODES, &row);
}

/* -------- joining -------- */

int nodes_admit(struct nodes *nodes, const struct node_news *news)
{
	struct node *node;

	if (!runtime_name_is_valid(news->name))
		return error_set(-EINVAL, "node name \"%.64s\": not a name", news->name);
	if ((strncmp(news->uri, "shm:/", 5) != 0 && strncmp(news->uri, "verbs:", 6) != 0 &&
	     strncmp(news->uri, "ofi:", 4) != 0) ||
	    strlen(news->uri) >= NODE_URI_BYTES)
		return error_set(
			-EINVAL,
			"node %s: address \"%.64s\": want shm:/PATH, verbs:HOST:PORT or ofi:HOST:PORT",
			news->name, news->uri);
	if (news->incarnation == 0)
		return error_set(-EINVAL, "node %s: incarnation 0 is not valid", news->name);
	node = nodes_find(nodes, news->name);
	if (!node && nodes->n >= NODES_MAX)
		return error_set(-ENOSPC,
				 "node %s: the store has %u nodes, which are the most: forget one "
				 "that is gone (relive node forget NAME)",
				 news->name, NODES_MAX);
	if (node)
		node_read(node);
	if (node && node->up)
		return error_set(-EEXIST, "memory node %s: one of that name is up at %s",
				 news->name, node->uri);
	if (node)
		(void)nodes_tick(nodes);
	return 0;
}

static void tell_news(struct nodes *nodes, struct node *node)
{
	if (node->up && !node->remote->news)
		return;
	node->remote->news = false;
	nodes->ops->on_news(nodes->ctx);
}

/* Frames of a node have arrived on fd: reads them and delivers results. The node is found by its
   channel's descriptor: libevent carries one pointer, to nodes. */
static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct nodes *nodes = arg;
	struct node *node = nodes->first;

	(void)what;
	while (node && !(node->up && node->remote->channel.stream.fd == fd))
		node = node->next;
	if (!node)
		return;
	node_read(node);
	node_deliver(node);
	tell_news(nodes, node);
}

int nodes_join(struct nodes *nodes, const struct node_news *news, struct channel *ch,
	       struct node **node_out, bool *replaced_out)
{
	struct node *node = nodes_find(nodes, news->name);
	bool replaced = node && node->incarnation && node->incarnation != news->incarnation;
	struct event *readable;
	int ret;

	if (!node)
		node = nodes_add(nodes, news->name);
	if (!node)
		return error_set(-ENOMEM, "nodes: cannot allocate memory");
	if (node->incarnation != news->incarnation)
		snprintf(node->former_uri, sizeof(node->former_uri), "%s", node->uri);
	snprintf(node->uri, sizeof(node->uri), "%s", news->uri);
	snprintf(node->pages, sizeof(node->pages), "%s", news->pages);
	snprintf(node->transport, sizeof(node->transport), "%.*s", (int)strcspn(news->uri, ":"),
		 news->uri);
	node->incarnation = news->incarnation;
	node->pool_bytes = news->pool_bytes;
	node->persistent = news->persistent;
	node->sole_opener = news->sole_opener;
	memcpy(node->pool, news->pool, sizeof(node->pool));
	node->lost = false;
	node->draining = node->draining && !replaced; /* it left and has returned */
	ret = nodes_remember(nodes, node);
	if (ret)
		return ret;
	readable = event_new(nodes->base, ch->stream.fd, EV_READ | EV_PERSIST, on_readable, nodes);
	if (!readable || event_add(readable, NULL)) {
		if (readable)
			event_free(readable);
		return error_set(-ENOMEM, "node %s: cannot allocate an event", news->name);
	}
	nodes->generation += replaced;
	if (replaced)
		node->since = nodes->generation;
	node->remote->channel = *ch;
	node->remote->readable = readable;
	node->remote->heard = node_now(node);
	node->remote->asked = 0;
	node->remote->pinged = 0;
	node->remote->attach_after = 0;
	node->up = true;
	node->told = false;
	*node_out = node;
	*replaced_out = replaced;
	return 0;
}

static void on_former_cut(void *ctx, uint64_t tag, struct node *node, int code,
			  const ProtobufCMessage *reply)
{
	(void)ctx;
	(void)tag;
	(void)reply;
	if (code)
		log_warn("node %s: cut off the former server's links: %s", node->name,
			 error_last());
}

void nodes_cut_former(const struct nodes *nodes, struct node *node)
{
	if (nodes->former_client_id &&
	    node_post_fence(node, nodes->former_client_id, FENCE_CUT, on_former_cut, NULL))
		log_warn("node %s: cut off the former server's links: %s", node->name,
			 error_last());
}

/* -------- down and lost -------- */

static void node_declare_lost(struct nodes *nodes, struct node *node)
{
	node->lost = true;
	if (nodes_remember(nodes,
			   node)) /* if this fails, it is declared lost again after a restart */
		log_warn("node %s: %s", node->name, error_last());
	nodes->ops->on_lost(nodes->ctx, node);
}

static uint64_t lost_at(const struct nodes *nodes, const struct node *node)
{
	if (node->up || node->lost || node->persistent || nodes->lost_ns == UINT64_MAX)
		return UINT64_MAX;
	return node->down_since + nodes->lost_ns;
}

uint64_t nodes_tick(struct nodes *nodes)
{
	uint64_t next = UINT64_MAX;

	for (struct node *node = nodes->first; node; node = node->next) {
		next = min_u64(next, node_watch(node));
		node_deliver(node);
		node_attach_watch(node);
		next = min_u64(next, node_attach_next(node));
		if (node->remote->news)
			tell_news(nodes, node);
		if (!node->up && !node->told) {
			node->told = true;
			log_warn("node %s is down", node->name);
			nodes->ops->on_down(nodes->ctx, node);
		}
		if (clock_now_ns(nodes->clock) >= lost_at(nodes, node)) {
			log_error("node %s is lost: down for longer than its limit", node->name);
			node_declare_lost(nodes, node);
		}
		next = min_u64(next, lost_at(nodes, node));
	}
	return next;
}

uint64_t nodes_attach_next(struct nodes *nodes)
{
	uint64_t next = UINT64_MAX;

	for (struct node *node = nodes->first; node; node = node->next)
		next = min_u64(next, node_attach_next(node));
	return next;
}

int nodes_drop(struct nodes *nodes, struct node *node)
{
	node_read(node);
	if (node->up)
		return error_set(-EBUSY, "memory node %s is up: drain it, or stop it first",
				 node->name);
	(void)nodes_tick(nodes);
	if (!node->lost)
		node_declare_lost(nodes, node);
	log_info("node %s is dropped", node->name);
	return 0;
}

int nodes_forget(struct nodes *nodes, struct node *node)
{
	struct store_node row = { .incarnation = 0 };
	struct node **link = &nodes->first;
	int ret;

	node_read(node);
	if (node->up)
		return error_set(-EBUSY, "memory node %s is up: drain it and stop it first",
				 node->name);
	if (node->remote->reach)
		return error_set(-EBUSY,
				 "memory node %s: its address is still being tried: "
				 "ask again in a second",
				 node->name);
	(void)nodes_tick(nodes); /* callers waiting for its answers get -EHOSTDOWN */
	snprintf(row.name, sizeof(row.name), "%s", node->name);
	ret = store_delete(nodes->store, STORE_NODES, &row, 1);
	if (ret)
		return ret;
	while (*link && *link != node)
		link = &(*link)->next;
	if (*link)
		*link = node->next;
	nodes->n--;
	nodes->numbers &= ~(UINT64_C(1) << node->number);
	log_info("node %s was removed from the catalog", node->name);
	node_free(node);
	return 0;
}

int nodes_set_draining(struct nodes *nodes, struct node *node, bool draining)
{
	int ret;

	if (node->draining == draining)
		return 0;
	node->draining = draining;
	ret = nodes_remember(nodes, node);
	if (ret)
		node->draining = !draining;
	return ret;
}
