/*
 * table.c - the table of generations, as the heap has it, and the entries that it does not name.
 */
#include "client/weights/weights.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct rlv_bytes weights_table_key = { "newest", 6 };

struct weights_key weights_entry_key(uint32_t owner, uint32_t index)
{
	struct weights_key key;

	key.len = (uint32_t)snprintf(key.text, sizeof(key.text), "%u/%u", owner, index);
	return key;
}

void weights_tell(struct rlv_generations *weights)
{
	const struct weights_gen *newest = &weights->table.gens[0];

	if (!weights->table.n)
		return;
	meta_progress_newest(&weights->watch.progress, newest->seq);
	atomic_store_explicit(&weights->watch.progress.version, newest->version,
			      memory_order_relaxed);
}

int weights_refresh(struct rlv_generations *weights)
{
	struct weights_table raw;
	struct rlv_kv_value value = { .size = sizeof(value), .ptr = &raw, .room = sizeof(raw) };
	int ret = weights->table_version ? rlv_kv_get_newer(weights->kv, weights_table_key,
							    weights->table_version, &value)
					 : rlv_kv_get(weights->kv, weights_table_key, &value);

	if (ret == -ENODATA) {
		error_clear();
		return 0;
	}
	if (ret == -ERANGE)
		return error_set(-EBADMSG, "weights: a table of %" PRIu64 " bytes", value.len);
	if (ret == 0)
		ret = weights_table_check(&raw, value.len, &weights->table);
	weights->table_version = ret ? 0 : value.version;
	if (ret == 0)
		weights_tell(weights);
	return ret;
}

/* -------- entries without a generation -------- */

struct orphan {
	uint32_t owner, index;
	uint64_t version; /* of its key */
};

/* Replaces the entry by nothing, if it is still that version. */
static int entry_empty(struct rlv_generations *weights, const struct orphan *orphan)
{
	struct weights_key key = weights_entry_key(orphan->owner, orphan->index);
	int ret = rlv_kv_put_if(weights->kv, weights_key_bytes(&key), (struct rlv_bytes){ "", 0 },
				orphan->version, NULL);

	if (ret ==
	    -ESTALE) /* its publisher has written it again, or a killed one's successor has emptied it */
		error_clear();
	return ret == -ESTALE ? 0 : ret;
}

static void entry_drop(struct rlv_generations *weights, const struct orphan *orphan)
{
	if (entry_empty(weights, orphan))
		error_clear();
}

void weights_drop(struct rlv_generations *weights, const struct weights_gen *gens, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct weights_gen *gen = &gens[i];

		if (gen->anchor.entry)
			entry_drop(weights, &(struct orphan){ gen->owner, gen->anchor_index,
							      gen->anchor.entry });
		if (gen->delta.entry)
			entry_drop(weights, &(struct orphan){ gen->owner, gen->delta_index,
							      gen->delta.entry });
	}
}

/* True if the key is that of an entry. */
static bool orphan_parse(const struct rlv_kv_walk *walk, struct orphan *out)
{
	char text[sizeof(((struct weights_key *)0)->text)] = "";
	struct weights_key key;
	char *end;

	if (walk->key_len >= sizeof(text))
		return false;
	memcpy(text, walk->key, walk->key_len);
	out->version = walk->version;
	out->owner = (uint32_t)strtoul(text, &end, 10);
	if (*end != '/')
		return false;
	out->index = (uint32_t)strtoul(end + 1, NULL, 10);
	key = weights_entry_key(out->owner, out->index);
	return strcmp(key.text, text) == 0;
}

/* Lists the entries that have bytes and are not named. *orphans: to be freed. */
static int orphans_find(struct rlv_generations *weights, struct orphan **orphans, size_t *n_out)
{
	struct rlv_kv_walk walk = RLV_KV_WALK_INIT;
	struct orphan orphan;
	size_t room = 0, n = 0;
	int ret;

	while ((ret = rlv_kv_next(weights->kv, &walk)) == 0) {
		if (walk.value_len == 0 || !orphan_parse(&walk, &orphan) ||
		    weights_table_names(&weights->table, orphan.owner, orphan.index))
			continue;
		if (n == room && !mem_grow(orphans, room, room + 16, sizeof(orphan)))
			return error_set(-ENOMEM, "weights: cannot allocate memory");
		room += n == room ? 16 : 0;
		(*orphans)[n++] = orphan;
	}
	*n_out = n;
	if (ret != -ENODATA)
		return ret;
	error_clear();
	return 0;
}

int weights_sweep(struct rlv_generations *weights)
{
	struct orphan *orphans = NULL;
	size_t n = 0;
	int ret = orphans_find(weights, &orphans, &n);

	/* A living publisher whose entry is among them read the table before: now it comes too late. */
	if (ret == 0 && n)
		ret = rlv_kv_put_if(weights->kv, weights_table_key,
				    (struct rlv_bytes){ &weights->table,
							weights_table_bytes(weights->table.n) },
				    weights->table_version, &weights->table_version);
	for (size_t i = 0; ret == 0 && i < n; i++)
		ret = entry_empty(weights, &orphans[i]);
	mem_free(orphans);
	if (ret == -ESTALE)
		return error_set(-EBUSY, "weights: another handle is publishing: publish again");
	weights->pub.swept = ret == 0;
	return ret;
}
