#include "tests/support/kv_history.h"

#include "tests/support/history.h"
#include "tests/support/test.h"

#include "relive/kv.h"

#include "base/os/clock.h"
#include "base/rng.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CLIENTS 3u
#define CALLS_MOST 2000000u
#define PUTS_LEAST 50u /* of each key */

struct entry {
	struct history_call call;
	uint32_t key;
	uint32_t counts; /* 0: it changed and found nothing */
};

struct history {
	_Atomic uint32_t n, started;
	_Atomic uint32_t puts[KV_HISTORY_KEYS]; /* that were done */
	_Atomic uint32_t torn;                  /* values of which a client found a part */
	struct entry entries[CALLS_MOST];
};

static struct history *history;
static pid_t clients[CLIENTS];
static size_t least_words = 1, most_words = 1;

void kv_history_lengths(size_t least, size_t most)
{
	least_words = least / 8;
	most_words = most / 8;
}

/* A value: as many words as it has bits in its number for, all the same. */
static size_t words_of(uint64_t value)
{
	return least_words +
	       (value * UINT64_C(0x9e3779b97f4a7c15) >> 24) % (most_words - least_words + 1);
}

static struct rlv_bytes value_fill(uint64_t *words, uint64_t value)
{
	size_t n = words_of(value);

	for (size_t i = 0; i < n; i++)
		words[i] = value;
	return (struct rlv_bytes){ words, 8 * n };
}

static bool value_is_whole(const struct rlv_kv_value *got)
{
	const uint64_t *words = got->ptr;

	for (size_t i = 0; i < got->len / 8; i++)
		if (words[i] != words[0])
			return false;
	return got->len == 8 * words_of(words[0]);
}

/* Puts and gets in turn, and gives its parts back now and then. Ends by a kill only. */
static int child_that_calls(void *arg)
{
	uint32_t number = 1 + atomic_fetch_add(&history->started, 1);
	struct rlv_store_opts opts = { .size = sizeof(opts), .timeout_ns = CLOCK_NS_PER_S / 5 };
	struct rlv_store *store = NULL;
	struct rlv_kv *kv = NULL;
	uint64_t *words = calloc(most_words, 8), *have = calloc(most_words, 8);
	struct rng rng;

	(void)arg;
	if (!words || !have)
		return 1;
	rng_seed(&rng, 23, number);
	while (rlv_store_open("shm:s", &opts, &store) || rlv_kv_open(store, "h", &kv))
		(void)!rlv_store_close(&store);
	for (uint64_t i = 1;; i++) {
		uint32_t at = atomic_fetch_add(&history->n, 1);
		uint64_t value = (uint64_t)number << 32 | i;
		struct rlv_kv_value got = { .size = sizeof(got),
					    .ptr = have,
					    .room = 8 * most_words };
		struct history_call call = { .client = number, .end = HISTORY_PENDING };
		struct entry *entry;
		char text[16];
		struct rlv_bytes key;
		int ret;

		if (at >= CALLS_MOST)
			return 0;
		entry = &history->entries[at];
		entry->key = (uint32_t)rng_uniform_u64(&rng, KV_HISTORY_KEYS);
		(void)snprintf(text, sizeof(text), "key-%u", entry->key);
		key = (struct rlv_bytes){ text, strlen(text) };
		call.kind = rng_uniform_u64(&rng, 2) ? HISTORY_PUT : HISTORY_GET;
		call.value = call.kind == HISTORY_PUT ? value : 0;
		call.start = clock_now_ns(clock_monotonic());
		entry->call = call;
		atomic_signal_fence(memory_order_seq_cst); /* a kill comes between instructions */
		entry->counts = call.kind == HISTORY_PUT;
		atomic_signal_fence(memory_order_seq_cst);
		if (call.kind == HISTORY_PUT)
			ret = rlv_kv_put(kv, key, value_fill(words, value), &call.version);
		else if ((ret = rlv_kv_get(kv, key, &got)) == 0)
			call.version = got.version;
		if (ret == 0 && call.kind == HISTORY_GET)
			atomic_fetch_add(&history->torn, !value_is_whole(&got));
		if (ret == -ECONNRESET || ret == -ETIMEDOUT)
			continue; /* done or not, as that of a killed client */
		entry->counts = ret == 0;
		if (ret == 0) {
			call.value = call.kind == HISTORY_PUT ? value : have[0];
			entry->call = call;
			atomic_signal_fence(memory_order_seq_cst);
			entry->call.end = clock_now_ns(clock_monotonic());
			if (call.kind == HISTORY_PUT)
				atomic_fetch_add(&history->puts[entry->key], 1);
		}
		if (i % 64 == 0) {
			(void)!rlv_kv_release(kv);
			processes_sleep_ns(CLOCK_NS_PER_MS); /* so that the history has room */
		}
	}
}

static void check_history(uint32_t n)
{
	struct history_call *calls = malloc(n * sizeof(*calls));
	const char *why;

	for (uint32_t key = 0; key < KV_HISTORY_KEYS; key++) {
		size_t found = 0, puts = 0;

		for (uint32_t i = 0; i < n; i++) {
			const struct entry *entry = &history->entries[i];

			if (entry->key != key || !entry->counts)
				continue;
			calls[found] = entry->call;
			if (entry->call.end == HISTORY_PENDING)
				calls[found].version = 0;
			else
				puts += entry->call.kind == HISTORY_PUT;
			/* A get that a kill interrupted says nothing. */
			found += entry->call.end != HISTORY_PENDING ||
				 entry->call.kind == HISTORY_PUT;
		}
		if (!history_check(calls, found, &why))
			fail_msg("key %u, %zu calls: %s", key, found, why);
		print_message("key %u: %zu calls, %zu puts, are linearizable\n", key, found, puts);
		assert_true(puts > PUTS_LEAST);
	}
	free(calls);
}

void kv_history_begin(struct processes *ps, uint32_t kills, void (*event)(void *ctx, uint32_t i),
		      void *ctx)
{
	history = mmap(NULL, sizeof(*history), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	assert_true(history != MAP_FAILED);
	memset(clients, 0, sizeof(clients));
	for (uint32_t i = 0; i < kills; i++) {
		pid_t *client = &clients[i % CLIENTS];

		if (*client)
			processes_kill(ps, *client, SIGKILL);
		*client = processes_fork(ps, child_that_calls, NULL);
		event(ctx, i);
		processes_sleep_ns(30 * CLOCK_NS_PER_MS);
	}
}

static bool has_puts(void *ctx)
{
	bool enough = true;

	(void)ctx;
	for (uint32_t key = 0; key < KV_HISTORY_KEYS; key++)
		enough &= atomic_load(&history->puts[key]) > PUTS_LEAST;
	return enough;
}

void kv_history_stop(struct processes *ps)
{
	assert_true(processes_until(has_puts, NULL));
	for (uint32_t i = 0; i < CLIENTS; i++)
		processes_kill(ps, clients[i], SIGKILL);
}

void kv_history_end(void)
{
	uint32_t n = (uint32_t)atomic_load(&history->n);

	check_history(n < CALLS_MOST ? n : CALLS_MOST);
	assert_int_equal(atomic_load(&history->torn), 0);
	munmap(history, sizeof(*history));
}
