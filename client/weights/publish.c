#include "client/weights/weights.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* -------- what may be published -------- */

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int names_check(const struct weights_entry *head)
{
	const char **names = mem_array(head->n, sizeof(names[0]));
	int ret = names ? 0 : error_set(-ENOMEM, "weights: cannot allocate memory");

	for (uint32_t i = 0; names && i < head->n; i++)
		names[i] = weights_name(head, &weights_tensors(head)[i]);
	if (names)
		qsort(names, head->n, sizeof(names[0]), by_name);
	for (uint32_t i = 1; ret == 0 && i < head->n; i++)
		if (strcmp(names[i - 1], names[i]) == 0)
			ret = error_set(-EINVAL, "two tensors have the name %s", names[i]);
	mem_free(names);
	return ret;
}

/* Reads the head of the anchor on which the newest generation builds, and compares. A head of other tensors may have other bytes. -EBUSY:
   that anchor was dropped. */
static int newest_compare(struct rlv_generations *weights, bool *alike_out)
{
	const struct weights_gen *gen = weights->table.gens;
	const struct weights_entry *head = weights->pub.head;
	struct weights_entry *newest = NULL;
	struct weights_key key;
	size_t room = 0;
	int ret;

	while (!gen->anchor.entry)
		gen++;
	*alike_out = false;
	if (gen->anchor.bytes < weights_payload_off(head))
		return 0;
	if (!weights_make_room(&newest, &room, weights_payload_off(head)))
		return error_set(-ENOMEM, "weights: cannot allocate memory");
	struct rlv_kv_value value = { .size = sizeof(value), .ptr = newest, .room = room };

	key = weights_entry_key(gen->owner, gen->anchor_index);
	ret = rlv_kv_get_range(weights->kv, weights_key_bytes(&key), 0, room, &value);
	if (ret == -ENOENT || (ret == 0 && value.version != gen->anchor.entry))
		ret = error_set(-EBUSY, "another handle published meanwhile: publish again");
	*alike_out = ret == 0 && value.len == room && weights_trees_alike(head, newest);
	mem_free(newest);
	return ret;
}

/* Compares with the newest generation. */
static int publish_check(struct rlv_generations *weights, uint64_t version, uint32_t flags)
{
	const struct weights_gen *newest = &weights->table.gens[0];
	bool any = weights->table.n > 0, alike;
	int ret;

	if (weights->pub.head->payload > weights->table.most)
		return error_set(-ERANGE,
				 "%" PRIu64
				 " bytes of tensors: create weights with opts.bytes above %" PRIu64,
				 weights->pub.head->payload, weights->table.most);
	if (any && version <= newest->version)
		return error_set(-EEXIST,
				 "version %" PRIu64 ": version %" PRIu64 " is published already",
				 version, newest->version);
	if (any && weights_tree_hash(weights->pub.head) == newest->tree)
		return 0;
	if (!any || (flags & RLV_PUBLISH_NEW_TREE))
		return names_check(weights->pub.head);
	/* Other tensors may be tied than before. */
	ret = newest_compare(weights, &alike);
	if (ret || alike)
		return ret;
	return error_set(-EINVAL,
			 "names, order, dtypes or shapes of the tensors are not those of version "
			 "%" PRIu64 ": publish them under another name, or with "
			 "RLV_PUBLISH_NEW_TREE",
			 newest->version);
}

/* -------- the entries -------- */

/* Puts the runs, of that many bytes, as the value of the key. */
static int runs_put(struct rlv_generations *weights, struct rlv_bytes key, uint64_t bytes,
		    uint64_t *version_out)
{
	struct weights_publisher *pub = &weights->pub;
	struct heap_put put = {
		.runs = pub->runs,
		.n_runs = pub->n_runs,
		.len = bytes,
		.expected = HEAP_ANY_VERSION,
		.paged = true,
	};
	uint64_t done = 0;

	if (bytes <= weights->kv->desc.extent_bytes && !heap_put_pages(&weights->kv->desc, &put)) {
		if (!weights_make_room(&pub->scratch, &pub->scratch_room, bytes))
			return error_set(-ENOMEM, "weights: cannot allocate %" PRIu64 " bytes",
					 bytes);
		for (uint32_t i = 0; i < pub->n_runs; done += pub->runs[i].len, i++)
			memcpy(pub->scratch + done, pub->runs[i].ptr, pub->runs[i].len);
		put.runs = NULL;
		put.value = pub->scratch;
	}
	return kv_put(weights->kv, key, &put, version_out);
}

static int anchor_put(struct rlv_generations *weights, struct weights_gen *gen)
{
	struct weights_key key = weights_entry_key(gen->owner, gen->anchor_index);

	weights->pub.head->seq = gen->seq;
	return runs_put(weights, weights_key_bytes(&key), gen->anchor.bytes, &gen->anchor.entry);
}

/* Puts the delta that the shadow has made. */
static int delta_put(struct rlv_generations *weights, struct weights_gen *gen)
{
	struct weights_key key = weights_entry_key(gen->owner, gen->delta_index);

	return rlv_kv_put(weights->kv, weights_key_bytes(&key),
			  (struct rlv_bytes){ weights->pub.shadow.entry, gen->delta.bytes },
			  &gen->delta.entry);
}

static int entries_put(struct rlv_generations *weights, struct weights_gen *gen)
{
	int ret = gen->delta.bytes ? delta_put(weights, gen) : 0;

	return ret || !gen->anchor.bytes ? ret : anchor_put(weights, gen);
}

/* Puts what the generation is to have, and describes it. */
static int generation_put(struct rlv_generations *weights, struct weights_gen *gen, uint32_t flags)
{
	int ret = weights_delta_make(weights, gen, flags);

	if (ret == 0)
		ret = entries_put(weights, gen);
	if (ret != -ENOSPC)
		return ret;
	/* Killed publishers may have left entries. */
	ret = weights_sweep(weights);
	return ret ? ret : entries_put(weights, gen);
}

/* -------- the table -------- */

/* Behind a put of the table that did not succeed: another was first, or the answer is lost. */
static int table_look(struct rlv_generations *weights, const struct weights_gen *gen, int error)
{
	struct error_kept kept;
	int ret;

	error_keep(&kept);
	ret = weights_refresh(weights);
	if (ret && error == -ESTALE)
		return ret;
	if (ret == 0 &&
	    weights_table_names(&weights->table, gen->owner,
				gen->anchor.entry ? gen->anchor_index : gen->delta_index))
		return 0;
	weights->stats.lost += error == -ESTALE;
	if (error == -ESTALE)
		return error_set(-EBUSY,
				 "another handle published meanwhile: publish version %" PRIu64
				 " again",
				 gen->version);
	error_restore(&kept);
	return error;
}

/* Makes the generation visible, and empties those that the table drops. */
static int table_put(struct rlv_generations *weights, const struct weights_gen *gen)
{
	struct weights_table next = weights->table;
	uint64_t version;
	uint32_t dropped;
	int ret;

	weights_table_add(&next, gen, &dropped);
	ret = rlv_kv_put_if(weights->kv, weights_table_key,
			    (struct rlv_bytes){ &next, weights_table_bytes(next.n) },
			    weights->table_version, &version);
	if (ret == -ESTALE || ret == -ETIMEDOUT || ret == -ECONNRESET)
		return table_look(weights, gen, ret);
	if (ret)
		return ret;
	weights->table = next;
	weights->table_version = version;
	weights_tell(weights);
	weights_drop(weights, &next.gens[next.n], dropped);
	return 0;
}

int rlv_weights_publish(struct rlv_generations *weights, const struct rlv_tensor *tensors, size_t n,
			uint64_t version, uint32_t flags)
{
	struct weights_gen gen = { .version = version };
	int ret;

	if (!weights || version == 0)
		return error_set(-EINVAL, "weights is NULL, or version is 0");
	if (flags & ~(uint32_t)(RLV_PUBLISH_ANCHOR | RLV_PUBLISH_NEW_TREE | RLV_PUBLISH_FINITE))
		return error_set(-EINVAL, "flags %#x: no such flag", flags);
	if (!weights->kv->slot.owner)
		return error_set(-EACCES, "the store was opened read-only");
	ret = weights_head_make(&weights->pub, tensors, n);
	if (ret == 0 && (flags & RLV_PUBLISH_FINITE))
		ret = weights_finite_check(&weights->pub);
	if (ret == 0)
		ret = weights_refresh(weights);
	if (ret == 0)
		ret = publish_check(weights, version, flags);
	if (ret == 0 && !weights->pub.swept)
		ret = weights_sweep(weights);
	if (ret)
		return ret;
	gen.seq = weights->table.n ? weights->table.gens[0].seq + 1 : 1;
	gen.owner = weights->kv->slot.owner;
	gen.anchor_index = weights_table_free(&weights->table, gen.owner, 0);
	gen.delta_index =
		weights_table_free(&weights->table, gen.owner, (uint16_t)(gen.anchor_index + 1));
	gen.tree = weights_tree_hash(weights->pub.head);
	gen.payload = weights->pub.head->payload;
	ret = generation_put(weights, &gen, flags);
	if (ret == 0)
		ret = table_put(weights, &gen);
	if (ret)
		return ret;
	weights->pub.shadow.seq = weights->pub.shadow.fresh ? gen.seq : 0;
	weights->stats.published++;
	weights->stats.anchors += gen.anchor.entry != 0;
	return 0;
}
