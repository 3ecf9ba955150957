/*
 * Writers of values in stripes over three memory nodes are killed by kill -9, at each of their steps: before and
 * behind each change that a call makes under a key or a hidden key. The key has the old value or the new one, whole;
 * no stripe is left that no value names, and a heap that has room for two values never gets full. Then many writers and
 * readers at once, whose calls have to be linearizable.
 */
#include "tests/support/kv_history.h"
#include "tests/support/must.h"
#include "tests/support/processes.h"
#include "tests/support/store_nodes.h"

#include "relive/admin.h"
#include "relive/kv.h"

#include "ds/heap/copies.h"
#include "ds/heap/keys.h"

#include "base/os/clock.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NODES 3u
#define EXTENT 65536u
#define SHARE (EXTENT - 64u) /* of a value, in a stripe of one extent */
#define STRIPES 7u
#define BYTES (STRIPES * SHARE - 100u)

static int64_t steps_left; /* in a child: changes until it is killed, before or behind the last one */
static bool behind, stops; /* ..., or until it stops */
static bool by_copies;     /* a change of each copy is one */

int __real_heap_put(struct heap_access *acc, const struct chain_key *key,
		    const struct heap_put *put, uint64_t *version_out);
int __wrap_heap_put(struct heap_access *acc, const struct chain_key *key,
		    const struct heap_put *put, uint64_t *version_out);
int __real_heap_put_entry(struct heap *heap, const struct copies_put *put, uint64_t *old_out);
int __wrap_heap_put_entry(struct heap *heap, const struct copies_put *put, uint64_t *old_out);

static void step(bool last)
{
	if (last)
		(void)raise(stops ? SIGSTOP : SIGKILL);
}

int __wrap_heap_put(struct heap_access *acc, const struct chain_key *key,
		    const struct heap_put *put, uint64_t *version_out)
{
	bool last = !by_copies && steps_left > 0 && --steps_left == 0;
	int ret;

	step(last && !behind);
	ret = __real_heap_put(acc, key, put, version_out);
	step(last && behind);
	return ret;
}

int __wrap_heap_put_entry(struct heap *heap, const struct copies_put *put, uint64_t *old_out)
{
	bool last = by_copies && steps_left > 0 && --steps_left == 0;
	int ret;

	step(last && !behind);
	ret = __real_heap_put_entry(heap, put, old_out);
	step(last && behind);
	return ret;
}

struct fixture {
	struct processes ps;
	struct rlv_store *store;
	struct rlv_kv *kv;
	pid_t nodes[NODES];
};

static bool has_files; /* of nodes, which come back when they were killed */
static bool are_lost;  /* half a second after that */

static void start_node(struct fixture *fx, uint32_t n)
{
	const char name[] = { (char)('a' + n), 0 };
	const char file[] = { 'p', 'o', 'o', 'l', (char)('a' + n), 0 };
	char path[PROCESSES_PATH + 64];
	const char *const args[] = { "--size", "64M", has_files ? "--file" : NULL, path, NULL };

	processes_path(&fx->ps, file, path);
	fx->nodes[n] = processes_memnode(&fx->ps, "s", name, args);
}

static bool all_are_up(void *arg)
{
	const struct fixture *fx = arg;

	return store_nodes_up(fx->store) == NODES;
}

static int setup_heap(void **state, uint64_t bytes, uint32_t copies)
{
	const char *const args[] = { "--lease", "0.3", are_lost ? "--node-lost" : NULL, "0.5",
				     NULL };
	const struct rlv_kv_opts opts = { .size = sizeof(opts),
					  .keys = 3000,
					  .bytes = bytes,
					  .extent_bytes = EXTENT,
					  .parts = NODES,
					  .max_clients = 8,
					  .copies = copies,
					  .writers = copies > 1 ? RLV_KV_MANY_WRITERS : 0,
					  .stripe_bytes = EXTENT };
	struct rlv_store_opts store = RLV_STORE_OPTS_INIT;
	static struct fixture fixture;
	struct fixture *fx = &fixture;

	memset(fx, 0, sizeof(*fx));
	*state = fx;
	store.timeout_ns = 5 * CLOCK_NS_PER_S;
	processes_init(&fx->ps);
	(void)processes_metad(&fx->ps, "s", args);
	for (uint32_t n = 0; n < NODES; n++)
		start_node(fx, n);
	must(rlv_store_open("shm:s", &store, &fx->store), "rlv_store_open");
	assert_true(processes_until(all_are_up, fx));
	must(rlv_kv_create(fx->store, "h", &opts, &fx->kv), "rlv_kv_create");
	return 0;
}

/* In each part room for the stripes of two values, and for small entries of some clients. */
static int setup(void **state)
{
	return setup_heap(state, (uint64_t)NODES * (2 * 3 + 16) * EXTENT, 1);
}

static int setup_large(void **state)
{
	return setup_heap(state, 32 << 20, 1);
}

static int setup_files(void **state)
{
	has_files = true;
	return setup_large(state);
}

static int setup_copies(void **state)
{
	return setup_heap(state, 16 << 20, 2);
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	(void)!rlv_kv_close(&fx->kv);
	(void)!rlv_store_close(&fx->store);
	processes_fini(&fx->ps);
	return 0;
}

static int setup_losses(void **state)
{
	int ret;

	are_lost = true;
	ret = setup_copies(state);
	are_lost = false;
	return ret;
}

/* -------- each step -------- */

static const struct rlv_bytes key = { "k", 1 };

static struct rlv_bytes value_of(uint32_t number, size_t len)
{
	static uint32_t words[BYTES / 4 + 1];

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		words[i] = number;
	return (struct rlv_bytes){ words, len };
}

/* What a key has before the call that is killed, and what that call puts; 0 = nothing. */
struct change {
	size_t from, to;
};

static const struct change *change;
static const struct change shorter = { BYTES, BYTES - 4 };

/* Makes the change; ends by a kill, or with 0 if it had fewer steps. */
static int child_that_changes(void *arg)
{
	struct rlv_store *store = NULL;
	struct rlv_kv *kv = NULL;
	int64_t steps = *(const int64_t *)arg;

	if (rlv_store_open("shm:s", NULL, &store))
		return 1;
	while (rlv_kv_open(store, "h", &kv)) /* the slots of those before may not be free yet */
		processes_sleep_ns(CLOCK_NS_PER_MS);
	steps_left = steps;
	if (change->to ? rlv_kv_put(kv, key, value_of(2, change->to), NULL)
		       : rlv_kv_delete(kv, key, NULL)) {
		fprintf(stderr, "change: %s\n", rlv_last_error());
		return 1;
	}
	steps_left = 0;
	return (rlv_kv_close(&kv) || rlv_store_close(&store)) && !stops;
}

/* The old value or the new one. */
static void expect_whole(struct fixture *fx, bool may_be_old, bool may_be_new)
{
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;
	int ret = rlv_kv_get(fx->kv, key, &value);
	uint32_t number;

	if (ret == -ENOENT && ((may_be_old && !change->from) || (may_be_new && !change->to)))
		return;
	must(ret, "rlv_kv_get");
	memcpy(&number, value.ptr, sizeof(number));
	assert_true((may_be_old && number == 1) || (may_be_new && number == 2));
	assert_int_equal(value.len, number == 1 ? change->from : change->to);
	assert_true(memcmp(value.ptr, value_of(number, value.len).ptr, value.len) == 0);
}

static struct rlv_kv_report last_report = RLV_KV_REPORT_INIT;

/* Who opens the heap next completes what the killed one left, when the server has settled its slot. */
static bool opened_and_clean(void *arg)
{
	struct fixture *fx = arg;
	struct rlv_kv_report report = RLV_KV_REPORT_INIT;
	struct rlv_kv *other = NULL;

	if (rlv_kv_open(fx->store, "h", &other))
		return false;
	must(rlv_kv_verify(other, &report), "rlv_kv_verify");
	must(rlv_kv_close(&other), "rlv_kv_close");
	last_report = report;
	return report.problems == 0;
}

static void expect_clean(struct fixture *fx)
{
	if (!processes_until(opened_and_clean, fx))
		fail_msg("%s", last_report.first_problem);
}

/* Returns false when the child has made the change before its step came. */
static bool kill_at(struct fixture *fx, int64_t n)
{
	int64_t steps = (n + 1) / 2;
	int status;

	behind = n % 2 == 0;
	if (change->from)
		must(rlv_kv_put(fx->kv, key, value_of(1, change->from), NULL), "rlv_kv_put");
	else if (rlv_kv_delete(fx->kv, key, NULL))
		assert_non_null(strstr(rlv_last_error(), "no such key"));
	status =
		processes_wait(&fx->ps, processes_fork(&fx->ps, child_that_changes, &steps), 10000);
	assert_true(status == 0 || status == 128 + SIGKILL);
	expect_whole(fx, status != 0, true);
	expect_clean(fx);
	expect_whole(fx, status != 0, true);
	return status != 0;
}

static void kill_at_each(struct fixture *fx, struct change of, int64_t steps_least)
{
	int64_t n = 1;

	change = &of;
	while (kill_at(fx, n))
		n++;
	print_message("killed at %d places\n", (int)n - 1);
	assert_true(n > 2 * steps_least);
}

/* Intent, stripes, manifest, the old stripes, the intent's end. */
TEST_WITH(stripes__over_stripes_by_a_writer_that_is_killed_at_each_step, setup, teardown)
{
	kill_at_each(*state, (struct change){ BYTES, BYTES - 4 }, 2 * STRIPES + 3);
}

TEST_WITH(stripes__over_nothing_by_a_writer_that_is_killed_at_each_step, setup, teardown)
{
	kill_at_each(*state, (struct change){ 0, BYTES }, STRIPES + 3);
}

TEST_WITH(a_small_value__over_stripes_by_a_writer_that_is_killed_at_each_step, setup, teardown)
{
	kill_at_each(*state, (struct change){ BYTES, 40 }, STRIPES + 3);
}

TEST_WITH(stripes__deleted_by_a_client_that_is_killed_at_each_step, setup, teardown)
{
	kill_at_each(*state, (struct change){ BYTES, 0 }, STRIPES + 3);
}

static bool is_clean(void *arg)
{
	struct fixture *fx = arg;

	must(rlv_kv_verify(fx->kv, &last_report), "rlv_kv_verify");
	return last_report.problems == 0;
}

/* Nobody opens the heap, and no other client puts. */
TEST_WITH(what_a_killed_writer_left__goes_by_the_server, setup, teardown)
{
	struct fixture *fx = *state;

	change = &shorter;
	must(rlv_kv_put(fx->kv, key, value_of(1, BYTES), NULL), "rlv_kv_put");
	behind = true;
	/* Within the stripes, behind the last one, behind the swap, within the old ones. */
	for (int64_t steps = 4; steps <= 3 + 2 * (int64_t)STRIPES; steps += 2) {
		int status = processes_wait(
			&fx->ps, processes_fork(&fx->ps, child_that_changes, &steps), 10000);

		assert_int_equal(status, 128 + SIGKILL);
		if (!processes_until(is_clean, fx))
			fail_msg("%s", last_report.first_problem);
		expect_whole(fx, true, true);
		must(rlv_kv_put(fx->kv, key, value_of(1, BYTES), NULL), "rlv_kv_put");
	}
}

static bool has_stopped(void *arg)
{
	const pid_t *pid = arg;
	int status;

	return waitpid(*pid, &status, WNOHANG | WUNTRACED) == *pid && WIFSTOPPED(status);
}

/*
 * Its process lives, so its slot stays its own, however long it is silent (one of another host would be fenced). Another
 * client puts meanwhile, or not.
 */
TEST_WITH(a_writer__that_is_stopped_and_goes_on, setup, teardown)
{
	static const int64_t places[] = { 2, 5, STRIPES + 2, STRIPES + 3, STRIPES + 5 };
	struct fixture *fx = *state;

	change = &shorter;
	stops = true;
	behind = false;
	for (uint32_t i = 0; i < 2 * sizeof(places) / sizeof(places[0]); i++) {
		int64_t steps = places[i / 2];
		pid_t pid;

		must(rlv_kv_put(fx->kv, key, value_of(1, BYTES), NULL), "rlv_kv_put");
		pid = processes_fork(&fx->ps, child_that_changes, &steps);
		assert_true(processes_until(has_stopped, &pid));
		processes_sleep_ns(CLOCK_NS_PER_S); /* longer than its lease */
		if (i % 2)
			must(rlv_kv_put(fx->kv, key, value_of(1, BYTES), NULL), "rlv_kv_put");
		expect_whole(fx, true, true);
		processes_kill(&fx->ps, pid, SIGCONT);
		assert_int_not_equal(processes_wait(&fx->ps, pid, 10000), -1);
		expect_whole(fx, true, true);
		expect_clean(fx);
		expect_whole(fx, true, true);
	}
	stops = false;
}

/* Also between two copies, where a put is decided and no get sees it. */
TEST_WITH(stripes__with_copies_by_a_writer_that_is_killed_at_each_step, setup_copies, teardown)
{
	by_copies = true;
	kill_at_each(*state, (struct change){ 3 * SHARE, 3 * SHARE - 4 }, 2 * (2 * 3 + 3));
	kill_at_each(*state, (struct change){ 3 * SHARE, 0 }, 2 * (3 + 3));
	by_copies = false;
}

/* -------- at random, and many -------- */

static void nothing(void *ctx, uint32_t i)
{
	(void)ctx;
	(void)i;
}

static void have_histories(struct fixture *fx)
{
	kv_history_lengths(8, 5 * SHARE);
	kv_history_begin(&fx->ps, 100, nothing, NULL);
	kv_history_stop(&fx->ps);
	kv_history_end();
	kv_history_lengths(8, 8);
	/* With copies, the next put of a key completes that of a client that was killed. */
	for (uint32_t i = 0; i < KV_HISTORY_KEYS; i++) {
		char text[16];

		(void)snprintf(text, sizeof(text), "key-%u", i);
		must(rlv_kv_put(fx->kv, (struct rlv_bytes){ text, strlen(text) }, value_of(1, 40),
				NULL),
		     text);
	}
	expect_clean(fx);
}

TEST_WITH(stripes__of_clients_that_are_killed_have_linearizable_histories, setup_large, teardown)
{
	have_histories(*state);
}

TEST_WITH(stripes__with_copies_have_linearizable_histories, setup_copies, teardown)
{
	have_histories(*state);
}

/* -------- nodes -------- */

static bool node_is_away(void *arg)
{
	struct fixture *fx = arg;

	return store_node_named(fx->store, "b").state != RLV_NODE_UP;
}

static bool value_is_back(void *arg)
{
	struct fixture *fx = arg;
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;
	uint32_t number;

	if (rlv_kv_get(fx->kv, key, &value))
		return false;
	memcpy(&number, value.ptr, sizeof(number));
	assert_int_equal(value.len, BYTES);
	assert_true(memcmp(value.ptr, value_of(number, BYTES).ptr, BYTES) == 0);
	return number == 1;
}

static bool put_is_done(void *arg)
{
	struct fixture *fx = arg;

	return rlv_kv_put(fx->kv, key, value_of(1, BYTES), NULL) == 0;
}

#define SHORT 50u /* keys: each part has some */

/* Puts some short values; those of a part that is away fail. Returns how many were put. */
static uint32_t put_short(struct fixture *fx)
{
	uint32_t done = 0;

	for (uint32_t i = 0; i < SHORT; i++) {
		char text[2] = { 's', (char)('a' + i) };
		int ret = rlv_kv_put(fx->kv, (struct rlv_bytes){ text, 2 }, value_of(i, 40), NULL);

		assert_true(ret == 0 || ret == -EHOSTDOWN);
		done += ret == 0;
	}
	return done;
}

static bool opens_again(void *arg)
{
	const struct rlv_store_opts opts = { .size = sizeof(opts),
					     .timeout_ns = CLOCK_NS_PER_S / 4 };
	struct fixture *fx = arg;

	return (fx->store || rlv_store_open("shm:s", &opts, &fx->store) == 0) &&
	       rlv_kv_open(fx->store, "h", &fx->kv) == 0;
}

TEST_WITH(stripes__of_a_node_that_is_away_come_back_with_it, setup_files, teardown)
{
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;
	struct fixture *fx = *state;
	uint32_t before;

	must(rlv_kv_put(fx->kv, key, value_of(1, BYTES), NULL), "rlv_kv_put");
	assert_int_equal(put_short(fx), SHORT);
	processes_kill(&fx->ps, fx->nodes[1], SIGKILL);
	assert_true(processes_until(node_is_away, fx));
	/* The handle has mapped the part, which therefore is there still: another one, which does not wait for long. */
	must(rlv_kv_close(&fx->kv), "rlv_kv_close");
	must(rlv_store_close(&fx->store), "rlv_store_close");
	assert_true(processes_until(opens_again, fx));
	expect(rlv_kv_get(fx->kv, key, &value), -EHOSTDOWN);
	before = put_short(fx);
	assert_in_range(before, 1, SHORT - 1);
	/* A put that cannot be made, and whose intent cannot be completed, holds up nobody else. */
	expect(rlv_kv_put(fx->kv, key, value_of(2, BYTES), NULL), -EHOSTDOWN);
	assert_int_equal(put_short(fx), before);
	start_node(fx, 1);
	assert_true(processes_until(value_is_back, fx));
	assert_true(processes_until(put_is_done, fx));
	assert_int_equal(put_short(fx), SHORT);
	expect_clean(fx);
	has_files = false;
}

static bool is_drained(void *arg)
{
	struct rlv_drain_info info = { .size = sizeof(info), .shards = 1 };
	struct fixture *fx = arg;

	return rlv_store_drain_node(fx->store, "a", &info) == 0 && info.shards == 0;
}

static void drain_first(void *ctx, uint32_t i)
{
	if (i == 5)
		(void)is_drained(ctx);
}

TEST_WITH(stripes__of_a_node_that_is_drained_have_linearizable_histories, setup_large, teardown)
{
	struct fixture *fx = *state;

	must(rlv_kv_put(fx->kv, key, value_of(1, BYTES), NULL), "rlv_kv_put");
	kv_history_lengths(8, 5 * SHARE);
	kv_history_begin(&fx->ps, 40, drain_first, fx);
	assert_true(processes_until(is_drained, fx));
	kv_history_stop(&fx->ps);
	processes_kill(&fx->ps, fx->nodes[0], SIGKILL);
	kv_history_end();
	kv_history_lengths(8, 8);
	assert_true(value_is_back(fx));
	expect_clean(fx);
}

TEST_WITH(stripes__with_copies_outlive_a_node, setup_losses, teardown)
{
	struct fixture *fx = *state;

	must(rlv_kv_put(fx->kv, key, value_of(1, BYTES), NULL), "rlv_kv_put");
	processes_kill(&fx->ps, fx->nodes[0], SIGKILL);
	assert_true(processes_until(value_is_back, fx));
	assert_true(processes_until(put_is_done, fx));
	must(rlv_kv_put(fx->kv, key, value_of(1, BYTES), NULL), "rlv_kv_put");
	assert_true(value_is_back(fx));
	expect_clean(fx);
}

/* It has no client slot: it reads without pins. */
TEST_WITH(stripes__in_a_read_only_store, setup_large, teardown)
{
	const struct rlv_store_opts opts = { .size = sizeof(opts), .read_only = true };
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;
	struct fixture *fx = *state;
	struct rlv_store *store = NULL;
	struct rlv_kv *kv = NULL;

	must(rlv_kv_put(fx->kv, key, value_of(1, BYTES), NULL), "rlv_kv_put");
	must(rlv_store_open("shm:s", &opts, &store), "rlv_store_open");
	must(rlv_kv_open(store, "h", &kv), "rlv_kv_open");
	must(rlv_kv_get(kv, key, &value), "rlv_kv_get");
	assert_int_equal(value.len, BYTES);
	assert_true(memcmp(value.ptr, value_of(1, BYTES).ptr, BYTES) == 0);
	must(rlv_kv_get_range(kv, key, BYTES - 10, 10, &value), "rlv_kv_get_range");
	assert_int_equal(value.len, 10);
	expect(rlv_kv_put(kv, key, value_of(2, BYTES), NULL), -EACCES);
	expect(rlv_kv_put(kv, key, value_of(2, 40), NULL), -EACCES);
	expect(rlv_kv_delete(kv, key, NULL), -EACCES);
	must(rlv_kv_close(&kv), "rlv_kv_close");
	must(rlv_store_close(&store), "rlv_store_close");
	expect_clean(fx);
}

int main(void)
{
	return test_run(NULL, NULL);
}
