#include "tests/support/saved_table.h"

#include "tests/support/must.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void saved_table_describe(struct save_table *table)
{
	*table = (struct save_table){
		.head = { .name = "t",
			  .capacity = 1024,
			  .shards = 1,
			  .block = 16,
			  .max_writers = 2,
			  .max_clients = 8,
			  .n_columns = 2,
			  .n_views = 2,
			  .window = 2 },
		.views = { { .stack = 1,
			     .n_step = 1,
			     .alpha = 0.6,
			     .eps = 1e-6,
			     .min_size = 1,
			     .min_diff = -INFINITY,
			     .max_diff = INFINITY,
			     .scale = 1 << 20 },
			   { .stack = 1,
			     .n_step = 1,
			     .selector = 2,
			     .max_times_sampled = 2,
			     .alpha = 1,
			     .eps = 1e-6,
			     .min_size = 1,
			     .samples_per_insert = 2,
			     .max_diff = 64,
			     .scale = 1 << 20 } },
		.columns = { { .name = "obs", .dtype = 11, .role = 1, .ndim = 1, .shape = { 2 } },
			     { .name = "action", .dtype = 7 } },
	};
	memcpy(table->head.uuid, "0123456789abcdef", 16);
	must(save_table_check(table), "describe");
}

void saved_table_rows(uint32_t run, uint8_t *body)
{
	struct save_row rows[SAVED_ROWS];
	float obs[SAVED_ROWS][2];
	int32_t action[SAVED_ROWS];

	for (uint32_t i = 0; i < SAVED_ROWS; i++) {
		rows[i] = (struct save_row){ .policy_version = run, .step = i, .flags = i == 0 };
		obs[i][0] = obs[i][1] = (float)(run * SAVED_ROWS + i);
		action[i] = (int32_t)i;
	}
	memcpy(body, rows, sizeof(rows));
	memcpy(body + sizeof(rows), obs, sizeof(obs));
	memcpy(body + sizeof(rows) + sizeof(obs), action, sizeof(action));
}

void saved_table_leaves(uint32_t run, uint8_t *body)
{
	uint64_t quanta[2][SAVED_ROWS];
	uint32_t counts[SAVED_ROWS] = { 0, 1, 0, 1 };

	for (uint32_t i = 0; i < SAVED_ROWS; i++) {
		quanta[0][i] = i ? 1000 * run + i : 0;
		quanta[1][i] = i > 1;
	}
	memcpy(body, quanta, sizeof(quanta));
	memcpy(body + sizeof(quanta), counts, sizeof(counts));
}

struct save_output *saved_table_draft(const char *path, int level)
{
	struct save_table table;
	struct save_output *out;
	uint8_t body[256] = { 0 };

	saved_table_describe(&table);
	must(save_output_open(path, &table, level, &out), "open");
	for (uint32_t run = 0; run < SAVED_RUNS; run++) {
		struct save_chunk head = {
			.kind = SAVE_ROWS,
			.seq = run + 1,
			.first = 3,
			.rows = SAVED_ROWS,
			.bytes = SAVED_ROWS * table.row_bytes,
		};

		saved_table_rows(run, body);
		must(save_output_put(out, &head, body), "put");
		head.kind = SAVE_LEAVES;
		head.bytes = SAVED_ROWS * table.leaf_bytes;
		saved_table_leaves(run, body);
		must(save_output_put(out, &head, body), "put");
	}
	return out;
}

void saved_table_write(const char *path, int level)
{
	const struct save_count counts[RING_MAX_VIEWS] = { { 9, 12, 0, 2003 }, { 6, 9, 7, 1 } };
	struct save_output *out = saved_table_draft(path, level);

	must(save_output_finish(out, counts), "finish");
	save_output_close(&out);
}

int saved_table_read(struct save_input *in,
		     void (*see)(const struct save_chunk *head, const void *body))
{
	struct save_chunk head;
	const void *body;
	uint64_t off;
	int ret;

	while ((ret = save_input_next(in, &head, &off)) == 0) {
		ret = save_input_body(in, &head, off, &body);
		if (ret)
			return ret;
		if (see)
			see(&head, body);
	}
	return ret == -ENODATA ? 0 : ret;
}
