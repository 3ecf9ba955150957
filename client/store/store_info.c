/* store_info.c - answers about a store, its nodes, clients and waits. */
#include "client/store/store.h"

#include "relive/admin.h"

#include <errno.h>
#include <stdio.h>

int rlv_store_info(struct rlv_store *store, struct rlv_store_info *info_out)
{
	struct rlv_store_info info = { 0 };
	int ret;

	if (!store || !info_out)
		return error_set(-EINVAL, "store or info_out is NULL");
	ret = abi_check(info_out, "info_out->");
	if (ret == 0)
		ret = store->meta->ops->info(store->meta, &info);
	if (ret)
		return ret;
	snprintf(info.uri, sizeof(info.uri), "%s", store->uri.whole);
	abi_write(info_out, &info, sizeof(info));
	return 0;
}

int rlv_store_nodes(struct rlv_store *store, struct rlv_node_info *nodes, size_t size,
		    size_t *n_inout)
{
	struct abi_array array = { .theirs = nodes, .size = size, .n_inout = n_inout };
	int ret;

	if (!store || !n_inout || (*n_inout && !nodes))
		return error_set(-EINVAL, "store, nodes or n_inout is NULL");
	ret = abi_array_begin(&array, sizeof(*nodes), "nodes");
	if (ret == 0)
		ret = store->meta->ops->nodes(store->meta, array.ours, &array.n);
	return abi_array_end(&array, ret);
}

int rlv_store_clients(struct rlv_store *store, struct rlv_client_info *clients, size_t size,
		      size_t *n_inout)
{
	struct abi_array array = { .theirs = clients, .size = size, .n_inout = n_inout };
	int ret;

	if (!store || !n_inout || (*n_inout && !clients))
		return error_set(-EINVAL, "store, clients or n_inout is NULL");
	if (!store->meta->ops->clients)
		return error_set(-ENOTSUP, "an embedded store has one client: this process");
	ret = abi_array_begin(&array, sizeof(*clients), "clients");
	if (ret == 0)
		ret = store->meta->ops->clients(store->meta, array.ours, &array.n);
	return abi_array_end(&array, ret);
}

int rlv_store_heaps(struct rlv_store *store, struct rlv_heap_info *heaps, size_t size,
		    size_t *n_inout)
{
	struct abi_array array = { .theirs = heaps, .size = size, .n_inout = n_inout };
	int ret;

	if (!store || !n_inout || (*n_inout && !heaps))
		return error_set(-EINVAL, "store, heaps or n_inout is NULL");
	if (!store->meta->ops->heaps)
		return error_set(-ENOTSUP, "%s: has one copy of everything", store->uri.whole);
	ret = abi_array_begin(&array, sizeof(*heaps), "heaps");
	if (ret == 0)
		ret = store->meta->ops->heaps(store->meta, array.ours, &array.n);
	return abi_array_end(&array, ret);
}

int rlv_store_lags(struct rlv_store *store, struct rlv_lag *lags, size_t size, size_t *n_inout)
{
	struct abi_array array = { .theirs = lags, .size = size, .n_inout = n_inout };
	int ret;

	if (!store || !n_inout || (*n_inout && !lags))
		return error_set(-EINVAL, "store, lags or n_inout is NULL");
	if (!store->meta->ops->lags)
		return error_set(-ENOTSUP, "%s: no server collects lags; handles' stats have them",
				 store->uri.whole);
	ret = abi_array_begin(&array, sizeof(*lags), "lags");
	if (ret == 0)
		ret = store->meta->ops->lags(store->meta, array.ours, &array.n);
	return abi_array_end(&array, ret);
}

int rlv_store_waits(struct rlv_store *store, struct rlv_wait *waits, size_t size, size_t *n_inout)
{
	struct abi_array array = { .theirs = waits, .size = size, .n_inout = n_inout };
	int ret;

	if (!store || !n_inout || (*n_inout && !waits))
		return error_set(-EINVAL, "store, waits or n_inout is NULL");
	if (!store->meta->ops->waits)
		return error_set(-ENOTSUP, "%s: only this process uses it", store->uri.whole);
	ret = abi_array_begin(&array, sizeof(*waits), "waits");
	if (ret == 0)
		ret = store->meta->ops->waits(store->meta, array.ours, &array.n);
	return abi_array_end(&array, ret);
}
