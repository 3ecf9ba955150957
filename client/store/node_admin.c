/*
 * node_admin.c - memory nodes that leave and join, for those who run a store.
 */
#include "client/store/store.h"

#include "ds/replay/shard.h"
#include "relive/admin.h"

#include <errno.h>

static int check(const struct rlv_store *store, const char *name)
{
	if (!store || !name)
		return error_set(-EINVAL, "store or name is NULL");
	if (store->read_only)
		return error_set(-EACCES, "store was opened read-only");
	if (!store->meta->ops->drain_node)
		return error_set(-ENOTSUP, "an embedded store has no memory nodes");
	return 0;
}

int rlv_store_drain_node(struct rlv_store *store, const char *node, struct rlv_drain_info *info_out)
{
	struct rlv_drain_info info = { 0 };
	int ret = check(store, node);

	if (ret)
		return ret;
	if (!info_out)
		return error_set(-EINVAL, "info_out is NULL");
	ret = abi_check(info_out, "info_out->");
	if (ret == 0)
		ret = store->meta->ops->drain_node(store->meta, node, &info);
	if (ret == 0)
		abi_write(info_out, &info, sizeof(info));
	return ret;
}

int rlv_store_drop_node(struct rlv_store *store, const char *node)
{
	int ret = check(store, node);

	return ret ? ret : store->meta->ops->drop_node(store->meta, node);
}

int rlv_store_clients(struct rlv_store *store, struct rlv_client_info *clients, size_t size,
		      size_t *n_inout)
{
	struct abi_array array = { .theirs = clients, .size = size };
	size_t n;
	int ret;

	if (!store || !n_inout || (*n_inout && !clients))
		return error_set(-EINVAL, "store, clients or n_inout is NULL");
	if (!store->meta->ops->clients)
		return error_set(-ENOTSUP, "an embedded store has one client: this process");
	n = array.room = *n_inout;
	ret = abi_array_begin(&array, sizeof(*clients), "clients");
	if (ret == 0)
		ret = store->meta->ops->clients(store->meta, array.ours, &n);
	ret = abi_array_end(&array, ret, n);
	if (ret == 0)
		*n_inout = n;
	return ret;
}

int rlv_store_forget_node(struct rlv_store *store, const char *node)
{
	int ret = check(store, node);

	return ret ? ret : store->meta->ops->forget_node(store->meta, node);
}

int rlv_table_rebalance(struct rlv_store *store, const char *name, uint32_t *added_out,
			uint32_t *draining_out)
{
	uint32_t added = 0, draining = 0;
	int ret = check(store, name);

	if (ret == 0)
		ret = table_name_check(name);
	if (ret == 0)
		ret = store->meta->ops->rebalance(store->meta, name, &added, &draining);
	if (ret)
		return ret;
	if (added_out)
		*added_out = added;
	if (draining_out)
		*draining_out = draining;
	return 0;
}
