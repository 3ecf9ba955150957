/*
 * Crashes with real daemons: kill -9 and stops of clients, memory nodes and the metadata server.
 */
#include "tests/support/processes.h"
#include "tests/support/fixture/store_fixture.h"
#include "tests/support/must.h"
#include "tests/support/store_nodes.h"

#include "relive/relive.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define POOL "256M"
#define STEPS 64u

static const struct rlv_column columns[] = {
	{ .name = "obs", .dtype = RLV_F32, .role = RLV_OBS, .ndim = 1, .shape = { 4 } },
	{ .name = "action", .dtype = RLV_I64 },
	{ .name = "reward", .dtype = RLV_F32, .role = RLV_REWARD },
};

/* Shared with the actors, in a file of the test's directory. */
struct progress {
	_Atomic uint64_t steps;
	_Atomic int error;
	_Atomic bool stop;
};

struct crash {
	struct processes ps;
	pid_t metad;
	pid_t memnode;
	char file[PROCESSES_PATH + 64]; /* of the pool; "" = memory */
	uint32_t shards, row_crc;
	const char *lease; /* seconds of a client's */
	struct progress *progress;
	struct rlv_store *store;
	struct rlv_table *table;
};

static const char *progress_path(const struct crash *crash)
{
	static char path[PROCESSES_PATH + 64];

	processes_path(&crash->ps, "progress", path);
	return path;
}

static struct progress *map_progress(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *map = MAP_FAILED;

	if (fd >= 0 && ftruncate(fd, sizeof(struct progress)) == 0)
		map = mmap(NULL, sizeof(struct progress), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			   0);
	if (fd >= 0)
		close(fd);
	return map == MAP_FAILED ? NULL : map;
}

/* -------- daemons -------- */

static void start_metad(struct crash *crash, bool kill_stalled)
{
	const char *const args[] = { "--lease", crash->lease, "--stall-limit",
				     "2",       "--stalled",  kill_stalled ? "kill" : "wait",
				     NULL };

	crash->metad = processes_metad(&crash->ps, "s", args);
}

static void start_memnode(struct crash *crash)
{
	const char *const memory[] = { "--size", POOL, NULL };
	const char *const file[] = { "--size", POOL, "--file", crash->file, NULL };

	crash->memnode = processes_memnode(&crash->ps, "s", "a", crash->file[0] ? file : memory);
}

static int setup(void **state)
{
	static struct crash crash;

	memset(&crash, 0, sizeof(crash));
	crash.shards = 2;
	crash.lease = "0.3";
	processes_init(&crash.ps);
	crash.progress = map_progress(progress_path(&crash));
	assert_non_null(crash.progress);
	*state = &crash;
	return 0;
}

static int teardown(void **state)
{
	struct crash *crash = *state;

	(void)!rlv_table_close(&crash->table);
	(void)!rlv_store_close(&crash->store);
	munmap(crash->progress, sizeof(*crash->progress));
	processes_fini(&crash->ps);
	return 0;
}

static int create_table(struct rlv_store *store, const struct crash *crash,
			struct rlv_table **table_out)
{
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;

	opts.columns = columns;
	opts.n_columns = 3;
	opts.capacity = 65536;
	opts.shards = crash->shards;
	opts.row_crc = crash->row_crc;
	opts.max_clients = 8;
	return rlv_table_create(store, "t", &opts, table_out);
}

static void open_store(struct crash *crash)
{
	expect(rlv_store_open("shm:s", NULL, &crash->store), 0);
	store_fixture_await_node(crash->store);
	expect(create_table(crash->store, crash, &crash->table), 0);
}

static void start(struct crash *crash, bool kill_stalled, bool file)
{
	if (file)
		processes_path(&crash->ps, "pool", crash->file);
	start_metad(crash, kill_stalled);
	start_memnode(crash);
	open_store(crash);
}

/* -------- actors -------- */

/* Appends STEPS steps; their observation is the number of the step. */
static int append(struct rlv_writer *writer, uint64_t first)
{
	static float obs[STEPS][4], reward[STEPS];
	static int64_t action[STEPS];
	const void *const data[] = { obs, action, reward };
	struct rlv_steps steps = RLV_STEPS_INIT;

	for (uint32_t i = 0; i < STEPS; i++) {
		obs[i][0] = (float)(first + i);
		action[i] = (int64_t)(first + i);
		reward[i] = 1;
	}
	steps.n = STEPS;
	steps.columns = data;
	return rlv_writer_append(writer, 0, &steps, NULL);
}

/* The whole life of an actor process: this program again, told to act. */
static int act(const char *path)
{
	struct progress *progress = map_progress(path);
	struct rlv_writer_opts opts = RLV_WRITER_OPTS_INIT;
	struct rlv_store *store = NULL;
	struct rlv_table *table = NULL;
	struct rlv_writer *writer = NULL;
	int ret = progress ? rlv_store_open("shm:s", NULL, &store) : -EIO;

	if (ret == 0)
		ret = rlv_table_open(store, "t", &table);
	if (ret == 0)
		ret = rlv_writer_open(table, &opts, &writer);
	while (ret == 0 && !progress->stop) {
		ret = append(writer, progress->steps);
		progress->steps += STEPS;
	}
	if (ret == 0)
		ret = rlv_writer_close(&writer);
	if (ret == 0)
		ret = rlv_table_close(&table);
	if (ret == 0)
		ret = rlv_store_close(&store);
	if (ret && progress)
		progress->error = ret;
	if (ret)
		fprintf(stderr, "actor: %s\n", rlv_last_error());
	return ret ? 1 : 0;
}

struct until {
	struct crash *crash;
	uint64_t value;
};

static bool has_steps(void *ctx)
{
	const struct until *until = ctx;

	return until->crash->progress->steps >= until->value || until->crash->progress->error;
}

/* An actor that has appended something. */
static pid_t start_actor(struct crash *crash)
{
	struct until until = { crash, crash->progress->steps + 4096 };
	const char *const args[] = { "act", progress_path(crash), NULL };
	pid_t pid = processes_start(&crash->ps, "/proc/self/exe", args);

	assert_true(processes_until(has_steps, &until));
	expect(crash->progress->error, 0);
	return pid;
}

static void wait_for_steps(struct crash *crash, uint64_t more)
{
	struct until until = { crash, crash->progress->steps + more };

	assert_true(processes_until(has_steps, &until));
	expect(crash->progress->error, 0);
}

static void stop_actor(struct crash *crash, pid_t pid)
{
	crash->progress->stop = true;
	assert_int_equal(processes_wait(&crash->ps, pid, PROCESSES_WAIT_MS), 0);
	crash->progress->stop = false;
}

static bool has_clients(void *ctx)
{
	const struct until *until = ctx;
	struct rlv_store_info info = { .size = sizeof(info) };

	return rlv_store_info(until->crash->store, &info) == 0 && info.n_clients == until->value &&
	       !info.waiting[0];
}

static void expect_clients(struct crash *crash, uint32_t n)
{
	struct rlv_store_info info = { .size = sizeof(info) };
	struct until until = { crash, n };

	if (processes_until(has_clients, &until))
		return;
	expect(rlv_store_info(crash->store, &info), 0);
	(void)processes_log_has(&crash->ps, crash->metad, "\x01");
	fail_msg("%u clients, want %u; waiting: %s", info.n_clients, n, info.waiting);
}

/* Every invariant holds, and no block is open. */
static bool is_sound(void *ctx)
{
	struct rlv_verify_report report = { .size = sizeof(report) };

	return rlv_table_verify(ctx, &report) == 0 && report.problems == 0 &&
	       report.open_blocks == 0;
}

static void expect_sound(struct crash *crash)
{
	struct rlv_verify_report report = { .size = sizeof(report) };

	if (processes_until(is_sound, crash->table))
		return;
	expect(rlv_table_verify(crash->table, &report), 0);
	fail_msg("%u problems, %llu open blocks: %s", report.problems,
		 (unsigned long long)report.open_blocks, report.first_problem);
}

static void expect_samples(struct crash *crash)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	const struct rlv_batch *batch = NULL;
	struct rlv_sampler *sampler = NULL;

	expect(rlv_sampler_open(crash->table, &opts, &sampler), 0);
	expect(rlv_sampler_sample(sampler, 256, 10000000000, &batch), 0);
	for (uint32_t i = 0; i < batch->n; i++) {
		const float *obs = batch->arrays[0].data;
		int64_t action = 0;

		obs += (size_t)i * 4;
		for (uint32_t a = 0; a < batch->n_arrays; a++)
			if (strcmp(batch->arrays[a].name, "action") == 0)
				action = ((const int64_t *)batch->arrays[a].data)[i];
		assert_true(obs[0] == (float)action);
	}
	rlv_batch_release(sampler, batch);
	expect(rlv_sampler_close(&sampler), 0);
}

#define CASE(f) TEST_WITH(f, setup, teardown)

/* -------- tests -------- */

CASE(client__that_closes_leaves_no_lease)
{
	struct crash *crash = *state;
	pid_t actor;

	start(crash, false, false);
	actor = start_actor(crash);
	stop_actor(crash, actor);
	expect_clients(crash, 1);
	expect_sound(crash);
}

CASE(client_killed__is_fenced_and_settled)
{
	struct crash *crash = *state;

	start(crash, false, false);
	for (int i = 0; i < 5; i++) {
		pid_t actor = start_actor(crash);

		processes_kill(&crash->ps, actor, SIGKILL);
		expect_clients(crash, 1);
		expect_sound(crash);
		expect_samples(crash);
	}
}

CASE(client_killed__others_go_on)
{
	struct crash *crash = *state;
	pid_t first, second;

	start(crash, false, false);
	first = start_actor(crash);
	second = start_actor(crash);
	processes_kill(&crash->ps, first, SIGKILL);
	expect_clients(crash, 2);
	wait_for_steps(crash, 100000);
	expect_samples(crash);
	stop_actor(crash, second);
	expect_clients(crash, 1);
	expect_sound(crash);
}

/* A stopped client outlives its lease, keeps all it has, and goes on as if nothing had been. */
CASE(client_stopped__is_left_alone)
{
	struct crash *crash = *state;
	pid_t actor;

	start(crash, false, false);
	actor = start_actor(crash);
	processes_kill(&crash->ps, actor, SIGSTOP);
	usleep(800 * 1000);
	expect_clients(crash, 2);
	expect_samples(crash);
	processes_kill(&crash->ps, actor, SIGCONT);
	wait_for_steps(crash, 4096);
	stop_actor(crash, actor);
	expect_clients(crash, 1);
	expect_sound(crash);
}

CASE(client_stopped__is_killed_if_so_told)
{
	struct crash *crash = *state;
	pid_t actor;

	start(crash, true, false);
	actor = start_actor(crash);
	processes_kill(&crash->ps, actor, SIGSTOP);
	assert_int_equal(processes_wait(&crash->ps, actor, PROCESSES_WAIT_MS), 128 + SIGKILL);
	expect_clients(crash, 1);
	expect_sound(crash);
	expect_samples(crash);
}

CASE(metad_killed__data_path_goes_on_and_a_restart_knows_all)
{
	struct rlv_table_info before = { .size = sizeof(before) }, after = before;
	struct crash *crash = *state;
	pid_t actor;

	start(crash, false, false);
	actor = start_actor(crash);
	processes_kill(&crash->ps, crash->metad, SIGKILL);
	wait_for_steps(crash, 20000);
	start_metad(crash, false);
	store_fixture_await_node(crash->store);
	wait_for_steps(crash, 4096);
	expect(rlv_table_info(crash->table, &before), 0);
	expect(rlv_table_close(&crash->table), 0);
	expect(rlv_table_open(crash->store, "t", &crash->table), 0);
	expect(rlv_table_info(crash->table, &after), 0);
	assert_int_equal(after.shards_up, before.shards_up);
	assert_int_equal(before.capacity, after.capacity);
	assert_true(after.views[0].inserted >= before.views[0].inserted);
	expect_samples(crash);
	stop_actor(crash, actor);
	expect_clients(crash, 1);
	expect_sound(crash);
}

/* Server and client die: the client's slots in the regions show that it died. */
CASE(metad_and_client_killed__restart_settles_the_client)
{
	struct crash *crash = *state;
	pid_t actor;

	start(crash, false, false);
	actor = start_actor(crash);
	processes_kill(&crash->ps, crash->metad, SIGKILL);
	processes_kill(&crash->ps, actor, SIGKILL);
	start_metad(crash, false);
	store_fixture_await_node(crash->store);
	expect_clients(crash, 1);
	expect_sound(crash);
	expect_samples(crash);
}

/* Another life of the actor: makes and drops tables until it is killed or told to stop. */
static int churn(const char *path)
{
	const struct crash two_shards = { .shards = 2 };
	struct progress *progress = map_progress(path);
	struct rlv_store *store = NULL;
	int ret = progress ? rlv_store_open("shm:s", NULL, &store) : -EIO;

	while (ret == 0 && !progress->stop) {
		struct rlv_table *table = NULL;

		/* The server is killed all the time: any failure is as good as another. */
		if (create_table(store, &two_shards, &table) == 0)
			(void)!rlv_table_close(&table);
		(void)!rlv_table_drop(store, "t");
		progress->steps++;
	}
	(void)!rlv_store_close(&store);
	return 0;
}

static bool is_empty(void *ctx)
{
	struct rlv_store_info info = { .size = sizeof(info) };
	const struct rlv_node_info node = store_node_at(ctx, 0);

	return rlv_store_info(ctx, &info) == 0 && info.n_tables == 0 && info.n_nodes == 1 &&
	       node.state == RLV_NODE_UP && node.used_bytes == 0;
}

CASE(metad_killed__between_the_steps_of_create_and_drop_leaves_no_leak)
{
	struct crash *crash = *state;
	const char *const args[] = { "churn", progress_path(crash), NULL };
	uint64_t seed = test_seed("kills of the server", 1);
	pid_t actor;

	start(crash, false, false);
	expect(rlv_table_close(&crash->table), 0);
	actor = processes_start(&crash->ps, "/proc/self/exe", args);
	for (int i = 0; i < 12; i++) {
		struct until until = { crash, crash->progress->steps + 2 };

		assert_true(processes_until(has_steps, &until));
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		usleep((unsigned int)(seed >> 33) % 20000);
		processes_kill(&crash->ps, crash->metad, SIGKILL);
		start_metad(crash, false);
	}
	crash->progress->stop = true;
	assert_int_equal(processes_wait(&crash->ps, actor, PROCESSES_WAIT_MS), 0);
	store_fixture_await_node(crash->store);
	(void)!rlv_table_drop(crash->store, "t");
	assert_true(processes_until(is_empty, crash->store));
	expect(create_table(crash->store, crash, &crash->table), 0);
	expect_sound(crash);
}

/* The node does not answer: it is down after a moment, and other requests do not wait for it. */
CASE(memnode_stopped__is_down_and_comes_back)
{
	struct rlv_table *table = NULL;
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct crash *crash = *state;

	start(crash, false, false);
	opts.columns = columns;
	opts.n_columns = 3;
	opts.capacity = 4096;
	processes_kill(&crash->ps, crash->memnode, SIGSTOP);
	expect(rlv_table_create(crash->store, "u", &opts, &table), -EHOSTDOWN);
	expect(rlv_table_create(crash->store, "u", &opts, &table), -EHOSTDOWN);
	processes_kill(&crash->ps, crash->memnode, SIGCONT);
	store_fixture_await_node(crash->store);
	expect(rlv_table_create(crash->store, "u", &opts, &table), 0);
	expect(rlv_table_close(&table), 0);
	expect(rlv_table_drop(crash->store, "u"), 0);
	expect(rlv_table_close(&crash->table), 0);
	expect(rlv_table_drop(crash->store, "t"), 0);
	assert_true(processes_until(is_empty, crash->store));
}

static bool is_orphaned(void *ctx)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_sampler *sampler = NULL;
	int ret = rlv_sampler_open(ctx, &opts, &sampler);

	if (ret == 0)
		(void)!rlv_sampler_close(&sampler);
	return ret == -EHOSTDOWN;
}

static int append_until_error(struct rlv_writer *writer)
{
	int ret = 0;

	for (int i = 0; ret == 0 && i < 100000; i++)
		ret = append(writer, 0);
	return ret;
}

static void skip_unless_shm(void)
{
	if (!getenv("RLV_TEST_TRANSPORT"))
		return;
	print_message("memory outlives its node over shm only\n");
	skip();
}

/*
 * The table's memory is gone: handles of the old table get an error, and a new table of the same
 * name is another one.
 */
CASE(memnode_killed__its_shards_are_lost_not_doubled)
{
	struct rlv_writer_opts opts = RLV_WRITER_OPTS_INIT;
	struct crash *crash = *state;
	struct rlv_writer *writer = NULL;
	struct rlv_table *table = NULL;

	skip_unless_shm();
	crash->lease = "10"; /* a client that no node knows is fenced when it is silent */
	start(crash, false, false);
	expect(rlv_writer_open(crash->table, &opts, &writer), 0);
	expect(append(writer, 0), 0);
	processes_kill(&crash->ps, crash->memnode, SIGKILL);
	expect(append(writer, STEPS), 0); /* the memory lives on in those who mapped it */
	start_memnode(crash);
	store_fixture_await_node(crash->store);
	assert_true(processes_until(is_orphaned, crash->table));
	expect(append_until_error(writer), -EHOSTDOWN);
	expect(rlv_table_open(crash->store, "t", &table), -EHOSTDOWN);
	(void)!rlv_writer_close(&writer);
	expect(rlv_table_close(&crash->table), 0);
	expect(rlv_table_drop(crash->store, "t"), 0);
	expect(create_table(crash->store, crash, &crash->table), 0);
	expect_sound(crash);
}

CASE(memnode_on_a_file_killed__the_items_are_back)
{
	struct rlv_table_info before = { .size = sizeof(before) }, after = before;
	struct crash *crash = *state;
	pid_t actor;

	start(crash, false, true);
	actor = start_actor(crash);
	stop_actor(crash, actor);
	expect(rlv_table_info(crash->table, &before), 0);
	expect(rlv_table_close(&crash->table), 0);
	processes_kill(&crash->ps, crash->memnode, SIGKILL);
	start_memnode(crash);
	store_fixture_await_node(crash->store);
	expect(rlv_table_open(crash->store, "t", &crash->table), 0);
	expect(rlv_table_info(crash->table, &after), 0);
	assert_int_equal(before.views[0].items, after.views[0].items);
	expect_sound(crash);
	expect_samples(crash);
}

CASE(memnode_on_a_file_killed__a_writer_goes_on)
{
	struct crash *crash = *state;
	pid_t actor;

	skip_unless_shm();
	start(crash, false, true);
	actor = start_actor(crash);
	processes_kill(&crash->ps, crash->memnode, SIGKILL);
	wait_for_steps(crash, 4096);
	start_memnode(crash);
	store_fixture_await_node(crash->store);
	wait_for_steps(crash, 4096);
	stop_actor(crash, actor);
	expect_clients(crash, 1);
	expect_sound(crash);
}

/* Mappings of the pool's files in this process. */
static uint32_t pool_mappings(const struct crash *crash)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	uint32_t n = 0;
	char line[512];

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		n += strstr(line, crash->file) != NULL;
	(void)fclose(maps);
	return n;
}

/* An update goes over the wire, where there is one, so that a handle finds its connection ended. */
static bool can_learn(void *ctx)
{
	const struct rlv_batch *batch = NULL;
	float priority[256];
	int ret = rlv_sampler_sample(ctx, 256, 0, &batch);

	if (ret)
		return false;
	for (uint32_t i = 0; i < batch->n; i++)
		priority[i] = 2;
	ret = rlv_sampler_set_priorities(ctx, batch->key, priority, batch->n, NULL);
	rlv_batch_release(ctx, batch);
	return ret == 0;
}

/* A handle maps the pool anew when its node is back, over every transport. */
CASE(memnode_on_a_file_killed__its_clients_map_it_again)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_sampler *sampler = NULL;
	struct crash *crash = *state;
	uint32_t before;

	start(crash, false, true);
	stop_actor(crash, start_actor(crash));
	expect(rlv_sampler_open(crash->table, &opts, &sampler), 0);
	assert_true(can_learn(sampler));
	before = pool_mappings(crash);
	assert_true(before > 0);
	processes_kill(&crash->ps, crash->memnode, SIGKILL);
	start_memnode(crash);
	store_fixture_await_node(crash->store);
	assert_true(processes_until(can_learn, sampler));
	assert_int_equal(pool_mappings(crash), before);
	expect(rlv_sampler_close(&sampler), 0);
}

/* Rows without checksums: whether they are whole, only a person can say. */
CASE(memnode_on_a_file_killed__without_checksums_a_person_is_asked)
{
	const char *const trust[] = { "--trust", NULL };
	struct crash *crash = *state;
	struct rlv_table *table = NULL;
	pid_t actor;

	crash->row_crc = 2;
	start(crash, false, true);
	actor = start_actor(crash);
	stop_actor(crash, actor);
	expect(rlv_table_close(&crash->table), 0);
	processes_kill(&crash->ps, crash->metad, SIGKILL);
	processes_kill(&crash->ps, crash->memnode, SIGKILL);
	start_metad(crash, false);
	start_memnode(crash);
	store_fixture_await_node(crash->store);
	expect(rlv_table_open(crash->store, "t", &table), -EBADMSG);
	assert_non_null(strstr(rlv_last_error(), "table t shard"));
	assert_non_null(strstr(rlv_last_error(), "--trust"));
	processes_kill(&crash->ps, crash->metad, SIGTERM);
	crash->metad = processes_metad(&crash->ps, "s", trust);
	store_fixture_await_node(crash->store);
	expect(rlv_table_open(crash->store, "t", &crash->table), 0);
	expect_sound(crash);
	expect_samples(crash);
}

CASE(everything_killed__a_file_has_it_all)
{
	struct crash *crash = *state;
	pid_t actor;

	start(crash, false, true);
	actor = start_actor(crash);
	expect(rlv_table_close(&crash->table), 0);
	expect(rlv_store_close(&crash->store), 0);
	processes_kill(&crash->ps, actor, SIGKILL);
	processes_kill(&crash->ps, crash->memnode, SIGKILL);
	processes_kill(&crash->ps, crash->metad, SIGKILL);
	start_metad(crash, false);
	start_memnode(crash);
	open_store(crash);
	expect_sound(crash);
	expect_samples(crash);
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "act") == 0)
		return act(argv[2]);
	if (argc == 3 && strcmp(argv[1], "churn") == 0)
		return churn(argv[2]);
	return test_run(NULL, NULL);
}
