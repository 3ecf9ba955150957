/*
 * replay_oracle.h - the expected contents of a replay table: a plain list of all rows of each
 * stream. Everything in a row is a function of its id, so a batch can be checked byte by byte
 * without keeping the bytes.
 */
#ifndef RLV_TESTS_SUPPORT_REPLAY_ORACLE_H
#define RLV_TESTS_SUPPORT_REPLAY_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "relive/relive.h"

#define REPLAY_STREAMS 16
#define REPLAY_OBS 3
#define REPLAY_FRAME 6
#define REPLAY_MAX_STACK 8

struct replay_row {
	uint16_t flags;
	bool ends; /* end_episode was called after it */
	uint32_t version;
	double td; /* negative = none given */
};

struct replay_stream {
	struct replay_row *rows;
	size_t n, room;
};

struct replay_oracle {
	bool has_obs; /* next observations are rows, not stored ones */
	struct replay_stream streams[REPLAY_STREAMS];
};

/* The expected window of one item; rows are indices in its stream. */
struct replay_item {
	uint32_t steps;
	float discount;
	double reward, bonus;
	size_t obs[REPLAY_MAX_STACK], next_obs[REPLAY_MAX_STACK];
	size_t last; /* last step of the return */
	uint32_t version;
};

/* Options of a sampler that determine its batches. */
struct replay_look {
	uint32_t stack, n_step;
	double gamma;
};

/* Contents of the row with that id. */
uint64_t replay_id(uint32_t stream, size_t row);
void replay_obs(uint64_t id, float obs[REPLAY_OBS]);
void replay_frame(uint64_t id, uint8_t frame[REPLAY_FRAME]);
int32_t replay_action(uint64_t id);
float replay_reward(uint64_t id);
double replay_bonus(uint64_t id);

void replay_oracle_init(struct replay_oracle *oracle, bool has_obs);
void replay_oracle_fini(struct replay_oracle *oracle);

void replay_oracle_add(struct replay_oracle *oracle, uint32_t stream, struct replay_row row);
void replay_oracle_end(struct replay_oracle *oracle, uint32_t stream);

/* True if the row is an item of the view, with a complete window. Its longest return is n_step. */
bool replay_is_item(const struct replay_oracle *oracle, uint32_t stream, size_t row,
		    const struct rlv_view *view);

/* Items of the rows from `from` on. */
size_t replay_count_items(const struct replay_oracle *oracle, uint32_t stream, size_t from,
			  const struct rlv_view *view);

void replay_item_get(const struct replay_oracle *oracle, uint64_t id,
		     const struct replay_look *look, struct replay_item *out);

/* The array of that name; fails the test if there is none. */
const struct rlv_array *replay_array(const struct rlv_batch *batch, const char *name);

/* id column of item i. */
uint64_t replay_batch_id(const struct rlv_batch *batch, uint32_t i);

/* Fails the test unless every byte of the batch is as the oracle says. */
void replay_check_batch(const struct replay_oracle *oracle, const struct rlv_view *view,
			const struct replay_look *look, const struct rlv_batch *batch);

#endif
