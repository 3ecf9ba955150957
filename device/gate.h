/*
 * gate.h - which job may begin its next iteration now.
 *
 *   arrive ─> QUEUED ─ admission ─> RESIDENT ─ test ─> RUNNING ─ end of iteration ─> RESIDENT ..
 *
 * Admission gives a job its place: its persistent memory stays on the device between iterations. It
 * holds to Salus' condition, sum of persistent + largest dynamic peak <= budget, by which some
 * resident job can always run. The test at the begin of an iteration decides who runs beside whom:
 *
 *   GATE_ALONE    one iteration at a time
 *   GATE_PEAKS    while the sum of the peaks fits
 *   GATE_CURVES   while the curves fit at all times to come (Zico's time shift): a job whose
 *                 forward pass would meet another's peak waits until it would not. Where jobs get
 *                 more done if their begins are some time apart, they are (pace.h)
 *
 * As each later begin is tested anew, running iterations never need more than the budget, as long as
 * their curves hold. Where one does not, the margin grows, and shrinks while none does.
 *
 * A policy orders the jobs. One that does not fit may be passed by later ones; passed `aging` times
 * it blocks them, so that nobody waits for memory for ever. A job that waits, for its admission too, and
 * sees `patience` iterations of others begin goes first, so that no order starves it. A job that
 * could be admitted but for the iterations that run holds back new ones until it is.
 *
 * A job between two phases, or without requests, is idle: it keeps its place and is not asked.
 *
 * A plain object: no clock, device or input; the broker and the simulator have the same. Thread:
 * owner, for all calls.
 */
#ifndef RLV_DEVICE_GATE_H
#define RLV_DEVICE_GATE_H

#include "device/curve.h"
#include "device/pace.h"

#include "base/error.h"

#define GATE_RUNNING PACE_JOBS /* iterations at a time, at most */
#define GATE_AGING 2u          /* a good number for gate_opts.aging */
#define GATE_PATIENCE 64u      /* and for gate_opts.patience, where jobs come without end */

enum gate_order {
	GATE_FIFO,        /* the job that came first */
	GATE_SRTF,        /* the one with the least left to do */
	GATE_FAIR,        /* the one that had least device time for its weight */
	GATE_PRIORITY,    /* the largest number, then as GATE_FIFO */
	GATE_ROUND_ROBIN, /* the one that has waited longest since its last iteration */
	GATE_PACK,        /* the one with the least memory, so that many run together */
};
#define GATE_ORDERS 6u

enum gate_sharing { GATE_ALONE, GATE_PEAKS, GATE_CURVES };
#define GATE_SHARINGS 3u

enum gate_reason {
	GATE_READY,           /* it runs, or begins at the next gate_start */
	GATE_WAITS_ADMISSION, /* its persistent memory does not fit beside the others' */
	GATE_WAITS_MEMORY,    /* its iteration does not fit now */
	GATE_WAITS_TURN,      /* another job goes first */
	GATE_IDLE,            /* gate_idle: it has nothing to run */
};

struct gate_opts {
	enum gate_order order;
	enum gate_sharing sharing;
	uint64_t budget;   /* bytes for all jobs */
	uint64_t reserved; /* of it, for staging */
	uint32_t aging;    /* times that later jobs may pass one; 0: strict order */
	uint32_t running;  /* iterations at a time; 0: GATE_RUNNING */
	uint32_t resident; /* jobs admitted at a time, whose persistent memory is in use; 0: any */
	uint32_t patience; /* iterations of others that a waiting job lets begin; 0 and for GATE_FIFO: any number */
};

struct gate_job {
	enum { GATE_ABSENT, GATE_QUEUED, GATE_RESIDENT, GATE_RUNS } state;
	uint64_t arrival, turn; /* numbers that rise: of gate_arrive, of the last iteration's end */
	uint64_t persistent;
	const struct curve *curve; /* borrowed until gate_leave */
	uint64_t remaining_ns, served_ns, phase_ns;
	double weight;
	int priority;
	uint32_t passed; /* times that later jobs began first because it did not fit */
	uint32_t waited; /* iterations of others that began while it waited */
	bool idle;
	bool skipped; /* within a call: it did not fit */
};

struct gate {
	struct gate_opts opts;
	struct gate_job *jobs;
	uint32_t n;
	uint32_t running, residents;
	double gain[GATE_RUNNING + 1]; /* of so many iterations at a time; 0: not known */
	uint64_t last;                 /* number given last */
	uint64_t persistent;
	uint32_t margin; /* of the budget, in 1/1000 */
	uint32_t clean;  /* iterations since the margin changed */
	bool admits;     /* a job may be admitted that could not be before */
	bool drains;     /* nothing begins, so that a job can be admitted */
	uint64_t gap_ns; /* from one begin to the next, at least; 0: none */
	uint64_t paced; /* the jobs that gap_ns is for, as gate_active sums them up; 0: not looked for */
	uint64_t looked; /* number given last when gap_ns was looked for */
	uint32_t newest; /* the job that began last */
};

struct gate_request {
	uint64_t persistent;
	const struct curve *curve;
	uint64_t remaining_ns; /* given or estimated; 0: not known */
	double weight;         /* 0: 1 */
	int priority;
	uint64_t served_ns; /* of device time that it has had, if it was here before */
};

struct gate_place {
	enum gate_reason reason;
	uint32_t position; /* jobs before it in the order of the policy */
};

/* Room for n jobs. -EINVAL, -ENOMEM. */
RLV_MUST_CHECK int gate_init(struct gate *gate, const struct gate_opts *opts, uint32_t n);
void gate_destroy(struct gate *gate);

/* False: a job of such needs does not fit even alone. */
bool gate_could_run(const struct gate *gate, const struct gate_request *request);
/* A job comes. -ENOSPC: too many jobs, or it could not run even alone. */
RLV_MUST_CHECK int gate_arrive(struct gate *gate, const struct gate_request *request,
			       uint32_t *job_out);
/* It leaves; not while it runs. */
void gate_leave(struct gate *gate, uint32_t job);

/* Lets one iteration begin, if one may. false: none. Repeat until it is false. */
bool gate_start(struct gate *gate, uint32_t *job_out);
/* A job's curve has changed. */
void gate_changed(struct gate *gate);
/* How far a running iteration is, in time of the job alone. */
void gate_progress(struct gate *gate, uint32_t job, uint64_t phase_ns);
/* A running iteration has ended; used_ns: of device time. */
void gate_end(struct gate *gate, uint32_t job, uint64_t used_ns, uint64_t remaining_ns);

/* A running job has ended n iterations, and begun the next after each, with nobody beside it. */
void gate_repeated(struct gate *gate, uint32_t job, uint64_t n, uint64_t used_ns);

/* Not while it runs: it has nothing to run until gate_wake. It keeps its memory and its place. */
void gate_idle(struct gate *gate, uint32_t job);
void gate_wake(struct gate *gate, uint32_t job);

/*
 * Progress of n iterations together, 2 <= n <= GATE_RUNNING, beside that of one alone, as measured.
 * Where it is known, an iteration begins beside others only if that is good: for GATE_SRTF for the
 * mean time until jobs end, else for what all get done.
 */
void gate_gain(struct gate *gate, uint32_t n, double gain);

/* A running iteration needed more than its curve: the margin grows by 1 %, at most to 30 %. */
void gate_overshoot(struct gate *gate);

/* Where a job stands, and why. */
struct gate_place gate_place(const struct gate *gate, uint32_t job);

/* Sets the budget for later decisions. */
void gate_limit(struct gate *gate, uint64_t budget);

/* Names as the command line has them: "fifo", ..; "alone", ..; "ready", .. Static. */
const char *gate_order_name(enum gate_order order);
const char *gate_sharing_name(enum gate_sharing sharing);
const char *gate_reason_name(enum gate_reason reason);

#endif
