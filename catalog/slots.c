#include "catalog/object.h"

#include <errno.h>
#include <string.h>

#include "ds/part/fence.h"
#include "ds/part/slot.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"

int slots_init(struct slots *slots, const struct catalog_object *object)
{
	*slots = (struct slots){
		.object = object,
		.n = object->max_clients,
		.parts = object->attached,
		.n_parts = object->n_cut,
		.entries = mem_array(object->max_clients, sizeof(struct slot_entry)),
		.reached = mem_array(OBJECT_MAX_PARTS, sizeof(uint64_t)),
	};
	if (slots->entries && slots->reached)
		return 0;
	slots_fini(slots);
	return error_set(-ENOMEM, "cannot allocate memory for %u client slots",
			 object->max_clients);
}

static void remove_orphan(struct slots *slots, struct orphan_slot *orphan)
{
	struct orphan_slot **link = &slots->orphans;

	while (*link != orphan)
		link = &(*link)->next;
	*link = orphan->next;
	mem_free(orphan);
}

void slots_fini(struct slots *slots)
{
	while (slots->orphans)
		remove_orphan(slots, slots->orphans);
	mem_free(slots->entries);
	mem_free(slots->reached);
	memset(slots, 0, sizeof(*slots));
}

static bool is_away(const struct slots *slots, uint32_t shard)
{
	return !slots->parts[shard] && !catalog_part_is_lost(slots->object, shard);
}

/* -------- orphans -------- */

/* True if the shard's slot is on the orphan list for that client; client_id 0: for any client. */
static bool is_orphan(const struct slots *slots, uint32_t shard, uint32_t slot, uint64_t client_id)
{
	const struct orphan_slot *orphan = slots->orphans;

	while (orphan && (orphan->shard != shard || orphan->slot != slot ||
			  (client_id && orphan->client_id != client_id)))
		orphan = orphan->next;
	return orphan;
}

static int add_orphan(struct slots *slots, uint32_t shard, uint32_t slot, uint64_t client_id,
		      bool left)
{
	struct orphan_slot *orphan = mem_alloc(sizeof(*orphan));

	if (!orphan)
		return error_set(-ENOMEM, "client slots: cannot allocate memory");
	*orphan = (struct orphan_slot){ slots->orphans, shard, slot, client_id, left };
	slots->orphans = orphan;
	return 0;
}

/*
 * Puts the slot on the orphan list for each shard that is away: it may have the slot live. Not for
 * a shard that left before the slot was assigned: it has an earlier holder's slot, which is on the
 * list already. left: the client returned the slot.
 */
static int add_orphans(struct slots *slots, uint32_t slot, const struct slot_entry *entry,
		       bool left)
{
	int ret = 0;

	for (uint32_t s = 0; ret == 0 && s < slots->n_parts; s++)
		if (is_away(slots, s) && entry->number <= slots->reached[s] &&
		    !is_orphan(slots, s, slot, 0))
			ret = add_orphan(slots, s, slot, entry->holder.client_id, left);
	return ret;
}

/*
 * Puts the slot on the orphan list for shards that are away (add_orphans), then frees it in the
 * book. left: its client returned it; else it was settled.
 */
static int set_free(struct slots *slots, uint32_t slot, bool left)
{
	struct slot_entry *entry = &slots->entries[slot];
	int ret = add_orphans(slots, slot, entry, left);

	if (ret == 0)
		*entry = (struct slot_entry){ .last = left ? entry->holder.client_id : 0 };
	return ret;
}

/* -------- a shard comes -------- */

/*
 * A slot of the shard that another client holds in the book becomes an orphan. One that is on the
 * orphan list already is skipped: its holder is watched if needed.
 */
int slots_read(struct slots *slots, uint32_t shard,
	       void (*fn)(void *ctx, const struct slot_holder *), void *ctx)
{
	struct slot_info infos[SLOT_READ_MAX];
	int ret = 0;

	for (uint32_t first = 0; ret == 0 && first < slots->n; first += SLOT_READ_MAX) {
		uint32_t n = (uint32_t)min_u64(slots->n - first, SLOT_READ_MAX);

		ret = slot_read_many(slots->parts[shard], first, n, infos);
		for (uint32_t i = 0; ret == 0 && i < n; i++) {
			struct slot_holder holder = { infos[i].lease, infos[i].process };
			struct slot_entry *entry = &slots->entries[infos[i].slot];

			if (infos[i].state == SLOT_FREE ||
			    is_orphan(slots, shard, infos[i].slot, infos[i].lease))
				continue;
			if (fn)
				fn(ctx, &holder);
			if (!entry->taken)
				*entry = (struct slot_entry){ .taken = true, .holder = holder };
			else if (entry->holder.client_id != holder.client_id)
				ret = add_orphan(slots, shard, infos[i].slot, holder.client_id,
						 false);
		}
	}
	return ret;
}

/*
 * Settles the slot in the shard, but only if that client holds it there: it may be live for another
 * client. Else does nothing.
 */
static int settle_of(const struct slots *slots, uint32_t shard, uint32_t slot, uint64_t client_id,
		     struct fence_report *report_out)
{
	const struct fence_kind kind = { slots->object->kind->settle_dead, NULL };
	struct part *part = slots->parts[shard];
	struct slot_info info;
	int ret = slot_read(part, slot, &info);

	if (ret || info.state == SLOT_FREE || info.lease != client_id)
		return ret;
	return fence_settle(part, slot + 1, &kind, report_out);
}

/*
 * Settles in this shard the slots that clients returned while it was away: their blocks may be open
 * here, perhaps inside a call, and their connections have ended. Also removes returned slots of
 * lost shards from the orphan list: nothing remains there.
 */
static int settle_left(struct slots *slots, uint32_t shard)
{
	struct orphan_slot *orphan = slots->orphans;

	while (orphan) {
		struct orphan_slot *next = orphan->next;
		int ret = 0;

		if (orphan->left && orphan->shard == shard)
			ret = settle_of(slots, shard, orphan->slot, orphan->client_id, NULL);
		if (ret)
			return ret;
		if (orphan->left &&
		    (orphan->shard == shard || catalog_part_is_lost(slots->object, orphan->shard)))
			remove_orphan(slots, orphan);
		orphan = next;
	}
	return 0;
}

int slots_join(struct slots *slots, uint32_t shard)
{
	int ret = settle_left(slots, shard);
	bool waits = false;

	if (shard >= slots->n_parts)
		slots->n_parts = shard + 1;
	for (const struct orphan_slot *orphan = slots->orphans; ret == 0 && orphan;
	     orphan = orphan->next)
		if (orphan->shard == shard)
			ret = -EAGAIN;
	if (ret)
		return ret;
	slots->reached[shard] = slots->given;
	for (uint32_t slot = 0; ret == 0 && slot < slots->n; slot++) {
		const struct slot_entry *entry = &slots->entries[slot];
		struct slot_info info;
		int code;

		if (!entry->taken)
			continue;
		code = slot_read(slots->parts[shard], slot, &info);
		if (code == 0 && info.state == SLOT_FREE)
			code = slot_take(slots->parts[shard], slot, &entry->holder.process,
					 entry->holder.client_id);
		waits |= code == -EAGAIN; /* asked for all pages at once */
		ret = code == -EAGAIN ? 0 : code;
	}
	return ret == 0 && waits ? -EAGAIN : ret;
}

/* -------- get and put -------- */

static void slots_release(struct slots *slots, uint32_t slot, uint32_t n_shards)
{
	for (uint32_t s = 0; s < n_shards; s++) {
		int ret = slots->parts[s] ? slot_release(slots->parts[s], slot) : 0;

		if (ret && ret != -ESTALE)
			log_warn("release slot %u shard %u: %s", slot, s, error_last());
	}
}

/*
 * Turns codes of an unreachable node (-EAGAIN, -ECONNRESET, -ETIMEDOUT) into -EHOSTDOWN: it is
 * about to be marked down, or has just lost its connection. Other codes are returned as they are.
 */
static int slots_unreachable(int code, uint32_t slot, uint32_t shard)
{
	return code == -EAGAIN || code == -ECONNRESET || code == -ETIMEDOUT
		       ? error_prefix(-EHOSTDOWN, "slot %u shard %u: ", slot, shard)
		       : code;
}

/*
 * Counts the slots of the holder's lease, or of its process on one host, which may have several
 * stores open.
 */
static uint32_t held_by(const struct slots *slots, const struct slot_holder *holder)
{
	const struct process_id *process = &holder->process;
	uint32_t n = 0;

	for (uint32_t slot = 0; slot < slots->n; slot++) {
		const struct slot_holder *other = &slots->entries[slot].holder;
		bool same_process = process->pid && process->pid == other->process.pid &&
				    process->start_time == other->process.start_time &&
				    memcmp(process->boot_id, other->process.boot_id,
					   sizeof(process->boot_id)) == 0;

		n += slots->entries[slot].taken &&
		     (same_process || other->client_id == holder->client_id);
	}
	return n;
}

static int no_slot(const struct slots *slots)
{
	const struct slot_holder *most = NULL;
	uint32_t n = 0;

	if (slots->sole)
		return error_set(-ENOSPC,
				 "client slots: all %u of the table are in use: close a writer or "
				 "sampler",
				 slots->n);
	for (uint32_t slot = 0; slot < slots->n; slot++) {
		const struct slot_holder *holder = &slots->entries[slot].holder;
		uint32_t held = slots->entries[slot].taken ? held_by(slots, holder) : 0;

		if (held > n) {
			most = holder;
			n = held;
		}
	}
	return error_set(-ENOSPC,
			 "no client slot is free: all %u (max_clients) are in use, most, %u, by "
			 "client %llu pid %u; relive clients lists them",
			 slots->n, n, most ? (unsigned long long)most->client_id : 0,
			 most ? most->process.pid : 0);
}

/*
 * Sets a slot that is free in the book live in all attached shards, then enters its holder in the
 * book. -EBUSY: it is live in a region, though free in the book. -EAGAIN: a node has not made its
 * page yet; the slot stays free, and prepared pages are used by its next owner. -EHOSTDOWN: a node
 * is unreachable.
 */
static int get_slot(struct slots *slots, uint32_t slot, const struct slot_holder *holder,
		    uint32_t streams)
{
	bool waits = false;
	int ret = 0;

	/* Fresh pages of all nodes are requested at once, before the slot is live in any shard. */
	for (uint32_t s = 0; s < slots->n_parts; s++) {
		ret = slots->parts[s] ? slot_prepare(slots->parts[s], slot) : 0;
		if (ret && ret != -EAGAIN)
			return slots_unreachable(ret, slot, s);
		waits |= ret == -EAGAIN;
	}
	ret = waits ? -EAGAIN : 0;
	for (uint32_t s = 0; ret == 0 && s < slots->n_parts; s++) {
		if (slots->parts[s])
			ret = slot_take(slots->parts[s], slot, &holder->process, holder->client_id);
		if (ret) {
			ret = slots_unreachable(ret, slot, s);
			slots_release(slots, slot, s + (ret == -EIO));
		}
	}
	if (ret)
		return ret;
	slots->entries[slot] = (struct slot_entry){
		.taken = true,
		.streams = streams,
		.number = ++slots->given,
		.holder = *holder,
	};
	for (uint32_t s = 0; s < slots->n_parts; s++)
		if (slots->parts[s])
			slots->reached[s] = slots->given;
	return 0;
}

uint64_t slots_streams(const struct slots *slots)
{
	uint64_t n = 0;

	for (uint32_t slot = 0; slot < slots->n; slot++)
		n += slots->entries[slot].taken ? slots->entries[slot].streams : 0;
	return n;
}

int slots_get(struct slots *slots, const struct slot_holder *holder, uint32_t streams,
	      uint32_t *owner_out)
{
	uint32_t attached = 0, held = held_by(slots, holder);
	uint64_t in_use = slots_streams(slots);
	int ret = -EBUSY;

	for (uint32_t s = 0; s < slots->n_parts; s++)
		attached += slots->parts[s] != NULL;
	if (attached == 0)
		return error_set(-EHOSTDOWN, "no shard of the table is there: its memory nodes are "
					     "down");
	if (streams && in_use + streams > slots->object->max_streams)
		return error_set(-ENOSPC,
				 "%u streams: the table takes %u (max_writers), of which %llu are "
				 "in use by all its writers",
				 streams, slots->object->max_streams, (unsigned long long)in_use);
	if (!slots->sole && held >= slots_quota(slots))
		return error_set(
			-ENOSPC,
			"this process holds %u of the %u client slots (max_clients), and may "
			"have no more: close a writer or sampler of it, or make the table with "
			"more",
			held, slots->n);
	/* Slots whose pages other live clients map come last. */
	for (uint32_t i = 0; ret == -EBUSY && i < 2 * slots->n; i++) {
		uint32_t slot = i % slots->n;
		const struct slot_entry *entry = &slots->entries[slot];
		bool is_anothers = entry->last != 0 && entry->last != holder->client_id;

		if (!entry->taken && is_anothers == (i >= slots->n))
			ret = get_slot(slots, slot, holder, streams);
		if (ret == 0)
			*owner_out = slot + 1;
	}
	return ret == -EBUSY ? no_slot(slots) : ret;
}

int slots_put(struct slots *slots, uint64_t client_id, uint32_t owner)
{
	const struct slot_entry unknown = { .holder.client_id = client_id };
	const struct slot_entry *entry;
	int first = 0;

	if (owner == 0 || owner > slots->n)
		return error_set(-EINVAL, "owner %u: the table has 1 to %u", owner, slots->n);
	entry = &slots->entries[owner - 1];
	/* The slot may be from before the server's start, in a shard that is still away. */
	if (!entry->taken || entry->holder.client_id != client_id)
		first = add_orphans(slots, owner - 1, &unknown, true);
	if (first || !entry->taken)
		return first;
	if (entry->holder.client_id != client_id)
		return error_set(-EACCES, "owner %u: not yours", owner);
	for (uint32_t s = 0; s < slots->n_parts; s++) {
		int ret;

		/* The slot may be missing in a shard that has just returned. */
		if (!slots->parts[s] || is_orphan(slots, s, owner - 1, 0))
			continue;
		ret = slots->object->kind->leave(slots->parts[s], owner);
		if (ret == 0)
			ret = slot_release(slots->parts[s], owner - 1);
		if (ret && ret != -ESTALE && !first)
			first = ret;
	}
	return first ? first : set_free(slots, owner - 1, true);
}

/* -------- dead clients -------- */

static int settle_in(struct slots *slots, const struct slots_dead *dead, uint32_t shard,
		     uint32_t slot, bool *drift_out)
{
	struct fence_report report = { .was_idle = true };
	int ret;

	if (!slots->parts[shard])
		return is_away(slots, shard) ? -EAGAIN : 0;
	if (dead->is_proved && !dead->is_proved(dead->ctx, shard))
		return -EAGAIN;
	ret = settle_of(slots, shard, slot, dead->client_id, &report);
	*drift_out |= !report.was_idle || report.had_rebuild;
	return ret;
}

int slots_settle(struct slots *slots, const struct slots_dead *dead, bool *drift_out)
{
	struct orphan_slot *orphan = slots->orphans;

	*drift_out = false;
	while (orphan) {
		struct orphan_slot *next = orphan->next;

		if (orphan->client_id == dead->client_id && !orphan->left &&
		    settle_in(slots, dead, orphan->shard, orphan->slot, drift_out) == 0)
			remove_orphan(slots, orphan);
		orphan = next;
	}
	for (uint32_t slot = 0; slot < slots->n; slot++) {
		int first = 0;

		if (!slots_has(slots, dead->client_id, slot + 1))
			continue;
		for (uint32_t s = 0; s < slots->n_parts; s++) {
			int ret = slots->parts[s] ? settle_in(slots, dead, s, slot, drift_out) : 0;

			first = first ? first : ret;
		}
		if (first == 0 && set_free(slots, slot, false) == 0)
			log_info("settle owner %u client %llu: done", slot + 1,
				 (unsigned long long)dead->client_id);
	}
	return slots_any(slots, dead->client_id) ? -EAGAIN : 0;
}

void slots_forget(struct slots *slots, uint64_t client_id)
{
	for (uint32_t slot = 0; slot < slots->n; slot++)
		if (slots->entries[slot].last == client_id)
			slots->entries[slot].last = 0;
}

bool slots_has(const struct slots *slots, uint64_t client_id, uint32_t owner)
{
	return owner >= 1 && owner <= slots->n && slots->entries[owner - 1].taken &&
	       slots->entries[owner - 1].holder.client_id == client_id;
}

bool slots_any(const struct slots *slots, uint64_t client_id)
{
	for (const struct orphan_slot *orphan = slots->orphans; orphan; orphan = orphan->next)
		if (orphan->client_id == client_id && !orphan->left)
			return true;
	for (uint32_t slot = 0; slot < slots->n; slot++)
		if (slots_has(slots, client_id, slot + 1))
			return true;
	return false;
}
