/* device/cuda/cuda_abi.h beside cuda.h: constants, layouts and prototypes, when the test is compiled. */
#include "tests/support/test.h"

#include "device/cuda/cuda_abi.h"

#if __has_include(<cuda.h>)
#include <cuda.h>
#endif

#if defined(CUDA_VERSION) && CUDA_VERSION >= 13000

#define SAME(ours, theirs) _Static_assert((unsigned)(ours) == (unsigned)(theirs), #theirs)

SAME(CU_OK, CUDA_SUCCESS);
SAME(CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(CU_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
SAME(CU_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED);
SAME(CU_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY);
SAME(CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(CU_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME(CU_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
SAME(CU_ECC_UNCORRECTABLE, CUDA_ERROR_ECC_UNCORRECTABLE);
SAME(CU_UNSUPPORTED_PTX_VERSION, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
SAME(CU_OPERATING_SYSTEM, CUDA_ERROR_OPERATING_SYSTEM);
SAME(CU_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE);
SAME(CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME(CU_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(CU_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(CU_CONTEXT_IS_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME(CU_HARDWARE_STACK_ERROR, CUDA_ERROR_HARDWARE_STACK_ERROR);
SAME(CU_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED);
SAME(CU_NOT_PERMITTED, CUDA_ERROR_NOT_PERMITTED);
SAME(CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
SAME(CU_SYSTEM_NOT_READY, CUDA_ERROR_SYSTEM_NOT_READY);
SAME(CU_SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
SAME(CU_MPS_CLIENT_TERMINATED, CUDA_ERROR_MPS_CLIENT_TERMINATED);
SAME(CU_UNKNOWN, CUDA_ERROR_UNKNOWN);

SAME(CU_ATTR_VMM, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME(CU_ATTR_POSIX_FD, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
SAME(CU_ATTR_GDR_WITH_VMM, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
SAME(CU_ATTR_HOST_READONLY, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED);
SAME(CU_ATTR_GDR, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED);
SAME(CU_ATTR_GDR_FLUSH_OPTIONS, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
SAME(CU_ATTR_GDR_WRITES_ORDERING, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
SAME(CU_ATTR_STREAM_MEM_OPS_64, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
SAME(CU_ATTR_STREAM_WAIT_NOR, CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR);
SAME(CU_ATTR_DMA_BUF, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
SAME(CU_ATTR_IPC_EVENTS, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
SAME(CU_GDR_ORDERED_TO_OWNER, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER);

SAME(CU_STREAM_NON_BLOCKING_FLAG, CU_STREAM_NON_BLOCKING);
SAME(CU_EVENT_NO_TIMING_FLAG, CU_EVENT_DISABLE_TIMING);
SAME(CU_EVENT_INTERPROCESS_FLAG, CU_EVENT_INTERPROCESS);
SAME(CU_HOST_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
SAME(CU_HOST_DEVICEMAP, CU_MEMHOSTREGISTER_DEVICEMAP);
SAME(CU_HOST_READONLY, CU_MEMHOSTREGISTER_READ_ONLY);
SAME(CU_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(CU_HANDLE_POSIX_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME(CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(CU_ACCESS_NONE, CU_MEM_ACCESS_FLAGS_PROT_NONE);
SAME(CU_ACCESS_READ, CU_MEM_ACCESS_FLAGS_PROT_READ);
SAME(CU_ACCESS_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(CU_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME(CU_RANGE_DMA_BUF_FD, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
SAME(CU_COPY_ORDER_STREAM, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
SAME(CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(CU_WAIT_GEQ, CU_STREAM_WAIT_VALUE_GEQ);
SAME(CU_FLUSH_CURRENT_CONTEXT, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX);
SAME(CU_FLUSH_TO_OWNER, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
SAME(CU_PROC_DEFAULT, CU_GET_PROC_ADDRESS_DEFAULT);

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(struct ours) == sizeof(theirs), #theirs)
#define SAME_FIELD(ours, our_field, theirs, their_field) \
	_Static_assert(offsetof(struct ours, our_field) == offsetof(theirs, their_field), \
		       #their_field)

SAME_SIZE(cu_mem_location, CUmemLocation);
SAME_FIELD(cu_mem_location, type, CUmemLocation, type);
SAME_FIELD(cu_mem_location, id, CUmemLocation, id);
SAME_SIZE(cu_mem_prop, CUmemAllocationProp);
SAME_FIELD(cu_mem_prop, type, CUmemAllocationProp, type);
SAME_FIELD(cu_mem_prop, handle_types, CUmemAllocationProp, requestedHandleTypes);
SAME_FIELD(cu_mem_prop, location, CUmemAllocationProp, location);
SAME_FIELD(cu_mem_prop, win32, CUmemAllocationProp, win32HandleMetaData);
SAME_FIELD(cu_mem_prop, flags.compression, CUmemAllocationProp, allocFlags.compressionType);
SAME_FIELD(cu_mem_prop, flags.gpu_direct_rdma, CUmemAllocationProp,
	   allocFlags.gpuDirectRDMACapable);
SAME_FIELD(cu_mem_prop, flags.usage, CUmemAllocationProp, allocFlags.usage);
SAME_SIZE(cu_mem_access, CUmemAccessDesc);
SAME_FIELD(cu_mem_access, location, CUmemAccessDesc, location);
SAME_FIELD(cu_mem_access, flags, CUmemAccessDesc, flags);
SAME_SIZE(cu_copy_attributes, CUmemcpyAttributes);
SAME_FIELD(cu_copy_attributes, order, CUmemcpyAttributes, srcAccessOrder);
SAME_FIELD(cu_copy_attributes, from_hint, CUmemcpyAttributes, srcLocHint);
SAME_FIELD(cu_copy_attributes, to_hint, CUmemcpyAttributes, dstLocHint);
SAME_FIELD(cu_copy_attributes, flags, CUmemcpyAttributes, flags);
SAME_SIZE(cu_ipc_event, CUipcEventHandle);

/* From here on our tags are those of cuda.h, so that the prototypes of the table are comparable. */
#define cu_context CUctx_st
#define cu_stream CUstream_st
#define cu_event CUevent_st
#define cu_module CUmod_st
#define cu_function CUfunc_st
#define cu_graph CUgraph_st
#define cu_graph_exec CUgraphExec_st
#define cu_mem_prop CUmemAllocationProp_st
#define cu_mem_access CUmemAccessDesc_st
#define cu_copy_attributes CUmemcpyAttributes_st
#define cu_ipc_event CUipcEventHandle_st
#define SAME_PROTOTYPE(member, name, since, required, arguments) \
	_Static_assert(__builtin_types_compatible_p(unsigned arguments, __typeof__(name)), #name);
CUDA_CALLS(SAME_PROTOTYPE)

TEST(cuda_abi__is_that_of_cuda_h)
{
	print_message("compared with cuda.h of CUDA %d\n", CUDA_VERSION);
}

int main(void)
{
	return test_run(NULL, NULL);
}

#else

int main(void)
{
	print_message("skipped: no cuda.h of CUDA 13 or later\n");
	return TEST_EXIT_SKIP;
}

#endif
