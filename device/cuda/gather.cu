/*
 * gather.cu - the kernel; gather_ptx.h is made of it by tools/ptx.
 */
#include "device/cuda/gather_lanes.h"

extern "C" __global__ void relive_gather(const struct gather_work work)
{
	gather_lanes(work, (gather_u64)blockIdx.x * blockDim.x + threadIdx.x,
		     (gather_u64)gridDim.x * blockDim.x);
}
