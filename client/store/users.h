/*
 * users.h - counts what keeps a store open, for files that see a device's regions and no transport's.
 */
#ifndef RLV_CLIENT_STORE_USERS_H
#define RLV_CLIENT_STORE_USERS_H

#include "relive/relive.h"

/* From now on rlv_store_close is -EBUSY, until store_unuse. Thread: any. */
void store_use(struct rlv_store *store);
void store_unuse(struct rlv_store *store);

#endif
