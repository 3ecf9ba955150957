/*
 * host_loss.h - what would end with the daemons of a store on this host.
 */
#ifndef RLV_CLI_HOST_HOST_LOSS_H
#define RLV_CLI_HOST_HOST_LOSS_H

#include <stdbool.h>

#include "base/error.h"
#include "cli/host/host_files.h"
#include "cli/host/host_store.h"

/*
 * Counts by asking the metadata servers. *keep: the catalog outlives the daemons; set when a pool
 * elsewhere is on a file. What cannot be counted is in loss_out->unknown. -ENOMEM.
 */
int host_loss_count(const char *store, const struct host_daemons *daemons, bool *keep,
		    struct host_loss *loss_out) RLV_MUST_CHECK;

#endif
