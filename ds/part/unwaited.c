#include "ds/part/unwaited.h"

#include "base/bits.h"

#include <errno.h>

void unwaited_init(struct unwaited *unwaited, struct transport *tr, uint64_t *max_seen)
{
	*unwaited = (struct unwaited){ .tr = tr, .max_seen = max_seen };
}

void unwaited_fini(struct unwaited *unwaited)
{
	if (unwaited_wait(unwaited))
		unwaited->lost = true;
	for (uint32_t i = 0; i < UNWAITED_CHAINS; i++)
		wr_list_fini(&unwaited->chains[i].list);
}

/* -------- answers -------- */

static int judge_close(struct unwaited *unwaited, struct transport_atomic *op)
{
	const int tries = 4;
	int rc = op->status == ATOMIC_DONE ? 0 : -EIO;

	for (int i = 0; rc == -EIO && i < tries; i++)
		rc = transport_cas_word(op->region, op->off, op->expected, op->value, &op->old);
	if (!rc && op->old != op->expected && op->old != op->value)
		unwaited->fenced = true;
	return rc;
}

static int judge_chain(struct unwaited *unwaited, struct wr_list *list)
{
	int first = 0;

	for (uint32_t i = 0; i < list->n; i++) {
		struct transport_atomic *op = &list->wrs[i].atomic;
		uint32_t note = list->notes[i];
		int rc = 0;

		if (note == NOTE_NONE)
			continue;
		if (note == NOTE_SUM)
			unwaited->lost |= op->status != ATOMIC_DONE;
		else if (note == NOTE_CLOSE)
			rc = judge_close(unwaited, op);
		else if (op->status == ATOMIC_DONE)
			unwaited->max_seen[note - NOTE_MAX] = op->old == op->expected ? op->value
										      : op->old;
		first = first ? first : rc;
	}
	return first;
}

/* -------- chains -------- */

/*
 * Waits for chain i, if it is outstanding, and handles its answers. Returns the first error. The
 * chain has ended even on an error: its memory may be reused.
 */
static int wait_for(struct unwaited *unwaited, uint32_t i)
{
	struct wr_list *list = &unwaited->chains[i].list;
	uint64_t ticket = unwaited->chains[i].ticket;
	int rc, judged;

	if (!ticket)
		return 0;
	unwaited->chains[i].ticket = 0;
	rc = transport_poll(unwaited->tr, ticket, DEADLINE_NEVER);
	judged = rc ? 0 : judge_chain(unwaited, list);
	if (rc)
		unwaited->lost = true;
	list->n = 0;
	return rc ? rc : judged;
}

int unwaited_wait(struct unwaited *unwaited)
{
	int first = 0;

	for (uint32_t i = 0; i < UNWAITED_CHAINS; i++) {
		int rc = wait_for(unwaited, (unwaited->next + i) % UNWAITED_CHAINS);

		first = first ? first : rc;
	}
	return first;
}

int unwaited_next(struct unwaited *unwaited, struct wr_list **list_out)
{
	int rc = unwaited->open ? 0 : wait_for(unwaited, unwaited->next);

	unwaited->open = true;
	*list_out = &unwaited->chains[unwaited->next].list;
	return rc;
}

int unwaited_send(struct unwaited *unwaited)
{
	uint32_t i = unwaited->next;
	struct wr_list *list = &unwaited->chains[i].list;
	struct transport_span span;
	int rc;

	unwaited->open = false;
	if (list->n == 0)
		return 0;
	for (uint32_t k = 0; k < list->n; k++)
		if (list->wrs[k].verb == VERB_CAS || list->wrs[k].verb == VERB_FAA)
			list->wrs[k].atomic.status = ATOMIC_UNKNOWN;
	rc = transport_post_chain(unwaited->tr, list->wrs, list->n, &span);
	unwaited->chains[i].ticket = span.last;
	unwaited->next = (i + 1) % UNWAITED_CHAINS;
	if (rc)
		unwaited->lost = true;
	return rc;
}
