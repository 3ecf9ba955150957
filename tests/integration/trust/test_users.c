/* Rights between users of one host: another user gets the granted range of a region only. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/os/process.h"
#include "tests/support/attack/other_user.h"
#include "tests/support/sockets.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "transport/pool/map.h"
#include "transport/attach/packet.h"
#include "transport/transport.h"

#define CLIENT 5
#define REGION_BYTES (UINT64_C(2) << 20)

/* -------- a region of one user, granted to another for reading -------- */

/* A node of user OTHER_NODE, as which the test itself runs. */
struct node {
	char dir[TEMP_DIR_BYTES];
	char path[TEMP_DIR_BYTES + 16], pool[TEMP_DIR_BYTES + 16];
	struct transport_target *tg;
	uint32_t region;
};

static void open_node(struct node *node, bool on_file)
{
	struct target_opts opts = { .pool_bytes = 4 * REGION_BYTES, .create = true };

	opts.path = on_file ? node->pool : NULL;
	opts.dir = on_file;
	assert_int_equal(transport_target_open("shm", &opts, &node->tg), 0);
	assert_int_equal(node->tg->ops->listen(node->tg, node->path), 0);
}

static void make_region(struct node *node)
{
	struct target_region spec = { .kind = 1, .role = 4, .size = REGION_BYTES };

	assert_int_equal(node->tg->ops->register_region(node->tg, &spec), 0);
	node->region = spec.id;
}

static int node_setup(void **state)
{
	struct node *node = calloc(1, sizeof(*node));

	assert_non_null(node);
	*state = node;
	other_user_begin();
	temp_dir_make(node->dir);
	(void)snprintf(node->path, sizeof(node->path), "%s/node", node->dir);
	(void)snprintf(node->pool, sizeof(node->pool), "%s/pool", node->dir);
	return 0;
}

static int node_teardown(void **state)
{
	struct node *node = *state;

	transport_target_close(&node->tg);
	temp_dir_remove(node->pool);
	temp_dir_remove(node->dir);
	other_user_end();
	free(node);
	return 0;
}

static void ask(struct node *node, int sock, struct packet *packet)
{
	assert_int_equal(packet_send(sock, packet), 0);
	packet_drop_fd(packet);
	for (int i = 0; i < 3; i++) /* accept, then read */
		assert_int_equal(node->tg->ops->progress(node->tg, 0), 0);
	assert_int_equal(packet_receive(sock, packet), 0);
}

/* Has the socket of a client that said hello. */
static int greet(struct node *node)
{
	struct packet packet = { .fd = (int)syscall(SYS_pidfd_open, getpid(), 0) };
	int sock = sockets_connect_unix(node->path, SOCK_SEQPACKET | SOCK_NONBLOCK);
	struct process_id self;

	assert_true(sock >= 0);
	assert_int_equal(process_self(&self), 0);
	packet.hello.client_id = CLIENT;
	packet.hello.pid = self.pid;
	packet.hello.start_time = self.start_time;
	packet_seal(&packet, ATTACH_HELLO);
	ask(node, sock, &packet);
	assert_int_equal(packet.hello_reply.status, 0);
	return sock;
}

static struct packet by_grant(struct node *node, const struct region_range *range, uint32_t rights,
			      uint32_t page)
{
	struct packet packet = { .fd = -1 };
	struct region_grant grant;

	assert_int_equal(node->tg->ops->grant(node->tg, CLIENT, range, rights, &grant), 0);
	packet.region.grant_bytes = grant.bytes;
	packet.region.page = page;
	memcpy(packet.region.grant, grant.data, grant.bytes);
	packet_seal(&packet, ATTACH_REGION);
	return packet;
}

/* As a metadata server does; the node takes it before it grants anything. */
static void renew(struct node *node, const struct region_range *all, uint32_t page)
{
	struct packet packet = by_grant(node, all, RIGHT_ALL, 0);
	int sock = greet(node);

	ask(node, sock, &packet);
	packet_drop_fd(&packet);
	packet = by_grant(node, all, RIGHT_ALL, page);
	packet_seal(&packet, ATTACH_RENEW);
	assert_int_equal(map_memfd(all->region, ATTACH_PAGE_BYTES, 0, &packet.fd), 0);
	assert_int_equal(packet_send(sock, &packet), 0);
	packet_drop_fd(&packet);
	close(sock);
}

/* The descriptor that a client gets of a range, or for a page of it. */
static int range_fd(struct node *node, const struct region_range *range, uint32_t rights,
		    uint32_t page)
{
	struct packet packet = by_grant(node, range, rights, page);
	int sock = greet(node);

	ask(node, sock, &packet);
	close(sock);
	assert_int_equal(packet.region_reply.status, 0);
	assert_true(packet.fd >= 0);
	return packet.fd;
}

static int reader_fd(struct node *node)
{
	const struct region_range all = { .region = node->region };

	return range_fd(node, &all, RIGHT_READ, 0);
}

enum { SELF_FD = 1, NODE_FD = 2, MAP = 4, PROTECT = 8, MODE = 16 };

struct intruder {
	int fd;
	pid_t node;
};

static bool opens_for_writing(pid_t pid, int fd, ino_t region)
{
	char path[64];
	struct stat st = { 0 };
	int copy;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
	copy = open(path, O_RDWR | O_CLOEXEC);
	if (copy < 0)
		return false;
	(void)fstat(copy, &st);
	close(copy);
	return st.st_ino == region;
}

/* Tries all ways from a descriptor for reading to one for writing. 0: none works. */
static int intrude(void *ctx)
{
	const struct intruder *in = ctx;
	struct stat st;
	void *base;
	int ways = 0;

	if (fstat(in->fd, &st))
		return 127;
	if (opens_for_writing(getpid(), in->fd, st.st_ino))
		ways |= SELF_FD;
	for (int fd = 0; fd < 256; fd++)
		if (opens_for_writing(in->node, fd, st.st_ino))
			ways |= NODE_FD;
	base = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, in->fd, 0);
	if (base != MAP_FAILED)
		ways |= MAP;
	base = mmap(NULL, 4096, PROT_READ, MAP_SHARED, in->fd, 0);
	if (base == MAP_FAILED)
		return 126; /* it may read */
	if (mprotect(base, 4096, PROT_READ | PROT_WRITE) == 0)
		ways |= PROTECT;
	if (fchmod(in->fd, 0666) == 0)
		ways |= MODE;
	return ways;
}

static void expect_no_way(struct node *node)
{
	struct intruder in = { .fd = reader_fd(node), .node = getpid() };

	assert_int_equal(other_user_run(OTHER_CLIENT, 0, intrude, &in), 0);
	close(in.fd);
}

#define NODE_TEST(fn) TEST_WITH(fn, node_setup, node_teardown)

NODE_TEST(reader__of_another_user_cannot_write_memory)
{
	struct node *node = *state;

	open_node(node, false);
	make_region(node);
	expect_no_way(node);
}

NODE_TEST(reader__of_another_user_cannot_write_a_file)
{
	struct node *node = *state;

	open_node(node, true);
	make_region(node);
	expect_no_way(node);
}

static void chmod_all(const char *folder, mode_t mode)
{
	DIR *dir = opendir(folder);
	const struct dirent *entry;

	assert_non_null(dir);
	while ((entry = readdir(dir)) != NULL)
		if (entry->d_name[0] != '.')
			assert_int_equal(fchmodat(dirfd(dir), entry->d_name, mode, 0), 0);
	closedir(dir);
}

/* As a copy of a pool may be. */
NODE_TEST(reader__cannot_write_a_file_that_was_open_to_all)
{
	struct node *node = *state;

	open_node(node, true);
	make_region(node);
	transport_target_close(&node->tg);
	assert_int_equal(chmod(node->dir, 0755), 0);
	assert_int_equal(chmod(node->pool, 0755), 0);
	chmod_all(node->pool, 0666);
	open_node(node, true);
	expect_no_way(node);
}

/* -------- a page of one client -------- */

/* Only the first 4 KiB can be reached by it: 0. */
static int look_beside(void *ctx)
{
	const struct intruder *in = ctx;
	uint64_t word = 0;
	struct stat st;

	if (fstat(in->fd, &st) || st.st_size != ATTACH_PAGE_BYTES)
		return 1;
	if (pread(in->fd, &word, sizeof(word), 0) != sizeof(word) || word != 5)
		return 2;
	if (pread(in->fd, &word, sizeof(word), ATTACH_PAGE_BYTES) != 0)
		return 3;
	return ftruncate(in->fd, (off_t)REGION_BYTES) == 0 ? 4 : 0;
}

NODE_TEST(page__is_all_that_its_holder_gets)
{
	struct region_range all = { 0 }, page = { .off = 4096, .len = 4096 };
	struct node *node = *state;
	struct intruder in = { .node = getpid() };
	uint64_t word = 5;
	int server;

	open_node(node, false);
	make_region(node);
	all.region = page.region = node->region;
	for (uint32_t i = 0; i < 3; i++)
		renew(node, &all, i);
	server = range_fd(node, &all, RIGHT_ALL, ATTACH_PAGE_NEXT | 1);
	assert_int_equal(pwrite(server, &word, sizeof(word), 0), sizeof(word));
	close(server);
	in.fd = range_fd(node, &page, RIGHT_ALL, 0);
	assert_int_equal(other_user_run(OTHER_CLIENT, 0, look_beside, &in), 0);
	close(in.fd);
}

int main(void)
{
	if (other_user_skips() || test_skips_valgrind("a forked child is another user"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
