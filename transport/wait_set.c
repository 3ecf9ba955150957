/*
 * wait_set.c - a leg is the outstanding work of one addition on one transport. Pieces of reads are
 * done in any order, so each ticket of a leg is polled.
 */
#include "transport/wait_set.h"

#include <errno.h>

enum { PIECE = 1024 }; /* reads that are gathered for one transport */

static void wait_set_note(struct wait_set *set, struct wait_leg *leg, int ret)
{
	if (leg->error == 0)
		leg->error = ret;
	if (set->error == 0)
		set->error = ret;
}

static struct wait_leg *add_leg(struct wait_set *set, struct transport *tr)
{
	struct wait_leg *leg;

	if (set->n == WAIT_LEGS && wait_set_wait(set))
		set->n = 0; /* the error stays in the set */
	leg = &set->legs[set->n++];
	*leg = (struct wait_leg){ .tr = tr, .phases = 1 };
	return leg;
}

void wait_set_chain(struct wait_set *set, struct transport *tr, struct transport_wr *wrs, size_t n)
{
	struct wait_leg *leg = add_leg(set, tr);

	wait_set_note(set, leg, transport_submit_chain(tr, wrs, n, &leg->span));
}

/* -------- reads -------- */

/*
 * Submits those of n reads that are of the leg's transport, and skips others. io[fence] gets the
 * fence flag; fence n: none.
 */
static int submit_reads(struct wait_leg *leg, const struct transport_io *io, size_t n, size_t fence)
{
	struct transport_wr piece[PIECE];
	size_t in_piece = 0;
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < n; i++) {
		struct transport_span span;

		if (io[i].region->tr == leg->tr)
			piece[in_piece++] = (struct transport_wr){ .verb = VERB_READ,
								   .fence = i == fence,
								   .io = io[i] };
		if (in_piece < PIECE && i + 1 < n)
			continue;
		ret = transport_submit_many(leg->tr, piece, in_piece, &span);
		transport_span_add(&leg->span, span.first);
		transport_span_add(&leg->span, span.last);
		in_piece = 0;
	}
	return ret;
}

int wait_set_add_reads(struct wait_set *set, const struct transport_io *io, size_t n)
{
	const struct transport *last = NULL;
	uint32_t first = set->n;

	for (size_t i = 0; i < n; i++) {
		struct transport *tr = io[i].region->tr;
		struct wait_leg *leg;
		uint32_t l = first;

		if (tr == last) /* shards of one node are often adjacent */
			continue;
		while (l < set->n && set->legs[l].tr != tr)
			l++;
		if (l < set->n)
			continue;
		last = tr;
		leg = add_leg(set, tr);
		first = set->n == 1 ? 0 : first; /* it was full, and is emptied */
		wait_set_note(set, leg, submit_reads(leg, io + i, n - i, n - i));
	}
	return set->error;
}

int wait_set_read(struct wait_set *set, const struct transport_io *io, size_t n)
{
	wait_set_begin(set);
	return wait_set_add_reads(set, io, n);
}

int wait_set_read_fenced(struct wait_set *set, const struct transport_io *io, size_t n,
			 size_t fence)
{
	struct wait_leg *leg;

	wait_set_begin(set);
	leg = add_leg(set, io->region->tr);
	leg->phases = 2;
	wait_set_note(set, leg, submit_reads(leg, io, n, fence));
	return set->error;
}

/* -------- waiting -------- */

/*
 * Polls all tickets of the first n legs until the deadline (0: only tests; -EAGAIN: not all are done),
 * empties the set if these are all, and returns its first error.
 */
static int wait_set_poll(struct wait_set *set, uint32_t n, uint64_t deadline_ns)
{
	for (uint32_t l = 0; l < n && l < set->n; l++) {
		struct wait_leg *leg = &set->legs[l];

		for (; leg->span.first && leg->span.first <= leg->span.last; leg->span.first++) {
			int ret = transport_look(leg->tr, leg->span.first, deadline_ns);

			if (ret == -EAGAIN && deadline_ns == 0)
				return ret;
			wait_set_note(set, leg, ret);
		}
	}
	if (n >= set->n)
		set->n = 0;
	return set->error;
}

int wait_set_look_first(struct wait_set *set, uint32_t n)
{
	return wait_set_poll(set, n, 0);
}

int wait_set_look(struct wait_set *set)
{
	return wait_set_poll(set, set->n, 0);
}

int wait_set_wait_first(struct wait_set *set, uint32_t n)
{
	bool counted = false;

	for (uint32_t l = 0; l < set->n; l++) {
		struct wait_leg *leg = &set->legs[l];

		if (leg->span.first && leg->span.first <= leg->span.last)
			counted |= transport_count_wait(leg->tr, leg->span.last,
							counted ? 0 : leg->phases);
	}
	return wait_set_poll(set, n, DEADLINE_NEVER);
}

int wait_set_wait(struct wait_set *set)
{
	return wait_set_wait_first(set, set->n);
}
