/*
 * post.c - builds lists of work requests and posts them.
 */
#include "transport/verbs/post.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/bits.h"

enum {
	LIST = TRANSPORT_VECTOR, /* work requests of one ibv_post_send */
	PLACE_MAX = 1 << 20,     /* bytes of one work request in place */
	LANE_SHARE = 8,          /* operations that are worth a further lane */
};

struct post {
	struct work work;
	uint32_t first_lane; /* of the next call, modulo their number */

	/* The list that is being built, for one lane, and the batch that it is for. */
	struct lane *lane;
	uint32_t lane_idx;
	uint32_t listed;
	uint64_t ticket;
	struct ibv_send_wr wrs[LIST];
	struct ibv_sge sges[LIST];
};

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

static const struct verbs_region *region_of(const struct region *region)
{
	return (const struct verbs_region *)region;
}

/* -------- lists -------- */

/* Posts the list for the current lane. */
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
	ret = ibv_post_send(post->work.link->qps[post->lane_idx], post->wrs, &bad);
	last->next = last + 1;
	return ret ? work_fail(&post->work, -ECONNRESET, strerror(ret)) : 0;
}

/* Takes bytes of the arena for the batch that is being built; waits until there are as many. */
static int arena_take(struct post *post, uint64_t bytes, uint8_t **ptr_out)
{
	struct work *work = &post->work;
	uint8_t *ptr;
	int ret = 0;

	while (ret == 0 && !(ptr = work_arena_take(work, post->ticket, bytes))) {
		if (work->oldest != post->ticket) {
			ret = work_wait(work, work->oldest, DEADLINE_NEVER);
			continue;
		}
		/*
		 * The batch has used the whole arena: post it, wait for it, and continue in a new
		 * one.
		 */
		ret = post_flush(post);
		if (ret)
			return ret;
		work_close_batch(work, post->ticket);
		ret = work_wait(work, post->ticket, DEADLINE_NEVER);
		if (ret == 0)
			post->ticket = work_open_batch(work);
	}
	if (ret == 0)
		*ptr_out = ptr;
	return ret;
}

static bool is_full(const struct post *post)
{
	return post->lane->head - post->lane->tail == post->work.link->depth;
}

/* True if the list and the current lane have room for one more work request. */
static bool has_place(const struct post *post)
{
	return post->listed < LIST && !is_full(post);
}

/* Posts the list and waits until the lane has room. */
static int make_place(struct post *post)
{
	struct work_wait wait = { .batch = work_batch(&post->work, post->ticket),
				  .until = DEADLINE_NEVER };
	int ret = post_flush(post);

	while (ret == 0 && is_full(post))
		ret = work_look(&post->work, &wait);
	return ret;
}

/* -------- work requests -------- */

/* Chooses the local memory of an RDMA READ or WRITE; *len_out: how many bytes it takes. */
static int post_place(struct post *post, const struct op *op, uint64_t *len_out,
		      struct ibv_sge *sge, bool *inlined_out)
{
	bool is_write = op->opcode == IBV_WR_RDMA_WRITE;
	uint8_t *copy;
	int ret;

	*inlined_out = is_write && op->len <= post->work.link->inline_bytes;
	*len_out = min_u64(op->len, PLACE_MAX);
	if (*inlined_out || verbs_device_key(post->work.link->device, op->mem, &sge->lkey)) {
		sge->addr = (uintptr_t)op->local;
		return 0;
	}
	*len_out = min_u64(*len_out, WORK_ARENA_MAX);
	ret = arena_take(post, *len_out, &copy);
	if (ret)
		return ret;
	if (is_write)
		memcpy(copy, op->local, *len_out);
	sge->addr = (uintptr_t)copy;
	sge->lkey = post->work.key;
	return 0;
}

/* Adds wr to the list and its slot to the lane. */
static void post_add(struct post *post, struct ibv_send_wr *wr, struct slot *slot)
{
	struct lane *lane = post->lane;

	slot->batch = (uint16_t)(post->ticket % WORK_BATCHES);
	work_batch(&post->work, post->ticket)->left++;
	wr->wr_id = WORK_ID(post->lane_idx, lane->head);
	lane->head++;
	post->listed++;
	if (++lane->unsignalled >= post->work.link->depth / 4) {
		wr->send_flags |= IBV_SEND_SIGNALED;
		lane->unsignalled = 0;
	}
}

/* Lists one work request, for as many bytes of op as it can carry: *len_out. */
static int list_one(struct post *post, const struct op *op, uint64_t *len_out)
{
	uint64_t address = op->region ? op->region->address + op->off : 0;
	uint32_t key = op->region ? op->region->keys[post->lane_idx] : 0;
	bool cas = op->opcode == IBV_WR_ATOMIC_CMP_AND_SWP, inlined = false;
	struct ibv_sge sge = { .addr = (uintptr_t)op->local, .lkey = post->work.key };
	struct ibv_send_wr *wr;
	struct slot *slot;
	int ret = 0;

	*len_out = op->len;
	if (op->atomic)
		sge.addr = (uintptr_t)&post->lane->results[post->lane->head & post->work.mask];
	else if (op->region)
		ret = post_place(post, op, len_out, &sge, &inlined);
	if (ret == 0 && !has_place(post))
		ret = make_place(post);
	if (ret)
		return ret;
	sge.length = (uint32_t)*len_out;
	slot = work_slot(&post->work, post->lane, post->lane->head);
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
	post_add(post, wr, slot);
	return 0;
}

/* Lists work requests until all of op is covered. */
static int post_list_op(struct post *post, struct op *op)
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

/* -------- calls -------- */

static void choose_lane(struct post *post, uint32_t i)
{
	post->lane_idx = i % post->work.link->n_qps;
	post->lane = &post->work.lanes[post->lane_idx];
}

static int post_begin(struct post *post)
{
	int ret = 0;

	if (post->work.error)
		return work_lost(&post->work);
	while (ret == 0 && work_is_full(&post->work))
		ret = work_wait(&post->work, post->work.oldest, DEADLINE_NEVER);
	if (ret == 0)
		post->ticket = work_open_batch(&post->work);
	return ret;
}

static int post_end(struct post *post, int ret, uint64_t *ticket_out)
{
	if (ret == 0)
		ret = post_flush(post);
	if (post->work.error)
		return ret;
	work_close_batch(&post->work, post->ticket);
	*ticket_out = post->ticket;
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
	    !verbs_device_key(post->work.link->device, io->mem, &key))
		return false;
	slot = work_slot(&post->work, post->lane, post->lane->head);
	slot->kind = SLOT_PLAIN;
	*wr->sg_list = (struct ibv_sge){ (uintptr_t)io->dst, io->len, key };
	wr->opcode = IBV_WR_RDMA_READ;
	wr->send_flags = read->fence ? IBV_SEND_FENCE : 0;
	wr->wr.rdma.remote_addr = region->address + io->off;
	wr->wr.rdma.rkey = region->keys[post->lane_idx];
	post_add(post, wr, slot);
	return true;
}

/* Regions and offsets of all requests lie at the same place. */
static struct op op_of_wr(struct transport_wr *wr)
{
	static const enum ibv_wr_opcode opcodes[] = {
		[VERB_READ] = IBV_WR_RDMA_READ,
		[VERB_WRITE] = IBV_WR_RDMA_WRITE,
		[VERB_CAS] = IBV_WR_ATOMIC_CMP_AND_SWP,
		[VERB_FAA] = IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	struct op op = { .opcode = opcodes[wr->verb], .fence = wr->fence };

	if (wr->verb == VERB_CAS || wr->verb == VERB_FAA) {
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
	return op;
}

static int list_wrs(struct post *post, struct transport_wr *wrs, size_t n)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < n; i++) {
		struct op op;

		if (read_at_once(post, &wrs[i]))
			continue;
		op = op_of_wr(&wrs[i]);
		ret = post_list_op(post, &op);
	}
	return ret;
}

/* Marks the atomics unknown until they are done. True if a fence keeps all in one lane. */
static bool begin_wrs(struct transport_wr *wrs, size_t n)
{
	bool fenced = false;

	for (size_t i = 0; i < n; i++) {
		fenced |= wrs[i].fence;
		if (wrs[i].verb == VERB_CAS || wrs[i].verb == VERB_FAA)
			wrs[i].atomic.status = ATOMIC_UNKNOWN;
	}
	return fenced;
}

/* Spreads the requests over the lanes, one lane for each LANE_SHARE of them. */
int post_spread(struct post *post, struct transport_wr *wrs, size_t n, uint64_t *ticket_out)
{
	size_t lanes = begin_wrs(wrs, n) ? 1 : post->work.link->n_qps;
	size_t parts = min_u64(lanes, div_up(n, LANE_SHARE));
	int ret = post_begin(post);

	if (ret)
		return ret;
	for (size_t left = parts, first = 0, last; ret == 0 && left; left--, first = last) {
		last = left > 1 ? first + (n - first) / left : n;
		/* Keeps the lane if nothing is outstanding there, because the device has its state
		   cached. */
		choose_lane(post, post->first_lane);
		if (post->lane->head != post->lane->tail)
			choose_lane(post, ++post->first_lane);
		ret = list_wrs(post, wrs + first, last - first);
		if (ret == 0 && left > 1)
			ret = post_flush(post);
	}
	return post_end(post, ret, ticket_out);
}

/* -------- chains -------- */

static bool has_room(const struct post *post, uint64_t requests)
{
	const struct lane *lane = &post->work.lanes[0];
	uint64_t used = lane->head - lane->tail;

	return !work_is_full(&post->work) &&
	       (used == 0 || used + requests <= post->work.link->depth);
}

int post_chain(struct post *post, struct transport_wr *wrs, size_t n, uint64_t *ticket_out)
{
	uint64_t requests = 0; /* that these can need at most */
	int ret = 0;

	for (size_t i = 0; i < n; i++)
		requests += wrs[i].verb == VERB_READ || wrs[i].verb == VERB_WRITE
				    ? div_up(wrs[i].io.len, WORK_ARENA_MAX)
				    : 1;
	(void)begin_wrs(wrs, n);
	if (!has_room(post, requests))
		ret = work_reap(&post->work);
	if (ret < 0)
		return ret;
	if (!has_room(post, requests))
		return error_set(-EAGAIN, "too many chains are outstanding: poll one first");
	ret = post_begin(post);
	if (ret)
		return ret;
	choose_lane(post, 0);
	return post_end(post, list_wrs(post, wrs, n), ticket_out);
}

int post_message(struct post *post, const union verbs_any *message)
{
	struct op op = { .opcode = IBV_WR_SEND,
			 .local = post->work.message->bytes,
			 .len = message->head.bytes };
	uint64_t ticket = 0;
	int ret = post_begin(post);

	if (ret)
		return ret;
	choose_lane(post, 0);
	memcpy(post->work.message->bytes, message->bytes, message->head.bytes);
	ret = post_end(post, post_list_op(post, &op), &ticket);
	return ret ? ret : post_wait(post, ticket, DEADLINE_NEVER);
}

/* -------- waiting for batches -------- */

int post_wait(struct post *post, uint64_t ticket, uint64_t deadline_ns)
{
	if (ticket < post->work.oldest)
		return 0;
	if (post->work.error)
		return work_is_done(&post->work, ticket) ? 0 : work_lost(&post->work);
	return work_wait(&post->work, ticket, deadline_ns);
}

int post_drain(struct post *post)
{
	int ret = post->work.error ? work_lost(&post->work) : 0;

	while (ret == 0 && post->work.oldest != post->work.next)
		ret = work_wait(&post->work, post->work.oldest, DEADLINE_NEVER);
	return ret;
}

/* -------- opening -------- */

int post_open(struct link *link, struct transport *tr, struct post **post_out)
{
	struct post *post = mem_zalloc(sizeof(*post));
	int ret;

	if (!post)
		return error_set(-ENOMEM, "cannot allocate memory for outstanding work");
	for (uint32_t i = 0; i < LIST; i++) {
		post->wrs[i].sg_list = &post->sges[i];
		post->wrs[i].num_sge = 1;
		post->wrs[i].next = &post->wrs[i + 1 < LIST ? i + 1 : i];
	}
	ret = work_init(&post->work, link, tr);
	if (ret) {
		mem_free(post);
		return ret;
	}
	*post_out = post;
	return 0;
}

void post_close(struct post *post)
{
	if (!post)
		return;
	work_fini(&post->work);
	mem_free(post);
}

int post_fail(struct post *post, int code, const char *text)
{
	return work_fail(&post->work, code, text);
}
