#include "base/os/fd_packet.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* one more than is allowed, so that a surplus is seen */
union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE((FD_PACKET_MAX + 1) * sizeof(int))];
};

static int socket_error(const char *call)
{
	int code = errno;

	if (code == EAGAIN)
		return -EAGAIN;
	if (code == EPIPE || code == ECONNRESET || code == ENOTCONN)
		code = ECONNRESET;
	return error_set(-code, "%s: %s", call, strerror(code));
}

int fd_packet_send(int sock, const struct fd_packet *packet)
{
	struct iovec iov = { .iov_base = packet->bytes, .iov_len = packet->n };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	size_t fds_bytes = packet->n_fds * sizeof(int);
	union control control = { 0 };
	struct cmsghdr *cmsg;

	if (packet->n_fds > FD_PACKET_MAX)
		return error_set(-EINVAL, "packet: %zu descriptors", packet->n_fds);
	if (fds_bytes) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(fds_bytes);
		cmsg = CMSG_FIRSTHDR(&msg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(fds_bytes);
		memcpy(CMSG_DATA(cmsg), packet->fds, fds_bytes);
	}
	if (sendmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return socket_error("sendmsg");
	return 0;
}

void fd_packet_close(int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
		fds[i] = -1;
	}
}

/* Moves the first `room` descriptors of a message to fds and closes the others. Returns how many
   there were. */
static size_t take_fds(struct msghdr *msg, int *fds, size_t room)
{
	size_t n = 0;
	int fd;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (n < room)
				fds[n] = fd;
			else
				close(fd);
			n++;
		}
	}
	return n;
}

int fd_packet_receive(int sock, struct fd_packet *packet)
{
	struct iovec iov = { .iov_base = packet->bytes, .iov_len = packet->n };
	union control control = { 0 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.bytes,
			      .msg_controllen = sizeof(control.bytes) };
	size_t room = packet->n_fds, came;
	ssize_t n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	int ret = 0;

	packet->n_fds = 0;
	if (n < 0)
		return socket_error("recvmsg");
	came = take_fds(&msg, packet->fds, room);
	if (n == 0)
		ret = error_set(-ECONNRESET, "the peer closed the connection");
	else if (came > room || (msg.msg_flags & MSG_TRUNC) ||
		 (came && (msg.msg_flags & MSG_CTRUNC)))
		ret = error_set(-EPROTO, "packet: too long, or with %zu descriptors", came);
	if (ret) {
		fd_packet_close(packet->fds, came < room ? came : room);
		return ret;
	}
	packet->n = (size_t)n;
	packet->n_fds = came;
	return 0;
}
