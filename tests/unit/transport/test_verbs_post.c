/*
 * Requests of the initiator to the device: doorbells, completions, fences, inline sends, copies,
 * and their sizes.
 */
#include "tests/support/fake/fake_verbs_pair.h"
#include "tests/support/fake/fake_verbs_state.h"
#include "tests/support/test.h"

#include "base/bits.h"
#include "base/mem/chunk.h"

#include "transport/verbs/link.h"
#include "transport/wait_set.h"

#include <errno.h>
#include <string.h>

#define VECTOR TRANSPORT_VECTOR

static struct fake_pair *pair_of(void **state)
{
	return *state;
}

/* A device of another kind than usual, connected to. */
static struct fake_pair *pair_on(uint32_t reads, uint32_t wrs, uint32_t inline_bytes)
{
	static struct fake_pair pair;

	fake_verbs_begin();
	fake_verbs.reads = reads;
	fake_verbs.wrs = wrs;
	fake_verbs.inline_bytes = inline_bytes;
	fake_pair_listen(&pair);
	assert_int_equal(fake_pair_connect(&pair), 0);
	fake_verbs_forget();
	return &pair;
}

static uint32_t count_signalled(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < fake_verbs.n_sent; i++)
		n += (fake_verbs.sent[i].flags & IBV_SEND_SIGNALED) != 0;
	return n;
}

static struct transport_io io_at(struct fake_pair *pair, uint64_t off, void *local, uint32_t len)
{
	return (struct transport_io){ .region = pair->region, .off = off, .dst = local, .len = len };
}

/* All of a memory. */
static struct transport_io io_in(struct fake_pair *pair, uint64_t off, const struct mem *mem)
{
	struct transport_io io = io_at(pair, off, mem->ptr, (uint32_t)mem->len);

	io.mem = mem;
	return io;
}

static uint64_t *words_of(const struct mem *mem)
{
	return (uint64_t *)(void *)mem->ptr;
}

#define PAIR_TEST(name) TEST_WITH(name, fake_pair_setup, fake_pair_teardown)

/* -------- doorbells and completions -------- */

PAIR_TEST(read__of_one_is_one_doorbell_and_one_completion)
{
	struct fake_pair *pair = pair_of(state);
	uint64_t word = 0;

	*fake_pair_word(pair, 640) = 77;
	assert_int_equal(transport_load(pair->region, 640, &word), 0);
	assert_int_equal(word, 77);
	assert_int_equal(fake_verbs.doorbells, 1);
	assert_int_equal(fake_verbs.n_sent, 1);
	assert_int_equal(count_signalled(), 1);
}

PAIR_TEST(read__of_a_vector_is_one_doorbell_for_each_queue_pair)
{
	struct fake_pair *pair = pair_of(state);
	struct transport_io io[VECTOR];
	uint64_t words[VECTOR];

	for (uint64_t i = 0; i < VECTOR; i++) {
		*fake_pair_word(pair, 64 * i) = i + 1;
		io[i] = io_at(pair, 64 * i, &words[i], 8);
	}
	assert_int_equal(transport_read(pair->tr, io, VECTOR), 0);
	for (uint64_t i = 0; i < VECTOR; i++)
		assert_int_equal(words[i], i + 1);
	assert_int_equal(fake_verbs.connected, 2); /* 16 READs each */
	assert_int_equal(fake_verbs.doorbells, 2);
	assert_int_equal(fake_verbs_count(IBV_WR_RDMA_READ, 0), VECTOR);
	assert_int_equal(fake_verbs_count(IBV_WR_RDMA_READ, IBV_SEND_FENCE), 0);
	assert_true(count_signalled() <=
		    4); /* the last of each, and one in a quarter of the room */
}

PAIR_TEST(cas__of_a_vector_gives_each_its_own_old_word)
{
	struct fake_pair *pair = pair_of(state);
	struct transport_atomic ops[VECTOR];

	for (uint64_t i = 0; i < VECTOR; i++) {
		*fake_pair_word(pair, 8 * i) = 100 + i;
		ops[i] = (struct transport_atomic){ .region = pair->region,
						    .off = 8 * i,
						    .expected = 100 + (i & ~UINT64_C(1)),
						    .value = 5 };
	}
	assert_int_equal(transport_cas(pair->tr, ops, VECTOR), 0);
	for (uint64_t i = 0; i < VECTOR; i++) {
		assert_int_equal(ops[i].status, ATOMIC_DONE);
		assert_int_equal(ops[i].old, 100 + i);
		assert_int_equal(*fake_pair_word(pair, 8 * i), i % 2 ? 100 + i : 5);
	}
	assert_int_equal(fake_verbs_count(IBV_WR_ATOMIC_CMP_AND_SWP, 0), VECTOR);
	assert_int_equal(fake_verbs.doorbells, 2);
	assert_int_equal(pair->tr->stats.cas_failed, VECTOR / 2);
}

PAIR_TEST(poll__completions_of_queue_pairs_in_any_order)
{
	struct fake_pair *pair = pair_of(state);
	struct transport_wr wrs[VECTOR];
	uint64_t ticket;

	for (uint64_t i = 0; i < VECTOR; i++) {
		*fake_pair_word(pair, 8 * i) = i;
		wrs[i] = (struct transport_wr){
			.verb = VERB_FAA,
			.atomic = { .region = pair->region, .off = 8 * i, .value = 1000 },
		};
	}
	fake_verbs.backwards = true;
	fake_verbs.hold = true;
	fake_verbs.hold_first = 1;
	assert_int_equal(transport_submit(pair->tr, wrs, VECTOR, SUBMIT_UNORDERED, &ticket), 0);
	fake_verbs.hold = false;
	assert_int_equal(transport_poll(pair->tr, ticket, DEADLINE_NEVER), 0);
	for (uint64_t i = 0; i < VECTOR; i++) {
		assert_int_equal(wrs[i].atomic.status, ATOMIC_DONE);
		assert_int_equal(wrs[i].atomic.old, i);
	}
}

/* -------- chains -------- */

PAIR_TEST(reads__with_a_fence_are_on_one_queue_pair)
{
	struct fake_pair *pair = pair_of(state);
	struct wait_set reads = { 0 };
	struct transport_io io[20];
	uint64_t words[20];

	assert_int_equal(fake_verbs.connected, 2); /* 20 are worth both */
	for (uint64_t i = 0; i < 20; i++) {
		*fake_pair_word(pair, 64 * i) = i;
		io[i] = io_at(pair, 64 * i, &words[i], 8);
	}
	assert_int_equal(wait_set_read_fenced(&reads, io, 20, 10), 0);
	assert_int_equal(wait_set_wait(&reads), 0);
	assert_int_equal(fake_verbs.doorbells, 1);
	assert_int_equal(fake_verbs.n_sent, 20);
	for (uint32_t i = 0; i < 20; i++) {
		assert_int_equal(words[i], i);
		assert_int_equal(fake_verbs.sent[i].qp, fake_verbs.sent[0].qp);
		assert_int_equal((fake_verbs.sent[i].flags & IBV_SEND_FENCE) != 0, i == 10);
	}
}

PAIR_TEST(post__chain_is_in_order_on_one_queue_pair)
{
	struct fake_pair *pair = pair_of(state);
	uint64_t row = 9, seen = 0, ticket = 0;
	struct transport_wr wrs[] = {
		{ .verb = VERB_WRITE, .io = io_at(pair, 64, &row, 8) },
		{ .verb = VERB_CAS, .atomic = { .region = pair->region, .off = 128, .value = 1 } },
		{ .verb = VERB_READ, .io = io_at(pair, 64, &seen, 8), .fence = true },
		{ .verb = VERB_FAA, .atomic = { .region = pair->region, .off = 128, .value = 2 } },
	};

	assert_int_equal(transport_submit(pair->tr, wrs, 4, SUBMIT_ORDERED, &ticket), 0);
	assert_int_equal(transport_poll(pair->tr, ticket, DEADLINE_NEVER), 0);
	assert_int_equal(seen, 9);
	assert_int_equal(wrs[3].atomic.old, 1);
	assert_int_equal(*fake_pair_word(pair, 128), 3);
	assert_int_equal(fake_verbs.doorbells, 1);
	assert_int_equal(fake_verbs.n_sent, 4);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(fake_verbs.sent[i].qp, 0);
		assert_int_equal((fake_verbs.sent[i].flags & IBV_SEND_FENCE) != 0, i == 2);
		assert_int_equal((fake_verbs.sent[i].flags & IBV_SEND_SIGNALED) != 0, i == 3);
	}
}

PAIR_TEST(post__chains_share_the_queue_pair_in_order)
{
	struct fake_pair *pair = pair_of(state);
	struct transport_wr wrs[20];
	uint64_t tickets[20];

	for (uint64_t i = 0; i < 20; i++) {
		wrs[i] = (struct transport_wr){
			.verb = VERB_FAA,
			.atomic = { .region = pair->region, .off = 256, .value = 1 }
		};
		assert_int_equal(
			transport_submit(pair->tr, &wrs[i], 1, SUBMIT_ORDERED, &tickets[i]), 0);
	}
	assert_int_equal(transport_poll(pair->tr, tickets[19], DEADLINE_NEVER), 0);
	for (uint64_t i = 0; i < 20; i++) {
		assert_int_equal(wrs[i].atomic.old, i); /* done with the last, polled or not */
		assert_int_equal(transport_poll(pair->tr, tickets[i], 0), 0);
	}
	for (uint32_t i = 0; i < fake_verbs.n_sent; i++)
		assert_int_equal(fake_verbs.sent[i].qp, 0);
}

PAIR_TEST(post__too_many_chains_give_eagain)
{
	struct fake_pair *pair = pair_of(state);
	struct transport_wr wrs[256];
	uint64_t ticket = 0, last = 0;
	uint32_t n = 0;
	int ret = 0;

	fake_verbs.hold = true;
	for (; n < 256 && ret == 0; n++) {
		wrs[n] = (struct transport_wr){
			.verb = VERB_FAA,
			.atomic = { .region = pair->region, .off = 256, .value = 1 }
		};
		last = ticket;
		ret = transport_submit(pair->tr, &wrs[n], 1, SUBMIT_ORDERED, &ticket);
	}
	assert_int_equal(ret, -EAGAIN);
	assert_int_equal(ticket, last);
	assert_true(n > 32);
	fake_verbs.hold = false;
	assert_int_equal(transport_poll(pair->tr, ticket, DEADLINE_NEVER), 0);
	assert_int_equal(*fake_pair_word(pair, 256), n - 1);
	assert_int_equal(transport_submit(pair->tr, &wrs[n - 1], 1, SUBMIT_ORDERED, &ticket), 0);
	assert_int_equal(transport_poll(pair->tr, ticket, DEADLINE_NEVER), 0);
	assert_int_equal(wrs[n - 1].atomic.old, n - 1);
}

/* -------- our side's memory -------- */

PAIR_TEST(write__small_ones_are_inline)
{
	struct fake_pair *pair = pair_of(state);
	uint64_t words[64] = { 1 };
	struct transport_io small = io_at(pair, 0, words, 128);
	struct transport_io large = io_at(pair, 4096, words, 512);

	assert_int_equal(transport_write(pair->tr, &small, 1), 0);
	assert_int_equal(fake_verbs_count(IBV_WR_RDMA_WRITE, IBV_SEND_INLINE), 1);
	assert_int_equal(transport_write(pair->tr, &large, 1), 0);
	assert_int_equal(fake_verbs_count(IBV_WR_RDMA_WRITE, IBV_SEND_INLINE), 1);
	assert_int_equal(fake_verbs_count(IBV_WR_RDMA_WRITE, 0), 2);
	assert_memory_equal(fake_pair_word(pair, 4096), words, 512);
}

TEST(write__device_without_inline_copies)
{
	struct fake_pair *pair = pair_on(16, 4096, 0);
	uint64_t word = 5;

	assert_int_equal(transport_store(pair->region, 64, &word, 8), 0);
	assert_int_equal(fake_verbs_count(IBV_WR_RDMA_WRITE, IBV_SEND_INLINE), 0);
	assert_int_equal(*fake_pair_word(pair, 64), 5);
	fake_pair_close(pair);
}

PAIR_TEST(read__into_a_chunk_is_without_a_copy)
{
	struct fake_pair *pair = pair_of(state);
	uint64_t stack[4] = { 0 };
	struct mem mem = { 0 };
	struct transport_io io[2];

	assert_true(chunk_make_room(&mem, 4096));
	io[0] = io_in(pair, 0, &mem);
	io[1] = io_at(pair, 0, stack, 32);
	*fake_pair_word(pair, 0) = 11;
	assert_int_equal(transport_read(pair->tr, io, 2), 0);
	assert_int_equal(words_of(&mem)[0], 11);
	assert_int_equal(stack[0], 11);
	assert_int_equal(fake_verbs.sent[0].local, (uintptr_t)mem.ptr);
	assert_int_not_equal(fake_verbs.sent[1].local, (uintptr_t)stack);
	chunk_drop(&mem);
}

PAIR_TEST(write__from_a_chunk_is_without_a_copy)
{
	struct fake_pair *pair = pair_of(state);
	struct mem rows = { 0 };
	struct transport_io io;

	assert_true(chunk_make_room(&rows, 4096));
	io = io_in(pair, 8192, &rows);
	words_of(&rows)[511] = 3;
	assert_int_equal(transport_write(pair->tr, &io, 1), 0);
	assert_int_equal(fake_verbs.sent[0].local, (uintptr_t)rows.ptr);
	assert_int_equal(*fake_pair_word(pair, 8192 + 511 * 8), 3);
	chunk_drop(&rows);
}

PAIR_TEST(write__from_a_chunk_that_is_not_named_is_copied)
{
	struct fake_pair *pair = pair_of(state);
	struct mem rows = { 0 };
	struct transport_io io;

	assert_true(chunk_make_room(&rows, 4096));
	io = io_at(pair, 8192, rows.ptr, 4096);
	words_of(&rows)[511] = 3;
	assert_int_equal(transport_write(pair->tr, &io, 1), 0);
	assert_int_not_equal(fake_verbs.sent[0].local, (uintptr_t)rows.ptr);
	assert_int_equal(*fake_pair_word(pair, 8192 + 511 * 8), 3);
	chunk_drop(&rows);
}

PAIR_TEST(read__into_memory_of_a_device_once_it_is_reached)
{
	static uint64_t words[2] = { 5, 5 };
	struct mem mem = { .kind = MEM_DEVICE, .dmabuf_fd = -1, .ptr = (uint8_t *)words, .len = 16 };
	struct fake_pair *pair = pair_of(state);
	uint32_t before = fake_verbs_live();
	struct transport_io io[2];

	*fake_pair_word(pair, 64) = 77;
	assert_true(chunk_lend(&mem));
	io[0] = io_at(pair, 64, &words[1], 8); /* copied: its memory is not named */
	io[1] = io_in(pair, 64, &mem);
	assert_int_equal(transport_read(pair->tr, io, 2), -ENOTSUP);
	assert_int_equal(fake_verbs.n_sent, 0);
	fake_verbs.fail_call = 1;
	assert_int_equal(transport_reach(pair->tr, &mem), -ENOMEM);
	assert_int_equal(transport_reach(pair->tr, &mem), 0);
	assert_int_equal(transport_reach(pair->tr, &mem), 0); /* is reached */
	assert_int_equal(fake_verbs_live(), before + 1);
	assert_int_equal(transport_read(pair->tr, &io[1], 1), 0);
	assert_int_equal(fake_verbs.sent[0].local, (uintptr_t)words);
	assert_int_equal(words[0], 77);
	assert_int_equal(transport_write(pair->tr, &io[1], 1), -ENOTSUP);
	chunk_unlend(&mem);
	assert_int_equal(fake_verbs_live(), before);
}

PAIR_TEST(reach__as_a_dmabuf_needs_a_new_rdma_core)
{
	static uint64_t words[2];
	struct mem mem = { .kind = MEM_DEVICE, .dmabuf_fd = 3, .ptr = (uint8_t *)words, .len = 16 };
	struct fake_pair *pair = pair_of(state);

	assert_true(chunk_lend(&mem));
	assert_int_equal(transport_reach(pair->tr, &mem), -ENOTSUP);
	mem.dmabuf_fd = -1;
	assert_int_equal(transport_reach(pair->tr, &mem), 0);
	chunk_unlend(&mem);
}

PAIR_TEST(write__chunk_that_cannot_be_registered_is_copied)
{
	struct fake_pair *pair = pair_of(state);
	struct mem rows = { 0 };
	struct transport_io io;

	fake_verbs.fail_call = 1; /* the registration of a chunk that is made now */
	assert_true(chunk_make_room(&rows, CHUNK_UNIT));
	assert_true(fake_verbs.fail_fired);
	words_of(&rows)[0] = 4;
	io = io_in(pair, 8192, &rows);
	io.len = 4096;
	assert_int_equal(transport_write(pair->tr, &io, 1), 0);
	assert_int_not_equal(fake_verbs.sent[0].local, (uintptr_t)rows.ptr);
	assert_int_equal(*fake_pair_word(pair, 8192), 4);
	chunk_drop(&rows);
}

PAIR_TEST(read__larger_than_all_copies_together)
{
	struct fake_pair *pair = pair_of(state);
	uint32_t bytes = 3 << 20;
	uint64_t *heap = calloc(1, bytes);
	struct transport_io io = io_at(pair, 0, heap, bytes);

	for (uint32_t i = 0; i < bytes / 8; i++)
		*fake_pair_word(pair, 8 * (uint64_t)i) = i;
	assert_int_equal(transport_read(pair->tr, &io, 1), 0);
	for (uint32_t i = 0; i < bytes / 8; i++)
		assert_int_equal(heap[i], i);
	memset(fake_pair_word(pair, 0), 0, bytes);
	assert_int_equal(transport_write(pair->tr, &io, 1), 0);
	assert_memory_equal(fake_pair_word(pair, 0), heap, bytes);
	free(heap);
}

/* -------- bounds -------- */

TEST(write__never_more_than_the_queue_holds)
{
	struct fake_pair *pair = pair_on(32, 16, 128);
	struct transport_io io[VECTOR];
	uint64_t words[VECTOR];

	for (uint64_t i = 0; i < VECTOR; i++) {
		words[i] = i + 1;
		io[i] = io_at(pair, 8 * i, &words[i], 8);
	}
	for (int round = 0; round < 5; round++)
		assert_int_equal(transport_write(pair->tr, io, VECTOR), 0);
	assert_memory_equal(fake_pair_word(pair, 0), words, sizeof(words));
	assert_true(fake_verbs.most_outstanding <= 16);
	assert_true(fake_verbs.most_outstanding >= 8);
	fake_pair_close(pair);
}

TEST(open__queue_pairs_by_how_many_reads_one_can_do)
{
	static const struct {
		uint32_t reads, qps;
	} cases[] = { { 1, 4 }, { 4, 4 }, { 8, 4 }, { 16, 2 }, { 31, 2 }, { 32, 1 }, { 128, 1 } };

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct fake_pair *pair = pair_on(cases[i].reads, 4096, 128);

		assert_int_equal(fake_verbs.connected, cases[i].qps);
		assert_int_equal(fake_verbs.connect.initiator_depth, cases[i].reads);
		fake_pair_close(pair);
		assert_int_equal(fake_verbs.destroyed, cases[i].qps);
	}
}

PAIR_TEST(open__retries_end)
{
	struct fake_pair *pair = pair_of(state);

	(void)pair;
	assert_in_range(fake_verbs.connect.retry_count, 1, 6);
	assert_in_range(fake_verbs.connect.rnr_retry_count, 1, 6);
}

PAIR_TEST(open__silence_ends_when_the_environment_says)
{
	struct fake_pair *pair = pair_of(state);
	struct transport *tr = NULL;

	assert_int_equal(fake_verbs.ack_timeout, 14);
	assert_int_equal(setenv("RLV_VERBS_ACK_TIMEOUT", "17", 1), 0);
	assert_int_equal(fake_pair_open(pair, &tr), 0);
	assert_int_equal(fake_verbs.ack_timeout, 17);
	transport_close(&tr);
	assert_int_equal(setenv("RLV_VERBS_ACK_TIMEOUT", "21", 1), 0);
	assert_int_equal(fake_pair_open(pair, &tr), -EINVAL);
	assert_int_equal(unsetenv("RLV_VERBS_ACK_TIMEOUT"), 0);
}

/*
 * Of the device's 8192 requests the last links still get 16 each, however many queue pairs they
 * want.
 */
TEST(open__many_of_several_queue_pairs_share_the_device)
{
	struct fake_pair *pair = pair_on(1, 4096, 128);
	struct transport *more[24] = { 0 };
	uint32_t before = 0, room = 0, connected = 0;

	for (size_t i = 0; i < ARRAY_LEN(more); i++) {
		before = fake_verbs.room;
		connected = fake_verbs.connected;
		assert_int_equal(fake_pair_open(pair, &more[i]), 0);
		room = fake_verbs.room - before;
		assert_true(room <= 4 * 512);
		assert_true(fake_verbs.room <= 8192 || room <= 16);
	}
	assert_int_equal(room, 16);
	assert_int_equal(fake_verbs.connected - connected, 2); /* of 8, not 4 of 4 */
	for (size_t i = 0; i < ARRAY_LEN(more); i++)
		transport_close(&more[i]);
	fake_pair_close(pair);
}

PAIR_TEST(open__many_transports_share_the_device)
{
	struct fake_pair *pair = pair_of(state);
	struct transport *more[40] = { 0 };
	uint64_t word = 3;
	struct region *region = NULL;

	for (size_t i = 0; i < ARRAY_LEN(more); i++)
		assert_int_equal(fake_pair_open(pair, &more[i]), 0);
	assert_true(fake_verbs.room <= 8192 + 16 * ARRAY_LEN(more));
	assert_int_equal(fake_pair_attach(pair, more[39], &region), 0);
	assert_int_equal(transport_store(region, 0, &word, 8), 0); /* the last one works, too */
	for (size_t i = 0; i < ARRAY_LEN(more); i++)
		transport_close(&more[i]);
	assert_int_equal(*fake_pair_word(pair, 0), 3);
}

PAIR_TEST(close__gives_the_share_of_the_device_back)
{
	struct fake_pair *pair = pair_of(state);
	uint32_t room = fake_verbs.room; /* of the one that stays */

	for (int i = 0; i < 50; i++) {
		struct transport *tr = NULL;

		assert_int_equal(fake_pair_open(pair, &tr), 0);
		assert_int_equal(fake_verbs.room, 2 * room);
		transport_close(&tr);
	}
}

/* -------- devices -------- */

PAIR_TEST(open__device_without_atomics_is_refused)
{
	struct transport *tr = NULL;
	struct fake_pair *pair = pair_of(state);

	fake_pair_close(pair); /* so that the device is looked at anew */
	fake_verbs_begin();
	fake_verbs.no_atomics = true;
	assert_int_equal(transport_open("verbs:127.0.0.1:7", NULL, &tr), -ENOTSUP);
	assert_non_null(strstr(error_last(), "atomics"));
	fake_verbs_end();
	fake_verbs_begin();
	fake_pair_listen(pair);
}

TEST(open__device_without_reads_is_refused)
{
	struct transport *tr = NULL;

	fake_verbs_begin();
	fake_verbs.reads = 0;
	assert_int_equal(transport_open("verbs:127.0.0.1:7", NULL, &tr), -ENOTSUP);
	fake_verbs_end();
}

TEST(open__nobody_listens)
{
	struct transport *tr = NULL;

	fake_verbs_begin();
	assert_int_equal(transport_open("verbs:127.0.0.1:7", NULL, &tr), -ECONNREFUSED);
	assert_null(tr);
	fake_verbs_end();
}

static struct link *link_to(struct fake_pair *pair)
{
	const struct link_opts opts = { .host = "127.0.0.1",
					.port = "7471",
					.clock = &pair->clock.clock,
					.timeout_ns = PAIR_TIMEOUT_NS,
					.client_id = PAIR_CLIENT };
	struct link *link = NULL;

	assert_int_equal(link_open(&opts, &link), 0);
	assert_int_equal(link->n_qps, 2);
	return link;
}

/* Where they are, so that the provider knows that one thread uses them. */
PAIR_TEST(open__queue_pairs_are_in_a_parent_domain)
{
	struct link *link = link_to(pair_of(state));

	for (uint32_t i = 0; i < link->n_qps; i++) {
		const struct fake_pd *domain = (const struct fake_pd *)link->qps[i]->pd;

		assert_ptr_not_equal(&domain->pd, link->device->pd);
		assert_ptr_equal(&domain->root->pd, link->device->pd);
		assert_non_null(domain->td);
		assert_ptr_equal(link->qps[i]->pd, link->qps[0]->pd); /* one for the link */
	}
	link_close(link, false);
}

TEST(open__queue_pairs_are_in_the_domain_of_a_device_without_others)
{
	static struct fake_pair pair;
	struct link *link;

	fake_verbs_begin();
	fake_verbs.no_parent_domains = true;
	fake_pair_listen(&pair);
	link = link_to(&pair);
	assert_null(link->td);
	for (uint32_t i = 0; i < link->n_qps; i++)
		assert_ptr_equal(link->qps[i]->pd, link->device->pd);
	link_close(link, false);
	fake_pair_close(&pair);
}

TEST(open__device_without_parent_domains_works)
{
	static struct fake_pair pair;
	uint64_t word = 8;

	fake_verbs_begin();
	fake_verbs.no_parent_domains = true;
	fake_pair_listen(&pair);
	assert_int_equal(fake_pair_connect(&pair), 0);
	assert_int_equal(transport_store(pair.region, 0, &word, 8), 0);
	assert_int_equal(*fake_pair_word(&pair, 0), 8);
	fake_pair_close(&pair);
}

int main(void)
{
	return test_run(NULL, NULL);
}
