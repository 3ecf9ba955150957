/*
 * A scan of all items, and what it shares with reading items by their keys. Both end as a round of a sample
 * does: rows are gathered and leaves are verified (client/sampler/round.c).
 */
#include "relive/scan.h"

#include "client/sampler/sampler.h"

#include "base/bits.h"
#include "base/mem/chunk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAVES_AT_ONCE = 8192, HEADERS_AT_ONCE = 4096 };

void scan_fini(struct scan *scan)
{
	mem_free(scan->blocks);
	chunk_drop(&scan->words);
	*scan = (struct scan){ 0 };
}

/* -------- shards that are away -------- */

static uint32_t scan_explain(void *ctx, char *text)
{
	const struct scan_call *call = ctx;

	snprintf(text, WATCH_TEXT_BYTES, "%s of table %s: waits for shards that are down",
		 call->verb, call->sp->h.desc->name);
	return call->sp->view_index;
}

/* Only a batch that a device still uses makes a step wait without an error of its own. */
static int scan_late(void *ctx, int error)
{
	const struct scan_call *call = ctx;

	(void)error;
	return error_set(-ETIMEDOUT, "%s: the device still uses all batches", call->verb);
}

int scan_reach(const struct scan_call *call, uint32_t s, bool partial)
{
	const struct rlv_sampler *sp = call->sp;

	if (sp->h.set.parts[s])
		return 0;
	if (partial || sp->h.set.statuses[s].state != RLV_SHARD_DOWN)
		return -ENOENT;
	return error_set(
		-EHOSTDOWN,
		"%s of table %s: shard %u is down: wait for its node with a longer timeout, "
		"or scan with partial",
		call->verb, sp->h.desc->name, s);
}

/* -------- reading words -------- */

/* Reads n ranges into memory of this process. Cost: 1 phase. */
static int scan_read(struct rlv_sampler *sp, size_t n)
{
	int ret = wait_set_read(&sp->now.reads, sp->now.io, n);
	int waited = wait_set_wait(&sp->now.reads);

	return ret ? ret : waited;
}

int scan_read_items(struct rlv_sampler *sp, uint64_t words_off, uint64_t *out, uint32_t n)
{
	const struct draw_scratch *s = &sp->scratch;
	int ret = async_sample_room(&sp->now, n);

	for (uint32_t i = 0; ret == 0 && i < n; i++)
		sp->now.io[i] = (struct transport_io){
			.region = handle_shard(&sp->h, s->shard[i])->tree,
			.off = words_off + s->slot[i] * 8ull,
			.dst = &out[i],
			.mem = &s->mem,
			.len = 8,
		};
	return ret ? ret : scan_read(sp, n);
}

/* -------- start -------- */

static int scan_compare(const void *left, const void *right)
{
	const struct scan_block *a = left, *b = right;

	if (a->order != b->order)
		return a->order < b->order ? -1 : 1;
	return a->turn < b->turn ? -1 : a->turn > b->turn;
}

/* Reads the headers of the n_open open shards, one shard after the other, to scan->words. */
static int scan_read_headers(struct rlv_sampler *sp, size_t n_open)
{
	struct scan *scan = &sp->scan;
	uint32_t blocks = sp->h.desc->blocks;
	size_t lots = (blocks + HEADERS_AT_ONCE - 1) / HEADERS_AT_ONCE, n = 0;
	uint64_t *headers;
	int ret = async_sample_room(&sp->now, n_open * lots);

	scan->reads = 0;
	if (ret)
		return ret;
	if (!chunk_make_room(&scan->words, n_open * blocks * 8))
		return error_set(-ENOMEM, "scan: cannot allocate memory for %zu blocks",
				 n_open * blocks);
	headers = (uint64_t *)(void *)scan->words.ptr;
	for (uint32_t s = 0; s < sp->h.set.n_parts; s++) {
		const struct shard *shard = handle_shard(&sp->h, s);

		for (uint32_t b = 0; shard && b < blocks; b += HEADERS_AT_ONCE)
			sp->now.io[n++] = (struct transport_io){
				.region = shard->tree,
				.off = shard_header_off(shard, b),
				.dst = headers + b,
				.mem = &scan->words,
				.len = (uint32_t)min_u64(HEADERS_AT_ONCE, blocks - b) * 8,
			};
		headers += shard ? blocks : 0;
	}
	return scan_read(sp, n);
}

/* The newest ticket of a shard's blocks. */
static uint64_t scan_newest(const uint64_t *headers, uint32_t blocks)
{
	uint64_t newest = 0;

	for (uint32_t b = 0; b < blocks; b++)
		newest = max_u64(newest, block_seq(headers[b]));
	return newest;
}

/*
 * What a shard's tickets lack to those of the others, of which `ahead` is the newest. Writers claim blocks of all
 * shards in turn, so that tickets keep pace, and one may be a turn ahead; a shard that joined later has lower ones. An
 * ordered view's table has one shard, or that and the one that takes its place.
 */
static uint64_t scan_lag(const struct rlv_sampler *sp, uint32_t s, uint64_t newest, uint64_t ahead)
{
	if (sp->ordered)
		return (uint64_t)s << BLOCK_SEQ_BITS;
	if (sp->h.set.statuses[s].state == RLV_SHARD_DRAINING || ahead - newest <= 1)
		return 0;
	return ahead - newest;
}

/* Adds the claimed blocks of a shard. */
static void scan_add_blocks(struct rlv_sampler *sp, uint32_t s, const uint64_t *headers,
			    uint64_t ahead)
{
	struct scan *scan = &sp->scan;
	uint32_t blocks = sp->h.desc->blocks, shards = sp->h.set.n_parts;
	uint64_t lag = scan_lag(sp, s, scan_newest(headers, blocks), ahead);

	for (uint32_t b = 0; b < blocks; b++) {
		uint64_t seq = block_seq(headers[b]);
		uint32_t first = block_owner(headers[b]) % shards;

		if (headers[b])
			scan->blocks[scan->n++] =
				(struct scan_block){ .order = seq + lag,
						     .turn = (s + shards - first) % shards,
						     .shard = s,
						     .block = b,
						     .gen = block_gen(seq, blocks) };
	}
}

static int scan_start_step(void *ctx)
{
	struct scan_call *call = ctx;
	struct rlv_sampler *sp = call->sp;
	struct scan *scan = &sp->scan;
	uint32_t blocks = sp->h.desc->blocks;
	const uint64_t *headers;
	uint64_t ahead = 0;
	size_t n_open = 0;
	int ret = 0;

	scan->n = 0;
	for (uint32_t s = 0; ret == 0 && s < sp->h.set.n_parts; s++) {
		ret = scan_reach(call, s, scan->partial);
		n_open += ret == 0;
		ret = ret == -ENOENT ? 0 : ret;
	}
	if (ret == 0)
		ret = scan_read_headers(sp, n_open);
	if (ret)
		return ret;
	if (!mem_make_room(&scan->blocks, &scan->room, n_open * blocks, sizeof(*scan->blocks)))
		return error_set(-ENOMEM, "scan: cannot allocate memory for %zu blocks",
				 n_open * blocks);
	headers = (const uint64_t *)(const void *)scan->words.ptr;
	for (size_t i = 0; i < n_open; i++)
		ahead = max_u64(ahead, scan_newest(headers + i * blocks, blocks));
	for (uint32_t s = 0; s < sp->h.set.n_parts; s++)
		if (sp->h.set.parts[s]) {
			scan_add_blocks(sp, s, headers, ahead);
			headers += blocks;
		}
	qsort(scan->blocks, scan->n, sizeof(*scan->blocks), scan_compare);
	return 0;
}

int rlv_sampler_scan_start(struct rlv_sampler *sampler, bool partial, int64_t timeout_ns)
{
	static const struct handle_call how = { scan_start_step, scan_explain, scan_late };
	struct scan_call call = { .sp = sampler, .verb = "scan" };

	if (!sampler)
		return error_set(-EINVAL, "sampler is NULL");
	sampler->scan.partial = partial;
	sampler->scan.place = (struct scan_place){ .row = sampler->view->window - 1 };
	handle_start(&sampler->h, timeout_ns);
	return handle_run(&sampler->h, &how, &call);
}

/* -------- the next items -------- */

/* Reads the leaves of blocks from number `first` on, as many as fit, up to one whose shard is away. */
static int scan_read_leaves(struct rlv_sampler *sp, size_t first)
{
	struct scan *scan = &sp->scan;
	uint32_t block = sp->h.desc->block;
	size_t most = max_u64(LEAVES_AT_ONCE / block, 1), n = 0;
	int ret = async_sample_room(&sp->now, most);

	scan->reads = 0;
	if (ret)
		return ret;
	if (!chunk_make_room(&scan->words, most * block * 8))
		return error_set(-ENOMEM, "scan: cannot allocate memory for %zu leaves",
				 most * block);
	for (; n < most && first + n < scan->n; n++) {
		const struct scan_block *b = &scan->blocks[first + n];
		const struct shard *shard = handle_shard(&sp->h, b->shard);

		if (!shard)
			break;
		sp->now.io[n] = (struct transport_io){
			.region = shard->tree,
			.off = shard_leaf_off(shard, sp->view_index, b->block * block),
			.dst = scan->words.ptr + n * block * 8,
			.mem = &scan->words,
			.len = block * 8,
		};
	}
	ret = scan_read(sp, n); /* V1 pairs with P1: the leaves, then their rows */
	if (ret == 0) {
		scan->first_read = first;
		scan->reads = n;
	}
	return ret;
}

/* Collects up to call->n items from *place on into the scratch, and moves *place behind them. */
static int scan_collect(const struct scan_call *call, struct scan_place *place, uint32_t *n_out)
{
	struct rlv_sampler *sp = call->sp;
	const struct scan *scan = &sp->scan;
	struct draw_scratch *s = &sp->scratch;
	uint32_t block = sp->h.desc->block, head = sp->view->window - 1, n = 0;

	while (place->block < scan->n && n < call->n) {
		const struct scan_block *b = &scan->blocks[place->block];
		const uint64_t *leaves;
		int ret = scan_reach(call, b->shard, scan->partial);

		if (ret == -ENOENT) {
			*place = (struct scan_place){ place->block + 1, head };
			continue;
		}
		if (ret == 0 && place->block - scan->first_read >= scan->reads)
			ret = scan_read_leaves(sp, place->block);
		if (ret)
			return ret;
		leaves = (const uint64_t *)(const void *)scan->words.ptr +
			 (place->block - scan->first_read) * block;
		for (; place->row < block && n < call->n; place->row++) {
			uint64_t word = leaves[place->row];

			if (leaf_priority(word) == 0 || leaf_gen(word) != b->gen)
				continue;
			s->shard[n] = b->shard;
			s->slot[n] = b->block * block + place->row;
			s->word[n] = word;
			s->at[n] = n;
			n++;
		}
		if (place->row == block)
			*place = (struct scan_place){ place->block + 1, head };
	}
	*n_out = n;
	return 0;
}

int scan_gather(const struct scan_call *call, uint32_t n, uint32_t *left_out)
{
	struct rlv_sampler *sp = call->sp;
	struct draw_scratch *s = &sp->scratch;
	struct batch *batch = call->batch;
	struct round round = { .batch = batch, .n = n, .found = n };
	int ret = sampler_gather_round(sp, &round);
	bool late = clock_now_ns(sp->h.clock) - round.began_ns > sampler_wrap_ns(sp->h.desc);
	uint32_t left = 0;

	for (uint32_t i = 0; ret == 0 && i < n; i++) {
		uint32_t at = s->at[i];

		if (late || !sampler_items_hold(&s->word[i], &s->again[i], 1)) {
			s->at[left++] = at;
			continue;
		}
		batch->key[at] = key_make(sp->h.desc->table_id, s->shard[i], leaf_gen(s->word[i]),
					  s->slot[i]);
		batch->word[at] = s->again[i];
	}
	*left_out = left;
	return ret;
}

/* Reads how often the items of the batch were sampled; key 0: none. */
static int scan_count_samples(struct rlv_sampler *sp, struct batch *batch)
{
	struct draw_scratch *s = &sp->scratch;
	uint32_t n = 0;
	int ret;

	if (!batch->times_sampled)
		return 0;
	for (uint32_t i = 0; i < batch->pub.n; i++) {
		batch->times_sampled[i] = 0;
		if (!batch->key[i])
			continue;
		s->shard[n] = key_shard(batch->key[i]);
		s->slot[n] = key_slot(batch->key[i]);
		s->at[n++] = i;
	}
	ret = scan_read_items(sp, sp->view->counts_off, s->quanta, n);
	for (uint32_t k = 0; ret == 0 && k < n; k++)
		if (s->quanta[k] >> 32 ==
		    key_gen(batch->key[s->at[k]])) /* else it went meanwhile */
			batch->times_sampled[s->at[k]] = (uint32_t)min_u64(
				(uint32_t)s->quanta[k], sp->view->max_times_sampled);
	batch->counted = ret == 0;
	return ret;
}

int scan_finish(const struct scan_call *call, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		call->batch->probability[i] = 1;
	batch_complete(call->sp, call->batch, n);
	return scan_count_samples(call->sp, call->batch);
}

static int scan_step(void *ctx)
{
	struct scan_call *call = ctx;
	struct rlv_sampler *sp = call->sp;
	struct scan *scan = &sp->scan;
	int ret = call->batch ? 0 : batch_get(sp, 0, &call->batch);

	call->found = 0;
	while (ret == 0 && call->found == 0 && scan->place.block < scan->n) {
		struct scan_place place = scan->place;
		uint32_t n = 0, left = 0;

		ret = scan_collect(call, &place, &n);
		if (ret == 0 && n)
			ret = scan_gather(call, n, &left);
		call->found = n - left;
		if (ret == 0 && left)
			batch_close_gaps(sp, call->batch, n, left);
		if (ret == 0 && call->found)
			ret = scan_finish(call, call->found);
		if (ret == 0)
			scan->place = place;
	}
	return ret;
}

int scan_run(struct scan_call *call, int (*step)(void *ctx), int64_t timeout_ns)
{
	const struct handle_call how = { step, scan_explain, scan_late };
	struct rlv_sampler *sp = call->sp;
	int ret;

	handle_start(&sp->h, timeout_ns);
	ret = handle_run(&sp->h, &how, call);
	if (ret == 0 && call->found == 0)
		ret = error_set(-ENODATA,
				"scan: no more items: rlv_sampler_scan_start begins anew");
	if (ret == 0)
		ret = batch_land(sp, call->batch);
	if (ret)
		return ret;
	call->batch->held = true;
	sp->last = call->batch;
	return 0;
}

int scan_check(const struct rlv_sampler *sp, uint32_t n, const void *batch_out)
{
	if (!sp || !batch_out)
		return error_set(-EINVAL, "sampler or batch_out is NULL");
	if (n == 0 || n > sp->opts.batch_size)
		return error_set(-EINVAL, "n %u: want 1..%u (opts.batch_size)", n,
				 sp->opts.batch_size);
	return 0;
}

int rlv_sampler_scan(struct rlv_sampler *sampler, uint32_t n, int64_t timeout_ns,
		     const struct rlv_batch **batch_out)
{
	struct scan_call call = { .sp = sampler, .verb = "scan", .n = n };
	int ret = scan_check(sampler, n, batch_out);

	if (ret == 0)
		ret = scan_run(&call, scan_step, timeout_ns);
	if (ret == 0)
		*batch_out = &call.batch->pub;
	return ret;
}

const uint32_t *rlv_batch_times_sampled(const struct rlv_batch *batch)
{
	const struct batch *whole = (const struct batch *)(const void *)batch;

	return whole && whole->counted ? whole->times_sampled : NULL;
}
