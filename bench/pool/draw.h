/*
 * draw.h - random numbers of the distributions that jobs are made of.
 */
#ifndef RLV_BENCH_POOL_DRAW_H
#define RLV_BENCH_POOL_DRAW_H

#include <math.h>

#include "base/rng.h"

static inline double draw_between(struct rng *rng, double least, double most)
{
	return least + rng_uniform_double(rng) * (most - least);
}

static inline double draw_exponential(struct rng *rng, double mean)
{
	return -mean * log1p(-rng_uniform_double(rng));
}

/* Mean 0, variance 1. */
static inline double draw_normal(struct rng *rng)
{
	double radius = sqrt(draw_exponential(rng, 2));

	return radius * cos(2 * 3.14159265358979323846 * rng_uniform_double(rng));
}

#endif
