#include "client/kv/view.h"

#include "base/bits.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* -------- mappings -------- */

/* Maps the chunks, and the line that has the hold. */
static int view_map(const struct heap_access *acc, struct kv_view *view)
{
	const struct region *rows = acc->heap->rows, *tree = acc->heap->tree;
	const struct heap_manifest *manifest = view->hold.manifest;
	uint64_t first = UINT64_MAX, end = 0;
	int ret;

	for (uint32_t i = 0; i < manifest->n; i++) {
		uint64_t place = heap_manifest_place(manifest, i);

		first = min_u64(first, place);
		end = max_u64(end, place + sizeof(struct heap_entry) +
					   heap_share(view->hold.len, manifest->share, i));
	}
	if (end > rows->size)
		return error_set(-EBADMSG, "heap %s: a manifest is damaged", acc->heap->desc.name);
	ret = pages_view_open(rows->base + first, end - first, false, &view->rows);
	if (ret)
		return ret;
	view->rows_off = first;
	ret = pages_view_open(tree->base + heap_pin_off(acc->owner), sizeof(struct heap_pin), true,
			      &view->line);
	if (ret)
		pages_view_close(&view->rows);
	return ret;
}

/* -------- open, close -------- */

struct view_call {
	struct chain_key key;
	struct kv_view *view;
};

static int step_view(void *ctx, struct heap_access *acc)
{
	struct view_call *call = ctx;
	struct kv_view *view = call->view;
	int ret = heap_hold(acc, &call->key, &view->hold);

	if (ret || !view->hold.manifest)
		return ret;
	ret = view_map(acc, view);
	if (ret == 0)
		return 0;
	heap_hold_end((const void *)(acc->heap->tree->base + heap_pin_off(acc->owner)),
		      &view->hold);
	mem_free((void *)view->hold.manifest);
	return ret;
}

int kv_view_open(struct rlv_kv *kv, struct rlv_bytes key, struct kv_view *out)
{
	struct view_call call = { .view = out };
	struct kv_call how = { .step = step_view, .ctx = &call };
	int ret = kv_key_check(kv, key);

	if (ret)
		return ret;
	if (kv->desc.copies > 1)
		return error_set(-ENOTSUP, "heap %s: values with copies are not mapped",
				 kv->desc.name);
	*out = (struct kv_view){ .kv = kv, .pid = getpid() };
	call.key = chain_key(key.ptr, (uint32_t)key.len, kv->desc.seed);
	how.part = chain_part(call.key.hash, kv->desc.n_parts);
	ret = kv_run(kv, &how, kv->store->timeout_ns);
	if (ret == 0 && out->hold.manifest)
		atomic_fetch_add_explicit(&kv->n_views, 1, memory_order_relaxed);
	return ret;
}

void kv_view_close(struct kv_view *view)
{
	/* A forked child has neither the hold nor the mappings, which stay out of it as those of regions do. */
	if (view->pid == getpid()) {
		heap_hold_end(view->line.at, &view->hold);
		pages_view_close(&view->rows);
		pages_view_close(&view->line);
	}
	mem_free((void *)view->hold.manifest);
	/* The handle may be freed when it has no views. */
	atomic_fetch_sub_explicit(&view->kv->n_views, 1, memory_order_release);
}

/* -------- bytes -------- */

/* Where the bytes from that offset on are; *n_out: how many of them are in that chunk. */
static const uint8_t *view_find(const struct kv_view *view, uint64_t off, uint64_t *n_out)
{
	const struct heap_manifest *manifest = view->hold.manifest;
	uint32_t i = (uint32_t)(off / manifest->share);
	uint64_t at = off % manifest->share;

	*n_out = heap_share(view->hold.len, manifest->share, i) - at;
	return (const uint8_t *)view->rows.at + heap_manifest_place(manifest, i) - view->rows_off +
	       sizeof(struct heap_entry) + at;
}

const void *kv_view_at(const struct kv_view *view, uint64_t off, uint64_t n)
{
	uint64_t there;
	const uint8_t *at;

	if (off >= view->hold.len)
		return NULL;
	at = view_find(view, off, &there);
	return n <= there ? at : NULL;
}

void kv_view_copy(const struct kv_view *view, uint64_t off, uint64_t n, void *to)
{
	uint8_t *out = to;

	while (n) {
		uint64_t there;
		const uint8_t *from = view_find(view, off, &there);

		there = min_u64(there, n);
		memcpy(out, from, there);
		out += there;
		off += there;
		n -= there;
	}
}
