/*
 * why.h - `relive status --why`: who waits for what in a store.
 */
#ifndef RLV_CLI_WHY_H
#define RLV_CLI_WHY_H

#include <stddef.h>

#include "relive/admin.h"

#include "base/json.h"

#define WHY_MAX 256

struct why {
	struct rlv_wait waits[WHY_MAX];
	size_t n; /* that there are: may be more */
};

/* Asks the store. Code of the library. */
int why_ask(struct rlv_store *store, struct why *why) RLV_MUST_CHECK;

/* A line for each wait. */
void why_print(const struct why *why);
/* A member "waits" of the object that is open. */
void why_json(struct json *json, const struct why *why);

#endif
