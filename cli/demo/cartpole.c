#include "cli/demo/cartpole.h"

#include <math.h>

#define GRAVITY 9.8
#define CART 1.0 /* kg */
#define POLE 0.1 /* kg */
#define HALF 0.5 /* of the pole's length, m */
#define PUSH 10.0
#define TICK 0.02 /* s */
#define FAR 2.4   /* m from the middle */
#define STEEP (12 * 3.14159265358979 / 180)

void cartpole_reset(struct cartpole *pole, struct rng *rng)
{
	for (int i = 0; i < CARTPOLE_INPUTS; i++)
		pole->state[i] = (float)(0.1 * rng_uniform_double(rng) - 0.05);
	pole->steps = 0;
}

enum cartpole_end cartpole_step(struct cartpole *pole, int64_t action)
{
	float *s = pole->state;
	double sine = sin((double)s[2]), cosine = cos((double)s[2]), mass = CART + POLE;
	double pull =
		((action == 1 ? PUSH : -PUSH) + POLE * HALF * (double)(s[3] * s[3]) * sine) / mass;
	double turn = (GRAVITY * sine - cosine * pull) /
		      (HALF * (4.0 / 3 - POLE * cosine * cosine / mass));
	double push = pull - POLE * HALF * turn * cosine / mass;

	s[0] += (float)(TICK * (double)s[1]);
	s[1] += (float)(TICK * push);
	s[2] += (float)(TICK * (double)s[3]);
	s[3] += (float)(TICK * turn);
	pole->steps++;
	if (fabs((double)s[0]) > FAR || fabs((double)s[2]) > STEEP)
		return CARTPOLE_FELL;
	return pole->steps == CARTPOLE_STEPS ? CARTPOLE_TIMED_OUT : CARTPOLE_GOES_ON;
}
