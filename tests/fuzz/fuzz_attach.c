/*
 * Fuzzes the target's socket: the input is cut into packets (u16 flags and length, bytes), which
 * go over a socket pair to a real target. Flag 0x8000: the head and its checksum are made right.
 * 0x4000: a descriptor goes along, of a page where one is renewed. The answers are not looked at; the target must outlive it.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/os/process.h"
#include "transport/pool/map.h"
#include "transport/attach/packet.h"
#include "transport/attach/serve.h"
#include "transport/transport.h"
#include "wire/region.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SEALED 0x8000u
#define WITH_FD 0x4000u

static struct transport_target *tg;
static struct region_grant grant;
static char dir[] = "/tmp/relive-fuzz-XXXXXX";
static int pidfd, page;

static void stop(void)
{
	transport_target_close(&tg);
	(void)rmdir(dir);
}

static void start(void)
{
	struct target_opts opts = { .pool_bytes = 2 << 20 };
	struct target_region spec = { .kind = 1, .role = REGION_PAGES, .size = 2 << 20 };
	char path[64];

	if (!mkdtemp(dir) || transport_target_open("shm", &opts, &tg))
		abort();
	(void)snprintf(path, sizeof(path), "%s/node", dir);
	if (tg->ops->listen(tg, path) || tg->ops->register_region(tg, &spec) ||
	    transport_grant(tg, 0, spec.id, RIGHT_ALL, &grant))
		abort();
	pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (map_memfd(spec.id, ATTACH_PAGE_BYTES, 0, &page))
		abort();
	(void)atexit(stop);
}

/* The length says the type. Fields that decide are made true where the input has zeros. */
static void repair(struct packet *packet, size_t n)
{
	struct process_id self;
	uint16_t type = n % 6 ? (uint16_t)(n % 6) : ATTACH_RENEW;

	if (type == ATTACH_HELLO && packet->hello.pid == 0 && process_self(&self) == 0) {
		packet->hello.client_id = 0;
		packet->hello.reserved = 0;
		packet->hello.pid = self.pid;
		packet->hello.start_time = self.start_time;
	}
	if ((type == ATTACH_REGION || type == ATTACH_RENEW) && packet->region.grant_bytes == 0) {
		packet->region.grant_bytes = grant.bytes;
		packet->region.page &= (type == ATTACH_REGION ? ATTACH_PAGE_NEXT : 512) | 3;
		memcpy(packet->region.grant, grant.data, grant.bytes);
	}
	packet_seal(packet, (enum attach_type)type);
}

static void send_one(int sock, uint16_t word, const uint8_t *bytes, size_t n)
{
	struct packet packet = { .fd = word & WITH_FD ? pidfd : -1 };

	if (!(word & SEALED)) {
		(void)!send(sock, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
		return;
	}
	memcpy(packet.bytes + sizeof(packet.head), bytes,
	       n < PACKET_MAX - sizeof(packet.head) ? n : PACKET_MAX - sizeof(packet.head));
	repair(&packet, n);
	if (packet.fd >= 0 && packet.head.type == ATTACH_RENEW)
		packet.fd = page;
	(void)!packet_send(sock, &packet);
}

static void drain(int sock)
{
	struct packet packet;

	while (packet_receive(sock, &packet) == 0)
		packet_drop_fd(&packet);
}

static LOCK_UNCHECKED int adopt(int sock)
{
	return serve_adopt(((struct target *)tg)->serve, sock);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int socks[2];

	if (!tg)
		start();
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, socks))
		abort();
	if (adopt(socks[1]))
		abort();
	while (size >= 2) {
		uint16_t word = (uint16_t)(data[0] | data[1] << 8);
		size_t n = word & 0x1ff;

		data += 2;
		size -= 2;
		n = n < size ? n : size;
		send_one(socks[0], word, data, n);
		data += n;
		size -= n;
		if (tg->ops->progress(tg, 0))
			abort();
		drain(socks[0]);
	}
	close(socks[0]);
	if (tg->ops->progress(tg, 0))
		abort();
	return 0;
}
