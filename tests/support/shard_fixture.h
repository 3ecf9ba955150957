/*
 * shard_fixture.h - one formatted shard over the in-process transport, and more handles to it.
 *
 * Each handle has its own transport and attachment, as a thread or a process would.
 */
#ifndef RLV_TESTS_SUPPORT_SHARD_FIXTURE_H
#define RLV_TESTS_SUPPORT_SHARD_FIXTURE_H

#include "ds/ring.h"
#include "ds/shard.h"

#include "transport/transport.h"

#define SHARD_FIXTURE_CLIENTS 16

/* Wraps a transport into another, which owns it. */
typedef struct transport *(*shard_fixture_wrap)(struct transport *inner);

struct shard_fixture_opts {
	uint64_t capacity;              /* 0 = 1024 */
	uint32_t block;                 /* 0 = 32 */
	uint32_t views;                 /* 0 = 2 */
	uint32_t max_writers;           /* 0 = 2 */
	uint32_t n_step;                /* 0 = 1 */
	uint32_t flags;                 /* enum table_flags */
	uint32_t max_times_sampled;     /* of view 0 */
	const struct limit_desc *limit; /* of view 0 */
	bool remote;                    /* planned for a wire */
	bool shared;                    /* memory that can be mapped twice */
	shard_fixture_wrap wrap;        /* of the first handle, which formats; NULL = in place */
};

struct shard_conn {
	struct transport *tr;
	struct shard_parts parts;   /* all regions, as the server has them; also shard->parts */
	struct region *tree, *rows; /* of those */
	struct shard *shard;
};

struct shard_fixture {
	struct transport_target *target;
	uint32_t ids[REGION_ROLES]; /* of regions, by role */
	uint32_t rows_rights;       /* of shared memory rows are never the target of atomics */
	struct table_desc desc;
	struct shard_conn conn; /* the first one */
	struct shard *shard;    /* conn.shard */
};

/* opts NULL = the defaults. Fails the test on any error. */
void shard_fixture_open(struct shard_fixture *fx, const struct shard_fixture_opts *opts);
void shard_fixture_close(struct shard_fixture *fx);

/* Another handle; wrap is as in the options. */
void shard_fixture_connect(struct shard_fixture *fx, shard_fixture_wrap wrap,
			   struct shard_conn *conn_out);
/* The same, with the answer of shard_open; to be disconnected in any case. */
int shard_fixture_try_connect(struct shard_fixture *fx, shard_fixture_wrap wrap,
			      struct shard_conn *conn_out);
void shard_fixture_disconnect(struct shard_conn *conn);

/* Makes the slot of owner live for this process. */
void shard_fixture_take_slot(struct shard *shard, uint32_t owner);

/* An access of a live slot, to all views. */
void shard_fixture_access(struct shard *shard, uint32_t owner, struct access *acc);

/*
 * One block claimed, its rows written with its generation and its items published with priority
 * (in quanta; i-th row: priority + i), then closed. Returns the first slot.
 */
uint32_t shard_fixture_fill_block(struct access *acc, uint64_t priority);

/*
 * Open, with slot 1 live, its access in acc and so many blocks filled, of priority 100, 200, ... The
 * first slot of the last one.
 */
uint32_t shard_fixture_open_filled(struct shard_fixture *fx, const struct shard_fixture_opts *opts,
				   uint32_t blocks, struct access *acc);

/* A word of the tree region. */
uint64_t shard_fixture_load(const struct shard_fixture *fx, uint64_t off);
void shard_fixture_store(const struct shard_fixture *fx, uint64_t off, uint64_t word);

/* A word of any region: of slots, or of pages with their limits. */
uint64_t shard_fixture_load_at(struct region *region, uint64_t off);
void shard_fixture_store_at(struct region *region, uint64_t off, uint64_t word);

/* Makes the rows of a block, desc.block x desc.row_bytes, as an actor would. */
void shard_fixture_make_rows(const struct block *blk, uint8_t *rows);

/* Writes the rows of a block as an actor would, only the tails mean something. */
void shard_fixture_write_rows(const struct block *blk);

/* Publishes all items of a block whose rows were written; -errno of the publish. */
int shard_fixture_publish(struct block *blk, uint64_t priority);

/* Checks everything and prints what is wrong. The number of problems. */
uint64_t shard_fixture_problems(struct shard *shard);

#endif
