#include "client/table/table.h"

#include "client/table/signature.h"

#include "ds/limiter/limiter.h"
#include "ds/replay/priority.h"
#include "ds/replay/shard.h"
#include "ds/replay/shard_check.h"

#include "base/mem/alloc.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static LOCK_ROLE(table_lock, "table", LOCK_RANK_OBJECT);

struct table_seen {
	int64_t items[TABLE_MAX_SHARDS][RING_MAX_VIEWS];
	struct limiter_words counts[RING_MAX_VIEWS];
};

const struct part_kind table_kind = {
	.object = "table",
	.part = "shard",
	.max_parts = TABLE_MAX_SHARDS,
	.has_control = true,
	.open = shard_open_part,
	.close = shard_close_part,
};

void table_handle_count(struct rlv_table *table, int delta)
{
	lock_acquire(&table->lock, &table_lock);
	table->open_handles = (uint32_t)((int)table->open_handles + delta);
	lock_release(&table->lock, &table_lock);
}

/* -------- open and close -------- */

/* Makes a table of an opened object and opens its shards. Takes ownership of opened, also on
   failure. -EPROTO: the object's descriptor is not valid. */
static int table_wrap(struct rlv_store *store, struct meta_opened *opened, uint64_t deadline_ns,
		      void **table_out)
{
	struct rlv_table *table = mem_zalloc(sizeof(*table));
	struct table_seen *seen = mem_zalloc(sizeof(*seen));
	struct part_set like = { .meta = store->meta, .kind = &table_kind, .access = *META_LOOKS };
	int ret = table && seen ? 0 : error_set(-ENOMEM, "table: cannot allocate memory");

	if (ret == 0 && opened->desc_bytes != sizeof(table->desc))
		ret = error_set(-EPROTO,
				"answer of the metadata server: a table descriptor has %zu bytes, "
				"want %zu",
				opened->desc_bytes, sizeof(table->desc));
	if (ret == 0) {
		memcpy(&table->desc, opened->desc, sizeof(table->desc));
		ret = table_desc_check(&table->desc);
	}
	if (ret == 0 && opened->place.n_parts < table->desc.n_shards)
		ret = error_set(-EPROTO,
				"answer of the metadata server: %u shards, but the descriptor has "
				"%u",
				opened->place.n_parts, table->desc.n_shards);
	if (ret == 0) {
		table->store = store;
		table->seen = seen;
		like.object = opened->object;
		like.desc = &table->desc;
		ret = part_set_open(&like, &opened->place, deadline_ns, &table->set);
	}
	meta_opened_fini(opened);
	if (ret) {
		mem_free(seen);
		mem_free(table);
		return ret;
	}
	lock_init(&table->lock, &table_lock);
	atomic_fetch_add_explicit(&store->open_tables, 1, memory_order_relaxed); /* a count */
	*table_out = table;
	return 0;
}

static int table_get(struct rlv_store *store, const struct meta_wish *wish,
		     struct rlv_table **table_out)
{
	void *handle;
	int ret = store_get_object(store, wish, table_wrap, &handle);

	if (ret == 0)
		*table_out = handle;
	return ret;
}

int rlv_table_create(struct rlv_store *store, const char *name, const struct rlv_table_opts *opts,
		     struct rlv_table **table_out)
{
	return table_create_for(store, name, opts, NULL, table_out);
}

int table_create_for(struct rlv_store *store, const char *name, const struct rlv_table_opts *opts,
		     const struct meta_load *load, struct rlv_table **table_out)
{
	struct table_plan_opts wishes = { 0 };
	struct meta_wish wish;
	struct rlv_table_opts full;
	struct table_desc desc;
	bool is_file;
	int ret;

	if (!store || !opts || !table_out)
		return error_set(-EINVAL, "store, opts or table_out is NULL");
	ret = abi_read(&full, sizeof(full), opts, "opts.");
	if (ret)
		return ret;
	if (store->read_only)
		return error_set(-EACCES, "store was opened read-only");
	is_file = store->uri.kind == URI_EMBED && store->uri.text[0];
	ret = signature_encode(name, &full, is_file, &desc);
	if (ret)
		return ret;
	wishes.block = full.block;
	wishes.fanout = full.fanout;
	ret = table_plan(&desc, &wishes);
	if (ret)
		return error_prefix(ret, "table %s: ", name);
	table_desc_seal(&desc, 0);
	wish = (struct meta_wish){
		.kind = OBJECT_TABLE,
		.name = name,
		.desc = &desc,
		.desc_bytes = sizeof(desc),
		.auto_shards = full.shards == RLV_SHARDS_AUTO,
		.crc_by_nodes = full.row_crc == 0,
		.block = full.block,
		.fanout = full.fanout,
		.load = load,
	};
	return table_get(store, &wish, table_out);
}

int rlv_table_open(struct rlv_store *store, const char *name, struct rlv_table **table_out)
{
	const struct meta_wish wish = { .kind = OBJECT_TABLE, .name = name };
	int ret;

	if (!store || !name || !table_out)
		return error_set(-EINVAL, "store, name or table_out is NULL");
	ret = table_name_check(name);
	return ret ? ret : table_get(store, &wish, table_out);
}

int rlv_table_close(struct rlv_table **table)
{
	struct rlv_table *t;
	uint32_t open;

	if (!table || !*table)
		return 0;
	t = *table;
	lock_acquire(&t->lock, &table_lock);
	open = t->open_handles;
	lock_release(&t->lock, &table_lock);
	if (open)
		return error_set(-EBUSY, "table %s: %u writers or samplers of it are open",
				 t->desc.name, open);
	part_set_close(&t->set);
	atomic_fetch_sub_explicit(&t->store->open_tables, 1, memory_order_relaxed); /* a count */
	lock_fini(&t->lock);
	mem_free(t->seen);
	mem_free(t);
	*table = NULL;
	return 0;
}

int rlv_table_drop(struct rlv_store *store, const char *name)
{
	return store_drop_object(store, OBJECT_TABLE, name);
}

/* -------- info -------- */

/* Enters a call on the table's own connections, within the store's timeout. Errors: those of
   part_set_enter. Under table_lock. */
static int table_look(struct rlv_table *table)
{
	uint64_t deadline_ns = deadline_after(table->set.clock, table->store->timeout_ns);

	part_set_begin(&table->set, deadline_ns, INT64_MAX);
	return part_set_enter(&table->set);
}

/* Adds items, priority sum and memory of view v in shard s to *out, and records the items in
   table->seen. */
static int table_info_shard(struct rlv_table *table, uint32_t s, uint32_t v,
			    struct rlv_view_info *out)
{
	const struct view_desc *view = &table->desc.views[v];
	const double scale = (double)view->scale;
	struct shard *shard = shard_of(table->set.parts[s]);
	uint64_t max_priority;
	struct epoch ep;
	uint64_t total;
	int64_t size;
	int ret;

	epoch_init(&ep, &shard->part, 0);
	ret = sumtree_size(&shard->trees[v], &ep, &size);
	if (ret == 0)
		ret = sumtree_total(&shard->trees[v], &ep, &total);
	if (ret == 0)
		ret = priority_max_read(shard, v, &max_priority);
	if (ret)
		return ret;
	table->seen->items[s][v] = size;
	out->items += size;
	out->priority_sum += (double)total / scale;
	out->max_priority = fmax(out->max_priority, (double)max_priority / scale);
	out->overhead_bytes += (uint64_t)shard->desc.slots * (view->counts_off ? 16 : 8) +
			       2 * shard->desc.tree.inner_bytes;
	return 0;
}

/* Adds view v of all open shards to *out; skips a shard that is lost meanwhile. While the
   control shard is away, inserted and sampled are those read last. */
static int table_info_view(struct rlv_table *table, uint32_t v, struct rlv_view_info *out)
{
	struct part_set *set = &table->set;
	struct limiter_words *counts = &table->seen->counts[v];
	struct limiter lim;
	int ret = 0;

	for (uint32_t s = 0; s < set->n_parts; s++) {
		ret = set->parts[s] ? table_info_shard(table, s, v, out) : 0;
		if (ret && part_set_drop(set) == 0)
			return ret;
		if (part_set_is_away(set, s))
			out->items_lost += table->seen->items[s][v];
	}
	ret = 0;
	if (part_set_has_control(set)) {
		limiter_init(&lim, shard_of(set->parts[set->control]), v, 0);
		ret = limiter_read(&lim, counts);
	}
	if (ret && part_set_drop(set) == 0)
		return ret;
	out->inserted = counts->ins_committed;
	out->sampled = counts->smp_committed;
	return 0;
}

int rlv_table_info(struct rlv_table *table, struct rlv_table_info *info_out)
{
	struct rlv_table_info info = { 0 };
	const struct table_desc *desc;
	int ret;

	if (!table || !info_out)
		return error_set(-EINVAL, "table or info_out is NULL");
	ret = abi_check(info_out, "info_out->");
	if (ret)
		return ret;
	desc = &table->desc;
	signature_decode(desc, &info);
	snprintf(info.name, sizeof(info.name), "%s", desc->name);
	info.capacity = desc->capacity;
	info.slots = (uint64_t)desc->slots * desc->n_shards;
	info.block = desc->block;
	info.window = desc->window_max;
	info.row_bytes = desc->row_bytes;
	info.row_header_bytes = (uint32_t)sizeof(struct row_tail);
	info.max_writers = desc->max_writers;
	info.max_clients = desc->max_clients;
	info.rows_bytes = desc->rows_bytes * desc->n_shards;
	info.tree_bytes =
		(desc->tree_bytes + desc->slots_bytes + desc->pages_bytes) * desc->n_shards;
	lock_acquire(&table->lock, &table_lock);
	ret = table_look(table);
	for (uint32_t v = 0; ret == 0 && v < info.n_views; v++)
		ret = table_info_view(table, v, &info.views[v]);
	info.shards = table->set.n_parts;
	info.shards_up = table->set.n_up;
	info.control = table->set.control;
	info.layout = table->set.layout;
	lock_release(&table->lock, &table_lock);
	if (ret == 0)
		abi_write(info_out, &info, sizeof(info));
	return ret;
}

int rlv_table_shards(struct rlv_table *table, struct rlv_shard_info *shards, size_t size,
		     size_t *n_inout)
{
	struct abi_array array = { .theirs = shards, .size = size, .n_inout = n_inout };
	struct rlv_shard_info *ours;
	struct part_set *set;
	int ret;

	if (!table || !n_inout || (*n_inout && !shards))
		return error_set(-EINVAL, "table, shards or n_inout is NULL");
	ret = abi_array_begin(&array, sizeof(*shards), "shards");
	if (ret)
		return ret;
	ours = array.ours;
	set = &table->set;
	lock_acquire(&table->lock, &table_lock);
	ret = table_look(table);
	if (ret == -EHOSTDOWN) /* info then reports no shard */
		ret = 0;
	for (uint32_t s = 0; ret == 0 && s < set->n_parts && s < array.n; s++) {
		const struct part_status *status = &set->statuses[s];

		ours[s] = (struct rlv_shard_info){ .shard = s, .state = status->state };
		ours[s].weight = part_set_weight(set, s, clock_now_ns(set->clock));
		snprintf(ours[s].node, sizeof(ours[s].node), "%s", status->name);
		if (status->node < set->n_nodes)
			snprintf(ours[s].address, sizeof(ours[s].address), "%s",
				 set->nodes[status->node].uri);
	}
	array.n = set->n_parts;
	lock_release(&table->lock, &table_lock);
	return abi_array_end(&array, ret);
}

/* -------- verify -------- */

int rlv_table_verify(struct rlv_table *table, struct rlv_verify_report *report_out)
{
	struct rlv_verify_report sum = { 0 };
	struct shard_check_opts opts = { .rows = true };
	struct shard_check_report one;
	int ret;

	if (!table || !report_out)
		return error_set(-EINVAL, "table or report_out is NULL");
	ret = abi_check(report_out, "report_out->");
	if (ret)
		return ret;
	opts.crc = (table->desc.flags & TABLE_ROW_CRC) != 0;
	opts.limit_slack = (uint64_t)table->desc.max_clients * TRANSPORT_VECTOR;
	lock_acquire(&table->lock, &table_lock);
	ret = table_look(table);
	opts.control = table->set.control;
	for (uint32_t s = 0; ret == 0 && s < table->set.n_parts; s++) {
		if (!table->set.parts[s])
			continue;
		ret = shard_check(shard_of(table->set.parts[s]), &opts, &one);
		if (ret && part_set_drop(&table->set)) {
			ret = 0; /* it is lost: nothing can be said of it */
			continue;
		}
		if (ret)
			break;
		if (sum.problems == 0 && one.n_texts)
			snprintf(sum.first_problem, sizeof(sum.first_problem), "%s", one.text[0]);
		sum.problems += (uint32_t)(one.problems < UINT32_MAX ? one.problems : UINT32_MAX);
		for (uint32_t v = 0; v < table->desc.n_views; v++)
			sum.items += one.live[v];
		sum.wrong_sums += one.wrong_nodes + one.wrong_sizes;
		sum.wrong_leaves += one.wrong_leaves + one.wrong_tags;
		sum.wrong_blocks += one.wrong_headers;
		sum.wrong_rows += one.wrong_rows;
		sum.wrong_words += one.wrong_limits + one.wrong_slots;
		sum.open_blocks += one.open_blocks;
	}
	lock_release(&table->lock, &table_lock);
	if (ret == 0)
		abi_write(report_out, &sum, sizeof(sum));
	return ret;
}
