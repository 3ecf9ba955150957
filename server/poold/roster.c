#include "server/poold/roster.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"

struct process_id roster_process(const struct roster_job *job)
{
	struct process_id id = { .pid = job->pid, .start_time = job->start_time };

	memcpy(id.boot_id, job->boot_id, sizeof(id.boot_id));
	return id;
}

static bool roster_has_jobs(const struct roster_file *file)
{
	for (uint32_t i = 0; i < LEDGER_JOBS; i++) {
		struct process_id id = roster_process(&file->jobs[i]);

		if (file->jobs[i].incarnation && !process_is_gone(&id))
			return true;
	}
	return false;
}

/* Maps the file as it is. 1: it is no roster of these sizes, and no job of it lives. */
static int roster_map(struct roster *roster, int fd, uint32_t n, uint64_t extent_bytes)
{
	struct roster_file *file;
	struct stat st;
	bool fits, lives;

	if (fstat(fd, &st))
		return error_set(-errno, "fstat: %s", strerror(errno));
	if ((size_t)st.st_size < sizeof(*file))
		return 1;
	file = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (file == MAP_FAILED)
		return error_set(-ENOMEM, "mmap: %s", strerror(errno));
	fits = file->magic == ROSTER_MAGIC && file->version == ROSTER_VERSION && file->n == n &&
	       file->extent_bytes == extent_bytes && (size_t)st.st_size == roster->bytes;
	lives = file->magic == ROSTER_MAGIC &&
		(file->version != ROSTER_VERSION || roster_has_jobs(file));
	if (fits) {
		roster->file = file;
		return 0;
	}
	munmap(file, (size_t)st.st_size);
	return lives ? error_set(-EPROTO, "it is of a pool of other sizes, or of another version, "
					  "and has jobs: end them, or remove it")
		     : 1;
}

static int roster_make(struct roster *roster, int fd, uint32_t n, uint64_t extent_bytes)
{
	struct roster_file *file;

	if (ftruncate(fd, 0) || ftruncate(fd, (off_t)roster->bytes) ||
	    posix_fallocate(fd, 0, (off_t)roster->bytes))
		return error_set(-ENOSPC, "no room for %zu bytes", roster->bytes);
	file = mmap(NULL, roster->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (file == MAP_FAILED)
		return error_set(-ENOMEM, "mmap: %s", strerror(errno));
	file->version = ROSTER_VERSION;
	file->n = n;
	file->extent_bytes = extent_bytes;
	file->magic = ROSTER_MAGIC;
	roster->file = file;
	return 0;
}

int roster_open(struct roster *roster, const char *path, uint32_t n, uint64_t extent_bytes)
{
	int ret, fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)
			   : memfd_create("relive-roster", MFD_CLOEXEC);

	if (fd < 0)
		return error_set(-errno, "open %s: %s", path ? path : "a memfd", strerror(errno));
	*roster = (struct roster){ .bytes = sizeof(struct roster_file) +
					    n * sizeof(struct roster_extent) };
	ret = roster_map(roster, fd, n, extent_bytes);
	if (ret > 0)
		ret = roster_make(roster, fd, n, extent_bytes);
	close(fd);
	return ret ? error_prefix(ret, "%s: ", path ? path : "roster") : 0;
}

void roster_close(struct roster *roster)
{
	if (roster->file)
		munmap(roster->file, roster->bytes);
	roster->file = NULL;
}

int roster_retire(const char *path)
{
	struct roster roster = { .bytes = 0 }; /* as no roster has */
	int ret, fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return errno == ENOENT ? 0
				       : error_set(-errno, "open %s: %s", path, strerror(errno));
	ret = roster_map(&roster, fd, 0, 0);
	close(fd);
	if (ret < 0)
		return error_prefix(ret, "%s: ", path);
	(void)unlink(path);
	return 0;
}
