/*
 * attach.c - the initiator's end of the unix socket.
 */
#include "transport/attach/attach.h"

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

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/mem/guard.h"
#include "base/os/process.h"

#include "transport/pool/map.h"
#include "transport/attach/packet.h"
#include "base/os/pidfd.h"
#include "wire/rptr.h"

/* One look takes at most so many messages, so that a flood of them does not hold it up. */
enum { LOOK_MAX = 4 * ATTACH_PAGES_MAX };

/* A page that the target is asked to make; kept until attach_renew maps it. */
struct renewal {
	struct renewal *next;
	uint32_t region; /* 0: its region was detached, the answer is dropped */
	uint64_t off;
	uint64_t deadline;
	bool answered;
	struct packet reply; /* once answered; owns its descriptor */
};

struct attach {
	int sock; /* -1: the connection is dead */
	const struct clock *clock;
	uint64_t timeout_ns;
	uint32_t owed;           /* answers that the target has not sent yet */
	struct attached *coming; /* of the last attach_region_begin */
	uint32_t next;           /* page of the next request for it */
	bool asked;              /* that request was sent */
	int came; /* -EAGAIN: it is not complete; else the result, with its message */
	struct error_kept why;
	struct renewal *renewals, **renewals_end; /* in the order of the requests */
	bool made;                                /* one was answered since attach_renewing */
};

static uint64_t deadline_of(const struct attach *attach)
{
	return deadline_after(attach->clock, (int64_t)min_u64(attach->timeout_ns, INT64_MAX));
}

static void drop_renewal(struct attach *attach, struct renewal *renewal)
{
	struct renewal **link = &attach->renewals;

	while (*link != renewal)
		link = &(*link)->next;
	*link = renewal->next;
	if (!*link)
		attach->renewals_end = link;
	if (renewal->answered)
		packet_drop_fd(&renewal->reply);
	mem_free(renewal);
}

/*
 * If ret is an error but -EAGAIN: closes the socket and drops all renewals, which cannot be
 * answered any more. Returns ret.
 */
static int hang_up(struct attach *attach, int ret)
{
	if (ret && ret != -EAGAIN && attach->sock >= 0) {
		close(attach->sock);
		attach->sock = -1;
		while (attach->renewals)
			drop_renewal(attach, attach->renewals);
	}
	return ret;
}

static int attach_wait(struct attach *attach, short events, uint64_t deadline)
{
	struct pollfd ready = { .fd = attach->sock, .events = events };
	int n;

	do {
		if (deadline_expired(attach->clock, deadline))
			return hang_up(attach, error_set(-ETIMEDOUT,
							 "the memory node did not answer in time"));
		n = poll(&ready, 1, deadline_left_ms(attach->clock, deadline));
	} while (n == 0 || (n < 0 && errno == EINTR));
	return n < 0 ? hang_up(attach, error_set(-errno, "poll: %s", strerror(errno))) : 0;
}

/* Returns the target's status as our error, with its text; -EPROTO if it is no error code. */
static int attach_refusal(int32_t status, const char *text)
{
	if (status == 0)
		return 0;
	return error_set(error_is_code(status) ? status : -EPROTO, "memory node: %.*s",
			 ATTACH_TEXT_BYTES - 1, text);
}

/* -------- greeting -------- */

static int connect_to(struct attach *attach, const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	const struct timespec pause = { .tv_nsec = CLOCK_NS_PER_MS };
	uint64_t deadline = deadline_of(attach);
	int code;

	if (strlen(path) >= sizeof(addr.sun_path))
		return error_set(-ENAMETOOLONG, "socket path %s: longer than %zu bytes", path,
				 sizeof(addr.sun_path) - 1);
	(void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	attach->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (attach->sock < 0)
		return error_set(-errno, "socket: %s", strerror(errno));
	while (connect(attach->sock, (struct sockaddr *)&addr, sizeof(addr))) {
		code = errno == ENOENT ? ECONNREFUSED : errno;
		if (code == EPROTOTYPE)
			code = EPROTO;
		if (code != EAGAIN && code != EINTR)
			return error_set(-code, "connect to %s: %s", path, strerror(errno));
		/* its queue is full; a unix socket cannot be polled for room in it */
		if (deadline_expired(attach->clock, deadline))
			return error_set(
				-ETIMEDOUT,
				"connect to %s: the memory node does not accept connections", path);
		(void)nanosleep(&pause, NULL);
	}
	return 0;
}

int attach_open(const char *path, const struct transport_opts *opts, struct attach **attach_out,
		bool *persistent_out)
{
	struct attach *attach = mem_zalloc(sizeof(*attach));
	struct packet packet = { .fd = -1 };
	const struct attach_hello_reply *reply = &packet.hello_reply;
	struct process_id self = { 0 };
	uint64_t deadline;
	int pidfd = -1, ret;

	if (!attach)
		return error_set(-ENOMEM, "cannot allocate memory for a connection");
	attach->sock = -1;
	attach->renewals_end = &attach->renewals;
	attach->clock = opts->clock;
	attach->timeout_ns = opts->open_ns;
	ret = connect_to(attach, path);
	if (ret == 0)
		ret = pidfd_open_self(&pidfd);
	if (ret == 0)
		ret = process_self(&self);
	if (ret == 0) {
		packet.hello.client_id = opts->client_id;
		packet.hello.pid = self.pid;
		packet.hello.start_time = self.start_time;
		packet_seal(&packet, ATTACH_HELLO);
		packet.fd = pidfd;
		deadline = deadline_of(attach);
		ret = packet_send(attach->sock, &packet);
		while (ret == 0 && (ret = packet_receive(attach->sock, &packet)) == -EAGAIN)
			ret = attach_wait(attach, POLLIN, deadline);
		if (ret == 0)
			packet_drop_fd(&packet);
	}
	map_close(pidfd);
	if (ret == 0 && packet.head.type != ATTACH_HELLO_REPLY)
		ret = error_set(-EPROTO, "the memory node answered a hello with type %u",
				packet.head.type);
	if (ret == 0)
		ret = attach_refusal(reply->status, reply->text);
	if (ret) {
		map_close(attach->sock);
		mem_free(attach);
		return error_prefix(ret, "shm:%s: ", path);
	}
	attach->timeout_ns = opts->timeout_ns;
	*persistent_out = (reply->flags & ATTACH_PERSISTENT) != 0;
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
		/* if it is lost, the target checks our pidfd */
		(void)!packet_send(attach->sock, &packet);
	}
	while (attach->renewals)
		drop_renewal(attach, attach->renewals);
	map_close(attach->sock);
	mem_free(attach);
}

/* -------- a region and its pages -------- */

#define NO_MORE UINT32_MAX

static bool is_writable(uint32_t rights)
{
	return (rights & (RIGHT_WRITE | RIGHT_ATOMIC)) != 0;
}

static int map_part(const struct attach_region_reply *reply, int fd, struct attached *out)
{
	uint32_t mode = (is_writable(reply->rights) ? MAP_WRITABLE : 0) |
			(reply->flags & ATTACH_HUGE ? MAP_HUGE : 0);
	uint64_t unit = (uint64_t)sysconf(_SC_PAGESIZE), before, end;
	struct statfs fs;
	struct stat st;
	int ret;

	if (fd < 0 || fstat(fd, &st))
		return error_set(-EPROTO, "the memory node sent no descriptor of region %u",
				 reply->region);
	if (reply->region == 0 || reply->region > RPTR_MAX_REGION || reply->rights == 0 ||
	    (reply->rights & ~(uint32_t)RIGHT_ALL) || reply->size == 0 ||
	    reply->size > RPTR_MAX_OFFSET || !is_aligned(reply->size | reply->offset, unit))
		return error_set(-EPROTO, "the memory node described region %u wrongly",
				 reply->region);
	out->on_device = S_ISCHR(st.st_mode);
	if (!checked_add_u64(reply->offset, reply->size, &end) ||
	    (!out->on_device && end > (uint64_t)st.st_size))
		return error_set(-EPROTO, "region %u: is larger than the %lld bytes of its file",
				 reply->region, (long long)st.st_size);
	/* Huge pages and devices are mapped whole or not at all: so is the unit of a range. */
	if (out->on_device)
		unit = MAP_HUGE_BYTES;
	else if (fstatfs(fd, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC)
		unit = (uint64_t)fs.f_bsize;
	before = reply->offset % unit;
	out->map_bytes = align_up(before + reply->size, unit);
	ret = map_shared(fd, reply->offset - before, out->map_bytes, mode, &out->map);
	if (ret)
		return ret;
	out->region.base = out->map + before;
	out->region.id = reply->region;
	out->region.rights = reply->rights;
	out->region.size = reply->size;
	out->region.incarnation = reply->incarnation;
	out->flags = reply->flags;
	/* a memfd is sealed */
	return reply->flags & ATTACH_PERSISTENT
		       ? guard_add(out->map, out->map_bytes, &out->region.broken)
		       : 0;
}

/*
 * Maps the page that an answer describes in its place in the region. -EPROTO: reply or fd is not
 * that of a page.
 */
static int map_page(const struct attach_region_reply *reply, int fd, const struct region *region)
{
	struct stat st;

	if (fd < 0 || fstat(fd, &st) || st.st_size != ATTACH_PAGE_BYTES ||
	    reply->size != ATTACH_PAGE_BYTES || reply->offset >= region->size ||
	    !is_aligned(reply->offset, ATTACH_PAGE_BYTES))
		return error_set(-EPROTO, "the memory node described a page of region %u wrongly",
				 region->id);
	return map_over(fd, ATTACH_PAGE_BYTES, is_writable(region->rights),
			region->base + reply->offset);
}

/*
 * Maps what an answer for attach->coming brings: first the region, then each page that has memory
 * of its own. Sets attach->next, the page of the next request. The packet's descriptor is used up.
 */
static int take_part(struct attach *attach, struct packet *packet)
{
	const struct attach_region_reply *reply = &packet->region_reply;
	uint64_t off = (uint64_t)(attach->next & ATTACH_PAGE_MAX) * ATTACH_PAGE_BYTES;
	struct attached *out = attach->coming;
	int ret = attach_refusal(reply->status, reply->text);

	attach->next = NO_MORE;
	if (ret == 0 && !out->map) {
		ret = map_part(reply, packet->fd, out);
		if (ret == 0 && (reply->flags & ATTACH_PAGES))
			attach->next = ATTACH_PAGE_NEXT;
		if (ret == 0 && (reply->flags & ATTACH_PERSISTENT)) {
			out->fd = packet->fd;
			packet->fd = -1;
		}
	} else if (ret == 0 && reply->size) {
		ret = reply->offset < off
			      ? error_set(-EPROTO, "the memory node sent a page of region %u again",
					  out->region.id)
			      : map_page(reply, packet->fd, &out->region);
		off = reply->offset + ATTACH_PAGE_BYTES;
		if (ret == 0 && off < out->region.size)
			attach->next = ATTACH_PAGE_NEXT | (uint32_t)(off / ATTACH_PAGE_BYTES);
	}
	packet_drop_fd(packet);
	return ret;
}

/* -------- requests and answers -------- */

static int attach_ask(struct attach *attach, enum attach_type type,
		      const struct region_grant *grant, uint32_t page, int fd)
{
	struct packet packet = { .fd = fd };
	int ret;

	if (attach->sock < 0)
		return error_set(-ECONNRESET, "the connection to the memory node was lost earlier");
	packet.region.grant_bytes = grant->bytes;
	packet.region.page = page;
	memcpy(packet.region.grant, grant->data, grant->bytes);
	packet_seal(&packet, type);
	ret = packet_send(attach->sock, &packet);
	if (ret == -EAGAIN)
		return error_set(-EAGAIN, "the memory node does not accept a request now");
	return hang_up(attach, ret);
}

static struct renewal *first_unanswered(const struct attach *attach)
{
	struct renewal *renewal = attach->renewals;

	while (renewal && renewal->answered)
		renewal = renewal->next;
	return renewal;
}

/*
 * Receives a message and gives it to the renewal or the request for a region that it answers. Both
 * are answered in the order of the requests; of requests for regions only the last counts, the
 * answers to others are dropped. -EAGAIN: no message is there.
 */
static int attach_hear(struct attach *attach)
{
	struct renewal *renewal = first_unanswered(attach);
	struct packet packet;
	bool ours, more;
	int ret;

	if (attach->sock < 0)
		return error_set(-ECONNRESET, "the connection to the memory node was lost earlier");
	ret = packet_receive(attach->sock, &packet);
	if (ret)
		return hang_up(attach, ret);
	if (packet.head.type == ATTACH_RENEW_REPLY && renewal) {
		renewal->reply = packet;
		renewal->answered = true;
		attach->made = true;
		if (renewal->region == 0)
			drop_renewal(attach, renewal);
		renewal = first_unanswered(attach);
		if (renewal) /* the target makes one at a time */
			renewal->deadline = deadline_of(attach);
		return 0;
	}
	if (packet.head.type != ATTACH_REGION_REPLY || attach->owed == 0) {
		packet_drop_fd(&packet);
		return hang_up(attach,
			       error_set(-EPROTO,
					 "the memory node sent a message of type %u unasked",
					 packet.head.type));
	}
	ours = attach->owed == 1 && attach->asked && attach->came == -EAGAIN;
	more = (packet.region_reply.flags & ATTACH_MORE) != 0;
	attach->owed -= !more;
	if (!ours) {
		packet_drop_fd(&packet);
		return 0;
	}
	attach->asked = more;
	attach->came = take_part(attach, &packet);
	error_keep(&attach->why);
	if (attach->came == 0 && attach->next != NO_MORE)
		attach->came = -EAGAIN;
	return 0;
}

/* -------- regions, whole or a range -------- */

void attach_release(struct attached *at)
{
	map_close(at->fd);
	at->fd = -1;
	if (!at->map)
		return;
	guard_remove(at->map);
	map_release(at->map, at->map_bytes);
	at->map = NULL;
}

/* Requests attach->coming: the region itself, or the page attach->next of it. */
static int ask_next(struct attach *attach)
{
	int ret = attach_ask(attach, ATTACH_REGION, &attach->coming->grant, attach->next, -1);

	attach->asked = ret == 0;
	attach->owed += ret == 0;
	return ret;
}

int attach_region_begin(struct attach *attach, const struct region_grant *grant,
			struct attached *out)
{
	int ret;

	out->grant = *grant;
	attach->coming = out;
	attach->next = 0;
	attach->came = -EAGAIN;
	ret = ask_next(attach);
	return ret == -EAGAIN ? 0 : ret;
}

int attach_region_end(struct attach *attach, struct attached *out)
{
	int ret = 0;

	while (ret == 0 && attach->came == -EAGAIN)
		ret = attach->asked ? attach_hear(attach) : ask_next(attach);
	if (ret == -EAGAIN)
		return ret;
	if (ret == 0 && attach->came) {
		ret = attach->came;
		error_restore(&attach->why);
	}
	if (ret)
		attach_release(out);
	return ret;
}

int attach_region(struct attach *attach, const struct region_grant *grant, struct attached *out)
{
	int ret = attach_region_begin(attach, grant, out);
	uint64_t deadline = deadline_of(attach);
	uint32_t part = attach->next;

	while (ret == 0 && (ret = attach_region_end(attach, out)) == -EAGAIN) {
		/* Only what brings the region further makes the wait longer. */
		if (attach->next != part)
			deadline = deadline_of(attach);
		part = attach->next;
		ret = attach_wait(attach, attach->asked ? POLLIN : POLLOUT, deadline);
	}
	if (ret)
		attach_release(out);
	return ret;
}

/* -------- pages that the target makes -------- */

static struct renewal *find_renewal(const struct attach *attach, const struct attached *at,
				    uint64_t off)
{
	struct renewal *renewal = attach->renewals;

	while (renewal && (renewal->region != at->region.id || renewal->off != off))
		renewal = renewal->next;
	return renewal;
}

static int check_may_renew(const struct attached *at)
{
	if (at->flags & ATTACH_MAY_RENEW)
		return 0;
	return error_set(
		-EACCES,
		"region %u: a page is renewed only by a client that attached all of a region of "
		"pages, with all rights",
		at->region.id);
}

/*
 * If a renewal is unanswered: takes pending messages, at most LOOK_MAX. If the first one is past
 * its deadline, hangs up: -ETIMEDOUT.
 */
static int look_for_renewals(struct attach *attach)
{
	const struct renewal *renewal;
	int ret = 0;

	if (!first_unanswered(attach))
		return 0;
	for (int n = 0; ret == 0 && n < LOOK_MAX; n++)
		ret = attach_hear(attach);
	renewal = first_unanswered(attach);
	if (ret == -EAGAIN && renewal && deadline_expired(attach->clock, renewal->deadline))
		ret = hang_up(attach, error_set(-ETIMEDOUT, "target did not make a page in time"));
	return ret == -EAGAIN ? 0 : ret;
}

int attach_renewing(struct attach *attach)
{
	int ret = look_for_renewals(attach);
	bool made = attach->made;

	attach->made = false;
	return ret ? ret : made || first_unanswered(attach);
}

int attach_prepare(struct attach *attach, const struct attached *at, uint64_t off)
{
	struct renewal *renewal = find_renewal(attach, at, off);
	uint32_t page = (uint32_t)(off / ATTACH_PAGE_BYTES);
	int ret;

	if (!(at->flags & ATTACH_MAKES_PAGES))
		return 0;
	ret = check_may_renew(at);
	if (ret == 0 && !renewal) {
		renewal = mem_zalloc(sizeof(*renewal));
		if (!renewal)
			return error_set(-ENOMEM, "no memory for the renewal of a page");
		ret = attach_ask(attach, ATTACH_RENEW, &at->grant, page, -1);
		if (ret) {
			mem_free(renewal);
			/* With a page in progress its deadline holds, and this one is asked for later. */
			if (ret == -EAGAIN && !first_unanswered(attach))
				ret = hang_up(attach,
					      error_set(-ETIMEDOUT, "target reads nothing"));
			return ret;
		}
		renewal->region = at->region.id;
		renewal->off = off;
		renewal->deadline = deadline_of(attach);
		*attach->renewals_end = renewal;
		attach->renewals_end = &renewal->next;
	}
	if (ret == 0)
		ret = look_for_renewals(attach);
	if (ret || renewal->answered)
		return ret;
	return error_set(-EAGAIN, "region %u: its target makes the page at %llu", at->region.id,
			 (unsigned long long)off);
}

void attach_forget_renewals(struct attach *attach, uint32_t region)
{
	struct renewal *renewal = attach->renewals;

	while (renewal) {
		struct renewal *next = renewal->next;

		if (renewal->region == region && renewal->answered)
			drop_renewal(attach, renewal);
		else if (renewal->region == region)
			renewal->region = 0;
		renewal = next;
	}
}

int attach_renew(struct attach *attach, const struct attached *at, uint64_t off)
{
	struct renewal *renewal;
	const struct attach_region_reply *reply;
	int fd = -1, ret;

	if (!(at->flags & (ATTACH_CAN_RENEW | ATTACH_MAKES_PAGES)))
		return 0;
	if (!(at->flags & ATTACH_MAKES_PAGES)) {
		ret = check_may_renew(at);
		if (ret == 0)
			ret = map_memfd(at->region.id, ATTACH_PAGE_BYTES, 0, &fd);
		if (ret == 0)
			ret = attach_ask(attach, ATTACH_RENEW, &at->grant,
					 (uint32_t)(off / ATTACH_PAGE_BYTES), fd);
		if (ret == 0)
			ret = map_over(fd, ATTACH_PAGE_BYTES, true, at->region.base + off);
		map_close(fd);
		return ret;
	}
	/* The target makes the page: it is mapped once it is there. */
	ret = attach_prepare(attach, at, off);
	if (ret)
		return ret;
	renewal = find_renewal(attach, at, off);
	reply = &renewal->reply.region_reply;
	if (reply->status == 0 && (reply->offset != off || reply->size == 0))
		return hang_up(attach,
			       error_set(-EPROTO, "target made no page of region %u, or another",
					 at->region.id));
	ret = attach_refusal(reply->status, reply->text);
	if (ret == 0)
		ret = map_page(reply, renewal->reply.fd, &at->region);
	drop_renewal(attach, renewal);
	return ret;
}
