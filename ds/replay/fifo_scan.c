#include "ds/replay/fifo_scan.h"

#include "transport/barrier.h"

#include "base/mem/alloc.h"

#include <errno.h>

/* Results of a call so far. */
struct found {
	uint32_t *slots;
	uint64_t *words;
	uint32_t n, want;
};

int fifo_scan_init(struct fifo_scan *scan, struct shard *shard, uint32_t view, bool newest_first)
{
	uint32_t blocks = shard->desc.blocks;

	*scan = (struct fifo_scan){ .shard = shard, .view = view, .newest_first = newest_first };
	scan->headers = mem_array(blocks, sizeof(*scan->headers));
	scan->spent = mem_array(blocks, sizeof(*scan->spent));
	if (!scan->headers || !scan->spent) {
		fifo_scan_fini(scan);
		return error_set(-ENOMEM, "fifo scan: no memory for %u blocks", blocks);
	}
	for (uint32_t b = 0; b < blocks; b++)
		scan->spent[b] = UINT64_MAX; /* never */
	return 0;
}

void fifo_scan_fini(struct fifo_scan *scan)
{
	mem_free(scan->headers);
	mem_free(scan->spent);
	*scan = (struct fifo_scan){ 0 };
}

/*
 * Adds the live leaves of a block to *found until it has enough. If it finds none and the block is
 * closed, scan->spent remembers that.
 */
static int look_at(struct fifo_scan *scan, uint32_t block, struct found *found)
{
	const struct table_desc *desc = &scan->shard->desc;
	struct transport *tr = scan->shard->tree->tr;
	uint64_t header = scan->headers[block];
	uint32_t gen = block_gen(block_seq(header), desc->blocks);
	uint32_t head = desc->views[scan->view].window - 1; /* rows before it hold no item */
	struct transport_view view = {
		.region = scan->shard->tree,
		.off = shard_leaf_off(scan->shard, scan->view, block * desc->block),
		.len = desc->block * 8,
	};
	const struct rword64 *leaves;
	bool any = false;
	int ret = transport_view(tr, &view, 1);

	if (ret)
		return ret;
	leaves = view.ptr;
	for (uint32_t k = 0; k < desc->block - head && found->n < found->want; k++) {
		uint32_t i = scan->newest_first ? desc->block - 1 - k : head + k;
		uint64_t word = rword64_load_acquire(&leaves[i]); /* V1 pairs with P1 */

		if (leaf_priority(word) == 0 || leaf_gen(word) != gen)
			continue;
		any = true;
		found->slots[found->n] = block * desc->block + i;
		found->words[found->n++] = word;
	}
	/*
	 * B2 pairs with B1: the header, then its leaves. A block that was closed then is still
	 * closed, or claimed under another ticket.
	 */
	if (!any && !block_is_open(header))
		scan->spent[block] = block_seq(header);
	transport_view_end(tr);
	return 0;
}

int fifo_scan_find(struct fifo_scan *scan, uint32_t n, uint32_t *slots_out, uint64_t *words_out,
		   uint32_t *found_out)
{
	struct found found = { .slots = slots_out, .words = words_out, .want = n };
	uint32_t blocks = scan->shard->desc.blocks, block = blocks;
	uint64_t last = 0; /* ticket of the block looked at last; it counts from the second on */
	bool any = true;
	int ret = shard_read_headers(scan->shard, scan->headers);

	for (bool first = true; ret == 0 && found.n < n && any; first = false) {
		uint64_t best = 0;

		any = false;
		for (uint32_t b = 0; b < blocks; b++) { /* the next block, or before it for lifo */
			uint64_t seq = block_seq(scan->headers[b]);
			bool later = scan->newest_first ? seq < last : seq > last;
			bool closer = scan->newest_first ? seq > best : seq < best;

			if (scan->headers[b] == 0 || seq == scan->spent[b] || !(first || later) ||
			    (any && !closer))
				continue;
			any = true;
			best = seq;
			block = b;
		}
		if (any)
			ret = look_at(scan, block, &found);
		last = best;
	}
	if (ret)
		return ret;
	if (found.n == 0)
		return error_set(-ENODATA, "fifo scan: the view has no items");
	*found_out = found.n;
	return 0;
}
