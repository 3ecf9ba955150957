/*
 * Settle: completes what the intent of a client says, after its client was killed or when its put has ended. The key
 * names the new stripes, or it never will: whatever of the new and the old ones it does not name goes.
 *
 * It may be called again, by several at once: a stripe is deleted only in the version that was read while the intent
 * was there, and a version has its contents for ever. The client makes no change any more: it is the caller, or had
 * the caller's slot, or its slot is seen to be free in all parts *behind* the look at the intent. A slot that was free
 * before may have another client by now, whose intent that is.
 */
#ifndef RLV_DS_HEAP_STRIPE_SETTLE_H
#define RLV_DS_HEAP_STRIPE_SETTLE_H

#include "ds/heap/keys.h"
#include "ds/heap/stripe/manifest.h"

/* How the keys of all parts are reached: as heap_get into memory of the access, heap_look and heap_put. */
struct stripe_io {
	const struct heap_desc *desc;
	int (*get)(void *ctx, uint32_t part, const struct chain_key *key, struct heap_value *out);
	int (*look)(void *ctx, uint32_t part, const struct chain_key *key, struct heap_value *out);
	int (*put)(void *ctx, uint32_t part, const struct chain_key *key,
		   const struct heap_put *put, uint64_t *version_out);
	void *ctx;
	/* With several writers of copies a put that is decided may be seen by no get yet, when its client was killed or lost the
	   answer: settles bring it forward before they look. */
	bool helps;
	uint64_t most; /* stripes of an intent that is completed; a longer one is -EBUSY; 0 = any */
};

/* What a key has now. */
struct stripe_look {
	uint64_t version; /* also of a deletion; 0 = there was never a value */
	bool exists, striped;
	const void *manifest; /* if striped; valid until the next call of the io */
	uint64_t len;         /* of the manifest */
};

/* Cost: as heap_look. */
RLV_MUST_CHECK int stripe_look(const struct stripe_io *io, uint32_t part,
			       const struct chain_key *key, struct stripe_look *out);

/* Deletes the hidden key if it has that version; it is a no-op if not. */
RLV_MUST_CHECK int stripe_delete(const struct stripe_io *io, uint32_t part,
				 const struct stripe_name *name, uint64_t version);

/*
 * Completes the owner's intent; 1 = it has none. see_free, called with the ctx of the io: 0 if the owner's slot is free in
 * all parts; NULL: it is the caller's. After an error call again. Cost: 1 RT without one; else looks and
 * deletes of the stripes that go.
 */
RLV_MUST_CHECK int stripe_settle(const struct stripe_io *io, uint32_t owner,
				 int (*see_free)(void *ctx, uint32_t owner));

#endif
