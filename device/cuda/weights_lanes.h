/*
 * weights_lanes.h - the loop of importance weights, for CUDA and for C: to[i] = (probability[i] * factor)^power.
 * Its bits are those of priority_weights.
 */
#ifndef RLV_DEVICE_CUDA_WEIGHTS_LANES_H
#define RLV_DEVICE_CUDA_WEIGHTS_LANES_H

#include "device/cuda/gather_lanes.h"
#include "base/power.h"

struct weights_work {
	float *to;
	const double *probability;
	gather_u64 n;
	double factor, power;
};

/* The share of lane number `lane`. */
GATHER_FN void weights_lanes(const struct weights_work work, gather_u64 lane, gather_u64 lanes)
{
	for (gather_u64 i = lane; i < work.n; i += lanes)
		work.to[i] = (float)power_of(work.probability[i] * work.factor, work.power);
}

#endif
