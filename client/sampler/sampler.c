/*
 * Life of a sampler.
 */
#include "client/sampler/sampler.h"

#include "base/mem/chunk.h"
#include "base/os/random.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { DEFAULT_BATCHES = 2, MAX_BATCHES = 64, MAX_BATCH = 65536 };

/* -------- options -------- */

static int sampler_check_return(double gamma, double beta)
{
	if (!(gamma >= 0 && gamma <= 1))
		return error_set(-EINVAL, "opts.gamma %g: want 0 <= gamma <= 1", gamma);
	if (isnan(beta) || beta > 8)
		return error_set(-EINVAL, "opts.beta %g: want at most 8", beta);
	return 0;
}

static int sampler_choose_columns(struct rlv_sampler *sp, const struct table_desc *desc,
				  const struct rlv_sampler_opts *opts)
{
	if (opts->n_columns && !opts->columns)
		return error_set(-EINVAL, "opts.n_columns %u: opts.columns is NULL",
				 opts->n_columns);
	sp->reads_rows = !opts->columns || opts->n_columns;
	for (uint32_t c = 0; c < desc->n_columns; c++)
		sp->columns[c] = !opts->columns;
	for (uint32_t i = 0; opts->columns && i < opts->n_columns; i++) {
		const char *name = opts->columns[i] ? opts->columns[i] : "NULL";
		uint32_t c = 0;

		while (c < desc->n_columns && strcmp(desc->columns[c].name, name) != 0)
			c++;
		if (c == desc->n_columns)
			return error_set(-EINVAL, "opts.columns[%u]: table %s has no column %s", i,
					 desc->name, name);
		sp->columns[c] = true;
	}
	if (!sp->reads_rows && sp->view->max_staleness)
		return error_set(-EINVAL,
				 "opts.columns: view %u has max_staleness, which is "
				 "read from rows: choose at least one column",
				 sp->view_index);
	return 0;
}

static int sampler_check_opts(const struct rlv_table *table, const struct rlv_sampler_opts *opts)
{
	const struct table_desc *desc = &table->desc;
	const struct view_desc *view;
	int ret;

	if (opts->view >= desc->n_views)
		return error_set(-EINVAL, "opts.view %u: table %s has %u", opts->view, desc->name,
				 desc->n_views);
	view = &desc->views[opts->view];
	if (opts->n_step > view->n_step)
		return error_set(-EINVAL, "opts.n_step %u: view %u was made for %u", opts->n_step,
				 opts->view, view->n_step);
	if (opts->verify > RLV_VERIFY_CRC)
		return error_set(-EINVAL, "opts.verify %u: not an rlv_verify", opts->verify);
	if (opts->verify == RLV_VERIFY_CRC && !(desc->flags & TABLE_ROW_CRC))
		return error_set(-EINVAL, "opts.verify: the rows of table %s carry no crc",
				 desc->name);
	ret = sampler_check_return(opts->gamma, opts->beta);
	if (ret)
		return ret;
	if (opts->batch_size > MAX_BATCH)
		return error_set(-EINVAL, "opts.batch_size %u: at most %u", opts->batch_size,
				 MAX_BATCH);
	if (opts->prefetch > MAX_BATCHES)
		return error_set(-EINVAL, "opts.prefetch %u: at most %u", opts->prefetch,
				 MAX_BATCHES);
	if (opts->batches > MAX_BATCHES && opts->batches != RLV_BATCHES_ANY)
		return error_set(-EINVAL, "opts.batches %u: at most %u, or RLV_BATCHES_ANY",
				 opts->batches, MAX_BATCHES);
	if (opts->layout > RLV_WINDOW)
		return error_set(-EINVAL, "opts.layout %u: not an rlv_layout", opts->layout);
	if (opts->weights > RLV_WEIGHTS_RAW)
		return error_set(-EINVAL, "opts.weights %u: not an rlv_weights", opts->weights);
	if (opts->rank >= (opts->world_size ? opts->world_size : 1))
		return error_set(-EINVAL, "opts.rank %u: world_size is %u", opts->rank,
				 opts->world_size);
	if (opts->memory && (!opts->memory->alloc || !opts->memory->free))
		return error_set(-EINVAL, "opts.memory: alloc or free is NULL");
	if (table->store->read_only && view->max_times_sampled)
		return error_set(-EACCES,
				 "sampler: view %u takes items out (max_times_sampled), and the "
				 "store was opened read-only",
				 opts->view);
	/* A reader cannot count its samples. */
	if (table->store->meta->reader &&
	    (view->max_times_sampled || view->limit.min_diff != INT64_MIN ||
	     view->limit.max_diff != INT64_MAX))
		return error_set(
			-EACCES,
			"sampler: view %u counts its samples (max_times_sampled, or a "
			"limiter with bounds): this needs a token of role learn, the token "
			"in use has role read",
			opts->view);
	return 0;
}

static int sampler_fill_defaults(struct rlv_sampler *sp, const struct rlv_sampler_opts *opts)
{
	struct rlv_sampler_opts *full = &sp->opts;
	int ret;

	*full = *opts;
	full->batch_size = opts->batch_size ? opts->batch_size : 256;
	full->batches = opts->batches ? opts->batches : DEFAULT_BATCHES;
	full->n_step = opts->n_step ? opts->n_step : sp->view->n_step;
	full->gamma = opts->gamma == 0 ? 0.99 : opts->gamma;
	full->beta = opts->beta == 0 ? 0.4 : opts->beta;
	sp->beta = full->beta;
	full->memory = NULL; /* the caller's may be gone after open */
	full->columns = NULL;
	sp->hooks = chunk_hooks;
	if (opts->dest)
		sp->hooks =
			(struct alloc_hooks){ landing_alloc_hook, landing_free_hook, opts->dest };
	if (opts->memory)
		sp->hooks = (struct alloc_hooks){ opts->memory->alloc, opts->memory->free,
						  opts->memory->ctx };
	full->world_size = opts->world_size ? opts->world_size : 1;
	if (full->seed)
		return 0;
	ret = random_fill(&full->seed, sizeof(full->seed));
	return ret ? error_prefix(ret, "no seed for the sampler, set opts.seed: ") : 0;
}

/* -------- parts -------- */

static void sampler_plan_return(struct rlv_sampler *sp, uint32_t n_step, double gamma)
{
	uint32_t later = sp->view->n_step - n_step; /* rows that this return needs not */

	sp->plan.future = sp->view->future - later;
	sp->plan.n_step = n_step;
	sp->plan.gamma = gamma;
}

static void sampler_free(struct rlv_sampler *sp)
{
	prefetch_fini(sp);
	async_sample_fini(&sp->now);
	readbacks_fini(sp);
	apart_fini(sp);
	scan_fini(&sp->scan);
	batch_free_all(sp);
	shard_trees_fini(&sp->trees);
	mem_free(sp->changes);
	scratch_fini(&sp->scratch);
	mem_free(sp);
}

/* -------- shards that come and go -------- */

/* Before a shard is closed: drops all prefetched batches, which reference shards, and leaves its
   limiter. */
static void sampler_leave_shard(struct handle *h, uint32_t shard)
{
	struct rlv_sampler *sp = (struct rlv_sampler *)h;

	prefetch_cancel(sp);
	apart_leave(sp, shard);
	admission_leave(&sp->admission, shard);
}

/* Adds this sampler's own changes of priorities also to the cached tops of the trees, from which
   it draws. */
static void sampler_show_changes(struct rlv_sampler *sp)
{
	for (uint32_t t = 0; t < sp->trees.forest.n; t++) {
		uint32_t s = sp->trees.shard[t], v = sp->view_index;
		struct access *acc = handle_access(&sp->h, s);

		if (acc && acc->deltas[v])
			tree_deltas_show(acc->deltas[v], &handle_shard(&sp->h, s)->trees[v],
					 sp->trees.forest.tops, t);
	}
}

static int sampler_shards_moved(struct handle *h)
{
	struct rlv_sampler *sp = (struct rlv_sampler *)h;
	uint32_t n = h->set.n_parts;
	int ret;

	prefetch_cancel(sp);
	if (n > sp->room) {
		if (!mem_grow(&sp->changes, sp->room, n, sizeof(*sp->changes)))
			return error_set(-ENOMEM, "sampler: cannot allocate memory for %u shards",
					 n);
		sp->room = n;
	}
	ret = shard_trees_build(&sp->trees, &h->set);
	if (ret == 0)
		ret = apart_follow(sp);
	if (ret == 0)
		ret = prefetch_prepare(sp);
	if (ret == 0)
		sampler_show_changes(sp);
	return ret ? ret : admission_follow(&sp->admission, h);
}

static const struct handle_user sampler_user = { .leave = sampler_leave_shard,
						 .moved = sampler_shards_moved };

static_assert(offsetof(struct rlv_sampler, h) == 0, "a sampler's handle is the sampler");

/* -------- the API -------- */

/* True if rows come over TCP, whose checksums are weak, and have checksums of their own. */
static bool sampler_needs_crc(const struct rlv_sampler *sp)
{
	bool needs = false;

	for (uint32_t s = 0; sp->h.desc->flags & TABLE_ROW_CRC && s < sp->h.set.n_parts; s++) {
		const struct shard *shard = handle_shard(&sp->h, s);

		needs |= shard && shard->tree->tr->caps & TRANSPORT_AGENT_ATOMIC;
	}
	return needs;
}

/* Opens all of the sampler but its handle, which is open already. After an error the caller
   frees it. */
static int sampler_open_parts(struct rlv_sampler *sp)
{
	const struct table_desc *desc = sp->h.desc;
	bool any = sp->opts.batches == RLV_BATCHES_ANY;
	uint32_t n = any ? 0 : sp->opts.batches + sp->opts.prefetch;
	int ret;

	if (sampler_needs_crc(sp))
		sp->opts.verify = RLV_VERIFY_CRC;
	sp->ordered = sp->view->selector == RLV_FIFO || sp->view->selector == RLV_LIFO;
	rng_seed(&sp->rng, sp->opts.seed, sp->opts.rank);
	sp->trees.view = sp->view_index;
	admission_init(&sp->admission, &sp->h, sp->view_index);
	sp->plan = (struct window_plan){
		.row_bytes = desc->row_bytes,
		.tail_off = desc->tail_off,
		.stack = sp->view->stack,
	};
	for (uint32_t c = 0; c < desc->n_columns; c++)
		sp->plan.has_obs |= desc->columns[c].role == RLV_OBS;
	sampler_plan_return(sp, sp->opts.n_step, sp->opts.gamma);
	sp->head.recip = UINT64_MAX / desc->block + 1;
	sp->head.limit = (sp->view->window - 1) * sp->head.recip; /* a block has more rows */
	ret = apart_choose(sp);
	if (ret == 0)
		ret = sampler_shards_moved(&sp->h);
	if (ret == 0)
		ret = scratch_init(&sp->scratch, sp->opts.batch_size);
	if (ret == 0)
		ret = async_sample_init(&sp->now);
	while (ret == 0 && sp->n_batches < n)
		ret = batch_add(sp);
	if (ret == 0 && sp->opts.dest)
		ret = readbacks_init(sp);
	return ret;
}

int rlv_sampler_open(struct rlv_table *table, const struct rlv_sampler_opts *opts,
		     struct rlv_sampler **sampler_out)
{
	struct rlv_sampler_opts full = RLV_SAMPLER_OPTS_INIT;
	struct handle_opts how = { .user = &sampler_user };
	struct rlv_sampler *sp;
	int ret;

	if (!table || !sampler_out)
		return error_set(-EINVAL, "table or sampler_out is NULL");
	ret = opts ? abi_read(&full, sizeof(full), opts, "opts.") : 0;
	if (ret == 0)
		ret = sampler_check_opts(table, &full);
	if (ret)
		return ret;
	sp = mem_zalloc(sizeof(*sp));
	if (!sp)
		return error_set(-ENOMEM, "sampler: cannot allocate memory");
	sp->view_index = full.view;
	sp->view = &table->desc.views[full.view];
	ret = sampler_fill_defaults(sp, &full);
	if (ret == 0)
		ret = sampler_choose_columns(sp, &table->desc, &full);
	if (ret)
		goto err_free;
	how.reader = table->store->meta->reader;
	how.view_mask = 1u << full.view;
	ret = handle_open(&sp->h, table, &how);
	if (ret)
		goto err_free;
	ret = sampler_open_parts(sp);
	if (ret)
		goto err_close_handle;
	*sampler_out = sp;
	return 0;

err_close_handle:
	apart_end(sp);
	ret = handle_close(&sp->h, ret);
err_free:
	sampler_free(sp);
	return ret;
}

int rlv_sampler_set_opts(struct rlv_sampler *sampler, const struct rlv_sample_opts *opts)
{
	struct rlv_sample_opts full = RLV_SAMPLE_OPTS_INIT;
	uint32_t n_step;
	double gamma;
	int ret;

	if (!sampler)
		return error_set(-EINVAL, "sampler is NULL");
	ret = opts ? abi_read(&full, sizeof(full), opts, "opts.") : 0;
	if (ret)
		return ret;
	if (full.n_step > sampler->opts.n_step)
		return error_set(-EINVAL, "opts.n_step %u: the sampler was opened for %u",
				 full.n_step, sampler->opts.n_step);
	ret = sampler_check_return(full.gamma, full.beta);
	if (ret)
		return ret;
	n_step = full.n_step ? full.n_step : sampler->opts.n_step;
	gamma = full.gamma == 0 ? sampler->opts.gamma : full.gamma;
	sampler->beta = full.beta == 0 ? sampler->opts.beta : full.beta;
	if (n_step == sampler->plan.n_step && gamma == sampler->plan.gamma)
		return 0;
	prefetch_cancel(sampler); /* its rows may be gathered already */
	sampler_plan_return(sampler, n_step, gamma);
	return 0;
}

int rlv_sampler_flush(struct rlv_sampler *sampler)
{
	int ret;

	if (!sampler)
		return error_set(-EINVAL, "sampler is NULL");
	ret = readbacks_apply(sampler, true);
	if (ret && ret != -EHOSTDOWN)
		return ret;
	ret = handle_begin(&sampler->h, 0);
	if (ret == -EHOSTDOWN) /* updates are lost with their shards */
		return 0;
	if (ret == 0)
		ret = admission_flush(&sampler->admission);
	return ret ? ret : handle_flush(&sampler->h);
}

int rlv_sampler_close(struct rlv_sampler **sampler)
{
	struct rlv_sampler *sp;
	int ret;

	if (!sampler || !*sampler)
		return 0;
	sp = *sampler;
	*sampler = NULL;
	prefetch_cancel(sp);
	ret = rlv_sampler_flush(sp);
	apart_end(sp);
	ret = handle_close(&sp->h, ret);
	sampler_free(sp);
	return ret;
}

int rlv_sampler_stats(struct rlv_sampler *sampler, struct rlv_stats *stats_out)
{
	struct rlv_stats stats;
	int ret;

	if (!sampler || !stats_out)
		return error_set(-EINVAL, "sampler or stats_out is NULL");
	ret = abi_check(stats_out, "stats_out->");
	if (ret)
		return ret;
	stats = sampler->stats;
	stats.items_lost = shard_trees_items_lost(&sampler->trees, &sampler->h.set);
	handle_stats(&sampler->h, &stats);
	abi_write(stats_out, &stats, sizeof(stats));
	return 0;
}
