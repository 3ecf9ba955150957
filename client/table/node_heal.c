/*
 * Asks the metadata server for shard placement: from calls, never from a thread, and seldom.
 */
#include "client/table/node.h"
#include "client/table/node_shard.h"

#include "base/log.h"

#include <errno.h>
#include <stdio.h>

#define ASK_FIRST_NS (50 * (uint64_t)CLOCK_NS_PER_MS)
#define ASK_DOUBLINGS 6 /* 2 s at most, when jittered */
#define ASK_LAST_NS (2 * (uint64_t)CLOCK_NS_PER_S)

/* -------- the answer of the server -------- */

/* The address of an open shard is that of its connection. */
static int shard_see_address(struct node_set *set, uint32_t s, const char *uri)
{
	if (set->shards[s])
		return 0;
	set->statuses[s].node = UINT32_MAX;
	return *uri ? node_set_node_of(set, uri, &set->statuses[s].node) : 0;
}

int node_set_see(struct node_set *set, uint32_t s, const struct meta_shard *place)
{
	struct shard_status *status = &set->statuses[s];
	int ret = shard_see_address(set, s, place->node_uri);

	if (ret)
		return ret;
	status->state = place->state;
	status->weight = place->weight;
	status->weight_ns = clock_now_ns(set->clock);
	status->ramp_ns = place->ramp_ns;
	status->incarnation = place->incarnation;
	status->granted = node_state_is_usable(place->state);
	snprintf(status->name, sizeof(status->name), "%s", place->node);
	return 0;
}

uint32_t node_set_weight(const struct node_set *set, uint32_t shard, uint64_t now_ns)
{
	const struct shard_status *status = &set->statuses[shard];
	uint64_t past_ns = now_ns > status->weight_ns ? now_ns - status->weight_ns : 0;

	if (!set->shards[shard] || status->state != RLV_SHARD_ACTIVE)
		return 0;
	if (status->weight >= META_WEIGHT_FULL || past_ns >= status->ramp_ns)
		return META_WEIGHT_FULL;
	return status->weight + (uint32_t)((double)(META_WEIGHT_FULL - status->weight) *
					   (double)past_ns / (double)status->ramp_ns);
}

/* -------- applying it -------- */

/*
 * An open shard that the server cannot reach stays in use: our connection is alive. After a restart of
 * its node it is other memory, so it is closed.
 */
static void shard_close_gone(struct node_set *set, uint32_t s, const struct meta_shard *place)
{
	bool reborn = node_state_is_usable(place->state) && place->incarnation &&
		      place->incarnation != set->statuses[s].incarnation;

	if (!set->shards[s])
		return;
	if (place->state == RLV_SHARD_LOST || place->state == RLV_SHARD_GONE || reborn)
		node_set_close_shard(set, s, place->state);
}

static int shard_open_returned(struct node_set *set, uint32_t s, const struct meta_shard *place)
{
	int ret;

	if (!node_state_is_usable(place->state))
		return 0;
	ret = node_set_open_shard(set, s, place);
	if (ret) {
		set->statuses[s].state = RLV_SHARD_DOWN;
		log_info("table %s shard %u still down node %s: %s", set->desc->name, s,
			 place->node, error_last());
		return ret == -ECHILD ? ret : 0;
	}
	set->version++;
	log_info("table %s shard %u up node %s", set->desc->name, s, place->node);
	return 0;
}

static int node_set_take_shard(struct node_set *set, uint32_t s, const struct meta_shard *place)
{
	uint32_t was = set->statuses[s].state;
	int ret;

	shard_close_gone(set, s, place);
	ret = node_set_see(set, s, place);
	if (ret)
		return ret;
	if (!set->shards[s])
		return shard_open_returned(set, s, place);
	if (place->state == RLV_SHARD_DOWN)
		set->statuses[s].state = was;
	return 0;
}

static int node_set_take_place(struct node_set *set, const struct meta_table *place)
{
	int ret = node_set_grow(set, place->n_shards);

	for (uint32_t s = 0; ret == 0 && s < place->n_shards; s++)
		ret = node_set_take_shard(set, s, &place->shards[s]);
	if (ret)
		return ret;
	set->control = place->control;
	set->layout = place->layout;
	set->version++;
	return 0;
}

/* -------- another slot -------- */

/* A shard that the server cannot reach has no grant: what is open of it cannot be used any more. */
static int node_set_move_shard(struct node_set *set, uint32_t s, const struct meta_table *place)
{
	if (!set->shards[s])
		return 0;
	if (s < place->n_shards && place->shards[s].grants[PART_PAGE].bytes)
		return node_set_take_page(set, s, &place->shards[s]);
	node_set_close_shard(set, s, RLV_SHARD_DOWN);
	return 0;
}

int node_set_move(struct node_set *set, uint32_t owner)
{
	struct meta *meta = set->meta;
	struct meta_table place;
	int ret;

	set->access.owner = owner;
	ret = meta->ops->refresh(meta, set->desc, &set->access, node_set_patience(set), &place);
	if (ret)
		return ret;
	for (uint32_t s = 0; ret == 0 && s < set->n_shards; s++)
		ret = node_set_move_shard(set, s, &place);
	meta_table_fini(&place);
	node_set_count(set);
	return ret;
}

/* -------- when to ask -------- */

/* Half of the time to all of it, so that the clients of a dead node do not come in step. */
static uint64_t node_set_next_pause(const struct node_set *set, uint64_t now_ns)
{
	uint32_t doublings = set->asked < ASK_DOUBLINGS ? set->asked : ASK_DOUBLINGS;
	uint64_t most = ASK_FIRST_NS << doublings;

	if (most > ASK_LAST_NS)
		most = ASK_LAST_NS;
	return most / 2 + (now_ns ^ (uintptr_t)set) % (most / 2);
}

void node_set_ask_soon(struct node_set *set)
{
	set->asked = 0;
	set->ask_ns = set->asked_ns ? set->asked_ns + ASK_FIRST_NS / 2 : 0;
}

static bool node_set_has_news(const struct node_set *set)
{
	/* Relaxed: a hint. What it stands for comes with the answer. */
	return atomic_load_explicit(&set->meta->layout, memory_order_relaxed) > set->layout;
}

bool node_set_is_due(const struct node_set *set)
{
	if (set->n_away == 0 && set->n_up > 0 && node_set_has_control(set) &&
	    !node_set_has_news(set))
		return false;
	return clock_now_ns(set->clock) >= set->ask_ns;
}

int node_set_heal(struct node_set *set)
{
	struct meta *meta = set->meta;
	struct meta_table place;
	int ret;

	set->questions++;
	ret = meta->ops->refresh(meta, set->desc, &set->access, node_set_patience(set), &place);
	if (ret == 0) {
		ret = node_set_take_place(set, &place);
		meta_table_fini(&place);
		node_set_count(set);
	} else {
		log_debug("table %s: placement query failed: %s", set->desc->name, error_last());
	}
	if (set->n_away == 0 && ret == 0)
		set->asked = 0;
	else
		set->asked++;
	set->asked_ns = clock_now_ns(set->clock);
	set->ask_ns = set->asked_ns + node_set_next_pause(set, set->asked_ns);
	return ret == -ESTALE || ret == -ECHILD ? ret : 0;
}
