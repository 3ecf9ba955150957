/* Pages of a region that get memory of their own: the clients that may send it, and when. */
#include "tests/support/fixture/raw_node.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transport/pool/map.h"
#include "transport/pool/region_name.h"
#include "wire/region.h"

/* A client with all rights to a whole region of pages. */
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
NODE_TEST(renew__is_heard_before_a_grant_that_is_asked_for_later)
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

/* A server reconnected or restarted: renewals that it sent before do not override newer ones. */
NODE_TEST(renew__of_the_last_connection_is_heard_before_the_next)
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

/* Another connection frees the region of the page; the owners of other pages stay. */
NODE_TEST(renew__is_heard_before_its_region_goes)
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

/* The page has no owner then: the next one does not get its old contents. Other pages stay. */
NODE_TEST(renew__by_what_is_no_page)
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

NODE_TEST(renew__without_the_right_to)
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

/* -------- pools in directories -------- */

/* The node makes the page: its descriptor. */
static int make_page(struct owner *owner, uint32_t page)
{
	struct packet packet = by_grant(owner, ATTACH_RENEW, 0, RIGHT_ALL);

	send_renewal(owner, packet, page, -1);
	raw_node_progress(owner->node);
	assert_int_equal(packet_receive(owner->sock, &packet), 0);
	assert_int_equal(packet.head.type, ATTACH_RENEW_REPLY);
	if (packet.region_reply.status)
		fail_msg("%s", packet.region_reply.text);
	assert_int_equal(packet.region_reply.offset, page * ATTACH_PAGE_BYTES);
	assert_true(packet.fd >= 0);
	return packet.fd;
}

static const char *page_path(const struct owner *owner, uint32_t page)
{
	static char path[300];
	char name[REGION_NAME_BYTES];

	region_name_format(&owner->spec, page, name);
	(void)snprintf(path, sizeof(path), "%s/%s", owner->node->pool, name);
	return path;
}

static bool is_there(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

static void put_word(int fd, uint64_t word)
{
	assert_int_equal(pwrite(fd, &word, sizeof(word), 0), sizeof(word));
}

/* The page's words as the node sees them; its region as listed in *info_out. */
static uint64_t node_word(const struct owner *owner, uint32_t page, struct target_region *info_out)
{
	struct target_region regions[8];
	size_t n = 8;
	uint64_t word = UINT64_MAX;

	assert_int_equal(owner->node->tg->ops->list_regions(owner->node->tg, regions, &n), 0);
	for (size_t i = 0; i < n; i++) {
		if (regions[i].id != owner->spec.id)
			continue;
		*info_out = regions[i];
		if (!regions[i].broken)
			memcpy(&word, regions[i].base + (uint64_t)page * ATTACH_PAGE_BYTES,
			       sizeof(word));
	}
	return word;
}

DIR_TEST(renew__in_a_directory_makes_a_file_of_the_page)
{
	struct target_region info;
	struct stat st, named;
	struct owner owner;
	int old, now;
	off_t bytes;

	owner_begin(&owner, *state, REGION_PAGES);
	old = make_page(&owner, 1);
	put_word(old, 7);
	assert_int_equal(node_word(&owner, 1, &info), 7);
	assert_int_equal(node_word(&owner, 2, &info), 0);
	now = make_page(&owner, 1);
	assert_int_equal(node_word(&owner, 1, &info), 0);
	put_word(old, 8); /* reaches nobody */
	assert_int_equal(node_word(&owner, 1, &info), 0);
	assert_int_equal(fstat(now, &st) || stat(page_path(&owner, 1), &named), 0);
	assert_int_equal(st.st_ino, named.st_ino);
	assert_int_equal(named.st_size, ATTACH_PAGE_BYTES);
	assert_int_equal(named.st_mode & 0777, 0600);
	assert_int_equal(fstat(old, &st), 0);
	assert_int_equal(st.st_nlink, 0);
	assert_int_equal(attach_raw(&owner, 4096, &bytes), 0);
	assert_int_equal(bytes, ATTACH_PAGE_BYTES);
	close(old);
	close(now);
	owner_end(&owner);
}

/* The page's client stays alive while the node restarts, and stores there all the time. */
DIR_TEST(renew__in_a_directory_outlives_the_node)
{
	struct raw_node *node = *state;
	struct target_region info;
	struct target_stats stats;
	struct owner owner;
	off_t bytes;
	int fd;

	owner_begin(&owner, node, REGION_PAGES);
	fd = make_page(&owner, 3);
	put_word(fd, 7);
	owner_end(&owner);
	assert_int_equal(raw_node_reopen(node), 0);
	assert_int_equal(node_word(&owner, 3, &info), 7);
	assert_false(info.sole);
	node->tg->ops->stats(node->tg, &stats);
	assert_false(stats.sole_opener);
	assert_false(node->tg->ops->alone(node->tg, owner.spec.id));
	put_word(fd, 8);
	assert_int_equal(node_word(&owner, 3, &info), 8);
	close(fd);
	assert_true(node->tg->ops->alone(node->tg, owner.spec.id));
	assert_int_equal(raw_node_reopen(node), 0);
	assert_int_equal(node_word(&owner, 3, &info), 8);
	assert_true(info.sole);
	assert_int_equal(node->tg->ops->persist(node->tg, owner.spec.id, 0, 0), 0);
	owner.hello = raw_node_hello();
	owner_connect(&owner);
	assert_int_equal(attach_raw(&owner, 0, &bytes), 0);
	close(make_page(&owner, 3));
	assert_int_equal(node_word(&owner, 3, &info), 0);
	owner_end(&owner);
}

static void make_empty(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	close(fd);
}

DIR_TEST(renew__in_a_directory_ends_with_the_region)
{
	struct raw_node *node = *state;
	struct owner owner, beside;
	char tmp[320];

	owner_begin(&owner, node, REGION_PAGES);
	beside = owner;
	assert_int_equal(node->tg->ops->register_region(node->tg, &beside.spec), 0);
	close(make_page(&owner, 1));
	close(make_page(&owner, 200));
	close(make_page(&beside, 1));
	assert_int_equal(node->tg->ops->unregister_region(node->tg, owner.spec.id), 0);
	assert_false(is_there(page_path(&owner, 1)));
	assert_false(is_there(page_path(&owner, 200)));
	assert_true(is_there(page_path(&beside, 1)));
	/* as a node that was killed leaves them */
	make_empty(page_path(&owner, 1));
	(void)snprintf(tmp, sizeof(tmp), "%s.tmp", page_path(&beside, 1));
	make_empty(tmp);
	assert_int_equal(raw_node_reopen(node), 0);
	assert_false(is_there(page_path(&owner, 1)));
	assert_false(is_there(tmp));
	assert_true(is_there(page_path(&beside, 1)));
	owner_end(&owner);
}

/*
 * A page's file of a wrong size breaks its region, and the pool opens. If it is not a regular file,
 * the pool does not open.
 */
DIR_TEST(renew__in_a_directory_then_the_page_is_damaged)
{
	struct raw_node *node = *state;
	struct target_region info;
	struct owner owner;

	owner_begin(&owner, node, REGION_PAGES);
	for (int i = 0; i < 2; i++) {
		close(make_page(&owner, 1));
		assert_int_equal(truncate(page_path(&owner, 1), i ? 8192 : 100), 0);
		owner_end(&owner);
		assert_int_equal(raw_node_reopen(node), 0);
		(void)node_word(&owner, 1, &info);
		assert_true(info.broken);
		assert_int_equal(truncate(page_path(&owner, 1), ATTACH_PAGE_BYTES), 0);
		assert_int_equal(raw_node_reopen(node), 0);
		(void)node_word(&owner, 1, &info);
		assert_false(info.broken);
		owner.hello = raw_node_hello();
		owner_connect(&owner);
	}
	owner_end(&owner);
	transport_target_close(&node->tg);
	assert_int_equal(unlink(page_path(&owner, 1)), 0);
	assert_int_equal(symlink("/dev/null", page_path(&owner, 1)), 0);
	assert_int_equal(raw_node_reopen(node), -ELOOP);
	assert_int_equal(unlink(page_path(&owner, 1)), 0);
	assert_int_equal(mkfifo(page_path(&owner, 1), 0600), 0);
	assert_int_equal(raw_node_reopen(node), -EBADMSG);
	assert_int_equal(unlink(page_path(&owner, 1)), 0);
	assert_int_equal(raw_node_reopen(node), 0);
}

/* The client cuts its page short. The node's reaction is tested by integration/test_cut_region. */
DIR_TEST(renew__in_a_directory_then_the_page_is_cut_short)
{
	struct target_region info;
	struct owner owner;
	off_t bytes;
	int fd;

	owner_begin(&owner, *state, REGION_PAGES);
	fd = make_page(&owner, 1);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(attach_raw(&owner, 0, &bytes), -EBADMSG);
	(void)node_word(&owner, 1, &info);
	assert_true(info.broken);
	close(fd);
	owner_end(&owner);
}

/* The requester gets the reason, and may request again. */
DIR_TEST(renew__in_a_directory_without_room)
{
	struct rlimit before, limit;
	struct packet packet;
	struct owner owner;

	owner_begin(&owner, *state, REGION_PAGES);
	packet = by_grant(&owner, ATTACH_RENEW, 0, RIGHT_ALL);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	limit = before;
	limit.rlim_cur = ATTACH_PAGE_BYTES / 2;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	send_renewal(&owner, packet, 1, -1);
	raw_node_progress(owner.node);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(packet_receive(owner.sock, &packet), 0);
	assert_int_equal(packet.head.type, ATTACH_RENEW_REPLY);
	assert_int_equal(packet.region_reply.status, -ENOSPC);
	assert_non_null(strstr(packet.region_reply.text, "file sizes are limited"));
	assert_int_equal(packet.region_reply.offset, ATTACH_PAGE_BYTES);
	assert_int_equal(packet.fd, -1);
	assert_false(is_there(page_path(&owner, 1)));
	close(make_page(&owner, 1));
	assert_true(is_there(page_path(&owner, 1)));
	owner_end(&owner);
}

/* Memory of the server would be lost with the host. */
DIR_TEST(renew__in_a_directory_by_memory)
{
	struct owner owner;

	owner_begin(&owner, *state, REGION_PAGES);
	renew_page(&owner, 1, new_page());
	raw_node_progress(owner.node);
	assert_true(raw_node_hung_up(owner.sock));
	assert_false(is_there(page_path(&owner, 1)));
	owner_end(&owner);
}

int main(void)
{
	return test_run(NULL, NULL);
}
