/*
 * control.c - the control shard of a table: its limiter words are the ones that count (protocol
 * rule 8).
 *
 * The words are read once a second. When the control shard is lost, another one is chosen and gets
 * the last reading, with admitted := committed: clients with admitted operations admit again.
 * Counts made after the last reading are unknown; for queues the balance of repair.h corrects them
 * from the items.
 *
 * When it is drained, its words are handed over unchanged. Once all clients count at the new
 * control shard, the counts made meanwhile at the old one are added to it.
 */
#include "catalog/kind_table.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "ds/limiter/balance.h"

#include "base/log.h"

static int read_words(struct shard *shard, struct limiter_words words[RING_MAX_VIEWS])
{
	int ret = 0;

	for (uint32_t v = 0; ret == 0 && v < shard->desc.n_views; v++)
		ret = limiter_words_read(shard->part.limits, shard_limits_off(shard, v), &words[v]);
	return ret;
}

void catalog_control_read(struct catalog_object *table)
{
	struct table_state *state = table_state_of(table);
	struct limiter_words words[RING_MAX_VIEWS] = { 0 };
	struct part *part = table->attached[table->control];

	if (!part || !table->parts[table->control].node->up)
		return;
	if (read_words(shard_of(part), words)) {
		log_warn("%s: limiter words: %s", table->text, error_last());
		return;
	}
	/* relaxed: set by the thread that meets the failure, i.e. this one. The words read were
	   zeros. */
	if (atomic_load_explicit(&part->limits->broken, memory_order_relaxed))
		return;
	memcpy(state->words, words, sizeof(state->words));
	state->words_known = true;
}

/* -------- move -------- */

/*
 * Returns a usable shard other than the control shard, an ACTIVE one if there is; n_parts = none.
 */
static uint32_t control_pick(const struct catalog_object *table)
{
	uint32_t best = table->n_parts;

	for (uint32_t s = 0; s < table->n_parts; s++) {
		uint32_t view = catalog_part_view(table, s);

		if (s == table->control)
			continue;
		if (view == PART_ACTIVE)
			return s;
		if (view == PART_DRAINING && best == table->n_parts)
			best = s;
	}
	return best;
}

/*
 * Makes shard `to` the control shard: writes `words` to it, with admitted := committed, and records
 * it in the store. If the store fails the control shard stays as it was.
 */
static int control_move(struct catalog *cat, struct catalog_object *table, uint32_t to,
			const struct limiter_words *words)
{
	const struct shard *shard = shard_of(table->attached[to]);
	uint32_t from = table->control;
	int ret = 0;

	for (uint32_t v = 0; ret == 0 && v < shard->desc.n_views; v++) {
		const struct view_limits limits = {
			.ins_admitted.word.raw = words[v].ins_committed,
			.ins_committed.word.raw = words[v].ins_committed,
			.smp_admitted.word.raw = words[v].smp_committed,
			.smp_committed.word.raw = words[v].smp_committed,
		};

		ret = transport_store(shard->part.limits, shard_limits_off(shard, v), &limits,
				      sizeof(limits));
	}
	if (ret)
		return ret;
	table->control = to;
	ret = catalog_object_put(cat->store, table, STORE_OBJECT_LIVE);
	if (ret) {
		table->control = from;
		return ret;
	}
	log_info("%s: shard %u is the control shard", table->text, to);
	catalog_changed(cat, table);
	return 0;
}

int catalog_control_hand_over(struct catalog *cat, struct catalog_object *table, uint32_t s)
{
	struct table_state *state = table_state_of(table);
	struct limiter_words *handed = state->handed[s];
	uint32_t to = control_pick(table);
	int ret;

	if (s != table->control)
		return 0;
	if (to == table->n_parts)
		return error_set(-EAGAIN, "no other shard is available");
	catalog_control_read(table);
	memcpy(handed, state->words, sizeof(state->words));
	ret = control_move(cat, table, to, state->words);
	return ret ? ret : 1;
}

/* -------- settle -------- */

int catalog_control_settle(struct catalog_object *table, uint32_t from)
{
	struct table_state *state = table_state_of(table);
	struct limiter_words *handed = state->handed[from];
	struct limiter_words now[RING_MAX_VIEWS] = { 0 };
	struct part *control = table->attached[table->control];
	int ret = error_set(-EHOSTDOWN, "control shard %u cannot be reached", table->control);

	if (control && table->attached[from])
		ret = read_words(shard_of(table->attached[from]), now);
	for (uint32_t v = 0; ret == 0 && v < state->desc.n_views; v++) {
		uint64_t off = shard_limits_off(shard_of(control), v);
		uint64_t inserted = now[v].ins_committed - handed[v].ins_committed;
		uint64_t sampled = now[v].smp_committed - handed[v].smp_committed;

		/* Both words of a side: every committed count was admitted there. */
		for (uint32_t word = 0; ret == 0 && word < 4; word++)
			ret = limiter_words_add(control->limits,
						off + word * sizeof(struct rword64_line),
						word < 2 ? inserted : sampled);
		if (ret == 0)
			handed[v] = now[v];
	}
	return ret;
}

/* -------- tick -------- */

/*
 * For limiter words that were never read: state->words counts the items present in all attached
 * shards as inserts, and no samples.
 */
static int words_from_items(struct catalog_object *table)
{
	struct table_state *state = table_state_of(table);

	for (uint32_t s = 0; s < table->n_parts; s++) {
		struct part *part = table->attached[s];

		for (uint32_t v = 0; part && v < state->desc.n_views; v++) {
			uint64_t items;
			int ret = table_shard_items(shard_of(part), v, &items);

			if (ret)
				return ret;
			state->words[v].ins_committed += items;
		}
	}
	state->words_known = true;
	return 0;
}

void catalog_control_tick(struct catalog *cat, struct catalog_object *table)
{
	struct table_state *state = table_state_of(table);
	uint32_t to;
	int ret = 0;

	if (!catalog_part_is_lost(table, table->control))
		return;
	to = control_pick(table);
	if (to == table->n_parts)
		return;
	if (!state->words_known)
		ret = words_from_items(table);
	if (ret == 0)
		ret = control_move(cat, table, to, state->words);
	if (ret)
		log_warn("%s: move its control shard: %s", table->text, error_last());
}
