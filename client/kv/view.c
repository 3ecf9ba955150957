#include "client/kv/view.h"

#include <errno.h>
#include <unistd.h>

/* -------- mappings -------- */

/* True if the shares can be mapped side by side. */
static bool view_joins(const struct region *rows, const struct heap_manifest *manifest)
{
	uint64_t bits = manifest->n > 1 ? manifest->share : 0;

	for (uint32_t i = 0; i < manifest->n; i++)
		bits |= (uintptr_t)rows->base + heap_share_off(manifest, i);
	return bits % (uint64_t)sysconf(_SC_PAGESIZE) == 0;
}

static int view_map_shares(const struct region *rows, struct kv_view *view)
{
	const struct heap_manifest *manifest = view->hold.manifest;
	/* As many pages as the value has, from the first share on, of which the other shares then take theirs. */
	int ret = pages_view_open(rows->base + heap_share_off(manifest, 0), view->hold.len, false,
				  &view->value);

	for (uint32_t i = 1; ret == 0 && i < manifest->n; i++) {
		ret = pages_view_set(&view->value, i * manifest->share,
				     rows->base + heap_share_off(manifest, i),
				     heap_share(view->hold.len, manifest->share, i));
		if (ret)
			pages_view_close(&view->value);
	}
	return ret;
}

/* Maps the shares, and the line that has the hold. */
static int view_map(const struct heap_access *acc, struct kv_view *view)
{
	const struct region *rows = acc->heap->rows, *tree = acc->heap->tree;
	const struct heap_manifest *manifest = view->hold.manifest;
	int ret;

	for (uint32_t i = 0; i < manifest->n; i++)
		if (heap_share_off(manifest, i) + heap_share(view->hold.len, manifest->share, i) >
		    rows->size)
			return error_set(-EBADMSG, "heap %s: a manifest is damaged",
					 acc->heap->desc.name);
	ret = view_map_shares(rows, view);
	if (ret)
		return ret;
	ret = pages_view_open(tree->base + heap_pin_off(acc->owner), sizeof(struct heap_pin), true,
			      &view->line);
	if (ret)
		pages_view_close(&view->value);
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
	bool joins;

	if (ret || !view->hold.manifest)
		return ret;
	joins = view_joins(acc->heap->rows, view->hold.manifest);
	if (joins)
		ret = view_map(acc, view);
	if (joins && ret == 0)
		return 0;
	heap_hold_end((const void *)(acc->heap->tree->base + heap_pin_off(acc->owner)),
		      &view->hold);
	mem_free((void *)view->hold.manifest);
	view->hold.manifest = NULL;
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
		pages_view_close(&view->value);
		pages_view_close(&view->line);
	}
	mem_free((void *)view->hold.manifest);
	/* The handle may be freed when it has no views. */
	atomic_fetch_sub_explicit(&view->kv->n_views, 1, memory_order_release);
}
