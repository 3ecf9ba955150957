/*
 * A malicious memory node with a valid token: it claims more room than all others, and answers
 * late, in pieces, or not at all. Other clients do not wait for it, and tables are made elsewhere.
 */
#include "tests/support/sockets.h"
#include "tests/support/command.h"
#include "tests/support/processes.h"
#include "tests/support/fixture/store_fixture.h"
#include "tests/support/must.h"
#include "tests/support/store_nodes.h"

#include "relive/relive.h"

#include "wire/control/channel.h"
#include "wire/control.pb-c.h"
#include "wire/control/dial.h"

#include "base/os/clock.h"
#include "base/error.h"
#include "base/os/runtime_dir.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS CLOCK_NS_PER_MS
#define CLAIMED ((uint64_t)1 << 40)
#define ROUNDS 10u    /* of calls of others, while one waits for the rogue */
#define BOUND_MS 250u /* for the typical round */
#define MAX_ROGUES 64 /* with the good node one more than a store has */
#define DRIBBLERS 8

enum manner {
	MUTE_MEMORY, /* its socket takes connections, and nobody answers there */
	MUTE_GRANTS, /* it answers all but requests for grants */
	DRIBBLES,    /* a byte now and then, and again when it was hung up on */
	HONEST,      /* behaves as it should until its memory is needed */
};

struct rogue {
	enum manner manner;
	char name[16];
	int memory; /* the socket that clients are sent to */
	char uri[PROCESSES_PATH + 80];
	uint64_t incarnation;
	uint32_t regions;
	pthread_t thread;
	bool runs;
	_Atomic bool stop;
};

struct fixture {
	struct processes ps;
	struct rlv_store *store, *other;
	struct rlv_table *good, *late;
	pid_t node;
	struct rogue rogues[MAX_ROGUES];
	uint32_t n_rogues;
	_Atomic int made; /* result of the other client's call; 1 = not yet */
};

/* -------- the rogue -------- */

static int dial(struct channel *ch)
{
	char socket_path[RUNTIME_PATH_BYTES], token[RUNTIME_TOKEN_BYTES];
	struct runtime_dir dir;
	struct dial_opts opts = { .role = "memnode", .software = "rogue", .token = token };
	struct dial_peer peer;

	opts.deadline_ns = deadline_after(clock_monotonic(), 5000 * MS);
	if (runtime_dir_open("s", false, &dir) || runtime_dir_token(&dir, token) ||
	    runtime_dir_file(&dir, "metad.sock", socket_path))
		return -1;
	opts.socket = socket_path;
	return dial_open(&opts, ch, &peer);
}

/* The server's answer; the message is in error_last(). */
static int status_of(const struct channel_frame *frame)
{
	Relive__NodeRegisterReply *reply = (Relive__NodeRegisterReply *)channel_unpack(
		&relive__node_register_reply__descriptor, frame);
	int ret = reply ? dial_status(reply->status) : -EPROTO;

	if (reply)
		relive__node_register_reply__free_unpacked(reply, NULL);
	return ret;
}

static int join(struct rogue *rogue, struct channel *ch)
{
	Relive__NodeRegisterRequest request = RELIVE__NODE_REGISTER_REQUEST__INIT;
	struct channel_frame frame;
	int ret;

	if (dial(ch))
		return -1;
	request.name = rogue->name;
	request.uri = rogue->uri;
	request.pages = (char *)"4k";
	request.incarnation = rogue->incarnation;
	request.pool_bytes = CLAIMED;
	ret = channel_call(ch, RELIVE__TYPE__TYPE_NODE_REGISTER, &request.base,
			   deadline_after(clock_monotonic(), 5000 * MS), &frame);
	return ret ? ret : status_of(&frame);
}

static void dribble(struct rogue *rogue, const struct channel *ch)
{
	const uint8_t bytes[6] = { 0 };

	for (size_t i = 0; i < sizeof(bytes) && !atomic_load(&rogue->stop); i++) {
		if (send(ch->stream.fd, &bytes[i], 1, MSG_NOSIGNAL) != 1)
			return;
		(void)poll(NULL, 0, 30);
	}
}

static void answer(struct channel *ch, const struct frame_header *head,
		   const ProtobufCMessage *message)
{
	(void)!channel_send(ch, head->type | FRAME_ANSWER, head->request_id, message,
			    deadline_after(clock_monotonic(), 1000 * MS));
}

static void answer_one(struct rogue *rogue, struct channel *ch, const struct channel_frame *frame)
{
	Relive__Status status = RELIVE__STATUS__INIT;
	Relive__NodeInfo info = RELIVE__NODE_INFO__INIT;
	Relive__NodeRegion region = RELIVE__NODE_REGION__INIT;
	Relive__NodeStatsReply stats = RELIVE__NODE_STATS_REPLY__INIT;
	Relive__NodeRegionReply made = RELIVE__NODE_REGION_REPLY__INIT;
	Relive__NodeGrantReply grant = RELIVE__NODE_GRANT_REPLY__INIT;
	Relive__NodeFenceReply fence = RELIVE__NODE_FENCE_REPLY__INIT;
	Relive__StatusReply done = RELIVE__STATUS_REPLY__INIT;
	uint8_t bytes[16] = { 1 };

	status.message = (char *)"";
	stats.status = made.status = grant.status = fence.status = done.status = &status;
	switch (frame->head.type) {
	case RELIVE__TYPE__TYPE_NODE_STATS:
		info.name = info.uri = info.transport = (char *)"";
		info.pages = (char *)"4k";
		info.pool_bytes = CLAIMED;
		stats.info = &info;
		answer(ch, &frame->head, &stats.base);
		return;
	case RELIVE__TYPE__TYPE_NODE_REGION_NEW:
		region.region = ++rogue->regions;
		made.region = &region;
		answer(ch, &frame->head, &made.base);
		return;
	case RELIVE__TYPE__TYPE_NODE_GRANT:
		grant.grant = (ProtobufCBinaryData){ sizeof(bytes), bytes };
		if (rogue->manner != MUTE_GRANTS)
			answer(ch, &frame->head, &grant.base);
		return;
	case RELIVE__TYPE__TYPE_NODE_FENCE:
		answer(ch, &frame->head, &fence.base);
		return;
	default:
		answer(ch, &frame->head, &done.base);
	}
}

static void serve(struct rogue *rogue, struct channel *ch)
{
	struct channel_frame frame;

	while (!atomic_load(&rogue->stop)) {
		struct pollfd ready = { .fd = ch->stream.fd, .events = POLLIN };

		if (poll(&ready, 1, 20) <= 0)
			continue;
		if (rogue->manner == DRIBBLES) {
			dribble(rogue, ch);
			return;
		}
		if (channel_receive(ch, deadline_after(clock_monotonic(), 1000 * MS), &frame))
			return;
		answer_one(rogue, ch, &frame);
	}
}

static void *run_rogue(void *arg)
{
	struct rogue *rogue = arg;

	while (!atomic_load(&rogue->stop)) {
		struct channel ch = { .stream = { .fd = -1 } };

		if (join(rogue, &ch) == 0)
			serve(rogue, &ch);
		if (ch.stream.fd >= 0)
			channel_fini(&ch);
	}
	return NULL;
}

static struct rogue *new_rogue(struct fixture *fx, enum manner manner)
{
	struct rogue *rogue = &fx->rogues[fx->n_rogues];
	char path[sizeof(fx->ps.dir) + 32];

	rogue->manner = manner;
	rogue->incarnation = 100 + fx->n_rogues;
	snprintf(rogue->name, sizeof(rogue->name), "rogue%u", fx->n_rogues++);
	snprintf(path, sizeof(path), "%s/%.20s", fx->ps.dir, rogue->name);
	snprintf(rogue->uri, sizeof(rogue->uri), "shm:%s", path);
	rogue->memory = sockets_listen_unix(path, SOCK_SEQPACKET);
	return rogue;
}

static void start_rogue(struct fixture *fx, enum manner manner)
{
	struct rogue *rogue = new_rogue(fx, manner);

	assert_int_equal(pthread_create(&rogue->thread, NULL, run_rogue, rogue), 0);
	rogue->runs = true;
}

static void stop_rogue(struct rogue *rogue)
{
	if (!rogue->runs)
		return;
	atomic_store(&rogue->stop, true);
	pthread_join(rogue->thread, NULL);
	rogue->runs = false;
}

static bool is_known(void *ctx)
{
	struct rlv_store_info info = { .size = sizeof(info) };
	struct fixture *fx = ctx;

	must(rlv_store_info(fx->store, &info), "info");
	return info.n_nodes == 1 + fx->n_rogues;
}

static void start_rogues(struct fixture *fx, uint32_t n, enum manner manner)
{
	for (uint32_t i = 0; i < n; i++)
		start_rogue(fx, manner);
	assert_true(processes_until(is_known, fx));
}

/* -------- the others -------- */

static int begin(void **state, const char *const *metad_opts)
{
	static const char *const size[] = { "--size", "64M", NULL };
	struct rlv_store_opts patient = RLV_STORE_OPTS_INIT;
	static struct fixture fx;

	memset(&fx, 0, sizeof(fx));
	processes_init(&fx.ps);
	processes_metad(&fx.ps, "s", metad_opts);
	fx.node = processes_memnode(&fx.ps, "s", "good", size);
	must(rlv_store_open("shm:s", NULL, &fx.store), "open");
	patient.timeout_ns = 10 * CLOCK_NS_PER_S;
	must(rlv_store_open("shm:s", &patient, &fx.other), "open as another");
	store_fixture_await_node(fx.store);
	fx.good = store_fixture_crash_table(fx.store, 4096, 0);
	*state = &fx;
	return 0;
}

/* A rogue is given up after its lease: long enough for others to be served meanwhile. */
static int setup(void **state)
{
	static const char *const lease[] = { "--node-lease", "2", NULL };

	return begin(state, lease);
}

/* A node that is stopped counts as up. */
static int setup_with_long_lease(void **state)
{
	static const char *const lease[] = { "--node-lease", "60", NULL };

	return begin(state, lease);
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	for (uint32_t i = 0; i < fx->n_rogues; i++) {
		stop_rogue(&fx->rogues[i]);
		close(fx->rogues[i].memory);
	}
	(void)!rlv_table_close(&fx->late);
	(void)!rlv_table_close(&fx->good);
	(void)!rlv_store_close(&fx->other);
	(void)!rlv_store_close(&fx->store);
	processes_fini(&fx->ps);
	return 0;
}

static void call_as_others_do(struct fixture *fx)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_sampler *sampler = NULL;
	struct rlv_table *table = NULL;
	char names[8][RLV_NAME_BYTES];
	size_t n = 8;

	opts.gamma = 1;
	must(rlv_store_tables(fx->store, names, &n), "list");
	must(rlv_table_open(fx->store, "t", &table), "open");
	must(rlv_sampler_open(table, &opts, &sampler), "take a slot");
	must(rlv_sampler_close(&sampler), "put it back");
	must(rlv_table_close(&table), "close");
}

/* How many rounds of calls are answered while the other client waits; at most so many. */
static uint32_t rounds_meanwhile(struct fixture *fx, uint32_t most)
{
	uint32_t n = 0;

	while (n < most && atomic_load(&fx->made) == 1) {
		call_as_others_do(fx);
		n += atomic_load(&fx->made) == 1;
	}
	print_message("%u rounds of calls meanwhile\n", n);
	return n;
}

static void *make_table(void *arg)
{
	static const struct rlv_column columns[] = { { "obs", RLV_F32, RLV_OBS, 1, { 4 } } };
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_table *table = NULL;
	struct fixture *fx = arg;
	int ret;

	opts.columns = columns;
	opts.n_columns = 1;
	opts.capacity = 4096;
	opts.shards = 2;
	ret = rlv_table_create(fx->other, "elsewhere", &opts, &table);
	if (ret)
		print_message("create: %s: %s\n", rlv_error_name(ret), rlv_last_error());
	else
		ret = rlv_table_close(&table);
	atomic_store(&fx->made, ret);
	return NULL;
}

/* A server that waits for the rogue answers nobody else until it has given it up. */
static void expect_made_elsewhere(struct fixture *fx, enum manner manner)
{
	pthread_t thread;
	uint32_t rounds;

	start_rogues(fx, 1, manner);
	atomic_store(&fx->made, 1);
	assert_int_equal(pthread_create(&thread, NULL, make_table, fx), 0);
	rounds = rounds_meanwhile(fx, UINT32_MAX);
	pthread_join(thread, NULL);
	assert_int_equal(atomic_load(&fx->made), 0);
	assert_true(rounds >= ROUNDS);
}

#define CASE(f) TEST_WITH(f, setup, teardown)
#define CASE_WITH_LONG_LEASE(f) TEST_WITH(f, setup_with_long_lease, teardown)

/* It takes the shards, has most room, and cannot be reached: they are made at the other node. */
CASE(table_create__a_node_whose_memory_does_not_answer)
{
	expect_made_elsewhere(*state, MUTE_MEMORY);
}

CASE(table_create__a_node_that_gives_no_grants)
{
	expect_made_elsewhere(*state, MUTE_GRANTS);
}

#define CALM 100u /* rounds */

static int compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* The time of the typical round of calls, in ms: a busy host holds some of them up. */
static uint64_t typical_ms(struct fixture *fx)
{
	static uint64_t took[CALM];
	const uint64_t *middle = &took[CALM / 2];

	for (uint32_t i = 0; i < CALM; i++) {
		uint64_t begin = clock_now_ns(clock_monotonic());

		call_as_others_do(fx);
		took[i] = clock_now_ns(clock_monotonic()) - begin;
	}
	qsort(took, CALM, sizeof(took[0]), compare);
	print_message("four calls together: %.1f ms, at most %.1f\n", (double)*middle / 1e6,
		      (double)took[CALM - 1] / 1e6);
	return *middle / MS;
}

CASE(calls__beside_nodes_that_answer_in_dribbles)
{
	struct fixture *fx = *state;

	start_rogues(fx, DRIBBLERS, DRIBBLES);
	assert_true(typical_ms(fx) < BOUND_MS);
}

/* -------- a node that makes the page of a slot late -------- */

static uint32_t state_of(struct fixture *fx, const char *name)
{
	return store_node_named(fx->store, name).state;
}

static bool late_is_up(void *ctx)
{
	return state_of(ctx, "late") == RLV_NODE_UP;
}

static pid_t start_late(struct fixture *fx)
{
	char pool[PROCESSES_PATH + 64];
	const char *const opts[] = { "--file", pool, "--size", "256M", NULL };
	pid_t pid;

	processes_path(&fx->ps, "pool", pool);
	pid = processes_memnode(&fx->ps, "s", "late", opts);
	assert_true(processes_until(late_is_up, fx));
	return pid;
}

/* A table on that node, which has the most room. */
static void make_late_table(struct fixture *fx)
{
	static const struct rlv_column columns[] = { { "obs", RLV_F32, RLV_OBS, 1, { 4 } } };
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;

	opts.columns = columns;
	opts.n_columns = 1;
	opts.capacity = 4096;
	must(rlv_table_create(fx->other, "late", &opts, &fx->late), "create");
}

static void *open_late(void *arg)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_sampler *sampler = NULL;
	struct fixture *fx = arg;
	int ret;

	opts.gamma = 1;
	ret = rlv_sampler_open(fx->late, &opts, &sampler);
	if (ret)
		print_message("open: %s: %s\n", rlv_error_name(ret), rlv_last_error());
	else
		ret = rlv_sampler_close(&sampler);
	atomic_store(&fx->made, ret);
	return NULL;
}

static bool opens_late(void *ctx)
{
	struct fixture *fx = ctx;

	(void)open_late(fx);
	return atomic_load(&fx->made) == 0;
}

/* Stops the node, and has a slot of it wanted while the others work; what then becomes of the node. */
static int want_slot_of_stopped(struct fixture *fx, pid_t node, int then)
{
	pthread_t thread;

	processes_kill(&fx->ps, node, SIGSTOP);
	atomic_store(&fx->made, 1);
	assert_int_equal(pthread_create(&thread, NULL, open_late, fx), 0);
	assert_int_equal(rounds_meanwhile(fx, 2 * ROUNDS), 2 * ROUNDS);
	processes_kill(&fx->ps, node, then);
	pthread_join(thread, NULL);
	return atomic_load(&fx->made);
}

CASE_WITH_LONG_LEASE(slot_get__of_a_node_that_makes_its_page_late)
{
	struct fixture *fx = *state;
	pid_t node = start_late(fx);

	make_late_table(fx);
	assert_int_equal(want_slot_of_stopped(fx, node, SIGCONT), 0);
}

CASE_WITH_LONG_LEASE(slot_get__of_a_node_that_dies_first)
{
	struct fixture *fx = *state;
	pid_t node = start_late(fx);

	make_late_table(fx);
	assert_int_equal(want_slot_of_stopped(fx, node, SIGKILL), -EHOSTDOWN);
	(void)start_late(fx);
	assert_true(processes_until(opens_late, fx)); /* and no slot is lost */
}

/* -------- as many nodes as there may be -------- */

static struct rlv_store_info info_of(struct fixture *fx)
{
	struct rlv_store_info info = { .size = sizeof(info) };

	must(rlv_store_info(fx->store, &info), "info");
	return info;
}

static void expect_all_shown(struct fixture *fx)
{
	struct rlv_node_info *nodes = calloc(65, sizeof(*nodes));
	size_t n = 65, few = 3;

	assert_non_null(nodes);
	assert_int_equal(info_of(fx).n_nodes, 64);
	must(rlv_store_nodes(fx->store, nodes, sizeof(*nodes), &n), "nodes");
	assert_int_equal(n, 64);
	for (size_t i = 0; i < n; i++)
		assert_true(nodes[i].name[0] != '\0');
	assert_true(nodes[64].name[0] == '\0');
	must(rlv_store_nodes(fx->store, nodes, sizeof(*nodes), &few), "nodes");
	assert_int_equal(few, 64);
	free(nodes);
}

static bool is_down(void *ctx)
{
	return state_of(ctx, "rogue7") == RLV_NODE_DOWN;
}

CASE(store_info__shows_all_nodes_and_the_65th_is_told_why)
{
	struct fixture *fx = *state;
	struct channel ch;

	start_rogues(fx, 63, HONEST);
	expect_all_shown(fx);
	assert_int_equal(join(new_rogue(fx, HONEST), &ch), -ENOSPC);
	command_expect_words(error_last(), "64 nodes");
	command_expect_words(error_last(), "relive node forget");
	channel_fini(&ch);
}

CASE_WITH_LONG_LEASE(node_forget__of_one_that_is_gone_makes_room)
{
	static struct command command;
	struct fixture *fx = *state;
	struct channel ch;

	command.ps = &fx->ps;
	start_rogues(fx, 63, HONEST);
	command_expect(&command, 1, "node forget shm:s rogue7");
	command_expect_words(command.err, "is up: drain it");
	command_expect(&command, 1, "node forget shm:s nobody");
	stop_rogue(&fx->rogues[7]);
	assert_true(processes_until(is_down, fx));
	command_expect(&command, 0, "node forget shm:s rogue7");
	assert_int_equal(state_of(fx, "rogue7"), UINT32_MAX);
	must(join(new_rogue(fx, HONEST), &ch), "join in its place");
	assert_int_equal(state_of(fx, "rogue63"), RLV_NODE_UP);
	channel_fini(&ch);
	call_as_others_do(fx);
}

CASE(clients__says_who_holds_what)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_sampler *samplers[2] = { NULL };
	static struct command command;
	struct fixture *fx = *state;
	char words[64];

	command.ps = &fx->ps;
	opts.gamma = 1;
	for (uint32_t i = 0; i < 2; i++)
		must(rlv_sampler_open(fx->good, &opts, &samplers[i]), "open a sampler");
	command_expect(&command, 0, "clients shm:s --json");
	snprintf(words, sizeof(words), "\"pid\":%d", (int)getpid());
	command_expect_words(command.out, words);
	command_expect_words(command.out, "\"same_host\":true");
	command_expect_words(command.out, "\"address\":\"unix\"");
	command_expect_words(command.out, "\"role\":\"admin\"");
	command_expect_words(command.out, "\"slots\":2,\"streams\":0,\"tables\":[{\"table\":\"t\"");
	command_expect(&command, 0, "clients shm:s");
	command_expect_words(command.out, "t 2");
	for (uint32_t i = 0; i < 2; i++)
		must(rlv_sampler_close(&samplers[i]), "close it");
	command_expect(&command, 0, "clients shm:s --json");
	assert_null(strstr(command.out, "\"table\""));
}

/* More than one answer holds. */
CASE(clients__are_all_shown)
{
	static struct rlv_store *stores[150];
	static struct command command;
	struct fixture *fx = *state;
	uint32_t n = 0;

	command.ps = &fx->ps;
	for (uint32_t i = 0; i < 150; i++)
		must(rlv_store_open("shm:s", NULL, &stores[i]), "open");
	command_expect(&command, 0, "clients shm:s --json");
	for (const char *at = command.out; (at = strstr(at, "\"client\":")) != NULL; at++)
		n++;
	assert_int_equal(n, 150 + 2 + 1); /* the fixture's two, and the command */
	for (uint32_t i = 0; i < 150; i++)
		must(rlv_store_close(&stores[i]), "close");
}

static bool good_is_down(void *ctx)
{
	return state_of(ctx, "good") == RLV_NODE_DOWN;
}

/* A node that may return is not forgotten, and no message suggests to destroy it. */
CASE(node_forget__of_one_that_holds_shards_is_refused)
{
	static struct command command;
	struct fixture *fx = *state;

	command.ps = &fx->ps;
	processes_kill(&fx->ps, fx->node, SIGKILL);
	assert_true(processes_until(good_is_down, fx));
	command_expect(&command, 1, "node forget shm:s good");
	command_expect_words(command.err, "holds 1 shards");
	command_expect_words(command.err, "start it again");
	assert_null(strstr(command.err, "drop"));
	assert_int_equal(state_of(fx, "good"), RLV_NODE_DOWN);
	command_expect(&command, 0, "node drop shm:s good");
	command_expect(&command, 0, "node forget shm:s good"); /* its regions are lost already */
	assert_int_equal(info_of(fx).n_nodes, 0);
	command_expect(&command, 0, "table drop shm:s t");
}

int main(void)
{
	return test_run(NULL, NULL);
}
