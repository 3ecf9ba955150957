/* rlv_table_save: block by block, the oldest of every shard first. */
#include "client/save/save.h"

#include "client/save/describe.h"
#include "client/save/zstd.h"
#include "client/store/abi.h"

#include "ds/limiter/limiter.h"
#include "ds/replay/priority.h"

#include "base/bits.h"
#include "base/mem/alloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int save_step(struct save_steps *steps, uint64_t done, uint64_t total)
{
	if (!steps->call || (done < steps->next && done < total))
		return 0;
	steps->next = done + total / 256 + 1;
	return steps->call(steps->ctx, done, total)
		       ? error_set(-EINTR, "opts.progress ended the call")
		       : 0;
}

/* -------- open -------- */

static void saver_leave(struct handle *h, uint32_t shard)
{
	(void)h, (void)shard; /* a reader keeps nothing of it */
}

static int saver_moved(struct handle *h)
{
	(void)h;
	return 0;
}

static const struct handle_user saver_user = { .leave = saver_leave, .moved = saver_moved };

static int saver_open(struct saver *s, const char *path, const struct rlv_save_opts *opts)
{
	const struct table_desc *desc = s->h.desc;
	size_t words = (size_t)desc->n_views * desc->block, bytes;
	int ret = save_describe(desc, &s->table);

	if (ret)
		return ret;
	bytes = max_u64(max_u64(SAVE_CHUNK_BYTES, s->table.row_bytes),
			desc->block * s->table.leaf_bytes);
	s->leaves = mem_array(words, sizeof(*s->leaves));
	s->samples = mem_array(words, sizeof(*s->samples));
	s->body = mem_alloc(bytes);
	if (!s->leaves || !s->samples || !s->body)
		return error_set(-ENOMEM, "save: cannot allocate %zu bytes", bytes);
	if (opts->base)
		ret = save_base_open(opts->base, desc->uuid, &s->base);
	return ret ? ret : save_output_open(path, &s->table, (int)opts->compress, &s->out);
}

static void saver_close(struct saver *s)
{
	save_output_close(&s->out);
	save_base_close(&s->base);
	mem_free(s->leaves);
	mem_free(s->samples);
	mem_free(s->body);
}

/* -------- blocks -------- */

struct place {
	struct save_block block;
	uint64_t rank; /* place in its shard, as a share of all blocks there */
};

static int place_order(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return x->block.shard < y->block.shard ? -1 : x->block.shard > y->block.shard;
}

/* Adds the blocks of a shard that were ever claimed, in the order of their tickets. */
static int places_of_shard(const struct shard *shard, struct place *places, uint32_t *n_out)
{
	uint32_t blocks = shard->desc.blocks, n = 0;
	uint64_t *headers = mem_array(blocks, sizeof(*headers));
	int ret = headers ? shard_read_headers(shard, headers)
			  : error_set(-ENOMEM, "save: cannot allocate memory");

	for (uint32_t b = 0; ret == 0 && b < blocks; b++)
		if (headers[b]) {
			places[n].block =
				(struct save_block){ block_seq(headers[b]), shard->desc.shard, b };
			places[n].rank = block_seq(headers[b]);
			n++;
		}
	mem_free(headers);
	if (ret)
		return ret;
	if (n)
		qsort(places, n, sizeof(*places), place_order);
	for (uint32_t i = 0; i < n; i++)
		places[i].rank = ((uint64_t)i << 32) / n;
	*n_out = n;
	return 0;
}

/* Lists the blocks of all shards: *places_out, which the caller frees. -EHOSTDOWN: one is down, and may come
   back; one that is lost has no items any more. */
static int places_list(struct saver *s, struct place **places_out, size_t *n_out)
{
	struct part_set *set = &s->h.set;
	struct place *places = mem_array((size_t)set->n_parts * s->h.desc->blocks, sizeof(*places));
	int ret = places ? 0 : error_set(-ENOMEM, "save: cannot allocate memory");
	size_t n = 0;

	for (uint32_t p = 0; ret == 0 && p < set->n_parts; p++) {
		uint32_t more = 0;

		if (set->parts[p])
			ret = places_of_shard(handle_shard(&s->h, p), places + n, &more);
		else if (set->statuses[p].state == RLV_SHARD_DOWN)
			ret = error_set(-EHOSTDOWN, "save: shard %u cannot be reached", p);
		n += more;
	}
	if (ret) {
		mem_free(places);
		return ret;
	}
	if (n)
		qsort(places, n, sizeof(*places), place_order);
	*places_out = places;
	*n_out = n;
	return 0;
}

static int saver_collect(struct saver *s, struct save_steps *steps)
{
	struct place *places;
	size_t n;
	int ret = places_list(s, &places, &n);

	if (ret)
		return ret;
	for (size_t i = 0; ret == 0 && i < n; i++) {
		ret = handle_begin(&s->h, s->h.table->store->timeout_ns);
		if (ret == 0)
			ret = save_collect(s, &places[i].block);
		if (ret == 0)
			ret = save_step(steps, i + 1, n);
	}
	mem_free(places);
	return ret;
}

/* -------- counts -------- */

/*
 * Counts and items are read one after the other. Those of a queue have to agree, or it would wait for items
 * that are not there: each insert that is not in the file was sampled.
 */
static int saver_count(struct saver *s)
{
	struct part_set *set = &s->h.set;

	if (!part_set_has_control(set))
		return error_set(-EHOSTDOWN, "save: the limiter's shard cannot be reached");
	for (uint32_t v = 0; v < s->h.desc->n_views; v++) {
		const struct view_desc *view = &s->h.desc->views[v];
		struct save_count *count = &s->counts[v];
		struct limiter_words words;
		struct limiter lim;
		uint64_t quanta;
		int ret;

		limiter_init(&lim, handle_shard(&s->h, set->control), v, 0);
		ret = limiter_read(&lim, &words);
		for (uint32_t p = 0; ret == 0 && p < set->n_parts; p++) {
			if (!set->parts[p])
				continue;
			ret = priority_max_read(handle_shard(&s->h, p), v, &quanta);
			if (ret == 0)
				count->max_priority = max_u64(count->max_priority, quanta);
		}
		if (ret)
			return ret;
		count->inserted = max_u64(words.ins_committed, count->items);
		count->sampled = words.smp_committed;
		if (view->max_times_sampled == 1 && lim.bounded_insert)
			count->sampled = (count->inserted - count->items) * view->limit.spi >>
					 LIMIT_SPI_BITS;
	}
	return 0;
}

/* -------- the API -------- */

static int table_save(struct saver *s, const char *path, const struct rlv_save_opts *opts)
{
	struct save_steps steps = { .call = opts->progress, .ctx = opts->ctx };
	int ret = handle_begin(&s->h, s->h.table->store->timeout_ns);

	if (ret == 0)
		ret = saver_open(s, path, opts);
	if (ret == 0)
		ret = saver_collect(s, &steps);
	if (ret == 0)
		ret = saver_count(s);
	return ret ? ret : save_output_finish(s->out, s->counts);
}

int rlv_table_save(struct rlv_table *table, const char *path, const struct rlv_save_opts *opts,
		   struct rlv_save_info *info_out)
{
	const struct handle_opts how = { .reader = true, .user = &saver_user };
	struct rlv_save_opts full = RLV_SAVE_OPTS_INIT;
	struct rlv_save_info info = { 0 };
	struct saver *s;
	int ret;

	if (!table || !path || !path[0])
		return error_set(-EINVAL, "table is NULL, or path is NULL or empty");
	ret = opts ? abi_read(&full, sizeof(full), opts, "opts.") : 0;
	if (ret == 0 && info_out)
		ret = abi_check(info_out, "info_out->");
	if (ret)
		return ret;
	if (full.compress > ZSTD_LEVEL_MAX)
		return error_set(-EINVAL, "opts.compress %u: a level of zstd is 1 to %d, 0 is none",
				 full.compress, ZSTD_LEVEL_MAX);
	s = mem_zalloc(sizeof(*s));
	if (!s)
		return error_set(-ENOMEM, "save: cannot allocate memory");
	ret = handle_open(&s->h, table, &how);
	if (ret == 0) {
		ret = table_save(s, path, &full);
		if (ret == 0)
			save_tell(&s->table, s->counts, &info);
		info.rows = s->rows;
		info.reused_bytes = s->reused;
		info.bytes = s->out ? save_output_bytes(s->out) : 0;
		saver_close(s);
		ret = handle_close(&s->h, ret);
	}
	mem_free(s);
	if (ret == 0 && info_out)
		abi_write(info_out, &info, sizeof(info));
	return ret;
}
