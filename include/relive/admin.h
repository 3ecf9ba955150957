/*
 * Relive: what only those need who run a store.
 */
#ifndef RELIVE_ADMIN_H
#define RELIVE_ADMIN_H

#include <relive/relive.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Forgets a node that is down and holds nothing that could come back: its name is free for another one,
 * and it counts no more among the RLV_NODES_MAX of a store. Errors: -ENOENT, -EBUSY (it is up, or it
 * holds shards that come back with it: start it and drain it), -ENOTSUP. Thread: any. Cost: control
 * plane.
 */
RLV_CHECKED int rlv_store_forget_node(struct rlv_store *store, const char *node);

#ifdef __cplusplus
}
#endif

#endif
