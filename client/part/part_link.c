#include "client/part/part_link.h"

#include "base/mem/alloc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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

/* In-place connections contribute failed CASes only: their other operations cross no wire. */
void part_set_stats(const struct part_set *set, struct transport_stats *out)
{
	*out = set->past;
	for (uint32_t i = 0; i < set->n_nodes; i++)
		if (set->nodes[i].tr)
			stats_add(out, set->nodes[i].tr);
}

/* -------- room -------- */

int part_link_grow(struct part_set *set, uint32_t n_parts)
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

int part_link_node_of(struct part_set *set, const char *uri, uint32_t *node_out)
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

/* -------- connections -------- */

/* Half of the remaining time, so that a silent node leaves time for others. */
int64_t part_set_patience(const struct part_set *set)
{
	const int64_t least_ns = 20 * CLOCK_NS_PER_MS, least_open_ns = 250 * CLOCK_NS_PER_MS;
	int64_t least = set->patience_ns > least_open_ns ? least_open_ns : least_ns;
	int64_t part = deadline_left_ns(set->clock, set->deadline_ns) / 2;

	if (part < least)
		part = least;
	return part < set->patience_ns ? part : set->patience_ns;
}

/*
 * Connects once for all parts on the node. Z2 pairs with Z1: operations of the previous connection
 * land before the first one on this connection, or never.
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

/* Opens the part. Its kind checks that the regions describe the part that the server granted. */
int part_link_open(struct part_set *set, uint32_t p, const struct meta_part *place)
{
	struct part_regions regions = { .owner = set->access.owner };
	struct part_status *status = &set->statuses[p];
	struct part_node *node;
	int ret = part_link_node_of(set, place->node_uri, &status->node);

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

void part_link_close(struct part_set *set, uint32_t p)
{
	set->kind->close(set->parts[p]);
	set->parts[p] = NULL;
	set->n_up--;
	node_disconnect_if_idle(set, set->statuses[p].node);
}

void part_link_close_all(struct part_set *set)
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
}

int part_link_take_page(struct part_set *set, uint32_t p, const struct meta_part *place)
{
	struct transport *tr = set->nodes[set->statuses[p].node].tr;
	struct region *page;
	int ret = transport_attach(tr, &place->grants[PART_PAGE], &page);

	if (ret)
		return ret;
	ret = part_take_page(set->parts[p], page, set->access.owner);
	if (ret)
		transport_detach(&page);
	return ret;
}
