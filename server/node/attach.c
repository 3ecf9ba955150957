/*
 * attach.c - grants for clients, and the server's own attachments: requested, then collected when
 * complete. Nothing here blocks except node_attach_fini.
 *
 *   node_attach ---> want: grants requested over the control connection --+--> regions attached,
 *                          transport opened by a thread (reach)         --+    one after the other
 *
 * A want is one attempt to attach some regions. It ends in bounded time, by success or error, and
 * keeps its result for a while until the caller collects it.
 */
#include "server/node/node.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "wire/control/dial.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"

#define LOOK_FIRST_NS ((uint64_t)CLOCK_NS_PER_MS)
#define LOOK_PART 4 /* next look after 1/4 of the time without a step: some 20 looks in a second */
#define ASKER_WANT (UINT64_C(1) << 63)

/* -------- grants -------- */

struct node_asked {
	struct node_asked *next;
	struct node_wish wish;
	uint64_t tag;
	bool ended;
	struct region_grant grant;
	struct error_kept failure; /* code 0: granted */
};

static bool is_same(const struct node_wish *a, const struct node_wish *b)
{
	return a->asker == b->asker && a->client_id == b->client_id &&
	       a->range.region == b->range.region && a->range.off == b->range.off &&
	       a->range.len == b->range.len && a->rights == b->rights;
}

/* A node's answer to node_grant: stores the grant or the error in the node_asked of that tag,
   unless the requester has forgotten it. */
static void on_grant(void *ctx, uint64_t tag, struct node *node, int code,
		     const ProtobufCMessage *reply)
{
	const Relive__NodeGrantReply *answer = (const Relive__NodeGrantReply *)reply;
	struct node_asked *asked = node->remote->asked_for;

	(void)ctx;
	while (asked && asked->tag != tag)
		asked = asked->next;
	if (!asked)
		return;
	if (code == 0 && answer->grant.len > sizeof(asked->grant.data))
		code = error_set(-EPROTO, "memory node %s: grant of %zu bytes", node->name,
				 answer->grant.len);
	if (code) {
		error_keep(&asked->failure);
	} else {
		asked->grant.bytes = (uint32_t)answer->grant.len;
		memcpy(asked->grant.data, answer->grant.data, answer->grant.len);
	}
	asked->ended = true;
	/* A want polls by itself: if news were set, a node that refuses at once would be asked
	   again at once. */
	node->remote->news |= !(asked->wish.asker & ASKER_WANT);
}

int node_grant(struct node *node, const struct node_wish *wish, struct region_grant *grant_out)
{
	Relive__NodeGrantRequest request = RELIVE__NODE_GRANT_REQUEST__INIT;
	struct node_asked *asked = node->remote->asked_for;
	struct node_post post = {
		.type = RELIVE__TYPE__TYPE_NODE_GRANT,
		.request = &request.base,
		.reply = &relive__node_grant_reply__descriptor,
		.timeout_ns = NODE_WAIT_NS,
		.done = on_grant,
	};
	int ret;

	if (!node->up)
		return node_error_down(node);
	while (asked && !is_same(&asked->wish, wish))
		asked = asked->next;
	if (!asked) {
		asked = mem_zalloc(sizeof(*asked));
		if (!asked)
			return error_set(-ENOMEM, "ask node %s: cannot allocate memory",
					 node->name);
		request.client_id = wish->client_id;
		request.region = wish->range.region;
		request.offset = wish->range.off;
		request.length = wish->range.len;
		request.rights = wish->rights;
		post.tag = ++node->remote->last_tag;
		ret = node_post(node, &post);
		if (ret) {
			mem_free(asked);
			return ret;
		}
		asked->wish = *wish;
		asked->tag = post.tag;
		asked->next = node->remote->asked_for;
		node->remote->asked_for = asked;
	}
	if (!asked->ended)
		return error_set(-EAGAIN, "memory node %s: asked for a grant", node->name);
	error_restore(&asked->failure);
	*grant_out = asked->grant;
	return asked->failure.code;
}

void node_forget_asker(struct node *node, uint64_t asker)
{
	struct node_asked **link = &node->remote->asked_for;

	while (*link) {
		struct node_asked *asked = *link;

		if (asked->wish.asker != asker) {
			link = &asked->next;
			continue;
		}
		*link = asked->next;
		mem_free(asked);
	}
}

/* -------- reaching its memory -------- */

struct node_reach {
	pthread_t thread;
	char uri[NODE_URI_BYTES];
	struct transport_opts opts;
	struct transport *tr;
	struct error_kept failure; /* code 0: tr is open */
};

/*
 * Longer than an operation may take: the first connection loads libraries and opens a device. A client
 * that creates a table waits 5 s by default; the server has to try another node in that time.
 */
static uint64_t reach_most(const struct node *node)
{
	return max_u64(NODE_REACH_NS, node->remote->lease_ns);
}

static void *run_reach(void *arg)
{
	struct node_reach *reach = arg;
	int ret = transport_open(reach->uri, &reach->opts, &reach->tr);

	error_keep(&reach->failure);
	reach->failure.code = ret;
	return NULL;
}

/* Opens node->tr by a thread. 0: it is open; -EAGAIN: the thread still connects, or has connected
   to a former address of the node, and that connection was dropped; else its error. */
static int reach_memory(struct node *node)
{
	struct node_reach *reach = node->remote->reach;
	int ret;

	if (node->tr)
		return 0;
	if (!reach) {
		reach = mem_zalloc(sizeof(*reach));
		if (!reach)
			return error_set(-ENOMEM, "cannot allocate memory for a connection");
		/*
		 * Z2 pairs with Z1: no operation of the previous connection lands after the first
		 * one of this connection.
		 */
		reach->opts = (struct transport_opts){
			.timeout_ns = node->remote->lease_ns,
			.open_ns = reach_most(node),
			.client_id = node->remote->attach_client_id,
			.replaces = node->remote->link,
		};
		snprintf(reach->uri, sizeof(reach->uri), "%s", node->uri);
		ret = pthread_create(&reach->thread, NULL, run_reach, reach);
		if (ret) {
			mem_free(reach);
			return error_set(-ret, "pthread_create: %s", strerror(ret));
		}
		node->remote->reach = reach;
	}
	if (pthread_tryjoin_np(reach->thread, NULL))
		return error_set(-EAGAIN, "the connection to its memory is still being made");
	error_restore(&reach->failure);
	ret = reach->failure.code;
	if (strcmp(reach->uri, node->uri) != 0) {
		transport_close(&reach->tr);
		ret = error_set(-EAGAIN, "its address has changed");
	} else if (ret == 0) {
		node->tr = reach->tr;
		node->remote->link = reach->tr->link;
	}
	node->remote->reach = NULL;
	mem_free(reach);
	return ret;
}

/* -------- the server's own attachments -------- */

struct node_want {
	struct node_want *next;
	uint32_t ids[NODE_ATTACH_MAX];
	struct region_grant grants[NODE_ATTACH_MAX];
	struct region *regions[NODE_ATTACH_MAX];
	uint32_t n, attached;
	uint64_t asker;
	uint64_t begun, ended;     /* 0 = in progress */
	uint64_t moved;            /* its last step forward */
	struct error_kept failure; /* code 0: attached */
};

static int get_grants(struct node *node, struct node_want *want)
{
	int first = 0;

	for (uint32_t i = 0; i < want->n; i++) {
		const struct node_wish wish = {
			.asker = want->asker,
			.client_id = node->remote->attach_client_id,
			.range = { .region = want->ids[i] },
			.rights = RIGHT_ALL,
		};
		int ret = node_grant(node, &wish, &want->grants[i]);

		if (!node->up) /* disconnected: the want was freed */
			return ret;
		if (ret && (first == 0 || first == -EAGAIN))
			first = ret;
	}
	return first;
}

static int get_regions(struct node *node, struct node_want *want)
{
	while (want->attached < want->n) {
		const struct region_grant *grant = &want->grants[want->attached];
		int ret = 0;

		if (!node->remote->attaching)
			ret = transport_attach_begin(node->tr, grant);
		else if (node->remote->attaching != want)
			return -EAGAIN;
		if (ret)
			return ret;
		node->remote->attaching = want;
		ret = transport_attach_end(node->tr, grant, &want->regions[want->attached]);
		if (ret == -EAGAIN)
			return ret;
		node->remote->attaching = NULL;
		if (ret)
			return ret;
		want->attached++;
		want->moved = node_now(node);
	}
	return 0;
}

static void let_go(struct node *node, struct node_want *want)
{
	while (want->attached > 0)
		transport_detach(&want->regions[--want->attached]);
	if (node->remote->attaching == want)
		node->remote->attaching = NULL;
	node_forget_asker(node, want->asker);
}

static void want_free(struct node *node, struct node_want *want)
{
	struct node_want **link = &node->remote->wants;

	let_go(node, want);
	while (*link != want)
		link = &(*link)->next;
	*link = want->next;
	mem_free(want);
}

static void end_want(struct node *node, struct node_want *want, int code)
{
	const uint64_t pause_first = 500 * (uint64_t)CLOCK_NS_PER_MS;
	const uint64_t pause_last = 30 * (uint64_t)CLOCK_NS_PER_S;
	struct node_remote *remote = node->remote;

	want->ended = node_now(node);
	if (code == 0) {
		remote->news = true;
		node_forget_asker(node, want->asker);
		remote->attach_pause = 0;
		return;
	}
	(void)error_prefix(code, "memory node %s: ", node->name);
	error_keep(&want->failure);
	let_go(node, want);
	if (!node->tr || code == -ETIMEDOUT || code == -ECONNRESET) {
		remote->attach_pause = remote->attach_pause ? 2 * remote->attach_pause
							    : pause_first;
		remote->attach_pause = min_u64(remote->attach_pause, pause_last);
		remote->attach_after = node_now(node) + remote->attach_pause;
	}
}

static void go_on(struct node *node, struct node_want *want)
{
	const uint64_t most = reach_most(node) + node->remote->lease_ns;
	int ret, granted;

	if (want->ended)
		return;
	ret = reach_memory(node);
	if (ret == 0 || ret == -EAGAIN) {
		granted = get_grants(node, want); /* advance both at the same time */
		ret = ret ? ret : granted;
	}
	if (ret == 0)
		ret = get_regions(node, want);
	if (!node->up) /* the want is gone, too */
		return;
	if (ret == -EAGAIN && node_now(node) >= want->begun + most)
		ret = error_set(-ETIMEDOUT, "its memory cannot be attached: no answer in %llu ms",
				(unsigned long long)(most / CLOCK_NS_PER_MS));
	if (ret != -EAGAIN)
		end_want(node, want, ret);
}

int node_attach(struct node *node, const uint32_t *ids, uint32_t n, struct region **regions_out)
{
	struct node_want *want = node->remote->wants;
	int ret;

	if (!node->up)
		return node_error_down(node);
	while (want && (want->n != n || memcmp(want->ids, ids, n * sizeof(ids[0])) != 0))
		want = want->next;
	if (!want && node_now(node) < node->remote->attach_after)
		return error_set(-EAGAIN,
				 "memory node %s: its memory could not be reached just now",
				 node->name);
	if (!want) {
		want = mem_zalloc(sizeof(*want));
		if (!want)
			return error_set(-ENOMEM, "memory node %s: cannot allocate memory",
					 node->name);
		memcpy(want->ids, ids, n * sizeof(ids[0]));
		want->n = n;
		want->asker = ASKER_WANT | ++node->remote->last_tag;
		want->begun = want->moved = node_now(node);
		want->next = node->remote->wants;
		node->remote->wants = want;
	}
	go_on(node, want);
	if (!node->up) /* disconnected: the want was freed with it */
		return node_error_down(node);
	if (!want->ended)
		return error_set(-EAGAIN, "memory node %s: its memory is being attached",
				 node->name);
	error_restore(&want->failure);
	ret = want->failure.code;
	if (ret == 0) {
		memcpy(regions_out, want->regions, n * sizeof(struct region *));
		want->attached = 0; /* the caller has them */
	}
	want_free(node, want);
	return ret;
}

bool node_is_attaching(const struct node *node)
{
	const struct node_want *want = node->remote->wants;

	while (want && want->ended)
		want = want->next;
	return want;
}

static uint64_t node_pages_watch(struct node *node)
{
	uint64_t now = node_now(node);

	if (!node->tr || !transport_renewing(node->tr)) {
		if (node->remote->pages_since == 0)
			return UINT64_MAX;
		node->remote->pages_since = 0;
		node->remote->news = true;
		return now;
	}
	if (node->remote->pages_since == 0)
		node->remote->pages_since = now;
	return now + max_u64((now - node->remote->pages_since) / LOOK_PART, LOOK_FIRST_NS);
}

void node_attach_watch(struct node *node)
{
	struct node_want *want = node->remote->wants;
	uint64_t now = node_now(node);
	const uint64_t keep_ns = 10 * (uint64_t)CLOCK_NS_PER_S; /* of an uncollected result */

	while (want && node->up) {
		struct node_want *after = want->next;

		go_on(node, want);
		if (!node->up)
			break;
		if (want->ended && now >= want->ended + keep_ns)
			want_free(node, want);
		want = after;
	}
}

uint64_t node_attach_next(struct node *node)
{
	uint64_t next = node_pages_watch(node), now = node_now(node);

	for (const struct node_want *want = node->remote->wants; want; want = want->next) {
		uint64_t still = now - want->moved;

		if (!want->ended)
			next = min_u64(next, now + max_u64(still / LOOK_PART, LOOK_FIRST_NS));
	}
	return next;
}

void node_attach_forget(struct node *node)
{
	while (node->remote->wants)
		want_free(node, node->remote->wants);
	while (node->remote->asked_for)
		node_forget_asker(node, node->remote->asked_for->wish.asker);
}

void node_attach_fini(struct node *node)
{
	node_attach_forget(node);
	if (!node->remote->reach)
		return;
	(void)pthread_join(node->remote->reach->thread, NULL);
	transport_close(&node->remote->reach->tr);
	mem_free(node->remote->reach);
	node->remote->reach = NULL;
}
