/*
 * Restore: puts a copy of a catalog (store_backup) in the place of a store's catalog, while no server
 * runs. The copy is checked and made ready beside it, then renamed; the catalog that it replaces stays
 * as STORE.db.replaced.
 *
 * What pools hold that the copy does not know is theirs: their nodes are refused until a person says
 * what becomes of it.
 */
#ifndef RLV_SERVER_STATEDB_RESTORE_H
#define RLV_SERVER_STATEDB_RESTORE_H

#include <stdbool.h>

#include "base/error.h"

struct restore_opts {
	const char *store;
	const char *dir;  /* of the state database; NULL = the store's directory */
	const char *file; /* the copy */
	bool force;       /* also when the store has a catalog */
};

/*
 * Errors, after which the catalog is as it was: -EBUSY (the store has a server; the message says its
 * pid), -EEXIST (it has a catalog), -ENOENT, -EBADMSG (the copy is damaged), -EPROTO (no copy of a
 * catalog, or of another version), those of files.
 */
RLV_MUST_CHECK int restore_catalog(const struct restore_opts *opts);

#endif
