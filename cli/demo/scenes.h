/*
 * scenes.h - recorded experience that goes in and out as fast as it can.
 */
#ifndef RLV_CLI_DEMO_SCENES_H
#define RLV_CLI_DEMO_SCENES_H

#include "relive/relive.h"

#include "base/error.h"
#include "cli/host/host_store.h"
#include "program/progress.h"

#define SCENES_NS INT64_C(11000000000) /* that all scenes take as they are written */

/* Prints a heading. */
void scene_say(struct progress *progress, const char *text);

/*
 * Verifies the table until it is without a problem, since the server has then settled dead actors.
 * -EBADMSG: problems are found after 15 s or an interrupt. Errors are printed.
 */
int scene_verify(struct progress *progress, struct rlv_store *store, struct rlv_table *table)
	RLV_MUST_CHECK;

/* Plays all scenes on a store within about ns. Errors are printed. */
int scenes_play(const struct host_store *store, struct progress *progress, int64_t ns)
	RLV_MUST_CHECK;

#endif
