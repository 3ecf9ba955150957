#include "cli/table_save.h"

#include "relive/save.h"

#include "program/progress.h"

#include <inttypes.h>

static int show(void *ctx, uint64_t done, uint64_t total)
{
	struct progress *progress = ctx;

	progress_show(progress, total ? (double)done / (double)total : 1, "of the table");
	return 0;
}

static int no_file(const char *verb)
{
	cli_error("table %s: give --file FILE", verb);
	return CLI_USAGE;
}

static int tell(const struct cli_save *save, const char *name, const char *done,
		const struct rlv_save_info *info)
{
	return cli_result(
		save->json,
		(const struct param[]){ { .key = "table", .text = name },
					{ .key = "file", .text = save->file },
					{ .key = "items", .number = info->items[0] },
					{ .key = "rows", .number = info->rows },
					{ .key = "bytes", .number = info->bytes },
					{ .key = "reused_bytes", .number = info->reused_bytes } },
		6, "table %s: %" PRIu64 " items %s %s, %" PRIu64 " bytes\n", name, info->items[0],
		done, save->file, info->bytes);
}

int cli_table_save(struct rlv_store *store, const char *name, const struct cli_save *save)
{
	struct rlv_save_info info = { .size = sizeof(info) };
	struct rlv_save_opts opts = RLV_SAVE_OPTS_INIT;
	struct progress progress;
	struct rlv_table *table;
	int ret;

	if (!save->file)
		return no_file("save");
	ret = rlv_table_open(store, name, &table);
	if (ret)
		return cli_fail(ret, "open table %s", name);
	progress_begin(&progress, save->progress);
	opts.compress = save->compress;
	opts.base = save->base;
	opts.progress = show;
	opts.ctx = &progress;
	ret = rlv_table_save(table, save->file, &opts, &info);
	progress_clear(&progress);
	if (ret)
		cli_fail(ret, "save table %s to %s", name, save->file);
	cli_closed(rlv_table_close(&table), "table");
	return ret ? CLI_FAILURE : tell(save, name, "saved to", &info);
}

int cli_table_load(struct rlv_store *store, const struct cli_save *save)
{
	struct rlv_save_info info = { .size = sizeof(info) };
	struct rlv_load_opts opts = RLV_LOAD_OPTS_INIT;
	struct progress progress;
	struct rlv_table *table;
	int ret;

	if (!save->file)
		return no_file("load");
	progress_begin(&progress, save->progress);
	opts.name = save->name;
	opts.shards = save->shards;
	opts.replace = save->replace;
	opts.progress = show;
	opts.ctx = &progress;
	ret = rlv_table_load(store, save->file, &opts, &info, &table);
	progress_clear(&progress);
	if (ret)
		return cli_fail(ret, "load %s", save->file);
	cli_closed(rlv_table_close(&table), "table");
	return tell(save, save->name ? save->name : info.table, "loaded from", &info);
}
