/*
 * A file that is cut short under a mapping: with the guard the process goes on.
 */
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem/guard.h"

#define PAGE ((size_t)4096)
#define BYTES (16 * PAGE)

struct cut {
	char dir[TEMP_DIR_BYTES];
	char path[80];
	int fd;
	volatile uint8_t *base;
	_Atomic bool broken;
};

static int setup(void **state)
{
	static struct cut cut;

	memset(&cut, 0, sizeof(cut));
	temp_dir_make(cut.dir);
	(void)snprintf(cut.path, sizeof(cut.path), "%s/file", cut.dir);
	cut.fd = open(cut.path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(cut.fd >= 0);
	assert_int_equal(ftruncate(cut.fd, (off_t)BYTES), 0);
	cut.base = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, cut.fd, 0);
	assert_true(cut.base != MAP_FAILED);
	memset((void *)cut.base, 7, BYTES);
	*state = &cut;
	return 0;
}

static int teardown(void **state)
{
	struct cut *cut = *state;

	munmap((void *)cut->base, BYTES);
	close(cut->fd);
	unlink(cut->path);
	rmdir(cut->dir);
	return 0;
}

/* Runs fn in a child and returns its wait status. Only the child installs the guard. */
static int in_child(struct cut *cut, int (*fn)(struct cut *cut))
{
	const struct rlimit no_core = { 0, 0 };
	int status = 0;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		(void)setrlimit(RLIMIT_CORE, &no_core);
		(void)signal(SIGBUS, SIG_DFL); /* cmocka's, and that of a sanitizer */
		_exit(fn(cut));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static int touch_all(struct cut *cut)
{
	if (guard_install() || guard_add((void *)cut->base, BYTES, &cut->broken))
		return 1;
	if (ftruncate(cut->fd, (off_t)(4 * PAGE)))
		return 2;
	if (cut->base[4 * PAGE - 1] != 7 || cut->broken)
		return 3; /* existing bytes are unchanged */
	cut->base[10 * PAGE + 5] = 1;
	if (!cut->broken)
		return 4;
	for (size_t at = BYTES; at-- > 4 * PAGE;)
		if (cut->base[at] != (at == 10 * PAGE + 5))
			return 5;
	return cut->base[0] == 7 ? 0 : 6;
}

#define CASE(fn) TEST_WITH(fn, setup, teardown)

CASE(touch__of_a_page_that_was_cut_off_is_survived)
{
	assert_int_equal(in_child(*state, touch_all), 0);
}

static int touch_removed(struct cut *cut)
{
	if (guard_install() || guard_add((void *)cut->base, BYTES, &cut->broken))
		return 1;
	guard_remove((void *)cut->base);
	if (ftruncate(cut->fd, 0))
		return 2;
	cut->base[0] = 1;
	return 0;
}

CASE(touch__of_what_is_no_range_kills)
{
	int status = in_child(*state, touch_removed);

	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGBUS);
}

static int touch_unguarded(struct cut *cut)
{
	if (guard_add((void *)cut->base, BYTES, &cut->broken) || ftruncate(cut->fd, 0))
		return 1;
	cut->base[0] = 1;
	return 0;
}

CASE(touch__without_the_guard_kills)
{
	int status = in_child(*state, touch_unguarded);

	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGBUS);
}

static int be_sent_one(struct cut *cut)
{
	if (guard_install() || guard_add((void *)cut->base, BYTES, &cut->broken))
		return 1;
	(void)raise(SIGBUS);
	return 0;
}

CASE(signal__that_somebody_sends_kills)
{
	int status = in_child(*state, be_sent_one);

	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGBUS);
}

/* More than one chunk of ranges, in any order of leaving. */
static int touch_many(struct cut *cut)
{
	static _Atomic bool broken[1000];
	static uint8_t *bases[1000];

	if (guard_install())
		return 1;
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 1000; i++) {
			broken[i] = false;
			bases[i] = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, cut->fd,
					(off_t)(15 * PAGE));
			if (bases[i] == MAP_FAILED || guard_add(bases[i], PAGE, &broken[i]))
				return 2;
		}
		if (ftruncate(cut->fd, (off_t)PAGE))
			return 3;
		for (int i = 0; i < 1000; i += 3)
			*(volatile uint8_t *)bases[i] = 1;
		for (int i = 0; i < 1000; i++) {
			if (broken[i] != (i % 3 == 0))
				return 4;
			guard_remove(bases[i]);
			munmap(bases[i], PAGE);
		}
		if (ftruncate(cut->fd, (off_t)BYTES))
			return 5;
	}
	return 0;
}

CASE(ranges__by_the_thousand)
{
	assert_int_equal(in_child(*state, touch_many), 0);
}

int main(void)
{
	if (test_skips_valgrind("its registers are not exact where a signal comes"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
