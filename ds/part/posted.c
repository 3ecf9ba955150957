#include "ds/part/posted.h"

#include "base/bits.h"

#include <errno.h>

#define CLOSE_TRIES 4

void posted_init(struct posted *posted, struct transport *tr, uint64_t *max_seen)
{
	*posted = (struct posted){ .tr = tr, .max_seen = max_seen };
}

void posted_fini(struct posted *posted)
{
	if (posted_wait(posted))
		posted->lost = true;
	for (uint32_t i = 0; i < POSTED_CHAINS; i++)
		wr_list_fini(&posted->chains[i].list);
}

/* -------- answers -------- */

static int close_again(struct transport_atomic *op)
{
	int rc = -EIO;

	for (int i = 0; rc == -EIO && i < CLOSE_TRIES; i++)
		rc = transport_cas_word(op->region, op->off, op->expected, op->value, &op->old);
	return rc;
}

static int judge_close(struct posted *posted, struct transport_atomic *op)
{
	int rc = op->status == ATOMIC_DONE ? 0 : close_again(op);

	if (!rc && op->old != op->expected && op->old != op->value)
		posted->fenced = true;
	return rc;
}

static void judge_max(struct posted *posted, uint32_t view, const struct transport_atomic *op)
{
	if (op->status == ATOMIC_DONE)
		posted->max_seen[view] = op->old == op->expected ? op->value : op->old;
}

static int judge_chain(struct posted *posted, struct wr_list *list)
{
	int first = 0;

	for (uint32_t i = 0; i < list->n; i++) {
		struct transport_atomic *op = &list->wrs[i].atomic;
		uint32_t note = list->notes[i];
		int rc = 0;

		if (note == NOTE_SUM)
			posted->lost |= op->status != ATOMIC_DONE;
		else if (note == NOTE_CLOSE)
			rc = judge_close(posted, op);
		else if (note != NOTE_NONE)
			judge_max(posted, note - NOTE_MAX, op);
		first = first ? first : rc;
	}
	return first;
}

/* -------- chains -------- */

/* Ends the chain even on an error: its memory may be reused. */
static int wait_for(struct posted *posted, uint32_t i)
{
	struct wr_list *list = &posted->chains[i].list;
	uint64_t ticket = posted->chains[i].ticket;
	int rc, judged;

	if (!ticket)
		return 0;
	posted->chains[i].ticket = 0;
	rc = transport_poll(posted->tr, ticket, DEADLINE_NEVER);
	judged = rc ? 0 : judge_chain(posted, list);
	if (rc)
		posted->lost = true;
	list->n = 0;
	return rc ? rc : judged;
}

int posted_wait(struct posted *posted)
{
	int first = 0;

	for (uint32_t i = 0; i < POSTED_CHAINS; i++) {
		int rc = wait_for(posted, (posted->next + i) % POSTED_CHAINS);

		first = first ? first : rc;
	}
	return first;
}

int posted_next(struct posted *posted, struct wr_list **list_out)
{
	int rc = posted->open ? 0 : wait_for(posted, posted->next);

	posted->open = true;
	*list_out = &posted->chains[posted->next].list;
	return rc;
}

int posted_send(struct posted *posted)
{
	uint32_t i = posted->next;
	struct wr_list *list = &posted->chains[i].list;
	struct transport_span span;
	int rc;

	posted->open = false;
	if (list->n == 0)
		return 0;
	for (uint32_t k = 0; k < list->n; k++)
		if (list->wrs[k].verb == VERB_CAS || list->wrs[k].verb == VERB_FAA)
			list->wrs[k].atomic.status = ATOMIC_UNKNOWN;
	rc = transport_submit_chain(posted->tr, list->wrs, list->n, &span);
	posted->chains[i].ticket = span.last;
	posted->next = (i + 1) % POSTED_CHAINS;
	if (rc)
		posted->lost = true;
	return rc;
}
