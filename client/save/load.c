/*
 * rlv_table_load: the whole file is checked, then the table is made, then its runs are put there; then the
 * table is committed, and all see it.
 */
#include "client/save/describe.h"
#include "client/save/restore.h"
#include "client/save/save.h"
#include "client/store/abi.h"

#include "base/log.h"
#include "base/mem/alloc.h"
#include "base/os/random.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* -------- runs -------- */

struct loader {
	struct save_input *in;
	const struct save_table *saved;
	const struct table_desc *desc; /* of the table; NULL: the file is only checked */
	struct restore restore;
	struct save_chunk run; /* of the run in progress: rows 0 = none */
	uint8_t *rows;         /* its rows so far, as they lie in the table */
	size_t room;           /* rows */
	uint64_t n_rows;
	struct save_steps steps;
};

/* Takes the head of a chunk into the run; *ends_out: it was the last. -EBADMSG: it does not belong there. */
static int run_take(struct loader *l, const struct save_chunk *head, bool *ends_out)
{
	struct save_chunk *run = &l->run;
	bool same = run->rows && head->seq == run->seq && head->shard == run->shard;

	*ends_out = head->kind == SAVE_LEAVES;
	if (head->kind == SAVE_ROWS && run->rows == 0)
		*run = *head;
	else if (head->kind == SAVE_ROWS && same && head->first == run->first + run->rows)
		run->rows += head->rows;
	else if (head->kind == SAVE_ROWS || !same || head->first != run->first ||
		 head->rows != run->rows)
		return error_set(-EBADMSG, "load: the chunks of block %llu do not belong together",
				 (unsigned long long)head->seq);
	return 0;
}

/* Puts columns together to rows, behind those that the run has. */
static int run_rows(struct loader *l, const struct save_chunk *head, const uint8_t *body)
{
	const struct table_desc *desc = l->desc;
	uint32_t n = head->rows, before = l->run.rows - n;
	uint8_t *rows;

	if (l->run.rows > l->room) {
		if (!mem_grow(&l->rows, l->room, l->run.rows, desc->row_bytes))
			return error_set(-ENOMEM, "load: cannot allocate memory for %u rows",
					 l->run.rows);
		l->room = l->run.rows;
	}
	rows = l->rows + (size_t)before * desc->row_bytes;
	for (uint32_t i = 0; i < n; i++, body += sizeof(struct save_row)) {
		struct save_row row;
		struct row_tail tail;

		memcpy(&row, body, sizeof(row));
		tail = (struct row_tail){ .policy_version = row.policy_version,
					  .step = row.step,
					  .stream = row.stream,
					  .flags = row.flags };
		memcpy(rows + (size_t)i * desc->row_bytes + desc->tail_off, &tail, sizeof(tail));
	}
	for (uint32_t c = 0; c < desc->n_columns; c++) {
		uint32_t bytes = desc->columns[c].bytes;
		uint8_t *to = rows + desc->columns[c].offset;

		for (uint32_t i = 0; i < n; i++, body += bytes, to += desc->row_bytes)
			memcpy(to, body, bytes);
	}
	return 0;
}

static int run_end(struct loader *l, const struct save_chunk *head, const uint8_t *body)
{
	struct restore_run run = {
		.n = head->rows,
		.rows = l->rows,
		.quanta = body,
		.samples = body + (size_t)l->saved->head.n_views * head->rows * sizeof(uint64_t),
	};

	return restore_put(&l->restore, &run);
}

static int load_chunk(struct loader *l, const struct save_chunk *head, uint64_t off)
{
	const void *body;
	bool ends;
	int ret = run_take(l, head, &ends);

	if (ret == 0 && !l->desc)
		ret = save_input_stored(l->in, head, off, &body);
	else if (ret == 0)
		ret = save_input_body(l->in, head, off, &body);
	if (ret == 0 && l->desc)
		ret = ends ? run_end(l, head, body) : run_rows(l, head, body);
	if (ends) {
		l->n_rows += l->run.rows;
		l->run.rows = 0;
	}
	return ret;
}

/* Goes through all chunks, for the first time or the second. */
static int load_pass(struct loader *l)
{
	uint32_t pass = l->desc != NULL;
	struct save_chunk head;
	uint64_t off, done, size;
	int ret;

	save_input_rewind(l->in);
	l->n_rows = 0;
	while ((ret = save_input_next(l->in, &head, &off)) == 0) {
		ret = load_chunk(l, &head, off);
		size = save_input_bytes(l->in, &done);
		if (ret == 0)
			ret = save_step(&l->steps, pass * size + done, 2 * size);
		if (ret)
			return ret;
	}
	if (ret != -ENODATA)
		return ret;
	return l->run.rows ? error_set(-EBADMSG, "load: the last block has no leaves") : 0;
}

/* -------- the table -------- */

/* A uuid for the new table that only this load knows: all others find none, or the one before, until it is
   committed. */
static int load_name(const char *name, struct meta_object *object)
{
	int ret = table_name_check(name);

	if (ret)
		return ret;
	*object = (struct meta_object){ .kind = OBJECT_TABLE };
	(void)snprintf(object->name, sizeof(object->name), "%s", name);
	return random_fill(object->uuid, sizeof(object->uuid));
}

/*
 * After an error, code, nothing of the table stays, whose handle is *table, or NULL: it could not be opened.
 * Returns code, or 0: it was committed, and the answer was lost; so it is loaded.
 */
static int load_undo(struct rlv_store *store, const struct meta_object *object,
		     struct rlv_table **table, int code)
{
	struct error_kept kept;
	int ret, closed;

	error_keep(&kept);
	ret = store->meta->ops->abandon(store->meta, object);
	if (ret == -EALREADY)
		return 0;
	closed = rlv_table_close(table);
	ret = ret == 0 || ret == -ENOENT || ret == -ESTALE ? closed : ret;
	if (ret)
		log_warn("load: table %s keeps its memory until this store is closed: %s",
			 object->name, error_last());
	error_restore(&kept);
	return code;
}

/* -EEXIST of making the table, in this function's own words. */
static int load_exists(const struct rlv_load_opts *opts, const char *name)
{
	if (!opts->replace)
		return error_set(-EEXIST, "load: there is a table %s: give another opts.name",
				 name);
	return error_set(-EEXIST,
			 "load: %s cannot be replaced: it is no table, or the server is of an "
			 "earlier version: drop it first, or give another opts.name",
			 name);
}

/* Makes the table, which nobody else sees yet; -EEXIST: it is there, and not to be replaced. */
static int load_make(struct rlv_store *store, const struct save_table *saved,
		     const struct rlv_load_opts *opts, const struct meta_object *object,
		     struct rlv_table **table_out)
{
	struct meta_load load = { .beside = opts->replace };
	const char *name = object->name;
	struct save_wishes *wishes = mem_alloc(sizeof(*wishes));
	int ret;

	if (!wishes)
		return error_set(-ENOMEM, "load: cannot allocate memory");
	memcpy(load.uuid, object->uuid, sizeof(load.uuid));
	save_wish(saved, wishes);
	if (opts->shards)
		wishes->opts.shards = opts->shards;
	ret = table_create_for(store, name, &wishes->opts, &load, table_out);
	if (ret == -EINVAL && wishes->opts.block) { /* too large for as many shards */
		wishes->opts.block = 0;
		ret = table_create_for(store, name, &wishes->opts, &load, table_out);
	}
	mem_free(wishes);
	if (ret == -EEXIST)
		return load_exists(opts, name);
	if (ret && ret != -EBUSY && ret != -EINVAL) /* it may have been made, and not opened */
		(void)load_undo(store, object, table_out, ret);
	return ret;
}

/* From here on all see the table, and no longer the one before. It waits for nodes that are away within the store's timeout. */
static int load_commit(struct rlv_store *store, const struct meta_object *object)
{
	struct store_wait wait = store_wait_begin(store);
	int ret;

	do
		ret = store->meta->ops->commit(store->meta, object);
	while (ret && (ret = store_wait_nodes(&wait, ret)) == 0);
	return ret;
}

/* Puts the file's items into the table. */
static int load_fill(struct loader *l, struct rlv_table *table)
{
	int ret;

	if (table->desc.window_max != l->saved->head.window)
		return error_set(-EPROTO, "load: items of %u rows, this library makes them of %u",
				 l->saved->head.window, table->desc.window_max);
	ret = restore_open(&l->restore, table, l->saved);
	if (ret)
		return ret;
	l->desc = &table->desc;
	ret = load_pass(l);
	if (ret == 0)
		ret = restore_finish(&l->restore, save_input_counts(l->in));
	return restore_close(&l->restore, ret);
}

static int load_tell(struct loader *l, struct rlv_table *table, struct rlv_save_info *info)
{
	struct rlv_table_info *now = mem_zalloc(sizeof(*now));
	uint64_t done;
	int ret;

	if (!now)
		return error_set(-ENOMEM, "load: cannot allocate memory");
	now->size = sizeof(*now);
	ret = rlv_table_info(table, now);
	save_tell(l->saved, save_input_counts(l->in), info);
	info->rows = l->n_rows;
	info->bytes = save_input_bytes(l->in, &done);
	for (uint32_t v = 0; v < info->n_views; v++)
		info->items[v] = now->views[v].items > 0 ? (uint64_t)now->views[v].items : 0;
	mem_free(now);
	return ret;
}

static int table_load(struct rlv_store *store, struct loader *l, const struct rlv_load_opts *opts,
		      struct rlv_save_info *info, struct rlv_table **table_out)
{
	struct rlv_table *table = NULL;
	struct meta_object object;
	int ret = load_pass(l);

	if (ret == 0)
		ret = load_name(opts->name, &object);
	if (ret == 0)
		ret = load_make(store, l->saved, opts, &object, &table);
	if (ret)
		return ret;
	ret = load_fill(l, table);
	if (ret == 0)
		ret = load_tell(l, table, info);
	if (ret == 0)
		ret = load_commit(store, &object);
	if (ret == -ESTALE)
		ret = error_set(ret,
				"load: table %s was dropped meanwhile, by another client or as the "
				"lease of this one ended: load it again",
				opts->name);
	if (ret)
		ret = load_undo(store, &object, &table, ret);
	if (ret == 0)
		*table_out = table;
	return ret;
}

int rlv_table_load(struct rlv_store *store, const char *path, const struct rlv_load_opts *opts,
		   struct rlv_save_info *info_out, struct rlv_table **table_out)
{
	struct rlv_load_opts full = RLV_LOAD_OPTS_INIT;
	struct rlv_save_info info = { 0 };
	struct loader *l;
	int ret;

	if (!store || !path || !table_out)
		return error_set(-EINVAL, "store, path or table_out is NULL");
	ret = opts ? abi_read(&full, sizeof(full), opts, "opts.") : 0;
	if (ret == 0 && info_out)
		ret = abi_check(info_out, "info_out->");
	if (ret)
		return ret;
	if (store->read_only)
		return error_set(-EACCES, "store was opened read-only");
	l = mem_zalloc(sizeof(*l));
	if (!l)
		return error_set(-ENOMEM, "load: cannot allocate memory");
	l->steps = (struct save_steps){ .call = full.progress, .ctx = full.ctx };
	ret = save_input_open(path, &l->in);
	if (ret == 0) {
		l->saved = save_input_table(l->in);
		full.name = full.name ? full.name : l->saved->head.name;
		ret = table_load(store, l, &full, &info, table_out);
		save_input_close(&l->in);
	}
	mem_free(l->rows);
	mem_free(l);
	if (ret == 0 && info_out)
		abi_write(info_out, &info, sizeof(info));
	return ret;
}
