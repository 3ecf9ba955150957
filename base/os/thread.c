#include "base/os/thread.h"

#include <signal.h>
#include <string.h>

int thread_start(pthread_t *thread_out, void *(*run)(void *arg), void *arg)
{
	sigset_t all, old;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = pthread_create(thread_out, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return ret ? error_set(-ret, "start a thread: %s", strerror(ret)) : 0;
}
