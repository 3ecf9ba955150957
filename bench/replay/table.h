/*
 * table.h - the table of a case: made, filled so that its memory is touched, checked,
 * dropped.
 */
#ifndef RLV_BENCH_REPLAY_TABLE_H
#define RLV_BENCH_REPLAY_TABLE_H

#include <stdio.h>

#include "base/error.h"
#include "base/json.h"
#include "bench/replay/case.h"

/* Records what failed, and why by the last error of the library. Returns code. */
int replay_failed(int code, const char *what);

/* Opens the store, creates the table and fills it; the names go to the roles. */
int replay_table_open(struct replay_case *c, const char *uri) RLV_MUST_CHECK;

/* Drops the table and closes the store: the first error. */
int replay_table_close(struct replay_case *c);

/*
 * --check: walks the table and tests each learner's draws against the priorities. Prints what it
 * finds, as text to file or as JSON objects; c->ok says whether all is well. Cost: reads the tree.
 */
int replay_table_check(struct replay_case *c, FILE *file, struct json *json) RLV_MUST_CHECK;

/* Steps, where none are given. */
uint64_t replay_table_capacity(const struct replay_config *config, const struct replay_data *data);

/* Memory of the table, with room to spare, to size a pool. config->capacity may be 0. */
uint64_t replay_table_bytes(const struct replay_config *config, const struct replay_data *data);

#endif
