/*
 * Statedb: the durable store of the metadata server (catalog/store.h), in SQLite (WAL, synchronous
 * FULL). It has no item data: the regions are authoritative for items.
 *
 * Each row has a crc32c; opening checks all rows and the structure of the database, and leaves a
 * damaged database unchanged: -EBADMSG. Further errors of all calls: -EACCES, -EBUSY (another process
 * has it open). Thread: owner.
 */
#ifndef RLV_SERVER_STATEDB_STATEDB_H
#define RLV_SERVER_STATEDB_STATEDB_H

#include <stddef.h>
#include <stdint.h>

#include "catalog/store.h"

#include "base/error.h"

/* Application id in the header of an SQLite file, as bytes and as a number. */
#define STORE_APPLICATION "RLVC"
#define STORE_APPLICATION_ID 0x524c5643u

/*
 * Opens or creates the database and begins a new term, the last one plus one. -EPROTO: another
 * schema, or another program's file. path ":memory:" for tests.
 */
RLV_MUST_CHECK int statedb_open(const char *path, struct catalog_store **store_out);
void statedb_close(struct catalog_store **store);

/*
 * Checks, without writing, that a commit could succeed. -ENOENT: the file was moved or removed;
 * -ENOSPC: the disk has less than 256 KiB; -EROFS, -EACCES.
 */
RLV_MUST_CHECK int statedb_check(struct catalog_store *store);

/*
 * Copies the whole database, while it is in use, to new memory, as a database file; freed by
 * statedb_backup_free. -ENOMEM, -EIO, -EBADMSG.
 */
RLV_MUST_CHECK int statedb_backup(struct catalog_store *store, uint8_t **bytes_out,
				  size_t *len_out);
void statedb_backup_free(uint8_t *bytes);

#endif
