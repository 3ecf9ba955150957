/*
 * A client of another host, as the server sees it: it is silent for a lease, is fenced, and hears
 * of it. Its frames are made here, because a real one would need another host.
 */
#include "tests/support/sockets.h"
#include "tests/support/processes.h"
#include "tests/support/test.h"

#include "wire/control/auth.h"
#include "wire/control/channel.h"
#include "wire/control.pb-c.h"
#include "wire/control/dial.h"
#include "wire/region.h"
#include "wire/table_layout.h"

#include "relive/relive.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LEASE_NS (1000 * CLOCK_NS_PER_MS)
#define TRIES 100 /* a busy host may let a lease end at any time */

struct fixture {
	struct processes ps;
	uint16_t port;
	char token[128];
	struct channel ch;
	struct tls *tls;
	bool connected;
	uint64_t client_id;
	uint8_t secret[AUTH_SECRET_BYTES];
};

static uint64_t soon(void)
{
	return deadline_after(clock_monotonic(), PROCESSES_WAIT_MS * CLOCK_NS_PER_MS);
}

static void must(int ret, const char *what)
{
	if (ret)
		fail_msg("%s: %s", what, error_last());
}

/* -------- frames -------- */

static ProtobufCMessage *ask(struct fixture *fx, uint16_t type, const ProtobufCMessage *request,
			     const ProtobufCMessageDescriptor *kind)
{
	struct channel_frame frame;
	ProtobufCMessage *reply;

	must(channel_call(&fx->ch, type, request, soon(), &frame), "ask");
	reply = channel_unpack(kind, &frame);
	assert_non_null(reply);
	return reply;
}

static int renew(struct fixture *fx)
{
	Relive__LeaseRenewRequest request = RELIVE__LEASE_RENEW_REQUEST__INIT;
	Relive__LeaseRenewReply *reply =
		(Relive__LeaseRenewReply *)ask(fx, RELIVE__TYPE__TYPE_LEASE_RENEW, &request.base,
					       &relive__lease_renew_reply__descriptor);
	int ret = dial_status(reply->status);

	relive__lease_renew_reply__free_unpacked(reply, NULL);
	return ret;
}

static void connect_tls(struct fixture *fx)
{
	const struct tls_opts opts = { .token = fx->token };
	struct stream stream;
	struct tls *tls;

	must(tls_open(&opts, &tls), "tls");
	must(stream_init_tls(&stream, sockets_connect_tcp(fx->port), tls), "tls stream");
	channel_init(&fx->ch, stream);
	fx->tls = tls; /* until the handshake is over */
}

static void say_hello(struct fixture *fx, uint64_t wanted_id, struct auth_nonces *nonces)
{
	Relive__HelloRequest hello = RELIVE__HELLO_REQUEST__INIT;
	uint8_t boot_id[16] = "another host's";
	Relive__HelloReply *reply;

	must(auth_nonce(nonces->dialler), "nonce");
	hello.format_major = REGION_FORMAT_MAJOR;
	hello.software = (char *)"test";
	hello.role = (char *)"client";
	hello.pid = 4711;
	hello.start_time = 1;
	hello.boot_id = (ProtobufCBinaryData){ sizeof(boot_id), boot_id };
	hello.client_id = wanted_id;
	hello.nonce = (ProtobufCBinaryData){ AUTH_NONCE_BYTES, nonces->dialler };
	reply = (Relive__HelloReply *)ask(fx, RELIVE__TYPE__TYPE_HELLO, &hello.base,
					  &relive__hello_reply__descriptor);
	must(dial_status(reply->status), "hello");
	assert_int_equal(reply->nonce.len, AUTH_NONCE_BYTES);
	memcpy(nonces->listener, reply->nonce.data, AUTH_NONCE_BYTES);
	relive__hello_reply__free_unpacked(reply, NULL);
}

/* Connects as the client of that id, 0 = a new one; returns the id that it gets. */
static uint64_t join(struct fixture *fx, uint64_t wanted_id)
{
	Relive__AuthRequest request = RELIVE__AUTH_REQUEST__INIT;
	uint8_t proof[AUTH_PROOF_BYTES];
	struct auth_nonces nonces;
	Relive__AuthReply *reply;

	struct channel before = fx->ch;
	bool again = fx->connected;

	connect_tls(fx);
	fx->connected = true;
	say_hello(fx, wanted_id, &nonces);
	tls_close(&fx->tls);
	must(auth_prove(AUTH_DIALLER, fx->token, &nonces, proof), "proof");
	request.proof = (ProtobufCBinaryData){ sizeof(proof), proof };
	if (wanted_id)
		request.secret = (ProtobufCBinaryData){ sizeof(fx->secret), fx->secret };
	reply = (Relive__AuthReply *)ask(fx, RELIVE__TYPE__TYPE_AUTH, &request.base,
					 &relive__auth_reply__descriptor);
	must(dial_status(reply->status), "auth");
	fx->client_id = reply->client_id;
	assert_int_equal(reply->secret.len, sizeof(fx->secret));
	memcpy(fx->secret, reply->secret.data, sizeof(fx->secret));
	relive__auth_reply__free_unpacked(reply, NULL);
	if (again)
		channel_fini(&before);
	return fx->client_id;
}

/* -------- fixture -------- */

static int setup(void **state)
{
	static struct fixture fx;
	static char listen[32];
	static const char *const node[] = { "--size", "32M", NULL };
	const char *const server[] = { "--lease", "1", "--listen", listen, NULL };

	memset(&fx, 0, sizeof(fx));
	processes_init(&fx.ps);
	fx.port = processes_free_port();
	snprintf(listen, sizeof(listen), "127.0.0.1:%u", fx.port);
	(void)processes_metad(&fx.ps, "s", server);
	(void)processes_memnode(&fx.ps, "s", "a", node);
	processes_token(&fx.ps, "s", fx.token);
	*state = &fx;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	if (fx->connected)
		channel_fini(&fx->ch);
	processes_fini(&fx->ps);
	return 0;
}

#define CASE(f) TEST_WITH(f, setup, teardown)

static uint64_t now_ns(void)
{
	return clock_now_ns(clock_monotonic());
}

/* The client of that id, 0 = a new one, renews: its lease has not ended since it said hello. Returns the id that it got. */
static uint64_t join_and_renew(struct fixture *fx, uint64_t wanted_id)
{
	uint64_t id = join(fx, wanted_id);

	for (uint32_t i = 0; renew(fx); i++) {
		assert_true(i < TRIES);
		id = join(fx, wanted_id);
	}
	return id;
}

CASE(client__that_renews_is_not_fenced)
{
	struct fixture *fx = *state;
	uint64_t before = 0; /* the last renewal */
	uint32_t in_a_row = 0;

	for (uint32_t i = 0; i < TRIES && in_a_row < 10; i++) {
		uint64_t now = now_ns();
		int ret;

		if (in_a_row == 0)
			(void)join(fx, 0);
		else
			processes_sleep_ns(LEASE_NS / 4);
		ret = renew(fx);
		if (ret && now_ns() - (in_a_row ? before : now) < LEASE_NS)
			fail_msg("a lease ended early: %s", error_name(ret));
		before = now;
		in_a_row = ret ? 0 : in_a_row + 1;
	}
	assert_int_equal(in_a_row, 10); /* more than two leases */
}

/* The client's TCP connection stays open: only its frames stop, as when a guest is paused. */
CASE(client__silent_for_a_lease_gets_eownerdead)
{
	struct fixture *fx = *state;
	uint64_t id = join_and_renew(fx, 0);

	processes_sleep_ns(2 * LEASE_NS);
	assert_int_equal(renew(fx), -EOWNERDEAD);
	assert_int_equal(renew(fx), -EOWNERDEAD);
	assert_true(join_and_renew(fx, id) != id);
}

/* Its first connection may well be open still, as the server sees it. */
CASE(client__that_reconnects_in_time_goes_on)
{
	struct fixture *fx = *state;

	for (uint32_t i = 0; i < TRIES; i++) {
		uint64_t began = now_ns(), id = join(fx, 0), again = join(fx, id);
		int ret = renew(fx);

		if (now_ns() - began >= LEASE_NS)
			continue;
		assert_true(again == id);
		assert_int_equal(ret, 0);
		return;
	}
	fail_msg("each try took longer than the lease");
}

static Relive__TableReply *open_table(struct fixture *fx)
{
	Relive__TableOpenRequest request = RELIVE__TABLE_OPEN_REQUEST__INIT;

	request.name = (char *)"t";
	return (Relive__TableReply *)ask(fx, RELIVE__TYPE__TYPE_TABLE_OPEN, &request.base,
					 &relive__table_reply__descriptor);
}

static Relive__SlotRequest slot_request(const struct table_desc *desc)
{
	Relive__SlotRequest request = RELIVE__SLOT_REQUEST__INIT;

	request.table_id = desc->table_id;
	request.table_uuid = (ProtobufCBinaryData){ 16, (uint8_t *)desc->uuid };
	return request;
}

static int get_slot(struct fixture *fx, const struct table_desc *desc, uint32_t *owner_out)
{
	Relive__SlotRequest request = slot_request(desc);
	Relive__SlotReply *reply;
	int ret;

	request.streams = 1;
	reply = (Relive__SlotReply *)ask(fx, RELIVE__TYPE__TYPE_SLOT_GET, &request.base,
					 &relive__slot_reply__descriptor);
	ret = dial_status(reply->status);
	*owner_out = reply->owner;
	relive__slot_reply__free_unpacked(reply, NULL);
	return ret;
}

static int put_slot(struct fixture *fx, const struct table_desc *desc, uint64_t lease)
{
	Relive__SlotRequest request = slot_request(desc);
	Relive__StatusReply *reply;
	int ret;

	request.owner = 1;
	request.lease = lease;
	reply = (Relive__StatusReply *)ask(fx, RELIVE__TYPE__TYPE_SLOT_PUT, &request.base,
					   &relive__status_reply__descriptor);
	ret = dial_status(reply->status);
	relive__status_reply__free_unpacked(reply, NULL);
	return ret;
}

static void make_table(void)
{
	const struct rlv_column column = { .name = "x", .dtype = RLV_F32 };
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_store *store = NULL;
	struct rlv_table *table = NULL;

	opts.columns = &column;
	opts.n_columns = 1;
	opts.capacity = 1024;
	opts.max_clients = 1;
	opts.max_writers = 1;
	must(rlv_store_open("shm:s", NULL, &store), "open");
	while (rlv_table_create(store, "t", &opts, &table) == -EHOSTDOWN)
		processes_sleep_ns(10 * CLOCK_NS_PER_MS);
	assert_non_null(table);
	must(rlv_table_close(&table), "close");
	must(rlv_store_close(&store), "close");
}

struct free_slot {
	struct fixture *fx;
	const struct table_desc *desc;
	uint64_t began_ns; /* the life of the client that has it */
};

/* A client that comes anew gets the slot. */
static bool slot_is_free(void *ctx)
{
	struct free_slot *slot = ctx;
	uint32_t owner = 0;

	slot->began_ns = now_ns();
	(void)join(slot->fx, 0);
	return get_slot(slot->fx, slot->desc, &owner) == 0 && owner == 1;
}

/* False: its lease may have ended meanwhile, and then nothing was shown. */
static bool leave_slot_to_the_next(struct fixture *fx, const struct table_desc *desc)
{
	struct free_slot slot = { fx, desc, 0 };
	int former, taken, own, again;
	uint32_t owner = 0;
	uint64_t fenced;

	assert_true(processes_until(slot_is_free, &slot));
	fenced = fx->client_id;
	processes_sleep_ns(2 * LEASE_NS);
	assert_int_equal(renew(fx), -EOWNERDEAD);
	assert_true(processes_until(slot_is_free, &slot));
	former = put_slot(fx, desc, fenced);
	taken = get_slot(fx, desc, &owner);
	own = put_slot(fx, desc, fx->client_id);
	again = get_slot(fx, desc, &owner);
	if (now_ns() - slot.began_ns >= LEASE_NS)
		return false;
	assert_int_equal(former, 0); /* of a former life: not this one */
	assert_int_equal(taken, -ENOSPC);
	assert_int_equal(own, 0);
	assert_int_equal(again, 0);
	return true;
}

/* The only slot of the table is another's as soon as the fence holds. */
CASE(client__fenced_leaves_its_slot_to_the_next)
{
	struct fixture *fx = *state;
	struct table_desc desc;
	Relive__TableReply *reply;

	make_table();
	(void)join_and_renew(fx, 0);
	reply = open_table(fx);
	must(dial_status(reply->status), "open the table");
	assert_int_equal(reply->desc.len, sizeof(desc));
	memcpy(&desc, reply->desc.data, sizeof(desc));
	relive__table_reply__free_unpacked(reply, NULL);
	for (uint32_t i = 0; !leave_slot_to_the_next(fx, &desc); i++)
		assert_true(i < 5);
}

int main(void)
{
	return test_run(NULL, NULL);
}
