/* What the demo learns with: the task ends as it should, and the network fits what it is told. */
#include "cli/demo/network.h"

#include <math.h>
#include <string.h>

#include "tests/support/test.h"

TEST(cartpole_step__one_sided_pushes_let_the_pole_fall)
{
	struct cartpole pole;
	struct rng rng;

	rng_seed(&rng, 1, 0);
	for (int64_t action = 0; action < CARTPOLE_ACTIONS; action++) {
		cartpole_reset(&pole, &rng);
		while (cartpole_step(&pole, action) == CARTPOLE_GOES_ON)
			assert_true(pole.steps < 20);
		/* Pushed to the right, it falls to the left. */
		assert_true((pole.state[2] < 0) == (action == 1) && fabsf(pole.state[2]) < 0.5f);
	}
}

TEST(cartpole_step__a_balanced_pole_ends_by_time)
{
	struct cartpole pole = { .steps = 0 };
	enum cartpole_end end = CARTPOLE_GOES_ON;

	while (end == CARTPOLE_GOES_ON) {
		const float *s = pole.state;

		end = cartpole_step(&pole, s[2] + 0.3f * s[3] + 0.05f * s[0] + 0.1f * s[1] > 0);
	}
	assert_int_equal(end, CARTPOLE_TIMED_OUT);
	assert_int_equal(pole.steps, CARTPOLE_STEPS);
}

static struct {
	float online[NETWORK_WEIGHTS], target[NETWORK_WEIGHTS], gradient[NETWORK_WEIGHTS];
	float mean[NETWORK_WEIGHTS], square[NETWORK_WEIGHTS];
	float obs[NETWORK_BATCH][CARTPOLE_INPUTS], reward[NETWORK_BATCH], discount[NETWORK_BATCH];
	float weight[NETWORK_BATCH], td[NETWORK_BATCH];
	int64_t action[NETWORK_BATCH];
	struct network_room room;
} net;

static struct network_learner learner_new(void)
{
	struct rng rng;

	memset(&net, 0, sizeof(net));
	rng_seed(&rng, 3, 0);
	network_init(net.online, &rng);
	memcpy(net.target, net.online, sizeof(net.target));
	for (int i = 0; i < NETWORK_BATCH; i++) {
		for (int k = 0; k < CARTPOLE_INPUTS; k++)
			net.obs[i][k] = (float)(2 * rng_uniform_double(&rng) - 1);
		net.action[i] = i % 2;
		net.weight[i] = 1;
		net.reward[i] = net.obs[i][0] * net.obs[i][1] + (float)(i % 2);
	}
	return (struct network_learner){ net.online, net.target, net.gradient,
					 net.mean,   net.square, 0 };
}

static struct network_batch batch_of(uint32_t n)
{
	return (struct network_batch){ n,          net.obs[0], net.obs[0], net.reward, net.discount,
				       net.weight, net.action };
}

static float mean_of(const float *values)
{
	float sum = 0;

	for (int i = 0; i < NETWORK_BATCH; i++)
		sum += values[i] / NETWORK_BATCH;
	return sum;
}

TEST(network_update__fits_what_each_action_is_worth)
{
	struct network_learner learner = learner_new();
	const struct network_batch batch = batch_of(NETWORK_BATCH);
	float before;

	network_update(&learner, &batch, &net.room, net.td);
	before = mean_of(net.td);
	for (int i = 0; i < 300; i++)
		network_update(&learner, &batch, &net.room, net.td);
	assert_true(mean_of(net.td) < before / 10);
	assert_int_equal(learner.updates, 301);
}

/* The loss of one row as it is defined, for differences of it. */
static double loss_of(float goal)
{
	struct network_pass pass;

	network_forward(net.online, net.obs[0], 1, &pass);
	return 0.5 * pow((double)goal - (double)pass.value[0][0], 2);
}

TEST(network_update__gradient_is_the_slope_of_the_loss)
{
	static float before[NETWORK_WEIGHTS];
	struct network_learner learner = learner_new();
	const struct network_batch batch = batch_of(1);

	net.reward[0] = 0.5f; /* near: the loss is a square there */
	memcpy(before, net.online, sizeof(before));
	network_update(&learner, &batch, &net.room, net.td);
	assert_true(net.td[0] < 1);
	memcpy(net.online, before, sizeof(before));
	for (int i = 0; i < NETWORK_WEIGHTS; i += 37) {
		const float step = 1e-2f;
		double high, low;

		net.online[i] = before[i] + step;
		high = loss_of(net.reward[0]);
		net.online[i] = before[i] - step;
		low = loss_of(net.reward[0]);
		net.online[i] = before[i];
		assert_true(fabs((high - low) / (2 * (double)step) - (double)net.gradient[i]) <
			    1e-3);
	}
}

int main(void)
{
	return test_run(NULL, NULL);
}
