/*
 * backend_host_state.h - the inside of the host backend: its extents and addresses are
 * backend_host.c, its streams and the clock backend_host_streams.c.
 */
#ifndef RLV_DEVICE_BACKEND_HOST_STATE_H
#define RLV_DEVICE_BACKEND_HOST_STATE_H

#include <stdbool.h>
#include <sys/types.h>

#include "device/host/backend_host.h"
#include "device/ranges.h"
#include "base/os/lock.h"

extern const struct lock_role host_role;

struct host_extent {
	int fd; /* -1: the place is free */
	bool own;
	uint64_t bytes;
	uint32_t mapped;
};

struct host_op;

struct host_stream {
	bool open;
	uint64_t end_ns, queued;
	struct host_op *first, **tail;
};

struct backend_host {
	struct backend base;
	struct lock lock;
	struct backend_host_opts opts;
	pid_t pid;
	uint64_t now_ns, created;
	struct host_extent *extents;
	size_t n_extents;
	struct ranges reserved, mapped;
	struct host_stream streams[BACKEND_STREAMS];
	struct backend_progress *progress; /* of a memfd */
	int progress_fd;
};

static inline struct backend_host *host_of(struct backend *backend)
{
	return (struct backend_host *)backend;
}

/* Takes the lock, also when it fails with -ECHILD in a child of fork(). */
int host_enter(struct backend_host *host) LOCK_ACQUIRES(host_role);
/* Releases it and returns ret. */
int host_leave(struct backend_host *host, int ret) LOCK_RELEASES(host_role);

/* A memfd of that many bytes that nobody can shrink, so that no process that has it can make
   another's access a SIGBUS. -ENOMEM. */
RLV_MUST_CHECK int host_memfd(const char *name, uint64_t bytes, int *fd_out);
/* A copy of a fd that the caller closes. */
RLV_MUST_CHECK int host_copy_fd(int fd, const char *what, int *fd_out);

RLV_MUST_CHECK int host_progress_open(struct backend_host *host);
/* Does all work that is queued. */
void host_finish(struct backend_host *host);

int host_stream_open(struct backend *backend, void *native, uint32_t *stream_out);
int host_stream_close(struct backend *backend, uint32_t stream);
int host_stream_mark(struct backend *backend, uint32_t stream, uint64_t seq);
int host_stream_progress(struct backend *backend, uint32_t stream, uint64_t *seq_out);
int host_progress_export(struct backend *backend, int *fd_out);
int host_copy_batch(struct backend *backend, uint32_t stream, const struct backend_copy *copies,
		    size_t n);
int host_fill(struct backend *backend, uint32_t stream, uint64_t va, uint64_t bytes, uint8_t value);
uint64_t host_now_ns(struct backend *backend);

#endif
