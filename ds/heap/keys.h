/*
 * Keys: what a client does with the keys of one part.
 *
 *   get    warm: head record and entry in one read. The entry counts if the head still names it and
 *          its checksum holds; else the head says where the newest one is, and a small value is in
 *          the head's cell. Nothing is pinned: an entry that was reused meanwhile fails its checksum.
 *          After two such reads the client pins the epoch, and the third cannot fail.
 *          In place there is no cursor: the head word, then its entry, copied and checked in one pass.
 *   put    pin and read the head record | write the entry, then CAS the head word | behind it and
 *          not waited for: the cell, the count of retired entries, the end of the pin
 *
 * The CAS of the head word is the only linearization point. The pin makes it exact: an entry that
 * the put has read cannot be reused before it ends, so an equal word means that nothing happened.
 *
 * A key's bucket is the first free one of HEAP_PROBES at the time of its first put, and the key's for
 * ever: a deleted key keeps a small entry. So all clients agree on it without a lock.
 *
 * Thread: owner, for all. A part's access belongs to one handle.
 */
#ifndef RLV_DS_HEAP_KEYS_H
#define RLV_DS_HEAP_KEYS_H

#include "ds/chain/chain.h"
#include "ds/heap/space.h"

struct heap_access;
struct heap_key;
struct central_call;

#define HEAP_CURSORS 65536u /* keys whose place an access remembers */
#define HEAP_TAILS 4u

/* Where a key was last seen. */
struct heap_cursor {
	uint64_t hash;
	uint64_t word;
	uint64_t version; /* 0 = not known */
	uint32_t bucket;
	uint32_t bytes; /* of its entry; 0 = the cell has the value, or the cursor is empty */
	uint32_t check; /* crc32c of the key */
};

/* What follows a put and is not waited for. */
struct heap_tail {
	struct heap_cell cell;
	uint64_t idle;
	struct transport_wr wrs[4];
	uint64_t ticket;
};

struct heap_stats {
	uint64_t conflicts; /* puts whose CAS another one preceded */
	uint64_t rereads;   /* reads of an entry that was gone */
	uint64_t calls;     /* of the coordinator, of mode `central` */
	uint64_t cpu_ns;    /* of its process, as it said last */
};

struct heap_plane;

#define HEAP_WINDOW_BYTES ((uint64_t)16 << 20)
#define HEAP_WINDOW_LEAST ((uint64_t)4 << 10)

/* How calls of mode `central` reach its coordinator (central.h). */
struct central_link {
	int (*ask)(const struct heap_access *acc, struct central_call *call);
	void *ctx;
	uint32_t part;
};

struct heap_access {
	struct heap *heap;
	const struct heap_plane *plane; /* of its mode; NULL = clover */
	struct central_link link;
	uint32_t owner; /* 0 = only reads, and never pins */
	bool in_place;  /* clover, and the part is read by plain code on its mapping */
	bool pin_due, pinned;
	bool in_doubt;                    /* a put ended without an answer; the caller clears it */
	bool away;                        /* the part has moved; the caller clears it */
	uint64_t pin, epoch_word;         /* of the last pin, and as last read */
	const struct heap_copies *copies; /* puts go to all of them; NULL: to this part alone */
	struct heap_writers *writers; /* others put there, too; NULL: with copies, we own the part */
	struct space space;
	struct heap_cursor *cursors;
	uint64_t *guesses; /* in place, instead of cursors while we do not put into copies: find.h */
	uint8_t *stage;    /* an entry on its way in or out */
	size_t stage_bytes;
	struct heap_batch *batch; /* of heap_put_many over a wire */
	uint64_t batch_ticket;    /* of what follows it; 0 = none */
	bool fetched;             /* heap_get_many fetches the entries into the cache */
	bool holds_pin;           /* a call in place keeps its pin for further puts */
	uint8_t *large;           /* a value in chunks that was read without memory of the caller */
	struct heap_ahead *ahead; /* chunks of the value of which ranges were read last: range.c */
	uint64_t chunk_bytes;     /* put in chunks; the caller clears it */
	uint64_t window_bytes; /* of chunks under way together, over a wire; 0 = HEAP_WINDOW_BYTES */
	struct heap_tail tails[HEAP_TAILS];
	uint32_t next_tail;
	struct heap_stats stats;
};

/* Memory for a value; ptr NULL = none. What it has after an error is not defined. */
struct heap_room {
	void *ptr;
	uint64_t bytes;
};

/* A value as it was read: ptr is the caller's memory, if it has room, or else that of the access, which
   is valid until the next call with it. */
struct heap_value {
	const void *ptr;
	uint64_t len, version;
	uint64_t large; /* private: bytes of a value in chunks, of which ptr is the manifest */
	bool deleted;
	bool striped; /* ptr has a struct stripe_manifest, whole, in the place of a value */
};

/* -ENOMEM; then *acc holds nothing. */
RLV_MUST_CHECK int heap_access_open(struct heap_access *acc, struct heap *heap, uint32_t owner);
/* As if closed and opened: forgets its extents, which heap_settle has made orphans, and cursors. */
void heap_access_reset(struct heap_access *acc);
/* Waits for what is under way. */
void heap_access_close(struct heap_access *acc);

/*
 * Reads the newest version; *out also if the key is deleted (-ENOENT, out->deleted). Errors: -ENOENT
 * (no such key), -EBADMSG (its entry is damaged), -EAGAIN (without a slot: it changed each time),
 * errors of the transport. Cost: 1 RT if the cursor is warm and the head unchanged or the value small;
 * else 2, or 3 for a key that this access has not seen.
 */
RLV_MUST_CHECK int heap_get(struct heap_access *acc, const struct chain_key *key,
			    const struct heap_room *room, struct heap_value *out);

/* Bytes of a value, from `offset` on. */
struct heap_range {
	uint64_t offset, len;
};

/* How many of a range a value has. */
static inline uint64_t heap_range_in(const struct heap_range *range, uint64_t bytes)
{
	uint64_t rest = range->offset < bytes ? bytes - range->offset : 0;

	return range->len < rest ? range->len : rest;
}

/*
 * Reads those bytes of the newest version that the range has: out->ptr and out->len are theirs. Errors: as
 * heap_get. Cost: 1 RT if the cursor is warm and the head unchanged, or the cell has the value; else 2; of a
 * value in chunks 1 more for each window of those that the range is in and that are not here yet.
 */
RLV_MUST_CHECK int heap_get_range(struct heap_access *acc, const struct chain_key *key,
				  const struct heap_range *range, const struct heap_room *room,
				  struct heap_value *out);

/* The newest version's number, also of a deletion; 0 = there was none. Cost: 1 RT if the cursor is
   warm and the cell valid. */
RLV_MUST_CHECK int heap_version(struct heap_access *acc, const struct chain_key *key,
				uint64_t *version_out);

/*
 * Looks at a key of mode clover without reading a long value: out->version, also of a deletion (-ENOENT), 0 = there was
 * none; out->striped, and then the manifest. Errors: as heap_get. Cost: 1 RT if the value is small or deleted, or short and
 * the cursor warm; else 2.
 */
RLV_MUST_CHECK int heap_look(struct heap_access *acc, const struct chain_key *key,
			     struct heap_value *out);

#define HEAP_PREFETCH_LINES 32u /* of an entry; the CPU fetches the others itself */
#define HEAP_MANY 64u

/* A value in chunks that stays where it is, in the mapping of the rows region. */
struct heap_hold {
	const struct heap_manifest *manifest; /* checked; owned */
	uint64_t len, version;
	uint64_t word;  /* the hold, as the client's line has it */
	uint32_t place; /* there */
};

/*
 * Holds the newest version of a key, if it is in chunks: they are not reused until heap_hold_end, also when others
 * replace the value or the access is closed; heap_settle ends holds, too. A drain waits for them, a drop does not.
 * The bytes are not checked. *out has no manifest if the value is in one entry. For clover in place; else -ENOTSUP.
 * Errors: -EACCES (no slot), -EBUSY (all HEAP_HOLDS are in use), -ENOENT, -EBADMSG.
 */
RLV_MUST_CHECK int heap_hold(struct heap_access *acc, const struct chain_key *key,
			     struct heap_hold *out);
/* line: the client's, wherever it is mapped. Thread: any. */
void heap_hold_end(const struct heap_pin *line, const struct heap_hold *hold);

/* One key of heap_get_many, with the caller's memory for its value. */
struct heap_ask {
	struct chain_key key;
	struct heap_room room;
	struct heap_value value; /* out */
	int status;              /* out: 0, -ENOENT, -EBADMSG; -ERANGE: the value is longer */
};

/* Gets n <= HEAP_MANY keys. Errors, also of one key: those of heap_get that asks[].status has not; then
   the answers are not valid. Cost: 1 RT, if all are warm; else as heap_get for each of the others. */
RLV_MUST_CHECK int heap_get_many(struct heap_access *acc, struct heap_ask *asks, uint32_t n);

/* Fetches the key's head into the cache, in place, and so many lines of its entry if that is where this
   access saw it last. */
void heap_prefetch(const struct heap_access *acc, const struct chain_key *key, uint32_t lines);

#define HEAP_ANY_VERSION UINT64_MAX
#define HEAP_PAGED_LEAST \
	HEAP_EXTENT_LEAST /* bytes of a value that is put `paged`; shorter ones are sooner copied than mapped */

/* Bytes of a value that lies in several places. */
struct heap_run {
	const void *ptr;
	uint64_t len; /* not 0 */
};

struct heap_put {
	const void *value;
	const struct heap_run
		*runs; /* instead, of `len` bytes; only above one extent, or if heap_put_pages */
	uint64_t len;
	uint32_t n_runs;
	bool deletes;     /* no value; -ENOENT if there is none */
	bool paged;       /* readers may map it: heap_lead */
	bool urgent;      /* the room that is kept for deletes may be used */
	uint64_t striped; /* the value is a struct stripe_manifest of so many bytes; 0 = it is not */
	uint64_t expected; /* HEAP_ANY_VERSION; or the version to replace, 0 = no value */
};

/* True if the value lies in chunks though an entry might hold it. */
static inline bool heap_put_pages(const struct heap_desc *desc, const struct heap_put *put)
{
	return put->paged && put->len >= HEAP_PAGED_LEAST && heap_lead(desc, true);
}

/*
 * Puts a version. Errors: -ERANGE (the value is too long for a manifest), -ESTALE (another version than expected),
 * -ENOSPC (no extent or, the message says so, no bucket is free), -EAGAIN (space_take; or other
 * clients were faster each time), -EBADMSG (the entry to be replaced is damaged), -EACCES (no slot).
 * All of them: nothing was put. -EIO, -ECONNRESET, -ETIMEDOUT, -EHOSTDOWN: it is not known whether.
 * Cost: 2 RT if the cursor is warm, without a refill; with copies 1 RT for each, and 1 more with several writers.
 */
RLV_MUST_CHECK int heap_put(struct heap_access *acc, const struct chain_key *key,
			    const struct heap_put *put, uint64_t *version_out);

/* One key of heap_put_many; begin with state 0. */
struct heap_put_ask {
	struct chain_key key;
	struct heap_put put; /* HEAP_ANY_VERSION, and no deletion */
	uint64_t version;    /* out */
	int status;          /* out, if it is done: 0, -ERANGE, -ENOSPC, -EBADMSG */
	enum { HEAP_PUT_OPEN, HEAP_PUT_DONE, HEAP_PUT_IN_DOUBT } state;
};

/*
 * Puts the open ones of n <= HEAP_MANY asks, those of the same key in their order. After an error, which
 * is one of heap_put that status has not, others are open still, and the call may be repeated unless
 * acc->in_doubt. Cost: 2 RT for all that are warm, or new where the first bucket is free; 2 more for each
 * other, and each second put of a key; with copies, or another mode, as heap_put for each.
 */
RLV_MUST_CHECK int heap_put_many(struct heap_access *acc, struct heap_put_ask *asks, uint32_t n);

/* The calls of another mode than clover; as those of this header. */
struct heap_plane {
	int (*get)(struct heap_access *acc, const struct chain_key *key, struct heap_value *out);
	int (*version)(struct heap_access *acc, const struct chain_key *key, uint64_t *version_out);
	int (*put)(struct heap_access *acc, const struct chain_key *key, const struct heap_put *put,
		   uint64_t *version_out);
	int (*next)(struct heap_access *acc, uint32_t *bucket_inout, struct heap_key *out);
};

/* A key as heap_next finds it, valid until the next call with the access. */
struct heap_key {
	const void *ptr;
	uint32_t len;
	uint64_t value_len, version;
	bool striped; /* value_len is that of its stripes */
};

/*
 * The next key at or behind *bucket_inout, which then is the bucket behind it; deleted keys are
 * passed over. Keys that are put or deleted during a walk may be missed or seen. -ENODATA: no more.
 * Cost: 2 RT.
 */
RLV_MUST_CHECK int heap_next(struct heap_access *acc, uint32_t *bucket_inout, struct heap_key *out);

#endif
