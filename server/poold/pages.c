/*
 * pages.c - content of /metrics and /healthz of a pool's broker.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/bits.h"

#include "server/net/metrics.h"
#include "server/poold/poold.h"

static void put_one(struct metrics *m, const char *name, const char *help, uint64_t value)
{
	metrics_family(m, name, METRICS_GAUGE, help);
	metrics_u64(m, value, NULL);
}

static void put_count(struct metrics *m, const char *name, const char *help, uint64_t value)
{
	metrics_family(m, name, METRICS_COUNTER, help);
	metrics_u64(m, value, NULL);
}

static void put_jobs(const struct broker *broker, struct metrics *m)
{
	static const char *const families[][2] = {
		{ "relive_pool_job_held_bytes", "Bytes of extents that the job holds." },
		{ "relive_pool_job_iterations", "Iterations that the job has begun." },
		{ "relive_pool_job_waits", "1: the job waits, for admission, its turn or memory." },
		{ "relive_pool_job_connected", "1: the job has a connection." },
	};

	for (size_t i = 0; i < ARRAY_LEN(families); i++) {
		metrics_family(m, families[i][0], METRICS_GAUGE, families[i][1]);
		for (uint32_t at = 0; at < LEDGER_JOBS; at++) {
			const struct broker_job *job = &broker->jobs[at];
			const uint64_t values[ARRAY_LEN(families)] = {
				broker->ledger.jobs[at].held * broker->opts.extent_bytes,
				job->iterations,
				job->wants || job->want,
				job->connected,
			};

			if (job->state != BROKER_NOBODY)
				metrics_u64(m, values[i],
					    (struct metrics_label[]){ { "job", job->kept->name },
								      { NULL, NULL } });
		}
	}
}

void poold_write_metrics(void *ctx, struct metrics *m)
{
	const struct poold *poold = ctx;
	const struct broker *broker = poold->broker;
	uint64_t extent = broker->opts.extent_bytes;

	put_one(m, "relive_pool_device_bytes", "Memory of the device.", broker->ledger.n * extent);
	put_one(m, "relive_pool_budget_bytes", "Memory that jobs may hold together.",
		broker->ledger.budget * extent);
	put_one(m, "relive_pool_held_bytes", "Memory that jobs hold.",
		broker->ledger.held * extent);
	put_one(m, "relive_pool_pending_bytes", "Memory given back that the device still uses.",
		broker->pending * extent);
	put_one(m, "relive_pool_draining", "1: no new jobs.", broker->drains);
	put_count(m, "relive_pool_handovers_total", "Extents that went to another job.",
		  broker->stats.handovers);
	put_count(m, "relive_pool_deaths_total", "Jobs whose process ended without goodbye.",
		  broker->stats.deaths);
	put_count(m, "relive_pool_adopted_total", "Jobs that came back.", broker->stats.adopted);
	put_count(m, "relive_pool_iterations_total", "Iterations begun.", broker->stats.iterations);
	put_count(m, "relive_pool_overshoots_total", "Iterations that took more than they said.",
		  broker->stats.overshoots);
	put_count(m, "relive_pool_cut_total", "Iterations that the limit ended.",
		  broker->stats.cut);
	put_jobs(broker, m);
	metrics_process(m);
}

int poold_check_health(void *ctx)
{
	const struct poold *poold = ctx;

	return broker_check(poold->broker);
}
