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
#include <stdlib.h>
#include <string.h>

#define REDRAWS 16         /* rounds in which failed items are drawn anew */
#define LOSSES 64          /* nodes that one call may lose */
#define FASTEST_ROW_NS 10u /* of a shard: no writers are faster */

/* -------- what holds -------- */

static bool is_too_old(struct rlv_sampler *sp, uint32_t version)
{
	if (version > sp->newest_version)
		sp->newest_version = version;
	return sp->view->max_staleness && sp->newest_version - version > sp->view->max_staleness;
}

/* An item by both looks at its leaf. No item has generation 0. */
static bool is_whole(uint64_t word, uint64_t again)
{
	return leaf_gen(again) == leaf_gen(word) && leaf_gen(again) != 0 &&
	       leaf_priority(again) != 0;
}

/* Loop by loop, and without a branch: so compilers make vectors of them. */
static bool are_whole(const uint64_t *word, const uint64_t *again, uint32_t n)
{
	const uint64_t gens = leaf_make(0, LEAF_GEN_MASK, 0), one = leaf_make(0, 1, 0);
	uint64_t differ = 0, none = 0; /* its sign: a generation or priority was 0 */

	for (uint32_t i = 0; i < n; i++) {
		differ |= (word[i] ^ again[i]) & gens;
		none |= (leaf_priority(again[i]) - 1) | ((again[i] & gens) - one);
	}
	return differ == 0 && (int64_t)none >= 0;
}

static void make_keys(uint64_t *restrict key, uint32_t table_id, const struct draw_scratch *s,
		      uint32_t n)
{
	const uint32_t *shard = s->shard, *slot = s->slot;
	const uint64_t *word = s->word;

	for (uint32_t i = 0; i < n; i++)
		key[i] = key_make(table_id, shard[i], leaf_gen(word[i]), slot[i]);
}

/* The usual case: item i of [0, n) goes to position i, and all hold. */
static bool keep_all(struct rlv_sampler *sp, struct batch *batch, uint32_t n)
{
	const struct draw_scratch *s = &sp->scratch;
	bool old = false;

	if (!are_whole(s->word, s->again, n)) /* versions of torn rows say nothing */
		return false;
	for (uint32_t i = 0; batch->policy_version && i < n; i++)
		old |= is_too_old(sp, batch->policy_version[i]);
	if (old)
		return false;
	make_keys(batch->key, sp->h.desc->table_id, s, n);
	memcpy(batch->word, s->again, n * sizeof(*batch->word));
	memcpy(batch->probability, s->probability, n * sizeof(*batch->probability));
	return true;
}

/*
 * Moves the items of [0, n) that hold to the batch and packs the positions of the others to the
 * front; how many those are.
 */
static uint32_t keep_whole(struct rlv_sampler *sp, struct batch *batch, uint32_t n)
{
	const struct draw_scratch *s = &sp->scratch;
	uint32_t failed = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = s->at[i];
		bool whole = is_whole(s->word[i], s->again[i]);
		bool old = whole && batch->policy_version &&
			   is_too_old(sp, batch->policy_version[at]);

		if (!whole || old) {
			sp->expired += old && sp->view->max_times_sampled;
			s->at[failed++] = at;
			continue;
		}
		batch->key[at] = key_make(sp->h.desc->table_id, s->shard[i], leaf_gen(s->word[i]),
					  s->slot[i]);
		batch->word[at] = s->again[i];
		batch->probability[at] = s->probability[i];
	}
	return failed;
}

/* -------- one round -------- */

uint64_t sampler_wrap_ns(const struct table_desc *desc)
{
	return (uint64_t)desc->slots * LEAF_GEN_MASK * FASTEST_ROW_NS;
}

/*
 * Draws, gathers and verifies the *left items whose positions are in scratch.at. The first round of a
 * batch may have been made ahead.
 */
static int draw_round(struct rlv_sampler *sp, struct batch *batch, bool first, uint32_t *left)
{
	struct round round = { .batch = batch,
			       .n = *left,
			       .stratified = first && !sp->opts.independent };
	uint32_t failed;
	bool late;
	int ret = first && prefetch_hand_over(sp, &round) ? 0 : sampler_round(sp, &round);

	/* After a long sleep a generation may have come round: nothing of it is kept. */
	late = clock_now_ns(sp->h.clock) - round.began_ns > sampler_wrap_ns(sp->h.desc);
	if (ret == 0 && !late && sp->view->max_times_sampled)
		ret = sampler_take(sp, round.found);
	if (ret)
		return ret;
	if (late)
		failed = round.found;
	else if (first && keep_all(sp, batch, round.found))
		failed = 0;
	else
		failed = keep_whole(sp, batch, round.found);
	sp->stats.redraws += failed;
	memmove(sp->scratch.at + failed, sp->scratch.at + round.found,
		(*left - round.found) * sizeof(*sp->scratch.at));
	*left = failed + (*left - round.found);
	return 0;
}

/* A round met an error. 0: a node was lost, and what is left is drawn from the others. */
static int recover(struct rlv_sampler *sp, int error, uint32_t *lost)
{
	if ((*lost)++ == LOSSES)
		return error;
	return handle_recover(&sp->h, error);
}

/* Draws until n positions are filled or nothing more is to be had; the rest in scratch.at. */
static int fill(struct rlv_sampler *sp, struct batch *batch, uint32_t n, uint32_t *left_out)
{
	/* In order, a second look finds the same items again, unless they were taken. */
	uint32_t rounds = sp->ordered && !sp->view->max_times_sampled ? 1 : REDRAWS;
	uint32_t left = n, lost = 0;
	bool first = true;
	int ret = 0;

	for (uint32_t i = 0; i < n; i++)
		sp->scratch.at[i] = i;
	for (uint32_t round = 0; ret == 0 && left > 0 && round < rounds; round++) {
		uint32_t before = left;

		ret = draw_round(sp, batch, first, &left);
		if (ret && ret != -ENODATA) {
			ret = recover(sp, ret, &lost);
			round = 0;
			continue;
		}
		first = false;
		if (sp->view->max_times_sampled && left < before)
			round = 0; /* others take, too, but there is more to be had */
	}
	*left_out = left;
	return ret;
}

/* -------- a short batch -------- */

/* Copies item `from` over item `to` in every array of the batch. */
static void move_item(struct batch *batch, uint32_t to, uint32_t from)
{
	for (uint32_t i = 0; i < batch->n_outputs; i++) {
		const struct window_output *o = &batch->outputs[i];

		memcpy(o->out + to * o->item_bytes, o->out + from * o->item_bytes, o->item_bytes);
	}
	batch->key[to] = batch->key[from];
	batch->word[to] = batch->word[from];
	batch->probability[to] = batch->probability[from];
}

static int compare_positions(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a;
	uint32_t y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* Closes the gaps at the positions in scratch.at[0, left); left > 0. */
static void close_gaps(struct rlv_sampler *sp, struct batch *batch, uint32_t n, uint32_t left)
{
	uint32_t *gaps = sp->scratch.at;
	uint32_t next = 0;
	uint32_t to;

	qsort(gaps, left, sizeof(*gaps), compare_positions);
	to = gaps[0];
	for (uint32_t from = gaps[0]; from < n; from++) {
		if (next < left && gaps[next] == from)
			next++;
		else
			move_item(batch, to++, from);
	}
}

/* -------- the call -------- */

static void finish(struct rlv_sampler *sp, struct batch *batch, uint32_t n)
{
	bool by_max = sp->opts.weights == RLV_WEIGHTS_BATCH;
	int64_t size = shard_trees_items(&sp->trees);

	priority_to_value(sp->view, batch->word, n, batch->priority);
	priority_weights(batch->probability, n, by_max ? 0 : (double)(size > 0 ? size : 1),
			 sp->beta > 0 ? sp->beta : 0, batch->weight);
	for (uint32_t a = 0; a < batch->pub.n_arrays; a++)
		batch->arrays[a].shape[0] = n;
	batch->pub.n = n;
	batch->pub.table_size = size;
}

/*
 * -EAGAIN: fewer than n, and a short batch is not wanted. -ENODATA: none at all. What a consuming
 * view has taken is handed over in any case: nobody else can have it any more.
 */
static int try_sample(struct rlv_sampler *sp, struct batch *batch, uint32_t n, uint32_t *got_out)
{
	uint32_t left;
	int ret = fill(sp, batch, n, &left);

	if (ret && ret != -ENODATA)
		return ret;
	if (left == n)
		return ret ? ret : error_set(-EAGAIN, "sample: every item drawn was overwritten");
	if (left > 0) {
		if (!sp->opts.short_batch && !sp->view->max_times_sampled)
			return error_set(-EAGAIN,
					 "sample: %u of %u items could not be had; "
					 "opts.short_batch takes fewer",
					 left, n);
		close_gaps(sp, batch, n, left);
	}
	*got_out = n - left;
	finish(sp, batch, *got_out);
	return 0;
}

/*
 * Items that were taken and then found too old to hand over: they count as sampled, or a queue would
 * keep their room for ever. Where others hold all admissions now, the balance repairs it (ds/limiter/balance.h).
 */
static int commit_expired(struct rlv_sampler *sp)
{
	uint64_t n = sp->expired;
	int ret;

	sp->expired = 0;
	if (n == 0)
		return 0;
	ret = admission_try_sample(&sp->admission, n);
	if (ret)
		return ret == -EAGAIN || ret == -ENODATA ? 0 : ret;
	return admission_commit_sample(&sp->admission, n, n);
}

/* Admission, draw, and the account of what was delivered. */
static int sample_once(struct rlv_sampler *sp, struct batch *batch, uint32_t n)
{
	uint32_t got = 0;
	int committed;
	int ret;

	ret = admission_try_sample(&sp->admission, n);
	if (ret)
		return ret;
	ret = try_sample(sp, batch, n, &got);
	if (ret)
		got = 0;
	committed = admission_commit_sample(&sp->admission, n, got);
	if (committed == 0)
		committed = commit_expired(sp);
	return ret ? ret : committed;
}

struct wish {
	struct rlv_sampler *sp;
	uint32_t n;
};

static void explain(void *ctx, char *text)
{
	const struct wish *wish = ctx;

	admission_explain_sample(&wish->sp->admission, wish->sp->h.desc, wish->n, text);
}

static int look_at_wait(struct rlv_sampler *sp, uint32_t n, struct rlv_watch *watch)
{
	struct wish wish = { sp, n };
	const struct watch_call call = { explain, &wish, sp->view_index };

	return watch_wait(watch, &sp->h, &call);
}

static int wait_error(struct rlv_sampler *sp, uint32_t n, int why)
{
	bool at_once = sp->h.wait_ns == 0;
	struct wish wish = { sp, n };
	char text[WATCH_TEXT_BYTES];
	struct limiter_words words;
	int ret;

	ret = admission_read(&sp->admission, &words);
	if (ret)
		return ret;
	if (at_once && (why == -ENODATA || words.ins_committed == 0))
		return error_set(-ENODATA, "sample: view %u has no items", sp->view_index);
	if (at_once && words.ins_committed < sp->view->limit.min_size)
		return error_set(-ENODATA,
				 "sample: view %u has had %" PRIu64 " items (min_size %" PRIu64 ")",
				 sp->view_index, words.ins_committed, sp->view->limit.min_size);
	explain(&wish, text);
	return error_set(-ETIMEDOUT, "%s", text);
}

static bool may_wait(const struct rlv_sampler *sp, int ret)
{
	return ret == -EAGAIN || ret == -ENODATA || handle_may_heal(&sp->h, ret);
}

/* entered: what handle_begin said. stalls: it is given up where nothing moves. */
static int sample_wait(struct rlv_sampler *sp, struct batch *batch, uint32_t n, int entered,
		       bool stalls)
{
	struct backoff backoff = handle_backoff_init();
	uint64_t began_ns = 0;
	struct rlv_watch watch;
	uint32_t lost = 0;
	int ret = entered;
	int stalled;

	for (;;) {
		if (ret == 0)
			ret = sample_once(sp, batch, n);
		if (ret == 0)
			break;
		ret = recover(sp, ret, &lost);
		if (ret == 0)
			continue;
		if (!may_wait(sp, ret))
			break;
		if (!began_ns) {
			began_ns = clock_now_ns(sp->h.clock);
			sp->stats.limiter_waits++;
			watch_begin(&watch);
		}
		if (handle_is_late(&sp->h)) {
			if (ret == -EAGAIN || ret == -ENODATA)
				ret = wait_error(sp, n, ret);
			break;
		}
		stalled = look_at_wait(sp, n, &watch);
		if (stalled && stalls) {
			ret = ret == -EHOSTDOWN ? error_set(ret, "%s", watch.text) : stalled;
			break;
		}
		handle_backoff(&sp->h, &backoff);
		ret = handle_enter(&sp->h);
		lost = 0;
	}
	if (began_ns)
		sp->stats.limiter_wait_ns += clock_now_ns(sp->h.clock) - began_ns;
	return ret;
}

int rlv_sampler_sample(struct rlv_sampler *sampler, uint32_t n, int64_t timeout_ns,
		       const struct rlv_batch **batch_out)
{
	struct batch *batch;
	int entered;
	int ret;

	if (!sampler || !batch_out)
		return error_set(-EINVAL, "sampler or batch_out is NULL");
	if (n == 0 || n > sampler->opts.batch_size)
		return error_set(-EINVAL, "n %u: want 1..%u (opts.batch_size)", n,
				 sampler->opts.batch_size);
	entered = handle_begin(&sampler->h, timeout_ns);
	if (entered && !handle_may_heal(&sampler->h, entered))
		return entered;
	ret = batch_get(sampler, n, &batch);
	if (ret == 0)
		ret = sample_wait(sampler, batch, n, entered, timeout_ns == RLV_TIMEOUT_STALL);
	if (ret)
		return ret;
	batch->held = true;
	prefetch_refill(sampler, n);
	sampler->last = batch;
	sampler->stats.calls++;
	sampler->stats.items += batch->pub.n;
	*batch_out = &batch->pub;
	return 0;
}

int rlv_sampler_watch(struct rlv_sampler *sampler, uint32_t n, struct rlv_watch *watch)
{
	int ret = watch_check(watch);

	if (ret == 0 && !sampler)
		ret = error_set(-EINVAL, "sampler is NULL");
	return ret ? ret : look_at_wait(sampler, n, watch);
}

int rlv_sampler_poll(struct rlv_sampler *sampler, uint32_t *ready_out)
{
	uint32_t ready;
	int ret;

	if (!sampler)
		return error_set(-EINVAL, "sampler is NULL");
	ret = node_set_check(&sampler->h.nodes);
	if (ret && ret != -EHOSTDOWN) /* a call that may wait finds out more */
		return ret;
	ready = prefetch_advance(sampler);
	if (ready_out)
		*ready_out = ready;
	return 0;
}
