/*
 * actor.h - appends rows cyclically, at full speed or paced.
 */
#ifndef RLV_BENCH_REPLAY_ACTOR_H
#define RLV_BENCH_REPLAY_ACTOR_H

#include "bench/replay/role.h"

struct actor {
	struct role *role;
	struct rlv_writer *writer;
	const struct replay_data *data; /* rows, or vectors of environments */
	uint64_t at;                    /* next row */
	uint64_t number;                /* number of the next pattern row */
	bool gives_priorities;
	uint64_t due_ns; /* time of a paced actor's next append */
	struct pattern_rows made;
	struct rlv_stats before;
};

int actor_open(struct actor *actor, struct role *role, struct rlv_table *table) RLV_MUST_CHECK;
void actor_close(struct actor *actor);

void actor_window_begin(struct actor *actor);
int actor_window_end(struct actor *actor) RLV_MUST_CHECK;

/* One append. */
int actor_step(struct actor *actor) RLV_MUST_CHECK;

#endif
