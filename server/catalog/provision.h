/*
 * Making: shards on their way. Nodes are asked for their regions one after the other, while the
 * server goes on: zeroing and pinning memory takes as long as it is large.
 *
 *   begun ---> asked for a region ---> answer ---+--> attached, formatted ---> all are: published by
 *                    ^                           |           |                 who began it
 *                    +--- the next one; or on ---+-----------+                 (catalog_make.c)
 *                         another node, if this  |
 *                         one has no room, is    +--> no node is left: it has failed
 *                         gone, or cannot be
 *                         reached
 *
 * Who wants the shards calls again and again while the answer is -EAGAIN; catalog_ops.on_progress
 * tells when. A making owns its regions: they are not freed when their node registers meanwhile.
 */
#ifndef RLV_SERVER_CATALOG_PROVISION_H
#define RLV_SERVER_CATALOG_PROVISION_H

#include <stdbool.h>
#include <stdint.h>

#include "server/catalog/table.h"

#include "base/error.h"

struct catalog;

struct catalog_provisioning {
	struct catalog_provisioning *next;
	struct catalog *cat;
	struct catalog_table *table; /* that gets them; NULL = given up, a node owes an answer */
	bool is_new;                 /* so is the table: it is not in the catalog yet */
	uint32_t first, n;           /* numbers of the shards */
	struct node *only;           /* the node for them; NULL = where placement says */
	struct node *leaves; /* the node that one of the table's shards leaves then, or NULL */
	uint32_t at;         /* the shard whose regions are asked for */
	uint64_t tried;      /* nodes that cannot take it, by number */
	bool waiting;        /* a node owes an answer */
	int code;            /* why the last of those could not */
	char words[ERROR_TEXT_BYTES];
};

/* Takes it on the list. like: table, is_new, first, n, only, leaves. -ENOMEM. */
RLV_MUST_CHECK int catalog_provision_begin(struct catalog *cat,
					   const struct catalog_provisioning *like,
					   struct catalog_provisioning **provisioning_out);

/* The one that is under way for the table, or for a new table of the name; NULL. */
struct catalog_provisioning *catalog_provision_of(const struct catalog *cat,
						  const struct catalog_table *table);
struct catalog_provisioning *catalog_provision_named(const struct catalog *cat, const char *name);

/*
 * Asks for what is missing. 0: all shards are made, on nodes that are up; -EAGAIN: a node works on
 * it. Else it has failed: -EHOSTDOWN (no node is up), or why the last node could not (-ENOSPC, ..).
 */
RLV_MUST_CHECK int catalog_provision_run(struct catalog_provisioning *provisioning);

/* It is over; the regions, if there are any, are the table's. */
void catalog_provision_end(struct catalog_provisioning *provisioning);
/* The table goes away: what a node still makes for it is freed. */
void catalog_provision_abandon(struct catalog_provisioning *provisioning);
/* All of them, without a word to anybody. */
void catalog_provision_forget_all(struct catalog *cat);

/* Our connection to the node's memory ends: what is made there already is attached again later. */
void catalog_provision_detach(const struct catalog *cat, const struct node *node);

/* Does a table or shard that is being made use this node? */
bool catalog_provision_uses(const struct catalog *cat, const struct node *node);

bool catalog_provision_owns(const struct catalog *cat, const struct node *node, uint32_t region);

#endif
