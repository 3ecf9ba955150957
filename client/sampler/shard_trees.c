#include "client/sampler/shard_trees.h"

#include "base/mem/alloc.h"

#include <errno.h>
#include <string.h>

static void shard_trees_free_orders(struct shard_trees *trees)
{
	for (uint32_t t = 0; trees->orders && t < trees->room; t++)
		fifo_scan_fini(&trees->orders[t]);
	mem_free(trees->orders);
	trees->orders = NULL;
}

static void shard_trees_free(struct shard_trees *trees)
{
	shard_trees_free_orders(trees);
	mem_free(trees->trees);
	mem_free(trees->forest.epochs);
	mem_free(trees->shard);
	mem_free(trees->sizes);
	trees->sizes = NULL;
	trees->forest = (struct forest){ .tops = trees->forest.tops };
	trees->trees = NULL;
	trees->shard = NULL;
	trees->room = 0;
}

static int shard_trees_no_memory(uint32_t n)
{
	return error_set(-ENOMEM, "sampler: cannot allocate memory for %u shards", n);
}

int shard_trees_build(struct shard_trees *trees, const struct part_set *set)
{
	uint32_t selector = ((const struct table_desc *)set->desc)->views[trees->view].selector;
	uint32_t n = set->n_parts;
	int ret = 0;

	if (!trees->forest.tops)
		ret = sumtree_tops_open(&trees->forest.tops);
	if (ret)
		return ret;
	if (n > trees->room) {
		shard_trees_free(trees);
		trees->room = n;
		trees->trees = mem_array(n, sizeof(struct sumtree));
		trees->forest.trees = trees->trees;
		trees->forest.epochs = mem_array(n, sizeof(struct epoch));
		trees->shard = mem_array(n, sizeof(*trees->shard));
		trees->sizes = mem_array(n, sizeof(*trees->sizes));
		if (!trees->trees || !trees->forest.epochs || !trees->shard || !trees->sizes)
			return shard_trees_no_memory(n);
	}
	if (n > trees->n_items) {
		if (!mem_grow(&trees->items, trees->n_items, n, sizeof(*trees->items)) ||
		    !mem_grow(&trees->places, trees->n_items, n, sizeof(*trees->places)))
			return shard_trees_no_memory(n);
		trees->n_items = n;
	}
	trees->forest.n = 0;
	sumtree_tops_forget(trees->forest.tops);
	trees->sparse = false;
	trees->addressable = part_set_is_addressable(set);
	for (uint32_t s = 0; s < n; s++) {
		const struct shard *shard;
		uint32_t t;

		if (!set->parts[s])
			continue;
		shard = shard_of(set->parts[s]);
		t = trees->forest.n++;
		trees->trees[t] = shard->trees[trees->view];
		epoch_init(&trees->forest.epochs[t], &shard->part, 0);
		trees->shard[t] = s;
		trees->sparse |= t != s;
		if (shard->tree->base && shard->rows->base)
			trees->places[s] = (struct shard_place){
				shard->tree->base + shard_leaf_off(shard, trees->view, 0),
				shard->rows->base + ROWS_OFF,
			};
	}
	if (selector != RLV_FIFO && selector != RLV_LIFO)
		return trees->forest.n ? sumtree_tops_fit(trees->forest.tops, &trees->forest) : 0;
	/* What orders remember of blocks is remembered anew. */
	shard_trees_free_orders(trees);
	trees->orders = mem_array(trees->room, sizeof(struct fifo_scan));
	if (!trees->orders)
		return shard_trees_no_memory(n);
	for (uint32_t t = 0; ret == 0 && t < trees->forest.n; t++)
		ret = fifo_scan_init(&trees->orders[t], shard_of(set->parts[trees->shard[t]]),
				     trees->view, selector == RLV_LIFO);
	return ret;
}

void shard_trees_fini(struct shard_trees *trees)
{
	shard_trees_free(trees);
	sumtree_tops_close(&trees->forest.tops);
	mem_free(trees->items);
	mem_free(trees->places);
	trees->items = NULL;
	trees->places = NULL;
	trees->n_items = 0;
}

int shard_trees_find(struct shard_trees *trees, uint32_t n, const struct shard_trees_items *out,
		     uint32_t *found_out)
{
	bool newest_first = trees->forest.n && trees->orders[0].newest_first;
	uint32_t all = 0;
	int ret = 0;

	for (uint32_t i = 0; i < trees->forest.n && all < n; i++) {
		uint32_t t = newest_first ? trees->forest.n - 1 - i : i;
		uint32_t found = 0;

		ret = fifo_scan_find(&trees->orders[t], n - all, out->slot + all, out->word + all,
				     &found);

		if (ret && ret != -ENODATA)
			return ret;
		for (uint32_t k = all; k < all + found; k++)
			out->shard[k] = t;
		all += found;
	}
	*found_out = all;
	if (all == 0)
		return error_set(-ENODATA, "sample: the view has no items");
	ret = 0;
	for (uint32_t t = 0; ret == 0 && t < trees->forest.n; t++)
		ret = sumtree_size(&trees->trees[t], &trees->forest.epochs[t], &trees->sizes[t]);
	return ret;
}

int64_t shard_trees_items_lost(const struct shard_trees *trees, const struct part_set *set)
{
	int64_t sum = 0;

	for (uint32_t s = 0; s < set->n_parts && s < trees->n_items; s++)
		if (part_set_is_away(set, s))
			sum += trees->items[s] > 0 ? trees->items[s] : 0;
	return sum;
}
