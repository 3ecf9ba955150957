#include "ds/replay/change.h"

#include "ds/replay/change_chain.h"
#include "ds/replay/priority.h"
#include "ds/sumtree/change.h"

#include "transport/barrier.h"
#include "transport/wait_set.h"

#include "wire/ring_layout.h"
#include "wire/table_layout.h"

#include "base/bits.h"

#include <errno.h>
#include <string.h>

/* -------- a shard -------- */

static int check_ops(enum change_verb verb, struct shard_change *ch)
{
	uint32_t n_views = ch->acc->shard->desc.n_views;

	for (uint32_t v = 0; v < n_views; v++) {
		const struct sumtree *tree = &ch->acc->shard->trees[v];

		for (uint32_t i = 0; i < ch->n[v]; i++) {
			struct leaf_op *op = &ch->ops[v][i];

			op->result = LEAF_UNKNOWN;
			if (op->slot >= tree->geo.leaves)
				return error_set(-ERANGE, "slot %u: the tree has %u leaves",
						 op->slot, tree->geo.leaves);
			if (verb == CHANGE_PUBLISH)
				op->word = claimed_word(&ch->acc->epoch, op->gen);
		}
	}
	return 0;
}

/* The greatest priority that was stored; 0 = none was. */
static uint64_t greatest_done(const struct leaf_op *ops, uint32_t n)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t priority = ops[i].result == LEAF_DONE ? ops[i].priority : 0;

		most = max_u64(most, priority);
	}
	return most;
}

/*
 * True if the running maximum of a view is at least `most`, by what this access last read of it. Of one
 * epoch that is enough: only rebuilds lower it.
 */
static bool max_is_known(const struct access *acc, uint32_t view, uint64_t most)
{
	return most && acc->max_epoch == acc->epoch.number && acc->epoch.mode == EPOCH_NORMAL &&
	       acc->max_seen[view] >= most;
}

/* Reads the running maximum of a view, and keeps it for max_is_known. In place only. */
static int read_max(struct access *acc, uint32_t view, uint64_t *maximum_out)
{
	int ret = priority_max_read(acc->shard, view, maximum_out);

	if (ret || acc->epoch.mode != EPOCH_NORMAL)
		return ret;
	if (acc->max_epoch != acc->epoch.number)
		memset(acc->max_seen, 0, sizeof(acc->max_seen));
	acc->max_epoch = acc->epoch.number;
	acc->max_seen[view] = *maximum_out;
	return 0;
}

/*
 * Ends the change of a shard: checks the results of a chained publish, raises the running maxima of
 * prioritized views to the largest priority stored, and leaves the access, also after an error.
 * Returns the first error.
 */
static int end_shard(enum change_verb verb, const struct shard_change *ch)
{
	struct access *acc = ch->acc;
	uint32_t views = acc->view_mask;
	int ret = ch->ret, left;

	/* In place sumtree_publish_ops has checked them. */
	for (uint32_t v = 0; ret == 0 && verb == CHANGE_PUBLISH && acc->chained && views >> v; v++)
		ret = sumtree_publish_result(ch->ops[v], ch->n[v]);
	for (; ret == 0 && verb != CHANGE_CONSUME && views; views &= views - 1) {
		uint32_t v = bits_ctz(views);
		uint64_t maximum;

		if (ch->n[v] == 0)
			continue;
		if (ch->most && !acc->chained) {
			if (max_is_known(acc, v, ch->most)) /* as a rule */
				continue;
			ret = read_max(acc, v, &maximum);
			if (ret || maximum >= ch->most)
				continue;
		}
		if (acc->shard->desc.views[v].selector != SELECT_PRIORITIZED)
			continue;
		ret = access_raise_max(acc, v, greatest_done(ch->ops[v], ch->n[v]));
	}
	left = access_leave(acc); /* otherwise its pin would block the next rebuild */
	return ret ? ret : left;
}

/* Changes the leaves of an entered shard and the sums above. */
static int change_leaves(enum change_verb verb, struct shard_change *ch)
{
	struct access *acc = ch->acc;
	int ret = 0;

	for (uint32_t views = acc->view_mask; ret == 0 && views; views &= views - 1) {
		uint32_t v = bits_ctz(views);
		const struct sumtree *tree = &acc->shard->trees[v];
		struct tree_deltas *deltas = acc->deltas[v];
		int ended;

		if (ch->n[v] == 0)
			continue;
		if (verb == CHANGE_PUBLISH)
			ret = sumtree_publish_ops(tree, &acc->epoch, ch->ops[v], ch->n[v], deltas);
		else if (verb == CHANGE_UPDATE)
			ret = sumtree_update(tree, &acc->epoch, ch->ops[v], ch->n[v], deltas);
		else
			ret = sumtree_consume(tree, &acc->epoch, ch->ops[v], ch->n[v], deltas);
		ended = sumtree_end_tree(tree, deltas);
		ret = ret ? ret : ended;
	}
	return ret;
}

/*
 * Updates the leaves of entered shards in one pass, if their deltas are flat and their ops lie one after the
 * other. Returns how many of these ops are done.
 */
static size_t update_flat(const struct shard_change *changes, uint32_t n)
{
	const struct access *first = changes[0].acc;
	uint32_t v = bits_ctz(first->view_mask);
	struct tree_deltas *deltas = first->deltas[v];
	struct leaf_op *ops = changes[0].ops[v], *end = ops;

	for (uint32_t i = 0; i < n; i++) {
		const struct shard_change *ch = &changes[i];

		if (ch->acc->chained || ch->ret || ch->n[v] == 0 || ch->ops[v] != end ||
		    ch->acc->deltas[v] != deltas ||
		    !sumtree_enter_flat(deltas, end->tree, &ch->acc->epoch))
			return 0;
		end += ch->n[v];
	}
	return sumtree_update_flat(&first->shard->trees[v], deltas, ops, (size_t)(end - ops));
}

/* Changes the leaves of entered shards: of all at once where that can be, else shard by shard. */
static void change_entered(enum change_verb verb, struct shard_change *changes, uint32_t n)
{
	size_t done = verb == CHANGE_UPDATE && n > 1 ? update_flat(changes, n) : 0;

	for (uint32_t i = 0; i < n; i++) {
		struct shard_change *ch = &changes[i];
		uint32_t v = bits_ctz(ch->acc->view_mask);
		uint32_t skip = (uint32_t)min_u64(done, ch->n[v]);

		done -= skip;
		if (ch->acc->chained || ch->ret || (skip && skip == ch->n[v]))
			continue;
		ch->ops[v] += skip;
		ch->n[v] -= skip;
		ch->ret = change_leaves(verb, ch);
		ch->ops[v] -= skip;
		ch->n[v] += skip;
	}
}

/* Adds what flat deltas still hold to the sums above, of all shards at once. */
static void flush_flat(struct shard_change *changes, uint32_t n)
{
	const struct tree_deltas *done = NULL; /* of accesses that share them */

	for (uint32_t i = 0; i < n; i++) {
		struct shard_change *ch = &changes[i];
		const struct access *acc = ch->acc;

		for (uint32_t views = acc->view_mask; !acc->chained && views; views &= views - 1) {
			uint32_t v = bits_ctz(views);
			struct tree_deltas *deltas = acc->deltas[v];
			int ret;

			if (ch->n[v] == 0 || deltas == done || tree_deltas_are_none(deltas))
				continue;
			ret = sumtree_flush(&acc->shard->trees[v], deltas);
			ch->ret = ch->ret ? ch->ret : ret;
			done = deltas;
		}
	}
}

/*
 * Runs the changes[0, n) that are in place: enters all shards with one barrier, and leaves them at the
 * end. Between the two every instruction that waits for the stores before it changes a sum or a leaf.
 */
static void run_in_place(enum change_verb verb, struct shard_change *changes, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (!changes[i].acc->chained)
			epoch_enter_begin(&changes[i].acc->epoch);
	rword64_announced();
	for (uint32_t i = 0; i < n; i++)
		if (!changes[i].acc->chained)
			changes[i].ret = access_enter_end(changes[i].acc);
	change_entered(verb, changes, n);
	flush_flat(changes, n);
	for (uint32_t i = 0; i < n; i++)
		if (!changes[i].acc->chained && changes[i].acc->epoch.entered)
			changes[i].ret = end_shard(verb, &changes[i]);
}

/* -------- the call -------- */

/* Runs the changes[0, n) that travel as chains; n <= CHANGE_SHARDS. */
static void run_chained(enum change_verb verb, struct shard_change *changes, uint32_t n)
{
	struct chain_change ccs[CHANGE_SHARDS];
	uint32_t m = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct shard_change *ch = &changes[i];

		if (!ch->acc->chained)
			continue;
		ch->ret = access_enter(ch->acc);
		if (ch->ret)
			continue;
		ch->ret = check_ops(verb, ch);
		ccs[m++] = (struct chain_change){ .change = ch, .leaves = true };
	}
	if (m == 0)
		return;
	change_by_chains(verb, ccs, m);
	for (uint32_t k = 0; k < m; k++)
		ccs[k].change->ret = end_shard(verb, ccs[k].change);
}

static int change_run(enum change_verb verb, struct shard_change *changes, uint32_t n)
{
	uint32_t now;
	int first = 0;

	run_in_place(verb, changes, n);
	for (uint32_t done = 0; done < n; done += now) {
		now = (uint32_t)min_u64(n - done, CHANGE_SHARDS);
		run_chained(verb, changes + done, now);
	}
	for (uint32_t i = 0; first == 0 && i < n; i++)
		first = changes[i].ret;
	return first;
}

int change_publish(struct shard_change *changes, uint32_t n)
{
	return change_run(CHANGE_PUBLISH, changes, n);
}

int change_update(struct shard_change *changes, uint32_t n)
{
	return change_run(CHANGE_UPDATE, changes, n);
}

int change_consume(struct shard_change *changes, uint32_t n)
{
	return change_run(CHANGE_CONSUME, changes, n);
}
