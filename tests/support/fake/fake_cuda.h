/*
 * fake_cuda.h - the fake CUDA driver (tests/fakecuda) in this process, in place of the system's.
 */
#ifndef RLV_TESTS_SUPPORT_FAKE_CUDA_H
#define RLV_TESTS_SUPPORT_FAKE_CUDA_H

#include "tests/fakecuda/control.h"

/* Opens it, and names it in RLV_CUDA_LIBRARY; children that are executed open it too. */
const struct fakecuda_control *fake_cuda_open(void);

#endif
