#include "ds/chain/chain.h"

#include "base/bits.h"
#include "base/crc32c.h"

#include <string.h>

/* -------- entries -------- */

static uint32_t entry_crc(const void *buf, uint64_t n)
{
	const size_t from = offsetof(struct heap_entry, version);

	return crc32c(0, (const uint8_t *)buf + from, n - from);
}

uint32_t chain_key_crc(const struct heap_entry *entry, const void *key)
{
	const size_t from = offsetof(struct heap_entry, version);
	const struct crc32c_run runs[] = {
		{ (const uint8_t *)entry + from, sizeof(*entry) - from },
		{ key, entry->key_len },
	};

	return crc32c_runs(runs, ARRAY_LEN(runs));
}

void chain_entry_write(void *buf, const struct heap_entry *head, const struct chain_key *key,
		       const void *value)
{
	struct heap_entry entry = *head;
	uint64_t n = sizeof(entry) + key->len;
	uint8_t *bytes = buf;

	entry.magic = ENTRY_MAGIC;
	entry.hash = key->hash;
	entry.key_len = (uint16_t)key->len;
	memcpy(bytes + sizeof(entry), key->ptr, key->len);
	entry.crc = crc32c_copy(chain_key_crc(&entry, key->ptr), bytes + n, value, head->len);
	memset(bytes + n + head->len, 0, chain_entry_bytes(key->len, head->len) - n - head->len);
	memcpy(bytes, &entry, sizeof(entry));
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

/* Piece by piece: bytes that were just put together by short stores are slow to load. */
static uint32_t cell_crc(const struct heap_cell *cell, uint64_t word, const struct chain_key *key)
{
	const uint64_t words[] = { word, cell->version };
	uint32_t n = cell->len <= HEAP_INLINE_MAX ? cell->len : sizeof(uint64_t);
	const struct crc32c_run runs[] = {
		{ words, sizeof(words) },
		{ key->ptr, key->len },
		{ &cell->len, sizeof(cell->len) },
		{ cell->value, n },
	};

	return crc32c_runs(runs, ARRAY_LEN(runs));
}

uint32_t chain_cell_write(struct heap_cell *cell, uint64_t word, const struct chain_key *key,
			  const struct chain_value *value)
{
	bool fits = value->len <= HEAP_INLINE_MAX;
	uint64_t bytes = fits ? align_up(value->len, 8) : sizeof(value->len);

	cell->version = value->version;
	cell->len = fits ? (uint16_t)value->len : HEAP_CELL_NO_VALUE;
	cell->tag = chain_cell_tag(key);
	if (fits)
		memset(cell->value, 0, bytes);
	if (!fits)
		memcpy(cell->value, &value->len, sizeof(value->len));
	else if (value->len)
		memcpy(cell->value, value->ptr, value->len);
	cell->crc = cell_crc(cell, word, key);
	return (uint32_t)(offsetof(struct heap_cell, value) + bytes);
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
