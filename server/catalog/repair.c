#include "server/catalog/repair.h"

#include <stdio.h>
#include <string.h>

#include "ds/part/slot.h"
#include "ds/sumtree/rebuild.h"

#include "base/log.h"

#define BUSY_NS (1 * (uint64_t)CLOCK_NS_PER_MS)
#define WAIT_NS (20 * (uint64_t)CLOCK_NS_PER_MS)
#define IDLE_NS ((uint64_t)CLOCK_NS_PER_S)

/* A shard of the table that needs a rebuild; table->n_shards = none. */
static uint32_t find_drift(const struct catalog_table *table)
{
	uint32_t s = 0;

	while (s < table->n_shards && !(table->attached[s] && table->shards[s].drift))
		s++;
	return s;
}

/* The table's wait record, started now unless it exists. The caller writes the words. */
static struct repair_wait *begin_wait(struct repair *repair, const struct catalog_table *table)
{
	struct repair_wait *wait = &repair->waiting[table->desc.table_id];

	if (!wait->since)
		wait->since = clock_now_ns(repair->clock);
	wait->pid = wait->owner = wait->shard = 0;
	return wait;
}

static void end_wait(struct repair *repair, uint32_t table_id)
{
	repair->waiting[table_id].words[0] = '\0';
	repair->waiting[table_id].since = 0;
}

static void note_wait(struct repair *repair, const struct catalog_table *table, uint32_t s,
		      const struct rebuild_wait *whom)
{
	struct repair_wait *wait = begin_wait(repair, table);

	if (!wait->words[0])
		log_info("table %s: rebuild waits for pid %u", table->desc.name, whom->pid);
	snprintf(wait->words, sizeof(wait->words), "table %s: rebuild waits for pid %u",
		 table->desc.name, whom->pid);
	wait->pid = whom->pid;
	wait->owner = whom->owner;
	wait->shard = s;
}

/* True if the slot is inside a call, or holds deltas, in some shard. */
static bool owes(const struct catalog_table *table, uint32_t slot)
{
	for (uint32_t s = 0; s < table->n_shards; s++) {
		struct slot_info info;

		if (table->attached[s] && slot_read(table->attached[s], slot, &info) == 0 &&
		    info.state != SLOT_FREE && info.pin != SLOT_IDLE)
			return true;
	}
	return false;
}

/*
 * Finds a missing client with unapplied changes: no rebuild runs while it may return, so the sums
 * lack its changes.
 */
static bool note_debtor(struct repair *repair, const struct catalog_table *table)
{
	for (uint32_t slot = 0; slot < table->slots.n; slot++) {
		const struct slot_entry *entry = &table->slots.entries[slot];
		const struct client *client;
		struct repair_wait *wait;

		if (!entry->taken || slot + 1 == table->slots.own)
			continue;
		client = liveness_find(repair->live, entry->holder.client_id);
		if (!client || !liveness_is_missing(client) || !owes(table, slot))
			continue;
		wait = begin_wait(repair, table);
		snprintf(wait->words, sizeof(wait->words),
			 "table %s: rebuild waits for pid %u, which is away and not known to be "
			 "dead",
			 table->desc.name, entry->holder.process.pid);
		wait->pid = entry->holder.process.pid;
		wait->owner = slot + 1;
		return true;
	}
	return false;
}

static int take_slot(struct repair *repair, struct catalog_table *table)
{
	int ret = slots_get_own(&table->slots, &repair->self);

	if (ret)
		snprintf(begin_wait(repair, table)->words, REPAIR_WORDS_BYTES,
			 "table %s: rebuild waits for a client slot", table->desc.name);
	return ret;
}

static void give_slot(struct repair *repair, struct catalog_table *table)
{
	int ret;

	if (!table->slots.own)
		return;
	ret = slots_put(&table->slots, repair->self.client_id, table->slots.own);
	if (ret)
		log_warn("table %s: give own slot back: %s", table->desc.name, error_last());
	else
		table->slots.own = 0;
}

/* One pass over one shard. True if more work is due now. */
static bool rebuild_slice(struct repair *repair, struct catalog_table *table, uint32_t s)
{
	struct rebuild_opts opts = { .owner = table->slots.own, .clock = repair->clock };
	struct rebuild_report report = { 0 };
	int ret = table->kind->rebuild(table->attached[s], &opts, &report);

	if (report.waiting) {
		note_wait(repair, table, s, &report.wait);
		return false;
	}
	end_wait(repair, table->desc.table_id);
	if (ret) {
		log_warn("rebuild table %s shard %u: %s", table->desc.name, s, error_last());
		give_slot(repair, table); /* Our slot may predate the attachment of the shard */
		return false;
	}
	if (report.clean) {
		table->shards[s].drift = false;
		repair->done++;
		log_info("rebuilt table %s shard %u epoch %u leaves %llu", table->desc.name, s,
			 report.epoch, (unsigned long long)report.live_leaves);
	}
	return true;
}

static uint64_t work_on(struct repair *repair, struct catalog_table *table)
{
	uint32_t s = find_drift(table);

	if (s == table->n_shards) {
		give_slot(repair, table);
		if (!note_debtor(repair, table))
			end_wait(repair, table->desc.table_id);
		if (table->kind->tick_clean)
			table->kind->tick_clean(table);
		return IDLE_NS;
	}
	if (take_slot(repair, table))
		return WAIT_NS;
	return rebuild_slice(repair, table, s) ? BUSY_NS : WAIT_NS;
}

uint64_t repair_tick(struct repair *repair)
{
	uint64_t pause = IDLE_NS;

	for (uint32_t i = 0; i < TABLE_MAX_ID; i++) {
		uint64_t one;
		struct catalog_table *table;

		repair->table_id = repair->table_id % TABLE_MAX_ID + 1;
		table = repair->cat->tables[repair->table_id];
		if (!table) {
			end_wait(repair, repair->table_id);
			continue;
		}
		one = work_on(repair, table);
		if (one < pause)
			pause = one;
		if (one == BUSY_NS) /* a slice was done: return to the event loop */
			break;
	}
	return clock_now_ns(repair->clock) + pause;
}
