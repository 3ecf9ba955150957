/*
 * attach.c - the initiator's end of the unix socket.
 */
#include "transport/shm/attach.h"

#include <errno.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bits.h"
#include "base/guard.h"
#include "base/process.h"

#include "transport/shm/map.h"
#include "transport/shm/packet.h"
#include "transport/shm/pidfd.h"
#include "wire/rptr.h"

struct attach {
	int sock; /* -1: the connection is dead */
	const struct clock *clock;
	uint64_t timeout_ns;
	uint64_t incarnation;
};

static uint64_t deadline_of(const struct attach *attach)
{
	return deadline_after(attach->clock, (int64_t)min_u64(attach->timeout_ns, INT64_MAX));
}

/* -------- one question, one answer -------- */

static int wait_for(const struct attach *attach, short events, uint64_t deadline)
{
	struct pollfd ready = { .fd = attach->sock, .events = events };
	int n;

	do {
		if (deadline_expired(attach->clock, deadline))
			return error_set(-ETIMEDOUT, "target did not answer in time");
		n = poll(&ready, 1, deadline_left_ms(attach->clock, deadline));
	} while (n == 0 || (n < 0 && errno == EINTR));
	return n < 0 ? error_set(-errno, "poll: %s", strerror(errno)) : 0;
}

static int send_one(const struct attach *attach, const struct packet *packet, uint64_t deadline)
{
	int ret = packet_send(attach->sock, packet);

	while (ret == -EAGAIN) {
		ret = wait_for(attach, POLLOUT, deadline);
		if (ret == 0)
			ret = packet_send(attach->sock, packet);
	}
	return ret;
}

static int receive_one(const struct attach *attach, struct packet *packet, enum attach_type type,
		       uint64_t deadline)
{
	int ret = packet_receive(attach->sock, packet);

	while (ret == -EAGAIN) {
		ret = wait_for(attach, POLLIN, deadline);
		if (ret == 0)
			ret = packet_receive(attach->sock, packet);
	}
	if (ret == 0 && packet->head.type != type) {
		packet_drop_fd(packet);
		ret = error_set(-EPROTO, "target answered with type %u, not %u", packet->head.type,
				type);
	}
	return ret;
}

/* A late answer must not be taken for that of the next question: after a failure, hang up. */
static int exchange(struct attach *attach, struct packet *packet, enum attach_type reply)
{
	uint64_t deadline = deadline_of(attach);
	int ret;

	if (attach->sock < 0)
		return error_set(-ECONNRESET, "connection to the target was lost before");
	ret = send_one(attach, packet, deadline);
	if (ret == 0)
		ret = receive_one(attach, packet, reply, deadline);
	if (ret) {
		close(attach->sock);
		attach->sock = -1;
	}
	return ret;
}

/* The target's refusal becomes our error, with its words. */
static int refusal(int32_t status, const char *text)
{
	int code = status < 0 && status >= -4095 ? status : -EPROTO;

	return error_set(code, "target: %.*s", ATTACH_TEXT_BYTES - 1, text);
}

/* -------- greeting -------- */

static int connect_error(const char *path)
{
	int code = errno;

	if (code == ENOENT)
		code = ECONNREFUSED;
	if (code == EPROTOTYPE)
		code = EPROTO;
	return error_set(-code, "connect to %s: %s", path, strerror(errno));
}

static int connect_to(struct attach *attach, const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	const struct timespec pause = { .tv_nsec = CLOCK_NS_PER_MS };
	uint64_t deadline = deadline_of(attach);

	if (strlen(path) >= sizeof(addr.sun_path))
		return error_set(-ENAMETOOLONG, "socket path %s: longer than %zu bytes", path,
				 sizeof(addr.sun_path) - 1);
	(void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	attach->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (attach->sock < 0)
		return error_set(-errno, "socket: %s", strerror(errno));
	while (connect(attach->sock, (struct sockaddr *)&addr, sizeof(addr))) {
		if (errno != EAGAIN && errno != EINTR)
			return connect_error(path);
		/* its queue is full; a unix socket cannot be polled for room in it */
		if (deadline_expired(attach->clock, deadline))
			return error_set(-ETIMEDOUT, "connect to %s: target does not accept", path);
		(void)nanosleep(&pause, NULL);
	}
	return 0;
}

static int greet(struct attach *attach, uint64_t client_id, bool *persistent_out)
{
	struct packet packet = { .fd = -1 };
	const struct attach_hello_reply *reply = &packet.hello_reply;
	struct process_id self = { 0 };
	int pidfd = -1, ret;

	ret = pidfd_open_self(&pidfd);
	if (ret)
		return ret;
	ret = process_self(&self);
	if (ret == 0) {
		packet.hello.client_id = client_id;
		packet.hello.pid = self.pid;
		packet.hello.start_time = self.start_time;
		packet_seal(&packet, ATTACH_HELLO);
		packet.fd = pidfd;
		ret = exchange(attach, &packet, ATTACH_HELLO_REPLY);
		if (ret == 0)
			packet_drop_fd(&packet);
	}
	close(pidfd);
	if (ret)
		return ret;
	if (reply->status)
		return refusal(reply->status, reply->text);
	attach->incarnation = reply->incarnation;
	*persistent_out = (reply->flags & ATTACH_PERSISTENT) != 0;
	return 0;
}

int attach_open(const char *path, const struct transport_opts *opts, struct attach **attach_out,
		bool *persistent_out)
{
	struct attach *attach = mem_zalloc(sizeof(*attach));
	int ret;

	if (!attach)
		return error_set(-ENOMEM, "no memory for a connection");
	attach->sock = -1;
	attach->clock = opts->clock;
	attach->timeout_ns = opts->open_ns;
	ret = connect_to(attach, path);
	if (ret == 0)
		ret = greet(attach, opts->client_id, persistent_out);
	if (ret) {
		map_close(attach->sock);
		mem_free(attach);
		return error_prefix(ret, "shm:%s: ", path);
	}
	attach->timeout_ns = opts->timeout_ns;
	*attach_out = attach;
	return 0;
}

void attach_close(struct attach *attach, bool forked)
{
	struct packet packet = { .fd = -1 };

	if (!attach)
		return;
	if (attach->sock >= 0 && !forked) {
		packet_seal(&packet, ATTACH_BYE);
		/* lost, it costs the target a look at our pidfd */
		(void)!packet_send(attach->sock, &packet);
	}
	map_close(attach->sock);
	mem_free(attach);
}

/* -------- regions -------- */

static int check_reply(const struct attach_region_reply *reply, int fd)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), end;
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return error_set(-EPROTO, "target sent no descriptor of region %u", reply->region);
	if (reply->region == 0 || reply->region > RPTR_MAX_REGION || reply->rights == 0 ||
	    (reply->rights & ~(uint32_t)RIGHT_ALL) || reply->size == 0 ||
	    reply->size > RPTR_MAX_OFFSET || !is_aligned(reply->size | reply->offset, page))
		return error_set(-EPROTO, "target described region %u wrongly", reply->region);
	if (!checked_add_u64(reply->offset, reply->size, &end) ||
	    (!S_ISCHR(st.st_mode) && end > (uint64_t)st.st_size))
		return error_set(-EPROTO, "region %u: ends behind its descriptor's %lld bytes",
				 reply->region, (long long)st.st_size);
	return 0;
}

/* Huge pages and devices are mapped whole or not at all: so is what a small range lies in. */
static uint64_t unit_of(int fd)
{
	struct statfs fs;
	struct stat st;

	if (fstat(fd, &st) == 0 && S_ISCHR(st.st_mode))
		return MAP_HUGE_BYTES;
	if (fstatfs(fd, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC)
		return (uint64_t)fs.f_bsize;
	return 1;
}

static int map_range(const struct attach_region_reply *reply, int fd, struct attached *out)
{
	bool writable = (reply->rights & (RIGHT_WRITE | RIGHT_ATOMIC)) != 0;
	uint64_t unit = unit_of(fd), before = reply->offset % unit;
	uint64_t size = align_up(before + reply->size, unit);
	int ret = map_shared(fd, reply->offset - before, size,
			     (writable ? MAP_WRITABLE : 0) |
				     (reply->flags & ATTACH_HUGE ? MAP_HUGE : 0),
			     &out->map);

	if (ret)
		return ret;
	out->map_bytes = size;
	out->region.base = out->map + before;
	return 0;
}

static int map_reply(const struct attach_region_reply *reply, int fd, struct attached *out)
{
	struct region *region = &out->region;
	int ret = map_range(reply, fd, out);

	if (ret)
		return ret;
	region->id = reply->region;
	region->rights = reply->rights;
	region->size = reply->size;
	region->incarnation = reply->incarnation;
	/* a memfd is sealed */
	ret = reply->flags & ATTACH_PERSISTENT
		      ? guard_add(out->map, out->map_bytes, &region->broken)
		      : 0;
	if (ret)
		map_release(out->map, out->map_bytes);
	return ret;
}

/* -------- pages with memory of their own -------- */

static int ask_region(struct attach *attach, const struct region_grant *grant, uint32_t page,
		      struct packet *packet)
{
	*packet = (struct packet){ .fd = -1 };
	packet->region.grant_bytes = grant->bytes;
	packet->region.page = page;
	memcpy(packet->region.grant, grant->data, grant->bytes);
	packet_seal(packet, ATTACH_REGION);
	return exchange(attach, packet, ATTACH_REGION_REPLY);
}

static int check_page(const struct attach_region_reply *reply, int fd, const struct region *region)
{
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size == ATTACH_PAGE_BYTES &&
	    reply->size == ATTACH_PAGE_BYTES && reply->offset < region->size &&
	    is_aligned(reply->offset, ATTACH_PAGE_BYTES))
		return 0;
	return error_set(-EPROTO, "target described a page of region %u wrongly", region->id);
}

/* Maps the page that the target answers with in its place; no page is at UINT64_MAX. */
static int take_page(struct attach *attach, struct attached *at, uint32_t ask, uint64_t *off_out)
{
	const struct region *region = &at->region;
	bool writable = (region->rights & (RIGHT_WRITE | RIGHT_ATOMIC)) != 0;
	struct packet packet;
	const struct attach_region_reply *reply = &packet.region_reply;
	int ret = ask_region(attach, &at->grant, ask, &packet);

	if (ret)
		return ret;
	*off_out = reply->size ? reply->offset : UINT64_MAX;
	if (reply->status)
		ret = refusal(reply->status, reply->text);
	else if (reply->size)
		ret = check_page(reply, packet.fd, region);
	if (ret == 0 && packet.fd >= 0)
		ret = map_over(packet.fd, ATTACH_PAGE_BYTES, writable, region->base + *off_out);
	packet_drop_fd(&packet);
	return ret;
}

static int take_pages(struct attach *attach, struct attached *at)
{
	uint64_t off = 0;
	int ret;

	do {
		uint32_t page = (uint32_t)(off / ATTACH_PAGE_BYTES);

		ret = take_page(attach, at, ATTACH_PAGE_NEXT | page, &off);
		if (ret || off == UINT64_MAX)
			return ret;
		off += ATTACH_PAGE_BYTES;
	} while (off < at->region.size);
	return 0;
}

int attach_renew(struct attach *attach, struct attached *at, uint64_t off)
{
	uint64_t page = off / ATTACH_PAGE_BYTES, got = UINT64_MAX;
	int ret;

	if (page > ATTACH_PAGE_MAX)
		return error_set(-EINVAL, "region %u: page %llu", at->region.id,
				 (unsigned long long)page);
	ret = take_page(attach, at, ATTACH_PAGE_RENEW | (uint32_t)page, &got);
	if (ret == 0 && got != off)
		ret = error_set(-EPROTO, "target renewed another page of region %u", at->region.id);
	return ret == -ENOTSUP ? 0 : ret;
}

/* -------- regions, whole or a range -------- */

int attach_region(struct attach *attach, const struct region_grant *grant, struct attached *out)
{
	struct packet packet;
	const struct attach_region_reply *reply = &packet.region_reply;
	int ret = ask_region(attach, grant, 0, &packet);

	if (ret)
		return ret;
	out->grant = *grant;
	if (reply->status)
		ret = refusal(reply->status, reply->text);
	else
		ret = check_reply(reply, packet.fd);
	if (ret == 0)
		ret = map_reply(reply, packet.fd, out);
	if (ret == 0 && (reply->flags & ATTACH_PERSISTENT)) {
		out->fd = packet.fd;
		return 0;
	}
	if (ret == 0 && (reply->flags & ATTACH_PAGES)) {
		ret = take_pages(attach, out);
		if (ret)
			map_release(out->map, out->map_bytes);
	}
	packet_drop_fd(&packet);
	return ret;
}
