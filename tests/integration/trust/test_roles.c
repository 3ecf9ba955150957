/*
 * The rights of each role's token at a real server, over its socket and over TCP; tokens after a
 * rotation.
 */
#include "tests/support/command.h"
#include "tests/support/processes.h"
#include "tests/support/fixture/store_fixture.h"
#include "tests/support/must.h"
#include "tests/support/store_nodes.h"

#include "relive/relive.h"

#include "transport/transport.h"

#include "wire/control.pb-c.h"
#include "wire/control/dial.h"

#include "base/bits.h"
#include "base/os/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STORE "s"
#define TOKEN_ROOM 256
#define LAST_TYPE 99 /* of requests to the server */

static const struct rlv_column columns[] = {
	{ .name = "obs", .dtype = RLV_F32, .role = RLV_OBS, .ndim = 1, .shape = { 4 } },
	{ .name = "reward", .dtype = RLV_F32, .role = RLV_REWARD },
};

struct fixture {
	struct processes ps;
	struct command cmd;
	pid_t metad;
	uint16_t port;
	char uri[64];
	char listen[32];
	struct rlv_store *owner; /* by the store's own token */
	struct rlv_table *table;
	struct rlv_store *store; /* by a token of a role */
	struct rlv_table *opened;
};

static void expect_words(const char *words)
{
	if (!strstr(rlv_last_error(), words))
		fail_msg("\"%s\" is not in: %s", words, rlv_last_error());
}

/* -------- fixture -------- */

static void start_server(struct fixture *fx)
{
	const char *const args[] = { "--listen", fx->listen, NULL };

	fx->metad = processes_metad(&fx->ps, STORE, args);
}

/* View 0 counts nothing, view 1 hands each item out once, view 2 is bounded. */
static void make_table(struct fixture *fx)
{
	struct rlv_view views[3] = { { .stack = 1 }, { .stack = 1 }, { .stack = 1 } };
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;

	views[1].max_times_sampled = 1;
	views[2].limiter = rlv_limiter_sample_to_insert(1, 1, 1e6);
	opts.columns = columns;
	opts.n_columns = 2;
	opts.capacity = 1024;
	opts.views = views;
	opts.n_views = 3;
	expect(rlv_table_create(fx->owner, "t", &opts, &fx->table), 0);
}

static void append(struct fixture *fx, uint32_t n)
{
	struct rlv_writer *writer = NULL;
	float obs[4] = { 0 }, reward = 1;
	const void *data[] = { obs, &reward };
	const struct rlv_steps steps = { .size = sizeof(steps), .columns = data, .n = 1 };

	expect(rlv_writer_open(fx->table, NULL, &writer), 0);
	for (uint32_t i = 0; i < n; i++)
		expect(rlv_writer_append(writer, 0, &steps, NULL), 0);
	expect(rlv_writer_close(&writer), 0);
}

static int setup(void **state)
{
	static const char *const node[] = { "--size", "32M", NULL };
	static struct fixture fx;

	memset(&fx, 0, sizeof(fx));
	processes_init(&fx.ps);
	fx.cmd.ps = &fx.ps;
	fx.port = processes_free_port();
	snprintf(fx.listen, sizeof(fx.listen), "127.0.0.1:%u", fx.port);
	snprintf(fx.uri, sizeof(fx.uri), "relive://%s", fx.listen);
	start_server(&fx);
	(void)processes_memnode(&fx.ps, STORE, "a", node);
	expect(rlv_store_open("shm:" STORE, NULL, &fx.owner), 0);
	store_fixture_await_node(fx.owner);
	make_table(&fx);
	*state = &fx;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	expect(rlv_table_close(&fx->opened), 0);
	expect(rlv_store_close(&fx->store), 0);
	expect(rlv_table_close(&fx->table), 0);
	expect(rlv_store_close(&fx->owner), 0);
	unsetenv("RELIVE_TOKEN");
	processes_fini(&fx->ps);
	return 0;
}

/* The token of a role; "own" = the store's. */
static void token_of(struct fixture *fx, const char *role, char token_out[TOKEN_ROOM])
{
	if (strcmp(role, "own") == 0) {
		processes_token(&fx->ps, STORE, token_out);
	} else {
		command_expect(&fx->cmd, 0, "token shm:" STORE " %s", role);
		snprintf(token_out, TOKEN_ROOM, "%.*s", TOKEN_ROOM - 1, fx->cmd.out);
	}
	token_out[strcspn(token_out, "\n")] = '\0';
}

static int try_open(const char *uri, const char *token, struct rlv_store **store)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;

	opts.token = token;
	return rlv_store_open(uri, &opts, store);
}

static void open_as(struct fixture *fx, const char *role, const char *uri)
{
	char token[TOKEN_ROOM];

	token_of(fx, role, token);
	expect(try_open(uri, token, &fx->store), 0);
	expect(rlv_table_open(fx->store, "t", &fx->opened), 0);
}

/* -------- every request by every role -------- */

enum { READ = 1, LEARN = 2, WRITE = 4, ADMIN = 8, NODE = 16, ALL = 31 };

static const struct who {
	const char *name;
	uint32_t bit;
} whos[] = {
	{ "read", READ },   { "learn", LEARN }, { "write", WRITE },
	{ "admin", ADMIN }, { "node", NODE },   { "own", ADMIN },
};

/* Written down once more: the server's table is compared with it. */
static uint32_t allowed(uint32_t type, bool memnode)
{
	if (memnode)
		return type == RELIVE__TYPE__TYPE_NODE_REGISTER ? NODE | ADMIN : 0;
	switch (type) {
	case RELIVE__TYPE__TYPE_LEASE_RENEW:
	case RELIVE__TYPE__TYPE_STORE_INFO:
		return ALL;
	case RELIVE__TYPE__TYPE_TABLE_OPEN:
	case RELIVE__TYPE__TYPE_TABLE_LIST:
		return READ | LEARN | WRITE | ADMIN;
	case RELIVE__TYPE__TYPE_SLOT_GET:
	case RELIVE__TYPE__TYPE_SLOT_PUT:
		return LEARN | WRITE | ADMIN;
	case RELIVE__TYPE__TYPE_PERSIST:
		return WRITE | ADMIN;
	case RELIVE__TYPE__TYPE_TABLE_CREATE:
	case RELIVE__TYPE__TYPE_TABLE_DROP:
	case RELIVE__TYPE__TYPE_TABLE_COMMIT:
	case RELIVE__TYPE__TYPE_TABLE_REBALANCE:
	case RELIVE__TYPE__TYPE_NODE_DRAIN:
	case RELIVE__TYPE__TYPE_NODE_DROP:
	case RELIVE__TYPE__TYPE_NODE_FORGET:
	case RELIVE__TYPE__TYPE_CLIENT_LIST:
	case RELIVE__TYPE__TYPE_BACKUP:
	case 60: /* token, by number: so that this is laid over trees without it */
		return ADMIN;
	default:
		return 0;
	}
}

static uint64_t soon(void)
{
	return deadline_after(clock_monotonic(), PROCESSES_WAIT_MS * CLOCK_NS_PER_MS);
}

/* How a peer of that token connects. */
struct way {
	const char *token;
	const char *role; /* client, memnode */
	bool tcp;
};

static void come(struct fixture *fx, const struct way *way, struct channel *ch,
		 struct dial_peer *peer)
{
	char socket[PROCESSES_PATH + 64];
	const struct dial_opts opts = {
		.socket = way->tcp ? NULL : socket,
		.host = "127.0.0.1",
		.port = fx->port,
		.token = way->token,
		.role = way->role,
		.software = "test",
		.deadline_ns = soon(),
	};

	processes_path(&fx->ps, STORE "/metad.sock", socket);
	if (dial_open(&opts, ch, peer))
		fail_msg("%s", error_last());
}

/* An empty request: each answer begins with its status. */
static int ask(struct channel *ch, uint32_t type)
{
	Relive__Empty request = RELIVE__EMPTY__INIT;
	Relive__StatusReply *reply;
	struct channel_frame frame;
	int ret = channel_call(ch, (uint16_t)type, &request.base, soon(), &frame);

	if (ret)
		fail_msg("request of type %u: %s", type, error_last());
	reply = (Relive__StatusReply *)channel_unpack(&relive__status_reply__descriptor, &frame);
	assert_non_null(reply);
	ret = dial_status(reply->status);
	relive__status_reply__free_unpacked(reply, NULL);
	return ret;
}

static void walk(struct fixture *fx, const struct way *way, const struct who *who)
{
	bool memnode = strcmp(way->role, "memnode") == 0;
	struct dial_peer peer;
	struct channel ch;

	come(fx, way, &ch, &peer);
	for (uint32_t type = 1; type <= LAST_TYPE; type++) {
		uint32_t may = allowed(type, memnode);
		int ret = ask(&ch, type);
		bool right = may & who->bit ? ret != -EACCES && ret != -ENOTSUP
					    : ret == (may ? -EACCES : -ENOTSUP);

		if (!right)
			fail_msg("request of type %u by a %s with the token of %s: %s (%s)", type,
				 way->role, who->name, error_name(ret), error_last());
	}
	channel_fini(&ch);
}

#define CASE(f) TEST_WITH(f, setup, teardown)

CASE(request__of_every_type_by_every_role)
{
	struct fixture *fx = *state;
	char token[TOKEN_ROOM];

	for (size_t i = 0; i < ARRAY_LEN(whos); i++) {
		token_of(fx, whos[i].name, token);
		for (int n = 0; n < 4; n++) {
			const struct way way = { token, n & 1 ? "memnode" : "client", n & 2 };

			walk(fx, &way, &whos[i]);
		}
	}
	assert_true(processes_runs(&fx->ps, fx->metad));
}

/* -------- read -------- */

static void expect_sampled(struct rlv_table *table)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	const struct rlv_batch *batch = NULL;
	struct rlv_sampler *sampler = NULL;

	opts.batch_size = 16;
	expect(rlv_sampler_open(table, &opts, &sampler), 0);
	for (int i = 0; i < 40; i++) { /* more than counts are held for */
		expect(rlv_sampler_sample(sampler, 16, 0, &batch), 0);
		assert_int_equal(batch->n, 16);
		rlv_batch_release(sampler, batch);
	}
	expect(rlv_sampler_close(&sampler), 0);
}

static void expect_update(struct rlv_table *table, int want)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	const struct rlv_batch *batch = NULL;
	struct rlv_sampler *sampler = NULL;
	float td[4] = { 1, 2, 3, 4 };

	opts.batch_size = 4;
	expect(rlv_sampler_open(table, &opts, &sampler), 0);
	expect(rlv_sampler_sample(sampler, 4, 0, &batch), 0);
	expect(rlv_sampler_update(sampler, batch->key, td, 4, NULL), want);
	rlv_batch_release(sampler, batch);
	expect(rlv_sampler_close(&sampler), 0);
}

static void expect_view(struct rlv_table *table, uint32_t view, int want)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_sampler *sampler = NULL;

	opts.view = view;
	expect(rlv_sampler_open(table, &opts, &sampler), want);
	if (want)
		expect_words("token of role learn");
	else
		expect(rlv_sampler_close(&sampler), 0);
}

static void expect_not_owner(struct fixture *fx)
{
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	char path[PROCESSES_PATH + 64];
	struct rlv_table *table = NULL;

	opts.columns = columns;
	opts.n_columns = 2;
	opts.capacity = 1024;
	processes_path(&fx->ps, "copy", path);
	expect(rlv_table_create(fx->store, "u", &opts, &table), -EACCES);
	expect_words("role admin");
	expect(rlv_table_drop(fx->store, "t"), -EACCES);
	expect(rlv_store_drop_node(fx->store, "a"), -EACCES);
	expect(rlv_table_rebalance(fx->store, "t", NULL, NULL), -EACCES);
	expect(rlv_store_backup(fx->store, path), -EACCES);
	assert_int_equal(access(path, F_OK), -1);
}

CASE(read__samples_and_changes_nothing)
{
	struct rlv_table_info before = { .size = sizeof(before) }, after = before;
	struct fixture *fx = *state;
	struct rlv_writer *writer = NULL;

	append(fx, 100);
	expect(rlv_table_info(fx->table, &before), 0);
	open_as(fx, "read", fx->uri);
	expect_sampled(fx->opened);
	expect_update(fx->opened, -EACCES);
	expect(rlv_writer_open(fx->opened, NULL, &writer), -EACCES);
	expect_words("role write");
	expect_view(fx->opened, 1, -EACCES);
	expect_view(fx->opened, 2, -EACCES);
	expect(rlv_store_persist(fx->store), -EACCES);
	expect_not_owner(fx);
	expect(rlv_table_info(fx->table, &after), 0);
	assert_memory_equal(&before, &after, sizeof(before));
}

/* A slot that it takes would be one less for others. */
CASE(read__takes_no_client_slot)
{
	struct rlv_sampler *samplers[80] = { NULL };
	struct fixture *fx = *state;

	append(fx, 100);
	open_as(fx, "read", "shm:" STORE);
	for (size_t i = 0; i < ARRAY_LEN(samplers); i++) /* of 64 slots */
		expect(rlv_sampler_open(fx->opened, NULL, &samplers[i]), 0);
	append(fx, 10);
	for (size_t i = 0; i < ARRAY_LEN(samplers); i++)
		expect(rlv_sampler_close(&samplers[i]), 0);
}

/* Without the server it goes on, and it is the same client when that is there again. */
CASE(read__goes_on_when_the_server_begins_anew)
{
	struct rlv_store_info info = { .size = sizeof(info) };
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	const struct rlv_batch *batch = NULL;
	struct rlv_sampler *sampler = NULL;
	struct fixture *fx = *state;

	append(fx, 100);
	open_as(fx, "read", fx->uri);
	opts.batch_size = 16;
	expect(rlv_sampler_open(fx->opened, &opts, &sampler), 0);
	processes_kill(&fx->ps, fx->metad, SIGKILL);
	expect(rlv_sampler_sample(sampler, 16, 0, &batch), 0);
	rlv_batch_release(sampler, batch);
	start_server(fx);
	expect(rlv_store_info(fx->store, &info), 0);
	expect(rlv_sampler_sample(sampler, 16, 0, &batch), 0);
	rlv_batch_release(sampler, batch);
	expect(rlv_sampler_close(&sampler), 0);
}

/* Claims write access, and attaches the granted regions. */
static void expect_rights(struct fixture *fx, const char *role, uint32_t tree, uint32_t rows)
{
	Relive__TableOpenRequest request = RELIVE__TABLE_OPEN_REQUEST__INIT;
	char token[TOKEN_ROOM];
	const struct way way = { token, "client", true };
	struct transport_opts opts = { .timeout_ns = 10 * CLOCK_NS_PER_S };
	const Relive__ShardPlace *place;
	const ProtobufCBinaryData *bytes[2];
	const uint32_t want[2] = { tree, rows };
	struct transport *tr = NULL;
	Relive__TableReply *reply;
	struct channel_frame frame;
	struct dial_peer peer;
	struct channel ch;

	token_of(fx, role, token);
	come(fx, &way, &ch, &peer);
	request.name = (char *)"t";
	request.read_only = false;
	assert_int_equal(
		channel_call(&ch, RELIVE__TYPE__TYPE_TABLE_OPEN, &request.base, soon(), &frame), 0);
	reply = (Relive__TableReply *)channel_unpack(&relive__table_reply__descriptor, &frame);
	assert_non_null(reply);
	assert_int_equal(dial_status(reply->status), 0);
	place = reply->shards[0];
	opts.client_id = peer.client_id;
	assert_int_equal(transport_open(place->node_uri, &opts, &tr), 0);
	bytes[0] = &place->tree_grant;
	bytes[1] = &place->rows_grant;
	for (int i = 0; i < 2; i++) {
		struct region_grant grant = { .bytes = (uint32_t)bytes[i]->len };
		struct region *region = NULL;

		memcpy(grant.data, bytes[i]->data, bytes[i]->len);
		assert_int_equal(transport_attach(tr, &grant, &region), 0);
		assert_int_equal(region->rights, want[i]);
		transport_detach(&region);
	}
	transport_close(&tr);
	relive__table_reply__free_unpacked(reply, NULL);
	channel_fini(&ch);
}

CASE(grants__are_those_of_the_role)
{
	expect_rights(*state, "read", RIGHT_READ, RIGHT_READ);
	expect_rights(*state, "learn", RIGHT_ALL, RIGHT_READ);
	expect_rights(*state, "write", RIGHT_ALL, RIGHT_READ | RIGHT_WRITE);
}

/* -------- learn, write -------- */

CASE(learn__updates_and_appends_nothing)
{
	struct fixture *fx = *state;
	struct rlv_writer *writer = NULL;

	append(fx, 100);
	open_as(fx, "learn", fx->uri);
	expect_sampled(fx->opened);
	expect_update(fx->opened, 0);
	expect_view(fx->opened, 1, 0);
	expect_view(fx->opened, 2, 0);
	expect(rlv_writer_open(fx->opened, NULL, &writer), -EACCES);
	expect_words("role write");
	expect_not_owner(fx);
}

CASE(write__appends_and_owns_nothing)
{
	struct fixture *fx = *state;
	struct rlv_table *own = fx->table;

	open_as(fx, "write", fx->uri);
	fx->table = fx->opened;
	append(fx, 100);
	fx->table = own;
	expect_update(fx->opened, 0);
	expect(rlv_store_persist(fx->store), 0);
	expect_not_owner(fx);
}

/* -------- node -------- */

static int run_node(struct fixture *fx, const char *role, const char *name)
{
	const char *const args[] = { "--store", STORE,   "--name",      name,  "--size", "8M",
				     "--metad", fx->uri, "--transport", "shm", NULL };
	char token[TOKEN_ROOM];
	pid_t pid;

	token_of(fx, role, token);
	setenv("RELIVE_TOKEN", token, 1);
	pid = processes_start(&fx->ps, "relive-memnode", args);
	unsetenv("RELIVE_TOKEN");
	return pid;
}

static bool has_two_nodes(void *ctx)
{
	struct rlv_store_info info = { .size = sizeof(info) };

	expect(rlv_store_info(ctx, &info), 0);
	return info.n_nodes == 2 && store_node_at(ctx, 1).state == RLV_NODE_UP;
}

CASE(node__registers_by_its_own_role_only)
{
	static const char *const others[] = { "read", "learn", "write" };
	struct fixture *fx = *state;

	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		assert_int_equal(
			processes_wait(&fx->ps, run_node(fx, others[i], "b"), PROCESSES_WAIT_MS),
			5);
	(void)run_node(fx, "node", "b");
	assert_true(processes_until(has_two_nodes, fx->owner));
}

/* -------- epochs -------- */

static void expect_old(struct fixture *fx, const char *token)
{
	struct rlv_store *store = NULL;

	expect(try_open(fx->uri, token, &store), -EACCES);
	expect_words("token: of epoch 1, the store is at 2: ask its owner for a new one");
	expect(try_open("shm:" STORE, token, &store), -EACCES);
	expect_words("token: of epoch 1, the store is at 2: ask its owner for a new one");
}

CASE(rotate__ends_tokens_of_before)
{
	struct rlv_store_info info = { .size = sizeof(info) };
	struct fixture *fx = *state;
	char old[TOKEN_ROOM], admin[TOKEN_ROOM];

	token_of(fx, "read", old);
	token_of(fx, "admin", admin);
	open_as(fx, "read", fx->uri);
	expect(rlv_store_info(fx->store, &info), 0);
	setenv("RELIVE_TOKEN", admin, 1); /* it hears of it, though its own ends, too */
	command_expect(&fx->cmd, 0, "token %s rotate", fx->uri);
	unsetenv("RELIVE_TOKEN");
	command_expect_words(fx->cmd.out, "epoch 2");
	expect(rlv_store_info(fx->store, &info), -EACCES);
	expect_words("of epoch 1, the store is at 2");
	expect_old(fx, old);
	expect_old(fx, admin);
	expect(rlv_store_info(fx->owner, &info), 0);
	processes_kill(&fx->ps, fx->metad, SIGKILL);
	start_server(fx);
	expect_old(fx, old);
	expect(rlv_table_close(&fx->opened), 0);
	expect(rlv_store_close(&fx->store), 0);
	open_as(fx, "read", fx->uri);
}

CASE(token__of_another_key_gives_eacces)
{
	struct fixture *fx = *state;
	struct rlv_store *store = NULL;
	char token[TOKEN_ROOM], *last;

	token_of(fx, "read", token);
	last = token + strlen(token) - 1;
	*last = *last == '0' ? '1' : '0';
	expect(try_open(fx->uri, token, &store), -EACCES);
	expect(try_open("shm:" STORE, token, &store), -EACCES);
	token_of(fx, "read", token);
	memcpy(token, "relive-node-", 12); /* as long, and another's key */
	expect(try_open(fx->uri, token, &store), -EACCES);
	expect(try_open("shm:" STORE, token, &store), -EACCES);
}

CASE(token__out_is_for_its_owner_alone)
{
	struct fixture *fx = *state;
	char path[PROCESSES_PATH + 64], token[TOKEN_ROOM], written[TOKEN_ROOM] = { 0 };
	struct stat st;
	int fd;

	token_of(fx, "write", token);
	processes_path(&fx->ps, "write.token", path);
	command_expect(&fx->cmd, 0, "token shm:" STORE " write --out %s", path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_true(read(fd, written, sizeof(written) - 1) > 0);
	close(fd);
	written[strcspn(written, "\n")] = '\0';
	assert_string_equal(written, token);
	command_expect(&fx->cmd, 1, "token shm:" STORE " write --out %s", path);
	command_expect_words(fx->cmd.err, path);
	command_expect(&fx->cmd, 0, "token write --store " STORE);
	command_expect_words(fx->cmd.out, token);
	command_expect(&fx->cmd, 1, "token shm:" STORE " god");
	command_expect_words(fx->cmd.err, "want read, learn, write, admin or node");
}

int main(void)
{
	return test_run(NULL, NULL);
}
