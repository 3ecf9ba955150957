/*
 * test_ofi_rights.c - a cheating client over libfabric cannot harm a node: it uses keys that are not
 * its own, or not any more, at endpoints that are not its own.
 */
#include "tests/contract/suite/contract.h"

#include <errno.h>
#include <netdb.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/gauge.h"

#include "transport/attach/address.h"
#include "transport/ofi/link.h"

#define OTHER 50
#define OFF 8192 /* of the word that is fought for */
#define GUESSES 100
#define WRITE (1u << 20) /* bytes of a long write */

/* A client that knows the protocol, and sends what it likes. */
struct cheat {
	struct ofi_link link;
	struct ofi_attached attached;
	uint8_t *memory; /* WRITE bytes */
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
	cheat->memory = calloc(1, WRITE);
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

enum way { BY_READ, BY_WRITE, BY_ADD, WAYS };

static ssize_t start(struct cheat *cheat, enum way way, uint64_t off, uint64_t key, fi_addr_t to)
{
	struct fid_ep *ep = cheat->link.port.ep;
	uint64_t at = cheat->attached.address + off;
	struct iovec local = { cheat->memory, 8 };
	struct fi_rma_iov remote = { at, 8, key };
	void *desc = NULL;
	struct fi_msg_rma write = { &local, &desc, 1, to, &remote, 1, cheat, 0 };

	switch (way) {
	case BY_READ:
		return fi_read(ep, cheat->memory, 8, NULL, to, at, key, cheat);
	case BY_WRITE:
		return fi_writemsg(ep, &write, FI_DELIVERY_COMPLETE);
	default:
		return fi_fetch_atomic(ep, cheat->memory + 8, 1, NULL, cheat->memory, NULL, to, at,
				       key, FI_UINT64, FI_SUM, cheat);
	}
}

/* True if the operation was done; false if it failed, or nothing came within half a second. */
static bool try_at(struct cheat *cheat, enum way way, uint64_t off, uint64_t key, fi_addr_t to)
{
	uint64_t end = deadline_after(clock_monotonic(), CLOCK_NS_PER_S / 2);
	struct fi_cq_entry done;
	ssize_t n = -FI_EAGAIN, sent = -FI_EAGAIN;

	memset(cheat->memory, 0x5a, 16);
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

static bool try(struct cheat *cheat, enum way way, uint64_t off, uint64_t key)
{
	return try_at(cheat, way, off, key, cheat->link.peer);
}

static uint64_t *word(struct rig *rig)
{
	return (uint64_t *)(void *)(rig->spec.base + OFF);
}

/* -------- rights -------- */

static void rights__are_those_of_the_grant(void **state)
{
	static const struct {
		uint32_t rights;
		bool done[WAYS];
	} cases[] = {
		{ RIGHT_ALL, { true, true, true } },
		{ RIGHT_READ, { true, false, false } },
		{ RIGHT_WRITE, { false, true, false } },
		{ RIGHT_READ | RIGHT_WRITE,
		  { true, true, true } }, /* libfabric has no third right */
	};
	struct rig *rig = rig_of(state);

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (enum way way = BY_READ; way < WAYS; way++) {
			uint64_t before = *word(rig);
			struct cheat cheat; /* of its own: a refused operation ends its connection */

			join(rig, &cheat, OTHER, cases[i].rights);
			assert_int_equal(try(&cheat, way, OFF, cheat.attached.key),
					 cases[i].done[way]);
			if (way == BY_READ || !cases[i].done[way])
				assert_int_equal(*word(rig), before);
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
		assert_false(try(&cheat, BY_WRITE, offs[i], cheat.attached.key));
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
		assert_false(try(&cheat, way, OFF, honest.attached.key));
		cheat_close(&cheat);
	}
	assert_int_equal(*word(rig), 0);
	assert_true(try(&honest, BY_WRITE, OFF, honest.attached.key));
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
		assert_false(try(&cheat, i % 2 ? BY_WRITE : BY_ADD, OFF, key));
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
	assert_true(try(&cheat, BY_READ, OFF, cheat.attached.key));
	detach.detach.request = cheat.attached.request;
	assert_int_equal(ofi_link_ask(&cheat.link, &detach, OFI_DETACH, NULL, DEADLINE_NEVER), 0);
	for (int i = 0; i < 1000; i++) {
		struct target_stats stats;

		rig->tg->ops->stats(rig->tg, &stats);
		if (gauge_of(stats, "keys") == 1) /* the rig's own */
			break;
		(void)usleep(1000);
	}
	assert_false(try(&cheat, BY_WRITE, OFF, cheat.attached.key));
	assert_int_equal(*word(rig), 0);
	cheat_close(&cheat);
}

static void key__after_a_revoke(void **state)
{
	struct rig *rig = rig_of(state);
	struct cheat cheat;

	join(rig, &cheat, OTHER, RIGHT_ALL);
	assert_true(try(&cheat, BY_READ, OFF, cheat.attached.key));
	assert_int_equal(rig->tg->ops->revoke(rig->tg, OTHER, rig->spec.id), 0);
	assert_false(try(&cheat, BY_WRITE, OFF, cheat.attached.key));
	assert_int_equal(*word(rig), 0);
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
	assert_true(try(&cheat, BY_READ, OFF, cheat.attached.key));
	fence_cut(rig, OTHER);
	for (enum way way = BY_READ; way < WAYS; way++)
		assert_false(try(&cheat, way, OFF, cheat.attached.key));
	assert_int_equal(ofi_port_add(&friend.link.port, cheat.attached.endpoint,
				      cheat.attached.endpoint_bytes, &old),
			 0);
	assert_false(try_at(&friend, BY_WRITE, OFF, cheat.attached.key, old));
	assert_int_equal(*word(rig), 0);
	cheat_close(&friend);
	cheat_close(&cheat);
	assert_int_equal(cheat_open(rig, OTHER, &cheat), -EOWNERDEAD);
	cheat_close(&cheat);
}

struct writer {
	struct cheat *cheat;
	_Atomic bool stop;
	_Atomic uint64_t sent;
};

/* Long writes without end, of another byte each: some are half done at any time. */
static void *write_on(void *arg)
{
	struct writer *writer = arg;
	struct cheat *cheat = writer->cheat;
	struct fi_cq_entry done;

	while (!atomic_load(&writer->stop)) {
		memset(cheat->memory, (int)(atomic_load(&writer->sent) & 0x7f) + 1, WRITE);
		if (fi_write(cheat->link.port.ep, cheat->memory, WRITE, NULL, cheat->link.peer,
			     cheat->attached.address, cheat->attached.key, NULL) == 0)
			atomic_fetch_add(&writer->sent, 1);
		(void)fi_cq_read(cheat->link.port.cq, &done, 1);
	}
	return NULL;
}

/* Writes that are in progress at a fence do not land after it, also when they are many. */
static void fence__amid_long_writes(void **state)
{
	struct rig *rig = rig_of(state);
	uint8_t *copy = malloc(WRITE);

	assert_non_null(copy);
	for (uint64_t id = OTHER; id < OTHER + 10; id++) {
		struct cheat cheat;
		struct writer writer = { .cheat = &cheat };
		pthread_t thread;

		join(rig, &cheat, id, RIGHT_ALL);
		memset(rig->spec.base, 0, WRITE);
		assert_int_equal(pthread_create(&thread, NULL, write_on, &writer), 0);
		while (atomic_load(&writer.sent) < 8)
			(void)sched_yield();
		while (rig_load(rig->region, 0) == 0)
			(void)sched_yield();
		fence_cut(rig, id);
		memcpy(copy, rig->spec.base, WRITE);
		(void)usleep(20000);
		assert_memory_equal(copy, rig->spec.base, WRITE);
		atomic_store(&writer.stop, true);
		assert_int_equal(pthread_join(thread, NULL), 0);
		cheat_close(&cheat);
	}
	free(copy);
}

static void hello__ends_the_link_that_it_replaces(void **state)
{
	struct rig *rig = rig_of(state);
	struct cheat old;
	struct transport_opts opts = { .client_id = OTHER };
	struct transport *tr = NULL;

	join(rig, &old, OTHER, RIGHT_ALL);
	assert_true(try(&old, BY_READ, OFF, old.attached.key));
	opts.replaces = old.link.number;
	assert_int_equal(transport_open(rig->uri, &opts, &tr), 0);
	assert_false(try(&old, BY_WRITE, OFF, old.attached.key));
	assert_int_equal(*word(rig), 0);
	transport_close(&tr);
	cheat_close(&old);
}

/* -------- garbage -------- */

static int call_node(struct rig *rig)
{
	struct node_address address;
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list = NULL;
	int sock;

	assert_int_equal(node_address_parse(rig->uri + strlen("ofi:"), &address), 0);
	assert_int_equal(getaddrinfo(address.host, address.port, &hints, &list), 0);
	sock = socket(list->ai_family, SOCK_STREAM, 0);
	assert_int_equal(connect(sock, list->ai_addr, list->ai_addrlen), 0);
	freeaddrinfo(list);
	return sock;
}

/* The node hangs up on each, and serves on. */
static void message__malformed_ends_its_connection(void **state)
{
	struct rig *rig = rig_of(state);
	union ofi_any good = { .hello = { .client_id = OTHER, .link = 1 } };

	ofi_message_seal(&good, OFI_HELLO);
	for (size_t i = 0; i < sizeof(good.hello) + 2; i++) {
		union ofi_any bad = good;
		size_t n = sizeof(good.hello);
		int sock = call_node(rig);
		char answer[OFI_MESSAGE_MAX];

		if (i < sizeof(good.hello))
			bad.bytes[i] ^= 0x81;
		else if (i == sizeof(good.hello))
			ofi_message_seal(&bad, OFI_WELCOME), n = sizeof(bad.welcome);
		else
			ofi_message_seal(&bad, OFI_ATTACH), n = sizeof(bad.attach);
		assert_int_equal(send(sock, bad.bytes, n, MSG_NOSIGNAL), n);
		if (i < 8 || i > 11) /* a longer length is waited for */
			assert_true(recv(sock, answer, sizeof(answer), 0) <= 0);
		close(sock);
	}
	assert_int_equal(rig_load(rig->region, OFF), 0);
}

static const struct CMUnitTest tests[] = {
	CONTRACT_TEST(rights__are_those_of_the_grant),
	CONTRACT_TEST(rights__end_with_the_region),
	CONTRACT_TEST(key__of_another_client),
	CONTRACT_TEST(key__guessed),
	CONTRACT_TEST(key__after_its_detach),
	CONTRACT_TEST(key__after_a_revoke),
	CONTRACT_TEST(fence__ends_key_and_endpoint),
	CONTRACT_TEST(fence__amid_long_writes),
	CONTRACT_TEST(hello__ends_the_link_that_it_replaces),
	CONTRACT_TEST(message__malformed_ends_its_connection),
};

int main(void)
{
	static const struct contract_kind kind = {
		.name = "ofi rights", .target = "ofi", .listens = true, .far = true
	};

	if (contract_lacks_device("ofi"))
		return TEST_EXIT_SKIP;
	contract_use(&kind);
	return TEST_RUN(tests, NULL, NULL);
}
