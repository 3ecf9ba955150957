#include "client/kv/copies.h"
#include "client/kv/filler.h"
#include "client/kv/stripe.h"

#include "ds/part/slot.h"
#include "ds/replay/table_desc.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"

#include <errno.h>
#include <string.h>

static const struct part_kind heap_kind = {
	.object = "heap",
	.part = "part",
	.max_parts = OBJECT_MAX_PARTS,
	.open = heap_open_part,
	.close = heap_close_part,
};

/* -------- parts that come and go -------- */

/* A call of the coordinator, of mode central. */
static int kv_ask(const struct heap_access *acc, struct central_call *call)
{
	struct rlv_kv *kv = acc->link.ctx;
	struct meta *meta = kv->store->meta;

	return meta->ops->heap_call(meta, &kv->set.object, acc, call);
}

/*
 * Opens the access to a part. In a part that returned the extents that were ours become orphans: which
 * of their slots are free was only known to the access that ended. Without an access if the slot there
 * is another client's now.
 */
static int kv_attach(void *ctx, uint32_t p, bool returned, void **access_out)
{
	struct rlv_kv *kv = ctx;
	struct heap *heap = heap_of(kv->set.parts[p]);
	struct heap_access *acc;
	struct slot_info slot;
	int ret = 0;

	if (returned && kv->slot.owner) {
		ret = slot_read(&heap->part, kv->slot.owner - 1, &slot);
		if (ret)
			return ret;
		kv->fenced |= slot.state != SLOT_LIVE || slot.lease != kv->slot.lease;
		if (kv->fenced)
			return 0;
		ret = heap_settle_self(heap, kv->slot.owner);
		if (ret)
			return ret;
	}
	acc = mem_alloc(sizeof(*acc));
	if (!acc)
		return error_set(-ENOMEM, "heap: cannot allocate memory");
	ret = heap_access_open(acc, heap, kv->slot.owner);
	acc->window_bytes = kv->window_bytes;
	acc->link = (struct central_link){ .ask = kv_ask, .ctx = kv, .part = p };
	if (ret)
		mem_free(acc);
	else
		*access_out = acc;
	return ret;
}

/* Between two calls the program may still read what the last one gave it. */
static void kv_keep(struct rlv_kv *kv, struct heap_access *acc)
{
	if (!kv->filler.fills || kv->last != acc)
		return;
	kv->kept[0] = acc->stage;
	kv->kept[1] = acc->large;
	acc->stage = acc->large = NULL;
	kv->last = NULL;
}

static void kv_detach(void *ctx, uint32_t p, void *access)
{
	(void)p;
	kv_copies_forget(access);
	kv_keep(ctx, access);
	heap_access_close(access);
	mem_free(access);
}

static bool part_serves(struct rlv_kv *kv, uint32_t s)
{
	bool whole = s < heap_cut(&kv->desc);

	if (!whole && kv->set.parts[s] && heap_is_whole(heap_of(kv->set.parts[s]), &whole))
		error_clear(); /* its node went: the next look sees it */
	return whole;
}

/* Finds which of the catalog's parts has each part now: the first one that did not go. */
static int kv_moved(void *ctx)
{
	struct rlv_kv *kv = ctx;

	for (uint32_t p = 0; p < kv->desc.n_parts; p++) {
		uint32_t s = p;

		while (s < kv->set.n_parts && kv_part_is_gone(kv, s))
			s += kv->desc.n_parts;
		kv->at[p] = s < kv->set.n_parts && part_serves(kv, s) ? s : KV_NOWHERE;
	}
	return 0;
}

static const struct part_hooks kv_hooks = { .attach = kv_attach,
					    .detach = kv_detach,
					    .moved = kv_moved };

/* -------- open, close -------- */

/* Closes what is open and returns the slot; kept: the error that is the caller's. */
static int kv_end(struct rlv_kv *kv, bool keep_error)
{
	struct meta *meta = kv->store->meta;
	struct meta_object object = kv->set.object;
	bool forked = part_set_is_forked(&kv->set);
	struct error_kept kept;
	bool away;
	int ret = 0;

	error_keep(&kept);
	kv_turns_fini(kv, forked);
	/* In a part out of our reach a write may still be under way: into memory that another client
	   would get with our slot. The end of this process ends it for sure. */
	away = !forked && part_set_drop(&kv->set) + kv->set.n_away > 0;
	if (!forked)
		kv_copies_fini(kv);
	part_set_detach(&kv->set, kv_detach);
	part_set_close(&kv->set);
	kv_copies_free(kv);
	kv_stripes_fini(kv);
	if (kv->slot.owner && away)
		log_warn(
			"heap %s: slot %u stays taken until this process ends: a part is out of reach",
			kv->desc.name, kv->slot.owner);
	else if (kv->slot.owner && !kv->fenced && !forked)
		ret = meta->ops->slot_put(meta, &object, &kv->slot, 0);
	if (ret && keep_error)
		log_warn("heap %s: cannot return slot %u: %s", kv->desc.name, kv->slot.owner,
			 error_last());
	if (keep_error)
		error_restore(&kept);
	return ret;
}

/* Takes a slot, unless the store is read-only, and opens the parts. */
static int kv_connect(struct rlv_kv *kv, const struct meta_object *object, uint64_t deadline_ns)
{
	struct meta *meta = kv->store->meta;
	bool reads = kv->store->read_only || meta->reader;
	struct part_set like = { .meta = meta,
				 .object = *object,
				 .kind = &heap_kind,
				 .desc = &kv->desc,
				 .hooks = &kv_hooks,
				 .ctx = kv };
	struct meta_opened opened;
	int ret = reads ? 0 : meta->ops->slot_get(meta, object, 1, 0, &kv->slot);

	if (ret)
		return ret;
	like.access = (struct meta_access){ reads ? PART_READS : PART_WRITES, kv->slot.owner };
	kv->set.object = *object;
	ret = meta->ops->open(meta, object, &like.access, 0, &opened);
	if (ret == 0) {
		ret = part_set_open(&like, &opened.place, deadline_ns, &kv->set);
		meta_opened_fini(&opened);
	}
	if (ret == 0)
		ret = kv_copies_init(kv);
	if (ret == 0)
		ret = kv_stripes_init(kv);
	if (ret == 0)
		ret = part_set_attach(&kv->set);
	if (ret == 0 && kv->set.n_parts < heap_cut(&kv->desc))
		ret = error_set(-EPROTO,
				"answer of the metadata server: heap %s has %u parts, not %u",
				kv->desc.name, kv->set.n_parts, heap_cut(&kv->desc));
	if (ret) {
		(void)kv_end(kv, true);
		return ret;
	}
	(void)kv_moved(kv);
	(void)kv_stripes_settle(kv);
	return 0;
}

/* Makes a handle of an opened object. Frees opened. */
static int kv_wrap(struct rlv_store *store, struct meta_opened *opened, uint64_t deadline_ns,
		   void **kv_out)
{
	struct rlv_kv *kv = mem_zalloc(sizeof(*kv));
	struct meta_object object = opened->object;
	int ret = kv ? 0 : error_set(-ENOMEM, "heap: cannot allocate memory");

	if (ret == 0 && opened->desc_bytes != sizeof(kv->desc))
		ret = error_set(-EPROTO,
				"answer of the metadata server: a heap descriptor has %zu bytes, "
				"want %zu",
				opened->desc_bytes, sizeof(kv->desc));
	if (ret == 0) {
		memcpy(&kv->desc, opened->desc, sizeof(kv->desc));
		ret = heap_desc_check(&kv->desc);
	}
	meta_opened_fini(opened);
	if (ret == 0) {
		kv->store = store;
		ret = kv_connect(kv, &object, deadline_ns);
	}
	if (ret) {
		mem_free(kv);
		return ret;
	}
	atomic_fetch_add_explicit(&store->open_tables, 1, memory_order_relaxed); /* a count */
	*kv_out = kv;
	return 0;
}

static int kv_get(struct rlv_store *store, const struct meta_wish *wish, struct rlv_kv **kv_out)
{
	void *handle;
	int ret = store_get_object(store, wish, kv_wrap, &handle);

	if (ret == 0)
		*kv_out = handle;
	return ret;
}

int rlv_kv_create(struct rlv_store *store, const char *name, const struct rlv_kv_opts *opts,
		  struct rlv_kv **kv_out)
{
	struct rlv_kv_opts full = RLV_KV_OPTS_INIT;
	struct heap_desc desc;
	const struct meta_wish wish = {
		.kind = OBJECT_HEAP, .name = name, .desc = &desc, .desc_bytes = sizeof(desc)
	};
	struct heap_wish plan;
	int ret;

	if (!store || !name || !kv_out)
		return error_set(-EINVAL, "store, name or kv_out is NULL");
	ret = opts ? abi_read(&full, sizeof(full), opts, "opts.") : 0;
	if (ret == 0)
		ret = table_name_check(name);
	if (ret)
		return ret;
	if (store->read_only)
		return error_set(-EACCES, "store was opened read-only");
	plan = (struct heap_wish){ .name = name,
				   .keys = full.keys ? full.keys : 65536,
				   .bytes = full.bytes ? full.bytes : (uint64_t)64 << 20,
				   .extent_bytes = full.extent_bytes,
				   .mode = full.mode,
				   .n_parts = full.parts ? full.parts : 1,
				   .copies = full.copies,
				   .writers = full.writers,
				   .stripe_bytes = full.stripe_bytes,
				   .max_clients = full.max_clients ? full.max_clients : 64 };
	ret = heap_plan(&plan, &desc);
	return ret ? error_prefix(ret, "heap %s: ", name) : kv_get(store, &wish, kv_out);
}

int rlv_kv_open(struct rlv_store *store, const char *name, struct rlv_kv **kv_out)
{
	const struct meta_wish wish = { .kind = OBJECT_HEAP, .name = name };
	int ret;

	if (!store || !name || !kv_out)
		return error_set(-EINVAL, "store, name or kv_out is NULL");
	ret = table_name_check(name);
	return ret ? ret : kv_get(store, &wish, kv_out);
}

int rlv_kv_close(struct rlv_kv **kv)
{
	int ret;

	if (!kv || !*kv)
		return 0;
	kv_stripes_try(*kv);
	ret = kv_end(*kv, false);
	atomic_fetch_sub_explicit(&(*kv)->store->open_tables, 1,
				  memory_order_relaxed); /* a count */
	mem_free(*kv);
	*kv = NULL;
	return ret;
}

int rlv_kv_drop(struct rlv_store *store, const char *name)
{
	return store_drop_object(store, OBJECT_HEAP, name);
}

int rlv_store_kvs(struct rlv_store *store, char (*names)[RLV_NAME_BYTES], size_t *n_inout)
{
	return store_list_objects(store, OBJECT_HEAP, names, n_inout);
}

/* -------- calls -------- */

int kv_seek(struct rlv_kv *kv)
{
	struct error_kept kept;
	int ret = 0;

	error_keep(&kept);
	if (clock_now_ns(kv->set.clock) >= kv->set.ask_ns)
		ret = part_set_heal(&kv->set);
	if (ret)
		return ret;
	error_restore(&kept);
	return -EAGAIN;
}

/* One attempt. *doubt_out: a put that may have been done. */
static int kv_try(struct rlv_kv *kv, const struct kv_call *call, bool *doubt_out)
{
	struct heap_access *acc = NULL;
	int ret = part_set_enter(&kv->set);

	*doubt_out = false;
	if (ret == 0 && kv->owned)
		ret = kv_copy(kv, call->part, call->puts, &acc);
	else if (ret == 0)
		acc = kv_access(kv, call->part);
	if (ret)
		return ret;
	if (!acc && kv->fenced)
		return error_set(-EOWNERDEAD,
				 "heap %s: this handle was fenced: close it and open again",
				 kv->desc.name);
	if (!acc)
		return error_set(-EHOSTDOWN, "heap %s: part %u of %u, which has the key, is away",
				 kv->desc.name, call->part, kv->desc.n_parts);
	kv->last = acc;
	acc->in_doubt = acc->away = false;
	acc->chunk_bytes = 0;
	ret = call->step(call->ctx, acc);
	*doubt_out = ret && acc->in_doubt;
	if (ret && call->puts && kv->owned)
		kv_copies_failed(kv, call->part, ret);
	else if (call->puts && kv->owned)
		kv_copies_go_on(kv, call->part, acc->chunk_bytes);
	return ret == -EAGAIN && acc->away ? kv_seek(kv) : ret;
}

/* Starts the time of a call; returns its deadline. */
static uint64_t kv_begin(struct rlv_kv *kv, int64_t timeout_ns)
{
	uint64_t deadline_ns = deadline_after(kv->set.clock, timeout_ns);

	part_set_begin(&kv->set, deadline_ns, 200 * CLOCK_NS_PER_MS);
	return deadline_ns;
}

int kv_enter(struct rlv_kv *kv, int64_t timeout_ns)
{
	(void)kv_begin(kv, timeout_ns);
	return part_set_enter(&kv->set);
}

/* kv_run, in the handle's turn. */
static int kv_run_on(struct rlv_kv *kv, const struct kv_call *call, int64_t timeout_ns)
{
	struct backoff backoff = { .first_ns = 20000, .doublings = 6 }; /* to 1.28 ms */
	bool in_place =
		part_set_is_addressable(&kv->set); /* then a call that is done needs no clock */
	bool doubt, waits, begun = false;
	uint64_t deadline_ns = 0;
	int ret;

	for (;;) {
		if (!begun && !in_place) {
			deadline_ns = kv_begin(kv, timeout_ns);
			begun = true;
		}
		ret = kv_try(kv, call, &doubt);
		if (ret == 0 || ret == -ECHILD || ret == -ESTALE)
			return ret;
		if (!begun)
			deadline_ns = kv_begin(kv, timeout_ns);
		begun = true;
		if (doubt)
			return error_prefix(ret == -ETIMEDOUT ? ret : -ECONNRESET,
					    "whether it was put is not known: ");
		waits = ret == -EAGAIN || ret == -EHOSTDOWN;
		if (call->once || (!waits && !part_set_has_broken(&kv->set)) ||
		    deadline_expired(kv->set.clock, deadline_ns))
			return ret;
		if (waits)
			backoff_sleep(&backoff, kv->set.clock, deadline_ns);
	}
}

int kv_run(struct rlv_kv *kv, const struct kv_call *call, int64_t timeout_ns)
{
	int ret = kv_turn_begin(kv);

	if (ret)
		return ret;
	ret = kv_run_on(kv, call, timeout_ns);
	kv_turn_end(kv);
	return ret;
}
