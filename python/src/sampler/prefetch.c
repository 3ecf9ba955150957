/*
 * A thread that keeps `depth` batches sampled ahead, while that pays. It never touches a Python object: it
 * polls the library without waiting in it, so that updates get their turn of the handle's lock. A caller
 * that finds no batch ahead draws one itself, so it never waits for this thread to get a core; the thread
 * does not draw meanwhile. A batch is in the ring before the handle's lock is free, so batches keep the order
 * in which they were drawn.
 */
#include "python/src/sampler/sampler.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#define POLL_FIRST_NS 20000
#define POLL_MOST_NS 1000000

struct prefetch {
	struct sampler *sampler; /* outlives the thread */
	pthread_t thread;
	pthread_mutex_t lock; /* of all below; behind the handle's */
	pthread_cond_t changed;
	bool stop;
	bool joined;      /* guarded by the interpreter lock */
	bool failed;      /* the thread ended with an error, which the next call meets, too */
	bool pays;        /* as the last caller said */
	unsigned drawing; /* callers that draw themselves */
	uint32_t first, count;
	struct slot *ring[SAMPLER_MOST_AHEAD];
};

/* -------- the thread -------- */

/* Sleeps until something changes, for ns at most. The caller holds p->lock. */
static void sleep_some(struct prefetch *p, int64_t ns)
{
	struct timespec until = time_after(CLOCK_MONOTONIC, ns);

	pthread_cond_timedwait(&p->changed, &p->lock, &until);
}

static bool is_idle(const struct prefetch *p)
{
	return p->count == p->sampler->depth || !p->pays || p->drawing;
}

/* Draws a batch into the ring. Returns the library's error code. The caller holds p->lock, and holds it
   again afterwards. */
static int draw_ahead(struct prefetch *p)
{
	struct sampler *s = p->sampler;
	struct slot *slot = NULL;
	int code = -EBADF;
	struct draw_how how = { .ahead = RLV_AHEAD_DRAIN };
	bool idle;

	pthread_mutex_unlock(&p->lock);
	pthread_mutex_lock(&s->h.lock);
	how.opts = s->opts;
	pthread_mutex_lock(&p->lock);
	idle = is_idle(p); /* a caller was first */
	pthread_mutex_unlock(&p->lock);
	if (idle)
		code = -EAGAIN;
	else if (s->h.open)
		code = sampler_try(s, s->batch_size, &how, 0, &slot);
	pthread_mutex_lock(&p->lock);
	if (code == 0)
		p->ring[(p->first + p->count++) % SAMPLER_MOST_AHEAD] = slot;
	pthread_mutex_unlock(&s->h.lock);
	return code;
}

static void *prefetch_run(void *context)
{
	struct prefetch *p = context;
	int64_t poll_ns = POLL_FIRST_NS;

	pthread_mutex_lock(&p->lock);
	while (!p->stop && !p->failed) { /* failed: no later try can succeed */
		int code;

		if (is_idle(p)) {
			sleep_some(p, (int64_t)50 * POLL_MOST_NS);
			continue;
		}
		code = draw_ahead(p);
		p->failed = code && code != -EBUSY && code != -EAGAIN && !wait_is_over_time(code);
		poll_ns = code == 0 ? POLL_FIRST_NS : 2 * poll_ns;
		if (poll_ns > POLL_MOST_NS)
			poll_ns = POLL_MOST_NS;
		if (code && !p->failed && !p->stop)
			sleep_some(p, poll_ns);
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
	p->pays = true;
	pthread_mutex_init(&p->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&p->changed, &monotonic);
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

struct slot *prefetch_take(struct prefetch *p)
{
	struct slot *slot = NULL;
	bool wake;

	pthread_mutex_lock(&p->lock);
	if (p->count && !p->stop) {
		slot = p->ring[p->first];
		p->first = (p->first + 1) % SAMPLER_MOST_AHEAD;
		p->count--;
	}
	wake = slot && p->pays;
	pthread_mutex_unlock(&p->lock);
	if (wake)
		pthread_cond_signal(&p->changed);
	return slot;
}

void prefetch_say(struct prefetch *p, bool pays)
{
	pthread_mutex_lock(&p->lock);
	p->pays = pays;
	pthread_mutex_unlock(&p->lock);
}

void prefetch_leave_draws(struct prefetch *p, bool leave)
{
	bool wake;

	pthread_mutex_lock(&p->lock);
	p->drawing += leave ? 1 : -1u;
	wake = !leave && p->pays;
	pthread_mutex_unlock(&p->lock);
	if (wake)
		pthread_cond_signal(&p->changed);
}

void prefetch_stop(struct prefetch *p)
{
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_signal(&p->changed);
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
