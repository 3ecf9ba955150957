/*
 * Items by their keys: read and verified as those of a scan (client/sampler/scan.h).
 */
#include "relive/scan.h"

#include "client/sampler/sampler.h"

#include <errno.h>
#include <string.h>

/* Puts those keys in the scratch whose shards are open and whose slots may hold items: *n_out of them. */
static int gather_find(const struct scan_call *call, uint32_t *n_out)
{
	struct rlv_sampler *sp = call->sp;
	struct draw_scratch *s = &sp->scratch;
	uint32_t n = 0;

	for (uint32_t i = 0; i < call->n; i++) {
		uint64_t key = call->keys[i];
		int ret = scan_reach(call, key_shard(key), false);

		if (ret && ret != -ENOENT)
			return ret;
		if (ret || key_slot(key) % sp->h.desc->block < sp->view->window - 1)
			continue;
		s->shard[n] = key_shard(key);
		s->slot[n] = key_slot(key);
		s->word[n] = leaf_make(0, key_gen(key), 1);
		s->at[n++] = i;
	}
	*n_out = n;
	return 0;
}

/* Where no leaf is read after the rows, reads them before, and keeps the items that are there. */
static int gather_look(const struct scan_call *call, uint32_t *n_inout)
{
	struct rlv_sampler *sp = call->sp;
	struct draw_scratch *s = &sp->scratch;
	uint32_t n = 0;
	int ret;

	if (sp->reads_rows && sp->opts.verify != RLV_VERIFY_CRC)
		return 0;
	ret = scan_read_items(sp, sp->view->leaves_off, s->again, *n_inout);
	for (uint32_t i = 0; ret == 0 && i < *n_inout; i++) {
		if (!sampler_items_hold(&s->word[i], &s->again[i], 1))
			continue;
		s->shard[n] = s->shard[i];
		s->slot[n] = s->slot[i];
		s->at[n] = s->at[i];
		s->word[n++] = s->again[i];
	}
	*n_inout = n;
	return ret;
}

static int gather_step(void *ctx)
{
	struct scan_call *call = ctx;
	struct rlv_sampler *sp = call->sp;
	struct batch *batch;
	uint32_t n = 0, left = 0;
	int ret = sampler_check_keys(sp, call->keys, call->n);

	if (ret == 0 && !call->batch)
		ret = batch_get(sp, 0, &call->batch);
	if (ret == 0)
		ret = gather_find(call, &n);
	if (ret == 0)
		ret = gather_look(call, &n);
	if (ret)
		return ret;
	batch = call->batch;
	memset(batch->key, 0, call->n * sizeof(*batch->key));
	memset(batch->word, 0, call->n * sizeof(*batch->word));
	if (n)
		ret = scan_gather(call, n, &left);
	if (ret)
		return ret;
	for (uint32_t i = 0; i < call->n; i++)
		for (uint32_t o = 0; !batch->key[i] && o < batch->n_outputs; o++)
			memset(batch->outputs[o].out + i * batch->outputs[o].item_bytes, 0,
			       batch->outputs[o].item_bytes);
	call->found = call->n;
	return scan_finish(call, call->n);
}

int rlv_sampler_gather(struct rlv_sampler *sampler, const uint64_t *keys, uint32_t n,
		       int64_t timeout_ns, const struct rlv_batch **batch_out)
{
	struct scan_call call = { .sp = sampler, .verb = "gather", .n = n, .keys = keys };
	int ret = scan_check(sampler, n, batch_out);

	if (ret == 0 && !keys)
		ret = error_set(-EINVAL, "keys is NULL");
	if (ret == 0)
		ret = scan_run(&call, gather_step, timeout_ns);
	if (ret == 0)
		*batch_out = &call.batch->pub;
	return ret;
}
