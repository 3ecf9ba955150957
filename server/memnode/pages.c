#include "server/memnode/pages.h"

#include "base/bits.h"

#include "server/daemon/version.h"

static void put_counts(const struct memnode_registrations *registrations,
		       const struct target_stats *now, struct metrics *m)
{
	const struct {
		const char *name;
		enum metrics_kind kind;
		const char *help;
		uint64_t value;
	} families[] = {
		{ "relive_memnode_registered", METRICS_GAUGE,
		  "1: the metadata server is connected. Without it clients go on.",
		  registrations->connected },
		{ "relive_memnode_registrations_total", METRICS_COUNTER,
		  "Registrations at the metadata server.", registrations->n },
		{ "relive_memnode_pool_bytes", METRICS_GAUGE, "Size of the pool, in bytes.",
		  now->pool_bytes },
		{ "relive_memnode_used_bytes", METRICS_GAUGE, "Of the pool, in bytes.",
		  now->used_bytes },
		{ "relive_memnode_regions", METRICS_GAUGE,
		  "Regions of the pool: four for each shard.", now->regions },
		{ "relive_memnode_regions_broken", METRICS_GAUGE,
		  "Regions whose file was cut short or cannot be read.", now->broken },
		{ "relive_memnode_clients", METRICS_GAUGE, "Clients that have something attached.",
		  now->clients },
		{ "relive_memnode_attaches_total", METRICS_COUNTER, "Regions attached by clients.",
		  now->attaches },
		{ "relive_memnode_fences_total", METRICS_COUNTER, "Requests to cut a client off.",
		  now->fences },
	};

	for (size_t i = 0; i < ARRAY_LEN(families); i++) {
		metrics_family(m, families[i].name, families[i].kind, families[i].help);
		metrics_u64(m, families[i].value, NULL);
	}
}

void memnode_write_metrics(const struct memnode_service *svc, const char *store,
			   const struct memnode_registrations *registrations, struct metrics *m)
{
	struct target_stats now;
	struct metrics_label labels[] = {
		{ "store", store },
		{ "node", svc->name },
		{ "transport", svc->target->ops->name },
		{ "pages", NULL },
		{ "version", SERVER_VERSION },
		{ NULL, NULL },
	};

	svc->target->ops->stats(svc->target, &now);
	labels[3].value = now.page_kind;
	metrics_family(m, "relive_memnode_info", METRICS_GAUGE,
		       "1; the labels say which memory node it is, and what its pool is made of.");
	metrics_u64(m, 1, labels);
	put_counts(registrations, &now, m);
	if (now.n_gauges)
		metrics_family(
			m, "relive_memnode_transport", METRICS_GAUGE,
			"Objects that the transport holds, as queue pairs (qps) of an RDMA device.");
	for (uint32_t i = 0; i < now.n_gauges; i++) {
		const struct metrics_label gauge[] = { { "gauge", now.gauges[i].name }, { 0 } };

		metrics_u64(m, now.gauges[i].value, gauge);
	}
	metrics_family(m, "relive_memnode_agent_cpu_seconds_total", METRICS_COUNTER,
		       "CPU time of the thread that serves clients, in seconds: no data operation "
		       "adds to it.");
	metrics_seconds(m, svc->agent_cpu_ns(svc->ctx), NULL);
}
