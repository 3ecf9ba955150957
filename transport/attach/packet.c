/*
 * packet.c - messages of wire/attach_layout.h, sealed and checked.
 */
#include "transport/attach/packet.h"

#include "base/os/fd_packet.h"

size_t packet_size(uint16_t type)
{
	static const size_t sizes[] = {
		[ATTACH_HELLO] = sizeof(struct attach_hello),
		[ATTACH_HELLO_REPLY] = sizeof(struct attach_hello_reply),
		[ATTACH_REGION] = sizeof(struct attach_region),
		[ATTACH_REGION_REPLY] = sizeof(struct attach_region_reply),
		[ATTACH_BYE] = sizeof(struct attach_bye),
		[ATTACH_RENEW] = sizeof(struct attach_region),
		[ATTACH_RENEW_REPLY] = sizeof(struct attach_region_reply),
	};

	return type < sizeof(sizes) / sizeof(sizes[0]) ? sizes[type] : 0;
}

static const struct message_family family = { "shm transport", ATTACH_MAGIC, ATTACH_VERSION,
					      packet_size };

void packet_seal(struct packet *packet, enum attach_type type)
{
	message_head_seal(&packet->head, &family, (uint16_t)type);
}

int packet_check(const struct packet *packet, size_t n)
{
	return message_head_check(&packet->head, n, &family);
}

int packet_send(int sock, const struct packet *packet)
{
	int fd = packet->fd;

	return fd_packet_send(sock, &(struct fd_packet){ .bytes = (void *)(uintptr_t)packet->bytes,
							 .n = packet->head.bytes,
							 .fds = &fd,
							 .n_fds = fd >= 0 });
}

void packet_drop_fd(struct packet *packet)
{
	fd_packet_close(&packet->fd, 1);
}

int packet_receive(int sock, struct packet *packet_out)
{
	struct fd_packet came = {
		.bytes = packet_out->bytes, .n = PACKET_MAX, .fds = &packet_out->fd, .n_fds = 1
	};
	int ret;

	packet_out->fd = -1;
	/* If a descriptor was sent but none arrives, a caller that needs it fails. */
	ret = fd_packet_receive(sock, &came);
	if (ret == 0)
		ret = packet_check(packet_out, came.n);
	if (ret)
		packet_drop_fd(packet_out);
	return ret;
}
