/*
 * backing.c - the lower half of a target: holds on its regions.
 */
#include "transport/attach/backing.h"

#include "transport/fork.h"
#include "transport/attach/target.h"

int backing_hold(struct transport_target *tg, uint64_t client_id, const struct region_grant *grant,
		 struct backing_region *region_out)
{
	struct target *target = target_of(tg);
	struct target_map map = { 0 };
	int ret;

	if (fork_happened(target->forks))
		return fork_error("target");
	ret = target_attach(target, client_id, grant, &map);
	if (ret)
		return ret;
	*region_out = (struct backing_region){
		.info = map.region->info,
		.rights = map.rights,
		.held = map.region,
	};
	region_out->info.base += map.off;
	region_out->info.size = map.size;
	return 0;
}

void backing_release(struct transport_target *tg, struct backing_region *region)
{
	struct mempool_region *held = region->held;

	*region = (struct backing_region){ 0 };
	if (held)
		target_detach(target_of(tg), held);
}

bool backing_knows(struct transport_target *tg, uint64_t client_id)
{
	struct target *target = target_of(tg);
	bool known;

	if (fork_happened(target->forks))
		return false;
	lock_acquire(&target->lock, &target_role);
	known = clients_find(&target->clients, client_id) != NULL;
	lock_release(&target->lock, &target_role);
	return known;
}

bool backing_is_persistent(struct transport_target *tg)
{
	return target_of(tg)->pool->persistent;
}
