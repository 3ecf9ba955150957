/*
 * fake.h - what the files of the fake driver share. One lock guards everything.
 */
#ifndef RLV_TESTS_FAKECUDA_FAKE_H
#define RLV_TESTS_FAKECUDA_FAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/cuda/cuda_abi.h"

#define EXPORT __attribute__((visibility("default")))
#define GRANULARITY ((size_t)2 << 20)

/* Weak: a call that no file defines is one that this driver lacks. */
#define FAKE_DECLARE(member, name, since, required, arguments) \
	EXPORT __attribute__((weak)) unsigned name arguments;
CUDA_CALLS(FAKE_DECLARE)
EXPORT unsigned cuGetProcAddress_v2(const char *name, void **fn, int version, uint64_t flags,
				    unsigned *status);

enum fake_call {
#define FAKE_ENUM(member, name, since, required, arguments) FAKE_##member,
	CUDA_CALLS(FAKE_ENUM) FAKE_CALLS
};

/* Begins each call: counts it, takes its time, and returns if it is to fail. */
#define FAKE_ENTER(member) \
	do { \
		unsigned fails_ = fake_enter(FAKE_##member); \
\
		if (fails_) \
			return fails_; \
	} while (0)
unsigned fake_enter(enum fake_call call);

extern pthread_mutex_t fake_mutex; /* what fake_lock takes */
void fake_lock(void);
void fake_unlock(void);
/* Both with the lock held. */
void fake_violation(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void fake_lose(unsigned result); /* every later call fails so */
unsigned fake_lost(void);        /* that result, or CU_OK */

/* memory.c, with the lock held: whether the GPU may use these bytes. */
bool fake_device_range(cu_u64 at, size_t bytes);
/* The same, or memory of the host that is nobody's device address. */
bool fake_any_range(cu_u64 at, size_t bytes);
size_t fake_mapped_bytes(void);
size_t fake_created_bytes(void);
size_t fake_graphs(void);         /* graph.c, without the lock */
size_t fake_memory(size_t bytes); /* sets the device's bytes, unless 0; returns them */

/* stream.c, with the lock held: whether work that is not done touches these bytes (not of `but`). */
bool fake_busy(cu_u64 at, size_t bytes, const struct cu_stream *but);
void fake_hold(uint64_t op_ns); /* 0: in real time */
void fake_advance(uint64_t ns);
void fake_watch_reuse(bool on);

#endif
