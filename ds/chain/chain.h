/*
 * Chain: the versions of one key. The head word names the newest entry, each entry the head word
 * that it replaced (prev). Nothing here leaves this process: it makes and checks the bytes of
 * entries and cells (wire/heap_layout.h). All bytes to be checked are untrusted.
 */
#ifndef RLV_DS_CHAIN_CHAIN_H
#define RLV_DS_CHAIN_CHAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "wire/heap_layout.h"

/* A key, 1 to HEAP_KEY_MAX bytes, which the caller keeps valid. */
struct chain_key {
	const void *ptr;
	uint32_t len;
	uint64_t hash;
};

static inline uint64_t chain_fold(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline struct chain_key chain_key(const void *ptr, uint32_t len, uint64_t seed)
{
	const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15), mix = UINT64_C(0xd6e8feb86659fd93);
	const uint8_t *at = ptr;
	uint64_t hash = chain_fold(seed ^ odd, len ^ mix), word;
	uint32_t left = len;

	for (; left >= 8; left -= 8, at += 8) {
		memcpy(&word, at, 8);
		hash = chain_fold(hash ^ word, odd ^ mix) + word;
	}
	if (left) {
		word = 0;
		if (len >= 8) { /* without a copy of variable length */
			memcpy(&word, at + left - 8, 8);
			word >>= 64 - 8 * left;
		} else {
			memcpy(&word, at, left);
		}
		hash = chain_fold(hash ^ word, odd ^ mix) + word;
	}
	return (struct chain_key){ .ptr = ptr, .len = len, .hash = chain_fold(hash ^ odd, mix) };
}

/* Bits of the key's hash that the head word and the cell have. */
static inline uint32_t chain_head_tag(const struct chain_key *key)
{
	return (uint32_t)key->hash & HEAD_TAG_MASK;
}

static inline uint16_t chain_cell_tag(const struct chain_key *key)
{
	return (uint16_t)(key->hash >> 7);
}

/* A value at 0 <= number < n from the upper bits of a hash: the first bucket of a key. */
static inline uint32_t chain_place(uint64_t hash, uint32_t n)
{
	return (uint32_t)((unsigned __int128)hash * n >> 64);
}

/* The part that has the key, of n. */
static inline uint32_t chain_part(uint64_t hash, uint32_t n)
{
	return chain_place(hash * UINT64_C(0x9e3779b97f4a7c15), n);
}

/* -------- entries -------- */

/* Bytes of an entry, padding included: a multiple of 8. */
static inline uint64_t chain_entry_bytes(uint32_t key_len, uint64_t value_len)
{
	return (sizeof(struct heap_entry) + key_len + value_len + 7) & ~UINT64_C(7);
}

/* Writes the entry to buf, of chain_entry_bytes. head: its key_len, hash, magic and crc are set
   here, the other fields by the caller. */
void chain_entry_write(void *buf, const struct heap_entry *head, const struct chain_key *key,
		       const void *value);

enum chain_found {
	CHAIN_OK,
	CHAIN_TORN,  /* not the entry that the head word names, or damaged */
	CHAIN_OTHER, /* the head word's, but of another key */
	CHAIN_SHORT, /* buf does not have all of it: entry->len says how much there is */
};

/* What names an entry: the head word of its bucket. */
struct chain_at {
	uint64_t word;
	uint32_t bucket;
};

/*
 * Checks n bytes as the beginning of the entry that the head word names, and, if `whole`, its
 * checksum. key NULL: any key. Up to CHAIN_OTHER, key and value lie within n bytes.
 */
enum chain_found chain_entry_check(const void *buf, uint64_t n, struct chain_at at,
				   const struct chain_key *key, bool whole);

/* True if the header may be that of the entry that the head word names. */
static inline bool chain_header_check(const struct heap_entry *entry, struct chain_at at)
{
	return entry->magic == ENTRY_MAGIC &&
	       (entry->version & HEAD_VERSION_MASK) == head_version(at.word) &&
	       entry->bucket == at.bucket && entry->key_len > 0 && entry->key_len <= HEAP_KEY_MAX &&
	       entry->len <= UINT32_MAX &&
	       ((entry->flags & ENTRY_DELETED) != 0) == ((at.word & HEAD_DELETED) != 0);
}

/* The checksum over header and key, to go on with that of the value. */
uint32_t chain_key_crc(const struct heap_entry *entry, const void *key);

/* -------- cells -------- */

struct chain_value {
	uint64_t version;
	const void *ptr;
	uint64_t len;
};

/* Writes the cell of the new head word, with the value if that is small enough; returns the number
   of its bytes that matter, a multiple of 8: no others are written. */
uint32_t chain_cell_write(struct heap_cell *cell, uint64_t word, const struct chain_key *key,
			  const struct chain_value *value);

/* True if the cell is that of the word and the key. */
bool chain_cell_check(const struct heap_cell *cell, uint64_t word, const struct chain_key *key);

/* Bytes of the version's value, of a cell that was checked. */
uint64_t chain_cell_value_len(const struct heap_cell *cell);

#endif
