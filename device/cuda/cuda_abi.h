/*
 * cuda_abi.h - the part of the CUDA driver's binary interface that the device pool uses.
 *
 * It stands in for cuda.h, so that every machine builds the backend; tests/unit/device/test_cuda_abi.c
 * compares constants, layouts and prototypes with cuda.h where there is one. Enumerations of the
 * driver are passed as `unsigned`, and declared so here.
 */
#ifndef RLV_DEVICE_CUDA_ABI_H
#define RLV_DEVICE_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned long long cu_u64; /* a device address, a handle of memory, or flags */

struct cu_context;
struct cu_stream;
struct cu_event;
struct cu_module;
struct cu_function;
struct cu_graph;
struct cu_graph_exec;

/* Results */
#define CU_OK 0u
#define CU_INVALID_VALUE 1u
#define CU_OUT_OF_MEMORY 2u
#define CU_NOT_INITIALIZED 3u
#define CU_DEINITIALIZED 4u
#define CU_STUB_LIBRARY 34u
#define CU_NO_DEVICE 100u
#define CU_INVALID_DEVICE 101u
#define CU_INVALID_CONTEXT 201u
#define CU_ECC_UNCORRECTABLE 214u
#define CU_UNSUPPORTED_PTX_VERSION 222u
#define CU_OPERATING_SYSTEM 304u
#define CU_INVALID_HANDLE 400u
#define CU_NOT_FOUND 500u
#define CU_NOT_READY 600u
#define CU_ILLEGAL_ADDRESS 700u
#define CU_CONTEXT_IS_DESTROYED 709u
#define CU_HARDWARE_STACK_ERROR 714u
#define CU_LAUNCH_FAILED 719u
#define CU_NOT_PERMITTED 800u
#define CU_NOT_SUPPORTED 801u
#define CU_SYSTEM_NOT_READY 802u
#define CU_SYSTEM_DRIVER_MISMATCH 803u
#define CU_MPS_CLIENT_TERMINATED 810u
#define CU_UNKNOWN 999u

/* Device attributes */
#define CU_ATTR_VMM 102u
#define CU_ATTR_POSIX_FD 103u
#define CU_ATTR_GDR_WITH_VMM 110u
#define CU_ATTR_HOST_READONLY 113u
#define CU_ATTR_GDR 116u
#define CU_ATTR_GDR_FLUSH_OPTIONS 117u
#define CU_ATTR_GDR_WRITES_ORDERING 118u
#define CU_ATTR_STREAM_MEM_OPS_64 122u
#define CU_ATTR_STREAM_WAIT_NOR 123u
#define CU_ATTR_DMA_BUF 124u
#define CU_ATTR_IPC_EVENTS 125u
#define CU_GDR_ORDERED_TO_OWNER 100 /* a value of CU_ATTR_GDR_WRITES_ORDERING */

/* Flags and kinds */
#define CU_STREAM_NON_BLOCKING_FLAG 1u
#define CU_EVENT_NO_TIMING_FLAG 2u
#define CU_EVENT_INTERPROCESS_FLAG 4u
#define CU_STREAM_LEGACY 1u /* handles of the default streams */
#define CU_STREAM_PER_THREAD 2u
#define CU_HOST_PORTABLE 1u
#define CU_HOST_DEVICEMAP 2u
#define CU_HOST_READONLY 8u
#define CU_ALLOCATION_PINNED 1u
#define CU_HANDLE_POSIX_FD 1u
#define CU_LOCATION_DEVICE 1u
#define CU_ACCESS_NONE 0u
#define CU_ACCESS_READ 1u
#define CU_ACCESS_READWRITE 3u
#define CU_GRANULARITY_MINIMUM 0u
#define CU_RANGE_DMA_BUF_FD 1u
#define CU_COPY_ORDER_STREAM 1u
#define CU_CAPTURE_RELAXED 2u
#define CU_WAIT_GEQ 0u
#define CU_FLUSH_CURRENT_CONTEXT 0u
#define CU_FLUSH_TO_OWNER 100u
#define CU_PROC_DEFAULT 0u

struct cu_mem_location {
	unsigned type;
	int id;
};

struct cu_mem_prop {
	unsigned type;
	unsigned handle_types;
	struct cu_mem_location location;
	void *win32;
	struct {
		uint8_t compression;
		uint8_t gpu_direct_rdma;
		uint16_t usage;
		uint8_t reserved[4];
	} flags;
};

struct cu_mem_access {
	struct cu_mem_location location;
	unsigned flags;
};

struct cu_copy_attributes {
	unsigned order;
	struct cu_mem_location from_hint, to_hint;
	unsigned flags;
};

struct cu_ipc_event {
	uint8_t bytes[64];
};

/*
 * X(member, name, since, required, arguments): `since` is the version of CUDA whose signature this is.
 * A driver without a required call is refused; the others' members are NULL there.
 */
#define CUDA_CALLS(X) \
	X(init, cuInit, 2000, 1, (unsigned flags)) \
	X(driver_version, cuDriverGetVersion, 2020, 1, (int *version)) \
	X(device_count, cuDeviceGetCount, 2000, 1, (int *count)) \
	X(device_get, cuDeviceGet, 2000, 1, (int *device, int ordinal)) \
	X(device_name, cuDeviceGetName, 2000, 1, (char *name, int len, int device)) \
	X(device_attribute, cuDeviceGetAttribute, 2000, 1, \
	  (int *value, unsigned attribute, int device)) \
	X(context_retain, cuDevicePrimaryCtxRetain, 7000, 1, \
	  (struct cu_context * *context, int device)) \
	X(context_release, cuDevicePrimaryCtxRelease, 11000, 1, (int device)) \
	X(context_set, cuCtxSetCurrent, 4000, 1, (struct cu_context * context)) \
	X(context_get, cuCtxGetCurrent, 4000, 1, (struct cu_context * *context)) \
	X(context_wait, cuCtxSynchronize, 2000, 1, (void)) \
	X(mem_info, cuMemGetInfo, 3020, 1, (size_t * free, size_t * total)) \
	X(mem_granularity, cuMemGetAllocationGranularity, 10020, 1, \
	  (size_t * bytes, const struct cu_mem_prop *prop, unsigned option)) \
	X(mem_reserve, cuMemAddressReserve, 10020, 1, \
	  (cu_u64 * at, size_t bytes, size_t alignment, cu_u64 hint, cu_u64 flags)) \
	X(mem_unreserve, cuMemAddressFree, 10020, 1, (cu_u64 at, size_t bytes)) \
	X(mem_create, cuMemCreate, 10020, 1, \
	  (cu_u64 * handle, size_t bytes, const struct cu_mem_prop *prop, cu_u64 flags)) \
	X(mem_release, cuMemRelease, 10020, 1, (cu_u64 handle)) \
	X(mem_map, cuMemMap, 10020, 1, \
	  (cu_u64 at, size_t bytes, size_t offset, cu_u64 handle, cu_u64 flags)) \
	X(mem_unmap, cuMemUnmap, 10020, 1, (cu_u64 at, size_t bytes)) \
	X(mem_set_access, cuMemSetAccess, 10020, 1, \
	  (cu_u64 at, size_t bytes, const struct cu_mem_access *access, size_t n)) \
	X(mem_export, cuMemExportToShareableHandle, 10020, 1, \
	  (void *shared, cu_u64 handle, unsigned type, cu_u64 flags)) \
	X(mem_import, cuMemImportFromShareableHandle, 10020, 1, \
	  (cu_u64 * handle, void *shared, unsigned type)) \
	X(mem_range_handle, cuMemGetHandleForAddressRange, 11070, 0, \
	  (void *handle, cu_u64 at, size_t bytes, unsigned type, cu_u64 flags)) \
	X(host_register, cuMemHostRegister, 6050, 1, (void *at, size_t bytes, unsigned flags)) \
	X(host_unregister, cuMemHostUnregister, 4000, 1, (void *at)) \
	X(host_device_pointer, cuMemHostGetDevicePointer, 3020, 1, \
	  (cu_u64 * at, void *host, unsigned flags)) \
	X(stream_create, cuStreamCreateWithPriority, 5050, 1, \
	  (struct cu_stream * *stream, unsigned flags, int priority)) \
	X(stream_destroy, cuStreamDestroy, 4000, 1, (struct cu_stream * stream)) \
	X(stream_wait, cuStreamSynchronize, 2000, 1, (struct cu_stream * stream)) \
	X(stream_query, cuStreamQuery, 2000, 1, (struct cu_stream * stream)) \
	X(stream_wait_event, cuStreamWaitEvent, 3020, 1, \
	  (struct cu_stream * stream, struct cu_event * event, unsigned flags)) \
	X(stream_write, cuStreamWriteValue64, 11070, 0, \
	  (struct cu_stream * stream, cu_u64 at, uint64_t value, unsigned flags)) \
	X(stream_wait_value, cuStreamWaitValue64, 11070, 0, \
	  (struct cu_stream * stream, cu_u64 at, uint64_t value, unsigned flags)) \
	X(event_create, cuEventCreate, 2000, 1, (struct cu_event * *event, unsigned flags)) \
	X(event_record, cuEventRecord, 2000, 1, \
	  (struct cu_event * event, struct cu_stream * stream)) \
	X(event_query, cuEventQuery, 2000, 1, (struct cu_event * event)) \
	X(event_wait, cuEventSynchronize, 2000, 1, (struct cu_event * event)) \
	X(event_destroy, cuEventDestroy, 4000, 1, (struct cu_event * event)) \
	X(event_export, cuIpcGetEventHandle, 4010, 0, \
	  (struct cu_ipc_event * handle, struct cu_event * event)) \
	X(event_import, cuIpcOpenEventHandle, 4010, 0, \
	  (struct cu_event * *event, struct cu_ipc_event handle)) \
	X(copy, cuMemcpyAsync, 4000, 1, \
	  (cu_u64 to, cu_u64 from, size_t bytes, struct cu_stream * stream)) \
	X(copy_batch, cuMemcpyBatchAsync, 13000, 0, \
	  (cu_u64 * to, cu_u64 * from, size_t * bytes, size_t n, \
	   struct cu_copy_attributes * attributes, size_t * first, size_t n_attributes, \
	   struct cu_stream * stream)) \
	X(fill, cuMemsetD8Async, 3020, 1, \
	  (cu_u64 at, uint8_t value, size_t bytes, struct cu_stream * stream)) \
	X(module_load, cuModuleLoadData, 2000, 1, (struct cu_module * *module, const void *image)) \
	X(module_unload, cuModuleUnload, 2000, 1, (struct cu_module * module)) \
	X(module_function, cuModuleGetFunction, 2000, 1, \
	  (struct cu_function * *function, struct cu_module * module, const char *name)) \
	X(launch, cuLaunchKernel, 4000, 1, \
	  (struct cu_function * function, unsigned grid_x, unsigned grid_y, unsigned grid_z, \
	   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, \
	   struct cu_stream *stream, void **arguments, void **extra)) \
	X(capture_begin, cuStreamBeginCapture, 10010, 0, \
	  (struct cu_stream * stream, unsigned mode)) \
	X(capture_end, cuStreamEndCapture, 10000, 0, \
	  (struct cu_stream * stream, struct cu_graph * *graph)) \
	X(graph_instantiate, cuGraphInstantiateWithFlags, 11040, 0, \
	  (struct cu_graph_exec * *exec, struct cu_graph * graph, cu_u64 flags)) \
	X(graph_launch, cuGraphLaunch, 10000, 0, \
	  (struct cu_graph_exec * exec, struct cu_stream * stream)) \
	X(graph_destroy, cuGraphDestroy, 10000, 0, (struct cu_graph * graph)) \
	X(graph_exec_destroy, cuGraphExecDestroy, 10000, 0, (struct cu_graph_exec * exec)) \
	X(flush_rdma_writes, cuFlushGPUDirectRDMAWrites, 11030, 0, \
	  (unsigned target, unsigned scope)) \
	X(error_name, cuGetErrorName, 6000, 1, (unsigned error, const char **text))

struct cuda_calls {
#define CUDA_MEMBER(member, name, since, required, arguments) \
	unsigned(*member) arguments; /* NOLINT: a declaration */
	CUDA_CALLS(CUDA_MEMBER)
#undef CUDA_MEMBER
};

#endif
