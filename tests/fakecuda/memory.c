/*
 * memory.c - handles, addresses, mappings and registered memory of the fake driver.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fakecuda/fake.h"

#define MOST 4096

static struct handle {
	int fd; /* of a memfd; 0: free */
	uint32_t generation, mappings;
	size_t bytes;
	struct cu_mem_prop prop;
	bool imported;
} handles[MOST];

static struct range {
	cu_u64 at; /* 0: free */
	size_t bytes;
	struct handle *handle; /* of a mapping */
	bool access;
} reserved[MOST], mapped[MOST], registered[MOST];

static size_t device_bytes = (size_t)1 << 30;

static bool overlaps(const struct range *range, cu_u64 at, size_t bytes)
{
	return range->at && at < range->at + range->bytes && range->at < at + bytes;
}

static bool holds(const struct range *range, cu_u64 at, size_t bytes)
{
	return range->at && at >= range->at && at - range->at <= range->bytes &&
	       bytes <= range->bytes - (at - range->at);
}

static struct range *find(struct range *ranges, cu_u64 at, size_t bytes)
{
	for (int i = 0; i < MOST; i++) {
		if (holds(&ranges[i], at, bytes))
			return &ranges[i];
	}
	return NULL;
}

static struct range *free_range(struct range *ranges)
{
	for (int i = 0; i < MOST; i++) {
		if (!ranges[i].at)
			return &ranges[i];
	}
	return NULL;
}

/* Neighbouring extents are one range for a kernel, and for a dma-buf. */
static bool is_mapped(cu_u64 at, size_t bytes)
{
	cu_u64 end = at + bytes;

	while (at < end) {
		const struct range *range = find(mapped, at, 1);

		if (!range || !range->access)
			return false;
		at = range->at + range->bytes;
	}
	return true;
}

bool fake_device_range(cu_u64 at, size_t bytes)
{
	return find(registered, at, bytes) || is_mapped(at, bytes);
}

bool fake_any_range(cu_u64 at, size_t bytes)
{
	for (int i = 0; i < MOST; i++) {
		if (overlaps(&reserved[i], at, bytes))
			return fake_device_range(at, bytes);
	}
	return at != 0;
}

size_t fake_mapped_bytes(void)
{
	size_t sum = 0;

	for (int i = 0; i < MOST; i++)
		sum += mapped[i].at ? mapped[i].bytes : 0;
	return sum;
}

size_t fake_created_bytes(void)
{
	size_t sum = 0;

	for (int i = 0; i < MOST; i++)
		sum += handles[i].fd && !handles[i].imported ? handles[i].bytes : 0;
	return sum;
}

size_t fake_memory(size_t bytes)
{
	if (bytes)
		device_bytes = bytes;
	return device_bytes;
}

static cu_u64 handle_number(const struct handle *handle)
{
	return ((cu_u64)handle->generation << 32) | (cu_u64)(handle - handles + 1);
}

static struct handle *handle_of(cu_u64 number)
{
	size_t at = (uint32_t)number;

	if (at < 1 || at > MOST || !handles[at - 1].fd ||
	    handles[at - 1].generation != number >> 32)
		return NULL;
	return &handles[at - 1];
}

/* Takes the descriptor. NULL: the table is full, and it is closed. */
static struct handle *handle_take(int fd, size_t bytes, const struct cu_mem_prop *prop)
{
	for (int i = 0; i < MOST; i++) {
		uint32_t generation = handles[i].generation + 1;

		if (handles[i].fd)
			continue;
		handles[i] = (struct handle){ .fd = fd, .generation = generation, .bytes = bytes };
		if (prop)
			handles[i].prop = *prop;
		handles[i].imported = !prop;
		return &handles[i];
	}
	(void)close(fd);
	return NULL;
}

unsigned cuMemGetAllocationGranularity(size_t *bytes, const struct cu_mem_prop *prop,
				       unsigned option)
{
	FAKE_ENTER(mem_granularity);
	if (prop->type != CU_ALLOCATION_PINNED || option > 1)
		return CU_INVALID_VALUE;
	*bytes = GRANULARITY;
	return CU_OK;
}

unsigned cuMemGetInfo(size_t *free_out, size_t *total)
{
	FAKE_ENTER(mem_info);
	fake_lock();
	*total = device_bytes;
	*free_out = device_bytes - fake_created_bytes();
	fake_unlock();
	return CU_OK;
}

unsigned cuMemAddressReserve(cu_u64 *at, size_t bytes, size_t alignment, cu_u64 hint, cu_u64 flags)
{
	struct range *range;
	void *memory;

	FAKE_ENTER(mem_reserve);
	if (!bytes || bytes % GRANULARITY || alignment > GRANULARITY || flags)
		return CU_INVALID_VALUE;
	(void)hint;
	memory = mmap(NULL, bytes + GRANULARITY, PROT_NONE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return CU_OUT_OF_MEMORY;
	fake_lock();
	range = free_range(reserved);
	if (range) {
		cu_u64 start =
			((cu_u64)(uintptr_t)memory + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
		size_t before = (size_t)(start - (cu_u64)(uintptr_t)memory);

		if (before)
			(void)munmap(memory, before);
		if (before < GRANULARITY)
			(void)munmap((void *)(uintptr_t)(start + bytes), GRANULARITY - before);
		*range = (struct range){ .at = start, .bytes = bytes };
		*at = start;
	}
	fake_unlock();
	return range ? CU_OK : CU_OUT_OF_MEMORY;
}

unsigned cuMemAddressFree(cu_u64 at, size_t bytes)
{
	struct range *range;
	unsigned result = CU_OK;

	FAKE_ENTER(mem_unreserve);
	fake_lock();
	range = find(reserved, at, bytes);
	for (int i = 0; i < MOST; i++) {
		if (overlaps(&mapped[i], at, bytes)) {
			fake_violation("cuMemAddressFree: a mapping is still there");
			result = CU_INVALID_VALUE;
		}
	}
	if (!range || range->at != at || range->bytes != bytes)
		result = CU_INVALID_VALUE;
	if (result == CU_OK) {
		(void)munmap((void *)(uintptr_t)at, bytes);
		range->at = 0;
	}
	fake_unlock();
	return result;
}

/* New memory has somebody's bytes, at both ends. False: it cannot be written. */
static bool dirty(int fd, size_t bytes)
{
	static const char theirs[64] = "somebody's";
	off_t last = (off_t)(bytes - sizeof(theirs));

	return pwrite(fd, theirs, sizeof(theirs), 0) == sizeof(theirs) &&
	       pwrite(fd, theirs, sizeof(theirs), last) == sizeof(theirs);
}

unsigned cuMemCreate(cu_u64 *number, size_t bytes, const struct cu_mem_prop *prop, cu_u64 flags)
{
	struct handle *handle = NULL;
	int fd;

	FAKE_ENTER(mem_create);
	if (!bytes || bytes % GRANULARITY || flags || prop->type != CU_ALLOCATION_PINNED ||
	    prop->location.type != CU_LOCATION_DEVICE || prop->location.id || prop->win32)
		return CU_INVALID_VALUE;
	fake_lock();
	fd = fake_created_bytes() + bytes > device_bytes ? -1
							 : memfd_create("fakecuda", MFD_CLOEXEC);
	if (fd >= 0 && (ftruncate(fd, (off_t)bytes) || !dirty(fd, bytes))) {
		(void)close(fd);
		fd = -1;
	}
	if (fd >= 0)
		handle = handle_take(fd, bytes, prop);
	if (handle)
		*number = handle_number(handle);
	fake_unlock();
	return handle ? CU_OK : CU_OUT_OF_MEMORY;
}

unsigned cuMemRelease(cu_u64 number)
{
	struct handle *handle;
	unsigned result = CU_OK;

	FAKE_ENTER(mem_release);
	fake_lock();
	handle = handle_of(number);
	if (!handle) {
		fake_violation("cuMemRelease: no such handle");
		result = CU_INVALID_VALUE;
	} else if (handle->mappings) {
		fake_violation("cuMemRelease: the handle is still mapped");
		result = CU_INVALID_VALUE;
	} else {
		(void)close(handle->fd);
		handle->fd = 0;
	}
	fake_unlock();
	return result;
}

unsigned cuMemMap(cu_u64 at, size_t bytes, size_t offset, cu_u64 number, cu_u64 flags)
{
	struct handle *handle;
	struct range *range = NULL;
	bool free_place;

	FAKE_ENTER(mem_map);
	fake_lock();
	handle = handle_of(number);
	free_place = find(reserved, at, bytes) != NULL;
	for (int i = 0; i < MOST; i++)
		free_place = free_place && !overlaps(&mapped[i], at, bytes);
	if (handle && free_place && bytes == handle->bytes && !offset && !flags &&
	    at % GRANULARITY == 0)
		range = free_range(mapped);
	if (range && mmap((void *)(uintptr_t)at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
			  handle->fd, 0) == MAP_FAILED)
		range = NULL;
	if (range) {
		*range = (struct range){ .at = at, .bytes = bytes, .handle = handle };
		handle->mappings++;
	} else {
		fake_violation("cuMemMap: not a whole live handle at a reserved, free place");
	}
	fake_unlock();
	return range ? CU_OK : CU_INVALID_VALUE;
}

/* With the lock held: whether [at, at + bytes) is whole mappings, one after another. */
static bool whole_mappings(cu_u64 at, size_t bytes)
{
	cu_u64 end = at + bytes;

	while (at < end) {
		const struct range *range = find(mapped, at, 1);

		if (!range || range->at != at || range->bytes > end - at)
			return false;
		at += range->bytes;
	}
	return true;
}

unsigned cuMemSetAccess(cu_u64 at, size_t bytes, const struct cu_mem_access *access, size_t n)
{
	int protection = access->flags == CU_ACCESS_READWRITE ? PROT_READ | PROT_WRITE
			 : access->flags == CU_ACCESS_READ    ? PROT_READ
							      : PROT_NONE;
	bool good;

	FAKE_ENTER(mem_set_access);
	if (n != 1 || access->location.type != CU_LOCATION_DEVICE || access->location.id)
		return CU_INVALID_VALUE;
	fake_lock();
	good = whole_mappings(at, bytes) && mprotect((void *)(uintptr_t)at, bytes, protection) == 0;
	for (int i = 0; good && i < MOST; i++) {
		if (overlaps(&mapped[i], at, bytes))
			mapped[i].access = protection != PROT_NONE;
	}
	if (!good)
		fake_violation("cuMemSetAccess: not whole mappings");
	fake_unlock();
	return good ? CU_OK : CU_INVALID_VALUE;
}

unsigned cuMemUnmap(cu_u64 at, size_t bytes)
{
	bool good;

	FAKE_ENTER(mem_unmap);
	fake_lock();
	good = bytes && whole_mappings(at, bytes);
	if (!good)
		fake_violation("cuMemUnmap: not whole mappings");
	else if (fake_busy(at, bytes, NULL))
		fake_violation("cuMemUnmap: work of a stream still uses the memory");
	for (int i = 0; good && i < MOST; i++) {
		if (overlaps(&mapped[i], at, bytes)) {
			mapped[i].handle->mappings--;
			mapped[i].at = 0;
		}
	}
	if (good)
		good = mmap((void *)(uintptr_t)at, bytes, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
			    0) != MAP_FAILED;
	fake_unlock();
	return good ? CU_OK : CU_INVALID_VALUE;
}

unsigned cuMemExportToShareableHandle(void *shared, cu_u64 number, unsigned type, cu_u64 flags)
{
	struct handle *handle;
	int fd = -1;

	FAKE_ENTER(mem_export);
	fake_lock();
	handle = handle_of(number);
	if (handle && type == CU_HANDLE_POSIX_FD && !flags &&
	    (handle->imported || handle->prop.handle_types & CU_HANDLE_POSIX_FD))
		fd = fcntl(handle->fd, F_DUPFD_CLOEXEC, 1);
	fake_unlock();
	if (fd < 0)
		return CU_INVALID_VALUE;
	*(int *)shared = fd;
	return CU_OK;
}

unsigned cuMemImportFromShareableHandle(cu_u64 *number, void *shared, unsigned type)
{
	struct handle *handle = NULL;
	struct stat file;
	int fd;

	FAKE_ENTER(mem_import);
	if (type != CU_HANDLE_POSIX_FD || fstat((int)(intptr_t)shared, &file) ||
	    file.st_size % (off_t)GRANULARITY || !file.st_size)
		return CU_INVALID_VALUE;
	fd = fcntl((int)(intptr_t)shared, F_DUPFD_CLOEXEC, 1);
	fake_lock();
	if (fd >= 0)
		handle = handle_take(fd, (size_t)file.st_size, NULL);
	if (handle)
		*number = handle_number(handle);
	fake_unlock();
	return handle ? CU_OK : CU_OPERATING_SYSTEM;
}

/* The descriptor is the memfd of the first extent, which can be mapped; a real one cannot, and has all of them. */
unsigned cuMemGetHandleForAddressRange(void *shared, cu_u64 at, size_t bytes, unsigned type,
				       cu_u64 flags)
{
	const struct range *range;
	int fd = -1;

	FAKE_ENTER(mem_range_handle);
	fake_lock();
	range = find(mapped, at, 1);
	if (range && at == range->at && bytes && bytes % 4096 == 0 && is_mapped(at, bytes) &&
	    type == CU_RANGE_DMA_BUF_FD && !flags)
		fd = fcntl(range->handle->fd, F_DUPFD_CLOEXEC, 1);
	fake_unlock();
	if (fd < 0)
		return CU_INVALID_VALUE;
	*(int *)shared = fd;
	return CU_OK;
}

unsigned cuMemHostRegister(void *at, size_t bytes, unsigned flags)
{
	struct range *range = NULL;

	FAKE_ENTER(host_register);
	fake_lock();
	for (int i = 0; i < MOST; i++) {
		if (overlaps(&registered[i], (cu_u64)(uintptr_t)at, bytes)) {
			fake_unlock();
			return CU_INVALID_VALUE;
		}
	}
	if (at && bytes && !(flags & ~(CU_HOST_PORTABLE | CU_HOST_DEVICEMAP | CU_HOST_READONLY)))
		range = free_range(registered);
	if (range)
		*range = (struct range){ .at = (cu_u64)(uintptr_t)at,
					 .bytes = bytes,
					 .access = true };
	fake_unlock();
	return range ? CU_OK : CU_INVALID_VALUE;
}

unsigned cuMemHostUnregister(void *at)
{
	struct range *range;
	bool good;

	FAKE_ENTER(host_unregister);
	fake_lock();
	range = find(registered, (cu_u64)(uintptr_t)at, 1);
	good = range && range->at == (cu_u64)(uintptr_t)at;
	if (good && fake_busy(range->at, range->bytes, NULL))
		fake_violation("cuMemHostUnregister: work of a stream still uses the memory");
	if (good)
		range->at = 0;
	fake_unlock();
	return good ? CU_OK : CU_INVALID_VALUE;
}

unsigned cuMemHostGetDevicePointer(cu_u64 *at, void *host, unsigned flags)
{
	bool good;

	FAKE_ENTER(host_device_pointer);
	fake_lock();
	good = !flags && find(registered, (cu_u64)(uintptr_t)host, 1) != NULL;
	fake_unlock();
	if (good)
		*at = (cu_u64)(uintptr_t)host;
	return good ? CU_OK : CU_INVALID_VALUE;
}
