#include "base/os/futex.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "tests/support/test.h"

/* Long enough to notice a wake that never comes, never waited for when all is well. */
#define PATIENCE_NS (20 * CLOCK_NS_PER_S)

TEST(futex_wait__other_value_is_eagain)
{
	_Atomic uint32_t word = 7;

	assert_int_equal(futex_wait(&word, 8, DEADLINE_NEVER), -EAGAIN);
}

TEST(futex_wait__past_deadline_is_etimedout)
{
	_Atomic uint32_t word = 7;

	assert_int_equal(futex_wait(&word, 7, 0), -ETIMEDOUT);
	assert_int_equal(futex_wait(&word, 7, clock_now_ns(clock_monotonic())), -ETIMEDOUT);
}

TEST(futex_wait__sleeps_until_the_deadline)
{
	_Atomic uint32_t word = 7;
	uint64_t deadline_ns = deadline_after(clock_monotonic(), 3 * CLOCK_NS_PER_MS);
	int ret;

	do {
		ret = futex_wait(&word, 7, deadline_ns);
	} while (ret == 0);
	assert_int_equal(ret, -ETIMEDOUT);
	assert_true(deadline_expired(clock_monotonic(), deadline_ns));
}

TEST(futex_wait__bad_address_is_an_error)
{
	_Alignas(8) char bytes[8] = { 0 };

	assert_int_equal(futex_wait((_Atomic uint32_t *)(void *)(bytes + 1), 0, 0), -EINVAL);
	assert_int_equal(futex_wake((_Atomic uint32_t *)(void *)(bytes + 1), 1), 0);
}

TEST(futex_wake__nobody_waits_is_zero)
{
	_Atomic uint32_t word = 7;

	errno = 1234;
	assert_int_equal(futex_wake(&word, 100), 0);
	assert_int_equal(errno, 1234);
}

/* Two threads alternate on one word, 0 and 1: each waits for the value that the other stores. */
static int play(_Atomic uint32_t *word, uint32_t mine, int rounds)
{
	uint64_t deadline_ns = deadline_after(clock_monotonic(), PATIENCE_NS);

	for (int i = 0; i < rounds; i++) {
		while (atomic_load(word) != mine) {
			int ret = futex_wait(word, 1 - mine, deadline_ns);

			if (ret != 0 && ret != -EAGAIN)
				return ret;
		}
		atomic_store(word, 1 - mine);
		futex_wake(word, 1);
	}
	return 0;
}

enum { ROUNDS = 200 };

static void *play_one(void *arg)
{
	return (void *)(intptr_t)play(arg, 1, ROUNDS);
}

TEST(futex_wake__wakes_another_thread)
{
	static _Atomic uint32_t word;
	pthread_t thread;
	void *other;

	atomic_store(&word, 0);
	assert_int_equal(pthread_create(&thread, NULL, play_one, &word), 0);
	assert_int_equal(play(&word, 0, ROUNDS), 0);
	pthread_join(thread, &other);
	assert_int_equal((intptr_t)other, 0);
}

TEST(futex_wake__wakes_another_process)
{
	_Atomic uint32_t *word =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status;
	pid_t pid;

	assert_ptr_not_equal(word, MAP_FAILED);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(play(word, 1, ROUNDS) != 0);
	assert_int_equal(play(word, 0, ROUNDS), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	munmap(word, 4096);
}

int main(void)
{
	return test_run(NULL, NULL);
}
