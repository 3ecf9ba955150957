#include "cli/demo/loop.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/mem/alloc.h"
#include "base/os/clock.h"
#include "cli/cli.h"
#include "cli/demo/scenes.h"
#include "cli/demo/watch.h"
#include "cli/store_status.h"
#include "program/interrupt.h"
#include "program/spawn.h"

#define UP_NS (20 * CLOCK_NS_PER_S)
#define POLL_NS (20 * CLOCK_NS_PER_MS)
#define AWAY_NS \
	(2 * CLOCK_NS_PER_S) /* that the node which is killed stays away, if there is time */
#define GRACE_NS (5 * CLOCK_NS_PER_S)
#define CAPACITY 50000
#define MIN_SIZE 1000
#define SAMPLES_PER_INSERT 32 /* of both learners */
#define NODE "node-1"

struct loop {
	const struct loop_opts *opts;
	struct host_store *host;
	struct progress *progress;
	struct loop_shared *shared;
	struct loop_role roles[LOOP_ROLES];
	struct workers workers;
	struct watch watch;
	struct rlv_store *store;
	struct rlv_table *table;
	struct rlv_generations *weights[LOOP_LEARNERS];
	pid_t node, broker;
	uint64_t begin;
	bool actor_killed, node_killed, node_back;
};

static void loop_note(struct loop *loop, const char *event, const char *text)
{
	progress_clear(loop->progress);
	printf("   %s\n", text);
	fflush(stdout);
	watch_event(&loop->watch, event,
		    (double)(clock_now_ns(clock_monotonic()) - loop->begin) / 1e9);
}

/* -------- daemons -------- */

static int start_daemon(struct loop *loop, const char *const *argv, pid_t *pid_out)
{
	char log[RUNTIME_PATH_BYTES + 32];
	struct spawn_daemon daemon = {
		.binary = argv[0], .argv = argv, .log_path = log, .tied = true
	};

	snprintf(log, sizeof(log), "%s/%s.log", loop->host->temp_root, argv[0]);
	return spawn_daemon(&daemon, pid_out);
}

/* A second memory node, whose pool is in files: it has the same items when it starts again. */
static int start_node(struct loop *loop)
{
	char files[RUNTIME_PATH_BYTES + 8];
	const char *const argv[] = { "relive-memnode", "--store", loop->host->name, "--name", NODE,
				     "--file",         files,     "--size",         "256M",   NULL };

	snprintf(files, sizeof(files), "%s/%s", loop->host->temp_root, NODE);
	return start_daemon(loop, argv, &loop->node);
}

static int start_broker(struct loop *loop)
{
	char device[40], extent[24], budget[24];
	const char *const argv[] = { "relive-poold", "--name",   LOOP_POOL,     "--device",
				     device,         "--extent", extent,        "--budget",
				     budget,         "--order",  "round-robin", NULL };

	snprintf(device, sizeof(device), "host:%llu", (unsigned long long)(2 * LOOP_BUDGET));
	snprintf(extent, sizeof(extent), "%llu", (unsigned long long)LOOP_EXTENT);
	snprintf(budget, sizeof(budget), "%llu", (unsigned long long)LOOP_BUDGET);
	return start_daemon(loop, argv, &loop->broker);
}

static bool node_is_up(struct loop *loop)
{
	struct store_status status;

	return store_status_ask(loop->host->uri, CLOCK_NS_PER_S, &status) == 0 &&
	       store_node_is_up(store_status_find(&status, NODE));
}

static bool broker_is_up(struct loop *loop)
{
	struct rlv_pool_info info = RLV_POOL_INFO_INIT;

	(void)loop;
	return rlv_pool_status(LOOP_POOL, &info) == 0;
}

static int await(struct loop *loop, bool (*is_up)(struct loop *loop), const char *what)
{
	uint64_t deadline = deadline_after(clock_monotonic(), UP_NS);

	while (!is_up(loop)) {
		if (interrupt_pending())
			return error_set(-EINTR, "interrupted");
		if (deadline_expired(clock_monotonic(), deadline))
			return error_set(-ETIMEDOUT, "%s is not up: %s", what, rlv_last_error());
		progress_show(loop->progress, 0, "waiting for %s", what);
		interrupt_sleep(POLL_NS);
	}
	return 0;
}

/* -------- the loop -------- */

/* Forked before this process opens a store. */
static int start_roles(struct loop *loop)
{
	int ret = 0;

	loop->shared = mmap(NULL, sizeof(*loop->shared), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (loop->shared == MAP_FAILED) {
		loop->shared = NULL;
		return error_set(-ENOMEM, "cannot map shared memory");
	}
	memcpy(loop->shared->uri, loop->host->uri, sizeof(loop->shared->uri));
	loop->workers.board = &loop->shared->board;
	loop->workers.may_die = true;
	for (uint32_t i = 0; i < LOOP_ROLES && ret == 0; i++) {
		bool acts = i < LOOP_ACTORS;

		loop->roles[i] = (struct loop_role){
			.worker = { .ops = acts ? &loop_actor_ops : &loop_learner_ops,
				    .name = acts ? "actor" : "learner" },
			.shared = loop->shared,
			.gauge = &loop->shared->gauges[i],
			.policy = acts ? i % LOOP_LEARNERS : i - LOOP_ACTORS,
		};
		ret = workers_start(&loop->workers, &loop->roles[i].worker, true);
	}
	return ret;
}

static int create_table(struct loop *loop)
{
	static const struct rlv_column columns[] = {
		{ .name = "obs",
		  .dtype = RLV_F32,
		  .role = RLV_OBS,
		  .ndim = 1,
		  .shape = { CARTPOLE_INPUTS } },
		{ .name = "action", .dtype = RLV_I64 },
		{ .name = "reward", .dtype = RLV_F32, .role = RLV_REWARD },
	};
	struct rlv_view view = { .n_step = LOOP_N_STEP };
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;

	view.limiter = rlv_limiter_sample_to_insert(SAMPLES_PER_INSERT, MIN_SIZE,
						    4.0 * SAMPLES_PER_INSERT * NETWORK_BATCH);
	opts.n_columns = 3;
	opts.columns = columns;
	opts.capacity = CAPACITY;
	opts.views = &view;
	opts.n_views = 1;
	opts.shards = 2; /* one on each node */
	opts.max_writers = LOOP_ACTORS * LOOP_ENVS;
	return rlv_table_create(loop->store, LOOP_TABLE, &opts, &loop->table);
}

static int open_store(struct loop *loop)
{
	struct rlv_store_opts store = RLV_STORE_OPTS_INIT;
	struct rlv_weights_opts opts = RLV_WEIGHTS_OPTS_INIT;
	int ret;

	store.timeout_ns = UP_NS;
	opts.bytes = 2 * NETWORK_WEIGHTS * sizeof(float); /* names and shapes take some, too */
	ret = rlv_store_open(loop->host->uri, &store, &loop->store);
	if (ret == 0)
		ret = create_table(loop);
	for (uint32_t p = 0; p < LOOP_LEARNERS && ret == 0; p++) {
		char name[RLV_NAME_BYTES];

		snprintf(name, sizeof(name), "policy-%u", p);
		ret = rlv_weights_create(loop->store, name, &opts, &loop->weights[p]);
	}
	return ret ? error_set(ret, "open the store: %s", rlv_last_error()) : 0;
}

/* What happens on the way, at a third and at half of the time. */
static int loop_events(struct loop *loop, double spent_ns)
{
	double total = (double)loop->opts->ns;
	char text[80];
	int ret;

	if (!loop->actor_killed && spent_ns > total / 3) {
		snprintf(text, sizeof(text),
			 "kill -9 %d: actor 0 is gone in the middle of its work",
			 (int)loop->roles[0].worker.pid);
		loop->actor_killed = kill(loop->roles[0].worker.pid, SIGKILL) == 0;
		loop_note(loop, "actor killed", text);
	}
	if (!loop->node_killed && spent_ns > total / 2) {
		snprintf(text, sizeof(text), "kill -9 %d: memory node " NODE " is gone",
			 (int)loop->node);
		(void)kill(loop->node, SIGKILL);
		(void)spawn_wait(loop->node);
		loop->node = 0;
		loop->node_killed = true;
		loop_note(loop, "node killed", text);
	}
	if (loop->node_killed && !loop->node &&
	    spent_ns > total / 2 + fmin((double)AWAY_NS, total / 10)) {
		ret = start_node(loop);
		if (ret)
			return ret;
	}
	if (loop->node && loop->node_killed && !loop->node_back && node_is_up(loop)) {
		loop->node_back = true;
		loop_note(loop, "node is back",
			  "memory node " NODE " is back, with the items that it had");
	}
	return 0;
}

static int loop_run(struct loop *loop)
{
	char text[WATCH_TEXT_BYTES];
	double spent = 0;
	int ret = workers_run(&loop->workers);

	loop->begin = clock_now_ns(clock_monotonic());
	while (ret == 0 && (spent < (double)loop->opts->ns || !loop->node_back)) {
		watch_tick(&loop->watch, spent / 1e9);
		progress_show(loop->progress, fmin(1, spent / (double)loop->opts->ns), "%s",
			      watch_text(&loop->watch, text));
		interrupt_sleep(WATCH_TICK_NS);
		ret = interrupt_pending() ? error_set(-EINTR, "interrupted")
					  : workers_look(&loop->workers);
		spent = (double)(clock_now_ns(clock_monotonic()) - loop->begin);
		if (ret == 0)
			ret = loop_events(loop, spent);
		if (ret == 0 && spent > (double)loop->opts->ns + (double)UP_NS)
			ret = error_set(-ETIMEDOUT, "memory node " NODE " did not come back");
	}
	progress_clear(loop->progress);
	return ret ? ret : workers_pause(&loop->workers);
}

static int loop_open(struct loop *loop)
{
	int ret = start_roles(loop);

	if (ret == 0)
		ret = watch_open(&loop->watch, loop->roles, loop->opts->ns);
	if (ret == 0)
		ret = start_node(loop);
	if (ret == 0)
		ret = start_broker(loop);
	if (ret == 0)
		ret = await(loop, node_is_up, "memory node " NODE);
	if (ret == 0)
		ret = await(loop, broker_is_up, "the broker of the device");
	if (ret == 0)
		ret = open_store(loop);
	return ret ? ret : workers_open(&loop->workers);
}

/* What the roles have left: a table without a problem. */
static int loop_end(struct loop *loop)
{
	int ret;

	scene_say(loop->progress, "What was seen of the loop");
	watch_summary(&loop->watch);
	ret = watch_picture(&loop->watch, loop->opts->picture);
	if (ret)
		return cli_fail_local(ret, "the whole loop"), ret;
	printf("   picture      %s\n", loop->opts->picture);
	workers_stop(&loop->workers);
	scene_say(loop->progress, "Inspect: a walk over the whole table");
	return scene_verify(loop->progress, loop->store, loop->table);
}

static void loop_close(struct loop *loop)
{
	workers_stop(&loop->workers);
	for (uint32_t p = 0; p < LOOP_LEARNERS; p++)
		cli_closed(rlv_weights_close(&loop->weights[p]), "weights");
	if (loop->table)
		cli_closed(rlv_table_close(&loop->table), "table");
	cli_closed(rlv_store_close(&loop->store), "store");
	spawn_stop(loop->node, GRACE_NS);
	spawn_stop(loop->broker, GRACE_NS);
	watch_close(&loop->watch);
	if (loop->shared)
		munmap(loop->shared, sizeof(*loop->shared));
}

int loop_play(const struct loop_opts *opts, struct host_store *store, struct progress *progress)
{
	struct loop *loop = mem_zalloc(sizeof(*loop));
	int ret;

	if (!loop)
		return error_set(-ENOMEM, "the whole loop: no memory");
	*loop = (struct loop){ .opts = opts, .host = store, .progress = progress };
	scene_say(
		progress,
		"The whole loop: 4 actors balance poles, 2 learners share a device, and their weights "
		"go back to the actors");
	ret = loop_open(loop);
	if (ret == 0)
		ret = loop_run(loop);
	if (ret)
		cli_fail_local(ret, "the whole loop");
	else
		ret = loop_end(loop);
	loop_close(loop);
	mem_free(loop);
	return ret;
}
