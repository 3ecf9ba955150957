/*
 * report.h - what a client tells the server with each renewal of its lease: the oldest layout that its
 * handles use, how far they are, and which of its calls wait.
 */
#ifndef RLV_CLIENT_META_REPORT_H
#define RLV_CLIENT_META_REPORT_H

#include "client/meta/meta.h"

#include "wire/control.pb-c.h"

#define REPORT_WAITS 4u
#define REPORT_OBJECTS 16u
#define REPORT_PATHS 8u /* of landings */

/* A request and the messages that it points to; it must not move. */
struct report {
	Relive__LeaseRenewRequest request;
	struct meta_wait said[REPORT_WAITS];
	Relive__Waiting waits[REPORT_WAITS], *wait_list[REPORT_WAITS];
	uint8_t uuids[REPORT_OBJECTS][16];
	uint32_t landings[REPORT_OBJECTS][REPORT_PATHS];
	Relive__Progress progress[REPORT_OBJECTS], *progress_list[REPORT_OBJECTS];
};

/* Fills the report from the watches of the store. Waits: of the last 2 s, REPORT_WAITS at most. Progress: of
   REPORT_OBJECTS objects at most. */
void report_make(struct meta *meta, struct report *out);

#endif
