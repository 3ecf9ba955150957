#include "ds/replay/order.h"

#include "transport/barrier.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>

#define HEADERS_AT_ONCE 4096u
#define NEVER_SPENT UINT64_MAX

/* What a call has found so far. */
struct found {
	uint32_t *slots;
	uint64_t *words;
	uint32_t n, want;
};

int order_init(struct order *order, struct shard *shard, uint32_t view, bool newest_first)
{
	uint32_t blocks = shard->desc.blocks;

	*order = (struct order){ .shard = shard, .view = view, .newest_first = newest_first };
	order->headers = mem_array(blocks, sizeof(*order->headers));
	order->spent = mem_array(blocks, sizeof(*order->spent));
	if (!order->headers || !order->spent) {
		order_fini(order);
		return error_set(-ENOMEM, "order: no memory for %u blocks", blocks);
	}
	for (uint32_t b = 0; b < blocks; b++)
		order->spent[b] = NEVER_SPENT;
	return 0;
}

void order_fini(struct order *order)
{
	mem_free(order->headers);
	mem_free(order->spent);
	*order = (struct order){ 0 };
}

static int read_headers(struct order *order)
{
	struct region *tree = order->shard->tree;
	uint32_t blocks = order->shard->desc.blocks;

	for (uint32_t b = 0; b < blocks; b += HEADERS_AT_ONCE) {
		struct transport_io io = {
			.region = tree,
			.off = shard_header_off(order->shard, b),
			.dst = order->headers + b,
			.len = (uint32_t)min_u64(HEADERS_AT_ONCE, blocks - b) * 8,
		};
		int ret = transport_read(tree->tr, &io, 1);

		if (ret)
			return ret;
	}
	return 0;
}

/* The block that comes next after ticket `last` (before it, for lifo); false = none is left. */
static bool next_block(const struct order *order, uint64_t last, bool first, uint32_t *block_out)
{
	uint64_t best = 0;
	bool any = false;

	for (uint32_t b = 0; b < order->shard->desc.blocks; b++) {
		uint64_t seq = block_seq(order->headers[b]);
		bool later = order->newest_first ? seq < last : seq > last;
		bool closer = order->newest_first ? seq > best : seq < best;

		if (order->headers[b] == 0 || seq == order->spent[b] || !(first || later))
			continue;
		if (any && !closer)
			continue;
		any = true;
		best = seq;
		*block_out = b;
	}
	return any;
}

/* Takes the live leaves of a block; false = it has none. */
static bool take_leaves(const struct order *order, const struct rword64 *leaves, uint32_t block,
			struct found *found)
{
	const struct table_desc *desc = &order->shard->desc;
	uint32_t gen = block_gen(block_seq(order->headers[block]), desc->blocks);
	uint32_t head = desc->views[order->view].window - 1; /* no item's, whatever stands there */
	bool any = false;

	for (uint32_t k = 0; k < desc->block - head && found->n < found->want; k++) {
		uint32_t i = order->newest_first ? desc->block - 1 - k : head + k;
		uint64_t word = rword64_load_acquire(&leaves[i]); /* V1 pairs with P1 */

		if (leaf_priority(word) == 0 || leaf_gen(word) != gen)
			continue;
		any = true;
		found->slots[found->n] = block * desc->block + i;
		found->words[found->n++] = word;
	}
	return any;
}

static int look_at(struct order *order, uint32_t block, struct found *found)
{
	struct transport *tr = order->shard->tree->tr;
	struct transport_view view = {
		.region = order->shard->tree,
		.off = shard_leaf_off(order->shard, order->view, block * order->shard->desc.block),
		.len = order->shard->desc.block * 8,
	};
	int ret = transport_view(tr, &view, 1);

	if (ret)
		return ret;
	/*
	 * B2 pairs with B1: the header, then its leaves. Closed then, it is closed now, or claimed
	 * under another ticket.
	 */
	if (!take_leaves(order, view.ptr, block, found) && !block_is_open(order->headers[block]))
		order->spent[block] = block_seq(order->headers[block]);
	transport_view_end(tr);
	return 0;
}

int order_find(struct order *order, uint32_t n, uint32_t *slots_out, uint64_t *words_out,
	       uint32_t *found_out)
{
	struct found found = { .slots = slots_out, .words = words_out, .want = n };
	uint64_t last = 0;
	uint32_t block;
	bool first = true;
	int ret = read_headers(order);

	while (ret == 0 && found.n < n && next_block(order, last, first, &block)) {
		ret = look_at(order, block, &found);
		last = block_seq(order->headers[block]);
		first = false;
	}
	if (ret)
		return ret;
	if (found.n == 0)
		return error_set(-ENODATA, "order: the view has no items");
	*found_out = found.n;
	return 0;
}
