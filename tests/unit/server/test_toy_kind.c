/*
 * The catalog with a kind of objects that is not in the tree: placed on three nodes beside a table,
 * with clients, nodes and servers that die, over real pools. The clients are processes, and reach
 * its parts through grants as those of tables do.
 */
#include "tests/support/fixture/fleet.h"
#include "tests/support/toy_kind/toy_kind.h"

#include "tests/support/test.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ds/part/slot.h"

#define CLIENT_ID UINT64_C(77)

static void must(int ret)
{
	if (ret)
		fail_msg("%s", error_last());
}

static int setup(void **state)
{
	object_kind_register(&kind_toy);
	return fleet_setup(state);
}

static struct catalog_object *create(struct fleet *fx, uint32_t n_parts)
{
	struct catalog_object *toy = NULL;
	int ret;

	while ((ret = toy_create(&fx->cat, "c", n_parts, &toy)) == -EAGAIN)
		fleet_settle(fx);
	must(ret);
	fx->table = toy;
	return toy;
}

static struct catalog_object *start(struct fleet *fx)
{
	for (uint32_t n = 0; n < FLEET_NODES; n++)
		fleet_start(fx, n);
	return create(fx, FLEET_NODES);
}

static uint64_t count(const struct catalog_object *toy, uint32_t s)
{
	uint64_t n = 0;

	assert_non_null(toy->attached[s]);
	must(toy_count(toy->attached[s], &n));
	return n;
}

/* By a client that needs no process: the server's attachment. */
static void add(const struct catalog_object *toy, uint32_t s, uint64_t n)
{
	must(toy_begin(toy->attached[s], 1, n));
	must(toy_end(toy->attached[s], 1));
}

/* -------- a client in a process of its own -------- */

struct client {
	struct slot_holder holder;
	uint32_t owner;
	struct catalog_grants grants[FLEET_NODES];
	const char *uris[FLEET_NODES];
};

static int attach_part(const struct catalog_object *toy, const struct client *client, uint32_t s,
		       struct part **part_out)
{
	const struct transport_opts opts = { .client_id = CLIENT_ID };
	struct part_regions regions = { .owner = client->owner };
	struct transport *tr;
	int ret = transport_open(client->uris[s], &opts, &tr);

	for (uint32_t at = REGION_TREE; ret == 0 && at < PART_PLACES; at++)
		if (client->grants[s].places[at].bytes)
			ret = transport_attach(tr, &client->grants[s].places[at], &regions.at[at]);
	return ret ? ret : toy_part_open(toy->desc, s, &regions, part_out);
}

/* Adds 3 to each part, opens a count of 1000 in each, and says so. */
static int run_client(const struct catalog_object *toy, const struct client *client, int done)
{
	for (uint32_t s = 0; s < FLEET_NODES; s++) {
		struct part *part;
		int ret = attach_part(toy, client, s, &part);

		if (ret == 0)
			ret = toy_begin(part, client->owner, 3);
		if (ret == 0)
			ret = toy_end(part, client->owner);
		if (ret == 0)
			ret = toy_begin(part, client->owner, 1000);
		if (ret)
			return 1;
	}
	return write(done, "x", 1) == 1 ? 0 : 1;
}

static void get_grants(struct fleet *fx, struct client *client)
{
	const struct catalog_guest guest = { CLIENT_ID, CLIENT_ID, PART_WRITES, client->owner };

	for (uint32_t s = 0; s < FLEET_NODES; s++) {
		must(fleet_grant(fx, s, &guest, &client->grants[s]));
		client->uris[s] = catalog_part_uri(fx->table, s);
	}
}

/* Runs the client until its counts are open, and kills it there. */
static void run_and_kill(const struct catalog_object *toy, struct client *client)
{
	int done[2], status;
	char byte;
	pid_t pid;

	assert_int_equal(pipe(done), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		close(done[0]);
		if (run_client(toy, client, done[1]) == 0)
			for (;;)
				pause();
		fprintf(stderr, "client: %s\n", error_last());
		_exit(1);
	}
	close(done[1]);
	assert_int_equal(read(done[0], &byte, 1), 1); /* 0: it ended before */
	close(done[0]);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
}

static bool is_proved(void *ctx, uint32_t part)
{
	(void)ctx;
	(void)part;
	return true; /* waitpid said so */
}

#define CASE(f) TEST_WITH(f, setup, fleet_teardown)

/* -------- tests -------- */

CASE(toy__is_placed_on_three_nodes_beside_a_table)
{
	struct fleet *fx = *state;
	struct catalog_object *toy = start(fx), *again = NULL;

	assert_int_equal(toy->n_parts, FLEET_NODES);
	for (uint32_t s = 0; s < FLEET_NODES; s++) {
		assert_int_equal(fleet_view(fx, s), PART_ACTIVE);
		assert_int_equal(catalog_parts_of(&fx->cat, fx->node[s], NULL), 1);
	}
	must(toy_create(&fx->cat, "c", FLEET_NODES, &again));
	assert_ptr_equal(again, toy);
	assert_int_equal(toy_create(&fx->cat, "c", 2, &again), -EEXIST);
	fleet_make_table(fx, 2, false);
	assert_int_not_equal(fx->table->id, toy->id);
	assert_int_equal(catalog_count(&fx->cat, &kind_toy), 1);
	must(catalog_drop(&fx->cat, toy));
	fleet_settle(fx);
	assert_int_equal(catalog_count(&fx->cat, &kind_toy), 0);
	assert_non_null(catalog_find(&fx->cat, "t"));
}

CASE(toy__the_next_server_finds_it)
{
	struct fleet *fx = *state;
	struct catalog_object *toy = start(fx);

	add(toy, 1, 5);
	for (uint32_t n = 0; n < FLEET_NODES; n++)
		memory_node_hang_up(&fx->mem[n]);
	catalog_fini(&fx->cat);
	nodes_fini(&fx->nodes);
	fleet_load(fx);
	toy = fx->table = catalog_find(&fx->cat, "c");
	assert_non_null(toy);
	assert_ptr_equal(toy->kind, &kind_toy);
	for (uint32_t n = 0; n < FLEET_NODES; n++)
		fleet_join(fx, n);
	assert_int_equal(fleet_view(fx, 1), PART_ACTIVE);
	assert_int_equal(count(toy, 1), 5);
}

CASE(toy__a_killed_client_is_settled)
{
	struct fleet *fx = *state;
	struct catalog_object *toy = start(fx);
	struct client client = { .holder = { .client_id = CLIENT_ID } };
	struct slots_dead dead = { CLIENT_ID, is_proved, NULL };
	bool drift, is_open;

	must(slots_get(&toy->slots, &client.holder, 1, &client.owner));
	get_grants(fx, &client);
	run_and_kill(toy, &client);
	for (uint32_t s = 0; s < FLEET_NODES; s++) {
		must(kind_toy.is_open(toy->attached[s], &is_open));
		assert_true(is_open);
	}
	must(slots_settle(&toy->slots, &dead, &drift));
	assert_false(slots_any(&toy->slots, CLIENT_ID));
	for (uint32_t s = 0; s < FLEET_NODES; s++) {
		struct slot_info info;

		must(slot_read(toy->attached[s], client.owner - 1, &info));
		assert_int_equal(info.state, SLOT_FREE);
		must(kind_toy.is_open(toy->attached[s], &is_open));
		assert_false(is_open);
		assert_int_equal(count(toy, s), 3);
	}
}

CASE(toy__a_killed_node_loses_its_part_alone)
{
	struct fleet *fx = *state;
	struct catalog_object *toy = start(fx);

	add(toy, 0, 7);
	fleet_go_down(fx, 1);
	fleet_tick(fx, 1);
	assert_int_equal(fleet_view(fx, 1), PART_DOWN);
	memory_node_close(&fx->mem[1]);
	fleet_start(fx, 1); /* with an empty memory */
	assert_int_equal(fleet_view(fx, 1), PART_LOST);
	assert_int_equal(fleet_view(fx, 0), PART_ACTIVE);
	assert_int_equal(count(toy, 0), 7);
	catalog_spread_soon(toy);
	for (int i = 0; i < 4; i++)
		fleet_tick(fx, (uint64_t)CLOCK_NS_PER_S);
	assert_int_equal(toy->n_parts, 4); /* its successor */
	assert_int_equal(fleet_view(fx, 3), PART_ACTIVE);
	add(toy, 3, 1);
	assert_int_equal(count(toy, 3), 1);
}

CASE(toy__a_node_is_drained_when_others_counted_as_much)
{
	struct fleet *fx = *state;
	struct catalog_object *toy = start(fx);

	add(toy, 1, 10);
	must(nodes_set_draining(&fx->nodes, fx->node[1], true));
	catalog_spread_soon(toy);
	for (int i = 0; i < 4; i++)
		fleet_tick(fx, (uint64_t)CLOCK_NS_PER_S);
	assert_int_equal(fleet_view(fx, 1), PART_DRAINING);
	assert_int_equal(fleet_view(fx, 3), PART_ACTIVE);
	must(toy_begin(toy->attached[1], 2, 1));
	add(toy, 3, 9);
	fleet_tick(fx, (uint64_t)CLOCK_NS_PER_S);
	add(toy, 0, 1);
	fleet_tick(fx, (uint64_t)CLOCK_NS_PER_S);
	assert_int_equal(fleet_view(fx, 1), PART_DRAINING);
	must(toy_end(toy->attached[1], 2)); /* the last count that was open there */
	for (int i = 0; i < 4; i++)
		fleet_tick(fx, (uint64_t)CLOCK_NS_PER_S);
	assert_int_equal(fleet_view(fx, 1), PART_GONE);
	assert_int_equal(catalog_parts_of(&fx->cat, fx->node[1], NULL), 0);
	assert_int_equal(count(toy, 3), 9);
}

int main(void)
{
	if (test_skips_msan("SQLite") || test_skips_valgrind("pidfds"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
