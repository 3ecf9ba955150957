/* The top levels of a forest; see sumtree_tops.h. */
#include "ds/sumtree_tops.h"

#include "ds/sumtree.h"
#include "ds/sumtree_nodes.h"

#include "transport/barrier.h"
#include "transport/transport.h"

#include "wire/ring_layout.h"
#include "wire/sumtree_layout.h"

#include <errno.h>
#include <string.h>

#define VIEWS_PER_TREE 2u /* the epoch word, and the top of the array that it should name */

static const struct rword64 *words_at(const uint8_t *base, uint64_t off)
{
	return (const struct rword64 *)(const void *)(base + off);
}

/* E6 pairs with E5. The epoch word goes into ep; true = it names the same array as before. */
static bool see_epoch(struct epoch *ep, uint64_t word)
{
	uint32_t parity = ep->number & 1;

	ep->number = epoch_number(word);
	ep->mode = epoch_mode_of(word);
	return (ep->number & 1) == parity;
}

/* Copies n sums, negative ones as 0; returns their total. */
static uint64_t copy_clamped(uint64_t *to, const struct rword64 *from, uint32_t n)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t word = rword64_load_relaxed(&from[i]);

		to[i] = (int64_t)word > 0 ? word : 0;
		total += to[i];
	}
	return total;
}

static uint32_t top_nodes(const struct sumtree *tree)
{
	return tree->nodes[tree->geo.levels];
}

static uint64_t *kept_top(struct sumtree_tops *tops, uint32_t shard, uint64_t *spare)
{
	return shard < TOPS_KEPT ? tops->kept[shard] : spare;
}

/* -------- in place -------- */

static uint64_t top_in_place(const struct sumtree *tree, struct epoch *ep, uint64_t *to)
{
	const uint8_t *base = tree->region->base;

	see_epoch(ep, rword64_load_acquire(words_at(ep->region->base, ep->word_off)));
	return copy_clamped(to, words_at(base, node_off(tree, ep->number & 1, tree->geo.levels, 0)),
			    top_nodes(tree));
}

/* -------- through the transport -------- */

static void aim_views(struct transport_view views[VIEWS_PER_TREE], const struct sumtree *tree,
		      const struct epoch *ep)
{
	views[0] = (struct transport_view){ .region = ep->region, .off = ep->word_off, .len = 8 };
	views[1] = (struct transport_view){
		.region = tree->region,
		.off = node_off(tree, ep->number & 1, tree->geo.levels, 0),
		.len = top_nodes(tree) * 8,
	};
}

/* One tree; once more when the epoch word names the other array. */
static int view_top(const struct sumtree *tree, struct epoch *ep, uint64_t *to, uint64_t *total_out)
{
	for (int tries = 0; tries < 3; tries++) {
		struct transport_view views[VIEWS_PER_TREE];
		bool same;
		int ret;

		aim_views(views, tree, ep);
		ret = transport_view(tree->region->tr, views, VIEWS_PER_TREE);
		if (ret)
			return ret;
		same = see_epoch(ep, rword64_load_acquire(views[0].ptr));
		*total_out = copy_clamped(to, views[1].ptr, top_nodes(tree));
		transport_view_end(tree->region->tr);
		if (same)
			break;
	}
	return 0;
}

/* How many trees from t on can be read in one call. */
static uint32_t trees_together(const struct forest *from, uint32_t t)
{
	const struct transport *tr = from->trees[t].region->tr;
	uint32_t n = 0;

	while (t + n < from->n && n < TRANSPORT_VECTOR / VIEWS_PER_TREE &&
	       from->trees[t + n].region->tr == tr && !from->trees[t + n].region->base)
		n++;
	return n;
}

/* The trees t .. t + n - 1, of one transport. */
static int view_tops(struct sumtree_tops *tops, uint32_t t, uint32_t n, uint64_t *totals_out)
{
	struct transport_view views[TRANSPORT_VECTOR];
	const struct sumtree *trees = tops->from->trees + t;
	struct epoch *epochs = tops->from->epochs + t;
	uint64_t spare[TREE_TOP_MAX];
	bool again[TRANSPORT_VECTOR / VIEWS_PER_TREE];
	int ret;

	for (uint32_t i = 0; i < n; i++)
		aim_views(&views[i * VIEWS_PER_TREE], &trees[i], &epochs[i]);
	ret = transport_view(trees->region->tr, views, (size_t)n * VIEWS_PER_TREE);
	if (ret)
		return ret;
	for (uint32_t i = 0; i < n; i++) {
		const struct transport_view *view = &views[i * VIEWS_PER_TREE];

		again[i] = !see_epoch(&epochs[i], rword64_load_acquire(view[0].ptr));
		totals_out[i] = copy_clamped(kept_top(tops, t + i, spare), view[1].ptr,
					     top_nodes(&trees[i]));
	}
	transport_view_end(trees->region->tr);
	for (uint32_t i = 0; ret == 0 && i < n; i++)
		if (again[i])
			ret = view_top(&trees[i], &epochs[i], kept_top(tops, t + i, spare),
				       &totals_out[i]);
	return ret;
}

/* -------- both -------- */

/* Reads the trees from t on that can be read together; how many, or an error. */
static int read_some(struct sumtree_tops *tops, uint32_t t, struct transport_set *used,
		     uint64_t *totals_out)
{
	const struct sumtree *tree = &tops->from->trees[t];
	uint64_t spare[TREE_TOP_MAX];
	uint32_t n;
	int ret;

	if (transport_is_forked(tree->region->tr))
		return error_set(-ECHILD, "sum tree: opened before a fork");
	if (!tree->region->base) {
		n = trees_together(tops->from, t);
		ret = view_tops(tops, t, n, totals_out);
		return ret ? ret : (int)n;
	}
	totals_out[0] = top_in_place(tree, &tops->from->epochs[t], kept_top(tops, t, spare));
	transport_account(tree->region->tr, transport_set_add(used, tree->region->tr),
			  VIEWS_PER_TREE, 8 + (uint64_t)top_nodes(tree) * 8);
	return 1;
}

int sumtree_tops_read(struct sumtree_tops *tops, const struct forest *from)
{
	uint64_t totals[TRANSPORT_VECTOR / VIEWS_PER_TREE] = { 0 };
	struct transport_set used;

	used.n = 0;
	tops->from = from;
	tops->shard = UINT32_MAX;
	tops->before[0] = 0;
	for (uint32_t t = 0; t < from->n;) {
		int n = read_some(tops, t, &used, totals);

		if (n < 0)
			return n;
		for (int i = 0; i < n; i++, t++)
			tops->before[t + 1] = tops->before[t] + totals[i];
	}
	return 0;
}

int sumtree_tops_load(struct sumtree_tops *tops, uint32_t shard)
{
	const struct sumtree *tree = &tops->from->trees[shard];
	uint32_t n = top_nodes(tree);
	uint64_t total = 0;
	int ret = 0;

	if (tops->shard == shard)
		return 0;
	if (shard < TOPS_KEPT)
		memcpy(tops->value, tops->kept[shard], n * sizeof(tops->value[0]));
	else if (tree->region->base)
		top_in_place(tree, &tops->from->epochs[shard], tops->value);
	else
		ret = view_top(tree, &tops->from->epochs[shard], tops->value, &total);
	if (ret)
		return ret;
	total = 0;
	for (uint32_t k = 0; k <= TREE_TOP_MAX; k++) {
		tops->prefix[k] = k < n ? total : UINT64_MAX;
		total += k < n ? tops->value[k] : 0;
	}
	tops->total = total;
	tops->shard = shard;
	return 0;
}

/* The last shard whose mass begins at or before the point. */
static uint32_t find_shard(const struct sumtree_tops *tops, unsigned __int128 at)
{
	uint32_t low = 0, high = tops->from->n;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (tops->before[middle] <= at)
			low = middle;
		else
			high = middle;
	}
	return low;
}

int sumtree_tops_pick(struct sumtree_tops *tops, unsigned __int128 at, struct rng *rng,
		      struct top_pick *pick_out)
{
	uint32_t shard = find_shard(tops, at), node;
	uint64_t expected = (uint64_t)(tops->before[shard + 1] - tops->before[shard]);
	uint64_t r = (uint64_t)(at - tops->before[shard]);
	double ratio = 1;
	int ret = sumtree_tops_load(tops, shard);

	if (ret)
		return ret;
	if (__builtin_expect(tops->total != expected, 0)) {
		if (tops->total == 0)
			return -ESTALE;
		r = rng_uniform_u64(rng, tops->total);
		ratio = (double)expected / (double)tops->total;
	}
	node = sumtree_tops_find(tops, r, 0);
	*pick_out = (struct top_pick){
		.shard = shard,
		.node = node,
		.expected = tops->value[node],
		.r = r - tops->prefix[node],
		.ratio = ratio,
	};
	return 0;
}
