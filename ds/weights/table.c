#include "ds/weights/table.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static bool place_check(const struct weights_place *place)
{
	return !place->entry ||
	       (place->bytes >= sizeof(struct weights_entry) && place->bytes <= WEIGHTS_MOST);
}

static bool gen_check(const struct weights_gen *gen, const struct weights_gen *newer)
{
	if (!gen->anchor.entry && !gen->delta.entry)
		return false;
	if (gen->seq == 0 || gen->payload > WEIGHTS_MOST || !place_check(&gen->anchor) ||
	    !place_check(&gen->delta) || (gen->anchor.entry && gen->payload > gen->anchor.bytes))
		return false;
	if (newer && (gen->seq + 1 != newer->seq || gen->version >= newer->version))
		return false;
	/* A delta changes a payload of the same tensors. */
	return !newer || !newer->delta.entry ||
	       (gen->tree == newer->tree && gen->payload == newer->payload);
}

int weights_table_check(const void *bytes, uint64_t n, struct weights_table *out)
{
	if (n < WEIGHTS_TABLE_HEAD || n > sizeof(*out))
		return error_set(-EBADMSG, "weights: a table of %" PRIu64 " bytes", n);
	memset(out, 0, sizeof(*out));
	memcpy(out, bytes, n);
	if (out->magic != WEIGHTS_TABLE_MAGIC || out->n >= WEIGHTS_GENS_MAX ||
	    n != weights_table_bytes(out->n) || out->keep == 0 || out->keep > WEIGHTS_KEEP_MAX ||
	    out->anchor_every == 0 || out->anchor_every > WEIGHTS_ANCHOR_MAX)
		return error_set(-EBADMSG, "weights: the table is damaged");
	for (uint32_t i = 0; i < out->n; i++)
		if (!gen_check(&out->gens[i], i ? &out->gens[i - 1] : NULL))
			return error_set(-EBADMSG, "weights: generation %u of the table is damaged",
					 i);
	if (out->n && !out->gens[out->n - 1].anchor.entry)
		return error_set(-EBADMSG, "weights: the table ends without an anchor");
	return 0;
}

/* Index of the anchor on which generation i builds. */
static uint32_t anchor_of(const struct weights_table *table, uint32_t i)
{
	while (!table->gens[i].anchor.entry)
		i++;
	return i;
}

void weights_table_add(struct weights_table *table, const struct weights_gen *gen,
		       uint32_t *n_dropped_out)
{
	uint32_t n = table->n, stay;

	/* So n stays below the array's size: keep, and less than one run of deltas, were left. */
	memmove(&table->gens[1], &table->gens[0], n * sizeof(table->gens[0]));
	table->gens[0] = *gen;
	n++;
	stay = anchor_of(table, (n < table->keep ? n : table->keep) - 1) + 1;
	*n_dropped_out = n - stay;
	table->n = stay;
}

static bool gen_names(const struct weights_gen *gen, uint32_t owner, uint32_t index)
{
	return gen->owner == owner && ((gen->anchor.entry && gen->anchor_index == index) ||
				       (gen->delta.entry && gen->delta_index == index));
}

bool weights_table_names(const struct weights_table *table, uint32_t owner, uint32_t index)
{
	for (uint32_t i = 0; i < table->n; i++)
		if (gen_names(&table->gens[i], owner, index))
			return true;
	return false;
}

uint16_t weights_table_free(const struct weights_table *table, uint32_t owner, uint16_t index)
{
	while (weights_table_names(table, owner, index))
		index++;
	return index;
}

uint64_t weights_table_deltas(const struct weights_table *table, uint32_t *n_out)
{
	uint64_t bytes = 0;
	uint32_t i = 0;

	for (; !table->gens[i].anchor.entry; i++)
		bytes += table->gens[i].delta.bytes;
	*n_out = i;
	return bytes;
}

struct weights_way weights_table_way(const struct weights_table *table, uint32_t target,
				     uint64_t seq)
{
	struct weights_way deltas = { .begin = target };
	bool reached = false;

	for (uint32_t i = target; !reached && i < table->n && table->gens[i].delta.entry; i++) {
		deltas.begin = i;
		deltas.bytes += table->gens[i].delta.bytes;
		reached = table->gens[i].seq == seq + 1;
	}
	struct weights_way anchor = { .begin = target, .anchor = true };

	for (; !table->gens[anchor.begin].anchor.entry; anchor.begin++)
		anchor.bytes += table->gens[anchor.begin].delta.bytes;
	anchor.bytes += table->gens[anchor.begin].anchor.bytes;
	return seq && reached && deltas.bytes < anchor.bytes ? deltas : anchor;
}
