#include "client/sampler/grove.h"

#include "base/mem/alloc.h"

#include <errno.h>
#include <string.h>

static void free_orders(struct grove *grove)
{
	for (uint32_t t = 0; grove->orders && t < grove->room; t++)
		order_fini(&grove->orders[t]);
	mem_free(grove->orders);
	grove->orders = NULL;
}

static void free_trees(struct grove *grove)
{
	free_orders(grove);
	mem_free(grove->trees);
	mem_free(grove->forest.epochs);
	mem_free(grove->shard);
	mem_free(grove->sizes);
	grove->sizes = NULL;
	grove->forest = (struct forest){ 0 };
	grove->trees = NULL;
	grove->shard = NULL;
	grove->room = 0;
}

static int no_memory(uint32_t n)
{
	return error_set(-ENOMEM, "sampler: no memory for %u shards", n);
}

static int make_room(struct grove *grove, uint32_t n)
{
	if (n <= grove->room)
		return 0;
	free_trees(grove);
	grove->room = n;
	grove->trees = mem_array(n, sizeof(struct sumtree));
	grove->forest.trees = grove->trees;
	grove->forest.epochs = mem_array(n, sizeof(struct epoch));
	grove->shard = mem_array(n, sizeof(*grove->shard));
	grove->sizes = mem_array(n, sizeof(*grove->sizes));
	return grove->trees && grove->forest.epochs && grove->shard && grove->sizes ? 0
										    : no_memory(n);
}

static int make_counts(struct grove *grove, uint32_t n)
{
	int64_t *items;

	if (n <= grove->n_items)
		return 0;
	items = mem_resize(grove->items, n * sizeof(*items));
	if (!items)
		return no_memory(n);
	memset(items + grove->n_items, 0, (n - grove->n_items) * sizeof(*items));
	grove->items = items;
	grove->n_items = n;
	return 0;
}

/* What orders remember of blocks is remembered anew. */
static int plant_orders(struct grove *grove, const struct node_set *nodes)
{
	uint32_t selector = nodes->desc->views[grove->view].selector;
	int ret = 0;

	if (selector != RLV_FIFO && selector != RLV_LIFO)
		return 0;
	free_orders(grove);
	grove->orders = mem_array(grove->room, sizeof(struct order));
	if (!grove->orders)
		return no_memory(grove->room);
	for (uint32_t t = 0; ret == 0 && t < grove->forest.n; t++)
		ret = order_init(&grove->orders[t], nodes->shards[grove->shard[t]], grove->view,
				 selector == RLV_LIFO);
	return ret;
}

static void plant_tree(struct grove *grove, const struct node_set *nodes, uint32_t s)
{
	const struct shard *shard = nodes->shards[s];
	uint32_t t = grove->forest.n++;

	grove->trees[t] = shard->trees[grove->view];
	epoch_init(&grove->forest.epochs[t], shard->tree, shard->desc.words_off, NULL, 0);
	grove->shard[t] = s;
	grove->sparse |= t != s;
}

int grove_plant(struct grove *grove, const struct node_set *nodes)
{
	int ret = make_room(grove, nodes->n_shards);

	if (ret == 0)
		ret = make_counts(grove, nodes->n_shards);
	if (ret)
		return ret;
	grove->forest.n = 0;
	grove->sparse = false;
	grove->addressable = node_set_is_addressable(nodes);
	for (uint32_t s = 0; s < nodes->n_shards; s++)
		if (nodes->shards[s])
			plant_tree(grove, nodes, s);
	return plant_orders(grove, nodes);
}

int grove_init(struct grove *grove, const struct node_set *nodes, uint32_t view)
{
	*grove = (struct grove){ .view = view };
	return grove_plant(grove, nodes);
}

void grove_fini(struct grove *grove)
{
	free_trees(grove);
	mem_free(grove->items);
	grove->items = NULL;
	grove->n_items = 0;
}

static int count_trees(struct grove *grove)
{
	int ret = 0;

	for (uint32_t t = 0; ret == 0 && t < grove->forest.n; t++)
		ret = sumtree_size(&grove->trees[t], &grove->forest.epochs[t], &grove->sizes[t]);
	return ret;
}

int grove_find(struct grove *grove, uint32_t n, const struct grove_items *out, uint32_t *found_out)
{
	bool newest_first = grove->forest.n && grove->orders[0].newest_first;
	uint32_t all = 0;

	for (uint32_t i = 0; i < grove->forest.n && all < n; i++) {
		uint32_t t = newest_first ? grove->forest.n - 1 - i : i;
		uint32_t found = 0;
		int ret = order_find(&grove->orders[t], n - all, out->slot + all, out->word + all,
				     &found);

		if (ret && ret != -ENODATA)
			return ret;
		for (uint32_t k = all; k < all + found; k++)
			out->shard[k] = t;
		all += found;
	}
	*found_out = all;
	if (all == 0)
		return error_set(-ENODATA, "sample: no item is there");
	return count_trees(grove);
}

int64_t grove_items_lost(const struct grove *grove, const struct node_set *nodes)
{
	int64_t sum = 0;

	for (uint32_t s = 0; s < nodes->n_shards && s < grove->n_items; s++)
		if (nodes->seats[s].state == RLV_SHARD_DOWN ||
		    nodes->seats[s].state == RLV_SHARD_LOST)
			sum += grove->items[s] > 0 ? grove->items[s] : 0;
	return sum;
}
