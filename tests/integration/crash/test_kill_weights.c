/*
 * Publishers and readers of weights in processes of their own are killed by kill -9: a publisher before each
 * of its operations on memory, then all of them at any time. What is fetched is one whole version, versions
 * never step back, and what killed publishers leave is found and freed. RLV_TEST_KILLS: how many.
 */
#include "tests/support/fake/fault.h"
#include "tests/support/fixture/store_fixture.h"
#include "tests/support/fixture/weights_fixture.h"
#include "tests/support/must.h"
#include "tests/support/processes.h"
#include "tests/support/store_nodes.h"
#include "tests/support/wrap_open.h"

#include "relive/weights.h"

#include "base/os/clock.h"
#include "base/rng.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define KEEP 2
#define ELEMENTS 40000u
#define CLIENTS 4u
#define KILLS_DEFAULT 80u
#define STEPS_MOST 400u

/* Operations that this process may still make; 0 = any number. */
static uint64_t kill_in;

static void count_down(void *ctx, uint64_t delay_ns)
{
	(void)ctx;
	(void)delay_ns;
	if (kill_in && --kill_in == 0)
		(void)kill(getpid(), SIGKILL);
}

static int count_operations(struct transport **tr)
{
	const struct fault_plan plan = { .delay_rate = 65536, .delay = count_down };

	return kill_in ? fault_wrap(*tr, &plan, tr) : 0;
}

WRAP_TRANSPORT_OPEN(count_operations)

struct shared {
	_Atomic uint64_t acked;              /* newest version whose publish returned */
	_Atomic uint64_t published, fetched; /* calls */
	_Atomic uint64_t failed;
};

struct fixture {
	struct processes ps;
	struct shared *shared;
	struct rlv_store *store;
	struct rlv_generations *weights;
	uint64_t steps; /* of the next child */
	pid_t clients[CLIENTS];
};

/* -------- versions -------- */

static int publish(struct rlv_generations *weights, uint64_t version)
{
	return weights_fixture_publish(weights, ELEMENTS, version, 0);
}

static bool is_whole(const struct rlv_generation *got)
{
	return weights_fixture_is_whole(got, ELEMENTS);
}

static uint64_t newest(struct rlv_generations *weights)
{
	struct rlv_generation got = RLV_GENERATION_INIT;
	uint64_t version;

	must(rlv_weights_fetch(weights, 0, 0, &got), "rlv_weights_fetch");
	assert_true(is_whole(&got));
	version = got.version;
	rlv_generation_release(&got);
	return version;
}

/* -------- children -------- */

static int join(struct rlv_generations **weights)
{
	static struct rlv_store *store;
	int ret = rlv_store_open("shm:s", NULL, &store);

	if (ret == 0)
		ret = rlv_weights_open(store, "policy", weights);
	if (ret)
		fprintf(stderr, "open: %d %s\n", ret, rlv_last_error());
	return ret;
}

/* Publishes an anchor and some deltas, if it lives so long. */
static int publish_steps(void *arg)
{
	struct fixture *fx = arg;
	struct rlv_generations *weights;
	uint64_t version = 0;

	kill_in = fx->steps;
	if (join(&weights))
		return 1;
	for (uint32_t i = 0; i < 4; i++)
		if (rlv_weights_poll(weights, &version) || publish(weights, version + 1)) {
			fprintf(stderr, "publish: %s\n", rlv_last_error());
			return 1;
		}
	return 0;
}

static int publisher(void *arg)
{
	struct shared *shared = ((struct fixture *)arg)->shared;
	struct rlv_generations *weights;
	uint64_t version = 0, acked;
	int ret = join(&weights);

	while (ret == 0) {
		ret = rlv_weights_poll(weights, &version);
		if (ret == 0)
			ret = publish(weights, version + 1);
		if (ret == -ENOSPC) /* killed publishers have their memory until the fence */
			processes_sleep_ns(CLOCK_NS_PER_MS);
		if (ret == -EEXIST || ret == -EBUSY || ret == -EAGAIN || ret == -ENOSPC) {
			ret = 0;
			continue;
		}
		atomic_fetch_add(&shared->published, ret == 0);
		acked = atomic_load(&shared->acked);
		while (ret == 0 && acked < version + 1 &&
		       !atomic_compare_exchange_weak(&shared->acked, &acked, version + 1))
			;
	}
	fprintf(stderr, "publish: %d %s\n", ret, rlv_last_error());
	atomic_store(&shared->failed, 1);
	return 1;
}

/* Fetches a generation by parts. */
static int arrive(struct rlv_generations *weights, uint64_t than, struct rlv_generation *got)
{
	uint32_t ready = 0;
	int ret = rlv_weights_begin(weights, than, 20 * CLOCK_NS_PER_MS, got, &ready);

	while (ret == 0 && ready < got->n_tensors)
		ret = rlv_weights_more(weights, got, &ready);
	return ret;
}

static int reader(void *arg)
{
	struct shared *shared = ((struct fixture *)arg)->shared;
	struct rlv_generation got = RLV_GENERATION_INIT;
	struct rlv_generations *weights;
	uint64_t last = 0;
	bool odd = false;
	int ret = join(&weights);

	if (ret == 0)
		ret = rlv_weights_limit(weights, 64 << 10); /* two parts and a bit */
	while (ret == 0) {
		uint64_t acked = atomic_load(&shared->acked);

		ret = odd ? arrive(weights, last, &got)
			  : rlv_weights_fetch(weights, last, 20 * CLOCK_NS_PER_MS, &got);
		odd = !odd;
		if (ret == -ETIMEDOUT || ret == -EAGAIN) {
			rlv_generation_release(&got);
			ret = 0;
			continue;
		}
		if (ret == 0 && (got.version <= last || got.version < acked || !is_whole(&got)))
			ret = -EILSEQ;
		if (ret)
			break;
		last = got.version;
		atomic_fetch_add(&shared->fetched, 1);
		rlv_generation_release(&got);
	}
	fprintf(stderr, "fetch: %d %s\n", ret, rlv_last_error());
	atomic_store(&shared->failed, 1);
	return 1;
}

/* -------- the tests -------- */

static void set_up(struct fixture *fx)
{
	const struct rlv_weights_opts opts = {
		.size = sizeof(opts), .bytes = 4 * ELEMENTS, .keep = KEEP, .anchor_every = 4
	};
	const char *const memory[] = { "--size", "256M", NULL };
	const char *const lease[] = { "--lease", "0.3", NULL };

	memset(fx, 0, sizeof(*fx));
	processes_init(&fx->ps);
	fx->shared = mmap(NULL, sizeof(*fx->shared), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(fx->shared != MAP_FAILED);
	(void)processes_metad(&fx->ps, "s", lease);
	(void)processes_memnode(&fx->ps, "s", "a", memory);
	must(rlv_store_open("shm:s", NULL, &fx->store), "rlv_store_open");
	store_fixture_await_node(fx->store);
	must(rlv_weights_create(fx->store, "policy", &opts, &fx->weights), "rlv_weights_create");
	must(publish(fx->weights, 1), "publish");
	must(rlv_weights_close(&fx->weights), "rlv_weights_close");
	must(rlv_weights_open(fx->store, "policy", &fx->weights), "rlv_weights_open");
}

static bool nothing_is_owned(void *kv)
{
	struct rlv_kv_info info = RLV_KV_INFO_INIT;

	return rlv_kv_info(kv, &info) == 0 && info.extents_owned == 0;
}

/* No extent belongs to a killed client, and entries without a generation go with the next publish. */
static void tear_down(struct fixture *fx)
{
	struct rlv_weights_info info = RLV_WEIGHTS_INFO_INIT;
	struct rlv_kv_report report = RLV_KV_REPORT_INIT;
	struct rlv_kv_walk walk = RLV_KV_WALK_INIT;
	struct rlv_kv *kv = NULL;
	uint32_t entries = 0;

	must(rlv_kv_open(fx->store, "policy", &kv), "rlv_kv_open");
	assert_true(processes_until(nothing_is_owned, kv));
	for (uint32_t i = 0; i < KEEP; i++) /* generations with one entry each */
		must(weights_fixture_publish(fx->weights, ELEMENTS, newest(fx->weights) + 1,
					     RLV_PUBLISH_ANCHOR),
		     "publish");
	(void)newest(fx->weights);
	must(rlv_weights_info(fx->weights, &info), "info");
	while (rlv_kv_next(kv, &walk) == 0)
		entries += walk.value_len > 0;
	assert_int_equal(info.generations, KEEP);
	assert_int_equal(entries, KEEP + 1); /* the table */
	must(rlv_kv_verify(kv, &report), "rlv_kv_verify");
	if (report.problems)
		fail_msg("%s", report.first_problem);
	must(rlv_kv_close(&kv), "rlv_kv_close");
	must(rlv_weights_close(&fx->weights), "rlv_weights_close");
	must(rlv_store_close(&fx->store), "rlv_store_close");
	processes_fini(&fx->ps);
	munmap(fx->shared, sizeof(*fx->shared));
}

TEST(publishers__are_killed_before_each_operation)
{
	struct fixture fx;
	uint64_t version;
	int status = 1;

	set_up(&fx);
	version = newest(fx.weights);
	for (fx.steps = 1; status && fx.steps < STEPS_MOST; fx.steps++) {
		uint64_t now;
		pid_t pid = processes_fork(&fx.ps, publish_steps, &fx);

		status = processes_wait(&fx.ps, pid, PROCESSES_WAIT_MS);
		if (status && status != 128 + SIGKILL)
			(void)processes_log_has(&fx.ps, pid, "publish");
		assert_true(status == 0 || status == 128 + SIGKILL);
		now = newest(fx.weights);
		assert_in_range(now, version, version + 4);
		version = now;
	}
	print_message("%u operations\n", (unsigned)fx.steps - 2);
	assert_in_range(fx.steps, 20, STEPS_MOST - 1);
	tear_down(&fx);
}

static int (*const roles[CLIENTS])(void *) = { publisher, publisher, reader, reader };

struct wish {
	struct shared *shared;
	uint64_t published;
};

/* Or one has failed. */
static bool have_gone_on(void *arg)
{
	const struct wish *wish = arg;
	struct shared *shared = wish->shared;

	return atomic_load(&shared->failed) || (atomic_load(&shared->published) > wish->published &&
						atomic_load(&shared->fetched) > 0);
}

TEST(publishers_and_readers__are_killed_at_any_time)
{
	const char *text = getenv("RLV_TEST_KILLS");
	unsigned long kills = text ? strtoul(text, NULL, 10) : KILLS_DEFAULT;
	struct fixture fx;
	struct wish wish;
	struct rng rng;

	set_up(&fx);
	wish.shared = fx.shared;
	for (uint32_t i = 0; i < CLIENTS; i++)
		fx.clients[i] = processes_fork(&fx.ps, roles[i], &fx);
	rng_seed(&rng, test_seed("kills", 1), 0);
	for (unsigned long i = 0; i < kills && !atomic_load(&fx.shared->failed); i++) {
		uint32_t victim = (uint32_t)rng_uniform_u64(&rng, CLIENTS);

		processes_sleep_ns((int64_t)(3 + rng_uniform_u64(&rng, 30)) * CLOCK_NS_PER_MS);
		processes_kill(&fx.ps, fx.clients[victim], SIGKILL);
		fx.clients[victim] = processes_fork(&fx.ps, roles[victim], &fx);
	}
	wish.published = atomic_load(&fx.shared->published);
	if (wish.published < kills / 4)
		wish.published = kills / 4;
	assert_true(processes_until(have_gone_on, &wish));
	for (uint32_t i = 0; i < CLIENTS; i++) {
		if (atomic_load(&fx.shared->failed))
			(void)processes_log_has(&fx.ps, fx.clients[i], ":");
		processes_kill(&fx.ps, fx.clients[i], SIGKILL);
	}
	print_message("%llu publishes and %llu fetches, %lu kills\n",
		      (unsigned long long)atomic_load(&fx.shared->published),
		      (unsigned long long)atomic_load(&fx.shared->fetched), kills);
	assert_int_equal(atomic_load(&fx.shared->failed), 0);
	tear_down(&fx);
}

/* -------- a process that holds generations -------- */

#define LARGE (2u << 20)
#define LEASES_NS (900 * CLOCK_NS_PER_MS) /* three */

static int publish_large(struct rlv_generations *weights, uint64_t version)
{
	static uint8_t bytes[LARGE];
	const struct rlv_tensor tensor = { .size = sizeof(tensor),
					   .dtype = RLV_U8,
					   .ndim = 1,
					   .name = "x",
					   .shape = { LARGE },
					   .data = bytes };

	memset(bytes, (int)version, sizeof(bytes));
	return rlv_weights_publish(weights, &tensor, 1, version, 0);
}

/* Maps each generation that it sees, and releases none. */
static int holder(void *arg)
{
	struct shared *shared = ((struct fixture *)arg)->shared;
	struct rlv_generation got = RLV_GENERATION_INIT;
	struct rlv_generations *weights = NULL;
	struct rlv_store *store = NULL;
	int ret = rlv_store_open("shm:s", NULL, &store);

	if (ret == 0)
		ret = rlv_weights_open(store, "large", &weights);
	while (ret == 0) {
		ret = rlv_weights_map(weights, got.version, -1, &got);
		if (ret == 0)
			atomic_store(&shared->fetched, got.version);
	}
	fprintf(stderr, "map: %d %s\n", ret, rlv_last_error());
	atomic_store(&shared->failed, 1);
	return 1;
}

struct held {
	struct fixture fx;
	struct rlv_generations *large;
	uint64_t version; /* the newest */
};

static bool is_held(void *arg)
{
	struct held *held = arg;
	struct shared *shared = held->fx.shared;

	return atomic_load(&shared->fetched) == held->version || atomic_load(&shared->failed);
}

static bool publishes(void *arg)
{
	struct held *held = arg;

	if (publish_large(held->large, held->version + 1))
		return false;
	held->version++;
	return true;
}

/* It holds so many that the heap is full, also while it is stopped; the fence frees them. */
TEST(holder__is_killed)
{
	const struct rlv_weights_opts opts = {
		.size = sizeof(opts), .bytes = LARGE, .keep = KEEP, .anchor_every = 1
	};
	struct held held = { .large = NULL };
	pid_t pid;

	set_up(&held.fx);
	must(rlv_weights_create(held.fx.store, "large", &opts, &held.large), "rlv_weights_create");
	assert_true(publishes(&held));
	pid = processes_fork(&held.fx.ps, holder, &held.fx);
	do {
		assert_true(processes_until(is_held, &held));
		if (atomic_load(&held.fx.shared->failed))
			(void)processes_log_has(&held.fx.ps, pid, "map");
		assert_int_equal(atomic_load(&held.fx.shared->failed), 0);
	} while (publishes(&held));
	expect(publish_large(held.large, held.version + 1), -ENOSPC);
	assert_non_null(strstr(rlv_last_error(), "release mapped generations"));
	assert_in_range(held.version, KEEP + 2, KEEP + 5);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	processes_sleep_ns(LEASES_NS);
	expect(publish_large(held.large, held.version + 1), -ENOSPC);
	processes_kill(&held.fx.ps, pid, SIGKILL);
	assert_true(processes_until(publishes, &held));
	must(rlv_weights_close(&held.large), "rlv_weights_close");
	tear_down(&held.fx);
}

/* -------- a node that is drained -------- */

#define SMALL_TENSORS 8u
#define SMALL 20000u /* bytes: some lie in two chunks of 64 KiB */

static int publish_small(struct rlv_generations *weights, uint64_t version)
{
	static const char *const names[SMALL_TENSORS] = { "a", "b", "c", "d", "e", "f", "g", "h" };
	static uint8_t bytes[SMALL_TENSORS][SMALL];
	struct rlv_tensor tensors[SMALL_TENSORS];

	memset(bytes, (int)version, sizeof(bytes));
	for (uint32_t i = 0; i < SMALL_TENSORS; i++)
		tensors[i] = (struct rlv_tensor){ .size = sizeof(tensors[i]),
						  .dtype = RLV_U8,
						  .ndim = 1,
						  .name = names[i],
						  .shape = { SMALL },
						  .data = bytes[i] };
	return rlv_weights_publish(weights, tensors, SMALL_TENSORS, version, 0);
}

static bool small_is_whole(const struct rlv_generation *got)
{
	for (uint32_t i = 0; i < SMALL_TENSORS; i++) {
		const uint8_t *bytes = got->tensors[i].data;

		if (bytes[0] != got->version || memcmp(bytes, bytes + 1, SMALL - 1) != 0)
			return false;
	}
	return true;
}

static bool node_is_up(void *store)
{
	return store_node_named(store, "b").state == RLV_NODE_UP;
}

/* Parts that are still on the node. */
static uint32_t drain(struct rlv_store *store)
{
	struct rlv_drain_info info = { .size = sizeof(info) };

	must(rlv_store_drain_node(store, "a", &info), "rlv_store_drain_node");
	return info.shards;
}

static bool one_is_left(void *store)
{
	return drain(store) == 1;
}

static bool none_is_left(void *store)
{
	return drain(store) == 0;
}

/* Its memory is not freed before the release, though the weights are on the other node already; nor before the fence of a
   holder that is killed. */
TEST(drained_node__waits_for_mapped_generations)
{
	const struct rlv_weights_opts opts = {
		.size = sizeof(opts), .bytes = LARGE, .keep = KEEP, .anchor_every = 1
	};
	const char *const memory[] = { "--size", "256M", NULL };
	struct rlv_generation got = RLV_GENERATION_INIT;
	struct held held = { .version = 1 };
	struct fixture *fx = &held.fx;
	pid_t pid;

	set_up(fx);
	must(rlv_weights_create(fx->store, "large", &opts, &held.large), "rlv_weights_create");
	must(publish_small(held.large, 1), "publish");
	must(rlv_weights_map(held.large, 0, 0, &got), "rlv_weights_map");
	assert_int_equal(got.mapped, SMALL_TENSORS * SMALL);
	pid = processes_fork(&fx->ps, holder, fx);
	assert_true(processes_until(is_held, &held));
	(void)processes_memnode(&fx->ps, "s", "b", memory);
	assert_true(processes_until(node_is_up, fx->store));
	assert_true(processes_until(one_is_left, fx->store));
	must(publish_small(held.large, 2), "publish");
	processes_sleep_ns(LEASES_NS); /* without the hold it would be gone */
	assert_int_equal(drain(fx->store), 1);
	assert_true(small_is_whole(&got));
	rlv_generation_release(&got);
	assert_int_equal(drain(fx->store), 1);
	processes_kill(&fx->ps, pid, SIGKILL);
	assert_true(processes_until(none_is_left, fx->store));
	must(rlv_weights_map(held.large, 1, 0, &got), "rlv_weights_map");
	assert_true(small_is_whole(&got));
	rlv_generation_release(&got);
	must(rlv_weights_close(&held.large), "rlv_weights_close");
	tear_down(fx);
}

int main(void)
{
	return test_run(NULL, NULL);
}
