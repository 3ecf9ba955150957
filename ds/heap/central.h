/*
 * Central: a coordinator finds keys and carries their data for all clients, as pDPM-Central does (Tsai and
 * others, ATC 2020). For comparison. The metadata server is the coordinator; in an embedded store, the
 * process itself.
 *
 *   client -- one request --> coordinator -- one READ or WRITE --> memory node
 *
 * The coordinator's map says where each key lies. It is rebuilt from the entries, when the first call
 * comes after the part was opened: so it survives a restart. A put writes the copy that does not hold
 * the newest version, in one write; an entry that is torn by a kill of the coordinator has no valid checksum,
 * and the version before it counts. Calls are linearized by the coordinator, one at a time.
 */
#ifndef RLV_DS_HEAP_CENTRAL_H
#define RLV_DS_HEAP_CENTRAL_H

#include "ds/heap/keys.h"

enum central_op { CENTRAL_GET = 1, CENTRAL_VERSION, CENTRAL_PUT, CENTRAL_NEXT };

struct central_call {
	uint32_t op;     /* enum central_op; unchecked, as all up to put */
	uint32_t bucket; /* NEXT: in, and where to go on */
	struct chain_key key;
	struct heap_put put;
	/* The answer; pointers are valid until the next call. */
	struct heap_value value; /* also of -ENOENT; PUT: its version */
	struct heap_key found;   /* NEXT */
	uint64_t cpu_ns;         /* of the coordinator's process; 0 = of this one, too */
};

/* The coordinator's side. Thread: one at a time for a heap. Errors: as heap_get, heap_put, heap_next;
   -EINVAL: no such call. Cost: 1 RT; the first call reads all entries. */
RLV_MUST_CHECK int central_serve(struct heap *heap, struct central_call *call);
void central_free(struct central *central);

/* heap_move of this mode: copies entries that differ. Done when none does. Cost: 2 RT for each. */
RLV_MUST_CHECK int central_move(struct heap *from, struct heap *to, uint64_t bytes, bool *done_out);

/* The clients' side: requests by acc->link, which leaves what the answer points to in acc->stage. Of its
   errors -EHOSTDOWN says that nothing was done. */
extern const struct heap_plane central_plane;

/* Copies what the answer points to into the stage of an access, and points there. */
void central_take(const struct heap_access *acc, struct central_call *call);

#endif
