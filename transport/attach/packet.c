/*
 * packet.c - sendmsg and recvmsg of sealed messages.
 */
#include "transport/attach/packet.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/message_head.h"

/* room for more descriptors than is allowed, so that a surplus is seen and closed */
enum { FDS_MAX = 8 };

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

static const struct message_family family = { "shm", ATTACH_MAGIC, ATTACH_VERSION, packet_size };

void packet_seal(struct packet *packet, enum attach_type type)
{
	message_head_seal(&packet->head, &family, (uint16_t)type);
}

int packet_check(const struct packet *packet, size_t n)
{
	return message_head_check(&packet->head, n, &family);
}

static int socket_error(const char *call)
{
	int code = errno;

	if (code == EAGAIN)
		return -EAGAIN;
	if (code == EPIPE || code == ECONNRESET || code == ENOTCONN)
		code = ECONNRESET;
	return error_set(-code, "%s: %s", call, strerror(code));
}

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
};

int packet_send(int sock, const struct packet *packet)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)packet->bytes,
			     .iov_len = packet->head.bytes };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	union control control = { 0 };
	struct cmsghdr *cmsg;

	if (packet->fd >= 0) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(sizeof(int));
		cmsg = CMSG_FIRSTHDR(&msg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cmsg), &packet->fd, sizeof(int));
	}
	if (sendmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return socket_error("sendmsg");
	return 0;
}

void packet_drop_fd(struct packet *packet)
{
	if (packet->fd >= 0)
		close(packet->fd);
	packet->fd = -1;
}

int packet_receive(int sock, struct packet *packet_out)
{
	struct iovec iov = { .iov_base = packet_out->bytes, .iov_len = PACKET_MAX };
	union control control = { 0 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.bytes,
			      .msg_controllen = sizeof(control.bytes) };
	size_t fds = 0;
	ssize_t n;
	int fd, ret;

	packet_out->fd = -1;
	n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return socket_error("recvmsg");
	/*
	 * Keeps the first descriptor, closes the others, and counts all. If a descriptor was sent
	 * but none arrives, this process had none free; a caller that needs it fails.
	 */
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (fds++ == 0)
				packet_out->fd = fd;
			else
				close(fd);
		}
	}
	if (n == 0)
		ret = error_set(-ECONNRESET, "the peer closed the connection");
	else if (fds > 1 || (msg.msg_flags & MSG_TRUNC) ||
		 (fds == 1 && (msg.msg_flags & MSG_CTRUNC)))
		ret = error_set(-EPROTO, "packet: too long, or with %zu descriptors", fds);
	else
		ret = packet_check(packet_out, (size_t)n);
	if (ret)
		packet_drop_fd(packet_out);
	return ret;
}
