/*
 * table.h - the table of a case: created, filled so that its memory is touched, checked, dropped.
 */
#ifndef RLV_BENCH_REPLAY_TABLE_H
#define RLV_BENCH_REPLAY_TABLE_H

#include <stdio.h>

#include "base/error.h"
#include "base/json.h"
#include "bench/replay/case.h"

/* Opens the store, creates the table and fills it; writes URI and table name to c->shared, for
   the roles. */
int replay_table_open(struct replay_case *c, const char *uri) RLV_MUST_CHECK;

/* Closes and drops the table, and closes the store. Returns the first error. */
int replay_table_close(struct replay_case *c);

/*
 * --check: verifies the table and tests each learner's draws against the priorities. Prints the
 * findings as text to file or as JSON objects; sets c->ok to false if something is wrong. Cost:
 * reads the tree.
 */
int replay_table_check(struct replay_case *c, FILE *file, struct json *json) RLV_MUST_CHECK;

/* Capacity of the table in steps: config->capacity; if that is 0, 2^17 for rows above 1 KiB,
   else 2^20. */
uint64_t replay_table_capacity(const struct replay_config *config, const struct replay_data *data);

/* Memory of the table, with a margin, to size a pool. config->capacity may be 0. */
uint64_t replay_table_bytes(const struct replay_config *config, const struct replay_data *data);

#endif
