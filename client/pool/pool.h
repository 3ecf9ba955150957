/*
 * pool.h - what other parts of the library ask of a job of a pool (relive/pool.h).
 */
#ifndef RLV_CLIENT_POOL_POOL_H
#define RLV_CLIENT_POOL_POOL_H

#include "relive/pool.h"

/* The CUDA device whose memory the pool shares, by its number in this process; -1: memory of the host. */
int pool_cuda_device(const struct rlv_pool *pool);

/* The pool is about to end: torch gets and gives back nothing more of it. */
void pool_leaves_torch(const struct rlv_pool *pool);

#endif
