#include "client/handle.h"

#include "base/alloc.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define BACKOFF_FIRST_NS 20000u
#define BACKOFF_DOUBLINGS 6 /* 1.28 ms at most */

static int open_accesses(struct handle *h, uint32_t view_mask, const struct tree_deltas_opts *defer)
{
	h->access = mem_array(h->nodes.n_shards, sizeof(struct access));
	if (!h->access)
		return error_set(-ENOMEM, "%u shards: no memory", h->nodes.n_shards);
	for (; h->n_shards < h->nodes.n_shards; h->n_shards++) {
		uint32_t s = h->n_shards;
		int ret =
			access_open(&h->access[s], h->nodes.shards[s], h->owner, view_mask, defer);

		if (ret)
			return ret;
	}
	return 0;
}

static void close_accesses(struct handle *h)
{
	for (uint32_t s = 0; s < h->n_shards; s++)
		access_close(&h->access[s]);
	mem_free(h->access);
	h->access = NULL;
	h->n_shards = 0;
}

int handle_open(struct handle *h, struct rlv_table *table, uint32_t view_mask,
		const struct tree_deltas_opts *defer)
{
	struct meta *meta = table->store->meta;
	int ret;

	ret = node_set_check(&table->nodes);
	if (ret)
		return ret;
	memset(h, 0, sizeof(*h));
	h->table = table;
	h->desc = &table->place.desc;
	h->clock = clock_monotonic();
	ret = node_set_open(meta, &table->place, table->store->timeout_ns, &h->nodes);
	if (ret)
		return ret;
	ret = meta->ops->slot_get(meta, &table->place, &h->owner);
	if (ret)
		goto err_close_nodes;
	ret = open_accesses(h, view_mask, defer);
	if (ret)
		goto err_put_slot;
	table_handle_get(table);
	return 0;

err_put_slot:
	close_accesses(h);
	if (meta->ops->slot_put(meta, &table->place, h->owner))
		error_prefix(ret, "slot %u stays taken until this process ends: ", h->owner);
err_close_nodes:
	node_set_close(&h->nodes);
	return ret;
}

int handle_close(struct handle *h)
{
	struct meta *meta = h->table->store->meta;
	int ret;

	close_accesses(h);
	if (transport_is_forked(h->nodes.transports[0]))
		ret = error_set(-ECHILD,
				"this handle was opened before fork(): it is the parent's");
	else
		ret = meta->ops->slot_put(meta, &h->table->place, h->owner);
	node_set_close(&h->nodes);
	table_handle_put(h->table);
	return ret;
}

int handle_check(const struct handle *h)
{
	return node_set_check(&h->nodes);
}

int handle_failed(struct access *acc, int error)
{
	int marked = error == -EIO ? shard_mark_dirty(acc->shard) : 0;

	return marked ? error_prefix(marked,
				     "shard %u may need a rebuild: ", acc->shard->desc.shard)
		      : error;
}

void handle_backoff(const struct handle *h, uint32_t *round, uint64_t deadline_ns)
{
	uint32_t doublings = *round < BACKOFF_DOUBLINGS ? *round : BACKOFF_DOUBLINGS;
	int64_t left = deadline_left_ns(h->clock, deadline_ns);
	int64_t sleep = (int64_t)(BACKOFF_FIRST_NS << doublings);

	if (left < sleep)
		sleep = left;
	(*round)++;
	if (sleep > 0) {
		struct timespec ts = { .tv_nsec = sleep };
		clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL);
	}
}

void handle_stats(const struct handle *h, struct rlv_stats *stats)
{
	struct transport_stats sum;

	node_set_stats(&h->nodes, &sum);
	stats->phases = sum.phases - sum.flush_phases;
	stats->reads = sum.reads;
	stats->writes = sum.writes;
	stats->cas = sum.cas;
	stats->faa = sum.faa;
	stats->cas_failed = sum.cas_failed;
	stats->read_bytes = sum.read_bytes;
	stats->write_bytes = sum.write_bytes;
}
