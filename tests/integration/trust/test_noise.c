/*
 * A client with a writer's rights, then one with a learner's, writes words at random into whatever it
 * has mapped for writing, while a writer and a sampler of every view work on the same table. Nobody
 * dies of a signal, no call runs past its deadline or answers with a code that it does not have, the
 * server answers, and a table beside it is exact. When the noise is over the table is dropped, made
 * anew, and works.
 *
 * RLV_FUZZ_SECONDS: how long the noise lasts (default 4).
 */
#include "tests/support/attack/crash_rows.h"
#include "tests/support/attack/noise.h"
#include "tests/support/processes.h"
#include "tests/support/fixture/store_fixture.h"
#include "tests/support/must.h"

#include "client/table/handle.h"

#include "transport/barrier.h"

#include "base/os/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define STORE "shm:s"
#define NOISY "noisy"
#define CALM_STEPS 1000u
#define VIEWS 5u
#define WORKERS (VIEWS + 1)
#define BATCH 32u
#define CODES 200u
#define AGAIN 10 /* a worker's status: its slot is free when its process has ended */
#define TIMEOUT_NS (20 * CLOCK_NS_PER_MS)
#define SLACK_S 30 /* beyond a call's deadline: the machine may be busy, and ASan is slow */

static const struct rlv_view views[VIEWS] = {
	{ .selector = RLV_PRIORITIZED, .stack = 4, .n_step = 3, .alpha = 1 },
	{ .selector = RLV_UNIFORM },
	{ .selector = RLV_FIFO, .n_step = 2 },
	{ .selector = RLV_PRIORITIZED, .max_times_sampled = 3, .alpha = 1 },
	{ .selector = RLV_UNIFORM, .stack = 8, .period = 4 },
};

/* Result of a process, in shared memory. */
struct account {
	const char *what;
	pid_t pid;
	_Atomic uint64_t calls, words;
	_Atomic uint64_t codes[CODES];
};

struct shared {
	_Atomic bool stop;
	struct account noise, workers[WORKERS];
};

static struct processes ps;
static struct shared *shared;
static pid_t metad, node;

static uint64_t now_ns(void)
{
	return clock_now_ns(clock_monotonic());
}

/* -------- in the children: no cmocka, they end with a status -------- */

static const int append_codes[] = { -ETIMEDOUT, -EOWNERDEAD, 0 };
static const int sample_codes[] = { -ETIMEDOUT, -ENODATA, 0 };
static const int close_codes[] = { -ETIMEDOUT, -EOWNERDEAD, -EBUSY, 0 };
static const int open_codes[] = { -ENOSPC, 0 };
static const int no_codes[] = { 0 };

/* Counts it, and ends the process if the call has no such answer. */
static int account(struct account *acc, const char *call, int ret, const int *codes)
{
	atomic_fetch_add(&acc->calls, 1);
	atomic_fetch_add(&acc->codes[-ret % (int)CODES], 1);
	alarm(SLACK_S); /* until the next one */
	for (uint32_t i = 0; ret && codes[i]; i++)
		if (codes[i] == ret)
			return ret;
	if (ret == 0)
		return 0;
	fprintf(stderr, "%s: %s: %s: %s\n", acc->what, call, rlv_error_name(ret), rlv_last_error());
	_exit(3);
}

static struct rlv_table *open_noisy(struct account *acc, struct rlv_store **store)
{
	struct rlv_table *table = NULL;

	alarm(SLACK_S);
	(void)account(acc, "store open", rlv_store_open(STORE, NULL, store), no_codes);
	(void)account(acc, "table open", rlv_table_open(*store, NOISY, &table), no_codes);
	return table;
}

static int end(struct account *acc, struct rlv_table **table, struct rlv_store **store)
{
	(void)account(acc, "table close", rlv_table_close(table), no_codes);
	(void)account(acc, "store close", rlv_store_close(store), no_codes);
	return atomic_load(&shared->stop) ? 0 : AGAIN;
}

static int writer_main(void *ctx)
{
	static struct crash_rows rows;
	struct rlv_writer_opts opts = RLV_WRITER_OPTS_INIT;
	struct account *acc = ctx;
	struct rlv_writer *writer = NULL;
	struct rlv_store *store = NULL;
	struct rlv_table *table = open_noisy(acc, &store);
	uint32_t at = 0;
	int closed = 0;

	opts.timeout_ns = TIMEOUT_NS;
	while (!atomic_load(&shared->stop) && !closed) {
		int ret;

		if (!writer &&
		    account(acc, "writer open", rlv_writer_open(table, &opts, &writer), open_codes))
			continue;
		crash_rows_fill(&rows, 0, at, 10);
		at += 10;
		ret = account(acc, "append", rlv_writer_append(writer, 0, &rows.steps, NULL),
			      append_codes);
		if (ret == -EOWNERDEAD || at % 5000 == 0)
			closed = account(acc, "writer close", rlv_writer_close(&writer),
					 close_codes);
	}
	if (writer)
		(void)account(acc, "writer close", rlv_writer_close(&writer), close_codes);
	return end(acc, &table, &store);
}

static bool batch_is_possible(const struct rlv_sampler *sampler, const struct rlv_batch *batch,
			      uint32_t view)
{
	const struct table_desc *desc = ((const struct handle *)sampler)->desc;

	for (uint32_t i = 0; i < batch->n; i++) {
		uint32_t slot = key_slot(batch->key[i]);

		if (slot >= desc->slots || slot % desc->block + 1 < desc->views[view].window ||
		    key_gen(batch->key[i]) == 0)
			return false;
	}
	return batch->n >= 1 && batch->n <= BATCH;
}

static void sample(struct account *acc, struct rlv_sampler *sampler, uint32_t view)
{
	const struct rlv_batch *batch;
	float td[BATCH];

	if (account(acc, "sample", rlv_sampler_sample(sampler, BATCH, TIMEOUT_NS, &batch),
		    sample_codes))
		return;
	if (!batch_is_possible(sampler, batch, view)) {
		fprintf(stderr, "%s: a batch has an item that no block can have\n", acc->what);
		_exit(4);
	}
	for (uint32_t i = 0; i < batch->n; i++)
		td[i] = 1 + (float)(i % 7);
	if (views[view].selector == RLV_PRIORITIZED)
		(void)account(acc, "update",
			      rlv_sampler_update(sampler, batch->key, td, batch->n, NULL),
			      no_codes);
	rlv_batch_release(sampler, batch);
}

static int sampler_main(void *ctx)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct account *acc = ctx;
	struct rlv_sampler *sampler = NULL;
	struct rlv_store *store = NULL;
	struct rlv_table *table = open_noisy(acc, &store);
	int closed = 0;

	opts.view = (uint32_t)(acc - shared->workers) - 1;
	opts.batch_size = BATCH;
	opts.short_batch = opts.view % 2;
	while (!atomic_load(&shared->stop) && !closed) {
		if (!sampler && account(acc, "sampler open",
					rlv_sampler_open(table, &opts, &sampler), open_codes))
			continue;
		sample(acc, sampler, opts.view);
		if (atomic_load(&acc->calls) % 1000 == 999)
			closed = account(acc, "sampler close", rlv_sampler_close(&sampler),
					 close_codes);
	}
	if (sampler)
		(void)account(acc, "sampler close", rlv_sampler_close(&sampler), close_codes);
	return end(acc, &table, &store);
}

/* -------- the noise -------- */

static bool write_word(struct rng *rng, const struct shard *shard)
{
	struct noise_place place;
	struct rword64 *word;

	if (!noise_pick(rng, shard, (enum noise_class)rng_uniform_u64(rng, NOISE_CLASSES),
			&place) ||
	    !(place.region->rights & RIGHT_WRITE))
		return false;
	word = (struct rword64 *)(void *)(place.region->base + place.off);
	rword64_announce(word, noise_word(rng, &shard->desc, rword64_load_relaxed(word)));
	return true;
}

/* Ends by a kill, and is settled like any dead client. */
static void make_noise(const struct handle *h, uint64_t seed)
{
	struct rng rng;

	alarm(0);
	rng_seed(&rng, seed, 0);
	for (;;) {
		const struct shard *shard =
			handle_shard(h, (uint32_t)rng_uniform_u64(&rng, h->set.n_parts));

		if (shard && write_word(&rng, shard))
			atomic_fetch_add(&shared->noise.words, 1);
		if (rng_uniform_u64(&rng, 64) == 0)
			processes_sleep_ns(100000);
	}
}

static int noise_main(void *ctx)
{
	uint64_t seed = *(const uint64_t *)ctx;
	struct rlv_sampler *sampler = NULL;
	struct rlv_writer *writer = NULL;
	struct rlv_store *store = NULL;
	struct rlv_table *table = open_noisy(&shared->noise, &store);

	/* Until it is killed. Slots of those before it are free in a moment. */
	for (uint32_t tries = 0; tries < 10000; tries++) {
		if (seed % 2 == 0 && rlv_writer_open(table, NULL, &writer) == 0)
			make_noise((const struct handle *)writer, seed);
		if (seed % 2 && rlv_sampler_open(table, NULL, &sampler) == 0)
			make_noise((const struct handle *)sampler, seed);
		processes_sleep_ns(CLOCK_NS_PER_MS);
	}
	return 3;
}

/* -------- in the parent -------- */

static struct rlv_table *make_noisy(struct rlv_store *store, const struct rlv_view *its_views,
				    uint32_t n_views)
{
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_table *table = NULL;

	opts.columns = crash_columns;
	opts.n_columns = CRASH_COLUMNS;
	opts.views = its_views;
	opts.n_views = n_views;
	opts.capacity = 4000;
	opts.max_writers = 8; /* of those killed, slots are free in a moment */
	opts.max_clients = 64;
	must(rlv_table_create(store, NOISY, &opts, &table), "create");
	return table;
}

static void fill(struct rlv_table *table)
{
	static struct crash_rows rows;
	struct rlv_writer *writer = NULL;

	must(rlv_writer_open(table, NULL, &writer), "writer open");
	for (uint32_t at = 0; at < CALM_STEPS; at += 100) {
		crash_rows_fill(&rows, 0, at, 100);
		must(rlv_writer_append(writer, 0, &rows.steps, NULL), "append");
	}
	must(rlv_writer_close(&writer), "writer close");
}

/* All items are there with the appended bytes. */
static void check_exact(struct rlv_table *table, const char *when)
{
	struct rlv_verify_report report = { .size = sizeof(report) };
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_sampler *sampler = NULL;
	const struct rlv_batch *batch;
	char why[CRASH_WHY];

	must(rlv_table_verify(table, &report), "verify");
	if (report.problems)
		fail_msg("%s: %u problems: %s", when, report.problems, report.first_problem);
	opts.view = CRASH_PRIORITIZED;
	opts.gamma = 1;
	must(rlv_sampler_open(table, &opts, &sampler), "sampler open");
	for (int i = 0; i < 20; i++) {
		must(rlv_sampler_sample(sampler, 64, 5 * CLOCK_NS_PER_S, &batch), "sample");
		if (crash_batch_check(batch, why))
			fail_msg("%s: %s", when, why);
		rlv_batch_release(sampler, batch);
	}
	must(rlv_sampler_close(&sampler), "sampler close");
}

static uint64_t noise_seconds(void)
{
	const char *text = getenv("RLV_FUZZ_SECONDS");

	return text && *text ? strtoull(text, NULL, 10) : 4;
}

/* The server answers all the time, and lets others in. */
static void look_at_server(struct rlv_store *store)
{
	struct rlv_store_info info = { .size = sizeof(info) };
	struct rlv_store *other = NULL;

	must(rlv_store_info(store, &info), "store info");
	assert_int_equal(info.n_nodes, 1);
	must(rlv_store_open(STORE, NULL, &other), "open during the noise");
	must(rlv_store_close(&other), "close during the noise");
	assert_true(processes_runs(&ps, metad));
	assert_true(processes_runs(&ps, node));
}

static void end_worker(const struct account *acc)
{
	int status = processes_wait(&ps, acc->pid, (SLACK_S + 10) * 1000);

	if (status && status != AGAIN)
		fail_msg("%s ended with %d", acc->what, status);
}

static void print_account(const struct account *acc)
{
	print_message("%-9s %8llu calls:", acc->what, (unsigned long long)atomic_load(&acc->calls));
	for (uint32_t i = 0; i < CODES; i++)
		if (atomic_load(&acc->codes[i]))
			print_message(" %s %llu", i ? rlv_error_name(-(int)i) : "ok",
				      (unsigned long long)atomic_load(&acc->codes[i]));
	print_message("\n");
}

static void start_worker(struct account *acc)
{
	acc->pid = processes_fork(&ps, acc == shared->workers ? writer_main : sampler_main, acc);
}

/* Those that ended to have their slot back begin again. */
static void look_at_workers(void)
{
	for (uint32_t i = 0; i < WORKERS; i++) {
		struct account *acc = &shared->workers[i];
		int status = processes_runs(&ps, acc->pid) ? 0 : processes_wait(&ps, acc->pid, 0);

		if (status && status != AGAIN)
			fail_msg("%s ended with %d", acc->what, status);
		if (status)
			start_worker(acc);
	}
}

/* Writers' and learners' noise by turns, each from a process that is killed in the midst of it. */
static void noise_until(struct rlv_store *store, uint64_t seed, uint64_t end_ns)
{
	for (; now_ns() < end_ns; seed++) {
		uint64_t turn_ns = now_ns() + CLOCK_NS_PER_S;
		pid_t pid = processes_fork(&ps, noise_main, &seed);

		while (now_ns() < turn_ns) {
			look_at_server(store);
			look_at_workers();
			processes_sleep_ns(50 * CLOCK_NS_PER_MS);
		}
		assert_true(processes_runs(&ps, pid));
		processes_kill(&ps, pid, SIGKILL);
	}
}

TEST(noise__in_what_a_client_may_write)
{
	static char names[WORKERS][16];
	uint64_t seed = test_seed("noise__in_what_a_client_may_write", 2);
	struct rlv_store *store = NULL;
	struct rlv_table *noisy, *calm;

	must(rlv_store_open(STORE, NULL, &store), "store open");
	noisy = make_noisy(store, views, VIEWS);
	calm = store_fixture_crash_table(store, 4000, 0);
	fill(noisy);
	fill(calm);
	must(rlv_table_close(&noisy), "table close");
	for (uint32_t i = 0; i < WORKERS; i++) {
		snprintf(names[i], sizeof(names[i]), i ? "view %u" : "writer", i - 1);
		shared->workers[i].what = names[i];
		start_worker(&shared->workers[i]);
	}
	shared->noise.what = "noise";
	noise_until(store, seed, now_ns() + noise_seconds() * CLOCK_NS_PER_S);
	atomic_store(&shared->stop, true);
	for (uint32_t i = 0; i < WORKERS; i++)
		end_worker(&shared->workers[i]);
	for (uint32_t i = 0; i < WORKERS; i++)
		print_account(&shared->workers[i]);
	print_message("noise     %8llu words\n",
		      (unsigned long long)atomic_load(&shared->noise.words));
	check_exact(calm, "the table beside it");
	must(rlv_table_drop(store, NOISY), "drop");
	noisy = make_noisy(store, crash_views, CRASH_VIEWS);
	fill(noisy);
	check_exact(noisy, "the table made anew");
	must(rlv_table_close(&noisy), "table close");
	must(rlv_table_close(&calm), "table close");
	must(rlv_store_close(&store), "store close");
}

static int setup(void **state)
{
	static const char *const args[] = { "--size", "96M", NULL };

	(void)state;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	assert_true(shared != MAP_FAILED);
	processes_init(&ps);
	metad = processes_metad(&ps, "s", NULL);
	node = processes_memnode(&ps, "s", "a", args);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	processes_fini(&ps);
	munmap(shared, sizeof(*shared));
	return 0;
}

int main(void)
{
	if (test_skips_valgrind("forked clients"))
		return TEST_EXIT_SKIP;
	return test_run(setup, teardown);
}
