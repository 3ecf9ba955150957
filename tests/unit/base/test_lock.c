#include "base/os/lock.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/test.h"

static LOCK_ROLE(outer_role, "outer", LOCK_RANK_SERVER);
static LOCK_ROLE(inner_role, "inner", LOCK_RANK_CHANNEL);
static LOCK_ROLE(count_role, "count", LOCK_RANK_LEAF);

static struct lock outer = LOCK_INIT(&outer_role);
static struct lock inner = LOCK_INIT(&inner_role);
static struct lock count_lock = LOCK_INIT(&count_role);
static int count LOCK_GUARDED_BY(count_role);

enum { THREADS = 4, EACH = 20000 };

static void *count_up(void *arg)
{
	(void)arg;
	for (int i = 0; i < EACH; i++) {
		lock_acquire(&count_lock, &count_role);
		count++;
		lock_release(&count_lock, &count_role);
	}
	return NULL;
}

TEST(lock_acquire__excludes_other_threads)
{
	pthread_t threads[THREADS];
	int total;

	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, count_up, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	lock_acquire(&count_lock, &count_role);
	total = count;
	lock_release(&count_lock, &count_role);
	assert_int_equal(total, THREADS * EACH);
}

static void *try_elsewhere(void *arg)
{
	bool *got = arg;

	*got = false;
	if (lock_try_acquire(&inner, &inner_role)) {
		*got = true;
		lock_release(&inner, &inner_role);
	}
	return NULL;
}

TEST(lock_try_acquire__held_elsewhere_is_false)
{
	pthread_t thread;
	bool got;

	lock_acquire(&inner, &inner_role);
	assert_int_equal(pthread_create(&thread, NULL, try_elsewhere, &got), 0);
	pthread_join(thread, NULL);
	lock_release(&inner, &inner_role);
	assert_false(got);
	assert_int_equal(pthread_create(&thread, NULL, try_elsewhere, &got), 0);
	pthread_join(thread, NULL);
	assert_true(got);
}

TEST(lock_fini__may_be_initialised_again)
{
	struct lock lock;

	lock_init(&lock, &inner_role);
	lock_acquire(&lock, &inner_role);
	lock_release(&lock, &inner_role);
	lock_fini(&lock);
	lock_init(&lock, &outer_role);
	lock_acquire(&lock, &outer_role);
	lock_release(&lock, &outer_role);
	lock_fini(&lock);
}

/* Ranks and roles are checked in debug builds. */
#ifdef NDEBUG
enum { CHECKED = 0 };
#else
enum { CHECKED = 1 };
#endif

TEST(lock_rank_allows__only_rising_rank)
{
	bool below, same, above;

	if (!CHECKED)
		skip();
	assert_true(lock_rank_allows(&outer_role));
	lock_acquire(&inner, &inner_role);
	below = lock_rank_allows(&outer_role);
	same = lock_rank_allows(&inner_role);
	above = lock_rank_allows(&count_role);
	lock_release(&inner, &inner_role);
	assert_false(below);
	assert_false(same);
	assert_true(above);
	assert_true(lock_rank_allows(&outer_role));
}

TEST(lock_release__in_any_order)
{
	bool above, below;

	if (!CHECKED)
		skip();
	lock_acquire(&outer, &outer_role);
	lock_acquire(&inner, &inner_role);
	lock_release(&outer, &outer_role);
	below = lock_rank_allows(&inner_role);
	above = lock_rank_allows(&count_role);
	lock_release(&inner, &inner_role);
	assert_false(below);
	assert_true(above);
	assert_true(lock_rank_allows(&outer_role));
}

/* How a child that ran fn ended. */
static int signal_of(void (*fn)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		close(STDERR_FILENO);
		signal(SIGABRT, SIG_DFL);
		fn();
		_exit(0);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

LOCK_UNCHECKED static void take_rising(void)
{
	lock_acquire(&outer, &outer_role);
	lock_acquire(&inner, &inner_role);
}

LOCK_UNCHECKED static void take_falling(void)
{
	lock_acquire(&inner, &inner_role);
	lock_acquire(&outer, &outer_role);
}

LOCK_UNCHECKED static void take_as_another(void)
{
	lock_acquire(&inner, &outer_role);
}

TEST(lock_acquire__against_the_rank_aborts)
{
	if (!CHECKED)
		skip();
	assert_int_equal(signal_of(take_rising), 0);
	assert_int_equal(signal_of(take_falling), SIGABRT);
}

TEST(lock_acquire__under_another_role_aborts)
{
	if (!CHECKED)
		skip();
	assert_int_equal(signal_of(take_as_another), SIGABRT);
}

int main(void)
{
	return test_run(NULL, NULL);
}
