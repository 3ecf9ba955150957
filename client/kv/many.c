/*
 * many.c - gets of many keys: in groups, and in each group one step for each part.
 */
#include "client/kv/kv.h"

#include "base/bits.h"

#include <errno.h>

struct many_call {
	struct heap_ask asks[HEAP_MANY];
	struct rlv_kv_item *items[HEAP_MANY];
	uint32_t n;
};

static int step_many(void *ctx, struct heap_access *acc)
{
	struct many_call *call = ctx;

	return heap_get_many(acc, call->asks, call->n);
}

/* The element i of an array of a program, whose elements may be larger than ours. */
static struct rlv_kv_item *item_at(struct rlv_kv_item *items, size_t i)
{
	return (void *)((uint8_t *)items + i * items->size);
}

static int items_check(const struct rlv_kv *kv, struct rlv_kv_item *items, size_t n)
{
	int ret = 0;

	if (!kv || (n && !items))
		return error_set(-EINVAL, "kv or items is NULL");
	if (n && (items->size < sizeof(*items) || items->size % 8))
		return error_set(-EINVAL, "items[0].size %u: begin with RLV_KV_ITEM_INIT",
				 items->size);
	for (size_t i = 0; ret == 0 && i < n; i++) {
		const struct rlv_kv_item *item = item_at(items, i);

		ret = kv_key_check(kv, item->key);
		if (ret == 0 && (item->size != items->size || (item->room && !item->ptr)))
			ret = error_set(-EINVAL, "its size differs, or ptr is NULL");
		if (ret)
			ret = error_prefix(ret, "items[%zu]: ", i);
	}
	return ret;
}

static void many_add(struct many_call *call, const struct chain_key *key, struct rlv_kv_item *item)
{
	call->items[call->n] = item;
	call->asks[call->n++] = (struct heap_ask){
		.key = *key,
		.room = { item->ptr, item->room },
	};
}

static int many_run(struct rlv_kv *kv, struct many_call *of, uint32_t part)
{
	const struct kv_call call = { .part = part, .step = step_many, .ctx = of };
	int ret = of->n ? kv_run(kv, &call, kv->store->timeout_ns) : 0;

	for (uint32_t i = 0; ret == 0 && i < of->n; i++) {
		of->items[i]->status = of->asks[i].status;
		of->items[i]->len = of->asks[i].value.len;
		of->items[i]->version = of->asks[i].value.version;
	}
	return ret;
}

int rlv_kv_get_many(struct rlv_kv *kv, struct rlv_kv_item *items, size_t n)
{
	struct chain_key keys[HEAP_MANY];
	struct many_call call;
	int ret = items_check(kv, items, n);

	for (size_t first = 0; ret == 0 && first < n; first += HEAP_MANY) {
		size_t k = min_u64(n - first, HEAP_MANY);

		for (size_t i = 0; i < k; i++) {
			struct rlv_bytes key = item_at(items, first + i)->key;

			keys[i] = chain_key(key.ptr, (uint32_t)key.len, kv->desc.seed);
		}
		for (uint32_t part = 0; ret == 0 && part < kv->desc.n_parts; part++) {
			call.n = 0;
			for (size_t i = 0; i < k; i++)
				if (chain_part(keys[i].hash, kv->desc.n_parts) == part)
					many_add(&call, &keys[i], item_at(items, first + i));
			ret = many_run(kv, &call, part);
		}
	}
	return ret;
}
