/*
 * Ranks that publish shards of weights, and readers, killed at any time: a reader sees one version of all ranks,
 * which is whole, and never steps back; a rank that comes again goes on, and space comes back.
 */
#include "tests/support/fixture/store_fixture.h"
#include "tests/support/fixture/weights_fixture.h"
#include "tests/support/must.h"
#include "tests/support/processes.h"

#include "relive/weights.h"

#include "base/os/clock.h"
#include "base/rng.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#define ELEMENTS 40000u /* more than a chunk */
#define RANKS 3u
#define CLIENTS (RANKS + 2u)
#define KILLS_DEFAULT 40u

struct shared {
	_Atomic uint64_t seen; /* newest version that a reader had */
	_Atomic uint64_t published, fetched, failed;
};

struct fixture {
	struct processes ps;
	struct shared *shared;
	uint32_t rank; /* of the next child */
	pid_t clients[CLIENTS];
};

static uint32_t element(uint32_t rank, uint64_t version, uint32_t i)
{
	return i % 97 == version % 97 ? (uint32_t)version * 8 + rank : i * 8 + rank;
}

static int publish(struct rlv_shards *shards, uint32_t rank, uint64_t version)
{
	static uint32_t values[ELEMENTS];
	const struct rlv_tensor tensor = weights_fixture_tensor(values, ELEMENTS);

	for (uint32_t i = 0; i < ELEMENTS; i++)
		values[i] = element(rank, version, i);
	return rlv_shards_publish(shards, &tensor, 1, version, 0);
}

static int join(struct rlv_store **store, uint32_t rank, struct rlv_shards **shards)
{
	const struct rlv_weights_opts weights = {
		.size = sizeof(weights), .bytes = 4 * ELEMENTS, .keep = 3, .anchor_every = 4
	};
	const struct rlv_shards_opts opts = {
		.size = sizeof(opts), .ranks = RANKS, .rank = rank, .weights = &weights
	};
	int ret = rlv_store_open("shm:s", NULL, store);

	return ret ? ret : rlv_shards_open(*store, "policy", &opts, shards);
}

static int child_fails(struct fixture *fx, const char *what, int ret)
{
	fprintf(stderr, "%s: %d %s\n", what, ret, rlv_last_error());
	atomic_store(&fx->shared->failed, 1);
	return 1;
}

/* Publishes versions one above the newest of all ranks; a rank that is ahead waits for the others. */
static int publisher(void *arg)
{
	struct fixture *fx = arg;
	struct rlv_shards *shards;
	struct rlv_store *store;
	uint64_t common, next = 0;
	int ret = join(&store, fx->rank, &shards);

	while (ret == 0) {
		common = 0;
		ret = rlv_shards_poll(shards, &common);
		if (ret && ret != -ENODATA)
			break;
		next = common >= next ? common + 1 : next;
		ret = publish(shards, fx->rank, next);
		atomic_fetch_add(&fx->shared->published, ret == 0);
		if (ret == 0 || ret == -EEXIST) /* its predecessor has published it */
			next++;
		if (ret == -ENOSPC) /* killed ranks have their memory until the fence */
			processes_sleep_ns(CLOCK_NS_PER_MS);
		if (ret == -EEXIST || ret == -EAGAIN || ret == -EBUSY || ret == -ENOSPC)
			ret = 0;
	}
	return child_fails(fx, "publish", ret);
}

static bool is_whole(const struct rlv_generation got[RANKS])
{
	for (uint32_t r = 0; r < RANKS; r++) {
		const uint32_t *values = got[r].tensors[0].data;

		for (uint32_t i = 0; i < ELEMENTS; i++)
			if (values[i] != element(r, got[0].version, i))
				return false;
	}
	return true;
}

static int reader(void *arg)
{
	struct fixture *fx = arg;
	struct rlv_generation got[RANKS];
	struct rlv_shards *shards;
	struct rlv_store *store;
	uint64_t last = 0;
	int ret = join(&store, RLV_NO_RANK, &shards);

	while (ret == 0) {
		uint64_t seen = atomic_load(&fx->shared->seen);

		for (uint32_t r = 0; r < RANKS; r++)
			got[r] = (struct rlv_generation)RLV_GENERATION_INIT;
		ret = rlv_shards_fetch(shards, last, 20 * CLOCK_NS_PER_MS, got);
		if (ret == -ETIMEDOUT || ret == -EAGAIN) {
			ret = 0;
			continue;
		}
		if (ret == 0 && (got[0].version < seen || !is_whole(got)))
			ret = -EILSEQ;
		if (ret)
			break;
		last = got[0].version;
		while (seen < last && !atomic_compare_exchange_weak(&fx->shared->seen, &seen, last))
			;
		atomic_fetch_add(&fx->shared->fetched, 1);
		for (uint32_t r = 0; r < RANKS; r++)
			rlv_generation_release(&got[r]);
	}
	return child_fails(fx, "fetch", ret);
}

static void start(struct fixture *fx, uint32_t client)
{
	fx->rank = client;
	fx->clients[client] = processes_fork(&fx->ps, client < RANKS ? publisher : reader, fx);
}

static void kill_some(struct fixture *fx, unsigned long kills)
{
	struct rng rng;

	rng_seed(&rng, test_seed("kills", 1), 0);
	for (unsigned long i = 0; i < kills && !atomic_load(&fx->shared->failed); i++) {
		uint32_t victim = (uint32_t)rng_uniform_u64(&rng, CLIENTS);

		processes_sleep_ns((int64_t)(3 + rng_uniform_u64(&rng, 30)) * CLOCK_NS_PER_MS);
		processes_kill(&fx->ps, fx->clients[victim], SIGKILL);
		start(fx, victim);
	}
}

static bool both_go_on(void *arg)
{
	const struct shared *shared = arg;

	return shared->failed || (shared->published >= 30 && shared->fetched >= 10);
}

static void set_up(struct fixture *fx)
{
	const char *const memory[] = { "--size", "256M", NULL };
	const char *const lease[] = { "--lease", "0.3", NULL };
	struct rlv_store *store = NULL;

	processes_init(&fx->ps);
	fx->shared = mmap(NULL, sizeof(*fx->shared), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(fx->shared != MAP_FAILED);
	(void)processes_metad(&fx->ps, "s", lease);
	(void)processes_memnode(&fx->ps, "s", "a", memory);
	must(rlv_store_open("shm:s", NULL, &store), "rlv_store_open");
	store_fixture_await_node(store);
	must(rlv_store_close(&store), "rlv_store_close");
}

/* Ranks that are ahead wait for the slowest, which is never refused. */
static void publish_all(struct rlv_shards *ranks[RANKS], uint64_t version)
{
	uint64_t deadline = deadline_after(clock_monotonic(), PROCESSES_WAIT_MS * CLOCK_NS_PER_MS);
	uint32_t left = RANKS;

	for (uint32_t tries = 0; left && !deadline_expired(clock_monotonic(), deadline); tries++) {
		int ret = publish(ranks[tries % RANKS], tries % RANKS, version);

		if (ret && ret != -EEXIST && ret != -EAGAIN && ret != -EBUSY && ret != -ENOSPC)
			must(ret, "publish");
		left -= ret == 0;
	}
	assert_int_equal(left, 0);
}

/* What killed ranks left is gone after each has published again. */
static void expect_space(struct fixture *fx)
{
	struct rlv_shards *ranks[RANKS];
	struct rlv_store *stores[RANKS];
	uint64_t version = 0, next = atomic_load(&fx->shared->seen) + 1000;

	for (uint32_t r = 0; r < RANKS; r++)
		must(join(&stores[r], r, &ranks[r]), "join");
	for (uint64_t v = next; v < next + 20; v++)
		publish_all(ranks, v);
	must(rlv_shards_poll(ranks[0], &version), "poll");
	assert_int_equal(version, next + 19);
	for (uint32_t r = 0; r < RANKS; r++) {
		must(rlv_shards_close(&ranks[r]), "rlv_shards_close");
		must(rlv_store_close(&stores[r]), "rlv_store_close");
	}
}

TEST(ranks_and_readers__are_killed_at_any_time)
{
	const char *text = getenv("RLV_TEST_KILLS");
	unsigned long kills = text ? strtoul(text, NULL, 10) : KILLS_DEFAULT;
	struct fixture fx = { 0 };

	set_up(&fx);
	for (uint32_t i = 0; i < CLIENTS; i++)
		start(&fx, i);
	kill_some(&fx, kills);
	assert_true(processes_until(both_go_on, fx.shared));
	for (uint32_t i = 0; i < CLIENTS; i++) {
		if (atomic_load(&fx.shared->failed))
			(void)processes_log_has(&fx.ps, fx.clients[i], ":");
		processes_kill(&fx.ps, fx.clients[i], SIGKILL);
	}
	print_message("%llu publishes and %llu fetches, %lu kills\n",
		      (unsigned long long)atomic_load(&fx.shared->published),
		      (unsigned long long)atomic_load(&fx.shared->fetched), kills);
	assert_int_equal(atomic_load(&fx.shared->failed), 0);
	expect_space(&fx);
	processes_fini(&fx.ps);
	munmap(fx.shared, sizeof(*fx.shared));
}

int main(void)
{
	return test_run(NULL, NULL);
}
