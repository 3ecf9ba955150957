/*
 * target.c - the target's operations: those of every target, and libfabric beside them.
 */
#include "transport/ofi/ofi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/os/lock.h"

#include "transport/attach/address.h"
#include "transport/fork.h"
#include "transport/ofi/agent.h"
#include "transport/ofi/listen.h"
#include "transport/ofi/peers.h"

enum {
	EVENTS = 64, /* served at a time */
	LISTENER,
	OTHERS, /* the timer and the base's socket */
};

struct ofi_target {
	struct target base;
	struct transport_target_ops ops; /* those of base, and ours in the place of some */
	struct lock lock;
	struct ofi_agent agent;
	struct ofi_peers *peers LOCK_GUARDED_BY(ofi_role); /* NULL until it listens */
	int listener LOCK_GUARDED_BY(ofi_role);            /* -1 likewise */
	int epoll LOCK_GUARDED_BY(ofi_role);               /* likewise */
	int timer LOCK_GUARDED_BY(ofi_role);       /* of looks at links without a grant; likewise */
	uint64_t fences LOCK_GUARDED_BY(ofi_role); /* of clients that base never saw */
};

static struct ofi_target *ofi_target_of(struct transport_target *tg)
{
	return (struct ofi_target *)tg;
}

static void target_enter(struct ofi_target *target) LOCK_ACQUIRES(ofi_role)
{
	ofi_agent_enter(&target->agent);
}

static void target_leave_lock(struct ofi_target *target) LOCK_RELEASES(ofi_role)
{
	lock_release(&target->lock, &ofi_role);
}

/* -------- regions and grants -------- */

/* Revokes a client's grants of a region, then closes its keys: so none can be opened again. */
static int ofi_revoke(struct transport_target *tg, uint64_t client_id, uint32_t region)
{
	struct ofi_target *target = ofi_target_of(tg);
	int ret = target_ops.revoke(tg, client_id, region);

	if (ret)
		return ret;
	target_enter(target);
	if (target->peers)
		ofi_peers_revoke(target->peers, client_id, region);
	target_leave_lock(target);
	return 0;
}

/* -------- serving -------- */

static void target_accept(struct ofi_target *target) LOCK_REQUIRES(ofi_role)
{
	int sock = accept4(target->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (sock >= 0)
		ofi_peers_accept(target->peers, sock);
}

static void target_serve(struct ofi_target *target) LOCK_REQUIRES(ofi_role)
{
	struct epoll_event event;
	uint64_t expirations;

	if (!target->peers)
		return;
	for (int i = 0; i < EVENTS && epoll_wait(target->epoll, &event, 1, 0) == 1; i++) {
		if (event.data.u32 == LISTENER)
			target_accept(target);
		else if (read(target->timer, &expirations, sizeof(expirations)) > 0)
			ofi_peers_look(target->peers);
	}
}

/*
 * FENCE_ASK: a client is alive while it has a link; otherwise base decides. FENCE_CUT and
 * FENCE_KILL close its links, and base decides.
 */
static int ofi_fence(struct transport_target *tg, uint64_t client_id, enum fence_how how,
		     enum fence_result *result_out)
{
	struct ofi_target *target = ofi_target_of(tg);
	enum fence_result result = FENCE_ALIVE;
	bool known;
	int ret = 0, cut = 0;

	if (fork_happened(target->base.forks))
		return fork_error("target");
	/* waits for a process to die: without our lock, and before a caller cuts itself off */
	if (how == FENCE_KILL)
		ret = target_ops.fence(tg, client_id, how, &result);
	if (ret == -EDEADLK)
		return ret;
	target_enter(target);
	if (how == FENCE_ASK) {
		/* an event that says that it has hung up may be pending */
		for (int i = 0; i < EVENTS && target->peers; i++) {
			if (!ofi_agent_serve(&target->agent))
				break;
		}
		if (!target->peers || !ofi_peers_have(target->peers, client_id))
			ret = target_ops.fence(tg, client_id, how, &result);
	} else if (target->peers) {
		known = target_knows(&target->base, client_id);
		cut = ofi_peers_fence(target->peers, client_id);
		target->fences += cut > 0 && !known;
	}
	target_leave_lock(target);
	if (cut < 0)
		return cut;
	if (how == FENCE_CUT)
		ret = target_ops.fence(tg, client_id, how, &result);
	if (ret == 0)
		*result_out = result;
	return ret;
}

/* -------- listening -------- */

static int target_watch(struct ofi_target *target) LOCK_REQUIRES(ofi_role)
{
	const struct timespec pause = { .tv_sec = OFI_LOOK_S };
	const struct itimerspec every = { pause, pause };
	int fds[] = { target->listener, -1, target_ops.poll_fd(&target->base.tg) };

	target->timer = fds[1] = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (target->timer < 0 || timerfd_settime(target->timer, 0, &every, NULL))
		return error_set(-errno, "timer of a target: %s", strerror(errno));
	for (uint32_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		struct epoll_event event = { .events = EPOLLIN, .data.u32 = LISTENER + i };

		if (fds[i] >= 0 && epoll_ctl(target->epoll, EPOLL_CTL_ADD, fds[i], &event))
			return error_set(-errno, "epoll_ctl: %s", strerror(errno));
	}
	return 0;
}

/* Ends the agent without the lock, then all that it drove. */
static void end_listening(struct ofi_target *target, bool forked)
{
	ofi_agent_stop(&target->agent, forked);
	lock_acquire(&target->lock, &ofi_role);
	ofi_peers_close(target->peers, forked);
	target->peers = NULL;
	if (target->listener >= 0)
		close(target->listener);
	if (target->epoll >= 0)
		close(target->epoll);
	if (target->timer >= 0)
		close(target->timer);
	target->listener = target->epoll = target->timer = -1;
	lock_release(&target->lock, &ofi_role);
}

static const char *target_provider(void)
{
	const char *given = getenv("RLV_OFI_PROVIDER");

	return given ? given : "";
}

/* Opens all that listening needs, the unix socket last, because it cannot be closed again. */
static int begin_listening(struct ofi_target *target, struct node_address *where)
	LOCK_REQUIRES(ofi_role)
{
	const char *provider = target_provider();
	int ret;

	if (strlen(provider) >= OFI_PROVIDER_BYTES)
		return error_set(-EINVAL, "RLV_OFI_PROVIDER=%s: longer than %d bytes", provider,
				 OFI_PROVIDER_BYTES - 1);
	target->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (target->epoll < 0)
		return error_set(-errno, "epoll_create1: %s", strerror(errno));
	ret = ofi_listen_open(where, &target->listener);
	if (ret == 0)
		ret = ofi_agent_open(&target->agent, &target->lock);
	if (ret == 0)
		ret = ofi_peers_open(&target->base, provider, target->agent.ring, &target->peers);
	if (ret == 0)
		ret = ofi_peers_try(target->peers, where->host);
	if (ret == 0)
		ret = ofi_agent_start(&target->agent, target->peers);
	if (ret == 0 && where->path[0])
		ret = target_ops.listen(&target->base.tg, where->path);
	return ret ? ret : target_watch(target);
}

/* -EALREADY: it listens already. */
static int ofi_listen(struct transport_target *tg, const char *address)
{
	struct ofi_target *target = ofi_target_of(tg);
	char uri[TRANSPORT_URI_BYTES] = "ofi:";
	struct node_address where = { .host = "" };
	int ret;

	if (fork_happened(target->base.forks))
		return fork_error("target");
	if (!address)
		return 0;
	ret = node_address_parse(address, &where);
	if (ret)
		return ret;
	target_enter(target);
	if (target->peers) {
		target_leave_lock(target);
		return error_set(-EALREADY,
				 "listen on %s: the target listens on another address already",
				 address);
	}
	ret = begin_listening(target, &where);
	if (ret == 0)
		ret = node_address_format(&where, uri + strlen(uri), sizeof(uri) - strlen(uri));
	if (ret == 0)
		memcpy(target->base.uri, uri, sizeof(uri)); /* in the place of the socket's */
	target_leave_lock(target);
	if (ret)
		end_listening(target, false);
	return ret;
}

static int ofi_poll_fd(struct transport_target *tg)
{
	struct ofi_target *target = ofi_target_of(tg);
	int fd;

	if (fork_happened(target->base.forks))
		return -1;
	target_enter(target);
	fd = target->epoll;
	target_leave_lock(target);
	return fd;
}

static int ofi_progress(struct transport_target *tg, uint64_t timeout_ns)
{
	struct ofi_target *target = ofi_target_of(tg);
	int ret = target_ops.progress(tg, timeout_ns);

	if (ret)
		return ret;
	target_enter(target);
	target_serve(target);
	target_leave_lock(target);
	return 0;
}

/* -------- the rest -------- */

static bool ofi_alone(struct transport_target *tg, uint32_t region)
{
	struct ofi_target *target = ofi_target_of(tg);
	bool connected;

	if (fork_happened(target->base.forks))
		return false;
	target_enter(target);
	connected = target->peers && target->peers->n;
	target_leave_lock(target);
	return !connected && target_ops.alone(tg, region);
}

/*
 * The base's figures, but attaches are the ATTACH requests over libfabric only, without mappings
 * over the socket. Gauges only once it listens.
 */
static void ofi_stats(struct transport_target *tg, struct target_stats *out)
{
	struct ofi_target *target = ofi_target_of(tg);
	const struct ofi_peers *peers;

	target_ops.stats(tg, out);
	if (fork_happened(target->base.forks))
		return;
	target_enter(target);
	out->attaches = 0;
	out->fences += target->fences;
	peers = target->peers;
	if (peers) {
		out->clients += ofi_peers_count_clients(peers);
		out->attaches = peers->attaches;
		out->n_gauges = 5;
		out->gauges[0] = (struct target_gauge){ "links", peers->n };
		out->gauges[1] = (struct target_gauge){ "keys", peers->n_keys };
		out->gauges[2] =
			(struct target_gauge){ "cpu_ms", ofi_agent_cpu_ms(&target->agent) };
		out->gauges[3] = (struct target_gauge){ "lists", peers->lists };
		out->gauges[4] = (struct target_gauge){ "sends", peers->sends };
	}
	target_leave_lock(target);
}

/*
 * Ends listening and closes the base. A lock that was held at the fork stays held in the child:
 * there nothing is touched then.
 */
static LOCK_UNCHECKED void ofi_target_close(struct transport_target *tg)
{
	struct ofi_target *target = ofi_target_of(tg);
	bool forked = fork_happened(target->base.forks);

	if (forked && !lock_try_acquire(&target->lock, &ofi_role))
		return;
	if (forked)
		lock_release(&target->lock, &ofi_role);
	end_listening(target, forked);
	lock_fini(&target->lock);
	target_ops.close(tg);
}

LOCK_UNCHECKED int ofi_target_open(const struct target_opts *opts, struct transport_target **tg_out)
{
	struct ofi_target *target;
	struct target *base = NULL;
	int ret = target_new(sizeof(*target), opts, &base);

	if (ret)
		return ret;
	target = ofi_target_of(&base->tg);
	target->ops = target_ops;
	target->ops.name = "ofi";
	target->ops.listen = ofi_listen;
	target->ops.revoke = ofi_revoke;
	target->ops.fence = ofi_fence;
	target->ops.alone = ofi_alone;
	target->ops.progress = ofi_progress;
	target->ops.poll_fd = ofi_poll_fd;
	target->ops.stats = ofi_stats;
	target->ops.close = ofi_target_close;
	base->tg.ops = &target->ops;
	*base->uri = '\0'; /* until it listens; it is not opened by embed: */
	target->listener = target->epoll = target->timer = -1;
	target->agent = (struct ofi_agent){ .lock = &target->lock, .ring = -1, .bell = -1 };
	lock_init(&target->lock, &ofi_role);
	*tg_out = &base->tg;
	return 0;
}

int ofi_target_check(void)
{
	const struct ofi_port_opts opts = { .provider = target_provider() };
	struct ofi_port port = { .fd = -1 };
	int ret, closed;

	if (!*opts.provider)
		return 0;
	ret = ofi_port_open(&opts, &port);
	closed = ofi_port_close(&port);
	return ret ? ret : closed;
}
