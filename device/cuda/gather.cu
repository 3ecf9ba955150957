/*
 * gather.cu - the kernels; gather_ptx.h is made of them by tools/ptx.
 */
#include "device/cuda/weights_lanes.h"

extern "C" __global__ void relive_gather(const struct gather_work work)
{
	gather_lanes(work, (gather_u64)blockIdx.x * blockDim.x + threadIdx.x,
		     (gather_u64)gridDim.x * blockDim.x);
}

extern "C" __global__ void relive_weights(const struct weights_work work)
{
	weights_lanes(work, (gather_u64)blockIdx.x * blockDim.x + threadIdx.x,
		      (gather_u64)gridDim.x * blockDim.x);
}
