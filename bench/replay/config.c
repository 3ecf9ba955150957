#include "bench/replay/config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "relive/relive.h"

#include "bench/harness/series.h"
#include "bench/harness/worker.h"

void replay_config_init(struct replay_config *config)
{
	*config = (struct replay_config){
		.shape = "cartpole",
		.actors = 1,
		.learners = 1,
		.shards = 1,
		.batch = 256,
		.insert_batch = 64,
		.envs = 1,
		.inflight = 1,
		.windows = 5,
		.prefill = REPLAY_PREFILL_RING,
		.seed = 1,
		.duration_ns = 5000000000,
	};
}

int replay_config_check(struct replay_config *config)
{
	uint32_t roles = config->actors + config->learners;
	unsigned long stack, n_step = 1;
	char *end;

	if (config->view) {
		stack = strtoul(config->view, &end, 10);
		if (end != config->view && *end == ',')
			n_step = strtoul(end + 1, &end, 10);
		if (*end || stack == 0 || stack > 64 || n_step == 0 || n_step > 256)
			return error_set(-EINVAL, "--view %s: give STACK,NSTEP, as in 4,1",
					 config->view);
		config->stack = (uint32_t)stack;
		config->n_step = (uint32_t)n_step;
	}
	if (config->windows == 0 || config->windows > SERIES_MAX)
		return error_set(-EINVAL, "--windows %u: give 1 to %u", config->windows,
				 SERIES_MAX);
	if (config->duration_ns / config->windows < 1000000)
		return error_set(-EINVAL,
				 "--seconds: less than 1 ms for each of %u windows; give more",
				 config->windows);
	if (config->batch == 0 || config->insert_batch == 0 || config->envs == 0 ||
	    config->inflight == 0 || config->shards == 0)
		return error_set(-EINVAL, "--batch, --insert-batch, --envs, --inflight, --shards: "
					  "give at least 1");
	if (config->insert_batch > 1u << 20 || config->envs > 1u << 14 || config->inflight > 64)
		return error_set(-EINVAL,
				 "--insert-batch: at most 2^20; --envs: 2^14; --inflight: 64");
	if (config->rate < 0 || config->spi < 0)
		return error_set(-EINVAL, "--rate, --spi: give 0 or more");
	if (config->actors > WORKERS_MAX || config->learners > WORKERS_MAX || roles > WORKERS_MAX ||
	    roles == 0)
		return error_set(-EINVAL, "--actors + --learners: give 1 to %d in all",
				 WORKERS_MAX);
	if (config->loop && (config->actors != 1 || config->learners != 1))
		return error_set(
			-EINVAL,
			"--loop: runs one actor and one learner; leave --actors and --learners out");
	if (config->layout == RLV_WINDOW && config->n_step > 1)
		return error_set(-EINVAL,
				 "--layout window: needs one-step returns; give --view STACK,1");
	if (config->trace && config->check)
		return error_set(-EINVAL,
				 "--check: generates its rows; give --shape instead of --trace");
	if (config->check && config->envs > 1)
		return error_set(-EINVAL, "--check: appends to one stream; leave --envs out");
	if (config->threads && config->store && strncmp(config->store, "embed:", 6) != 0)
		return error_set(-EINVAL, "--threads: needs an embed: store, not %s",
				 config->store);
	if (config->threads && config->processes)
		return error_set(-EINVAL, "--threads, --processes: give one of them");
	return 0;
}

bool replay_config_is_local(const struct replay_config *config)
{
	if (config->store)
		return strncmp(config->store, "embed:", 6) == 0;
	return config->threads || (replay_config_roles(config) == 1 && !config->processes);
}

bool replay_config_gives_priorities(const struct replay_config *config)
{
	return config->trace || config->check;
}

uint32_t replay_config_roles(const struct replay_config *config)
{
	return config->loop ? 1 : config->actors + config->learners;
}
