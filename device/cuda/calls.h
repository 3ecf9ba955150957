/*
 * calls.h - the CUDA driver as a table, opened by dlopen where it is used.
 */
#ifndef RLV_DEVICE_CUDA_CALLS_H
#define RLV_DEVICE_CUDA_CALLS_H

#include "base/error.h"
#include "device/cuda/cuda_abi.h"

#define CUDA_LIBRARY "libcuda.so.1"
#define CUDA_LIBRARY_ENV "RLV_CUDA_LIBRARY" /* names another file */

/*
 * The driver's calls, looked up and initialised once. -ENOTSUP: no libcuda, a driver that lacks a
 * required call, or one that cannot start; -ENODEV: no GPU. The message names the call and the remedy.
 * Thread: any.
 */
RLV_MUST_CHECK int cuda_calls_load(const struct cuda_calls **calls_out);

/*
 * The error for a result of the driver: 0 for CU_OK, else a code with a message that names the call, the
 * driver's word for the result, and the remedy. -ENOMEM; -EAGAIN: not ready; -ENODEV: the device or the
 * context is lost, no call of this process will work again; -ENOTSUP; -EINVAL; -EIO for all else.
 */
RLV_MUST_CHECK int cuda_result(const struct cuda_calls *calls, const char *call, unsigned result);

#endif
