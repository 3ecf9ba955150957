/*
 * why.h - `relive status --why`: pending waits of a store and their causes.
 */
#ifndef RLV_CLI_WHY_H
#define RLV_CLI_WHY_H

#include <stddef.h>

#include "relive/admin.h"

#include "base/json.h"

#define WHY_MAX 256

struct why {
	struct rlv_wait waits[WHY_MAX];
	size_t n; /* total number: may exceed the array */
};

/* Queries the store. Returns a library code. */
int why_ask(struct rlv_store *store, struct why *why) RLV_MUST_CHECK;

/* Print one line per wait. */
void why_print(const struct why *why);
/* Add a member "waits" to the open object. */
void why_json(struct json *json, const struct why *why);

#endif
