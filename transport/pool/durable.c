/*
 * durable.c - libpmem, or mmap and msync.
 */
#include "transport/pool/durable.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

#include "transport/pool/map.h"

static struct {
	void *(*map_file)(const char *path, size_t len, int flags, unsigned mode, size_t *len_out,
			  int *is_pmem_out);
	void (*persist)(const void *addr, size_t len);
	int (*msync)(const void *addr, size_t len);
	int (*unmap)(void *addr, size_t len);
	bool found;
} pmem;

static pthread_once_t once = PTHREAD_ONCE_INIT;

/*
 * Finds a function of the library: *fn_out, by memcpy, since dlsym gives a data pointer and C has
 * no cast from that to a function. False: not found.
 */
static bool durable_find(void *library, const char *name, void *fn_out)
{
	void *symbol = dlsym(library, name);

	memcpy(fn_out, &symbol, sizeof(symbol));
	return symbol != NULL;
}

static void durable_load(void)
{
	void *library = dlopen("libpmem.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		log_info("dlopen %s", dlerror());
		return;
	}
	pmem.found = durable_find(library, "pmem_map_file", &pmem.map_file) &&
		     durable_find(library, "pmem_persist", &pmem.persist) &&
		     durable_find(library, "pmem_msync", &pmem.msync) &&
		     durable_find(library, "pmem_unmap", &pmem.unmap);
	if (!pmem.found)
		dlclose(library);
}

bool durable_has_library(void)
{
	return pthread_once(&once, durable_load) == 0 && pmem.found;
}

int durable_map(int fd, uint64_t size, struct durable *map_out)
{
	int is_pmem = 0, ret;
	char path[64];
	size_t len = 0;
	void *base;

	*map_out = (struct durable){ .size = size };
	if (!durable_has_library())
		return map_shared(fd, 0, size, MAP_WRITABLE, &map_out->base);
	/* our descriptor holds the lock; /proc/self/fd names the same file even after a rename */
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	base = pmem.map_file(path, 0, 0, 0, &len, &is_pmem);
	if (!base)
		return error_set(errno ? -errno : -EIO, "pmem_map_file: %s", strerror(errno));
	*map_out = (struct durable){
		.base = base, .size = len, .by_library = true, .is_pmem = is_pmem != 0
	};
	if (len < size)
		ret = error_set(-EIO, "pmem_map_file: mapped %zu bytes of %llu", len,
				(unsigned long long)size);
	else
		ret = map_protect(base, len, false);
	if (ret)
		durable_unmap(map_out);
	return ret;
}

void durable_unmap(struct durable *map)
{
	if (map->by_library)
		(void)pmem.unmap(map->base, map->size);
	else
		map_release(map->base, map->size);
	*map = (struct durable){ 0 };
}

int durable_persist(const struct durable *map, uint64_t off, uint64_t len)
{
	if (!map->by_library)
		return map_persist(map->base, off, len);
	if (map->is_pmem) {
		pmem.persist(map->base + off, len);
		return 0;
	}
	if (pmem.msync(map->base + off, len))
		return error_set(-errno, "pmem_msync of %llu bytes: %s", (unsigned long long)len,
				 strerror(errno));
	return 0;
}
