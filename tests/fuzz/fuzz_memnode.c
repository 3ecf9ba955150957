/*
 * Fuzzes a memory node with requests of its metadata server: the input is cut into frames (type,
 * u16 length, bytes) that go to the service, over a real pool.
 */
#include "server/memnode/service.h"

#include "wire/control.pb-c.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FRAMES_MAX 32
#define FIRST_TYPE RELIVE__TYPE__TYPE_NODE_REGISTER
#define TYPES 10

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct transport_target *target;

static void start(void)
{
	const struct target_opts opts = { .pool_bytes = 16 << 20, .private_memory = true };

	if (transport_target_open("shm", &opts, &target))
		abort();
}

/* Removes the regions that an input made. */
static void free_regions(void)
{
	struct target_region *regions;
	size_t n;

	if (memnode_list_regions(target, &regions, &n))
		abort();
	for (size_t i = 0; i < n; i++)
		if (target->ops->unregister_region(target, regions[i].id))
			abort();
	free(regions);
}

static void serve(const struct memnode_service *svc, struct channel *ch,
		  const struct channel_frame *frame)
{
	struct memnode_answer answer;

	if (memnode_line_of(frame) > MEMNODE_PERSIST)
		abort();
	memnode_serve(svc, frame, &answer);
	if (!answer.message || memnode_reply(ch, &frame->head, &answer))
		abort();
	if (frame->head.request_id % 8 == 0)
		memnode_undo(svc, &frame->head, &answer);
}

static void drain(int fd)
{
	uint8_t bytes[4096];

	while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct memnode_service svc = { .name = "n", .uri = "embed:", .term = 1 };
	struct channel_frame frame = { .head = { .term = 1 } };
	struct channel ch;
	int fds[2];

	if (!target)
		start();
	svc.target = target;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds))
		abort();
	channel_init(&ch, stream_socket(fds[0]));
	for (uint32_t i = 0; i < FRAMES_MAX && size >= 3; i++) {
		size_t n = data[1] | (size_t)data[2] << 8;

		n = n < size - 3 ? n : size - 3;
		frame.head.type = (uint16_t)(FIRST_TYPE + data[0] % TYPES);
		frame.head.length = (uint32_t)n;
		frame.head.request_id = i;
		frame.body = data + 3;
		serve(&svc, &ch, &frame);
		drain(fds[1]);
		data += 3 + n;
		size -= 3 + n;
	}
	channel_fini(&ch);
	close(fds[1]);
	free_regions();
	return 0;
}
