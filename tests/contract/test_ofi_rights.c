/*
 * test_ofi_rights.c - a cheating client of kind ofi cannot harm a node: its lists name openings that are
 * not its own, or not any more, ask for what it has no right to, or are no lists.
 */
#include "tests/contract/suite/contract.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
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

/* A list of one request of 8 bytes, as it travels. */
struct lone {
	struct ofi_list list;
	struct ofi_request request;
	uint64_t operands[2];
};

static const uint8_t verbs[] = { [BY_READ] = OFI_READ, [BY_WRITE] = OFI_WRITE, [BY_ADD] = OFI_FAA };

static struct lone lone_make(enum way way, uint64_t off, uint32_t opening)
{
	return (struct lone){
		.list = { OFI_LIST_MAGIC, 1 },
		.request = { .off = off,
			     .bytes = 8,
			     .opening = (uint16_t)opening,
			     .verb = verbs[way] },
		.operands = { 0x5a5a, 0 },
	};
}

/* Sends bytes and takes an answer of n; false if the node hung up, or was silent for 10 s. */
static bool ask(struct cheat *cheat, const void *bytes, size_t n_bytes, void *answer_out, size_t n)
{
	uint64_t end = deadline_after(clock_monotonic(), 10 * CLOCK_NS_PER_S);
	int sock = cheat->link.stream.sock;
	size_t have = 0;

	if (send(sock, bytes, n_bytes, MSG_NOSIGNAL) != (ssize_t)n_bytes)
		return false;
	while (have < n) {
		ssize_t got;

		if (ofi_link_wait(&cheat->link, POLLIN, end))
			return false;
		got = recv(sock, (uint8_t *)answer_out + have, n - have, 0);
		if (got <= 0)
			return false;
		have += (size_t)got;
	}
	return true;
}

/* True if the request was done. */
static bool try(struct cheat *cheat, enum way way, uint64_t off, uint32_t opening)
{
	const struct lone lone = lone_make(way, off, opening);
	size_t operands = way == BY_READ ? 0 : 8, answer = way == BY_WRITE ? 0 : 8;
	uint64_t words[2];

	return ask(cheat, &lone, offsetof(struct lone, operands) + operands, words,
		   sizeof(struct ofi_list) + answer) &&
	       (uint32_t)words[answer / 8] == OFI_ANSWER_MAGIC;
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
		{ RIGHT_ATOMIC, { false, false, true } },
		{ RIGHT_READ | RIGHT_WRITE, { true, true, false } },
	};
	struct rig *rig = rig_of(state);

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (enum way way = BY_READ; way < WAYS; way++) {
			uint64_t before = *word(rig);
			struct cheat cheat; /* of its own: a refused operation ends its connection */

			join(rig, &cheat, OTHER, cases[i].rights);
			assert_int_equal(try(&cheat, way, OFF, cheat.attached.opening),
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
		assert_false(try(&cheat, BY_WRITE, offs[i], cheat.attached.opening));
		cheat_close(&cheat);
	}
	assert_int_equal(rig_load(rig->region, OFF), 0); /* the node goes on */
}

/* -------- openings -------- */

/* A link's numbers are its own: what others have open is not open to it. */
static void opening__of_another_link(void **state)
{
	struct rig *rig = rig_of(state);
	struct cheat honest, cheat;

	join(rig, &honest, OTHER, RIGHT_ALL);
	cheat_attach(rig, &honest, OTHER, RIGHT_ALL);
	assert_true(try(&honest, BY_READ, OFF, honest.attached.opening));
	for (enum way way = BY_READ; way < WAYS; way++) {
		join(rig, &cheat, OTHER + 1, RIGHT_ALL);
		assert_int_not_equal(cheat.attached.opening, honest.attached.opening);
		assert_false(try(&cheat, way, OFF, honest.attached.opening));
		cheat_close(&cheat);
	}
	assert_int_equal(*word(rig), 0);
	assert_true(try(&honest, BY_WRITE, OFF, honest.attached.opening));
	cheat_close(&honest);
}

static void opening__guessed(void **state)
{
	struct rig *rig = rig_of(state);

	for (uint32_t i = 0; i < GUESSES; i++) {
		struct cheat cheat;
		uint32_t number = i < 50 ? i + 1 : UINT16_MAX - (i - 50) * 1000;

		join(rig, &cheat, OTHER, RIGHT_READ);
		assert_false(try(&cheat, i % 2 ? BY_WRITE : BY_ADD, OFF, number));
		cheat_close(&cheat);
	}
	assert_int_equal(*word(rig), 0);
	assert_int_equal(rig_load(rig->region, OFF), 0);
}

static void opening__after_its_detach(void **state)
{
	struct rig *rig = rig_of(state);
	union ofi_any detach = { .detach = { .region = rig->spec.id } };
	struct cheat cheat;

	join(rig, &cheat, OTHER, RIGHT_ALL);
	assert_true(try(&cheat, BY_READ, OFF, cheat.attached.opening));
	detach.detach.request = cheat.attached.request;
	assert_int_equal(ofi_link_ask(&cheat.link, &detach, OFI_DETACH, NULL, DEADLINE_NEVER), 0);
	for (int i = 0; i < 10000; i++) {
		struct target_stats stats;

		rig->tg->ops->stats(rig->tg, &stats);
		if (gauge_of(stats, "keys") == 1) /* the rig's own */
			break;
		(void)usleep(1000);
	}
	assert_false(try(&cheat, BY_WRITE, OFF, cheat.attached.opening));
	assert_int_equal(*word(rig), 0);
	cheat_close(&cheat);
}

static void opening__after_a_revoke(void **state)
{
	struct rig *rig = rig_of(state);
	struct cheat cheat;

	join(rig, &cheat, OTHER, RIGHT_ALL);
	assert_true(try(&cheat, BY_READ, OFF, cheat.attached.opening));
	assert_int_equal(rig->tg->ops->revoke(rig->tg, OTHER, rig->spec.id), 0);
	assert_false(try(&cheat, BY_WRITE, OFF, cheat.attached.opening));
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

static void fence__ends_the_link(void **state)
{
	struct rig *rig = rig_of(state);
	struct cheat cheat;

	join(rig, &cheat, OTHER, RIGHT_ALL);
	assert_true(try(&cheat, BY_READ, OFF, cheat.attached.opening));
	fence_cut(rig, OTHER);
	for (enum way way = BY_READ; way < WAYS; way++)
		assert_false(try(&cheat, way, OFF, cheat.attached.opening));
	assert_int_equal(*word(rig), 0);
	cheat_close(&cheat);
	assert_int_equal(cheat_open(rig, OTHER, &cheat), -EOWNERDEAD);
	cheat_close(&cheat);
}

struct writer {
	struct cheat *cheat;
	_Atomic bool stop;
	_Atomic uint64_t sent;
};

/* Sends all of it, as fast as the node takes it. False: the link has ended, or shall. */
static bool send_all(struct cheat *cheat, const void *bytes, size_t n, const _Atomic bool *stop)
{
	size_t sent = 0;

	while (sent < n && !atomic_load(stop)) {
		ssize_t part = send(cheat->link.stream.sock, (const uint8_t *)bytes + sent,
				    n - sent, MSG_NOSIGNAL);

		if (part < 0 && errno != EAGAIN)
			return false;
		sent += part > 0 ? (size_t)part : 0;
	}
	return sent == n;
}

static struct lone long_write(const struct cheat *cheat)
{
	struct lone lone = lone_make(BY_WRITE, 0, cheat->attached.opening);

	lone.request.bytes = WRITE;
	return lone;
}

/* Long writes without end, of another byte each: one is half done at any time. */
static void *write_on(void *arg)
{
	struct writer *writer = arg;
	struct cheat *cheat = writer->cheat;
	const struct lone lone = long_write(cheat);

	do {
		memset(cheat->memory, (int)(atomic_fetch_add(&writer->sent, 1) & 0x7f) + 1, WRITE);
	} while (send_all(cheat, &lone, offsetof(struct lone, operands), &writer->stop) &&
		 send_all(cheat, cheat->memory, WRITE, &writer->stop));
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

/* The first half of a WRITE has landed when its region is revoked; the second one does not. */
static void revoke__amid_a_long_write(void **state)
{
	static const _Atomic bool on = false;
	struct rig *rig = rig_of(state);
	struct cheat cheat;
	struct lone lone;
	uint64_t answer;

	join(rig, &cheat, OTHER, RIGHT_ALL);
	lone = long_write(&cheat);
	memset(cheat.memory, 1, WRITE);
	assert_true(send_all(&cheat, &lone, offsetof(struct lone, operands), &on));
	assert_true(send_all(&cheat, cheat.memory, WRITE / 2, &on));
	while (rig_load(rig->region, WRITE / 2 - 8) == 0)
		(void)sched_yield();
	assert_int_equal(rig->tg->ops->revoke(rig->tg, OTHER, rig->spec.id), 0);
	assert_false(ask(&cheat, cheat.memory, WRITE / 2, &answer, sizeof(answer)));
	assert_int_equal(rig_load(rig->region, WRITE / 2), 0);
	assert_int_equal(rig_load(rig->region, WRITE - 8), 0);
	cheat_close(&cheat);
}

static void hello__ends_the_link_that_it_replaces(void **state)
{
	struct rig *rig = rig_of(state);
	struct cheat old;
	struct transport_opts opts = { .client_id = OTHER };
	struct transport *tr = NULL;

	join(rig, &old, OTHER, RIGHT_ALL);
	assert_true(try(&old, BY_READ, OFF, old.attached.opening));
	opts.replaces = old.link.number;
	assert_int_equal(transport_open(rig->uri, &opts, &tr), 0);
	assert_false(try(&old, BY_WRITE, OFF, old.attached.opening));
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

/* The same for lists: each of these ends its link. */
static void list__malformed_ends_its_link(void **state)
{
	static const struct {
		size_t at;
		uint8_t xor ;
	} spoiled[] = {
		{ offsetof(struct lone, list.magic), 1 },
		{ offsetof(struct lone, list.n), 1 },     /* 0 */
		{ offsetof(struct lone, list.n) + 1, 8 }, /* 2049 */
		{ offsetof(struct lone, request.off), 1 },
		{ offsetof(struct lone, request.off) + 7, 0xff },
		{ offsetof(struct lone, request.bytes), 1 },
		{ offsetof(struct lone, request.bytes), 8 },  /* 0 */
		{ offsetof(struct lone, request.bytes), 24 }, /* an atomic of 16 */
		{ offsetof(struct lone, request.bytes) + 3, 0xff },
		{ offsetof(struct lone, request.verb), OFI_FAA },     /* 0 */
		{ offsetof(struct lone, request.verb), OFI_FAA ^ 5 }, /* there is no fifth */
		{ offsetof(struct lone, request.verb), 0x80 },
		{ offsetof(struct lone, request.guard), 2 },
	};
	struct rig *rig = rig_of(state);

	for (size_t i = 0; i < sizeof(spoiled) / sizeof(spoiled[0]); i++) {
		struct cheat cheat;
		struct lone lone;
		uint64_t answer;

		join(rig, &cheat, OTHER, RIGHT_ALL);
		lone = lone_make(BY_ADD, OFF, cheat.attached.opening);
		((uint8_t *)&lone)[spoiled[i].at] ^= spoiled[i].xor ;
		assert_int_equal(send(cheat.link.stream.sock, &lone, sizeof(lone), MSG_NOSIGNAL),
				 sizeof(lone));
		assert_int_equal(ofi_link_wait(&cheat.link, POLLIN,
					       deadline_after(clock_monotonic(), CLOCK_NS_PER_S)),
				 0);
		assert_true(recv(cheat.link.stream.sock, &answer, sizeof(answer), 0) <= 0);
		assert_int_equal(*word(rig), 0);
		cheat_close(&cheat);
	}
	assert_int_equal(rig_load(rig->region, OFF), 0);
}

/* It gets all of them when it does; meanwhile others are served. */
static void answers__that_are_not_read_wait(void **state)
{
	struct rig *rig = rig_of(state);
	struct cheat cheat;
	struct lone lone;
	size_t lists = 0, part = offsetof(struct lone, operands);

	rig_store(rig->region, WRITE - 8, 0x1234);
	join(rig, &cheat, OTHER, RIGHT_READ);
	lone = lone_make(BY_READ, 0, cheat.attached.opening);
	lone.request.bytes = WRITE;
	for (int idle = 0; idle < 1000; idle++) {
		if (send(cheat.link.stream.sock, &lone, part, MSG_NOSIGNAL) == (ssize_t)part)
			lists++, idle = 0;
		if (lists == 200)
			break;
		(void)usleep(10);
	}
	assert_true(lists > 20);
	assert_int_equal(rig_load(rig->region, WRITE - 8), 0x1234);
	for (size_t i = 0; i < lists; i++) {
		struct ofi_list end = { 0 };

		memset(cheat.memory, 0xff, WRITE);
		assert_true(ask(&cheat, NULL, 0, cheat.memory, WRITE));
		assert_memory_equal(cheat.memory, rig->spec.base, WRITE);
		assert_true(ask(&cheat, NULL, 0, &end, sizeof(end)));
		assert_int_equal(end.magic, OFI_ANSWER_MAGIC);
	}
	cheat_close(&cheat);
}

static const struct CMUnitTest tests[] = {
	CONTRACT_TEST(rights__are_those_of_the_grant),
	CONTRACT_TEST(rights__end_with_the_region),
	CONTRACT_TEST(opening__of_another_link),
	CONTRACT_TEST(opening__guessed),
	CONTRACT_TEST(opening__after_its_detach),
	CONTRACT_TEST(opening__after_a_revoke),
	CONTRACT_TEST(fence__ends_the_link),
	CONTRACT_TEST(fence__amid_long_writes),
	CONTRACT_TEST(revoke__amid_a_long_write),
	CONTRACT_TEST(hello__ends_the_link_that_it_replaces),
	CONTRACT_TEST(message__malformed_ends_its_connection),
	CONTRACT_TEST(list__malformed_ends_its_link),
	CONTRACT_TEST(answers__that_are_not_read_wait),
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
