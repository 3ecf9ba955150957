/*
 * bench.h - the command line of `relive bench replay`.
 */
#ifndef RLV_CLI_BENCH_H
#define RLV_CLI_BENCH_H

#include "bench/replay/config.h"

/*
 * Reads the options into config. CLI_CONTINUE, or the exit code. *given_out: true if an option
 * describes a case to measure; otherwise the standard cases run.
 */
int bench_parse(struct replay_config *config, int argc, char **argv, bool *given_out);

#endif
