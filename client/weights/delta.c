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
#include <string.h>

#define MOST_OF_PAYLOAD 4u /* a delta above that part of the payload does not pay */
#define MOST_BESIDE 8u     /* one that an anchor has beside it */
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

/* Bytes that a delta to gen may have; 0 = there may be none. *alone_out: up to how many it needs no anchor
   beside it. */
static uint64_t delta_most(const struct rlv_generations *weights, const struct weights_gen *gen,
			   uint32_t flags, uint64_t *alone_out)
{
	const struct weights_table *table = &weights->table;
	uint64_t used, all = gen->payload / MOST_OF_ALL, beside = gen->payload / MOST_BESIDE;
	uint32_t n;

	*alone_out = 0;

	if (!table->n || (flags & RLV_PUBLISH_ANCHOR) ||
	    weights->pub.shadow.seq != table->gens[0].seq || gen->tree != table->gens[0].tree)
		return 0;
	used = weights_table_deltas(table, &n);
	if (n + 1 < table->anchor_every && used < all)
		*alone_out = min_u64(gen->payload / MOST_OF_PAYLOAD, all - used);
	return *alone_out > beside ? *alone_out : beside;
}

/* Makes a delta of up to `most` bytes, or none; the shadow has the tensors then. */
static int shadow_diff(struct weights_publisher *pub, struct weights_gen *gen, uint64_t most)
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
	gen->sum = weights_copy_sum(&copy);
	gen->delta.bytes = sizeof(*shadow->entry) + shadow->entry->head_bytes;
	return ret;
}

/* Lets the shadow have the tensors, if it is to, and makes the delta to them, if that pays. */
static int shadow_update(struct rlv_generations *weights, struct weights_gen *gen, uint64_t most)
{
	struct weights_publisher *pub = &weights->pub;
	bool is_first = pub->shadow.tree != gen->tree;
	struct weights_copy copy;
	uint64_t guess = 0;

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
		return shadow_diff(pub, gen, most);
	if (pub->shadow.fresh)
		weights_copy_set(&copy, pub->data);
	pub->shadow.tree = gen->tree;
	return 0;
}

int weights_delta_make(struct rlv_generations *weights, struct weights_gen *gen, uint32_t flags)
{
	const struct weights_publisher *pub = &weights->pub;
	uint64_t alone, most = delta_most(weights, gen, flags, &alone);
	int ret = 0;

	if (weights->table.anchor_every > 1)
		ret = shadow_update(weights, gen, most);
	if (ret || (gen->delta.bytes && gen->delta.bytes <= alone))
		return ret;
	gen->anchor.bytes = weights_payload_off(pub->head) + gen->payload;
	if (gen->delta.bytes)
		memset(pub->shadow.sums, 0, pub->head->n * sizeof(pub->shadow.sums[0]));
	return 0;
}

void weights_shadow_fini(struct weights_shadow *shadow)
{
	mem_free(shadow->payload);
	mem_free(shadow->sums);
	mem_free(shadow->entry);
}
