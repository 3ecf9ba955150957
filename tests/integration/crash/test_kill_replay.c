/*
 * kill -9 of actors and learners at random moments, over shm: the others go on without waiting, no
 * wrong byte is ever returned, and when all is quiet the trees are exact, the slots free, and the
 * admissions of the dead given back.
 */
#include "tests/support/attack/crash_rows.h"
#include "tests/support/processes.h"
#include "tests/support/fixture/store_fixture.h"
#include "tests/support/must.h"

#include "relive/relive.h"

#include "base/os/clock.h"
#include "base/rng.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define POOL "64M"
#define CLIENTS 16 /* slots */
#define QUOTA 14   /* of one process */
#define ACTORS 2u
#define LEARNERS 2u
#define ROLES (ACTORS + LEARNERS)
#define MS 1000000
#define KILL_GAP_MS 40u
#define SLOW_NS \
	(10 * (int64_t)CLOCK_NS_PER_S) /* a call that takes so long has waited for a dead one */
#define TAKEN_BITS (1u << 22)

/* Progress of a role, in memory that outlives it. */
struct place {
	_Atomic uint64_t calls;
	_Atomic uint64_t slowest_ns;
	_Atomic int error;
	char why[256];
};

struct scene {
	_Atomic bool stop;
	_Atomic uint32_t next_writer;         /* no two lives of an actor write the same steps */
	_Atomic uint64_t inserted;            /* steps whose append returned */
	_Atomic uint64_t taken;               /* items that were handed over */
	_Atomic uint64_t twice;               /* items that were handed over twice */
	_Atomic uint8_t seen[TAKEN_BITS / 8]; /* of the queue, by hash of (writer, step) */
	struct place places[ROLES];
};

/* Store, table and options of the roles. */
struct kind {
	const char *name;
	const struct rlv_view *views;
	uint32_t n_views;
	uint32_t sample; /* items of a batch */
	bool queue;
};

struct role {
	struct scene *scene;
	const struct kind *kind;
	struct place *place;
	uint32_t number;
	uint64_t seed;
};

struct fixture {
	struct processes ps;
	struct scene *scene;
	struct rlv_store *store;
	struct rlv_table *table;
	struct rng rng;
	struct role roles[ROLES];
	pid_t pids[ROLES];
};

/* -------- roles -------- */

static int fail_role(struct role *role, int ret, const char *what)
{
	if (atomic_load(&role->scene->stop))
		return 0;
	snprintf(role->place->why, sizeof(role->place->why), "%s: %s: %s", what,
		 rlv_error_name(ret), rlv_last_error());
	atomic_store(&role->place->error, ret ? ret : -EBADMSG);
	return 1;
}

static void note_call(struct role *role, uint64_t began_ns)
{
	uint64_t took = clock_now_ns(clock_monotonic()) - began_ns;

	if (took > atomic_load(&role->place->slowest_ns))
		atomic_store(&role->place->slowest_ns, took);
	atomic_fetch_add(&role->place->calls, 1);
}

static int open_table(struct rlv_store **store_out, struct rlv_table **table_out)
{
	int ret = rlv_store_open("shm:s", NULL, store_out);

	return ret ? ret : rlv_table_open(*store_out, "t", table_out);
}

static int act(struct role *role, struct rlv_table *table, struct rng *rng)
{
	static struct crash_rows rows;
	struct rlv_writer_opts opts = RLV_WRITER_OPTS_INIT;
	struct rlv_writer *writer;
	uint32_t name = 1 + atomic_fetch_add(&role->scene->next_writer, 1), step = 0;
	int ret;

	opts.timeout_ns = 20 * MS;
	ret = rlv_writer_open(table, &opts, &writer);
	if (ret)
		return fail_role(role, ret, "writer_open");
	while (!atomic_load(&role->scene->stop)) {
		uint32_t n = 1 + (uint32_t)rng_uniform_u64(rng, role->kind->queue ? 24 : 96);
		uint64_t began = clock_now_ns(clock_monotonic());
		uint32_t taken = 0;

		crash_rows_fill(&rows, name, step, n);
		ret = rlv_writer_append(writer, 0, &rows.steps, &taken);
		if (ret == -ETIMEDOUT)
			ret = 0; /* the queue is full, or all blocks are */
		else if (ret == 0)
			taken = n;
		if (ret)
			return fail_role(role, ret, "append");
		step += taken;
		atomic_fetch_add(&role->scene->inserted, taken);
		note_call(role, began);
	}
	ret = rlv_writer_close(&writer);
	return ret ? fail_role(role, ret, "writer_close") : 0;
}

/* Of a queue: nothing is handed over twice. */
static void note_taken(struct scene *scene, const struct rlv_batch *batch)
{
	for (uint32_t i = 0; i < batch->n; i++) {
		uint64_t id = crash_ids(batch)[i];
		uint32_t bit =
			((uint32_t)(id >> 32) << 14 | (crash_step_of(id) & 0x3fffu)) % TAKEN_BITS;
		uint8_t mask = (uint8_t)(1u << bit % 8);

		if (crash_step_of(id) < 0x4000 && id >> 32 < TAKEN_BITS >> 14 &&
		    atomic_fetch_or(&scene->seen[bit / 8], mask) & mask)
			atomic_fetch_add(&scene->twice, 1);
	}
	atomic_fetch_add(&scene->taken, batch->n);
}

static int learn_once(struct role *role, struct rlv_sampler *sampler, struct rng *rng)
{
	const struct rlv_batch *batch;
	uint64_t began = clock_now_ns(clock_monotonic());
	float priority[256];
	char why[CRASH_WHY];
	int ret = rlv_sampler_sample(sampler, role->kind->sample, 20 * MS, &batch);

	note_call(role, began);
	if (ret == -ETIMEDOUT || ret == -ENODATA)
		return 0;
	if (ret)
		return fail_role(role, ret, "sample");
	if (crash_batch_check(batch, why)) {
		snprintf(role->place->why, sizeof(role->place->why), "wrong bytes: %s", why);
		atomic_store(&role->place->error, -EBADMSG);
		return 1;
	}
	if (role->kind->queue)
		note_taken(role->scene, batch);
	for (uint32_t i = 0; i < batch->n; i++)
		priority[i] = crash_priority((uint32_t)rng_next_u64(rng), 1);
	if (!role->kind->queue)
		ret = rlv_sampler_set_priorities(sampler, batch->key, priority, batch->n, NULL);
	rlv_batch_release(sampler, batch);
	return ret ? fail_role(role, ret, "update") : 0;
}

static int learn(struct role *role, struct rlv_table *table, struct rng *rng)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_sampler *sampler;
	int ret;

	opts.gamma = 1;
	opts.seed = role->seed;
	opts.short_batch = true;
	ret = rlv_sampler_open(table, &opts, &sampler);
	if (ret)
		return fail_role(role, ret, "sampler_open");
	while (!atomic_load(&role->scene->stop))
		if (learn_once(role, sampler, rng))
			return 1;
	ret = rlv_sampler_close(&sampler);
	return ret ? fail_role(role, ret, "sampler_close") : 0;
}

static int run_role(void *ctx)
{
	struct role *role = ctx;
	struct rlv_store *store;
	struct rlv_table *table;
	struct rng rng;
	int ret = open_table(&store, &table);

	if (ret)
		return fail_role(role, ret, "open");
	rng_seed(&rng, role->seed, role->number);
	ret = role->number < ACTORS ? act(role, table, &rng) : learn(role, table, &rng);
	if (ret)
		return ret;
	ret = rlv_table_close(&table);
	if (ret == 0)
		ret = rlv_store_close(&store);
	return ret ? fail_role(role, ret, "close") : 0;
}

/* -------- the scene -------- */

static void create_table(struct fixture *fx, const struct kind *kind)
{
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;

	opts.columns = crash_columns;
	opts.n_columns = CRASH_COLUMNS;
	opts.views = kind->views;
	opts.n_views = kind->n_views;
	opts.capacity = 4096;
	opts.block = 64;
	opts.max_writers = 4;
	opts.max_clients = CLIENTS;
	opts.shards = kind->queue ? 1 : 2;
	must(rlv_table_create(fx->store, "t", &opts, &fx->table), "create");
}

static void start_role(struct fixture *fx, const struct kind *kind, uint32_t i)
{
	fx->roles[i] = (struct role){ .scene = fx->scene,
				      .kind = kind,
				      .place = &fx->scene->places[i],
				      .number = i,
				      .seed = rng_next_u64(&fx->rng) | 1 };
	fx->pids[i] = processes_fork(&fx->ps, run_role, &fx->roles[i]);
}

static int setup(void **state)
{
	static struct fixture fx;
	static const char *const metad[] = { "--lease", "0.5", NULL };
	static const char *const memnode[] = { "--size", POOL, NULL };

	memset(&fx, 0, sizeof(fx));
	processes_init(&fx.ps);
	fx.scene = mmap(NULL, sizeof(*fx.scene), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	assert_true(fx.scene != MAP_FAILED);
	(void)processes_metad(&fx.ps, "s", metad);
	(void)processes_memnode(&fx.ps, "s", "a", memnode);
	*state = &fx;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	(void)!rlv_table_close(&fx->table);
	(void)!rlv_store_close(&fx->store);
	processes_fini(&fx->ps);
	munmap(fx->scene, sizeof(*fx->scene));
	return 0;
}

/* -------- kills -------- */

static uint32_t kills(uint32_t part)
{
	const char *text = getenv("RLV_TEST_KILLS");
	uint32_t n = text && *text ? (uint32_t)strtoul(text, NULL, 10) : 40;

	return n / part ? n / part : 1;
}

static void check_roles(const struct fixture *fx)
{
	for (uint32_t i = 0; i < ROLES; i++) {
		struct place *place = &fx->scene->places[i];

		if (atomic_load(&place->error))
			fail_msg("%s %u: %s", i < ACTORS ? "actor" : "learner", i, place->why);
	}
}

static uint64_t all_calls(const struct fixture *fx, uint32_t except)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < ROLES; i++)
		if (i != except)
			sum += atomic_load(&fx->scene->places[i].calls);
	return sum;
}

/* Kills one, watches the others go on, and starts it anew. */
static void kill_one(struct fixture *fx, const struct kind *kind)
{
	uint32_t victim = (uint32_t)rng_uniform_u64(&fx->rng, ROLES);
	uint64_t before;

	processes_sleep_ns((int64_t)rng_uniform_u64(&fx->rng, KILL_GAP_MS * MS));
	check_roles(fx);
	processes_kill(&fx->ps, fx->pids[victim], SIGKILL);
	before = all_calls(fx, victim);
	processes_sleep_ns(KILL_GAP_MS * MS / 2);
	for (uint32_t i = 0; all_calls(fx, victim) == before; i++) {
		if (i == PROCESSES_WAIT_MS)
			fail_msg("nobody did anything after role %u was killed", victim);
		processes_sleep_ns(MS);
	}
	start_role(fx, kind, victim);
}

static void stop_all(struct fixture *fx)
{
	atomic_store(&fx->scene->stop, true);
	for (uint32_t i = 0; i < ROLES; i++)
		assert_int_equal(processes_wait(&fx->ps, fx->pids[i], PROCESSES_WAIT_MS), 0);
	check_roles(fx);
}

/* Kills all roles at once, in the middle of their calls. */
static void kill_all(struct fixture *fx)
{
	check_roles(fx);
	for (uint32_t i = 0; i < ROLES; i++)
		assert_int_equal(kill(fx->pids[i], SIGKILL), 0);
	for (uint32_t i = 0; i < ROLES; i++)
		assert_int_equal(processes_wait(&fx->ps, fx->pids[i], PROCESSES_WAIT_MS),
				 128 + SIGKILL);
}

/* -------- afterwards -------- */

/* Sums are exact, no block is open, no slot is taken. */
static bool is_settled(void *ctx)
{
	struct rlv_verify_report report = { .size = sizeof(report) };
	struct fixture *fx = ctx;

	return rlv_table_verify(fx->table, &report) == 0 && report.problems == 0 &&
	       report.wrong_sums == 0 && report.open_blocks == 0;
}

static void settle(struct fixture *fx)
{
	struct rlv_verify_report report = { .size = sizeof(report) };
	uint64_t began = clock_now_ns(clock_monotonic());

	if (processes_until(is_settled, fx)) {
		print_message("exact again %.1f ms after the last one ended\n",
			      (double)(clock_now_ns(clock_monotonic()) - began) / MS);
		return;
	}
	must(rlv_table_verify(fx->table, &report), "verify");
	fail_msg("not settled: %u problems, %llu wrong sums, %llu open blocks: %s", report.problems,
		 (unsigned long long)report.wrong_sums, (unsigned long long)report.open_blocks,
		 report.first_problem);
}

struct opening {
	struct rlv_table *table;
	struct rlv_sampler *sampler;
	int ret;
};

static bool is_opened(void *ctx)
{
	struct opening *opening = ctx;

	opening->ret = rlv_sampler_open(opening->table, NULL, &opening->sampler);
	return opening->ret != -ENOSPC;
}

static int open_samplers(struct rlv_table *table, struct rlv_sampler **samplers, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct opening opening = { .table = table };

		processes_until(is_opened, &opening);
		if (opening.ret)
			return opening.ret;
		samplers[i] = opening.sampler;
	}
	return 0;
}

static int close_samplers(struct rlv_sampler **samplers, uint32_t n)
{
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < n; i++)
		ret = rlv_sampler_close(&samplers[i]);
	return ret;
}

/* Another process: what one may not have is there for it. */
static int take_the_rest(void *ctx)
{
	struct rlv_sampler *samplers[CLIENTS - QUOTA] = { NULL };
	struct rlv_store *store;
	struct rlv_table *table;
	int ret = open_table(&store, &table);

	(void)ctx;
	if (ret == 0)
		ret = open_samplers(table, samplers, CLIENTS - QUOTA);
	if (ret)
		print_message("a slot of the dead, for another process: %s\n", rlv_last_error());
	if (ret == 0)
		ret = close_samplers(samplers, CLIENTS - QUOTA);
	return ret != 0;
}

/*
 * Slots of the dead are back: as many handles can be opened as ever, as soon as the server has
 * given back the one that it took to rebuild.
 */
static void check_slots(struct fixture *fx)
{
	struct rlv_sampler *samplers[QUOTA] = { NULL };
	pid_t other;

	must(open_samplers(fx->table, samplers, QUOTA), "a slot of the dead");
	other = processes_fork(&fx->ps, take_the_rest, NULL);
	assert_int_equal(processes_wait(&fx->ps, other, 2 * PROCESSES_WAIT_MS), 0);
	must(close_samplers(samplers, QUOTA), "sampler_close");
}

static void print_calls(const struct fixture *fx, uint32_t n)
{
	uint64_t calls = 0, slowest = 0;

	for (uint32_t i = 0; i < ROLES; i++) {
		uint64_t slow = atomic_load(&fx->scene->places[i].slowest_ns);

		calls += atomic_load(&fx->scene->places[i].calls);
		slowest = slow > slowest ? slow : slowest;
	}
	print_message("%u kills, %llu calls, slowest %.1f ms\n", n, (unsigned long long)calls,
		      (double)slowest / MS);
	assert_true(slowest < (uint64_t)SLOW_NS);
}

static void run(struct fixture *fx, const struct kind *kind, uint32_t n)
{
	rng_seed(&fx->rng, test_seed(kind->name, 20240918), 0);
	must(rlv_store_open("shm:s", NULL, &fx->store), "open");
	store_fixture_await_node(fx->store);
	create_table(fx, kind);
	for (uint32_t i = 0; i < ROLES; i++)
		start_role(fx, kind, i);
	for (uint32_t i = 0; i < n; i++)
		kill_one(fx, kind);
	processes_sleep_ns(KILL_GAP_MS * MS);
	stop_all(fx);
	settle(fx);
	check_slots(fx);
	print_calls(fx, n);
}

/* Time until all traces of four processes killed at once are gone. */
static void run_and_kill_all(struct fixture *fx, const struct kind *kind)
{
	struct rlv_store_info info = { .size = sizeof(info) };

	atomic_store(&fx->scene->stop, false);
	for (uint32_t i = 0; i < ROLES; i++)
		start_role(fx, kind, i);
	processes_sleep_ns(2 * KILL_GAP_MS * MS);
	kill_all(fx);
	settle(fx);
	check_slots(fx);
	must(rlv_store_info(fx->store, &info), "info");
	print_message("%u rebuilds in all\n", info.rebuilds);
}

#define CASE(f) TEST_WITH(f, setup, teardown)

/* -------- tests -------- */

CASE(prioritized__actors_and_learners_killed)
{
	static const struct kind kind = { .name = "kill prioritized",
					  .views = crash_views,
					  .n_views = CRASH_VIEWS,
					  .sample = 128 };

	run(*state, &kind, kills(2));
	for (uint32_t i = 0; i < 3; i++)
		run_and_kill_all(*state, &kind);
}

static struct rlv_view queue_view(uint64_t size)
{
	return (struct rlv_view){ .selector = RLV_FIFO,
				  .stack = CRASH_STACK,
				  .n_step = CRASH_STEPS,
				  .max_times_sampled = 1,
				  .limiter = rlv_limiter_queue(size) };
}

/* True if the limiter counts all items, and no others. */
static bool is_balanced(void *ctx)
{
	struct rlv_table_info info = { .size = sizeof(info) };
	struct fixture *fx = ctx;

	must(rlv_table_info(fx->table, &info), "info");
	return (int64_t)(info.views[0].inserted - info.views[0].sampled) == info.views[0].items;
}

static void print_balance(struct fixture *fx)
{
	struct rlv_table_info info = { .size = sizeof(info) };

	must(rlv_table_info(fx->table, &info), "info");
	print_message("queue: %lld items, %llu inserted, %llu sampled\n",
		      (long long)info.views[0].items, (unsigned long long)info.views[0].inserted,
		      (unsigned long long)info.views[0].sampled);
}

static void wait_balance(struct fixture *fx)
{
	print_balance(fx);
	if (!processes_until(is_balanced, fx))
		fail_msg("what the dead left of the queue's counts stays");
}

struct draining {
	struct fixture *fx;
	struct rlv_sampler *sampler;
};

/* Consumes the items one by one, until the time of a call is over. */
static bool is_drained(void *ctx)
{
	const struct draining *draining = ctx;
	struct fixture *fx = draining->fx;
	struct rlv_table_info info = { .size = sizeof(info) };
	const struct kind single = { .sample = 1, .queue = true };
	struct role role = { .scene = fx->scene, .kind = &single, .place = &fx->scene->places[0] };
	uint64_t before;

	do {
		before = atomic_load(&fx->scene->taken);
		if (learn_once(&role, draining->sampler, &fx->rng))
			fail_msg("sample after the kills: %s", role.place->why);
	} while (atomic_load(&fx->scene->taken) > before);
	must(rlv_table_info(fx->table, &info), "info");
	return info.views[0].items == 0;
}

static void drain(struct fixture *fx, struct rlv_sampler *sampler)
{
	struct draining draining = { fx, sampler };

	assert_true(processes_until(is_drained, &draining));
}

/* Whether it still works when all are gone. */
static void use_queue(struct fixture *fx, const struct kind *kind)
{
	static struct crash_rows rows;
	struct role role = { .scene = fx->scene, .kind = kind, .place = &fx->scene->places[0] };
	uint64_t taken = atomic_load(&fx->scene->taken);
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_sampler *sampler;
	struct rlv_writer *writer;

	opts.gamma = 1;
	opts.short_batch = true;
	atomic_store(&fx->scene->stop, false);
	must(rlv_sampler_open(fx->table, &opts, &sampler), "sampler");
	must(rlv_writer_open(fx->table, NULL, &writer), "writer");
	wait_balance(fx);
	drain(fx, sampler);
	for (uint32_t i = 0; i < 200; i++) {
		uint32_t n;

		crash_rows_fill(&rows, 250, i * CRASH_EPISODE, CRASH_EPISODE);
		rows.steps.n = 8;
		must(rlv_writer_append(writer, 0, &rows.steps, &n), "append after the kills");
		must(rlv_writer_end_episode(writer, 0, NULL), "end_episode");
		if (learn_once(&role, sampler, &fx->rng))
			fail_msg("sample after the kills: %s", role.place->why);
	}
	must(rlv_writer_close(&writer), "writer_close");
	drain(fx, sampler);
	must(rlv_sampler_close(&sampler), "sampler_close");
	assert_true(atomic_load(&fx->scene->taken) > taken);
}

/*
 * Admissions of the dead are given back: the queue neither wedges nor runs over. It is so short that
 * some dead learners would be enough.
 */
CASE(queue__actors_and_learners_killed)
{
	const struct rlv_view view = queue_view(64);
	const struct kind kind = {
		.name = "kill queue", .views = &view, .n_views = 1, .sample = 16, .queue = true
	};
	struct fixture *fx = *state;

	run(fx, &kind, kills(2));
	assert_int_equal(atomic_load(&fx->scene->twice), 0);
	use_queue(fx, &kind);
}

int main(void)
{
	return test_run(NULL, NULL);
}
