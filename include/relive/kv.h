/*
 * Heaps: values under keys, in the same store as the replay tables. For policy weights, rollouts,
 * checkpoints and small state that many processes share.
 *
 * Keys and values are bytes. Each put makes a version, numbered from 1 for each key; it is complete
 * when the call returns, and every reader sees it, or a newer one, whole. Puts, compare-and-puts and
 * deletes of a key take effect one after the other, at one instant between call and return
 * (linearizable), whoever makes them.
 *
 * Conventions, errors, threads and cost are as in relive/relive.h. A handle is one client: each thread
 * opens its own.
 *
 * A key is remembered after its first use, "warm" below. Costs are those of warm keys.
 */
#ifndef RELIVE_KV_H
#define RELIVE_KV_H

#include "relive/relive.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RLV_KV_KEY_BYTES 256   /* of the longest key */
#define RLV_KV_INLINE_BYTES 96 /* values up to here are read without a second round trip */
#define RLV_KV_STRIPE_KEYS \
	"\xffRLvstr" /* and its 0: keys of a heap with stripe_bytes do not begin with these 8 bytes */

struct rlv_kv;

struct rlv_bytes {
	const void *ptr;
	size_t len;
};

/*
 * Who finds and changes values (docs/kv.md compares them). The costs in this header are those of clover,
 * the others are there for comparison; with them, extent_bytes is the room of one value, with its key
 * and 64 bytes: a multiple of 64, 0 = bytes / keys; and memory is four times that for each key.
 */
enum rlv_kv_mode {
	RLV_KV_CLOVER,  /* clients, out of place: get 1 RT, put 2 */
	RLV_KV_DIRECT,  /* clients, in place and under a lock of each key: get 1 RT, put 4 */
	RLV_KV_CENTRAL, /* the metadata server, asked once by each call; values up to 512 KiB */
};

/* Who puts into a part that has copies; of one copy all handles do. */
enum rlv_kv_writers {
	RLV_KV_ONE_WRITER, /* one handle at a time, which owns the part: see rlv_kv_release */
	RLV_KV_MANY_WRITERS, /* all handles, for one round trip more. A lost copy is not made anew, and a node with such
				a part cannot be drained */
};

struct rlv_kv_opts {
	uint32_t size;
	uint32_t parts; /* shares of the heap, on the memory nodes; 0 = 1 */
	uint64_t keys;  /* different keys ever used, also deleted ones; 0 = 65536. 256 B each */
	uint64_t bytes; /* of all entries, also of versions that wait to be collected; 0 = 64 MiB */
	uint64_t extent_bytes; /* unit in which clients take space; longer values lie in several. A power
				  of two, 64 KiB to 1 GiB; 0 = 2 MiB */
	uint32_t max_clients; /* open handles that write; 0 = 64 */
	uint32_t mode;        /* enum rlv_kv_mode; 0 = clover */
	uint32_t copies; /* of each part, on memory nodes of their own: 1 to 3; 0 = 1. Only of mode clover */
	uint32_t writers; /* enum rlv_kv_writers; 0 = one */
	/* Longer values lie in stripes of that much memory, which are spread over all parts; else a value lies in the
	   part of its key. A power of two from extent_bytes to 64 GiB; 0 = off. Only of mode clover, with one copy or
	   several writers. `keys` counts stripes, too: for each client slot that puts, about twice as many as it has in
	   use at once. */
	uint64_t stripe_bytes;
};
#define RLV_KV_OPTS_INIT RLV_SIZED(struct rlv_kv_opts)

/*
 * Creates a heap and opens it, or opens the existing one of that name and options. opts NULL = all
 * defaults. Errors: -EINVAL (name or opts; more copies than memory nodes), -EEXIST (other options, or a table has the name), -ENOSPC
 * (pool full, or all client slots are taken), -ENOMEM, -EHOSTDOWN (no memory node came up within the
 * store's timeout). Thread: any. Cost: control plane.
 */
RLV_CHECKED int rlv_kv_create(struct rlv_store *store, const char *name,
			      const struct rlv_kv_opts *opts, struct rlv_kv **kv_out);

/* Opens a heap; of a read-only store without a client slot. -ENOENT: no heap of that name; -ENOSPC:
   all client slots are taken; -EHOSTDOWN: none of its parts can be reached. Thread: any. Cost: control
   plane. */
RLV_CHECKED int rlv_kv_open(struct rlv_store *store, const char *name, struct rlv_kv **kv_out);

/* Closes a handle and sets *kv to NULL; NULL is a no-op. Space that it had for new entries is left
   to the other clients; its slot stays taken while a part is out of reach. After an error the handle is
   closed, too. Thread: owner. */
RLV_CHECKED int rlv_kv_close(struct rlv_kv **kv);

/*
 * With copies and one writer, the first put of a handle to a part makes it the part's owner: puts of others there are
 * -EBUSY until it calls this, closes, or is dead and fenced. Gives all parts back; a no-op with several writers. Cost: 4 RT for each copy that
 * it owns. Errors: as rlv_kv_put; then some are still owned. Thread: owner.
 */
RLV_CHECKED int rlv_kv_release(struct rlv_kv *kv);

/*
 * After a memory node was lost the server makes new copies on others, which are empty, but not with several writers:
 * there is nothing to fill then. It fills those of parts
 * that nobody owns. Each put of a part's owner fills some 64 KiB of them, and a thread of its handle goes on between
 * calls, so what a call gave out stays valid until the next one, as ever. This call fills those of all parts,
 * by about `bytes` each time, UINT64_MAX = to the end; *left_out: buckets that are left, 0 = all
 * copies are whole again. Puts may go on in between, and the handle becomes the owner of the parts. Errors: as
 * rlv_kv_put. Thread: owner. Cost: for each part, reads of all heads, and 3 RT for each key.
 */
RLV_CHECKED int rlv_kv_repair(struct rlv_kv *kv, uint64_t bytes, uint64_t *left_out);

/* Removes a heap for all clients; their handles get -ESTALE from now on. Thread: any. */
RLV_CHECKED int rlv_kv_drop(struct rlv_store *store, const char *name);

/* Lists names of heaps in names[0..*n_inout); *n_inout becomes their number. Thread: any. */
RLV_CHECKED int rlv_store_kvs(struct rlv_store *store, char (*names)[RLV_NAME_BYTES],
			      size_t *n_inout);

/* -------- put -------- */

/*
 * Puts a value, whatever was there; *version_out is its number and may be NULL. Errors: -EINVAL (key of
 * 0 or more than RLV_KV_KEY_BYTES bytes), -ERANGE (the value needs more chunks than a manifest has: with
 * extents of 2 MiB above 500 GiB, of 64 KiB above 500 MiB), -ENOSPC (the
 * heap is full of entries, or of keys: the message says which), -EAGAIN (no space became free within
 * the store's timeout because a client is stopped inside a call, or other clients changed the key again
 * and again), -EACCES (read-only store), -EHOSTDOWN (the key's part cannot be reached), -EOWNERDEAD
 * (fenced: close and open again), -ESTALE (dropped), -EBUSY (copies: another client owns the part; the
 * message names it), -ECHILD. After all these nothing was put.
 * -ETIMEDOUT, -ECONNRESET: it is not known whether it was put; get says.
 * Thread: owner. Cost: 2 RT, with 3 copies 3, with several writers 1 more; if others put the key at the same time, 2 to
 * 5 more each time; a few more once for hundreds of puts, to collect space. A
 * value that is longer than an extent: 1 RT more for each 16 MiB, and one for each 64 chunks, of each copy;
 * only of mode clover (-ERANGE). In a heap with stripe_bytes each put looks at what it replaces, for 1 RT more, or 2 if
 * that has more than 4 KiB; of a value in n stripes 9 + 5 n RT, and 2 for each stripe of the value before.
 */
RLV_CHECKED int rlv_kv_put(struct rlv_kv *kv, struct rlv_bytes key, struct rlv_bytes value,
			   uint64_t *version_out);

/*
 * Puts a value if the newest version is `expected`; 0 = if the key has no value. -ESTALE: it is
 * another one; other errors as rlv_kv_put. Thread: owner. Cost: as rlv_kv_put.
 */
RLV_CHECKED int rlv_kv_put_if(struct rlv_kv *kv, struct rlv_bytes key, struct rlv_bytes value,
			      uint64_t expected, uint64_t *version_out);

struct rlv_kv_item;

/*
 * Puts n values, each as rlv_kv_put: they are no transaction. Readers may see some of them while the call
 * runs, and a client that is killed leaves some done and others not. Values of the same key are put in
 * their order. Returns 0 if every item was tried: its status is 0, and version the new one's number, or
 * -ERANGE, -ENOSPC, -EBADMSG. Else the error that ended the call; then the status of each item is one of
 * these, -ECANCELED (not put), or -ETIMEDOUT, -ECONNRESET (not known). After -EINVAL no status is set.
 * Thread: owner. Cost: 2 RT for up to 64 values of a part; 2 more for each further one of the same key,
 * for each above 64 KiB, and for each key that other clients put meanwhile. With copies, with stripe_bytes, or of another mode than
 * clover, as rlv_kv_put for each. In place, the keys' cache misses overlap.
 */
RLV_CHECKED int rlv_kv_put_many(struct rlv_kv *kv, struct rlv_kv_item *items, size_t n);

/* Deletes the value; *version_out, which may be NULL, is the number of the deletion. The key keeps its
   place, and later versions go on from there. -ENOENT: no value; others as rlv_kv_put. Thread: owner.
   Cost: 2 RT. */
RLV_CHECKED int rlv_kv_delete(struct rlv_kv *kv, struct rlv_bytes key, uint64_t *version_out);

/* -------- get -------- */

/*
 * A value. The caller gives memory of `room` bytes at ptr; or room 0, and the call sets ptr to memory
 * of the handle, which is valid until its next call.
 */
struct rlv_kv_value {
	uint32_t size;
	uint32_t reserved;
	void *ptr;
	uint64_t room;
	uint64_t len;     /* out */
	uint64_t version; /* out */
};
#define RLV_KV_VALUE_INIT RLV_SIZED(struct rlv_kv_value)

/*
 * Reads the newest version. Errors: -ENOENT (no value), -ERANGE (value->room is too small: len and
 * version are set), -EBADMSG (the entry is damaged), -EAGAIN (read-only store: it changed during each
 * of several reads), and as rlv_kv_put. Thread: owner. Cost: 1 RT; 2 if a value above
 * RLV_KV_INLINE_BYTES was put since this handle last read the key. A value that is longer than an extent:
 * 1 RT more, and one for each 16 MiB; into the caller's memory, or else into as much of the handle's. A value in n stripes:
 * 1 + 3 n RT; -EAGAIN: it was replaced during each read within the store's timeout.
 */
RLV_CHECKED int rlv_kv_get(struct rlv_kv *kv, struct rlv_bytes key, struct rlv_kv_value *value);

/*
 * Reads `len` bytes of the newest version from `offset` on; value->len is how many there are, fewer where the value
 * ends, 0 behind its end. All of them are of the version value->version: ranges of equal versions are of one
 * value. Of a value that is longer than an extent it reads only the chunks that the range is in, and checks
 * each; others it reads whole. Errors: as rlv_kv_get; -ERANGE: value->room is smaller than value->len. Thread:
 * owner. Cost: 1 RT, or 2, as rlv_kv_get; of a value longer than an extent 1 RT more for each 16 MiB of the
 * chunks that the range is in and that the handle does not have: it keeps those that it read last, up to 16 MiB of one value of each part, and
 * where ranges follow each other over a wire it reads the next ones ahead; of a value in stripes 1 RT, and that of each
 * stripe that the range is in. Of another mode than clover as rlv_kv_get.
 */
RLV_CHECKED int rlv_kv_get_range(struct rlv_kv *kv, struct rlv_bytes key, uint64_t offset,
				 uint64_t len, struct rlv_kv_value *value);

/* One key of rlv_kv_get_many or rlv_kv_put_many. The caller gives key, and memory of `room` bytes at ptr
   for a get, or `len` bytes at ptr, which stay as they are, for a put. */
struct rlv_kv_item {
	uint32_t size;
	int32_t status; /* out: 0, or what came of this key */
	struct rlv_bytes key;
	void *ptr;
	uint64_t room;
	uint64_t len; /* of a get out, as version: if status is 0 or -ERANGE */
	uint64_t version;
};
#define RLV_KV_ITEM_INIT RLV_SIZED(struct rlv_kv_item)

/*
 * Reads n keys; items[i].status is 0, -ENOENT, -ERANGE or -EBADMSG, as rlv_kv_get. Each key is read at an instant of its own.
 * Errors: as rlv_kv_get, but for those in status; then all items are undefined. -EINVAL: an item's key,
 * or items of different sizes. Thread: owner. Cost: 1 RT for up to 64 keys of a part; 1 or 2 more for
 * each that was put since this handle read it last. In place, the keys' cache misses overlap.
 */
RLV_CHECKED int rlv_kv_get_many(struct rlv_kv *kv, struct rlv_kv_item *items, size_t n);

/* Reads the newest version if its number is above `than`; -ENODATA if not. Else as rlv_kv_get.
   Thread: owner. Cost: 1 RT without a newer one, which reads 128 bytes; else 1 RT more than get. */
RLV_CHECKED int rlv_kv_get_newer(struct rlv_kv *kv, struct rlv_bytes key, uint64_t than,
				 struct rlv_kv_value *value);

/*
 * Waits until the key's newest version is above `than`, also a deletion; *version_out is its number.
 * Polls, 20 to 160 us apart. -ETIMEDOUT: none within timeout_ns (0 = looks once, negative = for
 * ever). Thread: owner. Cost: 1 RT for each look.
 */
RLV_CHECKED int rlv_kv_watch(struct rlv_kv *kv, struct rlv_bytes key, uint64_t than,
			     int64_t timeout_ns, uint64_t *version_out);

/* -------- all keys -------- */

/* A walk over the keys; begin with RLV_KV_WALK_INIT. */
struct rlv_kv_walk {
	uint32_t size;
	uint32_t part, bucket; /* private: where it goes on */
	uint32_t key_len;
	const void *key;    /* valid until the handle's next call */
	uint64_t value_len; /* of the version that it found */
	uint64_t version;
};
#define RLV_KV_WALK_INIT RLV_SIZED(struct rlv_kv_walk)

/* Finds the next key, in no order. A key that is put or deleted during the walk may be missed or
   found; all others are found once. -ENODATA: no more keys. Thread: owner. Cost: 2 RT. */
RLV_CHECKED int rlv_kv_next(struct rlv_kv *kv, struct rlv_kv_walk *walk);

/* -------- state -------- */

struct rlv_kv_info {
	uint32_t size;
	uint32_t parts, parts_up;
	uint32_t max_clients;
	char name[RLV_NAME_BYTES];
	uint64_t keys; /* in use, also deleted ones and those of stripes; may lag by those of killed clients */
	uint64_t keys_room;     /* buckets; errors begin above half of them */
	uint64_t extent_bytes;  /* also the limit of an entry, of 64 B + key + value */
	uint64_t extents_free;  /* of reachable parts, as the next two */
	uint64_t extents_owned; /* by open handles */
	uint64_t extents_left;  /* of closed handles and dead clients: taken over when needed */
	uint64_t conflicts;     /* of this handle: puts that another one preceded */
	uint64_t rereads;       /* reads of an entry that was replaced meanwhile */
	uint64_t round_trips;   /* over a wire */
	uint64_t read_bytes, write_bytes;
	uint64_t server_calls; /* requests to the metadata server since the handle was opened */
	uint64_t coordinator_cpu_ns; /* of RLV_KV_CENTRAL: its process, since that began, as of this
					handle's last call; 0 in an embedded store */
	uint32_t mode;               /* enum rlv_kv_mode */
	uint32_t copies,
		copies_wanted; /* of all parts: whole ones that are reached; opts.copies of each */
	uint32_t reserved;
	uint64_t stripe_bytes; /* 0 = values lie in one part each */
};
#define RLV_KV_INFO_INIT RLV_SIZED(struct rlv_kv_info)

/* Thread: owner. Cost: reads the words of all extents. */
RLV_CHECKED int rlv_kv_info(struct rlv_kv *kv, struct rlv_kv_info *info_out);

struct rlv_kv_report {
	uint32_t size;
	uint32_t parts;         /* that were reachable */
	uint64_t problems;      /* 0 = every invariant holds */
	uint64_t keys, deleted; /* without those of stripes */
	uint64_t live_bytes;    /* slots of current versions */
	uint64_t stale_cells;   /* small values that are read from their entries; no problem */
	char first_problem[160];
};
#define RLV_KV_REPORT_INIT RLV_SIZED(struct rlv_kv_report)

/* Walks all reachable parts and checks every invariant and checksum; if all can be reached, also that no stripe is
   missing, or left behind by a client that was killed. Exact while no client writes;
   otherwise it may report changes in progress. Thread: owner. Cost: reads all keys. */
RLV_CHECKED int rlv_kv_verify(struct rlv_kv *kv, struct rlv_kv_report *report_out);

#ifdef __cplusplus
}
#endif

#endif
