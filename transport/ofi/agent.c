/*
 * agent.c - waits, serves, and makes room for others.
 */
#include "transport/ofi/agent.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/os/clock.h"

enum {
	EVENTS = 32,          /* served in one round */
	LOOK_ON_US = 50,      /* without work, before it sleeps */
	HOLD_US = 50,         /* for answers that may wait */
	AGENT_BLIND_US = 100, /* sleep of a target with ports that have no descriptor */
	BELL = UINT32_MAX,    /* an event that is of no peer */
};

LOCK_ROLE(ofi_role, "ofi target", LOCK_RANK_OBJECT);

void ofi_agent_enter(struct ofi_agent *agent)
{
	atomic_fetch_add(&agent->wanting, 1);
	lock_acquire(agent->lock, &ofi_role);
	atomic_fetch_sub(&agent->wanting, 1);
}

uint64_t ofi_agent_cpu_ms(const struct ofi_agent *agent)
{
	return agent->started ? clock_read_ns(agent->cpu) / CLOCK_NS_PER_MS : 0;
}

/* Serves n events. Those of a link that has ended meanwhile find nothing, or what is another's. */
static bool agent_serve(struct ofi_agent *agent, const struct epoll_event *events, int n)
	LOCK_REQUIRES(ofi_role)
{
	eventfd_t rings;

	for (int i = 0; i < n; i++) {
		if (events[i].data.u32 == BELL)
			(void)eventfd_read(agent->bell, &rings);
		else
			ofi_peers_serve(agent->peers, events[i].data.u32);
	}
	return ofi_peers_drive(agent->peers) || n > 0;
}

bool ofi_agent_serve(struct ofi_agent *agent)
{
	struct epoll_event events[EVENTS];

	return agent_serve(agent, events, epoll_wait(agent->ring, events, EVENTS, 0));
}

/* -------- the thread -------- */

/* Sends answers that have waited for long enough. */
static void agent_flush(struct ofi_agent *agent, uint64_t now) LOCK_REQUIRES(ofi_role)
{
	if (!agent->peers->n_holding)
		agent->held_ns = 0;
	else if (!agent->held_ns)
		agent->held_ns = now;
	else if (now - agent->held_ns > HOLD_US * (uint64_t)CLOCK_NS_PER_US) {
		ofi_peers_flush(agent->peers);
		agent->held_ns = 0;
	}
}

/* What the thread knows. */
struct agent_watch {
	struct epoll_event events[EVENTS];
	int n;
	struct patience patience;
};

/* Serves what has come, or came while the thread slept. True if there was anything. */
static bool agent_round(struct ofi_agent *agent, struct agent_watch *watch, uint64_t now)
{
	bool busy;

	if (watch->n <= 0)
		watch->n = epoll_wait(agent->ring, watch->events, EVENTS, 0);
	while (atomic_load_explicit(&agent->wanting, memory_order_relaxed))
		(void)sched_yield();
	lock_acquire(agent->lock, &ofi_role);
	busy = agent_serve(agent, watch->events, watch->n);
	watch->n = 0;
	agent_flush(agent, now);
	lock_release(agent->lock, &ofi_role);
	return busy;
}

static void agent_sleep(struct ofi_agent *agent, struct agent_watch *watch)
{
	bool blind;

	ofi_agent_enter(agent);
	ofi_peers_flush(agent->peers);
	blind = agent->peers->n_blind > 0;
	lock_release(agent->lock, &ofi_role);
	if (blind)
		(void)usleep(AGENT_BLIND_US);
	else
		watch->n = epoll_wait(agent->ring, watch->events, EVENTS, -1);
}

static void *agent_run(void *arg)
{
	struct ofi_agent *agent = arg;
	const struct clock *clock = clock_monotonic();
	uint64_t busy_ns = clock_now_ns(clock), now;
	struct agent_watch watch = { .n = 0 };

	while (!atomic_load(&agent->stop)) {
		now = clock_now_ns(clock);
		if (agent_round(agent, &watch, now))
			busy_ns = now;
		else if (now - busy_ns > LOOK_ON_US * (uint64_t)CLOCK_NS_PER_US ||
			 !patience_yield(&watch.patience, clock))
			agent_sleep(agent, &watch);
	}
	return NULL;
}

/* -------- its life -------- */

int ofi_agent_open(struct ofi_agent *agent, struct lock *lock)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u32 = BELL };

	agent->lock = lock;
	agent->ring = epoll_create1(EPOLL_CLOEXEC);
	agent->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (agent->ring < 0 || agent->bell < 0 ||
	    epoll_ctl(agent->ring, EPOLL_CTL_ADD, agent->bell, &event))
		return error_set(-errno, "descriptors of an agent: %s", strerror(errno));
	return 0;
}

int ofi_agent_start(struct ofi_agent *agent, struct ofi_peers *peers)
{
	int ret;

	agent->peers = peers;
	peers->bell = agent->bell;
	ret = pthread_create(&agent->thread, NULL, agent_run, agent);
	if (ret) {
		agent->peers = NULL;
		return error_set(-ret, "thread of an agent: %s", strerror(ret));
	}
	(void)pthread_setname_np(agent->thread, "relive-ofi");
	agent->started = pthread_getcpuclockid(agent->thread, &agent->cpu) == 0;
	return 0;
}

void ofi_agent_stop(struct ofi_agent *agent, bool forked)
{
	if (agent->peers && !forked) {
		atomic_store(&agent->stop, true);
		(void)eventfd_write(agent->bell, 1);
		(void)pthread_join(agent->thread, NULL);
	}
	agent->peers = NULL;
	agent->started = false;
	if (agent->ring >= 0)
		close(agent->ring);
	if (agent->bell >= 0)
		close(agent->bell);
	agent->ring = agent->bell = -1;
}
