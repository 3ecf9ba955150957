/*
 * config.h - configuration of one case of `relive bench replay`.
 */
#ifndef RLV_BENCH_REPLAY_CONFIG_H
#define RLV_BENCH_REPLAY_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define REPLAY_LABEL_BYTES 48

enum replay_learn { REPLAY_LEARN_BOTH, REPLAY_LEARN_SAMPLE };

struct replay_config {
	char label[REPLAY_LABEL_BYTES];
	const char *trace; /* file, or NULL: the shape */
	const char *shape;
	const char *store; /* URI, or NULL: embed: or a private store, see replay_config_is_local */
	const char *beside; /* options of a second case to compare with, or NULL */
	const char *view;   /* "STACK,NSTEP" as given, or NULL */
	uint32_t actors, learners, shards;
	uint32_t batch, insert_batch, envs, inflight, block;
	uint32_t stack, n_step; /* 0 = by the shape */
	uint32_t layout;        /* enum rlv_layout */
	uint32_t learn;         /* enum replay_learn */
	uint32_t pages;         /* enum rlv_pages */
	uint32_t windows;
	uint64_t capacity; /* 0 = by the size of a row */
	uint64_t prefill;  /* REPLAY_PREFILL_RING = every row of the ring once */
	uint64_t seed;
	int64_t duration_ns; /* of all windows together */
	double rate;         /* steps/s of all actors, 0 = unlimited */
	double spi;          /* samples per insert, 0 = no limiter */
	bool pin, threads, processes, loop, check;
	bool json, full, progress;
};

#define REPLAY_PREFILL_RING UINT64_MAX

void replay_config_init(struct replay_config *config);

/* Checks the options, and fills stack and n_step from view. -EINVAL: an option is out of range,
   or two conflict; the message names them. */
int replay_config_check(struct replay_config *config) RLV_MUST_CHECK;

/* True if the roles are threads of this process over embed:. */
bool replay_config_is_local(const struct replay_config *config);

/* True if actors set priorities, those of the recording or of the pattern; false if new items get the
   running maximum. */
bool replay_config_gives_priorities(const struct replay_config *config);

uint32_t replay_config_roles(const struct replay_config *config);

#endif
