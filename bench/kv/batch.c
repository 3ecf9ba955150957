#include "bench/kv/batch.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem/alloc.h"
#include "bench/harness/yardstick.h"

int kv_batch_init(struct kv_batch *batch, uint64_t room)
{
	batch->room = room;
	batch->memory = mem_zalloc(KV_BATCH * room);
	return batch->memory ? 0 : -ENOMEM;
}

void kv_batch_fini(struct kv_batch *batch)
{
	mem_free(batch->memory);
}

int kv_batch_add(struct kv_batch *batch, struct rlv_kv *kv, struct rlv_bytes key,
		 struct rlv_bytes value)
{
	struct rlv_kv_item *item = &batch->items[batch->n];
	uint8_t *memory = batch->memory + batch->n * batch->room;

	*item = (struct rlv_kv_item)RLV_KV_ITEM_INIT;
	memcpy(batch->keys[batch->n], key.ptr, key.len);
	item->key = (struct rlv_bytes){ batch->keys[batch->n], key.len };
	item->ptr = memory;
	if (value.ptr) { /* it lies there already; the program changes a word of it, as for single puts */
		memcpy(memory, value.ptr, min_u64(value.len, sizeof(uint64_t)));
		item->len = value.len;
	} else {
		item->room = batch->room;
	}
	return ++batch->n < KV_BATCH ? 0 : kv_batch_flush(batch, kv);
}

int kv_batch_flush(struct kv_batch *batch, struct rlv_kv *kv)
{
	uint32_t n = batch->n;
	int ret;

	batch->n = 0;
	if (!n)
		return 0;
	ret = batch->items[0].room ? rlv_kv_get_many(kv, batch->items, n)
				   : rlv_kv_put_many(kv, batch->items, n);
	yardstick_use(batch->memory);
	for (uint32_t i = 0; ret == 0 && i < n; i++)
		ret = batch->items[i].status;
	return ret;
}
