/*
 * config.h - what one case of `relive bench replay` measures.
 */
#ifndef RLV_BENCH_REPLAY_CONFIG_H
#define RLV_BENCH_REPLAY_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define BENCH_MAX_WINDOWS 64
#define BENCH_MAX_ROLES 64
#define BENCH_LABEL_BYTES 48

enum bench_initial { BENCH_INITIAL_AUTO, BENCH_INITIAL_MAX, BENCH_INITIAL_GIVEN };
enum bench_learn { BENCH_LEARN_BOTH, BENCH_LEARN_SAMPLE };

struct bench_config {
	char label[BENCH_LABEL_BYTES];
	const char *trace; /* file, or NULL: the shape */
	const char *shape;
	const char *store; /* URI, or NULL: embed: or a private store, see bench_config_is_local */
	const char *view;  /* "STACK,NSTEP" as given, or NULL */
	uint32_t actors, learners, shards;
	uint32_t batch, insert_batch, envs, inflight, defer, block;
	uint32_t stack, n_step; /* 0 = by the shape */
	uint32_t layout;        /* enum rlv_layout */
	uint32_t learn;         /* enum bench_learn */
	uint32_t initial;       /* enum bench_initial */
	uint32_t pages;         /* enum rlv_pages */
	uint32_t windows;
	uint64_t capacity; /* 0 = by the size of a row */
	uint64_t prefill;  /* BENCH_PREFILL_RING = every row of the ring once */
	uint64_t seed;
	int64_t duration_ns; /* of all windows together */
	double rate;         /* steps/s of all actors, 0 = flat out */
	double spi;          /* samples per insert, 0 = no limiter */
	bool pin, threads, processes, loop, check, independent;
	bool json, full, progress;
};

#define BENCH_PREFILL_RING UINT64_MAX

void bench_config_init(struct bench_config *config);

/* -EINVAL: the message names the options that do not agree. Fills stack and n_step from view. */
int bench_config_check(struct bench_config *config) RLV_MUST_CHECK;

/* Roles are threads of this process over embed:. */
bool bench_config_is_local(const struct bench_config *config);

/* Do actors give priorities, or do new items take the running maximum? */
bool bench_config_gives_priorities(const struct bench_config *config);

uint32_t bench_config_roles(const struct bench_config *config);

#endif
