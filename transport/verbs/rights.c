/*
 * rights.c - registrations, windows and protection domains of a target.
 */
#include "transport/verbs/rights.h"

#include <errno.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/log.h"

#include "wire/rptr.h"

/* windows: the one registration of the region. */
struct rights_region {
	struct ibv_mr *mr;
	uint32_t openings;
	bool removed; /* from the pool */
};

/* -------- regions -------- */

int rights_register(const struct rights *rights, const struct target_region *region,
		    struct ibv_mr **mr_out)
{
	const struct mem mem = { .ptr = region->base, .len = region->size };
	int ret;

	*mr_out = NULL;
	if (!rights->windows)
		return 0;
	/* a window that may be written needs a registration that this host may write */
	ret = verbs_device_register(rights->device, rights->device->pd, &mem,
				    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, mr_out);
	return ret ? error_prefix(ret, "region %u: ", region->id) : 0;
}

void rights_add(struct rights *rights, uint32_t region, struct ibv_mr *mr)
{
	rights->regions[region] = (struct rights_region){ .mr = mr };
	rights->n_mrs += mr != NULL;
}

/*
 * Takes a region's registration out of the table, for the caller to end, if the region was removed
 * and has no opening. NULL: it is still needed, or there is none.
 */
static struct ibv_mr *take_unneeded(struct rights *rights, struct rights_region *mine)
{
	struct ibv_mr *mr = mine->mr;

	if (!mine->removed || mine->openings || !mr)
		return NULL;
	mine->mr = NULL;
	rights->n_mrs--;
	return mr;
}

struct ibv_mr *rights_remove(struct rights *rights, uint32_t region)
{
	rights->regions[region].removed = true;
	return take_unneeded(rights, &rights->regions[region]);
}

/* -------- opening and closing -------- */

int rights_init(struct rights *rights, struct verbs_device *device, struct target *target)
{
	struct target_region *list;
	size_t n = RPTR_MAX_REGION;
	int ret;

	*rights = (struct rights){ .device = device, .target = target };
	rights->windows = device->windows;
	rights->regions = mem_array(RPTR_MAX_REGION + 1, sizeof(*rights->regions));
	if (!rights->regions)
		return error_set(-ENOMEM,
				 "cannot allocate memory for a table of registered regions");
	if (!rights->windows)
		log_info("device %s protection domains instead of memory windows: it has none that "
			 "are bound to a queue pair",
			 device->name);
	list = mem_array(n, sizeof(*list));
	if (!list)
		return error_set(-ENOMEM, "cannot allocate memory for a list of regions");
	ret = target_ops.list_regions(&target->tg, list, &n);
	for (size_t i = 0; ret == 0 && i < n; i++) {
		struct ibv_mr *mr = NULL;

		if (list[i].broken)
			continue;
		ret = rights_register(rights, &list[i], &mr);
		if (ret == 0)
			rights_add(rights, list[i].id, mr);
	}
	mem_free(list);
	return ret;
}

void rights_fini(struct rights *rights)
{
	for (uint32_t id = 0; rights->regions && id <= RPTR_MAX_REGION; id++)
		(void)verbs_device_deregister(rights->device, rights->regions[id].mr);
	mem_free(rights->regions);
	*rights = (struct rights){ 0 };
}

/* -------- openings -------- */

static int access_of(uint32_t rights)
{
	return (rights & RIGHT_READ ? IBV_ACCESS_REMOTE_READ : 0) |
	       (rights & RIGHT_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0) |
	       (rights & RIGHT_ATOMIC ? IBV_ACCESS_REMOTE_ATOMIC : 0);
}

static void opening_end_windows(struct rights *rights, struct opening *opening)
{
	for (uint32_t i = 0; i < opening->n; i++) {
		if (opening->windows[i] && verbs_device_ended(rights->device, "ibv_dealloc_mw",
							      ibv_dealloc_mw(opening->windows[i])))
			rights->n_windows--;
	}
}

int rights_open(struct rights *rights, struct ibv_pd *domain, uint32_t n,
		const struct target_map *map, struct opening **opening_out)
{
	const struct mem mem = { .ptr = map->base, .len = map->size };
	struct opening *opening = mem_zalloc(sizeof(*opening));
	int access = access_of(map->rights), ret = 0;

	if (!opening)
		return error_set(-ENOMEM, "cannot allocate memory for an attachment");
	opening->n = n;
	opening->map = *map;
	for (uint32_t i = 0; rights->windows && ret == 0 && i < n; i++) {
		opening->windows[i] = ibv_alloc_mw(rights->device->pd, IBV_MW_TYPE_2);
		if (opening->windows[i])
			rights->n_windows++;
		else
			ret = verbs_device_error(rights->device, "ibv_alloc_mw");
	}
	/* Remote writes and atomics need local writes, says the specification. */
	if (access & ~IBV_ACCESS_REMOTE_READ)
		access |= IBV_ACCESS_LOCAL_WRITE;
	if (!rights->windows)
		ret = verbs_device_register(rights->device, domain, &mem, access, &opening->mr);
	for (uint32_t i = 0; opening->mr && i < n; i++)
		opening->keys[i] = opening->mr->rkey;
	rights->n_mrs += opening->mr != NULL;
	if (ret) {
		opening_end_windows(rights, opening);
		mem_free(opening);
		return ret;
	}
	rights->regions[map->region->info.id].openings++;
	*opening_out = opening;
	return 0;
}

int rights_bind(struct rights *rights, struct opening *opening, uint32_t i, struct ibv_qp *qp,
		uint64_t wr_id)
{
	struct ibv_mw *window = opening->windows[i];
	const struct target_map *map = &opening->map;
	struct ibv_send_wr wr = { .wr_id = wr_id,
				  .opcode = IBV_WR_BIND_MW,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad = NULL;
	int ret;

	opening->keys[i] = ibv_inc_rkey(window->rkey);
	wr.bind_mw.mw = window;
	wr.bind_mw.rkey = opening->keys[i];
	wr.bind_mw.bind_info.mr = rights->regions[map->region->info.id].mr;
	wr.bind_mw.bind_info.addr = (uintptr_t)map->base;
	wr.bind_mw.bind_info.length = map->size;
	wr.bind_mw.bind_info.mw_access_flags = (unsigned)access_of(map->rights);
	ret = ibv_post_send(qp, &wr, &bad);
	return ret ? error_set(-ret, "device %s: binding a memory window: %s", rights->device->name,
			       strerror(ret))
		   : 0;
}

void rights_close(struct rights *rights, struct opening *opening)
{
	struct rights_region *mine = &rights->regions[opening->map.region->info.id];

	opening_end_windows(rights, opening);
	if (verbs_device_deregister(rights->device, opening->mr) && opening->mr)
		rights->n_mrs--;
	mine->openings--;
	(void)verbs_device_deregister(rights->device, take_unneeded(rights, mine));
	target_detach(rights->target, opening->map.region);
	mem_free(opening);
}

/* -------- protection domains -------- */

int rights_domain(struct rights *rights, struct ibv_pd **domain_out)
{
	struct ibv_pd *domain = rights->device->pd;

	if (!rights->windows)
		domain = rights->device->calls->alloc_pd(rights->device->context);
	if (!domain)
		return verbs_device_error(rights->device, "ibv_alloc_pd");
	*domain_out = domain;
	return 0;
}

void rights_domain_end(struct rights *rights, struct ibv_pd *domain)
{
	if (domain && domain != rights->device->pd)
		(void)verbs_device_ended(rights->device, "ibv_dealloc_pd",
					 rights->device->calls->dealloc_pd(domain));
}
