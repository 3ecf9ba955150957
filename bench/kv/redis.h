/*
 * redis.h - Redis as a peer of the cases of `relive bench kv`: a private server without persistence on
 * a unix socket, and a client that pipelines REDIS_DEPTH commands, as bulk users of Redis do.
 */
#ifndef RLV_BENCH_KV_REDIS_H
#define RLV_BENCH_KV_REDIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "relive/kv.h"

#include "base/error.h"

#define REDIS_DEPTH 64u

struct redis_server {
	pid_t pid;
	char dir[64], socket[80];
};

/* Starts one and waits until it answers. -ENOENT: not installed. Thread: setup. */
RLV_MUST_CHECK int redis_server_start(struct redis_server *server);
/* Ends it and removes its files; a no-op if it was not started. */
void redis_server_stop(struct redis_server *server);

struct redis {
	int fd;
	uint32_t n; /* commands in the pipeline */
	size_t out_bytes, out_room, in_room;
	uint8_t *out, *in;
	uint64_t flushes, bytes; /* so far; of values and commands, both ways */
};

/* most: bytes of the longest value. */
RLV_MUST_CHECK int redis_connect(struct redis *redis, const char *socket, uint64_t most);
void redis_disconnect(struct redis *redis);

/* Adds a GET (value.ptr NULL) or a SET to the pipeline; when that is full, as redis_flush. */
RLV_MUST_CHECK int redis_add(struct redis *redis, struct rlv_bytes key, struct rlv_bytes value);
/* Sends the pipeline and reads all answers into memory. -EIO: an answer is an error, or no value. */
RLV_MUST_CHECK int redis_flush(struct redis *redis);

#endif
