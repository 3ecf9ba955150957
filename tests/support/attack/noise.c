#include "tests/support/attack/noise.h"

#include <stddef.h>

const char *const noise_names[NOISE_CLASSES] = {
	[NOISE_LEAVES] = "leaves",
	[NOISE_INNER] = "inner",
	[NOISE_SHARD_WORDS] = "shard words",
	[NOISE_VIEW_WORDS] = "view words",
	[NOISE_SLOTS] = "slots",
	[NOISE_HEADERS] = "headers",
	[NOISE_COUNTS] = "counts",
	[NOISE_ROWS] = "rows",
	[NOISE_TAILS] = "row tails",
};

static uint64_t below(struct rng *rng, uint64_t n)
{
	return rng_uniform_u64(rng, n);
}

/* -------- where -------- */

/* Prefers leaves at the head and end of a block, where windows end. */
static uint32_t any_slot(struct rng *rng, const struct table_desc *desc)
{
	uint32_t block = (uint32_t)below(rng, desc->blocks);
	uint32_t row = (uint32_t)below(rng, desc->block);

	if (below(rng, 4) == 0)
		row = (uint32_t)below(rng, desc->window_max + 1u) % desc->block;
	if (below(rng, 8) == 0)
		block = 0;
	return block * desc->block + row;
}

static uint64_t any_shard_word(struct rng *rng)
{
	static const size_t members[] = { offsetof(struct shard_words, head),
					  offsetof(struct shard_words, part.dirty),
					  offsetof(struct shard_words, part.epoch),
					  offsetof(struct shard_words, part.clean) };

	return members[below(rng, 4)];
}

/* A word of a page that this process has attached: its pin, or a count. */
static struct noise_place any_page_word(struct rng *rng, const struct shard *shard)
{
	struct noise_place place = { .region = shard->part.pages };

	if (!shard->part.n_pages)
		return (struct noise_place){ .region = NULL };
	place.off = part_page_off(&shard->part, shard->part.page_first +
							(uint32_t)below(rng, shard->part.n_pages));
	if (below(rng, 2))
		place.off += offsetof(struct client_page, limits) +
			     8 * below(rng, sizeof(struct slot_limits[RING_MAX_VIEWS]) / 8);
	return place;
}

/* The four words of its limiter, and its maximum. */
static struct noise_place any_view_word(struct rng *rng, const struct shard *shard)
{
	uint32_t v = (uint32_t)below(rng, shard->desc.n_views);
	uint64_t line = below(rng, 5);

	if (line < 4)
		return (struct noise_place){ shard->part.limits,
					     shard_limits_off(shard, v) + WIRE_LINE * line };
	return (struct noise_place){ shard->tree, shard->desc.views[v].words_off };
}

static uint64_t tree_off(struct rng *rng, const struct shard *shard, enum noise_class class)
{
	const struct table_desc *desc = &shard->desc;
	uint32_t v = (uint32_t)below(rng, desc->n_views);
	const struct view_desc *view = &desc->views[v];

	switch (class) {
	case NOISE_LEAVES:
		return shard_leaf_off(shard, v, any_slot(rng, desc));
	case NOISE_INNER:
		return view->inner_off[below(rng, 2)] + 8 * below(rng, desc->tree.inner_bytes / 8);
	case NOISE_SHARD_WORDS:
		return shard_word_off(shard, any_shard_word(rng));
	case NOISE_HEADERS:
		return shard_header_off(shard, (uint32_t)below(rng, desc->blocks));
	case NOISE_COUNTS:
		return view->counts_off ? view->counts_off + 8ull * any_slot(rng, desc) : 0;
	default:
		return 0;
	}
}

static uint64_t row_off(struct rng *rng, const struct shard *shard, enum noise_class class)
{
	uint64_t off = shard_row_off(shard, any_slot(rng, &shard->desc));

	if (class == NOISE_TAILS)
		return off + shard->desc.tail_off + 8 * below(rng, sizeof(struct row_tail) / 8);
	return off + 8 * below(rng, shard->desc.row_bytes / 8);
}

bool noise_pick(struct rng *rng, const struct shard *shard, enum noise_class class,
		struct noise_place *place_out)
{
	bool row = class == NOISE_ROWS || class == NOISE_TAILS;
	uint64_t off;

	if (class == NOISE_VIEW_WORDS || class == NOISE_SLOTS) {
		*place_out = class == NOISE_SLOTS ? any_page_word(rng, shard)
						  : any_view_word(rng, shard);
		return place_out->region != NULL;
	}
	off = row ? row_off(rng, shard, class) : tree_off(rng, shard, class);

	*place_out = (struct noise_place){ row ? shard->rows : shard->tree, off };
	return off != 0;
}

/* -------- values -------- */

/* A word that would be right elsewhere, or at another time. */
static uint64_t plausible(struct rng *rng, const struct table_desc *desc)
{
	uint32_t owner = (uint32_t)below(rng, desc->max_clients + 2u);
	uint64_t seq = below(rng, 4ull * desc->blocks);
	uint32_t gen = block_gen(seq, desc->blocks), small = (uint32_t)below(rng, 4);

	switch (below(rng, 5)) {
	case 0:
		return leaf_make(small, gen, 1 + below(rng, desc->views[0].max_prio));
	case 1:
		return leaf_make(small, (uint32_t)below(rng, 3), below(rng, 3));
	case 2:
		return epoch_make((uint32_t)below(rng, 6), (enum epoch_mode)below(rng, 4), owner);
	case 3:
		return block_make(below(rng, 2), owner, seq);
	default: /* the second word of a row's tail: stream and flags */
		return below(rng, 4) | below(rng, 64) << 16;
	}
}

static uint64_t interesting(struct rng *rng)
{
	static const uint64_t words[] = { 0,
					  1,
					  UINT64_MAX,
					  UINT64_MAX - 1,
					  (uint64_t)INT64_MAX,
					  (uint64_t)1 << 63,
					  UINT32_MAX,
					  (uint64_t)1 << 32,
					  LEAF_PRIORITY_MASK,
					  BLOCK_SEQ_MASK,
					  (uint64_t)1 << 62 };

	return words[below(rng, sizeof(words) / sizeof(words[0]))];
}

uint64_t noise_word(struct rng *rng, const struct table_desc *desc, uint64_t now)
{
	switch (below(rng, 4)) {
	case 0:
		return rng_next_u64(rng);
	case 1:
		return now ^ (uint64_t)1 << below(rng, 64);
	case 2:
		return interesting(rng);
	default:
		return plausible(rng, desc);
	}
}
