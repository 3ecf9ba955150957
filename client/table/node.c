#include "client/table/node.h"

#include "client/table/node_shard.h"

#include "base/mem/alloc.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define OPEN_MOST_NS (5 * CLOCK_NS_PER_S) /* for one connection, while the table is opened */
#define OPEN_LEAST_NS (250 * CLOCK_NS_PER_MS)
#define ASK_LEAST_NS (20 * CLOCK_NS_PER_MS) /* in calls on an open one */

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

/* Of connections in place only the CAS that failed: what else is done there never travels. */
void node_set_stats(const struct node_set *set, struct transport_stats *out)
{
	*out = set->past;
	for (uint32_t i = 0; i < set->n_nodes; i++)
		if (set->nodes[i].tr)
			stats_add(out, set->nodes[i].tr);
}

/* -------- room -------- */

int node_set_grow(struct node_set *set, uint32_t n_shards)
{
	if (n_shards <= set->n_shards)
		return 0;
	if (n_shards > TABLE_MAX_SHARDS)
		return error_set(-EPROTO, "table %s: %u shards: at most %u are supported",
				 set->desc->name, n_shards, TABLE_MAX_SHARDS);
	if (!mem_grow(&set->shards, set->n_shards, n_shards, sizeof(struct shard *)) ||
	    !mem_grow(&set->statuses, set->n_shards, n_shards, sizeof(struct shard_status)))
		return error_set(-ENOMEM, "cannot allocate memory for %u shards", n_shards);
	set->n_shards = n_shards;
	return 0;
}

int node_set_node_of(struct node_set *set, const char *uri, uint32_t *node_out)
{
	uint32_t i = 0;

	while (i < set->n_nodes && strcmp(set->nodes[i].uri, uri) != 0)
		i++;
	*node_out = i;
	if (i < set->n_nodes)
		return 0;
	if (!mem_grow(&set->nodes, set->n_nodes, set->n_nodes + 1, sizeof(struct node)))
		return error_set(-ENOMEM, "cannot allocate memory for %u nodes", set->n_nodes + 1);
	set->n_nodes++;
	snprintf(set->nodes[i].uri, sizeof(set->nodes[i].uri), "%s", uri);
	return 0;
}

/* -------- one shard -------- */

static int node_attach_regions(struct transport *tr, const struct meta_shard *place,
			       struct part_regions *regions)
{
	int ret = 0;

	for (uint32_t at = REGION_TREE; ret == 0 && at < PART_PLACES; at++)
		if (place->grants[at].bytes)
			ret = transport_attach(tr, &place->grants[at], &regions->at[at]);
	return ret;
}

/* What its regions say of it must be what the server said. */
static int node_open_regions(const struct node_set *set, struct transport *tr,
			     const struct meta_shard *place, uint32_t s, struct shard **shard_out)
{
	struct part_regions regions = { .owner = set->access.owner };
	struct table_desc want = *set->desc;
	int ret = node_attach_regions(tr, place, &regions);

	table_desc_seal(&want, s);
	if (ret == 0)
		ret = shard_open(&regions, &want, shard_out);
	if (ret)
		part_regions_detach(&regions);
	return ret;
}

static void node_close_shard(struct node_set *set, uint32_t s)
{
	shard_close(&set->shards[s]);
	set->n_up--;
}

static void node_disconnect(struct node_set *set, struct node *node)
{
	if (!node->tr)
		return;
	stats_add(&set->past, node->tr);
	transport_close(&node->tr);
}

/* Disconnects a node without open shards. */
static void node_disconnect_if_idle(struct node_set *set, uint32_t n)
{
	for (uint32_t s = 0; s < set->n_shards; s++)
		if (set->shards[s] && set->statuses[s].node == n)
			return;
	node_disconnect(set, &set->nodes[n]);
}

/* Once for all shards that are on it. Z2 pairs with Z1: what the last connection sent lands before
   anything is repeated on this one, or never. */
static int node_connect(struct node_set *set, struct node *node)
{
	int ret;

	if (set->questions && node->failed == set->questions)
		return error_set(-EHOSTDOWN, "node %s cannot be reached", node->uri);
	ret = set->meta->ops->connect(set->meta, node->uri, node_set_patience(set), node->link,
				      &node->tr);
	if (ret) {
		node->failed = set->questions;
		return ret;
	}
	node->link = node->tr->link;
	node->tr->deadline_ns = set->deadline_ns;
	return 0;
}

int node_set_open_shard(struct node_set *set, uint32_t s, const struct meta_shard *place)
{
	struct shard_status *status = &set->statuses[s];
	struct node *node;
	int ret;

	ret = node_set_node_of(set, place->node_uri, &status->node);
	if (ret)
		return ret;
	node = &set->nodes[status->node];
	ret = node->tr ? 0 : node_connect(set, node);
	if (ret)
		return ret;
	ret = node_open_regions(set, node->tr, place, s, &set->shards[s]);
	if (ret) {
		node_disconnect_if_idle(set, status->node);
		return ret;
	}
	set->n_up++;
	status->opened = ++set->version;
	ret = set->hooks ? set->hooks->join(set->ctx, s) : 0;
	if (ret) {
		node_close_shard(set, s);
		node_disconnect_if_idle(set, status->node);
	}
	return ret;
}

void node_set_close_shard(struct node_set *set, uint32_t s, enum rlv_shard_state state)
{
	uint32_t node = set->statuses[s].node;

	set->statuses[s].state = state;
	if (!set->shards[s])
		return;
	if (set->hooks)
		set->hooks->leave(set->ctx, s);
	node_close_shard(set, s);
	node_disconnect_if_idle(set, node);
	set->version++;
}

int node_set_take_page(struct node_set *set, uint32_t s, const struct meta_shard *place)
{
	const struct node *node = &set->nodes[set->statuses[s].node];
	struct region *page;
	int ret = transport_attach(node->tr, &place->grants[PART_PAGE], &page);

	if (ret)
		return ret;
	ret = part_take_page(&set->shards[s]->part, page, set->access.owner);
	if (ret)
		transport_detach(&page);
	return ret;
}

void node_set_count(struct node_set *set)
{
	set->n_away = 0;
	for (uint32_t s = 0; s < set->n_shards; s++)
		set->n_away += set->statuses[s].state == RLV_SHARD_DOWN;
}

/* -------- open, close -------- */

/* True if the node or this process is at fault, not only unreachable. */
static bool error_is_fatal(int code)
{
	return code == -ENOMEM || code == -EINVAL || code == -EPROTO || code == -EBADMSG ||
	       code == -ECHILD || code == -EPERM;
}

/* Opens what the server gave grants for. *away_out: set when its node could not be reached. */
static int node_open_first(struct node_set *set, uint32_t s, const struct meta_shard *place,
			   bool *away_out)
{
	int ret = node_set_see(set, s, place);

	if (ret || !node_state_is_usable(place->state))
		return ret;
	ret = node_set_open_shard(set, s, place);
	if (ret == 0)
		return 0;
	error_prefix(ret, "table %s shard %u: ", set->desc->name, s);
	if (error_is_fatal(ret))
		return ret;
	log_warn("table %s shard %u down node %s: %s", set->desc->name, s, place->node,
		 error_last());
	set->statuses[s].state = RLV_SHARD_DOWN;
	*away_out = true;
	return 0;
}

int node_set_open(const struct node_set *like, const struct meta_table *place, uint64_t deadline_ns,
		  struct node_set *out)
{
	struct node_set set = {
		.meta = like->meta,
		.desc = like->desc,
		.access = like->access,
		.clock = clock_monotonic(),
		.control = place->control,
		.layout = place->layout,
		.questions = 1,
		.deadline_ns = deadline_ns,
		.patience_ns = OPEN_MOST_NS,
	};
	bool away = false;
	int ret = node_set_grow(&set, place->n_shards);

	for (uint32_t s = 0; ret == 0 && s < place->n_shards; s++)
		ret = node_open_first(&set, s, &place->shards[s], &away);
	if (ret == 0 && set.n_up == 0)
		ret = away ? error_set(-EHOSTDOWN, "%s", error_last())
			   : error_set(-EHOSTDOWN, "table %s: none of its %u shards can be reached",
				       like->desc->name, place->n_shards);
	if (ret) {
		node_set_close(&set);
		return ret;
	}
	node_set_count(&set);
	*out = set;
	return 0;
}

void node_set_close(struct node_set *set)
{
	for (uint32_t s = 0; s < set->n_shards; s++)
		if (set->shards[s])
			node_close_shard(set, s);
	for (uint32_t i = 0; i < set->n_nodes; i++)
		node_disconnect(set, &set->nodes[i]);
	mem_free(set->nodes);
	mem_free(set->shards);
	mem_free(set->statuses);
	memset(set, 0, sizeof(*set));
}

/* -------- calls -------- */

void node_set_begin(struct node_set *set, uint64_t deadline_ns, int64_t patience_ns)
{
	set->deadline_ns = deadline_ns;
	set->patience_ns = patience_ns;
	for (uint32_t i = 0; i < set->n_nodes; i++)
		if (set->nodes[i].tr)
			set->nodes[i].tr->deadline_ns = deadline_ns;
}

/* Half of the remaining time, so that a silent node leaves time for others. */
int64_t node_set_patience(const struct node_set *set)
{
	int64_t least = set->patience_ns > OPEN_LEAST_NS ? OPEN_LEAST_NS : ASK_LEAST_NS;
	int64_t part = deadline_left_ns(set->clock, set->deadline_ns) / 2;

	if (part < least)
		part = least;
	return part < set->patience_ns ? part : set->patience_ns;
}

/* -------- looking -------- */

struct transport *node_set_any(const struct node_set *set)
{
	uint32_t i = 0;

	while (i < set->n_nodes && !set->nodes[i].tr)
		i++;
	return i < set->n_nodes ? set->nodes[i].tr : NULL;
}

int node_set_check(const struct node_set *set)
{
	const struct transport *tr = node_set_any(set);
	int ret = 0;

	if (!tr)
		return error_set(-EHOSTDOWN, "table %s: none of its shards can be reached",
				 set->desc->name);
	if (transport_is_forked(tr))
		return error_set(-ECHILD,
				 "this handle was opened before fork(): open one in the child");
	for (uint32_t s = 0; ret == 0 && s < set->n_shards; s++) {
		const struct shard *shard = set->shards[s];

		if (shard && shard->tree->tr->broken)
			ret = -EHOSTDOWN;
		else if (shard && shard->part.slots->base)
			ret = part_state(&shard->part);
	}
	return ret;
}

bool node_set_is_addressable(const struct node_set *set)
{
	bool addressable = true;

	for (uint32_t s = 0; s < set->n_shards; s++)
		if (set->shards[s])
			addressable &= transport_is_addressable(set->shards[s]->tree->tr);
	return addressable;
}

/* -------- dropping -------- */

static bool shard_is_orphaned(const struct shard *shard)
{
	return shard->part.slots->base && part_state(&shard->part) == -EHOSTDOWN;
}

static bool node_is_broken(const struct shard *shard)
{
	return shard->tree->tr->broken || shard_is_orphaned(shard);
}

bool node_set_has_broken(const struct node_set *set)
{
	for (uint32_t s = 0; s < set->n_shards; s++)
		if (set->shards[s] && node_is_broken(set->shards[s]))
			return true;
	return false;
}

uint32_t node_set_drop(struct node_set *set)
{
	uint32_t dropped = 0;

	for (uint32_t s = 0; s < set->n_shards; s++) {
		bool gone;

		if (!set->shards[s] || !node_is_broken(set->shards[s]))
			continue;
		gone = shard_is_orphaned(set->shards[s]);
		log_warn("table %s shard %u %s node %s", set->desc->name, s, gone ? "lost" : "down",
			 set->statuses[s].name);
		node_set_close_shard(set, s, gone ? RLV_SHARD_LOST : RLV_SHARD_DOWN);
		dropped++;
	}
	if (dropped) {
		node_set_count(set);
		node_set_ask_soon(set);
	}
	return dropped;
}
