/*
 * post.c - builds lists of work requests and posts them, retires completed work, waits for it, and
 * ends the link on errors.
 */
#include "transport/verbs/post.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/bits.h"

enum {
	ARENA = 1 << 20,          /* bytes for copies */
	ARENA_MAX = 1 << 18,      /* of them, for one work request */
	PLACE_MAX = 1 << 20,      /* bytes of one work request in place */
	LANE_SHARE = 8,           /* operations that are worth a further lane */
	REAP = 16,                /* completions of one ibv_poll_cq */
	LOOKS = 64,               /* empty looks before we look at the clock, and yield */
	LOOKS_CHECK = 64 * LOOKS, /* and before we ask whether the target has hung up */
};

/* The id of a work request: its lane, and its place in the lane's count. */
#define SEQ_MASK (((uint64_t)1 << 56) - 1)
#define WR_ID(lane_idx, seq) ((uint64_t)(lane_idx) << 56 | ((seq)&SEQ_MASK))

enum slot_kind { SLOT_PLAIN, SLOT_COPY, SLOT_CAS, SLOT_FAA };

/* One operation: of a work request of a caller, or the SEND of a message (region NULL). */
struct op {
	enum ibv_wr_opcode opcode;
	bool fence;
	const struct verbs_region *region;
	uint64_t off;
	uint8_t *local;
	const struct mem *mem; /* that local lies in, or NULL */
	uint64_t len;
	struct transport_atomic *atomic;
};

static struct post *post_of(struct transport *tr)
{
	return (struct post *)tr;
}

static const struct verbs_region *region_of(const struct region *region)
{
	return (const struct verbs_region *)region;
}

static struct batch *batch_of(struct post *post, uint64_t ticket)
{
	return &post->batches[ticket % BATCHES];
}

static struct slot *next_slot(struct post *post)
{
	return &post->lane->slots[post->lane->head & post->mask];
}

/* -------- the end -------- */

/* Atomics without a result keep the status that they were posted with: unknown. */
static void post_cut(struct transport *tr)
{
	struct post *post = post_of(tr);

	link_cut(post->link);
	for (uint32_t i = 0; i < post->link->n_qps; i++) {
		struct lane *lane = &post->lanes[i];

		for (; lane->tail != lane->head; lane->tail++) {
			const struct slot *slot = &lane->slots[lane->tail & post->mask];

			transport_account_cas(tr, 0,
					      slot->kind == SLOT_CAS || slot->kind == SLOT_FAA);
		}
	}
}

int post_fail(struct post *post, int code, const char *text)
{
	return batches_fail(&post->pending, code, text);
}

/* -------- completions -------- */

static void batch_release(struct post *post, struct batch *batch)
{
	uint64_t oldest = post->pending.oldest;

	if (--batch->left)
		return;
	batches_retire(&post->pending);
	if (post->pending.oldest != oldest)
		post->arena_tail = batch_of(post, post->pending.oldest - 1)->arena_end;
}

/*
 * Retires the lane's slots before end, which are done: makes their copies, gives atomics their
 * results, and counts down their batches.
 */
static void lane_retire(struct post *post, struct lane *lane, uint64_t end)
{
	for (; lane->tail != end; lane->tail++) {
		const struct slot *slot = &lane->slots[lane->tail & post->mask];
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
				transport_account_cas(&post->tr, 1, 0);
			break;
		}
		batch_release(post, &post->batches[slot->batch]);
	}
}

/*
 * Retires the work of up to REAP completions. Returns their number, or the error that ended the
 * link.
 */
static int post_reap(struct transport *tr)
{
	struct post *post = post_of(tr);
	struct ibv_wc wcs[REAP];
	int n = batches_check(&post->pending);

	if (n)
		return n;
	n = ibv_poll_cq(post->link->sends, REAP, wcs);
	if (n < 0)
		return post_fail(post, -ECONNRESET, "ibv_poll_cq fails");
	for (int i = 0; i < n; i++) {
		uint32_t lane_idx = (uint32_t)(wcs[i].wr_id >> 56);
		struct lane *lane = &post->lanes[lane_idx % VERBS_LINK_QPS];
		uint64_t ahead = (wcs[i].wr_id - WR_ID(lane_idx, lane->tail)) & SEQ_MASK;
		bool good = wcs[i].status == IBV_WC_SUCCESS;

		if (lane_idx >= post->link->n_qps || ahead >= lane->head - lane->tail)
			return post_fail(
				post, -ECONNRESET,
				"the device completed a work request that was not outstanding");
		lane_retire(post, lane, lane->tail + ahead + good); /* those before it are done */
		if (!good)
			return post_fail(post, -ECONNRESET,
					 post->link->calls->wc_status_str(wcs[i].status));
	}
	return n;
}

/* -------- waiting -------- */

/* batches_ops.look. Most work completes before the clock is read. */
static int post_look(struct transport *tr, uint64_t ticket, uint64_t until, uint32_t *looks)
{
	struct post *post = post_of(tr);
	int n = post_reap(tr), ret;

	if (n)
		return n < 0 ? n : 0;
	if (++*looks % LOOKS)
		return 0;
	if (*looks == LOOKS) /* an earlier call may have set a later deadline */
		batches_limit(&post->pending, ticket);
	ret = batches_late(&post->pending, ticket, until);
	if (ret)
		return ret;
	if (*looks % LOOKS_CHECK == 0 && link_check(post->link))
		return post_fail(post, -ECONNRESET, "the target has hung up");
	(void)sched_yield(); /* software RDMA may need this processor */
	return 0;
}

static bool post_is_done(const struct transport *tr, uint64_t ticket)
{
	return ((const struct post *)tr)->batches[ticket % BATCHES].left == 0;
}

int post_poll(struct transport *tr, uint64_t ticket, uint64_t deadline_ns)
{
	return batches_wait(&post_of(tr)->pending, ticket, deadline_ns);
}

int post_order(struct transport *tr)
{
	return batches_order(&post_of(tr)->pending);
}

/* -------- lists -------- */

/*
 * Opens the next batch, whose ticket is post->ticket: it is not done before it is released. There
 * is room for it.
 */
static void batch_open(struct post *post)
{
	post->ticket = batches_open(&post->pending);
	*batch_of(post, post->ticket) = (struct batch){ .arena_end = post->arena_head, .left = 1 };
}

/* Posts the list of work requests to the current lane; the last one asks for a completion. */
static int post_flush(struct post *post)
{
	struct ibv_send_wr *bad = NULL;
	struct ibv_send_wr *last;
	int ret;

	if (post->listed == 0)
		return 0;
	last = &post->wrs[post->listed - 1];
	last->next = NULL;
	last->send_flags |= IBV_SEND_SIGNALED;
	post->lane->unsignalled = 0;
	post->listed = 0;
	ret = ibv_post_send(post->link->qps[post->lane->idx], post->wrs, &bad);
	last->next = last + 1;
	return ret ? post_fail(post, -ECONNRESET, strerror(ret)) : 0;
}

/*
 * Takes bytes <= ARENA_MAX of the arena for the batch that is being built; waits for older batches
 * until there are as many. If the batch itself has filled the arena, posts it, waits for it and
 * opens a new one.
 */
static int arena_take(struct post *post, uint64_t bytes, uint8_t **ptr_out)
{
	int ret = 0;

	while (ret == 0) {
		uint64_t at = post->arena_head, room = ARENA - at % ARENA;

		if (bytes > room) /* no buffer goes around the end */
			at += room;
		if (at + bytes - post->arena_tail <= ARENA) {
			post->arena_head = at + align_up(bytes, 64);
			batch_of(post, post->ticket)->arena_end = post->arena_head;
			*ptr_out = post->memory.ptr + at % ARENA;
			return 0;
		}
		if (post->pending.oldest != post->ticket) {
			ret = batches_wait(&post->pending, post->pending.oldest, DEADLINE_NEVER);
			continue;
		}
		/*
		 * The batch has used the whole arena: post it, wait for it, and continue in a new
		 * one.
		 */
		ret = post_flush(post);
		if (ret)
			return ret;
		batch_release(post, batch_of(post, post->ticket));
		ret = batches_wait(&post->pending, post->ticket, DEADLINE_NEVER);
		if (ret == 0)
			batch_open(post);
	}
	return ret;
}

static bool lane_is_full(const struct post *post)
{
	return post->lane->head - post->lane->tail == post->link->depth;
}

/* True if the list and the current lane have room for one more work request. */
static bool has_place(const struct post *post)
{
	return post->listed < POST_LIST && !lane_is_full(post);
}

/* -------- work requests -------- */

/* Chooses the local memory of an RDMA READ or WRITE; *len_out: how many bytes it takes. */
static int op_place(struct post *post, const struct op *op, uint64_t *len_out, struct ibv_sge *sge,
		    bool *inlined_out)
{
	bool is_write = op->opcode == IBV_WR_RDMA_WRITE;
	uint8_t *copy;
	int ret;

	*inlined_out = is_write && op->len <= post->link->inline_bytes;
	*len_out = min_u64(op->len, PLACE_MAX);
	if (*inlined_out || verbs_device_key(post->link->device, op->mem, &sge->lkey)) {
		sge->addr = (uintptr_t)op->local;
		return 0;
	}
	*len_out = min_u64(*len_out, ARENA_MAX);
	ret = arena_take(post, *len_out, &copy);
	if (ret)
		return ret;
	if (is_write)
		memcpy(copy, op->local, *len_out);
	sge->addr = (uintptr_t)copy;
	sge->lkey = post->key;
	return 0;
}

/* Adds wr to the list, and slot, which says what to do at its completion, to the lane and batch. */
static void list_add(struct post *post, struct ibv_send_wr *wr, struct slot *slot)
{
	struct lane *lane = post->lane;

	slot->batch = (uint16_t)(post->ticket % BATCHES);
	batch_of(post, post->ticket)->left++;
	wr->wr_id = WR_ID(lane->idx, lane->head);
	lane->head++;
	post->listed++;
	if (++lane->unsignalled >= post->link->depth / 4) {
		wr->send_flags |= IBV_SEND_SIGNALED;
		lane->unsignalled = 0;
	}
}

/* Lists one work request, for as many bytes of op as it can carry: *len_out. */
static int list_one(struct post *post, const struct op *op, uint64_t *len_out)
{
	uint64_t address = op->region ? op->region->address + op->off : 0;
	uint32_t key = op->region ? op->region->keys[post->lane->idx] : 0, looks = 0;
	bool cas = op->opcode == IBV_WR_ATOMIC_CMP_AND_SWP, inlined = false;
	struct ibv_sge sge = { .addr = (uintptr_t)op->local, .lkey = post->key };
	struct ibv_send_wr *wr;
	struct slot *slot;
	int ret = 0;

	*len_out = op->len;
	if (op->atomic)
		sge.addr = (uintptr_t)&post->lane->results[post->lane->head & post->mask];
	else if (op->region)
		ret = op_place(post, op, len_out, &sge, &inlined);
	if (ret == 0 && !has_place(post))
		ret = post_flush(post);
	while (ret == 0 && lane_is_full(post))
		ret = post_look(&post->tr, post->ticket, DEADLINE_NEVER, &looks);
	if (ret)
		return ret;
	sge.length = (uint32_t)*len_out;
	slot = next_slot(post);
	slot->kind = SLOT_PLAIN;
	wr = &post->wrs[post->listed];
	*wr->sg_list = sge;
	wr->opcode = op->opcode;
	wr->send_flags = (op->fence ? IBV_SEND_FENCE : 0u) | (inlined ? IBV_SEND_INLINE : 0u);
	if (op->atomic) {
		slot->kind = cas ? SLOT_CAS : SLOT_FAA;
		slot->atomic = op->atomic;
		wr->wr.atomic.remote_addr = address;
		wr->wr.atomic.rkey = key;
		wr->wr.atomic.compare_add = cas ? op->atomic->expected : op->atomic->value;
		wr->wr.atomic.swap = op->atomic->value;
	} else {
		wr->wr.rdma.remote_addr = address;
		wr->wr.rdma.rkey = key;
	}
	if (op->opcode == IBV_WR_RDMA_READ && sge.addr != (uintptr_t)op->local) {
		slot->kind = SLOT_COPY;
		slot->dst = op->local;
		slot->src = (const void *)(uintptr_t)sge.addr;
		slot->len = sge.length;
	}
	list_add(post, wr, slot);
	return 0;
}

/* Lists work requests until all of op is covered. */
static int list_op(struct post *post, struct op *op)
{
	int ret = 0;

	while (ret == 0 && op->len) {
		uint64_t len;

		ret = list_one(post, op, &len);
		op->off += len;
		op->local += len;
		op->len -= len;
		op->fence = false;
	}
	return ret;
}

/* Lists the usual READ: one work request into a registered buffer. False: nothing was done. */
static bool read_at_once(struct post *post, const struct transport_wr *read)
{
	const struct transport_io *io = &read->io;
	const struct verbs_region *region = region_of(io->region);
	struct ibv_send_wr *wr = &post->wrs[post->listed];
	struct slot *slot;
	uint32_t key;

	if (read->verb != VERB_READ || io->len == 0 || io->len > PLACE_MAX || !has_place(post) ||
	    !verbs_device_key(post->link->device, io->mem, &key))
		return false;
	slot = next_slot(post);
	slot->kind = SLOT_PLAIN;
	*wr->sg_list = (struct ibv_sge){ (uintptr_t)io->dst, io->len, key };
	wr->opcode = IBV_WR_RDMA_READ;
	wr->send_flags = read->fence ? IBV_SEND_FENCE : 0;
	wr->wr.rdma.remote_addr = region->address + io->off;
	wr->wr.rdma.rkey = region->keys[post->lane->idx];
	list_add(post, wr, slot);
	return true;
}

static int list_wr(struct post *post, struct transport_wr *wr)
{
	static const enum ibv_wr_opcode opcodes[] = {
		[VERB_READ] = IBV_WR_RDMA_READ,
		[VERB_WRITE] = IBV_WR_RDMA_WRITE,
		[VERB_CAS] = IBV_WR_ATOMIC_CMP_AND_SWP,
		[VERB_FAA] = IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	struct op op = { .opcode = opcodes[wr->verb], .fence = wr->fence };

	if (read_at_once(post, wr))
		return 0;
	if (is_atomic(wr)) {
		op.region = region_of(wr->atomic.region);
		op.off = wr->atomic.off;
		op.len = 8;
		op.atomic = &wr->atomic;
	} else {
		op.region = region_of(wr->io.region);
		op.off = wr->io.off;
		op.local = wr->io.dst;
		op.mem = wr->io.mem;
		op.len = wr->io.len;
	}
	return list_op(post, &op);
}

/* -------- calls -------- */

static int post_begin(struct post *post)
{
	int ret = batches_room(&post->pending, SUBMIT_UNORDERED);

	if (ret == 0)
		batch_open(post);
	return ret;
}

static int post_end(struct post *post, int ret, uint64_t *ticket_out)
{
	if (ret == 0)
		ret = post_flush(post);
	if (post->link->cut)
		return ret;
	batch_release(post, batch_of(post, post->ticket));
	*ticket_out = post->ticket;
	return ret;
}

static bool chain_fits(const struct post *post, uint64_t requests)
{
	uint64_t used = post->lanes[0].head - post->lanes[0].tail;

	return !batches_are_full(&post->pending) &&
	       (used == 0 || used + requests <= post->link->depth);
}

/*
 * Looks whether lane 0 and the batches have room for a chain. -EAGAIN: no; wait for outstanding
 * work.
 */
static int chain_room(struct post *post, const struct transport_wr *wrs, size_t n)
{
	uint64_t requests = 0; /* that these can need at most */
	int ret;

	for (size_t i = 0; i < n; i++)
		requests += is_atomic(&wrs[i]) ? 1 : div_up(wrs[i].io.len, ARENA_MAX);
	if (chain_fits(post, requests))
		return 0;
	ret = post_reap(&post->tr);
	if (ret < 0)
		return ret;
	return chain_fits(post, requests)
		       ? 0
		       : error_set(-EAGAIN, "too many chains are outstanding: poll one first");
}

/* False: the request is to fill memory of a device that has no key here; no CPU can. */
static bool is_reached(const struct post *post, const struct transport_wr *wr)
{
	const struct mem *mem = is_atomic(wr) ? NULL : wr->io.mem;
	uint32_t key;

	return !mem || mem->kind != MEM_DEVICE || verbs_device_key(post->link->device, mem, &key);
}

/*
 * Spreads the requests over the lanes, one lane for each LANE_SHARE of them; a chain has lane 0,
 * and requests of which one has a fence share one lane.
 */
int post_submit(struct transport *tr, struct transport_wr *wrs, size_t n, enum submit_order order,
		uint64_t *ticket_out)
{
	struct post *post = post_of(tr);
	bool chain = order == SUBMIT_ORDERED, one_lane = chain;
	size_t parts, done = 0;
	int ret;

	for (size_t i = 0; i < n; i++) {
		one_lane |= wrs[i].fence;
		if (!is_reached(post, &wrs[i]))
			return error_set(-ENOTSUP,
					 "memory of a device: no transport_reach was here");
		if (is_atomic(&wrs[i]))
			wrs[i].atomic.status = ATOMIC_UNKNOWN; /* until it is done */
	}
	ret = chain ? chain_room(post, wrs, n) : 0;
	if (ret == 0)
		ret = post_begin(post);
	if (ret)
		return ret;
	parts = one_lane ? 1 : min_u64(post->link->n_qps, div_up(n, LANE_SHARE));
	for (size_t left = parts; ret == 0 && left; left--) {
		size_t end = done + (n - done) / left;

		post->lane = &post->lanes[chain ? 0 : post->first_lane % post->link->n_qps];
		/* Keeps the lane if nothing is outstanding there, because the device has its state
		   cached. */
		if (!chain && post->lane->head != post->lane->tail)
			post->lane = &post->lanes[++post->first_lane % post->link->n_qps];
		for (; ret == 0 && done < end; done++)
			ret = list_wr(post, &wrs[done]);
		if (ret == 0 && left > 1)
			ret = post_flush(post);
	}
	return post_end(post, ret, ticket_out);
}

int post_message(struct post *post, const union verbs_any *message)
{
	struct op op = { .opcode = IBV_WR_SEND,
			 .local = post->message->bytes,
			 .len = message->head.bytes };
	uint64_t ticket = 0;
	int ret = post_begin(post);

	if (ret)
		return ret;
	post->lane = &post->lanes[0];
	memcpy(post->message->bytes, message->bytes, message->head.bytes);
	ret = post_end(post, list_op(post, &op), &ticket);
	return ret ? ret : post_poll(&post->tr, ticket, DEADLINE_NEVER);
}

/* -------- opening -------- */

/* post->memory holds: arena | results of each lane | message */
int post_init(struct post *post)
{
	static const struct batches_ops ops = {
		.reap = post_reap, .is_done = post_is_done, .look = post_look, .cut = post_cut
	};
	struct link *link = post->link;
	size_t results = (size_t)link->depth * sizeof(uint64_t);
	uint8_t *ptr;
	int ret = verbs_device_memory(link->device, &post->memory,
				      ARENA + link->n_qps * results + sizeof(*post->message),
				      &post->key);

	if (ret)
		return ret;
	post->mask = link->depth - 1;
	batches_init(&post->pending, &post->tr, &ops);
	for (uint32_t i = 0; i < POST_LIST; i++) {
		post->wrs[i].sg_list = &post->sges[i];
		post->wrs[i].num_sge = 1;
		post->wrs[i].next = &post->wrs[i + 1 < POST_LIST ? i + 1 : i];
	}
	ptr = post->memory.ptr + ARENA;
	for (uint32_t i = 0; i < link->n_qps; i++, ptr += results) {
		post->lanes[i].idx = i;
		post->lanes[i].results = (uint64_t *)(void *)ptr;
		post->lanes[i].slots = mem_array(link->depth, sizeof(struct slot));
		if (!post->lanes[i].slots)
			return error_set(-ENOMEM, "cannot allocate memory for %u work requests",
					 link->depth);
	}
	post->message = (union verbs_any *)(void *)ptr;
	return 0;
}

void post_fini(struct post *post)
{
	for (uint32_t i = 0; i < VERBS_LINK_QPS; i++)
		mem_free(post->lanes[i].slots);
	chunk_drop(&post->memory);
}
