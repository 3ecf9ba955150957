#include "server/poold/broker_parts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "base/bits.h"
#include "base/log.h"

#include "device/backend.h"

void broker_forget_extents(struct broker *broker, uint32_t job)
{
	for (uint32_t i = 0; i < broker->ledger.n; i++) {
		if (broker_kept(broker, i)->owner == job + 1)
			broker_kept(broker, i)->owner = 0;
	}
}

/* -------- who waits -------- */

static const struct broker_user *broker_user(const struct broker *broker, uint32_t uid)
{
	for (uint32_t i = 0; i < BROKER_USERS; i++) {
		if (broker->users[i].quota && broker->users[i].uid == uid)
			return &broker->users[i];
	}
	return NULL;
}

uint64_t broker_user_held(const struct broker *broker, uint32_t uid)
{
	uint64_t held = 0;

	for (uint32_t i = 0; i < LEDGER_JOBS; i++) {
		const struct ledger_job *job = &broker->ledger.jobs[i];

		held += job->attached && job->uid == uid ? job->held : 0;
	}
	return held;
}

/* Extents that a job may have, now and ever, by the quota of its user. */
static uint64_t broker_user_room(const struct broker *broker, uint32_t uid, uint64_t *quota_out)
{
	const struct broker_user *user = broker_user(broker, uid);
	uint64_t held = user ? broker_user_held(broker, uid) : 0;

	*quota_out = user ? user->quota : UINT64_MAX;
	if (user && broker->opts.elsewhere)
		held += broker->opts.elsewhere(broker->opts.ctx, uid);
	return *quota_out > held ? *quota_out - held : 0;
}

uint64_t broker_room(const struct broker *broker, uint32_t job)
{
	uint64_t quota;
	uint64_t room = broker_user_room(broker, broker->ledger.jobs[job].uid, &quota);

	return min_u64(room, ledger_room(&broker->ledger, job)) * broker->opts.extent_bytes;
}

/* The job that waits for extents next after a turn. */
static struct broker_job *broker_next(struct broker *broker, uint64_t turn)
{
	struct broker_job *best = NULL;

	for (uint32_t i = 0; i < LEDGER_JOBS; i++) {
		struct broker_job *job = &broker->jobs[i];

		if (job->state == BROKER_MEMBER && job->want && !job->granted && job->turn > turn &&
		    broker_gate_admitted(broker, i) && (!best || job->turn < best->turn))
			best = job;
	}
	return best;
}

/* Leases what jobs wait for. One that lacks room in its own quota, or would keep a running iteration from its end,
   lets the others pass. */
static void broker_grant(struct broker *broker)
{
	struct broker_job *job = broker_next(broker, 0);

	for (; job; job = broker_next(broker, job->turn)) {
		uint32_t at = (uint32_t)(job - broker->jobs);
		const struct ledger_job *held = &broker->ledger.jobs[at];
		uint64_t quota;

		if (held->held + job->want > held->quota ||
		    broker_user_room(broker, held->uid, &quota) < job->want ||
		    !broker_is_safe(broker, at, job->want))
			continue;
		if (ledger_lease(&broker->ledger, at, job->want, job->refs))
			return;
		job->granted = job->want;
		job->granted_ns = broker_now(broker);
		broker->opts.wake(broker->opts.ctx, at);
	}
}

void broker_withdraw(struct broker *broker, uint32_t at)
{
	struct broker_job *job = &broker->jobs[at];

	for (uint32_t i = 0; i < job->granted; i++) {
		if (ledger_give_back(&broker->ledger, job->refs[i]))
			log_error("withdraw: %s", error_last());
	}
	job->granted = 0;
}

/* Looks at grants that nobody has fetched: the job is last from now on. */
static uint64_t broker_expire(struct broker *broker)
{
	uint64_t now = broker_now(broker), due = DEADLINE_NEVER;

	for (uint32_t i = 0; i < LEDGER_JOBS; i++) {
		struct broker_job *job = &broker->jobs[i];

		if (job->state != BROKER_MEMBER || !job->granted)
			continue;
		if (now - job->granted_ns >= BROKER_FETCH_NS) {
			broker_withdraw(broker, i);
			job->turn = ++broker->turn;
		} else {
			due = deadline_min(due, job->granted_ns + BROKER_FETCH_NS);
		}
	}
	return due;
}

/* -------- taking -------- */

/* Physical memory behind an extent that a job is to have. */
static int broker_create(struct broker *broker, uint32_t at, const struct broker_job *job)
{
	struct broker_extent *extent = &broker->extents[at];
	struct backend *backend = broker->opts.backend;
	bool strange = extent->last_incarnation &&
		       extent->last_incarnation != job->kept->incarnation;
	int ret = 0;

	if (extent->handle && strange && (broker->opts.strict || extent->exposed)) {
		ret = backend->ops->extent_release(backend, extent->handle);
		extent->handle = 0;
	}
	if (ret == 0 && !extent->handle) {
		ret = backend->ops->extent_create(backend, broker->opts.extent_bytes,
						  &extent->handle);
		extent->dirty = broker->scrub.backend != NULL;
		extent->exposed = false;
	}
	if (ret == 0) {
		broker->stats.handovers += strange;
		extent->last_incarnation = job->kept->incarnation;
	}
	return ret;
}

/* Physical memory behind all that was granted, with nobody's bytes in it. */
static int broker_create_all(struct broker *broker, uint32_t at, const struct broker_job *job)
{
	uint64_t handles[LEASE_REFS];
	uint32_t n = 0;
	int ret = scrub_settle(&broker->scrub);

	for (uint32_t i = 0; i < job->granted && ret == 0; i++) {
		struct broker_extent *extent = &broker->extents[job->refs[i].extent];

		ret = broker_create(broker, job->refs[i].extent, job);
		if (ret == 0 && extent->dirty)
			handles[n++] = extent->handle;
	}
	if (ret == 0 && n)
		ret = scrub_extents(&broker->scrub, handles, n, broker->opts.clock,
				    broker_now(broker) + BROKER_SCRUB_NS);
	for (uint32_t i = 0; i < job->granted && ret == 0; i++)
		broker->extents[job->refs[i].extent].dirty = false;
	return ret == -EAGAIN ? error_prefix(ret, "job %s: ", broker->ledger.jobs[at].name) : ret;
}

/* Hands out what was granted. */
static int broker_fetch(struct broker *broker, uint32_t at, struct lease_message *out)
{
	struct broker_job *job = &broker->jobs[at];
	struct backend *backend = broker->opts.backend;
	uint32_t n = job->granted;
	int ret = broker_create_all(broker, at, job);

	for (out->n_fds = 0; out->n_fds < n && ret == 0;) {
		uint32_t extent = job->refs[out->n_fds].extent;

		ret = backend->ops->extent_export(backend, broker->extents[extent].handle,
						  &out->fds[out->n_fds]);
		out->n_fds += ret == 0;
	}
	if (ret) {
		lease_close_fds(out);
		broker_withdraw(broker, at);
		return ret;
	}
	for (uint32_t i = 0; i < n && ret == 0; i++) {
		struct extent_ref ref = job->refs[i];

		out->answer.refs[i] = (struct lease_ref){ ref.extent, 0, ref.generation };
		ret = ledger_map(&broker->ledger, ref);
		if (ret == 0)
			ret = ledger_use(&broker->ledger, ref);
		broker_kept(broker, ref.extent)->generation = ref.generation;
		broker_kept(broker, ref.extent)->owner = at + 1;
	}
	out->answer.n = n;
	job->granted = 0;
	return ret;
}

int broker_take(struct broker *broker, uint32_t at, uint32_t n, struct lease_message *out)
{
	struct broker_job *job = &broker->jobs[at];
	const struct ledger_job *held = &broker->ledger.jobs[at];
	uint64_t quota;
	int ret;

	broker_recall(broker);
	if (job->parked)
		return broker_is_parked(job);
	(void)broker_user_room(broker, held->uid, &quota);
	quota = min_u64(min_u64(quota, held->quota), broker->ledger.budget);
	if (n > quota)
		return error_set(-ENOSPC, "job %s: %" PRIu32 " extents, and at most %" PRIu64,
				 held->name, n, quota);
	if (job->granted && job->granted != n)
		broker_withdraw(broker, at);
	if (!job->want)
		job->turn = ++broker->turn;
	job->want = n;
	broker_waits(broker, job);
	(void)broker_turn(broker);
	if (!job->granted)
		return error_set(-EAGAIN, "job %s waits for %" PRIu32 " extents", held->name, n);
	ret = broker_fetch(broker, at, out);
	job->want = 0;
	broker_waited(broker, job);
	if (ret == 0)
		broker_gate_taken(broker, at);
	return ret;
}

/* -------- what is due -------- */

/* Whether a job's event says that the last mark of a stream is reached, where its device writes none. */
static bool broker_ask(const struct broker *broker, const struct backend_event *event)
{
	struct backend *backend = broker->opts.backend;

	return event->made && backend->ops->event_ask(backend, event->handle) == 0;
}

static void broker_read_progress(const struct broker *broker, struct broker_job *job)
{
	struct mark_clock *clock = &job->clock;

	for (uint32_t i = 0; job->page && i < LEASE_STREAMS; i++) {
		uint64_t queued = clock->streams[i].queued;
		/* B2 pairs with the device's write of the mark, Q1 or Q3 */
		uint64_t reached =
			atomic_load_explicit(&job->page->reached[i], memory_order_acquire);

		if (reached > queued ||
		    (reached < queued && broker_ask(broker, &job->page->events[i])))
			reached = queued;
		if (reached > clock->streams[i].reached && marks_progress(clock, i, reached))
			log_error("progress: %s", error_last());
	}
}

/* Frees extents whose marks are reached. */
static void broker_settle(struct broker *broker)
{
	for (uint32_t i = 0; i < LEDGER_JOBS && broker->pending; i++) {
		if (broker->jobs[i].state != BROKER_NOBODY)
			broker_read_progress(broker, &broker->jobs[i]);
	}
	for (uint32_t i = 0; i < broker->ledger.n && broker->pending; i++) {
		const struct extent *extent = &broker->ledger.extents[i];
		struct extent_ref ref = { i, extent->generation };

		if (extent->state != EXTENT_PENDING || ledger_settle(&broker->ledger, ref))
			continue;
		if (ledger_give_back(&broker->ledger, ref))
			log_error("settle: %s", error_last());
		broker_kept(broker, i)->owner = 0;
		broker->pending--;
	}
	error_clear();
}

void broker_shrink(struct broker *broker)
{
	struct backend *backend = broker->opts.backend;
	uint64_t created = 0, most = max_u64(broker->ledger.budget, broker->ledger.held);

	for (uint32_t i = 0; i < broker->ledger.n; i++)
		created += broker->extents[i].handle != 0;
	for (uint32_t i = broker->ledger.n; i-- && created > most;) {
		struct broker_extent *extent = &broker->extents[i];

		if (!extent->handle || broker->ledger.extents[i].state != EXTENT_FREE)
			continue;
		if (backend->ops->extent_release(backend, extent->handle))
			log_error("shrink: %s", error_last());
		extent->handle = 0;
		created--;
	}
}

uint64_t broker_memory_turn(struct broker *broker)
{
	uint64_t due;

	broker_settle(broker);
	(void)broker_expire(broker);
	broker_grant(broker);
	due = broker_expire(broker);
	return broker->pending ? deadline_min(due, broker_now(broker) + BROKER_POLL_NS) : due;
}
