#include "ds/replay/settle.h"

#include "transport/barrier.h"
#include "transport/transport.h"

#include "wire/ring_layout.h"

#include "base/bits.h"

#include <errno.h>
#include <stddef.h>

/* -------- open blocks -------- */

int shard_close_blocks(struct shard *shard, uint32_t owner, uint32_t *closed_out)
{
	struct transport_atomic ops[TRANSPORT_VECTOR];
	uint64_t headers[TRANSPORT_VECTOR] = { 0 };
	uint32_t closed = 0, blocks = shard->desc.blocks;

	for (uint32_t first = 0; first < blocks; first += TRANSPORT_VECTOR) {
		uint32_t n = (uint32_t)min_u64(TRANSPORT_VECTOR, blocks - first), n_ops = 0;
		int rc = transport_fetch(shard->tree, shard_header_off(shard, first), headers,
					 n * 8);

		for (uint32_t i = 0; !rc && i < n; i++)
			if (block_is_open(headers[i]) &&
			    (!owner || block_owner(headers[i]) == owner))
				ops[n_ops++] = (struct transport_atomic){
					.region = shard->tree,
					.off = shard_header_off(shard, first + i),
					.expected = headers[i],
					.value = headers[i] & ~BLOCK_OPEN,
				};
		if (!rc)
			rc = transport_cas(shard->tree->tr, ops, n_ops);
		if (rc)
			return rc;
		/* A header that changed meanwhile belongs to another owner: seq never recurs. */
		for (uint32_t i = 0; i < n_ops; i++) {
			if (ops[i].status != ATOMIC_DONE)
				return error_set(-EIO,
						 "close the block of a dead client: no answer");
			closed += ops[i].old == ops[i].expected;
		}
	}
	*closed_out = closed;
	return 0;
}

/* -------- admissions -------- */

/*
 * Gives back the admissions of a dead client on one side (inserts or samples) that it has not
 * committed: subtracts them from the count of all clients, at all_off, then from that of its page,
 * at own_off. own: admitted and committed of the page; *given += the number.
 * A page with committed > admitted was cut between two stores: it owes nothing. The client could
 * write any value there: no more is given back than all clients together have outstanding.
 * Committed is read first: both grow meanwhile, and the share of the dead client must not be
 * missed.
 */
static int give_side_back(struct shard *shard, uint64_t all_off, uint64_t own_off,
			  const struct rword64 own[2], uint64_t *given)
{
	uint64_t own_committed = rword64_load_relaxed(&own[1]), admitted, committed, old;
	uint64_t rest = rword64_load_relaxed(&own[0]);
	int rc;

	if (rest <= own_committed)
		return 0;
	rest -= own_committed;
	rc = transport_load(shard->part.limits, all_off + sizeof(struct rword64_line), &committed);
	if (!rc)
		rc = transport_load(shard->part.limits, all_off, &admitted);
	if (rc)
		return rc;
	rest = (int64_t)(admitted - committed) > 0 ? min_u64(rest, admitted - committed) : 0;
	if (rest)
		rc = transport_faa_word(shard->part.limits, all_off, 0 - rest, &old);
	if (!rc)
		rc = transport_store(shard->part.pages, own_off, &own_committed, 8);
	if (!rc)
		*given += rest;
	return rc;
}

/* -------- both -------- */

int shard_settle_dead(void *ctx, struct part *part, uint32_t owner)
{
	struct shard_settled nobody_asks = { .closed = 0 }, *report = ctx ? ctx : &nobody_asks;
	struct shard *shard = shard_of(part);
	struct rword64 limits[RING_MAX_VIEWS][2][2]; /* of struct slot_limits: by side */
	uint64_t off = part_page_off(part, owner - 1) + offsetof(struct client_page, limits);
	int rc = shard_close_blocks(shard, owner, &report->closed);

	static_assert(sizeof(limits) == sizeof(((struct client_page *)0)->limits), "all of it");
	if (!rc)
		rc = transport_fetch(part->pages, off, limits, sizeof(limits));
	/* L2 pairs with L1: the view's count after its CAS includes the one that the page held. */
	for (uint32_t v = 0; !rc && v < shard->desc.n_views; v++)
		for (uint32_t side = 0; !rc && side < 2; side++)
			rc = give_side_back(shard,
					    shard_limits_off(shard, v) + side * VIEW_LIMITS_SIDE,
					    off + (2 * (uint64_t)v + side) * SLOT_LIMITS_SIDE,
					    limits[v][side], &report->given_back[side]);
	return rc;
}

int shard_settle(struct shard *shard, uint32_t owner, struct shard_settled *report_out)
{
	struct shard_settled report = { .closed = 0 };
	const struct fence_kind kind = { shard_settle_dead, &report };
	int rc = fence_settle(&shard->part, owner, &kind, &report.fence);

	if (!rc && report_out)
		*report_out = report;
	return rc;
}
