#include "ds/part/fence.h"

#include "ds/part/slot.h"

#include "transport/barrier.h"
#include "transport/transport.h"

#include <errno.h>
#include <stddef.h>

int fence_settle(struct part *part, uint32_t owner, const struct fence_kind *kind,
		 struct fence_report *report_out)
{
	struct fence_report report = { 0 };
	struct slot_info info;
	const uint64_t idle = SLOT_IDLE;
	uint64_t off = part_word_off(part, offsetof(struct part_words, epoch)), word = 0, old;
	int rc;

	if (owner == 0 || owner > part->max_clients)
		return error_set(-EINVAL, "owner %u: the table has owners 1 to %u", owner,
				 part->max_clients);
	if (!part_has_page(part, owner - 1))
		return error_set(-EINVAL, "owner %u: its page is not attached", owner);
	rc = slot_read(part, owner - 1, &info);
	report.was_idle = !rc && (info.state == SLOT_FREE || info.pin == SLOT_IDLE);
	if (rc || info.state == SLOT_FREE)
		goto out;
	/* D1 pairs with D2: dirty is raised before the slot stops blocking passes. */
	if (!report.was_idle)
		rc = part_mark_dirty(part);
	if (!rc)
		rc = slot_swap_state(part, owner - 1, SLOT_LIVE, SLOT_FENCED, &old);
	/* {e, mode, dead} -> {e, mode, 0}: only its owner changes the word while the owner is live. */
	if (!rc)
		rc = transport_load(part->tree, off, &word);
	report.had_rebuild = !rc && epoch_mode_of(word) != EPOCH_NORMAL &&
			     epoch_owner(word) == owner;
	if (report.had_rebuild)
		rc = transport_cas_word(part->tree, off, word,
					epoch_make(epoch_number(word), epoch_mode_of(word), 0),
					&old);
	if (!rc)
		rc = kind->settle(kind->ctx, part, owner);
	/* G3 pairs with G4: the dead client's pin is withdrawn, then the slot is free. */
	if (!rc)
		rc = transport_store(part->pages,
				     part_page_off(part, owner - 1) +
					     offsetof(struct part_page, pin),
				     &idle, sizeof(idle));
	if (!rc)
		rc = transport_order(part->tree->tr);
	if (!rc)
		rc = slot_swap_state(part, owner - 1, SLOT_FENCED, SLOT_FREE, &old);
out:
	if (!rc && report_out)
		*report_out = report;
	return rc;
}
