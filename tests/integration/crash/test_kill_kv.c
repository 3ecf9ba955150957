/*
 * Clients of a heap in processes of their own put, compare-and-put and get the same keys, and are
 * killed by kill -9 all the time; so is the coordinator of mode central. Every call stands in a shared
 * history, which has to be linearizable; the heap is sound in the end, no extent is left with a client
 * that is gone, and no lock. RLV_TEST_CALLS: calls of each mode, RLV_TEST_KILLS: kills at least.
 */
#include "tests/support/fixture/store_fixture.h"
#include "tests/support/history.h"
#include "tests/support/must.h"
#include "tests/support/processes.h"

#include "relive/kv.h"

#include "base/os/clock.h"
#include "base/rng.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CLIENTS 4u
#define KEYS 8u
#define CALLS_MOST 2000000u
#define CALLS_DEFAULT 10000u
#define KILLS_DEFAULT 40u
#define VALUE_WORDS 80u
#define TOGETHER 3u /* puts of one call */

struct call {
	struct history_call call;
	uint32_t key;
	uint32_t done; /* 0: it ended without a result, or is not there: left out */
};

struct history {
	_Atomic uint32_t n;       /* of calls */
	_Atomic uint32_t failed;  /* a client found a fault; its log says which */
	_Atomic uint32_t started; /* clients ever */
	struct call calls[CALLS_MOST + TOGETHER];
};

struct fixture {
	struct processes ps;
	struct history *history;
	pid_t metad, clients[CLIENTS];
};

/* -------- a client -------- */

/* A value: its number, then words that follow from it. */
static void fill(uint64_t *words, uint64_t n, uint64_t number)
{
	words[0] = number;
	for (uint64_t i = 1; i < n; i++)
		words[i] = number * 31 + i;
}

static bool is_whole(const struct rlv_kv_value *value)
{
	uint64_t want[VALUE_WORDS];

	if (value->len < 8 || value->len % 8 || value->len > sizeof(want))
		return false;
	fill(want, value->len / 8, *(const uint64_t *)value->ptr);
	return memcmp(want, value->ptr, value->len) == 0;
}

static int do_call(struct rlv_kv *kv, struct rlv_bytes key, struct history_call *call,
		   struct rng *rng)
{
	uint64_t words[VALUE_WORDS], have[VALUE_WORDS], n = 1 + rng_uniform_u64(rng, VALUE_WORDS);
	struct rlv_kv_value got = { .size = sizeof(got), .ptr = have, .room = sizeof(have) };
	struct rlv_bytes value = { words, 8 * n };
	int ret;

	fill(words, n, call->value);
	if (call->kind == HISTORY_GET) {
		ret = rlv_kv_get(kv, key, &got);
		if (ret == 0 && !is_whole(&got))
			return -EILSEQ;
		call->version = ret ? 0 : got.version;
		call->value = ret ? 0 : have[0];
		return ret == -ENOENT ? 0 : ret;
	}
	if (call->kind == HISTORY_PUT)
		return rlv_kv_put(kv, key, value, &call->version);
	ret = rlv_kv_put_if(kv, key, value, call->expected, &call->version);
	call->refused = ret == -ESTALE;
	return call->refused ? 0 : ret;
}

/* A call of the history that may be killed from now on. */
static void entry_begin(struct call *entry, const struct history_call *call, uint32_t k)
{
	entry->call = *call;
	entry->key = k;
	/* A kill comes between two instructions: they are in this order. */
	atomic_signal_fence(memory_order_seq_cst);
	entry->done = call->kind != HISTORY_GET;
	atomic_signal_fence(memory_order_seq_cst);
}

/* Ends it with what came of it. Only a result ends a call of the history. False: a fault. */
static bool entry_end(struct call *entry, struct history_call *call, int ret)
{
	/* A killed client was inside a call, or there is no coordinator: nothing was put. */
	if (ret == -EAGAIN || ret == -EHOSTDOWN || ret == -ECANCELED) {
		entry->done = 0;
		return true;
	}
	/* The coordinator was killed: it is not known whether it was put. */
	if (ret == -ECONNRESET || ret == -ETIMEDOUT)
		return true;
	if (ret) {
		fprintf(stderr, "client %u: %d %s\n", call->client, ret, rlv_last_error());
		return false;
	}
	call->end = entry->call.end;
	entry->call = *call;
	atomic_signal_fence(memory_order_seq_cst);
	entry->call.end = clock_now_ns(clock_monotonic());
	atomic_signal_fence(memory_order_seq_cst);
	entry->done = 1;
	return true;
}

/* Puts some keys in one call, which may be the same: each is a call of the history. */
static bool put_some(struct call *entries, struct rlv_kv *kv, const struct history_call *first,
		     struct rng *rng)
{
	static uint64_t words[TOGETHER][VALUE_WORDS];
	struct rlv_kv_item items[TOGETHER];
	struct history_call calls[TOGETHER];
	char texts[TOGETHER][8];
	bool fine = true;
	int ret;

	for (uint32_t i = 0; i < TOGETHER; i++) {
		uint32_t k = (uint32_t)rng_uniform_u64(rng, KEYS);
		uint64_t n = 1 + rng_uniform_u64(rng, VALUE_WORDS);

		calls[i] = *first;
		calls[i].kind = HISTORY_PUT;
		calls[i].value = first->value + i;
		(void)snprintf(texts[i], sizeof(texts[i]), "key-%u", k);
		fill(words[i], n, calls[i].value);
		items[i] = (struct rlv_kv_item){ .size = sizeof(items[i]),
						 .key = { texts[i], 5 },
						 .ptr = words[i],
						 .len = 8 * n };
		entry_begin(&entries[i], &calls[i], k);
	}
	ret = rlv_kv_put_many(kv, items, TOGETHER);
	for (uint32_t i = 0; i < TOGETHER; i++) {
		calls[i].version = items[i].version;
		fine &= entry_end(&entries[i], &calls[i], items[i].status);
	}
	return fine && (ret == 0 || ret == -EAGAIN || ret == -EHOSTDOWN || ret == -ECONNRESET ||
			ret == -ETIMEDOUT);
}

/* Calls until the history is full. */
static int work(struct history *history, struct rlv_kv *kv, uint32_t number)
{
	uint64_t seen[KEYS] = { 0 };
	struct rng rng;

	rng_seed(&rng, 17, number);
	for (uint64_t i = 1;; i++) {
		bool many = rng_uniform_u64(&rng, 8) == 0;
		uint32_t at = atomic_fetch_add(&history->n, many ? TOGETHER : 1),
			 k = (uint32_t)rng_uniform_u64(&rng, KEYS);
		char text[8];
		struct call *entry;
		struct history_call call = { .client = number, .end = HISTORY_PENDING };
		int ret;

		if (at >= CALLS_MOST)
			return 0;
		entry = &history->calls[at];
		(void)snprintf(text, sizeof(text), "key-%u", k);
		call.kind = (uint32_t)rng_uniform_u64(&rng, 4);
		call.kind = call.kind == 3 ? HISTORY_GET : call.kind;
		call.value = (uint64_t)number << 32 | i;
		call.start = clock_now_ns(clock_monotonic());
		if (many) {
			if (!put_some(entry, kv, &call, &rng))
				return 1;
			i += TOGETHER - 1;
			continue;
		}
		call.value = call.kind == HISTORY_GET ? 0 : call.value;
		call.expected = call.kind == HISTORY_PUT_IF ? seen[k] : 0;
		entry_begin(entry, &call, k);
		ret = do_call(kv, (struct rlv_bytes){ text, 5 }, &call, &rng);
		if (!entry_end(entry, &call, ret))
			return 1;
		if (ret == 0)
			seen[k] = call.refused ? 0 : call.version;
	}
}

static int client(void *arg)
{
	struct fixture *fx = arg;
	uint32_t number = 1 + atomic_fetch_add(&fx->history->started, 1);
	uint64_t until = clock_now_ns(clock_monotonic()) + 10 * CLOCK_NS_PER_S;
	struct rlv_store *store = NULL;
	struct rlv_kv *kv = NULL;
	int ret;

	do { /* the metadata server may just have been killed */
		ret = store ? 0 : rlv_store_open("shm:s", NULL, &store);
		if (ret == 0)
			ret = rlv_kv_open(store, "h", &kv);
	} while (ret && clock_now_ns(clock_monotonic()) < until);
	if (ret)
		fprintf(stderr, "client %u: open: %d %s\n", number, ret, rlv_last_error());
	else
		ret = work(fx->history, kv, number);
	if (ret)
		atomic_store(&fx->history->failed, 1);
	return ret != 0;
}

/* -------- the test -------- */

static void check_key(struct history *history, uint32_t n, uint32_t key, struct history_call *calls)
{
	size_t found = 0;
	const char *why;

	for (uint32_t i = 0; i < n; i++)
		if (history->calls[i].key == key && history->calls[i].done) {
			struct history_call *call = &calls[found++];

			*call = history->calls[i].call;
			if (call->end == HISTORY_PENDING) {
				call->version = 0;
				call->refused = false;
			}
		}
	if (!history_check(calls, found, &why))
		fail_msg("key %u, %zu calls: %s", key, found, why);
	print_message("key %u: %zu calls are linearizable\n", key, found);
}

static bool nothing_is_locked(void *arg)
{
	struct rlv_kv_report report = RLV_KV_REPORT_INIT;

	return rlv_kv_verify(arg, &report) == 0 && report.problems == 0;
}

static bool nothing_is_owned(void *arg)
{
	struct rlv_kv_info info = RLV_KV_INFO_INIT;

	return rlv_kv_info(arg, &info) == 0 && info.extents_owned == 0;
}

static const char *const lease[] = { "--lease", "0.3", NULL };

static uint32_t from_environment(const char *name, uint32_t otherwise)
{
	const char *text = getenv(name);
	unsigned long n = text ? strtoul(text, NULL, 10) : otherwise;

	return n < CALLS_MOST ? (uint32_t)n : CALLS_MOST;
}

/* Kills one of the clients, and starts another one; now and then the coordinator instead. */
static void kill_one(struct fixture *fx, enum rlv_kv_mode mode, struct rng *rng)
{
	uint32_t victim = (uint32_t)rng_uniform_u64(rng, CLIENTS);

	if (mode == RLV_KV_CENTRAL && rng_uniform_u64(rng, 4) == 0) {
		processes_kill(&fx->ps, fx->metad, SIGKILL);
		fx->metad = processes_metad(&fx->ps, "s", lease);
		return;
	}
	processes_kill(&fx->ps, fx->clients[victim], SIGKILL);
	fx->clients[victim] = processes_fork(&fx->ps, client, fx);
}

static void run_mode(enum rlv_kv_mode mode)
{
	const char *const memory[] = { "--size", "256M", NULL };
	const uint32_t least = from_environment("RLV_TEST_CALLS", CALLS_DEFAULT);
	const uint32_t kills = from_environment("RLV_TEST_KILLS", KILLS_DEFAULT);
	const struct rlv_kv_opts opts = { .size = sizeof(opts),
					  .keys = 100,
					  .bytes = 64 << 20,
					  .extent_bytes = 64 << 10,
					  .mode = mode,
					  .max_clients = 16 };
	struct rlv_kv_report report = RLV_KV_REPORT_INIT;
	struct history_call *calls = malloc(CALLS_MOST * sizeof(*calls));
	struct rlv_store *store = NULL;
	struct rlv_kv *kv = NULL;
	struct fixture fx;
	struct rng rng;
	uint32_t n, inside = 0;

	assert_non_null(calls);
	memset(&fx, 0, sizeof(fx));
	processes_init(&fx.ps);
	fx.history = mmap(NULL, sizeof(*fx.history), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(fx.history != MAP_FAILED);
	fx.metad = processes_metad(&fx.ps, "s", lease);
	(void)processes_memnode(&fx.ps, "s", "a", memory);
	must(rlv_store_open("shm:s", NULL, &store), "rlv_store_open");
	store_fixture_await_node(store);
	must(rlv_kv_create(store, "h", &opts, &kv), "rlv_kv_create");
	for (uint32_t i = 0; i < CLIENTS; i++)
		fx.clients[i] = processes_fork(&fx.ps, client, &fx);
	rng_seed(&rng, test_seed("kills", 1), 0);
	for (uint32_t i = 0; i < kills || (atomic_load(&fx.history->n) < least && i < 50 * kills);
	     i++) {
		processes_sleep_ns((int64_t)(3 + rng_uniform_u64(&rng, 20)) * CLOCK_NS_PER_MS);
		if (atomic_load(&fx.history->failed))
			break;
		n = atomic_load(&fx.history->n);
		inside += n < CALLS_MOST;
		kill_one(&fx, mode, &rng);
	}
	for (uint32_t i = 0; i < CLIENTS; i++) {
		if (atomic_load(&fx.history->failed))
			(void)processes_log_has(&fx.ps, fx.clients[i], "client");
		processes_kill(&fx.ps, fx.clients[i], SIGKILL);
	}
	assert_int_equal(atomic_load(&fx.history->failed), 0);
	n = atomic_load(&fx.history->n);
	n = n < CALLS_MOST ? n : CALLS_MOST;
	print_message("%u calls, %u clients were killed meanwhile\n", n, inside);
	assert_true(inside >= 10 || kills < 20);
	for (uint32_t key = 0; key < KEYS; key++)
		check_key(fx.history, n, key, calls);
	assert_true(processes_until(nothing_is_owned, kv));
	if (mode == RLV_KV_DIRECT)
		assert_true(processes_until(nothing_is_locked, kv));
	must(rlv_kv_verify(kv, &report), "rlv_kv_verify");
	if (report.problems)
		fail_msg("%s", report.first_problem);
	assert_int_equal(report.keys, KEYS);
	must(rlv_kv_close(&kv), "rlv_kv_close");
	must(rlv_store_close(&store), "rlv_store_close");
	processes_fini(&fx.ps);
	munmap(fx.history, sizeof(*fx.history));
	free(calls);
}

TEST(clover__killed_clients_leave_linearizable_histories_and_no_leak)
{
	run_mode(RLV_KV_CLOVER);
}

TEST(direct__killed_clients_leave_linearizable_histories_and_no_lock)
{
	run_mode(RLV_KV_DIRECT);
}

TEST(central__killed_clients_and_coordinators_leave_linearizable_histories)
{
	run_mode(RLV_KV_CENTRAL);
}

int main(void)
{
	return test_run(NULL, NULL);
}
