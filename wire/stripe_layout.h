/*
 * Stripes: a long value of a heap whose stripes lie in several parts (docs/decisions/0029-striped-values.md).
 *
 *   home part     key -> entry with ENTRY_STRIPED: a stripe_manifest, then a stripe_ref for each stripe
 *   any part      hidden key of a stripe -> its bytes, an ordinary value
 *   one part      hidden key of an intent -> a stripe_intent: what its client is about to put and to delete
 *
 * Stripe i lies in the part (home + i) % parts. A hidden key is a struct stripe_key; in a heap with stripes no
 * other key begins with its magic.
 */
#ifndef RLV_WIRE_STRIPE_LAYOUT_H
#define RLV_WIRE_STRIPE_LAYOUT_H

#include "wire/heap_layout.h"

#define STRIPE_KEY_MAGIC UINT64_C(0x00727473764c52ff) /* ff "RLvstr" 00 */
#define STRIPE_MANIFEST_MAGIC 0x31525453u             /* "STR1" */
#define STRIPE_INTENT_MAGIC 0x31544e49u               /* "INT1" */
#define STRIPES_MOST (1u << 20)                       /* of a value */

enum stripe_kind { STRIPE_INTENT = 0, STRIPE_DATA = 1 };

/*
 *   offset size
 *        0    8  magic
 *        8    4  owner id of the client slot whose key it is: it alone puts there
 *       12    4  enum stripe_kind
 *       16    8  number; of an intent 0
 */
struct stripe_key {
	uint64_t magic;
	uint32_t owner;
	uint32_t kind;
	uint64_t number;
};

WIRE_SIZE(stripe_key, 24);
WIRE_AT(stripe_key, owner, 8);
WIRE_AT(stripe_key, kind, 12);
WIRE_AT(stripe_key, number, 16);

/*
 *   offset size
 *        0    4  magic
 *        4    4  owner id in the hidden keys of all stripes
 *        8    8  bytes of the value
 *       16    8  bytes of a stripe; the last one has the rest
 *       24    4  stripes
 *       28  100  reserved, zero: no manifest is small enough for a cell
 */
struct stripe_manifest {
	uint32_t magic;
	uint32_t owner;
	uint64_t bytes;
	uint64_t share;
	uint32_t n;
	uint32_t spare[25];
};

WIRE_SIZE(stripe_manifest, 128);
WIRE_AT(stripe_manifest, owner, 4);
WIRE_AT(stripe_manifest, bytes, 8);
WIRE_AT(stripe_manifest, share, 16);
WIRE_AT(stripe_manifest, n, 24);

/* Number of the hidden key, and the version that is this stripe: it has no other contents, ever. */
struct stripe_ref {
	uint64_t number;
	uint64_t version;
};

WIRE_SIZE(stripe_ref, 16);
WIRE_AT(stripe_ref, version, 8);

/*
 * Behind it: a stripe_ref for each new stripe, without a version; one for each old stripe; the key.
 *   offset size
 *        0    4  magic
 *        4    4  bytes of the key
 *        8    4  the key's part
 *       12    4  new stripes, of the client's own hidden keys
 *       16    4  old stripes: those of the version that the put replaces
 *       20    4  owner id in the hidden keys of the old stripes
 *       24    8  that version of the key; 0 = it had no value
 */
struct stripe_intent {
	uint32_t magic;
	uint32_t key_len;
	uint32_t part;
	uint32_t n_new;
	uint32_t n_old;
	uint32_t old_owner;
	uint64_t replaces;
};

WIRE_SIZE(stripe_intent, 32);
WIRE_AT(stripe_intent, key_len, 4);
WIRE_AT(stripe_intent, part, 8);
WIRE_AT(stripe_intent, n_new, 12);
WIRE_AT(stripe_intent, n_old, 16);
WIRE_AT(stripe_intent, old_owner, 20);
WIRE_AT(stripe_intent, replaces, 24);

#endif
