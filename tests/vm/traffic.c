/*
 * Traffic for faults: an actor or a learner that goes on through whatever happens to the nodes, checks
 * every byte, and says at its end, in one line of JSON, what it met.
 *
 *   vm_traffic create  --store URI [--shards N] [--capacity N]     N = 0: as many as nodes
 *   vm_traffic actor   --store URI --writer W --seconds S
 *   vm_traffic learner --store URI --seconds S [--seed N]
 *   vm_traffic verify  --store URI --seconds S      until all sums are exact, at most S seconds
 *   vm_traffic keep    --store URI                  a table, persisted; and some more steps, not
 *   vm_traffic kept    --store URI                  is all there that was persisted?
 *
 * An actor or a learner says "begun" when its first call has worked, from where on its seconds count;
 * until then it has 80 more.
 *
 * Exit status: 0 = nothing was wrong; 1 = wrong bytes, an error without a type, a call beyond its
 * deadline, a distribution that is not the priorities', by class or by shard; 2 = usage. SIGTERM ends an
 * actor or a learner before its time, in order.
 *
 * Step n has the priority of its class, n mod 13, whoever inserts or updates it, so that the shares of
 * the classes stand still while everything moves; 13 and the length of an episode have no common
 * factor.
 */
#include "tests/support/attack/crash_rows.h"
#include "tests/support/attack/kept.h"
#include "tests/support/shard_shares.h"

#include "bench/replay/chi_square.h"

#include "base/os/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TABLE "traffic"
#define CLASSES 13u
#define STEPS 64u
#define BATCH 64u
#define CALL_NS (3 * CLOCK_NS_PER_S)
#define PATIENCE_NS (60 * CLOCK_NS_PER_S)
#define LATE_NS (17 * CLOCK_NS_PER_S) /* a guest's own stalls are in it */
#define BEGIN_S 80u
#define P_MIN 1e-6 /* thousands of tests are made in a campaign */
#define KINDS 16u

struct traffic {
	const char *role, *uri;
	uint64_t shards, writer, capacity, seconds, seed;

	struct rlv_store *store;
	struct rlv_table *table;
	uint64_t end_ns; /* of an actor or a learner: once it has begun, S seconds later */
	uint64_t steps, batches, updates, stale;
	uint64_t wrong, reopens;
	uint64_t longest_ns; /* of a call */
	uint64_t good_ns;    /* when one has worked last; 0 = none */
	uint64_t gap_ns;     /* longest time without */
	uint64_t seen[CLASSES];
	struct shard_shares shares;
	struct {
		int code;
		uint64_t n;
	} errors[KINDS];
	bool bad_error;
	char why[256];
};

static uint64_t now_ns(void)
{
	return clock_now_ns(clock_monotonic());
}

static volatile sig_atomic_t is_asked_to_end;

static void ask_to_end(int number)
{
	(void)number;
	is_asked_to_end = 1;
}

static bool is_over(const struct traffic *t)
{
	return is_asked_to_end || now_ns() >= t->end_ns;
}

static double class_priority(uint32_t step)
{
	return (double)(step % CLASSES + 1) / 4;
}

/* -------- errors and deadlines -------- */

/* Errors that a fault may cause; any other fails the run. */
static bool has_type(int code)
{
	static const int codes[] = { -ETIMEDOUT, -EHOSTDOWN,   -ECONNRESET, -ECONNREFUSED,
				     -ESTALE,    -ENODATA,     -EOWNERDEAD, -EAGAIN,
				     -ENOSPC,    -EHOSTUNREACH };

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (codes[i] == code)
			return true;
	return false;
}

static int note(struct traffic *t, int code, const char *what)
{
	uint32_t i = 0;

	if (code == 0)
		return 0;
	while (i < KINDS - 1 && t->errors[i].code && t->errors[i].code != code)
		i++;
	if (t->errors[i].n++ == 0)
		fprintf(stderr, "%s %llu: %s: %s %s\n", t->role, (unsigned long long)t->writer,
			what, rlv_error_name(code), rlv_last_error());
	t->errors[i].code = code;
	t->bad_error |= !has_type(code);
	return code;
}

static int timed(struct traffic *t, uint64_t began_ns, int code, const char *what)
{
	uint64_t spent = now_ns() - began_ns;

	if (spent > t->longest_ns)
		t->longest_ns = spent;
	return note(t, code, what);
}

/* From now on there is traffic, for as long as was asked. */
static void begin(struct traffic *t, uint64_t now)
{
	t->end_ns = now + t->seconds * CLOCK_NS_PER_S;
	printf("begun\n");
	fflush(stdout);
}

static void note_good(struct traffic *t)
{
	uint64_t now = now_ns();

	if (!t->good_ns)
		begin(t, now);
	else if (now - t->good_ns > t->gap_ns)
		t->gap_ns = now - t->good_ns;
	t->good_ns = now;
}

/* -------- the store, again and again -------- */

static void nap(uint32_t ms)
{
	struct timespec pause = { ms / 1000, (long)(ms % 1000) * 1000000 };

	(void)nanosleep(&pause, NULL);
}

static void leave(struct traffic *t)
{
	uint64_t began = now_ns();

	(void)timed(t, began, rlv_table_close(&t->table), "table close");
	began = now_ns();
	(void)timed(t, began, rlv_store_close(&t->store), "store close");
}

/* Open until the end of time; -ETIMEDOUT then. */
static int enter(struct traffic *t)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;

	opts.timeout_ns = CALL_NS;
	while (!is_over(t)) {
		uint64_t began = now_ns();
		int ret = t->store ? 0 : rlv_store_open(t->uri, &opts, &t->store);

		if (ret == 0)
			ret = rlv_table_open(t->store, TABLE, &t->table);
		if (timed(t, began, ret, "open") == 0)
			return 0;
		nap(100);
	}
	return -ETIMEDOUT;
}

/* For a single call, which is to succeed on a slow host, too. */
static int open_once(struct traffic *t)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;

	opts.timeout_ns = PATIENCE_NS;
	return rlv_store_open(t->uri, &opts, &t->store);
}

/* -------- roles -------- */

static int create(struct traffic *t)
{
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	int ret = open_once(t);

	opts.columns = crash_columns;
	opts.n_columns = CRASH_COLUMNS;
	opts.views = crash_views;
	opts.n_views = 1;
	opts.capacity = t->capacity;
	opts.shards = t->shards ? (uint32_t)t->shards : RLV_SHARDS_AUTO;
	opts.max_writers = 8;
	opts.max_clients = 32;
	if (ret == 0)
		ret = rlv_table_create(t->store, TABLE, &opts, &t->table);
	if (note(t, ret, "create"))
		return ret;
	leave(t);
	return 0;
}

static int act(struct traffic *t, struct rlv_writer *writer)
{
	static struct crash_rows rows;
	uint32_t first = (uint32_t)t->steps;
	uint64_t began = now_ns();
	uint32_t done = 0;
	int ret;

	crash_rows_fill(&rows, (uint32_t)t->writer, first, STEPS);
	for (uint32_t i = 0; i < STEPS; i++)
		rows.td[i] = class_priority(first + i);
	ret = rlv_writer_append(writer, 0, &rows.steps, &done);
	t->steps += done;
	if (ret == 0)
		note_good(t);
	return timed(t, began, ret, "append");
}

/* An episode that a new writer cannot go on with is skipped. */
static void next_episode(struct traffic *t)
{
	t->steps += CRASH_EPISODE - 1;
	t->steps -= t->steps % CRASH_EPISODE;
}

static int run_actor(struct traffic *t)
{
	t->end_ns += BEGIN_S * CLOCK_NS_PER_S;
	while (!is_over(t) && enter(t) == 0) {
		struct rlv_writer_opts opts = RLV_WRITER_OPTS_INIT;
		struct rlv_writer *writer = NULL;
		uint64_t began = now_ns();
		int ret;

		opts.timeout_ns = CALL_NS;
		ret = timed(t, began, rlv_writer_open(t->table, &opts, &writer), "open a writer");
		next_episode(t);
		while (ret == 0 && !is_over(t))
			ret = act(t, writer);
		began = now_ns();
		(void)timed(t, began, rlv_writer_close(&writer), "writer close");
		leave(t);
		t->reopens += ret != 0;
		if (ret)
			nap(100);
	}
	return 0;
}

/* Checks every byte and position of a batch; priority[i]: the item's present and next priority. */
static void check_batch(struct traffic *t, const struct rlv_batch *batch, float priority[BATCH])
{
	char why[CRASH_WHY];
	uint32_t wrong = crash_batch_check(batch, why);

	if (wrong && t->wrong == 0)
		snprintf(t->why, sizeof(t->why), "%s", why);
	t->wrong += wrong;
	t->batches++;
	for (uint32_t i = 0; i < batch->n; i++) {
		uint32_t step = crash_step_of(crash_ids(batch)[i]);

		t->seen[step % CLASSES]++;
		priority[i] = (float)class_priority(step);
	}
	shard_shares_count(&t->shares, batch);
}

static int learn(struct traffic *t, struct rlv_sampler *sampler)
{
	const struct rlv_batch *batch;
	struct rlv_update_result result;
	float priority[BATCH];
	uint64_t began;
	int ret;

	shard_shares_look(&t->shares, sampler);
	began = now_ns();
	ret = timed(t, began, rlv_sampler_sample(sampler, BATCH, CALL_NS, &batch), "sample");
	if (ret)
		return ret;
	check_batch(t, batch, priority);
	began = now_ns();
	ret = rlv_sampler_set_priorities(sampler, batch->key, priority, batch->n, &result);
	rlv_batch_release(sampler, batch);
	if (ret == 0) {
		t->updates += result.updated;
		t->stale += result.stale;
		note_good(t);
	}
	return timed(t, began, ret, "update");
}

static int run_learner(struct traffic *t)
{
	t->end_ns += BEGIN_S * CLOCK_NS_PER_S;
	while (!is_over(t) && enter(t) == 0) {
		struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
		struct rlv_sampler *sampler = NULL;
		uint64_t began = now_ns();
		int ret;

		opts.batch_size = BATCH;
		opts.gamma = 1;
		opts.seed = t->seed;
		ret = timed(t, began, rlv_sampler_open(t->table, &opts, &sampler),
			    "open a sampler");
		while (ret == 0 && !is_over(t)) {
			ret = learn(t, sampler);
			if (ret == -ETIMEDOUT || ret == -ENODATA)
				ret = 0; /* nothing there yet */
		}
		t->shares.pending = false;
		began = now_ns();
		(void)timed(t, began, rlv_sampler_close(&sampler), "sampler close");
		leave(t);
		t->reopens += ret != 0;
		if (ret)
			nap(100);
	}
	return 0;
}

static int run_verify(struct traffic *t)
{
	struct rlv_verify_report report = { .size = sizeof(report) };
	int ret = enter(t);

	while (ret == 0) {
		ret = note(t, rlv_table_verify(t->table, &report), "verify");
		if (ret || (report.problems == 0 && report.open_blocks == 0) || is_over(t))
			break;
		nap(50);
	}
	if (ret == 0 && report.problems) {
		t->wrong = report.problems;
		snprintf(t->why, sizeof(t->why), "%s", report.first_problem);
	}
	t->steps = report.items;
	leave(t);
	return ret;
}

/* Ends without closing anything, as a power failure would. */
static int run_keep(struct traffic *t)
{
	struct rlv_writer *writer;
	int ret = open_once(t);

	if (ret == 0)
		ret = kept_create(t->store, &t->table);
	if (ret == 0)
		ret = rlv_writer_open(t->table, NULL, &writer);
	if (ret == 0)
		ret = kept_append(writer, 0, KEPT_STEPS);
	if (ret == 0)
		ret = kept_reprioritise(t->table);
	if (ret == 0)
		ret = rlv_store_persist(t->store);
	if (ret == 0)
		ret = kept_append(writer, KEPT_STEPS, KEPT_STEPS + KEPT_MORE);
	t->steps = KEPT_STEPS;
	return note(t, ret, "keep");
}

static int run_kept(struct traffic *t)
{
	static struct kept kept;
	int ret = open_once(t);

	if (ret == 0)
		ret = rlv_table_open(t->store, "kept", &t->table);
	if (ret == 0)
		ret = kept_look(t->table, &kept);
	t->steps = kept.items;
	t->wrong = kept.wrong_bytes + kept.wrong_priorities + kept.missing;
	if (t->wrong)
		snprintf(t->why, sizeof(t->why), "%u missing, %u of wrong priority, %u wrong bytes",
			 kept.missing, kept.wrong_priorities, kept.wrong_bytes);
	if (note(t, ret, "kept"))
		return ret;
	leave(t);
	return 0;
}

/* -------- the end -------- */

static double class_p(const struct traffic *t)
{
	double weight[CLASSES];

	for (uint32_t c = 0; c < CLASSES; c++)
		weight[c] = class_priority(c);
	return chi_square_test(t->seen, weight, CLASSES).p;
}

static int report(const struct traffic *t, int ret)
{
	double p = t->batches ? class_p(t) : 1, by_shard = shard_shares_p(&t->shares);
	bool late = t->longest_ns > CALL_NS + LATE_NS;
	bool good = ret == 0 && t->wrong == 0 && !t->bad_error && !late && p >= P_MIN &&
		    by_shard >= P_MIN;

	printf("{\"role\":\"%s\",\"writer\":%llu,\"steps\":%llu,\"batches\":%llu,\"updates\":%llu,"
	       "\"stale\":%llu,\"wrong\":%llu,\"reopens\":%llu,\"longest_ms\":%llu,\"gap_ms\":%llu,"
	       "\"p\":%.4g,\"p_by_shard\":%.4g,\"errors\":{",
	       t->role, (unsigned long long)t->writer, (unsigned long long)t->steps,
	       (unsigned long long)t->batches, (unsigned long long)t->updates,
	       (unsigned long long)t->stale, (unsigned long long)t->wrong,
	       (unsigned long long)t->reopens,
	       (unsigned long long)(t->longest_ns / CLOCK_NS_PER_MS),
	       (unsigned long long)(t->gap_ns / CLOCK_NS_PER_MS), p, by_shard);
	for (uint32_t i = 0; i < KINDS && t->errors[i].code; i++)
		printf("%s\"%s\":%llu", i ? "," : "", rlv_error_name(t->errors[i].code),
		       (unsigned long long)t->errors[i].n);
	printf("},\"why\":\"%s\",\"good\":%s}\n", t->why, good ? "true" : "false");
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

static bool option(struct traffic *t, const char *name, const char *value)
{
	const struct {
		const char *name;
		uint64_t *at;
	} numbers[] = { { "--shards", &t->shards },
			{ "--writer", &t->writer },
			{ "--capacity", &t->capacity },
			{ "--seconds", &t->seconds },
			{ "--seed", &t->seed } };

	if (strcmp(name, "--store") == 0) {
		t->uri = value;
		return true;
	}
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (strcmp(name, numbers[i].name) == 0) {
			*numbers[i].at = strtoull(value, NULL, 10);
			return true;
		}
	return false;
}

static int usage(void)
{
	fprintf(stderr,
		"usage: vm_traffic create|actor|learner|verify|keep|kept --store URI [--shards N] "
		"[--capacity N] [--writer W] [--seconds S] [--seed N]\n");
	return 2;
}

int main(int argc, char **argv)
{
	static struct traffic t = { .shards = 3, .capacity = 12288, .seconds = 10, .seed = 1 };
	static const struct {
		const char *name;
		int (*run)(struct traffic *t);
	} roles[] = { { "create", create },     { "actor", run_actor }, { "learner", run_learner },
		      { "verify", run_verify }, { "keep", run_keep },   { "kept", run_kept } };

	if (argc < 2)
		return usage();
	t.role = argv[1];
	for (int i = 2; i < argc; i += 2)
		if (i + 1 == argc || !option(&t, argv[i], argv[i + 1]))
			return usage();
	t.end_ns = now_ns() + t.seconds * CLOCK_NS_PER_S;
	(void)signal(SIGTERM, ask_to_end);
	for (size_t i = 0; t.uri && i < sizeof(roles) / sizeof(roles[0]); i++)
		if (strcmp(roles[i].name, t.role) == 0)
			return report(&t, roles[i].run(&t));
	return usage();
}
