/*
 * history.h - checks that calls on one key, of many clients, were linearizable. Times are of one clock;
 * each value that is put is a number of its own.
 *
 * Versions give the order of the puts, so it is enough that time agrees with it: a call that began
 * after another one had ended has no smaller version, a put a larger one. O(n log n). Exact without refused
 * puts; one of these fails a history only if its version was there all the time.
 */
#ifndef RLV_TESTS_SUPPORT_HISTORY_H
#define RLV_TESTS_SUPPORT_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HISTORY_PENDING UINT64_MAX

enum history_kind { HISTORY_PUT, HISTORY_PUT_IF, HISTORY_GET };

struct history_call {
	uint64_t start, end; /* end HISTORY_PENDING: its client was killed, it was done or not */
	uint32_t kind, client;
	bool refused;      /* a PUT_IF that found another version than expected */
	uint64_t value;    /* put, or found; 0 = found no value */
	uint64_t version;  /* of it; 0: pending, or no value */
	uint64_t expected; /* of a PUT_IF; 0 = no value */
};

/* Sorts the calls. True if they are linearizable; else *why_out says what is not. */
bool history_check(struct history_call *calls, size_t n, const char **why_out);

/* The same, exactly, by trying all orders; n <= 12. */
bool history_check_all_orders(const struct history_call *calls, size_t n);

#endif
