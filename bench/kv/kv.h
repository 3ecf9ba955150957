/*
 * kv.h - a case of `relive bench kv`: processes with a client each run a YCSB workload on one heap, of any
 * mode.
 *
 *   A  half gets, half puts        B  95 % gets, 5 % puts      C  gets only
 *   D  95 % gets of the newest keys, 5 % puts of new ones      F  gets, half of them with a put
 *
 * Cooper and others: "Benchmarking cloud serving systems with YCSB", SoCC 2010.
 */
#ifndef RLV_BENCH_KV_KV_H
#define RLV_BENCH_KV_KV_H

#include <stdbool.h>
#include <stdint.h>

#include "relive/kv.h"

#include "base/json.h"
#include "base/stats.h"
#include "bench/harness/series.h"
#include "bench/harness/worker.h"

enum kv_op { KV_GET, KV_PUT, KV_OPS };
enum kv_metric {
	KV_OPS_PER_S,
	KV_P50,
	KV_P99,
	KV_ROUND_TRIPS,
	KV_BYTES,
	KV_CPU,
	KV_SERVER,
	KV_SERVER_CPU,
	KV_METRICS
};
enum kv_dist { KV_ZIPF, KV_UNIFORM, KV_DISTS };

#define KV_MODES 3u /* of enum rlv_kv_mode */
#define KV_REDIS 3u /* a peer, as a mode of the bench */
#define KV_ENGINES 4u
#define KV_WRITERS 2u /* of enum rlv_kv_writers */
#define KV_CASES 5u   /* of them, and clover with many keys in a call */
extern const char *const kv_mode_names[KV_ENGINES];
extern const char *const kv_dist_names[KV_DISTS];
extern const char *const kv_op_names[KV_OPS];
extern const char *const kv_writers_names[KV_WRITERS];

struct kv_config {
	char workload; /* 'a'..'d', 'f'; 'w' = puts only */
	uint32_t dist; /* enum kv_dist */
	uint32_t mode; /* enum rlv_kv_mode, or KV_REDIS */
	uint32_t clients;
	uint32_t copies;  /* of the heap, only of clover; 0 = 1 */
	uint32_t writers; /* enum rlv_kv_writers */
	bool batched;     /* calls of KV_BATCH keys */
	uint64_t value;   /* bytes */
	uint64_t keys;
	uint64_t seed;
};

/* What an operation did in one window; p99 is of every 32nd. */
struct kv_window {
	uint64_t ops[KV_OPS];
	uint64_t round_trips, bytes, server_calls; /* of all operations */
	struct stats_hist latency_ns[KV_OPS];
};

struct kv_shared {
	struct worker_board board;
	_Atomic uint64_t newest; /* keys put so far: workload D */
	char uri[256];
	struct kv_window windows[]; /* of each client */
};

/* Constants of the Zipf distribution over the keys. */
struct kv_zipf {
	double zeta, eta, alpha;
};

struct kv_case {
	struct kv_config config;
	char label[64];
	struct workers workers;
	struct kv_client *clients;
	struct kv_shared *shared;
	size_t shared_bytes;
	pid_t server; /* the metadata server, or Redis, whose CPU time is read; 0 = it is not */
	struct kv_zipf zipf;
	struct series series[KV_OPS][KV_METRICS];
};

/* Sets fields that are 0: workload b, 1 client, 1 KiB, keys for 64 MiB of values (workload d: 16 MiB) and
   100000 at most. */
void kv_config_fill(struct kv_config *config);

/* Bytes of a pool with room for the case. */
uint64_t kv_case_bytes(const struct kv_config *config);

/* Forks the clients; before this process opens a store. */
int kv_case_fork(struct kv_case *c, const struct kv_config *config) RLV_MUST_CHECK;
/* Creates the heap "bench-MODE" in the store, fills it, and opens the clients. Of Redis uri is the
   socket. */
int kv_case_start(struct kv_case *c, const char *uri) RLV_MUST_CHECK;
/* One window of all clients. */
int kv_case_window(struct kv_case *c, int64_t ns) RLV_MUST_CHECK;
void kv_case_close(struct kv_case *c);

/* Prints the results: JSON lines, or if json is NULL rows of a table on stdout. */
void kv_case_print(const struct kv_case *c, struct json *json);

#endif
