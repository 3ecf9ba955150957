/* saved_table.h - a small saved table for tests of its format: two columns, two views, three blocks. */
#ifndef RLV_TESTS_SUPPORT_SAVED_TABLE_H
#define RLV_TESTS_SUPPORT_SAVED_TABLE_H

#include "client/save/format.h"

#define SAVED_RUNS 3u
#define SAVED_ROWS 4u /* of a run */

/* Its header: obs f32[2] and action i32; prioritized, and a queue with two samples for each item. */
void saved_table_describe(struct save_table *table);

/* Writes it to path, without finishing it; level: of zstd. Fails the test on any error. */
struct save_output *saved_table_draft(const char *path, int level);

/* Writes it to path. Fails the test on any error. */
void saved_table_write(const char *path, int level);

/* Body of the rows of a run, and of its leaves. */
void saved_table_rows(uint32_t run, uint8_t *body);
void saved_table_leaves(uint32_t run, uint8_t *body);

/* Reads all chunks with their bodies; the first error. Calls see, unless NULL, for each. */
int saved_table_read(struct save_input *in,
		     void (*see)(const struct save_chunk *head, const void *body));

#endif
