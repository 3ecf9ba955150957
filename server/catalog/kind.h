/*
 * Kind: what the catalog has to know of the objects of one kind, beside their parts (ds/part/part.h).
 * Placement, client slots, liveness, drain, spread, repair and recovery work on parts, and ask here for
 * what lies in them. A kind is one folder in ds/ and one file of this folder, kind_NAME.c, which is
 * named in kinds.c.
 *
 * A hook that may be NULL is not needed by kinds without that matter. "object" is the catalog's record
 * of it, part s is its part of that number.
 */
#ifndef RLV_SERVER_CATALOG_KIND_H
#define RLV_SERVER_CATALOG_KIND_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/part/part.h"

#include "base/error.h"

struct catalog;
struct catalog_table;
struct rebuild_opts;
struct rebuild_report;

#define KIND_TEXT_BYTES 96

struct object_kind {
	const char *name; /* for messages */
	uint32_t id;      /* enum kind_id */

	/* What part s consists of. */
	void (*plan)(const struct catalog_table *object, uint32_t s, struct part_spec *spec_out);
	/* Writes part s into its regions, which are fresh, and makes it live. */
	int (*format)(struct catalog *cat, const struct catalog_table *object, uint32_t s,
		      const struct part_regions *regions);
	/* The regions are the part's, or the caller's after an error. */
	int (*open)(const struct catalog_table *object, uint32_t s,
		    const struct part_regions *regions, struct part **part_out);
	/* Detaches its regions, too. */
	void (*close)(struct part **part);

	/* What a dead owner has in the part: as struct fence_kind says; ctx is NULL. */
	int (*settle_dead)(void *ctx, struct part *part, uint32_t owner);
	/* An owner that lives gives its slot back: what it has left open is closed. */
	int (*leave)(struct part *part, uint32_t owner);
	/* One pass towards exact sums, as sumtree_rebuild_pass. */
	int (*rebuild)(struct part *part, const struct rebuild_opts *opts,
		       struct rebuild_report *report_out);

	/*
	 * Part s, which nobody else has, as its node's last life left it (struct part_life), is made
	 * sound in pieces: as recover_begin, recover_go_on and recover_end. text_out: what was found.
	 */
	int (*recover_begin)(const struct catalog *cat, struct catalog_table *object, uint32_t s,
			     void **recovery_out);
	int (*recover_go_on)(void *recovery, uint64_t until_ns, char text_out[KIND_TEXT_BYTES]);
	void (*recover_end)(void **recovery);

	/* A part leaves: how much it holds, */
	int (*items)(struct part *part, uint64_t *items_out);
	/* how much a part has taken in since the last look, which seen remembers (0 = none yet), */
	uint64_t (*taken_in)(struct part *part, uint64_t *seen);
	/* whether somebody writes to it, */
	int (*is_open)(struct part *part, bool *is_open_out);
	/* and, once nobody does, whether it had a duty that is another part's now: 1 = clients have to
	   learn of that first, then `handed` is called; 0 = it may leave. May be NULL. */
	int (*hand_over)(struct catalog *cat, struct catalog_table *object, uint32_t s);
	int (*handed)(struct catalog_table *object, uint32_t s);

	/* Upkeep; may be NULL. Once a second, at each tick, and when no part waits for a rebuild. */
	void (*look)(struct catalog_table *object);
	void (*tick)(struct catalog *cat, struct catalog_table *object);
	void (*tick_clean)(struct catalog_table *object);
	/* The object is about to be forgotten. May be NULL. */
	void (*drop)(struct catalog *cat, const struct catalog_table *object);
};

extern const struct object_kind kind_table;

/* NULL: no such kind. */
const struct object_kind *object_kind_find(uint32_t id);

#endif
