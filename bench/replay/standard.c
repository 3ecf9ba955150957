#include "bench/replay/standard.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "relive/relive.h"

#include "base/bits.h"
#include "base/os/clock.h"

#define WINDOW_NS (400 * CLOCK_NS_PER_MS)
#define PROCESS_WINDOW_NS (800 * CLOCK_NS_PER_MS)
#define FULL_WINDOW_NS (2 * CLOCK_NS_PER_S)
#define PACED 500000

static struct replay_config *add_case(struct replay_group *group, const struct replay_config *base,
				      const char *label)
{
	struct replay_config *config = &group->cases[group->n_cases++];

	*config = *base;
	snprintf(config->label, sizeof(config->label), "%s", label);
	return config;
}

static void set_roles(struct replay_config *config, uint32_t actors, uint32_t learners)
{
	config->actors = actors;
	config->learners = learners;
}

static void cases_of_one_thread(const struct replay_config *base, struct replay_group *group)
{
	struct replay_config *config;

	group->title = "CartPole, one thread, embed:, capacity 2^20";
	set_roles(add_case(group, base, "insert 64 steps"), 1, 0);
	config = add_case(group, base, "insert 64 environments");
	set_roles(config, 1, 0);
	config->envs = 64;
	config = add_case(group, base, "sample 256");
	set_roles(config, 0, 1);
	config->learn = REPLAY_LEARN_SAMPLE;
	config = add_case(group, base, "sample 256, 4 KiB pages");
	set_roles(config, 0, 1);
	config->learn = REPLAY_LEARN_SAMPLE;
	config->pages = RLV_PAGES_SMALL;
	add_case(group, base, "loop 64 + 256 + 256")->loop = true;
	config = add_case(group, base, "loop, updates deferred by 16");
	config->loop = true;
	config->defer = 16;
}

static void cases_of_frames(const struct replay_config *base, struct replay_group *group)
{
	static const struct {
		const char *label;
		uint32_t layout, inflight;
	} cases[] = { { "window", RLV_WINDOW, 1 },
		      { "dense", RLV_DENSE, 1 },
		      { "window, 8 in flight", RLV_WINDOW, 8 },
		      { "dense, 8 in flight", RLV_DENSE, 8 } };

	group->title = "Atari, stack 4, one thread, embed:, batches of 256";
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct replay_config *config = add_case(group, base, cases[i].label);

		config->shape = "atari";
		config->layout = cases[i].layout;
		config->inflight = cases[i].inflight;
		config->learn = REPLAY_LEARN_SAMPLE;
		config->capacity = UINT64_C(1) << (base->full ? 17 : 16);
		set_roles(config, 0, 1);
	}
}

static void cases_of_processes(const struct replay_config *base, struct replay_group *group)
{
	struct replay_config *config;

	group->title = "CartPole, processes over a private store, capacity 2^20";
	config = add_case(group, base, "2 actors 500k/s, 1 learner");
	set_roles(config, 2, 1);
	config->rate = PACED;
	set_roles(add_case(group, base, "2 actors flat out, 1 learner"), 2, 1);
	config = add_case(group, base, "2 actors, 1 learner, checked");
	set_roles(config, 2, 1);
	config->check = true;
}

static void cases_of_blocks(const struct replay_config *base, struct replay_group *group)
{
	group->title = "CartPole, inserting processes over a private store";
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t actors = 1 + i % 2;
		char label[REPLAY_LABEL_BYTES];
		struct replay_config *config;

		snprintf(label, sizeof(label), "%u actor%s, block %s", actors,
			 actors == 1 ? "" : "s", i < 2 ? "as by default" : "1024");
		config = add_case(group, base, label);
		config->block = i < 2 ? 0 : 1024;
		set_roles(config, actors, 0);
	}
}

/* Only when full. */
static void cases_of_learners(const struct replay_config *base, struct replay_group *group)
{
	struct replay_config *config;

	group->title = "CartPole, learners over a private store";
	set_roles(add_case(group, base, "1 learner"), 0, 1);
	set_roles(add_case(group, base, "2 learners"), 0, 2);
	config = add_case(group, base, "2 learners, deferred by 16");
	set_roles(config, 0, 2);
	config->defer = 16;
	set_roles(add_case(group, base, "2 actors, 2 learners"), 2, 2);
	config = add_case(group, base, "2 actors, 2 learners, 4 shards");
	set_roles(config, 2, 2);
	config->shards = 4;
	config = add_case(group, base, "2 actors, 1 learner, 8 per insert");
	set_roles(config, 2, 1);
	config->spi = 8;
}

static const struct {
	void (*make)(const struct replay_config *base, struct replay_group *group);
	int64_t window_ns;
	bool of_processes;
	bool only_full;
} groups[] = {
	{ cases_of_one_thread, WINDOW_NS, false, false },
	{ cases_of_frames, WINDOW_NS, false, false },
	{ cases_of_processes, PROCESS_WINDOW_NS, true, false },
	{ cases_of_blocks, WINDOW_NS, true, false },
	{ cases_of_learners, FULL_WINDOW_NS, true, true },
};

uint32_t replay_standard_groups(bool full)
{
	uint32_t n = 0;

	for (size_t i = 0; i < ARRAY_LEN(groups); i++)
		n += full || !groups[i].only_full;
	return n;
}

void replay_standard_group(uint32_t index, const struct replay_config *base,
			   struct replay_group *group_out)
{
	struct replay_config config = *base;

	memset(group_out, 0, sizeof(*group_out));
	config.duration_ns =
		(base->full ? FULL_WINDOW_NS : groups[index].window_ns) * config.windows;
	config.processes = groups[index].of_processes;
	groups[index].make(&config, group_out);
}
