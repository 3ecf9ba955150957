/*
 * Threads put and get a few keys of a part with copies at once. Now and then one of their clients dies inside a
 * put; and a copy is lost whose memory stays, of which each client hears at some later time. What they saw is
 * linearizable, and every value whole.
 */
#include "tests/support/fake/fault.h"
#include "tests/support/fixture/copies_fixture.h"
#include "tests/support/history.h"
#include "tests/support/must_internal.h"

#include "ds/heap/writers/writers.h"

#include "base/os/clock.h"
#include "base/rng.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#define THREADS 3u
#define KEYS 3u
#define OPS 6000u /* of each thread */
#define NOTHING UINT32_MAX

struct thread {
	pthread_t id;
	struct rng rng;
	struct copies_client client;
	struct heap_writers writers;
	bool heard; /* of the loss */
	uint32_t owner, kept[KEYS], deaths;
	struct history_call calls[KEYS][OPS];
	const char *failed;
};

static struct copies_fixture fixture;
static struct thread threads[THREADS];
static pthread_mutex_t server = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint32_t lost, done;

/* -------- clients -------- */

static struct heap_client *primary_of(struct copies_client *client, uint32_t gone)
{
	return &client->at[gone == 0];
}

/* Begins to put into the copies that it knows of. */
static int begin(struct thread *t)
{
	struct heap_access *at[HEAP_COPIES_MAX];
	struct heap_copies *copies = &t->client.copies;
	int ret = 0;

	*copies = (struct heap_copies){ .n = 0 };
	for (uint32_t i = 0; ret == 0 && i < fixture.n; i++) {
		struct heap_client *copy = &t->client.at[i];

		heap_writers_leave(&copy->acc);
		if (t->heard && i == atomic_load(&lost))
			continue;
		ret = heap_settle_self(copy->heap, t->owner);
		copies->line |= heap_copy_bit(copy->heap);
		at[copies->n] = &copy->acc;
		copies->at[copies->n++] = copy->heap;
	}
	copies->n_all = copies->n;
	if (ret)
		return ret;
	heap_access_reset(at[0]);
	return heap_writers_join(&t->writers, copies, at);
}

static void hear(struct thread *t)
{
	t->heard = true;
	while (begin(t)) /* another one says it, too */
		;
}

static void join(struct thread *t)
{
	pthread_mutex_lock(&server);
	copies_fixture_join(&fixture, 0, t->owner, copies_fixture_faults, &t->client);
	pthread_mutex_unlock(&server);
	t->heard = atomic_load(&lost) != NOTHING;
	if (begin(t))
		hear(t);
}

static void die(struct thread *t)
{
	pthread_mutex_lock(&server);
	for (uint32_t i = 0; i < fixture.n; i++)
		heap_writers_leave(&t->client.at[i].acc);
	copies_fixture_kill(&t->client);
	pthread_mutex_unlock(&server);
	t->deaths++;
}

/* -------- calls -------- */

static uint64_t now(void)
{
	return clock_now_ns(clock_monotonic());
}

static bool is_whole(const struct heap_value *got)
{
	uint64_t words[256], n = got->len / 8;

	if (got->len % 8 || n == 0 || n > 256)
		return false;
	memcpy(words, got->ptr, got->len);
	for (uint64_t i = 1; i < n; i++)
		if (words[i] != words[0] * 3 + i)
			return false;
	return true;
}

static int get(struct thread *t, const struct chain_key *key, struct history_call *call)
{
	const struct heap_room room = { 0 };
	struct heap_value got = { 0 };
	struct heap_access *acc = &primary_of(&t->client, atomic_load(&lost))->acc;
	int ret = heap_get(acc, key, &room, &got);

	if (ret == 0 && !is_whole(&got))
		t->failed = "a value is torn";
	if (ret == 0)
		memcpy(&call->value, got.ptr, sizeof(call->value));
	call->version = ret ? 0 : got.version;
	return ret == -ENOENT ? 0 : ret;
}

static int put(struct thread *t, const struct chain_key *key, struct history_call *call)
{
	uint64_t words[256], n = 1 + 120 * rng_uniform_u64(&t->rng, 3);
	struct heap_put of = { .value = words, .len = 8 * n, .expected = HEAP_ANY_VERSION };
	struct heap_access *acc =
		&primary_of(&t->client, t->heard ? atomic_load(&lost) : NOTHING)->acc;
	int ret;

	words[0] = call->value;
	for (uint64_t i = 1; i < n; i++)
		words[i] = words[0] * 3 + i;
	acc->in_doubt = acc->away = false;
	ret = heap_put(acc, key, &of, &call->version);
	if (ret && acc->in_doubt)
		call->end = HISTORY_PENDING;
	if (ret == -EAGAIN && acc->away)
		hear(t);
	return ret;
}

/* Copy i of the client answers n more calls. */
static void cut(struct thread *t, uint32_t i, uint64_t n)
{
	fault_set(t->client.at[i].tr, &(struct fault_plan){ .cut_at = n });
}

static void call_once(struct thread *t, uint64_t number)
{
	uint64_t k = rng_uniform_u64(&t->rng, KEYS);
	const char text[2] = { (char)('a' + k), 0 };
	struct chain_key key = chain_key(text, 1, fixture.at[0].desc.seed);
	struct history_call call = { .client = t->owner, .start = now() };
	bool puts = rng_uniform_u64(&t->rng, 2), dies = puts && rng_uniform_u64(&t->rng, 200) == 0;
	int ret;

	call.kind = puts ? HISTORY_PUT : HISTORY_GET;
	call.value = puts ? (uint64_t)t->owner << 32 | number : 0;
	if (atomic_load(&lost) != NOTHING && !t->heard && rng_uniform_u64(&t->rng, 30) == 0)
		hear(t);
	if (dies)
		cut(t, (uint32_t)rng_uniform_u64(&t->rng, fixture.n),
		    1 + rng_uniform_u64(&t->rng, 8));
	ret = puts ? put(t, &key, &call) : get(t, &key, &call);
	if (call.end != HISTORY_PENDING)
		call.end = now();
	else
		call.version = 0;
	if (ret == 0 || call.end == HISTORY_PENDING)
		t->calls[k][t->kept[k]++] = call;
	else if (ret != -EAGAIN && ret != -ENOSPC && !dies) /* others may have all orphans */
		t->failed = error_last();
	if (dies) {
		die(t);
		join(t);
	}
}

static void *run(void *arg)
{
	struct thread *t = arg;

	for (uint64_t i = 1; i <= OPS && !t->failed; i++) {
		call_once(t, i);
		atomic_fetch_add(&done, 1);
	}
	if (t->failed) /* nobody waits for the others */
		atomic_fetch_add(&done, THREADS * OPS);
	return NULL;
}

/* -------- what they saw -------- */

static uint32_t check(uint32_t k)
{
	static struct history_call all[THREADS * OPS];
	const char *why;
	uint32_t n = 0;

	for (uint32_t i = 0; i < THREADS; i++) {
		memcpy(all + n, threads[i].calls[k], threads[i].kept[k] * sizeof(all[0]));
		n += threads[i].kept[k];
	}
	if (!history_check(all, n, &why))
		fail_msg("key %u, %u calls: %s", k, n, why);
	return n;
}

static void run_threads(uint32_t copies, uint32_t loses)
{
	uint32_t deaths = 0, calls = 0;

	atomic_store(&lost, NOTHING);
	atomic_store(&done, 0);
	memset(threads, 0, sizeof(threads));
	copies_fixture_open(&fixture, copies, HEAP_WRITERS_MANY);
	for (uint32_t i = 0; i < THREADS; i++) {
		threads[i].owner = i + 1;
		rng_seed(&threads[i].rng, 31 + copies + loses, i);
		join(&threads[i]);
	}
	for (uint32_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i].id, NULL, run, &threads[i]), 0);
	while (atomic_load(&done) < THREADS * OPS / 2)
		(void)sched_yield();
	atomic_store(&lost, loses);
	for (uint32_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i].id, NULL), 0);
	for (uint32_t i = 0; i < THREADS; i++) {
		if (threads[i].failed)
			fail_msg("thread %u: %s", i, threads[i].failed);
		deaths += threads[i].deaths;
		die(&threads[i]);
	}
	for (uint32_t k = 0; k < KEYS; k++)
		calls += check(k);
	assert_true(deaths > 10 && calls > THREADS * OPS / 2);
	for (uint32_t i = 0; i < copies; i++)
		if (i != loses)
			heap_fixture_expect_sound(&fixture.at[i], NULL);
	copies_fixture_close(&fixture);
}

TEST(threads__of_two_copies_the_primary_is_lost)
{
	run_threads(2, 0);
}

TEST(threads__of_two_copies_the_backup_is_lost)
{
	run_threads(2, 1);
}

TEST(threads__of_three_copies_one_is_lost)
{
	run_threads(3, 2);
	run_threads(3, 1);
}

int main(void)
{
	return test_run(NULL, NULL);
}
