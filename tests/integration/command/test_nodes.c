/*
 * A store over several memory nodes, all on this host: one is killed, stopped, replaced, joins or
 * leaves while others work. What the server says of it, and what the others see.
 */
#include "tests/support/attack/crash_rows.h"
#include "tests/support/processes.h"
#include "tests/support/must.h"
#include "tests/support/sockets.h"
#include "tests/support/store_nodes.h"

#include "relive/relive.h"

#include "client/writer/append.h"
#include "client/meta/meta.h"
#include "client/store/store.h"

#include "base/bits.h"
#include "base/os/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NODES 4
#define MAX_CLIENTS 8u /* of a table */
#define STEPS 250u     /* of one append */
#define MS CLOCK_NS_PER_MS
#define NODE_LEASE "2" /* seconds */
#define ROUNDS 20      /* of what a ping that is late on a busy host makes void */

struct fixture {
	struct processes ps;
	struct rlv_store *store;
	struct rlv_table *table;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	struct crash_rows rows;
	uint32_t step;
	pid_t metad, nodes[MAX_NODES]; /* named 0, 1, ... */
	uint16_t port;                 /* of the server's metrics */
	char line[96];                 /* that is awaited there */
};

/* -------- daemons -------- */

static void start_metad(struct fixture *fx, const char *node_lease)
{
	char port[8];
	const char *const args[] = {
		"--lease",  "0.6",       "--node-lost", "3", "--slow-start", "0.1", "--node-lease",
		node_lease, "--metrics", port,          NULL
	};

	(void)snprintf(port, sizeof(port), "%u", fx->port);
	fx->metad = processes_metad(&fx->ps, "s", args);
}

static void start_node(struct fixture *fx, uint32_t n)
{
	static const char *const args[] = { "--size", "64M", NULL };
	char name[8];

	snprintf(name, sizeof(name), "%u", n);
	fx->nodes[n] = processes_memnode(&fx->ps, "s", name, args);
}

static struct rlv_store_info store_info(struct fixture *fx)
{
	struct rlv_store_info info = { .size = sizeof(info) };

	must(rlv_store_info(fx->store, &info), "info");
	return info;
}

static struct rlv_node_info node_info(struct fixture *fx, uint32_t n)
{
	char name[8];

	snprintf(name, sizeof(name), "%u", n);
	return store_node_named(fx->store, name);
}

struct node_wish {
	struct fixture *fx;
	uint32_t n, state;
};

static bool is_in_state(void *ctx)
{
	const struct node_wish *wish = ctx;

	return node_info(wish->fx, wish->n).state == wish->state;
}

static void await_node(struct fixture *fx, uint32_t n, uint32_t state)
{
	struct node_wish wish = { fx, n, state };

	if (!processes_until(is_in_state, &wish))
		fail_msg("node %u is in state %u, not %u", n, node_info(fx, n).state, state);
}

/* -------- table -------- */

static void open_handles(struct fixture *fx)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;

	opts.gamma = 1;
	must(rlv_writer_open(fx->table, NULL, &fx->writer), "writer");
	must(rlv_sampler_open(fx->table, &opts, &fx->sampler), "sampler");
}

static int create_as(struct rlv_store *store, const char *name, uint32_t shards, uint64_t capacity,
		     struct rlv_table **table_out)
{
	struct rlv_table_opts opts = crash_table_opts(capacity);

	opts.shards = shards;
	opts.max_writers = 2;
	opts.max_clients = MAX_CLIENTS;
	return rlv_table_create(store, name, &opts, table_out);
}

static int create(struct rlv_store *store, uint32_t shards, uint64_t capacity,
		  struct rlv_table **table_out)
{
	return create_as(store, "t", shards, capacity, table_out);
}

static void make_table(struct fixture *fx, uint32_t shards, uint64_t capacity)
{
	must(create(fx->store, shards, capacity, &fx->table), "create");
	open_handles(fx);
}

static void append(struct fixture *fx, uint32_t times)
{
	for (uint32_t i = 0; i < times; i++) {
		crash_rows_fill(&fx->rows, 1, fx->step, STEPS);
		fx->step += STEPS;
		must(rlv_writer_append(fx->writer, 0, &fx->rows.steps, NULL), "append");
	}
}

static void sample_of(struct fixture *fx, uint32_t n, uint32_t times)
{
	for (uint32_t i = 0; i < times; i++) {
		const struct rlv_batch *batch;
		char why[CRASH_WHY];

		must(rlv_sampler_sample(fx->sampler, n, 5000 * MS, &batch), "sample");
		if (crash_batch_check(batch, why))
			fail_msg("%s", why);
		rlv_batch_release(fx->sampler, batch);
	}
}

static void sample(struct fixture *fx, uint32_t times)
{
	sample_of(fx, 64, times);
}

static void close_handles(struct fixture *fx)
{
	must(rlv_sampler_close(&fx->sampler), "close the sampler");
	must(rlv_writer_close(&fx->writer), "close the writer");
}

static struct rlv_table_info table_info(struct rlv_table *table)
{
	struct rlv_table_info info = { .size = sizeof(info) };

	must(rlv_table_info(table, &info), "info of the table");
	return info;
}

struct sound {
	struct rlv_table *table;
	struct rlv_verify_report report;
};

static bool is_sound(void *ctx)
{
	struct sound *sound = ctx;

	sound->report.size = sizeof(sound->report);
	must(rlv_table_verify(sound->table, &sound->report), "verify");
	return sound->report.problems == 0;
}

/* Over a wire the last additions to sums may be on their way. */
static void expect_sound(struct rlv_table *table)
{
	struct sound sound = { .table = table };

	if (!processes_until(is_sound, &sound))
		fail_msg("%u problems: %s", sound.report.problems, sound.report.first_problem);
}

/* Number of shards in that state on node n (MAX_NODES = any), as a new client sees it. */
static uint32_t shards_in(struct fixture *fx, uint32_t state, uint32_t n)
{
	static struct rlv_shard_info shards[64];
	struct rlv_store *store = NULL;
	struct rlv_table *table = NULL;
	size_t count = ARRAY_LEN(shards);
	uint32_t found = 0;
	char name[8];

	(void)fx;
	snprintf(name, sizeof(name), "%u", n);
	must(rlv_store_open("shm:s", NULL, &store), "open as another");
	must(rlv_table_open(store, "t", &table), "open the table as another");
	must(rlv_table_shards(table, shards, sizeof(shards[0]), &count), "shards");
	for (size_t i = 0; i < count; i++)
		found += shards[i].state == state &&
			 (n == MAX_NODES || strcmp(shards[i].node, name) == 0);
	must(rlv_table_close(&table), "close as another");
	must(rlv_store_close(&store), "close as another");
	return found;
}

struct shard_wish {
	struct fixture *fx;
	uint32_t state, n, count;
};

static bool are_there(void *ctx)
{
	const struct shard_wish *wish = ctx;

	return shards_in(wish->fx, wish->state, wish->n) == wish->count;
}

static void await_shards(struct fixture *fx, uint32_t count, uint32_t state, uint32_t n)
{
	struct shard_wish wish = { fx, state, n, count };

	if (!processes_until(are_there, &wish))
		fail_msg("%u shards in state %u on node %u, not %u", shards_in(fx, state, n), state,
			 n, count);
}

/* -------- fixture -------- */

static int setup(void **state)
{
	static struct fixture fx;

	memset(&fx, 0, sizeof(fx));
	processes_init(&fx.ps);
	fx.port = processes_free_port();
	start_metad(&fx, NODE_LEASE);
	must(rlv_store_open("shm:s", NULL, &fx.store), "open");
	*state = &fx;
	return 0;
}

static void start_nodes(struct fixture *fx, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		start_node(fx, i);
		await_node(fx, i, RLV_NODE_UP);
	}
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	if (fx->sampler)
		(void)!rlv_sampler_close(&fx->sampler);
	if (fx->writer)
		(void)!rlv_writer_close(&fx->writer);
	(void)!rlv_table_close(&fx->table);
	(void)!rlv_store_close(&fx->store);
	processes_fini(&fx->ps);
	return 0;
}

#define CASE(f) TEST_WITH(f, setup, teardown)

/* -------- placement -------- */

CASE(table_create__shards_are_spread)
{
	struct fixture *fx = *state;

	start_nodes(fx, 3);
	make_table(fx, 6, 12288);
	for (uint32_t n = 0; n < 3; n++) {
		assert_int_equal(shards_in(fx, RLV_SHARD_ACTIVE, n), 2);
		assert_int_equal(node_info(fx, n).shards, 2);
	}
	append(fx, 20);
	sample(fx, 5);
	expect_sound(fx->table);
}

CASE(table_create__auto_is_one_shard_for_each_node)
{
	struct fixture *fx = *state;
	struct rlv_table *again = NULL;
	struct rlv_table_opts opts = crash_table_opts(12288);

	start_nodes(fx, 3);
	make_table(fx, RLV_SHARDS_AUTO, 12288);
	assert_int_equal(table_info(fx->table).shards, 3);
	/* The same wish finds it, however many shards it came to. */
	opts.shards = RLV_SHARDS_AUTO;
	opts.max_writers = 2;
	opts.max_clients = MAX_CLIENTS;
	must(rlv_table_create(fx->store, "t", &opts, &again), "create again");
	must(rlv_table_close(&again), "close");
}

/* -------- a node dies -------- */

CASE(memnode__killed_and_the_table_stays_open)
{
	struct fixture *fx = *state;

	start_nodes(fx, 3);
	make_table(fx, 3, 12288);
	append(fx, 20);
	processes_kill(&fx->ps, fx->nodes[1], SIGKILL);
	await_node(fx, 1, RLV_NODE_DOWN);
	assert_int_equal(shards_in(fx, RLV_SHARD_DOWN, 1), 1);
	assert_int_equal(shards_in(fx, RLV_SHARD_ACTIVE, MAX_NODES), 2);
	append(fx, 5);
	sample(fx, 5);
	await_node(fx, 1, RLV_NODE_LOST);
	await_shards(fx, 1, RLV_SHARD_LOST, 1);
	append(fx, 5);
	sample(fx, 5);
	expect_sound(fx->table);
}

CASE(memnode__killed_and_another_life_begins_empty)
{
	struct fixture *fx = *state;

	start_nodes(fx, 3);
	make_table(fx, RLV_SHARDS_AUTO, 12288);
	append(fx, 20);
	processes_kill(&fx->ps, fx->nodes[1], SIGKILL);
	start_node(fx, 1);
	await_node(fx, 1, RLV_NODE_UP);
	await_shards(fx, 1, RLV_SHARD_LOST, 1);
	await_shards(fx, 1, RLV_SHARD_ACTIVE, 1); /* its share, with a new number */
	append(fx, 20);
	sample(fx, 5);
	expect_sound(fx->table);
}

CASE(memnode__lost_at_once_by_hand)
{
	struct fixture *fx = *state;

	start_nodes(fx, 2);
	make_table(fx, 2, 8192);
	assert_int_equal(rlv_store_drop_node(fx->store, "0"), -EBUSY);
	assert_int_equal(rlv_store_drop_node(fx->store, "nobody"), -ENOENT);
	processes_kill(&fx->ps, fx->nodes[0], SIGKILL);
	await_node(fx, 0, RLV_NODE_DOWN);
	must(rlv_store_drop_node(fx->store, "0"), "drop");
	assert_int_equal(node_info(fx, 0).state, RLV_NODE_LOST);
	assert_int_equal(shards_in(fx, RLV_SHARD_LOST, 0), 1);
}

/*
 * The server restarts while a node is away and cannot be asked: a client that opens and closes
 * handles all the time reuses the same slots.
 */
CASE(sampler__opened_and_closed_while_a_node_is_away)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct fixture *fx = *state;

	opts.gamma = 1;
	start_nodes(fx, 2);
	make_table(fx, 2, 8192);
	append(fx, 20);
	processes_kill(&fx->ps, fx->nodes[1], SIGKILL);
	processes_kill(&fx->ps, fx->metad, SIGKILL);
	start_metad(fx, NODE_LEASE);
	await_node(fx, 0, RLV_NODE_UP);
	for (uint32_t i = 0; i < 3 * MAX_CLIENTS; i++) {
		struct rlv_sampler *sampler = NULL;

		must(rlv_sampler_open(fx->table, &opts, &sampler), "open a sampler");
		must(rlv_sampler_close(&sampler), "close it");
	}
	assert_int_not_equal(node_info(fx, 1).state, RLV_NODE_UP);
	append(fx, 5);
	sample(fx, 5);
}

static bool page_has(void *ctx)
{
	const struct fixture *fx = ctx;

	return sockets_metrics_have(fx->port, fx->line);
}

/* The server reads the counts once a second. */
static void await_reading(struct fixture *fx, uint64_t inserted)
{
	(void)snprintf(fx->line, sizeof(fx->line),
		       "relive_items_inserted_total{table=\"t\",view=\"0\"} %llu\n",
		       (unsigned long long)inserted);
	if (!processes_until(page_has, fx))
		fail_msg("the metrics have no %s", fx->line);
}

/* Shard 0 keeps the limiter's counts: another shard continues from its last reading. */
CASE(memnode__killed_with_the_control_shard)
{
	struct fixture *fx = *state;
	uint64_t inserted;

	start_nodes(fx, 3);
	make_table(fx, 3, 12288);
	assert_int_equal(table_info(fx->table).control, 0);
	append(fx, 20);
	inserted = table_info(fx->table).views[0].inserted;
	assert_true(inserted > 0);
	await_reading(fx, inserted);
	processes_kill(&fx->ps, fx->nodes[0], SIGKILL);
	await_shards(fx, 1, RLV_SHARD_LOST, 0);
	append(fx, 5);
	sample(fx, 5);
	close_handles(fx);
	must(rlv_table_close(&fx->table), "close");
	must(rlv_table_open(fx->store, "t", &fx->table), "open again");
	assert_int_equal(table_info(fx->table).control, 1);
	assert_true(table_info(fx->table).views[0].inserted >= inserted);
	open_handles(fx);
	sample(fx, 5);
}

/* -------- a node is stopped -------- */

/* The node is busy, and not silent for longer than its lease: its client waits, and gives up. */
CASE(table_create__a_node_at_work_holds_nobody_else_up)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	struct rlv_store *impatient = NULL;
	struct rlv_table *table = NULL;
	struct fixture *fx = *state;

	start_nodes(fx, 1);
	processes_kill(&fx->ps, fx->metad, SIGKILL);
	start_metad(fx, "60");
	await_node(fx, 0, RLV_NODE_UP);
	kill(fx->nodes[0], SIGSTOP);
	opts.timeout_ns = 2000 * MS;
	must(rlv_store_open("shm:s", &opts, &impatient), "open");
	assert_int_equal(create(impatient, 2, 4096, &table), -ETIMEDOUT);
	must(rlv_store_close(&impatient), "close");
	assert_int_equal(store_info(fx).n_tables,
			 0); /* in its own time, much less than the lease */
	kill(fx->nodes[0], SIGCONT);
	make_table(fx, 2, 4096);
	append(fx, 1);
}

/* The fastest of some openings by a client that has a minute: a busy host may hold any of them up. */
static void expect_open_within(uint32_t times, uint64_t limit_ns)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	struct rlv_store *store = NULL;
	uint64_t least = UINT64_MAX;

	opts.timeout_ns = 60000 * MS;
	must(rlv_store_open("shm:s", &opts, &store), "open");
	for (uint32_t i = 0; i < times; i++) {
		uint64_t begin = clock_now_ns(clock_monotonic());
		struct rlv_table *table = NULL;

		must(rlv_table_open(store, "t", &table), "open while a node is stopped");
		least = min_u64(least, clock_now_ns(clock_monotonic()) - begin);
		must(rlv_table_close(&table), "close");
	}
	must(rlv_store_close(&store), "close");
	if (least > limit_ns)
		fail_msg("opening took %llu ms", (unsigned long long)(least / MS));
}

/* Other clients are served within the node's lease, 2 s, and at once when it is known to be down. */
CASE(memnode__stopped_holds_nobody_up)
{
	struct fixture *fx = *state;
	uint64_t items;

	start_nodes(fx, 3);
	make_table(fx, 3, 12288);
	append(fx, 20);
	items = (uint64_t)table_info(fx->table).views[0].items;
	kill(fx->nodes[2], SIGSTOP);
	expect_open_within(1, 30000 * MS);
	await_node(fx, 2, RLV_NODE_DOWN);
	expect_open_within(10, 1000 * MS);
	assert_int_equal(shards_in(fx, RLV_SHARD_DOWN, 2), 1);
	kill(fx->nodes[2], SIGCONT);
	await_node(fx, 2, RLV_NODE_UP);
	await_shards(fx, 3, RLV_SHARD_ACTIVE, MAX_NODES);
	close_handles(fx);
	must(rlv_table_close(&fx->table), "close");
	must(rlv_table_open(fx->store, "t", &fx->table), "open again");
	assert_true((uint64_t)table_info(fx->table).views[0].items >= items);
	expect_sound(fx->table);
	open_handles(fx);
}

/* -------- nodes join and leave -------- */

static uint64_t newest_layout(struct fixture *fx)
{
	return atomic_load(&fx->store->meta->layout);
}

static void append_for(struct fixture *fx, uint64_t ns)
{
	uint64_t end = clock_now_ns(clock_monotonic()) + ns;

	while (clock_now_ns(clock_monotonic()) < end)
		append(fx, 1);
}

/* A client that learns of a newer layout requests that of its table only. */
CASE(calls__ask_the_server_once_when_another_table_changes)
{
	struct fixture *fx = *state;
	struct rlv_table *other = NULL;
	uint32_t asked, round = 0;

	start_nodes(fx, 2);
	make_table(fx, 2, 12288);
	do { /* until it knows the newest layout */
		asked = fx->writer->h.set.questions;
		append_for(fx, 500 * MS);
	} while (fx->writer->h.set.questions != asked && ++round < ROUNDS);
	assert_int_equal(fx->writer->h.set.questions, asked);
	for (uint32_t i = 0; i < 3; i++) {
		uint64_t before = newest_layout(fx);

		must(create_as(fx->store, "other", 2, 4096, &other), "create another");
		must(rlv_table_close(&other), "close");
		must(rlv_table_drop(fx->store, "other"), "drop");
		assert_true(newest_layout(fx) > before);
		append_for(fx, 1000 * MS);
	}
	assert_in_range(fx->writer->h.set.questions, asked + 1, asked + 2 * 3);
}

CASE(memnode__that_joins_gets_its_share)
{
	struct fixture *fx = *state;

	start_nodes(fx, 2);
	make_table(fx, RLV_SHARDS_AUTO, 8192);
	append(fx, 20);
	start_node(fx, 2);
	await_shards(fx, 1, RLV_SHARD_ACTIVE, 2);
	append(fx, 40);
	sample(fx, 5);
	expect_sound(fx->table);
	assert_int_equal(shards_in(fx, RLV_SHARD_ACTIVE, MAX_NODES), 3);
}

CASE(table_rebalance__moves_shards_to_an_empty_node)
{
	struct fixture *fx = *state;
	uint32_t added = 0, draining = 0;

	start_nodes(fx, 2);
	make_table(fx, 4, 8192);
	start_node(fx, 2);
	await_node(fx, 2, RLV_NODE_UP);
	assert_int_equal(shards_in(fx, RLV_SHARD_ACTIVE, 2), 0);
	must(rlv_table_rebalance(fx->store, "t", &added, &draining), "rebalance");
	assert_int_equal(added, 1);
	assert_int_equal(draining, 1);
	assert_int_equal(shards_in(fx, RLV_SHARD_ACTIVE, 2), 1);
	must(rlv_table_rebalance(fx->store, "t", &added, &draining), "rebalance again");
	assert_int_equal(added, 0);
	await_shards(fx, 1, RLV_SHARD_GONE, MAX_NODES); /* it held nothing */
	append(fx, 40);
	sample(fx, 5);
	expect_sound(fx->table);
}

static bool is_empty(void *ctx)
{
	struct rlv_drain_info info = { .size = sizeof(info) };
	struct fixture *fx = ctx;

	append(fx, 1);
	must(rlv_store_drain_node(fx->store, "0", &info), "drain");
	return info.shards == 0;
}

/* Nothing is lost: later batches are intact, and the limiter has counted everything. */
CASE(memnode__drained_under_load_may_be_stopped)
{
	struct fixture *fx = *state;
	uint64_t inserted;

	start_nodes(fx, 2);
	make_table(fx, 2, 8192);
	append(fx, 30);
	if (!processes_until(is_empty, fx))
		fail_msg("node 0 is not empty: its shards %u", node_info(fx, 0).shards);
	assert_int_equal(node_info(fx, 0).state, RLV_NODE_DRAINING);
	processes_kill(&fx->ps, fx->nodes[0], SIGTERM);
	append(fx, 10);
	sample(fx, 5);
	expect_sound(fx->table);
	inserted = table_info(fx->table).views[0].inserted;
	/* Two writers' windows at most are not complete yet. */
	assert_in_range(inserted, fx->step / CRASH_EPISODE * (CRASH_EPISODE - CRASH_FUTURE) - 64,
			fx->step);
}

CASE(memnode__the_only_one_cannot_be_drained)
{
	struct rlv_drain_info info = { .size = sizeof(info) };
	struct fixture *fx = *state;

	start_nodes(fx, 1);
	make_table(fx, 1, 4096);
	assert_int_equal(rlv_store_drain_node(fx->store, "0", &info), -EHOSTDOWN);
	assert_int_equal(node_info(fx, 0).state, RLV_NODE_UP);
	append(fx, 1);
}

/* -------- persist -------- */

/* Regions of a node that is down may not be durable; those of a lost node need not be. */
CASE(store_persist__needs_every_node_that_is_not_lost)
{
	struct fixture *fx = *state;

	start_nodes(fx, 3);
	make_table(fx, 3, 12288);
	must(rlv_store_persist(fx->store), "persist");
	processes_kill(&fx->ps, fx->nodes[1], SIGKILL);
	await_node(fx, 1, RLV_NODE_DOWN);
	assert_int_equal(rlv_store_persist(fx->store), -EHOSTDOWN);
	assert_non_null(strstr(rlv_last_error(), "1"));
	must(rlv_store_drop_node(fx->store, "1"), "drop");
	must(rlv_store_persist(fx->store), "persist over the rest");
}

/* -------- the server restarts -------- */

CASE(metad__restarted_knows_what_is_lost_and_what_drains)
{
	struct rlv_drain_info info = { .size = sizeof(info) };
	struct fixture *fx = *state;

	start_nodes(fx, 3);
	make_table(fx, 3, 12288);
	append(fx, 20);
	processes_kill(&fx->ps, fx->nodes[1], SIGKILL);
	await_node(fx, 1, RLV_NODE_LOST);
	must(rlv_store_drain_node(fx->store, "2", &info), "drain");
	processes_kill(&fx->ps, fx->metad, SIGKILL);
	start_metad(fx, NODE_LEASE);
	await_node(fx, 2, RLV_NODE_DRAINING);
	await_node(fx, 0, RLV_NODE_UP);
	assert_int_equal(shards_in(fx, RLV_SHARD_LOST, 1), 1);
	append(fx, 20);
	sample(fx, 5);
	expect_sound(fx->table);
}

/* -------- the agent -------- */

static struct rlv_node_info after_a_ping(struct fixture *fx)
{
	processes_sleep_ns(1200 * MS); /* two */
	return node_info(fx, 0);
}

/*
 * A memory node is passive: its agent sleeps during appends and samples. One that was woken by each would need more than a
 * microsecond of them; what a host that stops and continues it takes is less.
 */
CASE(memnode__data_operations_cost_its_agent_nothing)
{
	enum { APPENDS = 200, SAMPLES = 800 };
	const uint64_t most = (APPENDS + SAMPLES) * CLOCK_NS_PER_US;
	struct rlv_node_info before, after;
	struct fixture *fx = *state;
	uint32_t round = 0;

	if (getenv("RLV_TEST_TRANSPORT")) {
		print_message("a node is passive over shm, not over each transport\n");
		skip();
	}
	start_nodes(fx, 1);
	make_table(fx, 1, 8192);
	append(fx, 8);
	after = after_a_ping(fx);
	do { /* a ping that comes late on a busy host tells of what was before */
		before = after;
		append(fx, APPENDS);
		sample(fx, SAMPLES);
		after = after_a_ping(fx);
	} while (after.agent_cpu_ns - before.agent_cpu_ns > most && ++round < ROUNDS);
	assert_true(before.agent_cpu_ns > 0); /* it has let us in */
	assert_true(after.agent_cpu_ns - before.agent_cpu_ns <= most);
	assert_string_equal(after.transport, "shm");
	assert_true(after.clients > 0);
}

/* Lists that the node's agent has carried out. */
static uint64_t lists_of(struct rlv_node_info node)
{
	for (uint32_t i = 0; i < node.n_gauges; i++)
		if (strcmp(node.gauges[i].name, "lists") == 0)
			return node.gauges[i].value;
	fail_msg("node %s has no gauge lists", node.name);
	return 0;
}

/* Clients come over the network from now on, as those of other hosts do. */
static void hide_sockets(struct fixture *fx, uint32_t nodes)
{
	char name[32], path[PROCESSES_PATH + 64];

	for (uint32_t i = 0; i < nodes; i++) {
		snprintf(name, sizeof(name), "s/memnode-%u.sock", i);
		processes_path(&fx->ps, name, path);
		assert_int_equal(unlink(path), 0);
	}
}

/* Samples whose counts wait are fewer than those that are counted at once. */
#define LISTED 8u

/* Whatever the batch reads of a node in one round trip is one list. The server may be at work, too. */
CASE(sample__is_a_list_for_each_node_and_round_trip)
{
	enum { NODES = 3, BATCH = 1024 };
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_stats before = { .size = sizeof(before) }, after = before;
	uint64_t lists[NODES], phases;
	struct fixture *fx = *state;
	uint32_t round = 0;
	bool is_exact;

	if (!getenv("RLV_TEST_TRANSPORT")) {
		print_message("there are lists over ofi only\n");
		skip();
	}
	start_nodes(fx, NODES);
	make_table(fx, NODES, 1 << 16);
	append(fx, 60);
	must(rlv_sampler_close(&fx->sampler), "close the sampler");
	hide_sockets(fx, NODES);
	opts.batch_size = BATCH;
	opts.gamma = 1;
	must(rlv_sampler_open(fx->table, &opts, &fx->sampler), "sampler");
	do {
		sample_of(fx, BATCH, 1);
		must(rlv_sampler_flush(fx->sampler), "flush");
		(void)after_a_ping(fx);
		must(rlv_sampler_stats(fx->sampler, &before), "stats");
		for (uint32_t i = 0; i < NODES; i++)
			lists[i] = lists_of(node_info(fx, i));
		sample_of(fx, BATCH, LISTED);
		must(rlv_sampler_stats(fx->sampler, &after), "stats");
		phases = after.phases - before.phases;
		(void)after_a_ping(fx);
		is_exact = true;
		for (uint32_t i = 0; i < NODES; i++) {
			lists[i] = lists_of(node_info(fx, i)) - lists[i];
			is_exact &= lists[i] == phases;
		}
	} while (!is_exact && ++round < ROUNDS);
	print_message("%u samples: %llu round trips; lists %llu %llu %llu\n", LISTED,
		      (unsigned long long)phases, (unsigned long long)lists[0],
		      (unsigned long long)lists[1], (unsigned long long)lists[2]);
	assert_true(is_exact);
}

int main(void)
{
	return test_run(NULL, NULL);
}
