/*
 * Transport: moves bytes between local buffers and regions of memory nodes; knows no structure.
 *
 * Two tables of functions, one for each end:
 *
 *   initiator (struct transport_ops)          target (struct transport_target_ops)
 *   attach a granted region, then             listen, register a region, grant it to a client,
 *   submit, poll, persist, order              revoke, fence a dead client, persist, stats
 *
 *   ds, client ---- struct transport ----> [ shm | verbs | mapped(over any) ] ----> region's bytes
 *                                                                    passive; no code of the target
 *
 * One primitive moves everything: submit starts up to TRANSPORT_VECTOR work requests on ranges of
 * regions and gives a ticket, poll asks for it or waits. read, write, cas, faa and view are helpers that
 * submit and wait; a wait set (transport/wait_set.h) waits for what several transports have under way.
 * Semantics are "RC minus":
 *   - 8 aligned bytes are atomic, nothing larger is; there is no order inside one write;
 *   - SUBMIT_ORDERED: requests run in their order, behind all that was submitted in order before, as if
 *     all were one chain (an atomic that follows a write sees it placed); only a write that follows a
 *     read or an atomic needs its fence flag for that;
 *   - SUBMIT_UNORDERED: in no order with anything, and among themselves in that of their fences;
 *   - a ticket that is done means visible to all, not durable: persist() makes durable;
 *   - ticket 0 is done already; tickets of one transport rise;
 *   - CAS and FAA return the old value, or *unknown*: done or not done, nobody can tell. An unknown
 *     operation is never repeated by the transport;
 *   - a request that waits for longer than its time (transport_give_up_ns) ends its connection, and with
 *     it all that is under way there, so nothing writes into the caller's memory later.
 * A word is the target of CAS and FAA, or of write, never of both.
 *
 * There are two data paths. *In place*: regions that this CPU may address and change by its own atomics
 * (shm, embed) are read and changed through region->base, by plain code on the mapping. *Chained*:
 * over a wire, work requests are posted and waited for. ds and client have code for both, and no third.
 *
 * Cost is counted in `stats`: phases are dependent round trips of a wire, one for each wait, and in place
 * there are none; wrs are work requests that came through the calls below; bytes are payload either way.
 *
 * Thread: a struct transport belongs to one thread at a time; a target may be used by any.
 * Errors: -ETIMEDOUT (deadline), -ECONNRESET (this connection is dead), -EHOSTDOWN (the node is
 * dead), -EINVAL (range outside the region, misaligned), -EACCES (right missing), -ENOTSUP,
 * -ECHILD (made before a fork: mappings do not reach the child, which opens its own).
 */
#ifndef RLV_TRANSPORT_TRANSPORT_H
#define RLV_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/le.h"

#include "base/os/clock.h"
#include "base/error.h"

struct transport;
struct transport_target;

#define TRANSPORT_GRANT_BYTES 256
#define TRANSPORT_URI_BYTES 256
#define TRANSPORT_VECTOR 256 /* operations that one call takes at most */

enum transport_caps {
	TRANSPORT_ADDRESSABLE = 1, /* region->base is the region's memory: reads need no copy */
	TRANSPORT_PERSISTENT = 2,  /* persist() makes bytes survive a power failure */
	TRANSPORT_ASYNC = 4,       /* post() may return before completion */
	/* and its words may be changed there by this CPU's atomics (rword64_cas, rword64_add): no
	   NIC changes them */
	TRANSPORT_CPU_ATOMIC = 8,
};

enum transport_rights {
	RIGHT_READ = 1,
	RIGHT_WRITE = 2,
	RIGHT_ATOMIC = 4,
	RIGHT_ALL = 7,
};

/*
 * What lets a client attach a region: made by the target, forwarded by the metadata server, opaque
 * to everybody between.
 */
struct region_grant {
	uint32_t bytes;
	uint8_t data[TRANSPORT_GRANT_BYTES];
};

/* What a grant opens: off and len are multiples of 4 KiB; len 0 (and off 0) = the whole region. */
#define TRANSPORT_RANGE_ALIGN 4096u

struct region_range {
	uint32_t region;
	uint64_t off, len;
};

/*
 * An attached region, or the range of it that was granted: offset 0 is the first byte of the range.
 * Owned by its transport; valid until detach.
 */
struct region {
	struct transport *tr;
	uint32_t id;          /* region number, as in wire/rptr.h */
	uint32_t rights;      /* enum transport_rights */
	uint64_t size;        /* of the range */
	uint64_t incarnation; /* of the memory node that granted it */
	uint8_t *base;        /* TRANSPORT_ADDRESSABLE: its first byte; else NULL */
	/* Bytes of it could not be had, and were zeros since: its file was cut short (base/mem/guard.h) */
	_Atomic bool broken;
};

/* A read or write of len bytes. off, len and the address are multiples of 8. */
struct transport_io {
	struct region *region;
	uint64_t off;
	union {
		void *dst;
		const void *src;
	};
	uint32_t len;
	uint32_t fence; /* of wait_set_read: not before all earlier reads of the call are done */
};

enum atomic_status {
	ATOMIC_DONE = 0,    /* old holds the word before the operation */
	ATOMIC_UNKNOWN = 1, /* may or may not have happened */
};

/* CAS: stores value if the word equals expected. FAA: adds value. off is a multiple of 8. */
struct transport_atomic {
	struct region *region;
	uint64_t off;
	uint64_t expected; /* CAS only */
	uint64_t value;
	uint64_t old;    /* out */
	uint32_t status; /* out: enum atomic_status */
	uint32_t reserved;
};

/* A range to look at. Out: ptr, valid until transport_view_end. */
struct transport_view {
	struct region *region;
	uint64_t off;
	uint32_t len;
	uint32_t reserved;
	const void *ptr;
};

enum transport_verb { VERB_READ, VERB_WRITE, VERB_CAS, VERB_FAA };

/*
 * A work request. io or atomic by verb. The memory that io names, and an atomic itself, are the caller's
 * until the ticket is done; a request that reads or writes may be used again when submit returns.
 */
struct transport_wr {
	enum transport_verb verb;
	bool fence; /* do not start before all earlier reads and atomics are done */
	union {
		struct transport_io io;
		struct transport_atomic atomic;
	};
};

struct transport_stats {
	uint64_t phases; /* dependent round trips of a wire; 0 in place */
	uint64_t reads, writes, cas, faa;
	uint64_t read_bytes, write_bytes;
	uint64_t cas_failed; /* CAS that found another word */
	uint64_t unknown;    /* atomics without a known result */
};

enum submit_order { SUBMIT_ORDERED, SUBMIT_UNORDERED };

enum persist_kind { PERSIST_RANGE, PERSIST_REGION };

struct transport_ops {
	const char *name;

	/* Maps or registers the region that grant names. Cost: control plane only. */
	int (*attach)(struct transport *tr, const struct region_grant *grant,
		      struct region **region_out);
	/*
	 * The same in two steps that never wait; NULL = attach does it all. begin asks (-EAGAIN: not
	 * yet possible); end takes the answer (-EAGAIN: it has not come). One at a time: what began
	 * before and was not ended is given up.
	 */
	int (*attach_begin)(struct transport *tr, const struct region_grant *grant);
	int (*attach_end)(struct transport *tr, const struct region_grant *grant,
			  struct region **region_out);
	void (*detach)(struct transport *tr, struct region *region);

	/*
	 * Starts 1 <= n <= TRANSPORT_VECTOR requests; 0 in *ticket_out: they are done. -EAGAIN: too much is
	 * outstanding, nothing was started; of SUBMIT_ORDERED only, others wait for room themselves. After
	 * another error requests are done, not done, or half written: the caller repeats a write, and asks
	 * the words about the rest.
	 */
	int (*submit)(struct transport *tr, struct transport_wr *wrs, size_t n,
		      enum submit_order order, uint64_t *ticket_out);
	/* Waits until the ticket, not 0, is done, at most until the deadline (-ETIMEDOUT: it goes on), and
	   no longer than for an operation that starts now. Deadline 0 only looks: -EAGAIN, not yet.
	   The first error of its requests. */
	int (*poll)(struct transport *tr, uint64_t ticket, uint64_t deadline_ns);

	/*
	 * Makes the range durable; len 0 = from off to the end. -ENOTSUP: no TRANSPORT_PERSISTENT.
	 */
	int (*persist)(struct transport *tr, struct region *region, uint64_t off, uint64_t len);
	/* NULL: pages have no memory of their own */
	int (*renew)(struct transport *tr, struct region *region, uint64_t off);

	/* All operations before are performed before any after. */
	int (*order)(struct transport *tr);

	void (*close)(struct transport *tr);
};

/* Head of every transport; its private part follows in memory. */
struct transport {
	const struct transport_ops *ops;
	uint32_t caps; /* enum transport_caps */
	const struct clock *clock;
	uint64_t timeout_ns;  /* of one operation, at most */
	uint64_t deadline_ns; /* of the caller's call in progress; 0 = it has none */
	uint32_t forks;       /* transport_fork_count() at open: another one now = we are a child */
	bool viewing;         /* a view is open */
	int broken;           /* 0, or what ended its connection: -ECONNRESET, -EHOSTDOWN */
	uint64_t posted;      /* last ticket given out; tickets rise */
	uint64_t waited;      /* last ticket that a counted wait covers */
	struct transport_stats stats;
	uint8_t *view; /* what views are copied to, where regions are not addressable */
	size_t view_bytes;
	uint64_t link; /* names its connection to one that replaces it; 0 = need not be named */
};

struct transport_opts {
	const struct clock *clock;       /* NULL = monotonic */
	uint64_t timeout_ns;             /* of one operation; 0 = 5 s */
	uint64_t open_ns;                /* of opening; 0 = timeout_ns */
	struct transport_target *target; /* embed: the target in this process */
	uint64_t client_id;              /* lease of the client at the metadata server */
	/*
	 * Link of an earlier connection of the client to that node, 0 = none. Its operations have been
	 * performed when this one is open, or never will be: what is repeated here comes after them.
	 */
	uint64_t replaces;
};

/*
 * Connects to a target. uri: "embed:" (with opts->target), "shm:SOCKET-PATH",
 * "verbs:HOST:PORT[;SOCKET-PATH]" (on the node's own host its regions are mapped through the
 * socket, and changed through the NIC all the same).
 * Errors: -EINVAL (unknown scheme; the message lists the known), -ECONNREFUSED, -ETIMEDOUT,
 * -EPROTO (peer of another version).
 */
RLV_MUST_CHECK int transport_open(const char *uri, const struct transport_opts *opts,
				  struct transport **tr_out);
void transport_close(struct transport **tr);

/*
 * When an operation that is waited for from now on is given up, and its connection with it. It has
 * half of what is left of its caller's call, so that the call can go on over other connections; but a
 * second at least, since one that is merely slow is worth more than a call in a hurry; and timeout_ns
 * at most.
 */
uint64_t transport_give_up_ns(const struct transport *tr);

/* Was it opened before a fork, in the parent? Code that reads region->base asks first. */
bool transport_is_forked(const struct transport *tr);

/*
 * Thin calls: check the ranges, count, forward. All operations of a call name regions of tr;
 * n = 0 does and counts nothing. A call that fails a check does nothing at all.
 */
RLV_MUST_CHECK int transport_attach(struct transport *tr, const struct region_grant *grant,
				    struct region **region_out);
/* In two steps, without waiting where the transport can; the grant is the same for both. -EAGAIN: call
   again. */
RLV_MUST_CHECK int transport_attach_begin(struct transport *tr, const struct region_grant *grant);
RLV_MUST_CHECK int transport_attach_end(struct transport *tr, const struct region_grant *grant,
					struct region **region_out);
void transport_detach(struct region **region);
/*
 * Calls that wait. A view gives pointers: into the region where it is addressable (no copy), else into a
 * buffer of the transport's. What is read may change underneath: validate after the gather. One
 * view at a time (-EBUSY). Cost: 1 phase each over a wire.
 */
RLV_MUST_CHECK int transport_view(struct transport *tr, struct transport_view *views, size_t n);
void transport_view_end(struct transport *tr);
RLV_MUST_CHECK int transport_read(struct transport *tr, const struct transport_io *io, size_t n);
RLV_MUST_CHECK int transport_write(struct transport *tr, const struct transport_io *io, size_t n);
RLV_MUST_CHECK int transport_cas(struct transport *tr, struct transport_atomic *ops, size_t n);
RLV_MUST_CHECK int transport_faa(struct transport *tr, struct transport_atomic *ops, size_t n);

/* As the ops of these names: checked, and counted. n = 0 is done. */
RLV_MUST_CHECK int transport_submit(struct transport *tr, struct transport_wr *wrs, size_t n,
				    enum submit_order order, uint64_t *ticket_out);
/* Cost: a phase, which it shares with all that was submitted before it. */
RLV_MUST_CHECK int transport_poll(struct transport *tr, uint64_t ticket, uint64_t deadline_ns);

/* What a chain of several pieces has under way: first 0 = nothing. */
struct transport_span {
	uint64_t first, last;
};

/*
 * Submits a chain of any length in order, in pieces; it waits for all that is outstanding where there is
 * no room. After an error what is in the span is under way all the same.
 */
RLV_MUST_CHECK int transport_submit_chain(struct transport *tr, struct transport_wr *wrs, size_t n,
					  struct transport_span *span);

/* The same, and waits: one phase. Its first error. */
RLV_MUST_CHECK int transport_run(struct transport *tr, struct transport_wr *wrs, size_t n);

/* For wait sets: poll that counts nothing, and the count. False: an earlier wait covers the ticket. */
RLV_MUST_CHECK int transport_look(struct transport *tr, uint64_t ticket, uint64_t deadline_ns);
bool transport_count_wait(struct transport *tr, uint64_t ticket, uint64_t phases);

RLV_MUST_CHECK int transport_persist(struct region *region, uint64_t off, uint64_t len);
/*
 * The page of 4 KiB at off of a region of which all was granted, with all rights: it gets fresh memory of
 * its own, of zeros, and its grants end. Who had it attached keeps what it was, and reaches no more; who
 * is granted it from now on reaches nothing else. What cannot be renewed (embed, a wire, a pool on files)
 * stays as it is: 0. Not while others use the page. Waits for nobody: a target hears of it before it
 * grants what it is asked for later. -EINVAL: off; -EACCES: rights; -EAGAIN: the target does not
 * read; -ECONNRESET, from then on.
 */
RLV_MUST_CHECK int transport_renew(struct region *region, uint64_t off);
RLV_MUST_CHECK int transport_order(struct transport *tr);

/* One word at a time, for cold paths. -EIO = the result is unknown. */
RLV_MUST_CHECK int transport_load(struct region *region, uint64_t off, uint64_t *word_out);
RLV_MUST_CHECK int transport_cas_word(struct region *region, uint64_t off, uint64_t expected,
				      uint64_t value, uint64_t *old_out);
RLV_MUST_CHECK int transport_faa_word(struct region *region, uint64_t off, uint64_t value,
				      uint64_t *old_out);
/* Writes bytes of words that nobody may change by CAS or FAA at that time (format, barrier). */
RLV_MUST_CHECK int transport_store(struct region *region, uint64_t off, const void *src,
				   uint32_t len);

/* May words of the region be changed in place? Asked once a call. */
static inline bool transport_changes_in_place(const struct region *region)
{
	return region->base && (region->tr->caps & TRANSPORT_CPU_ATOMIC) &&
	       (region->rights & RIGHT_ATOMIC);
}

/* What the implementations of the tables find out themselves: results of atomics. */
static inline void transport_account_cas(struct transport *tr, uint64_t failed, uint64_t unknown)
{
	tr->stats.cas_failed += failed;
	tr->stats.unknown += unknown;
}

static inline bool transport_is_addressable(const struct transport *tr)
{
	return (tr->caps & TRANSPORT_ADDRESSABLE) != 0;
}

/* -------- the target's side -------- */

/* Whose a pool is that outlives its target; all zero = it does not, or belongs to no store yet. */
struct pool_identity {
	uint8_t pool_uuid[16];
	uint8_t store_uuid[16];
	char store_name[64]; /* as it was when the store took the pool */
};

/* A region as its target knows it. */
struct target_region {
	uint32_t id;
	uint32_t kind; /* enum kind_id: whose it is ... */
	uint32_t object;
	uint32_t part;
	uint32_t role; /* ... and enum region_role: which of its regions */
	bool sole;     /* nobody else had it mapped when the pool was opened */
	bool broken;   /* its file was cut short or cannot be read: nobody can attach it */
	uint64_t size; /* rounded up to whole extents */
	uint8_t *base; /* where the target itself sees it */
};

/* Something that a kind of transport holds now, by its name: "qps" of an RDMA device. */
#define TARGET_GAUGES 8
#define TARGET_GAUGE_BYTES 16 /* of a name, with its end */

struct target_gauge {
	const char *name; /* lives as long as the program */
	uint64_t value;
};

struct target_stats {
	uint64_t pool_bytes, used_bytes;
	uint32_t regions, clients;
	uint32_t broken; /* regions of them that nobody can attach any more */
	uint64_t attaches, fences;
	uint32_t n_gauges;
	struct target_gauge gauges[TARGET_GAUGES];
	bool sole_opener; /* pool that stays: nobody had anything of it mapped: recovery may run */
	const char *page_kind; /* what backs the pool: "thp", "hugetlb", "4k", "file", "dax" */
};

enum fence_result {
	FENCE_DEAD = 0,  /* proved: it can touch nothing any more */
	FENCE_ALIVE = 1, /* it still can */
};

enum fence_how {
	FENCE_ASK,  /* changes nothing for a live client */
	FENCE_CUT,  /* ends its connections: proof enough where it has no mapping */
	FENCE_KILL, /* and its process, where it runs on this host */
};

struct transport_target_ops {
	const char *name;

	/* Accepts clients at the address: shm a unix socket path, verbs "HOST:PORT;SOCKET-PATH"
	   (empty host = every RDMA address, port 0 = any); NULL = this process only. */
	int (*listen)(struct transport_target *tg, const char *address);
	/* What transport_open wants, after listen. Owned by the target. */
	const char *(*uri)(struct transport_target *tg);

	/* Makes a zeroed region of at least spec->size bytes. In: all but id and base.
	   Errors: -ENOSPC (the message says how much is left), -ENOMEM. */
	int (*register_region)(struct transport_target *tg, struct target_region *spec);
	/* Gives a region back: nobody can attach it again. Existing mappings stay valid, and keep the
	   superblock; everything behind it may read as zeros from now on (its memory is freed), so
	   the caller sets the state to REGION_DROPPED before. */
	int (*unregister_region)(struct transport_target *tg, uint32_t region);
	/* The regions that a reopened pool holds; *n_inout: room in, count out. */
	int (*list_regions)(struct transport_target *tg, struct target_region *regions,
			    size_t *n_inout);

	/* Lets client attach a range with rights: the descriptor goes to it through the server.
	   -ENOENT (no such region), -EINVAL (rights; a range outside of it, or misaligned). */
	int (*grant)(struct transport_target *tg, uint64_t client_id,
		     const struct region_range *range, uint32_t rights,
		     struct region_grant *grant_out);
	/* Takes all of the client's grants of a region back. */
	int (*revoke)(struct transport_target *tg, uint64_t client_id, uint32_t region);
	/* Says whether it is proved that the client is cut off: FENCE_DEAD when its process is dead,
	   when it has said goodbye, when it never attached anything, or when all that it had were
	   connections and they are destroyed (its grants end here). -EDEADLK: FENCE_KILL of the
	   caller itself. */
	int (*fence)(struct transport_target *tg, uint64_t client_id, enum fence_how how,
		     enum fence_result *result_out);

	int (*persist)(struct transport_target *tg, uint32_t region, uint64_t off, uint64_t len);
	/* Pools in files: has nobody else the region mapped, and no connection to it, now? */
	bool (*alone)(struct transport_target *tg, uint32_t region);
	/* Which pool this is and what store it belongs to. All zero: a pool in memory. */
	int (*identity)(struct transport_target *tg, struct pool_identity *out);
	/* The pool belongs to that store from now on: durable when it returns. In memory: no-op. */
	int (*own)(struct transport_target *tg, const uint8_t store_uuid[16],
		   const char *store_name);
	/* Serves what is pending on its sockets; waits at most timeout_ns for something. */
	int (*progress)(struct transport_target *tg, uint64_t timeout_ns);
	/* A descriptor that polls readable when progress() has work; -1 = none. */
	int (*poll_fd)(struct transport_target *tg);
	void (*stats)(struct transport_target *tg, struct target_stats *out);
	void (*close)(struct transport_target *tg);
};

struct transport_target {
	const struct transport_target_ops *ops;
	uint64_t incarnation; /* random at start: another life, another number */
};

struct alloc_hooks;

struct target_opts {
	uint64_t pool_bytes; /* 0 = all free memory, with a path its size */
	const char *path;    /* NULL = memory; else a file or DAX device, or with dir a directory */
	bool dir;       /* one file a region (wire/pool_layout.h): clients get files of their own */
	bool create;    /* make the file or directory if it is not there */
	bool exclusive; /* embed: nobody else may have the file open */
	bool trust_clients;   /* a device: each client of this host may get all of it */
	uint32_t page_kind;   /* enum page_kind of base/mem/alloc.h: huge pages wished for */
	bool private_memory;  /* embed: anonymous memory, no descriptors, threads only */
	uint64_t incarnation; /* 0 = random */
	/* verbs: where its messages with clients lie: memory of chunks (base/mem/chunk.h), by an allocator
	   of the caller's; NULL = chunks themselves. Borrowed until close. */
	const struct alloc_hooks *buffers;
	const struct clock *clock;
};

/* Makes a target. kind: "shm" or "verbs". Errors: -EINVAL, -EBUSY (pool in use), -EPROTO (of another
   format, or no pool), -EBADMSG (damaged), -EISDIR and -ENOTDIR (the other kind of path), -ENODEV
   (no DAX device), -EROFS, -ENOSPC, -ENOMEM, -ENOTSUP (no rdma-core). What was not there before is
   not there after an error. */
RLV_MUST_CHECK int transport_target_open(const char *kind, const struct target_opts *opts,
					 struct transport_target **tg_out);
void transport_target_close(struct transport_target **tg);

/* Grants all of a region. */
static inline int transport_grant(struct transport_target *tg, uint64_t client_id, uint32_t region,
				  uint32_t rights, struct region_grant *grant_out)
{
	const struct region_range all = { .region = region };

	return tg->ops->grant(tg, client_id, &all, rights, grant_out);
}

#endif
