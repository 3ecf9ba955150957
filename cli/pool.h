/*
 * pool.h - the commands of `relive pool`, one file for each.
 */
#ifndef RLV_CLI_POOL_H
#define RLV_CLI_POOL_H

/* Each gets its own name as argv[0] and returns the exit code. */
int pool_simulate(int argc, char **argv);

#endif
