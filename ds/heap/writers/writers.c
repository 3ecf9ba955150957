#include "ds/heap/writers/writers.h"

#include "ds/part/wr_list.h"

#include <errno.h>
#include <string.h>

#define LOST_OFF \
	(HEAP_WORDS_OFF + offsetof(struct heap_words, line) + offsetof(struct heap_line, lost))
#define KEYS_OFF (HEAP_WORDS_OFF + offsetof(struct heap_words, keys))
#define MOST_LOOKS 64u
#define LOOK_AGAIN 2

/* -------- the line -------- */

static int line_is_old(const struct heap_copies *copies, uint64_t lost)
{
	if (lost & copies->line)
		return error_set(-EAGAIN, "heap %s: a copy of the key's part was lost",
				 copies->at[0]->desc.name);
	return 0;
}

int heap_writers_check(const struct heap_copies *copies, struct heap *copy)
{
	uint64_t lost;
	int ret = transport_load(copy->tree, LOST_OFF, &lost);

	return ret ? ret : line_is_old(copies, lost);
}

/* Says in the copy which others are lost. */
static int line_tell(const struct heap_copies *copies, struct heap *copy, uint64_t lost)
{
	uint64_t word, old;
	int ret = transport_load(copy->tree, LOST_OFF, &word);

	if (ret == 0)
		ret = line_is_old(copies, word);
	if (ret || (word & lost) == lost)
		return ret;
	ret = transport_cas_word(copy->tree, LOST_OFF, word, word | lost, &old);
	if (ret == 0 && old != word)
		ret = error_set(-EAGAIN, "heap %s: other clients learn of a loss, too",
				copy->desc.name);
	return ret;
}

int heap_writers_join(struct heap_writers *writers, const struct heap_copies *copies,
		      struct heap_access *const *at)
{
	uint64_t all = (UINT64_C(1) << copies->at[0]->desc.copies) - 1;
	int ret = 0;

	if (copies->n_all > HEAP_COPIES_MAX || (copies->line & ~all))
		return error_set(-EPROTO,
				 "heap %s: copies were added to a part with several writers",
				 copies->at[0]->desc.name);
	for (uint32_t i = 0; ret == 0 && i < copies->n_all; i++)
		ret = line_tell(copies, copies->at[i], all & ~copies->line);
	if (ret)
		return ret;
	writers->copies = copies;
	for (uint32_t i = 0; i < copies->n_all; i++)
		writers->at[i] = at[i];
	wait_set_begin(&writers->wait);
	at[0]->writers = writers;
	at[0]->copies = at[0]->space.copies = copies;
	at[0]->space.restless = copies->line != all;
	return 0;
}

void heap_writers_leave(struct heap_access *acc)
{
	acc->writers = NULL;
	acc->copies = acc->space.copies = NULL;
	acc->space.stays = true;
}

/* -------- look -------- */

/* Reads n heads of copy i behind its pin; over a wire they are under way. */
static int look_begin(struct heap_writers *writers, uint32_t i, uint32_t bucket, uint32_t n)
{
	uint32_t bytes = n * (uint32_t)sizeof(writers->heads[i][0]), first = 0;
	struct transport_wr *wrs = writers->wrs[i];
	struct heap_access *acc = writers->at[i];
	struct region *tree = acc->heap->tree;
	uint64_t off = heap_head_off(acc->heap, bucket);
	int ret;

	if (acc->in_place) {
		ret = acc->pinned ? 0 : heap_access_announce(acc);
		if (ret == 0)
			ret = transport_load(tree, LOST_OFF, &writers->lost[i]);
		return ret ? ret : transport_fetch(tree, off, writers->heads[i], bytes);
	}
	if (acc->pinned)
		first = 2;
	else
		heap_access_begin_pin(acc, wrs);
	wrs[2] = wr_read(tree, LOST_OFF, &writers->lost[i], sizeof(writers->lost[i]));
	wrs[3] = wr_read(tree, off, writers->heads[i], bytes);
	wait_set_chain(&writers->wait, tree->tr, wrs + first, 4 - first);
	return 0;
}

static int look(struct heap_access *acc, uint32_t bucket, uint32_t n)
{
	struct heap_writers *writers = acc->writers;
	uint64_t lost = 0;
	int begun = 0, ret;

	wait_set_begin(&writers->wait);
	for (uint32_t i = 0; begun == 0 && i < writers->copies->n_all; i++)
		begun = look_begin(writers, i, bucket, n);
	ret = wait_set_wait(&writers->wait);
	if (begun || ret)
		return begun ? begun : ret;
	for (uint32_t i = 0; i < writers->copies->n_all; i++)
		lost |= writers->lost[i];
	ret = line_is_old(writers->copies, lost);
	acc->away |= ret != 0;
	return ret;
}

/* True if version a is b, or newer: they differ by few. */
static bool head_is_ahead(uint64_t a, uint64_t b)
{
	return ((head_version(a) - head_version(b)) & HEAD_VERSION_MASK) <= HEAD_VERSION_MASK / 2;
}

/*
 * What the last copy has in record k, the others get, from the back: first the entry, then the head. LOOK_AGAIN; 1:
 * the bucket is another key's.
 */
static int level(struct heap_access *acc, uint32_t k, uint32_t bucket, const struct chain_key *key)
{
	struct heap_writers *writers = acc->writers;
	uint32_t i = writers->copies->n_all - 1;
	struct heap_access *last = writers->at[i];
	struct copies_put put = { .bucket = bucket, .to = writers->heads[i][k].word.raw };
	struct heap_found found;
	struct heap_entry entry;
	uint64_t old;
	int ret = heap_read_entry(last, (struct chain_at){ put.to, bucket }, key, 0, true);

	if (ret != CHAIN_OK)
		return ret < 0 ? ret : ret == CHAIN_OTHER ? 1 : LOOK_AGAIN;
	memcpy(&entry, last->stage, sizeof(entry));
	put.entry = last->stage;
	put.bytes = (uint32_t)chain_entry_bytes(entry.key_len, entry.len);
	for (ret = 0; ret == 0 && i-- > 0;) {
		put.from = writers->heads[i][k].word.raw;
		if (put.from == put.to)
			continue;
		if (head_is_ahead(put.from, put.to))
			break; /* others went on */
		ret = heap_put_entry(writers->copies->at[i], &put, &old);
		if (ret == 0 && old != put.from && old != put.to)
			break;
	}
	found = (struct heap_found){ .bucket = bucket, .word = put.to, .version = entry.version };
	heap_remember(acc, key, &found, entry.len);
	return ret ? ret : LOOK_AGAIN;
}

/* Judges record k of the last look. 1: the bucket is another key's. */
static int judge(struct heap_access *acc, uint32_t k, uint32_t bucket, const struct chain_key *key,
		 struct heap_found *found)
{
	struct heap_writers *writers = acc->writers;
	uint32_t last = writers->copies->n_all - 1;
	uint64_t word = writers->heads[last][k].word.raw;

	if (word && head_tag(word) != chain_head_tag(key))
		return 1;
	for (uint32_t i = 0; i < last; i++)
		if (writers->heads[i][k].word.raw != word)
			return word ? level(acc, k, bucket, key) : LOOK_AGAIN;
	heap_found_set(found, bucket, &writers->heads[0][k], key);
	if (!found->word || found->version || heap_cursor_tells(acc, key, found))
		return 0;
	return heap_identify(acc, found, key);
}

/* From the key's first bucket on. */
static int probe(struct heap_access *acc, const struct chain_key *key, struct heap_found *found)
{
	uint32_t first = chain_place(key->hash, acc->heap->desc.buckets);
	uint32_t at_once = acc->in_place ? 1 : HEAP_RECORDS_AT_ONCE;

	for (uint32_t i = 0; i < HEAP_PROBES; i++) {
		int ret = i % at_once == 0 ? look(acc, first + i, at_once) : 0;

		if (ret == 0)
			ret = judge(acc, i % at_once, first + i, key, found);
		if (ret != 1)
			return ret;
	}
	*found = (struct heap_found){ 0 };
	return heap_no_bucket(acc->heap);
}

static int find_once(struct heap_access *acc, const struct chain_key *key, struct heap_found *found)
{
	struct heap_cursor *cursor = heap_cursor_of(acc, key);
	int ret;

	if (heap_cursor_is_of(cursor, key)) {
		ret = look(acc, cursor->bucket, 1);
		if (ret == 0)
			ret = judge(acc, 0, cursor->bucket, key, found);
		if (ret != 1 && (ret != 0 || found->word))
			return ret;
		cursor->word = 0; /* another key of that hash */
	}
	return probe(acc, key, found);
}

int heap_writers_find(struct heap_access *acc, const struct chain_key *key,
		      struct heap_found *found)
{
	int ret = LOOK_AGAIN;

	for (uint32_t i = 0; ret == LOOK_AGAIN && i < MOST_LOOKS; i++)
		ret = find_once(acc, key, found);
	if (ret == LOOK_AGAIN)
		ret = error_set(-EAGAIN, "put: other clients changed the key %u times", MOST_LOOKS);
	return ret;
}

/* -------- put -------- */

/* The put was decided in the last copy. */
static int follow(struct heap_access *acc, struct heap *copy, const struct copies_put *put)
{
	uint64_t old;
	int ret = heap_put_entry(copy, put, &old);

	if (ret || old == put->from || old == put->to)
		return ret;
	if (head_version(old) == head_version(put->to)) {
		/* Another one of that version was decided here: those behind are lost. */
		acc->in_doubt = false;
		acc->away = true;
		return error_set(-EAGAIN, "heap %s: a copy of the key's part was lost",
				 copy->desc.name);
	}
	if (!head_is_ahead(old, put->to))
		return error_set(-EIO, "heap %s: copy %u of bucket %u has another head",
				 copy->desc.name, copy->part.number, put->bucket);
	/* A helper has done it, and others went on; or they did without it, after a loss. */
	ret = heap_writers_check(acc->copies, copy);
	return ret == -EAGAIN
		       ? error_set(-EIO, "put: a copy was lost: whether it was done is not known")
		       : ret;
}

int heap_writers_put(struct heap_access *acc, const struct copies_put *put, bool *won_out)
{
	const struct heap_copies *copies = acc->copies;
	uint32_t i = copies->n_all - 1;
	uint64_t old;
	int ret = heap_put_entry(copies->at[i], put, &old);

	*won_out = ret == 0 && old == put->from;
	while (*won_out && ret == 0 && i-- > 0)
		ret = follow(acc, copies->at[i], put);
	return ret;
}

/* -------- pins -------- */

void heap_writers_unpin(struct heap_access *acc, bool new_key)
{
	for (uint32_t i = 1; i < acc->writers->copies->n_all; i++) {
		struct heap_access *copy = acc->writers->at[i];
		struct region *tree = copy->heap->tree;
		struct heap_tail *tail;
		uint64_t old;
		int ret;

		if (new_key && copy->in_place && transport_faa_word(tree, KEYS_OFF, 1, &old))
			error_clear(); /* a hint */
		if (!new_key || copy->in_place) {
			ret = heap_access_unpin(copy, 0);
		} else {
			ret = heap_access_tail(copy, &tail);
			tail->wrs[0] = wr_add(tree, KEYS_OFF, 1);
			if (ret == 0)
				ret = heap_access_send(copy, tail, 1);
		}
		if (ret)
			error_clear(); /* an old pin is safe, and the next one replaces it */
	}
}
