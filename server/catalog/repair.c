#include "server/catalog/repair.h"

#include <stdio.h>

#include "ds/part/slot.h"
#include "ds/sumtree/rebuild.h"

#include "base/log.h"

#define BUSY_NS (1 * (uint64_t)CLOCK_NS_PER_MS)
#define WAIT_NS (20 * (uint64_t)CLOCK_NS_PER_MS)
#define IDLE_NS ((uint64_t)CLOCK_NS_PER_S)

/* Records why the object's rebuild waits: for process why.pid, whose text ends in `words`, or, if
   why.pid is 0, for a client slot. Keeps the time since which it waits. */
static void begin_wait(struct repair *repair, const struct catalog_object *object,
		       struct repair_wait why, const char *words)
{
	struct repair_wait *wait = &repair->waiting[object->id];

	why.since = wait->since ? wait->since : clock_now_ns(repair->clock);
	if (why.pid)
		snprintf(why.words, sizeof(why.words), "%s: rebuild waits for pid %u%s",
			 object->text, why.pid, words);
	else
		snprintf(why.words, sizeof(why.words), "%s: rebuild waits for a client slot",
			 object->text);
	*wait = why;
}

static void end_wait(struct repair *repair, uint32_t table_id)
{
	repair->waiting[table_id].words[0] = '\0';
	repair->waiting[table_id].since = 0;
}

/* True if the slot's holder is inside a call, or holds deltas, in some attached part. */
static bool repair_owes(const struct catalog_object *object, uint32_t slot)
{
	for (uint32_t s = 0; s < object->n_parts; s++) {
		struct slot_info info;

		if (object->attached[s] && slot_read(object->attached[s], slot, &info) == 0 &&
		    info.state != SLOT_FREE && info.pin != SLOT_IDLE)
			return true;
	}
	return false;
}

/*
 * Finds a missing client with unapplied changes and records that the object waits for it: no
 * rebuild runs while it may return, so the sums lack its changes. False: there is none.
 */
static bool note_debtor(struct repair *repair, const struct catalog_object *object)
{
	for (uint32_t slot = 0; slot < object->slots.n; slot++) {
		const struct slot_entry *entry = &object->slots.entries[slot];
		const struct client *client;

		if (!entry->taken || slot + 1 == object->slots.own)
			continue;
		client = liveness_find(repair->live, entry->holder.client_id);
		if (!client || !liveness_is_missing(client) || !repair_owes(object, slot))
			continue;
		begin_wait(
			repair, object,
			(struct repair_wait){ .pid = entry->holder.process.pid, .owner = slot + 1 },
			", which is away and not known to be dead");
		return true;
	}
	return false;
}

static void give_slot(struct repair *repair, struct catalog_object *object)
{
	int ret;

	if (!object->slots.own)
		return;
	ret = slots_put(&object->slots, repair->self.client_id, object->slots.own);
	if (ret)
		log_warn("%s: give own slot back: %s", object->text, error_last());
	else
		object->slots.own = 0;
}

/* Does one pass of the rebuild of part s. True if more work is due now; false if it failed, or
   waits for a client. */
static bool rebuild_slice(struct repair *repair, struct catalog_object *object, uint32_t s)
{
	struct rebuild_opts opts = { .owner = object->slots.own, .clock = repair->clock };
	struct rebuild_report report = { 0 };
	int ret = object->kind->rebuild(object->attached[s], &opts, &report);

	if (report.waiting) {
		if (!repair->waiting[object->id].words[0])
			log_info("%s: rebuild waits for pid %u", object->text, report.wait.pid);
		begin_wait(repair, object,
			   (struct repair_wait){
				   .pid = report.wait.pid, .owner = report.wait.owner, .shard = s },
			   "");
		return false;
	}
	end_wait(repair, object->id);
	if (ret) {
		log_warn("rebuild %s shard %u: %s", object->text, s, error_last());
		give_slot(repair, object); /* Our slot may predate the attachment of the part */
		return false;
	}
	if (report.clean) {
		object->parts[s].drift = false;
		repair->done++;
		log_info("rebuilt %s shard %u epoch %u leaves %llu", object->text, s, report.epoch,
			 (unsigned long long)report.live_leaves);
	}
	return true;
}

/* Makes a piece of what parts lack. */
static uint64_t mend_slice(struct repair *repair, struct catalog_object *object)
{
	enum mend found = MEND_NOTHING;
	const uint64_t lease = repair->self.client_id;
	int ret = object->kind->mend(object, object->slots.own, lease, &found);

	if (ret == 0 && found == MEND_LATER && !object->slots.own) {
		ret = slots_get(&object->slots, &repair->self, 0, &object->slots.own);
		if (ret == 0)
			ret = object->kind->mend(object, object->slots.own, lease, &found);
	}
	if (ret)
		log_warn("%s: cannot complete its parts: %s", object->text, error_last());
	if (ret == 0 && found == MEND_NOW)
		return BUSY_NS;
	give_slot(repair, object);
	return IDLE_NS;
}

static uint64_t work_on(struct repair *repair, struct catalog_object *object)
{
	uint32_t s = object->kind->rebuild ? 0 : object->n_parts;
	uint64_t pause = IDLE_NS;

	while (s < object->n_parts && !(object->attached[s] && object->parts[s].drift))
		s++;
	if (s == object->n_parts && object->kind->mend)
		pause = mend_slice(repair, object);
	else if (s == object->n_parts)
		give_slot(repair, object);
	if (s == object->n_parts) {
		if (!note_debtor(repair, object))
			end_wait(repair, object->id);
		if (object->kind->tick_clean)
			object->kind->tick_clean(object);
		return pause;
	}
	if (!object->slots.own && slots_get(&object->slots, &repair->self, 0, &object->slots.own)) {
		begin_wait(repair, object, (struct repair_wait){ .pid = 0 }, "");
		return WAIT_NS;
	}
	return rebuild_slice(repair, object, s) ? BUSY_NS : WAIT_NS;
}

uint64_t repair_tick(struct repair *repair)
{
	uint64_t pause = IDLE_NS;

	for (uint32_t i = 0; i < OBJECT_MAX_ID; i++) {
		uint64_t one;
		struct catalog_object *object;

		repair->table_id = repair->table_id % OBJECT_MAX_ID + 1;
		object = repair->cat->objects[repair->table_id];
		if (!object) {
			end_wait(repair, repair->table_id);
			continue;
		}
		one = work_on(repair, object);
		if (one < pause)
			pause = one;
		if (one == BUSY_NS) /* a slice was done: return to the event loop */
			break;
	}
	return clock_now_ns(repair->clock) + pause;
}
