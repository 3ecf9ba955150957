#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/json.h"
#include "cli/bench_config.h"
#include "cli/bench_group.h"
#include "cli/bench_standard.h"
#include "cli/cli.h"
#include "cli/interrupt.h"

static void describe(struct bench_config *config)
{
	char who[BENCH_LABEL_BYTES];

	if (config->loop)
		snprintf(who, sizeof(who), "loop");
	else
		snprintf(who, sizeof(who), "%u actor%s, %u learner%s", config->actors,
			 config->actors == 1 ? "" : "s", config->learners,
			 config->learners == 1 ? "" : "s");
	memcpy(config->label, who, sizeof(config->label));
}

/* The one case of the command line. */
static int run_given(struct bench_config *config, struct bench_output *output, bool *ok_out)
{
	struct bench_group *group = mem_zalloc(sizeof(*group));
	int ret;

	if (!group)
		return -ENOMEM;
	describe(config);
	group->title = config->trace ? config->trace : config->shape;
	group->n_cases = 1;
	group->cases[0] = *config;
	output->to = 1;
	ret = bench_group_run(group, output, ok_out);
	mem_free(group);
	return ret;
}

static int run_standard(const struct bench_config *config, struct bench_output *output,
			bool *ok_out)
{
	uint32_t n = bench_standard_groups(config->full);
	struct bench_group *group = mem_zalloc(sizeof(*group));
	int ret = group ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < n && ret == 0; i++) {
		output->from = (double)i / n;
		output->to = (double)(i + 1) / n;
		bench_standard_group(i, config, group);
		ret = bench_group_run(group, output, ok_out);
	}
	mem_free(group);
	return ret;
}

static int replay(int argc, char **argv)
{
	struct bench_output output = { 0 };
	struct bench_config config;
	struct progress progress;
	struct json json;
	bool given = false, ok = true;
	int code = bench_config_parse(&config, argc, argv, &given), ret;

	if (code != CLI_CONTINUE)
		return code;
	if (bench_config_check(&config)) {
		cli_error("%s", error_last());
		cli_hint("relive bench replay --help");
		return CLI_USAGE;
	}
	interrupt_install();
	progress_begin(&progress, config.progress);
	json_init(&json, stdout);
	output.progress = &progress;
	output.json = config.json ? &json : NULL;
	ret = given ? run_given(&config, &output, &ok) : run_standard(&config, &output, &ok);
	if (config.json && json_finish(&json) && ret == 0)
		ret = cli_fail_local(-EIO, "write the results");
	if (!ok)
		cli_error("a check failed");
	return ret || !ok ? CLI_FAILURE : CLI_OK;
}

int cmd_bench(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "replay") == 0)
		return replay(argc - 1, argv + 1);
	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
		return replay(argc, argv);
	cli_error("bench: there is relive bench replay");
	return CLI_USAGE;
}
