#include "bench/kv/redis.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem/alloc.h"
#include "base/os/clock.h"
#include "program/interrupt.h"
#include "program/spawn.h"

#define COMMAND_BYTES 128u /* around key and value */
#define ANSWER_MS 10000

/* -------- the server -------- */

static int dial(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		close(fd);
		fd = -1;
	}
	return fd >= 0 ? fd : error_set(-errno, "redis: connect: %s", strerror(errno));
}

int redis_server_start(struct redis_server *server)
{
	const char *argv[] = {
		"redis-server", "--port", "0",     "--unixsocket", server->socket, "--save", "",
		"--appendonly", "no",     "--dir", server->dir,    "--io-threads", "1",      NULL
	};
	char log[96];
	const struct spawn_daemon daemon = {
		.binary = argv[0], .argv = argv, .log_path = log, .tied = true
	};
	int ret, fd = -1;

	(void)snprintf(server->dir, sizeof(server->dir), "/tmp/relive-redis-XXXXXX");
	if (!mkdtemp(server->dir))
		return error_set(-errno, "redis: mkdtemp: %s", strerror(errno));
	(void)snprintf(server->socket, sizeof(server->socket), "%s/socket", server->dir);
	(void)snprintf(log, sizeof(log), "%s/log", server->dir);
	ret = spawn_daemon(&daemon, &server->pid);
	if (ret)
		(void)rmdir(server->dir);
	for (uint32_t i = 0; ret == 0 && fd < 0 && i < 200; i++) {
		interrupt_sleep(20 * CLOCK_NS_PER_MS);
		fd = dial(server->socket);
	}
	if (ret == 0 && fd < 0) {
		redis_server_stop(server);
		return error_set(-ETIMEDOUT, "redis-server does not answer");
	}
	if (fd >= 0)
		close(fd);
	return ret;
}

void redis_server_stop(struct redis_server *server)
{
	char log[96];

	if (!server->pid)
		return;
	spawn_stop(server->pid, 2 * CLOCK_NS_PER_S);
	server->pid = 0;
	(void)snprintf(log, sizeof(log), "%s/log", server->dir);
	(void)unlink(log);
	(void)unlink(server->socket);
	(void)rmdir(server->dir);
}

/* -------- a client -------- */

int redis_connect(struct redis *redis, const char *socket, uint64_t most)
{
	*redis = (struct redis){ .fd = dial(socket) };
	if (redis->fd < 0)
		return redis->fd;
	redis->out_room = redis->in_room = REDIS_DEPTH * (most + COMMAND_BYTES);
	redis->out = mem_alloc(redis->out_room);
	redis->in = mem_alloc(redis->in_room);
	return redis->out && redis->in ? 0 : error_set(-ENOMEM, "redis: cannot allocate memory");
}

void redis_disconnect(struct redis *redis)
{
	if (redis->fd > 0)
		close(redis->fd);
	mem_free(redis->out);
	mem_free(redis->in);
}

static void put_bytes(struct redis *redis, const void *ptr, size_t len)
{
	memcpy(redis->out + redis->out_bytes, ptr, len);
	redis->out_bytes += len;
}

static void put_string(struct redis *redis, struct rlv_bytes bytes)
{
	char head[32];
	int n = snprintf(head, sizeof(head), "$%zu\r\n", bytes.len);

	put_bytes(redis, head, (size_t)n);
	put_bytes(redis, bytes.ptr, bytes.len);
	put_bytes(redis, "\r\n", 2);
}

int redis_add(struct redis *redis, struct rlv_bytes key, struct rlv_bytes value)
{
	static const char get[] = "*2\r\n$3\r\nGET\r\n", set[] = "*3\r\n$3\r\nSET\r\n";

	if (redis->out_bytes + key.len + value.len + COMMAND_BYTES > redis->out_room)
		return error_set(-ERANGE, "redis: a value of %zu bytes is too long", value.len);
	put_bytes(redis, value.ptr ? set : get, sizeof(get) - 1);
	put_string(redis, key);
	if (value.ptr)
		put_string(redis, value);
	return ++redis->n == REDIS_DEPTH ? redis_flush(redis) : 0;
}

/*
 * Bytes of the first answer of n bytes: "+OK", or a string; 0: it is not complete; -1: an error, or no
 * value.
 */
static int64_t answer_bytes(const uint8_t *at, size_t n)
{
	const uint8_t *end = memchr(at, '\n', n);
	size_t len;

	if (!end)
		return 0;
	if (at[0] == '+')
		return end + 1 - at;
	if (at[0] != '$' || at[1] == '-')
		return -1;
	len = (size_t)(end + 1 - at) + strtoull((const char *)at + 1, NULL, 10) + 2;
	return len <= n ? (int64_t)len : 0;
}

/* Waits until the socket can be read, or written, too. */
static int wait_for(const struct redis *redis, bool writes)
{
	struct pollfd poll_fd = { .fd = redis->fd,
				  .events = (short)(POLLIN | (writes ? POLLOUT : 0)) };

	return poll(&poll_fd, 1, ANSWER_MS) > 0 ? poll_fd.revents
						: error_set(-ETIMEDOUT, "redis: no answer");
}

int redis_flush(struct redis *redis)
{
	size_t sent = 0, n = 0, seen = 0;
	int64_t bytes;
	ssize_t done;
	int ready;

	while (redis->n) {
		ready = wait_for(redis, sent < redis->out_bytes);
		if (ready < 0)
			return ready;
		if (ready & POLLOUT) {
			done = send(redis->fd, redis->out + sent, redis->out_bytes - sent,
				    MSG_DONTWAIT | MSG_NOSIGNAL);
			sent += done > 0 ? (size_t)done : 0;
		}
		if (!(ready & (POLLIN | POLLHUP | POLLERR)))
			continue;
		done = recv(redis->fd, redis->in + n, redis->in_room - n, MSG_DONTWAIT);
		if (done <= 0)
			return error_set(-EIO, "redis: the connection ended");
		n += (size_t)done;
		while (redis->n && (bytes = answer_bytes(redis->in + seen, n - seen)) != 0) {
			if (bytes < 0)
				return error_set(-EIO, "redis: an answer is not the value");
			seen += (size_t)bytes;
			redis->n--;
		}
	}
	redis->flushes += redis->out_bytes > 0;
	redis->bytes += redis->out_bytes + n;
	redis->out_bytes = 0;
	return 0;
}
