/*
 * crash_step.h - a crash at every step: runs code in a child one machine instruction at a time, and
 * shows the shared memory after each instruction that changed it: the state that a kill -9 at that
 * instant leaves.
 */
#ifndef RLV_TESTS_SUPPORT_ATTACK_CRASH_STEP_H
#define RLV_TESTS_SUPPORT_ATTACK_CRASH_STEP_H

#include <stddef.h>
#include <stdint.h>

struct crash_step {
	size_t bytes;              /* of the shared memory */
	uint64_t every;            /* look after every so many changes; 0 = each */
	int (*prepare)(void *ctx); /* runs first in the child, at full speed; NULL = nothing */
	int (*run)(void *ctx);     /* in the child, an instruction at a time; 0 or -errno */
	/* Called in this process, on a copy of the memory that it may change. */
	void (*look)(void *ctx, uint8_t *memory);
	void *ctx;
};

struct crash_step_report {
	uint64_t instructions;
	uint64_t states; /* different contents seen */
	uint64_t looks;
	int rc; /* of prepare or run */
};

/* Memory of that many bytes, zeroed, shared with children. */
uint8_t *crash_step_memory(size_t bytes);
void crash_step_free(uint8_t *memory, size_t bytes);

/*
 * Runs it to its end on `memory`. Fails the test if the child dies. Skips it (cmocka's skip) where
 * a child cannot be stepped: another CPU than x86-64, or no ptrace.
 */
void crash_step_run(const struct crash_step *step, uint8_t *memory,
		    struct crash_step_report *report_out);

#endif
