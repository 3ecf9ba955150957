/*
 * pages.c - content of /metrics and /healthz of a pool's broker.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"

#include "server/net/metrics.h"
#include "server/poold/poold.h"

enum { FAMILIES = 11 };

/* The values of a device, in the order of the families. */
static void device_values(const struct broker *broker, uint64_t values[FAMILIES])
{
	uint64_t extent = broker->opts.extent_bytes;
	const uint64_t now[FAMILIES] = {
		broker->ledger.n * extent,
		broker->ledger.budget * extent,
		broker->ledger.held * extent,
		broker->pending * extent,
		broker->drains,
		broker->stats.handovers,
		broker->stats.deaths,
		broker->stats.adopted,
		broker->stats.iterations,
		broker->stats.overshoots,
		broker->stats.cut,
	};

	memcpy(values, now, sizeof(now));
}

static void put_devices(const struct poold *poold, struct metrics *m)
{
	static const struct {
		const char *name, *help;
		enum metrics_kind kind;
	} families[FAMILIES] = {
		{ "relive_pool_device_bytes", "Memory of the device.", METRICS_GAUGE },
		{ "relive_pool_budget_bytes", "Memory that jobs may hold together.",
		  METRICS_GAUGE },
		{ "relive_pool_held_bytes", "Memory that jobs hold.", METRICS_GAUGE },
		{ "relive_pool_pending_bytes", "Memory given back that the device still uses.",
		  METRICS_GAUGE },
		{ "relive_pool_draining", "1: no new jobs.", METRICS_GAUGE },
		{ "relive_pool_handovers_total", "Extents that went to another job.",
		  METRICS_COUNTER },
		{ "relive_pool_deaths_total", "Jobs whose process ended without goodbye.",
		  METRICS_COUNTER },
		{ "relive_pool_adopted_total", "Jobs that came back.", METRICS_COUNTER },
		{ "relive_pool_iterations_total", "Iterations begun.", METRICS_COUNTER },
		{ "relive_pool_overshoots_total", "Iterations that took more than they said.",
		  METRICS_COUNTER },
		{ "relive_pool_cut_total", "Iterations that the limit ended.", METRICS_COUNTER },
	};

	for (size_t i = 0; i < FAMILIES; i++) {
		metrics_family(m, families[i].name, families[i].kind, families[i].help);
		for (uint32_t k = 0; k < poold->opts.n_devices; k++) {
			uint64_t values[FAMILIES];
			char number[16];

			device_values(poold->devices[k].broker, values);
			(void)snprintf(number, sizeof(number), "%" PRIu32, k);
			metrics_u64(
				m, values[i],
				(struct metrics_label[]){ { "device", number }, { NULL, NULL } });
		}
	}
}

static void put_device_jobs(const struct poold_device *device, size_t family, struct metrics *m)
{
	const struct broker *broker = device->broker;
	char number[16];

	(void)snprintf(number, sizeof(number), "%" PRIu32, poold_device_number(device));
	for (uint32_t at = 0; at < LEDGER_JOBS; at++) {
		const struct broker_job *job = &broker->jobs[at];
		const uint64_t values[] = {
			broker->ledger.jobs[at].held * broker->opts.extent_bytes,
			job->iterations,
			job->wants || job->want || job->returns,
			job->connected,
		};

		if (job->state != BROKER_NOBODY)
			metrics_u64(m, values[family],
				    (struct metrics_label[]){ { "device", number },
							      { "job", job->kept->name },
							      { NULL, NULL } });
	}
}

static void put_jobs(const struct poold *poold, struct metrics *m)
{
	static const char *const families[][2] = {
		{ "relive_pool_job_held_bytes", "Bytes of extents that the job holds." },
		{ "relive_pool_job_iterations", "Iterations that the job has begun." },
		{ "relive_pool_job_waits", "1: the job waits, for admission, its turn or memory." },
		{ "relive_pool_job_connected", "1: the job has a connection." },
	};

	for (size_t i = 0; i < ARRAY_LEN(families); i++) {
		metrics_family(m, families[i][0], METRICS_GAUGE, families[i][1]);
		for (uint32_t k = 0; k < poold->opts.n_devices; k++)
			put_device_jobs(&poold->devices[k], i, m);
	}
}

void poold_write_metrics(void *ctx, struct metrics *m)
{
	const struct poold *poold = ctx;

	poold_recall(poold);
	put_devices(poold, m);
	put_jobs(poold, m);
	metrics_process(m);
}

int poold_check_health(void *ctx)
{
	const struct poold *poold = ctx;
	int ret = 0;

	for (uint32_t i = 0; i < poold->opts.n_devices && ret == 0; i++)
		ret = broker_check(poold->devices[i].broker);
	return ret;
}
