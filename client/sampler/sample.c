/*
 * The learner's path.
 *
 *   admit     the limiter lets n items go, or the deadline passes
 *   draw      n leaves from the sum of all shards (ds/sumtree/sumtree.h): client/sampler/round.c, or ahead of the
 *             call: client/sampler/prefetch.c
 *   gather    the rows of their windows into the batch's columns (ds/window/window.h), if it has any
 *   verify    the leaves again: same generation, still an item; what fails is drawn anew (rule 5)
 *   take      views that count their samples: what others took first is drawn anew
 *   weigh     keys, priorities, importance weights
 */
#include "client/sampler/sampler.h"

#include "ds/replay/priority.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* -------- validity of a drawn item -------- */

static bool sampler_is_stale(struct rlv_sampler *sp, uint32_t version)
{
	if (version > sp->newest_version)
		sp->newest_version = version;
	return sp->view->max_staleness && sp->newest_version - version > sp->view->max_staleness;
}

/* Without a branch, so compilers make vectors of it. */
bool sampler_items_hold(const uint64_t *word, const uint64_t *again, uint32_t n)
{
	const uint64_t gens = leaf_make(0, LEAF_GEN_MASK, 0), one = leaf_make(0, 1, 0);
	uint64_t differ = 0, none = 0; /* sign bit set: a generation or priority was 0 */

	for (uint32_t i = 0; i < n; i++) {
		differ |= (word[i] ^ again[i]) & gens;
		none |= (leaf_priority(again[i]) - 1) | ((again[i] & gens) - one);
	}
	return differ == 0 && (int64_t)none >= 0;
}

/* The usual case: if all n items hold, moves item i to position i of the batch. False: one does
   not hold or is too old. */
static bool sampler_keep_all(struct rlv_sampler *sp, struct batch *batch, uint32_t n)
{
	const struct draw_scratch *s = &sp->scratch;
	const uint32_t *shard = s->shard, *slot = s->slot, table_id = sp->h.desc->table_id;
	const uint64_t *word = s->word;
	uint64_t *restrict key = batch->key;
	bool old = false;

	if (!sampler_items_hold(s->word, s->again, n)) /* versions of torn rows say nothing */
		return false;
	for (uint32_t i = 0; batch->policy_version && i < n; i++)
		old |= sampler_is_stale(sp, batch->policy_version[i]);
	if (old)
		return false;
	for (uint32_t i = 0; i < n; i++)
		key[i] = key_make(table_id, shard[i], leaf_gen(word[i]), slot[i]);
	memcpy(batch->word, s->again, n * sizeof(*batch->word));
	memcpy(batch->probability, s->probability, n * sizeof(*batch->probability));
	return true;
}

/* -------- one round -------- */

uint64_t sampler_wrap_ns(const struct table_desc *desc)
{
	const uint64_t fastest_row_ns = 10; /* of a shard: no writers are faster */

	return (uint64_t)desc->slots * LEAF_GEN_MASK * fastest_row_ns;
}

/* State of a call, kept when a node is lost and the step repeats. */
struct sample_call {
	struct rlv_sampler *sp;
	struct batch *batch; /* NULL before the first step */
	uint32_t n;
	uint32_t left; /* positions to fill: in scratch.at */
	bool admitted; /* by the limiter: n, and none of them is counted yet */
	bool begun;    /* the batch is */
	bool first;    /* no round has been made */
};

/* Verifies the items of a round, after a consuming view has taken them: those that hold go to
   the batch, the positions of the others stay in scratch.at, to be drawn again. */
static int sampler_keep_round(struct sample_call *call, const struct round *round)
{
	struct rlv_sampler *sp = call->sp;
	struct batch *batch = call->batch;
	struct draw_scratch *s = &sp->scratch;
	/* After a long sleep a generation may have come round: nothing of it is kept. */
	bool late = clock_now_ns(sp->h.clock) - round->began_ns > sampler_wrap_ns(sp->h.desc);
	bool takes = sp->view->max_times_sampled;
	uint32_t failed = late ? round->found : 0;
	bool judged; /* all of them at once */
	int ret = !late && takes ? sampler_consume_found(sp, round->found) : 0;

	if (ret)
		return ret;
	judged = late || (call->first && sampler_keep_all(sp, batch, round->found));
	/* Packs the positions of items that do not hold to the front. */
	for (uint32_t i = 0; !judged && i < round->found; i++) {
		uint32_t at = s->at[i];
		bool whole = sampler_items_hold(&s->word[i], &s->again[i], 1);
		bool old = whole && batch->policy_version &&
			   sampler_is_stale(sp, batch->policy_version[at]);

		if (!whole || old) {
			sp->expired += old && takes;
			s->at[failed++] = at;
			continue;
		}
		batch->key[at] = key_make(sp->h.desc->table_id, s->shard[i], leaf_gen(s->word[i]),
					  s->slot[i]);
		batch->word[at] = s->again[i];
		batch->probability[at] = s->probability[i];
	}
	sp->stats.redraws += failed;
	memmove(s->at + failed, s->at + round->found, (call->left - round->found) * sizeof(*s->at));
	call->left -= round->found - failed;
	call->first = false;
	return 0;
}

/* -------- a short batch -------- */

void batch_close_gaps(struct rlv_sampler *sp, struct batch *batch, uint32_t n, uint32_t left)
{
	uint32_t to = 0;

	for (uint32_t i = 0; i < left; i++)
		batch->word[sp->scratch.at[i]] = 0; /* no item's leaf is */
	for (uint32_t from = 0; from < n; from++) {
		if (!batch->word[from])
			continue;
		for (uint32_t i = 0; to < from && i < batch->n_outputs; i++) {
			const struct window_output *o = &batch->outputs[i];

			memcpy(o->out + to * o->item_bytes, o->out + from * o->item_bytes,
			       o->item_bytes);
		}
		batch->key[to] = batch->key[from];
		batch->word[to] = batch->word[from];
		batch->probability[to++] = batch->probability[from];
	}
}

/* -------- the call -------- */

void batch_complete(struct rlv_sampler *sp, struct batch *batch, uint32_t n)
{
	bool by_max = sp->opts.weights == RLV_WEIGHTS_BATCH;
	int64_t size = shard_trees_items(&sp->trees);
	double items = by_max ? 0 : (double)(size > 0 ? size : 1);
	double beta = sp->beta > 0 ? sp->beta : 0;

	priority_to_value(sp->view, batch->word, n, batch->priority);
	if (sampler_weighs_apart(sp))
		batch->weights = (struct landing_weights){
			.weights = batch->weight,
			.probability = batch->probability,
			.n = n,
			.factor = priority_weights_factor(batch->probability, n, items),
			.power = -beta,
		};
	else
		priority_weights(batch->probability, n, items, beta, batch->weight);
	for (uint32_t a = 0; a < batch->pub.n_arrays; a++)
		batch->arrays[a].shape[0] = n;
	batch->pub.n = n;
	batch->pub.table_size = size;
	batch->counted = false;
}

/*
 * Counts the delivered items: after an error, none. Items that were taken and then found too old to
 * hand over count as sampled, or a queue would keep their room for ever. Where others hold all
 * admissions now, the balance repairs it (ds/limiter/balance.h).
 */
static int sampler_commit(struct sample_call *call, int error)
{
	struct admission *admission = &call->sp->admission;
	uint32_t got = error ? 0 : call->n - call->left;
	uint64_t expired = call->sp->expired;
	int ret = admission_commit_sample(admission, call->n, got);

	call->admitted = false;
	if (ret == 0 && expired) {
		call->sp->expired = 0;
		ret = admission_try_sample(admission, expired);
		if (ret == 0)
			ret = admission_commit_sample(admission, expired, expired);
		else if (ret == -EAGAIN || ret == -ENODATA)
			ret = 0;
	}
	return error ? error : ret;
}

/* All positions are to be filled: at the call's begin, or anew if shards came or went whose rows the device
   may not get, since a batch lands one way or the other. */
static int sampler_begin_batch(struct sample_call *call)
{
	struct rlv_sampler *sp = call->sp;
	int ret = call->batch->prefetched ? 0 : apart_begin(sp, call->batch);

	call->first = true;
	call->left = call->n;
	call->begun = ret == 0;
	for (uint32_t i = 0; i < call->n; i++)
		sp->scratch.at[i] = i;
	return ret;
}

/*
 * Admits n items, draws until all positions are filled, at most 16 rounds (FIFO and LIFO views that
 * do not consume: 1; after a round that brought items a consuming view counts anew), weighs,
 * commits. -EAGAIN: fewer than n, and a short batch is not wanted, or all drawn items were
 * overwritten. -ENODATA: none at all. What a consuming view has taken is handed over in any case:
 * nobody else can have it any more.
 */
static int sampler_step(void *ctx)
{
	struct sample_call *call = ctx;
	struct rlv_sampler *sp = call->sp;
	bool takes = sp->view->max_times_sampled;
	/* FIFO and LIFO: a second round finds the same items, unless they were consumed. */
	uint32_t rounds = sp->ordered && !takes ? 1 : 16;
	int ret = call->batch ? 0 : batch_get(sp, call->n, &call->batch);

	if (ret == 0 && !call->admitted) {
		ret = admission_try_sample(&sp->admission, call->n);
		call->admitted = ret == 0;
		call->begun = false;
	}
	if (ret == 0 && (!call->begun || (call->batch->is_apart && !sp->apart.ready)))
		ret = sampler_begin_batch(call);
	if (ret)
		return ret;
	for (uint32_t round = 0; ret == 0 && call->left > 0 && round < rounds; round++) {
		uint32_t before = call->left;
		struct round drawn = { .batch = call->batch,
				       .n = call->left,
				       .stratified = call->first && !sp->opts.independent };

		/* The first round may be a prefetched one. */
		ret = call->first && prefetch_hand_over(sp, &drawn) ? 0 : sampler_round(sp, &drawn);
		if (ret == 0)
			ret = sampler_keep_round(call, &drawn);
		if (takes && call->left < before)
			round = 0; /* others take, too, but there is more to be had */
	}
	if (ret && (ret != -ENODATA && ret != -EAGAIN))
		return ret; /* still admitted: the rest may be drawn from other shards */
	if (ret == -ENODATA && call->left < call->n)
		ret = 0;
	if (ret == 0 && call->left == call->n)
		ret = error_set(-EAGAIN, "sample: every item drawn was overwritten");
	else if (ret == 0 && call->left > 0 && !sp->opts.short_batch && !takes)
		ret = error_set(-EAGAIN,
				"sample: only %u of %u items are available; set opts.short_batch "
				"to accept fewer",
				call->n - call->left, call->n);
	if (ret)
		return sampler_commit(call, ret);
	if (call->left > 0)
		batch_close_gaps(sp, call->batch, call->n, call->left);
	batch_complete(sp, call->batch, call->n - call->left);
	return sampler_commit(call, ret);
}

static uint32_t sampler_explain(void *ctx, char *text)
{
	const struct sample_call *call = ctx;

	admission_explain_sample(&call->sp->admission, call->sp->h.desc, call->n, text);
	return call->sp->view_index;
}

static int sampler_late(void *ctx, int error)
{
	struct sample_call *call = ctx;
	struct rlv_sampler *sp = call->sp;
	bool at_once = sp->h.wait_ns == 0;
	char text[WATCH_TEXT_BYTES];
	struct limiter_words words;
	int ret;

	if (!call->batch && sp->opts.dest)
		return error_set(-ETIMEDOUT, "sample: the device still uses all batches");
	ret = admission_read(&sp->admission, &words);
	if (ret)
		return ret;
	if (at_once && (error == -ENODATA || words.ins_committed == 0))
		return error_set(-ENODATA, "sample: view %u has no items", sp->view_index);
	if (at_once && words.ins_committed < sp->view->limit.min_size)
		return error_set(-ENODATA,
				 "sample: view %u has had %" PRIu64 " items (min_size %" PRIu64 ")",
				 sp->view_index, words.ins_committed, sp->view->limit.min_size);
	sampler_explain(call, text);
	return error_set(-ETIMEDOUT, "%s", text);
}

/* Adds how far the policies that made the batch are behind, and tells the server. */
static void sampler_count_staleness(struct rlv_sampler *sp, const struct rlv_batch *batch)
{
	const uint32_t newest = sp->newest_version, *version = batch->policy_version;
	uint32_t differ = 0, most = 0;
	uint64_t sum = 0;

	if (!version)
		return;
	for (uint32_t i = 0; i < batch->n; i++) /* most batches have one version */
		differ |= version[i] ^ newest;
	for (uint32_t i = 0; differ && i < batch->n; i++) {
		uint32_t behind = version[i] < newest ? newest - version[i] : 0;

		sum += behind;
		most = behind > most ? behind : most;
	}
	meta_progress_newest(&sp->h.watch.progress, newest);
	meta_progress_read(&sp->h.watch.progress, newest * UINT64_C(1000) - sum * 1000 / batch->n,
			   newest - most);
	sp->stats.policy_version = newest;
	sp->stats.staleness += sum;
	sp->stats.staleness_max = most;
}

int rlv_sampler_sample(struct rlv_sampler *sampler, uint32_t n, int64_t timeout_ns,
		       const struct rlv_batch **batch_out)
{
	static const struct handle_call how = { sampler_step, sampler_explain, sampler_late };
	struct sample_call call = { .sp = sampler, .n = n };
	int ret;

	if (!sampler || !batch_out)
		return error_set(-EINVAL, "sampler or batch_out is NULL");
	if (n == 0 || n > sampler->opts.batch_size)
		return error_set(-EINVAL, "n %u: want 1..%u (opts.batch_size)", n,
				 sampler->opts.batch_size);
	ret = readbacks_apply(sampler, false);
	if (ret)
		return ret;
	handle_start(&sampler->h, timeout_ns);
	ret = handle_run(&sampler->h, &how, &call);
	if (call.admitted)
		ret = sampler_commit(&call, ret);
	if (ret == 0)
		ret = batch_land(sampler, call.batch);
	if (ret)
		return ret;
	call.batch->held = true;
	if (sampler->ahead == RLV_AHEAD_REFILL)
		prefetch_refill(sampler, n);
	sampler->last = call.batch;
	sampler->stats.calls++;
	sampler->stats.items += call.batch->pub.n;
	sampler_count_staleness(sampler, &call.batch->pub);
	atomic_store_explicit(&sampler->h.watch.progress.path, call.batch->path,
			      memory_order_relaxed);
	*batch_out = &call.batch->pub;
	return 0;
}

int rlv_sampler_watch(struct rlv_sampler *sampler, uint32_t n, struct rlv_watch *watch)
{
	struct sample_call call = { .sp = sampler, .n = n };

	if (!sampler)
		return error_set(-EINVAL, "sampler is NULL");
	return watch_user_wait(watch, &sampler->h, sampler_explain, &call);
}

int rlv_sampler_poll(struct rlv_sampler *sampler, uint32_t *ready_out)
{
	uint32_t ready;
	int ret;

	if (!sampler)
		return error_set(-EINVAL, "sampler is NULL");
	ret = part_set_check(&sampler->h.set);
	if (ret == 0)
		ret = readbacks_apply(sampler, false);
	if (ret && ret != -EHOSTDOWN) /* a call that may wait finds out more */
		return ret;
	ready = prefetch_advance(sampler);
	if (ready_out)
		*ready_out = ready;
	return 0;
}
