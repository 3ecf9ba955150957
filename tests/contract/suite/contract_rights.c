/*
 * contract_rights.c - a cheating client over RDMA cannot harm a node. All tests run twice: with
 * memory windows, and with a protection domain for each link.
 */
#include "tests/contract/suite/contract.h"

#if RLV_HAVE_VERBS

#include <errno.h>
#include <string.h>

#include "tests/support/fake/fake_verbs.h"
#include "tests/support/fake/raw_verbs.h"
#include "tests/support/gauge.h"

#define OTHER 50
#define CYCLES 100
#define OFF 8192 /* of the word that is fought for */
#define KEYS_MAX 4096

/* -------- all registrations of this process, to guess from -------- */

static struct verbs_calls spying;
static const struct verbs_calls *real;
static pthread_mutex_t spy_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t seen_keys[KEYS_MAX];
static size_t n_seen;

static struct ibv_mr *spy_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct ibv_mr *mr = real->reg_mr(pd, addr, length, access);

	pthread_mutex_lock(&spy_lock);
	if (mr && length == RIG_REGION && n_seen < KEYS_MAX)
		seen_keys[n_seen++] = mr->rkey ? mr->rkey : mr->lkey;
	pthread_mutex_unlock(&spy_lock);
	return mr;
}

static void spy(void)
{
	assert_int_equal(verbs_calls_load(&real), 0);
	n_seen = 0;
	spying = *real;
	spying.reg_mr = spy_reg_mr;
	verbs_calls_use(&spying);
}

/* -------- clients -------- */

static struct raw *join_link(struct rig *rig, uint64_t client_id, uint64_t link, uint32_t index,
			     uint32_t n_qps)
{
	union verbs_any hello = raw_hello(client_id, link, index, n_qps);
	int refusal = 0;
	struct raw *raw = raw_connect(rig->uri, &hello, sizeof(hello.hello), &refusal);

	if (!raw)
		fail_msg("refused: %d", refusal);
	return raw;
}

static struct raw *join(struct rig *rig, uint64_t client_id)
{
	static uint64_t link;

	return join_link(rig, client_id, ++link, 0, 1);
}

static union verbs_any attach_by(struct raw *raw, const struct region_grant *grant,
				 uint32_t request)
{
	union verbs_any message = { .attach = { .request = request, .grant_bytes = grant->bytes } };

	memcpy(message.attach.grant, grant->data, grant->bytes);
	message_seal(&message, VERBS_ATTACH);
	assert_int_equal(raw_send(raw, message.bytes, sizeof(message.attach)), IBV_WC_SUCCESS);
	raw_receive(raw, &message);
	assert_int_equal(message.head.type, VERBS_ATTACHED);
	assert_int_equal(message.attached.request, request);
	return message;
}

static struct region_grant grant_to(struct rig *rig, uint64_t client_id, uint32_t rights)
{
	struct region_grant grant;

	assert_int_equal(transport_grant(rig->tg, client_id, rig->spec.id, rights, &grant), 0);
	return grant;
}

static struct verbs_attached attach(struct rig *rig, struct raw *raw, uint64_t client_id,
				    uint32_t rights)
{
	struct region_grant grant = grant_to(rig, client_id, rights);
	struct verbs_attached attached = attach_by(raw, &grant, 1).attached;

	assert_int_equal(attached.status, 0);
	assert_int_equal(attached.rights, rights);
	assert_int_equal(attached.size, RIG_REGION);
	return attached;
}

static uint64_t *word(struct rig *rig)
{
	return (uint64_t *)(void *)(rig->spec.base + OFF);
}

/* Result of one operation on the word; a refused one ends its connection. */
static enum ibv_wc_status try(struct rig *rig, uint64_t client_id, uint32_t rights,
			      enum ibv_wr_opcode opcode)
{
	struct raw *raw = join(rig, client_id);
	struct verbs_attached attached = attach(rig, raw, client_id, rights);
	enum ibv_wc_status status;

	raw->memory[0] = 0x5a;
	status = raw_do(raw, opcode, attached.address + OFF, attached.key[0], 8);
	raw_close(raw);
	return status;
}

/* -------- gauges -------- */

static struct target_stats stats_of(struct rig *rig)
{
	struct target_stats stats;

	rig->tg->ops->stats(rig->tg, &stats);
	return stats;
}

static bool same_gauges(const struct target_stats *a, const struct target_stats *b)
{
	return gauge_of(*a, "qps") == gauge_of(*b, "qps") &&
	       gauge_of(*a, "mrs") == gauge_of(*b, "mrs") &&
	       gauge_of(*a, "windows") == gauge_of(*b, "windows") && a->clients == b->clients;
}

/* A hang-up may still be on its way. */
static void assert_gauges(struct rig *rig, const struct target_stats *want)
{
	struct target_stats now = stats_of(rig);

	for (int i = 0; i < 10000 && !same_gauges(&now, want); i++) {
		(void)rig->tg->ops->progress(rig->tg, (uint64_t)CLOCK_NS_PER_MS);
		now = stats_of(rig);
	}
	assert_int_equal(gauge_of(now, "qps"), gauge_of(*want, "qps"));
	assert_int_equal(gauge_of(now, "mrs"), gauge_of(*want, "mrs"));
	assert_int_equal(gauge_of(now, "windows"), gauge_of(*want, "windows"));
	assert_int_equal(now.clients, want->clients);
}

/* -------- rights -------- */

static void key__lets_do_what_was_granted_and_no_more(void **state)
{
	static const struct {
		enum ibv_wr_opcode opcode;
		uint32_t right;
	} ops[] = {
		{ IBV_WR_RDMA_READ, RIGHT_READ },
		{ IBV_WR_RDMA_WRITE, RIGHT_WRITE },
		{ IBV_WR_ATOMIC_CMP_AND_SWP, RIGHT_ATOMIC },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, RIGHT_ATOMIC },
	};
	struct rig *rig = rig_of(state);

	for (uint32_t rights = 1; rights <= RIGHT_ALL; rights++) {
		for (size_t i = 0; i < 4; i++) {
			bool may = (rights & ops[i].right) != 0;
			bool changes = may && ops[i].right != RIGHT_READ;

			*word(rig) = 0;
			assert_int_equal(try(rig, OTHER, rights, ops[i].opcode),
					 may ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
			assert_int_equal(*word(rig) != 0, changes);
		}
	}
}

static void key__ends_with_the_region(void **state)
{
	struct rig *rig = rig_of(state);
	static const int64_t outside[] = { -8, RIG_REGION, RIG_REGION - 4096 + 8, INT64_MAX / 2 };

	for (size_t i = 0; i < 4; i++) {
		struct raw *raw = join(rig, OTHER);
		struct verbs_attached attached = attach(rig, raw, OTHER, RIGHT_ALL);

		assert_int_equal(raw_do(raw, IBV_WR_RDMA_READ, attached.address + RIG_REGION - 4096,
					attached.key[0], 4096),
				 IBV_WC_SUCCESS);
		assert_int_equal(raw_do(raw, IBV_WR_RDMA_READ,
					attached.address + (uint64_t)outside[i], attached.key[0],
					4096),
				 IBV_WC_REM_ACCESS_ERR);
		raw_close(raw);
	}
}

/*
 * Soft-RoCE holds a window to the region that it was bound in, not to its own range (check_rkey of Linux's
 * rxe_resp.c).
 */
static bool holds_ranges(const struct rig *rig, const struct raw *raw)
{
	const char *device = raw->calls->get_device_name(raw->id->verbs->device);

	return rig->kind->no_windows || strncmp(device, "rxe", 3) != 0;
}

static void key__ends_with_the_range(void **state)
{
	static const int64_t outside[] = { -8, 4096, 4088, -4096 };
	struct rig *rig = rig_of(state);
	const struct region_range range = { .region = rig->spec.id, .off = 8192, .len = 4096 };
	struct region_grant grant;

	assert_int_equal(rig->tg->ops->grant(rig->tg, OTHER, &range, RIGHT_ALL, &grant), 0);
	for (size_t i = 0; i < 4; i++) {
		struct raw *raw = join(rig, OTHER);
		struct verbs_attached attached = attach_by(raw, &grant, 1).attached;

		assert_int_equal(attached.status, 0);
		assert_int_equal(attached.size, 4096);
		assert_int_equal(
			raw_do(raw, IBV_WR_RDMA_WRITE, attached.address, attached.key[0], 4096),
			IBV_WC_SUCCESS);
		if (holds_ranges(rig, raw))
			assert_int_equal(raw_do(raw, IBV_WR_RDMA_WRITE,
						attached.address + (uint64_t)outside[i],
						attached.key[0], 16),
					 IBV_WC_REM_ACCESS_ERR);
		raw_close(raw);
	}
}

static void key__of_another_client_is_worth_nothing(void **state)
{
	struct rig *rig = rig_of(state);
	struct raw *owner = join(rig, OTHER), *thief = join(rig, OTHER + 1);
	struct verbs_attached attached = attach(rig, owner, OTHER, RIGHT_ALL);

	(void)attach(rig, thief, OTHER + 1, RIGHT_READ);
	*word(rig) = 0;
	assert_int_equal(raw_do(thief, IBV_WR_ATOMIC_FETCH_AND_ADD, attached.address + OFF,
				attached.key[0], 8),
			 IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(*word(rig), 0);
	assert_int_equal(raw_do(owner, IBV_WR_ATOMIC_FETCH_AND_ADD, attached.address + OFF,
				attached.key[0], 8),
			 IBV_WC_SUCCESS);
	assert_int_equal(*word(rig), 1);
	raw_close(thief);
	raw_close(owner);
}

/* A client that knows another's number, but has no grant, gets queue pairs and nothing else. */
static void key__of_the_same_client_on_another_link_is_worth_nothing(void **state)
{
	struct rig *rig = rig_of(state);
	struct raw *owner = join(rig, OTHER), *thief = join(rig, OTHER);
	struct verbs_attached attached = attach(rig, owner, OTHER, RIGHT_ALL);

	assert_int_equal(raw_do(thief, IBV_WR_RDMA_READ, attached.address, attached.key[0], 8),
			 IBV_WC_REM_ACCESS_ERR);
	raw_close(thief);
	raw_close(owner);
}

static void key__guessed_is_worth_nothing(void **state)
{
	struct rig *rig = rig_of(state);
	struct raw *owner = join(rig, OTHER);
	struct verbs_attached attached = attach(rig, owner, OTHER, RIGHT_ALL);
	uint32_t guesses[KEYS_MAX + 8], n = 0;

	for (int32_t step = -2; step <= 2; step++)
		guesses[n++] = attached.key[0] + (uint32_t)step;
	guesses[n++] = 0;
	guesses[n++] = UINT32_MAX;
	guesses[n++] = attached.key[0] ^ 0x100;
	pthread_mutex_lock(&spy_lock);
	for (size_t i = n_seen > 8 ? n_seen - 8 : 0; i < n_seen; i++)
		guesses[n++] = seen_keys[i];
	pthread_mutex_unlock(&spy_lock);
	assert_true(n > 8); /* the region's own registration is among them */
	for (uint32_t i = 0; i < n; i++) {
		struct raw *thief = join(rig, OTHER + 1);

		assert_int_equal(raw_do(thief, IBV_WR_RDMA_READ, attached.address, guesses[i], 8),
				 IBV_WC_REM_ACCESS_ERR);
		raw_close(thief);
	}
	raw_close(owner);
}

static void key__of_each_queue_pair_works_there(void **state)
{
	struct rig *rig = rig_of(state);
	struct raw *raws[3];
	struct verbs_attached attached;

	for (uint32_t i = 0; i < 3; i++)
		raws[i] = join_link(rig, OTHER, 1u << 20, 2 - i, 3);
	attached = attach(rig, raws[2], OTHER, RIGHT_ALL); /* by queue pair 0 */
	*word(rig) = 0;
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(raw_do(raws[i], IBV_WR_ATOMIC_FETCH_AND_ADD,
					attached.address + OFF, attached.key[2 - i], 8),
				 IBV_WC_SUCCESS);
	assert_int_equal(*word(rig), 3);
	if (!rig->kind->no_windows)
		assert_int_equal(
			raw_do(raws[0], IBV_WR_RDMA_READ, attached.address, attached.key[0], 8),
			IBV_WC_REM_ACCESS_ERR);
	for (uint32_t i = 0; i < 3; i++)
		raw_close(raws[i]);
}

/* -------- taking back -------- */

static void detach(struct raw *raw, uint32_t region, uint32_t request)
{
	union verbs_any message = { .detach = { .region = region, .request = request } };

	message_seal(&message, VERBS_DETACH);
	assert_int_equal(raw_send(raw, message.bytes, sizeof(message.detach)), IBV_WC_SUCCESS);
}

static void detach__ends_its_own_key(void **state)
{
	struct rig *rig = rig_of(state);
	struct raw *raw = join(rig, OTHER);
	struct verbs_attached first = attach(rig, raw, OTHER, RIGHT_ALL);
	struct region_grant grant = grant_to(rig, OTHER, RIGHT_READ);
	struct verbs_attached second = attach_by(raw, &grant, 2).attached;
	struct target_stats before;

	detach(raw, rig->spec.id + 1, 1); /* not that region's: nothing */
	detach(raw, rig->spec.id, 9);
	/* after an answer all earlier requests are done */
	assert_int_equal(attach_by(raw, &grant, 3).attached.status, 0);
	assert_int_equal(raw_do(raw, IBV_WR_RDMA_READ, first.address, first.key[0], 8),
			 IBV_WC_SUCCESS);
	before = stats_of(rig);
	detach(raw, rig->spec.id, 1);
	assert_int_equal(attach_by(raw, &grant, 4).attached.status, 0);
	assert_gauges(rig, &before);
	assert_int_equal(raw_do(raw, IBV_WR_RDMA_READ, second.address, second.key[0], 8),
			 IBV_WC_SUCCESS);
	assert_int_equal(raw_do(raw, IBV_WR_RDMA_READ, first.address, first.key[0], 8),
			 IBV_WC_REM_ACCESS_ERR);
	raw_close(raw);
}

static void revoke__ends_the_keys(void **state)
{
	struct rig *rig = rig_of(state);
	struct raw *raw = join(rig, OTHER), *bystander = join(rig, OTHER + 1);
	struct verbs_attached attached = attach(rig, raw, OTHER, RIGHT_ALL);
	struct verbs_attached other = attach(rig, bystander, OTHER + 1, RIGHT_ALL);

	assert_int_equal(rig->tg->ops->revoke(rig->tg, OTHER, rig->spec.id), 0);
	*word(rig) = 0;
	assert_int_equal(raw_do(raw, IBV_WR_ATOMIC_FETCH_AND_ADD, attached.address + OFF,
				attached.key[0], 8),
			 IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(raw_do(bystander, IBV_WR_ATOMIC_FETCH_AND_ADD, other.address + OFF,
				other.key[0], 8),
			 IBV_WC_SUCCESS);
	assert_int_equal(*word(rig), 1);
	raw_close(raw);
	raw_close(bystander);
}

/* Until then its key works and its memory is nobody else's. */
static void unregister__gives_memory_up_with_the_last_key(void **state)
{
	struct rig *rig = rig_of(state);
	struct target_region spec = { .kind = 2, .size = RIG_REGION }, usual = rig->spec;
	struct target_stats before = stats_of(rig);
	struct raw *raw = join(rig, OTHER);
	struct verbs_attached attached;

	assert_int_equal(rig->tg->ops->register_region(rig->tg, &spec), 0);
	rig->spec = spec;
	attached = attach(rig, raw, OTHER, RIGHT_ALL);
	rig->spec = usual;
	assert_int_equal(rig->tg->ops->unregister_region(rig->tg, spec.id), 0);
	assert_int_equal(
		raw_do(raw, IBV_WR_RDMA_WRITE, attached.address + OFF, attached.key[0], 64),
		IBV_WC_SUCCESS);
	raw_close(raw);
	assert_gauges(rig, &before);
}

/* -------- fence -------- */

static enum fence_result fence(struct rig *rig, uint64_t client_id, enum fence_how how)
{
	enum fence_result result = FENCE_ALIVE;

	assert_int_equal(rig->tg->ops->fence(rig->tg, client_id, how, &result), 0);
	return result;
}

/* True if some were under way when it was cut off. */
static bool cut_amid_writes(struct rig *rig, uint64_t client_id)
{
	struct target_stats before = stats_of(rig);
	struct raw *raw = join(rig, client_id);
	struct verbs_attached attached = attach(rig, raw, client_id, RIGHT_ALL);
	uint8_t *then = malloc(RIG_REGION);
	enum ibv_wc_status status = IBV_WC_SUCCESS;

	assert_non_null(then);
	memset(raw->memory, 0xa5, RAW_MEMORY / 2);
	for (uint32_t i = 0; i < RAW_DEPTH; i++)
		raw_post(raw, IBV_WR_RDMA_WRITE, attached.address + i % 64 * (RAW_MEMORY / 2),
			 attached.key[0], RAW_MEMORY / 2);
	assert_int_equal(fence(rig, client_id, FENCE_ASK), FENCE_ALIVE);
	assert_int_equal(fence(rig, client_id, FENCE_CUT), FENCE_DEAD);
	/* no client overwrites later changes of the target */
	for (size_t i = 0; i < RIG_REGION; i++)
		rig->spec.base[i] = (uint8_t)(i * 31);
	memcpy(then, rig->spec.base, RIG_REGION);
	for (uint32_t i = 0; i < RAW_DEPTH; i++)
		status = raw_wait(raw);
	assert_memory_equal(rig->spec.base, then, RIG_REGION);
	free(then);
	raw_close(raw);
	assert_gauges(rig, &before);
	assert_int_equal(stats_of(rig).fences, before.fences + 1);
	return status != IBV_WC_SUCCESS;
}

static void fence__cut_of_a_client_with_writes_under_way(void **state)
{
	struct rig *rig = rig_of(state);
	uint64_t id = OTHER;

	/* A device is done with all of them where we lose the processor in between: not each time. */
	while (!cut_amid_writes(rig, id) && id < OTHER + 10)
		id++;
	assert_true(id < OTHER + 10);
}

#define VERBS 4
#define GUESSES_MAX 16 /* as many READs of one queue pair are on their way at once */

/* Keys that a client may know or come upon, their neighbours, and the region's own. */
static uint32_t guess(const uint32_t known[], uint32_t n_known, uint32_t guesses[GUESSES_MAX])
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < n_known; i++) {
		guesses[n++] = known[i]; /* its own first */
		guesses[n++] = known[i] - 1;
		guesses[n++] = known[i] + 1;
		guesses[n++] = known[i] ^ 0x100;
	}
	pthread_mutex_lock(&spy_lock);
	for (size_t i = n_seen > 4 ? n_seen - 4 : 0; i < n_seen; i++)
		guesses[n++] = seen_keys[i];
	pthread_mutex_unlock(&spy_lock);
	assert_in_range(n, 4 * n_known + 1, GUESSES_MAX);
	return n;
}

/* Each queue pair tries another verb; requests after the first failure have no effect. */
static void post_cheats(struct raw *raws[VERBS], const struct verbs_attached *mine,
			const struct verbs_attached *others)
{
	static const enum ibv_wr_opcode opcodes[VERBS] = { IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
							   IBV_WR_ATOMIC_CMP_AND_SWP,
							   IBV_WR_ATOMIC_FETCH_AND_ADD };

	for (uint32_t i = 0; i < VERBS; i++) {
		uint32_t known[] = { mine->key[i], mine->key[(i + 1) % VERBS], others->key[0] };
		uint32_t guesses[GUESSES_MAX], n = guess(known, 3, guesses);

		memset(raws[i]->memory, 0xa5, 64);
		for (uint32_t k = 0; k < GUESSES_MAX; k++)
			raw_post(raws[i], opcodes[i], mine->address + OFF, guesses[k % n], 8);
	}
}

static void expect_refused(struct raw *raw)
{
	uint8_t untouched[64];

	memset(untouched, 0xa5, sizeof(untouched));
	/* no answer, and not the end of a queue that never asked */
	assert_int_equal(raw_wait(raw), IBV_WC_RETRY_EXC_ERR);
	for (uint32_t k = 1; k < GUESSES_MAX; k++)
		assert_int_not_equal(raw_wait(raw), IBV_WC_SUCCESS);
	assert_memory_equal(raw->memory, untouched, sizeof(untouched));
}

/* The client does not know that it was cut off, or ignores it. */
static void fence__cut_of_a_client_that_goes_on(void **state)
{
	struct rig *rig = rig_of(state);
	struct raw *raws[VERBS], *bystander = join(rig, OTHER + 1);
	struct verbs_attached mine, others = attach(rig, bystander, OTHER + 1, RIGHT_ALL);
	uint8_t *then = malloc(RIG_REGION);

	assert_non_null(then);
	for (uint32_t i = 0; i < VERBS; i++)
		raws[i] = join_link(rig, OTHER, 1u << 21, i, VERBS);
	mine = attach(rig, raws[0], OTHER, RIGHT_ALL);
	for (uint32_t i = 0; i < VERBS; i++)
		assert_int_equal(raw_do(raws[i], IBV_WR_ATOMIC_FETCH_AND_ADD, mine.address + OFF,
					mine.key[i], 8),
				 IBV_WC_SUCCESS);
	fake_verbs.lose_goodbyes = true; /* a device tells no queue pair that the other is gone */
	assert_int_equal(fence(rig, OTHER, FENCE_CUT), FENCE_DEAD);
	*word(rig) = 0; /* old value that the clients' CAS expects */
	memcpy(then, rig->spec.base, RIG_REGION);
	post_cheats(raws, &mine, &others);
	for (uint32_t i = 0; i < VERBS; i++)
		expect_refused(raws[i]);
	assert_int_equal(raw_do(bystander, IBV_WR_RDMA_READ, others.address, others.key[0], 8),
			 IBV_WC_SUCCESS);
	assert_memory_equal(rig->spec.base, then, RIG_REGION);
	for (uint32_t i = 0; i < VERBS; i++)
		raw_close(raws[i]);
	fake_verbs.lose_goodbyes = false;
	raw_close(bystander);
	free(then);
}

static void fence__cut_lets_the_client_in_no_more(void **state)
{
	struct rig *rig = rig_of(state);
	union verbs_any hello = raw_hello(OTHER, 77, 0, 1);
	int refusal = 0;

	assert_int_equal(fence(rig, OTHER, FENCE_CUT), FENCE_DEAD);
	assert_null(raw_connect(rig->uri, &hello, sizeof(hello.hello), &refusal));
	assert_int_equal(refusal, -EOWNERDEAD);
	raw_close(join(rig, OTHER + 1)); /* others may */
}

static void fence__ask_after_goodbye(void **state)
{
	struct rig *rig = rig_of(state);
	struct target_stats before = stats_of(rig);
	struct raw *raw = join(rig, OTHER);

	(void)attach(rig, raw, OTHER, RIGHT_ALL);
	assert_int_equal(fence(rig, OTHER, FENCE_ASK), FENCE_ALIVE);
	raw_close(raw);
	assert_gauges(rig, &before);
	assert_int_equal(fence(rig, OTHER, FENCE_ASK), FENCE_DEAD);
	raw_close(join(rig, OTHER)); /* nothing was cut */
}

/* -------- links that take the place of others -------- */

static struct raw *join_instead(struct rig *rig, uint64_t client_id, uint64_t link,
				uint64_t replaces)
{
	union verbs_any hello = raw_hello(client_id, link, 0, 1);
	int refusal = 0;
	struct raw *raw;

	hello.hello.replaces = replaces;
	message_seal(&hello, VERBS_HELLO);
	raw = raw_connect(rig->uri, &hello, sizeof(hello.hello), &refusal);
	if (!raw)
		fail_msg("refused: %d", refusal);
	return raw;
}

static enum ibv_wc_status add_one(struct raw *raw, const struct verbs_attached *attached)
{
	return raw_do(raw, IBV_WR_ATOMIC_FETCH_AND_ADD, attached->address + OFF, attached->key[0],
		      8);
}

/* When the new one is open nothing of the old one lands. */
static void hello__ends_the_link_that_it_replaces(void **state)
{
	struct rig *rig = rig_of(state);
	struct target_stats before = stats_of(rig);
	struct raw *old = join_link(rig, OTHER, 1001, 0, 1), *raw;
	struct verbs_attached attached = attach(rig, old, OTHER, RIGHT_ALL);

	assert_int_equal(add_one(old, &attached), IBV_WC_SUCCESS);
	raw = join_instead(rig, OTHER, 1002, 1001);
	assert_int_not_equal(add_one(old, &attached), IBV_WC_SUCCESS);
	assert_int_equal(*word(rig), 1);
	attached = attach(rig, raw, OTHER, RIGHT_ALL);
	assert_int_equal(add_one(raw, &attached), IBV_WC_SUCCESS);
	assert_int_equal(*word(rig), 2);
	raw_close(old);
	raw_close(raw);
	assert_gauges(rig, &before);
}

static void hello__ends_no_link_of_another_client(void **state)
{
	struct rig *rig = rig_of(state);
	struct raw *old = join_link(rig, OTHER, 1001, 0, 1), *raw;
	struct verbs_attached attached = attach(rig, old, OTHER, RIGHT_ALL);

	raw = join_instead(rig, OTHER + 1, 1002, 1001);
	assert_int_equal(add_one(old, &attached), IBV_WC_SUCCESS);
	raw_close(raw);
	raw_close(old);
}

/* -------- leaks -------- */

static void gauges__return_after_many_connections(void **state)
{
	struct rig *rig = rig_of(state);
	struct target_stats before = stats_of(rig);

	for (int i = 0; i < CYCLES; i++) {
		struct raw *raw = join(rig, OTHER);

		(void)attach(rig, raw, OTHER, RIGHT_ALL);
		raw_close(raw);
	}
	assert_gauges(rig, &before);
	assert_true(gauge_of(before, "qps") >= 1 && gauge_of(before, "mrs") >= 1);
	assert_int_equal(gauge_of(before, "windows") != 0, !rig->kind->no_windows);
}

static const struct CMUnitTest tests[] = {
	CONTRACT_TEST(key__lets_do_what_was_granted_and_no_more),
	CONTRACT_TEST(key__ends_with_the_region),
	CONTRACT_TEST(key__ends_with_the_range),
	CONTRACT_TEST(key__of_another_client_is_worth_nothing),
	CONTRACT_TEST(key__of_the_same_client_on_another_link_is_worth_nothing),
	CONTRACT_TEST(key__guessed_is_worth_nothing),
	CONTRACT_TEST(key__of_each_queue_pair_works_there),
	CONTRACT_TEST(detach__ends_its_own_key),
	CONTRACT_TEST(revoke__ends_the_keys),
	CONTRACT_TEST(unregister__gives_memory_up_with_the_last_key),
	CONTRACT_TEST(fence__cut_of_a_client_with_writes_under_way),
	CONTRACT_TEST(fence__cut_of_a_client_that_goes_on),
	CONTRACT_TEST(fence__cut_lets_the_client_in_no_more),
	CONTRACT_TEST(fence__ask_after_goodbye),
	CONTRACT_TEST(hello__ends_the_link_that_it_replaces),
	CONTRACT_TEST(hello__ends_no_link_of_another_client),
	CONTRACT_TEST(gauges__return_after_many_connections),
};

int contract_run_rights(void)
{
	static const struct contract_kind windows = { .name = "windows",
						      .target = "verbs",
						      .listens = true };
	static const struct contract_kind domains = {
		.name = "domains", .target = "verbs", .listens = true, .no_windows = true
	};
	int failed;

	spy();
	contract_use(&windows);
	failed = TEST_RUN(tests, NULL, NULL);
	contract_use(&domains);
	failed += TEST_RUN(tests, NULL, NULL);
	verbs_calls_use(real);
	return failed;
}

#endif
