/*
 * Saved tables: a table in a file, with its items, their priorities and the counts of its limiters, which
 * any store can load.
 *
 * Errors, sizes of structs and threads: as relive.h says.
 */
#ifndef RELIVE_SAVE_H
#define RELIVE_SAVE_H

#include <relive/relive.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Called about 256 times in a save or load, by its thread: done of total parts. Not 0 ends the call with
   -EINTR. It must not call the library. */
typedef int (*rlv_save_progress)(void *ctx, uint64_t done, uint64_t total);

struct rlv_save_opts {
	uint32_t size;
	uint32_t compress; /* level of zstd, 1..19; 0 = none */
	/* A file that this table was saved to earlier: rows which it has are copied from it. NULL = none.
	   It may be the path itself. A file of another table helps nothing. */
	const char *base;
	rlv_save_progress progress; /* NULL = none */
	void *ctx;
};
#define RLV_SAVE_OPTS_INIT RLV_SIZED(struct rlv_save_opts)

struct rlv_save_info {
	uint32_t size;
	uint32_t n_views;
	uint64_t items[RLV_MAX_VIEWS]; /* saved, or loaded: those that are in the table now */
	uint64_t rows;                 /* in the file; one that two blocks need counts twice */
	uint64_t bytes;                /* of the file */
	uint64_t reused_bytes;         /* of these, from opts.base */
	char table[RLV_NAME_BYTES];    /* name of the table that was saved */
};

/*
 * Saves a table while others use it: every item that was committed before the call and is not
 * overwritten or consumed before its block is read, with its rows, priority, policy version and times
 * sampled, in the order of the keys; and the limiters' counts. Steps without an item yet are not saved.
 * The file is complete and durable, or path is unchanged. opts, info_out may be NULL.
 * Errors: -EINVAL (names the argument), -EBUSY (another process saves to path), -EHOSTDOWN (a shard
 * is down), -ENOTSUP (compress: no libzstd), -EINTR (progress), -EBADMSG, -EPROTO (base is
 * damaged, or no saved table), -ENOSPC and other errors of the file.
 * Thread: any. Cost: 2 RT for each block, 1 for each MiB of rows; it takes no slot.
 */
RLV_CHECKED int rlv_table_save(struct rlv_table *table, const char *path,
			       const struct rlv_save_opts *opts, struct rlv_save_info *info_out);

struct rlv_load_opts {
	uint32_t size;
	uint32_t shards;  /* 0 = as saved; or RLV_SHARDS_AUTO */
	const char *name; /* of the table to make; NULL = as saved */
	/* A table of that name, if there is one, is replaced. It is there, whole and in use, until all items
	   of the new one are in; then the load's last request drops it and makes the new one everybody's, in
	   one step. Handles that are open on it get -ESTALE from then on, as after rlv_table_drop. There must be memory for both until then:
	   -ENOSPC, and it is as it was. false: -EEXIST. */
	bool replace;
	rlv_save_progress progress; /* NULL = none */
	void *ctx;
};
#define RLV_LOAD_OPTS_INIT RLV_SIZED(struct rlv_load_opts)

/*
 * Makes a table from a file: its columns, views and limiters, its items in the order of their keys, with
 * their priorities, and the counts of the limiters. Keys are new, and writers begin new episodes. The
 * whole file is checked before the table is made, and no other call sees the table before all of its items are
 * in. After an error there is no table, and none after a kill, or with opts.replace the earlier one: the memory of
 * the new one is given back when this client's lease ends, at once where its process was on the server's host, and
 * of embed:FILE when the file is opened next. A drop of the earlier table meanwhile does not end the load.
 * info_out->items are fewer than those of the file if the new table has less room. opts, info_out may be NULL.
 * Errors: -EEXIST (there is a table of that name; with opts.replace: values or weights have the name, or the server is of
 * an earlier version and cannot replace), -EBUSY (another load makes a table of that name, or with opts.replace it is being made),
 * -ENOSPC (no room; with opts.replace for both: drop the earlier one first, or add memory), -ESTALE (it was dropped meanwhile),
 * -ETIMEDOUT (the last request was not answered: one of the two tables is there), -EPROTO (not a saved table, or of a later format),
 * -EBADMSG (damaged or cut), -ENOTSUP (compressed, and no libzstd), -EINTR (progress), errors of rlv_table_create and of the file.
 * Thread: any. Cost: the RT of a claim for each block, 1 for its rows, 1 or 2 for each 256 items; to replace a table
 * of embed:FILE the new one is written back.
 */
RLV_CHECKED int rlv_table_load(struct rlv_store *store, const char *path,
			       const struct rlv_load_opts *opts, struct rlv_save_info *info_out,
			       struct rlv_table **table_out);

#ifdef __cplusplus
}
#endif

#endif
