/*
 * Fuzzes the check of table descriptors and the planner. An input is patches to a good descriptor,
 * { offset u16, length u8, bytes }; its first byte says which, and whether the crc is put right.
 * What the check lets pass must describe arrays that lie apart and inside their regions.
 */
#include "ds/replay/shard.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void add_column(struct table_desc *desc, const char *name, uint16_t dtype, uint16_t role)
{
	struct column_desc *col = &desc->columns[desc->n_columns++];

	strcpy(col->name, name);
	col->dtype = dtype;
	col->role = role;
	col->bytes = dtype_bytes(dtype);
}

static void make_base(struct table_desc *desc, uint8_t kind)
{
	memset(desc, 0, sizeof(*desc));
	strcpy(desc->name, "fuzz");
	desc->table_id = 1;
	desc->capacity = kind & 1 ? 1000 : 1 << 20;
	desc->n_shards = kind & 2 ? 3 : 1;
	desc->max_writers = 1;
	desc->max_clients = 4;
	add_column(desc, "obs", DTYPE_F32, kind & 1 ? ROLE_OBS : ROLE_PLAIN);
	add_column(desc, "reward", DTYPE_F64, ROLE_REWARD);
	add_column(desc, "done", DTYPE_BOOL, ROLE_PLAIN);
	desc->n_views = kind & 2 ? 2 : 1;
	for (uint32_t v = 0; v < desc->n_views; v++) {
		desc->views[v].stack = 2;
		desc->views[v].max_times_sampled = 2 * v;
		desc->views[v].limit = (struct limit_desc){ 1, 0, INT64_MIN, INT64_MAX };
	}
}

static void patch(struct table_desc *desc, const uint8_t *data, size_t size)
{
	uint8_t *bytes = (uint8_t *)desc;

	while (size >= 3) {
		size_t off = (size_t)data[0] | (size_t)data[1] << 8, n = data[2];

		data += 3;
		size -= 3;
		n = n < size ? n : size;
		if (off < sizeof(*desc) && n <= sizeof(*desc) - off)
			memcpy(bytes + off, data, n);
		data += n;
		size -= n;
	}
}

static void must(int holds)
{
	if (!holds)
		abort();
}

/* Arrays in their order in the region, none over another. */
static void check_places(const struct table_desc *desc)
{
	uint64_t end = DESC_OFF + sizeof(*desc), leaves = desc->slots * 8ull;

	must(desc->words_off >= end);
	end = desc->words_off + sizeof(struct shard_words);
	must(desc->slots_bytes >= desc->slots_off + desc->max_clients * sizeof(struct client_slot));
	must(desc->pages_bytes >= PAGES_OFF + (uint64_t)desc->max_clients * CLIENT_PAGE_BYTES);
	for (uint32_t v = 0; v < desc->n_views; v++) {
		const struct view_desc *view = &desc->views[v];

		must(view->words_off >= end);
		must(view->inner_off[0] >= view->words_off + sizeof(struct view_words));
		must(view->inner_off[1] >= view->inner_off[0] + desc->tree.inner_bytes);
		must(view->leaves_off >= view->inner_off[1] + desc->tree.inner_bytes);
		end = view->leaves_off + leaves;
		must(!view->counts_off || view->counts_off >= end);
		end = view->counts_off ? view->counts_off + leaves : end;
		must(view->window >= 1 && view->window <= desc->window_max);
		must(view->future < view->window);
	}
	must(desc->headers_off >= end);
	must(desc->tree_bytes >= desc->headers_off + desc->blocks * 8ull);
}

static void check_rows(const struct table_desc *desc)
{
	uint64_t end = 0;

	for (uint32_t c = 0; c < desc->n_columns; c++) {
		must(desc->columns[c].offset >= end);
		end = (uint64_t)desc->columns[c].offset + desc->columns[c].bytes;
	}
	must(desc->tail_off >= end && desc->tail_off % 8 == 0);
	must(desc->row_bytes == desc->tail_off + sizeof(struct row_tail));
	must(desc->rows_bytes >= ROWS_OFF + (uint64_t)desc->slots * desc->row_bytes);
	must((uint64_t)desc->blocks * desc->block == desc->slots);
	must(desc->block >= 2 * desc->window_max);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct table_plan_opts opts = { 0 };
	struct table_desc desc;

	if (!size)
		return 0;
	make_base(&desc, data[0]);
	if (data[0] & 4)
		patch(&desc, data + 1, size - 1);
	opts.block = data[0] & 8 ? (uint32_t)data[0] << 4 : 0;
	if (table_plan(&desc, &opts) == 0) {
		must(table_desc_check(&desc) == 0);
		check_places(&desc);
		check_rows(&desc);
	}
	patch(&desc, data + 1, size - 1);
	if (data[0] & 16)
		table_desc_seal(&desc, desc.shard);
	if (table_desc_check(&desc) == 0) {
		check_places(&desc);
		check_rows(&desc);
		must(table_desc_same(&desc, &desc));
	}
	return 0;
}
