/*
 * Weights: generations of many tensors, from a learner to every actor. They lie in a heap (relive/kv.h).
 *
 * A publish makes one generation of all tensors; it is visible whole or not at all. A fetch gives the newest
 * one into memory of the handle. The last `keep` generations stay, so actors that join or restart later need
 * no publish. A generation is an anchor, which has all tensors, or a delta: the elements whose bits changed; or both.
 * Readers see no difference.
 *
 * Conventions, errors, threads and cost are as in relive/relive.h. A handle is one client: each thread opens
 * its own.
 */
#ifndef RELIVE_WEIGHTS_H
#define RELIVE_WEIGHTS_H

#include "relive/kv.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RLV_TENSOR_DIMS 8
#define RLV_TENSOR_NAME_BYTES 1024 /* of the longest name, with the final NUL */
#define RLV_WEIGHTS_KEEP 16        /* most generations that stay */
#define RLV_WEIGHTS_ANCHOR_EVERY 64

struct rlv_generations;

struct rlv_weights_opts {
	uint32_t size;
	uint32_t keep; /* generations that stay; 0 = 2. Up to RLV_WEIGHTS_KEEP */
	uint64_t bytes; /* of all tensors of a generation, at most; 0 = 64 MiB. The heap has room for keep + 2
			   of that, and half as much for deltas */
	uint32_t anchor_every; /* generations, at the latest; 0 = 8, 1 = no deltas. Up to
				  RLV_WEIGHTS_ANCHOR_EVERY */
	uint32_t max_clients;  /* open handles; 0 = 64 */
	uint32_t copies; /* on memory nodes of their own; 0 = 2 where there are two, else 1. From 2 on one
			    handle publishes: others get -EBUSY, as in relive/kv.h */
	uint32_t prefault; /* 1 = create gives all memory of the heap its pages, and maps them, where this process can map
			      it: first generations are published as fast as later ones. It takes as long as to clear that memory */
};
#define RLV_WEIGHTS_OPTS_INIT RLV_SIZED(struct rlv_weights_opts)

/*
 * Creates weights and opens them, or opens the existing ones of that name and options. opts NULL = all
 * defaults. Their heap has the same name. Errors: -EINVAL, -EEXIST (other options; or a table, or a heap without weights, has the
 * name), and those of rlv_kv_create. Thread: any. Cost: control plane.
 */
RLV_CHECKED int rlv_weights_create(struct rlv_store *store, const char *name,
				   const struct rlv_weights_opts *opts,
				   struct rlv_generations **weights_out);

/* Opens weights. -ENOENT: no heap of that name, or it has no weights; others as rlv_kv_open. Thread: any. Cost:
   control plane. */
RLV_CHECKED int rlv_weights_open(struct rlv_store *store, const char *name,
				 struct rlv_generations **weights_out);

/* Closes a handle and sets *weights to NULL; NULL is a no-op. Generations that it gave out stay valid until they are
   released. -EBUSY: mapped ones are not released yet, and the handle stays open; after other errors it is closed, too. Thread: owner. */
RLV_CHECKED int rlv_weights_close(struct rlv_generations **weights);

/*
 * Bounds how many bytes of an anchor are under way at once in later calls of this handle over a wire, so that batches on the
 * same link wait for no more than that. Each so many bytes are then a round trip. bytes: at least 4096; 0 = 16 MiB, as without the
 * call. Of deltas, and in shared memory, there is no bound. -EINVAL. Thread: owner. Cost: none.
 */
RLV_CHECKED int rlv_weights_limit(struct rlv_generations *weights, uint64_t bytes);

enum rlv_weights_check {
	RLV_CHECK_CHANGES =
		0,          /* sums that are kept up from the elements that change; the default */
	RLV_CHECK_FULL = 1, /* and the sum of all elements */
};

/*
 * How later fetches of this handle check what deltas have made: enum rlv_weights_check. Anchors always have checksums over all bytes. Without
 * RLV_CHECK_FULL a byte of the handle's memory that flips, and that no delta changes, stays so until the next anchor that the handle
 * reads. With it the handle reads an anchor next; after deltas it adds up all elements, and if they do not have the sum that the anchor and the
 * deltas say, it starts again from an anchor: RLV_GENERATION_REPAIRED. -EINVAL. Thread: owner. Cost: none; of each later fetch with
 * deltas, and of each anchor, one pass over the tensors.
 */
RLV_CHECKED int rlv_weights_check(struct rlv_generations *weights, uint32_t check);

/* -------- publish -------- */

struct rlv_tensor {
	uint32_t size;
	uint32_t dtype;  /* enum rlv_dtype */
	uint32_t ndim;   /* 0 = scalar */
	uint32_t mapped; /* out, in generations: 1 = data is memory of the store: rlv_weights_map */
	const char *name; /* unique; any text */
	uint64_t shape[RLV_TENSOR_DIMS];
	const void *data; /* C-contiguous */
	uint64_t bytes;   /* out, in generations; ignored by publish */
};
#define RLV_TENSOR_INIT RLV_SIZED(struct rlv_tensor)

enum rlv_publish_flags {
	RLV_PUBLISH_ANCHOR = 1, /* no delta */
	RLV_PUBLISH_NEW_TREE =
		2,              /* names, dtypes and shapes may differ from the generation before */
	RLV_PUBLISH_FINITE = 4, /* refuses NaN and infinity in floating point tensors */
};

/*
 * Publishes n tensors as generation `version`, which is above all before it. The order of the tensors is that in
 * memory: first what readers need first. Tensors with the same data, bytes and dtype are stored, compared and sent once (tied), and count
 * once for opts.bytes; those that overlap otherwise are stored each by itself. What is tied may differ between generations: then it is an
 * anchor, for 2 RT more. Deltas compare with the last generation, of which the handle then keeps a
 * copy. flags: enum rlv_publish_flags. Errors: -EINVAL (tensors or flags; another tree than before; the message names the tensor),
 * -EEXIST (that version or a newer one is there), -EBUSY (another handle published meanwhile), -ERANGE (above opts.bytes; or not finite),
 * -ENOSPC (the heap is full), and those of rlv_kv_put. After all of them nothing was published. -ETIMEDOUT, -ECONNRESET: it is
 * not known whether; rlv_weights_poll says. Thread: owner. Cost: of a delta 5 RT, and 2 for each entry that is dropped; of an anchor
 * 2 more, and 2 for a delta beside it, 1 for each 16 MiB and 1 for each 64 chunks, and what collects the space of dropped ones. On one host one
 * copy of the tensors; and a second one where deltas need it.
 */
RLV_CHECKED int rlv_weights_publish(struct rlv_generations *weights,
				    const struct rlv_tensor *tensors, size_t n, uint64_t version,
				    uint32_t flags);

/* -------- fetch -------- */

/* Version of the newest generation. -ENODATA: none yet. Thread: owner. Cost: 1 RT of 128 B while nothing was
   published since; else 2 more. */
RLV_CHECKED int rlv_weights_poll(struct rlv_generations *weights, uint64_t *version_out);

/* Waits until there is a generation above `than`, as rlv_kv_watch does. -ETIMEDOUT. Thread: owner. Cost: as
   rlv_weights_poll for each look. */
RLV_CHECKED int rlv_weights_watch(struct rlv_generations *weights, uint64_t than,
				  int64_t timeout_ns, uint64_t *version_out);

enum rlv_generation_flags {
	RLV_GENERATION_REPAIRED =
		1, /* the sum of a payload was wrong after deltas: it was read again */
};

/* A generation, until rlv_generation_release. */
struct rlv_generation {
	uint32_t size;
	uint32_t n_tensors;
	uint64_t version;
	const struct rlv_tensor *
		tensors; /* data is aligned to 64, and read-only; that of tied tensors is the same */
	const void *data; /* of all tensors together, in their order; of tied ones once */
	uint64_t bytes;
	uint32_t n_deltas; /* that were applied for it */
	uint32_t flags;    /* enum rlv_generation_flags */
	void *hold;        /* private */
	uint64_t mapped;   /* bytes of tensors that were not copied: rlv_weights_map */
};
#define RLV_GENERATION_INIT RLV_SIZED(struct rlv_generation)

/*
 * Waits for a generation above `newer_than`, and gives the newest one. It lies in a buffer of the handle, of which there
 * are two as long as generations are released before the second fetch after them; else more. Readers of an older
 * one are not disturbed. Errors: -ETIMEDOUT (none within timeout_ns), -EBADMSG (an entry is damaged, and no other way leads to the
 * generation), -ENOMEM, -EAGAIN (it was dropped each time before it was read), those of rlv_kv_get. Thread:
 * owner. Cost: 1 RT if there is nothing newer; else 2, and 1 or 2 for each delta to apply, or for an anchor 4 and 1 for
 * each 16 MiB. On one host one copy of an anchor; of deltas what changed.
 */
RLV_CHECKED int rlv_weights_fetch(struct rlv_generations *weights, uint64_t newer_than,
				  int64_t timeout_ns, struct rlv_generation *generation_out);

/*
 * As rlv_weights_fetch, for readers that use first tensors while others are on their way: the first *ready_out tensors
 * can be read, maybe none yet, and rlv_weights_more brings the next ones, in their order. Names, dtypes, shapes and places of all are there.
 * Tensors that are ready are checked, all of one version, and do not change any more; bytes of others are not defined. All tensors
 * are ready at once if deltas lead to the generation, if the newest one is a delta, or if it has fewer bytes than may be under way
 * (rlv_weights_limit). Nothing is held between the calls: the generation may be released at any time, and does not keep back the
 * publisher. Errors as rlv_weights_fetch. Thread: owner. Cost: as rlv_weights_fetch, of one part.
 *
 *   ret = rlv_weights_begin(weights, 0, -1, &generation, &ready);
 *   while (ret == 0 && ready < generation.n_tensors)
 *           ret = rlv_weights_more(weights, &generation, &ready);
 */
RLV_CHECKED int rlv_weights_begin(struct rlv_generations *weights, uint64_t newer_than,
				  int64_t timeout_ns, struct rlv_generation *generation_out,
				  uint32_t *ready_out);

/*
 * Reads on until *ready_inout, which is as this handle's call before gave it, has grown. After an error the tensors that are ready stay
 * so until the generation is released, and the call may be repeated; but not after -EAGAIN (the generation was dropped: begin again,
 * with what is then the newest) and -EBADMSG. Thread: owner. Cost: 2 RT for each 16 MiB, or bytes of rlv_weights_limit.
 */
RLV_CHECKED int rlv_weights_more(struct rlv_generations *weights,
				 const struct rlv_generation *generation, uint32_t *ready_inout);

/*
 * As rlv_weights_fetch without a copy, on one host: tensors are read where the publisher put them. Their memory is not used again
 * until the generation is released, while publishers go on; the heap has room for two such generations beside those that
 * it keeps, and is full (-ENOSPC of publishes) where handles hold more. When a process ends, what it held is freed by the fence.
 * tensors[i].mapped is 1 for all, of any size; or 0 for all, which then were copied: if the generation has less than 64 KiB, was published
 * before its chunks had whole pages, or pages of this host have more than 4 KiB. Checksums of mapped tensors
 * are not compared. A store to mapped memory is a SIGSEGV. A handle with mapped generations is not closed (-EBUSY).
 * relive node drain waits for the release; when the weights are dropped, mapped tensors lose what they have.
 * Errors: those of rlv_weights_fetch; -ENOTSUP (the memory is of another host, of this process alone (embed:), has huge pages or copies; the
 * process has too many mappings, of which each chunk is one; or the newest generation is a delta only: fetch it, or publish with RLV_PUBLISH_ANCHOR or opts.anchor_every 1), -EACCES (the store was opened
 * read-only), -EBUSY (the handle has 7 mapped generations). Thread: owner.
 */
RLV_CHECKED int rlv_weights_map(struct rlv_generations *weights, uint64_t newer_than,
				int64_t timeout_ns, struct rlv_generation *generation_out);

/* Gives the generation of that version, if it is still kept; -ENOENT: not any more, or never. It lies in
   memory of its own. Else as rlv_weights_fetch. */
RLV_CHECKED int rlv_weights_get(struct rlv_generations *weights, uint64_t version,
				struct rlv_generation *generation_out);

/*
 * Copies tensors of a generation into memory of the caller: into[i].data, C-contiguous, is written. They are found by name; into
 * may be of fewer tensors than the generation has. -EINVAL: there is none of that name, or it has another dtype or shape (the
 * message names it); then nothing was written. Thread: any. Cost: one copy.
 */
RLV_CHECKED int rlv_generation_copy(const struct rlv_generation *generation,
				    const struct rlv_tensor *into, size_t n);

/* Gives the generation's memory back and clears *generation; a second call is a no-op. Thread: any. */
RLV_API void rlv_generation_release(struct rlv_generation *generation);

/* -------- shards -------- */

#define RLV_SHARDS_MAX 64
#define RLV_NO_RANK UINT32_MAX

struct rlv_shards;

struct rlv_shards_opts {
	uint32_t size;
	uint32_t ranks; /* publishers, 1 to RLV_SHARDS_MAX; the same for all handles */
	uint32_t rank;  /* of this handle; RLV_NO_RANK = it only reads */
	uint32_t reserved;
	const struct rlv_weights_opts
		*weights; /* of each shard; NULL = defaults. keep is also how many
						   generations a rank may be ahead of another */
};
#define RLV_SHARDS_OPTS_INIT RLV_SIZED(struct rlv_shards_opts)

/*
 * Opens the shards of `ranks` publishers, and creates those that are not there. A version is visible when all ranks have
 * published it. Each shard is weights of its own, named NAME.RANK-of-RANKS, and has its own deltas. The handle is a client of
 * each. Tensors are those of their rank: there is no resharding. Errors: -EINVAL, and those of rlv_weights_create.
 * Thread: any. Cost: control plane.
 */
RLV_CHECKED int rlv_shards_open(struct rlv_store *store, const char *name,
				const struct rlv_shards_opts *opts, struct rlv_shards **shards_out);

/* As rlv_weights_close. */
RLV_CHECKED int rlv_shards_close(struct rlv_shards **shards);

/*
 * Publishes the tensors of this handle's rank. A rank that died leaves versions invisible that it lacks; its
 * successor publishes them, or a newer one that all publish. Errors: -EAGAIN (the slowest rank is `keep` generations behind: the newest
 * visible version would be dropped), -EINVAL (opened with RLV_NO_RANK), and those of rlv_weights_publish. Thread: owner. Cost: 1 RT
 * more for each rank.
 */
RLV_CHECKED int rlv_shards_publish(struct rlv_shards *shards, const struct rlv_tensor *tensors,
				   size_t n, uint64_t version, uint32_t flags);

/* The newest version that all ranks have. -ENODATA: none. Thread: owner. Cost: 1 RT for each rank. */
RLV_CHECKED int rlv_shards_poll(struct rlv_shards *shards, uint64_t *version_out);

/*
 * Waits for a version of all ranks above `newer_than`, and gives that of each rank: `ranks` elements, of one version.
 * After an error all are as they were. Errors as rlv_weights_fetch; -ETIMEDOUT names the rank that is last. Thread:
 * owner. Cost: as rlv_weights_fetch, for each rank.
 */
RLV_CHECKED int rlv_shards_fetch(struct rlv_shards *shards, uint64_t newer_than, int64_t timeout_ns,
				 struct rlv_generation *generations_out);

/*
 * As rlv_shards_fetch, with first tensors while others are on their way (rlv_weights_begin): of rank r the first ready_out[r]
 * tensors can be read; rlv_shards_more brings others. A version has begun only when all ranks have published it. -EAGAIN: it was
 * dropped each time before all had begun. Thread: owner. Cost: as rlv_weights_begin, for each rank.
 *
 *   ret = rlv_shards_begin(shards, 0, -1, generations, ready);
 *   while (ret == 0 && any ready[r] < generations[r].n_tensors)
 *           ret = rlv_shards_more(shards, generations, ready);
 */
RLV_CHECKED int rlv_shards_begin(struct rlv_shards *shards, uint64_t newer_than, int64_t timeout_ns,
				 struct rlv_generation *generations_out, uint32_t *ready_out);

/*
 * Reads on until one of ready_inout[], which are as this handle's call before gave them, has grown: that of the rank that has fewest
 * tensors ready, so that those that were published first come first, whatever their rank. Nothing happens when all are ready. Errors, which
 * name the rank, as rlv_weights_more: after -EAGAIN release all, and begin again. Thread: owner. Cost: as rlv_weights_more.
 */
RLV_CHECKED int rlv_shards_more(struct rlv_shards *shards, const struct rlv_generation *generations,
				uint32_t *ready_inout);

/* rlv_weights_limit, for each rank. -EINVAL. Thread: owner. Cost: none. */
RLV_CHECKED int rlv_shards_limit(struct rlv_shards *shards, uint64_t bytes);

/* rlv_weights_check, for each rank. -EINVAL. Thread: owner. Cost: none. */
RLV_CHECKED int rlv_shards_check(struct rlv_shards *shards, uint32_t check);

/* -------- state -------- */

struct rlv_weights_info {
	uint32_t size;
	uint32_t generations; /* that the store has */
	uint64_t version;     /* newest; 0 if there is none */
	uint64_t oldest;
	uint32_t keep, anchor_every;
	/* Of this handle: */
	uint64_t published, anchors; /* generations, and those that were anchors */
	uint64_t fetched;
	uint64_t deltas;                               /* applied */
	uint64_t repairs;                              /* see RLV_GENERATION_REPAIRED */
	uint64_t lost;                                 /* publishes that another one preceded */
	uint64_t round_trips, read_bytes, write_bytes; /* over a wire */
	uint64_t publish_lag; /* generations that are newer than what it fetched last */
};
#define RLV_WEIGHTS_INFO_INIT RLV_SIZED(struct rlv_weights_info)

/* Thread: owner. Cost: as rlv_weights_poll and rlv_kv_info. */
RLV_CHECKED int rlv_weights_info(struct rlv_generations *weights,
				 struct rlv_weights_info *info_out);

#ifdef __cplusplus
}
#endif

#endif
