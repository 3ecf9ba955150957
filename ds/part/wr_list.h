/*
 * Work requests of a chain under construction. Each has a note that says which result its answer
 * belongs to. The list must not move between post and poll.
 */
#ifndef RLV_DS_PART_WR_LIST_H
#define RLV_DS_PART_WR_LIST_H

#include <stdint.h>

#include "transport/transport.h"

#include "base/error.h"

/* Notes. Notes of leaf changes are below all of these (ds/replay/change.c). */
#define NOTE_MAX UINT32_C(0xffffff00)   /* + view: raises its running maximum */
#define NOTE_CLOSE UINT32_C(0xfffffffd) /* closes a block */
#define NOTE_SUM UINT32_C(0xfffffffe)   /* adds to an inner node */
#define NOTE_NONE UINT32_MAX            /* its answer is ignored */

struct wr_list {
	struct transport_wr *wrs;
	uint32_t *notes;
	uint32_t n, room;
};

/* Makes room for n requests in all, keeping those present. -ENOMEM. Thread: owner, for all. */
RLV_MUST_CHECK int wr_list_reserve(struct wr_list *list, uint32_t n);
void wr_list_fini(struct wr_list *list);

/* Builds a request of a chain: a READ of len bytes from off of the region to dst. */
static inline struct transport_wr wr_read(struct region *region, uint64_t off, void *dst,
					  uint32_t len)
{
	return (struct transport_wr){
		.verb = VERB_READ,
		.io = { .region = region, .off = off, .dst = dst, .len = len },
	};
}

static inline struct transport_wr wr_write(struct region *region, uint64_t off, const void *src,
					   uint32_t len)
{
	return (struct transport_wr){
		.verb = VERB_WRITE,
		.io = { .region = region, .off = off, .src = src, .len = len },
	};
}

static inline struct transport_wr wr_add(struct region *region, uint64_t off, uint64_t value)
{
	return (struct transport_wr){
		.verb = VERB_FAA,
		.atomic = { .region = region, .off = off, .value = value },
	};
}

static inline struct transport_wr wr_swap(struct region *region, uint64_t off, uint64_t from,
					  uint64_t to)
{
	return (struct transport_wr){
		.verb = VERB_CAS,
		.atomic = { .region = region,
			    .off = off,
			    .expected = from,
			    .value = to,
			    .status = ATOMIC_UNKNOWN },
	};
}

/* Appends a request with that note and returns it, to be filled in; room was reserved. */
static inline struct transport_wr *wr_list_add(struct wr_list *list, uint32_t note)
{
	list->notes[list->n] = note;
	return &list->wrs[list->n++];
}

#endif
