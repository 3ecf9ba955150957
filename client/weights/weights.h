/*
 * weights.h - private to client/weights: a handle of weights. It has a handle of their heap, the table as
 * last read, two buffers to fetch into, and, if it publishes, what deltas need.
 *
 *   publish   entry under a key that the table does not name | put the table if it is still the one
 *             that was read | empty the entries that it names no more
 *   fetch     table | entries from an anchor, or from what a buffer has, up to the newest | swap
 *
 * Keys of entries have the owner id of their publisher, so two publishers never write the same one. A
 * publisher that was killed leaves at most one entry that no table names; the next handle that publishes
 * finds it (weights_sweep).
 */
#ifndef RLV_CLIENT_WEIGHTS_WEIGHTS_H
#define RLV_CLIENT_WEIGHTS_WEIGHTS_H

#include "client/kv/view.h"

#include "ds/weights/changes.h"
#include "ds/weights/table.h"
#include "ds/weights/tree.h"

#include "relive/weights.h"

#include <stdatomic.h>

/* An entry of an anchor, with the deltas behind it applied. */
struct weights_buffer {
	atomic_uint holds; /* generations given out, and 1 of the handle */
	uint64_t seq;      /* 0 = what it has is not whole */
	uint64_t room, bytes;
	struct weights_entry *entry; /* aligned to 64, as the payload */
	struct rlv_tensor *tensors;
	uint64_t *sums;  /* of the tensors, as deltas have them */
	uint64_t *bases; /* of the tensors, for full checks; else 0 */
	size_t tensors_room, sums_room, bases_room;
	struct weights_gen gen; /* of a generation that arrives in parts: arrive.c */
	uint64_t arrived;       /* of its entry's bytes */
	struct kv_view *view; /* of a mapped generation, whose entry is only the head; else NULL */
};

/* How a generation came. */
struct weights_fetched {
	uint64_t deltas;
	bool repaired;
};

/* What a publisher finds deltas with: the payload of a generation. */
struct weights_shadow {
	uint64_t seq;  /* the generation; 0 = none */
	uint64_t tree; /* of which it has tensors; 0 = it is empty */
	bool fresh;    /* it has the tensors that are being published */
	uint8_t *payload;
	uint64_t *sums;
	size_t room, sums_room;
	struct weights_entry *entry; /* a delta on its way */
	size_t entry_room;
};

struct weights_publisher {
	bool swept;                 /* entries of killed publishers are gone */
	struct weights_entry *head; /* of the generation to be published */
	size_t head_room;
	struct heap_run *runs;
	size_t runs_room;
	uint32_t n_runs;
	const void **data; /* of the tensors; NULL: it is empty, or tied to an earlier one */
	size_t data_room;
	uint32_t *ties; /* a hash table of tensors by their memory: tied.c */
	size_t ties_room;
	struct weights_shadow shadow;
	uint8_t *scratch; /* of a generation that fits into an extent */
	size_t scratch_room;
};

struct rlv_generations {
	struct rlv_kv *kv;
	struct meta_watch watch; /* in the store's list */
	struct weights_table table;
	uint64_t table_version; /* of its key */
	struct weights_buffer *current, *spare;
	bool check_full; /* rlv_weights_check */
	uint64_t has;    /* sequence of the generation that was given last; 0 = none */
	uint8_t *deltas; /* as read */
	size_t deltas_room;
	struct weights_publisher pub;
	struct rlv_weights_info stats;
};

/* A key of the heap. */
struct weights_key {
	char text[24];
	uint32_t len;
};

struct weights_key weights_entry_key(uint32_t owner, uint32_t index);

static inline struct rlv_bytes weights_key_bytes(const struct weights_key *key)
{
	return (struct rlv_bytes){ key->text, key->len };
}

extern const struct rlv_bytes weights_table_key;

/* Reads the table, unless it is the one that the handle has. -ENOENT: there is none. Cost: 1 RT, or 3. */
RLV_MUST_CHECK int weights_refresh(struct rlv_generations *weights);

/* Until the table has a generation above `than`. -ETIMEDOUT. */
RLV_MUST_CHECK int weights_wait(struct rlv_generations *weights, uint64_t than,
				uint64_t deadline_ns);

/* Waits for a generation above `than`, and lets `give` hand out the newest one, gens[0] of the table; again while that is -EAGAIN,
   as it was dropped meanwhile, but not for ever. Errors: -ETIMEDOUT, and those of give. */
RLV_MUST_CHECK int weights_newest(struct rlv_generations *weights, uint64_t than,
				  int64_t timeout_ns,
				  int (*give)(struct rlv_generations *weights, void *ctx),
				  void *ctx);

/* A generation of that sequence is given to the program. */
void weights_given(struct rlv_generations *weights, uint64_t seq);

/* Memory at *ptr_inout of at least n bytes, aligned to 64; what it had is lost. */
RLV_MUST_CHECK bool weights_make_room(void *ptr_inout, size_t *room, uint64_t n);

/* The handle has a newer table: the server is told of its newest generation. */
void weights_tell(struct rlv_generations *weights);

/* The element i of an array of a program, whose elements may be larger than ours. */
static inline const struct rlv_tensor *weights_tensor_at(const struct rlv_tensor *tensors, size_t i)
{
	return (const void *)((const uint8_t *)tensors + i * tensors->size);
}

static inline bool weights_tensors_fit(const struct rlv_tensor *tensors)
{
	return tensors->size >= sizeof(*tensors) && tensors->size % 8 == 0;
}

/* rlv_weights_fetch of a version that the table names; else -EAGAIN. */
RLV_MUST_CHECK int weights_fetch_version(struct rlv_generations *weights, uint64_t version,
					 struct rlv_generation *generation_out);

/* rlv_weights_begin of a version that the table names; else -EAGAIN. */
RLV_MUST_CHECK int weights_begin_version(struct rlv_generations *weights, uint64_t version,
					 struct rlv_generation *generation_out,
					 uint32_t *ready_out);

/* Index of the version in the table; table->n: it is not there. */
static inline uint32_t weights_find(const struct weights_table *table, uint64_t version)
{
	uint32_t i = 0;

	while (i < table->n && table->gens[i].version != version)
		i++;
	return i;
}

/* Checks the head of the buffer's anchor, and fills its tensors. -EBADMSG, -ENOMEM. */
RLV_MUST_CHECK int weights_anchor_parse(struct weights_buffer *buffer,
					const struct weights_gen *gen);

/* Where a full check of the buffer looks. */
static inline struct weights_copy weights_buffer_full(const struct weights_buffer *buffer)
{
	return (struct weights_copy){
		.head = buffer->entry,
		.payload = (uint8_t *)buffer->entry + weights_payload_off(buffer->entry),
		.sums = buffer->sums,
		.bases = buffer->bases,
	};
}

/* All of an anchor is in the buffer: what full checks begin with, if the handle makes them. */
static inline void weights_anchor_base(const struct rlv_generations *weights,
				       const struct weights_buffer *buffer)
{
	struct weights_copy copy = weights_buffer_full(buffer);

	if (weights->check_full)
		weights_copy_base(&copy);
}

/* Hands the buffer out as the generation of that version. */
void weights_generation_give(uint64_t version, struct weights_buffer *buffer,
			     const struct weights_fetched *how, struct rlv_generation *out);

/* Writes the head of an anchor of the tensors to pub.head, and lists in pub.runs
   where head and data lie; of tensors in the same memory once. n > 0.
   -EINVAL: the message names the tensor. */
RLV_MUST_CHECK int weights_head_make(struct weights_publisher *pub,
				     const struct rlv_tensor *tensors, size_t n);

/* Begins with no tensor of n known. False: there is no memory. */
RLV_MUST_CHECK bool weights_ties_begin(struct weights_publisher *pub, size_t n);

/* The first tensor of pub.head that lies at `data` with the bytes and the dtype of tensor i; i: none did, and now it does. */
uint32_t weights_tied_to(struct weights_publisher *pub, uint32_t i, const void *data);

/* -ERANGE: a tensor has NaN or infinity. */
RLV_MUST_CHECK int weights_finite_check(const struct weights_publisher *pub);

/* Empties entries in the heap that the table does not name. The handle is about to publish. */
RLV_MUST_CHECK int weights_sweep(struct rlv_generations *weights);

/* Empties the entries of n generations that the table named. Errors are left: the next sweep finds them. */
void weights_drop(struct rlv_generations *weights, const struct weights_gen *gens, uint32_t n);

/* -------- deltas of a publisher -------- */

/*
 * Decides whether generation gen is to have an anchor, a delta, or both: sets their bytes. The delta is shadow.entry then. The
 * shadow is behind it. -ENOMEM.
 */
RLV_MUST_CHECK int weights_delta_make(struct rlv_generations *weights, struct weights_gen *gen,
				      uint32_t flags);
void weights_shadow_fini(struct weights_shadow *shadow);

/* -------- buffers -------- */

/* If a generation holds the buffer at *at, leaves it to that: *at is then NULL. */
void weights_buffer_part(struct weights_buffer **at);
/* The handle's buffer at *at for that many bytes, which no generation holds. -ENOMEM. */
RLV_MUST_CHECK int weights_buffer_take(struct weights_buffer **at, uint64_t bytes);
void weights_buffer_put(struct weights_buffer *buffer);
/* Makes a copy. -ENOMEM. */
RLV_MUST_CHECK int weights_buffer_copy(struct weights_buffer **to,
				       const struct weights_buffer *from);
/* Fills the buffer's tensors from its head, which was checked. -ENOMEM. */
RLV_MUST_CHECK int weights_buffer_parse(struct weights_buffer *buffer);

#endif
