#include "ds/chain/chain.h"

#include "base/bits.h"
#include "base/crc32c.h"

#include <string.h>

/* -------- keys -------- */

static uint64_t hash_fold(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

struct chain_key chain_key(const void *ptr, uint32_t len, uint64_t seed)
{
	const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15), mix = UINT64_C(0xd6e8feb86659fd93);
	const uint8_t *at = ptr;
	uint64_t hash = hash_fold(seed ^ odd, len ^ mix), word;
	uint32_t left = len;

	for (; left >= 8; left -= 8, at += 8) {
		memcpy(&word, at, 8);
		hash = hash_fold(hash ^ word, odd ^ mix) + word;
	}
	if (left) {
		word = 0;
		if (len >= 8) { /* without a copy of variable length */
			memcpy(&word, at + left - 8, 8);
			word >>= 64 - 8 * left;
		} else {
			memcpy(&word, at, left);
		}
		hash = hash_fold(hash ^ word, odd ^ mix) + word;
	}
	return (struct chain_key){ .ptr = ptr, .len = len, .hash = hash_fold(hash ^ odd, mix) };
}

/* -------- entries -------- */

static uint32_t entry_crc(const void *buf, uint64_t n)
{
	const size_t from = offsetof(struct heap_entry, version);

	return crc32c(0, (const uint8_t *)buf + from, n - from);
}

uint32_t chain_key_crc(const struct heap_entry *entry, const void *key)
{
	return crc32c(entry_crc(entry, sizeof(*entry)), key, entry->key_len);
}

void chain_entry_write(void *buf, const struct heap_entry *head, const struct chain_key *key,
		       const void *value)
{
	struct heap_entry entry = *head;
	uint64_t n = sizeof(entry) + key->len + head->len;
	uint8_t *bytes = buf;

	entry.magic = ENTRY_MAGIC;
	entry.hash = key->hash;
	entry.key_len = (uint16_t)key->len;
	memcpy(bytes + sizeof(entry), key->ptr, key->len);
	entry.crc = crc32c_copy(chain_key_crc(&entry, key->ptr), bytes + sizeof(entry) + key->len,
				value, head->len);
	memset(bytes + n, 0, chain_entry_bytes(key->len, head->len) - n);
	memcpy(bytes, &entry, sizeof(entry));
}

bool chain_header_check(const struct heap_entry *entry, struct chain_at at)
{
	return entry->magic == ENTRY_MAGIC &&
	       (entry->version & HEAD_VERSION_MASK) == head_version(at.word) &&
	       entry->bucket == at.bucket && entry->key_len > 0 && entry->key_len <= HEAP_KEY_MAX &&
	       entry->len <= UINT32_MAX &&
	       ((entry->flags & ENTRY_DELETED) != 0) == ((at.word & HEAD_DELETED) != 0);
}

enum chain_found chain_entry_check(const void *buf, uint64_t n, struct chain_at at,
				   const struct chain_key *key, bool whole)
{
	struct heap_entry entry;
	uint64_t bytes;

	if (n < sizeof(entry))
		return CHAIN_SHORT;
	memcpy(&entry, buf, sizeof(entry));
	if (!chain_header_check(&entry, at))
		return CHAIN_TORN;
	bytes = sizeof(entry) + entry.key_len + (whole ? entry.len : 0);
	if (n < bytes)
		return CHAIN_SHORT;
	if (whole && entry_crc(buf, bytes) != entry.crc)
		return CHAIN_TORN;
	if (key && (entry.hash != key->hash || entry.key_len != key->len ||
		    memcmp((const uint8_t *)buf + sizeof(entry), key->ptr, key->len) != 0))
		return CHAIN_OTHER;
	return CHAIN_OK;
}

/* -------- cells -------- */

static uint32_t cell_crc(const struct heap_cell *cell, uint64_t word, const struct chain_key *key)
{
	const uint64_t words[] = { word, cell->version };
	uint32_t n = cell->len <= HEAP_INLINE_MAX ? cell->len : sizeof(uint64_t);
	uint8_t last[sizeof(cell->len) + HEAP_INLINE_MAX];

	memcpy(last, &cell->len, sizeof(cell->len));
	memcpy(last + sizeof(cell->len), cell->value, n);
	return crc32c(crc32c(crc32c(0, words, sizeof(words)), key->ptr, key->len), last,
		      sizeof(cell->len) + n);
}

uint32_t chain_cell_write(struct heap_cell *cell, uint64_t word, const struct chain_key *key,
			  const struct chain_value *value)
{
	bool fits = value->len <= HEAP_INLINE_MAX;

	*cell = (struct heap_cell){
		.version = value->version,
		.len = fits ? (uint16_t)value->len : HEAP_CELL_NO_VALUE,
		.tag = chain_cell_tag(key),
	};
	if (!fits)
		memcpy(cell->value, &value->len, sizeof(value->len));
	else if (value->len)
		memcpy(cell->value, value->ptr, value->len);
	cell->crc = cell_crc(cell, word, key);
	return (uint32_t)(offsetof(struct heap_cell, value) +
			  (fits ? align_up(value->len, 8) : sizeof(value->len)));
}

uint64_t chain_cell_value_len(const struct heap_cell *cell)
{
	uint64_t len = cell->len;

	if (cell->len == HEAP_CELL_NO_VALUE)
		memcpy(&len, cell->value, sizeof(len));
	return len;
}

bool chain_cell_check(const struct heap_cell *cell, uint64_t word, const struct chain_key *key)
{
	return (cell->version & HEAD_VERSION_MASK) == head_version(word) &&
	       cell->tag == chain_cell_tag(key) &&
	       (cell->len <= HEAP_INLINE_MAX || cell->len == HEAP_CELL_NO_VALUE) &&
	       cell->crc == cell_crc(cell, word, key);
}
