/*
 * kill -9 of the metadata server under load, again and again: the data path does not notice. kill -9
 * of a memory node: who has its memory mapped goes on with it until the node is replaced. And garbage
 * on the sockets while clients work.
 */
#include "tests/support/attack/crash_rows.h"
#include "tests/support/sockets.h"
#include "tests/support/processes.h"
#include "tests/support/fixture/store_fixture.h"
#include "tests/support/must.h"

#include "relive/relive.h"

#include "base/os/clock.h"
#include "base/rng.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MS 1000000
#define WINDOW_MS 100

struct shared {
	_Atomic uint64_t loops; /* append, sample, update */
	_Atomic bool end;
	_Atomic int error; /* first one */
	char why[256];
};

struct fixture {
	struct processes ps;
	struct shared *shared;
	struct rlv_store *store;
	struct rlv_table *table;
	struct rng rng;
	pid_t metad, memnode, worker;
};

/* -------- load -------- */

struct worker {
	struct rlv_store *store;
	struct rlv_table *table;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	struct crash_rows rows;
	uint32_t step;
};

static int open_worker(struct worker *w)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	int ret = rlv_store_open("shm:s", NULL, &w->store);

	opts.gamma = 1;
	if (ret == 0)
		ret = rlv_table_open(w->store, "t", &w->table);
	if (ret == 0)
		ret = rlv_writer_open(w->table, NULL, &w->writer);
	return ret ? ret : rlv_sampler_open(w->table, &opts, &w->sampler);
}

static int work_once(struct worker *w)
{
	const struct rlv_batch *batch;
	float priority[256];
	char why[CRASH_WHY];
	int ret;

	crash_rows_fill(&w->rows, 1, w->step, 100);
	w->step += 100;
	ret = rlv_writer_append(w->writer, 0, &w->rows.steps, NULL);
	if (ret == 0)
		ret = rlv_sampler_sample(w->sampler, 256, 0, &batch);
	if (ret)
		return ret;
	for (uint32_t i = 0; i < batch->n; i++)
		priority[i] = crash_priority(i, w->step);
	ret = crash_batch_check(batch, why) ? -EBADMSG
					    : rlv_sampler_set_priorities(w->sampler, batch->key,
									 priority, batch->n, NULL);
	rlv_batch_release(w->sampler, batch);
	return ret;
}

static int close_worker(struct worker *w)
{
	int ret = rlv_sampler_close(&w->sampler);

	if (ret == 0)
		ret = rlv_writer_close(&w->writer);
	if (ret == 0)
		ret = rlv_table_close(&w->table);
	return ret ? ret : rlv_store_close(&w->store);
}

static int run_worker(void *ctx)
{
	static struct worker w;
	struct shared *shared = ctx;
	int ret = open_worker(&w);

	while (ret == 0 && !atomic_load(&shared->end)) {
		ret = work_once(&w);
		atomic_fetch_add(&shared->loops, 1);
	}
	if (ret == 0)
		ret = close_worker(&w);
	if (ret) {
		snprintf(shared->why, sizeof(shared->why), "%s: %s", rlv_error_name(ret),
			 rlv_last_error());
		atomic_store(&shared->error, ret);
	}
	return ret ? 1 : 0;
}

/* -------- fixture -------- */

static void start_metad(struct fixture *fx)
{
	static const char *const args[] = { "--lease", "0.5", NULL };

	fx->metad = processes_metad(&fx->ps, "s", args);
}

static void start_memnode(struct fixture *fx)
{
	static const char *const args[] = { "--size", "64M", NULL };

	fx->memnode = processes_memnode(&fx->ps, "s", "a", args);
}

static bool has_worked(void *ctx)
{
	struct shared *shared = ((struct fixture *)ctx)->shared;

	return atomic_load(&shared->loops) > 2 || atomic_load(&shared->error);
}

static int setup(void **state)
{
	static struct fixture fx;

	memset(&fx, 0, sizeof(fx));
	processes_init(&fx.ps);
	fx.shared = mmap(NULL, sizeof(*fx.shared), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(fx.shared != MAP_FAILED);
	start_metad(&fx);
	start_memnode(&fx);
	must(rlv_store_open("shm:s", NULL, &fx.store), "open");
	store_fixture_await_node(fx.store);
	fx.table = store_fixture_crash_table(fx.store, 8192, 0);
	fx.worker = processes_fork(&fx.ps, run_worker, fx.shared);
	assert_true(processes_until(has_worked, &fx));
	rng_seed(&fx.rng, test_seed("kill_daemons", 20240921), 0);
	*state = &fx;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	(void)!rlv_table_close(&fx->table);
	(void)!rlv_store_close(&fx->store);
	processes_fini(&fx->ps);
	munmap(fx->shared, sizeof(*fx->shared));
	return 0;
}

/* Loops of the worker within the next window; on a busy host it is longer, until there is one. */
static uint64_t window(struct fixture *fx)
{
	uint64_t before = atomic_load(&fx->shared->loops);

	for (int ms = 0; ms < PROCESSES_WAIT_MS; ms += WINDOW_MS) {
		processes_sleep_ns(WINDOW_MS * MS);
		if (atomic_load(&fx->shared->loops) > before)
			break;
	}
	if (atomic_load(&fx->shared->error))
		fail_msg("the worker: %s", fx->shared->why);
	return atomic_load(&fx->shared->loops) - before;
}

static void stop_worker(struct fixture *fx)
{
	atomic_store(&fx->shared->end, true);
	if (processes_wait(&fx->ps, fx->worker, PROCESSES_WAIT_MS))
		fail_msg("the worker: %s", fx->shared->why);
}

static void expect_sound(struct fixture *fx)
{
	struct rlv_verify_report report = { .size = sizeof(report) };

	must(rlv_table_verify(fx->table, &report), "verify");
	if (report.problems)
		fail_msg("%u problems: %s", report.problems, report.first_problem);
}

static uint32_t kills(void)
{
	const char *text = getenv("RLV_TEST_KILLS");
	uint32_t n = text && *text ? (uint32_t)strtoul(text, NULL, 10) / 8 : 5;

	return n ? n : 1;
}

/* A new client sees the tables, appends, samples, and goes: all by the restarted server. */
static int run_visitor(void *ctx)
{
	static struct worker w;
	int ret = open_worker(&w);

	(void)ctx;
	w.step = 50 * CRASH_EPISODE;
	for (uint32_t i = 0; ret == 0 && i < 10; i++)
		ret = work_once(&w);
	if (ret == 0)
		ret = close_worker(&w);
	if (ret)
		print_error("visitor: %s: %s\n", rlv_error_name(ret), rlv_last_error());
	return ret ? 1 : 0;
}

#define CASE(f) TEST_WITH(f, setup, teardown)

/* -------- tests -------- */

CASE(metad__killed_under_load)
{
	struct fixture *fx = *state;
	uint64_t with = window(fx), without = UINT64_MAX;

	for (uint32_t i = 0; i < kills(); i++) {
		uint64_t now;

		processes_sleep_ns((int64_t)rng_uniform_u64(&fx->rng, 20 * MS));
		processes_kill(&fx->ps, fx->metad, SIGKILL);
		now = window(fx);
		without = now < without ? now : without;
		start_metad(fx);
		store_fixture_await_node(fx->store);
		assert_int_equal(processes_wait(&fx->ps, processes_fork(&fx->ps, run_visitor, NULL),
						PROCESSES_WAIT_MS),
				 0);
	}
	print_message("loops in %d ms: %llu with a server, at least %llu without\n", WINDOW_MS,
		      (unsigned long long)with, (unsigned long long)without);
	assert_true(without > 0);
	stop_worker(fx);
	expect_sound(fx);
}

/*
 * The node's memory stays mapped in its clients, who go on with it unless a wire changes its words; a node
 * of that name that returns is another one.
 */
CASE(memnode__killed_under_load)
{
	struct fixture *fx = *state;
	uint64_t with = window(fx), without;
	struct rlv_table *table = NULL;

	processes_kill(&fx->ps, fx->memnode, SIGKILL);
	if (!getenv("RLV_TEST_TRANSPORT")) {
		without = window(fx);
		print_message("loops in %d ms: %llu with a node, %llu without\n", WINDOW_MS,
			      (unsigned long long)with, (unsigned long long)without);
		assert_true(without > 0);
	}
	start_memnode(fx);
	store_fixture_await_node(fx->store);
	assert_int_equal(processes_wait(&fx->ps, fx->worker, PROCESSES_WAIT_MS), 1);
	assert_int_equal(atomic_load(&fx->shared->error), -EHOSTDOWN);
	assert_int_equal(rlv_table_open(fx->store, "t", &table), -EHOSTDOWN);
	must(rlv_table_close(&fx->table), "close of a table whose node is gone");
	must(rlv_table_drop(fx->store, "t"), "drop");
	fx->table = store_fixture_crash_table(fx->store, 8192, 0);
	expect_sound(fx);
}

CASE(memnode__second_of_that_name_is_refused)
{
	static const char *const args[] = { "--store", "s", "--name", "a", "--size", "64M", NULL };
	struct fixture *fx = *state;
	pid_t second = processes_start(&fx->ps, "relive-memnode", args);

	assert_true(processes_wait(&fx->ps, second, PROCESSES_WAIT_MS) > 0);
	assert_true(window(fx) > 0);
	stop_worker(fx);
	expect_sound(fx);
}

/* -------- garbage -------- */

static void throw_garbage(struct fixture *fx, const char *name, int type)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char path[PROCESSES_PATH + 64];
	uint8_t bytes[512];
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	uint32_t n = 1 + (uint32_t)rng_uniform_u64(&fx->rng, sizeof(bytes));

	assert_true(fd >= 0);
	processes_path(&fx->ps, name, path);
	snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", path);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0) {
		for (uint32_t i = 0; i < n; i++)
			bytes[i] = (uint8_t)rng_next_u64(&fx->rng);
		(void)!send(fd, bytes, n, MSG_NOSIGNAL);
		if (n % 2)
			(void)shutdown(fd, SHUT_WR);
	}
	if (n % 3)
		processes_sleep_ns(MS / 10);
	close(fd);
}

CASE(sockets__garbage_and_half_closed_peers)
{
	struct fixture *fx = *state;

	for (uint32_t i = 0; i < 200; i++) {
		throw_garbage(fx, "s/metad.sock", SOCK_STREAM);
		throw_garbage(fx, "s/memnode-a.sock", SOCK_SEQPACKET);
	}
	assert_true(processes_runs(&fx->ps, fx->metad));
	assert_true(processes_runs(&fx->ps, fx->memnode));
	assert_true(window(fx) > 0);
	assert_int_equal(processes_wait(&fx->ps, processes_fork(&fx->ps, run_visitor, NULL),
					PROCESSES_WAIT_MS),
			 0);
	stop_worker(fx);
	expect_sound(fx);
}

int main(void)
{
	return test_run(NULL, NULL);
}
