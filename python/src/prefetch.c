/*
 * A thread that keeps `depth` batches sampled ahead. It never touches a Python object: it polls the
 * library without waiting in it, so that updates get their turn of the handle's lock.
 */
#include "python/src/sampler.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NS_PER_S INT64_C(1000000000)
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
	char text[512];
	uint32_t first, count;
	struct slot *ring[SAMPLER_MOST_AHEAD];
};

/* Waits on a condition for ns at most. The lock is held. */
static void wait_some(struct prefetch *p, pthread_cond_t *condition, int64_t ns)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	ns += until.tv_nsec;
	until.tv_sec += ns / NS_PER_S;
	until.tv_nsec = ns % NS_PER_S;
	pthread_cond_timedwait(condition, &p->lock, &until);
}

/* -------- the thread -------- */

static int try_sample(struct sampler *s, struct slot **slot_out)
{
	int ret = -EBADF;

	pthread_mutex_lock(&s->h.lock);
	if (s->h.open)
		ret = sampler_try(s, &(struct draw){ .n = s->batch_size, .beta = s->beta },
				  slot_out);
	pthread_mutex_unlock(&s->h.lock);
	return ret;
}

/* Keeps the result of a try: a batch or an error. The thread ends if no later try can succeed. */
static void settle(struct prefetch *p, int code, struct slot *slot)
{
	bool is_passing = code == -ENODATA || code == -ETIMEDOUT || code == -EAGAIN ||
			  code == -EBUSY;

	if (code == 0)
		p->ring[(p->first + p->count++) % SAMPLER_MOST_AHEAD] = slot;
	else
		snprintf(p->text, sizeof(p->text), "%s", rlv_last_error());
	p->code = code;
	p->failed = code && !is_passing;
	if (code == 0 || p->failed || code == -EBUSY)
		pthread_cond_signal(&p->filled);
}

static void *run(void *context)
{
	struct prefetch *p = context;
	int64_t poll_ns = POLL_FIRST_NS;

	pthread_mutex_lock(&p->lock);
	while (!p->stop && !p->failed) {
		struct slot *slot = NULL;
		int code;

		if (p->count == p->sampler->depth) {
			wait_some(p, &p->taken, NS_PER_S / 20);
			continue;
		}
		pthread_mutex_unlock(&p->lock);
		code = try_sample(p->sampler, &slot);
		pthread_mutex_lock(&p->lock);
		settle(p, code, slot);
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
	ret = pthread_create(&p->thread, NULL, run, p);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (ret == 0)
		return p;
	free(p);
	PyErr_SetString(PyExc_RuntimeError, "sampler: cannot start the prefetch thread");
	return NULL;
}

enum taken { TAKEN, EMPTY, STOPPED, FAILED, HELD };

/* Takes a batch, or waits for one for at most ns. */
static enum taken take(struct prefetch *p, int64_t ns, struct slot **slot_out)
{
	enum taken what = EMPTY;

	pthread_mutex_lock(&p->lock);
	if (p->count == 0 && !p->stop && !p->failed)
		wait_some(p, &p->filled, ns);
	if (p->stop) {
		what = STOPPED;
	} else if (p->count) {
		*slot_out = p->ring[p->first];
		p->first = (p->first + 1) % SAMPLER_MOST_AHEAD;
		p->count--;
		pthread_cond_signal(&p->taken);
		what = TAKEN;
	} else if (p->failed) {
		what = FAILED;
	} else if (p->code == -EBUSY && !sampler_has_returned(p->sampler)) {
		what = HELD;
	}
	pthread_mutex_unlock(&p->lock);
	return what;
}

/* Asks the library if the wait has stalled; at_once: without its pause between looks. 0, or -1. */
static int look(struct sampler *s, struct wait *wait, bool at_once)
{
	if (handle_enter(&s->h))
		return -1;
	if (at_once)
		wait->watch.looked_ns = 0;
	Py_BEGIN_ALLOW_THREADS wait->stalled =
		rlv_sampler_watch(s->sampler, s->batch_size, &wait->watch);
	Py_END_ALLOW_THREADS handle_leave(&s->h);
	return 0;
}

/* The exception for what take gave. */
static int take_failed(struct prefetch *p, enum taken what)
{
	char text[sizeof(p->text)];
	int code;

	pthread_mutex_lock(&p->lock);
	code = p->code;
	memcpy(text, p->text, sizeof(text));
	pthread_mutex_unlock(&p->lock);
	if (what == STOPPED)
		error_format(-EBADF, "this sampler is closed");
	else
		error_format(code, "%s", text);
	return -1;
}

int prefetch_take(struct prefetch *p, struct wait *wait, struct slot **slot_out)
{
	for (;;) {
		enum taken what;
		int again;

		Py_BEGIN_ALLOW_THREADS what = take(p, wait->left_ns, slot_out);
		Py_END_ALLOW_THREADS if (p->stop) what = STOPPED; /* the slot is freed, too */
		if (what == TAKEN)
			return 0;
		if (what != EMPTY)
			return take_failed(p, what);
		if (look(p->sampler, wait, false))
			return -1;
		again = wait_again(wait, -ETIMEDOUT);
		if (again > 0)
			continue;
		if (again == 0 && wait->stalls)
			error_raise(-ETIMEDOUT); /* look has said why */
		else if (again == 0 && look(p->sampler, wait, true) == 0)
			error_format(-ETIMEDOUT, "%s", wait->watch.text);
		return -1;
	}
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
	if (p->joined)
		return;
	p->joined = true;
	Py_BEGIN_ALLOW_THREADS pthread_join(p->thread, NULL);
	Py_END_ALLOW_THREADS
}

void prefetch_free(struct prefetch *p)
{
	free(p);
}
