#include "ds/limiter/balance.h"

#include "ds/limiter/limiter.h"
#include "ds/sumtree/rebuild.h"

#include "transport/barrier.h"

#include "wire/ring_layout.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define SLOTS_AT_ONCE 32u

/* Snapshot of all counts that a call of a client changes. */
struct look {
	struct limiter_words words;
	uint64_t admitted, committed; /* sums over the slots, both sides */
};

bool balance_applies(const struct view_desc *view)
{
	return view->max_times_sampled == 1 && view->limit.max_diff != INT64_MAX &&
	       view->limit.min_diff != INT64_MIN && view->limit.spi == 1u << LIMIT_SPI_BITS;
}

/* -------- look -------- */

/*
 * Adds the view's counts in the pages of all slots in use to *look; states and counts are read in
 * one phase for each 32 slots. -EAGAIN: a client is in a call: admitted and committed differ.
 */
static int look_at_slots(struct shard *shard, uint32_t view, struct look *look)
{
	uint32_t clients = shard->desc.max_clients;
	struct client_slot slots[SLOTS_AT_ONCE];
	struct slot_limits limits[SLOTS_AT_ONCE];
	struct transport_io ios[1 + SLOTS_AT_ONCE];

	for (uint32_t first = 0; first < clients; first += SLOTS_AT_ONCE) {
		uint32_t left = clients - first, n = left < SLOTS_AT_ONCE ? left : SLOTS_AT_ONCE;
		int rc;

		ios[0] = (struct transport_io){ .region = shard->part.slots,
						.off = part_slot_off(&shard->part, first),
						.dst = slots,
						.len = n * (uint32_t)sizeof(slots[0]) };
		for (uint32_t i = 0; i < n; i++)
			ios[1 + i] = (struct transport_io){
				.region = shard->part.pages,
				.off = part_page_off(&shard->part, first + i) +
				       offsetof(struct client_page, limits) +
				       view * sizeof(limits[0]),
				.dst = &limits[i],
				.len = sizeof(limits[0]),
			};
		rc = transport_read(shard->part.slots->tr, ios, 1 + n);
		if (rc)
			return rc;
		for (uint32_t i = 0; i < n; i++) {
			uint64_t ins_admitted = rword64_load_relaxed(&limits[i].ins_admitted);
			uint64_t ins_committed = rword64_load_relaxed(&limits[i].ins_committed);
			uint64_t smp_admitted = rword64_load_relaxed(&limits[i].smp_admitted);
			uint64_t smp_committed = rword64_load_relaxed(&limits[i].smp_committed);

			if (rword64_load_relaxed(&slots[i].state) == SLOT_FREE)
				continue;
			if (ins_admitted != ins_committed || smp_admitted != smp_committed)
				return -EAGAIN;
			look->admitted += ins_admitted + smp_admitted;
			look->committed += ins_committed + smp_committed;
		}
	}
	return 0;
}

/*
 * *items_out: live items of the view in all n shards, by the size words. -EAGAIN: a shard needs a
 * rebuild.
 */
static int count_items(struct shard *const *shards, uint32_t n, uint32_t view, int64_t *items_out)
{
	int64_t items = 0, size;
	int rc = 0;

	for (uint32_t s = 0; !rc && s < n; s++) {
		struct shard *shard = shards[s];
		bool needed = false;
		struct epoch ep;

		rc = part_rebuild_needed(&shard->part, &needed);
		if (!rc && needed)
			rc = -EAGAIN;
		epoch_init(&ep, &shard->part, 0);
		if (!rc)
			rc = sumtree_size(&shard->trees[view], &ep, &size);
		if (!rc)
			items += size;
	}
	*items_out = items;
	return rc;
}

static int look_twice(struct shard *const *shards, uint32_t n, uint32_t view,
		      struct limiter_words *words, int64_t *items)
{
	struct look first = { .admitted = 0 }, again = { .admitted = 0 };
	int rc = limiter_words_read(shards[0]->part.limits, shard_limits_off(shards[0], view),
				    &first.words);

	if (!rc)
		rc = look_at_slots(shards[0], view, &first);
	if (!rc)
		rc = transport_order(shards[0]->tree->tr);
	if (!rc)
		rc = count_items(shards, n, view, items);
	if (!rc)
		rc = transport_order(shards[0]->tree->tr);
	if (!rc)
		rc = look_at_slots(shards[0], view, &again);
	if (!rc)
		rc = limiter_words_read(shards[0]->part.limits, shard_limits_off(shards[0], view),
					&again.words);
	*words = first.words;
	if (!rc && memcmp(&first, &again, sizeof(first)) != 0)
		rc = -EAGAIN;
	return rc;
}

/* -------- correct -------- */

/*
 * Adds the corrections to the committed counts first, then sets admitted := committed: a kill
 * between two of these additions leaves counts that the next balance finds wrong again. Also
 * removes reservations that a kill gave back twice.
 */
int balance_view(struct shard *const *shards, uint32_t n, uint32_t view, int64_t *moved_out)
{
	struct region *limits = shards[0]->part.limits;
	uint64_t off = shard_limits_off(shards[0], view);
	struct limiter_words words;
	uint64_t inserted, sampled;
	int64_t items = 0, moved;
	int rc = look_twice(shards, n, view, &words, &items);

	if (rc)
		return rc;
	moved = (int64_t)(words.ins_committed - words.smp_committed - (uint64_t)items);
	inserted = moved < 0 ? 0 - (uint64_t)moved : 0;
	sampled = moved > 0 ? (uint64_t)moved : 0;
	rc = limiter_words_add(limits, off + offsetof(struct view_limits, ins_committed), inserted);
	if (!rc)
		rc = limiter_words_add(limits, off + offsetof(struct view_limits, smp_committed),
				       sampled);
	if (!rc)
		rc = limiter_words_add(limits, off + offsetof(struct view_limits, ins_admitted),
				       words.ins_committed + inserted - words.ins_admitted);
	if (!rc)
		rc = limiter_words_add(limits, off + offsetof(struct view_limits, smp_admitted),
				       words.smp_committed + sampled - words.smp_admitted);
	if (!rc)
		*moved_out = moved;
	return rc;
}
