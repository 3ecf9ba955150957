/* admin.c - administration: memory nodes join and leave, tokens of roles. */
#include "client/store/store.h"

#include "ds/replay/shard.h"
#include "relive/admin.h"

#include <errno.h>

static int node_check(const struct rlv_store *store, const char *name)
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
	int ret = node_check(store, node);

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
	int ret = node_check(store, node);

	return ret ? ret : store->meta->ops->remove_node(store->meta, node, false);
}

int rlv_store_forget_node(struct rlv_store *store, const char *node)
{
	int ret = node_check(store, node);

	return ret ? ret : store->meta->ops->remove_node(store->meta, node, true);
}

int rlv_table_rebalance(struct rlv_store *store, const char *name, uint32_t *added_out,
			uint32_t *draining_out)
{
	int ret = node_check(store, name);

	if (ret == 0)
		ret = table_name_check(name);
	return ret ? ret : store->meta->ops->rebalance(store->meta, name, added_out, draining_out);
}

static int token_check(const struct rlv_store *store)
{
	if (!store)
		return error_set(-EINVAL, "store is NULL");
	if (!store->meta->ops->token)
		return error_set(-ENOTSUP, "an embedded store has no tokens");
	return 0;
}

int rlv_store_token(struct rlv_store *store, const char *role, char token_out[RLV_TOKEN_BYTES])
{
	int ret = token_check(store);

	if (ret == 0 && (!role || !token_out))
		ret = error_set(-EINVAL, "role or token_out is NULL");
	return ret ? ret : store->meta->ops->token(store->meta, role, false, token_out, NULL);
}

int rlv_store_rotate_tokens(struct rlv_store *store, uint32_t *epoch_out)
{
	int ret = token_check(store);

	return ret ? ret : store->meta->ops->token(store->meta, NULL, true, NULL, epoch_out);
}
