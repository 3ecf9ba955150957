/*
 * What each public call says in each phase of a restart of the metadata server: a call that asks it
 * ends with one code and words that name the store, a call on the data path goes on. And after
 * `relive down`. The table that this checks is in docs/failure-model.md.
 */
#include "tests/support/attack/crash_rows.h"
#include "tests/support/sockets.h"
#include "tests/support/processes.h"
#include "tests/support/fixture/store_fixture.h"
#include "tests/support/must.h"

#include "relive/relive.h"
#include "relive/admin.h"

#include "base/bits.h"
#include "base/os/clock.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TIMEOUT_NS (200 * CLOCK_NS_PER_MS) /* of control calls to a missing server */
#define STEPS 100u

/* A process that listens at the server's address and does not serve. */
struct impostor {
	pthread_t thread;
	int fd;
	bool talks; /* sends half a frame to each client, then hangs up */
	_Atomic bool stop;
};

struct fixture {
	struct processes ps;
	pid_t metad, memnode;
	const char *const *metad_args;
	struct impostor impostor;
	char uri[64];            /* over TCP */
	struct rlv_store *store; /* whose calls wait for TIMEOUT_NS */
	struct rlv_table *table;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	struct crash_rows rows;
	uint32_t step;
};

/* -------- the calls -------- */

static int call_store_open(struct fixture *fx)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	struct rlv_store *store = NULL;
	int ret;

	(void)fx;
	opts.timeout_ns = TIMEOUT_NS;
	ret = rlv_store_open("shm:s", &opts, &store);
	return ret ? ret : rlv_store_close(&store);
}

static int call_store_persist(struct fixture *fx)
{
	return rlv_store_persist(fx->store);
}

static int call_store_tables(struct fixture *fx)
{
	char names[4][RLV_NAME_BYTES];
	size_t n = ARRAY_LEN(names);

	return rlv_store_tables(fx->store, names, &n);
}

static int call_store_info(struct fixture *fx)
{
	struct rlv_store_info info = { .size = sizeof(info) };

	return rlv_store_info(fx->store, &info);
}

static int call_heaps(struct fixture *fx)
{
	size_t n = 0;

	return rlv_store_heaps(fx->store, NULL, sizeof(struct rlv_heap_info), &n);
}

static int call_lags(struct fixture *fx)
{
	size_t n = 0;

	return rlv_store_lags(fx->store, NULL, sizeof(struct rlv_lag), &n);
}

static int call_waits(struct fixture *fx)
{
	size_t n = 0;

	return rlv_store_waits(fx->store, NULL, sizeof(struct rlv_wait), &n);
}

static int call_drain_node(struct fixture *fx)
{
	struct rlv_drain_info info = { .size = sizeof(info) };

	return rlv_store_drain_node(fx->store, "nobody", &info);
}

static int call_drop_node(struct fixture *fx)
{
	return rlv_store_drop_node(fx->store, "nobody");
}

static int call_table_create(struct fixture *fx)
{
	struct rlv_table_opts opts = crash_table_opts(1024);
	struct rlv_table *table = NULL;
	int ret;

	ret = rlv_table_create(fx->store, "another", &opts, &table);
	return ret ? ret : rlv_table_close(&table);
}

static int call_table_open(struct fixture *fx)
{
	struct rlv_table *table = NULL;
	int ret = rlv_table_open(fx->store, "t", &table);

	return ret ? ret : rlv_table_close(&table);
}

static int call_table_drop(struct fixture *fx)
{
	return rlv_table_drop(fx->store, "nothing");
}

static int call_table_rebalance(struct fixture *fx)
{
	return rlv_table_rebalance(fx->store, "nothing", NULL, NULL);
}

static int call_writer_open(struct fixture *fx)
{
	struct rlv_writer *writer = NULL;
	int ret = rlv_writer_open(fx->table, NULL, &writer);

	return ret ? ret : rlv_writer_close(&writer);
}

static int call_sampler_open(struct fixture *fx)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_sampler *sampler = NULL;
	int ret;

	opts.gamma = 1;
	ret = rlv_sampler_open(fx->table, &opts, &sampler);
	return ret ? ret : rlv_sampler_close(&sampler);
}

/* Result of the call with a server that serves. */
static const struct call {
	const char *name;
	int (*fn)(struct fixture *fx);
	int served;
} control_calls[] = {
	{ "rlv_store_open", call_store_open, 0 },
	{ "rlv_store_persist", call_store_persist, 0 },
	{ "rlv_store_tables", call_store_tables, 0 },
	{ "rlv_store_info", call_store_info, 0 },
	{ "rlv_store_waits", call_waits, 0 },
	{ "rlv_store_heaps", call_heaps, 0 },
	{ "rlv_store_lags", call_lags, 0 },
	{ "rlv_store_drain_node", call_drain_node, -ENOENT },
	{ "rlv_store_drop_node", call_drop_node, -ENOENT },
	{ "rlv_table_create", call_table_create, 0 },
	{ "rlv_table_open", call_table_open, 0 },
	{ "rlv_table_drop", call_table_drop, -ENOENT },
	{ "rlv_table_rebalance", call_table_rebalance, -ENOENT },
	{ "rlv_writer_open", call_writer_open, 0 },
	{ "rlv_sampler_open", call_sampler_open, 0 },
};

static int call_append(struct fixture *fx)
{
	crash_rows_fill(&fx->rows, 1, fx->step, STEPS);
	fx->step += STEPS;
	return rlv_writer_append(fx->writer, 0, &fx->rows.steps, NULL);
}

static int call_sample_and_update(struct fixture *fx)
{
	const struct rlv_batch *batch;
	float priority[64];
	int ret = rlv_sampler_sample(fx->sampler, 64, 0, &batch);

	if (ret)
		return ret;
	for (uint32_t i = 0; i < batch->n; i++)
		priority[i] = crash_priority(i, fx->step);
	ret = rlv_sampler_set_priorities(fx->sampler, batch->key, priority, batch->n, NULL);
	rlv_batch_release(fx->sampler, batch);
	return ret;
}

static int call_flush(struct fixture *fx)
{
	return rlv_sampler_flush(fx->sampler);
}

static int call_table_info(struct fixture *fx)
{
	struct rlv_table_info info = { .size = sizeof(info) };

	return rlv_table_info(fx->table, &info);
}

static int call_table_shards(struct fixture *fx)
{
	struct rlv_shard_info shards[4];
	size_t n = ARRAY_LEN(shards);

	return rlv_table_shards(fx->table, shards, sizeof(shards[0]), &n);
}

static int call_table_verify(struct fixture *fx)
{
	struct rlv_verify_report report = { .size = sizeof(report) };

	return rlv_table_verify(fx->table, &report);
}

static const struct call data_calls[] = {
	{ "rlv_writer_append", call_append, 0 },
	{ "rlv_sampler_sample, _update", call_sample_and_update, 0 },
	{ "rlv_sampler_flush", call_flush, 0 },
	{ "rlv_table_info", call_table_info, 0 },
	{ "rlv_table_shards", call_table_shards, 0 },
	{ "rlv_table_verify", call_table_verify, 0 },
};

/* -------- expectations -------- */

static void expect_code(const char *name, int got, int want)
{
	if (got != want)
		fail_msg("%s: %s (%s), want %s", name, rlv_error_name(got), rlv_last_error(),
			 rlv_error_name(want));
}

static void expect_words(const char *name, const char *words)
{
	if (!strstr(rlv_last_error(), words))
		fail_msg("%s: \"%s\" does not say \"%s\"", name, rlv_last_error(), words);
}

static void expect_away(const char *name, int got)
{
	expect_code(name, got, -ECONNREFUSED);
	expect_words(name, "shm:s");
	expect_words(name, "does not answer");
}

/* Every call of both kinds on open handles, while the server is away. */
static void expect_all_away_but_open(struct fixture *fx)
{
	for (uint32_t i = 1; i < ARRAY_LEN(control_calls); i++) {
		expect_away(control_calls[i].name, control_calls[i].fn(fx));
		expect_words(control_calls[i].name, "data path go on");
	}
	for (uint32_t i = 0; i < ARRAY_LEN(data_calls); i++)
		expect_code(data_calls[i].name, data_calls[i].fn(fx), 0);
}

static void expect_all_away(struct fixture *fx)
{
	expect_away("rlv_store_open", call_store_open(fx));
	expect_all_away_but_open(fx);
}

/* -------- fixture -------- */

static void start_metad(struct fixture *fx)
{
	fx->metad = processes_metad(&fx->ps, "s", fx->metad_args);
}

/* On a busy host the time of its calls may be too short. */
static bool opens_store(void *ctx)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	struct fixture *fx = ctx;

	opts.timeout_ns = TIMEOUT_NS;
	return rlv_store_open("shm:s", &opts, &fx->store) == 0;
}

static bool opens_table(void *ctx)
{
	struct fixture *fx = ctx;

	return rlv_table_open(fx->store, "t", &fx->table) == 0;
}

static bool opens_writer(void *ctx)
{
	struct fixture *fx = ctx;

	return rlv_writer_open(fx->table, NULL, &fx->writer) == 0;
}

static bool opens_sampler(void *ctx)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct fixture *fx = ctx;

	opts.gamma = 1;
	return rlv_sampler_open(fx->table, &opts, &fx->sampler) == 0;
}

static void make_table(void)
{
	struct rlv_store *store = NULL;
	struct rlv_table *table;

	must(rlv_store_open("shm:s", NULL, &store), "open");
	store_fixture_await_node(store);
	table = store_fixture_crash_table(store, 4096, 0);
	must(rlv_table_close(&table), "table_close");
	must(rlv_store_close(&store), "store_close");
}

static void open_handles(struct fixture *fx)
{
	assert_true(processes_until(opens_writer, fx));
	assert_true(processes_until(opens_sampler, fx));
}

static void open_all(struct fixture *fx)
{
	make_table();
	assert_true(processes_until(opens_store, fx));
	assert_true(processes_until(opens_table, fx));
	open_handles(fx);
	must(call_append(fx), "append");
}

static int setup_empty(void **state)
{
	static struct fixture fx;

	memset(&fx, 0, sizeof(fx));
	fx.impostor.fd = -1;
	processes_init(&fx.ps);
	*state = &fx;
	return 0;
}

static int setup_with(void **state, const char *const *metad_args)
{
	static const char *const args[] = { "--size", "64M", NULL };
	struct fixture *fx;

	(void)setup_empty(state);
	fx = *state;
	fx->metad_args = metad_args;
	start_metad(fx);
	fx->memnode = processes_memnode(&fx->ps, "s", "a", args);
	open_all(fx);
	return 0;
}

static int setup(void **state)
{
	return setup_with(state, NULL);
}

/* Clients say something to the server every 0.1 s. */
static int setup_renewing(void **state)
{
	static const char *const args[] = { "--lease", "0.3", NULL };

	return setup_with(state, args);
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	(void)!rlv_sampler_close(&fx->sampler);
	(void)!rlv_writer_close(&fx->writer);
	(void)!rlv_table_close(&fx->table);
	(void)!rlv_store_close(&fx->store);
	processes_fini(&fx->ps);
	return 0;
}

/* -------- impostors -------- */

static void *talk(void *arg)
{
	static const uint8_t half[5];
	struct impostor *imp = arg;

	while (!atomic_load(&imp->stop)) {
		int fd = accept4(imp->fd, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
			continue;
		(void)send(fd, half, sizeof(half), MSG_NOSIGNAL);
		close(fd);
	}
	return NULL;
}

static void start_impostor(struct fixture *fx, bool talks)
{
	struct impostor *imp = &fx->impostor;
	char path[PROCESSES_PATH + 64];

	processes_path(&fx->ps, "s/metad.sock", path);
	imp->fd = sockets_listen_unix(path, SOCK_STREAM);
	imp->talks = talks;
	atomic_store(&imp->stop, false);
	if (talks)
		assert_int_equal(pthread_create(&imp->thread, NULL, talk, imp), 0);
}

static void stop_impostor(struct fixture *fx)
{
	struct impostor *imp = &fx->impostor;
	char path[PROCESSES_PATH + 64];

	atomic_store(&imp->stop, true);
	(void)shutdown(imp->fd, SHUT_RDWR); /* its accept ends */
	if (imp->talks)
		assert_int_equal(pthread_join(imp->thread, NULL), 0);
	close(imp->fd);
	processes_path(&fx->ps, "s/metad.sock", path);
	assert_int_equal(unlink(path), 0);
}

/* -------- phases -------- */

static bool is_served(void *ctx)
{
	return store_fixture_node_is_up(((struct fixture *)ctx)->store);
}

struct served {
	struct fixture *fx;
	const struct call *call;
};

/* On a busy host a call may have too little time. */
static bool is_answered(void *ctx)
{
	const struct served *served = ctx;

	return served->call->fn(served->fx) == served->call->served;
}

/* All of them work again, and the handles with them. */
static void expect_served(struct fixture *fx)
{
	start_metad(fx);
	assert_true(processes_until(is_served, fx));
	for (uint32_t i = 0; i < ARRAY_LEN(data_calls); i++)
		expect_code(data_calls[i].name, data_calls[i].fn(fx), 0);
	for (uint32_t i = 0; i < ARRAY_LEN(control_calls); i++) {
		struct served served = { fx, &control_calls[i] };

		if (!processes_until(is_answered, &served))
			expect_code(control_calls[i].name, control_calls[i].fn(fx),
				    control_calls[i].served);
	}
}

#define CASE(f, setup) TEST_WITH(f, setup, teardown)

CASE(restart__no_socket_is_there, setup)
{
	struct fixture *fx = *state;

	processes_kill(&fx->ps, fx->metad, SIGTERM);
	expect_all_away(fx);
	expect_served(fx);
}

CASE(restart__nobody_listens_at_the_socket, setup)
{
	struct fixture *fx = *state;

	processes_kill(&fx->ps, fx->metad, SIGKILL);
	expect_all_away(fx);
	expect_served(fx);
}

CASE(restart__connections_are_accepted_and_nothing_is_said, setup)
{
	struct fixture *fx = *state;

	processes_kill(&fx->ps, fx->metad, SIGTERM);
	start_impostor(fx, false);
	expect_all_away(fx);
	stop_impostor(fx);
	expect_served(fx);
}

CASE(restart__the_handshake_breaks_off, setup)
{
	struct fixture *fx = *state;

	processes_kill(&fx->ps, fx->metad, SIGTERM);
	start_impostor(fx, true);
	expect_all_away(fx);
	stop_impostor(fx);
	expect_served(fx);
}

/* Handles are freed whatever the result, which says that the server does not answer. */
CASE(restart__closing_says_that_the_server_is_away, setup)
{
	struct fixture *fx = *state;

	processes_kill(&fx->ps, fx->metad, SIGTERM);
	expect_away("rlv_sampler_open", call_sampler_open(fx)); /* not that the table was dropped */
	expect_away("rlv_sampler_close", rlv_sampler_close(&fx->sampler));
	expect_away("rlv_writer_close", rlv_writer_close(&fx->writer));
	assert_null(fx->sampler);
	assert_null(fx->writer);
	must(rlv_table_close(&fx->table), "rlv_table_close");
	must(rlv_store_close(&fx->store), "rlv_store_close");
}

/* More often than the table has client slots, which this process gives back when it can. */
CASE(restart__slots_of_what_was_closed_meanwhile_come_back, setup_renewing)
{
	struct fixture *fx = *state;

	for (uint32_t i = 0; i < 10; i++) {
		processes_kill(&fx->ps, fx->metad, SIGTERM);
		expect_away("rlv_sampler_close", rlv_sampler_close(&fx->sampler));
		start_metad(fx);
		if (!processes_until(opens_sampler, fx))
			fail_msg("round %u: %s", i, rlv_last_error());
	}
	must(call_append(fx), "append");
	must(call_sample_and_update(fx), "sample");
}

/*
 * The request was sent, so its outcome is unknown. A later request is not sent, so it was not done. Nor is one whose time is
 * over before that, on a busy host.
 */
CASE(server__stopped_in_the_middle_of_a_call, setup)
{
	const struct call info = { "rlv_store_info", call_store_info, 0 };
	struct fixture *fx = *state;
	int ret = -ECONNREFUSED;

	for (int i = 0; i < 10 && ret == -ECONNREFUSED; i++) {
		struct served served = { fx, &info };

		assert_true(processes_until(is_answered, &served));
		kill(fx->metad, SIGSTOP);
		ret = call_table_open(fx);
		if (ret == -ECONNREFUSED)
			kill(fx->metad, SIGCONT);
	}
	expect_code("rlv_table_open", ret, -ETIMEDOUT);
	expect_words("rlv_table_open", "shm:s");
	expect_words("rlv_table_open", "not known");
	expect_all_away(fx);
	kill(fx->metad, SIGCONT);
	assert_true(processes_until(is_served, fx));
	must(call_sample_and_update(fx), "sample");
}

/* There is time to open it also on a busy host. */
static void open_by_uri(struct fixture *fx)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;

	opts.timeout_ns = 10 * TIMEOUT_NS;
	must(rlv_store_open(fx->uri, &opts, &fx->store), "open");
}

/* The words name the address that the store was opened by. */
CASE(restart__over_tcp, setup_empty)
{
	struct fixture *fx = *state;
	char listen[32];
	const char *const args[] = { "--listen", listen, NULL };

	snprintf(listen, sizeof(listen), "127.0.0.1:%u", processes_free_port());
	snprintf(fx->uri, sizeof(fx->uri), "relive://%s", listen);
	fx->metad = processes_metad(&fx->ps, "default", args); /* whose token is found */
	open_by_uri(fx);
	processes_kill(&fx->ps, fx->metad, SIGTERM);
	expect_code("rlv_store_info", call_store_info(fx), -ECONNREFUSED);
	expect_words("rlv_store_info", fx->uri);
	must(rlv_store_close(&fx->store), "close");
	expect_code("rlv_store_open", rlv_store_open(fx->uri, NULL, &fx->store), -ECONNREFUSED);
	expect_words("rlv_store_open", fx->uri);
}

/* -------- a request that the connection ends with -------- */

/* Carries one connection to the server, until it is told to end it with the next request. */
struct carrier {
	pthread_t thread;
	uint16_t port, server_port;
	int fd; /* listens */
	_Atomic bool cut;
};

/* false: that was the end. */
static bool carry(int from, int to, bool ends)
{
	uint8_t bytes[4096];
	ssize_t n = recv(from, bytes, sizeof(bytes), 0);

	return n > 0 && !ends && send(to, bytes, (size_t)n, MSG_NOSIGNAL) == n;
}

static void *run_carrier(void *arg)
{
	struct carrier *c = arg;
	struct pollfd ends[2] = { { .events = POLLIN }, { .events = POLLIN } };
	bool goes_on;

	ends[0].fd = accept4(c->fd, NULL, NULL, SOCK_CLOEXEC);
	ends[1].fd = sockets_connect_tcp(c->server_port);
	goes_on = ends[1].fd >= 0;
	while (goes_on && poll(ends, 2, -1) > 0)
		for (uint32_t i = 0; i < 2 && goes_on; i++)
			if (ends[i].revents)
				goes_on = carry(ends[i].fd, ends[!i].fd,
						i == 0 && atomic_load(&c->cut));
	close(c->fd); /* nobody listens any more */
	close(ends[0].fd);
	close(ends[1].fd);
	return NULL;
}

static void start_carrier(struct carrier *c)
{
	c->fd = sockets_listen_tcp(&c->port);
	atomic_store(&c->cut, false);
	assert_int_equal(pthread_create(&c->thread, NULL, run_carrier, c), 0);
}

static void expect_unknown(struct fixture *fx, const char *name, int got)
{
	expect_code(name, got, -ECONNRESET);
	expect_words(name, fx->uri);
	expect_words(name, "not known");
}

/* A request that must not be repeated, and one that may, but finds no server. */
CASE(server__ends_with_the_request, setup_empty)
{
	struct fixture *fx = *state;
	struct carrier carrier;
	char listen[32];
	const char *const args[] = { "--listen", listen, "--lease", "600", NULL };

	carrier.port = processes_free_port();
	carrier.server_port = processes_free_port();
	start_carrier(&carrier);
	snprintf(listen, sizeof(listen), "127.0.0.1:%u", carrier.server_port);
	snprintf(fx->uri, sizeof(fx->uri), "relive://127.0.0.1:%u", carrier.port);
	fx->metad = processes_metad(&fx->ps, "default", args);
	open_by_uri(fx);
	atomic_store(&carrier.cut, true);
	expect_unknown(fx, "rlv_table_drop", call_table_drop(fx));
	assert_int_equal(pthread_join(carrier.thread, NULL), 0);
	start_carrier(&carrier);
	must(call_store_tables(fx), "tables");
	atomic_store(&carrier.cut, true);
	expect_unknown(fx, "rlv_store_tables", call_store_tables(fx));
	assert_int_equal(pthread_join(carrier.thread, NULL), 0);
	expect_code("rlv_table_drop", call_table_drop(fx), -ECONNREFUSED);
}

/* -------- relive down -------- */

static void run(const char *line)
{
	const char *bin = getenv("RLV_BIN_DIR");
	char command[256];

	snprintf(command, sizeof(command), "exec timeout 60 %s/relive %s >/dev/null </dev/null",
		 bin ? bin : "bin", line);
	fflush(NULL);
	assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c): the words are ours */
}

/*
 * As after any end of the daemons: mapped memory stays usable, and no table is reported as dropped
 * or missing.
 */
CASE(down__with_an_open_table, setup_empty)
{
	struct fixture *fx = *state;
	struct rlv_store *late = NULL;

	run("up --store s --size 64M");
	open_all(fx);
	run("down --force --store s");
	expect_all_away_but_open(fx);
	expect_away("rlv_sampler_close", rlv_sampler_close(&fx->sampler));
	expect_away("rlv_writer_close", rlv_writer_close(&fx->writer));
	must(rlv_table_close(&fx->table), "rlv_table_close");
	must(rlv_store_close(&fx->store), "rlv_store_close");
	expect_code("rlv_store_open", rlv_store_open("shm:s", NULL, &late), -ENOENT);
}

int main(void)
{
	return test_run(NULL, NULL);
}
