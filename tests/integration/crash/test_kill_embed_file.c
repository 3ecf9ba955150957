/*
 * embed:FILE after kill -9 at random moments of append, sample, update, create, drop and recovery:
 * acknowledged items are there with their priorities, and the ring continues.
 */
#include "tests/support/attack/crash_rows.h"
#include "tests/support/must.h"
#include "tests/support/store_nodes.h"

#include "relive/relive.h"

#include "base/os/clock.h"
#include "base/rng.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CAPACITY 4096u
#define KEPT (CAPACITY / 2) /* a kill wastes the rest of a block: some of the slack */
#define BLOCK 64u
#define JOURNAL 65536u /* steps that the journal remembers */
#define TRIES 16u      /* updates of one item without an answer */
#define MS 1000000
#define POOL_BYTES (24u << 20)
#define CHILD_FAILED 3

enum told { UNTOLD = 0, TRIED, ACKED };

/* Acknowledged operations of the victim, in memory that outlives it. */
struct journal {
	_Atomic uint32_t ready; /* the store is open */
	_Atomic uint32_t next;  /* first step not yet tried */
	_Atomic uint32_t done;  /* first step without an answer */
	_Atomic uint32_t state[JOURNAL];
	_Atomic uint32_t salt[JOURNAL]; /* of the priority that is acknowledged */
	/* Of those that had no answer since: several victims may die one after the other. */
	_Atomic uint32_t tried_salt[JOURNAL][TRIES];
	_Atomic uint32_t tries[JOURNAL];
	char error[512];
};

static struct journal *journal;
static struct rng rng;
static char path[256];

static uint32_t below(uint32_t n)
{
	return (uint32_t)rng_uniform_u64(&rng, n);
}

/* -------- the victim -------- */

struct victim {
	struct rlv_store *store;
	struct rlv_table *table;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	struct crash_rows rows;
};

static struct rlv_table_opts table_opts(void)
{
	struct rlv_table_opts opts = crash_table_opts(CAPACITY);

	opts.block = BLOCK;
	opts.max_writers = 2;
	opts.max_clients = 8;
	opts.shards = 2;
	return opts;
}

static int open_store(struct rlv_store **store_out)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	char uri[300];

	opts.pool_bytes = POOL_BYTES;
	snprintf(uri, sizeof(uri), "embed:%s", path);
	return rlv_store_open(uri, &opts, store_out);
}

static int victim_open(struct victim *v)
{
	struct rlv_table_opts opts = table_opts();
	struct rlv_sampler_opts sampler = RLV_SAMPLER_OPTS_INIT;
	int ret = open_store(&v->store);

	sampler.batch_size = 64;
	sampler.gamma = 1;
	if (ret == 0)
		ret = rlv_table_create(v->store, "main", &opts, &v->table);
	if (ret == 0)
		ret = rlv_writer_open(v->table, NULL, &v->writer);
	return ret ? ret : rlv_sampler_open(v->table, &sampler, &v->sampler);
}

static int append(struct victim *v)
{
	uint32_t first = atomic_load(&journal->next), n = 1 + below(100);
	int ret;

	crash_rows_fill(&v->rows, 1, first, n);
	for (uint32_t i = first; i < first + n; i++) {
		atomic_store(&journal->salt[i % JOURNAL], 0);
		atomic_store(&journal->tries[i % JOURNAL], 0);
		atomic_store(&journal->state[i % JOURNAL], TRIED);
	}
	atomic_store(&journal->next, first + n);
	ret = rlv_writer_append(v->writer, 0, &v->rows.steps, NULL);
	for (uint32_t i = first; ret == 0 && i < first + n; i++)
		atomic_store(&journal->state[i % JOURNAL], ACKED);
	if (ret == 0)
		atomic_store(&journal->done, first + n);
	return ret;
}

static void try_salt(uint32_t at, uint32_t salt)
{
	uint32_t k = atomic_fetch_add(&journal->tries[at], 1);

	atomic_store(&journal->tried_salt[at][k % TRIES], salt);
}

static int update_batch(struct victim *v, const struct rlv_batch *batch)
{
	uint32_t salt = 1 + below(1000);
	float priority[64];
	int ret;

	for (uint32_t i = 0; i < batch->n; i++) {
		uint32_t n = crash_step_of(crash_ids(batch)[i]);

		priority[i] = crash_priority(n, salt);
		try_salt(n % JOURNAL, salt);
	}
	ret = rlv_sampler_set_priorities(v->sampler, batch->key, priority, batch->n, NULL);
	for (uint32_t i = 0; ret == 0 && i < batch->n; i++) {
		uint32_t n = crash_step_of(crash_ids(batch)[i]) % JOURNAL;

		atomic_store(&journal->salt[n], salt);
		atomic_store(&journal->tries[n], 0);
	}
	return ret;
}

static int update(struct victim *v)
{
	const struct rlv_batch *batch;
	char why[CRASH_WHY];
	int ret = rlv_sampler_sample(v->sampler, 64, 0, &batch);

	if (ret)
		return ret == -ENODATA || ret == -ETIMEDOUT ? 0 : ret;
	if (crash_batch_check(batch, why)) {
		snprintf(journal->error, sizeof(journal->error), "wrong bytes: %s", why);
		return -EBADMSG;
	}
	ret = update_batch(v, batch);
	rlv_batch_release(v->sampler, batch);
	return ret;
}

/* A table of its own that comes and goes. */
static int create_and_drop(struct victim *v)
{
	struct rlv_table_opts opts = table_opts();
	struct rlv_writer *writer = NULL;
	struct rlv_table *side;
	int ret;

	opts.capacity = 2048;
	opts.block = 32;
	opts.shards = 1;
	ret = rlv_table_create(v->store, "side", &opts, &side);
	if (ret == 0)
		ret = rlv_writer_open(side, NULL, &writer);
	crash_rows_fill(&v->rows, 2, 0, 100);
	if (ret == 0)
		ret = rlv_writer_append(writer, 0, &v->rows.steps, NULL);
	if (ret == 0)
		ret = rlv_writer_close(&writer);
	if (ret == 0)
		ret = rlv_table_close(&side);
	return ret ? ret : rlv_table_drop(v->store, "side");
}

static _Noreturn void victim_run(void)
{
	static struct victim v;
	int ret;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	ret = victim_open(&v);
	if (ret == 0)
		atomic_store(&journal->ready, 1);
	for (uint32_t i = 0; ret == 0; i++) {
		ret = append(&v);
		if (ret == 0)
			ret = update(&v);
		if (ret == 0 && i % 16 == 0)
			ret = create_and_drop(&v);
	}
	if (!journal->error[0])
		snprintf(journal->error, sizeof(journal->error), "%s: %s", rlv_error_name(ret),
			 rlv_last_error());
	_exit(CHILD_FAILED);
}

/* -------- the killer -------- */

static void sleep_ns(int64_t ns)
{
	struct timespec ts = { ns / 1000000000, ns % 1000000000 };

	nanosleep(&ts, NULL);
}

static pid_t start_victim(void)
{
	pid_t pid;

	rng_next_u64(&rng); /* another stream than the last victim's */
	journal->ready = 0;
	fflush(stdout);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		victim_run();
	return pid;
}

/* Waits until it is at work. */
static void wait_ready(pid_t pid)
{
	int status;

	while (!atomic_load(&journal->ready)) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			fail_msg("the victim failed by itself: %s", journal->error);
		sleep_ns(MS / 10);
	}
}

static void kill_after(pid_t pid, int64_t ns)
{
	int status = 0;

	sleep_ns(ns);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFSIGNALED(status))
		fail_msg("the victim failed by itself: %s", journal->error);
}

/* -------- after the kill -------- */

static void verify(struct rlv_table *table)
{
	struct rlv_verify_report report = { .size = sizeof(report) };

	must(rlv_table_verify(table, &report), "verify");
	if (report.problems)
		fail_msg("%u problems: %s", report.problems, report.first_problem);
	assert_int_equal(report.open_blocks, 0);
}

/* The priority is the one acknowledged last, or that of an update that was cut since. */
static void check_priority(uint32_t n, float priority)
{
	float acked = crash_priority(n, journal->salt[n % JOURNAL]);
	uint32_t tries = journal->tries[n % JOURNAL];
	bool known = fabsf(priority - acked) < 1e-4f;

	for (uint32_t k = 0; !known && k < tries && k < TRIES; k++)
		known = fabsf(priority - crash_priority(n, journal->tried_salt[n % JOURNAL][k])) <
			1e-4f;
	if (!known)
		fail_msg("step %u has priority %g, acknowledged was %g, and none of %u tries", n,
			 (double)priority, (double)acked, tries);
}

static void see_batch(uint32_t view, const struct rlv_batch *batch, uint8_t *seen)
{
	char why[CRASH_WHY];

	if (crash_batch_check(batch, why))
		fail_msg("wrong bytes after the kill: %s", why);
	for (uint32_t k = 0; k < batch->n; k++) {
		uint32_t n = crash_step_of(crash_ids(batch)[k]);

		if (view == CRASH_PRIORITIZED)
			check_priority(n, batch->priority[k]);
		seen[n % JOURNAL] = 1;
	}
}

/* The first of the steps [done - KEPT, done) that were acknowledged, complete, and not seen. */
static bool find_missing(const uint8_t *seen, uint32_t *n_out)
{
	uint32_t done = atomic_load(&journal->done), first = done > KEPT ? done - KEPT : 0;

	for (uint32_t n = first; n + CRASH_FUTURE < done; n++) {
		*n_out = n;
		if (journal->state[n % JOURNAL] == ACKED &&
		    journal->state[(n + CRASH_FUTURE) % JOURNAL] == ACKED && !seen[n % JOURNAL])
			return true;
	}
	return false;
}

/* Draws from a view until everything was seen, or all but surely cannot be. */
static void see_all(struct rlv_table *table, uint32_t view, uint8_t *seen)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_sampler *sampler;
	uint32_t n;

	opts.view = view;
	opts.gamma = 1;
	must(rlv_sampler_open(table, &opts, &sampler), "sampler");
	for (uint32_t i = 0; i < 1000 && (i % 32 || i == 0 || find_missing(seen, &n)); i++) {
		const struct rlv_batch *batch;
		int ret = rlv_sampler_sample(sampler, 256, 0, &batch);

		if (ret == -ENODATA || ret == -ETIMEDOUT)
			break;
		must(ret, "sample");
		see_batch(view, batch, seen);
		rlv_batch_release(sampler, batch);
	}
	must(rlv_sampler_close(&sampler), "sampler close");
	if (find_missing(seen, &n))
		fail_msg("step %u of %u was acknowledged and is gone", n, journal->done);
}

/* The next victim begins with an episode; what the last one left incomplete never comes. */
static void close_round(void)
{
	uint32_t next = atomic_load(&journal->next), done = atomic_load(&journal->done);
	uint32_t fresh = (next / CRASH_EPISODE + 1) * CRASH_EPISODE;

	for (uint32_t n = done > CRASH_FUTURE ? done - CRASH_FUTURE : 0; n < fresh + CRASH_FUTURE;
	     n++)
		atomic_store(&journal->state[n % JOURNAL], UNTOLD);
	atomic_store(&journal->next, fresh);
	atomic_store(&journal->done, fresh);
}

static void check_side(struct rlv_store *store)
{
	struct rlv_table *table;
	int ret = rlv_table_open(store, "side", &table);

	if (ret) {
		assert_int_equal(ret, -ENOENT);
		return;
	}
	verify(table);
	must(rlv_table_close(&table), "side close");
	must(rlv_table_drop(store, "side"), "side drop");
}

static void check_store(void)
{
	static uint8_t seen[JOURNAL];
	struct rlv_store *store;
	struct rlv_table *table;

	must(open_store(&store), "open after the kill");
	must(rlv_table_open(store, "main", &table), "table");
	verify(table);
	for (uint32_t view = 0; view < CRASH_VIEWS; view++) {
		memset(seen, 0, sizeof(seen));
		see_all(table, view, seen);
	}
	must(rlv_table_close(&table), "table close");
	check_side(store);
	must(rlv_store_close(&store), "close");
}

/* -------- tests -------- */

static uint32_t kills(uint32_t usual)
{
	const char *text = getenv("RLV_TEST_KILLS");
	uint32_t n = text && *text ? (uint32_t)strtoul(text, NULL, 10) : usual;

	return n ? n : 1;
}

static int begin(const char *folder, const char *name)
{
	snprintf(path, sizeof(path), "%s/%s.%d", folder, name, (int)getpid());
	unlink(path);
	rng_seed(&rng, test_seed(name, 20240917), 0);
	journal = mmap(NULL, sizeof(*journal), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	return journal == MAP_FAILED ? -1 : 0;
}

static int end(void **state)
{
	(void)state;
	unlink(path);
	munmap(journal, sizeof(*journal));
	return 0;
}

static int on_disk(void **state)
{
	(void)state;
	return begin(".", "kill_embed_file");
}

static int on_tmpfs(void **state)
{
	(void)state;
	return begin("/dev/shm", "kill_embed_file_tmpfs");
}

static void run_kills(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		pid_t pid = start_victim();

		wait_ready(pid);
		kill_after(pid, (int64_t)below(30 * MS));
		check_store();
		close_round();
	}
}

static void reopen__after_a_kill_at_any_time(void **state)
{
	(void)state;
	run_kills((kills(40) + 1) / 2);
}

static void kill_recovery(int64_t after_ns)
{
	struct rlv_store *store;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(open_store(&store) ? CHILD_FAILED : 0);
	sleep_ns(after_ns);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static int64_t reopen_ns(void)
{
	uint64_t began = clock_now_ns(clock_monotonic());
	struct rlv_store *store;

	must(open_store(&store), "open");
	must(rlv_store_close(&store), "close");
	return (int64_t)(clock_now_ns(clock_monotonic()) - began);
}

/* Opening is recovery: killed within it, again and again, and then opened for good. */
static void reopen__after_a_kill_within_the_recovery(void **state)
{
	int64_t takes;

	(void)state;
	run_kills(1);
	takes = reopen_ns();
	print_message("opening after a kill takes %.1f ms\n", (double)takes / MS);
	for (uint32_t i = 0; i < (kills(40) + 3) / 4; i++) {
		pid_t pid = start_victim();

		wait_ready(pid);
		kill_after(pid, (int64_t)below(5 * MS));
		for (uint32_t k = 0; k < 3; k++)
			kill_recovery((int64_t)below((uint32_t)takes));
		check_store();
		close_round();
	}
}

/* Space taken by interrupted creates and drops is free again. */
static void pool__nothing_of_it_leaks(void **state)
{
	struct rlv_store_info info = { .size = sizeof(info) };
	struct rlv_store *store;
	uint64_t used;

	(void)state;
	run_kills(1);
	must(open_store(&store), "open");
	used = store_node_at(store, 0).used_bytes;
	must(rlv_store_close(&store), "close");
	run_kills((kills(40) + 7) / 8);
	must(open_store(&store), "open");
	must(rlv_store_info(store, &info), "info");
	assert_int_equal(store_node_at(store, 0).used_bytes, used);
	assert_int_equal(info.n_tables, 1);
	must(rlv_store_close(&store), "close");
}

#define CASE(f, setup) cmocka_unit_test_setup_teardown(f, setup, end)
#define TMPFS(f) \
	{ \
#f " (tmpfs)", f, on_tmpfs, end, NULL \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(reopen__after_a_kill_at_any_time, on_disk),
		TMPFS(reopen__after_a_kill_at_any_time),
		CASE(reopen__after_a_kill_within_the_recovery, on_tmpfs),
		CASE(pool__nothing_of_it_leaks, on_tmpfs),
	};

	return TEST_RUN(tests, NULL, NULL);
}
