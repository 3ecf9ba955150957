#include "ds/heap/access.h"

#include "ds/part/wr_list.h"

#include "transport/barrier.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>
#include <string.h>

#define EPOCH_OFF (HEAP_WORDS_OFF + offsetof(struct heap_words, epoch))

void heap_access_pin(struct heap_access *acc)
{
	acc->pin_due = !acc->pinned;
}

/* Reads a range of the tree region, without a pin. */
static int access_fetch(const struct heap_access *acc, uint64_t off, void *dst, uint32_t len)
{
	struct region *tree = acc->heap->tree;

	if (!acc->in_place)
		return transport_fetch(tree, off, dst, len);
	transport_copy_racy(dst, tree->base + off, len);
	transport_read_done();
	return 0;
}

/* Over a wire the pin is of the epoch that the last one read; so the epoch is read again, or else a busy
   client would hold back the others. */
void heap_access_begin_pin(struct heap_access *acc, struct transport_wr *wrs)
{
	struct region *tree = acc->heap->tree;

	acc->pin = space_epoch(acc->epoch_word);
	acc->pin_due = false;
	acc->pinned = true;
	wrs[0] = wr_write(tree, heap_pin_off(acc->owner), &acc->pin, sizeof(acc->pin));
	wrs[1] = wr_read(tree, EPOCH_OFF, &acc->epoch_word, sizeof(acc->epoch_word));
}

int heap_access_run_pinned(struct heap_access *acc, struct transport_wr *wrs, uint32_t n)
{
	heap_access_begin_pin(acc, wrs);
	return transport_run(acc->heap->tree->tr, wrs, n);
}

int heap_access_announce(struct heap_access *acc)
{
	struct region *tree = acc->heap->tree;
	uint64_t pin_off = heap_pin_off(acc->owner);

	acc->pin_due = false;
	acc->pinned = true;
	if (transport_is_forked(tree->tr))
		return error_set(-ECHILD, "heap: opened before a fork");
	acc->epoch_word = rword64_load_relaxed(
		(const struct rword64 *)(const void *)(tree->base + EPOCH_OFF));
	acc->pin = space_epoch(acc->epoch_word);
	/* H2 pairs with H3: the pin, then heads are read. */
	rword64_announce_early((const struct rword64 *)(const void *)(tree->base + pin_off),
			       acc->pin);
	return transport_order(tree->tr);
}

int heap_access_read(struct heap_access *acc, uint64_t off, void *dst, uint32_t len)
{
	struct region *tree = acc->heap->tree;
	int ret;

	if (!acc->pin_due)
		return access_fetch(acc, off, dst, len);
	if (!transport_changes_in_place(tree)) {
		struct transport_wr wrs[3];

		wrs[2] = wr_read(tree, off, dst, len);
		return heap_access_run_pinned(acc, wrs, 3);
	}
	ret = heap_access_announce(acc);
	return ret ? ret : access_fetch(acc, off, dst, len);
}

void heap_access_withdraw(struct heap_access *acc)
{
	if (acc->holds_pin)
		return;
	if (acc->pinned)
		rword64_withdraw((const struct rword64 *)(const void *)(acc->heap->tree->base +
									heap_pin_off(acc->owner)),
				 0);
	acc->pinned = acc->pin_due = false;
}

int heap_access_tail(struct heap_access *acc, struct heap_tail **tail_out)
{
	struct heap_tail *tail = &acc->tails[acc->next_tail++ % HEAP_TAILS];
	uint64_t ticket = tail->ticket;

	tail->ticket = 0;
	*tail_out = tail;
	return ticket ? transport_poll(acc->heap->tree->tr, ticket, DEADLINE_NEVER) : 0;
}

int heap_access_post(struct heap_access *acc, struct transport_wr *wrs, uint32_t n, uint64_t *idle,
		     uint64_t *ticket_out)
{
	struct region *tree = acc->heap->tree;
	struct transport_span span = { 0 };
	int ret;

	if (acc->pinned) {
		*idle = 0;
		wrs[n++] = wr_write(tree, heap_pin_off(acc->owner), idle, 8);
	}
	acc->pinned = acc->pin_due = false;
	ret = transport_submit_chain(tree->tr, wrs, n, &span);
	*ticket_out = span.last;
	return ret;
}

int heap_access_send(struct heap_access *acc, struct heap_tail *tail, uint32_t n)
{
	return heap_access_post(acc, tail->wrs, n, &tail->idle, &tail->ticket);
}

int heap_access_unpin(struct heap_access *acc, int result)
{
	struct heap_tail *tail;
	struct error_kept kept;
	int ret;

	acc->pin_due = false;
	if (acc->in_place)
		heap_access_withdraw(acc);
	if (acc->in_place || !acc->pinned)
		return result;
	error_keep(&kept);
	ret = heap_access_tail(acc, &tail);
	if (ret == 0)
		ret = heap_access_send(acc, tail, 0);
	if (result)
		error_restore(&kept);
	return result ? result : ret;
}

/* -------- memory -------- */

bool heap_access_make_room(struct heap_access *acc, uint64_t bytes)
{
	uint8_t *stage;

	if (bytes <= acc->stage_bytes)
		return true;
	bytes = max_u64(bytes, 2 * (uint64_t)acc->stage_bytes);
	stage = mem_aligned(WIRE_LINE, round_up(bytes, WIRE_LINE));
	if (!stage)
		return false;
	mem_free(acc->stage);
	acc->stage = stage;
	acc->stage_bytes = bytes;
	return true;
}

/* -------- open, close -------- */

int heap_access_begin(struct heap_access *acc, struct heap *heap, uint32_t owner,
		      const struct heap_plane *plane)
{
	uint64_t room = 4 * HEAP_GUESS_BYTES;

	*acc = (struct heap_access){ .heap = heap, .owner = owner, .plane = plane };
	acc->in_place = !acc->plane && heap->tree->base && heap->rows->base &&
			(heap->tree->tr->caps & TRANSPORT_CPU_ATOMIC) &&
			(!owner || transport_changes_in_place(heap->tree));
	if (acc->plane) /* the longest entry, always */
		room = max_u64(room, heap_entry_most(&heap->desc));
	acc->cursors = mem_zalloc(HEAP_CURSORS * sizeof(acc->cursors[0]));
	if (acc->in_place)
		acc->guesses = mem_zalloc(HEAP_CURSORS * sizeof(acc->guesses[0]));
	if (!acc->cursors || (acc->in_place && !acc->guesses) ||
	    !heap_access_make_room(acc, room)) {
		mem_free(acc->guesses);
		mem_free(acc->cursors);
		return error_set(-ENOMEM, "heap: cannot allocate memory for an access");
	}
	if (!acc->plane) /* others have no extents */
		space_init(&acc->space, heap, owner);
	return 0;
}

int heap_batch_end(struct heap_access *acc)
{
	uint64_t ticket = acc->batch_ticket;

	acc->batch_ticket = 0;
	return ticket ? transport_poll(acc->heap->tree->tr, ticket, DEADLINE_NEVER) : 0;
}

/* Ends what is under way and gives extents back. */
static void access_end(struct heap_access *acc)
{
	struct heap_tail *tail;

	for (uint32_t i = 0; i < HEAP_TAILS; i++)
		if (heap_access_tail(acc, &tail))
			error_clear(); /* they were hints */
	if (heap_batch_end(acc))
		error_clear();
	space_fini(&acc->space);
}

void heap_access_reset(struct heap_access *acc)
{
	access_end(acc);
	space_init(&acc->space, acc->heap, acc->owner);
	memset(acc->cursors, 0, HEAP_CURSORS * sizeof(acc->cursors[0]));
	heap_ahead_free(acc);
	acc->copies = NULL;
	acc->writers = NULL;
	acc->pinned = acc->pin_due = acc->holds_pin = false; /* heap_settle has withdrawn the pin */
}

void heap_access_close(struct heap_access *acc)
{
	access_end(acc);
	mem_free(acc->batch);
	mem_free(acc->guesses);
	mem_free(acc->cursors);
	mem_free(acc->stage);
	mem_free(acc->large);
	heap_ahead_free(acc);
}
