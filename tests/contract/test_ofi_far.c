/*
 * test_ofi_far.c - the contract suite where long READs go through a provider of libfabric, and a client
 * that cheats there: it uses keys that are not its own, or not any more, at endpoints that are not its
 * own.
 */
#include "tests/contract/suite/contract.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/gauge.h"

#include "transport/attach/address.h"
#include "transport/ofi/far.h"

#define OTHER 50
#define OFF 8192 /* of the word that is fought for */
#define GUESSES 100

/* A client that knows the protocol, and sends what it likes. */
struct cheat {
	struct ofi_link link;
	struct ofi_attached attached;
	uint8_t *memory;     /* 8 bytes */
	int64_t patience_ns; /* of its next operation */
};

/* -------- clients -------- */

static int cheat_open(struct rig *rig, uint64_t client_id, struct cheat *cheat)
{
	struct node_address address;
	struct ofi_link_opts opts = { .clock = clock_monotonic(),
				      .timeout_ns = 5 * (uint64_t)CLOCK_NS_PER_S,
				      .client_id = client_id };

	memset(cheat, 0, sizeof(*cheat));
	assert_int_equal(node_address_parse(rig->uri + strlen("ofi:"), &address), 0);
	opts.host = address.host;
	opts.port = address.port;
	cheat->memory = calloc(1, 8);
	assert_non_null(cheat->memory);
	return ofi_link_open(&opts, &cheat->link);
}

static void cheat_close(struct cheat *cheat)
{
	ofi_link_close(&cheat->link, false);
	free(cheat->memory);
}

static void cheat_attach(struct rig *rig, struct cheat *cheat, uint64_t client_id, uint32_t rights)
{
	static uint32_t request;
	struct region_grant grant;
	union ofi_any ask = { .attach = { .request = ++request } };

	assert_int_equal(transport_grant(rig->tg, client_id, rig->spec.id, rights, &grant), 0);
	ask.attach.grant_bytes = grant.bytes;
	memcpy(ask.attach.grant, grant.data, grant.bytes);
	if (ofi_link_ask(&cheat->link, &ask, OFI_ATTACH, &cheat->attached,
			 deadline_after(clock_monotonic(), 5 * CLOCK_NS_PER_S)))
		fail_msg("attach: %s", error_last());
	assert_int_equal(cheat->attached.status, 0);
}

static void join(struct rig *rig, struct cheat *cheat, uint64_t client_id, uint32_t rights)
{
	if (cheat_open(rig, client_id, cheat))
		fail_msg("open: %s", error_last());
	cheat_attach(rig, cheat, client_id, rights);
}

enum way { BY_READ, BY_WRITE, WAYS };

static ssize_t start(struct cheat *cheat, enum way way, uint64_t off, uint64_t key, fi_addr_t to)
{
	struct fid_ep *ep = cheat->link.port.ep;
	uint64_t at = cheat->attached.address + off;
	struct iovec local = { cheat->memory, 8 };
	struct fi_rma_iov remote = { at, 8, key };
	void *desc = NULL;
	struct fi_msg_rma write = { &local, &desc, 1, to, &remote, 1, cheat, 0 };

	return way == BY_READ ? fi_read(ep, cheat->memory, 8, NULL, to, at, key, cheat)
			      : fi_writemsg(ep, &write, FI_DELIVERY_COMPLETE);
}

/* True if the operation was done; false if it failed, or nothing came in that time. */
static bool try_at(struct cheat *cheat, enum way way, uint64_t off, uint64_t key, fi_addr_t to)
{
	uint64_t end = deadline_after(clock_monotonic(), cheat->patience_ns);
	struct fi_cq_entry done;
	ssize_t n = -FI_EAGAIN, sent = -FI_EAGAIN;

	memset(cheat->memory, 0x5a, 8);
	while (sent == -FI_EAGAIN && !deadline_expired(clock_monotonic(), end)) {
		sent = start(cheat, way, off, key, to);
		n = fi_cq_read(cheat->link.port.cq, &done, 1);
	}
	if (sent)
		return false;
	while (n == -FI_EAGAIN && !deadline_expired(clock_monotonic(), end)) {
		n = fi_cq_read(cheat->link.port.cq, &done, 1);
		(void)sched_yield();
	}
	return n == 1;
}

/* Of what may be done. */
static bool can(struct cheat *cheat, enum way way, uint64_t off, uint64_t key)
{
	cheat->patience_ns = 10 * CLOCK_NS_PER_S;
	return try_at(cheat, way, off, key, cheat->link.peer);
}

/* Of what must not be done: nobody answers some of it. */
static bool cannot_at(struct cheat *cheat, enum way way, uint64_t off, uint64_t key, fi_addr_t to)
{
	cheat->patience_ns = CLOCK_NS_PER_S / 2;
	return !try_at(cheat, way, off, key, to);
}

static bool cannot(struct cheat *cheat, enum way way, uint64_t off, uint64_t key)
{
	return cannot_at(cheat, way, off, key, cheat->link.peer);
}

static uint64_t *word(struct rig *rig)
{
	return (uint64_t *)(void *)(rig->spec.base + OFF);
}

/* -------- rights -------- */

/* A key opens memory to READs, and only with that right. */
static void rights__are_to_read(void **state)
{
	static const uint32_t rights[] = { RIGHT_ALL, RIGHT_READ, RIGHT_WRITE | RIGHT_ATOMIC };
	struct rig *rig = rig_of(state);

	for (size_t i = 0; i < sizeof(rights) / sizeof(rights[0]); i++) {
		for (enum way way = BY_READ; way < WAYS; way++) {
			struct cheat cheat; /* of its own: a refused operation ends its connection */

			join(rig, &cheat, OTHER, rights[i]);
			if (way == BY_READ && rights[i] & RIGHT_READ)
				assert_true(can(&cheat, way, OFF, cheat.attached.key));
			else
				assert_true(cannot(&cheat, way, OFF, cheat.attached.key));
			assert_int_equal(*word(rig), 0);
			cheat_close(&cheat);
		}
	}
}

static void rights__end_with_the_region(void **state)
{
	struct rig *rig = rig_of(state);
	uint64_t offs[] = { RIG_REGION, RIG_REGION - 4, UINT64_MAX - 64, UINT64_C(1) << 40 };

	for (size_t i = 0; i < sizeof(offs) / sizeof(offs[0]); i++) {
		struct cheat cheat;

		join(rig, &cheat, OTHER, RIGHT_ALL);
		assert_true(cannot(&cheat, BY_READ, offs[i], cheat.attached.key));
		cheat_close(&cheat);
	}
	assert_int_equal(rig_load(rig->region, OFF), 0); /* the node goes on */
}

/* -------- keys -------- */

static void key__of_another_client(void **state)
{
	struct rig *rig = rig_of(state);
	struct cheat honest, cheat;

	join(rig, &honest, OTHER, RIGHT_ALL);
	for (enum way way = BY_READ; way < WAYS; way++) {
		join(rig, &cheat, OTHER + 1, RIGHT_READ);
		assert_int_not_equal(cheat.attached.key, honest.attached.key);
		assert_true(cannot(&cheat, way, OFF, honest.attached.key));
		cheat_close(&cheat);
	}
	assert_int_equal(*word(rig), 0);
	assert_true(can(&honest, BY_READ, OFF, honest.attached.key));
	cheat_close(&honest);
}

/* Neighbours of its own key and of others', and any number. */
static void key__guessed(void **state)
{
	struct rig *rig = rig_of(state);
	uint64_t random = 0x9e3779b97f4a7c15;

	for (uint64_t i = 0; i < GUESSES; i++) {
		struct cheat cheat;
		uint64_t key;

		join(rig, &cheat, OTHER, RIGHT_READ);
		random = random * 6364136223846793005 + 1442695040888963407;
		key = i < 8 ? cheat.attached.key + 1 + i : i < 16 ? i - 8 : random;
		assert_true(cannot(&cheat, BY_READ, OFF, key));
		cheat_close(&cheat);
	}
	assert_int_equal(*word(rig), 0);
	assert_int_equal(rig_load(rig->region, OFF), 0);
}

static void key__after_its_detach(void **state)
{
	struct rig *rig = rig_of(state);
	union ofi_any detach = { .detach = { .region = rig->spec.id } };
	struct cheat cheat;

	join(rig, &cheat, OTHER, RIGHT_ALL);
	assert_true(can(&cheat, BY_READ, OFF, cheat.attached.key));
	detach.detach.request = cheat.attached.request;
	assert_int_equal(ofi_link_ask(&cheat.link, &detach, OFI_DETACH, NULL, DEADLINE_NEVER), 0);
	for (int i = 0; i < 10000; i++) {
		struct target_stats stats;

		rig->tg->ops->stats(rig->tg, &stats);
		if (gauge_of(stats, "keys") == 1) /* the rig's own */
			break;
		(void)usleep(1000);
	}
	assert_true(cannot(&cheat, BY_READ, OFF, cheat.attached.key));
	cheat_close(&cheat);
}

static void key__after_a_revoke(void **state)
{
	struct rig *rig = rig_of(state);
	struct cheat cheat;

	join(rig, &cheat, OTHER, RIGHT_ALL);
	assert_true(can(&cheat, BY_READ, OFF, cheat.attached.key));
	assert_int_equal(rig->tg->ops->revoke(rig->tg, OTHER, rig->spec.id), 0);
	assert_true(cannot(&cheat, BY_READ, OFF, cheat.attached.key));
	cheat_close(&cheat);
}

/* -------- fences -------- */

static void fence_cut(struct rig *rig, uint64_t client_id)
{
	enum fence_result result = FENCE_ALIVE;

	assert_int_equal(rig->tg->ops->fence(rig->tg, client_id, FENCE_CUT, &result), 0);
	assert_int_equal(result, FENCE_DEAD);
}

/* The old key at the old endpoint, by the fenced client and by another that was told both. */
static void fence__ends_key_and_endpoint(void **state)
{
	struct rig *rig = rig_of(state);
	struct cheat cheat, friend;
	fi_addr_t old;

	join(rig, &cheat, OTHER, RIGHT_ALL);
	join(rig, &friend, OTHER + 1, RIGHT_ALL);
	assert_true(can(&cheat, BY_READ, OFF, cheat.attached.key));
	fence_cut(rig, OTHER);
	for (enum way way = BY_READ; way < WAYS; way++)
		assert_true(cannot(&cheat, way, OFF, cheat.attached.key));
	assert_int_equal(ofi_port_add(&friend.link.port, cheat.attached.endpoint,
				      cheat.attached.endpoint_bytes, &old),
			 0);
	assert_true(cannot_at(&friend, BY_READ, OFF, cheat.attached.key, old));
	cheat_close(&friend);
	cheat_close(&cheat);
	assert_int_equal(cheat_open(rig, OTHER, &cheat), -EOWNERDEAD);
	cheat_close(&cheat);
}

static void hello__ends_the_link_that_it_replaces(void **state)
{
	struct rig *rig = rig_of(state);
	struct cheat old;
	struct transport_opts opts = { .client_id = OTHER };
	struct transport *tr = NULL;

	join(rig, &old, OTHER, RIGHT_ALL);
	assert_true(can(&old, BY_READ, OFF, old.attached.key));
	opts.replaces = old.link.number;
	assert_int_equal(transport_open(rig->uri, &opts, &tr), 0);
	assert_true(cannot(&old, BY_READ, OFF, old.attached.key));
	transport_close(&tr);
	cheat_close(&old);
}

/* -------- transfers -------- */

/* Longer than one request of libfabric, beside short ones of the same call. */
static void read__long_and_short(void **state)
{
	struct rig *rig = rig_of(state);
	uint8_t *memory = calloc(1, RIG_REGION);
	struct transport_io io[] = {
		{ .region = rig->region, .off = 0, .dst = memory, .len = 64 },
		{ .region = rig->region, .off = 64, .dst = memory + 64, .len = 3u << 20 },
		{ .region = rig->region, .len = OFI_FAR_MIN },
		{ .region = rig->region, .len = OFI_FAR_MIN - 8 },
	};

	assert_non_null(memory);
	for (int i = 2; i < 4; i++) {
		io[i].off = io[i - 1].off + io[i - 1].len;
		io[i].dst = memory + io[i].off;
	}
	for (uint64_t i = 0; i < RIG_REGION / 8; i++)
		((uint64_t *)(void *)rig->spec.base)[i] = i * 0x9e3779b97f4a7c15;
	assert_int_equal(transport_read(rig->tr, io, 4), 0);
	assert_memory_equal(memory, rig->spec.base, io[3].off + io[3].len);
	free(memory);
}

static const struct CMUnitTest tests[] = {
	CONTRACT_TEST(rights__are_to_read),
	CONTRACT_TEST(rights__end_with_the_region),
	CONTRACT_TEST(key__of_another_client),
	CONTRACT_TEST(key__guessed),
	CONTRACT_TEST(key__after_its_detach),
	CONTRACT_TEST(key__after_a_revoke),
	CONTRACT_TEST(fence__ends_key_and_endpoint),
	CONTRACT_TEST(hello__ends_the_link_that_it_replaces),
	CONTRACT_TEST(read__long_and_short),
};

int main(void)
{
	static const struct contract_kind kind = {
		.name = "ofi with libfabric", .target = "ofi", .listens = true, .far = true
	};

	if (setenv("RLV_OFI_PROVIDER", "tcp;ofi_rxm", 1) || contract_lacks_device("ofi"))
		return TEST_EXIT_SKIP;
	contract_use(&kind);
	return TEST_RUN(tests, NULL, NULL) + contract_run(&kind);
}
