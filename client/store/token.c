/*
 * token.c - tokens of roles, for those who run a store.
 */
#include "client/store/store.h"

#include "relive/admin.h"

#include <errno.h>

static int check(const struct rlv_store *store)
{
	if (!store)
		return error_set(-EINVAL, "store is NULL");
	if (!store->meta->ops->token)
		return error_set(-ENOTSUP, "an embedded store has no tokens");
	return 0;
}

int rlv_store_token(struct rlv_store *store, const char *role, char token_out[RLV_TOKEN_BYTES])
{
	int ret = check(store);

	if (ret == 0 && (!role || !token_out))
		ret = error_set(-EINVAL, "role or token_out is NULL");
	return ret ? ret : store->meta->ops->token(store->meta, role, false, token_out, NULL);
}

int rlv_store_rotate_tokens(struct rlv_store *store, uint32_t *epoch_out)
{
	int ret = check(store);

	return ret ? ret : store->meta->ops->token(store->meta, NULL, true, NULL, epoch_out);
}
