/*
 * Loss and return of parts within calls. The metadata server is asked for the placement from calls,
 * never from a thread, and seldom.
 */
#include "client/part/part_set.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const uint64_t ask_first_ns = 50 * (uint64_t)CLOCK_NS_PER_MS;

static bool state_is_usable(uint32_t state)
{
	return state == RLV_SHARD_ACTIVE || state == RLV_SHARD_DRAINING;
}

static int part_set_none_up(const struct part_set *set)
{
	return error_set(-EHOSTDOWN, "%s %s: none of its %u %ss can be reached", set->kind->object,
			 set->object.name, set->n_parts, set->kind->part);
}

/* -------- looking -------- */

static const struct transport *part_set_any(const struct part_set *set)
{
	uint32_t i = 0;

	while (i < set->n_nodes && !set->nodes[i].tr)
		i++;
	return i < set->n_nodes ? set->nodes[i].tr : NULL;
}

bool part_set_is_forked(const struct part_set *set)
{
	const struct transport *tr = part_set_any(set);

	return tr && transport_is_forked(tr);
}

void part_turn_take(struct part_turn *turn, uint32_t n_parts, uint64_t now_ns)
{
	bool all = now_ns - turn->began_ns >= PART_TURN_NS;

	turn->first = all || turn->end >= n_parts ? 0 : turn->end;
	turn->end = all ? n_parts : (uint32_t)min_u64(turn->first + PART_LOOKS, n_parts);
	if (turn->first == 0)
		turn->began_ns = now_ns;
}

/* As part_set_check, of the states of the parts [first, end) only. */
static int part_set_look(const struct part_set *set, uint32_t first, uint32_t end)
{
	const struct transport *tr = part_set_any(set);
	int ret = 0;

	if (!tr)
		return part_set_none_up(set);
	if (transport_is_forked(tr))
		return error_set(-ECHILD,
				 "this handle was opened before fork(): open one in the child");
	for (uint32_t i = 0; ret == 0 && i < set->n_nodes; i++)
		if (set->nodes[i].tr && set->nodes[i].tr->broken)
			ret = -EHOSTDOWN;
	for (uint32_t p = first; ret == 0 && p < end; p++)
		if (set->parts[p] && set->parts[p]->slots->base)
			ret = part_state(set->parts[p]);
	return ret;
}

int part_set_check(const struct part_set *set)
{
	return part_set_look(set, 0, set->n_parts);
}

bool part_set_is_addressable(const struct part_set *set)
{
	bool addressable = true;

	for (uint32_t p = 0; p < set->n_parts; p++)
		if (set->parts[p])
			addressable &= transport_is_addressable(set->parts[p]->tree->tr);
	return addressable;
}

static bool part_is_orphaned(const struct part *part)
{
	return part->slots->base && part_state(part) == -EHOSTDOWN;
}

static bool part_is_broken(const struct part *part)
{
	return part && (part->tree->tr->broken || part_is_orphaned(part));
}

bool part_set_has_broken(const struct part_set *set)
{
	uint32_t p = 0;

	while (p < set->n_parts && !part_is_broken(set->parts[p]))
		p++;
	return p < set->n_parts;
}

uint32_t part_set_weight(const struct part_set *set, uint32_t p, uint64_t now_ns)
{
	const struct part_status *status = &set->statuses[p];
	uint64_t past_ns = now_ns > status->weight_ns ? now_ns - status->weight_ns : 0;

	if (!set->parts[p] || status->state != RLV_SHARD_ACTIVE)
		return 0;
	if (status->weight >= META_WEIGHT_FULL || past_ns >= status->ramp_ns)
		return META_WEIGHT_FULL;
	return status->weight + (uint32_t)((double)(META_WEIGHT_FULL - status->weight) *
					   (double)past_ns / (double)status->ramp_ns);
}

static void part_set_count_away(struct part_set *set)
{
	set->n_away = 0;
	for (uint32_t p = 0; p < set->n_parts; p++)
		set->n_away += set->statuses[p].state == RLV_SHARD_DOWN;
}

/* -------- room -------- */

/* Makes room for parts of numbers below n_parts. */
static int part_set_grow(struct part_set *set, uint32_t n_parts)
{
	const struct part_kind *kind = set->kind;
	uint32_t n = set->n_parts;

	if (n_parts <= n)
		return 0;
	if (n_parts > kind->max_parts)
		return error_set(-EPROTO, "%s %s: %u %ss: at most %u are supported", kind->object,
				 set->object.name, n_parts, kind->part, kind->max_parts);
	if (!mem_grow(&set->parts, n, n_parts, sizeof(struct part *)) ||
	    !mem_grow(&set->states, n, n_parts, sizeof(void *)) ||
	    !mem_grow(&set->statuses, n, n_parts, sizeof(struct part_status)))
		return error_set(-ENOMEM, "cannot allocate memory for %u %ss", n_parts, kind->part);
	set->n_parts = n_parts;
	return 0;
}

/* Gives the index of the node at that address; a new one is added, not connected. -ENOMEM. */
static int part_set_node_of(struct part_set *set, const char *uri, uint32_t *node_out)
{
	uint32_t i = 0;

	while (i < set->n_nodes && strcmp(set->nodes[i].uri, uri) != 0)
		i++;
	*node_out = i;
	if (i < set->n_nodes)
		return 0;
	if (!mem_grow(&set->nodes, set->n_nodes, set->n_nodes + 1, sizeof(struct part_node)))
		return error_set(-ENOMEM, "cannot allocate memory for %u nodes", set->n_nodes + 1);
	set->n_nodes++;
	snprintf(set->nodes[i].uri, sizeof(set->nodes[i].uri), "%s", uri);
	return 0;
}

/* -------- statistics -------- */

static void stats_add(struct transport_stats *sum, const struct transport *tr)
{
	const struct transport_stats *in = &tr->stats;

	sum->cas_failed += in->cas_failed;
	sum->unknown += in->unknown;
	if (!(tr->caps & TRANSPORT_ASYNC))
		return;
	sum->phases += in->phases;
	sum->reads += in->reads;
	sum->writes += in->writes;
	sum->cas += in->cas;
	sum->faa += in->faa;
	sum->read_bytes += in->read_bytes;
	sum->write_bytes += in->write_bytes;
}

/* In-place connections contribute only failed CASes and atomics without a known result: their
   other operations cross no wire. */
void part_set_stats(const struct part_set *set, struct transport_stats *out)
{
	*out = set->past;
	for (uint32_t i = 0; i < set->n_nodes; i++)
		if (set->nodes[i].tr)
			stats_add(out, set->nodes[i].tr);
}

/* -------- connections -------- */

/* Half of the remaining time, so that a silent node leaves time for others; at least 20 or 250
   ms, at most set->patience_ns. */
int64_t part_set_patience(const struct part_set *set)
{
	const int64_t least_ns = 20 * CLOCK_NS_PER_MS, least_open_ns = 250 * CLOCK_NS_PER_MS;
	int64_t least = set->patience_ns > least_open_ns ? least_open_ns : least_ns;
	int64_t part = deadline_left_ns(set->clock, set->deadline_ns) / 2;

	if (part < least)
		part = least;
	return part < set->patience_ns ? part : set->patience_ns;
}

static void node_disconnect(struct part_set *set, struct part_node *node)
{
	if (!node->tr)
		return;
	stats_add(&set->past, node->tr);
	transport_close(&node->tr);
}

static void node_disconnect_if_idle(struct part_set *set, uint32_t n)
{
	for (uint32_t p = 0; p < set->n_parts; p++)
		if (set->parts[p] && set->statuses[p].node == n)
			return;
	node_disconnect(set, &set->nodes[n]);
}

/* -------- one part -------- */

/*
 * Connects once for all parts on the node; -EHOSTDOWN if that failed since the last request to the
 * server. Z2 pairs with Z1: operations of the previous connection land before the first one on this
 * connection, or never.
 */
static int node_connect(struct part_set *set, struct part_node *node)
{
	int ret;

	if (set->questions && node->failed == set->questions)
		return error_set(-EHOSTDOWN, "node %s cannot be reached", node->uri);
	ret = set->meta->ops->connect(set->meta, node->uri, part_set_patience(set), node->link,
				      &node->tr);
	if (ret) {
		node->failed = set->questions;
		return ret;
	}
	node->link = node->tr->link;
	node->tr->deadline_ns = set->deadline_ns;
	return 0;
}

/* Opens a closed part, without a state. Its kind checks that the regions describe the part that the server
   granted. */
static int part_set_open_part(struct part_set *set, uint32_t p, const struct meta_part *place)
{
	struct part_regions regions = { .owner = set->access.owner };
	struct part_status *status = &set->statuses[p];
	struct part_node *node;
	int ret = part_set_node_of(set, place->node_uri, &status->node);

	if (ret)
		return ret;
	node = &set->nodes[status->node];
	ret = node->tr ? 0 : node_connect(set, node);
	if (ret)
		return ret;
	for (uint32_t at = REGION_TREE; ret == 0 && at < PART_PLACES; at++)
		if (place->grants[at].bytes)
			ret = transport_attach(node->tr, &place->grants[at], &regions.at[at]);
	if (ret == 0)
		ret = set->kind->open(set->desc, p, &regions, &set->parts[p]);
	if (ret) {
		part_regions_detach(&regions);
		node_disconnect_if_idle(set, status->node);
		return ret;
	}
	set->n_up++;
	status->opened = ++set->version;
	return 0;
}

/* Closes an open part, whose state has ended, and its connection if no other part uses it. */
static void part_set_close_part(struct part_set *set, uint32_t p)
{
	set->kind->close(set->parts[p]);
	set->parts[p] = NULL;
	set->n_up--;
	node_disconnect_if_idle(set, set->statuses[p].node);
}

/* -------- states -------- */

static int part_set_attach_part(struct part_set *set, uint32_t p, bool returned)
{
	if (!set->hooks || !set->hooks->attach)
		return 0;
	return set->hooks->attach(set->ctx, p, returned, &set->states[p]);
}

int part_set_attach(struct part_set *set)
{
	int ret = 0;

	for (uint32_t p = 0; ret == 0 && p < set->n_parts; p++)
		if (set->parts[p] && !set->states[p])
			ret = part_set_attach_part(set, p, false);
	return ret;
}

void part_set_detach(struct part_set *set, void (*end)(void *ctx, uint32_t p, void *state))
{
	for (uint32_t p = 0; p < set->n_parts; p++) {
		if (set->states[p])
			end(set->ctx, p, set->states[p]);
		set->states[p] = NULL;
	}
}

/* -------- parts that go -------- */

static void part_set_lose(struct part_set *set, uint32_t p, enum rlv_shard_state state)
{
	set->statuses[p].state = state;
	if (!set->parts[p])
		return;
	if (set->states[p])
		set->hooks->detach(set->ctx, p, set->states[p]);
	set->states[p] = NULL;
	part_set_close_part(set, p);
	set->lost++;
	set->version++;
}

uint32_t part_set_drop(struct part_set *set)
{
	uint32_t dropped = 0;

	for (uint32_t p = 0; p < set->n_parts; p++) {
		bool gone;

		if (!part_is_broken(set->parts[p]))
			continue;
		gone = part_is_orphaned(set->parts[p]);
		log_warn("%s %s %s %u %s node %s", set->kind->object, set->object.name,
			 set->kind->part, p, gone ? "lost" : "down", set->statuses[p].name);
		part_set_lose(set, p, gone ? RLV_SHARD_LOST : RLV_SHARD_DOWN);
		dropped++;
	}
	if (dropped) {
		part_set_count_away(set);
		/* The next request is due now, unless the server has just been asked. */
		set->asked = 0;
		set->ask_ns = set->asked_ns ? set->asked_ns + ask_first_ns / 2 : 0;
	}
	return dropped;
}

/* -------- the answer of the server -------- */

/* Stores the server's description of part p; but the node of an open part stays that of its
   connection. -ENOMEM. */
static int part_set_see(struct part_set *set, uint32_t p, const struct meta_part *place)
{
	struct part_status *status = &set->statuses[p];
	int ret = 0;

	if (!set->parts[p]) {
		status->node = UINT32_MAX;
		if (*place->node_uri)
			ret = part_set_node_of(set, place->node_uri, &status->node);
	}
	if (ret)
		return ret;
	status->state = place->state;
	status->weight = place->weight;
	status->weight_ns = clock_now_ns(set->clock);
	status->ramp_ns = place->ramp_ns;
	status->incarnation = place->incarnation;
	status->granted = state_is_usable(place->state);
	snprintf(status->name, sizeof(status->name), "%s", place->node);
	return 0;
}

/* Opens part p if the server gave grants for it. If its node cannot be reached, the part is
   DOWN, *away_out is set, and the result is 0. */
static int part_set_open_first(struct part_set *set, uint32_t p, const struct meta_part *place,
			       bool *away_out)
{
	const struct part_kind *kind = set->kind;
	int ret = part_set_see(set, p, place);

	if (ret || !state_is_usable(place->state))
		return ret;
	ret = part_set_open_part(set, p, place);
	if (ret == 0)
		return 0;
	error_prefix(ret, "%s %s %s %u: ", kind->object, set->object.name, kind->part, p);
	/* The node or this process is at fault, not only unreachable. */
	if (ret == -ENOMEM || ret == -EINVAL || ret == -EPROTO || ret == -EBADMSG ||
	    ret == -ECHILD || ret == -EPERM)
		return ret;
	log_warn("%s %s %s %u down node %s: %s", kind->object, set->object.name, kind->part, p,
		 place->node, error_last());
	set->statuses[p].state = RLV_SHARD_DOWN;
	*away_out = true;
	return 0;
}

/* Opens and attaches part p, which the server grants anew. After a failure the part is DOWN, and
   the result is 0, or -ECHILD. */
static int part_set_open_returned(struct part_set *set, uint32_t p, const struct meta_part *place)
{
	const struct part_kind *kind = set->kind;
	int ret = part_set_open_part(set, p, place);

	if (ret == 0) {
		ret = part_set_attach_part(set, p, true);
		if (ret)
			part_set_close_part(set, p);
	}
	if (ret) {
		set->statuses[p].state = RLV_SHARD_DOWN;
		log_info("%s %s %s %u still down node %s: %s", kind->object, set->object.name,
			 kind->part, p, place->node, error_last());
		return ret == -ECHILD ? ret : 0;
	}
	set->version++;
	log_info("%s %s %s %u up node %s", kind->object, set->object.name, kind->part, p,
		 place->node);
	return 0;
}

/*
 * Applies the server's description of part p: opens a part that is granted anew, closes one that is
 * LOST or GONE. An open part that the server cannot reach stays in use: our connection is alive.
 * After a restart of its node it is other memory, so it is closed.
 */
static int part_set_take_part(struct part_set *set, uint32_t p, const struct meta_part *place)
{
	uint32_t was = set->statuses[p].state;
	bool reborn = state_is_usable(place->state) && place->incarnation &&
		      place->incarnation != set->statuses[p].incarnation;
	int ret;

	if (set->parts[p] &&
	    (place->state == RLV_SHARD_LOST || place->state == RLV_SHARD_GONE || reborn))
		part_set_lose(set, p, place->state);
	ret = part_set_see(set, p, place);
	if (ret)
		return ret;
	if (!set->parts[p])
		return state_is_usable(place->state) ? part_set_open_returned(set, p, place) : 0;
	if (place->state == RLV_SHARD_DOWN)
		set->statuses[p].state = was;
	return 0;
}

/* -------- open, close -------- */

int part_set_open(const struct part_set *like, const struct meta_place *place, uint64_t deadline_ns,
		  struct part_set *out)
{
	struct part_set set = *like;
	bool away = false;
	int ret;

	set.clock = clock_monotonic();
	set.control = place->control;
	set.layout = place->layout;
	set.questions = 1;
	set.deadline_ns = deadline_ns;
	set.patience_ns = 5 * CLOCK_NS_PER_S; /* for one connection */
	ret = part_set_grow(&set, place->n_parts);
	for (uint32_t p = 0; ret == 0 && p < place->n_parts; p++)
		ret = part_set_open_first(&set, p, &place->parts[p], &away);
	if (ret == 0 && set.n_up == 0)
		ret = away ? error_set(-EHOSTDOWN, "%s", error_last()) : part_set_none_up(&set);
	if (ret) {
		part_set_close(&set);
		return ret;
	}
	part_set_count_away(&set);
	set.told = set.version;
	*out = set;
	return 0;
}

void part_set_close(struct part_set *set)
{
	for (uint32_t p = 0; p < set->n_parts; p++)
		if (set->parts[p])
			set->kind->close(set->parts[p]);
	for (uint32_t i = 0; i < set->n_nodes; i++)
		node_disconnect(set, &set->nodes[i]);
	mem_free(set->nodes);
	mem_free(set->parts);
	mem_free(set->states);
	mem_free(set->statuses);
	memset(set, 0, sizeof(*set));
}

/* -------- calls -------- */

void part_set_begin(struct part_set *set, uint64_t deadline_ns, int64_t patience_ns)
{
	set->deadline_ns = deadline_ns;
	set->patience_ns = patience_ns;
	for (uint32_t i = 0; i < set->n_nodes; i++)
		if (set->nodes[i].tr)
			set->nodes[i].tr->deadline_ns = deadline_ns;
}

bool part_set_is_due(const struct part_set *set)
{
	/*
	 * Relaxed: the number is only a hint that a newer layout exists; the server's reply carries
	 * the layout.
	 */
	if (set->n_away == 0 && set->n_up > 0 &&
	    (!set->kind->has_control || part_set_has_control(set)) &&
	    atomic_load_explicit(&set->meta->layout, memory_order_relaxed) <= set->layout)
		return false;
	return clock_now_ns(set->clock) >= set->ask_ns;
}

int part_set_heal(struct part_set *set)
{
	enum { DOUBLINGS = 6 };
	const uint64_t last_ns = 2 * (uint64_t)CLOCK_NS_PER_S;
	struct meta *meta = set->meta;
	struct meta_opened opened;
	uint64_t most;
	int ret;

	set->questions++;
	ret = meta->ops->open(meta, &set->object, &set->access, part_set_patience(set), &opened);
	if (ret == 0) {
		ret = part_set_grow(set, opened.place.n_parts);
		for (uint32_t p = 0; ret == 0 && p < opened.place.n_parts; p++)
			ret = part_set_take_part(set, p, &opened.place.parts[p]);
		if (ret == 0) {
			set->control = opened.place.control;
			set->layout = opened.place.layout;
			set->version++;
		}
		meta_opened_fini(&opened);
		part_set_count_away(set);
	} else {
		log_debug("%s %s: placement query failed: %s", set->kind->object, set->object.name,
			  error_last());
	}
	set->asked = set->n_away == 0 && ret == 0 ? 0 : set->asked + 1;
	set->asked_ns = clock_now_ns(set->clock);
	/* Half of the pause to all of it, so that the clients of a dead node do not come in step. */
	most = min_u64(ask_first_ns << min_u64(set->asked, DOUBLINGS), last_ns);
	set->ask_ns = set->asked_ns + most / 2 + (set->asked_ns ^ (uintptr_t)set) % (most / 2);
	return ret == -ESTALE || ret == -ECHILD ? ret : 0;
}

bool part_set_is_quiet(const struct part_set *set)
{
	if (set->told != set->version || set->n_parts > PART_FEW || !set->n_nodes ||
	    part_set_is_due(set))
		return false;
	for (uint32_t i = 0; i < set->n_nodes; i++) {
		const struct transport *tr = set->nodes[i].tr;

		if (!tr || tr->broken || transport_is_forked(tr))
			return false;
	}
	for (uint32_t p = 0; p < set->n_parts; p++) {
		const struct part *part = set->parts[p];

		if (!part || !part->slots->base || part_state(part))
			return false;
	}
	return true;
}

int part_set_enter(struct part_set *set)
{
	int ret;

	if (part_set_is_quiet(set))
		return 0;
	if (set->n_parts > PART_FEW)
		set->now_ns = clock_now_ns(set->clock);
	part_turn_next(&set->turn, set->n_parts, set->now_ns);
	ret = part_set_look(set, set->turn.first, set->turn.end);
	if (ret && ret != -EHOSTDOWN)
		return ret;
	if (ret == 0 && set->told == set->version && !part_set_is_due(set))
		return 0;
	/* Applies changes, during which another node may be lost. */
	part_set_drop(set);
	ret = part_set_is_due(set) ? part_set_heal(set) : 0;
	if (ret == 0 && set->told != set->version && set->hooks && set->hooks->moved)
		ret = set->hooks->moved(set->ctx);
	if (ret)
		return ret;
	set->told = set->version;
	return set->n_up ? 0 : part_set_none_up(set);
}

/* -------- another slot -------- */

int part_set_move(struct part_set *set, uint32_t owner)
{
	struct meta *meta = set->meta;
	struct meta_opened opened;
	int ret;

	set->access.owner = owner;
	ret = meta->ops->open(meta, &set->object, &set->access, part_set_patience(set), &opened);
	if (ret)
		return ret;
	for (uint32_t p = 0; ret == 0 && p < set->n_parts; p++) {
		struct part *part = set->parts[p];
		const struct region_grant *grant;
		struct region *page;

		if (!part)
			continue;
		grant = p < opened.place.n_parts ? &opened.place.parts[p].grants[PART_PAGE] : NULL;
		if (!grant || !grant->bytes) { /* the server cannot reach it: of no use any more */
			part_set_lose(set, p, RLV_SHARD_DOWN);
			continue;
		}
		ret = transport_attach(part->tree->tr, grant, &page);
		if (ret)
			break;
		ret = part_take_page(part, page, owner);
		if (ret)
			transport_detach(&page);
	}
	meta_opened_fini(&opened);
	part_set_count_away(set);
	return ret;
}
