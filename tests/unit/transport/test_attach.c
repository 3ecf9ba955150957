/*
 * The messages of the shm socket, the table of grants, and the target's treatment of malformed
 * peers.
 */
#include "tests/support/fixture/raw_node.h"
#include "tests/support/sockets.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os/process.h"
#include "transport/attach/grants.h"
#include "transport/attach/packet.h"
#include "transport/attach/target.h"
#include "transport/transport.h"

/* -------- packets -------- */

static struct packet hello_packet(void)
{
	struct packet packet = { .fd = -1 };

	packet.hello.client_id = 5;
	packet_seal(&packet, ATTACH_HELLO);
	return packet;
}

TEST(packet_check__a_sealed_message)
{
	struct packet packet = hello_packet();

	assert_int_equal(packet_check(&packet, sizeof(packet.hello)), 0);
}

TEST(packet_check__any_flipped_bit)
{
	for (size_t bit = 0; bit < 8 * sizeof(struct attach_hello); bit++) {
		struct packet packet = hello_packet();

		packet.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(packet_check(&packet, sizeof(packet.hello)), -EPROTO);
	}
}

TEST(packet_check__any_other_length)
{
	struct packet packet = hello_packet();

	for (size_t n = 0; n < PACKET_MAX; n++)
		assert_int_equal(packet_check(&packet, n), n == sizeof(packet.hello) ? 0 : -EPROTO);
}

TEST(packet_check__of_another_version)
{
	struct packet packet = hello_packet();

	packet.head.version = 2;
	assert_int_equal(packet_check(&packet, sizeof(packet.hello)), -EPROTO);
	assert_non_null(strstr(error_last(), "version 2"));
}

TEST(packet_size__of_an_unknown_type)
{
	assert_int_equal(packet_size(0), 0);
	assert_int_equal(packet_size(ATTACH_RENEW_REPLY + 1), 0);
	assert_int_equal(packet_size(UINT16_MAX), 0);
}

static void make_pair(int socks[2])
{
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, socks), 0);
}

TEST(packet_receive__what_was_sent)
{
	struct packet packet = hello_packet(), got;
	struct stat mine, theirs;
	int socks[2];

	make_pair(socks);
	packet.fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_int_equal(packet_send(socks[0], &packet), 0);
	assert_int_equal(packet_receive(socks[1], &got), 0);
	assert_memory_equal(&got.hello, &packet.hello, sizeof(got.hello));
	assert_int_equal(fstat(packet.fd, &mine), 0);
	assert_int_equal(fstat(got.fd, &theirs), 0);
	assert_int_equal(mine.st_rdev, theirs.st_rdev);
	assert_true(fcntl(got.fd, F_GETFD) & FD_CLOEXEC);
	packet_drop_fd(&got);
	packet_drop_fd(&packet);
	assert_int_equal(packet_receive(socks[1], &got), -EAGAIN);
	close(socks[0]);
	assert_int_equal(packet_receive(socks[1], &got), -ECONNRESET);
	assert_int_equal(packet_send(socks[1], &packet), -ECONNRESET);
	close(socks[1]);
}

static int count_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void send_fds(int sock, const void *bytes, size_t len, int n)
{
	char control[CMSG_SPACE(16 * sizeof(int))] = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = CMSG_SPACE((size_t)n * sizeof(int)) };
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
	int fds[16] = { 0 }; /* stdin, again and again */

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
	memcpy(CMSG_DATA(cmsg), fds, (size_t)n * sizeof(int));
	assert_int_equal(sendmsg(sock, &msg, 0), len);
}

/* All received descriptors are closed, however many arrive. */
TEST(packet_receive__too_many_descriptors)
{
	struct packet packet = hello_packet(), got;
	int socks[2], before;

	make_pair(socks);
	before = count_fds();
	for (int n = 2; n <= 16; n++) {
		send_fds(socks[0], packet.bytes, sizeof(packet.hello), n);
		assert_int_equal(packet_receive(socks[1], &got), -EPROTO);
		assert_int_equal(got.fd, -1);
	}
	assert_int_equal(count_fds(), before);
	close(socks[0]);
	close(socks[1]);
}

TEST(packet_receive__too_long)
{
	uint8_t bytes[PACKET_MAX + 1] = { 0 };
	struct packet got;
	int socks[2];

	make_pair(socks);
	assert_int_equal(send(socks[0], bytes, sizeof(bytes), 0), sizeof(bytes));
	assert_int_equal(packet_receive(socks[1], &got), -EPROTO);
	close(socks[0]);
	close(socks[1]);
}

/* -------- grants -------- */

static struct region_grant add_grant(struct grants *grants, uint64_t client_id, uint32_t region,
				     uint32_t rights)
{
	struct grant_slot want = { .client_id = client_id, .region = region, .rights = rights };
	struct region_grant grant;

	assert_int_equal(grants_add(grants, &want, &grant), 0);
	return grant;
}

TEST(grants_check__a_grant)
{
	struct grants grants = { .incarnation = 9 };
	struct region_grant grant = add_grant(&grants, 1, 2, 3);
	const struct grant_slot *slot = NULL;

	assert_int_equal(grants_check(&grants, 1, &grant, &slot), 0);
	assert_int_equal(slot->region, 2);
	assert_int_equal(slot->rights, 3);
	assert_int_equal(grants_check(&grants, 2, &grant, &slot), -EACCES);
	grants_fini(&grants);
}

TEST(grants_check__of_another_incarnation)
{
	struct grants grants = { .incarnation = 9 };
	struct region_grant grant = add_grant(&grants, 1, 2, 3);
	const struct grant_slot *slot = NULL;

	grants.incarnation = 10;
	assert_int_equal(grants_check(&grants, 1, &grant, &slot), -ESTALE);
	grants_fini(&grants);
}

TEST(grants_add__the_same_gives_the_same)
{
	struct grants grants = { .incarnation = 9 };
	struct region_grant a = add_grant(&grants, 1, 2, 3), b = add_grant(&grants, 1, 2, 3);
	struct region_grant c = add_grant(&grants, 1, 2, 1);

	assert_memory_equal(&a, &b, sizeof(a));
	assert_memory_not_equal(&a, &c, sizeof(a));
	assert_int_equal(grants.n, 2);
	grants_fini(&grants);
}

TEST(grants_remove__then_the_slot_is_another)
{
	struct grants grants = { .incarnation = 9 };
	struct region_grant a = add_grant(&grants, 1, 2, 3), b, c = add_grant(&grants, 4, 2, 3);
	const struct grant_slot *slot = NULL;

	grants_remove(&grants, 1, &(struct region_range){ 0 });
	b = add_grant(&grants, 1, 2, 3);
	assert_int_equal(grants.n, 2); /* reused */
	assert_int_equal(grants_check(&grants, 1, &a, &slot), -EACCES);
	assert_int_equal(grants_check(&grants, 1, &b, &slot), 0);
	grants_remove(&grants, GRANTS_ANY, &(struct region_range){ .region = 2 });
	assert_int_equal(grants_check(&grants, 1, &b, &slot), -EACCES);
	assert_int_equal(grants_check(&grants, 4, &c, &slot), -EACCES);
	grants_fini(&grants);
}

TEST(grants_add__a_thousand)
{
	struct grants grants = { .incarnation = 9 };
	const struct grant_slot *slot = NULL;
	static struct region_grant all[1000];

	for (uint32_t i = 0; i < 1000; i++)
		all[i] = add_grant(&grants, i, 1 + i, 7);
	for (uint32_t i = 0; i < 1000; i++)
		assert_int_equal(grants_check(&grants, i, &all[i], &slot), 0);
	grants_fini(&grants);
}

/* -------- strange peers -------- */

static uint32_t clients_of(struct raw_node *node)
{
	struct target_stats stats;

	node->tg->ops->stats(node->tg, &stats);
	return stats.clients;
}

NODE_TEST(serve__a_true_hello)
{
	struct raw_node *node = *state;
	struct packet hello = raw_node_hello();
	int sock = raw_node_connect(node);

	assert_int_equal(raw_node_greet(node, sock, &hello), 0);
	assert_int_equal(clients_of(node), 1);
	close(sock);
	raw_node_progress(node);
	assert_int_equal(clients_of(node), 0); /* it had attached nothing */
	packet_drop_fd(&hello);
}

NODE_TEST(serve__garbage_of_every_length)
{
	struct raw_node *node = *state;
	uint8_t bytes[PACKET_MAX + 64];
	int sock;

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 37 + 11);
	for (size_t len = 1; len <= sizeof(bytes); len += 13) {
		sock = raw_node_connect(node);
		assert_int_equal(send(sock, bytes, len, 0), len);
		raw_node_progress(node);
		assert_true(raw_node_hung_up(sock));
		close(sock);
	}
}

NODE_TEST(serve__a_peer_that_closes_its_half)
{
	struct raw_node *node = *state;
	int sock = raw_node_connect(node);

	assert_int_equal(shutdown(sock, SHUT_WR), 0);
	raw_node_progress(node);
	assert_true(raw_node_hung_up(sock));
	close(sock);
}

NODE_TEST(serve__a_hello_without_pidfd)
{
	struct raw_node *node = *state;
	struct packet hello = raw_node_hello();
	int sock = raw_node_connect(node);

	packet_drop_fd(&hello);
	assert_int_equal(raw_node_greet(node, sock, &hello), -EPROTO);
	assert_true(raw_node_hung_up(sock));
	close(sock);
}

NODE_TEST(serve__a_hello_with_something_else_than_a_pidfd)
{
	struct raw_node *node = *state;
	struct packet hello = raw_node_hello();
	int sock = raw_node_connect(node);

	packet_drop_fd(&hello);
	hello.fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_int_equal(raw_node_greet(node, sock, &hello), -EINVAL);
	packet_drop_fd(&hello);
	close(sock);
}

NODE_TEST(serve__a_hello_with_the_pidfd_of_another)
{
	struct raw_node *node = *state;
	struct packet hello = raw_node_hello();
	int sock = raw_node_connect(node);

	packet_drop_fd(&hello);
	hello.fd = (int)syscall(SYS_pidfd_open, getppid(), 0);
	assert_true(hello.fd >= 0);
	assert_int_equal(raw_node_greet(node, sock, &hello), -EPERM);
	packet_drop_fd(&hello);
	close(sock);
}

NODE_TEST(serve__a_hello_with_another_pid_or_start)
{
	struct raw_node *node = *state;
	struct packet hello = raw_node_hello();
	int sock = raw_node_connect(node);

	hello.hello.pid++;
	packet_seal(&hello, ATTACH_HELLO);
	assert_int_equal(raw_node_greet(node, sock, &hello), -EPERM);
	close(sock);
	sock = raw_node_connect(node);
	hello.hello.pid--;
	hello.hello.start_time++;
	packet_seal(&hello, ATTACH_HELLO);
	assert_int_equal(raw_node_greet(node, sock, &hello), -EPERM);
	assert_int_equal(clients_of(node), 0);
	packet_drop_fd(&hello);
	close(sock);
}

NODE_TEST(serve__two_hellos)
{
	struct raw_node *node = *state;
	struct packet hello = raw_node_hello();
	int sock = raw_node_connect(node);

	assert_int_equal(raw_node_greet(node, sock, &hello), 0);
	assert_int_equal(raw_node_greet(node, sock, &hello), 1);
	assert_true(raw_node_hung_up(sock));
	packet_drop_fd(&hello);
	close(sock);
}

NODE_TEST(serve__an_attach_before_hello)
{
	struct raw_node *node = *state;
	struct packet packet = { .fd = -1 };
	int sock = raw_node_connect(node);

	packet_seal(&packet, ATTACH_REGION);
	assert_int_equal(packet_send(sock, &packet), 0);
	raw_node_progress(node);
	assert_true(raw_node_hung_up(sock));
	close(sock);
}

NODE_TEST(serve__an_attach_with_a_long_grant)
{
	struct raw_node *node = *state;
	struct packet hello = raw_node_hello(), packet = { .fd = -1 };
	int sock = raw_node_connect(node);

	assert_int_equal(raw_node_greet(node, sock, &hello), 0);
	packet.region.grant_bytes = ATTACH_GRANT_BYTES + 1;
	packet_seal(&packet, ATTACH_REGION);
	assert_int_equal(packet_send(sock, &packet), 0);
	raw_node_progress(node);
	assert_int_equal(packet_receive(sock, &packet), 0);
	assert_int_equal(packet.region_reply.status, -EPROTO);
	assert_int_equal(packet.fd, -1);
	packet_drop_fd(&hello);
	close(sock);
}

static int ask_region(struct raw_node *node, int sock, struct packet *packet)
{
	struct region_grant grant;

	assert_int_equal(transport_grant(node->tg, 5, node->spec.id, RIGHT_READ, &grant), 0);
	*packet = (struct packet){ .fd = -1 };
	packet->region.grant_bytes = grant.bytes;
	memcpy(packet->region.grant, grant.data, grant.bytes);
	packet_seal(packet, ATTACH_REGION);
	assert_int_equal(packet_send(sock, packet), 0);
	raw_node_progress(node);
	assert_int_equal(packet_receive(sock, packet), 0);
	return packet->region_reply.status;
}

/* No test has a device: its pool is one that says it is undivided. */
NODE_TEST(serve__a_device_is_handed_to_clients_that_are_trusted)
{
	struct raw_node *node = *state;
	struct packet hello = raw_node_hello(), packet;
	int sock = raw_node_connect(node);

	assert_int_equal(raw_node_greet(node, sock, &hello), 0);
	target_of(node->tg)->pool->undivided = true;
	assert_int_equal(ask_region(node, sock, &packet), -EACCES);
	assert_int_equal(packet.fd, -1);
	assert_non_null(strstr(packet.region_reply.text, "--trust-clients"));
	target_of(node->tg)->pool->undivided = false;
	assert_int_equal(ask_region(node, sock, &packet), 0);
	assert_true(packet.fd >= 0);
	packet_drop_fd(&packet);
	packet_drop_fd(&hello);
	close(sock);
}

NODE_TEST(serve__a_silent_peer_holds_nobody_up)
{
	struct raw_node *node = *state;
	struct packet hello = raw_node_hello();
	int silent = raw_node_connect(node), sock = raw_node_connect(node);

	assert_int_equal(raw_node_greet(node, sock, &hello), 0);
	assert_false(raw_node_hung_up(silent));
	fake_clock_advance(&node->clock, 6 * (uint64_t)CLOCK_NS_PER_S);
	raw_node_progress(node);
	assert_true(raw_node_hung_up(silent)); /* its time is over */
	assert_false(raw_node_hung_up(sock));  /* a peer may be silent after its HELLO */
	packet_drop_fd(&hello);
	close(silent);
	close(sock);
}

NODE_TEST(serve__a_peer_that_does_not_read)
{
	struct raw_node *node = *state;
	struct packet hello = raw_node_hello(), packet = { .fd = -1 };
	int sock = raw_node_connect(node), sent = 0;

	assert_int_equal(raw_node_greet(node, sock, &hello), 0);
	packet_seal(&packet, ATTACH_REGION);
	for (; sent < 10000 && packet_send(sock, &packet) == 0; sent++)
		assert_int_equal(node->tg->ops->progress(node->tg, 0), 0);
	assert_true(sent < 10000); /* the node dropped the client when its socket buffer was full */
	packet_drop_fd(&hello);
	close(sock);
}

NODE_TEST(fence__of_a_client_that_only_said_hello)
{
	struct raw_node *node = *state;
	struct packet hello = raw_node_hello();
	int sock = raw_node_connect(node);
	enum fence_result result = FENCE_ALIVE;

	assert_int_equal(raw_node_greet(node, sock, &hello), 0);
	assert_int_equal(node->tg->ops->fence(node->tg, 5, FENCE_ASK, &result), 0);
	assert_int_equal(result, FENCE_DEAD);
	assert_true(raw_node_hung_up(sock));
	packet_drop_fd(&hello);
	close(sock);
}

NODE_TEST(listen__at_a_path_in_use)
{
	struct raw_node *node = *state;
	struct target_opts opts = { .pool_bytes = 2 << 20 };
	struct transport_target *second;

	assert_int_equal(transport_target_open("shm", &opts, &second), 0);
	assert_int_equal(second->ops->listen(second, node->path), -EADDRINUSE);
	assert_non_null(strstr(error_last(), "in use by another process"));
	transport_target_close(&second);
	assert_int_equal(access(node->path, F_OK), 0); /* the first still has it */
	close(raw_node_connect(node));
}

NODE_TEST(listen__twice)
{
	struct raw_node *node = *state;

	assert_int_equal(node->tg->ops->listen(node->tg, node->path), -EALREADY);
}

NODE_TEST(listen__for_this_process_only)
{
	struct raw_node *node = *state;
	struct target_opts opts = { .pool_bytes = 2 << 20, .private_memory = true };
	struct transport_target *tg;

	assert_int_equal(transport_target_open("shm", &opts, &tg), 0);
	assert_int_equal(tg->ops->listen(tg, NULL), 0);
	assert_int_equal(tg->ops->poll_fd(tg), -1);
	assert_int_equal(tg->ops->listen(tg, node->path), -EINVAL);
	transport_target_close(&tg);
}

NODE_TEST(listen__makes_a_socket_of_mode_0600)
{
	struct raw_node *node = *state;
	struct target_opts opts = { .pool_bytes = 2 << 20 };
	struct transport_target *tg;
	struct stat st;
	char path[128];
	mode_t before = umask(0);

	(void)snprintf(path, sizeof(path), "%s/open", node->dir);
	assert_int_equal(transport_target_open("shm", &opts, &tg), 0);
	assert_int_equal(tg->ops->listen(tg, path), 0);
	umask(before);
	assert_int_equal(lstat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	transport_target_close(&tg);
	assert_int_equal(lstat(path, &st), -1);
}

NODE_TEST(listen__replaces_a_stale_socket)
{
	struct raw_node *node = *state;
	struct target_opts opts = { .pool_bytes = 2 << 20 };
	struct transport_target *tg;
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/stale", node->dir);
	close(sockets_listen_unix(path, SOCK_SEQPACKET)); /* as kill -9 leaves it */
	assert_int_equal(transport_target_open("shm", &opts, &tg), 0);
	assert_int_equal(tg->ops->listen(tg, path), 0);
	transport_target_close(&tg);
}

NODE_TEST(listen__where_somebody_else_listens)
{
	struct raw_node *node = *state;
	struct target_opts opts = { .pool_bytes = 2 << 20 };
	struct transport_target *tg;
	char path[128], lock[128];
	int sock;

	(void)snprintf(path, sizeof(path), "%s/other", node->dir);
	(void)snprintf(lock, sizeof(lock), "%s/other.lock", node->dir);
	sock = sockets_listen_unix(path, SOCK_STREAM);
	assert_int_equal(transport_target_open("shm", &opts, &tg), 0);
	assert_int_equal(tg->ops->listen(tg, path), -EADDRINUSE);
	transport_target_close(&tg);
	assert_int_equal(access(lock, F_OK), -1);
	assert_int_equal(unlink(path), 0);
	close(sock);
}

NODE_TEST(listen__where_there_is_a_file)
{
	struct raw_node *node = *state;
	struct target_opts opts = { .pool_bytes = 2 << 20 };
	struct transport_target *tg;
	char path[128];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/file", node->dir);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	close(fd);
	assert_int_equal(transport_target_open("shm", &opts, &tg), 0);
	assert_int_equal(tg->ops->listen(tg, path), -EEXIST);
	transport_target_close(&tg);
	assert_int_equal(unlink(path), 0); /* it was left alone */
}

NODE_TEST(listen__at_a_long_path)
{
	struct raw_node *node = *state;
	struct target_opts opts = { .pool_bytes = 2 << 20 };
	struct transport_target *tg;
	char path[200];

	(void)node;
	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = 0;
	assert_int_equal(transport_target_open("shm", &opts, &tg), 0);
	assert_int_equal(tg->ops->listen(tg, path), -ENAMETOOLONG);
	assert_int_equal(tg->ops->listen(tg, ""), -ENAMETOOLONG);
	transport_target_close(&tg);
}

int main(void)
{
	return test_run(NULL, NULL);
}
