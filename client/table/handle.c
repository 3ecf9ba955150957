#include "client/table/handle.h"

#include "ds/replay/settle.h"
#include "ds/part/slot.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"

#include <errno.h>
#include <string.h>

#define PATIENCE_MOST_NS (200 * CLOCK_NS_PER_MS)

/* -------- shards that come and go -------- */

static void handle_close_access(void *ctx, uint32_t s, void *access)
{
	(void)ctx;
	(void)s;
	access_close(access);
	mem_free(access);
}

/*
 * Opens the access to a shard. A shard that returned, in which the slot is still ours, is rejoined:
 * blocks that are open in our name, which nobody else may claim, are closed, and if a call was
 * interrupted, whose additions to the sums are lost, the shard is marked for a rebuild. If the slot
 * is not ours any more: no access, and h->fenced is set.
 */
static int handle_attach(void *ctx, uint32_t s, bool returned, void **access_out)
{
	struct handle *h = ctx;
	struct shard *shard = handle_shard(h, s);
	bool interrupted = false;
	struct slot_info slot;
	struct access *acc;
	uint32_t closed;
	int ret = 0;

	if (returned && !h->opts.reader) {
		if (h->fenced)
			return 0;
		ret = slot_read(&shard->part, h->slot.owner - 1, &slot);
		if (ret)
			return ret;
		h->fenced = slot.state != SLOT_LIVE || slot.lease != h->slot.lease;
		if (h->fenced) /* in this shard at least: it gets another slot in all */
			return 0;
		interrupted = slot.pin != SLOT_IDLE;
		ret = shard_close_blocks(shard, h->slot.owner, &closed);
		if (ret == 0 && interrupted)
			ret = part_mark_dirty(&shard->part);
		if (ret)
			return ret;
	}
	acc = mem_alloc(sizeof(*acc));
	if (!acc)
		return error_set(-ENOMEM, "shard %u: cannot allocate memory", s);
	ret = access_open(acc, shard, h->slot.owner, h->opts.view_mask);
	for (uint32_t p = 0; ret == 0 && p < h->set.n_parts; p++)
		if (handle_access(h, p)) {
			access_share(acc, handle_access(h, p));
			break;
		}
	if (ret == 0 && interrupted) {
		ret = epoch_leave(&acc->epoch);
		if (ret)
			access_close(acc);
	}
	if (ret)
		mem_free(acc);
	else
		*access_out = acc;
	return ret;
}

static void handle_detach(void *ctx, uint32_t s, void *access)
{
	struct handle *h = ctx;

	h->opts.user->leave(h, s);
	handle_close_access(h, s, access);
}

/* Ends the access to a shard with the old slot: flushes its updates and closes its open blocks
   there. Errors are only logged. */
static void handle_leave_shard(void *ctx, uint32_t s, void *access)
{
	struct access *acc = access;
	struct handle *h = ctx;
	uint32_t closed;

	h->opts.user->leave(h, s);
	if (access_flush(acc) || shard_close_blocks(acc->shard, acc->owner, &closed))
		log_debug("leave shard %u: %s", s, error_last());
	handle_close_access(h, s, acc);
}

static int handle_take_another_slot(struct handle *h)
{
	struct meta *meta = h->set.meta;
	const struct meta_object *object = &h->set.object;
	struct meta_slot old = h->slot;
	int ret;

	part_set_detach(&h->set, handle_leave_shard);
	h->slot.owner = 0;
	if (old.owner && meta->ops->slot_put(meta, object, &old, part_set_patience(&h->set)))
		log_debug("return slot %u: %s", old.owner, error_last());
	ret = meta->ops->slot_get(meta, object, h->opts.streams, part_set_patience(&h->set),
				  &h->slot);
	if (ret)
		return error_prefix(error_set(-EOWNERDEAD, "%s", error_last()),
				    "this handle was fenced, and no new slot is available: ");
	ret = part_set_move(&h->set, h->slot.owner);
	if (ret == 0)
		ret = part_set_attach(&h->set);
	if (ret && part_set_drop(&h->set)) /* another node went: over the rest */
		ret = part_set_attach(&h->set);
	if (ret)
		return ret;
	h->fenced = false;
	h->set.version++;
	log_warn("table %s: slot %u was fenced, continuing with slot %u", h->desc->name, old.owner,
		 h->slot.owner);
	return 0;
}

static int handle_moved(void *ctx)
{
	struct handle *h = ctx;
	int ret = 0;

	if (h->fenced && h->set.n_up > 0)
		ret = handle_take_another_slot(h);
	if (ret == 0)
		ret = h->opts.user->moved(h);
	/* Relaxed: the server learns that we have taken it up, a moment later or sooner. */
	if (ret == 0)
		atomic_store_explicit(&h->watch.layout, h->set.layout, memory_order_relaxed);
	return ret;
}

static const struct part_hooks hooks = {
	.attach = handle_attach,
	.detach = handle_detach,
	.moved = handle_moved,
};

/* -------- open, close -------- */

/* Opening failed: closes what is open and returns the slot. Keeps the error. */
static void handle_abandon(struct handle *h)
{
	struct meta *meta = h->table->store->meta;
	struct error_kept kept;

	error_keep(&kept);
	part_set_detach(&h->set, handle_close_access);
	part_set_close(&h->set);
	if (h->slot.owner && meta->ops->slot_put(meta, &h->table->set.object, &h->slot, 0))
		log_warn("table %s: cannot return slot %u: %s", h->desc->name, h->slot.owner,
			 error_last());
	error_restore(&kept);
}

int handle_open(struct handle *h, struct rlv_table *table, const struct handle_opts *opts)
{
	struct meta *meta = table->store->meta;
	struct store_wait wait = store_wait_begin(table->store);
	struct part_set like = {
		.meta = meta,
		.object = table->set.object,
		.kind = &table_kind,
		.desc = &table->desc,
		.hooks = &hooks,
		.ctx = h,
	};
	struct meta_opened opened;
	int ret;

	memset(h, 0, sizeof(*h));
	h->table = table;
	h->desc = &table->desc;
	h->opts = *opts;
	h->access_kind = opts->streams ? PART_WRITES : PART_LEARNS;
	if (table->store->read_only || opts->reader)
		h->access_kind = PART_READS;
	h->clock = clock_monotonic();
	do {
		/* Grants of its pages need the slot. */
		ret = h->opts.reader ? 0
				     : meta->ops->slot_get(meta, &table->set.object,
							   h->opts.streams, 0, &h->slot);
		if (ret)
			continue;
		like.access = (struct meta_access){ h->access_kind, h->slot.owner };
		/* Those of the table may be older than a restart of a node or a fence. */
		ret = meta->ops->open(meta, &like.object, &like.access, 0, &opened);
		if (ret == 0) {
			ret = part_set_open(&like, &opened.place, wait.deadline_ns, &h->set);
			meta_opened_fini(&opened);
		}
		if (ret == 0)
			ret = part_set_check(&h->set);
		if (ret)
			handle_abandon(h);
	} while (ret && (ret = store_wait_nodes(&wait, ret)) == 0);
	if (ret)
		return ret;
	ret = part_set_attach(&h->set);
	if (ret) {
		handle_abandon(h);
		return ret;
	}
	atomic_init(&h->watch.layout, h->set.layout);
	h->watch.object = &h->set.object;
	meta_watch(meta, &h->watch);
	table_handle_count(table, 1);
	return 0;
}

/*
 * True if the slot may be returned. In a shard that the server reaches and we do not, our open blocks
 * would stay open for ever: rejoining the shard closes them, or else the end of this process does. A
 * shard that the server cannot reach either is settled when it returns.
 */
static bool handle_is_tidy(struct handle *h)
{
	uint32_t s = 0;

	if (part_set_drop(&h->set) + h->set.n_away == 0)
		return true;
	if (part_set_heal(&h->set))
		return true; /* the table is gone */
	while (s < h->set.n_parts &&
	       (h->set.statuses[s].state != RLV_SHARD_DOWN || !h->set.statuses[s].granted))
		s++;
	return s == h->set.n_parts;
}

int handle_close(struct handle *h, int error)
{
	enum { TRIES = 3 };
	struct meta *meta = h->table->store->meta;
	struct error_kept kept;
	int ret = -EBUSY;

	error_keep(&kept);
	h->set.patience_ns = PATIENCE_MOST_NS;
	meta_unwatch(meta, &h->watch);
	if (part_set_is_forked(&h->set)) {
		part_set_detach(&h->set, handle_close_access);
		ret = error_set(-ECHILD,
				"this handle was opened before fork(): it is the parent's");
	}
	/* -EBUSY: the server reaches a shard where a call of ours was interrupted, because a connection
	   ended before its last posted operations, or the shard has just returned. */
	for (uint32_t i = 0; ret == -EBUSY && i < TRIES; i++) {
		bool tidy = handle_is_tidy(h);

		/* This waits for posted chains: the slot is idle after it. */
		part_set_detach(&h->set, handle_close_access);
		ret = 0;
		if (h->slot.owner && tidy)
			ret = meta->ops->slot_put(meta, &h->set.object, &h->slot, 0);
		else if (h->slot.owner)
			log_warn("table %s: slot %u stays taken until this process ends: a shard "
				 "is out of reach",
				 h->desc->name, h->slot.owner);
	}
	part_set_close(&h->set);
	if (ret && error)
		log_warn("table %s: closing a writer or sampler failed, too: %s", h->desc->name,
			 error_last());
	table_handle_count(h->table, -1);
	if (error)
		error_restore(&kept);
	return error ? error : ret;
}

/* -------- calls -------- */

void handle_start(struct handle *h, int64_t timeout_ns)
{
	int64_t network_ns = timeout_ns ? timeout_ns : h->table->store->timeout_ns;
	uint64_t deadline_ns = deadline_after(h->clock, network_ns);
	/* for one question to the server */
	uint64_t patience_ns = timeout_ns < 0 ? UINT64_MAX : (uint64_t)timeout_ns / 8;

	patience_ns = max_u64(min_u64(patience_ns, PATIENCE_MOST_NS), 20 * CLOCK_NS_PER_MS);
	h->wait_ns = timeout_ns ? deadline_ns : 0;
	h->stalls = timeout_ns == RLV_TIMEOUT_STALL;
	part_set_begin(&h->set, deadline_ns, (int64_t)patience_ns);
}

bool handle_may_heal(const struct handle *h, int error)
{
	if (error == -EOWNERDEAD)
		return h->fenced;
	return error == -EHOSTDOWN && (h->set.n_away > 0 || h->set.n_up > 0);
}

enum { MOST_LOST = 64 }; /* nodes that a call may lose before it waits or fails */

/* State of a call that waits. */
struct handle_wait {
	uint32_t lost;     /* nodes since it last slept */
	uint64_t began_ns; /* 0 = it has not waited, and the rest is unset */
	struct backoff backoff;
	struct rlv_watch watch;
};

/* Waits once after error: sleeps a little and returns 0: the step is made again. Else returns
   the call's error: no time is left, or in a call that stalls there is no progress (-ETIMEDOUT). */
static int handle_wait(struct handle *h, const struct handle_call *call, void *ctx,
		       struct handle_wait *wait, int error)
{
	bool heals = error != -EAGAIN && error != -ENODATA;
	int stalled;

	if (!wait->began_ns) {
		wait->began_ns = clock_now_ns(h->clock);
		wait->backoff =
			(struct backoff){ .first_ns = 20000, .doublings = 6 }; /* to 1.28 ms */
		watch_begin(&wait->watch);
		h->waits++;
	}
	if (deadline_expired(h->clock, h->wait_ns))
		return heals ? error : call->late(ctx, error);
	stalled = watch_wait(&wait->watch, h, call->explain, ctx);
	if (stalled && h->stalls)
		return heals ? error_set(error, "%s", wait->watch.text) : stalled;
	backoff_sleep(&wait->backoff, h->clock, h->wait_ns);
	wait->lost = 0;
	return 0;
}

int handle_run(struct handle *h, const struct handle_call *call, void *ctx)
{
	struct handle_wait wait;
	int ret;

	wait.lost = 0;
	wait.began_ns = 0;
	do {
		ret = part_set_enter(&h->set);
		if (ret == 0 && call->step)
			ret = call->step(ctx);
		if (ret == 0 || ret == -ECHILD || ret == -ESTALE)
			break;
		/* It may have met a table that is being dropped, in a shard that was not looked at. */
		if (h->set.n_parts > PART_FEW && part_set_check(&h->set) == -ESTALE) {
			ret = -ESTALE;
			break;
		}
		if (part_set_has_broken(&h->set)) {
			if (wait.lost++ == MOST_LOST)
				break;
			/* The next call drops it: in this one there is no time to take that up. */
			ret = deadline_expired(h->clock, h->set.deadline_ns)
				      ? error_prefix(error_set(-EHOSTDOWN, "%s", error_last()),
						     "no time is left to retry: ")
				      : 0;
		} else if (call->explain &&
			   (ret == -EAGAIN || ret == -ENODATA || handle_may_heal(h, ret))) {
			ret = handle_wait(h, call, ctx, &wait, ret);
		}
	} while (ret == 0);
	if (wait.began_ns)
		h->waited_ns += clock_now_ns(h->clock) - wait.began_ns;
	return ret;
}

int handle_begin(struct handle *h, int64_t timeout_ns)
{
	static const struct handle_call call = { 0 };

	handle_start(h, timeout_ns);
	return handle_run(h, &call, NULL);
}

int handle_flush(struct handle *h)
{
	int ret = 0;

	for (uint32_t s = 0; ret == 0 && s < h->set.n_parts; s++) {
		struct access *acc = handle_access(h, s);

		if (!acc)
			continue;
		ret = access_flush(acc);
		if (ret && access_is_broken(acc))
			ret = 0;
	}
	return ret;
}

int handle_failed(struct access *acc, int error)
{
	int marked = error == -EIO ? part_mark_dirty(&acc->shard->part) : 0;

	return marked ? error_prefix(marked,
				     "shard %u may need a rebuild: ", acc->shard->desc.shard)
		      : error;
}

void handle_stats(const struct handle *h, struct rlv_stats *stats)
{
	struct transport_stats sum;

	part_set_stats(&h->set, &sum);
	stats->limiter_waits = h->waits;
	stats->limiter_wait_ns = h->waited_ns;
	stats->phases = sum.phases;
	stats->reads = sum.reads;
	stats->writes = sum.writes;
	stats->cas = sum.cas;
	stats->faa = sum.faa;
	stats->cas_failed = sum.cas_failed;
	stats->read_bytes = sum.read_bytes;
	stats->write_bytes = sum.write_bytes;
	stats->shards_lost = h->set.lost;
}
