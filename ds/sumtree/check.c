/* Walks a whole tree: totals, sizes, and a check of all sums. Cold code. */
#include "ds/sumtree/sumtree.h"

#include "ds/sumtree/nodes.h"

#include "transport/barrier.h"
#include "transport/transport.h"

#include "wire/sumtree_layout.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/error.h"

#include <errno.h>
#include <string.h>

#define WALK_WORDS 16384u /* words read at a time: whole groups of any fan-out */

static int read_size(const struct sumtree *tree, struct epoch *ep, uint64_t *word_out)
{
	uint64_t off;
	int ret = epoch_refresh(ep);

	if (ret)
		return ret;
	off = node_size_off(tree, ep->number & 1);
	if (tree->region->base) { /* beside the tops, which were just read */
		*word_out = rword64_load_relaxed((const void *)(tree->region->base + off));
	} else {
		ret = transport_load(tree->region, off, word_out);
	}
	return ret;
}

int sumtree_size(const struct sumtree *tree, struct epoch *ep, int64_t *size_out)
{
	uint64_t word;
	int ret = read_size(tree, ep, &word);

	if (ret == 0)
		*size_out = node_size(tree, word);
	return ret;
}

int sumtree_total(const struct sumtree *tree, struct epoch *ep, uint64_t *total_out)
{
	uint32_t top = tree->geo.levels, n = tree->nodes[top];
	uint64_t *words = mem_array(n, sizeof(*words)), total = 0;
	int ret = words ? epoch_refresh(ep)
			: error_set(-ENOMEM, "sum tree: cannot allocate %u sums", n);

	if (ret == 0)
		ret = transport_fetch(tree->region, node_off(tree, ep->number & 1, top, 0), words,
				      n * 8);
	for (uint32_t i = 0; ret == 0 && i < n; i++)
		total += (int64_t)words[i] > 0 ? words[i] : 0;
	mem_free(words);
	if (ret == 0)
		*total_out = total;
	return ret;
}

/* -------- the walk -------- */

struct walk {
	const struct sumtree *tree;
	struct epoch *ep;
	struct sumtree_report report;
	uint64_t *children; /* WALK_WORDS */
	uint64_t *parents;  /* WALK_WORDS / 8 */
};

/* Counts the n leaf words in walk->children in the report, and replaces each by its priority. */
static void see_leaves(struct walk *walk, uint32_t n)
{
	uint32_t now = walk->ep->number & 3u;
	uint32_t next = walk->ep->mode == EPOCH_DUAL ? (now + 1) & 3u : now;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t word = walk->children[i];

		walk->children[i] = leaf_priority(word);
		walk->report.total += leaf_priority(word);
		walk->report.live_leaves += leaf_priority(word) != 0;
		walk->report.wrong_tags += leaf_tag(word) != now && leaf_tag(word) != next;
	}
}

/*
 * Counts the nodes of a level that are not the sum of their children, in the report; for level 1
 * its leaves, too.
 */
static int walk_level(struct walk *walk, uint32_t level)
{
	const struct sumtree *tree = walk->tree;
	uint32_t parity = walk->ep->number & 1;
	uint32_t fanout = tree->geo.fanout[level - 1], below = tree->nodes[level - 1];
	uint32_t step = WALK_WORDS / fanout * fanout;
	uint64_t off = node_level_off(tree, parity, level - 1);

	for (uint32_t i = 0; i < below; i += step) {
		uint32_t n = (uint32_t)min_u64(step, below - i);
		uint32_t parents = (uint32_t)div_up(n, fanout);
		int ret =
			transport_fetch(tree->region, off + (uint64_t)i * 8, walk->children, n * 8);

		if (ret == 0 && level == 1)
			see_leaves(walk, n);
		if (ret == 0)
			ret = transport_fetch(tree->region,
					      node_off(tree, parity, level, i / fanout),
					      walk->parents, parents * 8);
		if (ret)
			return ret;
		for (uint32_t p = 0; p < parents; p++) {
			uint64_t sum = 0;

			for (uint32_t k = p * fanout; k < n && k < (p + 1) * fanout; k++)
				sum += walk->children[k];
			walk->report.wrong_nodes += sum != walk->parents[p];
		}
	}
	return 0;
}

int sumtree_check(const struct sumtree *tree, struct epoch *ep, struct sumtree_report *report_out)
{
	struct walk walk = { .tree = tree, .ep = ep };
	uint64_t size = 0;
	int ret = read_size(tree, ep, &size);

	walk.children = mem_alloc(WALK_WORDS * 8);
	walk.parents = mem_alloc(WALK_WORDS);
	if (!walk.children || !walk.parents)
		ret = error_set(-ENOMEM, "sum tree check: cannot allocate %u bytes",
				WALK_WORDS * 9);
	for (uint32_t l = 1; ret == 0 && l <= tree->geo.levels; l++)
		ret = walk_level(&walk, l);
	mem_free(walk.parents);
	mem_free(walk.children);
	if (ret)
		return ret;
	walk.report.size_error = (int64_t)(size - walk.report.live_leaves);
	*report_out = walk.report;
	return 0;
}
