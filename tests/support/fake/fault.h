/*
 * fault.h - a transport that goes wrong as told, over any other. For tests of everything above.
 *
 *   fail     an operation answers with an error and does nothing
 *   drop     a write, read or chain is not done, and answers -ETIMEDOUT
 *   tear     a write or read is done for a random number of its 8-byte units, then -ETIMEDOUT
 *   delay    the clock is moved on before the call
 *   reorder  the operations of a call (never of a post) are done in another order
 *   unknown  an atomic answers "unknown"; by a coin toss it was done or not
 *   cut      after so many calls every one answers -ECONNRESET
 *
 * Calls are counted from 1 over view, read, write, cas, faa, post and persist. The same plan, seed
 * and calls give the same faults.
 */
#ifndef RLV_TESTS_SUPPORT_FAKE_FAULT_H
#define RLV_TESTS_SUPPORT_FAKE_FAULT_H

#include "transport/transport.h"

enum fault_unknown { FAULT_UNKNOWN_COIN, FAULT_UNKNOWN_DONE, FAULT_UNKNOWN_NOT_DONE };

/* All zero = no faults. A rate is in 1/65536 of the calls (or atomics), 65536 = always. */
struct fault_plan {
	uint64_t seed;
	uint64_t fail_at; /* the n-th call from now fails; 0 = none */
	int fail_code;    /* 0 = -ETIMEDOUT */
	uint64_t cut_at;  /* from the n-th call from now on the connection is dead; 0 = never */
	uint32_t fail_rate;
	uint32_t drop_rate;
	uint32_t tear_rate;
	uint32_t delay_rate;
	uint32_t unknown_rate; /* of each atomic */
	enum fault_unknown unknown;
	bool reorder;
	uint64_t delay_ns;                           /* at most */
	void (*delay)(void *ctx, uint64_t delay_ns); /* moves the test's clock; NULL = nothing */
	void *delay_ctx;
};

struct fault_counts {
	uint64_t calls;
	uint64_t failed, dropped, torn, delayed, unknown, reordered;
};

/*
 * Takes inner over, also when it fails. plan NULL = no faults. Regions must be attached through
 * the new transport.
 */
RLV_MUST_CHECK int fault_wrap(struct transport *inner, const struct fault_plan *plan,
			      struct transport **tr_out);

/* Sets the plan from now on; restarts the count of calls and the random numbers. */
void fault_set(struct transport *tr, const struct fault_plan *plan);

void fault_get(const struct transport *tr, struct fault_counts *counts_out);

#endif
