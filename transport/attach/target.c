/* target.c - the passive end: regions, grants, fences. Its socket is in serve.c. */
#include "transport/attach/target.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem/alloc.h"
#include "base/bits.h"

#include "transport/fork.h"
#include "transport/pool/map.h"
#include "transport/pool/pool_super.h"
#include "base/os/pidfd.h"
#include "base/os/random.h"
#include "transport/attach/serve.h"
#include "wire/region.h"

LOCK_ROLE(target_role, "shm target", LOCK_RANK_CHANNEL);
static LOCK_ROLE(making_role, "regions of a target", LOCK_RANK_REGION);

static struct target *target_at(struct transport_target *tg)
{
	return (struct target *)tg;
}

/* Takes the lock. False, with a message: in a forked child, where it may stay held for ever. */
static LOCK_UNCHECKED bool target_enter(struct target *target) LOCK_TRY_ACQUIRES(target_role)
{
	if (fork_happened(target->forks)) {
		(void)fork_error("target");
		return false;
	}
	lock_acquire(&target->lock, &target_role);
	return true;
}

/* -------- life -------- */

/*
 * Drops a reference; the last one frees the target. R1 pairs with R1: what each holder did, then
 * the last one destroys. In a forked child a lock that another thread held at the fork stays held,
 * and what it guards is as that thread left it: such a copy is not touched.
 */
static LOCK_UNCHECKED void target_unref(struct target *target)
{
	bool forked = fork_happened(target->forks);

	if (atomic_fetch_sub_explicit(&target->refs, 1, memory_order_acq_rel) != 1)
		return;
	if (forked) {
		if (!lock_try_acquire(&target->lock, &target_role))
			return;
		lock_release(&target->lock, &target_role);
	}
	serve_close(target->serve, forked);
	mempool_close(&target->pool, forked);
	grants_fini(&target->grants);
	clients_fini(&target->clients);
	lock_fini(&target->lock);
	lock_fini(&target->making);
	mem_free(target);
}

static void shm_target_close(struct transport_target *tg)
{
	struct target *target = target_at(tg);

	if (!fork_happened(target->forks)) {
		lock_acquire(&target->lock, &target_role);
		target->closed = true;
		serve_close(target->serve, false);
		target->serve = NULL;
		lock_release(&target->lock, &target_role);
	}
	target_unref(target);
}

/* -------- initiators of this process -------- */

int target_join(struct target *target, uint64_t client_id)
{
	struct client *client;
	int ret = 0;

	if (!target_enter(target))
		return -ECHILD;
	client = clients_find(&target->clients, client_id);
	if (target->closed)
		ret = error_set(-EHOSTDOWN, "the target is closed");
	else if (client && !client->embedded)
		ret = error_set(-EEXIST, "client id %llu: process %d uses it",
				(unsigned long long)client_id, (int)client->pid);
	else if (!client)
		ret = clients_add(&target->clients, client_id, &client);
	if (ret == 0) {
		client->embedded++;
		atomic_fetch_add_explicit(&target->refs, 1, memory_order_relaxed);
	}
	lock_release(&target->lock, &target_role);
	return ret;
}

void target_leave(struct target *target, uint64_t client_id)
{
	struct client *client;

	if (!fork_happened(target->forks)) {
		lock_acquire(&target->lock, &target_role);
		client = clients_find(&target->clients, client_id);
		client->embedded--;
		clients_settle(&target->clients, client);
		lock_release(&target->lock, &target_role);
	}
	target_unref(target);
}

int target_check_grant(struct target *target, uint64_t client_id, const struct region_grant *grant,
		       struct target_map *map_out)
{
	const struct grant_slot *slot = NULL;
	int ret = grants_check(&target->grants, client_id, grant, &slot);

	if (ret)
		return ret;
	map_out->rights = slot->rights;
	map_out->region = mempool_find(target->pool, slot->region);
	if (!map_out->region)
		return -ENOENT;
	map_out->off = slot->off;
	map_out->size = slot->len ? slot->len : map_out->region->info.size;
	map_out->base = map_out->region->info.base + map_out->off;
	return mempool_refuse_broken(map_out->region);
}

bool target_can_renew(const struct target *target, const struct mempool_region *region)
{
	return target->pool->ops->renew && region->info.role == REGION_PAGES;
}

int target_renew(struct target *target, const struct target_map *map, uint64_t off, int fd)
{
	uint32_t id = map->region->info.id;
	int ret = 0;

	if (map->rights != RIGHT_ALL || map->region->info.role != REGION_PAGES || map->off != 0 ||
	    map->size != map->region->info.size)
		ret = error_set(
			-EACCES,
			"region %u: a page is renewed only by a client that attached all of a region of "
			"pages, with all rights",
			id);
	else if (off >= map->size || !is_aligned(off, TRANSPORT_RANGE_ALIGN))
		ret = error_set(-EINVAL, "region %u: no page at offset %llu", id,
				(unsigned long long)off);
	else if (!target_can_renew(target, map->region))
		ret = error_set(-ENOTSUP, "region %u: its pages share one file", id);
	if (ret) {
		map_close(fd);
		return ret;
	}
	grants_remove(&target->grants, GRANTS_ANY,
		      &(struct region_range){ id, off, TRANSPORT_RANGE_ALIGN });
	return target->pool->ops->renew(target->pool, map->region, off, fd);
}

int target_attach(struct target *target, uint64_t client_id, const struct region_grant *grant,
		  struct target_map *map_out)
{
	int ret;

	if (!target_enter(target))
		return -ECHILD;
	ret = target->closed ? error_set(-EHOSTDOWN, "the target is closed")
			     : target_check_grant(target, client_id, grant, map_out);
	if (ret == 0) {
		map_out->region->refs++;
		target->attaches++;
	}
	lock_release(&target->lock, &target_role);
	return ret;
}

void target_detach(struct target *target, struct mempool_region *region)
{
	if (!target_enter(target))
		return;
	mempool_unref(target->pool, region);
	lock_release(&target->lock, &target_role);
}

bool target_knows(struct target *target, uint64_t client_id)
{
	bool known;

	if (!target_enter(target))
		return false;
	known = clients_find(&target->clients, client_id) != NULL;
	lock_release(&target->lock, &target_role);
	return known;
}

/* -------- regions and grants -------- */

static int shm_register(struct transport_target *tg, struct target_region *spec)
{
	struct target *target = target_at(tg);
	struct mempool_region *region = NULL;
	int ret;

	if (fork_happened(target->forks))
		return fork_error("target");
	lock_acquire(&target->making, &making_role);
	lock_acquire(&target->lock, &target_role);
	ret = mempool_begin(target->pool, spec, &region);
	lock_release(&target->lock, &target_role);
	if (ret == 0) {
		ret = target->pool->ops->clear ? target->pool->ops->clear(target->pool, region) : 0;
		lock_acquire(&target->lock, &target_role);
		ret = mempool_end(target->pool, region, ret, spec);
		lock_release(&target->lock, &target_role);
	}
	lock_release(&target->making, &making_role);
	return ret;
}

static int shm_unregister(struct transport_target *tg, uint32_t id)
{
	struct target *target = target_at(tg);
	struct mempool_region *region = NULL;
	int ret;

	if (!target_enter(target))
		return -ECHILD;
	serve_renewals(target->serve);
	ret = mempool_drop(target->pool, id, &region);
	if (ret == 0)
		grants_remove(&target->grants, GRANTS_ANY, &(struct region_range){ .region = id });
	lock_release(&target->lock, &target_role);
	if (ret)
		return ret;
	if (target->pool->ops->discard)
		target->pool->ops->discard(region);
	lock_acquire(&target->lock, &target_role);
	mempool_unref(target->pool, region);
	lock_release(&target->lock, &target_role);
	return 0;
}

static int shm_list(struct transport_target *tg, struct target_region *regions, size_t *n_inout)
{
	struct target *target = target_at(tg);
	size_t room = *n_inout, n = 0;

	if (!target_enter(target))
		return -ECHILD;
	for (uint32_t id = 1; id <= RPTR_MAX_REGION; id++) {
		const struct mempool_region *region = target->pool->regions[id];

		if (!region || region->dropped)
			continue;
		if (n < room) {
			regions[n] = region->info;
			regions[n].broken = mempool_is_broken(region);
		}
		n++;
	}
	lock_release(&target->lock, &target_role);
	*n_inout = n;
	return n > room ? error_set(-ENOSPC, "%zu regions: room for %zu", n, room) : 0;
}

static int shm_grant(struct transport_target *tg, uint64_t client_id,
		     const struct region_range *range, uint32_t rights,
		     struct region_grant *grant_out)
{
	struct grant_slot want = { .client_id = client_id,
				   .region = range->region,
				   .rights = rights,
				   .off = range->off,
				   .len = range->len };
	struct target *target = target_at(tg);
	const struct mempool_region *region;
	uint64_t end;
	int ret;

	if (rights == 0 || (rights & ~(uint32_t)RIGHT_ALL))
		return error_set(-EINVAL, "grant of region %u: rights %u: must be 1 to %u",
				 range->region, rights, RIGHT_ALL);
	if (!target_enter(target))
		return -ECHILD;
	serve_renewals(target->serve);
	region = mempool_find(target->pool, want.region);
	if (!region)
		ret = -ENOENT;
	else if ((want.off || want.len) &&
		 (!want.len || !is_aligned(want.off | want.len, TRANSPORT_RANGE_ALIGN) ||
		  !checked_add_u64(want.off, want.len, &end) || end > region->info.size))
		ret = error_set(-EINVAL, "grant of region %u: %llu bytes at %llu: it has %llu",
				want.region, (unsigned long long)want.len,
				(unsigned long long)want.off,
				(unsigned long long)region->info.size);
	else
		ret = grants_add(&target->grants, &want, grant_out);
	lock_release(&target->lock, &target_role);
	return ret;
}

static int shm_revoke(struct transport_target *tg, uint64_t client_id, uint32_t region)
{
	struct target *target = target_at(tg);

	if (region == 0)
		return error_set(-EINVAL, "revoke: region 0 does not exist");
	if (!target_enter(target))
		return -ECHILD;
	serve_renewals(target->serve);
	grants_remove(&target->grants, client_id, &(struct region_range){ .region = region });
	lock_release(&target->lock, &target_role);
	return 0;
}

/* -------- fence -------- */

/* Removes all grants of a client, its connections and the client itself. */
static void cut_off(struct target *target, uint64_t client_id) LOCK_REQUIRES(target_role)
{
	struct client *client = clients_find(&target->clients, client_id);

	grants_remove(&target->grants, client_id, &(struct region_range){ 0 });
	if (!client)
		return;
	serve_drop_client(target->serve, client);
	clients_remove(&target->clients, client);
	target->fences++;
}

static int shm_fence(struct transport_target *tg, uint64_t client_id, enum fence_how how,
		     enum fence_result *result_out)
{
	struct target *target = target_at(tg);
	const struct client *client;
	uint64_t deadline;
	bool here, dead;
	int pidfd = -1, ret = 0;

	if (!target_enter(target))
		return -ECHILD;
	client = clients_find(&target->clients, client_id);
	here = client && client->embedded;
	dead = !here && (!client || !client->attached || pidfd_is_dead(client->pidfd, 0));
	if (dead)
		cut_off(target, client_id);
	else if (!here && client->pid != getpid())
		pidfd = dup(client->pidfd);
	lock_release(&target->lock, &target_role);
	if (!dead && how == FENCE_KILL) {
		if (pidfd < 0)
			return error_set(-EDEADLK, "fence client %llu: refused, it is this process",
					 (unsigned long long)client_id);
		deadline = deadline_after(target->clock, 5 * CLOCK_NS_PER_S);
		ret = pidfd_kill(pidfd);
		if (ret) {
			ret = error_prefix(ret,
					   "fence client %llu: ", (unsigned long long)client_id);
		} else if (!pidfd_is_dead(pidfd, deadline_left_ms(target->clock, deadline))) {
			ret = error_set(-ETIMEDOUT,
					"fence client %llu: killed, but not dead after 5 s",
					(unsigned long long)client_id);
		} else {
			lock_acquire(&target->lock, &target_role);
			cut_off(target, client_id);
			lock_release(&target->lock, &target_role);
			dead = true;
		}
	}
	map_close(pidfd);
	if (ret == 0)
		*result_out = dead ? FENCE_DEAD : FENCE_ALIVE;
	return ret;
}

/* -------- the rest -------- */

static int shm_persist_region(struct transport_target *tg, uint32_t id, uint64_t off, uint64_t len)
{
	struct target *target = target_at(tg);
	struct mempool_region *region;
	int ret = 0;

	if (!target_enter(target))
		return -ECHILD;
	region = mempool_find(target->pool, id);
	if (!region)
		ret = -ENOENT;
	else if (off > region->info.size || len > region->info.size - off)
		ret = error_set(-EINVAL, "region %u: persist of offset %llu length %llu", id,
				(unsigned long long)off, (unsigned long long)len);
	else
		region->refs++;
	lock_release(&target->lock, &target_role);
	if (ret)
		return ret;
	ret = mempool_persist(target->pool, region, off, len ? len : region->info.size - off);
	target_detach(target, region);
	return ret;
}

static int shm_identity(struct transport_target *tg, struct pool_identity *out)
{
	struct target *target = target_at(tg);

	if (!target_enter(target))
		return -ECHILD;
	pool_super_identity(&target->pool->super, out);
	lock_release(&target->lock, &target_role);
	return 0;
}

static int shm_own(struct transport_target *tg, const uint8_t store_uuid[16],
		   const char *store_name)
{
	struct target *target = target_at(tg);
	int ret = 0;

	if (!target_enter(target))
		return -ECHILD;
	if (target->pool->ops->put_super) {
		pool_super_own(&target->pool->super, store_uuid, store_name);
		ret = target->pool->ops->put_super(target->pool);
	}
	lock_release(&target->lock, &target_role);
	return ret;
}

static bool shm_alone(struct transport_target *tg, uint32_t id)
{
	struct target *target = target_at(tg);
	struct mempool_region *region;
	bool alone;

	if (!target_enter(target))
		return false;
	region = mempool_find(target->pool, id);
	alone = region && region->refs == 1 && mempool_alone(target->pool, region);
	lock_release(&target->lock, &target_role);
	return alone;
}

static int shm_listen(struct transport_target *tg, const char *address)
{
	struct target *target = target_at(tg);
	int ret;

	if (!address)
		return 0;
	if (!target_enter(target))
		return -ECHILD;
	if (!target->pool->shareable)
		ret = error_set(-EINVAL, "listen on %s: the pool is private to this process",
				address);
	else if (target->serve)
		ret = error_set(-EALREADY,
				"listen on %s: the target listens on another address already",
				address);
	else
		ret = serve_open(target, address, &target->serve);
	if (ret == 0)
		snprintf(target->uri, sizeof(target->uri), "shm:%s", address);
	lock_release(&target->lock, &target_role);
	return ret;
}

static const char *shm_uri(struct transport_target *tg)
{
	return target_at(tg)->uri;
}

static int shm_poll_fd(struct transport_target *tg)
{
	struct target *target = target_at(tg);
	int fd;

	if (!target_enter(target))
		return -1;
	fd = serve_poll_fd(target->serve);
	lock_release(&target->lock, &target_role);
	return fd;
}

static int shm_progress(struct transport_target *tg, uint64_t timeout_ns)
{
	struct target *target = target_at(tg);
	struct pollfd ready = { .fd = tg->ops->poll_fd(tg), .events = POLLIN };
	int64_t most = timeout_ns > INT64_MAX ? INT64_MAX : (int64_t)timeout_ns;
	int ret;

	if (fork_happened(target->forks))
		return fork_error("target");
	if (timeout_ns)
		(void)poll(&ready, 1,
			   deadline_left_ms(target->clock, deadline_after(target->clock, most)));
	lock_acquire(&target->lock, &target_role);
	ret = serve_progress(target->serve);
	lock_release(&target->lock, &target_role);
	return ret;
}

static void shm_stats(struct transport_target *tg, struct target_stats *out)
{
	struct target *target = target_at(tg);

	*out = (struct target_stats){ .page_kind = "" };
	if (!target_enter(target))
		return;
	mempool_look(target->pool);
	*out = (struct target_stats){
		.pool_bytes = target->pool->bytes,
		.used_bytes = target->pool->used,
		.regions = target->pool->n_regions,
		.broken = target->pool->n_broken,
		.clients = target->clients.n,
		.attaches = target->attaches,
		.fences = target->fences,
		.sole_opener = target->pool->sole_opener,
		.page_kind = target->pool->page_kind,
	};
	lock_release(&target->lock, &target_role);
}

const struct transport_target_ops target_ops = {
	.name = "shm",
	.listen = shm_listen,
	.uri = shm_uri,
	.register_region = shm_register,
	.unregister_region = shm_unregister,
	.list_regions = shm_list,
	.grant = shm_grant,
	.revoke = shm_revoke,
	.fence = shm_fence,
	.persist = shm_persist_region,
	.identity = shm_identity,
	.own = shm_own,
	.alone = shm_alone,
	.progress = shm_progress,
	.poll_fd = shm_poll_fd,
	.stats = shm_stats,
	.close = shm_target_close,
};

struct target *target_of(struct transport_target *tg)
{
	if (tg->ops == &target_ops)
		return target_at(tg);
	(void)error_set(-EINVAL, "target is of kind %s, not shm", tg->ops->name);
	return NULL;
}

LOCK_UNCHECKED int target_new(size_t bytes, const struct target_opts *opts,
			      struct target **target_out)
{
	struct target *target = mem_zalloc(bytes);
	uint64_t incarnation = opts->incarnation;
	int ret;

	if (!target)
		return error_set(-ENOMEM, "cannot allocate memory for a target");
	ret = fork_watch(&target->forks);
	while (ret == 0 && incarnation == 0)
		ret = random_fill(&incarnation, sizeof(incarnation));
	if (ret == 0)
		ret = mempool_open(opts, &target->pool);
	if (ret) {
		mem_free(target);
		return ret;
	}
	target->tg.ops = &target_ops;
	target->tg.incarnation = target->grants.incarnation = incarnation;
	target->clock = opts->clock;
	snprintf(target->uri, sizeof(target->uri), "embed:");
	lock_init(&target->lock, &target_role);
	lock_init(&target->making, &making_role);
	atomic_store_explicit(&target->refs, 1, memory_order_relaxed);
	*target_out = target;
	return 0;
}

int target_open(const struct target_opts *opts, struct transport_target **tg_out)
{
	struct target *target;
	int ret = target_new(sizeof(*target), opts, &target);

	if (ret == 0)
		*tg_out = &target->tg;
	return ret;
}
