#include "cli/demo/network.h"

#include <math.h>
#include <string.h>

#define RATE 1e-3f
#define MEAN_KEPT 0.9f
#define SQUARE_KEPT 0.999f
#define TARGET_RATE 0.01f

/* A layer: `in` rows of `out` weights, then `out` biases, at `at` in the weights. */
struct layer {
	uint32_t in, out, at;
};

static const struct layer layers[NETWORK_LAYERS] = {
	{ CARTPOLE_INPUTS, NETWORK_HIDDEN, 0 },
	{ NETWORK_HIDDEN, NETWORK_HIDDEN, (CARTPOLE_INPUTS + 1) * NETWORK_HIDDEN },
	{ NETWORK_HIDDEN, CARTPOLE_ACTIONS,
	  (CARTPOLE_INPUTS + 1) * NETWORK_HIDDEN + (NETWORK_HIDDEN + 1) * NETWORK_HIDDEN },
};

/* Row i of what layer l gives. */
static float *row_of(struct network_pass *pass, uint32_t l, uint32_t i)
{
	return l + 1 < NETWORK_LAYERS ? pass->hidden[l][i] : pass->value[i];
}

void network_init(float *weights, struct rng *rng)
{
	memset(weights, 0, NETWORK_WEIGHTS * sizeof(*weights));
	for (uint32_t l = 0; l < NETWORK_LAYERS; l++) {
		double bound = 1 / sqrt(layers[l].in);

		for (uint32_t i = 0; i < layers[l].in * layers[l].out; i++)
			weights[layers[l].at + i] =
				(float)(bound * (2 * rng_uniform_double(rng) - 1));
	}
}

static void layer_forward(const struct layer *layer, const float *weights, const float *in,
			  float *out)
{
	const float *w = weights + layer->at;

	memcpy(out, w + layer->in * layer->out, layer->out * sizeof(*out));
	for (uint32_t i = 0; i < layer->in; i++, w += layer->out) {
		for (uint32_t o = 0; o < layer->out; o++)
			out[o] += in[i] * w[o];
	}
}

void network_forward(const float *weights, const float *obs, uint32_t n, struct network_pass *pass)
{
	for (uint32_t i = 0; i < n; i++) {
		const float *in = obs + (size_t)i * CARTPOLE_INPUTS;

		for (uint32_t l = 0; l < NETWORK_LAYERS; l++) {
			float *out = row_of(pass, l, i);

			layer_forward(&layers[l], weights, in, out);
			for (uint32_t o = 0; l + 1 < NETWORK_LAYERS && o < layers[l].out; o++)
				out[o] = fmaxf(out[o], 0);
			in = out;
		}
	}
}

int64_t network_best(const struct network_pass *pass, uint32_t i)
{
	int64_t best = 0;

	for (int64_t a = 1; a < CARTPOLE_ACTIONS; a++)
		best = pass->value[i][a] > pass->value[i][best] ? a : best;
	return best;
}

/* Adds a layer's gradient for one row, and gives the slopes of what came in (NULL: not wanted). */
static void layer_backward(const struct layer *layer, const struct network_learner *learner,
			   const float *in, const float *slope, float *slope_in)
{
	const float *w = learner->online + layer->at;
	float *g = learner->gradient + layer->at;

	for (uint32_t i = 0; i < layer->in; i++, w += layer->out, g += layer->out) {
		float sum = 0;

		for (uint32_t o = 0; o < layer->out; o++)
			g[o] += in[i] * slope[o];
		if (!slope_in)
			continue;
		for (uint32_t o = 0; o < layer->out; o++)
			sum += w[o] * slope[o];
		slope_in[i] = in[i] > 0 ? sum : 0; /* in is what a rectifier gave */
	}
	for (uint32_t o = 0; o < layer->out; o++)
		g[o] += slope[o];
}

static void step_of_adam(struct network_learner *learner)
{
	float steps = (float)++learner->updates;
	float mean_scale = 1 / (1 - powf(MEAN_KEPT, steps)),
	      square_scale = 1 / (1 - powf(SQUARE_KEPT, steps));

	for (uint32_t i = 0; i < NETWORK_WEIGHTS; i++) {
		float g = learner->gradient[i];

		learner->mean[i] += (1 - MEAN_KEPT) * (g - learner->mean[i]);
		learner->square[i] += (1 - SQUARE_KEPT) * (g * g - learner->square[i]);
		learner->online[i] -= RATE * learner->mean[i] * mean_scale /
				      (sqrtf(learner->square[i] * square_scale) + 1e-8f);
		learner->target[i] += TARGET_RATE * (learner->online[i] - learner->target[i]);
	}
}

void network_update(struct network_learner *learner, const struct network_batch *batch,
		    struct network_room *room, float *td_error)
{
	uint32_t n = batch->n < NETWORK_BATCH ? batch->n : NETWORK_BATCH;

	network_forward(learner->online, batch->obs, n, &room->now);
	network_forward(learner->online, batch->next_obs, n, &room->next);
	network_forward(learner->target, batch->next_obs, n, &room->goal);
	memset(learner->gradient, 0, NETWORK_WEIGHTS * sizeof(float));
	memset(room->slopes.value, 0, sizeof(room->slopes.value));
	for (uint32_t i = 0; i < n; i++) {
		int64_t action = batch->action[i] == 1;
		float goal = batch->reward[i] +
			     batch->discount[i] * room->goal.value[i][network_best(&room->next, i)];
		float td = goal - room->now.value[i][action];
		const float *in = batch->obs + (size_t)i * CARTPOLE_INPUTS;

		td_error[i] = fabsf(td);
		room->slopes.value[i][action] =
			-batch->weight[i] * fmaxf(-1, fminf(1, td)) / (float)n;
		for (uint32_t l = NETWORK_LAYERS; l-- > 0;)
			layer_backward(&layers[l], learner, l ? row_of(&room->now, l - 1, i) : in,
				       row_of(&room->slopes, l, i),
				       l ? row_of(&room->slopes, l - 1, i) : NULL);
	}
	step_of_adam(learner);
}
