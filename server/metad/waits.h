/*
 * Waits: who waits for what, for `relive status --why`.
 *
 *   limiter   said by clients with their lease, while a call waits; kept with the client, newest only
 *   rebuild   what repair.h met
 *   drain     shards that leave their node
 *   stopped   processes of this host in state T, and the slots that they hold: looked up when asked
 *
 * All of it is bounded: a client says WAITS_CLIENT, an answer holds WAITS_MAX.
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
struct waits_said; /* of one client */

/* The newest word of a client replaces the one before. Without memory nothing is kept of it. */
void waits_say(struct waits_said **said, const Relive__Waiting *const *waits, size_t n,
	       uint64_t now_ns);
void waits_forget(struct waits_said **said);

struct waits_counts {
	uint64_t limiter, rebuild, drain;
};

/* As many as there are of each kind; stopped processes are not looked for. */
void waits_count(const struct metad *md, struct waits_counts *out);

/* All waits, for STORE_INFO. waits_free takes what it made. -ENOMEM. */
RLV_MUST_CHECK int waits_fill(const struct metad *md, Relive__StoreInfoReply *reply);
void waits_free(Relive__StoreInfoReply *reply);

#endif
