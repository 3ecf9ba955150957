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
#define LAGS_PATHS 8u /* of landings */

struct client;
struct metad;
struct lags_said; /* what one client told last: one block of mem_alloc */

/* Replaces what the client told by its newest report, of which LAGS_CLIENT objects are kept. writes:
   it may raise an object's newest version. */
void lags_say(const struct metad *md, struct client *client,
	      const Relive__LeaseRenewRequest *request, bool writes);

/* The answer: n objects of which clients told. */
struct lags {
	size_t n;
	Relive__Lag *list[OBJECT_MAX_ID], all[OBJECT_MAX_ID];
	uint32_t landings[OBJECT_MAX_ID][LAGS_PATHS];
};

/* Fills it; it must not move then. The strings are the catalog's. */
void lags_fill(const struct metad *md, struct lags *out);

#endif
