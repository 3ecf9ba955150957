#include "ds/part/epoch.h"

#include "ds/part/wr_list.h"

#include "transport/barrier.h"
#include "transport/transport.h"

#include "wire/part_layout.h"

#include <errno.h>
#include <stddef.h>

/* A pass moves the epoch once and takes longer than a pin: many retries indicate a bug. */
#define ENTER_TRIES 1000

static struct rword64 *word_at(const struct region *region, uint64_t off)
{
	return (struct rword64 *)(void *)(region->base + off);
}

void epoch_init(struct epoch *ep, const struct part *part, uint32_t owner)
{
	*ep = (struct epoch){
		.region = part->tree,
		.word_off = part_word_off(part, offsetof(struct part_words, epoch)),
		.mode = EPOCH_NORMAL,
	};
	if (owner) {
		ep->page = part->pages;
		ep->pin_off = part_page_off(part, owner - 1) + offsetof(struct part_page, pin);
	}
	if (owner && transport_changes_in_place(ep->page)) {
		ep->word_near = word_at(ep->region, ep->word_off);
		ep->pin_near = word_at(ep->page, ep->pin_off);
	}
}

/* E6 pairs with E5: load the epoch word, then the arrays that it names. */
static int load_word(const struct epoch *ep, uint64_t *word_out)
{
	if (!ep->region->base)
		return transport_load(ep->region, ep->word_off, word_out);
	*word_out = rword64_load_ordered(word_at(ep->region, ep->word_off));
	return 0;
}

/*
 * E1 pairs with E2: we store our pin, then re-read the epoch; the rebuilder swaps the epoch,
 * then reads the pins. All four are in one total order: it sees the pin, or we see its swap.
 * E3 pairs with E4: our additions, then the pin is withdrawn.
 */
static int store_pin(const struct epoch *ep, uint64_t pin)
{
	int rc;

	if (transport_changes_in_place(ep->page)) { /* no NIC writes may be outstanding */
		rword64_announce(word_at(ep->page, ep->pin_off), pin);
		return 0;
	}
	rc = transport_store(ep->page, ep->pin_off, &pin, sizeof(pin));
	return rc ? rc : transport_order(ep->page->tr);
}

static void epoch_see(struct epoch *ep, uint64_t word)
{
	ep->number = epoch_number(word);
	ep->mode = epoch_mode_of(word);
	ep->known = ep->mode != EPOCH_DUAL;
}

int epoch_enter(struct epoch *ep)
{
	uint64_t word;
	int rc;

	if (!ep->page)
		return error_set(-EINVAL, "epoch: a handle without a slot cannot change leaves");
	rc = load_word(ep, &word);
	if (!rc && ep->entered) {
		if (epoch_number(word) != ep->pinned)
			return -ESTALE;
		epoch_see(ep, word);
		return 0;
	}
	for (int i = 0; !rc && i < ENTER_TRIES; i++) {
		ep->pinned = epoch_number(word);
		rc = store_pin(ep, ep->pinned);
		if (!rc)
			rc = load_word(ep, &word);
		if (!rc && epoch_number(word) == ep->pinned) {
			epoch_see(ep, word);
			ep->entered = true;
			return 0;
		}
	}
	return rc ? rc
		  : error_set(-EAGAIN,
			      "epoch: it changed %d times while a client entered: retry the call",
			      ENTER_TRIES);
}

void epoch_enter_begin(struct epoch *ep)
{
	if (!ep->pin_near || ep->entered)
		return;
	ep->pinned = epoch_number(rword64_load_acquire(ep->word_near));
	rword64_announce_early(ep->pin_near, ep->pinned);
}

int epoch_enter_end(struct epoch *ep)
{
	uint64_t word;

	if (!ep->pin_near || ep->entered)
		return epoch_enter(ep);
	word = rword64_load_ordered(ep->word_near);
	if (epoch_number(word) != ep->pinned)
		return epoch_enter(ep);
	epoch_see(ep, word);
	ep->entered = true;
	return 0;
}

int epoch_refresh(struct epoch *ep)
{
	uint64_t word;
	int rc = load_word(ep, &word);

	if (!rc)
		epoch_see(ep, word);
	return rc;
}

int epoch_leave(struct epoch *ep)
{
	int rc;

	if (!ep->page)
		return 0;
	if (ep->pin_near) {
		rword64_withdraw(ep->pin_near, SLOT_IDLE);
		ep->entered = false;
		return 0;
	}
	rc = store_pin(ep, SLOT_IDLE);
	if (!rc)
		ep->entered = false;
	return rc;
}

/* -------- as chains -------- */

/*
 * Writes the pin if that is due, and reads the epoch into ep. E1 pairs with E2: the pin, then the
 * epoch read behind it, on one queue pair.
 */
static int look_behind_pin(struct epoch *ep)
{
	uint64_t word = 0;
	struct transport_wr wrs[2];
	size_t n = 0;
	int rc;

	if (ep->region->base) {
		/* A queue pair does not order a read in place behind its writes: a fence does. */
		rc = epoch_pin(ep, &wrs[0]) ? transport_run(ep->region->tr, wrs, 1) : 0;
		if (!rc)
			rc = transport_order(ep->region->tr);
		return rc ? rc : epoch_refresh(ep);
	}
	if (epoch_pin(ep, &wrs[0]))
		n++;
	wrs[n++] = wr_read(ep->region, ep->word_off, &word, sizeof(word));
	rc = transport_run(ep->region->tr, wrs, n);
	if (!rc)
		epoch_see(ep, word);
	return rc;
}

int epoch_enter_chain(struct epoch *ep)
{
	int rc = 0;

	if (!ep->page)
		return error_set(-EINVAL, "epoch: a handle without a slot cannot change leaves");
	if (!ep->entered) {
		ep->pinned = ep->number;
		ep->stage = ep->number;
		ep->due = true;
		ep->entered = true;
		return ep->known ? 0 : look_behind_pin(ep);
	}
	if (!ep->known)
		rc = look_behind_pin(ep);
	return !rc && ep->number != ep->pinned ? -ESTALE : rc;
}

bool epoch_pin(struct epoch *ep, struct transport_wr *wr_out)
{
	if (!ep->due)
		return false;
	ep->due = false;
	ep->standing = true;
	*wr_out = wr_write(ep->page, ep->pin_off, &ep->stage, sizeof(ep->stage));
	return true;
}

bool epoch_withdrawal(const struct epoch *ep, struct transport_wr *wr_out)
{
	static const uint64_t idle = SLOT_IDLE;

	/* E3 pairs with E4: our additions, then the pin is withdrawn. */
	*wr_out = wr_write(ep->page, ep->pin_off, &idle, sizeof(idle));
	wr_out->fence = true;
	return ep->standing;
}

bool epoch_withdraw(struct epoch *ep, struct transport_wr *wr_out)
{
	bool standing = epoch_withdrawal(ep, wr_out);

	ep->entered = false;
	ep->due = false;
	ep->standing = false;
	return standing;
}

int epoch_next_tag(const struct epoch *ep, uint32_t old_tag, uint32_t *tag_out)
{
	uint32_t now = ep->number & 3u, next = (ep->number + 1) & 3u;

	if (ep->mode == EPOCH_DUAL && (old_tag == now || old_tag == next))
		*tag_out = next;
	else if (ep->mode != EPOCH_DUAL && old_tag == now)
		*tag_out = now;
	else
		return -ESTALE;
	return 0;
}

bool epoch_blocks_pass(uint64_t pin, uint32_t number)
{
	/* Serial-number comparison: an epoch that wrapped is still newer. */
	return pin != SLOT_IDLE && (int32_t)((uint32_t)pin - number) < 0;
}
