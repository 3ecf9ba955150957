/* Reads a saved table, which is input: every length is bounded by the file before it is used. */
#include "client/save/format.h"

#include "client/save/zstd.h"

#include "base/bits.h"
#include "base/crc32c.h"
#include "base/mem/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ZSTD_RATIO_MAX ((uint64_t)1 << 15) /* a block of 128 KiB is at least 4 bytes */
#define BLOCK_ROWS_MAX ((uint32_t)1 << 24)

struct save_input {
	int fd;
	char name[64]; /* for messages */
	uint64_t size;
	uint64_t off; /* of the next head */
	uint64_t chunks;
	uint32_t sum;
	bool ended;
	void *stored, *body;
	size_t stored_room, body_room;
	struct save_end end;
	struct save_table table;
};

static int input_damaged(const struct save_input *in, uint64_t off, const char *what)
{
	return error_set(-EBADMSG, "load %s: %s at byte %llu: the file is damaged or cut", in->name,
			 what, (unsigned long long)off);
}

static int input_read(const struct save_input *in, uint64_t off, void *to, size_t bytes)
{
	uint8_t *at = to;

	if (off > in->size || bytes > in->size - off)
		return input_damaged(in, off, "it ends");
	while (bytes) {
		ssize_t n = pread(in->fd, at, bytes, (off_t)off);
		int code = errno;

		if (n < 0 && code == EINTR)
			continue;
		if (n < 0)
			return error_set(-code, "load: read %s: %s", in->name, strerror(code));
		if (n == 0)
			return input_damaged(in, off, "it ends");
		at += n;
		off += (uint64_t)n;
		bytes -= (size_t)n;
	}
	return 0;
}

/* -------- header -------- */

static int input_header(struct save_input *in)
{
	struct save_table *table = &in->table;
	struct save_header *head = &table->head;
	size_t views, columns;
	uint32_t crc;
	int ret;

	if (in->size < sizeof(*head))
		return error_set(-EPROTO, "load %s: it is not a saved table", in->name);
	ret = input_read(in, 0, head, sizeof(*head));
	if (ret)
		return ret;
	if (head->magic != SAVE_MAGIC)
		return error_set(-EPROTO, "load %s: it is not a saved table", in->name);
	if (head->major != SAVE_MAJOR)
		return error_set(-EPROTO, "load %s: format %u, this library reads format %u",
				 in->name, head->major, SAVE_MAJOR);
	views = head->n_views * sizeof(struct save_view);
	columns = head->n_columns * sizeof(struct save_column);
	if (head->n_views > RING_MAX_VIEWS || head->n_columns > TABLE_MAX_COLUMNS ||
	    head->bytes != sizeof(*head) + views + columns)
		return input_damaged(in, 0, "the header is wrong");
	ret = input_read(in, sizeof(*head), table->views, views);
	if (ret == 0)
		ret = input_read(in, sizeof(*head) + views, table->columns, columns);
	if (ret)
		return ret;
	crc = head->crc;
	head->crc = 0;
	if (crc != crc32c(crc32c(crc32c(0, head, sizeof(*head)), table->views, views),
			  table->columns, columns))
		return input_damaged(in, 0, "the header has another checksum");
	in->off = head->bytes;
	return save_table_check(table);
}

int save_input_open_fd(int fd, const char *name, struct save_input **in_out)
{
	struct save_input *in = mem_zalloc(sizeof(*in));
	const char *slash = strrchr(name, '/');
	struct stat st;
	int ret = in ? 0 : error_set(-ENOMEM, "load: cannot allocate memory");

	if (ret) {
		close(fd);
		return ret;
	}
	in->fd = fd;
	snprintf(in->name, sizeof(in->name), "%s", slash ? slash + 1 : name);
	if (fstat(fd, &st))
		ret = error_set(-errno, "load: stat %s: %s", name, strerror(errno));
	else if (!S_ISREG(st.st_mode))
		ret = error_set(-EINVAL, "load %s: it is not a regular file", name);
	if (ret == 0) {
		in->size = (uint64_t)st.st_size;
		ret = input_header(in);
	}
	if (ret)
		save_input_close(&in);
	else
		*in_out = in;
	return ret;
}

int save_input_open(const char *path, struct save_input **in_out)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	return fd < 0 ? error_set(-errno, "load: open %s: %s", path, strerror(errno))
		      : save_input_open_fd(fd, path, in_out);
}

void save_input_close(struct save_input **in)
{
	struct save_input *i = *in;

	if (!i)
		return;
	close(i->fd);
	mem_free(i->stored);
	mem_free(i->body);
	mem_free(i);
	*in = NULL;
}

const struct save_table *save_input_table(const struct save_input *in)
{
	return &in->table;
}

void save_input_rewind(struct save_input *in)
{
	in->off = in->table.head.bytes;
	in->chunks = 0;
	in->sum = 0;
	in->ended = false;
}

uint64_t save_input_bytes(const struct save_input *in, uint64_t *done_out)
{
	*done_out = in->off;
	return in->size;
}

const struct save_count *save_input_counts(const struct save_input *in)
{
	return in->end.views;
}

/* -------- chunks -------- */

/* True if the head's numbers fit its kind, the table and the rest of the file. */
static bool chunk_is_possible(const struct save_input *in, const struct save_chunk *head)
{
	const struct save_table *table = &in->table;
	uint64_t each = head->kind == SAVE_ROWS ? table->row_bytes : table->leaf_bytes;
	bool plain = head->codec == SAVE_PLAIN;

	if (head->stored > in->size - in->off - sizeof(*head) || head->codec > SAVE_ZSTD ||
	    (plain && head->stored != head->bytes) ||
	    (!plain && head->bytes / ZSTD_RATIO_MAX > head->stored) || head->reserved0 ||
	    !bits_all_zero(head->reserved1, sizeof(head->reserved1)))
		return false;
	if (head->kind == SAVE_END)
		return plain && head->bytes == sizeof(struct save_end) && !head->rows;
	return (head->kind == SAVE_ROWS || head->kind == SAVE_LEAVES) && head->rows &&
	       head->shard < TABLE_MAX_SHARDS && head->first <= BLOCK_ROWS_MAX &&
	       head->rows <= BLOCK_ROWS_MAX - head->first && head->bytes == head->rows * each &&
	       head->bytes <= SAVE_BODY_MAX;
}

/* The end chunk is the last of the file, and knows how many come before it, and which. */
static int input_end(struct save_input *in, const struct save_chunk *head, uint64_t off)
{
	const void *body;
	int ret = save_input_stored(in, head, off, &body);

	if (ret)
		return ret;
	memcpy(&in->end, body, sizeof(in->end));
	if (in->end.chunks != in->chunks || in->end.sum != in->sum ||
	    off + head->stored != in->size)
		return input_damaged(in, off, "the end is not that of these chunks");
	in->ended = true;
	in->off = in->size;
	return error_set(-ENODATA, "load %s: no chunk follows", in->name);
}

int save_input_next(struct save_input *in, struct save_chunk *head_out, uint64_t *off_out)
{
	struct save_chunk head;
	uint64_t off = in->off + sizeof(head);
	int ret = in->ended ? error_set(-ENODATA, "load %s: no chunk follows", in->name)
			    : input_read(in, in->off, &head, sizeof(head));

	if (ret)
		return ret;
	if (head.magic != SAVE_CHUNK_MAGIC ||
	    head.crc != crc32c(0, &head, offsetof(struct save_chunk, crc)) ||
	    !chunk_is_possible(in, &head))
		return input_damaged(in, in->off, "no chunk begins");
	if (head.kind == SAVE_END)
		return input_end(in, &head, off);
	in->chunks++;
	in->sum = crc32c(in->sum, &head.crc, sizeof(head.crc));
	in->off = off + head.stored;
	*head_out = head;
	*off_out = off;
	return 0;
}

int save_input_stored(struct save_input *in, const struct save_chunk *head, uint64_t off,
		      const void **body_out)
{
	int ret;

	if (!mem_make_room(&in->stored, &in->stored_room, head->stored, 1))
		return error_set(-ENOMEM, "load: cannot allocate %llu bytes",
				 (unsigned long long)head->stored);
	ret = input_read(in, off, in->stored, head->stored);
	if (ret)
		return ret;
	if (head->body_crc != crc32c(0, in->stored, head->stored))
		return input_damaged(in, off, "a chunk has another checksum");
	*body_out = in->stored;
	return 0;
}

int save_input_body(struct save_input *in, const struct save_chunk *head, uint64_t off,
		    const void **body_out)
{
	const void *stored;
	int ret = save_input_stored(in, head, off, &stored);

	if (ret || head->codec == SAVE_PLAIN) {
		*body_out = ret ? NULL : stored;
		return ret;
	}
	ret = zstd_load();
	if (ret)
		return ret;
	if (!mem_make_room(&in->body, &in->body_room, head->bytes, 1))
		return error_set(-ENOMEM, "load: cannot allocate %llu bytes",
				 (unsigned long long)head->bytes);
	ret = zstd_unpack(in->body, head->bytes, stored, head->stored);
	*body_out = in->body;
	return ret;
}
