/*
 * table.h - the table of a case: created, filled so that its memory is touched, checked, dropped.
 */
#ifndef RLV_BENCH_REPLAY_TABLE_H
#define RLV_BENCH_REPLAY_TABLE_H

#include <stdio.h>

#include "base/error.h"
#include "base/json.h"
#include "bench/replay/case.h"

/* Open the store, create the table and fill it; passes the names to the roles. */
int replay_table_open(struct replay_case *c, const char *uri) RLV_MUST_CHECK;

/* Drop the table and close the store. Returns the first error. */
int replay_table_close(struct replay_case *c);

/*
 * --check: walks the table and tests each learner's draws against the priorities. Prints the
 * findings as text to file or as JSON objects; c->ok is the result. Cost: reads the tree.
 */
int replay_table_check(struct replay_case *c, FILE *file, struct json *json) RLV_MUST_CHECK;

/* Default capacity in steps. */
uint64_t replay_table_capacity(const struct replay_config *config, const struct replay_data *data);

/* Memory of the table, with a margin, to size a pool. config->capacity may be 0. */
uint64_t replay_table_bytes(const struct replay_config *config, const struct replay_data *data);

#endif
