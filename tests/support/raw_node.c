#include "tests/support/raw_node.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/process.h"
#include "tests/support/test.h"

int raw_node_setup(void **state)
{
	struct raw_node *node = calloc(1, sizeof(*node));
	struct target_opts opts = { .pool_bytes = 8 << 20 };

	assert_non_null(node);
	*state = node;
	fake_clock_init(&node->clock, 1000);
	opts.clock = &node->clock.clock;
	temp_dir_make(node->dir);
	(void)snprintf(node->path, sizeof(node->path), "%s/node", node->dir);
	assert_int_equal(transport_target_open("shm", &opts, &node->tg), 0);
	assert_int_equal(node->tg->ops->listen(node->tg, node->path), 0);
	node->spec = (struct target_region){ .kind = 1, .size = 2 << 20 };
	assert_int_equal(node->tg->ops->register_region(node->tg, &node->spec), 0);
	return 0;
}

int raw_node_teardown(void **state)
{
	struct raw_node *node = *state;

	transport_target_close(&node->tg);
	assert_int_equal(rmdir(node->dir), 0);
	free(node);
	return 0;
}

int raw_node_connect(struct raw_node *node)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	(void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", node->path);
	assert_int_equal(connect(sock, (struct sockaddr *)&addr, sizeof(addr)), 0);
	return sock;
}

void raw_node_progress(struct raw_node *node)
{
	for (int i = 0; i < 3; i++) /* accept, then read */
		assert_int_equal(node->tg->ops->progress(node->tg, 0), 0);
}

bool raw_node_hung_up(int sock)
{
	char byte;
	ssize_t n = recv(sock, &byte, 1, MSG_DONTWAIT);

	return n == 0 || (n < 0 && errno == ECONNRESET);
}

struct packet raw_node_hello(void)
{
	struct packet packet = { .fd = (int)syscall(SYS_pidfd_open, getpid(), 0) };
	struct process_id self;

	if (packet.fd < 0) { /* valgrind before 3.20 */
		print_message("skipped: no pidfd_open here\n");
		skip();
	}
	assert_int_equal(process_self(&self), 0);
	packet.hello.client_id = 5;
	packet.hello.pid = self.pid;
	packet.hello.start_time = self.start_time;
	packet_seal(&packet, ATTACH_HELLO);
	return packet;
}

int raw_node_greet(struct raw_node *node, int sock, struct packet *packet)
{
	struct packet reply;

	assert_int_equal(packet_send(sock, packet), 0);
	raw_node_progress(node);
	if (packet_receive(sock, &reply))
		return 1;
	assert_int_equal(reply.head.type, ATTACH_HELLO_REPLY);
	return reply.hello_reply.status;
}
