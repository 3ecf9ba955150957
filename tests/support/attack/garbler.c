#include "tests/support/attack/garbler.h"

#include "tests/support/sockets.h"
#include "tests/support/test.h"

#include "wire/control/frame.h"

#include "base/os/clock.h"
#include "base/rng.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FRAME_ROOM (FRAME_HEADER_BYTES + FRAME_BODY_MAX)
#define SPOILED_ROOM (FRAME_ROOM + 4096)
#define PATIENCE_MS 2000
#define DRIBBLED 48 /* bytes that are sent one by one */

/* What goes one way. */
struct way {
	struct stream *from, *to;
	uint8_t *bytes; /* FRAME_ROOM: what came and is no whole frame yet */
	size_t n;
	uint8_t *out; /* SPOILED_ROOM */
	uint8_t old[4096];
	size_t old_n; /* an earlier frame */
	uint64_t frames;
};

struct conn {
	struct garbler *garbler;
	int client;
	uint64_t seed;
	pthread_t thread;
	atomic_bool over;
	struct rng rng;
	struct stream streams[2];
	struct way ways[2];
};

/* -------- spoiling -------- */

static uint8_t *spoil_bytes(struct conn *conn, uint8_t *bytes, size_t n)
{
	static const uint8_t telling[] = { 0, 1, 0x7f, 0x80, 0xff };

	for (uint32_t i = 0; n && i <= rng_uniform_u64(&conn->rng, 4); i++) {
		size_t at = rng_uniform_u64(&conn->rng, n);

		if (rng_uniform_u64(&conn->rng, 2))
			bytes[at] ^= (uint8_t)(1u << rng_uniform_u64(&conn->rng, 8));
		else
			bytes[at] = telling[rng_uniform_u64(&conn->rng, sizeof(telling))];
	}
	return bytes;
}

static void set_length(uint8_t *frame, size_t n)
{
	uint32_t length = (uint32_t)(n - FRAME_HEADER_BYTES);

	memcpy(frame, &length, sizeof(length));
}

static size_t other_length(struct conn *conn, uint8_t *frame, size_t n)
{
	size_t to = FRAME_HEADER_BYTES;

	if (rng_uniform_u64(&conn->rng, 2))
		to += rng_uniform_u64(&conn->rng, n - FRAME_HEADER_BYTES + 1);
	else
		to = n + rng_uniform_u64(&conn->rng, 4000);
	for (size_t i = n; i < to; i++)
		frame[i] = (uint8_t)rng_next_u64(&conn->rng);
	set_length(frame, to);
	return to;
}

/* A run of a field's number or length that does not end, or is huge. */
static void put_varint(struct conn *conn, uint8_t *body, size_t n)
{
	size_t at = n ? rng_uniform_u64(&conn->rng, n) : 0;

	for (size_t i = 0; i < 9 && at + i < n; i++)
		body[at + i] = 0xff;
}

/* Returns the bytes that go out; the frame may have become longer, or none. */
static size_t spoil(struct conn *conn, struct way *way, uint8_t *frame, size_t n)
{
	uint8_t *body = frame + FRAME_HEADER_BYTES;
	size_t len = n - FRAME_HEADER_BYTES;

	switch (rng_uniform_u64(&conn->rng, 10)) {
	case 0:
	case 1:
	case 2:
		spoil_bytes(conn, body, len);
		return n;
	case 3:
		spoil_bytes(conn, frame, FRAME_HEADER_BYTES);
		return n;
	case 4:
		return other_length(conn, frame, n);
	case 5:
		put_varint(conn, body, len);
		return n;
	case 6: /* of another type, its own number */
		frame[4] = (uint8_t)rng_uniform_u64(&conn->rng, 64);
		return n;
	case 7: /* an earlier one in its place */
		memcpy(frame, way->old, way->old_n);
		return way->old_n ? way->old_n : n;
	case 8:
		return 0;
	default:
		for (size_t i = 0; i < len; i++)
			body[i] = (uint8_t)rng_next_u64(&conn->rng);
		return n;
	}
}

/* -------- passing on -------- */

static bool is_stopped(const struct conn *conn, int timeout_ms)
{
	struct pollfd ready = { .fd = conn->garbler->stop[0], .events = POLLIN };

	return poll(&ready, 1, timeout_ms) > 0;
}

static bool send_all(struct stream *to, const uint8_t *bytes, size_t len)
{
	while (len) {
		struct pollfd ready = { .fd = to->fd };
		size_t n = 0;
		int ret = stream_write(to, bytes, len, &n, &ready.events);

		if (ret == -EAGAIN && poll(&ready, 1, PATIENCE_MS) == 1)
			continue;
		if (ret)
			return false;
		bytes += n;
		len -= n;
	}
	return true;
}

/* Some come late, some in dribbles, some twice, some not to their end. */
static bool deliver(struct conn *conn, struct stream *to, const uint8_t *bytes, size_t n)
{
	size_t slow = n < DRIBBLED ? n : DRIBBLED;

	switch (rng_uniform_u64(&conn->rng, 8)) {
	case 0:
		return !is_stopped(conn, (int)rng_uniform_u64(&conn->rng, 300)) &&
		       send_all(to, bytes, n);
	case 1:
		for (size_t i = 0; i < slow; i++)
			if (is_stopped(conn, 5) || !send_all(to, bytes + i, 1))
				return false;
		return send_all(to, bytes + slow, n - slow);
	case 2:
		return send_all(to, bytes, n) && send_all(to, bytes, n);
	case 3:
		(void)!send_all(to, bytes, n ? rng_uniform_u64(&conn->rng, n) : 0);
		return false;
	default:
		return send_all(to, bytes, n);
	}
}

static bool pass_frame(struct conn *conn, struct way *way, const uint8_t *frame, size_t n)
{
	uint32_t one_in = atomic_load(&conn->garbler->one_in);
	bool plain = !one_in || way->frames++ < atomic_load(&conn->garbler->spare) ||
		     rng_uniform_u64(&conn->rng, one_in);

	atomic_fetch_add(&conn->garbler->frames, 1);
	if (plain && (way->old_n == 0 || rng_uniform_u64(&conn->rng, 8) == 0) &&
	    n <= sizeof(way->old)) {
		memcpy(way->old, frame, n);
		way->old_n = n;
	}
	if (plain)
		return send_all(way->to, frame, n);
	atomic_fetch_add(&conn->garbler->spoiled, 1);
	memcpy(way->out, frame, n);
	return deliver(conn, way->to, way->out, spoil(conn, way, way->out, n));
}

/* false: an end is gone. */
static bool pass_on(struct conn *conn, struct way *way, short *events_out)
{
	struct frame_header head;
	size_t n = 0;
	int ret = stream_read(way->from, way->bytes + way->n, FRAME_ROOM - way->n, &n, events_out);

	if (ret)
		return ret == -EAGAIN;
	way->n += n;
	while (way->n >= FRAME_HEADER_BYTES) {
		if (frame_decode(way->bytes, way->n, &head))
			return false;
		n = FRAME_HEADER_BYTES + head.length;
		if (way->n < n)
			return true;
		if (!pass_frame(conn, way, way->bytes, n))
			return false;
		memmove(way->bytes, way->bytes + n, way->n - n);
		way->n -= n;
	}
	return true;
}

static void pass_all(struct conn *conn)
{
	struct pollfd ready[] = { { .fd = conn->streams[0].fd, .events = POLLIN },
				  { .fd = conn->streams[1].fd, .events = POLLIN },
				  { .fd = conn->garbler->stop[0], .events = POLLIN } };
	bool going = true;

	while (going && poll(ready, 3, -1) > 0) {
		going = !ready[2].revents;
		for (int i = 0; going && i < 2; i++) {
			struct way *way = &conn->ways[i];

			if (!ready[i].revents)
				continue;
			do {
				ready[i].events = POLLIN;
				going = pass_on(conn, way, &ready[i].events);
			} while (going && tls_has_bytes(way->from->tls));
		}
	}
}

static bool open_way(struct conn *conn, int i)
{
	struct way *way = &conn->ways[i];

	way->from = &conn->streams[i];
	way->to = &conn->streams[!i];
	way->bytes = malloc(FRAME_ROOM);
	way->out = malloc(SPOILED_ROOM);
	return way->bytes && way->out;
}

/* Both are gone after it. */
static void pass_between(struct conn *conn)
{
	struct garbler *garbler = conn->garbler;
	struct stream *client = &conn->streams[0], *server = &conn->streams[1];
	int fd = sockets_connect_tcp(garbler->server_port);

	if (fd < 0) {
		close(conn->client);
		return;
	}
	if (stream_init_tls(server, fd, garbler->to_server) ||
	    stream_init_tls(client, conn->client, garbler->to_client))
		abort();
	if (open_way(conn, 0) && open_way(conn, 1))
		pass_all(conn);
	stream_close(client);
	stream_close(server);
}

static void *serve(void *arg)
{
	struct conn *conn = arg;

	rng_seed(&conn->rng, conn->seed, 0);
	pass_between(conn);
	for (int i = 0; i < 2; i++) {
		free(conn->ways[i].bytes);
		free(conn->ways[i].out);
	}
	atomic_store(&conn->over, true);
	return NULL;
}

/* -------- connections -------- */

/* NULL: as many as there can be are there. */
static struct conn **free_place(struct conn **conns)
{
	for (int i = 0; i < GARBLER_CONNS; i++) {
		if (conns[i] && atomic_load(&conns[i]->over)) {
			pthread_join(conns[i]->thread, NULL);
			free(conns[i]);
			conns[i] = NULL;
		}
		if (!conns[i])
			return &conns[i];
	}
	return NULL;
}

static void take_in(struct garbler *garbler, struct conn **conns)
{
	int fd = accept4(garbler->listener, NULL, NULL, SOCK_CLOEXEC);
	struct conn **place = fd < 0 ? NULL : free_place(conns);
	struct conn *conn = place ? calloc(1, sizeof(*conn)) : NULL;

	if (!conn) {
		if (fd >= 0)
			close(fd);
		return;
	}
	conn->garbler = garbler;
	conn->client = fd;
	conn->seed = garbler->seed + atomic_fetch_add(&garbler->conns, 1);
	if (pthread_create(&conn->thread, NULL, serve, conn))
		abort();
	*place = conn;
}

static void *run(void *arg)
{
	struct garbler *garbler = arg;
	struct pollfd ready[] = { { .fd = garbler->listener, .events = POLLIN },
				  { .fd = garbler->stop[0], .events = POLLIN } };
	struct conn *conns[GARBLER_CONNS] = { NULL };

	while (poll(ready, 2, -1) > 0 && !ready[1].revents)
		take_in(garbler, conns);
	for (int i = 0; i < GARBLER_CONNS; i++) {
		if (conns[i])
			pthread_join(conns[i]->thread, NULL);
		free(conns[i]);
	}
	return NULL;
}

void garbler_open(struct garbler *garbler, uint16_t server_port, const char *token, uint64_t seed)
{
	struct tls_opts opts = { .server = true, .token = token };

	memset(garbler, 0, sizeof(*garbler));
	garbler->server_port = server_port;
	garbler->seed = seed;
	assert_int_equal(tls_open(&opts, &garbler->to_client), 0);
	opts.server = false;
	assert_int_equal(tls_open(&opts, &garbler->to_server), 0);
	garbler->listener = sockets_listen_tcp(&garbler->port);
	assert_int_equal(pipe(garbler->stop), 0);
	assert_int_equal(pthread_create(&garbler->thread, NULL, run, garbler), 0);
}

void garbler_close(struct garbler *garbler)
{
	assert_int_equal(write(garbler->stop[1], "x", 1), 1);
	assert_int_equal(pthread_join(garbler->thread, NULL), 0);
	close(garbler->listener);
	close(garbler->stop[0]);
	close(garbler->stop[1]);
	tls_close(&garbler->to_client);
	tls_close(&garbler->to_server);
}
