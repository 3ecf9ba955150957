/*
 * many.c - gets and puts of many keys: in groups, and in each group one step for each part.
 */
#include "client/kv/stripe.h"

#include "base/bits.h"

#include <errno.h>

struct get_call {
	struct heap_ask asks[HEAP_MANY];
	uint32_t n;
};

struct put_call {
	struct heap_put_ask asks[HEAP_MANY];
	uint32_t n;
};

static int step_get_many(void *ctx, struct heap_access *acc)
{
	struct get_call *call = ctx;

	return heap_get_many(acc, call->asks, call->n);
}

static int step_put_many(void *ctx, struct heap_access *acc)
{
	struct put_call *call = ctx;

	return heap_put_many(acc, call->asks, call->n);
}

/* The element i of an array of a program, whose elements may be larger than ours. */
static struct rlv_kv_item *item_at(struct rlv_kv_item *items, size_t i)
{
	return (void *)((uint8_t *)items + i * items->size);
}

static int items_check(const struct rlv_kv *kv, struct rlv_kv_item *items, size_t n, bool puts)
{
	int ret = 0;

	if (!kv || (n && !items))
		return error_set(-EINVAL, "kv or items is NULL");
	if (n && (items->size < sizeof(*items) || items->size % 8))
		return error_set(-EINVAL, "items[0].size %u: begin with RLV_KV_ITEM_INIT",
				 items->size);
	for (size_t i = 0; ret == 0 && i < n; i++) {
		const struct rlv_kv_item *item = item_at(items, i);
		uint64_t bytes = puts ? item->len : item->room;

		ret = kv_key_check(kv, item->key);
		if (ret == 0 && (item->size != items->size || (bytes && !item->ptr)))
			ret = error_set(-EINVAL, "its size differs, or ptr is NULL");
		if (ret)
			ret = error_prefix(ret, "items[%zu]: ", i);
	}
	return ret;
}

/* Items of a group with their keys. */
struct group {
	struct rlv_kv_item *items[HEAP_MANY];
	struct chain_key keys[HEAP_MANY];
	uint32_t n;
};

/* Those of at most HEAP_MANY items whose keys the part has. */
static void group_of_part(const struct group *all, uint32_t part, uint32_t n_parts,
			  struct group *out)
{
	out->n = 0;
	for (uint32_t i = 0; i < all->n; i++) {
		if (chain_part(all->keys[i].hash, n_parts) != part)
			continue;
		out->items[out->n] = all->items[i];
		out->keys[out->n++] = all->keys[i];
	}
}

/* Reads a value in stripes, alone: its manifest may have been too long for the caller's memory. */
static int ask_stripes(struct rlv_kv *kv, struct heap_ask *ask)
{
	uint8_t none;
	const struct rlv_bytes key = { ask->key.ptr, ask->key.len };
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;

	value.ptr = ask->room.bytes ? ask->room.ptr : &none;
	value.room = ask->room.bytes ? ask->room.bytes : sizeof(none);
	ask->status = rlv_kv_get(kv, key, &value);
	ask->value = (struct heap_value){ .len = value.len, .version = value.version };
	if (ask->status == 0 && value.len > ask->room.bytes)
		ask->status = error_set(-ERANGE, "the value has more bytes than there is room");
	return ask->status == -ENOENT || ask->status == -ERANGE || ask->status == -EBADMSG
		       ? 0
		       : ask->status;
}

static int group_get(struct rlv_kv *kv, const struct group *group, uint32_t part)
{
	struct get_call get; /* not cleared: most groups are smaller */
	const struct kv_call call = { .part = part, .step = step_get_many, .ctx = &get };
	int ret;

	get.n = group->n;
	for (uint32_t i = 0; i < group->n; i++)
		get.asks[i] = (struct heap_ask){
			.key = group->keys[i],
			.room = { group->items[i]->ptr, group->items[i]->room },
		};
	ret = kv_run(kv, &call, kv->store->timeout_ns);
	for (uint32_t i = 0; ret == 0 && i < group->n && kv->stripes; i++)
		if (get.asks[i].value.striped)
			ret = ask_stripes(kv, &get.asks[i]);
	for (uint32_t i = 0; ret == 0 && i < group->n; i++) {
		group->items[i]->status = get.asks[i].status;
		group->items[i]->len = get.asks[i].value.len;
		group->items[i]->version = get.asks[i].value.version;
	}
	return ret;
}

/* Sets each status, also after an error. */
static int group_put(struct rlv_kv *kv, const struct group *group, uint32_t part)
{
	struct put_call put; /* not cleared, as in group_get */
	const struct kv_call call = {
		.part = part, .step = step_put_many, .ctx = &put, .puts = true
	};
	int ret;

	put.n = group->n;
	for (uint32_t i = 0; i < group->n; i++)
		put.asks[i] = (struct heap_put_ask){
			.key = group->keys[i],
			.put = { .value = group->items[i]->ptr,
				 .len = group->items[i]->len,
				 .expected = HEAP_ANY_VERSION },
		};
	ret = kv_run(kv, &call, kv->store->timeout_ns);
	for (uint32_t i = 0; i < group->n; i++) {
		const struct heap_put_ask *ask = &put.asks[i];

		group->items[i]->status = ask->state == HEAP_PUT_DONE       ? ask->status
					  : ask->state == HEAP_PUT_IN_DOUBT ? ret
									    : -ECANCELED;
		if (ask->state == HEAP_PUT_DONE && ask->status == 0)
			group->items[i]->version = ask->version;
	}
	return ret;
}

/* Makes the step for all items. */
static int items_run(struct rlv_kv *kv, struct rlv_kv_item *items, size_t n,
		     int (*step)(struct rlv_kv *kv, const struct group *group, uint32_t part))
{
	struct group all, part;
	int ret = 0;

	for (size_t first = 0; ret == 0 && first < n; first += HEAP_MANY) {
		all.n = (uint32_t)min_u64(n - first, HEAP_MANY);
		for (uint32_t i = 0; i < all.n; i++) {
			struct rlv_bytes key;

			all.items[i] = item_at(items, first + i);
			key = all.items[i]->key;
			all.keys[i] = chain_key(key.ptr, (uint32_t)key.len, kv->desc.seed);
		}
		if (kv->desc.n_parts == 1) {
			ret = step(kv, &all, 0);
			continue;
		}
		for (uint32_t p = 0; ret == 0 && p < kv->desc.n_parts; p++) {
			group_of_part(&all, p, kv->desc.n_parts, &part);
			ret = part.n ? step(kv, &part, p) : 0;
		}
	}
	return ret;
}

int rlv_kv_get_many(struct rlv_kv *kv, struct rlv_kv_item *items, size_t n)
{
	int ret = items_check(kv, items, n, false);

	return ret ? ret : items_run(kv, items, n, group_get);
}

/* In a heap with stripes, where a put has to know what it replaces. */
static int items_put_alone(struct rlv_kv *kv, struct rlv_kv_item *items, size_t n)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < n; i++) {
		struct rlv_kv_item *item = item_at(items, i);

		ret = rlv_kv_put(kv, item->key, (struct rlv_bytes){ item->ptr, item->len },
				 &item->version);
		item->status = ret == 0 || ret == -ERANGE || ret == -ENOSPC || ret == -EBADMSG ||
					       ret == -ETIMEDOUT || ret == -ECONNRESET
				       ? ret
				       : -ECANCELED;
		ret = ret == -ERANGE || ret == -ENOSPC || ret == -EBADMSG ? 0 : ret;
	}
	return ret;
}

int rlv_kv_put_many(struct rlv_kv *kv, struct rlv_kv_item *items, size_t n)
{
	int ret = items_check(kv, items, n, true);

	for (size_t i = 0; ret == 0 && i < n; i++)
		item_at(items, i)->status = -ECANCELED;
	if (ret == 0 && kv->stripes)
		return items_put_alone(kv, items, n);
	return ret ? ret : items_run(kv, items, n, group_put);
}
