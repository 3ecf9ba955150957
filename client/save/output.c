/* Writes a saved table: complete under its name, or not there. */
#include "client/save/format.h"

#include "client/save/zstd.h"

#include "base/crc32c.h"
#include "base/mem/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define WRITE_BEHIND ((uint64_t)8 << 20) /* the disk is given that much at a time, early */
#define WAITING_BYTES ((size_t)1 << 20)
#define PIECES 3

struct save_output {
	char path[PATH_MAX];
	char draft[PATH_MAX]; /* PATH.saving; empty: renamed */
	int fd;
	int level;
	void *packed;
	size_t packed_room;
	uint64_t bytes;
	uint64_t handed_over; /* of them, to the file */
	uint64_t flushed;     /* of those, to the disk */
	struct save_end end;
	size_t n_waiting;
	uint8_t waiting[WAITING_BYTES];
};

static int output_failed(const struct save_output *out, const char *what)
{
	int code = errno;

	return error_set(-code, "save: %s %s: %s", what, out->draft[0] ? out->draft : out->path,
			 strerror(code));
}

/* Hands pieces to the file, and lets the disk begin with what has come together. */
static int output_hand_over(struct save_output *out, struct iovec *piece, int n)
{
	while (n) {
		ssize_t done = writev(out->fd, piece, n);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return output_failed(out, "write");
		out->handed_over += (uint64_t)done;
		while (n && (size_t)done >= piece->iov_len) {
			done -= (ssize_t)piece->iov_len;
			piece++;
			n--;
		}
		if (n) {
			piece->iov_base = (char *)piece->iov_base + done;
			piece->iov_len -= (size_t)done;
		}
	}
	if (out->handed_over - out->flushed >= WRITE_BEHIND) {
		/* A hint: errors of the disk are those of fsync. */
		(void)sync_file_range(out->fd, (off_t)out->flushed,
				      (off_t)(out->handed_over - out->flushed),
				      SYNC_FILE_RANGE_WRITE);
		out->flushed = out->handed_over;
	}
	return 0;
}

/* Writes up to PIECES pieces. Small ones wait for others: the kernel has work with each call, and with each page that
   two calls share. */
static int output_write(struct save_output *out, const struct iovec *pieces, int n)
{
	struct iovec all[1 + PIECES] = { { out->waiting, out->n_waiting } };
	size_t bytes = 0;

	for (int i = 0; i < n; i++)
		bytes += pieces[i].iov_len;
	out->bytes += bytes;
	if (bytes > WAITING_BYTES - out->n_waiting) {
		memcpy(all + 1, pieces, (size_t)n * sizeof(*pieces));
		out->n_waiting = 0;
		return output_hand_over(out, all, 1 + n);
	}
	for (int i = 0; i < n; i++) {
		memcpy(out->waiting + out->n_waiting, pieces[i].iov_base, pieces[i].iov_len);
		out->n_waiting += pieces[i].iov_len;
	}
	return 0;
}

static int output_flush(struct save_output *out)
{
	struct iovec all = { out->waiting, out->n_waiting };

	out->n_waiting = 0;
	return output_hand_over(out, &all, 1);
}

/* -------- open -------- */

/* Opens and locks the draft. One that a killed process left is taken over. */
static int output_lock(struct save_output *out)
{
	for (;;) {
		struct stat ours, named;

		out->fd = open(out->draft, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
		if (out->fd < 0)
			return output_failed(out, "create");
		if (flock(out->fd, LOCK_EX | LOCK_NB))
			return error_set(-EBUSY, "save: another process is saving to %s",
					 out->path);
		if (fstat(out->fd, &ours))
			return output_failed(out, "stat");
		/* Its owner may have renamed it before we had the lock. */
		if (stat(out->draft, &named) == 0 && ours.st_ino == named.st_ino &&
		    ours.st_dev == named.st_dev)
			return ftruncate(out->fd, 0) ? output_failed(out, "truncate") : 0;
		close(out->fd);
	}
}

/* The file's own path, as its name may be a link, and the draft beside it. */
static int output_paths(struct save_output *out, const char *path)
{
	struct stat st;
	int n;

	if (!realpath(path, out->path))
		snprintf(out->path, sizeof(out->path), "%s", path);
	else if (stat(out->path, &st) == 0 && !S_ISREG(st.st_mode))
		return error_set(-EINVAL, "save: %s is no regular file", path);
	n = snprintf(out->draft, sizeof(out->draft), "%s.saving", out->path);
	if (strlen(path) < PATH_MAX && n > 0 && (size_t)n < sizeof(out->draft))
		return 0;
	return error_set(-ENAMETOOLONG, "save: %.64s...: name too long", path);
}

static int output_header(struct save_output *out, const struct save_table *table)
{
	size_t views = table->head.n_views * sizeof(struct save_view);
	size_t columns = table->head.n_columns * sizeof(struct save_column);
	struct save_header head = table->head;
	struct iovec pieces[PIECES] = { { &head, sizeof(head) },
					{ (void *)(uintptr_t)table->views, views },
					{ (void *)(uintptr_t)table->columns, columns } };

	head.magic = SAVE_MAGIC;
	head.major = SAVE_MAJOR;
	head.minor = SAVE_MINOR;
	head.bytes = (uint32_t)(sizeof(head) + views + columns);
	head.crc = 0;
	head.crc = crc32c(crc32c(crc32c(0, &head, sizeof(head)), table->views, views),
			  table->columns, columns);
	return output_write(out, pieces, PIECES);
}

int save_output_open(const char *path, const struct save_table *table, int level,
		     struct save_output **out_out)
{
	struct save_output *out;
	int ret = level ? zstd_load() : 0;

	if (ret)
		return ret;
	out = mem_zalloc(sizeof(*out));
	if (!out)
		return error_set(-ENOMEM, "save: cannot allocate memory");
	out->fd = -1;
	out->level = level;
	ret = output_paths(out, path);
	if (ret == 0)
		ret = output_lock(out);
	if (ret) { /* the draft is another's, or cannot be */
		out->draft[0] = 0;
		save_output_close(&out);
		return ret;
	}
	ret = output_header(out, table);
	if (ret)
		save_output_close(&out);
	else
		*out_out = out;
	return ret;
}

/* -------- chunks -------- */

static int output_chunk(struct save_output *out, const struct save_chunk *head, const void *body)
{
	struct iovec pieces[2] = { { (void *)(uintptr_t)head, sizeof(*head) },
				   { (void *)(uintptr_t)body, head->stored } };

	out->end.chunks++;
	out->end.sum = crc32c(out->end.sum, &head->crc, sizeof(head->crc));
	return output_write(out, pieces, head->stored ? 2 : 1);
}

int save_output_copy(struct save_output *out, const struct save_chunk *head, const void *stored)
{
	return output_chunk(out, head, stored);
}

int save_output_put(struct save_output *out, const struct save_chunk *head, const void *body)
{
	struct save_chunk full = *head;

	full.magic = SAVE_CHUNK_MAGIC;
	full.codec = SAVE_PLAIN;
	full.stored = full.bytes;
	if (out->level && full.bytes) {
		size_t packed = zstd_bound(full.bytes);
		int ret;

		if (!mem_make_room(&out->packed, &out->packed_room, packed, 1))
			return error_set(-ENOMEM, "save: cannot allocate %zu bytes to compress",
					 packed);
		ret = zstd_pack(out->level, body, full.bytes, out->packed, &packed);
		if (ret)
			return ret;
		if (packed < full.bytes) { /* noise stays as it is */
			full.codec = SAVE_ZSTD;
			full.stored = packed;
			body = out->packed;
		}
	}
	full.body_crc = crc32c(0, body, full.stored);
	full.crc = crc32c(0, &full, offsetof(struct save_chunk, crc));
	return output_chunk(out, &full, body);
}

uint64_t save_output_bytes(const struct save_output *out)
{
	return out->bytes;
}

/* -------- end -------- */

/* Only with its folder made durable, too, a new name lasts. */
static int output_rename(struct save_output *out)
{
	char folder[PATH_MAX];
	int fd, ret;

	if (fsync(out->fd))
		return output_failed(out, "fsync");
	if (rename(out->draft, out->path))
		return output_failed(out, "rename");
	out->draft[0] = 0;
	snprintf(folder, sizeof(folder), "%s", out->path);
	fd = open(dirname(folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ret = fd < 0 || fsync(fd) ? output_failed(out, "fsync the folder of") : 0;
	if (fd >= 0)
		close(fd);
	return ret;
}

int save_output_finish(struct save_output *out, const struct save_count *counts)
{
	const struct save_chunk head = { .kind = SAVE_END, .bytes = sizeof(out->end) };
	struct save_end end = out->end;
	int ret;

	memcpy(end.views, counts, sizeof(end.views));
	out->level = 0;
	ret = save_output_put(out, &head, &end);
	if (ret == 0)
		ret = output_flush(out);
	return ret ? ret : output_rename(out);
}

void save_output_close(struct save_output **out)
{
	struct save_output *o = *out;

	if (!o)
		return;
	if (o->draft[0])
		(void)unlink(o->draft); /* under its lock */
	if (o->fd >= 0)
		close(o->fd);
	mem_free(o->packed);
	mem_free(o);
	*out = NULL;
}
