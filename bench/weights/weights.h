/*
 * weights.h - a case of `relive bench weights`. Of a store: this process publishes generations of tensors,
 * processes of actors fetch each of them; all copy as many bytes by memcpy beside it, the actors at the same
 * time. Of the codec: bench/weights/codec.h.
 */
#ifndef RLV_BENCH_WEIGHTS_WEIGHTS_H
#define RLV_BENCH_WEIGHTS_WEIGHTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "relive/weights.h"

#include "base/json.h"
#include "base/mem/alloc.h"
#include "base/rng.h"
#include "bench/harness/series.h"
#include "bench/harness/worker.h"

#define WEIGHTS_TENSORS 16u
#define WEIGHTS_COPY_MOST (UINT64_C(256) << 20) /* bytes; more than caches have */

enum weights_role { WEIGHTS_PUBLISH, WEIGHTS_FETCH, WEIGHTS_ROLES };
enum weights_metric {
	WEIGHTS_GBPS,      /* bytes of the tensors in the time of the call */
	WEIGHTS_OF_MEMCPY, /* the same, by that of memcpy in the window */
	WEIGHTS_FIRST_GBPS, /* WEIGHTS_GBPS of the first generation, whose pages nobody had touched, without prefault */
	WEIGHTS_PAUSE,      /* in which an actor has neither generation */
	WEIGHTS_FIRST_BYTE, /* from the publisher's return until an actor knows of it */
	WEIGHTS_TRIPS,      /* round trips of the call */
	WEIGHTS_WIRE,       /* bytes of the tensors by those read or written over a wire */
	WEIGHTS_COPIES,     /* of each byte, by the actor's call */
	WEIGHTS_METRICS
};

struct weights_config {
	uint64_t bytes;
	uint32_t actors; /* 0: the codec alone */
	double density;  /* part of the elements that changes from one generation to the next */
	uint64_t seed;
	bool fresh; /* without prefault */
	bool view;  /* actors map generations, and all are anchors */
};

/* What an actor did with the generation of that version. */
struct actor_report {
	_Atomic uint64_t version; /* stored last */
	uint64_t seen_at_ns, fetch_ns, pause_ns, memcpy_ns;
	uint64_t round_trips, bytes, copied;
};

struct weights_shared {
	struct worker_board board;
	char uri[256];
	struct actor_report reports[WORKERS_MAX];
};

struct weights_case {
	struct weights_config config;
	struct workers workers;
	struct weights_actor *actors;
	struct weights_shared *shared;
	struct rlv_store *store;
	struct rlv_generations *weights;
	struct pages data;
	uint8_t *copy; /* where memcpy copies them, WEIGHTS_COPY_MOST at a time: shared memory, with all its pages, as that of a store */
	struct rlv_tensor tensors[WEIGHTS_TENSORS];
	char names[WEIGHTS_TENSORS][24];
	struct rng rng;
	uint64_t version;
	struct series series[WEIGHTS_ROLES][WEIGHTS_METRICS];
};

/* Bytes of a pool with room for the case, and of all memory that it takes. */
uint64_t weights_case_bytes(const struct weights_config *config);
uint64_t weights_case_memory(const struct weights_config *config);

/* Forks the actors; before this process opens a store. */
int weights_case_fork(struct weights_case *c, const struct weights_config *config) RLV_MUST_CHECK;
/* Creates the weights "bench-weights" in the store, publishes, and opens the actors. */
int weights_case_start(struct weights_case *c, const char *uri) RLV_MUST_CHECK;
/* Generations of at least 64 MiB together, one after the other. */
int weights_case_window(struct weights_case *c) RLV_MUST_CHECK;
void weights_case_close(struct weights_case *c);

/* Prints a case of the store or of the codec: JSON lines, or if json is NULL rows of a table. */
void weights_case_print(const struct weights_case *c, struct json *json);
struct codec;
void weights_codec_print(const struct codec *codec, uint64_t seed, struct json *json);

#endif
