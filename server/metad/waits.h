/*
 * Waits: pending waits and their causes, for `relive status --why`.
 *
 *   limiter   reported by clients with their lease while a call waits; only the newest is kept
 *   rebuild   recorded by repair.h
 *   drain     shards that leave their node
 *   stopped   processes of this host in state T, and their slots: looked up on request
 *
 * All of it is bounded: a client reports at most WAITS_CLIENT, an answer has at most WAITS_MAX.
 */
#ifndef RLV_SERVER_METAD_WAITS_H
#define RLV_SERVER_METAD_WAITS_H

#include <stddef.h>
#include <stdint.h>

#include "wire/control.pb-c.h"

#include "base/error.h"

#define WAITS_CLIENT 4u
#define WAITS_MAX 256u
#define WAITS_WORDS_BYTES 384u

struct client;
struct metad;
struct waits_said; /* reports of one client: one block of mem_alloc */

/* Replaces a client's report by its newest, of n waits, of which WAITS_CLIENT are kept; *said is
   NULL if n is 0 or memory is out. */
void waits_say(struct waits_said **said, const Relive__Waiting *const *waits, size_t n,
	       uint64_t now_ns);

struct waits_counts {
	uint64_t limiter, rebuild, drain;
};

/* Counts waits of each kind but `stopped`. */
void waits_count(const struct metad *md, struct waits_counts *out);

/* Sets reply->waits to the waits of all kinds, for STORE_INFO; the first WAITS_MAX, the others are
   counted in waits_left_out. Freed by waits_free. -ENOMEM. */
RLV_MUST_CHECK int waits_fill(const struct metad *md, Relive__StoreInfoReply *reply);
void waits_free(Relive__StoreInfoReply *reply);

#endif
