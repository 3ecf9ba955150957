/*
 * A kind of objects that is not in the tree, in real processes: a metadata server that registers it,
 * memory nodes as they are, and clients with the library's part_set. No line outside tests/support/toy_kind
 * knows it.
 */
#include "tests/support/processes.h"
#include "tests/support/toy_kind/toy_kind.h"
#include "tests/support/must_internal.h"

#include "client/part/part_set.h"
#include "client/store/uri.h"
#include "server/metad/metad.h"

#include "relive/admin.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define STORE "s"
#define NODES 3u

struct fixture {
	struct processes ps;
	pid_t metad, nodes[NODES], client;
	struct meta *meta;
	int said[2];
};

/* -------- daemons -------- */

static int serve(void *ctx)
{
	const struct metad_opts opts = {
		.store = STORE,
		.lease_ns = CLOCK_NS_PER_S,
		.ramp_ns = 1,
	};
	struct metad *md = NULL;
	int ret;

	(void)ctx;
	signal(SIGPIPE, SIG_IGN);
	object_kind_register(&kind_toy);
	ret = metad_open(&opts, &md);
	if (ret == 0)
		ret = metad_run(md);
	if (ret)
		fprintf(stderr, "server: %s\n", error_last());
	metad_close(&md);
	return ret != 0;
}

static const struct meta_object toy_name = { .kind = OBJECT_TOY, .name = "c" };

static int open_store(struct meta **meta_out)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	struct uri uri;

	must(uri_parse("shm:" STORE, &uri));
	opts.timeout_ns = PROCESSES_WAIT_MS * CLOCK_NS_PER_MS;
	return meta_remote_open(&uri, &opts, meta_out);
}

static bool is_open(void *ctx)
{
	struct fixture *fx = ctx;

	return open_store(&fx->meta) == 0;
}

static void start_server(struct fixture *fx)
{
	fx->metad = processes_fork(&fx->ps, serve, NULL);
	if (!processes_until(is_open, fx)) {
		(void)processes_log_has(&fx->ps, fx->metad, "xx");
		fail_msg("%s", error_last());
	}
}

static void kill_server(struct fixture *fx)
{
	fx->meta->ops->close(fx->meta);
	processes_kill(&fx->ps, fx->metad, SIGKILL);
}

static void start_node(struct fixture *fx, uint32_t n, const char *claim)
{
	char name[8], path[PROCESSES_PATH + 64];
	const char *const args[] = { "--file", path, "--size", "32M", claim, NULL };

	snprintf(name, sizeof(name), "n%u", n);
	processes_path(&fx->ps, name, path);
	fx->nodes[n] = processes_memnode(&fx->ps, STORE, name, args);
}

static int setup(void **state)
{
	static struct fixture fx;

	memset(&fx, 0, sizeof(fx));
	processes_init(&fx.ps);
	assert_int_equal(pipe(fx.said), 0);
	start_server(&fx);
	for (uint32_t n = 0; n < NODES; n++)
		start_node(&fx, n, NULL);
	*state = &fx;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	fx->meta->ops->close(fx->meta);
	close(fx->said[0]);
	close(fx->said[1]);
	processes_fini(&fx->ps);
	return 0;
}

/* -------- clients -------- */

static const struct part_kind client_kind = {
	.object = "toy",
	.part = "part",
	.max_parts = OBJECT_MAX_PARTS,
	.open = toy_part_open,
	.close = toy_part_close,
};

/* The toy of the store, as a client has it. */
struct toy {
	struct meta *meta;
	struct meta_opened opened;
	struct part_set set;
	struct meta_slot slot;
};

static int toy_open_set(struct meta *meta, struct toy *toy)
{
	uint64_t deadline = deadline_after(clock_monotonic(), PROCESSES_WAIT_MS * CLOCK_NS_PER_MS);
	struct part_set like = { .meta = meta,
				 .object = toy->opened.object,
				 .kind = &client_kind,
				 .desc = toy->opened.desc,
				 .access = { PART_WRITES, toy->slot.owner } };
	struct meta_opened opened;
	int ret = meta->ops->open(meta, &like.object, &like.access, 0, &opened);

	if (ret)
		return ret;
	ret = part_set_open(&like, &opened.place, deadline, &toy->set);
	meta_opened_fini(&opened);
	return ret;
}

static int toy_join(struct meta *meta, struct toy *toy)
{
	int ret = meta->ops->open(meta, &toy_name, META_LOOKS, 0, &toy->opened);

	toy->meta = meta;
	if (ret)
		return ret;
	ret = meta->ops->slot_get(meta, &toy->opened.object, 1, 0, &toy->slot);
	if (ret == 0) {
		ret = toy_open_set(meta, toy);
		if (ret)
			(void)!meta->ops->slot_put(meta, &toy->opened.object, &toy->slot, 0);
	}
	if (ret)
		meta_opened_fini(&toy->opened);
	return ret;
}

struct joining {
	struct meta *meta;
	struct toy *toy;
};

static bool has_joined(void *ctx)
{
	struct joining *joining = ctx;

	return toy_join(joining->meta, joining->toy) == 0;
}

static void refresh(struct part_set *set)
{
	part_set_begin(set, deadline_after(clock_monotonic(), CLOCK_NS_PER_S), CLOCK_NS_PER_S);
	(void)!part_set_enter(set);
}

static bool has_all_parts(void *ctx)
{
	struct part_set *set = ctx;
	uint32_t n = 0;

	refresh(set);
	while (n < set->n_parts && set->parts[n])
		n++;
	return n == set->n_parts;
}

/* Nodes may be about to register with the server. */
static void join(struct fixture *fx, struct toy *toy)
{
	struct joining joining = { fx->meta, toy };

	if (!processes_until(has_joined, &joining) || !processes_until(has_all_parts, &toy->set))
		fail_msg("%s", error_last());
}

static void toy_leave_it(struct toy *toy)
{
	part_set_close(&toy->set);
	must(toy->meta->ops->slot_put(toy->meta, &toy->opened.object, &toy->slot, 0));
	meta_opened_fini(&toy->opened);
}

static uint64_t counted(struct toy *toy, uint32_t p)
{
	uint64_t n = 0;

	assert_true(p < toy->set.n_parts);
	assert_non_null(toy->set.parts[p]);
	must(toy_count(toy->set.parts[p], &n));
	return n;
}

static void add(struct toy *toy, uint32_t p, uint64_t n)
{
	must(toy_begin(toy->set.parts[p], toy->slot.owner, n));
	must(toy_end(toy->set.parts[p], toy->slot.owner));
}

/* Adds 3 to each part, opens a count in each, says so and is killed. */
static int run_client(void *ctx)
{
	struct fixture *fx = ctx;
	struct meta *meta;
	struct toy toy;
	int ret = open_store(&meta);

	if (ret == 0)
		ret = toy_join(meta, &toy);
	for (uint32_t p = 0; ret == 0 && p < toy.set.n_parts; p++) {
		ret = toy_begin(toy.set.parts[p], toy.slot.owner, 3);
		if (ret == 0)
			ret = toy_end(toy.set.parts[p], toy.slot.owner);
		if (ret == 0)
			ret = toy_begin(toy.set.parts[p], toy.slot.owner, 1000);
	}
	if (ret)
		fprintf(stderr, "client: %s\n", error_last());
	if (ret || write(fx->said[1], "x", 1) != 1)
		return 1;
	for (;;)
		pause();
}

static void create(struct fixture *fx)
{
	const uint32_t n_parts = NODES;
	const struct meta_wish wish = {
		.kind = OBJECT_TOY, .name = "c", .desc = &n_parts, .desc_bytes = sizeof(n_parts)
	};
	struct meta_opened opened;

	must(fx->meta->ops->create(fx->meta, &wish, &opened));
	assert_int_equal(opened.place.n_parts, NODES);
	for (uint32_t p = 0; p < NODES; p++)
		for (uint32_t q = 0; q < p; q++)
			assert_string_not_equal(opened.place.parts[p].node,
						opened.place.parts[q].node);
	meta_opened_fini(&opened);
}

static void run_and_kill_client(struct fixture *fx)
{
	pid_t pid = processes_fork(&fx->ps, run_client, fx);
	char byte;

	assert_int_equal(read(fx->said[0], &byte, 1), 1);
	processes_kill(&fx->ps, pid, SIGKILL);
}

/* -------- tests -------- */

struct look {
	struct fixture *fx;
	struct toy toy;
	uint32_t p, state;
};

static bool is_settled(void *ctx)
{
	struct look *look = ctx;
	bool open = false, any = false;

	for (uint32_t p = 0; p < NODES; p++) {
		must(kind_toy.is_open(look->toy.set.parts[p], &open));
		any |= open;
	}
	return !any;
}

/* As the server says, and a client that has it open. A node that died may still be mapped. */
static bool has_state(void *ctx)
{
	struct look *look = ctx;
	struct part_set *set = &look->toy.set;
	struct meta_opened opened;
	bool has;

	if (look->fx->meta->ops->open(look->fx->meta, &toy_name, META_LOOKS, 0, &opened))
		return false;
	has = opened.place.parts[look->p].state == look->state;
	meta_opened_fini(&opened);
	refresh(set);
	return has && (look->state != RLV_SHARD_ACTIVE || set->parts[look->p]);
}

static void await(struct look *look, uint32_t p, uint32_t state)
{
	look->p = p;
	look->state = state;
	if (!processes_until(has_state, look))
		fail_msg("part %u is not in state %u", p, state);
}

/* Number of the node that has a part. */
static uint32_t node_of(const struct toy *toy, uint32_t p)
{
	return (uint32_t)(toy->set.statuses[p].name[1] - '0');
}

static void kind__survives_a_killed_client_server_and_node(void **state)
{
	struct look look = { .fx = *state };
	struct fixture *fx = *state;
	uint32_t n;

	create(fx);
	run_and_kill_client(fx);
	join(fx, &look.toy);
	assert_true(processes_until(is_settled, &look));
	for (uint32_t p = 0; p < NODES; p++)
		assert_int_equal(counted(&look.toy, p), 3);
	toy_leave_it(&look.toy);

	kill_server(fx);
	start_server(fx);
	join(fx, &look.toy);
	for (uint32_t p = 0; p < NODES; p++)
		assert_int_equal(counted(&look.toy, p), 3);

	n = node_of(&look.toy, 1);
	processes_kill(&fx->ps, fx->nodes[n], SIGKILL);
	await(&look, 1, RLV_SHARD_DOWN);
	add(&look.toy, 0, 1);
	assert_int_equal(counted(&look.toy, 0), 4);
	start_node(fx, n, NULL);
	await(&look, 1, RLV_SHARD_ACTIVE);
	assert_int_equal(counted(&look.toy, 1), 3);
	toy_leave_it(&look.toy);
}

static bool is_drained(void *ctx)
{
	struct look *look = ctx;
	struct rlv_drain_info info = { .size = sizeof(info) };
	int ret;

	for (uint32_t p = 0; p < look->toy.set.n_parts; p++)
		if (look->toy.set.parts[p] && node_of(&look->toy, p) != 1)
			add(&look->toy, p, 5);
	refresh(&look->toy.set);
	ret = look->fx->meta->ops->drain_node(look->fx->meta, "n1", &info);
	if (ret == -EHOSTDOWN) /* the other nodes stood still for a moment */
		return false;
	must(ret);
	return info.shards == 0;
}

static void kind__leaves_a_node_that_is_drained(void **state)
{
	struct look look = { .fx = *state };

	create(look.fx);
	join(look.fx, &look.toy);
	for (uint32_t p = 0; p < NODES; p++)
		add(&look.toy, p, 3);
	assert_true(processes_until(is_drained, &look));
	toy_leave_it(&look.toy);
}

/* All nodes come to a new catalog: one part each is not all of it, so one pool is adopted that has all. */
static void kind__is_adopted_by_a_new_catalog(void **state)
{
	char db[PROCESSES_PATH + 64];
	const uint32_t one = 1;
	const struct meta_wish wish = {
		.kind = OBJECT_TOY, .name = "c", .desc = &one, .desc_bytes = sizeof(one)
	};
	struct fixture *fx = *state;
	struct meta_opened opened;
	uint32_t n = 0;
	struct toy toy;

	must(fx->meta->ops->create(fx->meta, &wish, &opened));
	n = (uint32_t)(opened.place.parts[0].node[1] - '0');
	meta_opened_fini(&opened);
	join(fx, &toy);
	add(&toy, 0, 7);
	toy_leave_it(&toy);
	for (uint32_t i = 0; i < NODES; i++)
		processes_kill(&fx->ps, fx->nodes[i], SIGTERM);
	kill_server(fx);
	processes_path(&fx->ps, STORE "/" STORE ".db", db);
	assert_int_equal(unlink(db), 0);
	start_server(fx);
	assert_int_equal(fx->meta->ops->open(fx->meta, &toy_name, META_LOOKS, 0, &opened), -ENOENT);
	start_node(fx, n, "--adopt");
	join(fx, &toy);
	assert_int_equal(counted(&toy, 0), 7);
	toy_leave_it(&toy);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(kind__survives_a_killed_client_server_and_node),
		CASE(kind__leaves_a_node_that_is_drained),
		CASE(kind__is_adopted_by_a_new_catalog),
	};

	if (test_skips_valgrind("pidfds"))
		return TEST_EXIT_SKIP;
	return TEST_RUN(tests, NULL, NULL);
}
