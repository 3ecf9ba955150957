/*
 * bench.h - the command line of `relive bench replay`.
 */
#ifndef RLV_CLI_BENCH_H
#define RLV_CLI_BENCH_H

#include "bench/replay/config.h"
#include "bench/replay/group.h"

/*
 * Reads the options into config. CLI_CONTINUE, or the exit code. *given_out: true if an option
 * describes a case to measure; otherwise the standard cases run.
 */
int bench_parse(struct replay_config *config, int argc, char **argv, bool *given_out);

/*
 * The standard cases: number of groups, larger if full, and one of them. base sets seed, windows and
 * output.
 */
uint32_t bench_groups(bool full);
void bench_group(uint32_t index, const struct replay_config *base, struct replay_group *group_out);

#endif
