/* work.c - retires completed work, waits for it, and ends the link on errors. */
#include "transport/verbs/work.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/bits.h"

enum {
	REAP = 16,                /* completions of one ibv_poll_cq */
	LOOKS = 64,               /* empty looks before we look at the clock, and yield */
	LOOKS_CHECK = 64 * LOOKS, /* and before we ask whether the target has hung up */
};

/* -------- the end -------- */

int work_lost(const struct work *work)
{
	return error_set(work->error, "the connection to the memory node was lost: %s", work->text);
}

int work_fail(struct work *work, int code, const char *text)
{
	uint64_t unknown = 0;

	if (work->error)
		return error_set(code, "the connection to the memory node was lost: %s",
				 work->text);
	link_cut(work->link);
	/* Atomics without a result keep the status that they were posted with: unknown. */
	for (uint32_t i = 0; i < work->link->n_qps; i++) {
		struct lane *lane = &work->lanes[i];

		for (; lane->tail != lane->head; lane->tail++) {
			const struct slot *slot = &lane->slots[lane->tail & work->mask];

			unknown += slot->kind == SLOT_CAS || slot->kind == SLOT_FAA;
		}
	}
	transport_account_cas(work->tr, 0, unknown);
	(void)snprintf(work->text, sizeof(work->text), "%s", text);
	work->error = -ECONNRESET;
	work->tr->broken = -ECONNRESET;
	return error_set(code, "the connection to the memory node was lost: %s", work->text);
}

/* -------- completions -------- */

static void work_release(struct work *work, struct batch *batch)
{
	if (--batch->left)
		return;
	while (work->oldest != work->next && work_batch(work, work->oldest)->left == 0) {
		work->arena_tail = work_batch(work, work->oldest)->arena_end;
		work->oldest++;
	}
}

/* All slots before end are done: copies and results are handed out. */
static void work_retire(struct work *work, struct lane *lane, uint64_t end)
{
	for (; lane->tail != end; lane->tail++) {
		const struct slot *slot = &lane->slots[lane->tail & work->mask];
		struct transport_atomic *op = slot->atomic;

		switch ((enum slot_kind)slot->kind) {
		case SLOT_PLAIN:
			break;
		case SLOT_COPY:
			memcpy(slot->dst, slot->src, slot->len);
			break;
		case SLOT_CAS:
		case SLOT_FAA:
			op->old = lane->results[slot - lane->slots];
			op->status = ATOMIC_DONE;
			if (slot->kind == SLOT_CAS && op->old != op->expected)
				transport_account_cas(work->tr, 1, 0);
			break;
		}
		work_release(work, &work->batches[slot->batch]);
	}
}

/* Returns the number of completions, or the error that ended the link. */
int work_reap(struct work *work)
{
	struct ibv_wc wcs[REAP];
	int n;

	if (work->error)
		return work_lost(work);
	n = ibv_poll_cq(work->link->sends, REAP, wcs);
	if (n < 0)
		return work_fail(work, -ECONNRESET, "ibv_poll_cq fails");
	for (int i = 0; i < n; i++) {
		uint32_t lane_idx = (uint32_t)(wcs[i].wr_id >> 56);
		struct lane *lane = &work->lanes[lane_idx % VERBS_LINK_QPS];
		uint64_t ahead = (wcs[i].wr_id - WORK_ID(lane_idx, lane->tail)) & WORK_SEQ_MASK;
		bool good = wcs[i].status == IBV_WC_SUCCESS;

		if (lane_idx >= work->link->n_qps || ahead >= lane->head - lane->tail)
			return work_fail(
				work, -ECONNRESET,
				"the device completed a work request that was not outstanding");
		work_retire(work, lane, lane->tail + ahead + good); /* those before it are done */
		if (!good)
			return work_fail(work, -ECONNRESET,
					 work->link->calls->wc_status_str(wcs[i].status));
	}
	return n;
}

/* -------- waiting -------- */

/* One look for completions. Most work completes before the clock is read. */
int work_look(struct work *work, struct work_wait *wait)
{
	struct batch *batch = wait->batch;
	int n = work_reap(work);
	uint64_t now;

	if (n)
		return n < 0 ? n : 0;
	if (++wait->looks % LOOKS)
		return 0;
	if (wait->looks == LOOKS) /* an earlier call may have set a later deadline */
		batch->deadline = deadline_min(batch->deadline, transport_give_up_ns(work->tr));
	now = clock_now_ns(work->tr->clock);
	if (now >= batch->deadline)
		return work_fail(work, -ETIMEDOUT, "an operation's deadline has passed");
	if (now >= wait->until)
		return error_set(-ETIMEDOUT, "the operations did not complete in time");
	if (wait->looks % LOOKS_CHECK == 0 && link_check(work->link))
		return work_fail(work, -ECONNRESET, "the target has hung up");
	(void)sched_yield(); /* software RDMA may need this processor */
	return 0;
}

/* -------- batches -------- */

uint64_t work_open_batch(struct work *work)
{
	*work_batch(work, work->next) = (struct batch){ .deadline = DEADLINE_NEVER,
							.arena_end = work->arena_head,
							.left = 1 };
	return work->next++;
}

void work_close_batch(struct work *work, uint64_t ticket)
{
	work_release(work, work_batch(work, ticket));
}

int work_wait(struct work *work, uint64_t ticket, uint64_t until)
{
	struct work_wait wait = { .batch = work_batch(work, ticket), .until = until };
	int ret = 0;

	if (work_is_done(work, ticket))
		return 0;
	if (until == 0) {
		ret = work_reap(work);
		if (ret < 0)
			return ret;
		return work_is_done(work, ticket) ? 0 : -EAGAIN;
	}
	while (ret == 0 && !work_is_done(work, ticket))
		ret = work_look(work, &wait);
	return ret;
}

uint8_t *work_arena_take(struct work *work, uint64_t ticket, uint64_t bytes)
{
	uint64_t at = work->arena_head, room = WORK_ARENA - at % WORK_ARENA;

	if (bytes > room) /* no buffer goes around the end */
		at += room;
	if (at + bytes - work->arena_tail > WORK_ARENA)
		return NULL;
	work->arena_head = at + align_up(bytes, 64);
	work_batch(work, ticket)->arena_end = work->arena_head;
	return work->memory.ptr + at % WORK_ARENA;
}

/* -------- opening -------- */

/* arena | results of each lane | message */
int work_init(struct work *work, struct link *link, struct transport *tr)
{
	size_t results = (size_t)link->depth * sizeof(uint64_t);
	uint8_t *ptr;
	int ret;

	work->link = link;
	work->tr = tr;
	work->mask = link->depth - 1;
	work->next = work->oldest = 1;
	if (!chunk_make_room(&work->memory,
			     WORK_ARENA + link->n_qps * results + sizeof(*work->message)))
		return error_set(-ENOMEM, "cannot allocate memory for copies");
	if (!verbs_device_key(link->device, &work->memory, &work->key)) {
		ret = error_set(-ENOMEM, "device %s registers no memory: see ulimit -l",
				link->device->name);
		goto err_fini;
	}
	ptr = work->memory.ptr + WORK_ARENA;
	for (uint32_t i = 0; i < link->n_qps; i++) {
		work->lanes[i].results = (uint64_t *)(void *)ptr;
		work->lanes[i].slots = mem_array(link->depth, sizeof(struct slot));
		if (!work->lanes[i].slots) {
			ret = error_set(-ENOMEM, "cannot allocate memory for %u work requests",
					link->depth);
			goto err_fini;
		}
		ptr += results;
	}
	work->message = (union verbs_any *)(void *)ptr;
	return 0;

err_fini:
	work_fini(work);
	return ret;
}

void work_fini(struct work *work)
{
	for (uint32_t i = 0; i < VERBS_LINK_QPS; i++) {
		mem_free(work->lanes[i].slots);
		work->lanes[i].slots = NULL;
	}
	chunk_drop(&work->memory);
}
