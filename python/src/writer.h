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
 * Begins a method: reads the values, from at most one dict and then the keywords, which take
 * precedence. 0, or -1 with an exception; of -EBUSY for a second thread, or a signal's handler, in such
 * a call.
 */
int call_begin(struct writer *w, struct call *call, PyObject *const *values,
	       Py_ssize_t n_positional, PyObject *names);

/* Ends it. None if ret is 0, else NULL. */
PyObject *call_end(struct writer *w, struct call *call, int ret);

/* Refuses the keywords numbered [from, to). 0, or -1 with an exception that names the one given. */
int call_refuse(const struct writer *w, const struct call *call, int from, int to, const char *why);

/* Binds the columns, the ends and the TD errors of call->n rows. */
int call_bind(struct writer *w, struct call *call, bool batched);

/* Binds the one row of observations that is given by column into call->finals. 1, or 0: none is; or -1
   with an exception. */
int call_bind_last(struct writer *w, struct call *call);

/* True if row i is the last step of an episode. */
static inline bool call_row_ended(const struct call *call, uint32_t i)
{
	return call->flags && call->flags[i] & (RLV_TERMINATED | RLV_TRUNCATED);
}

/* Binds final_<column> for the rows that end an episode, if they are given. */
int call_bind_finals(struct writer *w, struct call *call);

/* Gives `bytes` for each row, until call_end. NULL with an exception. */
void *call_scratch(struct call *call, size_t bytes);

/* -------- autoreset.c -------- */

/* Keeps an environment's first observation, if it is compared later. */
void autoreset_see_first(struct writer *w, const struct call *call, uint32_t env, uint32_t row);

/*
 * Sets the flags of call->n rows: one step of each environment, or consecutive steps of one. 0, or
 * -1 with an exception: the assumed mode is wrong.
 */
int autoreset_flags(struct writer *w, struct call *call, bool consecutive);

/* given: the call has final observations. 0, or -1 with an exception: the mode is another one. */
int autoreset_check_finals(const struct writer *w, const struct call *call, bool given);

/* -------- append.c -------- */

/* The method append: one step of each environment. */
PyObject *append_step(PyObject *object, PyObject *const *values, Py_ssize_t n, PyObject *names);

/* The method extend: consecutive steps of one environment. */
PyObject *append_rows(PyObject *object, PyObject *const *values, Py_ssize_t n, PyObject *names);

/* The method end_episode. */
PyObject *append_end(PyObject *object, PyObject *const *values, Py_ssize_t n, PyObject *names);

/* Completes items that wait for later steps, in all environments. 0, or -1 with an exception. */
int append_complete(struct writer *w);

#endif
