/*
 * A heap with two copies of each part on three memory nodes, in real processes: a node is lost, its copies are
 * made anew and filled, another one is lost; owners are killed. A node is drained, also of parts without copies.
 */
#include "tests/support/command.h"
#include "tests/support/kv_history.h"
#include "tests/support/must.h"
#include "tests/support/processes.h"
#include "tests/support/store_nodes.h"

#include "relive/admin.h"
#include "relive/weights.h"

#include "base/os/clock.h"
#include "base/rng.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NODES 3u
#define KEYS 60u
#define HOT KV_HISTORY_KEYS

struct fixture {
	struct processes ps;
	struct rlv_store *store;
	struct rlv_kv *kv;
	pid_t metad, nodes[NODES];
	uint32_t lost; /* of the nodes, the last one */
	uint64_t versions[KEYS];
	int ready[2]; /* pipe from a child */
};

static void name_of(uint32_t n, char name[2])
{
	name[0] = (char)('a' + n);
	name[1] = 0;
}

static bool all_are_up(void *arg)
{
	const struct fixture *fx = arg;

	return store_nodes_up(fx->store) == NODES;
}

static const char *lease = "0.3"; /* seconds of a client's */

static void start_metad(struct fixture *fx)
{
	const char *const args[] = { "--lease",      lease, "--node-lost", "0.5",
				     "--node-lease", "10",  NULL };

	fx->metad = processes_metad(&fx->ps, "s", args);
}

static bool has_chunks; /* the heap: only clover's have */

static uint32_t writers;

static int setup_heap(void **state, uint32_t copies, uint32_t mode)
{
	static const char *const size[] = { "--size", "64M", NULL };
	const struct rlv_kv_opts opts = { .size = sizeof(opts),
					  .keys = 1000,
					  .bytes = 16 << 20,
					  .extent_bytes = mode == RLV_KV_CLOVER ? 64 << 10 : 1024,
					  .parts = 2,
					  .max_clients = 8,
					  .mode = mode,
					  .copies = copies,
					  .writers = writers };
	struct rlv_store_opts store = RLV_STORE_OPTS_INIT;
	static struct fixture fixture;
	struct fixture *fx = &fixture;

	memset(fx, 0, sizeof(*fx));
	*state = fx;
	has_chunks = mode == RLV_KV_CLOVER;
	store.timeout_ns = 5 * CLOCK_NS_PER_S;
	processes_init(&fx->ps);
	start_metad(fx);
	for (uint32_t n = 0; n < NODES; n++) {
		char name[2];

		name_of(n, name);
		fx->nodes[n] = processes_memnode(&fx->ps, "s", name, size);
	}
	must(rlv_store_open("shm:s", &store, &fx->store), "rlv_store_open");
	assert_true(processes_until(all_are_up, fx));
	must(rlv_kv_create(fx->store, "h", &opts, &fx->kv), "rlv_kv_create");
	return 0;
}

static int setup(void **state)
{
	return setup_heap(state, 2, RLV_KV_CLOVER);
}

/* A handle that owns parts keeps them, however busy the machine is. */
static int setup_long_lease(void **state)
{
	int ret;

	lease = "5";
	ret = setup(state);
	lease = "0.3";
	return ret;
}

static int setup_writers(void **state)
{
	int ret;

	writers = RLV_KV_MANY_WRITERS;
	ret = setup(state);
	writers = RLV_KV_ONE_WRITER;
	return ret;
}

static int setup_one(void **state)
{
	return setup_heap(state, 1, RLV_KV_CLOVER);
}

static int setup_direct(void **state)
{
	return setup_heap(state, 1, RLV_KV_DIRECT);
}

static int setup_central(void **state)
{
	return setup_heap(state, 1, RLV_KV_CENTRAL);
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	(void)!rlv_kv_close(&fx->kv);
	(void)!rlv_store_close(&fx->store);
	processes_fini(&fx->ps);
	return 0;
}

static struct rlv_bytes key_of(uint32_t i, char text[16])
{
	(void)snprintf(text, 16, "key-%u", i);
	return (struct rlv_bytes){ text, strlen(text) };
}

/* Its key; of every twentieth one, where there are chunks, four that begin with it. */
static struct rlv_bytes value_of(uint32_t i, char text[16])
{
	static uint8_t chunks[200000];
	struct rlv_bytes key = key_of(i, text);

	if (!has_chunks || i % 20 != 19)
		return key;
	memset(chunks, (int)i, sizeof(chunks));
	memcpy(chunks, key.ptr, key.len);
	return (struct rlv_bytes){ chunks, sizeof(chunks) };
}

/* A put that was in doubt, which may have been done or not, is made again. */
static void put_from(struct fixture *fx, uint32_t first)
{
	char text[16], again[16];

	for (uint32_t i = first; i < KEYS; i++) {
		struct rlv_bytes key = key_of(i, text), put = value_of(i, again);
		uint64_t version = 0, least = fx->versions[i] + 1, most = least;
		int ret = rlv_kv_put(fx->kv, key, put, &version);

		for (; ret == -ECONNRESET || ret == -ETIMEDOUT; most++)
			ret = rlv_kv_put(fx->kv, key, put, &version);
		must(ret, "rlv_kv_put");
		assert_in_range(version, least, most);
		fx->versions[i] = version;
	}
}

static void put_all(struct fixture *fx)
{
	put_from(fx, 0);
}

static void expect_from(struct fixture *fx, uint32_t first)
{
	char text[16], again[16];

	for (uint32_t i = first; i < KEYS; i++) {
		struct rlv_kv_value value = RLV_KV_VALUE_INIT;
		struct rlv_bytes key = key_of(i, text), want = value_of(i, again);

		must(rlv_kv_get(fx->kv, key, &value), "rlv_kv_get");
		assert_int_equal(value.version, fx->versions[i]);
		assert_int_equal(value.len, want.len);
		assert_memory_equal(value.ptr, want.ptr, want.len);
	}
}

static void expect_all(struct fixture *fx)
{
	expect_from(fx, 0);
}

static void expect_sound(struct fixture *fx)
{
	struct rlv_kv_report report = RLV_KV_REPORT_INIT;

	must(rlv_kv_verify(fx->kv, &report), "rlv_kv_verify");
	if (report.problems)
		fail_msg("%s", report.first_problem);
	assert_int_equal(report.parts, 2);
	assert_int_equal(report.keys, KEYS);
}

static uint32_t copies(struct fixture *fx)
{
	struct rlv_kv_info info = RLV_KV_INFO_INIT;

	must(rlv_kv_info(fx->kv, &info), "rlv_kv_info");
	assert_int_equal(info.copies_wanted, 4);
	assert_int_equal(info.parts_up, 2);
	return info.copies;
}

/* The handle hears of a loss later than the store. */
static bool has_two_copies(void *arg)
{
	return copies(arg) == 2;
}

/* Fills what is there to fill, until all copies are whole. */
static bool is_whole_again(void *arg)
{
	struct fixture *fx = arg;
	uint64_t left = 1;

	must(rlv_kv_repair(fx->kv, 2000, &left), "rlv_kv_repair");
	put_all(fx);
	return copies(fx) == 4;
}

static bool is_lost(void *arg)
{
	struct fixture *fx = arg;
	char name[2];

	name_of(fx->lost, name);
	return store_node_named(fx->store, name).state == RLV_NODE_LOST;
}

static void lose(struct fixture *fx, uint32_t n)
{
	fx->lost = n;
	processes_kill(&fx->ps, fx->nodes[n], SIGKILL);
	for (uint64_t until = clock_now_ns(clock_monotonic()) + CLOCK_NS_PER_S;
	     clock_now_ns(clock_monotonic()) < until;)
		expect_all(fx);
}

/* Reads never stop; puts go on, the copies are filled meanwhile, and any further node may be lost. */
TEST_WITH(lost_nodes__one_after_the_other, setup, teardown)
{
	static const char *const size[] = { "--size", "64M", NULL };
	struct fixture *fx = *state;
	char name[2];

	put_all(fx);
	assert_int_equal(copies(fx), 4);
	expect_sound(fx);
	for (uint32_t n = 0; n < NODES; n++) {
		lose(fx, n);
		assert_true(processes_until(is_lost, fx));
		put_all(fx); /* into all copies that are left of each part: a lost one is not counted now */
		expect_all(fx);
		assert_true(processes_until(is_whole_again, fx));
		expect_all(fx);
		expect_sound(fx);
		name_of(n, name);
		fx->nodes[n] = processes_memnode(&fx->ps, "s", name, size);
		assert_true(processes_until(all_are_up, fx));
	}
}

static bool are_all_there(void *arg)
{
	return copies(arg) == 4;
}

struct state {
	struct fixture *fx;
	uint32_t whole, filling;
};

static bool is_state(void *arg)
{
	const struct state *state = arg;
	struct rlv_heap_info info[2];
	size_t n = 2;

	must(rlv_store_heaps(state->fx->store, info, sizeof(info[0]), &n), "rlv_store_heaps");
	return n == 1 && info[0].copies == state->whole && info[0].copies_filling == state->filling;
}

/* What the server says of the heap's copies, which it learns a moment after a client that filled one. */
static void expect_state(struct fixture *fx, uint32_t whole, uint32_t filling)
{
	struct state state = { fx, whole, filling };
	static struct command command;
	struct rlv_heap_info info[2];
	char words[160];
	size_t n = 2;

	command.ps = &fx->ps;
	assert_true(processes_until(is_state, &state));
	must(rlv_store_heaps(fx->store, info, sizeof(info[0]), &n), "rlv_store_heaps");
	assert_int_equal(n, 1);
	assert_string_equal(info[0].name, "h");
	assert_int_equal(info[0].parts, 2);
	assert_int_equal(info[0].copies_wanted, 4);
	assert_int_equal(info[0].copies, whole);
	assert_int_equal(info[0].copies_filling, filling);
	snprintf(words, sizeof(words),
		 "\"heaps\":[{\"name\":\"h\",\"mode\":\"clover\",\"parts\":2,\"copies_wanted\":4,"
		 "\"copies\":%u,\"copies_filling\":%u}]",
		 whole, filling);
	command_expect(&command, 0, "status shm:s --json");
	command_expect_words(command.out, words);
}

/* A handle that owns the parts fills new copies without a call; what its last get gave out stays as it is, though
   all was read from the node that is lost. */
static void expect_idle_owner(struct fixture *fx, uint32_t primary)
{
	const struct state whole = { fx, 4, 0 };
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;
	char text[16], again[16];
	struct rlv_bytes key = key_of(19, text), want;

	put_all(fx);
	must(rlv_kv_get(fx->kv, key, &value), "rlv_kv_get");
	fx->lost = primary;
	processes_kill(&fx->ps, fx->nodes[primary], SIGKILL);
	assert_true(processes_until(is_lost, fx));
	assert_true(processes_until(is_state, (void *)(uintptr_t)&whole));
	want = value_of(19, again);
	assert_int_equal(value.len, want.len);
	assert_memory_equal(value.ptr, want.ptr, want.len);
	expect_all(fx);
	expect_sound(fx);
	put_all(fx);
}

/* No client helps: the server fills copies of parts that nobody owns, as soon as a node can have them. */
TEST_WITH(lost_nodes__are_made_up_for_by_the_server, setup_long_lease, teardown)
{
	static const char *const size[] = { "--size", "64M", NULL };
	struct fixture *fx = *state;

	put_all(fx);
	expect_state(fx, 4, 0);
	must(rlv_kv_release(fx->kv), "rlv_kv_release");
	for (uint32_t n = 0; n < 2; n++) {
		fx->lost = n;
		processes_kill(&fx->ps, fx->nodes[n], SIGKILL);
		assert_true(processes_until(is_lost, fx));
		if (n == 1) { /* no node is left for them */
			assert_true(processes_until(has_two_copies, fx));
			expect_state(fx, 2, 0);
			fx->nodes[n] = processes_memnode(&fx->ps, "s", "b", size);
		}
		assert_true(processes_until(are_all_there, fx));
		expect_state(fx, 4, 0);
		expect_all(fx);
		expect_sound(fx);
	}
	fx->nodes[0] = processes_memnode(&fx->ps, "s", "a", size);
	assert_true(processes_until(all_are_up, fx));
	expect_idle_owner(fx, 2);
}

/* -------- owners -------- */

static int child_that_owns(void *arg)
{
	struct fixture *fx = arg;
	struct rlv_store *store = NULL;
	struct rlv_kv *kv = NULL;
	char text[16], again[16];

	if (rlv_store_open("shm:s", NULL, &store) || rlv_kv_open(store, "h", &kv))
		return 1;
	for (uint64_t i = 0;; i++) {
		uint32_t k = (uint32_t)(i % KEYS);

		if (rlv_kv_put(kv, key_of(k, text), value_of(k, again), NULL))
			return 1;
		if (i == KEYS)
			(void)!write(fx->ready[1], "r", 1);
	}
}

static bool is_ours(void *arg)
{
	struct fixture *fx = arg;
	char text[16], again[16];
	uint32_t n = 0;

	for (uint32_t i = 0; i < KEYS; i++) {
		struct rlv_bytes key = key_of(i, text);
		int ret = rlv_kv_put(fx->kv, key, value_of(i, again), &fx->versions[i]);

		if (ret != -EBUSY)
			must(ret, "rlv_kv_put");
		n += ret == 0;
	}
	return n == KEYS;
}

TEST_WITH(killed_owner__is_followed_by_another, setup, teardown)
{
	struct fixture *fx = *state;
	const struct rlv_bytes key = { "key-1", 5 };
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;
	char byte;

	for (uint32_t i = 0; i < 5; i++) {
		pid_t child;

		must(rlv_kv_release(fx->kv), "rlv_kv_release");
		assert_int_equal(pipe(fx->ready), 0);
		child = processes_fork(&fx->ps, child_that_owns, fx);
		assert_int_equal(read(fx->ready[0], &byte, 1), 1);
		expect(rlv_kv_put(fx->kv, key, key, NULL), -EBUSY);
		must(rlv_kv_get(fx->kv, key, &value), "rlv_kv_get");
		processes_sleep_ns((int64_t)(1 + i) * CLOCK_NS_PER_MS);
		processes_kill(&fx->ps, child, SIGKILL);
		assert_true(processes_until(is_ours, fx));
		expect_all(fx);
		expect_sound(fx);
		close(fx->ready[0]);
		close(fx->ready[1]);
	}
}

/* -------- histories -------- */

static void lose_first(void *ctx, uint32_t i)
{
	struct fixture *fx = ctx;

	if (i == 30)
		processes_kill(&fx->ps, fx->nodes[0], SIGKILL);
}

TEST_WITH(killed_owners_and_a_lost_node__leave_linearizable_histories, setup, teardown)
{
	struct fixture *fx = *state;
	struct rlv_kv_report report = RLV_KV_REPORT_INIT;

	kv_history_begin(&fx->ps, 100, lose_first, fx);
	kv_history_stop(&fx->ps);
	kv_history_end();
	assert_true(processes_until(is_ours, fx));
	assert_true(processes_until(is_whole_again, fx));
	must(rlv_kv_verify(fx->kv, &report), "rlv_kv_verify");
	assert_int_equal(report.problems, 0);
}

/* Nobody owns anything: all clients put all the time, beside those that are killed. */
TEST_WITH(several_writers__leave_linearizable_histories, setup_writers, teardown)
{
	struct fixture *fx = *state;

	kv_history_begin(&fx->ps, 60, lose_first, fx);
	kv_history_stop(&fx->ps);
	kv_history_end();
	assert_true(processes_until(is_ours, fx));
	expect_all(fx);
	expect_sound(fx);
}

/* The first node has the primary of one part and the backup of the other. */
TEST_WITH(several_writers__outlive_a_node, setup_writers, teardown)
{
	struct rlv_drain_info info = { .size = sizeof(info) };
	struct fixture *fx = *state;
	struct rlv_kv *other = NULL, *first = fx->kv;
	uint64_t left = 1;

	must(rlv_kv_open(fx->store, "h", &other), "rlv_kv_open");
	put_all(fx);
	fx->kv = other;
	put_all(fx);
	expect_all(fx);
	expect(rlv_store_drain_node(fx->store, "a", &info), -ENOTSUP);
	assert_non_null(strstr(rlv_last_error(), "several writers"));
	lose(fx, 0);
	assert_true(processes_until(is_lost, fx));
	put_all(fx);
	fx->kv = first;
	put_all(fx);
	expect_all(fx);
	expect_sound(fx);
	assert_in_range(copies(fx), 2, 3);
	must(rlv_kv_repair(fx->kv, 1000, &left), "rlv_kv_repair");
	assert_int_equal(left, 0);
	must(rlv_kv_release(fx->kv), "rlv_kv_release");
	must(rlv_kv_close(&other), "rlv_kv_close");
}

/* -------- drains -------- */

static bool is_drained(void *arg)
{
	struct rlv_drain_info info = { .size = sizeof(info), .shards = 1 };
	struct fixture *fx = arg;

	return rlv_store_drain_node(fx->store, "a", &info) == 0 && info.shards == 0;
}

/* The owner fills new copies by its puts alone. */
static bool is_drained_meanwhile(void *arg)
{
	put_all(arg);
	return is_drained(arg);
}

TEST_WITH(drained_node__goes_when_others_have_its_copies, setup, teardown)
{
	struct fixture *fx = *state;

	put_all(fx);
	assert_true(processes_until(is_drained_meanwhile, fx));
	processes_kill(&fx->ps, fx->nodes[0], SIGKILL);
	put_all(fx);
	expect_all(fx);
	assert_int_equal(copies(fx), 4);
	expect_sound(fx);
}

/* Begins a drain, and restarts the server. */
static void drain_first(void *ctx, uint32_t i)
{
	struct fixture *fx = ctx;

	if (i != 5)
		return;
	(void)is_drained(fx);
	processes_kill(&fx->ps, fx->metad, SIGKILL);
	start_metad(fx);
}

/* Of parts with one copy, while clients are killed, and the server. */
static void drain_under_clients(struct fixture *fx, uint32_t kills)
{
	struct rlv_kv_report report = RLV_KV_REPORT_INIT;
	char text[16];

	put_from(fx, HOT);
	kv_history_begin(&fx->ps, kills, drain_first, fx);
	assert_true(processes_until(is_drained, fx));
	kv_history_stop(&fx->ps);
	processes_kill(&fx->ps, fx->nodes[0], SIGKILL);
	kv_history_end();
	expect_from(fx, HOT);
	for (uint32_t i = 0; i < HOT; i++)
		must(rlv_kv_delete(fx->kv, key_of(i, text), NULL), "rlv_kv_delete");
	must(rlv_kv_verify(fx->kv, &report), "rlv_kv_verify");
	assert_string_equal(report.first_problem, "");
	assert_int_equal(report.keys, KEYS - HOT);
}

TEST_WITH(drained_node__leaves_linearizable_histories, setup_one, teardown)
{
	drain_under_clients(*state, 40);
}

TEST_WITH(drained_node__of_mode_direct, setup_direct, teardown)
{
	drain_under_clients(*state, 20);
}

TEST_WITH(drained_node__of_mode_central, setup_central, teardown)
{
	drain_under_clients(*state, 20);
}

TEST_WITH(create__with_more_copies_than_nodes, setup, teardown)
{
	const struct rlv_kv_opts three = { .size = sizeof(three), .copies = 3 };
	const struct rlv_kv_opts four = { .size = sizeof(four), .copies = 4 };
	struct fixture *fx = *state;
	struct rlv_kv *kv = NULL;

	expect(rlv_kv_create(fx->store, "i", &four, &kv), -EINVAL);
	processes_kill(&fx->ps, fx->nodes[2], SIGKILL);
	while (store_node_named(fx->store, "c").state == RLV_NODE_UP)
		processes_sleep_ns(CLOCK_NS_PER_MS);
	expect(rlv_kv_create(fx->store, "i", &three, &kv), -EINVAL);
	assert_non_null(strstr(rlv_last_error(), "relive node add"));
}

/* -------- weights -------- */

#define TENSORS 6u
#define TENSOR (sizeof(elements) / TENSORS)

static uint8_t elements[3u << 20]; /* of the newest generation, in many chunks */

static int publish(struct rlv_generations *weights, uint64_t version)
{
	static const char *const names[TENSORS] = { "f", "e", "d", "c", "b", "a" };
	struct rlv_tensor tensors[TENSORS];

	memset(elements, (int)version, sizeof(elements));
	for (uint32_t i = 0; i < TENSORS; i++)
		tensors[i] = (struct rlv_tensor){ .size = sizeof(tensors[0]),
						  .dtype = RLV_U8,
						  .ndim = 1,
						  .name = names[i],
						  .shape = { TENSOR },
						  .data = elements + i * TENSOR };
	return rlv_weights_publish(weights, tensors, TENSORS, version, RLV_PUBLISH_ANCHOR);
}

static void expect_whole(const struct rlv_generation *got, uint64_t version)
{
	assert_int_equal(got->version, version);
	assert_memory_equal(got->data, elements, sizeof(elements));
}

static void expect_generation(struct rlv_generations *weights, uint64_t version)
{
	struct rlv_generation got = RLV_GENERATION_INIT;

	must(rlv_weights_fetch(weights, version - 1, CLOCK_NS_PER_S, &got), "rlv_weights_fetch");
	expect_whole(&got, version);
	rlv_generation_release(&got);
}

/* A generation of which a handle has read the first part, of four chunks. */
struct arriving {
	struct rlv_generations *weights;
	struct rlv_generation got;
	uint32_t ready;
};

static void arrive_begin(struct fixture *fx, struct arriving *of)
{
	*of = (struct arriving){ .got = RLV_GENERATION_INIT };
	must(rlv_weights_open(fx->store, "policy", &of->weights), "rlv_weights_open");
	must(rlv_weights_limit(of->weights, 4 * 65472), "rlv_weights_limit");
	must(rlv_weights_begin(of->weights, 0, 0, &of->got, &of->ready), "rlv_weights_begin");
}

/* Reads the rest tensor by tensor, in the order of the publish; over a wire each chunk once, if no node was lost. */
static void arrive_end(struct arriving *of, uint64_t version, bool lost)
{
	const uint64_t rest = getenv("RLV_TEST_TRANSPORT") ? sizeof(elements) - 4 * 65472 : 0;
	struct rlv_weights_info before = RLV_WEIGHTS_INFO_INIT, after = RLV_WEIGHTS_INFO_INIT;

	must(rlv_weights_info(of->weights, &before), "rlv_weights_info");
	for (uint32_t i = 0; i < TENSORS; i++) {
		assert_int_equal(of->ready, i);
		must(rlv_weights_more(of->weights, &of->got, &of->ready), "rlv_weights_more");
		assert_memory_equal(of->got.tensors[i].data, elements, TENSOR);
	}
	must(rlv_weights_info(of->weights, &after), "rlv_weights_info");
	if (!lost)
		assert_in_range(after.read_bytes - before.read_bytes, rest, rest + 30000);
	expect_whole(&of->got, version);
	rlv_generation_release(&of->got);
	must(rlv_weights_close(&of->weights), "rlv_weights_close");
}

static bool weights_are_whole(struct fixture *fx)
{
	struct rlv_kv_info info = RLV_KV_INFO_INIT;
	struct rlv_kv *kv = NULL;

	must(rlv_kv_open(fx->store, "policy", &kv), "rlv_kv_open");
	must(rlv_kv_info(kv, &info), "rlv_kv_info");
	assert_int_equal(info.copies_wanted, 2);
	must(rlv_kv_close(&kv), "rlv_kv_close");
	return info.copies == 2;
}

/* By default on two nodes: whichever is lost, the generation is there, and further ones fill the new copy. */
TEST_WITH(weights__outlive_their_nodes, setup, teardown)
{
	struct rlv_weights_opts opts = RLV_WEIGHTS_OPTS_INIT;
	struct rlv_generations *learner = NULL, *actor = NULL;
	struct fixture *fx = *state;
	struct arriving late;
	uint64_t version = 1;

	opts.bytes = sizeof(elements);
	opts.keep = 1;
	must(rlv_weights_create(fx->store, "policy", &opts, &actor), "rlv_weights_create");
	must(rlv_weights_create(fx->store, "policy", &opts, &learner), "rlv_weights_create");
	must(publish(learner, version), "publish");
	expect_generation(actor, version);
	arrive_begin(fx, &late);
	arrive_end(&late, version, false);
	for (fx->lost = 0; fx->lost < 2; fx->lost++) {
		must(rlv_weights_close(&actor), "rlv_weights_close");
		arrive_begin(fx, &late);
		processes_kill(&fx->ps, fx->nodes[fx->lost], SIGKILL);
		assert_true(processes_until(is_lost, fx));
		arrive_end(&late, version, true); /* from the other copy */
		must(rlv_weights_open(fx->store, "policy", &actor), "rlv_weights_open");
		expect_generation(actor, version);
		for (uint32_t i = 0; i < 3 || (fx->lost == 0 && !weights_are_whole(fx)); i++)
			must(publish(learner, ++version), "publish");
		expect_generation(actor, version);
	}
	must(rlv_weights_close(&actor), "rlv_weights_close");
	must(rlv_weights_close(&learner), "rlv_weights_close");
}

int main(void)
{
	return test_run(NULL, NULL);
}
