/*
 * A thread that keeps `depth` batches sampled ahead. It never touches a Python object: it polls the
 * library without waiting in it, so that updates get their turn of the handle's lock.
 */
#include "python/src/sampler.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#define POLL_FIRST_NS 20000
#define POLL_MOST_NS 1000000

struct prefetch {
	struct sampler *sampler; /* outlives the thread */
	pthread_t thread;
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t filled, taken;
	bool stop;   /* written under the interpreter lock, too: read under either */
	bool joined; /* guarded by the interpreter lock */
	int code;    /* of the last try; 0 = a batch came */
	bool failed; /* the thread ended with code */
	uint32_t first, count;
	struct slot *ring[SAMPLER_MOST_AHEAD];
};

/* Waits on a condition for ns at most. The caller holds p->lock. */
static void wait_some(struct prefetch *p, pthread_cond_t *condition, int64_t ns)
{
	struct timespec until = time_after(CLOCK_MONOTONIC, ns);

	pthread_cond_timedwait(condition, &p->lock, &until);
}

/* -------- the thread -------- */

static void *prefetch_run(void *context)
{
	struct prefetch *p = context;
	struct sampler *s = p->sampler;
	int64_t poll_ns = POLL_FIRST_NS;

	pthread_mutex_lock(&p->lock);
	while (!p->stop && !p->failed) { /* failed: no later try can succeed */
		struct slot *slot = NULL;
		int code = -EBADF;

		if (p->count == s->depth) {
			wait_some(p, &p->taken, (int64_t)50 * POLL_MOST_NS);
			continue;
		}
		pthread_mutex_unlock(&p->lock);
		pthread_mutex_lock(&s->h.lock);
		if (s->h.open)
			code = sampler_try(s, s->batch_size, &s->opts, 0, &slot);
		pthread_mutex_unlock(&s->h.lock);
		pthread_mutex_lock(&p->lock);
		if (code == 0)
			p->ring[(p->first + p->count++) % SAMPLER_MOST_AHEAD] = slot;
		p->code = code;
		p->failed = code && code != -EBUSY && !wait_is_over_time(code);
		if (code == 0 || p->failed || code == -EBUSY)
			pthread_cond_signal(&p->filled);
		poll_ns = code == 0 ? POLL_FIRST_NS : 2 * poll_ns;
		if (poll_ns > POLL_MOST_NS)
			poll_ns = POLL_MOST_NS;
		if (code && !p->failed && !p->stop)
			wait_some(p, &p->taken, poll_ns);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* -------- the other side -------- */

struct prefetch *prefetch_open(struct sampler *s)
{
	struct prefetch *p = calloc(1, sizeof(*p));
	pthread_condattr_t monotonic;
	sigset_t all, before;
	int ret;

	if (!p) {
		PyErr_NoMemory();
		return NULL;
	}
	p->sampler = s;
	pthread_mutex_init(&p->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&p->filled, &monotonic);
	pthread_cond_init(&p->taken, &monotonic);
	pthread_condattr_destroy(&monotonic);
	sigfillset(&all); /* signals are for the threads that run Python */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = pthread_create(&p->thread, NULL, prefetch_run, p);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (ret == 0)
		return p;
	free(p);
	PyErr_SetString(PyExc_RuntimeError,
			"sampler: cannot start the prefetch thread: open it with prefetch=0");
	return NULL;
}

/*
 * Calls rlv_sampler_watch, and sets wait->stalled to its result: -ETIMEDOUT if there was no
 * progress for the store's stall time. at_once: also if it looked a moment ago. 0, or -1 with an
 * exception.
 */
static int prefetch_look(struct sampler *s, struct wait *wait, bool at_once)
{
	if (handle_enter(&s->h))
		return -1;
	if (at_once)
		wait->watch.looked_ns = 0;
	wait->stalled = rlv_sampler_watch(s->h.sampler, s->batch_size, &wait->watch);
	handle_leave(&s->h);
	return 0;
}

int prefetch_take(struct prefetch *p, struct wait *wait, struct slot **slot_out)
{
	int again;

	do {
		PyThreadState *thread = PyEval_SaveThread();
		int ret = -ETIMEDOUT;

		pthread_mutex_lock(&p->lock);
		if (p->count == 0 && !p->stop && !p->failed)
			wait_some(p, &p->filled, wait->left_ns);
		if (p->count) {
			*slot_out = p->ring[p->first];
			p->first = (p->first + 1) % SAMPLER_MOST_AHEAD;
			p->count--;
			pthread_cond_signal(&p->taken);
			ret = 0;
		} else if (p->failed || (p->code == -EBUSY && !sampler_has_returned(p->sampler))) {
			ret = 1;
		}
		pthread_mutex_unlock(&p->lock);
		PyEval_RestoreThread(thread);
		if (p->stop) { /* then the slot is freed, too */
			error_format(-EBADF, "this sampler is closed: open another one");
			return -1;
		}
		if (ret != -ETIMEDOUT)
			return ret;
		if (prefetch_look(p->sampler, wait, false))
			return -1;
		again = wait_again(wait, -ETIMEDOUT);
	} while (again > 0);
	if (again == 0 && wait->stalls)
		error_raise(-ETIMEDOUT); /* the look has said why */
	else if (again == 0 && prefetch_look(p->sampler, wait, true) == 0)
		error_format(-ETIMEDOUT, "%s", wait->watch.text);
	return -1;
}

void prefetch_stop(struct prefetch *p)
{
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_broadcast(&p->filled);
	pthread_cond_broadcast(&p->taken);
	pthread_mutex_unlock(&p->lock);
}

void prefetch_join(struct prefetch *p)
{
	PyThreadState *thread;

	if (p->joined)
		return;
	prefetch_stop(p);
	p->joined = true;
	thread = PyEval_SaveThread();
	pthread_join(p->thread, NULL);
	PyEval_RestoreThread(thread);
}
