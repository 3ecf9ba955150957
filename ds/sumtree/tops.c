/* The top levels of a forest; see ds/sumtree/tops.h. */
#include "ds/sumtree/tops.h"

#include "ds/sumtree/sumtree.h"
#include "ds/sumtree/nodes.h"

#include "transport/barrier.h"
#include "transport/transport.h"

#include "wire/ring_layout.h"
#include "wire/sumtree_layout.h"

#include <errno.h>
#include <string.h>

static_assert(WIRE_LINE % 8 == 0, "the top lies a line behind the size word");

static const struct rword64 *words_at(const uint8_t *base, uint64_t off)
{
	return (const struct rword64 *)(const void *)(base + off);
}

/* E6 pairs with E5. Stores the epoch word in ep; true = it names the same array as before. */
static bool see_epoch(struct epoch *ep, uint64_t word)
{
	uint32_t parity = ep->number & 1;

	ep->number = epoch_number(word);
	ep->mode = epoch_mode_of(word);
	return (ep->number & 1) == parity;
}

static uint32_t top_nodes(const struct sumtree *tree)
{
	return tree->nodes[tree->geo.levels];
}

/* The head of an inner array, from here on: size word, rest of its line, top level. */
static uint64_t head_off(const struct sumtree *tree, const struct epoch *ep)
{
	return node_size_off(tree, ep->number & 1);
}

static uint32_t head_bytes(const struct sumtree *tree)
{
	return (uint32_t)tree->level_off[tree->geo.levels] + top_nodes(tree) * 8;
}

/* Sum and size of one tree, by its head. */
struct top {
	uint64_t total;
	int64_t size;
};

/* Reads the head of an inner array; copies the top level to `to`, negative sums as 0. */
static struct top take_head(const struct sumtree *tree, const void *head, uint64_t *to)
{
	const struct rword64 *size = head;
	const struct rword64 *sums = words_at(head, tree->level_off[tree->geo.levels]);
	struct top top = { .size = node_size(tree, rword64_load_relaxed(size)) };

	for (uint32_t i = 0; i < top_nodes(tree); i++) {
		uint64_t word = rword64_load_relaxed(&sums[i]);

		to[i] = (int64_t)word > 0 ? word : 0;
		top.total += to[i];
	}
	return top;
}

static uint64_t *kept_top(struct sumtree_tops *tops, uint32_t shard, uint64_t *spare)
{
	return shard < TOPS_KEPT ? tops->kept[shard] : spare;
}

/* -------- through the transport -------- */

/* Views of the epoch word, and of size and top of the array that it named last. */
static void aim_views(struct transport_view views[TOPS_READS], const struct sumtree *tree,
		      const struct epoch *ep)
{
	views[0] = (struct transport_view){ .region = ep->region, .off = ep->word_off, .len = 8 };
	views[1] = (struct transport_view){
		.region = tree->region,
		.off = head_off(tree, ep),
		.len = head_bytes(tree),
	};
}

/* Reads one tree; again if the epoch word names the other array. */
static int view_top(const struct sumtree *tree, struct epoch *ep, uint64_t *to)
{
	for (int tries = 0; tries < 3; tries++) {
		struct transport_view views[TOPS_READS];
		bool same;
		int ret;

		aim_views(views, tree, ep);
		ret = transport_view(tree->region->tr, views, TOPS_READS);
		if (ret)
			return ret;
		same = see_epoch(ep, rword64_load_acquire(views[0].ptr));
		take_head(tree, views[1].ptr, to);
		transport_view_end(tree->region->tr);
		if (same)
			break;
	}
	return 0;
}

/* -------- by reads of the caller -------- */

void sumtree_tops_begin(struct sumtree_tops *tops, const struct forest *from)
{
	tops->from = from;
	tops->shard = UINT32_MAX;
	tops->before[0] = 0;
}

uint32_t sumtree_tops_bytes(const struct forest *from)
{
	return WIRE_LINE + head_bytes(&from->trees[0]);
}

void sumtree_tops_aim(const struct forest *from, uint32_t tree, const struct mem *mem,
		      uint8_t *buffer, struct transport_io io[TOPS_READS])
{
	struct transport_view views[TOPS_READS];

	aim_views(views, &from->trees[tree], &from->epochs[tree]);
	for (uint32_t i = 0; i < TOPS_READS; i++)
		io[i] = (struct transport_io){ .region = views[i].region,
					       .off = views[i].off,
					       .dst = buffer + i * WIRE_LINE,
					       .mem = mem,
					       .len = views[i].len };
}

/* Until sumtree_tops_end before[t + 1] is the mass of tree t alone. */
static void note_top(struct sumtree_tops *tops, uint32_t t, struct top top)
{
	tops->before[t + 1] = top.total;
	if (tops->sizes)
		tops->sizes[t] = top.size;
}

bool sumtree_tops_take(struct sumtree_tops *tops, uint32_t tree, const uint8_t *buffer, bool last)
{
	const struct forest *from = tops->from;
	uint64_t spare[SUMTREE_TOP_MAX];
	bool same = see_epoch(&from->epochs[tree], rword64_load_acquire(words_at(buffer, 0)));

	if (!same && !last)
		return false;
	note_top(tops, tree,
		 take_head(&from->trees[tree], buffer + WIRE_LINE, kept_top(tops, tree, spare)));
	return true;
}

void sumtree_tops_end(struct sumtree_tops *tops)
{
	for (uint32_t t = 0; t < tops->from->n; t++)
		tops->before[t + 1] += tops->before[t];
}

/* -------- both -------- */

int sumtree_tops_read(struct sumtree_tops *tops, const struct forest *from)
{
	uint64_t spare[SUMTREE_TOP_MAX];

	sumtree_tops_begin(tops, from);
	for (uint32_t t = 0; t < from->n; t++) {
		const struct sumtree *tree = &from->trees[t];
		struct epoch *ep = &from->epochs[t];

		if (transport_is_forked(tree->region->tr))
			return error_set(
				-ECHILD,
				"sum tree: opened before fork(): open it again in the child");
		see_epoch(ep, rword64_load_acquire(words_at(ep->region->base, ep->word_off)));
		note_top(tops, t,
			 take_head(tree, tree->region->base + head_off(tree, ep),
				   kept_top(tops, t, spare)));
	}
	sumtree_tops_end(tops);
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
	else
		ret = view_top(tree, &tops->from->epochs[shard], tops->value);
	if (ret)
		return ret;
	for (uint32_t k = 0; k <= SUMTREE_TOP_MAX; k++) {
		tops->prefix[k] = k < n ? total : UINT64_MAX;
		total += k < n ? tops->value[k] : 0;
	}
	tops->total = total;
	tops->shard = shard;
	return 0;
}
