/*
 * A libpmem that remembers what was made durable, for tests. It maps by the real one, and keeps a
 * shadow: a copy of the file that gets a line only when that line is persisted, as a power failure
 * would leave it if no cache ever wrote a line back by itself.
 *
 *   RLV_SHADOW_FILE     where the shadow goes; unset = do as the real library does
 *   RLV_SHADOW_OMIT     N: the N-th persist since the mapping never happens (the control: a test
 *                       that does not notice would notice nothing)
 *   RLV_SHADOW_OMIT_AT  OFFSET: no persist that begins there ever happens, however often it is tried
 *   RLV_SHADOW_LOG      each persist is appended there: number, offset, length
 *
 * One mapping in a process, as Relive has. Persists of several threads are taken one by one.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LINE ((uintptr_t)64)
#define EXPORT __attribute__((visibility("default")))

typedef void *map_fn(const char *, size_t, int, unsigned, size_t *, int *);
typedef void persist_fn(const void *, size_t);
typedef int range_fn(const void *, size_t);

EXPORT void *pmem_map_file(const char *path, size_t len, int flags, unsigned mode, size_t *len_out,
			   int *is_pmem_out);
EXPORT void pmem_persist(const void *addr, size_t len);
EXPORT int pmem_msync(const void *addr, size_t len);
EXPORT int pmem_unmap(void *addr, size_t len);

static struct {
	pthread_mutex_t lock;
	const uint8_t *live;
	uint8_t *durable; /* NULL: no shadow is kept */
	size_t bytes;
	uint64_t persists;
	uint64_t omit;
	uint64_t omit_at; /* UINT64_MAX = none */
	int log;
} shadow = { .lock = PTHREAD_MUTEX_INITIALIZER, .omit_at = UINT64_MAX, .log = -1 };

static void *real(const char *name)
{
	static void *library;

	if (!library)
		library = dlopen(RLV_REAL_LIBPMEM, RTLD_NOW | RTLD_LOCAL);
	return library ? dlsym(library, name) : NULL;
}

static uint8_t *create_copy(const char *path, const uint8_t *live, size_t bytes)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	void *copy = MAP_FAILED;

	if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
		copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	if (copy == MAP_FAILED)
		return NULL;
	/* Pages of zeros stay holes. */
	for (size_t off = 0; off < bytes; off += 4096)
		for (size_t i = 0; i < 4096; i += 8)
			if (memcmp(live + off + i, "\0\0\0\0\0\0\0", 8) != 0) {
				memcpy((uint8_t *)copy + off, live + off, 4096);
				break;
			}
	return copy;
}

void *pmem_map_file(const char *path, size_t len, int flags, unsigned mode, size_t *len_out,
		    int *is_pmem_out)
{
	const char *to = getenv("RLV_SHADOW_FILE"), *omit = getenv("RLV_SHADOW_OMIT");
	const char *omit_at = getenv("RLV_SHADOW_OMIT_AT"), *log = getenv("RLV_SHADOW_LOG");
	void *symbol = real("pmem_map_file");
	map_fn *map;
	void *base;

	memcpy(&map, &symbol, sizeof(map));
	if (!map) {
		errno = ENOSYS;
		return NULL;
	}
	base = map(path, len, flags, mode, len_out, is_pmem_out);
	if (!base || !to)
		return base;
	pthread_mutex_lock(&shadow.lock);
	shadow.live = base;
	shadow.bytes = *len_out;
	shadow.persists = 0;
	shadow.omit = omit ? strtoull(omit, NULL, 0) : 0;
	shadow.omit_at = omit_at ? strtoull(omit_at, NULL, 0) : UINT64_MAX;
	shadow.log = log ? open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
	shadow.durable = create_copy(to, base, *len_out);
	pthread_mutex_unlock(&shadow.lock);
	*is_pmem_out = 1;
	return base;
}

static void remember(const void *addr, size_t len)
{
	uintptr_t from = (uintptr_t)addr & ~(LINE - 1);
	uintptr_t to = ((uintptr_t)addr + len + LINE - 1) & ~(LINE - 1);
	size_t off = from - (uintptr_t)shadow.live;

	pthread_mutex_lock(&shadow.lock);
	if (shadow.durable && from >= (uintptr_t)shadow.live && off < shadow.bytes) {
		shadow.persists++;
		if (shadow.log >= 0)
			dprintf(shadow.log, "%llu %zu %zu\n", (unsigned long long)shadow.persists,
				off, len);
		if (shadow.persists != shadow.omit && off != shadow.omit_at)
			memcpy(shadow.durable + off, (const void *)from, to - from);
	}
	pthread_mutex_unlock(&shadow.lock);
}

void pmem_persist(const void *addr, size_t len)
{
	void *symbol = real("pmem_persist");
	persist_fn *persist;

	memcpy(&persist, &symbol, sizeof(persist));
	if (persist)
		persist(addr, len);
	remember(addr, len);
}

int pmem_msync(const void *addr, size_t len)
{
	void *symbol = real("pmem_msync");
	range_fn *sync;

	memcpy(&sync, &symbol, sizeof(sync));
	return sync ? sync(addr, len) : -1;
}

int pmem_unmap(void *addr, size_t len)
{
	void *symbol = real("pmem_unmap");
	range_fn *unmap;

	memcpy(&unmap, &symbol, sizeof(unmap));
	pthread_mutex_lock(&shadow.lock);
	if (shadow.durable && shadow.live == addr) {
		munmap(shadow.durable, shadow.bytes);
		shadow.durable = NULL;
		if (shadow.log >= 0)
			close(shadow.log);
	}
	pthread_mutex_unlock(&shadow.lock);
	return unmap ? unmap(addr, len) : -1;
}
