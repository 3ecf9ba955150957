/*
 * Restore: replaces a store's catalog by a copy (statedb_backup) while no server runs. The copy is
 * checked and prepared beside the catalog, then renamed; the replaced catalog is kept as
 * STORE.db.replaced.
 *
 * Regions in pools that the copy does not know stay untouched: their nodes are refused until an
 * operator decides.
 */
#ifndef RLV_SERVER_STATEDB_RESTORE_H
#define RLV_SERVER_STATEDB_RESTORE_H

#include <stdbool.h>

#include "base/error.h"

struct restore_opts {
	const char *store;
	const char *dir;  /* folder of the state database; NULL = the store's directory */
	const char *file; /* the copy */
	bool force;       /* also replace an existing catalog */
};

/*
 * Replaces the store's catalog by opts->file. These errors leave the catalog unchanged: -EBUSY (the
 * store has a server; the message has its pid), -EEXIST (a catalog exists, without opts->force),
 * -ENOENT (no such file), -EBADMSG (the copy is damaged), -EPROTO (not a catalog copy, or another
 * version). After an error of rename or fsync the old catalog may be at STORE.db.replaced.
 */
RLV_MUST_CHECK int restore_catalog(const struct restore_opts *opts);

#endif
