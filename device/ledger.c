#include "device/ledger.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem/alloc.h"

int ledger_init(struct ledger *ledger, uint32_t n, uint64_t budget)
{
	memset(ledger, 0, sizeof(*ledger));
	if (n == 0)
		return error_set(-EINVAL, "ledger: 0 extents");
	ledger->extents = mem_array(n, sizeof(*ledger->extents));
	if (!ledger->extents)
		return error_set(-ENOMEM, "ledger: cannot allocate %" PRIu32 " extents", n);
	for (uint32_t i = 0; i < n; i++)
		ledger->extents[i].job = LEDGER_NOBODY;
	ledger->n = n;
	ledger->budget = budget;
	return 0;
}

void ledger_destroy(struct ledger *ledger)
{
	mem_free(ledger->extents);
	memset(ledger, 0, sizeof(*ledger));
}

static struct ledger_job *ledger_job(struct ledger *ledger, uint32_t job)
{
	return job < LEDGER_JOBS && ledger->jobs[job].attached ? &ledger->jobs[job] : NULL;
}

static int no_such_job(uint32_t job)
{
	return error_set(-EINVAL, "job %" PRIu32 " is not attached", job);
}

int ledger_attach_at(struct ledger *ledger, const char *name, uint32_t uid, uint64_t quota,
		     uint32_t job)
{
	if (!*name || strlen(name) >= LEDGER_NAME_BYTES)
		return error_set(-EINVAL, "a job's name has 1 to %d bytes", LEDGER_NAME_BYTES - 1);
	for (uint32_t i = 0; i < LEDGER_JOBS; i++) {
		if (ledger->jobs[i].attached && strcmp(ledger->jobs[i].name, name) == 0)
			return error_set(-EEXIST, "job %s is attached already", name);
	}
	if (job >= LEDGER_JOBS)
		return error_set(-ENOSPC, "all %u jobs are attached: detach one", LEDGER_JOBS);
	if (ledger->jobs[job].attached)
		return error_set(-EBUSY, "job %" PRIu32 " is %s", job, ledger->jobs[job].name);
	ledger->jobs[job] = (struct ledger_job){ .attached = true, .uid = uid, .quota = quota };
	(void)snprintf(ledger->jobs[job].name, LEDGER_NAME_BYTES, "%s", name);
	return 0;
}

int ledger_attach(struct ledger *ledger, const char *name, uint32_t uid, uint64_t quota,
		  uint32_t *job_out)
{
	uint32_t job = 0;
	int ret;

	while (job < LEDGER_JOBS && ledger->jobs[job].attached)
		job++;
	ret = ledger_attach_at(ledger, name, uid, quota, job);
	if (ret == 0)
		*job_out = job;
	return ret;
}

int ledger_detach(struct ledger *ledger, uint32_t job)
{
	struct ledger_job *found = ledger_job(ledger, job);

	if (!found)
		return no_such_job(job);
	if (found->held)
		return error_set(-EBUSY, "job %s holds %" PRIu64 " extents", found->name,
				 found->held);
	found->attached = false;
	return 0;
}

/* The first of n consecutive FREE extents; ledger->n if there are none. */
static uint32_t ledger_find_run(const struct ledger *ledger, uint32_t n)
{
	uint32_t run = 0;

	for (uint32_t i = ledger->first_free; i < ledger->n; i++) {
		run = ledger->extents[i].state == EXTENT_FREE ? run + 1 : 0;
		if (run == n)
			return i + 1 - n;
	}
	return ledger->n;
}

static void ledger_skip_taken(struct ledger *ledger)
{
	while (ledger->first_free < ledger->n &&
	       ledger->extents[ledger->first_free].state != EXTENT_FREE)
		ledger->first_free++;
}

static void ledger_count(struct ledger *ledger, struct ledger_job *job, uint32_t n)
{
	ledger->held += n;
	job->held += n;
	job->peak = max_u64(job->peak, job->held);
}

static void ledger_take(struct ledger *ledger, uint32_t job, uint32_t n, struct extent_ref *refs)
{
	uint32_t at = ledger_find_run(ledger, n), taken = 0;

	if (at == ledger->n)
		at = ledger->first_free;
	for (; taken < n; at++) {
		struct extent *extent = &ledger->extents[at];

		if (extent->state != EXTENT_FREE)
			continue;
		extent->state = EXTENT_LEASED;
		extent->job = job;
		refs[taken++] = (struct extent_ref){ at, ++extent->generation };
	}
	ledger_skip_taken(ledger);
}

int ledger_lease(struct ledger *ledger, uint32_t job, uint32_t n, struct extent_ref *refs)
{
	struct ledger_job *found = ledger_job(ledger, job);

	if (!found)
		return no_such_job(job);
	if (n == 0)
		return error_set(-EINVAL, "job %s: a lease of 0 extents", found->name);
	if (n > found->quota || n > ledger->budget || n > ledger->n)
		return error_set(-ENOSPC,
				 "job %s wants %" PRIu32 " extents: its quota is %" PRIu64
				 ", the budget %" PRIu64,
				 found->name, n, found->quota, ledger->budget);
	if (n > ledger_room(ledger, job))
		return error_set(-EAGAIN,
				 "job %s wants %" PRIu32 " extents, and has room for %" PRIu64,
				 found->name, n, ledger_room(ledger, job));
	ledger_take(ledger, job, n, refs);
	ledger_count(ledger, found, n);
	return 0;
}

/* The extent of a reference if it is in one of the states, a mask by number; else NULL. */
static int ledger_find(struct ledger *ledger, struct extent_ref ref, unsigned states,
		       struct extent **extent_out)
{
	struct extent *extent;

	if (ref.extent >= ledger->n)
		return error_set(-EINVAL, "extent %" PRIu32 " of %" PRIu32, ref.extent, ledger->n);
	extent = &ledger->extents[ref.extent];
	if (extent->generation != ref.generation || extent->state == EXTENT_FREE)
		return error_set(-ESTALE,
				 "extent %" PRIu32 ": the lease of generation %" PRIu64
				 " is over, now %" PRIu64,
				 ref.extent, ref.generation, extent->generation);
	if (!(states >> extent->state & 1))
		return error_set(-EINVAL, "extent %" PRIu32 " of job %s is %s", ref.extent,
				 ledger->jobs[extent->job].name, extent_state_name(extent->state));
	*extent_out = extent;
	return 0;
}

#define STATE(name) (1u << EXTENT_##name)

int ledger_map(struct ledger *ledger, struct extent_ref ref)
{
	struct extent *extent;
	int ret = ledger_find(ledger, ref, STATE(LEASED), &extent);

	if (ret == 0)
		extent->state = EXTENT_MAPPED;
	return ret;
}

int ledger_use(struct ledger *ledger, struct extent_ref ref)
{
	struct extent *extent;
	int ret = ledger_find(ledger, ref, STATE(MAPPED) | STATE(PENDING) | STATE(QUIET), &extent);

	if (ret == 0)
		extent->state = EXTENT_ACTIVE;
	return ret;
}

int ledger_pend(struct ledger *ledger, struct extent_ref ref, const struct marks *marks)
{
	struct extent *extent;
	int ret = ledger_find(ledger, ref, STATE(ACTIVE) | STATE(QUIET), &extent);

	if (ret)
		return ret;
	extent->state = EXTENT_PENDING;
	extent->marks = *marks;
	return 0;
}

int ledger_settle(struct ledger *ledger, struct extent_ref ref)
{
	const struct mark_clock *clock;
	struct extent *extent;
	int ret = ledger_find(ledger, ref, STATE(PENDING), &extent);

	if (ret)
		return ret;
	clock = ledger->jobs[extent->job].clock;
	if (!marks_reached(&extent->marks, clock ? clock : &ledger->clock))
		return -EAGAIN;
	extent->state = EXTENT_QUIET;
	memset(&extent->marks, 0, sizeof(extent->marks));
	return 0;
}

static void ledger_free(struct ledger *ledger, uint32_t at)
{
	struct extent *extent = &ledger->extents[at];

	ledger->jobs[extent->job].held--;
	ledger->held--;
	*extent = (struct extent){ EXTENT_FREE, LEDGER_NOBODY, extent->generation, { 0 } };
	ledger->first_free = (uint32_t)min_u64(ledger->first_free, at);
}

int ledger_give_back(struct ledger *ledger, struct extent_ref ref)
{
	struct extent *extent;
	int ret = ledger_find(ledger, ref, STATE(LEASED) | STATE(MAPPED) | STATE(QUIET), &extent);

	if (ret)
		return ret;
	ledger_free(ledger, ref.extent);
	return 0;
}

int ledger_adopt(struct ledger *ledger, uint32_t job, struct extent_ref ref)
{
	struct ledger_job *found = ledger_job(ledger, job);
	struct extent *extent;

	if (!found)
		return no_such_job(job);
	if (ref.extent >= ledger->n)
		return error_set(-EINVAL, "extent %" PRIu32 " of %" PRIu32, ref.extent, ledger->n);
	extent = &ledger->extents[ref.extent];
	if (extent->state != EXTENT_FREE)
		return error_set(-EBUSY, "extent %" PRIu32 " is of job %s", ref.extent,
				 ledger->jobs[extent->job].name);
	if (ref.generation < extent->generation)
		return error_set(-ESTALE,
				 "extent %" PRIu32 ": the lease of generation %" PRIu64
				 " is over, now %" PRIu64,
				 ref.extent, ref.generation, extent->generation);
	*extent = (struct extent){ EXTENT_ACTIVE, job, ref.generation, { 0 } };
	ledger_count(ledger, found, 1);
	ledger_skip_taken(ledger);
	return 0;
}

void ledger_reclaim(struct ledger *ledger, uint32_t job)
{
	for (uint32_t i = 0; i < ledger->n; i++) {
		if (ledger->extents[i].state != EXTENT_FREE && ledger->extents[i].job == job)
			ledger_free(ledger, i);
	}
}

void ledger_limit(struct ledger *ledger, uint64_t budget)
{
	ledger->budget = budget;
}

int ledger_quota(struct ledger *ledger, uint32_t job, uint64_t quota)
{
	struct ledger_job *found = ledger_job(ledger, job);

	if (!found)
		return no_such_job(job);
	found->quota = quota;
	return 0;
}

static uint64_t room_below(uint64_t limit, uint64_t held)
{
	return limit > held ? limit - held : 0;
}

uint64_t ledger_room(const struct ledger *ledger, uint32_t job)
{
	const struct ledger_job *found = &ledger->jobs[job];
	uint64_t room = min_u64(room_below(ledger->budget, ledger->held), ledger->n - ledger->held);

	return min_u64(room, room_below(found->quota, found->held));
}

int ledger_check(const struct ledger *ledger)
{
	uint64_t held[LEDGER_JOBS] = { 0 }, all = 0;

	for (uint32_t i = 0; i < ledger->n; i++) {
		const struct extent *extent = &ledger->extents[i];

		if ((extent->state == EXTENT_FREE) != (extent->job == LEDGER_NOBODY))
			return error_set(-EPROTO, "extent %" PRIu32 " is %s and of job %" PRIu32, i,
					 extent_state_name(extent->state), extent->job);
		if (extent->state == EXTENT_FREE && i < ledger->first_free)
			return error_set(-EPROTO, "extent %" PRIu32 " is free and below first_free",
					 i);
		if (extent->state == EXTENT_FREE)
			continue;
		if (extent->job >= LEDGER_JOBS || !ledger->jobs[extent->job].attached)
			return error_set(-EPROTO, "extent %" PRIu32 ": its job %" PRIu32 " is gone",
					 i, extent->job);
		held[extent->job]++;
		all++;
	}
	for (uint32_t i = 0; i < LEDGER_JOBS; i++) {
		if (held[i] != ledger->jobs[i].held)
			return error_set(-EPROTO, "job %" PRIu32 " holds %" PRIu64 ", not %" PRIu64,
					 i, held[i], ledger->jobs[i].held);
	}
	if (all != ledger->held)
		return error_set(-EPROTO, "%" PRIu64 " extents are held, not %" PRIu64, all,
				 ledger->held);
	return 0;
}

const char *extent_state_name(enum extent_state state)
{
	static const char *const names[] = { "free",   "leased",  "mapped",
					     "active", "pending", "quiet" };

	return (unsigned)state < ARRAY_LEN(names) ? names[state] : "?";
}
