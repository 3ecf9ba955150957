/*
 * Stripes of a value: their hidden keys, the manifest that names them, and the intent of a client that is about to
 * change them (wire/stripe_layout.h). Nothing here leaves this process. All bytes to be checked are untrusted.
 */
#ifndef RLV_DS_HEAP_STRIPE_MANIFEST_H
#define RLV_DS_HEAP_STRIPE_MANIFEST_H

#include "ds/chain/chain.h"
#include "ds/heap/heap.h"

#include "wire/stripe_layout.h"

/* A hidden key with its bytes. */
struct stripe_name {
	struct stripe_key bytes;
	struct chain_key key; /* of them: a copy of the struct needs its own */
};

void stripe_name_data(const struct heap_desc *desc, uint32_t owner, uint64_t number,
		      struct stripe_name *out);
void stripe_name_intent(const struct heap_desc *desc, uint32_t owner, struct stripe_name *out);

/* True if the key is hidden in a heap with stripes. */
bool stripe_key_is_hidden(const void *key, size_t len);

/* The part that has the owner's intent. */
static inline uint32_t stripe_intent_part(const struct heap_desc *desc, uint32_t owner)
{
	return owner % desc->n_parts;
}

static inline uint32_t stripe_part(const struct heap_desc *desc, uint32_t home, uint32_t i)
{
	return desc->n_parts > 1 ? (uint32_t)(((uint64_t)home + i) % desc->n_parts) : 0;
}

/* Bytes of a stripe: its chunks fill its extents. */
static inline uint64_t stripe_share(const struct heap_desc *desc)
{
	return ((UINT64_C(1) << desc->stripe) / desc->extent_bytes) * heap_share_most(desc, 0);
}

/* -------- manifests -------- */

/* n stripes, of which refs are the caller's. */
struct stripes {
	uint32_t owner, n;
	uint64_t bytes, share;
	struct stripe_ref *refs; /* mem_alloc */
};

static inline uint64_t stripe_manifest_bytes(uint32_t n)
{
	return sizeof(struct stripe_manifest) + (uint64_t)n * sizeof(struct stripe_ref);
}

/* Plans the stripes of a value; refs are zeros. -ERANGE: more than a manifest holds; -ENOMEM. */
RLV_MUST_CHECK int stripes_plan(const struct heap_desc *desc, uint32_t owner, uint64_t bytes,
				struct stripes *out);
/* Writes the manifest, of stripe_manifest_bytes. */
void stripes_write(const struct stripes *stripes, void *manifest);
/* Reads and checks a manifest. -EBADMSG: it is none that this heap can have; -ENOMEM. */
RLV_MUST_CHECK int stripes_read(const struct heap_desc *desc, const void *manifest, uint64_t len,
				struct stripes *out);
void stripes_free(struct stripes *stripes);

/* -------- intents -------- */

/* As struct stripe_intent; of the new stripes only owner, n and the numbers count. */
struct stripes_intent {
	struct chain_key key;
	uint32_t part;
	struct stripes fresh, old;
	uint64_t replaces;
	void *memory; /* of stripes_intent_read: the key */
};

/* Its bytes, which the caller frees. NULL: no memory. */
void *stripes_intent_write(const struct stripes_intent *intent, uint64_t *len_out);
/* Reads and checks the intent of that owner. -EBADMSG, -ENOMEM. */
RLV_MUST_CHECK int stripes_intent_read(const struct heap_desc *desc, uint32_t owner,
				       const void *bytes, uint64_t len, struct stripes_intent *out);
void stripes_intent_free(struct stripes_intent *intent);

#endif
