#include "tests/support/shard_fixture.h"

#include "tests/support/test.h"

#include "ds/shard_check.h"
#include "ds/slot.h"

#include "base/alloc.h"
#include "base/bits.h"
#include "base/crc32c.h"

#include <inttypes.h>
#include <string.h>

#define FIRST_TICKET 1000

static void must(int rc, const char *what)
{
	if (rc)
		fail_msg("%s: %s: %s", what, error_name(rc), error_last());
}

static void plan(struct table_desc *desc, const struct shard_fixture_opts *opts)
{
	struct table_plan_opts plan_opts = { .block = opts->block ? opts->block : 32,
					     .remote = opts->remote };

	memset(desc, 0, sizeof(*desc));
	strcpy(desc->name, "fixture");
	desc->table_id = 3;
	desc->capacity = opts->capacity ? opts->capacity : 1024;
	desc->n_shards = 1;
	desc->max_writers = opts->max_writers ? opts->max_writers : 2;
	desc->max_clients = SHARD_FIXTURE_CLIENTS;
	desc->flags = opts->flags;
	desc->n_columns = 1;
	strcpy(desc->columns[0].name, "obs");
	desc->columns[0].dtype = DTYPE_F32;
	desc->columns[0].role = ROLE_OBS;
	desc->columns[0].ndim = 1;
	desc->columns[0].shape[0] = 4;
	desc->columns[0].bytes = 16;
	desc->n_views = opts->views ? opts->views : 2;
	for (uint32_t v = 0; v < desc->n_views; v++) {
		desc->views[v].n_step = (uint16_t)(opts->n_step ? opts->n_step : 1);
		desc->views[v].alpha = 0.6;
		desc->views[v].limit = (struct limit_desc){ .min_size = 1,
							    .min_diff = INT64_MIN,
							    .max_diff = INT64_MAX,
							    .spi = 1 << LIMIT_SPI_BITS };
	}
	desc->views[0].max_times_sampled = opts->max_times_sampled;
	if (opts->limit)
		desc->views[0].limit = *opts->limit;
	must(table_plan(desc, &plan_opts), "table_plan");
}

static uint32_t make_region(struct shard_fixture *fx, uint32_t role)
{
	struct target_region spec = shard_region_spec(&fx->desc, 0, role);

	must(fx->target->ops->register_region(fx->target, &spec), "register_region");
	return spec.id;
}

static struct region *attach(struct shard_fixture *fx, struct transport *tr, uint32_t id,
			     uint32_t rights)
{
	struct region_grant grant;
	struct region *region = NULL;

	must(transport_grant(fx->target, 1, id, rights, &grant), "grant");
	must(transport_attach(tr, &grant, &region), "attach");
	return region;
}

static void attach_regions(struct shard_fixture *fx, shard_fixture_wrap wrap,
			   struct shard_conn *conn)
{
	struct transport_opts opts = { .target = fx->target, .client_id = 1 };

	must(transport_open("embed:", &opts, &conn->tr), "transport_open");
	if (wrap)
		conn->tr = wrap(conn->tr);
	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++)
		conn->parts.at[role] = attach(fx, conn->tr, fx->ids[role],
					      role == REGION_ROWS ? fx->rows_rights : RIGHT_ALL);
	conn->tree = conn->parts.at[REGION_TREE];
	conn->rows = conn->parts.at[REGION_ROWS];
}

void shard_fixture_open(struct shard_fixture *fx, const struct shard_fixture_opts *opts)
{
	struct shard_fixture_opts none = { 0 };
	struct shard_ids ids = { .first_ticket = FIRST_TICKET };
	struct target_opts target = { .private_memory = !opts || !opts->shared };
	uint64_t extent = (uint64_t)2 << 20;

	memset(fx, 0, sizeof(*fx));
	fx->rows_rights = opts && opts->shared ? RIGHT_READ | RIGHT_WRITE : RIGHT_ALL;
	plan(&fx->desc, opts ? opts : &none);
	target.pool_bytes = round_up(fx->desc.tree_bytes, extent) +
			    round_up(fx->desc.rows_bytes, extent) + 10 * extent;
	must(transport_target_open("shm", &target, &fx->target), "transport_target_open");
	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++)
		fx->ids[role] = make_region(fx, role);
	attach_regions(fx, opts ? opts->wrap : NULL, &fx->conn);
	must(shard_format(&fx->conn.parts, &fx->desc, &ids), "shard_format");
	must(shard_open(&fx->conn.parts, &fx->desc, &fx->conn.shard), "shard_open");
	fx->shard = fx->conn.shard;
}

void shard_fixture_close(struct shard_fixture *fx)
{
	shard_fixture_disconnect(&fx->conn);
	transport_target_close(&fx->target);
}

int shard_fixture_try_connect(struct shard_fixture *fx, shard_fixture_wrap wrap,
			      struct shard_conn *conn_out)
{
	*conn_out = (struct shard_conn){ .tr = NULL };
	attach_regions(fx, wrap, conn_out);
	return shard_open(&conn_out->parts, &fx->desc, &conn_out->shard);
}

void shard_fixture_connect(struct shard_fixture *fx, shard_fixture_wrap wrap,
			   struct shard_conn *conn_out)
{
	must(shard_fixture_try_connect(fx, wrap, conn_out), "shard_open");
}

void shard_fixture_disconnect(struct shard_conn *conn)
{
	if (conn->shard)
		shard_close(&conn->shard);
	else
		shard_parts_detach(&conn->parts);
	transport_close(&conn->tr);
}

void shard_fixture_take_slot(struct shard *shard, uint32_t owner)
{
	struct process_id self;

	must(process_self(&self), "process_self");
	must(slot_take(shard, owner - 1, &self, 1), "slot_take");
}

void shard_fixture_access(struct shard *shard, uint32_t owner, struct access *acc)
{
	struct tree_deltas_opts opts = { 0 };

	must(access_open(acc, shard, owner, (uint32_t)bits_mask(shard->desc.n_views), &opts),
	     "access_open");
}

void shard_fixture_make_rows(const struct block *blk, uint8_t *rows)
{
	const struct table_desc *desc = &blk->acc->shard->desc;

	memset(rows, 0, (size_t)desc->block * desc->row_bytes);
	for (uint32_t i = 0; i < desc->block; i++) {
		uint8_t *row = rows + (size_t)i * desc->row_bytes;
		struct row_tail tail = { .step = i, .gen = blk->gen };

		if (i + 1 < desc->window_max)
			tail.flags = ROW_REPEATED;
		row[0] = (uint8_t)i;
		memcpy(row + desc->tail_off, &tail, sizeof(tail));
		if (desc->flags & TABLE_ROW_CRC)
			tail.crc = crc32c(0, row, desc->tail_off + offsetof(struct row_tail, crc));
		memcpy(row + desc->tail_off, &tail, sizeof(tail));
	}
}

void shard_fixture_write_rows(const struct block *blk)
{
	const struct table_desc *desc = &blk->acc->shard->desc;
	uint8_t *rows = mem_array(desc->block, desc->row_bytes);

	assert_non_null(rows);
	shard_fixture_make_rows(blk, rows);
	must(ring_write(blk, 0, rows, desc->block), "ring_write");
	mem_free(rows);
}

int shard_fixture_publish(struct block *blk, uint64_t priority)
{
	const struct shard *shard = blk->acc->shard;
	uint32_t head = shard->desc.window_max - 1, n = shard->desc.block - head;
	struct leaf_run run = { .first = blk->first + head, .n = n, .gen = blk->gen };
	uint64_t *priorities = mem_array(n, sizeof(uint64_t));
	int rc = 0;

	assert_non_null(priorities);
	for (uint32_t i = 0; i < n; i++)
		priorities[i] = priority + i;
	for (uint32_t v = 0; !rc && v < shard->desc.n_views; v++)
		rc = sumtree_publish(&shard->trees[v], &blk->acc->epoch, &run, priorities,
				     blk->acc->deltas[v]);
	mem_free(priorities);
	return rc;
}

uint32_t shard_fixture_fill_block(struct access *acc, uint64_t priority)
{
	struct ring_counters counters = { 0 };
	struct block blk;

	must(access_enter(acc), "access_enter");
	must(ring_claim(acc, &blk, &counters), "ring_claim");
	shard_fixture_write_rows(&blk);
	must(shard_fixture_publish(&blk, priority), "publish");
	must(ring_close(&blk), "ring_close");
	must(access_leave(acc), "access_leave");
	return blk.first;
}

uint32_t shard_fixture_open_filled(struct shard_fixture *fx, const struct shard_fixture_opts *opts,
				   uint32_t blocks, struct access *acc)
{
	uint32_t first = 0;

	shard_fixture_open(fx, opts);
	shard_fixture_take_slot(fx->shard, 1);
	shard_fixture_access(fx->shard, 1, acc);
	for (uint64_t i = 0; i < blocks; i++)
		first = shard_fixture_fill_block(acc, 100 * (i + 1));
	return first;
}

uint64_t shard_fixture_load_at(struct region *region, uint64_t off)
{
	uint64_t word = 0;

	must(transport_load(region, off, &word), "transport_load");
	return word;
}

void shard_fixture_store_at(struct region *region, uint64_t off, uint64_t word)
{
	must(transport_store(region, off, &word, sizeof(word)), "transport_store");
}

uint64_t shard_fixture_load(const struct shard_fixture *fx, uint64_t off)
{
	return shard_fixture_load_at(fx->conn.tree, off);
}

void shard_fixture_store(const struct shard_fixture *fx, uint64_t off, uint64_t word)
{
	shard_fixture_store_at(fx->conn.tree, off, word);
}

uint64_t shard_fixture_problems(struct shard *shard)
{
	struct shard_check_opts opts = { .rows = true, .crc = true };
	struct shard_check_report report;

	must(shard_check(shard, &opts, &report), "shard_check");
	for (uint32_t i = 0; i < report.n_texts; i++)
		print_message("problem: %s\n", report.text[i]);
	return report.problems;
}
