/*
 * bench.h - the command lines of `relive bench replay`, `relive bench kv` and `relive bench weights`.
 */
#ifndef RLV_CLI_BENCH_H
#define RLV_CLI_BENCH_H

#include "bench/replay/config.h"
#include "bench/replay/group.h"
#include "program/args.h"

/*
 * Reads the options into config. CLI_CONTINUE, or the exit code if the command ends here.
 * *given_out: true if an option describes a case to measure; otherwise the standard cases run.
 */
int bench_parse(struct replay_config *config, int argc, char **argv, bool *given_out);

/* True if an option before that heading was seen. all: the options, the heading too; seen: a bit for each. */
bool bench_case_is_given(const struct arg_option *all, const char *heading, uint64_t seen);

/*
 * Standard cases: bench_groups is the number of their groups, larger if full; bench_group makes the
 * cases of one group. base sets seed, windows and output.
 */
uint32_t bench_groups(bool full);
void bench_group(uint32_t index, const struct replay_config *base, struct replay_group *group_out);

/* Runs `relive bench kv` (bench_kv.c); returns the exit code. */
int bench_kv(int argc, char **argv);

/* Runs `relive bench weights` (bench_weights.c); returns the exit code. */
int bench_weights(int argc, char **argv);

#endif
