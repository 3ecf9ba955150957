/*
 * network.h - a small network that says what each action is worth: two hidden layers, double Q-learning
 * (van Hasselt, Guez, Silver 2015), Adam. Plain loops that a compiler vectorizes.
 *
 * Weights are one array of NETWORK_WEIGHTS floats. What a pass over a batch leaves is the caller's memory:
 * the demo takes it from a device pool.
 */
#ifndef RLV_CLI_DEMO_NETWORK_H
#define RLV_CLI_DEMO_NETWORK_H

#include <stdint.h>

#include "base/rng.h"
#include "cli/demo/cartpole.h"

#define NETWORK_HIDDEN 64
#define NETWORK_BATCH 64
#define NETWORK_LAYERS 3
#define NETWORK_WEIGHTS \
	((CARTPOLE_INPUTS + 1) * NETWORK_HIDDEN + (NETWORK_HIDDEN + 1) * NETWORK_HIDDEN + \
	 (NETWORK_HIDDEN + 1) * CARTPOLE_ACTIONS)

/* What a pass leaves for n <= NETWORK_BATCH observations. */
struct network_pass {
	float hidden[NETWORK_LAYERS - 1][NETWORK_BATCH][NETWORK_HIDDEN];
	float value[NETWORK_BATCH][CARTPOLE_ACTIONS];
};

void network_init(float *weights, struct rng *rng);

/* obs: n rows of CARTPOLE_INPUTS. */
void network_forward(const float *weights, const float *obs, uint32_t n, struct network_pass *pass);

/* The action of the highest value for observation i of a pass. */
int64_t network_best(const struct network_pass *pass, uint32_t i);

/* A learner's state; each array has NETWORK_WEIGHTS floats. */
struct network_learner {
	float *online, *target, *gradient, *mean, *square;
	uint32_t updates;
};

/* A batch of n transitions. */
struct network_batch {
	uint32_t n;
	const float *obs, *next_obs, *reward, *discount, *weight;
	const int64_t *action;
};

/* Memory of an update. */
struct network_room {
	struct network_pass now, next, goal, slopes;
};

/* Takes one step on a batch; td_error gets n absolute TD errors. */
void network_update(struct network_learner *learner, const struct network_batch *batch,
		    struct network_room *room, float *td_error);

#endif
