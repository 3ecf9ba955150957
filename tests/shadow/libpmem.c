/*
 * A libpmem that remembers what was made durable, for tests. It maps by the real one, and keeps a
 * shadow: a copy of the file that gets a line only when that line is persisted, as a power failure
 * would leave it if no cache ever wrote a line back by itself.
 *
 *   RLV_SHADOW_FILE     where the shadow of the file mapped last goes, or
 *   RLV_SHADOW_DIR      the folder where those of all files go, each by its file's name; neither =
 *                       do as the real library does
 *   RLV_SHADOW_OMIT     N: the N-th persist since the mapping never happens (the control: a test
 *                       that does not notice would notice nothing)
 *   RLV_SHADOW_OMIT_AT  OFFSET: no persist that begins there ever happens, however often it is tried
 *   RLV_SHADOW_OMIT_OF  SUFFIX: no persist of a file whose name ends so ever happens
 *   RLV_SHADOW_LOG      each persist is appended there: number, offset, length
 *
 * Persists of several threads are taken one by one.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
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

#define MAPPINGS 64

struct mapping {
	const uint8_t *live; /* NULL = free */
	uint8_t *durable;
	size_t bytes;
	uint64_t persists;
	bool omitted;
};

static struct {
	pthread_mutex_t lock;
	struct mapping mappings[MAPPINGS];
	uint64_t omit, omit_at;
	int log;
} shadow = { .lock = PTHREAD_MUTEX_INITIALIZER, .log = -1 };

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

/* Name of the file behind path, which names a descriptor; a file being made has its later name. */
static void name_of(const char *path, char name[256])
{
	char target[4096];
	ssize_t n = readlink(path, target, sizeof(target) - 1);
	const char *base;
	size_t length;

	target[n > 0 ? n : 0] = '\0';
	base = strrchr(target, '/');
	base = base ? base + 1 : target;
	length = strlen(base);
	if (length > 4 && strcmp(base + length - 4, ".tmp") == 0)
		length -= 4;
	(void)snprintf(name, 256, "%.*s", (int)length, base);
}

static bool ends_with(const char *name, const char *suffix)
{
	return suffix && strlen(suffix) <= strlen(name) &&
	       strcmp(name + strlen(name) - strlen(suffix), suffix) == 0;
}

/* In a folder each file has a place, else there is one for all. */
static struct mapping *take_place(bool in_folder)
{
	struct mapping *place = shadow.mappings;

	while (in_folder && place->live && place < shadow.mappings + MAPPINGS - 1)
		place++;
	return place;
}

static void keep_shadow(const char *path, const uint8_t *live, size_t bytes)
{
	const char *file = getenv("RLV_SHADOW_FILE"), *dir = getenv("RLV_SHADOW_DIR");
	const char *omit = getenv("RLV_SHADOW_OMIT"), *omit_at = getenv("RLV_SHADOW_OMIT_AT");
	const char *log = getenv("RLV_SHADOW_LOG");
	struct mapping *place = take_place(dir != NULL);
	char name[256], to[4096];

	name_of(path, name);
	if (dir && mkdir(dir, 0700) && errno != EEXIST)
		abort();
	(void)snprintf(to, sizeof(to), "%s%s%s", dir ? dir : file, dir ? "/" : "", dir ? name : "");
	shadow.omit = omit ? strtoull(omit, NULL, 0) : 0;
	shadow.omit_at = omit_at ? strtoull(omit_at, NULL, 0) : UINT64_MAX;
	if (shadow.log < 0 && log)
		shadow.log = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	*place = (struct mapping){
		.live = live,
		.bytes = bytes,
		.omitted = ends_with(name, getenv("RLV_SHADOW_OMIT_OF")),
		.durable = create_copy(to, live, bytes),
	};
	if (!place->durable)
		abort();
}

void *pmem_map_file(const char *path, size_t len, int flags, unsigned mode, size_t *len_out,
		    int *is_pmem_out)
{
	void *symbol = real("pmem_map_file");
	map_fn *map;
	void *base;

	memcpy(&map, &symbol, sizeof(map));
	if (!map) {
		errno = ENOSYS;
		return NULL;
	}
	base = map(path, len, flags, mode, len_out, is_pmem_out);
	if (!base || (!getenv("RLV_SHADOW_FILE") && !getenv("RLV_SHADOW_DIR")))
		return base;
	pthread_mutex_lock(&shadow.lock);
	keep_shadow(path, base, *len_out);
	pthread_mutex_unlock(&shadow.lock);
	*is_pmem_out = 1;
	return base;
}

/* The lock is held. */
static struct mapping *find(const void *addr)
{
	for (size_t i = 0; i < MAPPINGS; i++) {
		struct mapping *mapping = &shadow.mappings[i];

		if (mapping->live && (const uint8_t *)addr >= mapping->live &&
		    (const uint8_t *)addr < mapping->live + mapping->bytes)
			return mapping;
	}
	return NULL;
}

static void remember(const void *addr, size_t len)
{
	uintptr_t from = (uintptr_t)addr & ~(LINE - 1);
	uintptr_t to = ((uintptr_t)addr + len + LINE - 1) & ~(LINE - 1);
	struct mapping *mapping;

	pthread_mutex_lock(&shadow.lock);
	mapping = find((const void *)from);
	if (mapping) {
		size_t off = from - (uintptr_t)mapping->live;

		mapping->persists++;
		if (shadow.log >= 0)
			dprintf(shadow.log, "%llu %zu %zu\n", (unsigned long long)mapping->persists,
				off, len);
		if (mapping->persists != shadow.omit && !mapping->omitted &&
		    (uintptr_t)addr - (uintptr_t)mapping->live != shadow.omit_at)
			memcpy(mapping->durable + off, (const void *)from, to - from);
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
	struct mapping *mapping;
	range_fn *unmap;

	memcpy(&unmap, &symbol, sizeof(unmap));
	pthread_mutex_lock(&shadow.lock);
	mapping = find(addr);
	if (mapping) {
		munmap(mapping->durable, mapping->bytes);
		*mapping = (struct mapping){ 0 };
	}
	pthread_mutex_unlock(&shadow.lock);
	return unmap ? unmap(addr, len) : -1;
}
