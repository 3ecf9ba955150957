/*
 * pages.c - content of /metrics and /healthz of the metadata server. It asks no node and reads no
 * region: item counts are those of the last look, once a second.
 */
#include "server/metad/metad.h"

#include <stdio.h>

#include "base/bits.h"

#include "catalog/kind_heap.h"
#include "catalog/kind_table.h"
#include "server/daemon/version.h"
#include "server/metad/lags.h"
#include "server/metad/waits.h"

#define METRICS_LABELS(...) \
	(struct metrics_label[]) \
	{ \
		__VA_ARGS__, \
		{ \
			NULL, NULL \
		} \
	}

/* -------- nodes -------- */

static const char *const node_states[] = { "down", "up", "draining", "lost" };

uint32_t metad_node_state(const struct node *node)
{
	if (node->up)
		return node->draining ? RELIVE__NODE_STATE__NODE_DRAINING
				      : RELIVE__NODE_STATE__NODE_UP;
	return node->lost ? RELIVE__NODE_STATE__NODE_LOST : RELIVE__NODE_STATE__NODE_DOWN;
}

static void put_nodes(const struct metad *md, struct metrics *m)
{
	static const char *const families[][2] = {
		{ "relive_node_up", "1: the memory node answers the server." },
		{ "relive_node_pool_bytes", "Size of the node's pool, in bytes." },
		{ "relive_node_used_bytes", "Of its pool, as the node said last, in bytes." },
		{ "relive_node_shards", "Shards of all tables that lie on the node." },
	};
	uint64_t n[ARRAY_LEN(node_states)] = { 0 };

	for (const struct node *node = md->nodes.first; node; node = node->next)
		n[metad_node_state(node)]++;
	metrics_family(m, "relive_nodes", METRICS_GAUGE,
		       "Memory nodes that the store knows, by state.");
	for (size_t i = 0; i < ARRAY_LEN(node_states); i++)
		metrics_u64(m, n[i], METRICS_LABELS({ "state", node_states[i] }));
	for (size_t i = 0; i < ARRAY_LEN(families); i++) {
		metrics_family(m, families[i][0], METRICS_GAUGE, families[i][1]);
		for (const struct node *node = md->nodes.first; node; node = node->next) {
			const uint64_t values[ARRAY_LEN(families)] = {
				node->up,
				node->pool_bytes,
				node->used_bytes,
				catalog_parts_of(&md->catalog, node, NULL),
			};

			metrics_u64(m, values[i], METRICS_LABELS({ "node", node->name }));
		}
	}
}

/* -------- tables -------- */

/* The table of that object id; NULL: no object has that id, or it is no table. */
static const struct catalog_object *table_at(const struct metad *md, uint32_t id)
{
	const struct catalog_object *object = md->catalog.objects[id];

	return object_is_table(object) ? object : NULL;
}

/* Writes capacity, client slots and shards by state of each table. Shard numbers are not reused:
   LOST and GONE shards are counted as well. */
static void put_tables(const struct metad *md, struct metrics *m)
{
	static const char *const states[] = { NULL, "active", "draining", "down", "lost", "gone" };
	static const char *const families[][2] = {
		{ "relive_table_capacity_steps", "Steps that the table holds at most." },
		{ "relive_table_slots",
		  "Client slots: writers and samplers that may be open at once." },
		{ "relive_table_slots_used", "Client slots that are taken." },
	};

	for (size_t i = 0; i < ARRAY_LEN(families); i++) {
		metrics_family(m, families[i][0], METRICS_GAUGE, families[i][1]);
		for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
			const struct catalog_object *table = table_at(md, id);
			uint64_t values[ARRAY_LEN(families)] = { 0 };

			if (!table)
				continue;
			values[0] = table_state_of(table)->desc.capacity;
			values[1] = table->slots.n;
			for (uint32_t slot = 0; slot < table->slots.n; slot++)
				values[2] += table->slots.entries[slot].taken;
			metrics_u64(m, values[i], METRICS_LABELS({ "table", table->name }));
		}
	}
	metrics_family(
		m, "relive_table_shards", METRICS_GAUGE,
		"Shards of a table by state; gone and lost ones have numbers that are used up.");
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		const struct catalog_object *table = table_at(md, id);
		uint64_t n[ARRAY_LEN(states)] = { 0 };

		for (uint32_t s = 0; table && s < table->n_parts; s++)
			n[catalog_part_view(table, s)]++;
		for (size_t i = 1; table && i < ARRAY_LEN(states); i++)
			metrics_u64(
				m, n[i],
				METRICS_LABELS({ "table", table->name }, { "state", states[i] }));
	}
}

/* -------- heaps -------- */

static void put_heaps(const struct metad *md, struct metrics *m)
{
	metrics_family(m, "relive_heap_copies", METRICS_GAUGE,
		       "Copies of a heap's parts: missing ones are away, or being filled.");
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		const struct catalog_object *heap = md->catalog.objects[id];
		struct heap_state state;

		if (!heap || heap->kind != &kind_heap)
			continue;
		state = kind_heap_state(heap);
		metrics_u64(m, state.whole,
			    METRICS_LABELS({ "heap", heap->name }, { "state", "whole" }));
		metrics_u64(m, state.wanted - state.whole,
			    METRICS_LABELS({ "heap", heap->name }, { "state", "missing" }));
		metrics_u64(m, state.filling,
			    METRICS_LABELS({ "heap", heap->name }, { "state", "filling" }));
	}
}

/* -------- lags -------- */

/* Families of the objects of one kind. */
struct lag_families {
	uint32_t kind;
	const char *label, *newest[2], *readers[2], *lag[2]; /* name and help */
};

static void put_lags_of(const struct lag_families *families, Relive__Lag *const *lags, size_t n,
			struct metrics *m)
{
	metrics_family(m, families->newest[0], METRICS_GAUGE, families->newest[1]);
	for (size_t i = 0; i < n; i++)
		if (lags[i]->kind == families->kind)
			metrics_u64(m, lags[i]->newest,
				    METRICS_LABELS({ families->label, lags[i]->name }));
	metrics_family(m, families->readers[0], METRICS_GAUGE, families->readers[1]);
	for (size_t i = 0; i < n; i++)
		if (lags[i]->kind == families->kind)
			metrics_u64(m, lags[i]->readers,
				    METRICS_LABELS({ families->label, lags[i]->name }));
	metrics_family(m, families->lag[0], METRICS_GAUGE, families->lag[1]);
	for (size_t i = 0; i < n; i++) {
		const struct {
			const char *of;
			uint64_t milli;
		} values[] = { { "least", lags[i]->least_milli },
			       { "mean", lags[i]->mean_milli },
			       { "most", lags[i]->most * 1000 } };

		for (size_t v = 0; lags[i]->kind == families->kind && v < ARRAY_LEN(values); v++)
			metrics_milli(m, values[v].milli,
				      METRICS_LABELS({ families->label, lags[i]->name },
						     { "of", values[v].of }));
	}
}

static void put_lags(const struct metad *md, struct metrics *m)
{
	static const struct lag_families of_tables = {
		OBJECT_TABLE,
		"table",
		{ "relive_table_policy_version", "Newest policy version that clients appended." },
		{ "relive_table_samplers", "Samplers that have sampled items with columns." },
		{ "relive_table_staleness",
		  "Policy versions that samplers' last batches are behind; most: the oldest item." },
	};
	static const struct lag_families of_weights = {
		OBJECT_HEAP,
		"weights",
		{ "relive_weights_version", "Newest version that clients published or saw." },
		{ "relive_weights_readers", "Handles that have fetched weights." },
		{ "relive_weights_publish_lag", "Generations that readers are behind." },
	};
	struct lags lags;

	lags_fill(md, &lags);
	put_lags_of(&of_tables, lags.list, lags.n, m);
	put_lags_of(&of_weights, lags.list, lags.n, m);
}

/* -------- items -------- */

/* Items admitted and not yet committed. 0 if fewer are admitted: a limiter's side without a bound
   admits none, and a clean close returns unused admissions. */
static uint64_t page_pending(uint64_t admitted, uint64_t committed)
{
	return admitted > committed ? admitted - committed : 0;
}

/* Writes the item counts of each view, by table. A table is left out until its control shard was
   attached: its counts are unknown. */
static void put_items(const struct metad *md, struct metrics *m)
{
	static const struct {
		const char *name;
		enum metrics_kind kind;
		const char *help;
	} families[] = {
		{ "relive_items_inserted_total", METRICS_COUNTER,
		  "Items that became complete in the view." },
		{ "relive_items_sampled_total", METRICS_COUNTER,
		  "Items of the view that were handed out." },
		{ "relive_items_inserting", METRICS_GAUGE,
		  "Items that the limiter admitted and that are not complete yet; views with max_diff only." },
		{ "relive_items_sampling", METRICS_GAUGE,
		  "Items that the limiter admitted and that are not handed out yet; views with min_diff only." },
	};

	for (size_t i = 0; i < ARRAY_LEN(families); i++) {
		metrics_family(m, families[i].name, families[i].kind, families[i].help);
		for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
			const struct catalog_object *table = table_at(md, id);
			const struct table_state *state = table ? table_state_of(table) : NULL;

			for (uint32_t v = 0; state && state->words_known && v < state->desc.n_views;
			     v++) {
				const struct limiter_words *words = &state->words[v];
				const uint64_t values[ARRAY_LEN(families)] = {
					words->ins_committed,
					words->smp_committed,
					page_pending(words->ins_admitted, words->ins_committed),
					page_pending(words->smp_admitted, words->smp_committed),
				};
				char number[12];

				snprintf(number, sizeof(number), "%u", v);
				metrics_u64(m, values[i],
					    METRICS_LABELS({ "table", table->name },
							   { "view", number }));
			}
		}
	}
}

/* -------- pages -------- */

void metad_write_metrics(void *ctx, struct metrics *m)
{
	uint64_t connected = 0, suspect = 0, fenced = 0;
	const struct metad *md = ctx;
	struct waits_counts counts;

	metrics_family(m, "relive_store_info", METRICS_GAUGE,
		       "1; the labels say which store and server it is.");
	metrics_u64(m, 1,
		    METRICS_LABELS({ "store", md->opts.store }, { "version", SERVER_VERSION }));
	metrics_family(m, "relive_store_term", METRICS_GAUGE,
		       "Number of the server's life: one more with each start.");
	metrics_u64(m, md->store->ids.term, NULL);
	metrics_family(m, "relive_tables", METRICS_GAUGE, "Tables of the store.");
	metrics_u64(m, catalog_count(&md->catalog, &kind_table), NULL);
	metrics_family(m, "relive_rebuilds_total", METRICS_COUNTER,
		       "Shards whose sums were made exact again since the server started.");
	metrics_u64(m, md->repair.done, NULL);
	waits_count(md, &counts);
	metrics_family(m, "relive_waits", METRICS_GAUGE,
		       "Who waits for others: relive status --why.");
	metrics_u64(m, counts.limiter, METRICS_LABELS({ "kind", "limiter" }));
	metrics_u64(m, counts.rebuild, METRICS_LABELS({ "kind", "rebuild" }));
	metrics_u64(m, counts.drain, METRICS_LABELS({ "kind", "drain" }));
	for (const struct client *client = md->live.first; client; client = client->next) {
		fenced += client->fenced;
		suspect += !client->fenced && client->suspect_since;
		connected += !client->fenced && !client->suspect_since;
	}
	metrics_family(m, "relive_clients", METRICS_GAUGE,
		       "Clients by state: suspect ones are silent, fenced ones are being settled.");
	metrics_u64(m, connected, METRICS_LABELS({ "state", "connected" }));
	metrics_u64(m, suspect, METRICS_LABELS({ "state", "suspect" }));
	metrics_u64(m, fenced, METRICS_LABELS({ "state", "fenced" }));
	put_nodes(md, m);
	put_tables(md, m);
	put_heaps(md, m);
	put_items(md, m);
	put_lags(md, m);
}

int metad_check_health(void *ctx)
{
	const struct metad *md = ctx;

	return statedb_check(md->store);
}
