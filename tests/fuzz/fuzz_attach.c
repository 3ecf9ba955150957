/*
 * Fuzzes the target's socket: the input is cut into packets (u16 flags and length, bytes), which
 * go over socket pairs to two real targets, one with memory and one with a directory. Flag 0x8000: the
 * head and its checksum are made right. 0x4000: a descriptor goes along, of a page where one is renewed.
 * 0x2000: it goes to the directory's. The answers are not looked at; the targets must outlive it.
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
#include "tests/support/temp_dir.h"
#include "transport/pool/map.h"
#include "transport/attach/packet.h"
#include "transport/attach/serve.h"
#include "transport/transport.h"
#include "wire/region.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SEALED 0x8000u
#define WITH_FD 0x4000u
#define IN_DIR 0x2000u

static struct node {
	struct transport_target *tg;
	struct region_grant grant;
} nodes[2]; /* its pool: memory, a directory */
static char dir[] = "/tmp/relive-fuzz-XXXXXX";
static int pidfd, page;

static void stop(void)
{
	for (int i = 0; i < 2; i++)
		transport_target_close(&nodes[i].tg);
	temp_dir_remove(dir);
}

static void start_node(struct node *node, int i)
{
	struct target_opts opts = { .pool_bytes = 4 << 20, .dir = i, .create = i };
	struct target_region spec = { .kind = 1, .role = REGION_PAGES, .size = 2 << 20 };
	char path[64], pool[64];

	(void)snprintf(path, sizeof(path), "%s/node%d", dir, i);
	(void)snprintf(pool, sizeof(pool), "%s/pool", dir);
	opts.path = i ? pool : NULL;
	if (transport_target_open("shm", &opts, &node->tg) ||
	    node->tg->ops->listen(node->tg, path) ||
	    node->tg->ops->register_region(node->tg, &spec) ||
	    transport_grant(node->tg, 0, spec.id, RIGHT_ALL, &node->grant))
		abort();
}

static void start(void)
{
	if (!mkdtemp(dir))
		abort();
	for (int i = 0; i < 2; i++)
		start_node(&nodes[i], i);
	pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (map_memfd(1, ATTACH_PAGE_BYTES, 0, &page))
		abort();
	(void)atexit(stop);
}

/* The length says the type. Fields that decide are made true where the input has zeros. */
static void repair(const struct node *node, struct packet *packet, size_t n)
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
		packet->region.grant_bytes = node->grant.bytes;
		packet->region.page &= (type == ATTACH_REGION ? ATTACH_PAGE_NEXT : 512) | 3;
		memcpy(packet->region.grant, node->grant.data, node->grant.bytes);
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
	repair(&nodes[word & IN_DIR ? 1 : 0], &packet, n);
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

static LOCK_UNCHECKED int adopt(const struct node *node, int sock)
{
	return serve_adopt(((struct target *)node->tg)->serve, sock);
}

static int connect_to(const struct node *node)
{
	int socks[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, socks) ||
	    adopt(node, socks[1]))
		abort();
	return socks[0];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int socks[2];

	if (!nodes[0].tg)
		start();
	for (int i = 0; i < 2; i++)
		socks[i] = connect_to(&nodes[i]);
	while (size >= 2) {
		uint16_t word = (uint16_t)(data[0] | data[1] << 8);
		int at = word & IN_DIR ? 1 : 0;
		size_t n = word & 0x1ff;

		data += 2;
		size -= 2;
		n = n < size ? n : size;
		send_one(socks[at], word, data, n);
		data += n;
		size -= n;
		if (nodes[at].tg->ops->progress(nodes[at].tg, 0))
			abort();
		drain(socks[at]);
	}
	for (int i = 0; i < 2; i++) {
		close(socks[i]);
		if (nodes[i].tg->ops->progress(nodes[i].tg, 0))
			abort();
	}
	return 0;
}
