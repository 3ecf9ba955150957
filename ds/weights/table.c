#include "ds/weights/table.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static bool gen_check(const struct weights_gen *gen, const struct weights_gen *newer)
{
	if (gen->kind != WEIGHTS_ANCHOR && gen->kind != WEIGHTS_DELTA)
		return false;
	if (gen->seq == 0 || gen->bytes > WEIGHTS_MOST || gen->payload > WEIGHTS_MOST ||
	    gen->bytes < sizeof(struct weights_entry) ||
	    (gen->kind == WEIGHTS_ANCHOR && gen->payload > gen->bytes))
		return false;
	if (newer && (gen->seq + 1 != newer->seq || gen->version >= newer->version))
		return false;
	/* A delta changes a payload of the same tensors. */
	return !newer || newer->kind == WEIGHTS_ANCHOR ||
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
	if (out->n && out->gens[out->n - 1].kind != WEIGHTS_ANCHOR)
		return error_set(-EBADMSG, "weights: the table ends without an anchor");
	return 0;
}

/* Index of the anchor on which generation i builds. */
static uint32_t anchor_of(const struct weights_table *table, uint32_t i)
{
	while (table->gens[i].kind != WEIGHTS_ANCHOR)
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

bool weights_table_names(const struct weights_table *table, uint32_t owner, uint32_t index)
{
	for (uint32_t i = 0; i < table->n; i++)
		if (table->gens[i].owner == owner && table->gens[i].index == index)
			return true;
	return false;
}

uint16_t weights_table_free(const struct weights_table *table, uint32_t owner)
{
	uint16_t index = 0;

	while (weights_table_names(table, owner, index))
		index++;
	return index;
}

uint64_t weights_table_deltas(const struct weights_table *table, uint32_t *n_out)
{
	uint64_t bytes = 0;
	uint32_t i = 0;

	for (; table->gens[i].kind != WEIGHTS_ANCHOR; i++)
		bytes += table->gens[i].bytes;
	*n_out = i;
	return bytes;
}

uint32_t weights_table_begin(const struct weights_table *table, uint32_t target, uint64_t seq)
{
	uint32_t anchor = anchor_of(table, target);
	uint64_t at = table->gens[target].seq;

	/* The payload is on the way from the anchor to the target. */
	if (seq >= table->gens[anchor].seq && seq < at)
		return target + (uint32_t)(at - seq) - 1;
	return anchor;
}
