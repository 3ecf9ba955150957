/*
 * Weights with two copies on three memory nodes, in real processes, under all that may happen at once: a publisher and
 * readers are killed or stopped, some past their lease, and nodes are lost. What is fetched is one whole version, at least
 * the newest that was published before, and versions never step back. RLV_TEST_KILLS: how many clients are harmed.
 */
#include "tests/support/fixture/weights_fixture.h"
#include "tests/support/must.h"
#include "tests/support/processes.h"
#include "tests/support/store_nodes.h"

#include "relive/weights.h"

#include "base/os/clock.h"
#include "base/rng.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define NODES 3u
#define ELEMENTS 20000u
#define CLIENTS 3u
#define HARMS_DEFAULT 40u
#define HARMS_OF_A_NODE 20u /* of clients, for each node that is lost */
#define LEASE_MS 300u
#define GAVE_UP 3 /* exit status of a client that got an error */

struct shared {
	_Atomic uint64_t acked; /* newest version whose publish returned */
	_Atomic uint64_t published, fetched;
	_Atomic uint64_t wrong; /* fetches of what was not published, or of older versions */
};

struct fixture {
	struct processes ps;
	struct shared *shared;
	struct rlv_store *store;
	pid_t nodes[NODES], clients[CLIENTS];
	char name[2];     /* of the node that is looked at */
	uint64_t fetched; /* when the last client was harmed */
	uint64_t gave_up,
		excused; /* clients: by an error; that were stopped past their lease or saw a loss */
};

/* -------- children -------- */

static int join(struct rlv_generations **weights)
{
	static struct rlv_store *store;
	int ret = rlv_store_open("shm:s", NULL, &store);

	return ret ? ret : rlv_weights_open(store, "policy", weights);
}

static int publisher(void *arg)
{
	struct shared *shared = ((struct fixture *)arg)->shared;
	struct rlv_generations *weights;
	uint64_t version = 0;
	int ret = join(&weights);

	while (ret == 0) {
		ret = rlv_weights_poll(weights, &version);
		if (ret == 0)
			ret = weights_fixture_publish(weights, ELEMENTS, version + 1, 0);
		/* Killed publishers have their memory until the fence. */
		if (ret == -EBUSY || ret == -EAGAIN || ret == -EEXIST || ret == -ENOSPC) {
			ret = 0;
			continue;
		}
		if (ret == 0) {
			atomic_store(&shared->acked, version + 1);
			atomic_fetch_add(&shared->published, 1);
		}
	}
	fprintf(stderr, "publish: %s %s\n", rlv_error_name(ret), rlv_last_error());
	return GAVE_UP;
}

static int reader(void *arg)
{
	struct shared *shared = ((struct fixture *)arg)->shared;
	struct rlv_generation got = RLV_GENERATION_INIT;
	struct rlv_generations *weights;
	uint64_t last = 0;
	int ret = join(&weights);

	while (ret == 0) {
		uint64_t acked = atomic_load(&shared->acked);

		ret = rlv_weights_fetch(weights, last, 20 * CLOCK_NS_PER_MS, &got);
		if (ret == -ETIMEDOUT || ret == -EAGAIN) {
			ret = 0;
			continue;
		}
		if (ret == 0 && (got.version <= last || got.version < acked ||
				 !weights_fixture_is_whole(&got, ELEMENTS))) {
			fprintf(stderr, "version %llu after %llu, published %llu\n",
				(unsigned long long)got.version, (unsigned long long)last,
				(unsigned long long)acked);
			atomic_fetch_add(&shared->wrong, 1);
		}
		if (ret == 0) {
			last = got.version;
			atomic_fetch_add(&shared->fetched, 1);
			rlv_generation_release(&got);
		}
	}
	fprintf(stderr, "fetch: %s %s\n", rlv_error_name(ret), rlv_last_error());
	return GAVE_UP;
}

static int (*const roles[CLIENTS])(void *) = { publisher, reader, reader };

/* -------- the store -------- */

static void start_node(struct fixture *fx, uint32_t n)
{
	static const char *const size[] = { "--size", "64M", NULL };
	const char name[2] = { (char)('a' + n), 0 };

	fx->nodes[n] = processes_memnode(&fx->ps, "s", name, size);
}

static bool all_are_up(void *arg)
{
	const struct fixture *fx = arg;

	return store_nodes_up(fx->store) == NODES;
}

static bool is_lost(void *arg)
{
	struct fixture *fx = arg;

	return store_node_named(fx->store, fx->name).state == RLV_NODE_LOST;
}

/* The server fills a new copy, or a client that publishes does. */
static bool has_two_copies(void *arg)
{
	struct rlv_kv_info info = RLV_KV_INFO_INIT;
	struct rlv_kv *kv = NULL;
	bool two = rlv_kv_open(((struct fixture *)arg)->store, "policy", &kv) == 0 &&
		   rlv_kv_info(kv, &info) == 0 && info.copies == 2;

	return rlv_kv_close(&kv) == 0 && two;
}

static int setup(void **state)
{
	const struct rlv_weights_opts opts = {
		.size = sizeof(opts), .bytes = 4 * ELEMENTS, .keep = 2, .anchor_every = 4
	};
	const char *const patience[] = { "--lease", "0.3", "--node-lost", "0.5", NULL };
	struct rlv_generations *weights = NULL;
	static struct fixture fixture;
	struct fixture *fx = &fixture;

	memset(fx, 0, sizeof(*fx));
	*state = fx;
	fx->excused = CLIENTS; /* a busy host may keep one from renewing its lease */
	fx->shared = mmap(NULL, sizeof(*fx->shared), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(fx->shared != MAP_FAILED);
	processes_init(&fx->ps);
	(void)processes_metad(&fx->ps, "s", patience);
	for (uint32_t n = 0; n < NODES; n++)
		start_node(fx, n);
	must(rlv_store_open("shm:s", NULL, &fx->store), "rlv_store_open");
	assert_true(processes_until(all_are_up, fx));
	must(rlv_weights_create(fx->store, "policy", &opts, &weights), "rlv_weights_create");
	must(weights_fixture_publish(weights, ELEMENTS, 1, 0), "publish");
	must(rlv_weights_close(&weights), "rlv_weights_close");
	for (uint32_t i = 0; i < CLIENTS; i++)
		fx->clients[i] = processes_fork(&fx->ps, roles[i], fx);
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	(void)!rlv_store_close(&fx->store);
	processes_fini(&fx->ps);
	munmap(fx->shared, sizeof(*fx->shared));
	return 0;
}

/* -------- harm -------- */

/* Another client takes the place of one that was killed or gave up. */
static void replace_client(struct fixture *fx, uint32_t i)
{
	fx->clients[i] = processes_fork(&fx->ps, roles[i], fx);
}

static void replace_those_that_gave_up(struct fixture *fx)
{
	for (uint32_t i = 0; i < CLIENTS; i++) {
		int status = processes_wait(&fx->ps, fx->clients[i], 0);

		if (status < 0)
			continue;
		assert_int_equal(status, GAVE_UP);
		fx->gave_up++;
		replace_client(fx, i);
	}
}

static void harm_client(struct fixture *fx, struct rng *rng)
{
	uint32_t i = (uint32_t)rng_uniform_u64(rng, CLIENTS);
	uint64_t ms = 1 + rng_uniform_u64(rng, rng_uniform_u64(rng, 4) ? 50 : 600);

	if (rng_uniform_u64(rng, 3)) {
		processes_kill(&fx->ps, fx->clients[i], SIGKILL);
		replace_client(fx, i);
		return;
	}
	processes_kill(&fx->ps, fx->clients[i], SIGSTOP);
	processes_sleep_ns((int64_t)ms * CLOCK_NS_PER_MS);
	processes_kill(&fx->ps, fx->clients[i], SIGCONT);
	fx->excused += ms > LEASE_MS / 2;
}

/* All copies that it had are made anew before it comes back. */
static void lose_node(struct fixture *fx, struct rng *rng)
{
	uint32_t n = (uint32_t)rng_uniform_u64(rng, NODES);

	fx->excused += CLIENTS;
	assert_true(processes_until(has_two_copies, fx));
	fx->name[0] = (char)('a' + n);
	processes_kill(&fx->ps, fx->nodes[n], SIGKILL);
	assert_true(processes_until(is_lost, fx));
	assert_true(processes_until(has_two_copies, fx));
	start_node(fx, n);
	assert_true(processes_until(all_are_up, fx));
}

static bool has_gone_on(void *arg)
{
	struct fixture *fx = arg;

	replace_those_that_gave_up(fx);
	return atomic_load(&fx->shared->fetched) > fx->fetched;
}

TEST_WITH(generations__outlive_kills_pauses_and_lost_nodes, setup, teardown)
{
	const char *text = getenv("RLV_TEST_KILLS");
	unsigned long harms = text ? strtoul(text, NULL, 10) : HARMS_DEFAULT;
	struct fixture *fx = *state;
	struct rng rng;

	rng_seed(&rng, test_seed("harms", 1), 0);
	for (unsigned long i = 1; i <= harms; i++) {
		processes_sleep_ns((int64_t)(3 + rng_uniform_u64(&rng, 30)) * CLOCK_NS_PER_MS);
		harm_client(fx, &rng);
		if (i % HARMS_OF_A_NODE == 0)
			lose_node(fx, &rng);
		replace_those_that_gave_up(fx);
		assert_int_equal(atomic_load(&fx->shared->wrong), 0);
	}
	fx->fetched = atomic_load(&fx->shared->fetched);
	assert_true(processes_until(has_gone_on, fx));
	print_message("%llu publishes and %llu fetches, %lu harms; %llu clients gave up\n",
		      (unsigned long long)atomic_load(&fx->shared->published),
		      (unsigned long long)atomic_load(&fx->shared->fetched), harms,
		      (unsigned long long)fx->gave_up);
	assert_int_equal(atomic_load(&fx->shared->wrong), 0);
	assert_true(atomic_load(&fx->shared->published) > harms);
	assert_in_range(fx->gave_up, 0, fx->excused);
}

int main(void)
{
	return test_run(NULL, NULL);
}
