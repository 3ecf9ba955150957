#include "tests/support/ticks.h"

#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/support/test.h"

#define INTERRUPTED 5

static volatile sig_atomic_t ticks, told;

static void on_tick(int number)
{
	(void)number;
	ticks = ticks + 1;
	if (ticks == INTERRUPTED)
		(void)!write(told, "", 1);
}

void ticks_begin(int fd)
{
	const struct itimerval each = { { 0, 1000 }, { 0, 1000 } };
	struct sigaction action = { .sa_handler = on_tick };

	told = fd;
	ticks = 0;
	assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &each, NULL), 0);
}

void ticks_end(void)
{
	const struct itimerval none = { { 0, 0 }, { 0, 0 } };

	assert_int_equal(setitimer(ITIMER_REAL, &none, NULL), 0);
	assert_true(ticks >= INTERRUPTED);
}
