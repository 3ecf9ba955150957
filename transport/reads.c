/*
 * reads.c - reads of several transports that are posted together, and waited for or only looked at.
 *
 * A leg is what one transport has of them: pieces of TRANSPORT_VECTOR, whose tickets follow each
 * other. They are done in any order, so each is asked for.
 */
#include "transport/transport.h"

#include <errno.h>

#include "transport/start.h"

#include "base/bits.h"

/* -------- posting -------- */

/* One call: at most TRANSPORT_VECTOR. */
static int post_piece(struct transport_leg *leg, const struct transport_io *io, size_t n)
{
	uint64_t ticket;
	int ret = transport_post_read(leg->tr, io, n, &ticket);

	if (ret || ticket == 0)
		return ret;
	if (leg->first == 0)
		leg->first = ticket;
	leg->last = ticket;
	for (size_t i = 0; i < n; i++)
		leg->fences += io[i].fence;
	return 0;
}

/* All of them are the leg's transport's. */
static int post_all(struct transport_leg *leg, const struct transport_io *io, size_t n)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < n; i += TRANSPORT_VECTOR)
		ret = post_piece(leg, io + i, min_u64(n - i, TRANSPORT_VECTOR));
	return ret;
}

/* Those of the leg's transport, among others'. */
static int post_some(struct transport_leg *leg, const struct transport_io *io, size_t n)
{
	struct transport_io piece[TRANSPORT_VECTOR];
	size_t in_piece = 0;
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < n; i++) {
		if (io[i].region->tr != leg->tr)
			continue;
		piece[in_piece++] = io[i];
		if (in_piece == TRANSPORT_VECTOR) {
			ret = post_piece(leg, piece, in_piece);
			in_piece = 0;
		}
	}
	return ret || in_piece == 0 ? ret : post_piece(leg, piece, in_piece);
}

static void note(struct transport_reads *reads, int ret)
{
	if (reads->error == 0)
		reads->error = ret;
}

static bool has_leg(const struct transport_reads *reads, const struct transport *tr)
{
	for (uint32_t l = 0; l < reads->n; l++)
		if (reads->legs[l].tr == tr)
			return true;
	return false;
}

/* How many of them, from the first on, are of one transport. */
static size_t run_length(const struct transport_io *io, size_t n)
{
	const struct transport *tr = io[0].region->tr;
	size_t i = 1;

	while (i < n && io[i].region->tr == tr)
		i++;
	return i;
}

/* Reads that were done at once have counted their phase, which is all transports' together. */
static int add_leg(struct transport_reads *reads, const struct transport_io *io, size_t n,
		   size_t run)
{
	struct transport *tr = io[0].region->tr;
	struct transport_leg *leg = &reads->legs[reads->n++];
	uint64_t phases = tr->stats.phases;
	int ret;

	*leg = (struct transport_leg){ .tr = tr };
	ret = run == n ? post_all(leg, io, n) : post_some(leg, io, n);
	if (reads->n > 1)
		tr->stats.phases = phases;
	return ret;
}

int transport_reads_post(struct transport_reads *reads, const struct transport_io *io, size_t n)
{
	size_t run;

	reads->n = 0;
	reads->error = 0;
	for (size_t i = 0; i < n; i += run) {
		run = run_length(io + i, n - i);
		if (has_leg(reads, io[i].region->tr))
			continue;
		if (reads->n == TRANSPORT_LEGS)
			note(reads, transport_reads_wait(reads));
		note(reads, add_leg(reads, io + i, n - i, run));
	}
	return reads->error;
}

/* -------- waiting -------- */

/* Passes over what is done of a leg. -EAGAIN: not all is. */
static int look_leg(struct transport_reads *reads, struct transport_leg *leg)
{
	for (; leg->first && leg->first <= leg->last; leg->first++) {
		int ret = transport_look(leg->tr, leg->first);

		if (ret == -EAGAIN)
			return ret;
		note(reads, ret);
	}
	return 0;
}

int transport_reads_look(struct transport_reads *reads)
{
	for (uint32_t l = 0; l < reads->n; l++)
		if (look_leg(reads, &reads->legs[l]))
			return -EAGAIN;
	reads->n = 0;
	return reads->error;
}

int transport_reads_wait(struct transport_reads *reads)
{
	bool counted = false;

	for (uint32_t l = 0; l < reads->n; l++) {
		struct transport_leg *leg = &reads->legs[l];
		uint64_t phases = leg->tr->stats.phases;

		for (; leg->first && leg->first <= leg->last; leg->first++)
			note(reads, transport_poll(leg->tr, leg->first, DEADLINE_NEVER));
		if (counted) /* it shares the first one's phase */
			leg->tr->stats.phases = phases;
		else if (leg->tr->stats.phases != phases)
			leg->tr->stats.phases += leg->fences;
		counted |= leg->tr->stats.phases != phases;
	}
	reads->n = 0;
	return reads->error;
}
