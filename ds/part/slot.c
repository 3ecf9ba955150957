#include "ds/part/slot.h"

#include "transport/barrier.h"
#include "transport/transport.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

static_assert(sizeof(((struct client_slot *)0)->boot_id) == PROCESS_BOOT_ID_BYTES,
	      "a slot keeps the whole boot id");

int slot_swap_state(struct part *part, uint32_t slot, enum slot_state from, enum slot_state to,
		    uint64_t *old_out)
{
	return transport_cas_word(part->slots,
				  part_slot_off(part, slot) + offsetof(struct client_slot, state),
				  from, to, old_out);
}

static int check_free(struct part *part, uint32_t slot)
{
	struct slot_info info;
	int rc = slot_read(part, slot, &info);

	if (rc || info.state == SLOT_FREE)
		return rc;
	return error_set(-EBUSY, "client slot %u: pid %u has it", slot, info.process.pid);
}

int slot_prepare(struct part *part, uint32_t slot)
{
	int rc;

	if (!part_has_page(part, slot) || !transport_prepares(part->pages))
		return 0;
	rc = check_free(part, slot);
	return rc ? rc : transport_prepare(part->pages, part_page_off(part, slot));
}

/*
 * Gives the page fresh memory, writes all fields of the slot but the state, resets the words that
 * the last client left in the page, then sets the state LIVE by CAS. No client reads the fields or
 * changes the words of a free slot.
 */
int slot_take(struct part *part, uint32_t slot, const struct process_id *process, uint64_t lease)
{
	struct client_slot fields = { .pid = process->pid,
				      .start_time = process->start_time,
				      .lease = lease };
	struct part_page page = { .pin.word.raw = SLOT_IDLE };
	struct transport_io ios[] = {
		{ .region = part->slots,
		  .off = part_slot_off(part, slot) + offsetof(struct client_slot, pid),
		  .src = (const uint8_t *)&fields + offsetof(struct client_slot, pid),
		  .len = (uint32_t)(sizeof(fields) - offsetof(struct client_slot, pid)) },
		{ .region = part->pages, .src = &page, .len = offsetof(struct part_page, reserved) },
	};
	uint64_t old;
	int rc = check_free(part, slot);

	if (rc)
		return rc;
	if (!part_has_page(part, slot))
		return error_set(-EINVAL, "client slot %u: its page is not attached", slot);
	memcpy(fields.boot_id, process->boot_id, sizeof(fields.boot_id));
	ios[1].off = part_page_off(part, slot);
	/* The previous client may still have this page mapped: give the next one fresh memory. */
	rc = transport_renew(part->pages, ios[1].off);
	/* G4 pairs with G3: the slot is seen free, then we may write its fields. */
	if (!rc)
		rc = transport_write(part->slots->tr, ios, 2);
	/* G1 pairs with G2: the fields of the slot, then its state LIVE. */
	if (!rc)
		rc = transport_order(part->tree->tr);
	if (!rc)
		rc = slot_swap_state(part, slot, SLOT_FREE, SLOT_LIVE, &old);
	if (!rc && old != SLOT_FREE)
		return error_set(-EBUSY, "client slot %u: another client took it at the same time",
				 slot);
	return rc;
}

int slot_release(struct part *part, uint32_t slot)
{
	struct slot_info info;
	uint64_t word, old;
	int rc = slot_read(part, slot, &info);

	if (!rc)
		rc = transport_load(part->tree,
				    part_word_off(part, offsetof(struct part_words, epoch)), &word);
	if (rc)
		return rc;
	if (info.state == SLOT_LIVE && info.pin != SLOT_IDLE)
		return error_set(-EBUSY, "slot %u: a call is in progress or deltas are held", slot);
	if (epoch_mode_of(word) != EPOCH_NORMAL && epoch_owner(word) == slot + 1)
		return error_set(-EBUSY, "slot %u: its rebuild is not finished", slot);
	rc = slot_swap_state(part, slot, SLOT_LIVE, SLOT_FREE, &old);
	if (!rc && old != SLOT_LIVE)
		return error_set(-ESTALE, "client slot %u: not in use", slot);
	return rc;
}

int slot_read(struct part *part, uint32_t slot, struct slot_info *info_out)
{
	return slot_read_many(part, slot, 1, info_out);
}

int slot_read_many(struct part *part, uint32_t first, uint32_t n, struct slot_info *infos_out)
{
	struct client_slot heads[SLOT_READ_MAX];
	struct transport_io ios[1 + SLOT_READ_MAX] = { 0 };
	size_t n_ios = 0;
	int rc;

	if (!n)
		return 0;
	if (n > SLOT_READ_MAX)
		return error_set(-EINVAL, "%u slots at once: at most %u", n, SLOT_READ_MAX);
	if (first >= part->max_clients || n > part->max_clients - first)
		return error_set(-EINVAL, "slot %u: the table has %u client slots", first + n - 1,
				 part->max_clients);
	ios[n_ios++] = (struct transport_io){ .region = part->slots,
					      .off = part_slot_off(part, first),
					      .dst = heads,
					      .len = n * (uint32_t)sizeof(heads[0]) };
	for (uint32_t i = 0; i < n; i++) {
		infos_out[i].pin = SLOT_IDLE;
		if (part_has_page(part, first + i))
			ios[n_ios++] = (struct transport_io){
				.region = part->pages,
				.off = part_page_off(part, first + i) +
				       offsetof(struct part_page, pin),
				.dst = &infos_out[i].pin,
				.len = sizeof(infos_out[i].pin),
			};
	}
	/* G2 pairs with G1: the state LIVE, then the fields of the slot. */
	rc = transport_read(part->slots->tr, ios, n_ios);
	for (uint32_t i = 0; !rc && i < n; i++) {
		const struct client_slot *head = &heads[i];
		struct slot_info *info = &infos_out[i];

		info->slot = first + i;
		info->state = (enum slot_state)rword64_load_relaxed(&head->state);
		info->process =
			(struct process_id){ .pid = head->pid, .start_time = head->start_time };
		memcpy(info->process.boot_id, head->boot_id, sizeof(head->boot_id));
		info->lease = head->lease;
	}
	return rc;
}
