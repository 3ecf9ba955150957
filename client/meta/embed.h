/*
 * Shared by the two files of the embedded control plane.
 */
#ifndef RLV_CLIENT_META_EMBED_H
#define RLV_CLIENT_META_EMBED_H

#include "client/meta/meta.h"

#include "base/os/lock.h"
#include "base/os/process.h"

struct embed_table {
	struct table_desc desc; /* shard 0's */
	struct shard **shards;  /* over the store's own transport: slots, drop, persist */
	uint32_t *streams;      /* blocks reserved by the slot's handle */
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
	uint64_t first_lap[TABLE_MAX_ID + 1]; /* so that generations of a dropped table never
	                                         repeat */
};

RLV_MUST_CHECK int embed_attach(struct embed *embed, uint32_t id, struct region **region_out);
struct embed_table *embed_table_new(const struct table_desc *desc);
void embed_table_free(struct embed_table *table);
/* Drops the table and frees its regions. */
void embed_table_destroy(struct embed *embed, struct embed_table *table);

/*
 * Reads the tables of a reopened file and recovers each shard. The exclusive lock is held, so the
 * previous process is gone. All regions are checked before any is changed. -EPROTO, -EBADMSG: the
 * file has another format, or is damaged.
 */
RLV_MUST_CHECK int embed_reopen(struct embed *embed);

#endif
