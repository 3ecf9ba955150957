/*
 * find.h - private to ds/heap: where a key is, by its cursor or by a look at its buckets, and the
 * entry that a head word names.
 *
 * Thread: owner, for all.
 */
#ifndef RLV_DS_HEAP_FIND_H
#define RLV_DS_HEAP_FIND_H

#include "ds/heap/access.h"

#define HEAP_RECORDS_AT_ONCE 8u

/* A key's bucket, as a look found it. */
struct heap_found {
	uint32_t bucket;
	uint64_t word;    /* 0: the key is nowhere, and the bucket is free */
	uint64_t version; /* 0: not known yet */
	bool has_cell;    /* the cell is the head word's and the key's */
	struct heap_cell cell;
};

static inline struct chain_at heap_found_at(const struct heap_found *found)
{
	return (struct chain_at){ found->word, found->bucket };
}

void heap_found_set(struct heap_found *found, uint32_t bucket, const struct heap_head *head,
		    const struct chain_key *key);

/* Finds the key and its version. -ENOSPC: it is nowhere, and no bucket is free for it; -EAGAIN,
   -EBADMSG as heap_torn. Cost: 1 RT if the cursor is warm and the cell valid. */
RLV_MUST_CHECK int heap_find(struct heap_access *acc, const struct chain_key *key,
			     struct heap_found *found);

static inline struct heap_cursor *heap_cursor_of(const struct heap_access *acc,
						 const struct chain_key *key)
{
	return &acc->cursors[key->hash % HEAP_CURSORS];
}

static inline bool heap_cursor_is_of(const struct heap_cursor *cursor, const struct chain_key *key)
{
	return cursor->word && cursor->hash == key->hash;
}

/*
 * A guess says where a key was last: a head word with, in place of the version, the distance of its
 * bucket from the first one that may be the key's, and the number of lines of its entry that a get
 * fetches into the cache together with the head; 0 = none.
 */
static inline uint64_t *heap_guess_of(const struct heap_access *acc, const struct chain_key *key)
{
	return &acc->guesses[key->hash % HEAP_CURSORS];
}

/* What the key's guess has in place of the version; 0 if it is another key's. */
static inline uint32_t heap_guess_place(uint64_t guess, const struct chain_key *key)
{
	return head_tag(guess) == chain_head_tag(key) ? (uint32_t)head_version(guess) : 0;
}

static inline uint32_t heap_guess_lines(uint64_t guess, const struct chain_key *key)
{
	return heap_guess_place(guess, key) % (2 * HEAP_PREFETCH_LINES);
}

static inline uint32_t heap_guess_distance(uint64_t guess, const struct chain_key *key)
{
	return heap_guess_place(guess, key) / (2 * HEAP_PREFETCH_LINES) % HEAP_PROBES;
}

/* True while guesses stand for cursors: in place a look at the buckets costs as little. */
static inline bool heap_guesses(const struct heap_access *acc)
{
	return acc->guesses && !acc->copies;
}

void heap_guess_set(const struct heap_access *acc, const struct chain_key *key, struct chain_at at,
		    uint64_t len);

/* Sets the found word's version, if the key's cursor knows it. */
bool heap_cursor_tells(const struct heap_access *acc, const struct chain_key *key,
		       struct heap_found *found);

/* Finds the key by its cursor alone, if its owner may: nobody else changes its head. */
bool heap_find_known(const struct heap_access *acc, const struct chain_key *key,
		     struct heap_found *found);

/* Sets the key's cursor or guess; len: bytes of its value. */
void heap_remember(const struct heap_access *acc, const struct chain_key *key,
		   const struct heap_found *found, uint64_t len);

/* Bytes that may be read from the place that a head word names; 0: it cannot be an entry's. */
uint64_t heap_entry_room(const struct heap_access *acc, uint64_t word, uint64_t wish);

/* Reads the entry that the head word names into the stage: all of it if `whole`, else up to its key.
   Returns an error, or enum chain_found. Cost: 1 RT, 2 if it has more than `guess` bytes. */
RLV_MUST_CHECK int heap_read_entry(struct heap_access *acc, struct chain_at at,
				   const struct chain_key *key, uint64_t guess, bool whole);

/* The entry is not the head word's. -EAGAIN: it was reused meanwhile; -EBADMSG: with a pin it is
   damaged. */
RLV_MUST_CHECK int heap_torn(struct heap_access *acc, uint32_t bucket);

/* Sets the version of what was found by its entry, unless it is known. 1 = the bucket is another key's;
   -EAGAIN, -EBADMSG as heap_torn. Cost: 1 RT. */
RLV_MUST_CHECK int heap_identify(struct heap_access *acc, struct heap_found *found,
				 const struct chain_key *key);

/* No bucket is left for a key. -ENOSPC. */
RLV_MUST_CHECK int heap_no_bucket(const struct heap *heap);

/* A head is HEAD_MOVED: tells the access's user. -EAGAIN. */
RLV_MUST_CHECK int heap_away(struct heap_access *acc);

/* One attempt of a get, by copies into the stage. */
RLV_MUST_CHECK int heap_get_once(struct heap_access *acc, const struct chain_key *key,
				 struct heap_value *out);

/* Finishes a get: sets out->deleted by the head word; then -ENOENT. */
RLV_MUST_CHECK int heap_value_found(struct heap_value *out, uint64_t word);

/* The value of a cell that is valid; it goes to the stage. */
RLV_MUST_CHECK int heap_value_of_cell(struct heap_access *acc, const struct chain_key *key,
				      const struct heap_found *found, struct heap_value *out);

/*
 * Gets in place: the head word, then its entry, copied and checked in one pass; the value goes to *room
 * if it fits, or else to the stage. As heap_get; -EAGAIN: it was replaced meanwhile, or is damaged.
 */
RLV_MUST_CHECK int heap_get_in_place(struct heap_access *acc, const struct chain_key *key,
				     const struct heap_room *room, struct heap_value *out);

#endif
