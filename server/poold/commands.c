#include "server/poold/commands.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "device/backend.h"

#include "base/bits.h"
#include "base/mem/alloc.h"

/* -------- limit, drain -------- */

/* A budget is that of one device, or of each; a user has one quota on all; a job is on one. */
static int poold_limit(struct poold *poold, const struct lease_limit *limit)
{
	uint32_t n = poold->opts.n_devices, first = 0, last = n;

	if (limit->kind == LEASE_LIMIT_BUDGET && limit->device) {
		if (limit->device > n)
			return error_set(-EINVAL, "limit: device %u of %u", limit->device - 1, n);
		first = limit->device - 1;
		last = limit->device;
	}
	if (limit->kind == LEASE_LIMIT_JOB) {
		while (first + 1 < n &&
		       broker_find(poold->devices[first].broker, limit->name) == LEDGER_JOBS)
			first++;
		last = first + 1;
	}
	for (uint32_t i = first; i < last; i++) {
		int ret = broker_check_limit(poold->devices[i].broker, limit);

		if (ret)
			return ret;
	}
	for (uint32_t i = first; i < last; i++) {
		int ret = broker_limit(poold->devices[i].broker, limit);

		if (ret)
			return ret;
	}
	return 0;
}

int poold_command(struct poold *poold, uint32_t uid, const struct lease_message *in)
{
	if (uid != geteuid() && uid != 0)
		return error_set(-EACCES, "limit, drain: only for user %u, whose pool it is",
				 (unsigned)geteuid());
	if (in->head.type == LEASE_LIMIT)
		return poold_limit(poold, &in->limit);
	for (uint32_t i = 0; i < poold->opts.n_devices; i++)
		broker_drain(poold->devices[i].broker, in->drain.on);
	return 0;
}

/* -------- what a pool has -------- */

static void put_device(const struct poold_device *device, struct lease_pool_answer *out)
{
	const struct broker *broker = device->broker;
	struct backend_info info;

	device->backend->ops->info(device->backend, &info);
	memcpy(out->name, info.device, sizeof(out->name));
	_Static_assert(LEASE_NAME_BYTES == BACKEND_NAME_BYTES, "names");
	out->flags = (broker->opts.strict ? LEASE_POOL_STRICT : 0) |
		     (broker->drains ? LEASE_POOL_DRAINS : 0);
	out->device_bytes = broker->ledger.n * broker->opts.extent_bytes;
	out->budget = broker->ledger.budget * broker->opts.extent_bytes;
	out->held = broker->ledger.held * broker->opts.extent_bytes;
	out->extent_bytes = broker->opts.extent_bytes;
	out->handovers = broker->stats.handovers;
	out->deaths = broker->stats.deaths;
	out->adopted = broker->stats.adopted;
	out->iterations = broker->stats.iterations;
	out->overshoots = broker->stats.overshoots;
	out->cut = broker->stats.cut;
	for (uint32_t i = 0; i < LEDGER_JOBS; i++)
		out->jobs += broker->jobs[i].state != BROKER_NOBODY;
}

static uint32_t job_state(const struct broker_job *job)
{
	if (job->state == BROKER_LEAVING)
		return LEASE_JOB_LEAVES;
	if (job->wants || job->want || job->returns)
		return LEASE_JOB_WAITS;
	if (job->parked)
		return LEASE_JOB_PARKED;
	return job->runs ? LEASE_JOB_RUNS : LEASE_JOB_IDLE;
}

static void put_job(const struct poold *poold, uint32_t device, uint32_t at, struct lease_job *out)
{
	const struct broker *broker = poold->devices[device].broker;
	uint64_t extent = broker->opts.extent_bytes;
	const struct broker_job *job = &broker->jobs[at];
	const struct ledger_job *held = &broker->ledger.jobs[at];
	struct gate_place place = broker_place(broker, at);

	out->device = device;
	out->pid = job->kept->pid;
	out->uid = job->kept->uid;
	out->state = job_state(job);
	out->reason = (uint32_t)place.reason;
	out->position = place.position;
	out->connected = job->connected;
	out->priority = job->kept->priority;
	out->held = held->held * extent;
	out->most = held->peak * extent;
	out->quota = min_u64(held->quota, broker->ledger.n) * extent;
	out->persistent = job->kept->persistent;
	out->peak = job->kept->peak;
	out->iterations = job->iterations;
	out->waited_ns = job->waited_ns;
	if (job->asked_ns)
		out->waited_ns += clock_now_ns(broker->opts.clock) - job->asked_ns;
	out->served_ns = job->served_ns;
	memcpy(out->name, job->kept->name, sizeof(out->name));
}

void job_list_free(struct job_list *list)
{
	mem_free(list->jobs);
	*list = (struct job_list){ .n = 0 };
}

static int job_list_make(const struct poold *poold, struct job_list *list)
{
	_Static_assert(POOLD_DEVICES * LEDGER_JOBS <= LEASE_JOBS_MOST, "jobs of a pool");
	job_list_free(list);
	list->jobs = mem_array((size_t)poold->opts.n_devices * LEDGER_JOBS, sizeof(*list->jobs));
	if (!list->jobs)
		return error_set(-ENOMEM, "jobs: no memory for their list");
	for (uint32_t device = 0; device < poold->opts.n_devices; device++) {
		const struct broker *broker = poold->devices[device].broker;

		for (uint32_t at = 0; at < LEDGER_JOBS; at++) {
			if (broker->jobs[at].state != BROKER_NOBODY)
				put_job(poold, device, at, &list->jobs[list->n++]);
		}
	}
	return 0;
}

int poold_list_ask(const struct poold *poold, struct job_list *list, uint32_t first,
		   struct lease_jobs_answer *out)
{
	int ret = first ? 0 : job_list_make(poold, list);

	if (ret == 0 && first > list->n)
		ret = error_set(-EPROTO, "jobs from %u on: %u are listed", first, list->n);
	if (ret)
		return ret;
	out->total = list->n;
	out->first = first;
	out->n = (uint32_t)min_u64(list->n - first, LEASE_JOBS);
	if (out->n)
		memcpy(out->jobs, list->jobs + first, out->n * sizeof(*out->jobs));
	if (first + out->n == list->n)
		job_list_free(list);
	return 0;
}

void poold_ask(const struct poold *poold, uint32_t device, struct lease_pool_answer *out)
{
	if (device < poold->opts.n_devices)
		put_device(&poold->devices[device], out);
	out->devices = poold->opts.n_devices;
}
