#include "server/slots.h"

#include <errno.h>
#include <string.h>

#include "ds/fence.h"
#include "ds/slot.h"

#include "base/alloc.h"
#include "base/bits.h"
#include "base/log.h"

int slots_init(struct slots *slots, const struct table_desc *desc, struct shard **shards,
	       const bool *lost)
{
	memset(slots, 0, sizeof(*slots));
	slots->entries = mem_array(desc->max_clients, sizeof(struct slot_entry));
	if (!slots->entries)
		return error_set(-ENOMEM, "table %s: no memory for %u slots", desc->name,
				 desc->max_clients);
	slots->n = desc->max_clients;
	slots->n_shards = desc->n_shards;
	slots->shards = shards;
	slots->lost = lost;
	return 0;
}

void slots_fini(struct slots *slots)
{
	mem_free(slots->entries);
	memset(slots, 0, sizeof(*slots));
}

/* -------- after a restart -------- */

static void note(struct slots *slots, const struct slot_info *info,
		 void (*fn)(void *ctx, const struct slot_holder *), void *ctx)
{
	struct slot_entry *entry = &slots->entries[info->slot];
	struct slot_holder holder = { .client_id = info->lease, .process = info->process };

	entry->taken = true;
	entry->client_id = info->lease;
	entry->settling |= info->state == SLOT_FENCED;
	fn(ctx, &holder);
}

int slots_read(struct slots *slots, uint32_t shard,
	       void (*fn)(void *ctx, const struct slot_holder *), void *ctx)
{
	struct slot_info infos[SLOT_READ_MAX];

	for (uint32_t first = 0; first < slots->n; first += SLOT_READ_MAX) {
		uint32_t n = (uint32_t)min_u64(slots->n - first, SLOT_READ_MAX);
		int ret = slot_read_many(slots->shards[shard], first, n, infos);

		if (ret)
			return ret;
		for (uint32_t i = 0; i < n; i++)
			if (infos[i].state != SLOT_FREE)
				note(slots, &infos[i], fn, ctx);
	}
	return 0;
}

/* -------- get and put -------- */

/* What is to be done for a shard that is not attached: nothing, if it is lost; else later. */
static int absent(const struct slots *slots, uint32_t shard)
{
	return slots->shards[shard] || slots->lost[shard] ? 0 : -EAGAIN;
}

static void release(struct slots *slots, uint32_t slot, uint32_t n_shards)
{
	for (uint32_t s = 0; s < n_shards; s++) {
		int ret = slots->shards[s] ? slot_release(slots->shards[s], slot) : 0;

		if (ret && ret != -ESTALE)
			log_warn("release slot %u shard %u: %s", slot, s, error_last());
	}
}

static int take(struct slots *slots, uint32_t slot, const struct slot_holder *holder)
{
	for (uint32_t s = 0; s < slots->n_shards; s++) {
		int ret = 0;

		if (slots->shards[s])
			ret = slot_take(slots->shards[s], slot, &holder->process,
					holder->client_id);
		if (ret) {
			release(slots, slot, s + (ret == -EIO));
			return ret;
		}
	}
	return 0;
}

static int get(struct slots *slots, const struct slot_holder *holder, uint32_t *owner_out)
{
	for (uint32_t slot = 0; slot < slots->n; slot++) {
		int ret;

		if (slots->entries[slot].taken)
			continue;
		ret = take(slots, slot, holder);
		if (ret == -EBUSY) /* somebody's in the region, if not in the book */
			continue;
		if (ret)
			return ret;
		slots->entries[slot] = (struct slot_entry){
			.taken = true,
			.client_id = holder->client_id,
		};
		*owner_out = slot + 1;
		return 0;
	}
	return error_set(-ENOSPC, "no client slot is free: all %u (max_clients) are in use",
			 slots->n);
}

int slots_get(struct slots *slots, const struct slot_holder *holder, uint32_t *owner_out)
{
	for (uint32_t s = 0; s < slots->n_shards; s++)
		if (!slots->shards[s])
			return error_set(-EHOSTDOWN, "shard %u: its memory node is down", s);
	return get(slots, holder, owner_out);
}

int slots_get_own(struct slots *slots, const struct slot_holder *holder)
{
	return slots->own ? 0 : get(slots, holder, &slots->own);
}

int slots_put(struct slots *slots, uint64_t client_id, uint32_t owner)
{
	struct slot_entry *entry;
	int first = 0;

	if (owner == 0 || owner > slots->n)
		return error_set(-EINVAL, "owner %u: the table has 1 to %u", owner, slots->n);
	entry = &slots->entries[owner - 1];
	if (!entry->taken)
		return 0;
	if (entry->client_id != client_id)
		return error_set(-EACCES, "owner %u: not yours", owner);
	for (uint32_t s = 0; s < slots->n_shards; s++) {
		int ret = absent(slots, s);

		if (slots->shards[s])
			ret = slot_release(slots->shards[s], owner - 1);

		if (ret && ret != -ESTALE && !first)
			first = ret;
	}
	if (first == 0)
		*entry = (struct slot_entry){ .taken = false };
	return first;
}

/* -------- the dead -------- */

static int settle(struct slots *slots, uint32_t slot, bool *drift_out)
{
	int first = 0;

	slots->entries[slot].settling = true;
	for (uint32_t s = 0; s < slots->n_shards; s++) {
		struct fence_report report = { .was_idle = true };
		int ret = absent(slots, s);

		if (slots->shards[s])
			ret = fence_settle(slots->shards[s], slot + 1, &report);
		if (ret && !first)
			first = ret;
		*drift_out |= !report.was_idle || report.had_rebuild;
	}
	if (first == 0)
		slots->entries[slot] = (struct slot_entry){ .taken = false };
	return first;
}

int slots_settle(struct slots *slots, uint64_t client_id, bool *drift_out)
{
	int first = 0;

	*drift_out = false;
	for (uint32_t slot = 0; slot < slots->n; slot++) {
		bool drift = false;
		int ret;

		if (!slots->entries[slot].taken || slots->entries[slot].client_id != client_id)
			continue;
		ret = settle(slots, slot, &drift);
		*drift_out |= drift;
		if (ret && !first)
			first = ret;
		log_info("settle owner %u client %llu: %s", slot + 1, (unsigned long long)client_id,
			 ret ? error_name(ret) : "done");
	}
	return first ? -EAGAIN : 0;
}

bool slots_any(const struct slots *slots, uint64_t client_id)
{
	for (uint32_t slot = 0; slot < slots->n; slot++)
		if (slots->entries[slot].taken && slots->entries[slot].client_id == client_id)
			return true;
	return false;
}
