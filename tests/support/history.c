#include "tests/support/history.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <stdlib.h>
#include <string.h>

/* -------- by versions -------- */

/* A version: its put, and the times by which it had begun for sure, and had not ended yet. */
struct version {
	const struct history_call *put; /* NULL: of a pending put that nobody read, or of nobody */
	uint64_t value;                 /* as put or read; 0 = not known */
	uint64_t first_end;             /* of the calls that have this version or a later one */
};

static int by_start(const void *a, const void *b)
{
	const struct history_call *x = a, *y = b;

	return (x->start > y->start) - (x->start < y->start);
}

static int by_end(const void *a, const void *b)
{
	const struct history_call *const *x = a, *const *y = b;

	return ((*x)->end > (*y)->end) - ((*x)->end < (*y)->end);
}

static bool is_put(const struct history_call *call)
{
	return call->kind != HISTORY_GET && !call->refused;
}

static int by_value(const void *a, const void *b)
{
	const struct history_call *const *x = a, *const *y = b;

	return ((*x)->value > (*y)->value) - ((*x)->value < (*y)->value);
}

/* Values and versions fit together; pending puts that were read get their versions. */
static const char *find_versions(struct history_call *calls, size_t n, struct version *versions,
				 struct history_call **pending, size_t *n_pending)
{
	struct history_call wanted, *key = &wanted, **found;

	*n_pending = 0;
	for (size_t i = 0; i < n; i++) {
		struct history_call *call = &calls[i];

		if (is_put(call) && call->end == HISTORY_PENDING)
			pending[(*n_pending)++] = call;
		if (!is_put(call) || call->end == HISTORY_PENDING)
			continue;
		if (versions[call->version].put)
			return "two puts have one version";
		versions[call->version] = (struct version){ call, call->value, 0 };
		if (call->kind == HISTORY_PUT_IF && call->version != call->expected + 1)
			return "a put replaced another version than expected";
	}
	qsort(pending, *n_pending, sizeof(*pending), by_value);
	for (size_t i = 0; i < n; i++) {
		struct version *version = &versions[calls[i].version];

		if (calls[i].kind != HISTORY_GET)
			continue;
		wanted.value = calls[i].value;
		found = version->put || !calls[i].version
				? NULL
				: bsearch(&key, pending, *n_pending, sizeof(*pending), by_value);
		if (found && ((*found)->version == 0 || (*found)->version == calls[i].version)) {
			(*found)->version = calls[i].version;
			*version = (struct version){ *found, (*found)->value, 0 };
			if ((*found)->kind == HISTORY_PUT_IF &&
			    calls[i].version != (*found)->expected + 1)
				return "a put replaced another version than expected";
		}
		if (calls[i].version && (!version->put || version->value != calls[i].value))
			return "a value was read that nobody put under that version";
		if (!calls[i].version && calls[i].value)
			return "a value was read without a version";
	}
	return NULL;
}

/* Versions that nobody told of were put by pending calls that nobody read. */
static const char *fill_holes(struct version *versions, uint64_t newest,
			      struct history_call **pending, size_t n_pending)
{
	for (uint64_t v = 1; v <= newest; v++) {
		struct history_call *filler = NULL;

		for (size_t i = 0; !versions[v].put && i < n_pending; i++) {
			struct history_call *call = pending[i];
			bool exact = call->kind == HISTORY_PUT_IF;

			if (call->version || call->start > versions[v].first_end ||
			    (exact && call->expected + 1 != v))
				continue;
			if (!filler || exact)
				filler = call;
		}
		if (filler) {
			filler->version = v;
			versions[v].put = filler;
		}
		if (!versions[v].put)
			return "a version is missing that nobody can have put";
	}
	return NULL;
}

/* In order of their starts: what had ended before has no later version. */
static const char *check_times(const struct history_call *calls, size_t n,
			       const struct history_call **ended)
{
	uint64_t most = 0;
	size_t n_ended = 0, e = 0;

	for (size_t i = 0; i < n; i++)
		if (!calls[i].refused && calls[i].end != HISTORY_PENDING)
			ended[n_ended++] = &calls[i];
	qsort(ended, n_ended, sizeof(*ended), by_end);
	for (size_t i = 0; i < n; i++) {
		for (; e < n_ended && ended[e]->end < calls[i].start; e++)
			most = max_u64(most, ended[e]->version);
		if (calls[i].refused || (is_put(&calls[i]) && calls[i].version == 0))
			continue;
		if (is_put(&calls[i]) ? calls[i].version <= most : calls[i].version < most)
			return "a call has an older version than one that had ended before it began";
	}
	return NULL;
}

/* A refused put: its expected version was not the newest during all of it, for sure. */
static const char *check_refused(const struct history_call *calls, size_t n,
				 const struct version *versions, uint64_t newest,
				 struct history_call *const *pending, size_t n_pending)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t e = calls[i].expected;
		bool began, ended;

		if (!calls[i].refused || calls[i].end == HISTORY_PENDING)
			continue;
		began = e == 0 || (e <= newest && versions[e].first_end < calls[i].start);
		ended = e < newest && (versions[e + 1].put->end == HISTORY_PENDING ||
				       versions[e + 1].put->start <= calls[i].end);
		for (size_t k = 0; e >= newest && k < n_pending; k++)
			ended |= !pending[k]->version && pending[k]->start <= calls[i].end;
		if (began && !ended)
			return "a put was refused although the key had the expected version";
	}
	return NULL;
}

bool history_check(struct history_call *calls, size_t n, const char **why_out)
{
	uint64_t newest = 0;
	size_t n_pending = 0;
	struct history_call **pending = mem_array(n + 1, sizeof(*pending));
	const struct history_call **ended = mem_array(n + 1, sizeof(*ended));
	struct version *versions;
	const char *why;

	for (size_t i = 0; i < n; i++)
		newest = max_u64(newest, calls[i].version);
	why = newest > n ? "there are more versions than calls" : NULL;
	newest = min_u64(newest, n);
	versions = mem_zalloc((newest + 2) * sizeof(*versions));
	if (!pending || !ended || !versions)
		why = "no memory";
	if (why)
		goto out;
	qsort(calls, n, sizeof(*calls), by_start);
	why = find_versions(calls, n, versions, pending, &n_pending);
	for (uint64_t v = 0; v <= newest; v++)
		versions[v].first_end = HISTORY_PENDING;
	for (size_t i = 0; i < n; i++)
		if (calls[i].version)
			versions[calls[i].version].first_end =
				min_u64(versions[calls[i].version].first_end, calls[i].end);
	for (uint64_t v = newest; v-- > 0;)
		versions[v].first_end = min_u64(versions[v].first_end, versions[v + 1].first_end);
	if (!why)
		why = fill_holes(versions, newest, pending, n_pending);
	if (!why)
		why = check_times(calls, n, ended);
	if (!why)
		why = check_refused(calls, n, versions, newest, pending, n_pending);
out:
	mem_free(pending);
	mem_free(ended);
	mem_free(versions);
	*why_out = why;
	return !why;
}

/* -------- by trying -------- */

struct state {
	uint64_t version, value;
};

/* Does the call in that state. False: it cannot have had that result. */
static bool apply(const struct history_call *call, struct state *state)
{
	if (call->kind == HISTORY_GET)
		return call->version == state->version && call->value == state->value;
	if (call->refused)
		return state->version != call->expected;
	if (call->kind == HISTORY_PUT_IF && state->version != call->expected)
		return false;
	state->version++;
	state->value = call->value;
	return call->end == HISTORY_PENDING || call->version == state->version;
}

static bool try_rest(const struct history_call *calls, size_t n, uint32_t done, struct state state)
{
	uint64_t first_end = HISTORY_PENDING;
	bool left = false;

	for (size_t i = 0; i < n; i++) {
		if (done >> i & 1)
			continue;
		left |= calls[i].end != HISTORY_PENDING;
		first_end = min_u64(first_end, calls[i].end);
	}
	if (!left)
		return true;
	for (size_t i = 0; i < n; i++) {
		struct state next = state;

		if (!(done >> i & 1) && calls[i].start <= first_end && apply(&calls[i], &next) &&
		    try_rest(calls, n, done | 1u << i, next))
			return true;
	}
	return false;
}

bool history_check_all_orders(const struct history_call *calls, size_t n)
{
	return try_rest(calls, n, 0, (struct state){ 0, 0 });
}
