/*
 * stripe.h - private to client/kv: values of a heap with stripes (docs/decisions/0029-striped-values.md). A value that
 * is longer than a stripe lies in several parts, under hidden keys of the client slot that put it; its own part has a
 * manifest, which names them with their versions.
 *
 *   put   complete the last intent | look at the key | write the intent | put the stripes | swap the manifest |
 *         complete the intent: the stripes that the key had before go, or, if the swap did not happen, the new ones
 *   get   the manifest | the stripes. One that has another version was replaced, with the key: begin again
 *
 * Each call of this header is of a heap with stripes, also for short values: a put has to know what it replaces.
 */
#ifndef RLV_CLIENT_KV_STRIPE_H
#define RLV_CLIENT_KV_STRIPE_H

#include "client/kv/kv.h"

#include "ds/heap/stripe/settle.h"

/* Numbers of our hidden keys in a part. A number is free if its key has no value: only we put there. */
struct kv_numbers {
	uint64_t next;   /* to look at */
	uint64_t fresh;  /* never used ones that may be taken before the next look from 0 on */
	uint64_t reused; /* since that look began */
	bool turned;     /* it has begun at 0 */
	uint64_t *taken; /* by the call in progress */
	size_t n_taken, room;
};

struct kv_stripes {
	struct stripe_io io;
	bool pending;               /* our slot may have an intent */
	bool takeover;              /* of the client that had the slot before */
	bool unsure;                /* of a put of which it is not known whether it was done */
	struct kv_numbers *numbers; /* of each part */
	uint8_t *value;             /* what the last get gave out */
};

/* -ENOMEM. No-ops in a heap without stripes. */
RLV_MUST_CHECK int kv_stripes_init(struct rlv_kv *kv);
void kv_stripes_fini(struct rlv_kv *kv);

/* Completes the intent of our slot, if it may have one. -EHOSTDOWN: a client that had the slot may have left it, and is not
   known to be cut off in a part that is away. Cost: 1 RT without one. */
RLV_MUST_CHECK int kv_stripes_complete(struct rlv_kv *kv);

/* The same behind a call, and before the handle is closed, without an error: whoever comes next tries again. */
void kv_stripes_try(struct rlv_kv *kv);

/* A put, and a look at the version, of a key in that part. */
RLV_MUST_CHECK int kv_part_put(struct rlv_kv *kv, uint32_t part, const struct chain_key *key,
			       const struct heap_put *put, uint64_t *version_out);
RLV_MUST_CHECK int kv_part_version(struct rlv_kv *kv, uint32_t part, const struct chain_key *key,
				   uint64_t *version_out);

/*
 * Completes the intent of our slot, and those of the slots that are free in all parts. True: one of these had one.
 * Errors are left to the next put. Cost: for each part 2 RT for 64 slots.
 */
bool kv_stripes_settle(struct rlv_kv *kv);

/* Puts or deletes, as rlv_kv_put. Cost: 1 RT more than without stripes; if the value lies in stripes, or the one
   that it replaces, 6 RT more, and 3 for each stripe that is put, 2 for each that goes. */
RLV_MUST_CHECK int kv_stripes_put(struct rlv_kv *kv, const struct chain_key *key,
				  const struct heap_put *put, uint64_t *version_out);

/*
 * Reads the value whose manifest *got has, or a newer one, from kv's memory if there is no room; *got becomes it. A
 * range cuts it; NULL = all. As heap_get.
 */
RLV_MUST_CHECK int kv_stripes_get(struct rlv_kv *kv, const struct chain_key *key,
				  const struct heap_range *range, const struct heap_room *room,
				  struct heap_value *got);

/* Adds what is wrong with the stripes of all values to the report's problems. Cost: a look at each key. */
RLV_MUST_CHECK int kv_stripes_verify(struct rlv_kv *kv, struct rlv_kv_report *report);

#endif
