/*
 * cartpole.h - a pole on a cart that is pushed left or right: the task CartPole-v1 (Barto, Sutton,
 * Anderson: "Neuronlike adaptive elements that can solve difficult learning control problems", 1983).
 */
#ifndef RLV_CLI_DEMO_CARTPOLE_H
#define RLV_CLI_DEMO_CARTPOLE_H

#include <stdint.h>

#include "base/rng.h"

#define CARTPOLE_INPUTS 4
#define CARTPOLE_ACTIONS 2
#define CARTPOLE_STEPS 500 /* an episode ends there at the latest */

struct cartpole {
	float state[CARTPOLE_INPUTS]; /* of the cart: position, speed; of the pole: angle, speed */
	uint32_t steps;
};

enum cartpole_end { CARTPOLE_GOES_ON, CARTPOLE_FELL, CARTPOLE_TIMED_OUT };

void cartpole_reset(struct cartpole *pole, struct rng *rng);

/* Pushes the cart to the right if action is 1, else to the left. Each step is worth 1. */
enum cartpole_end cartpole_step(struct cartpole *pole, int64_t action);

#endif
