#include "client/pool/park_store.h"

#include "client/pool/state.h"
#include "client/store/users.h"
#include "device/pool_park.h"
#include "relive/kv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bits.h"
#include "base/mem/alloc.h"
#include "base/os/process.h"
#include "base/os/runtime_dir.h"

/* -------- keys -------- */

/* A name that no other broker's jobs have: one folder has one broker. */
static int park_name(struct park_store *park, const char *pool, const char *job)
{
	char folder[RUNTIME_PATH_BYTES], boot[2 * PROCESS_BOOT_ID_BYTES + 1];
	struct runtime_dir dir;
	struct process_id self;
	struct stat st;
	int ret = process_self(&self);

	(void)snprintf(folder, sizeof(folder), "pool-%s", pool);
	if (ret == 0)
		ret = runtime_dir_visit(folder, &dir);
	if (ret == 0 && stat(dir.path, &st))
		ret = error_set(-errno, "%s: %s", dir.path, strerror(errno));
	if (ret)
		return ret;
	for (size_t i = 0; i < PROCESS_BOOT_ID_BYTES; i++)
		(void)snprintf(boot + 2 * i, 3, "%02x", self.boot_id[i]);
	(void)snprintf(park->prefix, sizeof(park->prefix), "pool/%s.%" PRIx64 ".%" PRIx64 "/%s/%s/",
		       boot, (uint64_t)st.st_dev, (uint64_t)st.st_ino, pool, job);
	return 0;
}

static struct rlv_bytes park_key(const struct park_store *park, uint64_t number,
				 char text[PARK_KEY_BYTES + 24])
{
	int len = snprintf(text, PARK_KEY_BYTES + 24, "%s%" PRIu64, park->prefix, number);

	return (struct rlv_bytes){ text, (size_t)len };
}

/* From the last one down. What cannot be deleted is left for the next time. */
static void park_forget(struct park_store *park)
{
	char text[PARK_KEY_BYTES + 24];
	struct error_kept kept;

	error_keep(&kept);
	while (park->n) {
		int ret = rlv_kv_delete(park->kv, park_key(park, park->n - 1, text), NULL);

		if (ret && ret != -ENOENT)
			break;
		park->n--;
	}
	error_restore(&kept);
}

static void park_close_heap(struct park_store *park)
{
	struct error_kept kept;

	error_keep(&kept);
	(void)!rlv_kv_close(&park->kv);
	error_restore(&kept);
}

/* Counts what an earlier job of the name left. */
static int park_count(struct park_store *park)
{
	char text[PARK_KEY_BYTES + 24];
	uint8_t byte;
	int ret;

	do {
		struct rlv_kv_value value = RLV_KV_VALUE_INIT;

		value.ptr = &byte;
		value.room = sizeof(byte);
		ret = rlv_kv_get(park->kv, park_key(park, park->n, text), &value);
		park->n += ret == -ERANGE || ret == 0;
	} while (ret == -ERANGE || ret == 0);
	return ret == -ENOENT ? 0 : ret;
}

/* -------- open and close -------- */

int park_store_check(const struct rlv_pool_opts *opts)
{
	if (!opts->store != !opts->heap)
		return error_set(-EINVAL, "opts.store, opts.heap: want both or none");
	if (opts->heap && strlen(opts->heap) >= RLV_NAME_BYTES)
		return error_set(-EINVAL, "opts.heap: want a name of at most %d bytes",
				 RLV_NAME_BYTES - 1);
	return 0;
}

int park_store_open(struct park_store *park, const struct rlv_pool_opts *opts, const char *pool,
		    const char *job)
{
	int ret;

	if (!opts->store)
		return 0;
	memcpy(park->heap, opts->heap, strlen(opts->heap) + 1);
	ret = park_name(park, *pool ? pool : "0", job);
	if (ret == 0)
		ret = rlv_kv_open(opts->store, park->heap, &park->kv);
	if (ret)
		return ret;
	ret = park_count(park);
	if (ret == 0)
		park_forget(park);
	park_close_heap(park);
	if (ret)
		return error_prefix(ret, "heap %s: ", park->heap);
	park->store = opts->store;
	store_use(park->store);
	return 0;
}

void park_store_close(struct park_store *park)
{
	if (!park->store)
		return;
	if (park->n && (park->kv || rlv_kv_open(park->store, park->heap, &park->kv) == 0))
		park_forget(park);
	park_close_heap(park);
	store_unuse(park->store);
}

/* -------- a call -------- */

static int park_begin(struct rlv_pool *pool)
{
	struct park_store *park = &pool->park;
	int ret;

	if (park->kv) /* the last call had no more time */
		return 0;
	for (int i = 0; i < 2; i++) {
		park->buffers[i].bytes = mem_alloc(PARK_PIECE_BYTES);
		park->buffers[i].marks = (struct marks){ .n = 0 };
	}
	ret = park->buffers[0].bytes && park->buffers[1].bytes
		      ? rlv_kv_open(park->store, park->heap, &park->kv)
		      : error_set(-ENOMEM, "no room for pieces of %" PRIu64 " bytes",
				  PARK_PIECE_BYTES);
	if (ret == 0)
		return 0;
	for (int i = 0; i < 2; i++)
		mem_free(park->buffers[i].bytes);
	return error_prefix(ret, "job %s: heap %s: ", pool->name, park->heap);
}

/* Waits until the device has done with a buffer. */
static int park_await(const struct rlv_pool *pool, struct park_buffer *buffer, uint64_t deadline_ns)
{
	int ret;

	do {
		pool_advance(pool);
		ret = pool_reached(pool->pool, &buffer->marks);
	} while (ret == -EAGAIN && !deadline_expired(clock_monotonic(), deadline_ns));
	return ret == -EAGAIN ? error_set(-ETIMEDOUT, "job %s: %s", pool->name, error_last()) : ret;
}

static void park_end(struct rlv_pool *pool)
{
	struct park_store *park = &pool->park;
	uint64_t deadline = pool_deadline(CLOCK_NS_PER_S);
	struct error_kept kept;

	park_close_heap(park);
	error_keep(&kept);
	for (int i = 0; i < 2; i++) { /* one that the device may yet use is lost */
		if (park_await(pool, &park->buffers[i], deadline) == 0)
			mem_free(park->buffers[i].bytes);
	}
	error_restore(&kept);
}

static int park_check_time(const struct rlv_pool *pool, uint64_t deadline_ns)
{
	return deadline_expired(clock_monotonic(), deadline_ns)
		       ? error_set(-ETIMEDOUT, "job %s: %" PRIu64 " bytes are still parked",
				   pool->name, pool_parked(pool->pool, pool->job))
		       : 0;
}

/* -------- out -------- */

static int park_put(struct park_store *park, const struct pool_piece *piece, const void *bytes)
{
	const struct rlv_bytes value = { bytes, piece->bytes };
	char text[PARK_KEY_BYTES + 24];

	park->n = max_u64(park->n, piece->number + 1); /* also if the put is in doubt */
	return rlv_kv_put(park->kv, park_key(park, piece->number, text), value, NULL);
}

static int park_send_piece(struct rlv_pool *pool, uint64_t deadline_ns, bool *done_out)
{
	struct park_buffer *buffer = &pool->park.buffers[0];
	struct pool_piece piece;
	int ret = pool_piece(pool->pool, pool->job, true, PARK_PIECE_BYTES, &piece);

	*done_out = ret == -ENODATA;
	if (ret == 0)
		ret = pool_piece_copy(pool->pool, &piece, buffer->bytes, true, &buffer->marks);
	if (ret == 0)
		ret = park_await(pool, buffer, deadline_ns);
	if (ret)
		return ret;
	ret = park_put(&pool->park, &piece, buffer->bytes);
	if (ret)
		return error_prefix(ret, "job %s stays: heap %s: ", pool->name, pool->park.heap);
	return park_check_time(pool, deadline_ns);
}

int park_store_send(struct rlv_pool *pool, uint64_t deadline_ns)
{
	int ret = park_begin(pool);
	bool done = false;

	if (ret)
		return ret;
	do {
		pool_advance(pool);
		ret = pool_hold(pool->pool, pool->job);
	} while (ret == -EAGAIN && park_check_time(pool, deadline_ns) == 0);
	if (ret == -EAGAIN)
		ret = -ETIMEDOUT;
	while (ret == 0)
		ret = park_send_piece(pool, deadline_ns, &done);
	if (done)
		ret = pool_leave_pieces(pool->pool, pool->job);
	park_end(pool);
	return ret;
}

/* -------- in -------- */

static int park_get(struct rlv_pool *pool, const struct pool_piece *piece, void *bytes)
{
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;
	char text[PARK_KEY_BYTES + 24];
	int ret;

	value.ptr = bytes;
	value.room = PARK_PIECE_BYTES;
	ret = rlv_kv_get(pool->park.kv, park_key(&pool->park, piece->number, text), &value);
	if (ret == 0 && value.len != piece->bytes)
		ret = error_set(-EBADMSG, "%s has %" PRIu64 " bytes", text, value.len);
	return ret ? error_prefix(ret,
				  "job %s: %" PRIu64 " bytes of its tensors at 0x%" PRIx64
				  " are not back from heap %s: ",
				  pool->name, piece->bytes, piece->va, pool->park.heap)
		   : 0;
}

/* The next piece, mapped, when the broker has extents for it. */
static int park_next_back(struct rlv_pool *pool, uint64_t deadline_ns, struct pool_piece *piece_out)
{
	int ret;

	while ((ret = pool_piece(pool->pool, pool->job, false, PARK_PIECE_BYTES, piece_out)) ==
	       -EAGAIN) {
		if (park_check_time(pool, deadline_ns))
			return -ETIMEDOUT;
		lease_wait(&pool->backend->lease, deadline_ns);
	}
	return ret;
}

static int park_fetch_piece(struct rlv_pool *pool, struct park_buffer *buffer, uint64_t deadline_ns)
{
	struct pool_piece piece;
	int ret = park_next_back(pool, deadline_ns, &piece);

	if (ret == 0)
		ret = park_await(pool, buffer, deadline_ns);
	if (ret == 0)
		ret = park_get(pool, &piece, buffer->bytes);
	if (ret == 0)
		ret = pool_piece_copy(pool->pool, &piece, buffer->bytes, false, &buffer->marks);
	return ret;
}

int park_store_fetch(struct rlv_pool *pool, uint64_t deadline_ns)
{
	int ret;

	if (pool_parked(pool->pool, pool->job) == 0)
		return 0;
	ret = park_begin(pool);
	if (ret)
		return ret;
	for (int i = 0; ret == 0; i ^= 1) {
		ret = park_fetch_piece(pool, &pool->park.buffers[i], deadline_ns);
		if (ret == 0) /* after each piece: calls with short deadlines get on, too */
			ret = park_check_time(pool, deadline_ns);
	}
	if (pool_parked(pool->pool, pool->job) == 0) {
		park_forget(&pool->park);
		ret = 0;
	}
	if (ret != -ETIMEDOUT)
		park_end(pool);
	return ret;
}
