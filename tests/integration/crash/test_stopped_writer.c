/*
 * Clients that are stopped (SIGSTOP) where it hurts: a writer between claim and publish while the ring
 * goes round under it, a learner that owes the tree its deltas while a rebuild is due.
 */
#include "tests/support/attack/crash_rows.h"
#include "tests/support/attack/debtor.h"
#include "tests/support/attack/mid_call.h"
#include "tests/support/processes.h"
#include "tests/support/fixture/store_fixture.h"
#include "tests/support/must.h"
#include "tests/support/wrap_open.h"

#include "relive/relive.h"

#include "transport/transport.h"

#include "base/os/clock.h"
#include "base/rng.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 1000000
#define STOPS 8u

/* Shared with the one that is stopped. */
struct shared {
	_Atomic uint64_t calls;
	_Atomic bool end;
	struct debtor debtor;
};

struct fixture {
	struct processes ps;
	struct shared *shared;
	struct rlv_store *store;
	struct rlv_table *table;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	struct rng rng;
	uint32_t step; /* of our own writer */
	const char *const *metad_args;
	const char *pool; /* file of the memory node's pool, NULL = memory */
	pid_t metad, memnode;
};

/* -------- stopped processes -------- */

/* Without guards, as a change that is one list is made or not made as a whole: nobody is stopped within it. */
static int take_guards(struct transport **tr)
{
	(*tr)->caps &= ~(uint32_t)TRANSPORT_GUARDS;
	return 0;
}

WRAP_TRANSPORT_OPEN(take_guards)

int __real_transport_post_chain(struct transport *tr, struct transport_wr *wrs, size_t n,
				struct transport_span *span);
int __wrap_transport_post_chain(struct transport *tr, struct transport_wr *wrs, size_t n,
				struct transport_span *span);

int __wrap_transport_post_chain(struct transport *tr, struct transport_wr *wrs, size_t n,
				struct transport_span *span)
{
	mid_call_posts();
	return __real_transport_post_chain(tr, wrs, n, span);
}

static int run_writer(void *ctx)
{
	static struct crash_rows rows;
	struct shared *shared = ctx;
	struct rlv_store *store;
	struct rlv_table *table;
	struct rlv_writer *writer;
	int ret = rlv_store_open("shm:s", NULL, &store);

	if (ret == 0)
		ret = rlv_table_open(store, "t", &table);
	if (ret == 0)
		ret = rlv_writer_open(table, NULL, &writer);
	for (uint32_t step = 0; ret == 0 && !atomic_load(&shared->end); step += 96) {
		crash_rows_fill(&rows, 9, step, 96);
		ret = rlv_writer_append(writer, 0, &rows.steps, NULL);
		atomic_fetch_add(&shared->calls, 1);
	}
	if (ret == 0)
		ret = rlv_writer_close(&writer);
	if (ret)
		snprintf(shared->debtor.why, DEBTOR_WHY, "writer: %s: %s", rlv_error_name(ret),
			 rlv_last_error());
	return ret ? 1 : 0;
}

/* -------- fixture -------- */

static void start_metad(struct fixture *fx)
{
	fx->metad = processes_metad(&fx->ps, "s", fx->metad_args);
}

static void start_memnode(struct fixture *fx)
{
	char path[PROCESSES_PATH + 64];
	const char *const memory[] = { "--size", "64M", NULL };
	const char *const file[] = { "--size", "64M", "--file", path, NULL };

	if (fx->pool)
		processes_path(&fx->ps, fx->pool, path);
	fx->memnode = processes_memnode(&fx->ps, "s", "a", fx->pool ? file : memory);
}

static int open_fixture(void **state, const char *const *metad_args, const char *pool)
{
	static struct fixture fx;
	struct rlv_sampler_opts sampler = RLV_SAMPLER_OPTS_INIT;

	memset(&fx, 0, sizeof(fx));
	processes_init(&fx.ps);
	fx.shared = mmap(NULL, sizeof(*fx.shared), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(fx.shared != MAP_FAILED);
	fx.metad_args = metad_args;
	start_metad(&fx);
	fx.pool = pool;
	start_memnode(&fx);
	must(rlv_store_open("shm:s", NULL, &fx.store), "open");
	store_fixture_await_node(fx.store);
	fx.table = store_fixture_crash_table(fx.store, 2048, 64);
	must(rlv_writer_open(fx.table, NULL, &fx.writer), "writer");
	sampler.gamma = 1;
	must(rlv_sampler_open(fx.table, &sampler, &fx.sampler), "sampler");
	rng_seed(&fx.rng, test_seed("stopped_writer", 20240919), 0);
	*state = &fx;
	return 0;
}

static int setup_wait(void **state)
{
	static const char *const args[] = { "--lease", "0.3", NULL };

	return open_fixture(state, args, NULL);
}

static int setup_kill(void **state)
{
	static const char *const args[] = { "--lease", "0.3", "--stall-limit", "2", "--stalled",
					    "kill",    NULL };

	return open_fixture(state, args, NULL);
}

/* No lease ends during the test. */
static const char *const patient[] = { "--lease", "600", NULL };

static int setup_patient(void **state)
{
	return open_fixture(state, patient, NULL);
}

static int setup_patient_file(void **state)
{
	return open_fixture(state, patient, "pool");
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	(void)!rlv_sampler_close(&fx->sampler);
	(void)!rlv_writer_close(&fx->writer);
	(void)!rlv_table_close(&fx->table);
	(void)!rlv_store_close(&fx->store);
	processes_fini(&fx->ps);
	munmap(fx->shared, sizeof(*fx->shared));
	return 0;
}

/* -------- running processes -------- */

static void check_samples(struct fixture *fx, uint32_t batches)
{
	char why[CRASH_WHY];

	for (uint32_t i = 0; i < batches; i++) {
		const struct rlv_batch *batch;

		must(rlv_sampler_sample(fx->sampler, 256, 0, &batch), "sample");
		if (crash_batch_check(batch, why))
			fail_msg("wrong bytes: %s", why);
		rlv_batch_release(fx->sampler, batch);
	}
}

/* Appends `rounds` times the ring's slots, and looks at what is drawn meanwhile. */
static void go_round(struct fixture *fx, uint32_t rounds)
{
	static struct crash_rows rows;
	struct rlv_table_info info = { .size = sizeof(info) };

	must(rlv_table_info(fx->table, &info), "info");
	for (uint64_t n = 0; n < rounds * info.slots; n += 200) {
		crash_rows_fill(&rows, 1, fx->step, 200);
		must(rlv_writer_append(fx->writer, 0, &rows.steps, NULL), "append");
		fx->step += 200;
		check_samples(fx, 1);
	}
}

static bool is_exact(void *ctx)
{
	struct rlv_verify_report report = { .size = sizeof(report) };
	struct fixture *fx = ctx;

	return rlv_table_verify(fx->table, &report) == 0 && report.problems == 0 &&
	       report.wrong_sums == 0;
}

static bool has_called(void *ctx)
{
	return atomic_load(&((struct fixture *)ctx)->shared->calls) > 0;
}

static void expect_end(struct fixture *fx, pid_t pid, int want)
{
	int status = processes_wait(&fx->ps, pid, PROCESSES_WAIT_MS);

	if (status != want)
		fail_msg("it ended with %d, want %d: %s", status, want, fx->shared->debtor.why);
}

/* A signal to stop takes its time. */
static void stop(struct fixture *fx, pid_t pid)
{
	siginfo_t info;

	processes_kill(&fx->ps, pid, SIGSTOP);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOWAIT), 0);
}

/* -------- tests -------- */

/*
 * The writer is stopped at a random instant, mostly between the claim of a block and its last
 * publish.
 */
static void writer__stopped_while_the_ring_goes_round_twice(void **state)
{
	struct fixture *fx = *state;
	pid_t pid = processes_fork(&fx->ps, run_writer, fx->shared);

	assert_true(processes_until(has_called, fx));
	go_round(fx, 1);
	for (uint32_t i = 0; i < STOPS; i++) {
		uint64_t calls;

		processes_sleep_ns((int64_t)rng_uniform_u64(&fx->rng, 5 * MS));
		stop(fx, pid);
		calls = atomic_load(&fx->shared->calls);
		go_round(fx, 2);
		assert_int_equal(atomic_load(&fx->shared->calls), calls);
		processes_kill(&fx->ps, pid, SIGCONT);
		check_samples(fx, 20);
	}
	atomic_store(&fx->shared->end, true);
	expect_end(fx, pid, 0); /* none of its publishes failed */
	must(rlv_writer_close(&fx->writer), "writer_close");
	assert_true(processes_until(is_exact, fx));
	check_samples(fx, 20);
}

/* A client that is killed with deltas in hand makes a rebuild due. */
static void kill_debtor(struct fixture *fx)
{
	(void)debtor_start(&fx->ps, &fx->shared->debtor, SIGKILL);
}

static pid_t stop_debtor(struct fixture *fx)
{
	go_round(fx, 1);
	return debtor_start(&fx->ps, &fx->shared->debtor, SIGSTOP);
}

static bool somebody_waits(void *ctx)
{
	struct rlv_store_info info = { .size = sizeof(info) };
	struct fixture *fx = ctx;

	return rlv_store_info(fx->store, &info) == 0 && info.waiting[0];
}

static bool nobody_waits(void *ctx)
{
	return !somebody_waits(ctx);
}

static uint32_t rebuilds(struct fixture *fx)
{
	struct rlv_store_info info = { .size = sizeof(info) };

	must(rlv_store_info(fx->store, &info), "info");
	return info.rebuilds;
}

struct until {
	struct fixture *fx;
	uint32_t rebuilds;
};

static bool is_rebuilt_or_waits(void *ctx)
{
	const struct until *until = ctx;

	return rebuilds(until->fx) > until->rebuilds || somebody_waits(until->fx);
}

/* What `relive LINE` prints has the words. */
static void expect_printed(const char *line, const char *words)
{
	const char *bin = getenv("RLV_BIN_DIR");
	char command[256], text[8192];
	FILE *out;
	size_t n;

	snprintf(command, sizeof(command), "exec timeout 60 %s/relive %s", bin ? bin : "bin", line);
	out = popen(command, "re"); /* NOLINT(cert-env33-c): the words are ours */
	assert_non_null(out);
	n = fread(text, 1, sizeof(text) - 1, out);
	text[n] = '\0';
	assert_int_equal(pclose(out), 0);
	if (!strstr(text, words))
		fail_msg("relive %s: \"%s\" is not in:\n%s", line, words, text);
}

static void expect_status(const char *words)
{
	char line[160], member[160];

	snprintf(line, sizeof(line), "waiting: table t: %s", words);
	expect_printed("status shm:s", line);
	snprintf(member, sizeof(member), "\"waiting\":\"table t: %s", words);
	expect_printed("status shm:s --json", member);
}

/* The first rebuild may pass by a pin of its own epoch, the one after it may not. */
static void make_rebuilds_due(struct fixture *fx)
{
	struct until until = { fx, rebuilds(fx) };

	kill_debtor(fx);
	assert_true(processes_until(is_rebuilt_or_waits, &until));
	kill_debtor(fx);
}

static void rebuild__waits_for_a_stopped_client_and_names_it(void **state)
{
	struct rlv_store_info info = { .size = sizeof(info) };
	struct fixture *fx = *state;
	pid_t pid = stop_debtor(fx);
	char words[64];

	make_rebuilds_due(fx);
	assert_true(processes_until(somebody_waits, fx));
	must(rlv_store_info(fx->store, &info), "info");
	snprintf(words, sizeof(words), "rebuild waits for pid %d", (int)pid);
	if (!strstr(info.waiting, words))
		fail_msg("status says \"%s\", want \"%s\"", info.waiting, words);
	expect_status(words);
	go_round(fx, 2);
	atomic_store(&fx->shared->debtor.pays, true);
	processes_kill(&fx->ps, pid, SIGCONT);
	expect_end(fx, pid, 0);
	assert_true(processes_until(nobody_waits, fx));
	assert_true(processes_until(is_exact, fx));
}

static void rebuild__ends_when_the_stopped_client_is_killed(void **state)
{
	struct fixture *fx = *state;
	uint64_t began = clock_now_ns(clock_monotonic());
	pid_t pid = stop_debtor(fx);

	make_rebuilds_due(fx);
	expect_end(fx, pid, 128 + SIGKILL);
	print_message(
		"killed %.1f s after it was stopped (the lease is 0.3 s, the stall limit 2 s)\n",
		(double)(clock_now_ns(clock_monotonic()) - began) / 1e9);
	assert_true(processes_until(nobody_waits, fx));
	assert_true(processes_until(is_exact, fx));
	go_round(fx, 1);
}

static bool is_alone(void *ctx)
{
	struct rlv_store_info info = { .size = sizeof(info) };
	struct fixture *fx = ctx;

	return rlv_store_info(fx->store, &info) == 0 && info.n_clients == 1 && !info.waiting[0];
}

/*
 * The server did not see the clients die, and their leases still run: the end of their processes is
 * proof enough.
 */
static void sums__are_exact_after_daemons_and_clients_were_killed(void **state)
{
	struct fixture *fx = *state;
	uint64_t began;
	pid_t pid;

	go_round(fx, 1);
	pid = debtor_start(&fx->ps, &fx->shared->debtor, 0);
	processes_kill(&fx->ps, fx->metad, SIGKILL);
	processes_kill(&fx->ps, pid, SIGKILL);
	assert_false(is_exact(fx));
	if (fx->pool)
		processes_kill(&fx->ps, fx->memnode, SIGKILL);
	began = clock_now_ns(clock_monotonic());
	start_metad(fx);
	if (fx->pool)
		start_memnode(fx);
	assert_true(processes_until(is_alone, fx));
	assert_true(processes_until(is_exact, fx));
	print_message("exact sums %.2f s after the server began anew\n",
		      (double)(clock_now_ns(clock_monotonic()) - began) / 1e9);
}

/* The client is alive, so it is not settled: its deltas are missing until it continues. */
static void rebuild__waits_for_a_client_that_has_not_come_back(void **state)
{
	struct fixture *fx = *state;
	pid_t pid = stop_debtor(fx);
	char words[64];

	processes_kill(&fx->ps, fx->metad, SIGKILL);
	start_metad(fx);
	snprintf(words, sizeof(words), "rebuild waits for pid %d, which is away", (int)pid);
	assert_true(processes_until(somebody_waits, fx));
	expect_status(words);
	atomic_store(&fx->shared->debtor.pays, true);
	processes_kill(&fx->ps, pid, SIGCONT);
	expect_end(fx, pid, 0);
	assert_true(processes_until(is_alone, fx));
	assert_true(processes_until(is_exact, fx));
}

#define CASE(f, setup) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(writer__stopped_while_the_ring_goes_round_twice, setup_wait),
		CASE(rebuild__waits_for_a_stopped_client_and_names_it, setup_wait),
		CASE(rebuild__ends_when_the_stopped_client_is_killed, setup_kill),
		CASE(sums__are_exact_after_daemons_and_clients_were_killed, setup_patient),
		CASE(sums__are_exact_after_daemons_and_clients_were_killed, setup_patient_file),
		CASE(rebuild__waits_for_a_client_that_has_not_come_back, setup_patient),
	};

	return TEST_RUN(tests, NULL, NULL);
}
