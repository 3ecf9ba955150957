/*
 * Named orderings. Code of ds/ and client/ uses no bare fence and no plain access to remote words:
 * each helper has one narrow use, and docs/memory-model.md lists both ends of every edge.
 *
 * Under TSan the copies of rows, which race by design, become relaxed 8-byte atomics, and the fence
 * before the second read of a leaf becomes an acquire read-modify-write that TSan can see.
 */
#ifndef RLV_TRANSPORT_BARRIER_H
#define RLV_TRANSPORT_BARRIER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "wire/le.h"

#include "base/crc32c.h"

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

/* Relaxed load, for hints and counters that publish nothing. */
static inline uint64_t rword64_load_relaxed(const struct rword64 *word)
{
	return atomic_load_explicit(rword64_atomic(word), memory_order_relaxed);
}

/* First read of a leaf, header or epoch: its writer's earlier stores are visible afterwards. */
static inline uint64_t rword64_load_acquire(const struct rword64 *word)
{
	return atomic_load_explicit(rword64_atomic(word), memory_order_acquire);
}

/*
 * Announces an epoch pin before the epoch word is read again (ds/part/epoch.h). This store, that
 * read, the rebuilder's swap of the epoch word and its reads of the announcements have one total
 * order (seq_cst). The announcement word is a target of stores only.
 */
static inline void rword64_announce(const struct rword64 *word, uint64_t value)
{
	atomic_store_explicit(rword64_atomic(word), value, memory_order_seq_cst);
}

/*
 * The same for many words: announces each early, then rword64_announced() once, then the reads. Our
 * stores before an early announcement are visible with it.
 */
static inline void rword64_announce_early(const struct rword64 *word, uint64_t value)
{
#if BARRIER_TSAN
	rword64_announce(word, value);
#else
	atomic_store_explicit(rword64_atomic(word), value, memory_order_release);
#endif
}

static inline void rword64_announced(void)
{
#if !BARRIER_TSAN
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Withdraws an announcement: our stores and additions before it are visible with it. */
static inline void rword64_withdraw(const struct rword64 *word, uint64_t value)
{
	atomic_store_explicit(rword64_atomic(word), value, memory_order_release);
}

static inline uint64_t rword64_load_ordered(const struct rword64 *word)
{
	return atomic_load_explicit(rword64_atomic(word), memory_order_seq_cst);
}

/*
 * CAS in place, for regions where transport_changes_in_place() is true: the same instructions and
 * orders as transport_cas and transport_faa, without a vector. Returns false if the word differs;
 * *expected_inout is then its value.
 */
static inline bool rword64_cas(const struct rword64 *word, uint64_t *expected_inout, uint64_t value)
{
	return atomic_compare_exchange_strong_explicit(rword64_atomic(word), expected_inout, value,
						       memory_order_acq_rel, memory_order_acquire);
}

/*
 * CAS of two adjacent words, both or none, where BARRIER_PAIRS is defined. word[0] is 16-aligned
 * and the CPU has the instruction (cpu_has_cas16). It locks the cache line, as the CAS of one word
 * does.
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

/* Returns the word before. */
static inline uint64_t rword64_add(const struct rword64 *word, uint64_t value)
{
	return atomic_fetch_add_explicit(rword64_atomic(word), value, memory_order_acq_rel);
}

/*
 * Copies n bytes (a multiple of 8, both ends 8-aligned) that a writer may be changing. The copy may
 * be torn: it counts only if transport_read_validate() then finds the leaf unchanged.
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
 * Acquire fence after a large READ made by copies: later loads come after it, as they do after a
 * small READ, whose loads are acquires. x86 keeps the order of loads anyway.
 */
static inline void transport_read_done(void)
{
#if !BARRIER_TSAN
	atomic_thread_fence(memory_order_acquire);
#endif
}

/*
 * transport_copy_racy for any n and alignment, for one column of a row. The 8-byte words that src
 * touches lie inside the row. dst is private to the caller.
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

/* True if n bytes that a writer may be changing were equal to ours. Their 8-byte words lie inside the row. */
static inline bool transport_equals_racy(const void *theirs, const void *ours, size_t n)
{
#if BARRIER_TSAN
	uint8_t part[64];

	for (size_t i = 0; i < n; i += sizeof(part)) {
		size_t bytes = n - i < sizeof(part) ? n - i : sizeof(part);

		transport_copy_racy_bytes(part, (const uint8_t *)theirs + i, bytes);
		if (memcmp(part, (const uint8_t *)ours + i, bytes) != 0)
			return false;
	}
	return true;
#else
	return memcmp(theirs, ours, n) == 0;
#endif
}

/* transport_copy_racy_bytes that also returns the checksum of what dst has then. */
static inline uint32_t transport_copy_racy_crc(uint32_t crc, void *dst, const void *src, size_t n)
{
#if BARRIER_TSAN
	transport_copy_racy_bytes(dst, src, n);
	return crc32c(crc, dst, n);
#else
	return crc32c_copy(crc, dst, src, n);
#endif
}

/* The same for a piece of a copy that does not fit into the cache of a core. */
static inline uint32_t transport_copy_racy_crc_past(void *dst, const void *src, size_t n)
{
#if BARRIER_TSAN
	return transport_copy_racy_crc(0, dst, src, n);
#else
	return crc32c_copy_past(0, dst, src, n);
#endif
}

/*
 * Returns the leaf, read a second time after its rows were copied: the copies are performed before
 * this read (rule 5).
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
 * Fence between the claim of a block's leaves and the first row store (rule 5): a later store must
 * not pass the claims' CAS.
 */
static inline void transport_claim_before_rows(void)
{
#if !BARRIER_TSAN
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

#endif
