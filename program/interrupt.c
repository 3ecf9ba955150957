#include "program/interrupt.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "base/bits.h"

static volatile sig_atomic_t caught;
static const int signals[] = { SIGINT, SIGTERM, SIGHUP };

static void on_signal(int number)
{
	if (!caught)
		caught = number;
}

static void handle_all(void (*handler)(int))
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_handler = handler;
	sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < ARRAY_LEN(signals); i++)
		sigaction(signals[i], &action, NULL);
}

void interrupt_install(void)
{
	handle_all(on_signal);
	signal(SIGPIPE, SIG_IGN);
}

void interrupt_ignore(void)
{
	handle_all(SIG_IGN);
}

int interrupt_pending(void)
{
	return caught;
}

void interrupt_sleep(int64_t ns)
{
	struct timespec wait = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };

	if (ns > 0 && !caught)
		nanosleep(&wait, NULL);
}
