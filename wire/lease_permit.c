#include "wire/lease_permit.h"

#include <stdatomic.h>

enum { NONE = 0, BETWEEN = 1, RUNS = 2, STATES = 4 };

void lease_permit_lend(struct lease_permit *permit, uint64_t began_ns)
{
	atomic_store_explicit(&permit->began_ns, began_ns, memory_order_relaxed);
	atomic_store_explicit(&permit->used_ns[0], 0, memory_order_relaxed);
	/* J1 pairs with J2: times; word */
	atomic_store_explicit(&permit->word, RUNS, memory_order_release);
}

struct lease_permit_use lease_permit_recall(struct lease_permit *permit)
{
	/* J4 pairs with J3: word; times of the iterations that have ended, begin of the one that runs */
	uint64_t word = atomic_exchange_explicit(&permit->word, NONE, memory_order_acq_rel);
	uint64_t ended = word / STATES;

	return (struct lease_permit_use){
		.ended = ended,
		/* relaxed: ordered by the word */
		.used_ns = atomic_load_explicit(&permit->used_ns[ended % 2], memory_order_relaxed),
		.began_ns = atomic_load_explicit(&permit->began_ns, memory_order_relaxed),
		.runs = word % STATES == RUNS,
	};
}

/* J3 pairs with J4: times; word. False: it is not `word` any more. */
static bool permit_cas(struct lease_permit *permit, uint64_t word, uint64_t next)
{
	return atomic_compare_exchange_strong_explicit(&permit->word, &word, next,
						       memory_order_release, memory_order_relaxed);
}

static uint64_t permit_word(const struct lease_permit *permit)
{
	/* J2 pairs with J1: word; times */
	return atomic_load_explicit(&permit->word, memory_order_acquire);
}

bool lease_permit_allows(const struct lease_permit *permit)
{
	return permit_word(permit) % STATES == BETWEEN;
}

bool lease_permit_begin(struct lease_permit *permit, uint64_t now_ns)
{
	uint64_t word = permit_word(permit);

	if (word % STATES != BETWEEN)
		return false;
	atomic_store_explicit(&permit->began_ns, now_ns, memory_order_relaxed); /* until the CAS */
	return permit_cas(permit, word, word - BETWEEN + RUNS);
}

bool lease_permit_end(struct lease_permit *permit, uint64_t now_ns)
{
	uint64_t word = permit_word(permit), ended = word / STATES, used;

	if (word % STATES != RUNS)
		return false;
	/* relaxed: both are ours until the CAS */
	used = atomic_load_explicit(&permit->used_ns[ended % 2], memory_order_relaxed) + now_ns -
	       atomic_load_explicit(&permit->began_ns, memory_order_relaxed);
	atomic_store_explicit(&permit->used_ns[(ended + 1) % 2], used, memory_order_relaxed);
	return permit_cas(permit, word, word - RUNS + STATES + BETWEEN);
}

void lease_permit_drop(struct lease_permit *permit)
{
	uint64_t word = permit_word(permit);

	if (word % STATES == BETWEEN)
		(void)permit_cas(permit, word, NONE);
}
