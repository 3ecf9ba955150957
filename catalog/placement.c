#include "catalog/placement.h"

/* -------- one shard -------- */

uint32_t placement_pick(const struct placement_node *nodes, uint32_t n, uint32_t *turn)
{
	uint64_t most = 0, enough;

	for (uint32_t i = 0; i < n; i++)
		if (nodes[i].takes && nodes[i].free > most)
			most = nodes[i].free;
	enough = most - most / 16; /* nodes whose room differs by less are equals */
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = (uint32_t)(((uint64_t)*turn + i) % n);

		if (nodes[at].takes && nodes[at].free >= enough) {
			*turn = at + 1;
			return at;
		}
	}
	return n;
}

/* -------- the whole table -------- */

/* True if a has fewer shards than b, or as many and more room. */
static bool is_emptier(const struct placement_node *a, const struct placement_node *b)
{
	return a->shards < b->shards || (a->shards == b->shards && a->free > b->free);
}

/*
 * Returns, of the nodes that take shards, the emptiest one or, if `fullest`, the fullest one that
 * has shards. n = there is none.
 */
static uint32_t placement_end(const struct placement_node *nodes, uint32_t n, bool fullest)
{
	uint32_t best = n;

	for (uint32_t i = 0; i < n; i++)
		if (nodes[i].takes && (nodes[i].shards || !fullest) &&
		    (best == n ||
		     is_emptier(&nodes[fullest ? best : i], &nodes[fullest ? i : best])))
			best = i;
	return best;
}

struct placement_step placement_next(const struct placement_node *nodes, uint32_t n,
				     uint32_t wanted)
{
	struct placement_step step = { PLACEMENT_DONE, placement_end(nodes, n, false), n };
	uint64_t shards = 0;

	for (uint32_t i = n; i-- > 0;) {
		shards += nodes[i].shards;
		if (nodes[i].leaves && nodes[i].shards)
			step.from = i;
	}
	if (step.from < n) {
		step.kind = step.to < n ? PLACEMENT_MOVE : PLACEMENT_STUCK;
		return step;
	}
	step.from = placement_end(nodes, n, true);
	if (step.to == n)
		return step;
	if (shards < wanted)
		step.kind = PLACEMENT_ADD;
	else if (step.from < n && nodes[step.from].shards > nodes[step.to].shards + 1)
		step.kind = PLACEMENT_MOVE;
	return step;
}
