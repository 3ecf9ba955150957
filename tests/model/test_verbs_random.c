/*
 * Random calls and chains of the verbs initiator on random devices, against a plain array of what
 * should stand in the region; now and then the device fails in some way. What is said to be done is
 * done, once; what is unknown is done once or not at all; and nothing happens later.
 */
#include "tests/support/fake/fake_verbs_pair.h"
#include "tests/support/test.h"

#include "base/bits.h"
#include "base/mem/chunk.h"
#include "base/rng.h"

#include <errno.h>
#include <string.h>

#define SEEDS 12
#define STEPS 150
#define MAX TRANSPORT_VECTOR
#define CHAINS 4
#define CHAIN_MAX 24
#define LOCAL_BYTES ((size_t)1 << 20)

/* Zones of the region: words that are targets of atomics, and others; for calls and for chains,
   since a call and a chain are in no order. */
#define ZONE ((uint64_t)1 << 20)
enum zone { CALL_WORDS, CALL_BYTES, CHAIN_WORDS, CHAIN_BYTES };

struct chain {
	bool outstanding;
	uint64_t ticket;
	uint32_t n;
	struct transport_wr wrs[CHAIN_MAX];
	uint64_t old[CHAIN_MAX];          /* that atomics should find */
	uint64_t local[CHAIN_MAX][64];    /* written from, read into */
	uint64_t expected[CHAIN_MAX][64]; /* that reads should find */
};

static struct fake_pair pair;
static struct rng rng;
static uint64_t model[4 * ZONE / 8];
static uint64_t *heap; /* LOCAL_BYTES each, one of which a call uses */
static struct mem chunk;
static struct chain chains[CHAINS];
static uint64_t n_done, n_unknown, n_lost;

static uint64_t below(uint64_t n)
{
	return rng_uniform_u64(&rng, n);
}

/* Mostly small, now and then large; a multiple of 8. */
static uint32_t some_length(uint64_t most)
{
	uint64_t bits = below(20) ? 3 + below(7) : 3 + below(18);

	return (uint32_t)min_u64(align_up(1 + below(UINT64_C(1) << bits), 8), most);
}

/* -------- the device -------- */

static void connect_pair(void)
{
	assert_int_equal(fake_pair_connect(&pair), 0);
	fake_verbs_forget();
}

static void begin(uint64_t seed)
{
	static const uint32_t reads[] = { 1, 2, 8, 16, 32 }, rooms[] = { 16, 32, 64, 1024 };
	static const uint32_t inlines[] = { 0, 64, 128, 256 };

	rng_seed(&rng, seed, 0);
	fake_verbs_begin();
	fake_verbs.reads = reads[below(ARRAY_LEN(reads))];
	fake_verbs.wrs = rooms[below(ARRAY_LEN(rooms))];
	fake_verbs.inline_bytes = inlines[below(ARRAY_LEN(inlines))];
	fake_verbs.backwards = below(2);
	fake_verbs.no_windows = below(2);
	fake_verbs.no_parent_domains = below(2);
	fake_pair_listen(&pair);
	assert_true(chunk_make_room(&chunk, LOCAL_BYTES));
	memset(model, 0, sizeof(model));
	memset(chains, 0, sizeof(chains));
	connect_pair();
}

/* The next call, or one soon after, comes to grief. */
static void do_harm(void)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
						      IBV_WR_ATOMIC_CMP_AND_SWP,
						      IBV_WR_ATOMIC_FETCH_AND_ADD };
	static const enum ibv_wc_status errors[] = { IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR,
						     IBV_WC_REM_OP_ERR };

	switch (below(4)) {
	case 0:
		fake_verbs.post_room = 1 + (uint32_t)below(40);
		return;
	case 1:
		fake_verbs.hold = true;
		fake_verbs.hold_first = (uint32_t)below(2);
		atomic_store(&pair.clock.step_ns, PAIR_TIMEOUT_NS / 4);
		return;
	case 2:
		fake_verbs_event(RDMA_CM_EVENT_DISCONNECTED);
		return;
	default:
		fake_verbs.fault = (struct fake_fault){ .armed = true,
							.opcode = opcodes[below(4)],
							.skip = (uint32_t)below(30),
							.status = errors[below(3)],
							.done = below(2) };
	}
}

static void expect_region(void)
{
	for (size_t i = 0; i < ARRAY_LEN(model); i++)
		if (*fake_pair_word(&pair, 8 * i) != model[i])
			fail_msg("word %zu: 0x%llx, want 0x%llx", i,
				 (unsigned long long)*fake_pair_word(&pair, 8 * i),
				 (unsigned long long)model[i]);
}

/*
 * Chains in order, with their reported results; from the first unknown one on each may be done or
 * not.
 */
static void settle_chains(void)
{
	for (int c = 0; c < CHAINS; c++) {
		struct chain *chain = &chains[c];

		for (uint32_t i = 0; chain->outstanding && i < chain->n; i++) {
			const struct transport_wr *wr = &chain->wrs[i];

			if (wr->verb != VERB_CAS && wr->verb != VERB_FAA)
				continue;
			if (wr->atomic.status == ATOMIC_DONE)
				assert_int_equal(wr->atomic.old, chain->old[i]);
			n_unknown += wr->atomic.status == ATOMIC_UNKNOWN;
		}
		chain->outstanding = false;
	}
	memcpy(&model[CHAIN_WORDS * ZONE / 8], fake_pair_word(&pair, CHAIN_WORDS * ZONE), 2 * ZONE);
}

/* A connection is over: from now on nothing changes. */
static void begin_again(int ret)
{
	assert_true(ret == -ECONNRESET || ret == -ETIMEDOUT);
	assert_int_equal(pair.tr->broken, -ECONNRESET);
	assert_int_equal(fake_verbs.destroyed, fake_verbs.connected);
	n_lost++;
	settle_chains();
	fake_verbs.hold = false;
	fake_verbs.post_room = 0;
	fake_verbs.fault.armed = false;
	atomic_store(&pair.clock.step_ns, 0);
	transport_close(&pair.tr);
	pair.region = NULL;
	connect_pair();
	expect_region();
}

/* -------- calls -------- */

/* n ranges of the zone that do not overlap, at places of local memory that do not, either. */
static size_t some_ranges(struct transport_io *io)
{
	const struct mem *mem = below(2) ? NULL : &chunk;
	uint8_t *local = mem ? mem->ptr : (uint8_t *)heap;
	size_t n = 1 + below(below(4) ? 8 : MAX), at = 0;
	uint64_t off = 0, left = LOCAL_BYTES;

	for (; at < n && left; at++) {
		uint32_t len = some_length(left);
		uint64_t gap = align_down(below(64), 8);

		if (off + gap + len > ZONE)
			break;
		off += gap;
		io[at] = (struct transport_io){ .region = pair.region,
						.off = CALL_BYTES * ZONE + off,
						.dst = local + (LOCAL_BYTES - left),
						.mem = mem,
						.len = len };
		off += len;
		left -= len;
	}
	return at;
}

static int write_some(void)
{
	struct transport_io io[MAX];
	size_t n = some_ranges(io);
	int ret;

	for (size_t i = 0; i < n; i++)
		rng_fill_u64(&rng, io[i].dst, io[i].len / 8);
	ret = transport_write(pair.tr, io, n);
	for (size_t i = 0; i < n; i++) {
		const uint64_t *there = fake_pair_word(&pair, io[i].off), *ours = io[i].src;
		uint64_t *want = &model[io[i].off / 8];

		for (uint32_t w = 0; w < io[i].len / 8; w++) {
			assert_true(there[w] == ours[w] || (ret && there[w] == want[w]));
			want[w] = there[w];
		}
	}
	return ret;
}

static int read_some(void)
{
	struct transport_io io[MAX];
	size_t n = some_ranges(io);
	int ret = transport_read(pair.tr, io, n);

	for (size_t i = 0; ret == 0 && i < n; i++)
		if (memcmp(io[i].dst, &model[io[i].off / 8], io[i].len) != 0)
			fail_msg("read %zu of %zu: not what was written", i, n);
	return ret;
}

static void settle_atomic(const struct transport_atomic *op, uint64_t changed)
{
	uint64_t there = *fake_pair_word(&pair, op->off), *want = &model[op->off / 8];

	if (op->status == ATOMIC_DONE) {
		assert_int_equal(op->old, *want);
		assert_int_equal(there, changed);
		n_done++;
	} else {
		assert_true(there == *want || there == changed);
		n_unknown++;
	}
	*want = there;
}

static uint64_t changed_by(bool cas, const struct transport_atomic *op, uint64_t word)
{
	if (!cas)
		return word + op->value;
	return word == op->expected ? op->value : word;
}

static int change_some(void)
{
	bool cas = below(2);
	struct transport_atomic ops[MAX];
	size_t n = 1 + below(below(4) ? 8 : MAX);
	uint64_t first = below(ZONE / 8 - MAX);
	int ret;

	for (size_t i = 0; i < n; i++) {
		uint64_t word = first + i;

		ops[i] = (struct transport_atomic){ .region = pair.region,
						    .off = 8 * word,
						    .expected = model[word] + (below(4) == 0),
						    .value = 1 + below(1000),
						    .old = 99 };
	}
	ret = cas ? transport_cas(pair.tr, ops, n) : transport_faa(pair.tr, ops, n);
	for (size_t i = 0; i < n; i++) {
		if (ret == 0)
			assert_int_equal(ops[i].status, ATOMIC_DONE);
		settle_atomic(&ops[i], changed_by(cas, &ops[i], model[ops[i].off / 8]));
	}
	return ret;
}

/* -------- chains -------- */

static void add_bytes(struct chain *chain, uint32_t i, bool write, bool fence)
{
	uint32_t words = 1 + (uint32_t)below(64);
	uint64_t off = CHAIN_BYTES * ZONE + 8 * below(ZONE / 8 - words);

	chain->wrs[i] = (struct transport_wr){ .verb = write ? VERB_WRITE : VERB_READ,
					       .fence = fence,
					       .io = { .region = pair.region,
						       .off = off,
						       .dst = chain->local[i],
						       .len = 8 * words } };
	if (write) {
		rng_fill_u64(&rng, chain->local[i], words);
		memcpy(&model[off / 8], chain->local[i], 8 * words);
	} else {
		memcpy(chain->expected[i], &model[off / 8], 8 * words);
	}
}

static void add_atomic(struct chain *chain, uint32_t i, bool cas, bool fence)
{
	uint64_t word = CHAIN_WORDS * ZONE / 8 + below(16);
	struct transport_atomic op = { .region = pair.region,
				       .off = 8 * word,
				       .expected = model[word],
				       .value = 1 + below(1000) };

	chain->wrs[i] = (struct transport_wr){ .verb = cas ? VERB_CAS : VERB_FAA,
					       .fence = fence,
					       .atomic = op };
	chain->old[i] = model[word];
	model[word] = changed_by(cas, &op, model[word]);
}

static int poll_one(struct chain *chain)
{
	int ret = transport_poll(pair.tr, chain->ticket, DEADLINE_NEVER);

	for (uint32_t i = 0; ret == 0 && i < chain->n; i++) {
		const struct transport_wr *wr = &chain->wrs[i];

		if (wr->verb == VERB_READ)
			assert_memory_equal(chain->local[i], chain->expected[i], wr->io.len);
		if (wr->verb != VERB_CAS && wr->verb != VERB_FAA)
			continue;
		assert_int_equal(wr->atomic.status, ATOMIC_DONE);
		assert_int_equal(wr->atomic.old, chain->old[i]);
		n_done++;
	}
	if (ret == 0)
		chain->outstanding = false;
	return ret;
}

static int post_one(struct chain *chain)
{
	int ret;

	if (chain->outstanding)
		return poll_one(chain);
	chain->n = 1 + (uint32_t)below(CHAIN_MAX);
	for (uint32_t i = 0; i < chain->n; i++) {
		if (below(2))
			add_bytes(chain, i, below(2), below(3) == 0);
		else
			add_atomic(chain, i, below(2), below(3) == 0);
	}
	chain->outstanding = true;
	do {
		ret = transport_submit(pair.tr, chain->wrs, chain->n, SUBMIT_ORDERED,
				       &chain->ticket);
		if (ret == -EAGAIN && transport_order(pair.tr))
			ret = -ECONNRESET; /* nothing of it was posted, nor of others any more */
	} while (ret == -EAGAIN);
	return ret;
}

/* -------- all of it -------- */

static int step(void)
{
	switch (below(5)) {
	case 0:
		return write_some();
	case 1:
		return read_some();
	case 2:
		return change_some();
	default:
		return post_one(&chains[below(CHAINS)]);
	}
}

static void run(uint64_t seed)
{
	begin(seed);
	for (int i = 0; i < STEPS; i++) {
		int ret;

		if (below(12) == 0)
			do_harm();
		ret = step();
		if (ret)
			begin_again(ret);
	}
	for (int c = 0; c < CHAINS; c++)
		if (chains[c].outstanding) {
			int ret = poll_one(&chains[c]);

			if (ret)
				begin_again(ret);
		}
	expect_region();
	chunk_drop(&chunk);
	fake_pair_close(&pair);
}

TEST(verbs__does_what_it_says)
{
	uint64_t seed = test_seed("verbs__does_what_it_says", 1);

	heap = calloc(1, LOCAL_BYTES);
	assert_non_null(heap);
	for (uint64_t i = 0; i < SEEDS; i++)
		run(seed + i);
	free(heap);
	print_message("%llu atomics done, %llu unknown, %llu connections lost\n",
		      (unsigned long long)n_done, (unsigned long long)n_unknown,
		      (unsigned long long)n_lost);
	assert_true(n_lost > SEEDS && n_unknown > n_lost);
}

int main(void)
{
	return test_run(NULL, NULL);
}
