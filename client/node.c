#include "client/node.h"

#include "base/alloc.h"

#include <errno.h>
#include <string.h>

struct connect {
	struct meta *meta;
	const struct meta_table *table;
	uint64_t timeout_ns;
	struct node_set *set;
};

/* The transport of shard s: an earlier shard's if they share a node. */
static int connect_node(const struct connect *c, uint32_t s, struct transport **tr_out)
{
	const char *uri = c->table->shards[s].node_uri;
	const struct transport_opts opts = {
		.target = c->meta->target,
		.client_id = c->meta->client_id,
		.timeout_ns = c->timeout_ns,
	};
	struct transport *tr;
	int ret;

	for (uint32_t i = 0; i < s; i++)
		if (strcmp(c->table->shards[i].node_uri, uri) == 0) {
			*tr_out = c->set->shards[i]->tree->tr;
			return 0;
		}
	ret = transport_open(uri, &opts, &tr);
	if (ret)
		return ret;
	c->set->transports[c->set->n_transports++] = tr;
	*tr_out = tr;
	return 0;
}

static int connect_shard(const struct connect *c, uint32_t s)
{
	const struct meta_shard *place = &c->table->shards[s];
	struct transport *tr;
	struct region *tree;
	struct region *rows;
	int ret;

	ret = connect_node(c, s, &tr);
	if (ret)
		return ret;
	ret = transport_attach(tr, &place->tree, &tree);
	if (ret)
		return ret;
	ret = transport_attach(tr, &place->rows, &rows);
	if (ret)
		goto err_detach_tree;
	ret = shard_open(tree, rows, &c->set->shards[s]);
	if (ret)
		goto err_detach_rows;
	return 0;

err_detach_rows:
	transport_detach(&rows);
err_detach_tree:
	transport_detach(&tree);
	return ret;
}

int node_set_open(struct meta *meta, const struct meta_table *table, int64_t timeout_ns,
		  struct node_set *out)
{
	struct node_set set = { .n_shards = table->n_shards };
	const struct connect c = { meta, table, timeout_ns > 0 ? (uint64_t)timeout_ns : 0, &set };
	int ret = 0;

	set.transports = mem_array(table->n_shards, sizeof(struct transport *));
	set.shards = mem_array(table->n_shards, sizeof(struct shard *));
	if (!set.transports || !set.shards)
		ret = error_set(-ENOMEM, "%u shards: no memory", table->n_shards);
	for (uint32_t s = 0; ret == 0 && s < table->n_shards; s++) {
		ret = connect_shard(&c, s);
		if (ret)
			error_prefix(ret, "table %s shard %u: ", table->desc.name, s);
	}
	if (ret) {
		node_set_close(&set);
		return ret;
	}
	*out = set;
	return 0;
}

void node_set_close(struct node_set *nodes)
{
	for (uint32_t s = 0; nodes->shards && s < nodes->n_shards; s++) {
		struct shard *shard = nodes->shards[s];
		struct region *tree = shard ? shard->tree : NULL;
		struct region *rows = shard ? shard->rows : NULL;

		shard_close(&nodes->shards[s]);
		if (tree)
			transport_detach(&tree);
		if (rows)
			transport_detach(&rows);
	}
	for (uint32_t i = 0; i < nodes->n_transports; i++)
		transport_close(&nodes->transports[i]);
	mem_free(nodes->transports);
	mem_free(nodes->shards);
	memset(nodes, 0, sizeof(*nodes));
}

int node_set_check(const struct node_set *nodes)
{
	if (transport_is_forked(nodes->transports[0]))
		return error_set(-ECHILD,
				 "this handle was opened before fork(): open one in the child");
	for (uint32_t s = 0; s < nodes->n_shards; s++) {
		int ret = shard_state(nodes->shards[s]);

		if (ret)
			return ret;
	}
	return 0;
}

void node_set_stats(const struct node_set *nodes, struct transport_stats *out)
{
	memset(out, 0, sizeof(*out));
	for (uint32_t i = 0; i < nodes->n_transports; i++) {
		const struct transport_stats *in = &nodes->transports[i]->stats;

		out->phases += in->phases;
		out->flush_phases += in->flush_phases;
		out->reads += in->reads;
		out->writes += in->writes;
		out->cas += in->cas;
		out->faa += in->faa;
		out->read_bytes += in->read_bytes;
		out->write_bytes += in->write_bytes;
		out->cas_failed += in->cas_failed;
		out->unknown += in->unknown;
	}
}
