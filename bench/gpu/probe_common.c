/*
 * probe_common.c - extents, kernels, children and figures of the probe.
 */
#include "bench/gpu/probe.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/gpu/probe_ptx.h"

const struct cuda_calls *cu;
int probe_device;

bool ok(const char *call, unsigned result)
{
	const char *name = NULL;

	if (result == CU_OK)
		return true;
	(void)cu->error_name(result, &name);
	printf("failed %s %s (%u)\n", call, name ? name : "?", result);
	return false;
}

uint64_t now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void fact(const char *name, const char *fmt, ...)
{
	va_list args;

	printf("fact %s ", name);
	va_start(args, fmt);
	(void)vprintf(fmt, args);
	va_end(args);
	(void)putchar('\n');
}

void figure(const char *name, double value, const char *unit)
{
	printf("figure %s %.6g %s\n", name, value, unit);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double median(double *values, size_t n)
{
	qsort(values, n, sizeof(*values), compare);
	return n ? values[n / 2] : 0;
}

void spread(const char *name, double *values, size_t n, const char *unit)
{
	double middle = median(values, n);

	if (n)
		printf("figure %s %.6g %s p99 %.6g min %.6g n %zu\n", name, middle, unit,
		       values[n - 1 - n / 100], values[0], n);
}

bool context_open(void)
{
	struct cu_context *context;

	return ok("cuDeviceGet", cu->device_get(&probe_device, 0)) &&
	       ok("cuDevicePrimaryCtxRetain", cu->context_retain(&context, probe_device)) &&
	       ok("cuCtxSetCurrent", cu->context_set(context));
}

struct cu_mem_prop extent_prop(bool rdma)
{
	struct cu_mem_prop prop = {
		.type = CU_ALLOCATION_PINNED,
		.handle_types = CU_HANDLE_POSIX_FD,
		.location = { CU_LOCATION_DEVICE, probe_device },
	};

	prop.flags.gpu_direct_rdma = rdma;
	return prop;
}

bool extent_map(struct extent *extent)
{
	struct cu_mem_access access = { { CU_LOCATION_DEVICE, probe_device }, CU_ACCESS_READWRITE };

	return ok("cuMemAddressReserve", cu->mem_reserve(&extent->at, extent->bytes, 0, 0, 0)) &&
	       ok("cuMemMap", cu->mem_map(extent->at, extent->bytes, 0, extent->handle, 0)) &&
	       ok("cuMemSetAccess", cu->mem_set_access(extent->at, extent->bytes, &access, 1));
}

bool extent_make(struct extent *extent, size_t bytes)
{
	struct cu_mem_prop prop = extent_prop(false);

	extent->bytes = bytes;
	return ok("cuMemCreate", cu->mem_create(&extent->handle, bytes, &prop, 0)) &&
	       extent_map(extent);
}

bool extent_adopt(struct extent *extent, int fd, size_t bytes)
{
	extent->bytes = bytes;
	return ok("cuMemImportFromShareableHandle",
		  cu->mem_import(&extent->handle, (void *)(intptr_t)fd, CU_HANDLE_POSIX_FD)) &&
	       extent_map(extent);
}

void extent_drop(struct extent *extent)
{
	(void)ok("cuMemUnmap", cu->mem_unmap(extent->at, extent->bytes));
	(void)ok("cuMemAddressFree", cu->mem_unreserve(extent->at, extent->bytes));
	(void)ok("cuMemRelease", cu->mem_release(extent->handle));
}

int extent_export(const struct extent *extent)
{
	int fd = -1;

	if (!ok("cuMemExportToShareableHandle",
		cu->mem_export(&fd, extent->handle, CU_HANDLE_POSIX_FD, 0)))
		return -1;
	return fd;
}

bool extent_fill(const struct extent *extent, uint8_t value)
{
	return ok("cuMemsetD8Async", cu->fill(extent->at, value, extent->bytes, NULL)) &&
	       ok("cuCtxSynchronize", cu->context_wait());
}

bool extent_holds(const struct extent *extent, uint8_t value)
{
	uint8_t *copy = malloc(extent->bytes);
	bool same = copy != NULL;

	if (copy)
		memset(copy, (uint8_t)~value, extent->bytes);
	same = same &&
	       ok("cuMemcpyAsync",
		  cu->copy((cu_u64)(uintptr_t)copy, extent->at, extent->bytes, NULL)) &&
	       ok("cuCtxSynchronize", cu->context_wait());
	for (size_t i = 0; same && i < extent->bytes; i++)
		same = copy[i] == value;
	free(copy);
	return same;
}

struct cu_function *kernel(const char *name)
{
	static struct cu_module *module;
	struct cu_function *function = NULL;

	if (!module && !ok("cuModuleLoadData", cu->module_load(&module, probe_ptx)))
		return NULL;
	(void)ok("cuModuleGetFunction", cu->module_function(&function, module, name));
	return function;
}

bool spin(struct cu_stream *stream, uint64_t ns)
{
	static struct cu_function *function;
	void *args[] = { &ns };

	if (!function)
		function = kernel("probe_spin");
	return function &&
	       ok("cuLaunchKernel", cu->launch(function, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

struct cu_stream *stream_make(void)
{
	struct cu_stream *stream = NULL;

	(void)ok("cuStreamCreateWithPriority",
		 cu->stream_create(&stream, CU_STREAM_NON_BLOCKING_FLAG, 0));
	return stream;
}

int child_start(const char *role, int *socket_out)
{
	int pair[2], pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -1;
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		if (pair[1] != 3)
			(void)dup2(pair[1], 3);
		(void)fcntl(3, F_SETFD, 0);
		(void)execl("/proc/self/exe", "probe", "--child", role, (char *)NULL);
		_exit(127);
	}
	(void)close(pair[1]);
	*socket_out = pair[0];
	return pid;
}

void child_end(int pid)
{
	int status;

	(void)waitpid(pid, &status, 0);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		printf("fact child status %#x\n", (unsigned)status);
}

bool send_fd(int socket, int fd, const void *bytes, size_t len)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec part = { (void *)(uintptr_t)bytes, len };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control) };

	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	return sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)len;
}

int receive_fd(int socket, void *bytes, size_t len)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec part = { bytes, len };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control) };
	int fd = -1;

	if (recvmsg(socket, &message, 0) == (ssize_t)len && message.msg_controllen)
		memcpy(&fd, CMSG_DATA(&control.head), sizeof(fd));
	return fd;
}

bool send_bytes(int socket, const void *bytes, size_t len)
{
	return send(socket, bytes, len, MSG_NOSIGNAL) == (ssize_t)len;
}

bool receive_bytes(int socket, void *bytes, size_t len)
{
	return recv(socket, bytes, len, 0) == (ssize_t)len;
}

volatile uint64_t *page_adopt(int fd)
{
	void *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return at == MAP_FAILED ? NULL : at;
}

volatile uint64_t *page_make(int *fd_out)
{
	int fd = memfd_create("progress", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, (off_t)PAGE))
		return NULL;
	*fd_out = fd;
	return page_adopt(fd);
}
