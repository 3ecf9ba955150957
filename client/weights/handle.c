#include "client/weights/weights.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define EXTENTS_OF_GENERATION 128u /* about, as long as they are not too large */
#define EXTENT_MOST ((uint64_t)16 << 20)
#define EXTENTS_BESIDE 24u /* of tables, manifests and empty entries */
#define NODES_MOST 64u

/* Sizes of the heap: it holds keep + 3 generations, deltas and what readers hold back included. */
static struct rlv_kv_opts weights_heap(const struct rlv_weights_opts *opts)
{
	uint64_t room = opts->bytes + opts->bytes / 64 + (64u << 10), chunks = 1;
	struct rlv_kv_opts heap = RLV_KV_OPTS_INIT;

	heap.extent_bytes = HEAP_EXTENT_LEAST;
	while (heap.extent_bytes < EXTENT_MOST && heap.extent_bytes * EXTENTS_OF_GENERATION < room)
		heap.extent_bytes *= 2;
	chunks += div_up(room, heap.extent_bytes - HEAP_PAGE);
	heap.bytes = (chunks * (opts->keep + 3) + EXTENTS_BESIDE) * heap.extent_bytes;
	/* At most every second generation has two entries. */
	heap.keys = (uint64_t)opts->max_clients * ((opts->keep + opts->anchor_every) * 3 / 2 + 2);
	heap.max_clients = opts->max_clients;
	heap.copies = opts->copies;
	return heap;
}

static int weights_opts_check(struct rlv_weights_opts *opts)
{
	opts->keep = opts->keep ? opts->keep : 2;
	opts->anchor_every = opts->anchor_every ? opts->anchor_every : 8;
	opts->bytes = opts->bytes ? opts->bytes : (uint64_t)64 << 20;
	opts->max_clients = opts->max_clients ? opts->max_clients : 64;
	if (opts->prefault > 1)
		return error_set(-EINVAL, "opts.prefault %u: 0 or 1", opts->prefault);
	if (opts->keep > WEIGHTS_KEEP_MAX)
		return error_set(-EINVAL, "opts.keep %u: at most %u", opts->keep, WEIGHTS_KEEP_MAX);
	if (opts->anchor_every > WEIGHTS_ANCHOR_MAX)
		return error_set(-EINVAL, "opts.anchor_every %u: at most %u", opts->anchor_every,
				 WEIGHTS_ANCHOR_MAX);
	if (opts->bytes > WEIGHTS_MOST)
		return error_set(-EINVAL, "opts.bytes is too large");
	return 0;
}

/* Frees all of a handle. Returns what closing the heap does. */
static int weights_end(struct rlv_generations *weights)
{
	int ret;

	if (weights->kv)
		meta_unwatch(weights->kv->store->meta, &weights->watch);
	ret = rlv_kv_close(&weights->kv);

	weights_buffer_put(weights->current);
	weights_buffer_put(weights->spare);
	mem_free(weights->deltas);
	mem_free(weights->pub.head);
	mem_free(weights->pub.runs);
	mem_free(weights->pub.data);
	mem_free(weights->pub.ties);
	mem_free(weights->pub.scratch);
	weights_shadow_fini(&weights->pub.shadow);
	mem_free(weights);
	return ret;
}

/* Tells the server from now on how far the handle is. Heaps hold back no layout. */
static void weights_watch(struct rlv_generations *weights)
{
	weights->watch.object = &weights->kv->set.object;
	atomic_init(&weights->watch.layout, UINT64_MAX);
	meta_watch(weights->kv->store->meta, &weights->watch);
}

/* Closes the handle behind an error, whose message stays. */
static int weights_fail(struct rlv_generations *weights, const char *name, int error)
{
	struct error_kept kept;

	(void)error_prefix(error, "weights %s: ", name);
	error_keep(&kept);
	(void)weights_end(weights);
	error_restore(&kept);
	return error;
}

/* Puts the empty table of new weights, unless another handle has; then compares. */
static int weights_begin(struct rlv_generations *weights, const struct rlv_weights_opts *opts)
{
	const struct weights_table empty = { .magic = WEIGHTS_TABLE_MAGIC,
					     .keep = opts->keep,
					     .anchor_every = opts->anchor_every,
					     .most = opts->bytes };
	int ret = rlv_kv_put_if(weights->kv, weights_table_key,
				(struct rlv_bytes){ &empty, WEIGHTS_TABLE_HEAD }, 0, NULL);

	/* With copies that put has made us the owner, and another handle may be the one that publishes. */
	if (ret == 0)
		ret = rlv_kv_release(weights->kv);
	if (ret && ret != -ESTALE && ret != -EBUSY)
		return ret;
	ret = weights_refresh(weights);
	if (ret == 0 && (weights->table.keep != opts->keep ||
			 weights->table.anchor_every != opts->anchor_every ||
			 weights->table.most != opts->bytes))
		ret = error_set(
			-EEXIST, "they exist with keep %u, anchor_every %u and bytes %" PRIu64,
			weights->table.keep, weights->table.anchor_every, weights->table.most);
	return ret;
}

/* Where this process maps the parts of the heap. */
static void heap_prefault(const struct rlv_kv *kv)
{
	for (uint32_t s = 0; s < kv->set.n_parts; s++) {
		const struct heap_access *acc = kv->set.states[s];

		if (acc && acc->heap->rows->base)
			pages_populate(acc->heap->rows->base, acc->heap->rows->size);
	}
}

/* Copies of new weights: two, if there are two nodes. */
static uint32_t copies_by_nodes(struct rlv_store *store)
{
	size_t n = NODES_MOST;
	struct rlv_node_info *nodes = mem_array(n, sizeof(nodes[0]));
	uint32_t up = 0;

	if (!nodes || rlv_store_nodes(store, nodes, sizeof(nodes[0]), &n))
		error_clear();
	else
		for (size_t i = 0; i < min_u64(n, NODES_MOST); i++)
			up += nodes[i].state == RLV_NODE_UP;
	mem_free(nodes);
	return up > 1 ? 2 : 1;
}

/* Creates or opens the heap. Whoever created it may have seen other nodes. */
static int heap_get_or_make(struct rlv_store *store, const char *name,
			    const struct rlv_weights_opts *opts, struct rlv_kv **kv_out)
{
	struct rlv_kv_opts heap = weights_heap(opts);
	struct error_kept kept;
	int ret;

	if (!opts->copies)
		heap.copies = copies_by_nodes(store);
	ret = rlv_kv_create(store, name, &heap, kv_out);
	if (ret != -EEXIST || opts->copies)
		return ret;
	error_keep(&kept);
	heap.copies = 3 - heap.copies;
	if (rlv_kv_create(store, name, &heap, kv_out) == 0)
		return 0;
	error_restore(&kept);
	return ret;
}

int rlv_weights_create(struct rlv_store *store, const char *name,
		       const struct rlv_weights_opts *opts, struct rlv_generations **weights_out)
{
	struct rlv_weights_opts full = RLV_WEIGHTS_OPTS_INIT;
	struct rlv_generations *weights;
	int ret;

	if (!store || !name || !weights_out)
		return error_set(-EINVAL, "store, name or weights_out is NULL");
	ret = opts ? abi_read(&full, sizeof(full), opts, "opts.") : 0;
	if (ret == 0)
		ret = weights_opts_check(&full);
	if (ret)
		return ret;
	weights = mem_zalloc(sizeof(*weights));
	if (!weights)
		return error_set(-ENOMEM, "weights: cannot allocate memory");
	ret = heap_get_or_make(store, name, &full, &weights->kv);
	if (ret == 0)
		ret = weights_begin(weights, &full);
	if (ret)
		return weights_fail(weights, name, ret);
	if (full.prefault)
		heap_prefault(weights->kv);
	weights_watch(weights);
	*weights_out = weights;
	return 0;
}

int rlv_weights_open(struct rlv_store *store, const char *name,
		     struct rlv_generations **weights_out)
{
	struct rlv_generations *weights;
	int ret;

	if (!store || !name || !weights_out)
		return error_set(-EINVAL, "store, name or weights_out is NULL");
	weights = mem_zalloc(sizeof(*weights));
	if (!weights)
		return error_set(-ENOMEM, "weights: cannot allocate memory");
	ret = rlv_kv_open(store, name, &weights->kv);
	if (ret == 0) {
		ret = weights_refresh(weights);
		if (ret == -ENOENT)
			ret = error_set(-ENOENT, "the heap of that name has no weights");
	}
	if (ret)
		return weights_fail(weights, name, ret);
	weights_watch(weights);
	*weights_out = weights;
	return 0;
}

int rlv_weights_limit(struct rlv_generations *weights, uint64_t bytes)
{
	struct rlv_kv *kv;

	if (!weights)
		return error_set(-EINVAL, "weights is NULL");
	if (bytes && bytes < HEAP_WINDOW_LEAST)
		return error_set(-EINVAL, "bytes %" PRIu64 ": 0, or at least %" PRIu64, bytes,
				 HEAP_WINDOW_LEAST);
	kv = weights->kv;
	kv->window_bytes = align_down(bytes, 8);
	for (uint32_t s = 0; s < kv->set.n_parts; s++) {
		struct heap_access *acc = kv->set.states[s];

		if (acc)
			acc->window_bytes = kv->window_bytes;
	}
	return 0;
}

int rlv_weights_check(struct rlv_generations *weights, uint32_t check)
{
	if (!weights)
		return error_set(-EINVAL, "weights is NULL");
	if (check > RLV_CHECK_FULL)
		return error_set(-EINVAL, "check %u: RLV_CHECK_CHANGES or RLV_CHECK_FULL", check);
	if (check == RLV_CHECK_FULL && !weights->check_full) {
		/* Nobody added up what they have. */
		weights_buffer_put(weights->current);
		weights_buffer_put(weights->spare);
		weights->current = weights->spare = NULL;
	}
	weights->check_full = check == RLV_CHECK_FULL;
	return 0;
}

int rlv_weights_close(struct rlv_generations **weights)
{
	int ret;

	if (!weights || !*weights)
		return 0;
	if (atomic_load_explicit(&(*weights)->kv->n_views, memory_order_acquire))
		return error_set(-EBUSY, "weights: mapped generations are not released yet");
	ret = weights_end(*weights);
	*weights = NULL;
	return ret;
}

int rlv_weights_info(struct rlv_generations *weights, struct rlv_weights_info *info_out)
{
	struct rlv_kv_info heap = RLV_KV_INFO_INIT;
	struct rlv_weights_info info;
	int ret;

	if (!weights || !info_out)
		return error_set(-EINVAL, "weights or info_out is NULL");
	ret = abi_check(info_out, "info_out->");
	if (ret == 0)
		ret = weights_refresh(weights);
	if (ret == 0)
		ret = rlv_kv_info(weights->kv, &heap);
	if (ret)
		return ret;
	info = weights->stats;
	info.generations = weights->table.n;
	if (weights->table.n) {
		info.version = weights->table.gens[0].version;
		info.oldest = weights->table.gens[weights->table.n - 1].version;
	}
	if (weights->table.n)
		info.publish_lag = weights->table.gens[0].seq - weights->has;
	info.keep = weights->table.keep;
	info.anchor_every = weights->table.anchor_every;
	info.round_trips = heap.round_trips;
	info.read_bytes = heap.read_bytes;
	info.write_bytes = heap.write_bytes;
	abi_write(info_out, &info, sizeof(info));
	return 0;
}
