/* The layout of saved tables: see test_layouts.c. */
#include "tests/golden/golden.h"
#include "tests/support/saved_table.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

#include "wire/save_layout.h"

static void put_structs(FILE *out)
{
	STRUCT(save_header);
	FIELD(save_header, magic);
	FIELD(save_header, major);
	FIELD(save_header, minor);
	FIELD(save_header, bytes);
	FIELD(save_header, uuid);
	FIELD(save_header, name);
	FIELD(save_header, capacity);
	FIELD(save_header, shards);
	FIELD(save_header, block);
	FIELD(save_header, max_writers);
	FIELD(save_header, max_clients);
	FIELD(save_header, n_columns);
	FIELD(save_header, n_views);
	FIELD(save_header, window);
	FIELD(save_header, reserved);
	FIELD(save_header, crc);
	STRUCT(save_view);
	FIELD(save_view, stack);
	FIELD(save_view, n_step);
	FIELD(save_view, selector);
	FIELD(save_view, period);
	FIELD(save_view, max_times_sampled);
	FIELD(save_view, max_staleness);
	FIELD(save_view, alpha);
	FIELD(save_view, eps);
	FIELD(save_view, min_size);
	FIELD(save_view, samples_per_insert);
	FIELD(save_view, min_diff);
	FIELD(save_view, max_diff);
	FIELD(save_view, scale);
	STRUCT(save_column);
	FIELD(save_column, name);
	FIELD(save_column, dtype);
	FIELD(save_column, role);
	FIELD(save_column, ndim);
	FIELD(save_column, shape);
	STRUCT(save_chunk);
	FIELD(save_chunk, magic);
	FIELD(save_chunk, kind);
	FIELD(save_chunk, codec);
	FIELD(save_chunk, seq);
	FIELD(save_chunk, shard);
	FIELD(save_chunk, first);
	FIELD(save_chunk, rows);
	FIELD(save_chunk, bytes);
	FIELD(save_chunk, stored);
	FIELD(save_chunk, body_crc);
	FIELD(save_chunk, crc);
	STRUCT(save_row);
	FIELD(save_row, policy_version);
	FIELD(save_row, step);
	FIELD(save_row, stream);
	FIELD(save_row, flags);
	STRUCT(save_count);
	FIELD(save_count, items);
	FIELD(save_count, inserted);
	FIELD(save_count, sampled);
	FIELD(save_count, max_priority);
	STRUCT(save_end);
	FIELD(save_end, chunks);
	FIELD(save_end, sum);
	FIELD(save_end, views);
}

static void put_save(FILE *out)
{
	char dir[TEMP_DIR_BYTES], path[TEMP_DIR_BYTES + 8];
	uint8_t bytes[4096];
	FILE *file;

	put_structs(out);
	temp_dir_make(dir);
	snprintf(path, sizeof(path), "%s/t", dir);
	saved_table_write(path, 0);
	file = fopen(path, "rb");
	assert_non_null(file);
	put_bytes(out, "file", bytes, fread(bytes, 1, sizeof(bytes), file));
	(void)fclose(file);
	temp_dir_remove(dir);
}

TEST(layout__of_saved_tables)
{
	check_golden("save-v1", put_save);
}

int main(void)
{
	return test_run(NULL, NULL);
}
