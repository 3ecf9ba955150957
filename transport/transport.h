/*
 * Transport: moves bytes between local buffers and regions of memory nodes; knows no structure.
 *
 * Two tables of functions, one for each end:
 *
 *   initiator (struct transport_ops)          target (struct transport_target_ops)
 *   attach a granted region, then             listen, register a region, grant it to a client,
 *   submit, poll, persist, order              revoke, fence a dead client, persist, stats
 *
 *   ds, client ---- struct transport ----> [ shm | verbs | ofi | mapped(over any) ] -> region's bytes
 *                                                                    passive; no code of the target
 *
 * One primitive moves everything: submit starts up to TRANSPORT_VECTOR work requests on ranges of
 * regions and returns a ticket; poll tests the ticket or waits for it. read, write, cas, faa and
 * view are helpers that submit and wait; a wait set (transport/wait_set.h) waits for outstanding
 * work of several transports. Semantics are "RC minus":
 *   - 8 aligned bytes are atomic, nothing larger is; one write has no internal order;
 *   - SUBMIT_ORDERED: requests run in their order, after all earlier SUBMIT_ORDERED requests, as if
 *     all were one chain (an atomic that follows a write sees it placed). Only a write that follows
 *     a read or an atomic needs its fence flag for that;
 *   - SUBMIT_UNORDERED: no order except that of the fences within the call;
 *   - a done ticket means visible to all, not durable: persist() makes bytes durable;
 *   - ticket 0 means already done; tickets of one transport rise;
 *   - CAS and FAA return the old value, or *unknown*: the operation may have happened or not. The
 *     transport never repeats an unknown operation;
 *   - a request that passes its deadline (transport_give_up_ns) ends its connection and everything
 *     outstanding there, so nothing writes into the caller's memory later.
 * A word is a target of CAS and FAA, or of write, never of both.
 *
 * There are two data paths. *In place*: regions that this CPU may address and change by its own
 * atomics (shm, embed) are read and changed through region->base, by plain code on the mapping.
 * *Chained*: over a wire, work requests are posted and waited for. ds and client have code for
 * both.
 *
 * Cost is counted in `stats`: phases are dependent round trips over a wire, one for each wait, none
 * in place; reads, writes, cas and faa are work requests through the calls below; bytes are payload
 * in either direction.
 *
 * Thread: a struct transport belongs to one thread at a time; a target may be used by any. Errors:
 * -ETIMEDOUT (deadline), -ECONNRESET (this connection is dead), -EHOSTDOWN (the node is dead),
 * -EINVAL (range outside the region, misaligned), -EACCES (right missing), -ENOTSUP, -ECHILD (made
 * before a fork: mappings do not reach the child, which must open its own).
 */
#ifndef RLV_TRANSPORT_TRANSPORT_H
#define RLV_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/le.h"

#include "base/mem/mem.h"
#include "base/os/clock.h"
#include "base/error.h"

struct transport;
struct transport_target;

#define TRANSPORT_GRANT_BYTES 256
#define TRANSPORT_URI_BYTES 256
#define TRANSPORT_VECTOR 256 /* operations per call, at most */

enum transport_caps {
	TRANSPORT_ADDRESSABLE = 1, /* region->base is the region's memory: reads need no copy */
	TRANSPORT_PERSISTENT = 2,  /* persist() makes bytes survive a power failure */
	TRANSPORT_ASYNC = 4,       /* post() may return before completion */
	/* its words may be changed there by CPU atomics (rword64_cas, rword64_add): no NIC changes
	   them */
	TRANSPORT_CPU_ATOMIC = 8,
	/* the node's agent changes its words, and nobody else, not even a NIC */
	TRANSPORT_AGENT_ATOMIC = 16,
	TRANSPORT_GUARDS = 32, /* it carries out guarded requests */
};

enum transport_rights {
	RIGHT_READ = 1,
	RIGHT_WRITE = 2,
	RIGHT_ATOMIC = 4,
	RIGHT_ALL = 7,
};

/*
 * Capability to attach a region: made by the target, forwarded by the metadata server, opaque to
 * all but the target.
 */
struct region_grant {
	uint32_t bytes;
	uint8_t data[TRANSPORT_GRANT_BYTES];
};

/*
 * The range that a grant opens: off and len are multiples of 4 KiB; off 0 and len 0 = the whole
 * region.
 */
#define TRANSPORT_RANGE_ALIGN 4096u

struct region_range {
	uint32_t region;
	uint64_t off, len;
};

/*
 * An attached region, or its granted range: offset 0 is the first byte of the range. Owned by its
 * transport; valid until detach.
 */
struct region {
	struct transport *tr;
	uint32_t id;          /* region number, as in wire/rptr.h */
	uint32_t rights;      /* enum transport_rights */
	uint64_t size;        /* of the range */
	uint64_t incarnation; /* of the memory node that granted it */
	uint8_t *base;        /* TRANSPORT_ADDRESSABLE: its first byte; else NULL */
	/* its file was truncated: the missing bytes read as zeros since (base/mem/guard.h) */
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
	const struct mem *mem; /* that the buffer lies in; NULL: some memory of this process */
	uint32_t len;
};

enum atomic_status {
	ATOMIC_DONE = 0,    /* old holds the word before the operation */
	ATOMIC_UNKNOWN = 1, /* may or may not have happened */
	ATOMIC_SKIPPED = 2, /* did not happen, since it was guarded */
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

/* A range to read. Out: ptr, valid until transport_view_end. */
struct transport_view {
	struct region *region;
	uint64_t off;
	uint32_t len;
	uint32_t reserved;
	const void *ptr;
};

enum transport_verb { VERB_READ, VERB_WRITE, VERB_CAS, VERB_FAA };

/*
 * A work request: io or atomic, by verb. Until the ticket is done, the caller keeps valid the
 * buffer that io names, and the request itself if it is an atomic. A read or write request, and its
 * struct mem, may be reused when submit returns.
 */
struct transport_wr {
	enum transport_verb verb;
	bool fence; /* do not start before all earlier reads and atomics are done */
	/* TRANSPORT_GUARDS only, of an FAA or of a write of one word, in a chain of at most
	   transport_chain_most requests: skip it if an earlier CAS of the chain found another word */
	bool guard;
	union {
		struct transport_io io;
		struct transport_atomic atomic;
	};
};

struct transport_stats {
	uint64_t phases; /* dependent round trips over a wire; 0 in place */
	uint64_t reads, writes, cas, faa;
	uint64_t read_bytes, write_bytes;
	uint64_t cas_failed; /* CAS that found another value */
	uint64_t unknown;    /* atomics without a known result */
};

enum submit_order { SUBMIT_ORDERED, SUBMIT_UNORDERED };

struct transport_ops {
	const char *name;

	/* Attaches the range of a grant: maps it, or gets its keys from the target. The region is
	   owned by tr until detach. Cost: control plane only. */
	int (*attach)(struct transport *tr, const struct region_grant *grant,
		      struct region **region_out);
	/*
	 * attach in two steps that never wait; NULL: use attach. begin sends the request (-EAGAIN:
	 * cannot send yet); end receives the answer (-EAGAIN: not here yet). One at a time: begin
	 * abandons an earlier attach that was not ended.
	 */
	int (*attach_begin)(struct transport *tr, const struct region_grant *grant);
	int (*attach_end)(struct transport *tr, const struct region_grant *grant,
			  struct region **region_out);
	void (*detach)(struct transport *tr, struct region *region);

	/*
	 * Starts 1 <= n <= TRANSPORT_VECTOR requests, or tr->chain; *ticket_out 0: they are done. -EAGAIN: too
	 * much is outstanding, nothing was started (SUBMIT_ORDERED only; SUBMIT_UNORDERED waits for
	 * room). After any other error each request is done, not done, or half written: the caller
	 * repeats writes, and reads the words of atomics again.
	 */
	int (*submit)(struct transport *tr, struct transport_wr *wrs, size_t n,
		      enum submit_order order, uint64_t *ticket_out);
	/* Waits until the ticket (not 0) is done, at most until the deadline (-ETIMEDOUT: still
	   outstanding), and no longer than transport_give_up_ns. Deadline 0 only tests: -EAGAIN:
	   not yet. Returns the first error of its requests. NULL: all tickets are 0. */
	int (*poll)(struct transport *tr, uint64_t ticket, uint64_t deadline_ns);

	/*
	 * Makes len bytes from off durable. Not called without TRANSPORT_PERSISTENT:
	 * transport_persist then returns -ENOTSUP; it also makes len 0 the length from off to the
	 * end.
	 */
	int (*persist)(struct transport *tr, struct region *region, uint64_t off, uint64_t len);
	/* prepare: a step of transport_prepare; renewing: 1 while a page is being prepared, and
	   once after that, as transport_renewing says. NULL: transport_renew does not need them. */
	int (*prepare)(struct transport *tr, struct region *region, uint64_t off);
	int (*renewing)(struct transport *tr);
	/* Replaces a page by fresh memory, as transport_renew says. NULL: pages have no memory of
	   their own, and transport_renew is a no-op. */
	int (*renew)(struct transport *tr, struct region *region, uint64_t off);

	/* Waits as needed so that all earlier operations are performed before any later one. */
	int (*order)(struct transport *tr);

	/* transport_reach. NULL: -ENOTSUP. */
	int (*reach)(struct transport *tr, const struct mem *mem);

	void (*close)(struct transport *tr);
};

/* Head of every transport; its private part follows in memory. */
struct transport {
	const struct transport_ops *ops;
	uint32_t caps; /* enum transport_caps */
	const struct clock *clock;
	uint64_t timeout_ns;  /* of one operation, at most */
	uint64_t deadline_ns; /* of the public call in progress; 0 = none */
	uint32_t forks;       /* fork count at open; if it differs now, this process is a child */
	bool viewing;         /* a view is open */
	int broken;      /* 0, or the error that ended the connection: -ECONNRESET, -EHOSTDOWN */
	uint64_t posted; /* last ticket returned; tickets rise */
	uint64_t waited; /* last ticket that a counted wait covers */
	struct transport_stats stats;
	struct mem view; /* for views of regions that are not addressable */
	uint64_t link;   /* identifies its connection to a replacement; 0 = not needed */
	bool unwaited;   /* nobody waits for what is submitted now: its answer may come late */
	uint32_t chain;  /* most requests that submit takes at once; 0 = TRANSPORT_VECTOR */
};

struct transport_opts {
	const struct clock *clock;       /* NULL = monotonic */
	uint64_t timeout_ns;             /* of one operation; 0 = 5 s */
	uint64_t open_ns;                /* of opening; 0 = timeout_ns */
	struct transport_target *target; /* embed: the target in this process */
	uint64_t client_id;              /* lease of the client at the metadata server */
	/*
	 * Link of an earlier connection of the client to that node, 0 = none. When open returns,
	 * each operation of the old connection has been performed or never will be, so repeated
	 * operations come after them.
	 */
	uint64_t replaces;
};

/*
 * Connects to a target. uri: "embed:" (with opts->target), "shm:SOCKET-PATH",
 * "verbs:HOST:PORT[;SOCKET-PATH]" (on the node's own host, regions are also mapped through the
 * socket; their words are still changed through the NIC), "ofi:HOST:PORT[;SOCKET-PATH]" (the same
 * over TCP). Errors: -EINVAL (unknown scheme; the
 * message lists the known), -ECONNREFUSED, -ETIMEDOUT, -EPROTO (peer of another version).
 */
RLV_MUST_CHECK int transport_open(const char *uri, const struct transport_opts *opts,
				  struct transport **tr_out);
void transport_close(struct transport **tr);

/*
 * For implementations: makes a transport of `bytes` zeroed bytes, which begin with struct
 * transport: its ops, caps, clock, timeout and fork count are filled in. mem_free it. -ENOMEM.
 */
RLV_MUST_CHECK int transport_new(size_t bytes, const struct transport_ops *ops, uint32_t caps,
				 const struct transport_opts *opts, struct transport **tr_out);

/*
 * Deadline of an operation whose wait starts now; passing it ends the connection. It is half of the
 * time left to the public call, so that the call can continue over other connections; at least a
 * second, so that a slow connection is not dropped for a short deadline; at most timeout_ns.
 */
uint64_t transport_give_up_ns(const struct transport *tr);

/*
 * True if tr was opened before a fork, in the parent. Code that reads region->base checks this
 * first.
 */
bool transport_is_forked(const struct transport *tr);

/*
 * Attaches the range of a grant; the region is owned by tr until transport_detach. As all calls
 * below it is thin: it checks, counts and forwards to tr->ops. All operations of a call name
 * regions of tr; n = 0 does and counts nothing. A call that fails a check does nothing at all.
 */
RLV_MUST_CHECK int transport_attach(struct transport *tr, const struct region_grant *grant,
				    struct region **region_out);
/*
 * transport_attach in two steps; pass the same grant to both. Neither waits if the transport has
 * attach_begin; else begin does nothing, and end waits. -EAGAIN: call again.
 */
RLV_MUST_CHECK int transport_attach_begin(struct transport *tr, const struct region_grant *grant);
RLV_MUST_CHECK int transport_attach_end(struct transport *tr, const struct region_grant *grant,
					struct region **region_out);
void transport_detach(struct region **region);
/*
 * Calls that wait. A view gives pointers into the regions if all n are addressable (no copy), else
 * into a buffer of the transport, until transport_view_end; one view at a time (-EBUSY). Writers
 * may change the bytes meanwhile: validate after the gather. Cost: 1 phase each over a wire.
 */
RLV_MUST_CHECK int transport_view(struct transport *tr, struct transport_view *views, size_t n);
void transport_view_end(struct transport *tr);
RLV_MUST_CHECK int transport_read(struct transport *tr, const struct transport_io *io, size_t n);
RLV_MUST_CHECK int transport_write(struct transport *tr, const struct transport_io *io, size_t n);
RLV_MUST_CHECK int transport_cas(struct transport *tr, struct transport_atomic *ops, size_t n);
RLV_MUST_CHECK int transport_faa(struct transport *tr, struct transport_atomic *ops, size_t n);

/* Checks the requests, starts them by transport_ops.submit and counts them. n = 0: ticket 0. */
RLV_MUST_CHECK int transport_submit(struct transport *tr, struct transport_wr *wrs, size_t n,
				    enum submit_order order, uint64_t *ticket_out);
/*
 * Waits for a ticket by transport_ops.poll; ticket 0 is done already. -EINVAL: no submit returned
 * it. Cost: one phase, shared with everything submitted earlier.
 */
RLV_MUST_CHECK int transport_poll(struct transport *tr, uint64_t ticket, uint64_t deadline_ns);

/* The requests of a chain that tr takes at once: a longer one is several. */
static inline size_t transport_chain_most(const struct transport *tr)
{
	return tr->chain ? tr->chain : TRANSPORT_VECTOR;
}

/* Outstanding tickets of a chain of several pieces; first 0 = none. */
struct transport_span {
	uint64_t first, last;
};

/* Makes the ticket the last of the span, and the first of an empty one. 0 adds nothing. */
static inline void transport_span_add(struct transport_span *span, uint64_t ticket)
{
	if (ticket && !span->first)
		span->first = ticket;
	if (ticket)
		span->last = ticket;
}

/*
 * Submits a chain of any length in order, in pieces; if there is no room, it waits for all
 * outstanding work. The tickets in *span are outstanding, after an error, too.
 */
RLV_MUST_CHECK int transport_submit_chain(struct transport *tr, struct transport_wr *wrs, size_t n,
					  struct transport_span *span);

/* transport_submit_chain in no order: fences count within a piece. */
RLV_MUST_CHECK int transport_submit_many(struct transport *tr, struct transport_wr *wrs, size_t n,
					 struct transport_span *span);

/*
 * transport_submit_chain for a chain that nobody waits for now: its answers may come with those to later
 * requests, or a moment later than they could.
 */
RLV_MUST_CHECK int transport_post_chain(struct transport *tr, struct transport_wr *wrs, size_t n,
					struct transport_span *span);

/* Submits a chain and waits: one phase. Returns its first error. */
RLV_MUST_CHECK int transport_run(struct transport *tr, struct transport_wr *wrs, size_t n);

/*
 * For wait sets. transport_look: transport_poll without counting a phase. transport_count_wait:
 * counts the phases of a wait for the ticket; false if an earlier wait covers it: nothing is
 * counted.
 */
RLV_MUST_CHECK int transport_look(struct transport *tr, uint64_t ticket, uint64_t deadline_ns);
bool transport_count_wait(struct transport *tr, uint64_t ticket, uint64_t phases);

RLV_MUST_CHECK int transport_persist(struct region *region, uint64_t off, uint64_t len);
/*
 * Replaces the 4 KiB page at off by fresh zeroed memory of its own, and ends the grants of that
 * page. The whole region must have been granted, with all rights. Clients that had the page
 * attached keep the old memory only; a later grant of the page opens nothing else. No-op, returns
 * 0, where pages cannot be renewed (embed, a wire, a pool in one file or on a device). Nobody else
 * may be using the page. Does not wait: the target handles it before any later grant request.
 * -EINVAL: no page is at off; -EACCES: the grant is not such; -EAGAIN: the target does not read its
 * socket, or is making the page (transport_prepare): call again; -ENOSPC; -ECONNRESET, and so do
 * all later calls.
 */
RLV_MUST_CHECK int transport_renew(struct region *region, uint64_t off);

/*
 * A directory pool makes the page itself, a file, so its renewal has two steps. prepare requests
 * the page, once: 0, transport_renew will not wait; -EAGAIN: in progress, call again. Until
 * transport_renew our mapping has the old page, and so does each client; the page must not be
 * granted in between. A prepared page is kept for the next transport_renew of it, or until the
 * region is detached. Where there is nothing to make, 0. -EINVAL, -EACCES as transport_renew;
 * -ETIMEDOUT: the target did not answer, the connection is broken.
 */
RLV_MUST_CHECK int transport_prepare(struct region *region, uint64_t off);
/* False: transport_prepare is a no-op for this region, since its transport has none. */
static inline bool transport_prepares(const struct region *region)
{
	return region->tr->ops->prepare;
}
/*
 * True while the target is making a page for tr, and once after that. False after an error, which
 * breaks the connection.
 */
bool transport_renewing(struct transport *tr);
RLV_MUST_CHECK int transport_order(struct transport *tr);

/* True: READs of tr may fill memory of a device, if transport_reach succeeds. */
static inline bool transport_reaches(const struct transport *tr)
{
	return tr->ops->reach;
}

/*
 * Makes memory of a device that has a handle (base/mem/chunk.h, chunk_lend) one that READs of tr fill, until
 * chunk_unlend; a no-op if it is. Errors are those of the registration; -ENOTSUP: the transport never can.
 */
RLV_MUST_CHECK int transport_reach(struct transport *tr, const struct mem *mem);

/*
 * Reads one word and waits, as the CAS and FAA of one word below do: for cold paths. -EIO: it is
 * unknown whether that CAS or FAA was done.
 */
RLV_MUST_CHECK int transport_load(struct region *region, uint64_t off, uint64_t *word_out);
RLV_MUST_CHECK int transport_cas_word(struct region *region, uint64_t off, uint64_t expected,
				      uint64_t value, uint64_t *old_out);
RLV_MUST_CHECK int transport_faa_word(struct region *region, uint64_t off, uint64_t value,
				      uint64_t *old_out);
/* Reads len bytes. */
RLV_MUST_CHECK int transport_fetch(struct region *region, uint64_t off, void *dst, uint32_t len);
/*
 * Writes len bytes and waits. Nobody changes their words by CAS or FAA at that time (format,
 * barrier).
 */
RLV_MUST_CHECK int transport_store(struct region *region, uint64_t off, const void *src,
				   uint32_t len);

/*
 * True if this CPU may change words of the region by its own atomics. Callers check once per call.
 */
static inline bool transport_changes_in_place(const struct region *region)
{
	return region->base && (region->tr->caps & TRANSPORT_CPU_ATOMIC) &&
	       (region->rights & RIGHT_ATOMIC);
}

/*
 * Adds to the counts of failed CAS and unknown atomics, which only implementations of transport_ops
 * know.
 */
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

/* Identity of a pool that outlives its target. All zero: the pool does not, or has no store yet. */
struct pool_identity {
	uint8_t pool_uuid[16];
	uint8_t store_uuid[16];
	char store_name[64]; /* at the time the store took the pool */
};

/* A region as its target knows it. */
struct target_region {
	uint32_t id;
	uint32_t kind; /* owner: enum kind_id ... */
	uint32_t object;
	uint32_t part;
	uint32_t role; /* ... and which of its regions: enum region_role */
	bool sole;     /* nobody else had it mapped when the pool was opened */
	bool broken;   /* its file was truncated or cannot be read: it cannot be attached */
	uint64_t size; /* rounded up to whole extents */
	uint8_t *base; /* the target's mapping */
};

/* A current count of a transport's resource, by name: "qps" of an RDMA device. */
#define TARGET_GAUGES 8
#define TARGET_GAUGE_BYTES 16 /* of a name, final 0 included */

struct target_gauge {
	const char *name; /* static */
	uint64_t value;
};

struct target_stats {
	uint64_t pool_bytes, used_bytes;
	uint32_t regions, clients;
	uint32_t broken; /* of the regions: cannot be attached any more */
	uint64_t attaches, fences;
	uint32_t n_gauges;
	struct target_gauge gauges[TARGET_GAUGES];
	bool sole_opener;      /* persistent pool: nobody else had it mapped, so recovery may run */
	const char *page_kind; /* memory of the pool: "thp", "hugetlb", "4k", "file", "dax" */
};

enum fence_result {
	FENCE_DEAD = 0,  /* proved: it cannot access memory any more */
	FENCE_ALIVE = 1, /* it still can */
};

enum fence_how {
	FENCE_ASK,  /* changes nothing for a live client */
	FENCE_CUT,  /* ends its connections; proof if it has no mapping */
	FENCE_KILL, /* also kills its process if it runs on this host */
};

struct transport_target_ops {
	const char *name;

	/* Accepts clients at the address: shm a unix socket path, verbs and ofi
	   "HOST:PORT;SOCKET-PATH" (empty host = every address, port 0 = any); NULL = this process
	   only. */
	int (*listen)(struct transport_target *tg, const char *address);
	/* The URI for transport_open, valid after listen. Owned by the target. */
	const char *(*uri)(struct transport_target *tg);

	/* Makes a zeroed region of at least spec->size bytes. The caller sets all of *spec but id
	   and base; the call sets these and the size made. Errors: -ENOSPC (the message says how
	   much is left), -ENOMEM. */
	int (*register_region)(struct transport_target *tg, struct target_region *spec);
	/* Gives a region back: nobody can attach it again. Existing mappings stay valid and keep
	   the superblock; the rest may read as zeros from now on (its memory is freed), so the
	   caller first sets the state to REGION_DROPPED. */
	int (*unregister_region)(struct transport_target *tg, uint32_t region);
	/* Lists the pool's regions, with those of a reopened pool; *n_inout: room in, count out.
	   -ENOSPC: there are more than fit. */
	int (*list_regions)(struct transport_target *tg, struct target_region *regions,
			    size_t *n_inout);

	/* Lets client attach a range with rights; the server forwards the grant to it. -ENOENT (no
	   such region), -EINVAL (rights; a range outside the region, or misaligned). */
	int (*grant)(struct transport_target *tg, uint64_t client_id,
		     const struct region_range *range, uint32_t rights,
		     struct region_grant *grant_out);
	/* Revokes all of the client's grants of a region: it cannot attach it again. Access by RDMA
	   ends, mappings stay. */
	int (*revoke)(struct transport_target *tg, uint64_t client_id, uint32_t region);
	/* Reports whether the client is provably cut off. FENCE_DEAD: its process is dead, it has
	   said goodbye, it never attached anything, or it had connections only and they are
	   destroyed (its grants end here). -EDEADLK: FENCE_KILL of the caller itself. */
	int (*fence)(struct transport_target *tg, uint64_t client_id, enum fence_how how,
		     enum fence_result *result_out);

	int (*persist)(struct transport_target *tg, uint32_t region, uint64_t off, uint64_t len);
	/* True if nobody but the target has the region mapped, and no RDMA client is connected to
	   it. False for a pool in memory. */
	bool (*alone)(struct transport_target *tg, uint32_t region);
	/* Identity of the pool and its store. All zero: a pool in memory. */
	int (*identity)(struct transport_target *tg, struct pool_identity *out);
	/* Records the store that owns the pool; durable on return. A pool in memory: no-op. */
	int (*own)(struct transport_target *tg, const uint8_t store_uuid[16],
		   const char *store_name);
	/* Serves pending events of its sockets; waits at most timeout_ns for one. */
	int (*progress)(struct transport_target *tg, uint64_t timeout_ns);
	/* A descriptor that polls readable when progress() has work; -1 = none. */
	int (*poll_fd)(struct transport_target *tg);
	void (*stats)(struct transport_target *tg, struct target_stats *out);
	void (*close)(struct transport_target *tg);
};

struct transport_target {
	const struct transport_target_ops *ops;
	uint64_t incarnation; /* random number of this run of the target */
};

struct alloc_hooks;

struct target_opts {
	uint64_t pool_bytes; /* 0 = all free memory, or the size of path */
	const char *path;    /* NULL = memory; else a file or DAX device, or with dir a directory */
	bool dir;            /* one file per region (wire/pool_layout.h): clients get only theirs */
	bool create;         /* make the file or directory if missing */
	bool exclusive;      /* embed: nobody else may have the file open */
	bool trust_clients;  /* DAX device: each client of this host may map all of it */
	uint32_t page_kind;  /* enum page_kind of base/mem/alloc.h: preferred pages */
	bool private_memory; /* embed: anonymous memory, no descriptors, threads only */
	uint64_t incarnation; /* 0 = random */
	/* verbs: allocator of its message buffers; its memory must come from chunks
	   (base/mem/chunk.h). NULL = chunk_alloc. Borrowed until close. */
	const struct alloc_hooks *buffers;
	const struct clock *clock;
};

/*
 * Tells whether targets of that kind can be made on this host: 0, or an error whose message says
 * what is missing: -ENOTSUP (build, library), -ENODEV (device), -EACCES (right). Thread: any.
 */
RLV_MUST_CHECK int transport_target_check(const char *kind);

/*
 * Makes a target. kind: "shm", "verbs" or "ofi". Errors: -EINVAL (unknown kind, or an option), -EBUSY
 * (pool in use), -EPROTO (of another format, or no pool), -EBADMSG (damaged), -EISDIR and -ENOTDIR
 * (the other kind of path), -ENODEV (no DAX device), -EROFS, -ENOSPC, -ENOMEM, -ENOTSUP (no
 * rdma-core, no libfabric). After an error no new file or directory is left behind.
 */
RLV_MUST_CHECK int transport_target_open(const char *kind, const struct target_opts *opts,
					 struct transport_target **tg_out);
void transport_target_close(struct transport_target **tg);

/* Grants a client all of a region (ops->grant). */
static inline int transport_grant(struct transport_target *tg, uint64_t client_id, uint32_t region,
				  uint32_t rights, struct region_grant *grant_out)
{
	const struct region_range all = { .region = region };

	return tg->ops->grant(tg, client_id, &all, rights, grant_out);
}

#endif
