/*
 * broker_give.c - what a job says of extents that it has: it gives them back, tells an RDMA device of them, or
 * presents them to a broker that was started anew.
 */
#include "server/poold/broker_parts.h"

#include <errno.h>
#include <inttypes.h>

#include "base/log.h"

#include "device/backend.h"

int broker_marks(struct broker_job *job, const uint64_t marks[LEASE_STREAMS])
{
	struct mark_clock *clock = &job->clock;

	for (uint32_t i = 0; i < LEASE_STREAMS; i++) {
		if (marks[i] < clock->streams[i].queued ||
		    (marks[i] > clock->streams[i].queued && marks[i] <= clock->last))
			return error_set(-EINVAL,
					 "job %s: mark %" PRIu64 " of stream %" PRIu32
					 " after mark %" PRIu64,
					 job->kept->name, marks[i], i, clock->streams[i].queued);
	}
	for (;;) { /* in the order of the numbers */
		uint32_t next = LEASE_STREAMS;

		for (uint32_t i = 0; i < LEASE_STREAMS; i++) {
			if (marks[i] > clock->streams[i].queued &&
			    (next == LEASE_STREAMS || marks[i] < marks[next]))
				next = i;
		}
		if (next == LEASE_STREAMS)
			return 0;
		marks_queued(clock, next, marks[next]);
	}
}

static struct marks broker_all_marks(const struct broker_job *job)
{
	struct marks marks = { 0 };

	for (uint32_t i = 0; i < LEASE_STREAMS; i++) {
		if (job->clock.streams[i].queued)
			marks_add(&marks, &job->clock, i);
	}
	return marks;
}

static int broker_pend(struct broker *broker, uint32_t at, struct extent_ref ref)
{
	struct marks marks = broker_all_marks(&broker->jobs[at]);
	int ret = ledger_pend(&broker->ledger, ref, &marks);

	broker->pending += ret == 0;
	return ret;
}

void broker_pend_all(struct broker *broker, uint32_t at, bool presented)
{
	for (uint32_t i = 0; i < broker->ledger.n; i++) {
		const struct extent *extent = &broker->ledger.extents[i];

		if (extent->state == EXTENT_ACTIVE && extent->job == at &&
		    !(presented && broker->extents[i].presented) &&
		    broker_pend(broker, at, (struct extent_ref){ i, extent->generation }))
			log_error("pend: %s", error_last());
	}
}

/* The reference is one of the job's own, in use. */
static int broker_own(const struct broker *broker, uint32_t at, const struct lease_ref *ref)
{
	const char *name = broker->jobs[at].kept->name;
	const struct extent *extent;

	if (ref->extent >= broker->ledger.n)
		return error_set(-EINVAL, "job %s: extent %" PRIu32 " of %" PRIu32, name,
				 ref->extent, broker->ledger.n);
	extent = &broker->ledger.extents[ref->extent];
	if (extent->job != at)
		return error_set(-EINVAL, "job %s: extent %" PRIu32 " is not its own", name,
				 ref->extent);
	if (extent->generation != ref->generation)
		return error_set(-ESTALE,
				 "job %s: extent %" PRIu32 " of generation %" PRIu64
				 ", now %" PRIu64,
				 name, ref->extent, ref->generation, extent->generation);
	if (extent->state != EXTENT_ACTIVE)
		return error_set(-EINVAL, "job %s: extent %" PRIu32 " was given back already", name,
				 ref->extent);
	return 0;
}

/* -EINVAL: the same extent twice. */
static int broker_own_all(const struct broker *broker, uint32_t at, const struct lease_refs *refs)
{
	for (uint32_t i = 0; i < refs->n; i++) {
		int ret = broker_own(broker, at, &refs->refs[i]);

		if (ret)
			return ret;
		for (uint32_t j = 0; j < i; j++) {
			if (refs->refs[j].extent == refs->refs[i].extent)
				return error_set(-EINVAL, "job %s: extent %" PRIu32 " twice",
						 broker->jobs[at].kept->name, refs->refs[i].extent);
		}
	}
	return 0;
}

int broker_give(struct broker *broker, uint32_t at, const struct lease_refs *refs)
{
	int ret = broker_own_all(broker, at, refs);

	if (ret == 0)
		ret = broker_marks(&broker->jobs[at], refs->marks);
	for (uint32_t i = 0; i < refs->n && ret == 0; i++)
		ret = broker_pend(
			broker, at,
			(struct extent_ref){ refs->refs[i].extent, refs->refs[i].generation });
	return ret;
}

int broker_expose(struct broker *broker, uint32_t at, const struct lease_refs *refs)
{
	int ret = broker_own_all(broker, at, refs);

	for (uint32_t i = 0; i < refs->n && ret == 0; i++)
		broker->extents[refs->refs[i].extent].exposed = true;
	return ret;
}

/* The memory of a descriptor is the extent's from now on. */
static int broker_import(struct broker *broker, struct broker_extent *extent, int fd)
{
	struct backend *backend = broker->opts.backend;
	uint64_t handle;
	int ret = backend->ops->extent_import(backend, fd, broker->opts.extent_bytes, &handle);

	if (ret)
		return ret;
	if (extent->handle && backend->ops->extent_release(backend, extent->handle))
		log_error("import: %s", error_last());
	extent->handle = handle;
	return 0;
}

static int broker_hold_one(struct broker *broker, uint32_t at, const struct lease_ref *ref, int fd)
{
	struct extent_ref kept = { ref->extent, ref->generation };
	struct broker_extent *extent;
	bool unknown; /* where the roster was lost */
	int ret = 0;

	if (ref->extent >= broker->ledger.n)
		return error_set(-EINVAL, "job %s: extent %" PRIu32 " of %" PRIu32,
				 broker->jobs[at].kept->name, ref->extent, broker->ledger.n);
	extent = &broker->extents[ref->extent];
	unknown = broker->ledger.extents[ref->extent].state == EXTENT_FREE;
	if (!unknown)
		ret = broker_own(broker, at, ref);
	else if (ref->generation < broker->ledger.extents[ref->extent].generation)
		ret = error_set(-ESTALE, "job %s: extent %" PRIu32 " was given to another since",
				broker->jobs[at].kept->name, ref->extent);
	if (ret == 0 && (unknown || !extent->handle))
		ret = broker_import(broker, extent, fd);
	if (ret == 0 && unknown)
		ret = ledger_adopt(&broker->ledger, at, kept);
	if (ret)
		return ret;
	extent->presented = true;
	extent->exposed |= ref->flags & LEASE_EXPOSED;
	extent->last_incarnation = broker->jobs[at].kept->incarnation;
	broker_kept(broker, ref->extent)->generation = ref->generation;
	broker_kept(broker, ref->extent)->owner = at + 1;
	return 0;
}

int broker_hold(struct broker *broker, uint32_t at, const struct lease_message *message)
{
	int ret = 0;

	for (uint32_t i = 0; i < message->refs.n && ret == 0; i++)
		ret = broker_hold_one(broker, at, &message->refs.refs[i], message->fds[i]);
	if (ret || !(message->refs.flags & LEASE_LAST))
		return ret;
	ret = broker_marks(&broker->jobs[at], message->refs.marks);
	if (ret == 0)
		broker_pend_all(broker, at, true);
	return ret ? ret : ledger_check(&broker->ledger);
}
