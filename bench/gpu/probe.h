/*
 * probe.h - what the parts of the probe share: it measures what the device pool expects of a GPU.
 *
 * Each result is a line `figure NAME VALUE UNIT` or `fact NAME VALUE`; a call that fails prints
 * `failed NAME MESSAGE` and the part goes on, so that one run says as much as possible.
 */
#ifndef RLV_BENCH_GPU_PROBE_H
#define RLV_BENCH_GPU_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/cuda/calls.h"

#define MIB ((size_t)1 << 20)

extern const struct cuda_calls *cu;
extern int probe_device;

/* True if the result is CU_OK; else prints the failure of the call. */
bool ok(const char *call, unsigned result);

uint64_t now_ns(void);
void fact(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void figure(const char *name, double value, const char *unit);
/* Prints the median and the 99th percentile of n values; sorts them. */
void spread(const char *name, double *values, size_t n, const char *unit);
double median(double *values, size_t n);

/* The primary context, current on this thread. False: printed. */
bool context_open(void);

/* One extent of memory, mapped at an address of its own. */
struct extent {
	cu_u64 handle, at;
	size_t bytes;
};
struct cu_mem_prop extent_prop(bool rdma);
bool extent_make(struct extent *extent, size_t bytes);
bool extent_adopt(struct extent *extent, int fd, size_t bytes); /* of a descriptor */
bool extent_map(struct extent *extent);                         /* at a new address */
void extent_drop(struct extent *extent);
int extent_export(const struct extent *extent); /* a descriptor, or -1 */
/* Whether all bytes of the extent are value, as a copy to the host sees them. */
bool extent_holds(const struct extent *extent, uint8_t value);
bool extent_fill(const struct extent *extent, uint8_t value);

/* A kernel of the probe by its name, or NULL. */
struct cu_function *kernel(const char *name);
bool spin(struct cu_stream *stream, uint64_t ns);
struct cu_stream *stream_make(void);

/*
 * Runs this program again as `role`, with a socket as its descriptor 3. Children start before or after
 * cuInit alike, since they are executed anew. Returns the process, and our end of the socket.
 */
int child_start(const char *role, int *socket_out);
void child_end(int pid);
bool send_fd(int socket, int fd, const void *bytes, size_t len);
int receive_fd(int socket, void *bytes, size_t len); /* -1: none came with it */
bool send_bytes(int socket, const void *bytes, size_t len);
bool receive_bytes(int socket, void *bytes, size_t len);

/* A page of shared memory behind a descriptor. */
#define PAGE ((size_t)4096)
volatile uint64_t *page_make(int *fd_out);
volatile uint64_t *page_adopt(int fd);

void part_attributes(void);
void part_context(void);
void part_vmm(void);
void part_stall(void);
void part_share(void);
void part_progress(void);
void part_events(void);
void part_dmabuf(void);
void part_handover(void);
void part_gather(void);

void child_context(int socket);
void child_importer(int socket);
void child_owner(int socket);
void child_watcher(int socket);
void child_events(int socket);
void child_handover(int socket);

#endif
