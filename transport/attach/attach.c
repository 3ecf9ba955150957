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
#include "transport/attach/pidfd.h"
#include "wire/rptr.h"

/* more answers than one look asks for are a flood */
enum { EARLY_MAX = 4 * ATTACH_PAGES_MAX };

/* An answer to attach_region_begin that arrived while a renewal was looked for. */
struct early {
	struct early *next;
	struct packet packet;
};

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
	uint64_t incarnation;
	uint32_t owed; /* answers that the target has not sent yet */
	struct early *early, **early_end;
	uint32_t n_early;
	struct renewal *renewals, **renewals_end; /* in the order of the requests */
	bool made;                                /* one was answered since attach_renewing */
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
			return error_set(-ETIMEDOUT, "the memory node did not answer in time");
		n = poll(&ready, 1, deadline_left_ms(attach->clock, deadline));
	} while (n == 0 || (n < 0 && errno == EINTR));
	return n < 0 ? error_set(-errno, "poll: %s", strerror(errno)) : 0;
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

/* After a failure of the socket it is closed, and no renewal will be answered. */
static int hang_up(struct attach *attach, int ret)
{
	if (ret && ret != -EAGAIN) {
		close(attach->sock);
		attach->sock = -1;
		while (attach->renewals)
			drop_renewal(attach, attach->renewals);
	}
	return ret;
}

static int attach_ask(struct attach *attach, const struct packet *packet)
{
	int ret;

	if (attach->sock < 0)
		return error_set(-ECONNRESET, "the connection to the memory node was lost earlier");
	ret = packet_send(attach->sock, packet);
	attach->owed += ret == 0;
	return hang_up(attach, ret);
}

static bool has_more(const struct packet *packet)
{
	return packet->head.type == ATTACH_REGION_REPLY &&
	       (packet->region_reply.flags & ATTACH_MORE) != 0;
}

static int keep_early(struct attach *attach, struct packet *packet)
{
	struct early *early = NULL;
	int ret = 0;

	if (attach->owed == 0 || attach->n_early == EARLY_MAX)
		ret = error_set(-EPROTO, "target sends answers without a request");
	else if (!(early = mem_zalloc(sizeof(*early))))
		ret = error_set(-ENOMEM, "no memory for an answer of the target");
	if (ret) {
		packet_drop_fd(packet);
		return ret;
	}
	early->packet = *packet;
	attach->n_early++;
	*attach->early_end = early;
	attach->early_end = &early->next;
	return 0;
}

static struct renewal *first_unanswered(const struct attach *attach)
{
	struct renewal *renewal = attach->renewals;

	while (renewal && renewal->answered)
		renewal = renewal->next;
	return renewal;
}

/* Renewals are answered in the order of the requests. */
static int settle_renewal(struct attach *attach, struct packet *packet)
{
	struct renewal *renewal = first_unanswered(attach);

	if (!renewal) {
		packet_drop_fd(packet);
		return error_set(-EPROTO, "target answered a renewal without a request");
	}
	renewal->reply = *packet;
	renewal->answered = true;
	attach->made = true;
	if (renewal->region == 0)
		drop_renewal(attach, renewal);
	return 0;
}

/* The next answer but those to renewals, which are settled on the way. */
static int attach_receive(struct attach *attach, struct packet *packet)
{
	struct early *early = attach->early;
	int ret;

	if (early) {
		*packet = early->packet;
		attach->early = early->next;
		attach->n_early--;
		if (!attach->early)
			attach->early_end = &attach->early;
		mem_free(early);
		return 0;
	}
	do {
		ret = packet_receive(attach->sock, packet);
		if (ret || packet->head.type != ATTACH_RENEW_REPLY)
			return ret;
		ret = settle_renewal(attach, packet);
	} while (ret == 0);
	return ret;
}

/*
 * Takes the answer to the last request, or its next part; answers to earlier requests are dropped.
 */
static int attach_take(struct attach *attach, struct packet *packet, enum attach_type type)
{
	int ret;

	if (attach->sock < 0)
		return error_set(-ECONNRESET, "the connection to the memory node was lost earlier");
	ret = attach_receive(attach, packet);
	while (ret == 0 && attach->owed > 1) {
		attach->owed -= !has_more(packet);
		packet_drop_fd(packet);
		ret = attach_receive(attach, packet);
	}
	if (ret == 0)
		attach->owed -= !has_more(packet);
	if (ret == 0 && packet->head.type != type) {
		packet_drop_fd(packet);
		ret = error_set(-EPROTO, "the memory node answered with type %u, not %u",
				packet->head.type, type);
	}
	return hang_up(attach, ret);
}

static int attach_hear(struct attach *attach, struct packet *packet, enum attach_type reply)
{
	uint64_t deadline = deadline_of(attach);
	int ret = attach_take(attach, packet, reply);

	while (ret == -EAGAIN) {
		ret = hang_up(attach, wait_for(attach, POLLIN, deadline));
		if (ret == 0)
			ret = attach_take(attach, packet, reply);
	}
	return ret;
}

static int attach_exchange(struct attach *attach, struct packet *packet, enum attach_type reply)
{
	uint64_t deadline = deadline_of(attach);
	int ret = attach_ask(attach, packet);

	while (ret == -EAGAIN) {
		ret = hang_up(attach, wait_for(attach, POLLOUT, deadline));
		if (ret == 0)
			ret = attach_ask(attach, packet);
	}
	return ret ? ret : attach_hear(attach, packet, reply);
}

/* The target's refusal becomes our error, with its words. */
static int attach_refusal(int32_t status, const char *text)
{
	int code = status && error_is_code(status) ? status : -EPROTO;

	return error_set(code, "memory node: %.*s", ATTACH_TEXT_BYTES - 1, text);
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
	int pidfd = -1, ret;

	if (!attach)
		return error_set(-ENOMEM, "cannot allocate memory for a connection");
	attach->sock = -1;
	attach->early_end = &attach->early;
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
		ret = attach_exchange(attach, &packet, ATTACH_HELLO_REPLY);
		if (ret == 0)
			packet_drop_fd(&packet);
	}
	map_close(pidfd);
	if (ret == 0 && reply->status)
		ret = attach_refusal(reply->status, reply->text);
	if (ret) {
		map_close(attach->sock);
		mem_free(attach);
		return error_prefix(ret, "shm:%s: ", path);
	}
	attach->incarnation = reply->incarnation;
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
	while (attach->early && attach_receive(attach, &packet) == 0)
		packet_drop_fd(&packet);
	while (attach->renewals)
		drop_renewal(attach, attach->renewals);
	map_close(attach->sock);
	mem_free(attach);
}

/* -------- regions -------- */

static int check_reply(const struct attach_region_reply *reply, int fd)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), end;
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return error_set(-EPROTO, "the memory node sent no descriptor of region %u",
				 reply->region);
	if (reply->region == 0 || reply->region > RPTR_MAX_REGION || reply->rights == 0 ||
	    (reply->rights & ~(uint32_t)RIGHT_ALL) || reply->size == 0 ||
	    reply->size > RPTR_MAX_OFFSET || !is_aligned(reply->size | reply->offset, page))
		return error_set(-EPROTO, "the memory node described region %u wrongly",
				 reply->region);
	if (!checked_add_u64(reply->offset, reply->size, &end) ||
	    (!S_ISCHR(st.st_mode) && end > (uint64_t)st.st_size))
		return error_set(-EPROTO, "region %u: is larger than the %lld bytes of its file",
				 reply->region, (long long)st.st_size);
	return 0;
}

static int map_reply(const struct attach_region_reply *reply, int fd, struct attached *out)
{
	bool writable = (reply->rights & (RIGHT_WRITE | RIGHT_ATOMIC)) != 0;
	uint32_t mode = (writable ? MAP_WRITABLE : 0) | (reply->flags & ATTACH_HUGE ? MAP_HUGE : 0);
	struct region *region = &out->region;
	struct stat st = { .st_mode = 0 };
	uint64_t unit = 1, before;
	struct statfs fs;
	int ret;

	/* Huge pages and devices are mapped whole or not at all: so is the unit of a range. */
	out->on_device = fstat(fd, &st) == 0 && S_ISCHR(st.st_mode);
	if (out->on_device)
		unit = MAP_HUGE_BYTES;
	else if (fstatfs(fd, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC)
		unit = (uint64_t)fs.f_bsize;
	before = reply->offset % unit;
	out->map_bytes = align_up(before + reply->size, unit);
	ret = map_shared(fd, reply->offset - before, out->map_bytes, mode, &out->map);
	if (ret)
		return ret;
	region->base = out->map + before;
	region->id = reply->region;
	region->rights = reply->rights;
	region->size = reply->size;
	region->incarnation = reply->incarnation;
	out->flags = reply->flags;
	/* a memfd is sealed */
	if (reply->flags & ATTACH_PERSISTENT)
		ret = guard_add(out->map, out->map_bytes, &region->broken);
	if (ret)
		map_release(out->map, out->map_bytes);
	return ret;
}

/* -------- one question and its answer -------- */

#define NO_MORE UINT32_MAX

static void ask_for(const struct region_grant *grant, uint32_t page, struct packet *packet_out)
{
	*packet_out = (struct packet){ .fd = -1 };
	packet_out->region.grant_bytes = grant->bytes;
	packet_out->region.page = page;
	memcpy(packet_out->region.grant, grant->data, grant->bytes);
	packet_seal(packet_out, ATTACH_REGION);
}

/* Maps the page that the target answers with in its place; no page is at UINT64_MAX. */
static int take_page(struct packet *packet, const struct attached *at, uint64_t *off_out)
{
	const struct region *region = &at->region;
	const struct attach_region_reply *reply = &packet->region_reply;
	bool writable = (region->rights & (RIGHT_WRITE | RIGHT_ATOMIC)) != 0;
	struct stat st;
	int ret = 0;

	*off_out = reply->size ? reply->offset : UINT64_MAX;
	if (reply->status)
		ret = attach_refusal(reply->status, reply->text);
	else if (reply->size &&
		 (packet->fd < 0 || fstat(packet->fd, &st) || st.st_size != ATTACH_PAGE_BYTES ||
		  reply->size != ATTACH_PAGE_BYTES || reply->offset >= region->size ||
		  !is_aligned(reply->offset, ATTACH_PAGE_BYTES)))
		ret = error_set(-EPROTO, "the memory node described a page of region %u wrongly",
				region->id);
	else if (reply->size)
		ret = map_over(packet->fd, ATTACH_PAGE_BYTES, writable, region->base + *off_out);
	packet_drop_fd(packet);
	return ret;
}

/*
 * Takes the next answer: the region first, then each page with memory of its own. *next_out: the
 * request that comes after it.
 */
static int take_next(struct packet *packet, struct attached *out, uint32_t *next_out)
{
	const struct attach_region_reply *reply = &packet->region_reply;
	uint64_t off = UINT64_MAX;
	int ret;

	*next_out = NO_MORE;
	if (out->map) {
		ret = take_page(packet, out, &off);
		off = off == UINT64_MAX ? out->region.size : off + ATTACH_PAGE_BYTES;
		if (ret == 0 && off < out->region.size)
			*next_out = ATTACH_PAGE_NEXT | (uint32_t)(off / ATTACH_PAGE_BYTES);
		return ret;
	}
	if (reply->status)
		ret = attach_refusal(reply->status, reply->text);
	else
		ret = check_reply(reply, packet->fd);
	if (ret == 0)
		ret = map_reply(reply, packet->fd, out);
	if (ret == 0 && (reply->flags & ATTACH_PAGES))
		*next_out = ATTACH_PAGE_NEXT;
	if (ret == 0 && (reply->flags & ATTACH_PERSISTENT))
		out->fd = packet->fd;
	else
		packet_drop_fd(packet);
	return ret;
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

int attach_region(struct attach *attach, const struct region_grant *grant, struct attached *out)
{
	struct packet packet;
	uint32_t next = 0;
	int ret = 0;

	out->grant = *grant;
	while (ret == 0 && next != NO_MORE) {
		bool more = next != 0 && has_more(&packet);

		if (!more)
			ask_for(grant, next, &packet);
		ret = more ? attach_hear(attach, &packet, ATTACH_REGION_REPLY)
			   : attach_exchange(attach, &packet, ATTACH_REGION_REPLY);
		if (ret == 0)
			ret = take_next(&packet, out, &next);
	}
	if (ret)
		attach_release(out);
	return ret;
}

int attach_region_begin(struct attach *attach, const struct region_grant *grant)
{
	struct packet packet;

	ask_for(grant, 0, &packet);
	return attach_ask(attach, &packet);
}

int attach_region_end(struct attach *attach, const struct region_grant *grant, struct attached *out)
{
	struct packet packet = { .fd = -1 };
	uint32_t next = NO_MORE;
	int ret;

	do {
		ret = attach_take(attach, &packet, ATTACH_REGION_REPLY);
		if (ret == -EAGAIN)
			return ret;
		if (ret == 0)
			ret = take_next(&packet, out, &next);
	} while (ret == 0 && next != NO_MORE && has_more(&packet));
	out->grant = *grant;
	if (ret == 0 && next != NO_MORE) {
		ask_for(grant, next, &packet);
		ret = attach_ask(attach, &packet);
		ret = ret ? ret : -EAGAIN;
	}
	if (ret && ret != -EAGAIN)
		attach_release(out);
	return ret;
}

static int send_page(struct attach *attach, const struct attached *at, uint64_t off, int fd)
{
	struct packet packet;
	int ret;

	if (attach->sock < 0)
		return error_set(-ECONNRESET, "the connection to the memory node was lost earlier");
	ask_for(&at->grant, (uint32_t)(off / ATTACH_PAGE_BYTES), &packet);
	packet_seal(&packet, ATTACH_RENEW);
	packet.fd = fd;
	ret = packet_send(attach->sock, &packet);
	if (ret == -EAGAIN)
		return error_set(-EAGAIN, "region %u: its memory node does not accept a page now",
				 at->region.id);
	return hang_up(attach, ret);
}

/* -------- pages that the target makes -------- */

static int begin_renewal(struct attach *attach, const struct attached *at, uint64_t off)
{
	struct renewal *renewal = mem_zalloc(sizeof(*renewal));
	int ret;

	if (!renewal)
		return error_set(-ENOMEM, "no memory for the renewal of a page");
	ret = send_page(attach, at, off, -1);
	if (ret) {
		mem_free(renewal);
		/* With a page in progress its deadline holds, and this one is asked for later. */
		if (ret == -EAGAIN && !first_unanswered(attach))
			ret = hang_up(attach, error_set(-ETIMEDOUT, "target reads nothing"));
		return ret;
	}
	renewal->region = at->region.id;
	renewal->off = off;
	renewal->deadline = deadline_of(attach);
	*attach->renewals_end = renewal;
	attach->renewals_end = &renewal->next;
	return 0;
}

/* Takes pending messages of the target. Answers to attach_region_begin are kept for its end. */
static int look_for_renewals(struct attach *attach)
{
	const struct renewal *renewal;
	struct packet packet;
	int ret;

	if (!first_unanswered(attach))
		return 0;
	do {
		ret = packet_receive(attach->sock, &packet);
		if (ret == 0 && packet.head.type == ATTACH_RENEW_REPLY)
			ret = settle_renewal(attach, &packet);
		else if (ret == 0)
			ret = keep_early(attach, &packet);
	} while (ret == 0);
	renewal = first_unanswered(attach);
	if (ret == -EAGAIN && renewal && deadline_expired(attach->clock, renewal->deadline))
		ret = error_set(-ETIMEDOUT, "target did not make a page in time");
	return ret == -EAGAIN ? 0 : hang_up(attach, ret);
}

int attach_renewing(struct attach *attach)
{
	int ret = look_for_renewals(attach);
	bool made = attach->made;

	attach->made = false;
	return ret ? ret : made || first_unanswered(attach);
}

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
		"region %u: pages can be granted only of a region of pages, with all rights",
		at->region.id);
}

int attach_prepare(struct attach *attach, const struct attached *at, uint64_t off)
{
	const struct renewal *renewal;
	int ret;

	if (!(at->flags & ATTACH_MAKES_PAGES))
		return 0;
	ret = check_may_renew(at);
	if (ret == 0 && !find_renewal(attach, at, off))
		ret = begin_renewal(attach, at, off);
	if (ret == 0)
		ret = look_for_renewals(attach);
	if (ret)
		return ret;
	renewal = find_renewal(attach, at, off);
	return renewal->answered
		       ? 0
		       : error_set(-EAGAIN, "region %u: its target makes the page at %llu",
				   at->region.id, (unsigned long long)off);
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
	uint64_t seen = 0;
	int fd = -1, ret;

	if (!(at->flags & (ATTACH_CAN_RENEW | ATTACH_MAKES_PAGES)))
		return 0;
	ret = check_may_renew(at);
	if (ret)
		return ret;
	if (!(at->flags & ATTACH_MAKES_PAGES)) {
		ret = map_memfd(at->region.id, ATTACH_PAGE_BYTES, 0, &fd);
		if (ret == 0)
			ret = send_page(attach, at, off, fd);
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
	if (renewal->reply.region_reply.status == 0 && renewal->reply.region_reply.offset != off)
		return hang_up(attach, error_set(-EPROTO, "target made another page of region %u",
						 at->region.id));
	ret = take_page(&renewal->reply, at, &seen);
	drop_renewal(attach, renewal);
	if (ret == 0 && seen != off)
		ret = error_set(-EPROTO, "target made no page of region %u", at->region.id);
	return ret;
}
