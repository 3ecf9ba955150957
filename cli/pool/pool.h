/*
 * pool.h - the commands of `relive pool`, of a simulator and of a broker.
 */
#ifndef RLV_CLI_POOL_POOL_H
#define RLV_CLI_POOL_POOL_H

/* Each gets its own name as argv[0] and returns the exit code. */
int pool_simulate(int argc, char **argv);
int pool_corun(int argc, char **argv);
int pool_status_command(int argc, char **argv);
int pool_queue(int argc, char **argv);
int pool_top(int argc, char **argv);
int pool_limit_command(int argc, char **argv);
int pool_drain(int argc, char **argv);

#endif
