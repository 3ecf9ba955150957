#include "cli/demo/scenes.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/os/clock.h"
#include "bench/replay/case.h"
#include "bench/replay/report.h"
#include "bench/replay/table.h"
#include "cli/cli.h"
#include "program/interrupt.h"
#include "program/units.h"

#define TICK_NS (100 * CLOCK_NS_PER_MS)

/* A scene: a table with its actors and learners. */
struct scene {
	const char *title;
	const char *trace; /* name in tests/data */
	const char *shape; /* used if the trace is not installed */
	uint32_t actors, learners;
	uint64_t capacity;
	int64_t window_ns;
	uint32_t windows;
	bool kill_actor; /* kill it in the middle of the second window */
};

struct demo {
	const struct host_store *store;
	struct progress *progress;
	/* The scene that plays, and its last tick. */
	const struct scene *scene;
	struct replay_case *playing;
	uint32_t window;
	bool killed;
	double last; /* ns of the window */
	uint64_t inserted, sampled;
};

void scene_say(struct progress *progress, const char *text)
{
	progress_clear(progress);
	printf("\n== %s\n", text);
	fflush(stdout);
}

/*
 * Called during a window: shows the rates since the last call. In a scene that kills an actor,
 * kills actor 0 once, after a quarter of window 1.
 */
static void demo_tick(void *ctx, double spent)
{
	struct demo *demo = ctx;
	struct replay_case *c = demo->playing;
	const struct scene *scene = demo->scene;
	uint64_t inserted = replay_case_live(c, ROLE_INSERT);
	uint64_t sampled = replay_case_live(c, ROLE_SAMPLE);
	double total = (double)scene->window_ns, seconds = (spent - demo->last) / 1e9;
	pid_t actor = c->roles[0].worker.pid;
	char in[UNITS_TEXT_BYTES], out[UNITS_TEXT_BYTES];

	if (scene->kill_actor && demo->window == 1 && !demo->killed && spent > total / 4) {
		progress_clear(demo->progress);
		printf("   kill -9 %d: actor 0 is gone in the middle of its work\n", (int)actor);
		fflush(stdout);
		demo->killed = kill(actor, SIGKILL) == 0;
	}
	if (demo->last > 0)
		progress_show(demo->progress,
			      (demo->window + spent / total) / (double)scene->windows,
			      "%s steps/s in, %s items/s out",
			      units_format_si((double)(inserted - demo->inserted) / seconds, in),
			      units_format_si((double)(sampled - demo->sampled) / seconds, out));
	demo->last = spent;
	demo->inserted = inserted;
	demo->sampled = sampled;
}

int scene_verify(struct progress *progress, struct rlv_store *store, struct rlv_table *table)
{
	uint64_t deadline = deadline_after(clock_monotonic(), 15 * CLOCK_NS_PER_S);
	struct rlv_verify_report report = { .size = sizeof(report) };
	struct rlv_store_info info = { .size = sizeof(info) };
	int ret;

	for (;;) {
		ret = rlv_table_verify(table, &report);
		if (ret)
			return cli_fail(ret, "inspect"), ret;
		if (report.problems == 0 || interrupt_pending() ||
		    deadline_expired(clock_monotonic(), deadline))
			break;
		progress_show(progress, 1, "waiting for the repair");
		interrupt_sleep(TICK_NS);
	}
	progress_clear(progress);
	if (report.problems) {
		cli_error("inspect found %u problems: %s", report.problems, report.first_problem);
		return -EBADMSG;
	}
	ret = rlv_store_info(store, &info);
	printf("   %llu items: every leaf, sum, block and counter is exact; %u rebuild%s done\n",
	       (unsigned long long)report.items, ret ? 0 : info.rebuilds,
	       info.rebuilds == 1 ? "" : "s");
	return 0;
}

static int run_scene(struct demo *demo, const struct scene *scene)
{
	struct replay_case *c = mem_zalloc(sizeof(*c));
	struct replay_data *data = mem_zalloc(sizeof(*data));
	struct replay_config config;
	char path[PATH_MAX], text[160];
	bool recorded = cli_data_file(scene->trace, path);
	int ret = c && data ? 0 : -ENOMEM;

	replay_config_init(&config);
	snprintf(config.label, sizeof(config.label), "%s", scene->title);
	config.trace = recorded ? path : NULL;
	config.shape = scene->shape;
	config.store = demo->store->uri;
	config.actors = scene->actors;
	config.learners = scene->learners;
	config.capacity = scene->capacity;
	config.layout = RLV_WINDOW;
	snprintf(text, sizeof(text),
		 "%s: %u actor%s insert %s, %u learner%s sample and reprioritise", scene->title,
		 scene->actors, scene->actors == 1 ? "" : "s",
		 recorded ? "recorded experience" : "generated experience (no recording found)",
		 scene->learners, scene->learners == 1 ? "" : "s");
	scene_say(demo->progress, text);
	if (ret == 0)
		ret = replay_data_open(config.trace, config.shape, config.seed, data);
	if (ret == 0)
		ret = replay_case_open(c, &config, data);
	if (ret == 0) {
		c->workers.may_die = scene->kill_actor;
		c->progress = demo->progress;
		c->tick = demo_tick;
		c->tick_ctx = demo;
		ret = replay_case_start(c, config.store);
	}
	demo->scene = scene;
	demo->playing = c;
	for (demo->window = 0; ret == 0 && demo->window < scene->windows; demo->window++) {
		demo->last = 0;
		ret = replay_case_window(c, scene->window_ns);
	}
	progress_clear(demo->progress);
	if (ret) {
		cli_fail_local(ret, "%s", scene->title);
	} else {
		if (scene->kill_actor)
			printf("   the other actor and both learners went on\n");
		scene_say(demo->progress, "Inspect: a walk over the whole table");
		ret = scene_verify(demo->progress, c->store, c->table);
		scene_say(demo->progress, "Throughputs");
		if (ret == 0)
			ret = replay_report_text(c, 1, stdout);
	}
	if (c && replay_case_close(c) && ret == 0)
		ret = (cli_fail_local(error_last_code(), "%s", scene->title), -EIO);
	if (data)
		replay_data_close(data);
	mem_free(c);
	mem_free(data);
	return ret;
}

static const struct scene scenes[] = {
	{ .title = "CartPole",
	  .trace = "cartpole.rlvt",
	  .shape = "cartpole",
	  .actors = 2,
	  .learners = 2,
	  .capacity = UINT64_C(1) << 18,
	  .window_ns = 4 * CLOCK_NS_PER_S,
	  .windows = 2,
	  .kill_actor = true },
	{ .title = "Pong",
	  .trace = "pong.rlvt",
	  .shape = "atari",
	  .actors = 1,
	  .learners = 1,
	  .capacity = UINT64_C(1) << 14,
	  .window_ns = 3 * CLOCK_NS_PER_S,
	  .windows = 1 },
};

int scenes_play(const struct host_store *store, struct progress *progress, int64_t ns)
{
	struct demo demo = { .store = store, .progress = progress };
	int ret = 0;

	for (size_t i = 0; i < ARRAY_LEN(scenes) && ret == 0; i++) {
		struct scene scene = scenes[i];

		scene.window_ns = (int64_t)((double)scene.window_ns * (double)ns / SCENES_NS);
		ret = run_scene(&demo, &scene);
	}
	return ret;
}
