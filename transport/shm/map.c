/*
 * map.c - mmap with the advice that every region gets.
 */
#include "transport/shm/map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int map_protect(void *base, uint64_t size, bool huge)
{
	int saved;

	if (madvise(base, size, MADV_DONTFORK)) {
		saved = errno;
		return error_set(-saved, "madvise dontfork of %llu bytes: %s",
				 (unsigned long long)size, strerror(saved));
	}
	/* Advice only: refused where the kernel has no huge pages for this kind of memory. */
	if (huge)
		(void)madvise(base, size, MADV_HUGEPAGE);
	return 0;
}

int map_shared(int fd, uint64_t off, uint64_t size, uint32_t mode, uint8_t **base_out)
{
	int prot = PROT_READ | (mode & MAP_WRITABLE ? PROT_WRITE : 0), saved, ret;
	void *base = mmap(NULL, size, prot, MAP_SHARED, fd, (off_t)off);

	if (base == MAP_FAILED) {
		saved = errno;
		return error_set(-saved, "mmap of %llu bytes: %s", (unsigned long long)size,
				 strerror(saved));
	}
	ret = map_protect(base, size, (mode & MAP_HUGE) != 0);
	if (ret) {
		munmap(base, size);
		return ret;
	}
	*base_out = base;
	return 0;
}

int map_over(int fd, uint64_t size, bool writable, uint8_t *base)
{
	int prot = PROT_READ | (writable ? PROT_WRITE : 0), saved;

	if (mmap(base, size, prot, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		saved = errno;
		return error_set(-saved, "mmap of %llu bytes: %s", (unsigned long long)size,
				 strerror(saved));
	}
	return map_protect(base, size, false);
}

void map_release(uint8_t *base, uint64_t size)
{
	if (base)
		munmap(base, size);
}

int map_persist(uint8_t *base, uint64_t off, uint64_t len)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), start = off & ~(page - 1);
	int saved;

	if (msync(base + start, len + (off - start), MS_SYNC)) {
		saved = errno;
		return error_set(-saved, "msync of %llu bytes: %s", (unsigned long long)len,
				 strerror(saved));
	}
	return 0;
}

void map_close(int fd)
{
	if (fd >= 0)
		close(fd);
}

bool map_thp_for_memfd(void)
{
	char text[128] = "";
	FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "re");
	const char *chosen = NULL;

	if (!file)
		return false;
	if (fgets(text, sizeof(text), file))
		chosen = strchr(text, '[');
	fclose(file);
	return chosen && strncmp(chosen, "[never", 6) != 0 && strncmp(chosen, "[deny", 5) != 0;
}

int map_reopen(int fd, bool writable, int *fd_out)
{
	char path[64];
	int copy, saved;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	copy = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	if (copy < 0) {
		saved = errno;
		return error_set(-saved, "open %s: %s", path, strerror(saved));
	}
	*fd_out = copy;
	return 0;
}
