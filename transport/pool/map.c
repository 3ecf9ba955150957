/*
 * map.c - mmap with the advice that every region gets.
 */
#include "transport/pool/map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

int map_protect(void *base, uint64_t size, bool huge)
{
	if (madvise(base, size, MADV_DONTFORK))
		return error_set(-errno, "madvise dontfork of %llu bytes: %s",
				 (unsigned long long)size, strerror(errno));
	/* Advice only: refused where the kernel has no huge pages for this kind of memory. */
	if (huge)
		(void)madvise(base, size, MADV_HUGEPAGE);
	return 0;
}

int map_shared(int fd, uint64_t off, uint64_t size, uint32_t mode, uint8_t **base_out)
{
	int prot = PROT_READ | (mode & MAP_WRITABLE ? PROT_WRITE : 0), ret;
	void *base = mmap(NULL, size, prot, MAP_SHARED, fd, (off_t)off);

	if (base == MAP_FAILED)
		return error_set(-errno, "mmap of %llu bytes: %s", (unsigned long long)size,
				 strerror(errno));
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
	int prot = PROT_READ | (writable ? PROT_WRITE : 0);

	if (mmap(base, size, prot, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
		return error_set(-errno, "mmap of %llu bytes: %s", (unsigned long long)size,
				 strerror(errno));
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

	if (msync(base + start, len + (off - start), MS_SYNC))
		return error_set(-errno, "msync of %llu bytes: %s", (unsigned long long)len,
				 strerror(errno));
	return 0;
}

int map_memfd(uint32_t region, uint64_t bytes, unsigned flags, int *fd_out)
{
	char name[64];
	int fd, ret;

	(void)snprintf(name, sizeof(name), "relive-region-%u", region);
	fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
	if (fd < 0)
		return error_set(-errno, "memfd_create: %s", strerror(errno));
	if (fchmod(fd, 0600) || ftruncate(fd, (off_t)bytes) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
		ret = error_set(-errno, "memfd of %llu bytes: %s", (unsigned long long)bytes,
				strerror(errno));
		close(fd);
		return ret;
	}
	*fd_out = fd;
	return 0;
}

int map_check_memfd(int fd, uint64_t bytes)
{
	struct stat st;
	int seals;

	if (fd < 0 || fstat(fd, &st))
		return error_set(-EPROTO, "memory of %llu bytes: no descriptor came with it",
				 (unsigned long long)bytes);
	seals = fcntl(fd, F_GET_SEALS);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != bytes || (st.st_mode & 0077))
		return error_set(-EPROTO, "memory of mode %o and %lld bytes: must be 600 and %llu",
				 st.st_mode & 0777u, (long long)st.st_size,
				 (unsigned long long)bytes);
	if (seals < 0 || !(seals & F_SEAL_SHRINK) || (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)))
		return error_set(-EPROTO, "memory of %llu bytes: must be sealed against shrinking",
				 (unsigned long long)bytes);
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

int map_own(int fd, bool own)
{
	struct flock owner = { .l_whence = SEEK_SET, .l_len = 1 };

	owner.l_type = own ? F_WRLCK : F_UNLCK;
	if (fcntl(fd, F_OFD_SETLK, &owner) == 0)
		return 0;
	if (errno == EAGAIN || errno == EACCES)
		return error_set(-EBUSY, "in use by another process");
	return error_set(-errno, "lock of a pool: %s", strerror(errno));
}

bool map_is_named(int fd, int folder, const char *name)
{
	struct stat mine, there;

	return fstat(fd, &mine) == 0 && fstatat(folder, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
	       mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
}

int map_open_own(int folder, const char *name, bool create, int *fd_out)
{
	const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
	int fd, made, ret;

	for (;;) {
		fd = openat(folder, name, flags);
		made = fd < 0 && errno == ENOENT && create;
		if (made)
			fd = openat(folder, name, flags | O_CREAT | O_EXCL, 0600);
		if (made && fd < 0 && errno == EEXIST) /* somebody else was faster */
			continue;
		if (fd < 0)
			return error_set(-errno, "open %s: %s", name, strerror(errno));
		ret = map_own(fd, true);
		/* Whoever had it may have removed its name meanwhile: then it is no lock. */
		if (ret == 0 && map_is_named(fd, folder, name)) {
			*fd_out = fd;
			return made;
		}
		if (ret != -EBUSY && made && map_is_named(fd, folder, name))
			(void)unlinkat(folder, name, 0);
		close(fd);
		if (ret)
			return ret;
	}
}

uint64_t map_left(int fd)
{
	struct statvfs fs;

	return fstatvfs(fd, &fs) ? UINT64_MAX : (uint64_t)fs.f_bavail * fs.f_frsize;
}

int map_take_blocks(int fd, uint64_t off, uint64_t bytes)
{
	uint64_t end = off + bytes, left = map_left(fd);
	struct rlimit limit;
	struct stat st;
	int code;

	/* fallocate would not only say so, but send SIGXFSZ */
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && end > limit.rlim_cur)
		return error_set(-ENOSPC, "needs %llu bytes, and file sizes are limited to %llu",
				 (unsigned long long)end, (unsigned long long)limit.rlim_cur);
	if (fstat(fd, &st) == 0 && end > (uint64_t)st.st_size && end - (uint64_t)st.st_size > left)
		return error_set(-ENOSPC, "needs %llu bytes, %llu are left",
				 (unsigned long long)(end - (uint64_t)st.st_size),
				 (unsigned long long)left);
	do
		code = posix_fallocate(fd, (off_t)off, (off_t)bytes);
	while (code == EINTR);
	if (code == 0)
		return 0;
	return error_set(code == EDQUOT || code == EFBIG ? -ENOSPC : -code,
			 "fallocate of %llu bytes: %s, %llu are left", (unsigned long long)bytes,
			 strerror(code), (unsigned long long)map_left(fd));
}

bool map_is_sole(int fd)
{
	if (flock(fd, LOCK_EX | LOCK_NB))
		return false;
	(void)flock(fd, LOCK_UN);
	return true;
}
