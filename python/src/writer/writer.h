/*
 * Writer: rows of one environment or of a vector of them.
 *
 * A call binds its keywords to columns, makes the flags of its rows from the ends of episodes and
 * the autoreset mode, and hands everything to the library in one call:
 *
 *   next step   the row after an ended episode is only its final observation (RLV_FINAL)
 *   same step   it is the next episode's first; final_<column> gives the observation that the reset
 *               replaced, and goes in as a row of its own, if it must wait before the next call's
 *   disabled    the user resets; otherwise as same step
 */
#ifndef RLV_PYTHON_SRC_WRITER_H
#define RLV_PYTHON_SRC_WRITER_H

#include "python/src/column.h"

enum autoreset { AUTORESET_NEXT_STEP, AUTORESET_SAME_STEP, AUTORESET_DISABLED };

/* Numbers of keywords: a column, final_<column>, or one of the others. */
enum {
	KEY_FINAL_OF = RLV_MAX_COLUMNS,
	KEY_TERMINATED = 2 * RLV_MAX_COLUMNS,
	KEY_TRUNCATED,
	KEY_FINAL,
	KEY_TD_ERROR,
	KEY_POLICY_VERSION,
	KEY_INFOS,
	KEY_ENV,
	KEYS,
};

struct writer {
	struct handle h;
	uint32_t n_envs;
	bool batched;     /* values have a first dimension of n_envs */
	bool busy;        /* a call is in progress: guarded by the interpreter lock */
	bool follows_end; /* a row of this call may follow a truncated step, which it loses */
	bool warned;      /* lost truncated steps were reported */
	bool waits;       /* some items have later rows in their windows */
	bool unchecked;   /* rewards may be NaN, numbers need not fit */
	bool assumed;     /* no mode was given, so next_step is assumed: contradicting rows are an
	                 error */
	enum autoreset autoreset;
	uint32_t n_columns;
	uint32_t n_obs; /* columns that are */
	struct column columns[RLV_MAX_COLUMNS];
	PyObject *keys;           /* keyword -> number */
	PyObject *last_names;     /* keywords of the last call ... */
	uint16_t last_keys[KEYS]; /* ... and their numbers */
	uint8_t *memory;          /* of all below */
	uint8_t *stage[RLV_MAX_COLUMNS];
	uint8_t *zeros;   /* a step of the largest column */
	uint8_t *ends[3]; /* terminated, truncated, final */
	double *td_error;
	uint16_t *flags;
	bool *ended;                      /* each environment's last step ended its episode */
	uint8_t *firsts[RLV_MAX_COLUMNS]; /* assumed: each environment's first observation ... */
	uint32_t firsts_left;             /* that are not seen yet */
	bool *has_first;
	bool *ended_at_first; /* ... and whether it saw the same when its episode ended */
	/* of the environments from here on that ended the final rows are not in: they are in stage,
	   packed; n_envs = all are */
	uint32_t final_env;
};

/* The arguments of one call. Arrays by column have no more than the table. */
struct call {
	PyObject *values[KEYS]; /* borrowed, or held; NULL = not given */
	const void *columns[RLV_MAX_COLUMNS];
	const void *finals[RLV_MAX_COLUMNS]; /* packed, of the environments whose episode ended */
	const uint8_t *ends[3];
	bool has_finals;
	bool finals_are_none; /* given as None, or looked for in infos */
	uint32_t n;           /* rows */
	uint32_t env;         /* of extend */
	uint32_t policy_version;
	uint16_t *flags; /* NULL = all 0 */
	double *td_error;
	void *scratch[2]; /* of flags and td_error, where the writer's own do not suffice */
	uint32_t n_scratch, n_sources, n_held;
	struct source sources[2 * RLV_MAX_COLUMNS + 4];
	PyObject *held[KEYS + 1]; /* values of a dict, which others may change meanwhile */
};

/* -------- call.c -------- */

/*
 * Begins a method of the writer, which is busy until call_end: reads the values, from at most one
 * dict and then the keywords, which take precedence. 0, or -1 with an exception: Busy if a call is
 * in progress already, in another thread or under a signal's handler.
 */
int call_begin(struct writer *w, struct call *call, PyObject *const *values,
	       Py_ssize_t n_positional, PyObject *names);

/* Ends a call: releases what it holds; the writer is no longer busy. None if ret is 0, else NULL,
   with the exception that is set already. */
PyObject *call_end(struct writer *w, struct call *call, int ret);

/* Raises InvalidArgument if the call gives a keyword with a number in [from, to); the message names
   the first and says `why`. -1 then, else 0. */
int call_refuse(const struct writer *w, const struct call *call, int from, int to, const char *why);

/*
 * Binds the values of call->n rows: all columns, which must be given, and terminated, truncated,
 * final and td_error, if they are. 0, or -1 with an exception: also for a NaN or infinite reward.
 */
int call_bind(struct writer *w, struct call *call, bool batched);

/* Binds one observation, given by the names of its columns, into call->finals. 1; 0 = no
   observation column is given; -1 with an exception: also if only some are. */
int call_bind_last(struct writer *w, struct call *call);

/* True if row i is the last step of an episode. */
static inline bool call_row_ended(const struct call *call, uint32_t i)
{
	return call->flags && call->flags[i] & (RLV_TERMINATED | RLV_TRUNCATED);
}

/*
 * Binds final_<column>, or infos["final_obs"], of the rows that end an episode, packed, into
 * call->finals. 0, also if none is given; -1 with an exception: also if they contradict the mode.
 */
int call_bind_finals(struct writer *w, struct call *call);

/* Allocates `bytes` for each of the call's rows; call_end frees them. NULL with an exception. */
void *call_scratch(struct call *call, size_t bytes);

/* -------- autoreset.c -------- */

/* Copies an environment's observation in a row of the call into w->firsts, unless the first one of
   the environment is there already. */
void autoreset_see_first(struct writer *w, const struct call *call, uint32_t env, uint32_t row);

/*
 * Sets call->flags of call->n rows, from terminated, truncated, final and the autoreset mode. The
 * rows are consecutive steps of call->env, or one step of each environment. 0, or -1 with an
 * exception: a row contradicts the assumed mode.
 */
int autoreset_flags(struct writer *w, struct call *call, bool consecutive);

/*
 * Checks a call against the autoreset mode. given: the call has final observations. 0, or -1 with
 * an exception: they are given in mode next_step, or None or not in infos at an end in mode
 * same_step.
 */
int autoreset_check_finals(const struct writer *w, const struct call *call, bool given);

/* -------- append.c -------- */

/* The method append: appends one step of each environment. None, or NULL with an exception. */
PyObject *append_step(PyObject *object, PyObject *const *values, Py_ssize_t n, PyObject *names);

/* The method extend: appends consecutive steps of one environment. None, or NULL with an
   exception. */
PyObject *append_rows(PyObject *object, PyObject *const *values, Py_ssize_t n, PyObject *names);

/* The method end_episode: ends the episode of one environment, and appends its final observation
   first, if one is given. None, or NULL with an exception. */
PyObject *append_end(PyObject *object, PyObject *const *values, Py_ssize_t n, PyObject *names);

/* Ends the episodes of all environments, for close(): completes the items that wait for later
   steps. 0, or -1 with an exception. */
int append_complete(struct writer *w);

#endif
