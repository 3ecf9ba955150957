/*
 * kill_step.h - kill -9 of a program at every step: between two system calls whose effect other
 * processes can see. Calls that only read, wait or change private memory are no steps, unless
 * `finest` is set.
 */
#ifndef RLV_TESTS_SUPPORT_ATTACK_KILL_STEP_H
#define RLV_TESTS_SUPPORT_ATTACK_KILL_STEP_H

#include <stdbool.h>
#include <stdint.h>

struct kill_step {
	const char *path;
	const char *const *argv; /* argv[0] included, NULL at the end */
	const char *log;         /* its output goes there */
	bool finest;             /* every system call is a step */
	uint64_t at;             /* killed before its step of that number, from 1; 0 = never */
};

struct kill_step_report {
	uint64_t steps; /* that it did */
	bool killed;
	int status; /* status of wait(2), if it was not killed */
};

/*
 * Runs it to its end or its kill. Processes that it forks go on. Skips the test (cmocka's skip) where
 * a child cannot be traced.
 */
void kill_step_run(const struct kill_step *step, struct kill_step_report *report_out);

#endif
