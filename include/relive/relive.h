/*
 * Relive: replay buffer and actor-learner store on disaggregated memory. The whole public API, in
 * order of use: open a store, create a table, append, sample, update, close.
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
 *               a path      -EISDIR -ENOTDIR -ENODEV -EROFS -EPERM: the path is not such a pool
 *               the handle  -EOWNERDEAD (fenced) -ECHILD (made before fork) -EBADF
 *               connection  -ECONNRESET -ECONNREFUSED -EPROTO
 *               node        -EHOSTDOWN
 *   Server    Calls that need the metadata server, when it does not answer:
 *               -ECONNREFUSED  not sent: the server is down, silent, or at its limit of clients
 *               -ETIMEDOUT     sent, no answer within the store's timeout: outcome unknown
 *               -ECONNRESET    sent, then the connection ended: outcome unknown
 *             The server itself answers -ENOENT, -ESTALE (table dropped), -EHOSTDOWN (memory nodes
 *             down); -ENOENT of rlv_store_open: no such store here. append, sample and update
 *             work without a server.
 *   Options   Structs with a `size` member, set by the _INIT macros; a zero field is the default.
 *   Versions  Program and library may differ: structs that begin with their size grow at the end.
 *             Fields unknown to the library must be 0 (else -EINVAL); output structs are filled up
 *             to the size that the caller set; calls that fill arrays take the size of one element.
 *             Structs without a size do not grow; their reserved members are 0.
 *   Time      Nanoseconds. A timeout of 0 never waits; a negative one waits for ever. It bounds
 *             the whole call, retries included; connecting to a silent node is abandoned after half
 *             of the remaining time, at least 1 s. Calls without a timeout use the store's.
 *             RLV_TIMEOUT_STALL waits until the store's stall_ns have passed without progress: no
 *             step appended to the table and no item sampled. A call that waits for 2 s logs a
 *             warning with the reason; each handle logs at most one per minute.
 *   Memory    Pointers given in are borrowed until the call returns. Nothing on the hot path
 *             (append, sample, update) allocates, locks or enters the kernel, except waits and
 *             new buffers of RLV_BATCHES_ANY.
 *   Threads   "any": any thread at any time. "owner": one thread at a time for each handle.
 *             "setup": while no other thread uses the handle. A handle does not survive fork():
 *             the child gets -ECHILD and opens its own.
 *   Cost      Dependent round trips (RT) over a network, for any batch size. The name after
 *             RT is a row of tests/unit/client/costs.def, whose trees have two levels to read.
 */
#ifndef RELIVE_RELIVE_H
#define RELIVE_RELIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Value of the _INIT macros: all zero except the size. */
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
#define RLV_NAME_BYTES 64 /* name of a table or column, with the final NUL */

#define RLV_TIMEOUT_STALL INT64_MIN

/* -------- errors, versions, log -------- */

/* Message of this thread's last failure, "" if none. Valid until its next call. Thread: any. */
RLV_API const char *rlv_last_error(void);

/* Symbolic name of a code, "EINVAL" for -EINVAL. Static. Thread: any. */
RLV_API const char *rlv_error_name(int code);

/* Version of the loaded library, "0.1.0". Static. Thread: any. */
RLV_API const char *rlv_version(void);

enum rlv_log_level { RLV_LOG_ERROR = 0, RLV_LOG_WARN = 1, RLV_LOG_INFO = 2, RLV_LOG_DEBUG = 3 };

/* Sets the receiver of log lines up to level `most`; NULL = none (default). fn may run in any
   thread and must not call the library. Thread: setup. */
RLV_API void rlv_log_set(void (*fn)(void *ctx, enum rlv_log_level level, const char *line),
			 void *ctx, enum rlv_log_level most);

/* -------- store -------- */

struct rlv_store;

enum rlv_pages { RLV_PAGES_AUTO = 0, RLV_PAGES_SMALL = 1, RLV_PAGES_HUGE = 2 };

struct rlv_store_opts {
	uint32_t size;
	uint32_t pages;      /* embed: enum rlv_pages */
	uint64_t pool_bytes; /* embed: memory limit (0 = all that is free), or size of a new
				file (0 = 1 GiB) */
	int64_t timeout_ns;  /* of control calls, and of open's and create's node wait; 0 = 5 s */
	/* Token of the store or a role; NULL = RELIVE_TOKEN, else a local store's file `token` */
	const char *token;
	bool read_only;   /* no append, update or view with max_times_sampled (-EACCES) */
	int64_t stall_ns; /* longest time without progress for RLV_TIMEOUT_STALL; 0 = 60 s */
	bool trust;       /* embed:FILE: accept rows that may be torn and have no checksums */
	/* relive:// server with certificates: all three PEM files. NULL = RELIVE_TLS_CERT,
	   RELIVE_TLS_KEY, RELIVE_TLS_CA. Without them, the token is the key of the connection. */
	const char *tls_cert, *tls_key, *tls_ca; /* CA of the server's certificate for HOST */
};
#define RLV_STORE_OPTS_INIT RLV_SIZED(struct rlv_store_opts)

/*
 * Opens a store.
 *   "embed:"              in this process, in memory: no daemon; gone when closed
 *   "embed:FILE"          in this process, kept in FILE or a DAX device; reopened after a crash
 *   "shm:NAME"            the store NAME that `relive up` runs on this host
 *   "relive://HOST:PORT"  the store of the metadata server there; "relive://@FILE": as FILE says
 * Errors: -EINVAL (uri, opts), -ENOENT (no such store on this host), -ECONNREFUSED (its server does
 * not answer), -EACCES (token, epoch or certificate), -EBUSY (FILE is in use), -EPROTO (FILE or
 * peer has another format), -EBADMSG (FILE is damaged, or a table has rows that may be torn and no
 * checksums: opts.trust), -EPERM (FILE is a memory node's pool of another store), -EISDIR (FILE is
 * a directory: a memory node's pool), -ENODEV (a device other than DAX), -EROFS, -ENOSPC, -ENOMEM.
 * After an error, an existing FILE is unchanged and a new one is removed.
 * Thread: any. Cost: control plane.
 */
RLV_CHECKED int rlv_store_open(const char *uri, const struct rlv_store_opts *opts,
			       struct rlv_store **store_out);

/* Closes a store and sets *store to NULL; NULL is a no-op. -EBUSY: tables or heaps are open, and
   the store stays open. Thread: setup. */
RLV_CHECKED int rlv_store_close(struct rlv_store **store);

/* Makes earlier appends durable (embed:FILE, nodes on files). Without an open writer, FILE is then
   in the state of a close. Thread: any. */
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

/* How sampling treats a column. The anchor is an item's current step. */
enum rlv_role {
	RLV_PLAIN = 0,  /* value at the anchor: action, mask, ... */
	RLV_OBS = 1,    /* stacked; next_<name> is the stack n steps later, read from later rows */
	RLV_REWARD = 2, /* scalar RLV_F32 or RLV_F64: summed to the n-step return */
	RLV_NEXT = 3,   /* next observation stored by the actor, at the return's last step */
};

struct rlv_column {
	const char *name; /* [A-Za-z_][A-Za-z0-9_.]*, unique in the table */
	uint32_t dtype;   /* enum rlv_dtype */
	uint32_t role;    /* enum rlv_role */
	uint32_t ndim;    /* of one step; 0 = scalar */
	uint32_t shape[RLV_MAX_DIMS];
};

enum rlv_selector { RLV_PRIORITIZED = 0, RLV_UNIFORM = 1, RLV_FIFO = 2, RLV_LIFO = 3 };

/*
 * Rate limiter. A sample of n items is admitted if min_size items were ever committed and
 *     inserts * samples_per_insert - samples - n >= min_diff
 * An insert of n is admitted if the same expression, with the n inserted, stays <= max_diff. All
 * zero = min_size 1 and no other limit. Presets set all fields.
 *
 * Slack after a kill: if a process is killed inside a call, the call's admission (items of an
 * append, of all streams for a vector; n of a sample) is refunded even if the call had taken
 * effect, and refunded again if the server was killed meanwhile. Each killed call widens the bounds
 * by that many items; they never narrow. Queues (max_times_sampled 1, samples_per_insert 1, both
 * bounds) are exact again once no client is in a call.
 */
struct rlv_limiter {
	uint64_t min_size;
	double samples_per_insert;
	double min_diff;
	double max_diff;
};

/* Samples wait until there are min_size items; inserts never wait. */
RLV_API struct rlv_limiter rlv_limiter_min_size(uint64_t min_size);
/* Holds samples at spi for each insert after the first min_size, within error_buffer samples on
   either side. */
RLV_API struct rlv_limiter rlv_limiter_sample_to_insert(double spi, uint64_t min_size,
							double error_buffer);
/* Inserts wait while queue_size items are not sampled yet, samples while there are none: for views
   with max_times_sampled 1. */
RLV_API struct rlv_limiter rlv_limiter_queue(uint64_t queue_size);
RLV_API struct rlv_limiter rlv_limiter_stack(uint64_t stack_size);

/*
 * A view defines which items exist and how they are drawn. Views of a table share its rows: an item
 * is a window of steps, not a copy. An item's key is the same in all calls.
 *
 * With a period above 1, items are sequences of `stack` steps. They begin at steps 0, period,
 * 2*period, ... of an episode while they fit; one more ends with the last step:
 *
 *     episode of 19 steps, stack 8, period 4
 *     step  0   4   8   12  16
 *           |------|
 *               |------|
 *                   |------|
 *                      |------|    shifted back, so that it ends with the last step
 *
 * Only an episode shorter than `stack` is padded, in its only sequence. The last step is the last
 * with a return: after truncation or a stop without a final observation, the step before.
 */
struct rlv_view {
	uint32_t stack;             /* observations stacked, padded at episode starts; 0 = 1 */
	uint32_t n_step;            /* longest n-step return that a sampler may ask for; 0 = 1 */
	uint32_t selector;          /* enum rlv_selector */
	uint32_t period;            /* 0 = 1: an item per step; above 1: sequences, see above */
	uint32_t max_times_sampled; /* 0 = no limit */
	uint32_t max_staleness;     /* most policy versions behind the newest seen; 0 = no limit */
	double alpha;               /* priority exponent; 0 with RLV_PRIORITIZED = 0.6 */
	double eps;                 /* added to |TD error|; 0 = 1e-6 */
	struct rlv_limiter limiter;
	uint64_t reserved[4]; /* 0 */
};

#define RLV_SHARDS_AUTO UINT32_MAX /* one per memory node, later ones too; embed: 1 */

struct rlv_table_opts {
	uint32_t size;
	uint32_t n_columns;
	const struct rlv_column *columns; /* the signature */
	uint64_t capacity;                /* steps that stay drawable */
	uint32_t n_views;                 /* 0 = one prioritized view of single transitions */
	uint32_t shards;                  /* 0 = 1; or RLV_SHARDS_AUTO */
	const struct rlv_view *views;
	uint32_t max_writers;   /* streams (environments) that append at once; 0 = 4 */
	uint32_t max_clients;   /* open writers and samplers; 0 = 64, at most 56 of one process */
	uint32_t block;         /* rows that a stream claims at once; 0 = chosen from the above */
	uint32_t row_crc;       /* crc32c in each row: never sample one torn by a power loss.
				   1 = yes, 2 = no, 0 = yes for embed:FILE, and if at creation
				   a node is on a file or device, or of transport ofi */
	const uint16_t *fanout; /* tree fan-out for each level from the leaves, zero-terminated;
				   NULL = by transport */
};
#define RLV_TABLE_OPTS_INIT RLV_SIZED(struct rlv_table_opts)

struct rlv_table;

/*
 * Creates a table, or opens the existing one if its signature and options are the same. name:
 * letters, digits, _ - . (the last two not first), at most 63; other names are -EINVAL everywhere.
 * Errors: -EINVAL (the message names the argument and any sizes that do not fit), -EEXIST (another
 * signature), -EBUSY (it is being loaded: relive/save.h), -ENOSPC (pool full), -ENOMEM, -EHOSTDOWN (no memory node came up within the store's
 * timeout), -ETIMEDOUT (the node that creates it did not answer). Thread: any. Cost: control plane.
 */
RLV_CHECKED int rlv_table_create(struct rlv_store *store, const char *name,
				 const struct rlv_table_opts *opts, struct rlv_table **table_out);

/*
 * Opens a table if at least one of its shards is reachable; the others are attached again when
 * their nodes return. -ENOENT: no such table, -EBUSY: it is being loaded (relive/save.h), -EHOSTDOWN: no shard became reachable within the
 * store's timeout, -EBADMSG: its rows may be torn and have no checksums (relive-metad --trust).
 * Thread: any. Cost: control plane.
 */
RLV_CHECKED int rlv_table_open(struct rlv_store *store, const char *name,
			       struct rlv_table **table_out);

/* Closes a table. -EBUSY: writers or samplers of it are open. Thread: setup. */
RLV_CHECKED int rlv_table_close(struct rlv_table **table);

/* Removes a table for all clients; their handles get -ESTALE from now on. Thread: any. */
RLV_CHECKED int rlv_table_drop(struct rlv_store *store, const char *name);

/* Lists table names in names[0..*n_inout); *n_inout becomes the number of tables. Thread: any. */
RLV_CHECKED int rlv_store_tables(struct rlv_store *store, char (*names)[RLV_NAME_BYTES],
				 size_t *n_inout);

struct rlv_view_info {
	struct rlv_view view;
	int64_t items;     /* live items now */
	uint64_t inserted; /* items ever committed */
	uint64_t sampled;  /* items ever returned; over a network, added every 16 calls */
	double priority_sum;
	double max_priority;
	uint64_t overhead_bytes; /* leaves, inner levels and counts */
	int64_t items_lost;      /* live items of unreachable shards, as last seen by this handle */
	uint64_t reserved[4];
};

struct rlv_table_info {
	uint32_t size;
	uint32_t n_columns, n_views, shards;
	char name[RLV_NAME_BYTES];
	struct rlv_column columns[RLV_MAX_COLUMNS]; /* names point into the table handle */
	struct rlv_view_info views[RLV_MAX_VIEWS];
	uint64_t capacity;  /* as asked for */
	uint64_t slots;     /* rows in all shards, slack included */
	uint32_t block;     /* rows per block */
	uint32_t window;    /* rows of the largest item */
	uint32_t row_bytes; /* header included */
	uint32_t row_header_bytes;
	uint32_t max_writers, max_clients;
	uint64_t rows_bytes; /* memory of all rows */
	uint64_t tree_bytes; /* other memory: priorities, client slots and their pages */
	uint32_t shards_up;  /* reachable now; items and sums above cover only these */
	uint32_t control;    /* shard that keeps the limiter's counts */
	uint64_t layout;     /* version of the placement and states of the shards */
};

/* Describes a table and its reachable shards; -EHOSTDOWN if there is none. The caller sets
   info->size. Thread: any. Cost: 2 RT for each shard. */
RLV_CHECKED int rlv_table_info(struct rlv_table *table, struct rlv_table_info *info_out);

enum rlv_shard_state {
	RLV_SHARD_ACTIVE = 1,   /* sampled and appended to */
	RLV_SHARD_DRAINING = 2, /* sampled; new blocks go to other shards */
	RLV_SHARD_DOWN = 3,     /* unreachable now */
	RLV_SHARD_LOST = 4,     /* lost with the memory of its node */
	RLV_SHARD_GONE = 5,     /* drained and freed */
};

struct rlv_shard_info {
	uint32_t shard;
	uint32_t state;  /* enum rlv_shard_state, as this process sees it */
	uint32_t weight; /* share of new blocks, 1000 = a full share; less while a shard is new */
	char node[RLV_NAME_BYTES];
	char address[256]; /* of its node; the last known one while the shard is unreachable */
};

/* Lists a table's shards in shards[0..*n_inout), size = sizeof(*shards); *n_inout becomes their
   number. Thread: any. Cost: none, or a request to the server while some are unreachable. */
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

/* Walks all reachable shards and checks every invariant. Exact while no client writes; otherwise it
   may report changes in progress. Thread: any. Cost: reads the whole tree. */
RLV_CHECKED int rlv_table_verify(struct rlv_table *table, struct rlv_verify_report *report_out);

/* -------- waits -------- */

/* State of a wait split into short calls. Start with RLV_WATCH_INIT; pass it to rlv_sampler_watch
   or rlv_writer_watch after each call that returned -ETIMEDOUT, -ENODATA or -EAGAIN. */
struct rlv_watch {
	uint32_t size;
	bool warned;        /* out: the wait has lasted 2 s and text was logged */
	uint64_t looked_ns; /* time of the last check; set 0 to check in the next call */
	uint64_t began_ns, moved_ns, seen; /* private */
	char text[384];                    /* reason for the wait, checked every half second */
};
#define RLV_WATCH_INIT RLV_SIZED(struct rlv_watch)

/* -------- append: the actor's path -------- */

struct rlv_writer;

struct rlv_writer_opts {
	uint32_t size;
	uint32_t streams;   /* environments that this handle appends for; 0 = 1 */
	int64_t timeout_ns; /* most that an append waits for the limiter, room and nodes;
			       0 = 5 s. Negative: for ever, or RLV_TIMEOUT_STALL */
};
#define RLV_WRITER_OPTS_INIT RLV_SIZED(struct rlv_writer_opts)

enum rlv_step_flags {
	RLV_TERMINATED = 2, /* the action of this step ended the episode */
	RLV_TRUNCATED = 4,  /* a time limit or reset ended it; append the final observation next */
	RLV_FINAL = 16,     /* the row holds only the observation after an episode's last action */
};

/* n steps in column order of the signature: columns[c] points to n packed elements of column c. A
   stream's first step, and the step after an ended episode, begin a new episode. */
struct rlv_steps {
	uint32_t size;
	uint32_t n;
	const void *const *columns;
	const uint16_t *flags;   /* n of enum rlv_step_flags; NULL = none */
	const double *td_error;  /* n initial |TD errors| for prioritized views; NULL = the running
				    maximum of the view */
	uint32_t policy_version; /* of the policy that chose the actions */
};
#define RLV_STEPS_INIT RLV_SIZED(struct rlv_steps)

/* Opens a writer. -ENOSPC: no client slot is free (max_clients; one process gets 7/8 of them), or
   max_writers are open. */
RLV_CHECKED int rlv_writer_open(struct rlv_table *table, const struct rlv_writer_opts *opts,
				struct rlv_writer **writer_out);

/*
 * Appends n consecutive steps of one stream. An item becomes drawable when its window is complete:
 * after n_step more steps (one fewer in tables that store next observations), or at once by
 * rlv_writer_end_episode, also after RLV_TERMINATED; over a wire a round trip later, unless it is of
 * the first in a shard. *appended_out (may be NULL): steps appended, fewer than n only on -ETIMEDOUT:
 * their items are published, or will be with later steps. A stream whose node is lost continues in
 * another shard from the first step with unpublished items, which may exist twice if it returns.
 * Errors: -EINVAL (names the argument), -ETIMEDOUT (the limiter of the named view, or no free
 * block), -EOWNERDEAD (handle was fenced: open another), -ESTALE (table dropped), -ECHILD,
 * -EHOSTDOWN (until the deadline no shard, or not the one with the limiter's counts, was
 * reachable).
 * Thread: owner. Cost: 1 RT (append), 5 RT (append_claim) for each block; 4 RT (append_limited).
 */
RLV_CHECKED int rlv_writer_append(struct rlv_writer *writer, uint32_t stream,
				  const struct rlv_steps *steps, uint32_t *appended_out);

/* Appends one step to each stream: steps->n equals the writer's streams; element i is for stream i.
   The limiter admits all or none. Otherwise as rlv_writer_append. */
RLV_CHECKED int rlv_writer_append_vector(struct rlv_writer *writer, const struct rlv_steps *steps);

/*
 * Ends the episode of a stream: items whose window lacks later steps are completed (their return
 * ends here) and become drawable. final: the observation columns after the last action, as one
 * step, or NULL. Missing rows, up to the longest n_step, are filled; fillers use capacity.
 */
RLV_CHECKED int rlv_writer_end_episode(struct rlv_writer *writer, uint32_t stream,
				       const struct rlv_steps *final);

/* As rlv_sampler_watch, for the last append that waited. Thread: owner. */
RLV_CHECKED int rlv_writer_watch(struct rlv_writer *writer, struct rlv_watch *watch);

/* Completes the pending items of all streams, closes their blocks and frees the client slot. The
   handle is freed and the pointer NULL, whatever is returned. */
RLV_CHECKED int rlv_writer_close(struct rlv_writer **writer);

/* -------- sample and update: the learner's path -------- */

struct rlv_sampler;

/* Layout of columns in a batch of B items. */
enum rlv_layout {
	RLV_DENSE = 0, /* obs [B,stack,...] and next_obs apart; each a packed array */
	/* one array [B,rows,...] per observation; obs and next_obs are strided views of it, and
	   shared frames are written once */
	RLV_WINDOW = 1,
};

enum rlv_weights {
	RLV_WEIGHTS_BATCH = 0, /* (N P)^-beta divided by the batch's maximum */
	RLV_WEIGHTS_RAW = 1,   /* (N P)^-beta */
};

/* How an item read over a network is verified. In local memory, always by its leaf; over TCP
   (transport ofi) by the crc of its rows, where they have one. */
enum rlv_verify {
	RLV_VERIFY_LEAF = 0, /* read the leaf again after the rows: 1 RT more */
	RLV_VERIFY_CRC = 1,  /* check crc32c and generation of each row; needs row_crc */
};

/* Allocator of batch buffers: pinned or registered memory, or memory that outlives the sampler. */
struct rlv_memory {
	void *(*alloc)(void *ctx, size_t align, size_t bytes); /* NULL: out of memory */
	void (*free)(void *ctx, void *ptr, size_t bytes);
	void *ctx;
};

/* A sample that finds no free buffer allocates one; rlv_sampler_close frees them. */
#define RLV_BATCHES_ANY UINT32_MAX

struct rlv_sampler_opts {
	uint32_t size;
	uint32_t view;          /* index of the view */
	uint32_t batch_size;    /* most items per sample; 0 = 256 */
	uint32_t n_step;        /* 1..view.n_step; 0 = view.n_step */
	double gamma;           /* discount of the n-step return; 0 = 0.99 */
	double beta;            /* importance exponent; 0 = 0.4; negative = no weights (all 1) */
	uint32_t layout;        /* enum rlv_layout */
	uint32_t weights;       /* enum rlv_weights */
	uint32_t batches;       /* held at once: up to 64, or RLV_BATCHES_ANY; 0 = 2 */
	uint32_t defer_updates; /* ignored: each update writes its changes */
	uint64_t seed;          /* 0 = from the system */
	uint32_t rank;          /* data-parallel learners: index of this one */
	uint32_t world_size;    /* their number; each draws a disjoint share of the strata; 0 = 1 */
	bool independent;       /* draw items independently instead of stratified */
	bool short_batch; /* return fewer items, not an error, if items keep being overwritten */
	/* alloc is called once per batch buffer, in rlv_sampler_open or, with RLV_BATCHES_ANY, in a
	   sample that finds none free; free in rlv_sampler_close. Copied. NULL = memory of the library. */
	const struct rlv_memory *memory;
	uint32_t verify; /* enum rlv_verify */
	/* Batches drawn ahead over a network; 0 = none. Not for local memory, FIFO and LIFO views. */
	uint32_t prefetch;
	/* Columns of batches, by name; copied. NULL, n_columns 0 = all. Not NULL, 0 = only keys,
	   weights, probabilities and priorities: rows are not read, so they may already be
	   overwritten; samples cost 2 RT less, 1 with RLV_VERIFY_CRC. */
	const char *const *columns;
	uint32_t n_columns;
	/* Where batches arrive (relive/landing.h), borrowed; opts.memory is then of rlv_landing_alloc. */
	struct rlv_landing *dest;
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
 * followed by its next_<name>), then "discount" (f32: gamma^k, 0 after a terminated episode) and
 * "steps" (u32: k, steps in the return). Without columns there are no arrays. The memory is the
 * sampler's, valid until rlv_batch_release or rlv_sampler_close.
 */
struct rlv_batch {
	uint32_t n; /* items */
	uint32_t n_arrays;
	const struct rlv_array *arrays;
	const uint64_t *key;
	const float *weight;            /* importance weights; of a device: relive/landing.h */
	const double *probability;      /* of each draw */
	const float *priority;          /* stored priority, (|TD| + eps)^alpha */
	const uint32_t *policy_version; /* NULL without columns */
	int64_t table_size;             /* live items of the view when drawn */
};

/* Opens a sampler. -EINVAL names the option. -ENOSPC: no client slot. -EACCES: the token's role is
   read and the view counts its samples (max_times_sampled, or a limiter with bounds). */
RLV_CHECKED int rlv_sampler_open(struct rlv_table *table, const struct rlv_sampler_opts *opts,
				 struct rlv_sampler **sampler_out);

/*
 * Draws n items (1..batch_size) and gathers them. Each returned item is consistent: its bytes are
 * those of the generation in its key. A view with max_times_sampled returns the items that it
 * consumed, fewer than n if no more exist.
 * Errors: -ETIMEDOUT (not admitted by the limiter in time, or stalled; the message gives the items
 * present and needed, the limiter, and whether it waits for inserts or samples), -ENODATA (timeout
 * 0 and nothing to draw, or below min_size), -EINVAL (n can never be admitted), -EBUSY (all batch
 * buffers are held), -ESTALE, -ECHILD, -EHOSTDOWN (until the deadline no shard, or not the one with
 * the limiter's counts, was reachable). If a node is lost, the call continues on the other shards.
 * With opts.prefetch, the next batches of n are drawn, gathered and verified while this one is
 * used; this call, an update or rlv_sampler_poll advances them. Their priorities are those of the
 * draw; admission and consumption happen when a batch is returned. A call with another n discards
 * them.
 * Thread: owner. Cost: 5 RT (sample), 4 RT (sample_sealed), 8 RT (sample_limited),
 * 6 RT (sample_fifo), 6 RT (take), for any n; one per tree level is included. One more for each 32
 * MiB of rows. With opts.prefetch: the RT still to be made, shared by all batches in progress.
 */
RLV_CHECKED int rlv_sampler_sample(struct rlv_sampler *sampler, uint32_t n, int64_t timeout_ns,
				   const struct rlv_batch **batch_out);

/*
 * Watches the wait for a sample of n: fills watch->text, logs it after 2 s. -ETIMEDOUT: no progress
 * for the store's stall_ns; the message gives the reason. -EINVAL: names the argument. Thread:
 * owner. Cost: one clock read; twice a second, that of rlv_table_info.
 */
RLV_CHECKED int rlv_sampler_watch(struct rlv_sampler *sampler, uint32_t n, struct rlv_watch *watch);

/* Advances prefetched batches without waiting: for learners that compute for longer than a round
   trip. *ready_out (may be NULL): finished batches. Thread: owner. Cost: local. */
RLV_CHECKED int rlv_sampler_poll(struct rlv_sampler *sampler, uint32_t *ready_out);

/* Options that may change between samples; 0 = as the sampler was opened. */
struct rlv_sample_opts {
	uint32_t size;
	uint32_t n_step; /* 1..n_step of the sampler */
	double gamma;    /* discount of the n-step return */
	double beta;     /* importance exponent; negative = no weights (all 1) */
};
#define RLV_SAMPLE_OPTS_INIT RLV_SIZED(struct rlv_sample_opts)

/*
 * Sets the options of later samples; opts NULL = as opened. Held batches do not change. Another
 * n_step or gamma discards prefetched batches. -EINVAL names the option and changes nothing.
 * Thread: owner. Cost: local.
 */
RLV_CHECKED int rlv_sampler_set_opts(struct rlv_sampler *sampler,
				     const struct rlv_sample_opts *opts);

/* Gives a batch's buffer back; NULL is a no-op. Thread: owner of the sampler. */
RLV_API void rlv_batch_release(struct rlv_sampler *sampler, const struct rlv_batch *batch);

struct rlv_update_result {
	uint32_t updated;
	uint32_t stale;   /* dropped: the item was overwritten or retired, or is on a lost node */
	uint32_t clamped; /* out of the view's range, stored as the nearest value */
	uint32_t reserved[5];
};

/*
 * Sets priorities from n absolute TD errors: (|td| + eps)^alpha. If a key repeats, its last value
 * counts. Keys of overwritten items are dropped and counted. *result_out may be NULL.
 * Errors: -EINVAL (value NaN, infinite or negative; key invalid or of another table: checked before
 * anything changes, the message names the index; or the view is not prioritized).
 * Thread: owner. Cost: 1 RT (update) for keys of a batch of this sampler that is still held or was
 * the last; 2 RT (update_again) otherwise.
 */
RLV_CHECKED int rlv_sampler_update(struct rlv_sampler *sampler, const uint64_t *keys,
				   const float *td_error, uint32_t n,
				   struct rlv_update_result *result_out);

/* As rlv_sampler_update, with final priorities p^alpha instead of TD errors. */
RLV_CHECKED int rlv_sampler_set_priorities(struct rlv_sampler *sampler, const uint64_t *keys,
					   const float *priorities, uint32_t n,
					   struct rlv_update_result *result_out);

/*
 * Adds items that were sampled and not counted yet to the view's count of samples, and completes
 * posted updates. Thread: owner.
 */
RLV_CHECKED int rlv_sampler_flush(struct rlv_sampler *sampler);

/*
 * Flushes, releases all batches, frees the client slot and the handle. *sampler is NULL afterwards,
 * whatever is returned.
 */
RLV_CHECKED int rlv_sampler_close(struct rlv_sampler **sampler);

/* -------- memory that devices know -------- */

/*
 * Allocates memory as batches use it: on huge pages where the host has them, and registered once
 * with each RDMA device of this process, which then moves it without a copy. Not zeroed. align: a
 * power of two, at most 2 MiB. A forked child has no access to it once a device was used. It takes
 * a lock, so allocate at set-up; relive/jemalloc.h is for many small buffers.
 * Errors: -EINVAL (align, or bytes 0), -ENOMEM. Thread: any.
 */
RLV_CHECKED int rlv_buffer_alloc(size_t align, size_t bytes, void **buffer_out);

/* Frees a buffer, or a part that starts and ends on 64 bytes; NULL is a no-op. Thread: any. */
RLV_API void rlv_buffer_free(void *buffer, size_t bytes);

/* 0 if one registration covers all of [ptr, ptr + bytes); else -ENOENT, without a message. Thread:
   any. Cost: a few loads. */
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
	uint64_t redraws; /* drawn items that failed verification and were not returned */
	uint64_t blocks_claimed, blocks_skipped, repeated_rows;
	/* Calls that waited, and how long: for a limiter, a free block, or unreachable shards. */
	uint64_t limiter_waits, limiter_wait_ns;
	/* Operations on memory nodes over a network; 0 for those of this host. */
	uint64_t phases, reads, writes, cas, faa; /* phases: dependent round trips */
	uint64_t cas_failed; /* compare-and-swaps that found another value; this host's, too */
	uint64_t read_bytes, write_bytes;
	uint64_t shards_lost;  /* how often a shard became unreachable */
	uint64_t updates_lost; /* stale_updates of items in unreachable shards */
	int64_t items_lost;    /* live items there: the view's as last seen, or published by us */
	/* Truncated steps without a final observation after them, in tables that read next
	   observations from later rows: such a step has no item. */
	uint64_t truncated_lost;
	uint64_t policy_version;           /* the newest in items with columns, and behind it: */
	uint64_t staleness, staleness_max; /* all items, summed; the oldest of the last batch */
};

/*
 * Fills *stats_out with a handle's counters since it was opened; the caller sets stats_out->size.
 * Thread: owner.
 */
RLV_CHECKED int rlv_writer_stats(struct rlv_writer *writer, struct rlv_stats *stats_out);
RLV_CHECKED int rlv_sampler_stats(struct rlv_sampler *sampler, struct rlv_stats *stats_out);

/* -------- store information -------- */

enum rlv_node_state {
	RLV_NODE_DOWN = 0,
	RLV_NODE_UP = 1,
	RLV_NODE_DRAINING = 2, /* up; gets no new shards and gives up those it has */
	RLV_NODE_LOST = 3,     /* down for good: its shards are lost */
};

struct rlv_node_info {
	char name[RLV_NAME_BYTES];
	char address[256];
	uint64_t pool_bytes, used_bytes;
	uint64_t incarnation;
	uint32_t regions;
	uint32_t state;     /* enum rlv_node_state */
	char pages[16];     /* backing of the pool: thp, hugetlb, small, file, dax */
	char transport[16]; /* embed, shm, verbs, ofi */
	uint32_t shards;    /* on this node, of all tables */
	uint32_t clients;   /* attached */
	uint32_t n_gauges;
	struct {
		char name[16]; /* verbs: qps, mrs and windows; ofi: links, keys and cpu_ms */
		uint64_t value;
	} gauges[8];             /* resources that its transport holds now */
	uint64_t agent_cpu_ns;   /* CPU time of its thread that serves clients; append,
				    sample and update add nothing to it */
	uint64_t process_cpu_ns; /* CPU time of the whole node */
	uint64_t silent_ns;      /* since the server last heard from it */
	uint32_t broken;         /* regions whose files were truncated or cannot be read */
	char why[96];            /* it has this transport, in words: "no RDMA device here" */
};

struct rlv_store_info {
	uint32_t size;
	char uri[256];
	char server_version[32];
	uint64_t term;
	uint32_t n_nodes, n_tables, n_clients;
	uint32_t rebuilds; /* online rebuilds done since the server started */
	char waiting[256]; /* text: reason why rebuilds wait; sums are exact after them */
	uint64_t clock_ns; /* CLOCK_REALTIME of the server as it answered; 0 = unknown, or embed: */
};

/* Describes the store and its server. Thread: any. Cost: control plane. */
RLV_CHECKED int rlv_store_info(struct rlv_store *store, struct rlv_store_info *info_out);

/*
 * Lists a store's memory nodes in nodes[0..*n_inout), size = sizeof(*nodes); *n_inout becomes their
 * number. An embedded store has one. Thread: any. Cost: control plane.
 */
RLV_CHECKED int rlv_store_nodes(struct rlv_store *store, struct rlv_node_info *nodes, size_t size,
				size_t *n_inout);

/*
 * Writes the current catalog to a file: tables and the placement of their shards, no items. The
 * server keeps running. The file is complete or absent, and replaces an existing one; `relive
 * restore` loads it. Errors: -ENOTSUP (embed:), -ECONNRESET (the server ended meanwhile), -ENOSPC
 * and other errors of the file. Thread: any. Cost: control plane.
 */
RLV_CHECKED int rlv_store_backup(struct rlv_store *store, const char *path);

/* -------- memory nodes that leave and join -------- */

struct rlv_drain_info {
	uint32_t size;
	uint32_t shards;      /* still on the node: 0 = stopping it loses nothing */
	uint64_t items_left;  /* items that other shards must still take in ... */
	uint64_t items_begin; /* ... of this many at the start */
};

/*
 * Begins to drain a node, and reports progress: its shards take no new blocks, and each is freed
 * when the others have taken in as many items as it held. Parts of heaps are copied to other nodes. Call it
 * again for progress. The caller sets info->size. Errors: -ENOENT (no such node), -EHOSTDOWN (it is down, or the only one),
 * -ENOTSUP (embed:; or it has a part of a heap with copies and several writers). Thread: any. Cost: control plane.
 */
RLV_CHECKED int rlv_store_drain_node(struct rlv_store *store, const char *node,
				     struct rlv_drain_info *info_out);

/*
 * Declares a node that is down lost, with all its data. Nodes in memory are declared lost
 * automatically after a while. A pool that survives its node keeps the data until the node is
 * started with --adopt or --discard. Errors: -ENOENT, -EBUSY (it is up), -ENOTSUP. Thread: any.
 * Cost: control plane.
 */
RLV_CHECKED int rlv_store_drop_node(struct rlv_store *store, const char *node);

/*
 * Spreads a table over the nodes that are up: adds shards where too few, drains shards where too
 * many. RLV_SHARDS_AUTO tables are spread automatically. *added_out, *draining_out (may be NULL):
 * shards. Errors: -ENOENT, -ENOTSUP, -EHOSTDOWN, -ENOSPC (the next shard's node is full; earlier
 * steps stay). Thread: any. Cost: control plane.
 */
RLV_CHECKED int rlv_table_rebalance(struct rlv_store *store, const char *name, uint32_t *added_out,
				    uint32_t *draining_out);

#ifdef __cplusplus
}
#endif

#endif
