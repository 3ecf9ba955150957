/* Jobs that park in a store: their bytes lie on a memory node, and come back whoever dies meanwhile. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/os/clock.h"
#include "relive/kv.h"
#include "tests/support/fixture/poold_fixture.h"
#include "tests/support/fixture/store_fixture.h"
#include "tests/support/must.h"

#define LARGE ((uint64_t)17 << 20) /* two pieces */
#define PIECES 3u                  /* with that of a small one */
#define SMALL ((uint64_t)64 << 10)

static struct poold_fixture fx;
static struct rlv_store *store;
static struct rlv_kv *heap;
static pid_t node;

static void start_node(void)
{
	char file[PROCESSES_PATH + 64];
	const char *const args[] = { "--size", "256M", "--file", file, NULL };

	processes_path(&fx.ps, "node.pool", file);
	node = processes_memnode(&fx.ps, "s", "a", args);
}

static void start_broker(void)
{
	const char *const options[] = { "--size", "32M", "--extent", "64K", NULL };

	poold_again_as(&fx, options);
}

static void make_heap(const char *name, uint64_t bytes, struct rlv_kv **kv_out)
{
	struct rlv_kv_opts opts = RLV_KV_OPTS_INIT;

	opts.keys = 1000;
	opts.bytes = bytes;
	must(rlv_kv_create(store, name, &opts, kv_out), "rlv_kv_create");
}

static int begin(void **state)
{
	const char *const metad[] = { "--lease", "0.5", NULL };
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;

	(void)state;
	processes_init(&fx.ps);
	start_broker();
	(void)processes_metad(&fx.ps, "s", metad);
	start_node();
	opts.timeout_ns = 2 * CLOCK_NS_PER_S;
	must(rlv_store_open("shm:s", &opts, &store), "rlv_store_open");
	store_fixture_await_node(store);
	make_heap("parked", 64 << 20, &heap);
	return 0;
}

static int end(void **state)
{
	(void)state;
	(void)!rlv_kv_close(&heap);
	must(rlv_store_close(&store), "rlv_store_close");
	poold_stop(&fx);
	return 0;
}

static int join_in(const char *name, const char *in, struct rlv_pool **pool_out)
{
	struct rlv_pool_opts opts = RLV_POOL_OPTS_INIT;
	uint32_t stream;
	int ret;

	opts.persistent_bytes = LARGE + SMALL;
	opts.timeout_ns = 20 * (int64_t)POOLD_SECOND;
	opts.store = store;
	opts.heap = in;
	ret = rlv_pool_open("test", name, &opts, pool_out);
	if (ret == 0)
		must(rlv_pool_stream(*pool_out, NULL, &stream), "rlv_pool_stream");
	return ret;
}

static struct rlv_pool *join(const char *name)
{
	struct rlv_pool *pool;

	must(join_in(name, "parked", &pool), "rlv_pool_open");
	return pool;
}

/* A tensor no two words of which are alike. */
static uint32_t *tensor(struct rlv_pool *pool, uint64_t bytes, uint32_t seed)
{
	void *ptr;
	uint32_t *words;

	must(rlv_pool_alloc(pool, RLV_POOL_PERSISTENT, bytes, 0, &ptr), "rlv_pool_alloc");
	words = ptr;
	for (uint64_t i = 0; i < bytes / sizeof(*words); i++)
		words[i] = (uint32_t)i * 2654435761u + seed;
	return words;
}

static void check(const uint32_t *words, uint64_t bytes, uint32_t seed)
{
	for (uint64_t i = 0; i < bytes / sizeof(*words); i++)
		if (words[i] != (uint32_t)i * 2654435761u + seed)
			fail_msg("word %llu is another one", (unsigned long long)i);
}

/* Keys of the heap that have values; the last one that it found. */
static uint32_t keys(char name[RLV_KV_KEY_BYTES + 1])
{
	struct rlv_kv_walk walk = RLV_KV_WALK_INIT;
	uint32_t n = 0;

	while (rlv_kv_next(heap, &walk) == 0) {
		memcpy(name, walk.key, walk.key_len);
		name[walk.key_len] = 0;
		n++;
	}
	return n;
}

static uint32_t n_keys(void)
{
	char name[RLV_KV_KEY_BYTES + 1];

	return keys(name);
}

TEST_WITH(park_store__bytes_lie_in_the_heap_and_come_back, begin, end)
{
	struct rlv_pool *a = join("a"), *b;
	uint32_t *large = tensor(a, LARGE, 1), *small = tensor(a, SMALL, 2);

	must(rlv_pool_park(a, 20 * (int64_t)POOLD_SECOND), "park");
	assert_int_equal(poold_job("a").state, RLV_POOL_JOB_PARKED);
	assert_true(poold_holds(0, POOLD_SOON));
	assert_int_equal(n_keys(), PIECES);
	expect(rlv_pool_free(a, small, 0), -EBUSY);
	must(rlv_pool_park(a, 0), "park again");
	b = poold_join("b", 512, 0);
	(void)poold_tensor(b, RLV_POOL_PERSISTENT, 512, 0xee);
	must(rlv_pool_close(&b), "close b");

	processes_kill(&fx.ps, fx.broker, SIGKILL);
	start_broker();
	must(rlv_pool_resume(a, 20 * (int64_t)POOLD_SECOND), "resume");
	check(large, LARGE, 1);
	check(small, SMALL, 2);
	assert_int_equal(n_keys(), 0);
	must(rlv_pool_free(a, small, 0), "free");
	expect(rlv_store_close(&store), -EBUSY);
	must(rlv_pool_park(a, 20 * (int64_t)POOLD_SECOND), "park");
	assert_int_equal(n_keys(), PIECES - 1);
	must(rlv_pool_close(&a), "close a parked job");
	assert_int_equal(n_keys(), 0);
}

/* A deadline that is over when the call begins lets one piece come. */
TEST_WITH(park_store__short_waits_get_on, begin, end)
{
	struct rlv_pool *a = join("a");
	uint32_t *large = tensor(a, LARGE, 1), *small = tensor(a, SMALL, 2);
	uint32_t calls;
	int ret;

	expect(rlv_pool_park(a, 1), -ETIMEDOUT);
	check(large, LARGE, 1);
	must(rlv_pool_park(a, 20 * (int64_t)POOLD_SECOND), "park");
	expect(rlv_pool_iteration_begin(a, 0), -EBUSY);
	for (calls = 1; (ret = rlv_pool_resume(a, 1)) == -ETIMEDOUT; calls++)
		assert_true(calls <= PIECES + 1);
	must(ret, "resume");
	assert_true(calls >= PIECES - 1);
	check(large, LARGE, 1);
	check(small, SMALL, 2);
	must(rlv_pool_close(&a), "close");
}

/* The n-th piece is not there: the job stays parked, and comes back when it is. */
TEST_WITH(park_store__lost_piece_is_named, begin, end)
{
	static uint8_t bytes[16 << 20];
	struct rlv_pool *a = join("a");
	uint32_t *large = tensor(a, LARGE, 1), *small = tensor(a, SMALL, 2);

	for (uint32_t n = 0; n < PIECES; n++) {
		struct rlv_kv_value value = RLV_KV_VALUE_INIT;
		char name[RLV_KV_KEY_BYTES + 1];
		struct rlv_bytes key = { name, 0 };

		must(rlv_pool_park(a, 20 * (int64_t)POOLD_SECOND), "park");
		assert_int_equal(keys(name), PIECES);
		key.len = strlen(name);
		name[key.len - 1] = (char)('0' + n);
		value.ptr = bytes;
		value.room = sizeof(bytes);
		must(rlv_kv_get(heap, key, &value), "get");
		must(rlv_kv_put(heap, key, (struct rlv_bytes){ bytes, 3 }, NULL), "put");
		expect(rlv_pool_resume(a, POOLD_SOON), -EBADMSG);
		must(rlv_kv_delete(heap, key, NULL), "delete");
		expect(rlv_pool_resume(a, POOLD_SOON), -ENOENT);
		assert_non_null(strstr(rlv_last_error(), "job a: "));
		assert_non_null(strstr(rlv_last_error(), "not back from heap parked"));
		expect(rlv_pool_free(a, small, 0), -EBUSY);
		must(rlv_kv_put(heap, key, (struct rlv_bytes){ bytes, value.len }, NULL), "put");
		if (n % 2) /* what has come back leaves again */
			must(rlv_pool_park(a, 20 * (int64_t)POOLD_SECOND), "park");
		must(rlv_pool_resume(a, 20 * (int64_t)POOLD_SECOND), "resume");
		check(large, LARGE, 1);
		check(small, SMALL, 2);
		assert_int_equal(n_keys(), 0);
	}
	must(rlv_pool_close(&a), "close");
}

/* The n-th piece has no room: the job stays whole, and the heap keeps nothing after its next park. */
TEST_WITH(park_store__full_heap_keeps_the_job_whole, begin, end)
{
	struct rlv_kv *little;
	struct rlv_pool *a;
	uint32_t *large;

	make_heap("little", 18 << 20, &little);
	must(rlv_kv_close(&little), "close");
	must(join_in("a", "little", &a), "rlv_pool_open");
	large = tensor(a, LARGE, 1);
	expect(rlv_pool_park(a, 20 * (int64_t)POOLD_SECOND), -ENOSPC);
	assert_non_null(strstr(rlv_last_error(), "job a stays: heap little: "));
	must(rlv_pool_iteration_begin(a, 0), "begin");
	check(large, LARGE, 1);
	must(rlv_pool_iteration_end(a), "end");
	must(rlv_pool_close(&a), "close");
}

TEST_WITH(park_store__node_that_is_away_is_an_error, begin, end)
{
	struct rlv_pool *a = join("a");
	uint32_t *small = tensor(a, SMALL, 1);

	must(rlv_pool_park(a, 20 * (int64_t)POOLD_SECOND), "park");
	processes_kill(&fx.ps, node, SIGKILL);
	expect(rlv_pool_resume(a, POOLD_SOON), -EHOSTDOWN);
	expect(rlv_pool_free(a, small, 0), -EBUSY);
	start_node();
	store_fixture_await_node(store);
	must(rlv_pool_resume(a, 20 * (int64_t)POOLD_SECOND), "resume");
	check(small, SMALL, 1);

	processes_kill(&fx.ps, node, SIGKILL);
	expect(rlv_pool_park(a, POOLD_SOON), -EHOSTDOWN);
	check(small, SMALL, 1);
	must(rlv_pool_iteration_begin(a, 0), "begin");
	must(rlv_pool_iteration_end(a), "end");
	must(rlv_pool_close(&a), "close");
	start_node();
	store_fixture_await_node(store);
}

/* Parks and comes back again and again; *stays: it stays parked. */
static int restless(void *stays)
{
	struct rlv_pool *pool;
	uint32_t *tensors[4];

	must(rlv_store_open("shm:s", NULL, &store), "rlv_store_open");
	pool = join("restless");
	for (uint32_t i = 0; i < 4; i++)
		tensors[i] = tensor(pool, SMALL, i);
	for (;;) {
		must(rlv_pool_park(pool, 20 * (int64_t)POOLD_SECOND), "park");
		while (*(bool *)stays)
			processes_sleep_ns(CLOCK_NS_PER_S);
		must(rlv_pool_resume(pool, 20 * (int64_t)POOLD_SECOND), "resume");
		for (uint32_t i = 0; i < 4; i++)
			check(tensors[i], SMALL, i);
	}
	return 0;
}

static bool has_begun(void *stays)
{
	struct rlv_pool_job job = poold_job("restless");

	return *(bool *)stays ? job.state == RLV_POOL_JOB_PARKED : job.most_bytes == 4 * SMALL;
}

TEST_WITH(park_store__next_job_of_the_name_removes_what_a_killed_one_left, begin, end)
{
	for (int i = 0; i < 8; i++) {
		bool stays = i == 0;
		pid_t pid = processes_fork(&fx.ps, restless, &stays);
		struct rlv_pool *next;

		assert_true(processes_until(has_begun, &stays));
		processes_sleep_ns(i * 2 * (int64_t)CLOCK_NS_PER_MS);
		processes_kill(&fx.ps, pid, SIGKILL);
		assert_true(poold_holds(0, POOLD_SOON));
		if (stays)
			assert_int_equal(n_keys(), 4);
		next = join("restless");
		assert_int_equal(n_keys(), 0);
		must(rlv_pool_close(&next), "close");
	}
}

TEST_WITH(park_store__each_allocation_fails_once, begin, end)
{
	struct rlv_pool *a = join("a");
	uint32_t *small = tensor(a, SMALL, 1);
	int failures = 0;
	uint64_t n = 1;

	do {
		int ret;

		mem_fail_after(n++);
		ret = rlv_pool_park(a, 20 * (int64_t)POOLD_SECOND);
		if (ret == 0)
			ret = rlv_pool_resume(a, 20 * (int64_t)POOLD_SECOND);
		failures += ret != 0;
		while (ret) /* of the park, the resume has nothing to do */
			ret = rlv_pool_resume(a, 20 * (int64_t)POOLD_SECOND);
		check(small, SMALL, 1);
	} while (mem_fail_fired());
	mem_fail_after(0);
	assert_true(failures > 4);
	must(rlv_pool_close(&a), "close");
}

TEST_WITH(park_store__wrong_options, begin, end)
{
	struct rlv_pool_opts opts = RLV_POOL_OPTS_INIT;
	struct rlv_pool *pool;

	opts.heap = "parked";
	expect(rlv_pool_open("test", "a", &opts, &pool), -EINVAL);
	opts.heap = NULL;
	opts.store = store;
	expect(rlv_pool_open("test", "a", &opts, &pool), -EINVAL);
	expect(join_in("a", "none", &pool), -ENOENT);
	must(join_in("a", "parked", &pool), "the name is free");
	must(rlv_pool_close(&pool), "close");
}

int main(void)
{
	if (test_skips_msan("libevent"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
