/*
 * What the two files of the embedded control plane share.
 */
#ifndef RLV_CLIENT_META_EMBED_H
#define RLV_CLIENT_META_EMBED_H

#include "client/meta/meta.h"

#include "base/os/lock.h"
#include "base/os/process.h"

struct embed_table {
	struct table_desc desc; /* shard 0's */
	struct shard **shards;  /* over the store's own transport: slots, drop, persist */
	uint32_t *streams;      /* of the handle that has the slot */
	bool marked;            /* by us, durably: rows may be stored (wire/region.h) */
};

struct embed {
	struct meta base;
	struct lock lock; /* tables, first_lap, tr */
	struct transport *tr;
	bool file;
	bool trust;
	uint8_t store_uuid[16];
	struct process_id self;
	struct embed_table *tables[TABLE_MAX_ID + 1];
	uint64_t first_lap[TABLE_MAX_ID + 1]; /* no generation of a dropped table comes again */
};

RLV_MUST_CHECK int embed_attach(struct embed *embed, uint32_t id, struct region **region_out);
struct embed_table *embed_table_new(const struct table_desc *desc);
void embed_table_free(struct embed_table *table);
/* Drops it: gives its regions back, too. */
void embed_table_destroy(struct embed *embed, struct embed_table *table);

/*
 * Reads the tables of a reopened file back and recovers each shard: the exclusive lock is held, so
 * whoever had it open before is gone. First all of it is looked at, and nothing is changed when it
 * cannot be read. -EPROTO, -EBADMSG: the file is not what it says, or damaged.
 */
RLV_MUST_CHECK int embed_reopen(struct embed *embed);

#endif
