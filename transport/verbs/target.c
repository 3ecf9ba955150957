/*
 * target.c - the target's operations: those of every target, and RDMA beside them.
 */
#include "transport/verbs/verbs.h"

#include <errno.h>
#include <glob.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/os/lock.h"

#include "transport/fork.h"
#include "transport/verbs/listen.h"
#include "transport/verbs/peers.h"

static LOCK_ROLE(role, "verbs target", LOCK_RANK_OBJECT);

struct verbs_target {
	struct target base;
	struct transport_target_ops ops; /* those of base, and ours in the place of some */
	struct lock lock;
	const struct verbs_calls *calls;
	const struct alloc_hooks *buffers;
	struct listener *listener LOCK_GUARDED_BY(role); /* NULL until it listens */
	struct peers *peers LOCK_GUARDED_BY(role);       /* likewise */
	int epoll LOCK_GUARDED_BY(role);                 /* -1 likewise */
	int timer LOCK_GUARDED_BY(role);       /* of looks at links that are silent; -1 likewise */
	uint64_t fences LOCK_GUARDED_BY(role); /* of clients that base never saw */
};

static struct verbs_target *verbs_target_of(struct transport_target *tg)
{
	return (struct verbs_target *)tg;
}

/* -------- regions and grants -------- */

/*
 * Makes a region and, if the target listens, registers it with the device. Memory is pinned without
 * the lock: meanwhile peers and questions are served.
 */
static int verbs_register(struct transport_target *tg, struct target_region *spec)
{
	struct verbs_target *target = verbs_target_of(tg);
	struct target_region made = *spec;
	struct ibv_mr *mr = NULL;
	struct rights *rights;
	int ret = target_ops.register_region(tg, &made);

	if (ret)
		return ret;
	lock_acquire(&target->lock, &role);
	rights = target->peers ? &target->peers->rights : NULL; /* until the target is closed */
	lock_release(&target->lock, &role);
	if (rights)
		ret = rights_register(rights, &made, &mr);
	if (ret) {
		(void)!target_ops.unregister_region(tg, made.id);
		return ret;
	}
	lock_acquire(&target->lock, &role);
	if (rights)
		rights_add(rights, made.id, mr);
	lock_release(&target->lock, &role);
	*spec = made;
	return 0;
}

/*
 * Drops the region from the pool first, so that nobody opens it any more, then ends its
 * registration, unless an opening still needs it.
 */
static int verbs_unregister(struct transport_target *tg, uint32_t region)
{
	struct verbs_target *target = verbs_target_of(tg);
	struct verbs_device *device = NULL;
	struct ibv_mr *mr = NULL;
	int ret = target_ops.unregister_region(tg, region);

	if (ret)
		return ret;
	lock_acquire(&target->lock, &role);
	if (target->peers) {
		device = target->peers->device;
		mr = rights_remove(&target->peers->rights, region);
	}
	lock_release(&target->lock, &role);
	if (mr)
		(void)verbs_device_deregister(device, mr);
	return 0;
}

/* Revokes a client's grants of a region, then closes its openings: so none can be opened again. */
static int verbs_revoke(struct transport_target *tg, uint64_t client_id, uint32_t region)
{
	struct verbs_target *target = verbs_target_of(tg);
	int ret = target_ops.revoke(tg, client_id, region);

	if (ret)
		return ret;
	lock_acquire(&target->lock, &role);
	if (target->peers)
		peers_revoke(target->peers, client_id, region);
	lock_release(&target->lock, &role);
	return 0;
}

/* -------- fence -------- */

static void target_serve(struct verbs_target *target) LOCK_REQUIRES(role)
{
	uint64_t expirations;

	if (!target->peers)
		return;
	(void)!read(target->timer, &expirations, sizeof(expirations));
	listener_serve(target->listener);
	peers_serve(target->peers);
}

/*
 * FENCE_ASK: a client is alive while it has a queue pair; otherwise base decides. FENCE_CUT and
 * FENCE_KILL destroy its queue pairs, and base decides.
 */
static int verbs_fence(struct transport_target *tg, uint64_t client_id, enum fence_how how,
		       enum fence_result *result_out)
{
	struct verbs_target *target = verbs_target_of(tg);
	enum fence_result result = FENCE_ALIVE;
	bool known;
	int ret = 0;

	if (fork_happened(target->base.forks))
		return fork_error("target");
	/* waits for a process to die: without our lock, and before a caller cuts itself off */
	if (how == FENCE_KILL)
		ret = target_ops.fence(tg, client_id, how, &result);
	if (ret == -EDEADLK)
		return ret;
	lock_acquire(&target->lock, &role);
	if (how == FENCE_ASK) {
		/* an event that says that it has hung up or died may be pending */
		target_serve(target);
		if (!target->peers || !peers_have(target->peers, client_id))
			ret = target_ops.fence(tg, client_id, how, &result);
	} else if (target->peers) {
		known = target_knows(&target->base, client_id);
		target->fences += peers_fence(target->peers, client_id) && !known;
	}
	lock_release(&target->lock, &role);
	if (how == FENCE_CUT)
		ret = target_ops.fence(tg, client_id, how, &result);
	if (ret == 0)
		*result_out = result;
	return ret;
}

/* -------- listening -------- */

static int target_watch(struct verbs_target *target) LOCK_REQUIRES(role)
{
	const struct timespec pause = { .tv_sec = PEERS_LOOK_NS / CLOCK_NS_PER_S };
	const struct itimerspec every = { pause, pause };
	int fds[] = {
		-1, /* the timer */
		target->listener->channel->fd,
		target->peers->channel->fd,
		target_ops.poll_fd(&target->base.tg),
	};

	target->timer = fds[0] = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (target->timer < 0 || timerfd_settime(target->timer, 0, &every, NULL))
		return error_set(-errno, "timer of a target: %s", strerror(errno));
	target->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (target->epoll < 0)
		return error_set(-errno, "epoll_create1: %s", strerror(errno));
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		struct epoll_event event = { .events = EPOLLIN };

		if (fds[i] >= 0 && epoll_ctl(target->epoll, EPOLL_CTL_ADD, fds[i], &event))
			return error_set(-errno, "epoll_ctl: %s", strerror(errno));
	}
	return 0;
}

static void end_listening(struct verbs_target *target, bool forked) LOCK_REQUIRES(role)
{
	peers_close(target->peers, forked);
	target->peers = NULL;
	listener_close(target->listener, forked);
	target->listener = NULL;
	if (target->epoll >= 0)
		close(target->epoll);
	if (target->timer >= 0)
		close(target->timer);
	target->epoll = target->timer = -1;
}

/*
 * Listens over RDMA, then on the unix socket if the address has a path: that is last, because it
 * cannot be closed again. -EALREADY: it listens already.
 */
static int verbs_listen(struct transport_target *tg, const char *address)
{
	struct verbs_target *target = verbs_target_of(tg);
	char uri[TRANSPORT_URI_BYTES] = "verbs:";
	struct node_address where = { 0 };
	int ret;

	if (fork_happened(target->base.forks))
		return fork_error("target");
	if (!address)
		return 0;
	ret = node_address_parse(address, &where);
	if (ret)
		return ret;
	lock_acquire(&target->lock, &role);
	if (target->peers) {
		lock_release(&target->lock, &role);
		return error_set(-EALREADY,
				 "listen on %s: the target listens on another address already",
				 address);
	}
	ret = listener_open(target->calls, &where, &target->listener);
	if (ret == 0)
		ret = node_address_format(&target->listener->address, uri + strlen(uri),
					  sizeof(uri) - strlen(uri));
	if (ret == 0)
		ret = peers_open(target->calls, target->listener->context, &target->base,
				 target->buffers, &target->peers);
	if (ret == 0)
		ret = listener_start(target->listener, target->peers);
	if (ret == 0 && where.path[0])
		ret = target_ops.listen(tg, where.path);
	if (ret == 0)
		ret = target_watch(target);
	if (ret)
		end_listening(target, false);
	else
		memcpy(target->base.uri, uri, sizeof(uri)); /* in the place of the socket's */
	lock_release(&target->lock, &role);
	return ret;
}

static int verbs_poll_fd(struct transport_target *tg)
{
	struct verbs_target *target = verbs_target_of(tg);
	int fd;

	if (fork_happened(target->base.forks))
		return -1;
	lock_acquire(&target->lock, &role);
	fd = target->epoll;
	lock_release(&target->lock, &role);
	return fd;
}

static int verbs_progress(struct transport_target *tg, uint64_t timeout_ns)
{
	struct verbs_target *target = verbs_target_of(tg);
	int ret = target_ops.progress(tg, timeout_ns);

	if (ret)
		return ret;
	lock_acquire(&target->lock, &role);
	target_serve(target);
	lock_release(&target->lock, &role);
	return 0;
}

/* -------- the rest -------- */

static bool verbs_alone(struct transport_target *tg, uint32_t region)
{
	struct verbs_target *target = verbs_target_of(tg);
	bool connected;

	if (fork_happened(target->base.forks))
		return false;
	lock_acquire(&target->lock, &role);
	connected = target->peers && target->peers->first;
	lock_release(&target->lock, &role);
	return !connected && target_ops.alone(tg, region);
}

/*
 * The base's figures, but attaches are the ATTACH requests over RDMA only, without mappings over
 * the socket. Gauges only once it listens.
 */
static void verbs_stats(struct transport_target *tg, struct target_stats *out)
{
	struct verbs_target *target = verbs_target_of(tg);
	const struct peers *peers;

	target_ops.stats(tg, out);
	if (fork_happened(target->base.forks))
		return;
	lock_acquire(&target->lock, &role);
	out->attaches = 0;
	out->fences += target->fences;
	peers = target->peers;
	if (peers) {
		out->clients += peers_count_clients(peers);
		out->attaches = peers->attaches;
		out->n_gauges = 3;
		out->gauges[0] = (struct target_gauge){ "qps", peers->n_qps };
		out->gauges[1] = (struct target_gauge){ "mrs", peers->rights.n_mrs };
		out->gauges[2] = (struct target_gauge){ "windows", peers->rights.n_windows };
	}
	lock_release(&target->lock, &role);
}

/*
 * Ends listening and closes the base. A lock that was held at the fork stays held in the child:
 * there nothing is touched then.
 */
static LOCK_UNCHECKED void verbs_close(struct transport_target *tg)
{
	struct verbs_target *target = verbs_target_of(tg);
	bool forked = fork_happened(target->base.forks);

	if (forked && !lock_try_acquire(&target->lock, &role))
		return;
	if (!forked)
		lock_acquire(&target->lock, &role);
	end_listening(target, forked);
	lock_release(&target->lock, &role);
	lock_fini(&target->lock);
	target_ops.close(tg);
}

LOCK_UNCHECKED int verbs_target_open(const struct target_opts *opts,
				     struct transport_target **tg_out)
{
	const struct verbs_calls *calls;
	struct verbs_target *target;
	struct target *base = NULL;
	int ret = verbs_calls_load(&calls);

	if (ret == 0)
		ret = target_new(sizeof(*target), opts, &base);
	if (ret)
		return ret;
	target = verbs_target_of(&base->tg);
	target->ops = target_ops;
	target->ops.name = "verbs";
	target->ops.listen = verbs_listen;
	target->ops.register_region = verbs_register;
	target->ops.unregister_region = verbs_unregister;
	target->ops.revoke = verbs_revoke;
	target->ops.fence = verbs_fence;
	target->ops.alone = verbs_alone;
	target->ops.progress = verbs_progress;
	target->ops.poll_fd = verbs_poll_fd;
	target->ops.stats = verbs_stats;
	target->ops.close = verbs_close;
	base->tg.ops = &target->ops;
	*base->uri = '\0'; /* until it listens; it is not opened by embed: */
	target->calls = calls;
	target->buffers = opts->buffers ? opts->buffers : &chunk_hooks;
	target->epoll = target->timer = -1;
	lock_init(&target->lock, &role);
	*tg_out = &base->tg;
	return 0;
}

int verbs_target_check(void)
{
	const struct verbs_calls *calls;
	glob_t found = { .gl_pathc = 0 };
	int ret = verbs_calls_load(&calls);

	if (ret)
		return ret;
	if (glob("/dev/infiniband/uverbs*", 0, NULL, &found))
		return error_set(-ENODEV, "no RDMA device here");
	ret = -EACCES;
	for (size_t i = 0; ret && i < found.gl_pathc; i++)
		ret = access(found.gl_pathv[i], R_OK | W_OK) ? -EACCES : 0;
	if (ret)
		ret = error_set(ret, "%s: %s", found.gl_pathv[0], strerror(errno));
	globfree(&found);
	return ret;
}
