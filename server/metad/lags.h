/*
 * Lags: how far the readers of tables and weights are behind, as clients tell with their leases. The
 * newest version of an object is the newest that any client told of since the server started; lags are those of
 * clients that are connected. All of it is for people: nothing depends on it.
 */
#ifndef RLV_SERVER_METAD_LAGS_H
#define RLV_SERVER_METAD_LAGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "catalog/object.h"

#include "wire/control.pb-c.h"

#define LAGS_CLIENT 16u

struct client;
struct metad;
struct lags_said; /* what one client told last: one block of mem_alloc */

/* Replaces what the client told by its newest report, of which LAGS_CLIENT objects are kept. writes:
   it may raise an object's newest version. */
void lags_say(const struct metad *md, struct client *client,
	      const Relive__LeaseRenewRequest *request, bool writes);

/* Fills lags and list, of OBJECT_MAX_ID elements, and returns how many objects clients told of. The
   strings are the catalog's. */
size_t lags_fill(const struct metad *md, Relive__Lag *lags, Relive__Lag **list);

#endif
