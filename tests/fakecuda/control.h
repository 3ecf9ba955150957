/*
 * control.h - what a test sees and sets of the fake driver (tests/fakecuda), within its process.
 *
 * The fake is a libcuda.so.1: the calls of device/cuda/cuda_abi.h over the memory of this host.
 *   - A handle of memory is a memfd: export and import alias the same bytes, in all processes. New memory
 *     has somebody's bytes at both ends.
 *   - Device addresses are ours too; where nothing is mapped, or without access, they are PROT_NONE.
 *   - A stream is a thread with a queue. What it does to memory it does when the clock has come to its
 *     end, so work that is late overwrites what a later owner wrote.
 *   - Rules that the real driver leaves to its caller are violations here, counted and described.
 *
 * A process that is not the test's takes its settings from RLV_FAKECUDA: "driver=12040 memory_mib=64
 * hide=cuMemcpyBatchAsync latencies=1", any of them.
 */
#ifndef RLV_TESTS_FAKECUDA_CONTROL_H
#define RLV_TESTS_FAKECUDA_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKECUDA_SYMBOL "fakecuda_control"

struct fakecuda_control {
	/* Zero counts, no failures, a found device of CUDA 13, the clock in real time. Memory stays. */
	void (*reset)(void);
	/* Calls since reset, by name; NULL: all, without those that look up errors' names. */
	uint64_t (*calls)(const char *name);
	/* The nth call from now on (of that name; NULL: any) returns result and does nothing. */
	void (*fail_call)(const char *name, uint64_t nth, unsigned result);
	/* Every call returns result until reset: the device is lost. 0: no longer. */
	void (*lose)(unsigned result);
	/* A driver of this version (12040 = 12.4), without the calls that are later. */
	void (*driver)(int version);
	void (*hide)(const char *name); /* a driver without this call, until reset */
	void (*attribute)(unsigned attribute, int value);
	void (*memory)(size_t bytes); /* of the device */
	/* Each call takes as long as on an A100 (create, map, access, unmap), or no time. */
	void (*latencies)(bool on);

	/* From now on the clock stands, and work of a stream takes op_ns; waiting for it moves the clock. */
	void (*hold)(uint64_t op_ns);
	/* Moves a clock that stands; returns when all work that ends by then is done. */
	void (*advance)(uint64_t ns);

	/* Broken rules since reset; text (may be NULL) gets the first one. */
	uint64_t (*violations)(char *text, size_t bytes);
	/* Counts as a violation: work given to a stream over memory that other streams' work still uses. */
	void (*watch_reuse)(bool on);
	size_t (*mapped_bytes)(void);
	size_t (*created_bytes)(void);
	size_t (*graphs)(void); /* recorded, or ready to be launched, and not destroyed */
};

typedef const struct fakecuda_control *fakecuda_control_fn(void);

#endif
