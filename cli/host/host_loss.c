#include "cli/host/host_loss.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "relive/relive.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/os/clock.h"
#include "cli/store_status.h"

#define MAX_TABLES 4096
#define MAX_SHARDS 1024

/* A metadata server, and the nodes with memory at stake. */
struct inquest {
	const char *uri;
	const struct host_daemons *daemons;
	const struct host_daemon
		*only; /* store on another host: this node; NULL = the store is here */
	bool keep;
	struct host_loss *loss;
	struct rlv_store *store;
	struct store_status status;
	struct rlv_shard_info shards[MAX_SHARDS];
	struct rlv_table_info table;
	char names[MAX_TABLES][RLV_NAME_BYTES];
};

static bool holds_memory(const struct host_daemon *daemon)
{
	return daemon->pid && host_daemon_is_node(daemon) && !host_daemon_is_on_file(daemon);
}

static bool is_of(const struct inquest *q, const struct host_daemon *daemon)
{
	return q->only ? daemon == q->only : !host_daemon_is_elsewhere(daemon);
}

/* A local node ends with its process; a remote node becomes unusable without the catalog that
   names it. */
static bool is_at_stake(const struct inquest *q, const char *node)
{
	for (uint32_t i = 0; i < q->daemons->n; i++) {
		const struct host_daemon *daemon = &q->daemons->at[i];

		if (host_daemon_is_node(daemon) && is_of(q, daemon) &&
		    strcmp(daemon->name + strlen(HOST_NODE), node) == 0)
			return holds_memory(daemon);
	}
	return !q->only && !q->keep;
}

static void unknown(struct inquest *q, const char *why)
{
	if (!q->loss->unknown[0])
		snprintf(q->loss->unknown, sizeof(q->loss->unknown), "%.150s", why);
}

/* The count is complete only if each node with memory at stake answers. */
static void check_nodes(struct inquest *q)
{
	char why[160];

	for (uint32_t i = 0; i < q->daemons->n; i++) {
		const struct host_daemon *daemon = &q->daemons->at[i];
		const char *name = daemon->name + strlen(HOST_NODE);
		const struct rlv_node_info *node;

		if (!holds_memory(daemon) || !is_of(q, daemon))
			continue;
		node = store_status_find(&q->status, name);
		if (node && node->state == RLV_NODE_DOWN) {
			snprintf(why, sizeof(why), "memory node %.60s runs and does not answer",
				 name);
			unknown(q, why);
		}
	}
}

/* A table without a shard here has nothing to lose. */
static void count_table(struct inquest *q, const char *name)
{
	struct rlv_table *table;
	size_t n = MAX_SHARDS;
	int64_t items = 0;
	bool any = false;
	int ret = rlv_table_open(q->store, name, &table);

	if (ret == -EHOSTDOWN || ret == -ENOENT)
		return;
	if (ret) {
		unknown(q, rlv_last_error());
		return;
	}
	q->table = (struct rlv_table_info){ .size = sizeof(q->table) };
	ret = rlv_table_shards(table, q->shards, sizeof(q->shards[0]), &n);
	for (size_t i = 0; ret == 0 && i < n && i < MAX_SHARDS; i++) {
		const struct rlv_shard_info *shard = &q->shards[i];

		any |= (shard->state == RLV_SHARD_ACTIVE || shard->state == RLV_SHARD_DRAINING) &&
		       is_at_stake(q, shard->node);
	}
	if (any) {
		ret = rlv_table_info(table, &q->table);
		for (uint32_t v = 0; v < q->table.n_views && ret == 0; v++)
			if (q->table.views[v].items > items)
				items = q->table.views[v].items;
	}
	if (ret)
		unknown(q, rlv_last_error());
	q->loss->tables += items > 0;
	q->loss->items += (uint64_t)items;
	(void)!rlv_table_close(&table);
}

static int count_tables(struct inquest *q)
{
	uint64_t deadline = deadline_after(clock_monotonic(), 10 * CLOCK_NS_PER_S);
	size_t n = MAX_TABLES;
	bool any = false;
	int ret;

	ret = store_status_read(q->store, &q->status);
	if (ret == 0)
		ret = rlv_store_tables(q->store, q->names, &n);
	if (ret)
		return ret;
	for (size_t i = 0; i < q->status.n_nodes && !q->only; i++) {
		const char *pages = q->status.nodes[i].pages;

		q->keep |= strcmp(pages, "file") == 0 || strcmp(pages, "dax") == 0;
	}
	for (size_t i = 0; i < q->status.n_nodes; i++)
		any |= is_at_stake(q, q->status.nodes[i].name);
	if (n == 0 || !any)
		return 0;
	check_nodes(q);
	for (size_t i = 0; i < n && i < MAX_TABLES; i++) {
		if (deadline_expired(clock_monotonic(), deadline)) {
			unknown(q, "counting took longer than 10 s");
			break;
		}
		count_table(q, q->names[i]);
	}
	return 0;
}

static void ask(struct inquest *q)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	int ret;

	opts.timeout_ns = 3 * CLOCK_NS_PER_S;
	opts.read_only = true;
	ret = rlv_store_open(q->uri, &opts, &q->store);
	if (ret == 0)
		ret = count_tables(q);
	if (ret)
		unknown(q, rlv_last_error());
	if (q->store)
		(void)!rlv_store_close(&q->store);
}

/* True if items may be lost that cannot be counted, because the metadata server is down. */
static bool may_hold(const struct inquest *q, const struct host_daemon *metad)
{
	for (uint32_t i = 0; i < q->daemons->n; i++) {
		const struct host_daemon *daemon = &q->daemons->at[i];

		if (holds_memory(daemon) && is_of(q, daemon))
			return true;
	}
	return !q->keep && metad && cmdline_get(&metad->line, "--listen");
}

static void count_all(const char *store, struct inquest *q)
{
	const struct host_daemon *metad = NULL;
	char uri[HOST_STORE_URI_BYTES];

	for (uint32_t i = 0; i < q->daemons->n; i++) {
		if (strcmp(q->daemons->at[i].name, HOST_METAD) == 0)
			metad = &q->daemons->at[i];
	}
	snprintf(uri, sizeof(uri), "shm:%.50s", store);
	q->uri = uri;
	if (metad && metad->pid)
		ask(q);
	else if (may_hold(q, metad))
		unknown(q, "its metadata server is not running");
	/* Nodes of stores on other hosts: each store is queried by itself. */
	for (uint32_t i = 0; i < q->daemons->n; i++) {
		const struct host_daemon *daemon = &q->daemons->at[i];

		if (!holds_memory(daemon) || !host_daemon_is_elsewhere(daemon))
			continue;
		q->uri = cmdline_get(&daemon->line, "--metad");
		q->only = daemon;
		ask(q);
	}
}

int host_loss_count(const char *store, const struct host_daemons *daemons, bool *keep,
		    struct host_loss *loss_out)
{
	struct inquest *q = mem_zalloc(sizeof(*q));

	if (!q)
		return error_set(-ENOMEM, "count items: cannot allocate memory");
	*loss_out = (struct host_loss){ 0 };
	q->daemons = daemons;
	q->keep = *keep;
	q->loss = loss_out;
	count_all(store, q);
	*keep = q->keep;
	mem_free(q);
	return 0;
}
