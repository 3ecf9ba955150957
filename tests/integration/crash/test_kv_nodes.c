/*
 * A heap with a part on each of three memory nodes, in real processes: nodes and the server are killed
 * and come back while a client goes on. The server counts copies.
 */
#include "tests/support/must.h"
#include "tests/support/processes.h"
#include "tests/support/sockets.h"
#include "tests/support/store_nodes.h"

#include "relive/admin.h"
#include "relive/kv.h"

#include "base/os/clock.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define NODES 3u
#define KEYS 60u

struct fixture {
	struct processes ps;
	struct rlv_store *store;
	struct rlv_kv *kv;
	pid_t metad, nodes[NODES];
	char pools[NODES][PROCESSES_PATH + 64];
	uint64_t versions[KEYS];
	uint16_t port; /* of the server's metrics */
	const char *wanted;
};

static void start_metad(struct fixture *fx)
{
	char port[8];
	const char *const args[] = { "--lease", "0.3", "--metrics", port, NULL };

	(void)snprintf(port, sizeof(port), "%u", fx->port);
	fx->metad = processes_metad(&fx->ps, "s", args);
}

static void start_node(struct fixture *fx, uint32_t n)
{
	const char name[] = { (char)('a' + n), 0 };
	const char *const args[] = { "--size", "128M", "--file", fx->pools[n], NULL };

	fx->nodes[n] = processes_memnode(&fx->ps, "s", name, args);
}

static bool all_are_up(void *arg)
{
	const struct fixture *fx = arg;

	return store_nodes_up(fx->store) == NODES;
}

static int setup(void **state)
{
	const struct rlv_kv_opts opts = { .size = sizeof(opts),
					  .keys = 1000,
					  .bytes = 12 << 20,
					  .extent_bytes = 64 << 10,
					  .parts = NODES };
	struct rlv_store_opts store = RLV_STORE_OPTS_INIT;
	static struct fixture fixture;
	struct fixture *fx = &fixture;

	memset(fx, 0, sizeof(*fx));
	*state = fx;
	store.timeout_ns = 10 * CLOCK_NS_PER_S;
	processes_init(&fx->ps);
	fx->port = processes_free_port();
	start_metad(fx);
	for (uint32_t n = 0; n < NODES; n++) {
		const char name[] = { 'p', 'o', 'o', 'l', (char)('a' + n), 0 };

		processes_path(&fx->ps, name, fx->pools[n]);
		start_node(fx, n);
	}
	must(rlv_store_open("shm:s", &store, &fx->store), "rlv_store_open");
	assert_true(processes_until(all_are_up, fx));
	must(rlv_kv_create(fx->store, "h", &opts, &fx->kv), "rlv_kv_create");
	return 0;
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

/* Puts each key; those of parts that are away fail with -EHOSTDOWN. Returns how many were put. */
static uint32_t put_all(struct fixture *fx)
{
	uint32_t done = 0;
	char text[16];

	for (uint32_t i = 0; i < KEYS; i++) {
		struct rlv_bytes key = key_of(i, text);
		uint64_t version = 0;
		int ret = rlv_kv_put(fx->kv, key, key, &version);

		if (ret != -EHOSTDOWN)
			must(ret, "rlv_kv_put");
		if (ret == 0)
			assert_int_equal(version, ++fx->versions[i]);
		done += ret == 0;
	}
	return done;
}

static void expect_all(struct fixture *fx)
{
	char text[16];

	for (uint32_t i = 0; i < KEYS; i++) {
		struct rlv_kv_value value = RLV_KV_VALUE_INIT;
		struct rlv_bytes key = key_of(i, text);

		must(rlv_kv_get(fx->kv, key, &value), "rlv_kv_get");
		assert_int_equal(value.version, fx->versions[i]);
		assert_int_equal(value.len, key.len);
		assert_memory_equal(value.ptr, key.ptr, key.len);
	}
}

static void expect_sound(struct fixture *fx, uint32_t parts)
{
	struct rlv_kv_report report = RLV_KV_REPORT_INIT;

	must(rlv_kv_verify(fx->kv, &report), "rlv_kv_verify");
	if (report.problems)
		fail_msg("%s", report.first_problem);
	assert_int_equal(report.parts, parts);
}

/* A node with its memory in a file comes back with all of its keys; the others never stop. */
TEST_WITH(killed_node__comes_back_with_its_keys, setup, teardown)
{
	struct fixture *fx = *state;
	struct rlv_kv_info info = RLV_KV_INFO_INIT;

	assert_int_equal(put_all(fx), KEYS);
	expect_all(fx);
	must(rlv_kv_info(fx->kv, &info), "rlv_kv_info");
	assert_int_equal(info.parts_up, NODES);
	assert_int_equal(info.keys, KEYS);
	processes_kill(&fx->ps, fx->nodes[1], SIGKILL);
	start_node(fx, 1);
	assert_true(processes_until(all_are_up, fx));
	assert_int_equal(put_all(fx), KEYS);
	expect_all(fx);
	expect_sound(fx, NODES);
}

TEST_WITH(killed_server__is_not_missed, setup, teardown)
{
	struct fixture *fx = *state;
	struct rlv_kv *other = NULL;

	assert_int_equal(put_all(fx), KEYS);
	processes_kill(&fx->ps, fx->metad, SIGKILL);
	assert_int_equal(put_all(fx), KEYS);
	expect_all(fx);
	start_metad(fx);
	assert_true(processes_until(all_are_up, fx));
	assert_int_equal(put_all(fx), KEYS);
	must(rlv_kv_open(fx->store, "h", &other), "rlv_kv_open");
	must(rlv_kv_close(&fx->kv), "rlv_kv_close");
	fx->kv = other;
	expect_all(fx);
	assert_int_equal(put_all(fx), KEYS);
	expect_sound(fx, NODES);
}

/* -------- metrics -------- */

static bool page_has(void *arg)
{
	struct fixture *fx = arg;

	return sockets_metrics_have(fx->port, fx->wanted);
}

static void expect_line(struct fixture *fx, const char *line)
{
	fx->wanted = line;
	assert_true(processes_until(page_has, fx));
}

TEST_WITH(metrics__count_copies_that_are_missing, setup, teardown)
{
	const struct rlv_kv_opts opts = { .size = sizeof(opts),
					  .keys = 100,
					  .bytes = 4 << 20,
					  .extent_bytes = 64 << 10,
					  .copies = NODES };
	struct fixture *fx = *state;
	struct rlv_kv *kv = NULL;

	must(rlv_kv_create(fx->store, "c", &opts, &kv), "rlv_kv_create");
	must(rlv_kv_close(&kv), "rlv_kv_close");
	expect_line(fx, "relive_heap_copies{heap=\"c\",state=\"missing\"} 0\n");
	processes_kill(&fx->ps, fx->nodes[1], SIGKILL);
	expect_line(fx, "relive_heap_copies{heap=\"c\",state=\"missing\"} 1\n");
	expect_line(fx, "relive_heap_copies{heap=\"c\",state=\"whole\"} 2\n");
	start_node(fx, 1);
	expect_line(fx, "relive_heap_copies{heap=\"c\",state=\"missing\"} 0\n");
}

int main(void)
{
	return test_run(NULL, NULL);
}
