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

/* Node with fewest shards; of equals, the one with most room. n = no node takes shards. */
static uint32_t placement_emptiest(const struct placement_node *nodes, uint32_t n)
{
	uint32_t best = n;

	for (uint32_t i = 0; i < n; i++) {
		if (!nodes[i].takes)
			continue;
		if (best == n || nodes[i].shards < nodes[best].shards ||
		    (nodes[i].shards == nodes[best].shards && nodes[i].free > nodes[best].free))
			best = i;
	}
	return best;
}

/* Node with most shards; of equals, the one with least room. n = no node has any. */
static uint32_t placement_fullest(const struct placement_node *nodes, uint32_t n)
{
	uint32_t best = n;

	for (uint32_t i = 0; i < n; i++) {
		if (!nodes[i].takes || nodes[i].shards == 0)
			continue;
		if (best == n || nodes[i].shards > nodes[best].shards ||
		    (nodes[i].shards == nodes[best].shards && nodes[i].free < nodes[best].free))
			best = i;
	}
	return best;
}

struct placement_step placement_next(const struct placement_node *nodes, uint32_t n,
				     uint32_t wanted)
{
	struct placement_step step = { PLACEMENT_DONE, placement_emptiest(nodes, n), n };
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
	step.from = placement_fullest(nodes, n);
	if (step.to == n)
		return step;
	if (shards < wanted)
		step.kind = PLACEMENT_ADD;
	else if (step.from < n && nodes[step.from].shards > nodes[step.to].shards + 1)
		step.kind = PLACEMENT_MOVE;
	return step;
}
