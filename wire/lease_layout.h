/*
 * Messages between a job and the broker of a device's memory (relive-poold), over a unix socket
 * (SOCK_SEQPACKET).
 *
 *   job                                            broker
 *     HELLO   name, needs + own pidfd, progress,  ->
 *             permit (lease_permit.h)            <-  ANSWER  job, incarnation, sizes
 *     TAKE    n extents                          ->
 *                                               <-  ANSWER  n references + n descriptors; or -EAGAIN
 *                                                           and a place in the queue
 *     GIVE    references, marks                  ->     extents are free when the marks are reached
 *     EXPOSE  references                         ->     an RDMA device may be told of them after the answer
 *     BEGIN, END, PROFILE  an iteration          ->     BEGIN and END: of a job without a permit
 *     ROOM, CANCEL                               ->     CANCEL: it waits no more
 *                                               <-  ANSWER, of END with a wish that the job parks
 *     PARK, RESUME                               ->     its tensors are in its own memory; come back
 *     BYE     marks                              ->     gives all that it holds
 *                                               <-  WAKE    at any time: repeat what was -EAGAIN
 *
 *   Again, to a broker that was started anew, or over a new connection:
 *     HELLO   the same, with job's incarnation   ->
 *     HOLD    references + their descriptors     ->     of all that it holds; the last with LAST
 *
 *   anybody who may connect:
 *     ASK     device, or jobs from the n-th on   ->
 *                                               <-  POOL_ANSWER, JOBS_ANSWER: of all jobs as they
 *                                                   were when the connection asked for the first
 *   the broker's user and root:
 *     LIMIT, DRAIN                               ->
 *                                               <-  ANSWER
 *
 * Each message but WAKE is answered at once, by ANSWER where nothing else is named. It is one packet
 * of its exact size, with a crc32c; the broker hangs up on a peer that sends anything else. Bytes of
 * memory are counted in bytes, extents by number. The page of progress is a memfd, sealed against
 * shrinking: LEASE_STREAMS words with the number of the mark that each stream has reached; then for each stream a
 * word, 1 where the device cannot write marks, and the 64 bytes of a CUDA IPC event behind its last mark.
 */
#ifndef RLV_WIRE_LEASE_LAYOUT_H
#define RLV_WIRE_LEASE_LAYOUT_H

#include "wire/message_head.h"

#define LEASE_MAGIC 0x44564c52u /* "RLVD" */
#define LEASE_VERSION 5
#define LEASE_REFS 64u        /* extents in a message */
#define LEASE_JOBS 14u        /* jobs in a message */
#define LEASE_JOBS_MOST 1024u /* jobs of a pool */
#define LEASE_STREAMS 64u
#define LEASE_BINS 256u
#define LEASE_NAME_BYTES 64u
#define LEASE_TEXT_BYTES 192u
#define LEASE_BYTES_MAX 2304u /* no message is larger */
#define LEASE_POOL UINT32_MAX /* ASK: for a device of the pool, not for a job */
#define LEASE_PROGRESS_BYTES (LEASE_STREAMS * (2 * sizeof(uint64_t) + 64u))

enum lease_type {
	LEASE_HELLO = 1,
	LEASE_HOLD = 2,
	LEASE_TAKE = 3,
	LEASE_GIVE = 4,
	LEASE_BEGIN = 5,
	LEASE_END = 6,
	LEASE_PROFILE = 7,
	LEASE_ROOM = 8,
	LEASE_CANCEL = 9,
	LEASE_BYE = 10,
	LEASE_ASK = 11,
	LEASE_LIMIT = 12,
	LEASE_DRAIN = 13,
	LEASE_ANSWER = 14,
	LEASE_POOL_ANSWER = 15,
	LEASE_JOBS_ANSWER = 16,
	LEASE_WAKE = 17,
	LEASE_PARK = 18,
	LEASE_RESUME = 19,
	LEASE_EXPOSE = 20,
};

enum lease_ref_flags {
	LEASE_EXPOSED = 1, /* HOLD: the job has exposed it */
};

struct lease_ref {
	uint32_t extent;
	uint32_t flags; /* enum lease_ref_flags */
	uint64_t generation;
};

WIRE_SIZE(lease_ref, 16);
WIRE_AT(lease_ref, flags, 4);
WIRE_AT(lease_ref, generation, 8);

/* BEGIN, ROOM, CANCEL, WAKE, PARK, RESUME */
struct lease_bare {
	struct message_head head;
};

WIRE_SIZE(lease_bare, 16);

/*
 *   offset size
 *        0   16  head
 *       16   64  name of the job, NUL-terminated
 *       80    8  incarnation of a job that comes back; 0 = a new one
 *       88    8  bytes that stay between iterations
 *       96    8  bytes of an iteration beside them, at most
 *      104    8  quota; 0 = the budget
 *      112    8  duration of the whole job in ns; 0 = not known
 *      120    4  weight in 1/1000
 *      124    4  priority
 *      128    4  device: 1 + its number, of a job that comes back or wants that one; 0 = any
 *      132    4  flags: enum lease_hello_flags
 */
enum lease_hello_flags {
	LEASE_PARKED = 1, /* it holds nothing until it says RESUME */
	LEASE_PARKS = 2,  /* it parks between iterations when the broker wishes so */
};

struct lease_hello {
	struct message_head head;
	char name[LEASE_NAME_BYTES];
	uint64_t incarnation;
	uint64_t persistent;
	uint64_t peak;
	uint64_t quota;
	uint64_t duration_ns;
	uint32_t weight;
	int32_t priority;
	uint32_t device;
	uint32_t flags;
};

WIRE_SIZE(lease_hello, 136);
WIRE_AT(lease_hello, name, 16);
WIRE_AT(lease_hello, incarnation, 80);
WIRE_AT(lease_hello, persistent, 88);
WIRE_AT(lease_hello, peak, 96);
WIRE_AT(lease_hello, quota, 104);
WIRE_AT(lease_hello, duration_ns, 112);
WIRE_AT(lease_hello, weight, 120);
WIRE_AT(lease_hello, priority, 124);
WIRE_AT(lease_hello, device, 128);
WIRE_AT(lease_hello, flags, 132);

/*
 * TAKE: n extents.
 *   offset size
 *       16    4  n
 *       20    4  reserved, zero
 */
struct lease_take {
	struct message_head head;
	uint32_t n;
	uint32_t reserved;
};

WIRE_SIZE(lease_take, 24);
WIRE_AT(lease_take, n, 16);
WIRE_AT(lease_take, reserved, 20);

/*
 * HOLD, GIVE, EXPOSE, BYE
 *   offset size
 *        0   16  head
 *       16    4  n: references (BYE: 0)
 *       20    4  flags: enum lease_flags
 *       24 1024  references, zeros behind them
 *     1048  512  marks: for each stream the number of its last mark, 0 = none;
 *                EXPOSE has none
 */
enum lease_flags {
	LEASE_LAST = 1, /* HOLD: the job holds no more */
};

struct lease_refs {
	struct message_head head;
	uint32_t n;
	uint32_t flags;
	struct lease_ref refs[LEASE_REFS];
	uint64_t marks[LEASE_STREAMS];
};

WIRE_SIZE(lease_refs, 1560);
WIRE_AT(lease_refs, n, 16);
WIRE_AT(lease_refs, flags, 20);
WIRE_AT(lease_refs, refs, 24);
WIRE_AT(lease_refs, marks, 1048);

/* END: remaining_ns is an estimate of the job's work, 0 = the broker's own. */
struct lease_end {
	struct message_head head;
	uint64_t remaining_ns;
};

WIRE_SIZE(lease_end, 24);
WIRE_AT(lease_end, remaining_ns, 16);

/* PROFILE: bytes of an iteration, the most in each of its LEASE_BINS equal parts. */
struct lease_profile {
	struct message_head head;
	uint64_t period_ns;
	uint64_t bins[LEASE_BINS];
};

WIRE_SIZE(lease_profile, 2072);
WIRE_AT(lease_profile, period_ns, 16);
WIRE_AT(lease_profile, bins, 24);

/*
 * ASK: first is LEASE_POOL, for a device; or the number of jobs that are known: 0 takes all jobs as they are now,
 * which the connection keeps until it has asked for the last.
 */
struct lease_ask {
	struct message_head head;
	uint32_t first;
	uint32_t device;
};

WIRE_SIZE(lease_ask, 24);
WIRE_AT(lease_ask, first, 16);
WIRE_AT(lease_ask, device, 20);

enum lease_limit_kind { LEASE_LIMIT_BUDGET, LEASE_LIMIT_USER, LEASE_LIMIT_JOB };

/*
 * LIMIT
 *   offset size
 *       16    4  kind: enum lease_limit_kind
 *       20    4  uid, of LEASE_LIMIT_USER
 *       24    8  bytes; 0 = as much as the budget (not LEASE_LIMIT_BUDGET)
 *       32   64  name, of LEASE_LIMIT_JOB
 *       96    4  device, of LEASE_LIMIT_BUDGET: 1 + its number; 0 = each
 *      100    4  reserved, zero
 */
struct lease_limit {
	struct message_head head;
	uint32_t kind;
	uint32_t uid;
	uint64_t bytes;
	char name[LEASE_NAME_BYTES];
	uint32_t device;
	uint32_t reserved;
};

WIRE_SIZE(lease_limit, 104);
WIRE_AT(lease_limit, kind, 16);
WIRE_AT(lease_limit, uid, 20);
WIRE_AT(lease_limit, bytes, 24);
WIRE_AT(lease_limit, name, 32);
WIRE_AT(lease_limit, device, 96);
WIRE_AT(lease_limit, reserved, 100);

/* DRAIN: 1 = no new jobs, 0 = new jobs again. */
struct lease_drain {
	struct message_head head;
	uint32_t on;
	uint32_t reserved;
};

WIRE_SIZE(lease_drain, 24);
WIRE_AT(lease_drain, on, 16);
WIRE_AT(lease_drain, reserved, 20);

/*
 *   offset size
 *        0   16  head
 *       16    4  status: 0 or a negative errno
 *       20    4  reason: enum gate_reason, or GATE_WAITS_MEMORY of TAKE
 *       24    4  position in the queue
 *       28    4  other jobs
 *       32    8  room: bytes that the job may take now
 *       40    8  incarnation of the job
 *       48    8  bytes of an extent
 *       56    8  bytes of the device
 *       64    4  flags: enum lease_answer_flags
 *       68    4  n: references
 *       72    4  device of the job
 *       76    4  cuda: 1 + the number of the CUDA device; 0 = memory of the host
 *       80 1024  references, zeros behind them
 *     1104  192  message of a failure, NUL-terminated
 */
enum lease_answer_flags {
	LEASE_ANSWER_STRICT = 1, /* extents are new memory for each user */
	LEASE_ANSWER_PARK = 2, /* the broker wishes that the job parks: others wait for its place */
};

struct lease_answer {
	struct message_head head;
	int32_t status;
	uint32_t reason;
	uint32_t position;
	uint32_t others;
	uint64_t room;
	uint64_t incarnation;
	uint64_t extent_bytes;
	uint64_t device_bytes;
	uint32_t flags;
	uint32_t n;
	uint32_t device;
	uint32_t cuda;
	struct lease_ref refs[LEASE_REFS];
	char text[LEASE_TEXT_BYTES];
};

WIRE_SIZE(lease_answer, 1296);
WIRE_AT(lease_answer, status, 16);
WIRE_AT(lease_answer, reason, 20);
WIRE_AT(lease_answer, position, 24);
WIRE_AT(lease_answer, others, 28);
WIRE_AT(lease_answer, room, 32);
WIRE_AT(lease_answer, incarnation, 40);
WIRE_AT(lease_answer, extent_bytes, 48);
WIRE_AT(lease_answer, device_bytes, 56);
WIRE_AT(lease_answer, flags, 64);
WIRE_AT(lease_answer, n, 68);
WIRE_AT(lease_answer, device, 72);
WIRE_AT(lease_answer, cuda, 76);
WIRE_AT(lease_answer, refs, 80);
WIRE_AT(lease_answer, text, 1104);

/*
 * POOL_ANSWER: of a device; zeros where the pool has none of that number
 *   offset size
 *       16    4  jobs
 *       20    4  flags: enum lease_pool_flags
 *       24    8  bytes of the device
 *       32    8  budget
 *       40    8  bytes that jobs hold
 *       48    8  bytes of an extent
 *       56    8  extents that went to another job than before
 *       64    8  jobs whose process died
 *       72    8  jobs that came back to this broker
 *       80    8  iterations begun
 *       88    8  iterations that needed more than they said
 *       96    8  iterations that the limit ended
 *      104    4  devices of the pool
 *      108    4  reserved, zero
 *      112   64  name of the device, NUL-terminated
 */
enum lease_pool_flags { LEASE_POOL_STRICT = 1, LEASE_POOL_DRAINS = 2 };

struct lease_pool_answer {
	struct message_head head;
	uint32_t jobs;
	uint32_t flags;
	uint64_t device_bytes;
	uint64_t budget;
	uint64_t held;
	uint64_t extent_bytes;
	uint64_t handovers;
	uint64_t deaths;
	uint64_t adopted;
	uint64_t iterations;
	uint64_t overshoots;
	uint64_t cut;
	uint32_t devices;
	uint32_t reserved;
	char name[LEASE_NAME_BYTES];
};

WIRE_SIZE(lease_pool_answer, 176);
WIRE_AT(lease_pool_answer, jobs, 16);
WIRE_AT(lease_pool_answer, flags, 20);
WIRE_AT(lease_pool_answer, device_bytes, 24);
WIRE_AT(lease_pool_answer, budget, 32);
WIRE_AT(lease_pool_answer, held, 40);
WIRE_AT(lease_pool_answer, extent_bytes, 48);
WIRE_AT(lease_pool_answer, handovers, 56);
WIRE_AT(lease_pool_answer, deaths, 64);
WIRE_AT(lease_pool_answer, adopted, 72);
WIRE_AT(lease_pool_answer, iterations, 80);
WIRE_AT(lease_pool_answer, overshoots, 88);
WIRE_AT(lease_pool_answer, cut, 96);
WIRE_AT(lease_pool_answer, devices, 104);
WIRE_AT(lease_pool_answer, reserved, 108);
WIRE_AT(lease_pool_answer, name, 112);

/*
 * A job
 *   offset size
 *        0    4  device
 *        4    4  pid
 *        8    4  uid
 *       12    4  state: enum lease_job_state
 *       16    4  reason that it waits: enum gate_reason
 *       20    4  position in the queue
 *       24    4  connected: 0 = its connection is gone, its process is not
 *       28    4  priority
 *       32    8  bytes that it holds
 *       40    8  the most that it held
 *       48    8  quota
 *       56    8  bytes that it said stay
 *       64    8  bytes that it said an iteration needs
 *       72    8  iterations
 *       80    8  ns that it waited
 *       88    8  ns of its iterations
 *       96   64  name, NUL-terminated
 */
enum lease_job_state {
	LEASE_JOB_IDLE,   /* between iterations */
	LEASE_JOB_WAITS,  /* for admission, its turn, or memory */
	LEASE_JOB_RUNS,   /* an iteration */
	LEASE_JOB_LEAVES, /* until the device is done with its memory */
	LEASE_JOB_PARKED, /* its tensors are in its own memory */
};

struct lease_job {
	uint32_t device;
	uint32_t pid;
	uint32_t uid;
	uint32_t state;
	uint32_t reason;
	uint32_t position;
	uint32_t connected;
	int32_t priority;
	uint64_t held;
	uint64_t most;
	uint64_t quota;
	uint64_t persistent;
	uint64_t peak;
	uint64_t iterations;
	uint64_t waited_ns;
	uint64_t served_ns;
	char name[LEASE_NAME_BYTES];
};

WIRE_SIZE(lease_job, 160);
WIRE_AT(lease_job, device, 0);
WIRE_AT(lease_job, pid, 4);
WIRE_AT(lease_job, uid, 8);
WIRE_AT(lease_job, state, 12);
WIRE_AT(lease_job, reason, 16);
WIRE_AT(lease_job, position, 20);
WIRE_AT(lease_job, connected, 24);
WIRE_AT(lease_job, priority, 28);
WIRE_AT(lease_job, held, 32);
WIRE_AT(lease_job, most, 40);
WIRE_AT(lease_job, quota, 48);
WIRE_AT(lease_job, persistent, 56);
WIRE_AT(lease_job, peak, 64);
WIRE_AT(lease_job, iterations, 72);
WIRE_AT(lease_job, waited_ns, 80);
WIRE_AT(lease_job, served_ns, 88);
WIRE_AT(lease_job, name, 96);

/*
 * JOBS_ANSWER: as many jobs as fit, from the first that was asked for
 *   offset size
 *        0   16  head
 *       16    4  total: all jobs of the pool, LEASE_JOBS_MOST or less
 *       20    4  first: number of jobs before these
 *       24    4  n: these; 0 only if there are no more
 *       28    4  reserved, zero
 *       32 2240  jobs, zeros behind them
 */
struct lease_jobs_answer {
	struct message_head head;
	uint32_t total;
	uint32_t first;
	uint32_t n;
	uint32_t reserved;
	struct lease_job jobs[LEASE_JOBS];
};

WIRE_SIZE(lease_jobs_answer, 2272);
WIRE_AT(lease_jobs_answer, total, 16);
WIRE_AT(lease_jobs_answer, first, 20);
WIRE_AT(lease_jobs_answer, n, 24);
WIRE_AT(lease_jobs_answer, reserved, 28);
WIRE_AT(lease_jobs_answer, jobs, 32);

#endif
