/*
 * Pages of a region that get memory of their own: from whom a target takes it, and when.
 */
#include "tests/support/fixture/raw_node.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transport/pool/map.h"
#include "wire/region.h"

/* Who has all of a region of pages, with all rights. */
struct owner {
	struct raw_node *node;
	struct target_region spec;
	struct packet hello;
	int sock;
};

/* A packet by a grant of all of the region, or of a page of it. */
static struct packet by_grant(struct owner *owner, enum attach_type type, uint64_t len,
			      uint32_t rights)
{
	struct transport_target *tg = owner->node->tg;
	const struct region_range range = { .region = owner->spec.id,
					    .off = len ? 4096 : 0,
					    .len = len };
	struct packet packet = { .fd = -1 };
	struct region_grant grant;

	assert_int_equal(tg->ops->grant(tg, 5, &range, rights, &grant), 0);
	packet.region.grant_bytes = grant.bytes;
	memcpy(packet.region.grant, grant.data, grant.bytes);
	packet_seal(&packet, type);
	return packet;
}

/* Attaches; the status, and the size of the descriptor's file. */
static int attach_raw(struct owner *owner, uint64_t len, off_t *bytes_out)
{
	struct packet packet = by_grant(owner, ATTACH_REGION, len, RIGHT_ALL);
	struct stat st = { .st_size = 0 };

	assert_int_equal(packet_send(owner->sock, &packet), 0);
	raw_node_progress(owner->node);
	assert_int_equal(packet_receive(owner->sock, &packet), 0);
	*bytes_out = packet.fd >= 0 && fstat(packet.fd, &st) == 0 ? st.st_size : 0;
	packet_drop_fd(&packet);
	return packet.region_reply.status;
}

static void owner_connect(struct owner *owner)
{
	owner->sock = raw_node_connect(owner->node);
	assert_int_equal(raw_node_greet(owner->node, owner->sock, &owner->hello), 0);
}

static void owner_begin(struct owner *owner, struct raw_node *node, uint32_t role)
{
	off_t bytes;

	*owner = (struct owner){ .node = node, .hello = raw_node_hello() };
	owner->spec = (struct target_region){ .kind = 1, .role = role, .size = 2 << 20 };
	assert_int_equal(node->tg->ops->register_region(node->tg, &owner->spec), 0);
	owner_connect(owner);
	assert_int_equal(attach_raw(owner, 0, &bytes), 0);
	assert_int_equal(bytes, owner->spec.size);
}

static void owner_end(struct owner *owner)
{
	packet_drop_fd(&owner->hello);
	close(owner->sock);
}

/* Page 1; fd is closed here. */
static void send_renewal(struct owner *owner, struct packet packet, uint32_t page, int fd)
{
	packet.region.page = page;
	packet_seal(&packet, ATTACH_RENEW);
	packet.fd = fd;
	assert_int_equal(packet_send(owner->sock, &packet), 0);
	packet_drop_fd(&packet);
}

static void renew_page(struct owner *owner, uint32_t page, int fd)
{
	send_renewal(owner, by_grant(owner, ATTACH_RENEW, 0, RIGHT_ALL), page, fd);
}

static int new_page(void)
{
	int fd = -1;

	assert_int_equal(map_memfd(1, ATTACH_PAGE_BYTES, 0, &fd), 0);
	return fd;
}

/* The node has not looked at its socket when it is asked for a grant: it does so first. */
static void renew__is_heard_before_a_grant_that_is_asked_for_later(void **state)
{
	struct packet packet;
	struct owner owner;
	struct stat st;

	owner_begin(&owner, *state, REGION_PAGES);
	renew_page(&owner, 1, new_page());
	packet = by_grant(&owner, ATTACH_REGION, 4096, RIGHT_ALL);
	assert_int_equal(packet_send(owner.sock, &packet), 0);
	raw_node_progress(owner.node);
	assert_int_equal(packet_receive(owner.sock, &packet), 0);
	assert_int_equal(packet.region_reply.status, 0);
	assert_int_equal(packet.region_reply.offset, 0);
	assert_int_equal(fstat(packet.fd, &st), 0);
	assert_int_equal(st.st_size, 4096);
	packet_drop_fd(&packet);
	owner_end(&owner);
}

/* A server lost its connection, or began anew: what it sent before is not taken for newer. */
static void renew__of_the_last_connection_is_heard_before_the_next(void **state)
{
	struct owner owner, last;
	struct stat sent, got;
	struct packet packet;
	int fd;

	owner_begin(&owner, *state, REGION_PAGES);
	last = owner;
	owner_connect(&owner);
	packet = by_grant(&owner, ATTACH_REGION, 0, RIGHT_ALL);
	for (int i = 0; i < 20; i++)
		send_renewal(&last, packet, 1, new_page());
	assert_int_equal(packet_send(owner.sock, &packet), 0);
	fd = new_page();
	assert_int_equal(fstat(fd, &sent), 0);
	send_renewal(&owner, packet, 1, fd);
	close(last.sock);
	for (int i = 0; i < 30; i++)
		raw_node_progress(owner.node);
	assert_int_equal(packet_receive(owner.sock, &packet), 0);
	packet_drop_fd(&packet);
	packet = by_grant(&owner, ATTACH_REGION, 4096, RIGHT_ALL);
	assert_int_equal(packet_send(owner.sock, &packet), 0);
	raw_node_progress(owner.node);
	assert_int_equal(packet_receive(owner.sock, &packet), 0);
	assert_int_equal(fstat(packet.fd, &got), 0);
	assert_int_equal(got.st_ino, sent.st_ino);
	packet_drop_fd(&packet);
	owner_end(&owner);
}

/* Its region is freed by another connection; the owner of others stays. */
static void renew__is_heard_before_its_region_goes(void **state)
{
	struct raw_node *node = *state;
	struct owner owner;

	owner_begin(&owner, node, REGION_PAGES);
	renew_page(&owner, 1, new_page());
	assert_int_equal(node->tg->ops->unregister_region(node->tg, owner.spec.id), 0);
	raw_node_progress(node);
	assert_false(raw_node_hung_up(owner.sock));
	owner_end(&owner);
}

static int bad_page(int i)
{
	int fd = -1;

	switch (i) {
	case 0: /* none */
		return -1;
	case 1:
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	case 2:
		assert_int_equal(map_memfd(1, 8192, 0, &fd), 0);
		return fd;
	case 3: /* not sealed: it could be cut short under the node */
		fd = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		assert_int_equal(ftruncate(fd, ATTACH_PAGE_BYTES) || fchmod(fd, 0600), 0);
		return fd;
	default: /* everybody may open it again */
		fd = new_page();
		assert_int_equal(fchmod(fd, 0777), 0);
		return fd;
	}
}

/* The page is nobody's then: what it was is not given to the next one. The others stay. */
static void renew__by_what_is_no_page(void **state)
{
	struct owner owner;
	off_t bytes;

	owner_begin(&owner, *state, REGION_PAGES);
	for (int i = 0; i < 5; i++) {
		renew_page(&owner, 1, new_page());
		assert_int_equal(attach_raw(&owner, 4096, &bytes), 0);
		assert_int_equal(bytes, 4096);
		renew_page(&owner, 1, bad_page(i));
		raw_node_progress(owner.node);
		assert_true(raw_node_hung_up(owner.sock));
		close(owner.sock);
		owner_connect(&owner);
		assert_int_equal(attach_raw(&owner, 4096, &bytes), -EACCES);
		assert_int_equal(attach_raw(&owner, 0, &bytes), 0);
	}
	owner_end(&owner);
}

static void expect_no_renewal(struct owner *owner, struct packet packet, uint32_t page)
{
	off_t bytes;

	send_renewal(owner, packet, page, new_page());
	raw_node_progress(owner->node);
	assert_true(raw_node_hung_up(owner->sock));
	close(owner->sock);
	owner_connect(owner);
	assert_int_equal(attach_raw(owner, 4096, &bytes), 0);
	assert_int_equal(bytes, owner->spec.role == REGION_PAGES ? 4096 : owner->spec.size);
}

static void renew__without_the_right_to(void **state)
{
	struct owner pages, tree;
	struct packet packet;

	owner_begin(&pages, *state, REGION_PAGES);
	renew_page(&pages, 1, new_page());
	expect_no_renewal(&pages, by_grant(&pages, ATTACH_RENEW, 0, RIGHT_READ), 1);
	expect_no_renewal(&pages, by_grant(&pages, ATTACH_RENEW, 4096, RIGHT_ALL), 0);
	expect_no_renewal(&pages, by_grant(&pages, ATTACH_RENEW, 0, RIGHT_ALL), 512);
	packet = by_grant(&pages, ATTACH_RENEW, 0, RIGHT_ALL);
	packet.region.grant[20] ^= 1;
	expect_no_renewal(&pages, packet, 1);
	owner_end(&pages);
	owner_begin(&tree, *state, REGION_TREE);
	expect_no_renewal(&tree, by_grant(&tree, ATTACH_RENEW, 0, RIGHT_ALL), 1);
	owner_end(&tree);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		NODE_TEST(renew__is_heard_before_a_grant_that_is_asked_for_later),
		NODE_TEST(renew__of_the_last_connection_is_heard_before_the_next),
		NODE_TEST(renew__is_heard_before_its_region_goes),
		NODE_TEST(renew__by_what_is_no_page),
		NODE_TEST(renew__without_the_right_to),
	};

	return TEST_RUN(tests, NULL, NULL);
}
