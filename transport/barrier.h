/*
 * Named orderings. Code of ds/ and client/ uses no bare fence and no plain access to remote words:
 * each helper has one narrow use, and docs/memory-model.md lists both ends of every edge.
 *
 * Under TSan the copies of rows, which race by design, become relaxed 8-byte atomics, and the
 * fence before the second look at a leaf becomes an acquire read-modify-write that TSan can see.
 */
#ifndef RLV_TRANSPORT_BARRIER_H
#define RLV_TRANSPORT_BARRIER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "wire/le.h"

#if defined(__SANITIZE_THREAD__)
#define BARRIER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BARRIER_TSAN 1
#endif
#endif
#ifndef BARRIER_TSAN
#define BARRIER_TSAN 0
#endif

static_assert(sizeof(_Atomic uint64_t) == 8 && ATOMIC_LLONG_LOCK_FREE == 2,
	      "8-byte atomics must be lock-free: other processes map the same words");

static inline _Atomic uint64_t *rword64_atomic(const struct rword64 *word)
{
	return (_Atomic uint64_t *)(uintptr_t)&word->raw;
}

/* Hint or counter: nothing is published by it. */
static inline uint64_t rword64_load_relaxed(const struct rword64 *word)
{
	return atomic_load_explicit(rword64_atomic(word), memory_order_relaxed);
}

/* First look at a leaf, header or epoch: what its writer stored before is visible after. */
static inline uint64_t rword64_load_acquire(const struct rword64 *word)
{
	return atomic_load_explicit(rword64_atomic(word), memory_order_acquire);
}

/*
 * An announcement and the look that must come after it (ds/part/epoch.h): both, the rebuilder's swap of
 * the epoch word and its look at the announcements stand in one total order. The word announced in
 * is a target of stores only.
 */
static inline void rword64_announce(const struct rword64 *word, uint64_t value)
{
	atomic_store_explicit(rword64_atomic(word), value, memory_order_seq_cst);
}

static inline uint64_t rword64_load_ordered(const struct rword64 *word)
{
	return atomic_load_explicit(rword64_atomic(word), memory_order_seq_cst);
}

/*
 * Changes in place, for regions of which transport_changes_in_place() says yes: the same
 * instructions and orders as transport_cas and transport_faa, without a vector around them.
 * True, or false and *expected_inout is what the word holds.
 */
static inline bool rword64_cas(const struct rword64 *word, uint64_t *expected_inout, uint64_t value)
{
	return atomic_compare_exchange_strong_explicit(rword64_atomic(word), expected_inout, value,
						       memory_order_acq_rel, memory_order_acquire);
}

/*
 * Two neighbours at once, both or none, where BARRIER_PAIRS: word[0] is 16-aligned, and the CPU has
 * the instruction (cpu_has_cas16). It locks the line, as the CAS of one word does.
 */
#if defined(__x86_64__) && !BARRIER_TSAN
#define BARRIER_PAIRS 1
static inline bool rword64_cas_pair(const struct rword64 *word, const uint64_t expected[2],
				    const uint64_t value[2])
{
	struct rword64 *pair = (struct rword64 *)(uintptr_t)word;
	uint64_t low = expected[0], high = expected[1];
	bool done;

	__asm__ volatile("lock cmpxchg16b %1"
			 : "=@ccz"(done), "+m"(*(struct rword64(*)[2])pair), "+a"(low), "+d"(high)
			 : "b"(value[0]), "c"(value[1])
			 : "memory");
	return done;
}
#else
#define BARRIER_PAIRS 0
static inline bool rword64_cas_pair(const struct rword64 *word, const uint64_t expected[2],
				    const uint64_t value[2])
{
	(void)word, (void)expected, (void)value;
	return false;
}
#endif

static inline void rword64_add(const struct rword64 *word, uint64_t value)
{
	atomic_fetch_add_explicit(rword64_atomic(word), value, memory_order_acq_rel);
}

/*
 * Copies n bytes (a multiple of 8, both ends 8-aligned) that the other side may be changing. The
 * only place with that race; what was copied means nothing before transport_read_validate().
 */
static inline void transport_copy_racy(void *dst, const void *src, size_t n)
{
#if BARRIER_TSAN
	for (size_t i = 0; i < n / 8; i++) {
		uint64_t word = atomic_load_explicit((const _Atomic uint64_t *)src + i,
						     memory_order_relaxed);
		atomic_store_explicit((_Atomic uint64_t *)dst + i, word, memory_order_relaxed);
	}
#else
	memcpy(dst, src, n);
	atomic_signal_fence(memory_order_seq_cst);
#endif
}

/*
 * After a large READ by copies: what comes next looks after it, as it does after a small one, whose
 * loads are acquires. x86 keeps the order of loads anyway.
 */
static inline void transport_read_done(void)
{
#if !BARRIER_TSAN
	atomic_thread_fence(memory_order_acquire);
#endif
}

/*
 * The same for any n and any ends: a column of a row. The 8-byte words that src touches lie inside
 * the row. dst is the caller's own.
 */
static inline void transport_copy_racy_bytes(void *dst, const void *src, size_t n)
{
#if BARRIER_TSAN
	const uint8_t *from = (const uint8_t *)src;
	uint8_t *to = (uint8_t *)dst;

	while (n) {
		size_t skip = (uintptr_t)from & 7, part = 8 - skip < n ? 8 - skip : n;
		uint64_t word = atomic_load_explicit((const _Atomic uint64_t *)(from - skip),
						     memory_order_relaxed);

		memcpy(to, (const uint8_t *)&word + skip, part);
		from += part;
		to += part;
		n -= part;
	}
#else
	memcpy(dst, src, n);
#endif
}

/*
 * Second look at a leaf, after the rows were copied: the copies are performed before it (rule 5).
 */
static inline uint64_t transport_read_validate(const struct rword64 *leaf)
{
#if BARRIER_TSAN
	return atomic_fetch_add_explicit(rword64_atomic(leaf), 0, memory_order_acq_rel);
#else
	atomic_thread_fence(memory_order_acquire);
	return rword64_load_relaxed(leaf);
#endif
}

/*
 * Between the claim of a block's leaves and the first row store (rule 5): a later store must not
 * pass the claims' CAS.
 */
static inline void transport_claim_before_rows(void)
{
#if !BARRIER_TSAN
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

#endif
