/*
 * Fuzzes what a TLS stream makes of its peer's bytes. The first byte says which end we are and whether
 * a handshake with the token goes before; then the rest comes as what the peer sends: in place of
 * its handshake, behind it as records, or through it as frames.
 */
#include "wire/control/channel.h"
#include "wire/control/tls.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define TOKEN "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define ROUNDS 8

enum { AS_CLIENT = 1, SHAKEN = 2, THROUGH = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct tls *sides[2];

static void must(bool good)
{
	if (!good)
		abort();
}

static void open_sides(void)
{
	for (int i = 0; i < 2; i++) {
		const struct tls_opts opts = { .server = i == 0, .token = TOKEN };

		must(tls_open(&opts, &sides[i]) == 0);
	}
}

/* Reads all available bytes; each error must be a documented one. */
static void read_all(struct stream *stream)
{
	uint8_t bytes[512];
	short events;
	size_t n;
	int ret = 0;

	while (ret == 0)
		ret = stream_read(stream, bytes, sizeof(bytes), &n, &events);
	must(ret == -EAGAIN || ret == -EACCES || ret == -EPROTO || ret == -ECONNRESET);
}

static void receive(struct stream *stream)
{
	struct channel_frame frame;
	struct channel ch;
	int ret = 0;

	channel_init(&ch, *stream);
	while (ret == 0)
		ret = channel_receive(&ch, 0, &frame);
	must(ret == -ETIMEDOUT || ret == -EPROTO || ret == -EACCES || ret == -ECONNRESET ||
	     ret == -ENOMEM);
	*stream = ch.stream;
	ch.stream = (struct stream){ .fd = -1 }; /* the stream stays ours */
	channel_fini(&ch);
}

static void shake(struct stream *ours, struct stream *peer)
{
	for (int i = 0; i < ROUNDS; i++) {
		read_all(ours);
		read_all(peer);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct stream ours, peer;
	short events;
	size_t n;
	int fds[2];

	if (!sides[0])
		open_sides();
	if (size < 2 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds))
		return 0;
	must(stream_init_tls(&ours, fds[0], sides[data[0] & AS_CLIENT]) == 0);
	must(stream_init_tls(&peer, fds[1], sides[!(data[0] & AS_CLIENT)]) == 0);
	if (data[0] & SHAKEN)
		shake(&ours, &peer);
	if ((data[0] & (SHAKEN | THROUGH)) == (SHAKEN | THROUGH))
		(void)!stream_write(&peer, data + 1, size - 1, &n, &events);
	else
		(void)!send(fds[1], data + 1, size - 1, MSG_NOSIGNAL);
	if (data[0] & THROUGH)
		receive(&ours);
	else
		read_all(&ours);
	stream_close(&peer);
	read_all(&ours);
	stream_close(&ours);
	return 0;
}
