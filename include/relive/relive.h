/*
 * Relive: replay buffer and actor-learner store on disaggregated memory. The whole public API, in
 * the order in which one uses it: open a store, create a table, append, sample, update, close.
 *
 * Actors write steps and learners draw batches straight from memory that neither of them owns: in
 * this process ("embed:"), on this host ("shm:NAME"), or on memory nodes ("relive://HOST:PORT").
 *
 * Conventions
 *   Errors    Functions return 0 or a negative errno; RLV_MUST_CHECK marks them. The message,
 *             which names the argument or call, is rlv_last_error() of this thread. On failure
 *             output arguments are untouched. Codes, by what is dead afterwards:
 *               nothing     -EAGAIN -EBUSY -EINTR
 *               the call    -EINVAL -ERANGE -EOVERFLOW -ENOENT -EEXIST -ENODATA -ENOSPC -ENOMEM
 *                           -ENOTSUP -EACCES -ESTALE -ETIMEDOUT -EBADMSG
 *               a path      -EISDIR -ENOTDIR -ENODEV -EROFS -EPERM: what is there is no such pool
 *               the handle  -EOWNERDEAD (fenced) -ECHILD (made before fork) -EBADF
 *               connection  -ECONNRESET -ECONNREFUSED -EPROTO
 *               node        -EHOSTDOWN
 *   Server    Calls that need the metadata server, when it gives no answer:
 *               -ECONNREFUSED  the request was not sent: the server is away, silent, or full of clients
 *               -ETIMEDOUT     sent, no answer within the store's timeout: outcome unknown
 *               -ECONNRESET    sent, then the connection ended: outcome unknown
 *             The server itself answers -ENOENT, -ESTALE (table dropped), -EHOSTDOWN (memory nodes
 *             down); -ENOENT of rlv_store_open: no such store on this host. append, sample and update
 *             go on without a server.
 *   Options   Structs with a `size` member, set by the _INIT macros; zero means the default.
 *   Versions  Program and library may differ: structs that begin with their size grow at the end.
 *             Fields that the library does not know must be 0 (else -EINVAL); answers are filled up
 *             to the size that the caller set; calls that fill arrays take the size of an element.
 *             Structs without a size do not grow; their reserved members are 0.
 *   Time      Nanoseconds. A timeout of 0 never waits, a negative one waits for ever. It bounds
 *             the whole call, retries included; a connection to a silent node is given up after half
 *             of what is left, at least 1 s. Calls without a timeout, or with 0, use the store's.
 *             RLV_TIMEOUT_STALL waits until the store's stall_ns have passed without progress: no
 *             step appended to the table and no item sampled. A call that waits for 2 s logs a
 *             warning that says what it waits for; each handle logs one a minute at most.
 *   Memory    Pointers given in are borrowed until the call returns. Nothing on the hot path
 *             (append, sample, update) allocates, locks or enters the kernel, except for waits and
 *             for new buffers of RLV_BATCHES_ANY.
 *   Threads   "any": any thread at any time. "owner": one thread at a time for each handle.
 *             "setup": while no other thread uses the handle. A handle does not survive fork():
 *             the child gets -ECHILD and opens its own.
 *   Cost      Dependent round trips (RT) of a remote transport, whatever the batch. A name after
 *             RT is the call's in tests/unit/client/costs.def, where trees have two levels to read.
 */
#ifndef RELIVE_RELIVE_H
#define RELIVE_RELIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of the _INIT macros: zero but for its size. */
#ifdef __cplusplus
template <class T> inline T rlv_sized()
{
	T all = T();
	all.size = sizeof(T);
	return all;
}
#define RLV_SIZED(type) rlv_sized<type>()
extern "C" {
#else
#define RLV_SIZED(type) \
	{ \
		.size = sizeof(type) \
	}
#endif

#if defined(__GNUC__)
#define RLV_API __attribute__((visibility("default")))
#define RLV_CHECKED __attribute__((visibility("default"), warn_unused_result))
#else
#define RLV_API
#define RLV_CHECKED
#endif

#define RLV_VERSION_MAJOR 0
#define RLV_VERSION_MINOR 1
#define RLV_VERSION_PATCH 0

#define RLV_MAX_COLUMNS 256
#define RLV_MAX_DIMS 6
#define RLV_MAX_VIEWS 8
#define RLV_NAME_BYTES 64 /* of a table or column, the final NUL included */

#define RLV_TIMEOUT_STALL INT64_MIN

/* -------- errors, versions, log -------- */

/* Words of the last failure on this thread, "" if none. Valid until its next call. Thread: any. */
RLV_API const char *rlv_last_error(void);

/* Symbolic name of a code, "EINVAL" for -EINVAL. Static. Thread: any. */
RLV_API const char *rlv_error_name(int code);

/* Version of the library that runs, "0.1.0". Static. Thread: any. */
RLV_API const char *rlv_version(void);

enum rlv_log_level { RLV_LOG_ERROR = 0, RLV_LOG_WARN = 1, RLV_LOG_INFO = 2, RLV_LOG_DEBUG = 3 };

/* Where the library's log lines go; NULL = nowhere (the default). fn may be called from any thread and
   must not call back into the library. Thread: setup. */
RLV_API void rlv_log_set(void (*fn)(void *ctx, enum rlv_log_level level, const char *line),
			 void *ctx, enum rlv_log_level most);

/* -------- store -------- */

struct rlv_store;

enum rlv_pages { RLV_PAGES_AUTO = 0, RLV_PAGES_SMALL = 1, RLV_PAGES_HUGE = 2 };

struct rlv_store_opts {
	uint32_t size;
	uint32_t pages;      /* embed: enum rlv_pages */
	uint64_t pool_bytes; /* embed: most memory, or size of a new file; 0 = all
				 memory that is free, or a file of 1 GiB */
	int64_t timeout_ns;  /* of control calls, and open's and create's wait for nodes; 0 = 5 s */
	/* The store's or a role's; NULL = RELIVE_TOKEN, else, for a store on this host, its file `token` */
	const char *token;
	bool read_only;   /* learners that only look: no append, no update, no view with
				max_times_sampled (-EACCES) */
	int64_t stall_ns; /* of RLV_TIMEOUT_STALL; 0 = 60 s */
	bool trust; /* embed:FILE: take rows as they are where they may be torn and have no checksums */
	/* relive:// of a server with certificates: PEM files, all three. Each NULL = RELIVE_TLS_CERT,
	   RELIVE_TLS_KEY, RELIVE_TLS_CA. Without them, the token is the key of the connection. */
	const char *tls_cert, *tls_key, *tls_ca; /* the CA: of the server's certificate for HOST */
};
#define RLV_STORE_OPTS_INIT RLV_SIZED(struct rlv_store_opts)

/*
 * Opens a store.
 *   "embed:"              in this process, in memory: no daemon; gone when closed
 *   "embed:FILE"          in this process, kept in FILE or a DAX device; reopened after a crash
 *   "shm:NAME"            the store NAME that `relive up` runs on this host
 *   "relive://HOST:PORT"  the metadata server there
 * Errors: -EINVAL (uri, opts), -ENOENT (no such store here), -ECONNREFUSED (its server does not
 * answer), -EACCES (token, epoch or certificate), -EBUSY (FILE is in use), -EPROTO (FILE or peer of another
 * format), -EBADMSG (FILE is damaged, and as it was; or a table of it has rows that may be torn and no
 * checksums: opts.trust), -EPERM (a pool that a memory node keeps for another store), -EISDIR (FILE is a
 * directory, as memory nodes keep), -ENODEV (a device, but none of DAX), -EROFS, -ENOSPC, -ENOMEM. A
 * refused FILE is as it was; one that was not there is not there.
 * Thread: any. Cost: control plane.
 */
RLV_CHECKED int rlv_store_open(const char *uri, const struct rlv_store_opts *opts,
			       struct rlv_store **store_out);

/* Closes; sets the pointer to NULL (a no-op if it is). -EBUSY: tables are open. Thread: setup. */
RLV_CHECKED int rlv_store_close(struct rlv_store **store);

/* Makes earlier appends durable (embed:FILE, nodes on files). Without an open writer, FILE is then as after
   a close. Thread: any. */
RLV_CHECKED int rlv_store_persist(struct rlv_store *store);

/* -------- tables -------- */

enum rlv_dtype {
	RLV_BOOL = 1,
	RLV_U8,
	RLV_I8,
	RLV_U16,
	RLV_I16,
	RLV_U32,
	RLV_I32,
	RLV_U64,
	RLV_I64,
	RLV_F16,
	RLV_F32,
	RLV_F64,
	RLV_BF16, /* bfloat16: the upper half of an f32 */
};

/* What sampling does with a column. */
enum rlv_role {
	RLV_PLAIN = 0,  /* as stored at the anchor step: action, mask, ... */
	RLV_OBS = 1,    /* stacked; also given as next_<name> n steps later, read from later rows */
	RLV_REWARD = 2, /* scalar RLV_F32 or RLV_F64: summed to the n-step return */
	RLV_NEXT = 3,   /* next observation stored by the actor: of the return's last step */
};

struct rlv_column {
	const char *name; /* [a-z_][a-z0-9_]*, unique in the table */
	uint32_t dtype;   /* enum rlv_dtype */
	uint32_t role;    /* enum rlv_role */
	uint32_t ndim;    /* of one step; 0 = scalar */
	uint32_t shape[RLV_MAX_DIMS];
};

enum rlv_selector { RLV_PRIORITIZED = 0, RLV_UNIFORM = 1, RLV_FIFO = 2, RLV_LIFO = 3 };

/*
 * Rate limiter: a sample of n items is admitted when
 *     inserts * samples_per_insert - samples - n >= min_diff
 * an insert of n when the same expression with it stays <= max_diff, and nothing is sampled before
 * min_size items were ever committed. All zero = min_size 1 and no other limit. Presets set all fields.
 *
 * Slack after a kill: the admission of a call whose process was killed (items of an append, for a
 * vector those of all streams; n of a sample) is given back even if the call had taken effect, and once
 * more if the server was killed meanwhile. Bounds are then wider by that many items for each killed
 * call, never narrower. Queues (max_times_sampled 1, samples_per_insert 1, both bounds) are exact again
 * once nobody is in a call.
 */
struct rlv_limiter {
	uint64_t min_size;
	double samples_per_insert;
	double min_diff;
	double max_diff;
};

/* Never before min_size items, otherwise free. */
RLV_API struct rlv_limiter rlv_limiter_min_size(uint64_t min_size);
/* Keeps samples / inserts at spi, within error_buffer samples to either side. */
RLV_API struct rlv_limiter rlv_limiter_sample_to_insert(double spi, uint64_t min_size,
							double error_buffer);
/* Every item once, at most queue_size ahead: for views with max_times_sampled 1. */
RLV_API struct rlv_limiter rlv_limiter_queue(uint64_t queue_size);
RLV_API struct rlv_limiter rlv_limiter_stack(uint64_t stack_size);

/*
 * A view says which items exist and how they are drawn. Views of a table share its rows: an item
 * is a window on steps, never a copy. Its key is the same in all calls.
 *
 * With a period above 1 items are sequences of `stack` steps that begin at step 0, period, 2*period,
 * ... of an episode, while they lie within it, and one that ends with its last step:
 *
 *     episode of 19 steps, stack 8, period 4
 *     step  0   4   8   12  16
 *           |------|
 *               |------|
 *                   |------|
 *                      |------|    shifted back, so that the last step is in it
 *
 * Only where an episode is shorter than `stack` is there padding, in the one sequence that it has.
 * The last step is the last one that has a return: of an episode that was truncated, or just stopped,
 * without a final observation it is the step before.
 */
struct rlv_view {
	uint32_t stack;             /* observations stacked, padded at episode starts; 0 = 1 */
	uint32_t n_step;            /* longest n-step return that a sampler may ask for; 0 = 1 */
	uint32_t selector;          /* enum rlv_selector */
	uint32_t period;            /* 0 = 1: an item for each step. More: as above */
	uint32_t max_times_sampled; /* 0 = no limit */
	uint32_t max_staleness;     /* policy versions behind the newest seen; 0 = no limit */
	double alpha;               /* priority exponent; 0 with RLV_PRIORITIZED = 0.6 */
	double eps;                 /* added to |TD error|; 0 = 1e-6 */
	struct rlv_limiter limiter;
	uint64_t reserved[4]; /* 0 */
};

#define RLV_SHARDS_AUTO UINT32_MAX /* of now, and of those that join later; embed: 1 */

struct rlv_table_opts {
	uint32_t size;
	uint32_t n_columns;
	const struct rlv_column *columns; /* the signature */
	uint64_t capacity;                /* steps that stay drawable */
	uint32_t n_views;                 /* 0 = one prioritized view of single transitions */
	uint32_t shards;                  /* 0 = 1; RLV_SHARDS_AUTO = one for each memory node */
	const struct rlv_view *views;
	uint32_t max_writers; /* streams (environments) that append at once; 0 = 4 */
	uint32_t max_clients; /* writer and sampler handles open at once; 0 = 64, 56 of a process */
	uint32_t block;       /* rows that a stream claims at once; 0 = chosen from the above */
	uint32_t row_crc;     /* rows carry a crc32c, so that none torn by a power loss is given
				   out: 1 = yes, 2 = no, 0 = where they may outlive one (files,
				   memory nodes on files or devices at the time of the creation) */
	const uint16_t *fanout; /* tree fan-out for each level from the leaves, zero-terminated;
				   NULL = by transport */
};
#define RLV_TABLE_OPTS_INIT RLV_SIZED(struct rlv_table_opts)

struct rlv_table;

/*
 * Creates a table, or opens the one of that name if its signature and options are the same. name:
 * letters, digits, _ - . (the last two not first), at most 63; other names are -EINVAL everywhere.
 * Errors: -EINVAL (the message names the argument and, where sizes do not fit, the numbers),
 * -EEXIST (another signature), -ENOSPC (pool full), -ENOMEM, -EHOSTDOWN (no memory node came up within
 * the store's timeout), -ETIMEDOUT (nor did the node that was to make it answer). Thread: any.
 * Cost: control plane.
 */
RLV_CHECKED int rlv_table_create(struct rlv_store *store, const char *name,
				 const struct rlv_table_opts *opts, struct rlv_table **table_out);

/*
 * Opens a table if at least one of its shards can be reached; the others come back by themselves
 * when their nodes do. -ENOENT: no such table, -EHOSTDOWN: no shard of it came back within
 * the store's timeout, -EBADMSG: its rows may be torn and have no checksums (relive-metad --trust).
 * Thread: any. Cost: control plane.
 */
RLV_CHECKED int rlv_table_open(struct rlv_store *store, const char *name,
			       struct rlv_table **table_out);

/* -EBUSY: writers or samplers of it are open. Thread: setup. */
RLV_CHECKED int rlv_table_close(struct rlv_table **table);

/* Removes a table for everybody; handles on it get -ESTALE from now on. Thread: any. */
RLV_CHECKED int rlv_table_drop(struct rlv_store *store, const char *name);

/* Names of the tables, in names[0..*n_inout); out: how many there are. Thread: any. */
RLV_CHECKED int rlv_store_tables(struct rlv_store *store, char (*names)[RLV_NAME_BYTES],
				 size_t *n_inout);

struct rlv_view_info {
	struct rlv_view view;
	int64_t items;     /* live items now */
	uint64_t inserted; /* items ever committed */
	uint64_t sampled; /* items ever handed over; a sampler over a wire counts 16 calls at once */
	double priority_sum;
	double max_priority;
	uint64_t overhead_bytes; /* leaves, inner levels and counts */
	int64_t items_lost; /* live items of shards that are away, as last seen by this handle */
	uint64_t reserved[4];
};

struct rlv_table_info {
	uint32_t size;
	uint32_t n_columns, n_views, shards;
	char name[RLV_NAME_BYTES];
	struct rlv_column columns[RLV_MAX_COLUMNS]; /* names point into the table handle */
	struct rlv_view_info views[RLV_MAX_VIEWS];
	uint64_t capacity;  /* as asked for */
	uint64_t slots;     /* rows of all shards, slack included */
	uint32_t block;     /* rows of a block */
	uint32_t window;    /* rows of the largest item */
	uint32_t row_bytes; /* header included */
	uint32_t row_header_bytes;
	uint32_t max_writers, max_clients;
	uint64_t rows_bytes; /* memory of all rows */
	uint64_t tree_bytes; /* memory of everything else: priorities, client slots and their pages */
	uint32_t shards_up; /* that can be reached now: items and sums above are theirs */
	uint32_t control;   /* shard whose limiter counts */
	uint64_t layout;    /* version of where the shards are, and what they are good for */
};

/*
 * Fills info; info->size is set by the caller. Goes on over the shards that can be reached;
 * -EHOSTDOWN if there is none. Thread: any. Cost: 2 RT for each shard.
 */
RLV_CHECKED int rlv_table_info(struct rlv_table *table, struct rlv_table_info *info_out);

enum rlv_shard_state {
	RLV_SHARD_ACTIVE = 1,   /* drawn from and appended to */
	RLV_SHARD_DRAINING = 2, /* drawn from; new blocks are claimed elsewhere */
	RLV_SHARD_DOWN = 3,     /* cannot be reached now */
	RLV_SHARD_LOST = 4,     /* gone with the memory of its node */
	RLV_SHARD_GONE = 5,     /* was drained and given up */
};

struct rlv_shard_info {
	uint32_t shard;
	uint32_t state;  /* enum rlv_shard_state, as this process sees it */
	uint32_t weight; /* share of new blocks, 1000 = all of it: less while a shard is new */
	char node[RLV_NAME_BYTES];
	char address[256]; /* of its node; while the shard is away, the last one known */
};

/*
 * Where the shards of a table are, in shards[0..*n_inout), size = sizeof(*shards); out: how many there
 * are. Thread: any. Cost: none, or a question to the server while some are away.
 */
RLV_CHECKED int rlv_table_shards(struct rlv_table *table, struct rlv_shard_info *shards,
				 size_t size, size_t *n_inout);

struct rlv_verify_report {
	uint32_t size;
	uint32_t problems; /* 0 = every invariant holds */
	uint64_t items;
	uint64_t wrong_sums, wrong_leaves, wrong_blocks, wrong_rows, wrong_words;
	uint64_t open_blocks;
	char first_problem[256];
};

/*
 * Walks all shards that can be reached and checks every invariant. Exact while nobody writes;
 * otherwise it may see changes half done. Thread: any. Cost: reads the whole tree.
 */
RLV_CHECKED int rlv_table_verify(struct rlv_table *table, struct rlv_verify_report *report_out);

/* -------- waits -------- */

/* A wait in slices. Begin with RLV_WATCH_INIT; pass it to rlv_sampler_watch or rlv_writer_watch after each
   call that returned -ETIMEDOUT, -ENODATA or -EAGAIN. */
struct rlv_watch {
	uint32_t size;
	bool warned;        /* out: the wait lasts for 2 s, and its text was logged */
	uint64_t looked_ns; /* time of the last look; set it to 0 for a look in the next call */
	uint64_t began_ns, moved_ns, seen; /* private */
	char text[384]; /* what it waits for, as of the last look: one every half second */
};
#define RLV_WATCH_INIT RLV_SIZED(struct rlv_watch)

/* -------- append: the actor's path -------- */

struct rlv_writer;

struct rlv_writer_opts {
	uint32_t size;
	uint32_t streams;   /* environments that this handle steps; 0 = 1 */
	int64_t timeout_ns; /* of an append: for the limiter, for room, for nodes; 0 = 5 s. Negative:
			       for ever, or RLV_TIMEOUT_STALL */
};
#define RLV_WRITER_OPTS_INIT RLV_SIZED(struct rlv_writer_opts)

enum rlv_step_flags {
	RLV_TERMINATED = 2, /* the action of this step ended the episode */
	RLV_TRUNCATED = 4,  /* a time limit or reset ended it; append the final observation next */
	RLV_FINAL = 16,     /* this row is only the observation after an episode's last action */
};

/*
 * n steps in column order of the signature: columns[c] points to n packed elements of column c. The
 * first step of a stream and the step after an ended episode begin an episode by themselves.
 */
struct rlv_steps {
	uint32_t size;
	uint32_t n;
	const void *const *columns;
	const uint16_t *flags;   /* n of enum rlv_step_flags; NULL = none */
	const double *td_error;  /* n initial |TD errors| for prioritized views; NULL = the running
				    maximum of the view */
	uint32_t policy_version; /* of the policy that acted */
};
#define RLV_STEPS_INIT RLV_SIZED(struct rlv_steps)

/* -ENOSPC: no client slot is free (max_clients; 7/8 for one process), or too many streams (max_writers). */
RLV_CHECKED int rlv_writer_open(struct rlv_table *table, const struct rlv_writer_opts *opts,
				struct rlv_writer **writer_out);

/*
 * Appends n consecutive steps of one stream. An item becomes drawable when its window is complete: when
 * the n_step steps behind it are in (one step less in tables that store next observations), or at once
 * by rlv_writer_end_episode, also after RLV_TERMINATED.
 * *appended_out (may be NULL): steps taken, fewer than n only on -ETIMEDOUT.
 * A step counts as taken when its items are published, or will be with the steps to come. Streams whose
 * memory node is lost go on in another shard, with the steps whose items were not published yet; such
 * an item may be there twice when the node comes back.
 * Errors: -EINVAL (names the argument), -ETIMEDOUT (the limiter of the view named, or no block),
 * -EOWNERDEAD (this handle was fenced: open another), -ESTALE (table dropped), -ECHILD, -EHOSTDOWN
 * (until the deadline no shard, or not the one that keeps the limiter's counts, could be reached).
 * Thread: owner. Cost: 1 RT (append), 5 RT (append_claim) for each block; 4 RT (append_limited).
 */
RLV_CHECKED int rlv_writer_append(struct rlv_writer *writer, uint32_t stream,
				  const struct rlv_steps *steps, uint32_t *appended_out);

/*
 * Appends one step of each stream: steps->n equals the writer's streams, element i is stream i's.
 * All or nothing with respect to the limiter. Otherwise as rlv_writer_append.
 */
RLV_CHECKED int rlv_writer_append_vector(struct rlv_writer *writer, const struct rlv_steps *steps);

/*
 * Ends the episode of a stream: items whose window lacks later steps are completed (their return
 * ends here) and drawable. final: the observation columns after the last action, as one step, or NULL.
 * The rows that they lack, up to the longest n_step, are filled; fillers take room as steps do.
 */
RLV_CHECKED int rlv_writer_end_episode(struct rlv_writer *writer, uint32_t stream,
				       const struct rlv_steps *final);

/* As rlv_sampler_watch, for the append that waited last. Thread: owner. */
RLV_CHECKED int rlv_writer_watch(struct rlv_writer *writer, struct rlv_watch *watch);

/*
 * Completes the pending items of every stream, closes its blocks and frees the slot. The handle is
 * gone and the pointer NULL whatever is returned.
 */
RLV_CHECKED int rlv_writer_close(struct rlv_writer **writer);

/* -------- sample and update: the learner's path -------- */

struct rlv_sampler;

/* How columns lie in a batch of B items. */
enum rlv_layout {
	RLV_DENSE = 0, /* obs [B,stack,...] and next_obs apart; each a packed array */
	/* one array [B,rows,...] for each observation; obs and next_obs are strided views of it,
	   and the frames that they share are written once */
	RLV_WINDOW = 1,
};

enum rlv_weights {
	RLV_WEIGHTS_BATCH = 0, /* (N P)^-beta divided by the batch's maximum */
	RLV_WEIGHTS_RAW = 1,   /* (N P)^-beta */
};

/* How an item that came over a network is known to be whole. In place it is always by its leaf. */
enum rlv_verify {
	RLV_VERIFY_LEAF = 0, /* its leaf is read again after its rows: 1 RT more */
	RLV_VERIFY_CRC = 1,  /* by the crc32c and generation of each row; needs row_crc */
};

/* Where batch buffers come from: pinned or registered memory, or memory that outlives the sampler. */
struct rlv_memory {
	void *(*alloc)(void *ctx, size_t align, size_t bytes); /* NULL when there is none */
	void (*free)(void *ctx, void *ptr, size_t bytes);
	void *ctx;
};

/* A sample that finds no free buffer allocates one; rlv_sampler_close frees them. */
#define RLV_BATCHES_ANY UINT32_MAX

struct rlv_sampler_opts {
	uint32_t size;
	uint32_t view;          /* index of the view */
	uint32_t batch_size;    /* most items of one sample; 0 = 256 */
	uint32_t n_step;        /* 1..view.n_step; 0 = view.n_step */
	double gamma;           /* discount of the n-step return; 0 = 0.99 */
	double beta;            /* importance exponent; 0 = 0.4; negative = no weights (all 1) */
	uint32_t layout;        /* enum rlv_layout */
	uint32_t weights;       /* enum rlv_weights */
	uint32_t batches;       /* batch buffers that may be held at once: up to 64, or
				   RLV_BATCHES_ANY; 0 = 2 */
	uint32_t defer_updates; /* add priority changes to upper levels every so many updates; 0 or
				   1 = in each. Updates get cheaper; draws of everybody, from sums
				   that lag by that much, get dearer: measure */
	uint64_t seed;          /* 0 = from the system */
	uint32_t rank;          /* data-parallel learners: this one's ... */
	uint32_t world_size;    /* ... disjoint share of each draw's strata; 0 = 1 */
	bool independent;       /* draws independent of each other instead of stratified */
	bool short_batch; /* give fewer items rather than fail when items keep being overwritten */
	/* One call of alloc for each batch buffer, in rlv_sampler_open or, with RLV_BATCHES_ANY, in a
	   sample; one of free in rlv_sampler_close; copied. NULL = memory of the library. */
	const struct rlv_memory *memory;
	uint32_t verify; /* enum rlv_verify */
	/* Batches drawn ahead over a network, each with a buffer of its own; 0 = none. Ignored for
	   local memory and for fifo and lifo views. */
	uint32_t prefetch;
	/* Columns of batches, by name; copied. NULL, n_columns 0 = all. None (0, pointer not NULL) =
	   keys, weights, probabilities and priorities alone: rows are not read, so they may already
	   be overwritten; samples cost 2 RT less, 1 with RLV_VERIFY_CRC. */
	const char *const *columns;
	uint32_t n_columns;
};
#define RLV_SAMPLER_OPTS_INIT RLV_SIZED(struct rlv_sampler_opts)

/* One column of a batch: element (i, ...) is at data + i*strides[0] + ... bytes. */
struct rlv_array {
	const char *name;
	void *data;
	uint32_t dtype;
	uint32_t ndim; /* batch dimension included */
	int64_t shape[RLV_MAX_DIMS + 2];
	int64_t strides[RLV_MAX_DIMS + 2]; /* bytes */
	uint64_t reserved[2];
};

#define RLV_MAX_ARRAYS (2 * RLV_MAX_COLUMNS + 4)

/*
 * A batch. Arrays are the columns (those of opts.columns) in signature order (an RLV_OBS column is
 * followed by its next_<name>), then "discount" (f32: gamma^k, 0 after a terminated episode) and "steps"
 * (u32: k, steps in the return). Without any column there are no arrays. All memory belongs to the
 * sampler and is valid until rlv_batch_release, or rlv_sampler_close.
 */
struct rlv_batch {
	uint32_t n; /* items */
	uint32_t n_arrays;
	const struct rlv_array *arrays;
	const uint64_t *key;
	const float *weight;            /* IS weights */
	const double *probability;      /* of each draw */
	const float *priority;          /* stored priority, (|TD| + eps)^alpha */
	const uint32_t *policy_version; /* NULL without columns */
	int64_t table_size;             /* live items of the view when drawn */
};

/* -EINVAL names the option. -ENOSPC: no client slot. -EACCES: the token is of role read, which takes none,
   and the view counts its samples (max_times_sampled, or a limiter with bounds). */
RLV_CHECKED int rlv_sampler_open(struct rlv_table *table, const struct rlv_sampler_opts *opts,
				 struct rlv_sampler **sampler_out);

/*
 * Draws n items (1..batch_size) and gathers them. Every item handed over was whole at one moment:
 * its bytes are those of the generation in its key.
 * A view with max_times_sampled hands over what it took, fewer than n when there is no more.
 * Errors: -ETIMEDOUT (the limiter did not allow it in time, or all stalled; its message says what it
 * waits for: items there and needed, the limiter, and whether inserts or samples are to come),
 * -ENODATA (timeout 0 and nothing to draw, or below min_size), -EINVAL (n can never be admitted),
 * -EBUSY (all batch buffers are held), -ESTALE, -ECHILD, -EHOSTDOWN (until the deadline no shard,
 * or not the one that keeps the limiter's counts, could be reached). When a memory node is lost,
 * the call goes on over the other shards.
 * With opts.prefetch the next batches of n are drawn, gathered and verified while this one is used;
 * this call, an update or rlv_sampler_poll advances them. Their priorities are those of the draw;
 * admission and consumption (max_times_sampled) happen at hand-over. A call with another n discards them.
 * Thread: owner. Cost: 5 RT (sample), 4 RT (sample_sealed), 8 RT (sample_limited), 6 RT (sample_fifo),
 * 6 RT (take), whatever n; one for each level of the tree is in it. One more for each 32 MiB of rows. With
 * opts.prefetch what is left of that, shared by all that are under way.
 */
RLV_CHECKED int rlv_sampler_sample(struct rlv_sampler *sampler, uint32_t n, int64_t timeout_ns,
				   const struct rlv_batch **batch_out);

/*
 * Watches the wait for a sample of n: fills watch->text, logs it after 2 s. -ETIMEDOUT: no progress for
 * the store's stall_ns; the message says what the sample waits for. -EINVAL: names the argument.
 * Thread: owner. Cost: one reading of the clock; twice a second that of rlv_table_info.
 */
RLV_CHECKED int rlv_sampler_watch(struct rlv_sampler *sampler, uint32_t n, struct rlv_watch *watch);

/* Moves on what is drawn ahead (opts.prefetch), without waiting: for learners that compute for longer than
   a round trip. *ready_out (may be NULL): batches that are done. Thread: owner. Cost: local. */
RLV_CHECKED int rlv_sampler_poll(struct rlv_sampler *sampler, uint32_t *ready_out);

/* Options that may change from sample to sample; 0 = as the sampler was opened. */
struct rlv_sample_opts {
	uint32_t size;
	uint32_t n_step; /* 1..n_step of the sampler */
	double gamma;    /* discount of the n-step return */
	double beta;     /* importance exponent; negative = no weights (all 1) */
};
#define RLV_SAMPLE_OPTS_INIT RLV_SIZED(struct rlv_sample_opts)

/*
 * Sets the options of the samples from now on; opts NULL = as opened. Held batches stay as they are.
 * Another n_step or gamma discards the batches drawn ahead. -EINVAL names the option, and nothing has
 * changed. Thread: owner. Cost: local.
 */
RLV_CHECKED int rlv_sampler_set_opts(struct rlv_sampler *sampler,
				     const struct rlv_sample_opts *opts);

/* Gives a batch's buffer back; NULL is a no-op. Thread: owner of the sampler. */
RLV_API void rlv_batch_release(struct rlv_sampler *sampler, const struct rlv_batch *batch);

struct rlv_update_result {
	uint32_t updated;
	uint32_t stale;   /* dropped: the item was overwritten or retired, or is on a lost node */
	uint32_t clamped; /* outside the view's range, stored as the nearest */
	uint32_t reserved[5];
};

/*
 * Sets priorities from n absolute TD errors: (|td| + eps)^alpha. A key given twice takes its last
 * value. Keys of overwritten items drop and are counted. *result_out may be NULL.
 * Errors: -EINVAL (NaN, infinite or negative value, key of another table or no key at all: checked
 * before anything changes; the message names the index. Or the view is not prioritized).
 * Thread: owner. Cost: 1 RT (update) for keys of a batch of this sampler that is still held or was the
 * last; 2 RT (update_again) otherwise.
 */
RLV_CHECKED int rlv_sampler_update(struct rlv_sampler *sampler, const uint64_t *keys,
				   const float *td_error, uint32_t n,
				   struct rlv_update_result *result_out);

/* As rlv_sampler_update with ready priorities p^alpha instead of TD errors. */
RLV_CHECKED int rlv_sampler_set_priorities(struct rlv_sampler *sampler, const uint64_t *keys,
					   const float *priorities, uint32_t n,
					   struct rlv_update_result *result_out);

/* Adds deferred changes to the tree now, and what was sampled to the counts. Thread: owner. */
RLV_CHECKED int rlv_sampler_flush(struct rlv_sampler *sampler);

/* Flushes, releases all batches, frees the slot. Gone whatever is returned. */
RLV_CHECKED int rlv_sampler_close(struct rlv_sampler **sampler);

/* -------- memory that devices know -------- */

/*
 * Memory as batches lie in: on huge pages where the host has them, and registered once with every
 * RDMA device that this process uses, which then moves it without a copy. Not zeroed. align: a power
 * of two, at most 2 MiB. A forked child has no access to it once a device has been used. For set-up:
 * it takes a lock; relive/jemalloc.h is for many small buffers.
 * Errors: -EINVAL (align, or bytes 0), -ENOMEM. Thread: any.
 */
RLV_CHECKED int rlv_buffer_alloc(size_t align, size_t bytes, void **buffer_out);

/* Gives a buffer back, or a part that starts and ends on 64 bytes; NULL is a no-op. Thread: any. */
RLV_API void rlv_buffer_free(void *buffer, size_t bytes);

/* 0 if devices know all of [ptr, ptr + bytes) by one registration; else -ENOENT, without a message.
   Thread: any. Cost: a few loads. */
RLV_CHECKED int rlv_buffer_find(const void *ptr, size_t bytes);

/* -------- counters -------- */

struct rlv_stats {
	uint32_t size;
	uint64_t calls;         /* appends, or samples */
	uint64_t steps;         /* appended */
	uint64_t items;         /* published, or sampled */
	uint64_t updates;       /* priorities set */
	uint64_t stale_updates; /* dropped */
	uint64_t clamped;
	uint64_t redraws; /* drawn items that failed their check: bytes never handed over */
	uint64_t blocks_claimed, blocks_skipped;
	uint64_t repeated_rows;
	/* Calls that waited, for how long: for a limiter, a free block, or shards that were away. */
	uint64_t limiter_waits, limiter_wait_ns;
	/* Of memory nodes that are reached over a network; 0 for those of this host. */
	uint64_t phases; /* dependent round trips */
	uint64_t reads, writes, cas, faa;
	uint64_t cas_failed; /* compare-and-swaps that found another word: of this host, too */
	uint64_t read_bytes, write_bytes;
	uint64_t shards_lost;  /* times that a shard became unreachable */
	uint64_t updates_lost; /* stale_updates of items in shards that are away */
	int64_t items_lost;    /* live items there: of the view as last seen, or published by us */
	/* Steps that were truncated, and whose next row was no final observation: of tables whose next
	   observations are read from later rows, where they are no items. */
	uint64_t truncated_lost;
};

/* Counters of a handle since it was opened; stats_out->size is set by the caller. Thread: owner. */
RLV_CHECKED int rlv_writer_stats(struct rlv_writer *writer, struct rlv_stats *stats_out);
RLV_CHECKED int rlv_sampler_stats(struct rlv_sampler *sampler, struct rlv_stats *stats_out);

/* -------- store information -------- */

enum rlv_node_state {
	RLV_NODE_DOWN = 0,
	RLV_NODE_UP = 1,
	RLV_NODE_DRAINING = 2, /* up; gets no new shards, and those that it has leave */
	RLV_NODE_LOST = 3,     /* down for good: its shards are lost */
};

struct rlv_node_info {
	char name[RLV_NAME_BYTES];
	char address[256];
	uint64_t pool_bytes, used_bytes;
	uint64_t incarnation;
	uint32_t regions;
	uint32_t state;     /* enum rlv_node_state */
	char pages[16];     /* what backs the pool: thp, hugetlb, small, file, dax */
	char transport[16]; /* shm, verbs */
	uint32_t shards;    /* of all tables that it has */
	uint32_t clients;   /* attached */
	uint32_t n_gauges;
	struct {
		char name[16]; /* verbs has qps, mrs and windows of its RDMA device */
		uint64_t value;
	} gauges[8];             /* what its transport holds now */
	uint64_t agent_cpu_ns;   /* CPU time of its thread that serves clients: no append, sample
				       or update adds to it */
	uint64_t process_cpu_ns; /* and of the whole node */
	uint64_t silent_ns;      /* since the server heard of it last */
	uint32_t broken;         /* regions of them whose files were cut short or cannot be read */
};

struct rlv_store_info {
	uint32_t size;
	char uri[256];
	char server_version[32];
	uint64_t term;
	uint32_t n_nodes, n_tables, n_clients;
	uint32_t rebuilds; /* online rebuilds done since the server started */
	char waiting[256]; /* what rebuilds wait for before sums are exact again, in words */
};

/* Thread: any. Cost: control plane. */
RLV_CHECKED int rlv_store_info(struct rlv_store *store, struct rlv_store_info *info_out);

/*
 * The memory nodes of a store, in nodes[0..*n_inout), size = sizeof(*nodes); out: how many there are. An
 * embedded store has one. Thread: any. Cost: control plane.
 */
RLV_CHECKED int rlv_store_nodes(struct rlv_store *store, struct rlv_node_info *nodes, size_t size,
				size_t *n_inout);

/*
 * Writes the catalog as it is now into a file: tables, and where their shards are; no items. The
 * server goes on meanwhile. The file is complete or not there, and replaces one of that name; `relive
 * restore` puts it back. Errors: -ENOTSUP (embed:), -ECONNRESET (the server ended meanwhile), -ENOSPC
 * and other errors of the file. Thread: any. Cost: control plane.
 */
RLV_CHECKED int rlv_store_backup(struct rlv_store *store, const char *path);

/* -------- memory nodes that leave and join -------- */

struct rlv_drain_info {
	uint32_t size;
	uint32_t shards; /* that are still there: 0 = the node may be stopped, nothing is lost */
	uint64_t items_left;  /* to be overwritten elsewhere until then ... */
	uint64_t items_begin; /* ... of so many */
};

/*
 * Begins to drain a node, and says how far that is: its shards take no new blocks, and each goes
 * when the others have taken in as many items as it held. Call it again to see. info->size is set by
 * the caller. Errors: -ENOENT (no such node), -EHOSTDOWN (it is down, or the only one), -ENOTSUP
 * (embed:). Thread: any. Cost: control plane.
 */
RLV_CHECKED int rlv_store_drain_node(struct rlv_store *store, const char *node,
				     struct rlv_drain_info *info_out);

/*
 * Declares a node that is down lost, with all that it held; else that is done after a while, for
 * nodes in memory. A pool that survives its node keeps it, until that is started with --adopt or
 * --discard. Errors: -ENOENT, -EBUSY (it is up), -ENOTSUP. Thread: any. Cost: control plane.
 */
RLV_CHECKED int rlv_store_drop_node(struct rlv_store *store, const char *node);

/*
 * Spreads a table over the nodes that are up: new shards where there are too few, as many drained
 * where there are too many. Tables made with RLV_SHARDS_AUTO are spread by themselves. *added_out and
 * *draining_out (may be NULL): shards. Errors: -ENOENT, -ENOTSUP, -EHOSTDOWN, -ENOSPC (of the node that
 * was to have one more; steps before that are done). Thread: any. Cost: control plane.
 */
RLV_CHECKED int rlv_table_rebalance(struct rlv_store *store, const char *name, uint32_t *added_out,
				    uint32_t *draining_out);

#ifdef __cplusplus
}
#endif

#endif
