/*
 * landing.h - what samplers do with a landing (relive/landing.h).
 *
 *   gathered on the host ─> landing_land: copies queued, awaited ─> handed over
 *   released ─> landing_done: a mark on each stream that used it ─> landing_idle: filled again
 *
 * With the path RLV_LANDING_GATHER large values come straight from the shards, before the batch's other bytes:
 *
 *   shards mapped ─> landing_share ─> (landing_gather ─> landing_await ─> leaves again)* ─> landing_land
 *                                                                          shards go ─> landing_unshare
 *
 * With RLV_LANDING_DMABUF and RLV_LANDING_PEERMEM they come by READs:
 *
 *   each batch: landing_reach for each transport ─> READs to the device's side ─> leaves again ─> landing_land
 *
 * landing.c: open, close, and what users ask of buffers. flow.c: copies and marks. share.c: memory that the device
 * reads. gather.c: gathers, by calls or by a graph. direct.c: READs. weights.c:
 * importance weights. paths.c: what there is.
 */
#ifndef RLV_CLIENT_LANDING_LANDING_H
#define RLV_CLIENT_LANDING_LANDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ds/window/values.h"

#include "transport/transport.h"

#include "base/error.h"

struct rlv_landing;

/* rlv_landing_alloc and rlv_landing_free, as hooks of alloc_buffer: ctx is the landing. */
void *landing_alloc_hook(void *ctx, size_t align, size_t bytes);
void landing_free_hook(void *ctx, void *buffer, size_t bytes);

/* True: the memory of its buffers is the device's, and there are no streams. */
bool landing_is_in_place(const struct rlv_landing *landing);

/* A part of a buffer. */
struct landing_part {
	const void *ptr;
	size_t bytes;
};

/* True: the device computes the importance weights of all batches. */
bool landing_weighs(const struct rlv_landing *landing);

/* Importance weights that the device computes behind the copies: both arrays are of the buffer. */
struct landing_weights {
	float *weights;
	const double *probability;
	uint32_t n;
	double factor, power; /* (probability * factor)^power */
};

/* Copies parts of one buffer to the device, and waits until they are there. weights NULL: they are among the
   parts. -ENODEV, -ETIMEDOUT. */
RLV_MUST_CHECK int landing_land(struct rlv_landing *landing, const struct landing_part *parts,
				uint32_t n, const struct landing_weights *weights);

/* Counts a batch that has landed; returns its path (enum rlv_landing_path). apart: by which its large values have come
   by themselves; 0 = they have not. */
uint32_t landing_count(struct rlv_landing *landing, uint32_t apart);

/* No more work that uses the buffer will be queued. */
void landing_done(struct rlv_landing *landing, const void *buffer);

/* True: the device is done with all work that was queued before landing_done, or it is lost. */
bool landing_idle(struct rlv_landing *landing, const void *buffer);

/* When bytes that a stream carries are on the host. */
struct landing_mark {
	uint32_t stream;
	uint64_t seq;
};

/* True: the device can gather from memory that is shared with it. */
bool landing_gathers(const struct rlv_landing *landing);

/*
 * Shares mapped memory with the device, which reads it until landing_unshare of the same address: it stays
 * mapped. Counted: several samplers may share the same. All its pages are made, and locked. Errors: those of
 * the driver; -EBUSY: the device has a part of it.
 */
RLV_MUST_CHECK int landing_share(struct rlv_landing *landing, const void *memory, size_t bytes);
/* Waits for gathers that are under way. */
void landing_unshare(struct rlv_landing *landing, const void *memory);

/* -------- by RDMA -------- */

/* True: batches are to come by RDMA, as far as they can. */
bool landing_is_direct(const struct rlv_landing *landing);

/* True: a path was asked for (opts.path), whatever it costs. */
bool landing_is_asked(const struct rlv_landing *landing);

/* True: no other path will do (opts.strict). */
bool landing_is_strict(const struct rlv_landing *landing);

/* The device's side of a buffer, for READs. */
struct landing_side {
	const struct mem *mem; /* NULL: none */
	uint8_t *at;           /* of the byte that was asked for */
	uint32_t path;         /* enum rlv_landing_path */
};

/*
 * Makes the device's side of the buffer at `host` one that READs of tr fill, until it is freed. After an error
 * they do not: of the connection, or -ENOTSUP, as info tells from then on.
 */
RLV_MUST_CHECK int landing_reach(struct rlv_landing *landing, const void *host,
				 struct transport *tr, struct landing_side *side_out);

/* Says why batches of a sampler land by a copy. -ENOTSUP: no other path will do. */
RLV_MUST_CHECK int landing_copies(struct rlv_landing *landing, const char *why);

/* Counts bytes that came so. */
void landing_count_direct(struct rlv_landing *landing, uint64_t bytes);

/* -------- by gathers -------- */

#define LANDING_LISTS 64

/* Values that the device copies, of `bytes` bytes each, from shared memory to one buffer, in which the list is,
   too. Their addresses are replaced. */
struct landing_list {
	struct window_value *values;
	size_t n, bytes;
};

/*
 * Queues gathers of up to LANDING_LISTS lists, which lie one behind the other. When *mark_out is reached the
 * device has read all values for the last time. After an error it may still read and write. -EINVAL, -ENODEV.
 */
RLV_MUST_CHECK int landing_gather(struct rlv_landing *landing, const struct landing_list *lists,
				  uint32_t n, struct landing_mark *mark_out);

/* A copy from an address of the device to a buffer, behind the work of the stream `native`. */
struct landing_fetch {
	void *native;
	void *buffer;
	uint64_t address;
	size_t bytes;
};

/* Queues it. */
RLV_MUST_CHECK int landing_fetch(struct rlv_landing *landing, const struct landing_fetch *fetch,
				 struct landing_mark *mark_out);

/* -EAGAIN: not there yet. */
RLV_MUST_CHECK int landing_reached(struct rlv_landing *landing, const struct landing_mark *mark);
/* The same, but it waits, for the landing's timeout. -ETIMEDOUT. */
RLV_MUST_CHECK int landing_await(struct rlv_landing *landing, const struct landing_mark *mark);

#endif
