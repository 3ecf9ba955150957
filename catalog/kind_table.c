/*
 * kind_table.c - replay tables: their parts are shards, rings of rows with sum trees.
 */
#include "catalog/kind_table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ds/limiter/balance.h"
#include "ds/replay/recover.h"
#include "ds/replay/settle.h"
#include "ds/sumtree/rebuild.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"

#define HEADERS_AT_ONCE 256u
#define MAX_FANOUT 16u /* maximum number of levels in a wish */

/* -------- a table -------- */

int table_create(struct catalog *cat, const struct table_wish *wish,
		 struct catalog_object **table_out)
{
	const struct catalog_wish object = {
		.kind = &kind_table,
		.name = wish->desc.name,
		.auto_parts = wish->auto_shards,
		.details = wish,
	};
	int ret = table_desc_check(&wish->desc);

	return ret ? ret : catalog_create(cat, &object, table_out);
}

/* A wish, with what it points to. */
struct table_request {
	struct table_wish wish;
	uint16_t fanout[MAX_FANOUT];
};

static int table_take_wish(const struct kind_request *request, const void **details_out,
			   char name_out[OBJECT_NAME_BYTES])
{
	struct table_request *taken;
	struct table_wish *wish;
	int ret;

	if (request->len != sizeof(wish->desc))
		return error_set(-EPROTO, "request: a table descriptor has %zu bytes, want %zu",
				 request->len, sizeof(wish->desc));
	if (request->n_fanout >= MAX_FANOUT)
		return error_set(-EPROTO, "request: fanout of %zu levels, too many",
				 request->n_fanout);
	taken = mem_zalloc(sizeof(*taken));
	if (!taken)
		return error_set(-ENOMEM, "cannot allocate memory");
	wish = &taken->wish;
	memcpy(&wish->desc, request->desc, sizeof(wish->desc));
	wish->auto_shards = request->auto_parts;
	wish->crc_by_nodes = request->crc_by_nodes;
	wish->opts.block = request->block;
	wish->opts.fanout = request->n_fanout ? taken->fanout : NULL;
	for (size_t i = 0; i < request->n_fanout; i++)
		taken->fanout[i] = (uint16_t)request->fanout[i];
	*details_out = taken;
	ret = table_name_check(wish->desc.name);
	if (ret)
		return ret;
	memcpy(name_out, wish->desc.name, OBJECT_NAME_BYTES);
	return table_desc_check(&wish->desc);
}

static int table_describe(const struct catalog *cat, const struct catalog_wish *wish,
			  const struct object_ids *ids, struct object_desc *desc_out)
{
	struct table_desc *desc = mem_alloc(sizeof(*desc));
	int ret;

	if (!desc)
		return error_set(-ENOMEM, "table %s: cannot allocate memory", wish->name);
	ret = table_plan_for(cat, wish->details, desc);
	if (ret) {
		mem_free(desc);
		return ret;
	}
	desc->table_id = ids->id;
	memcpy(desc->uuid, ids->uuid, sizeof(desc->uuid));
	table_desc_seal(desc, 0);
	*desc_out = (struct object_desc){ desc, sizeof(*desc) };
	return 0;
}

static int table_load(struct catalog_object *object, const void *bytes, size_t len)
{
	const struct table_desc *desc = bytes;
	struct table_state *state;
	int ret;

	if (len != sizeof(*desc))
		return error_set(-EBADMSG, "table %u: a descriptor of %zu bytes, not %zu",
				 object->id, len, sizeof(*desc));
	state = mem_zalloc(sizeof(*state));
	if (!state)
		return error_set(-ENOMEM, "table %u: no memory", object->id);
	memcpy(&state->desc, bytes, sizeof(state->desc));
	object->state = state;
	object->desc = desc = &state->desc;
	object->desc_len = len;
	ret = table_desc_check(desc);
	if (ret == 0 && desc->table_id != object->id)
		ret = error_set(-EBADMSG, "table %u: the descriptor is of table %u", object->id,
				desc->table_id);
	if (ret)
		return ret;
	memcpy(object->uuid, desc->uuid, sizeof(object->uuid));
	memcpy(object->name, desc->name, sizeof(object->name));
	object->n_cut = desc->n_shards;
	object->max_clients = desc->max_clients;
	object->max_streams = desc->max_writers;
	return 0;
}

/*
 * Reserves TABLE_LAPS laps of the ring of shard s in the store: behind the laps of former tables
 * with this id or, if told is given (an adopted shard), behind those that its ring has used.
 */
static int table_reserve(struct catalog *cat, const struct catalog_object *table, uint32_t s,
			 const uint64_t told[PART_TOLD])
{
	uint64_t first = 0;
	int ret = 0;

	if (told)
		first = (told[PART_TOLD_KIND] & BLOCK_SEQ_MASK) /
			table_state_of(table)->desc.blocks;
	else
		ret = store_lap(cat->store, table->id, s, &first);
	return ret ? ret : store_lap_raise(cat->store, table->id, s, first + TABLE_LAPS);
}

/* -------- a shard -------- */

static void table_plan_part(const struct catalog_object *table, uint32_t s,
			    struct part_spec *spec_out)
{
	*spec_out = shard_spec(&table_state_of(table)->desc);
	spec_out->part = s;
}

static int table_format(struct catalog *cat, const struct catalog_object *table, uint32_t s,
			const struct part_regions *regions)
{
	struct table_desc desc = table_state_of(table)->desc;
	struct shard_ids ids = {
		.origin.ms_term = cat->ids.term,
		.origin.incarnation = table->parts[s].incarnation,
		.origin.loading = table->loader && s < table->n_cut,
	};
	uint64_t lap = 0;
	int ret = store_lap(cat->store, desc.table_id, s, &lap);

	if (ret)
		return ret;
	memcpy(ids.origin.store_uuid, cat->ids.uuid, sizeof(ids.origin.store_uuid));
	/* Reserved by table_reserve(). Only the generation matters; it wraps around at
	   LEAF_GEN_MASK. */
	ids.first_ticket = (lap - TABLE_LAPS) % LEAF_GEN_MASK * desc.blocks;
	table_desc_seal(&desc, s);
	return shard_format(regions, &desc, &ids);
}

static int table_leave(struct part *part, uint32_t owner)
{
	uint32_t closed;

	return shard_close_blocks(shard_of(part), owner, &closed);
}

static int table_rebuild(struct part *part, const struct rebuild_opts *opts,
			 struct rebuild_report *report_out)
{
	return sumtree_rebuild_pass(shard_of(part), opts, report_out);
}

/* -------- recovery -------- */

static int table_recover_begin(const struct catalog *cat, struct catalog_object *table, uint32_t s,
			       struct recovery **recovery_out)
{
	const struct recover_opts opts = { .scan_rows = table->parts[s].life.marked };
	const struct node *node = table->parts[s].node;

	/* Rows may be torn and have no checksum: only an operator may declare them intact. */
	if (opts.scan_rows && !cat->trust && !(table_state_of(table)->desc.flags & TABLE_ROW_CRC))
		return error_set(
			-EBADMSG,
			"%s%s did not end cleanly, and the rows have no checksums (row_crc = 2), "
			"so a power loss or a copy made meanwhile would go unnoticed: %s if there "
			"was none",
			node->remote ? "node " : "the last process that had it",
			node->remote ? node->name : "",
			node->remote ? "start the metadata server with --trust (relive up --trust)"
				     : "open it with opts.trust (Python: trust=True)");
	return recover_begin(shard_of(table->attached[s]), &opts, recovery_out);
}

static int table_recover_go_on(struct recovery *recovery, const struct clock *clk,
			       uint64_t until_ns, char text_out[KIND_TEXT_BYTES])
{
	struct recover_report report;
	int ret = recover_go_on(recovery, clk, until_ns, &report);

	if (ret == 0)
		snprintf(text_out, KIND_TEXT_BYTES,
			 "items %" PRIu64 " retired %" PRIu64 " blocks closed %u", report.items,
			 report.retired, report.closed);
	return ret;
}

/* -------- drain -------- */

int table_shard_items(struct shard *shard, uint32_t view, uint64_t *items_out)
{
	struct epoch ep;
	int64_t size = 0;
	int ret;

	epoch_init(&ep, &shard->part, 0);
	ret = sumtree_size(&shard->trees[view], &ep, &size);
	if (ret == 0)
		*items_out = size > 0 ? (uint64_t)size : 0;
	return ret;
}

/* Number of items in the view that has most. */
static int table_items(struct part *part, uint64_t *items_out)
{
	struct shard *shard = shard_of(part);
	uint64_t most = 0;

	for (uint32_t v = 0; v < shard->desc.n_views; v++) {
		uint64_t items;
		int ret = table_shard_items(shard, v, &items);

		if (ret)
			return ret;
		most = max_u64(most, items);
	}
	*items_out = most;
	return 0;
}

/*
 * Returns the rows of the blocks claimed in the shard since the last call, from its ticket counter;
 * 0 in the first call (*seen is 0) and if the counter cannot be read.
 */
static uint64_t table_taken_in(struct part *part, uint64_t *seen)
{
	const struct shard *shard = shard_of(part);
	uint64_t head = 0, before = *seen;

	if (transport_load(shard->tree, shard_word_off(shard, offsetof(struct shard_words, head)),
			   &head))
		return 0;
	*seen = (head & BLOCK_SEQ_MASK) + 1;
	return before ? (*seen - before) * shard->desc.block : 0;
}

static int table_is_open(struct part *part, bool *is_open_out)
{
	const struct shard *shard = shard_of(part);
	uint32_t blocks = shard->desc.blocks;

	*is_open_out = false;
	for (uint32_t first = 0; first < blocks; first += HEADERS_AT_ONCE) {
		uint32_t n = blocks - first < HEADERS_AT_ONCE ? blocks - first : HEADERS_AT_ONCE;
		uint64_t headers[HEADERS_AT_ONCE] = { 0 };
		int ret = transport_fetch(shard->tree, shard_header_off(shard, first), headers,
					  n * 8);

		if (ret)
			return ret;
		for (uint32_t i = 0; i < n; i++)
			*is_open_out |= block_is_open(headers[i]);
	}
	return 0;
}

/* -------- balance -------- */

/*
 * Corrects the counts of queue views after kills (balance_view), if every shard that is not lost is
 * attached. Its -EAGAIN is normal and not logged: a client is inside a call.
 */
static void table_balance(struct catalog_object *table)
{
	const struct table_desc *desc = &table_state_of(table)->desc;
	struct shard *shards[TABLE_MAX_SHARDS];
	uint32_t n = 1;

	/* All shards that are not lost, the control shard first; none may be away. */
	if (!table->attached[table->control])
		return;
	for (uint32_t s = 0; s < table->n_parts; s++) {
		if (catalog_part_is_lost(table, s))
			continue;
		if (!table->attached[s])
			return;
		shards[s == table->control ? 0 : n++] = shard_of(table->attached[s]);
	}
	for (uint32_t v = 0; v < desc->n_views; v++) {
		int64_t moved = 0;
		int ret;

		if (!balance_applies(&desc->views[v]))
			continue;
		ret = balance_view(shards, n, v, &moved);
		if (ret && ret != -EAGAIN)
			log_warn("%s view %u: balance: %s", table->text, v, error_last());
		if (ret == 0 && moved)
			log_info("%s view %u: the dead left the count of items %lld off",
				 table->text, v, (long long)moved);
	}
}

/* -------- adoption -------- */

static int table_desc_of_part(const void *bytes, size_t len, uint32_t s,
			      struct object_desc *desc_out)
{
	struct table_desc *desc = mem_alloc(sizeof(*desc));
	int ret;

	if (!desc)
		return error_set(-ENOMEM, "shard %u: cannot allocate memory", s);
	ret = table_desc_unpack(bytes, len, desc)
		      ? table_desc_check(desc)
		      : error_set(-EPROTO, "its descriptor has %zu bytes", len);
	if (ret == 0 && desc->shard != s)
		ret = error_set(-EPROTO, "its descriptor is of another region");
	if (ret) {
		mem_free(desc);
		return ret;
	}
	table_desc_seal(desc, 0);
	*desc_out = (struct object_desc){ desc, sizeof(*desc) };
	return 0;
}

/* -------- drop -------- */

/*
 * Records in the store the laps that each attached shard has used, and one lap of slack: tickets
 * claimed after this look stay below it.
 */
static void table_drop(struct catalog *cat, const struct catalog_object *table)
{
	for (uint32_t s = 0; s < table->n_parts; s++) {
		uint64_t head, lap;
		const struct shard *shard;
		int ret;

		if (!table->attached[s])
			continue;
		shard = shard_of(table->attached[s]);
		ret = transport_load(shard->tree,
				     shard_word_off(shard, offsetof(struct shard_words, head)),
				     &head);
		if (ret == 0) {
			lap = (head & BLOCK_SEQ_MASK) / table_state_of(table)->desc.blocks + 2;
			ret = store_lap_raise(cat->store, table->id, s, lap);
		}
		if (ret)
			log_warn("drop %s shard %u: %s", table->text, s, error_last());
	}
}

const struct object_kind kind_table = {
	.name = "table",
	.part = "shard",
	.id = OBJECT_TABLE,
	.take_wish = table_take_wish,
	.describe = table_describe,
	.load = table_load,
	.is_wish_of = table_is_wish_of,
	.reserve = table_reserve,
	.plan = table_plan_part,
	.format = table_format,
	.open = shard_open_part,
	.close = shard_close_part,
	.settle_dead = shard_settle_dead,
	.leave = table_leave,
	.rebuild = table_rebuild,
	.recover_begin = table_recover_begin,
	.recover_go_on = table_recover_go_on,
	.recover_end = recover_end,
	.items = table_items,
	.taken_in = table_taken_in,
	.is_open = table_is_open,
	.hand_over = catalog_control_hand_over,
	.handed = catalog_control_settle,
	.look = catalog_control_read,
	.tick = catalog_control_tick,
	.tick_clean = table_balance,
	.desc_of_part = table_desc_of_part,
	.drop = table_drop,
};
