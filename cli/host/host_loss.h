/*
 * host_loss.h - data that would be lost with the daemons of a store on this host.
 */
#ifndef RLV_CLI_HOST_HOST_LOSS_H
#define RLV_CLI_HOST_HOST_LOSS_H

#include <stdbool.h>

#include "base/error.h"
#include "cli/host/host_files.h"
#include "cli/host/host_store.h"

/*
 * Counts by querying the metadata servers. *keep: true if the catalog must outlive the daemons; set
 * if a pool on another host is on a file. Reasons for an incomplete count are in loss_out->unknown.
 * -ENOMEM.
 */
int host_loss_count(const char *store, const struct host_daemons *daemons, bool *keep,
		    struct host_loss *loss_out) RLV_MUST_CHECK;

#endif
