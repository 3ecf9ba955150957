/*
 * serve.c - the target's socket.
 *
 *   listener --accept--> conn (nameless, deadline) --HELLO--> conn of a client --ATTACH--> attached
 *
 * A lock file beside the socket says that a live process owns the name; the kernel drops the lock
 * with the process, so a stale socket is known for one.
 */
#include "transport/attach/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem/alloc.h"
#include "base/log.h"
#include "base/os/process.h"

#include "transport/fork.h"
#include "transport/pool/map.h"
#include "transport/attach/packet.h"
#include "base/os/pidfd.h"

enum {
	BACKLOG = 128,
	MAX_CONNS = 4096,
	MAX_NAMELESS = 256, /* of them; then the oldest is dropped */
	DRAIN_PACKETS = 64,
	EVENTS = 32,
	LOCK_NAME_BYTES = sizeof(((struct sockaddr_un *)0)->sun_path) + 8,
};

struct conn {
	struct conn *next;
	int sock;
	struct client *client; /* NULL until HELLO */
	bool attached;
	bool renews;       /* it has a region whose pages it may renew */
	uint64_t deadline; /* of HELLO */
};

struct serve {
	struct target *target;
	int epoll, listener, lock;
	int spare; /* given up to accept, and hang up on, a peer when descriptors run out */
	struct sockaddr_un addr;
	struct stat st;     /* of the socket: only our own socket is unlinked */
	struct conn *conns; /* newest first */
	uint32_t n;
};

/* -------- connections -------- */

/*
 * Ends and frees a connection. A child forked meanwhile has a copy of the descriptor, so closing
 * ours neither hangs up nor takes it out of the epoll set: both are done first. In that child they
 * must not be done: both are shared with the parent.
 */
static void serve_drop(struct serve *serve, struct conn *conn) LOCK_REQUIRES(target_role)
{
	struct conn **link = &serve->conns;
	bool more = true;
	uint8_t byte;

	while (*link != conn)
		link = &(*link)->next;
	*link = conn->next;
	serve->n--;
	if (!fork_happened(serve->target->forks)) {
		(void)epoll_ctl(serve->epoll, EPOLL_CTL_DEL, conn->sock, NULL);
		(void)shutdown(conn->sock, SHUT_RDWR);
		/* Unread, the rest would have the kernel reset the peer before our last answer. */
		for (int i = 0; more && i < DRAIN_PACKETS; i++)
			more = recv(conn->sock, &byte, sizeof(byte), MSG_DONTWAIT | MSG_TRUNC) > 0;
	}
	close(conn->sock);
	if (conn->client) {
		conn->client->connected--;
		clients_settle(&serve->target->clients, conn->client);
	}
	mem_free(conn);
}

int serve_adopt(struct serve *serve, int sock)
{
	struct conn *conn = mem_zalloc(sizeof(*conn));
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = conn };

	if (!conn)
		return error_set(-ENOMEM, "cannot allocate memory for a connection");
	if (epoll_ctl(serve->epoll, EPOLL_CTL_ADD, sock, &event)) {
		mem_free(conn);
		return error_set(-errno, "epoll_ctl: %s", strerror(errno));
	}
	conn->sock = sock;
	conn->deadline = deadline_after(serve->target->clock, 5 * CLOCK_NS_PER_S);
	conn->next = serve->conns;
	serve->conns = conn;
	serve->n++;
	return 0;
}

static void accept_one(struct serve *serve)
{
	int sock = accept4(serve->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (sock < 0 && (errno == EMFILE || errno == ENFILE)) {
		log_warn("accept %s %m", serve->addr.sun_path);
		close(serve->spare);
		map_close(accept4(serve->listener, NULL, NULL, SOCK_CLOEXEC));
		serve->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	} else if (sock >= 0 && (serve->n >= MAX_CONNS || serve_adopt(serve, sock))) {
		log_warn("refuse connection, have %u", serve->n);
		close(sock);
	}
}

void serve_drop_client(struct serve *serve, struct client *client)
{
	struct conn *next;

	for (struct conn *conn = serve ? serve->conns : NULL; conn; conn = next) {
		next = conn->next;
		if (conn->client != client)
			continue;
		conn->client = NULL; /* whose end is the caller's business */
		serve_drop(serve, conn);
	}
}

/* -------- HELLO -------- */

/*
 * Returns -EPERM for a peer in another pid namespace: its pid has no meaning here, so the node
 * could neither find nor fence the client.
 */
static int other_namespace(uint32_t pid)
{
	return error_set(-EPERM,
			 "process %u is in another pid namespace than its memory node: share one "
			 "(shareProcessNamespace, docker --pid), or reach the node by RDMA",
			 pid);
}

/*
 * Checks that the peer's credentials, pidfd and start time are those of the process that its HELLO
 * names. -EPERM: they are not, or it is in another pid namespace; -EPROTO: it sent no pidfd.
 */
static int check_peer(int sock, const struct packet *packet)
{
	const struct attach_hello *hello = &packet->hello;
	struct ucred cred = { 0 };
	socklen_t len = sizeof(cred);
	struct process_id id = { 0 };
	pid_t pid = 0;
	int ret;

	if (packet->fd < 0 || hello->reserved)
		return error_set(-EPROTO, "hello: it has no pidfd");
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return error_set(-errno, "getsockopt peercred: %s", strerror(errno));
	if (cred.pid == 0) /* the kernel has no number for it here */
		return other_namespace(hello->pid);
	ret = pidfd_pid(packet->fd, &pid);
	if (ret)
		return ret;
	if (pid == cred.pid && hello->pid != (uint32_t)pid)
		return other_namespace(hello->pid);
	if (pid != cred.pid)
		return error_set(-EPERM, "hello of process %u: the peer is %d, its pidfd's is %d",
				 hello->pid, (int)cred.pid, (int)pid);
	ret = process_read((uint32_t)pid, &id);
	if (ret == -EACCES) /* of another user, and /proc hides it: its pidfd is proof enough */
		return 0;
	if (ret)
		return ret;
	if (id.start_time != hello->start_time)
		return error_set(-EPERM, "hello of process %u: started at %llu, says %llu",
				 hello->pid, (unsigned long long)id.start_time,
				 (unsigned long long)hello->start_time);
	return 0;
}

static void put_text(char *text)
{
	(void)snprintf(text, ATTACH_TEXT_BYTES, "%.*s", ATTACH_TEXT_BYTES - 1, error_last());
}

/*
 * Answers a HELLO with code and the last error's text. The layout of this refusal is the same in
 * all versions, so that a peer of another version can read the reason.
 */
static int serve_refuse(const struct conn *conn, int code)
{
	struct packet reply = { .fd = -1 };

	reply.hello_reply.status = code;
	put_text(reply.hello_reply.text);
	packet_seal(&reply, ATTACH_HELLO_REPLY);
	return packet_send(conn->sock, &reply);
}

/*
 * Checks a HELLO, finds its client or adds it with the packet's pidfd, which the client then owns,
 * and answers. An error has been answered with a refusal.
 */
static int on_hello(struct serve *serve, struct conn *conn, struct packet *packet)
	LOCK_REQUIRES(target_role)
{
	const struct attach_hello *hello = &packet->hello;
	struct clients *clients = &serve->target->clients;
	struct client *client = clients_find(clients, hello->client_id);
	struct packet reply = { .fd = -1 };
	int ret = check_peer(conn->sock, packet);

	if (ret == 0 && client &&
	    (client->pidfd < 0 || client->pid != (pid_t)hello->pid ||
	     client->start_time != hello->start_time))
		ret = error_set(-EEXIST, "client id %llu: process %d uses it",
				(unsigned long long)hello->client_id, (int)client->pid);
	if (ret == 0 && !client) {
		ret = clients_add(clients, hello->client_id, &client);
		if (ret == 0) {
			client->pid = (pid_t)hello->pid;
			client->start_time = hello->start_time;
			client->pidfd = packet->fd;
			packet->fd = -1;
		}
	}
	if (ret) {
		(void)!serve_refuse(conn, ret);
		return ret;
	}
	client->connected++;
	conn->client = client;
	reply.hello_reply.incarnation = serve->target->tg.incarnation;
	if (serve->target->pool->persistent)
		reply.hello_reply.flags = ATTACH_PERSISTENT;
	packet_seal(&reply, ATTACH_HELLO_REPLY);
	return packet_send(conn->sock, &reply);
}

/* -------- ATTACH -------- */

static int share_fd(struct target *target, const struct target_map *map, int fd,
		    struct packet *reply) LOCK_REQUIRES(target_role)
{
	bool writable = (map->rights & (RIGHT_WRITE | RIGHT_ATOMIC)) != 0;

	return mempool_share(target->pool, map->region, fd, writable, &reply->fd);
}

static int check_ask(struct target *target, uint64_t client_id, const struct attach_region *ask,
		     struct target_map *map_out) LOCK_REQUIRES(target_role)
{
	struct region_grant grant = { .bytes = ask->grant_bytes };

	if (ask->grant_bytes > ATTACH_GRANT_BYTES)
		return error_set(-EPROTO, "grant of %u bytes", ask->grant_bytes);
	memcpy(grant.data, ask->grant, ask->grant_bytes);
	return target_check_grant(target, client_id, &grant, map_out);
}

/*
 * Fills in reply with a descriptor: of the granted range, or, if ask names a page, of the first
 * page from there on that has its own memory (size 0: none; needs a grant of the whole region). Of
 * a region with such pages only all of it, or one such page, is shared.
 */
static int serve_share(struct target *target, uint64_t client_id, const struct attach_region *ask,
		       struct packet *reply) LOCK_REQUIRES(target_role)
{
	struct attach_region_reply *out = &reply->region_reply;
	const struct mempool *pool = target->pool;
	const struct mempool_page *page;
	struct target_map map = { 0 };
	int ret = check_ask(target, client_id, ask, &map);
	uint64_t off;
	bool whole;

	if (ret)
		return ret;
	if (pool->undivided)
		return error_set(-EACCES,
				 "region %u: it lies on a device, of which a descriptor opens all: "
				 "start its node with --trust-clients",
				 map.region->info.id);
	whole = map.off == 0 && map.size == map.region->info.size;
	out->flags |= pool->persistent ? ATTACH_PERSISTENT : 0;
	out->flags |= pool->huge ? ATTACH_HUGE : 0;
	if (pool->ops->renew)
		out->flags |= pool->makes_pages ? ATTACH_MAKES_PAGES : ATTACH_CAN_RENEW;
	if (target_can_renew(target, map.region) && whole && map.rights == RIGHT_ALL)
		out->flags |= ATTACH_MAY_RENEW;
	out->region = map.region->info.id;
	out->rights = map.rights;
	out->incarnation = target->tg.incarnation;
	off = ask->page ? (uint64_t)(ask->page & ATTACH_PAGE_MAX) * ATTACH_PAGE_BYTES : map.off;
	page = mempool_page_from(map.region, off);
	if (ask->page && !whole)
		return error_set(
			-EACCES,
			"region %u: a grant of the whole region is needed to renew its pages",
			map.region->info.id);
	if (ask->page && !page)
		return 0;
	out->size = ask->page ? ATTACH_PAGE_BYTES : map.size;
	if (ask->page) {
		out->offset = page->off;
		out->flags |= page->next ? ATTACH_MORE : 0;
	} else if (!page || page->off != off || map.size != ATTACH_PAGE_BYTES) {
		if (map.region->by_pages && !whole)
			return error_set(-EACCES, "region %u: only single pages of it are shared",
					 map.region->info.id);
		out->offset = map.region->fd_off + off;
		out->flags |= map.region->own_pages ? ATTACH_PAGES : 0;
		return share_fd(target, &map, map.region->fd, reply);
	}
	return share_fd(target, &map, page->fd, reply);
}

/*
 * Answers a request for a region or its pages, with up to ATTACH_PAGES_MAX packets. A refused grant
 * is answered, too, and leaves the connection as it is.
 */
static int on_attach(struct serve *serve, struct conn *conn, const struct packet *packet)
	LOCK_REQUIRES(target_role)
{
	struct attach_region ask = packet->region;
	bool more = true;
	int ret = 0;

	/* Takes renewals that the same peer sent over its previous connection, too. */
	if (!conn->renews)
		serve_renewals(serve);
	for (uint32_t n = 1; ret == 0 && more; n++) {
		struct packet reply = { .fd = -1 };
		struct attach_region_reply *out = &reply.region_reply;

		out->status = serve_share(serve->target, conn->client->id, &ask, &reply);
		if (out->status || n == ATTACH_PAGES_MAX) /* no page comes unasked behind it */
			out->flags &= ~(uint32_t)ATTACH_MORE;
		if (out->status) {
			put_text(out->text);
		} else {
			conn->renews |= (out->flags & ATTACH_MAY_RENEW) != 0;
			conn->client->attached += !conn->attached;
			conn->attached = true;
			serve->target->attaches += n == 1;
		}
		packet_seal(&reply, ATTACH_REGION_REPLY);
		ret = packet_send(conn->sock, &reply);
		packet_drop_fd(&reply);
		more = (out->flags & ATTACH_MORE) != 0;
		ask.page = ATTACH_PAGE_NEXT | (uint32_t)(out->offset / ATTACH_PAGE_BYTES + 1);
	}
	return ret;
}

/*
 * Renews a page: by the packet's descriptor, which it takes over, or by a page that the pool makes.
 * Only the latter is answered.
 */
static int on_renew(struct serve *serve, struct conn *conn, struct packet *packet)
	LOCK_REQUIRES(target_role)
{
	const struct attach_region *ask = &packet->region;
	uint64_t off = (uint64_t)ask->page * ATTACH_PAGE_BYTES;
	struct mempool *pool = serve->target->pool;
	struct packet reply = { .fd = -1 };
	struct attach_region_reply *out = &reply.region_reply;
	struct target_map map = { 0 };
	int ret = check_ask(serve->target, conn->client->id, ask, &map), fd = packet->fd;

	if (ret)
		return ret;
	packet->fd = -1;
	ret = target_renew(serve->target, &map, off, fd);
	if (ret)
		log_warn("client %llu: renew page %u: %s", (unsigned long long)conn->client->id,
			 ask->page, error_last());
	/* A client that sends memory expects no answer. */
	if (fd >= 0 || !pool->makes_pages)
		return ret;
	if (ret == 0)
		ret = share_fd(serve->target, &map, mempool_page_from(map.region, off)->fd, &reply);
	*out = (struct attach_region_reply){ .status = ret,
					     .region = map.region->info.id,
					     .rights = map.rights,
					     .offset = off,
					     .size = ATTACH_PAGE_BYTES,
					     .incarnation = serve->target->tg.incarnation };
	if (ret)
		put_text(out->text);
	packet_seal(&reply, ATTACH_RENEW_REPLY);
	ret = packet_send(conn->sock, &reply);
	packet_drop_fd(&reply);
	return ret;
}

/* -------- events -------- */

/*
 * Receives a packet and handles it; any failure, or BYE, ends the connection. false: no packet is
 * there.
 */
static bool on_ready(struct serve *serve, struct conn *conn) LOCK_REQUIRES(target_role)
{
	struct packet packet = { .fd = -1 };
	uint16_t type;
	int ret = packet_receive(conn->sock, &packet);

	if (ret == -EAGAIN)
		return false;
	type = ret ? 0 : packet.head.type;
	if (ret == -EPROTO && !conn->client && packet.head.magic == ATTACH_MAGIC) {
		(void)!serve_refuse(conn, ret);
	} else if (!conn->client && type == ATTACH_HELLO) {
		ret = on_hello(serve, conn, &packet);
	} else if (conn->client && packet.fd < 0 && type == ATTACH_REGION) {
		ret = on_attach(serve, conn, &packet);
	} else if (conn->client && type == ATTACH_RENEW) {
		ret = on_renew(serve, conn, &packet);
	} else if (conn->client && packet.fd < 0 && type == ATTACH_BYE) {
		conn->client->attached -= conn->attached;
		conn->attached = false;
		ret = -ESHUTDOWN;
	} else if (ret == 0) {
		ret = error_set(-EPROTO, "a packet of type %u is not expected now", type);
	}
	packet_drop_fd(&packet);
	if (ret && ret != -ESHUTDOWN)
		log_debug("drop peer: %s", error_last());
	if (ret)
		serve_drop(serve, conn);
	return true;
}

/*
 * Restarts from the beginning of the list after each packet, since handling it may end a
 * connection.
 */
void serve_renewals(struct serve *serve)
{
	struct conn *conn = serve ? serve->conns : NULL;

	while (conn)
		conn = conn->renews && on_ready(serve, conn) ? serve->conns : conn->next;
}

/*
 * Handles up to EVENTS events, then drops peers that sent no HELLO in time, and the oldest of those
 * without a HELLO above MAX_NAMELESS, so that silent peers keep no others out.
 */
int serve_progress(struct serve *serve)
{
	struct epoll_event event;
	struct conn *next;
	uint32_t silent = 0;
	int n = 1;

	if (!serve)
		return 0;
	/* One at a time: handling an event may drop the peer of another. */
	for (int i = 0; n == 1 && i < EVENTS; i++) {
		n = epoll_wait(serve->epoll, &event, 1, 0);
		if (n < 0 && errno != EINTR)
			return error_set(-errno, "epoll_wait: %s", strerror(errno));
		if (n == 1 && event.data.ptr)
			(void)on_ready(serve, event.data.ptr);
		else if (n == 1)
			accept_one(serve);
	}
	for (struct conn *conn = serve->conns; conn; conn = next) {
		next = conn->next;
		if (conn->client || (++silent <= MAX_NAMELESS &&
				     !deadline_expired(serve->target->clock, conn->deadline)))
			continue;
		log_debug("drop peer that said no hello");
		serve_drop(serve, conn);
	}
	return 0;
}

int serve_poll_fd(const struct serve *serve)
{
	return serve ? serve->epoll : -1;
}

/* -------- opening -------- */

/*
 * Removes a stale socket. Leaves it if a process without our lock file listens there (-EADDRINUSE),
 * or if the file is not a socket (-EEXIST).
 */
static int clear_stale(struct serve *serve)
{
	struct stat st;
	int probe, live;

	if (lstat(serve->addr.sun_path, &st))
		return errno == ENOENT ? 0
				       : error_set(-errno, "stat %s: %s", serve->addr.sun_path,
						   strerror(errno));
	if (!S_ISSOCK(st.st_mode))
		return error_set(-EEXIST,
				 "listen on %s: a file of that name exists that is not a socket",
				 serve->addr.sun_path);
	probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (probe < 0)
		return error_set(-errno, "socket: %s", strerror(errno));
	live = connect(probe, (struct sockaddr *)&serve->addr, sizeof(serve->addr)) == 0 ||
	       errno != ECONNREFUSED;
	close(probe);
	if (live)
		return error_set(-EADDRINUSE, "listen on %s: in use by another process",
				 serve->addr.sun_path);
	if (unlink(serve->addr.sun_path) && errno != ENOENT)
		return error_set(-errno, "unlink %s: %s", serve->addr.sun_path, strerror(errno));
	return 0;
}

int serve_open(struct target *target, const char *path, struct serve **serve_out)
{
	struct epoll_event event = { .events = EPOLLIN };
	char name[LOCK_NAME_BYTES];
	struct serve *serve;
	int ret;

	if (!*path || strlen(path) >= sizeof(serve->addr.sun_path))
		return error_set(-ENAMETOOLONG, "socket path \"%s\": must have 1 to %zu bytes",
				 path, sizeof(serve->addr.sun_path) - 1);
	serve = mem_zalloc(sizeof(*serve));
	if (!serve)
		return error_set(-ENOMEM, "cannot allocate memory for a socket");
	serve->target = target;
	serve->epoll = serve->listener = serve->lock = serve->spare = -1;
	serve->addr.sun_family = AF_UNIX;
	(void)snprintf(serve->addr.sun_path, sizeof(serve->addr.sun_path), "%s", path);
	/* The holder of the lock owns the name of the socket. */
	(void)snprintf(name, sizeof(name), "%s.lock", path);
	ret = map_open_own(AT_FDCWD, name, true, &serve->lock);
	if (ret == -EBUSY)
		ret = error_set(-EADDRINUSE, "listen on %s: in use by another process", path);
	if (ret >= 0)
		ret = clear_stale(serve);
	if (ret)
		goto err_close;
	serve->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	/* The socket's own mode, set before bind, becomes that of its name: no moment of more rights. */
	if (serve->listener < 0 || fchmod(serve->listener, 0600) ||
	    bind(serve->listener, (struct sockaddr *)&serve->addr, sizeof(serve->addr)) ||
	    chmod(path, 0600) || lstat(path, &serve->st) || listen(serve->listener, BACKLOG)) {
		ret = error_set(-errno, "listen on %s: %s", path, strerror(errno));
		goto err_close;
	}
	serve->epoll = epoll_create1(EPOLL_CLOEXEC);
	serve->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (serve->epoll < 0 || serve->spare < 0 ||
	    epoll_ctl(serve->epoll, EPOLL_CTL_ADD, serve->listener, &event)) {
		ret = error_set(-errno, "epoll: %s", strerror(errno));
		goto err_close;
	}
	*serve_out = serve;
	return 0;
err_close:
	serve_close(serve, false);
	return ret;
}

LOCK_UNCHECKED void serve_close(struct serve *serve, bool forked)
{
	char name[LOCK_NAME_BYTES];
	struct stat st;

	if (!serve)
		return;
	while (serve->conns)
		serve_drop(serve, serve->conns);
	/* Unlinks the names while the lock is still held, and only if they are ours. */
	if (!forked && serve->lock >= 0) {
		if (serve->st.st_ino && lstat(serve->addr.sun_path, &st) == 0 &&
		    st.st_ino == serve->st.st_ino && st.st_dev == serve->st.st_dev)
			unlink(serve->addr.sun_path);
		(void)snprintf(name, sizeof(name), "%s.lock", serve->addr.sun_path);
		unlink(name);
	}
	if (!forked) {
		/* for the copies that forked children have */
		(void)shutdown(serve->listener, SHUT_RDWR);
		if (serve->lock >= 0)
			(void)map_own(serve->lock, false);
	}
	map_close(serve->epoll);
	map_close(serve->listener);
	map_close(serve->spare);
	map_close(serve->lock);
	mem_free(serve);
}
