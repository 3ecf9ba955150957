/*
 * delta.c - a publisher's deltas. It compares with its shadow, a copy of an earlier generation, which costs
 * memory and a pass to bring up to date. So the shadow stays as it is while most of what is published changes,
 * but for one generation in anchor_every: where elements change seldom, they show it there.
 */
#include "client/weights/weights.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>

#define MOST_OF_PAYLOAD 4u /* a delta above that part of the payload does not pay */
#define MOST_OF_ALL 2u     /* all deltas behind one anchor */

/* Memory for the tensors of pub. */
static bool shadow_fit(struct weights_publisher *pub)
{
	struct weights_shadow *shadow = &pub->shadow;

	shadow->seq = 0;
	shadow->tree = 0;
	return weights_make_room(&shadow->payload, &shadow->room, pub->head->payload) &&
	       mem_make_room(&shadow->sums, &shadow->sums_room, pub->head->n,
			     sizeof(shadow->sums[0]));
}

static struct weights_copy shadow_copy(const struct weights_publisher *pub)
{
	return (struct weights_copy){ .head = pub->head,
				      .payload = pub->shadow.payload,
				      .sums = pub->shadow.sums };
}

/* Bytes that a delta to gen may have; 0 = it must be an anchor. */
static uint64_t delta_most(const struct rlv_generations *weights, const struct weights_gen *gen,
			   uint32_t flags)
{
	const struct weights_table *table = &weights->table;
	uint64_t used, all = gen->payload / MOST_OF_ALL;
	uint32_t n;

	if (!table->n || (flags & RLV_PUBLISH_ANCHOR) ||
	    weights->pub.shadow.seq != table->gens[0].seq || gen->tree != table->gens[0].tree)
		return 0;
	used = weights_table_deltas(table, &n);
	if (n + 1 >= table->anchor_every || used >= all)
		return 0;
	return min_u64(gen->payload / MOST_OF_PAYLOAD, all - used);
}

/* Makes a delta of up to `most` bytes; *bytes_out 0: there is none, but the shadow has the tensors. */
static int shadow_diff(struct weights_publisher *pub, const struct weights_gen *gen, uint64_t most,
		       uint64_t *bytes_out)
{
	struct weights_shadow *shadow = &pub->shadow;
	struct weights_copy copy = shadow_copy(pub);
	uint64_t room = weights_changes_room(&copy, most);
	int ret;

	if (!weights_make_room(&shadow->entry, &shadow->entry_room, room))
		return error_set(-ENOMEM, "weights: cannot allocate %" PRIu64 " bytes", room);
	ret = weights_changes_make(&copy, pub->data, shadow->entry, room);
	if (ret == -ENOSPC) {
		error_clear();
		return 0;
	}
	shadow->entry->seq = gen->seq;
	*bytes_out = sizeof(*shadow->entry) + shadow->entry->head_bytes;
	return ret;
}

int weights_delta_make(struct rlv_generations *weights, const struct weights_gen *gen,
		       uint32_t flags, uint64_t *bytes_out)
{
	struct weights_publisher *pub = &weights->pub;
	bool is_first = pub->shadow.tree != gen->tree;
	uint64_t most = delta_most(weights, gen, flags), guess = 0;
	struct weights_copy copy;

	*bytes_out = 0;
	if (weights->table.anchor_every == 1)
		return 0;
	if (is_first && !shadow_fit(pub))
		return error_set(-ENOMEM, "weights: cannot allocate %" PRIu64 " bytes for deltas",
				 gen->payload);
	copy = shadow_copy(pub);
	if (!is_first)
		guess = weights_changes_guess(&copy, pub->data);
	/* Until the generation is visible. */
	pub->shadow.seq = 0;
	pub->shadow.fresh = is_first || guess <= gen->payload / MOST_OF_PAYLOAD ||
			    gen->seq % weights->table.anchor_every == 0;
	if (most && guess <= most)
		return shadow_diff(pub, gen, most, bytes_out);
	if (pub->shadow.fresh)
		weights_copy_set(&copy, pub->data);
	pub->shadow.tree = gen->tree;
	return 0;
}

void weights_shadow_fini(struct weights_shadow *shadow)
{
	mem_free(shadow->payload);
	mem_free(shadow->sums);
	mem_free(shadow->entry);
}
