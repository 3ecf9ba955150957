/*
 * A pool in a directory, killed at every system call of a change, or with a disk error at that
 * call: the next open finds each region complete or missing, and no leftovers.
 */
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transport/attach/target.h"
#include "transport/pool/region_name.h"
#include "transport/transport.h"
#include "wire/attach_layout.h"
#include "wire/pool_layout.h"
#include "wire/region.h"

#if defined(__x86_64__)

#define NO_PTRACE 86 /* exit status of a child that cannot be traced */
#define EXTENT POOL_EXTENT_BYTES
#define MOST_STEPS 2000

static const uint8_t store_old[16] = { 1 }, store_new[16] = { 2 };

struct pool {
	char root[TEMP_DIR_BYTES];
	char path[96];
	struct transport_target *tg;
	struct target_region old;
};

/* One change of the pool, which is open, except for the change that opens it. */
struct change {
	const char *name;
	int (*run)(struct pool *pool);
	bool opens;
	bool of_pages; /* the old region has pages, of which one is a file of its own */
	/* here, on the pool opened again; done: it returned 0, failed: an error, neither: killed */
	void (*check)(struct pool *pool, bool done, bool failed);
};

static int open_pool(struct pool *pool, bool create)
{
	struct target_opts opts = {
		.path = pool->path, .dir = true, .pool_bytes = 16 * EXTENT, .create = create
	};

	return transport_target_open("shm", &opts, &pool->tg);
}

static int setup(void **state)
{
	static struct pool pool;

	memset(&pool, 0, sizeof(pool));
	temp_dir_make(pool.root);
	(void)snprintf(pool.path, sizeof(pool.path), "%s/node", pool.root);
	*state = &pool;
	return 0;
}

static int teardown(void **state)
{
	struct pool *pool = *state;

	temp_dir_remove(pool->path);
	assert_int_equal(rmdir(pool->root), 0);
	return 0;
}

#define PAGE 3u /* the one that is a file */

static int renew_page(struct pool *pool)
{
	struct mempool *mem = ((struct target *)pool->tg)->pool;

	return mem->ops->renew(mem, mem->regions[pool->old.id], PAGE * ATTACH_PAGE_BYTES, -1);
}

/* A pool with one region full of a pattern, closed. */
static void begin(struct pool *pool, const struct change *change)
{
	temp_dir_remove(pool->path);
	if (change->opens)
		return;
	assert_int_equal(open_pool(pool, true), 0);
	assert_int_equal(pool->tg->ops->own(pool->tg, store_old, "old"), 0);
	pool->old = (struct target_region){ .kind = 1, .object = 1, .role = 2, .size = EXTENT };
	if (change->of_pages)
		pool->old.role = REGION_PAGES;
	assert_int_equal(pool->tg->ops->register_region(pool->tg, &pool->old), 0);
	memset(pool->old.base, 0x5a, EXTENT);
	if (change->of_pages) {
		assert_int_equal(renew_page(pool), 0);
		memset(pool->old.base + PAGE * ATTACH_PAGE_BYTES, 0x33, ATTACH_PAGE_BYTES);
	}
	transport_target_close(&pool->tg);
}

/* -------- the child, one system call at a time -------- */

static _Noreturn void child(struct pool *pool, const struct change *change)
{
	int ret;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		_exit(NO_PTRACE);
	ret = change->opens ? 0 : open_pool(pool, false);
	raise(SIGSTOP);
	if (ret == 0)
		ret = change->run(pool);
	raise(SIGSTOP);
	_exit(ret ? 1 : 0);
}

static int wait_for(pid_t pid)
{
	int status = 0;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void poke(pid_t pid, size_t off, long value)
{
	assert_int_equal(ptrace(PTRACE_POKEUSER, pid, (void *)off, (void *)value), 0);
}

/* Memory of the process is not the disk's, and its end cannot fail. */
static bool is_of_the_disk(pid_t pid)
{
	struct user_regs_struct regs;

	assert_int_equal(ptrace(PTRACE_GETREGS, pid, NULL, &regs), 0);
	switch (regs.orig_rax) {
	case SYS_mmap:
		return (regs.r10 & MAP_ANONYMOUS) == 0;
	case SYS_munmap:
	case SYS_mremap:
	case SYS_mprotect:
	case SYS_madvise:
	case SYS_brk:
	case SYS_exit_group:
		return false;
	default:
		return true;
	}
}

/* The call at whose entry it stands does nothing, and says code. */
static void fail_call(pid_t pid, int code)
{
	if (!is_of_the_disk(pid))
		return;
	poke(pid, offsetof(struct user_regs_struct, orig_rax), -1);
	assert_int_equal(ptrace(PTRACE_SYSCALL, pid, NULL, NULL), 0);
	(void)wait_for(pid);
	poke(pid, offsetof(struct user_regs_struct, rax), -code);
}

enum end { KILLED, DONE, FAILED, PAST_THE_END };

/* code 0: killed at stop n, which is before or after a call; else the n-th call fails with it. */
static enum end run_to(struct pool *pool, const struct change *change, int n, int code)
{
	pid_t pid = fork();
	int status, stops = 0, steps = code ? 2 * n - 1 : n;

	assert_true(pid >= 0);
	if (pid == 0)
		child(pool, change);
	status = wait_for(pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == NO_PTRACE) {
		print_message("skipped: no child can be traced here\n");
		exit(TEST_EXIT_SKIP);
	}
	assert_int_equal(ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD), 0);
	while (stops < steps) {
		assert_int_equal(ptrace(PTRACE_SYSCALL, pid, NULL, NULL), 0);
		status = wait_for(pid);
		if (!WIFSTOPPED(status) || WSTOPSIG(status) == SIGSTOP)
			break;
		stops += WSTOPSIG(status) == (SIGTRAP | 0x80);
	}
	if (stops == steps && code == 0) {
		kill(pid, SIGKILL);
		(void)wait_for(pid);
		return KILLED;
	}
	if (stops == steps)
		fail_call(pid, code);
	while (WIFSTOPPED(status)) { /* of its last SIGSTOP, too */
		assert_int_equal(ptrace(PTRACE_CONT, pid, NULL, NULL), 0);
		status = wait_for(pid);
	}
	if (!WIFEXITED(status))
		fail_msg("%s, step %d, code %d: status %#x", change->name, n, code, status);
	if (stops < steps)
		return PAST_THE_END;
	return WEXITSTATUS(status) ? FAILED : DONE;
}

/* -------- the pool afterwards -------- */

/* A region, or a page of a region that is there. */
static bool is_expected(const struct pool *pool, const char *name)
{
	struct target_region regions[4], info;
	size_t n = 4;
	uint32_t page;
	bool is = region_name_parse(name, &info, &page);

	if (strcmp(name, "pool") == 0 || (is && page == REGION_WHOLE))
		return true;
	assert_int_equal(pool->tg->ops->list_regions(pool->tg, regions, &n), 0);
	return n > 0 && is && page == PAGE && regions[0].role == REGION_PAGES &&
	       info.id == regions[0].id;
}

static void expect_no_leftovers(const struct pool *pool)
{
	DIR *dir = opendir(pool->path);
	struct dirent *entry;

	assert_non_null(dir);
	while ((entry = readdir(dir)) != NULL)
		if (entry->d_name[0] != '.' && !is_expected(pool, entry->d_name))
			fail_msg("left behind: %s", entry->d_name);
	closedir(dir);
}

/* Its regions, of which the first is the old one, as it was. */
static size_t list(struct pool *pool, struct target_region regions[4])
{
	uint64_t used = 0;
	struct target_stats stats;
	size_t n = 4;

	assert_int_equal(pool->tg->ops->list_regions(pool->tg, regions, &n), 0);
	for (size_t i = 0; i < n; i++) {
		assert_false(regions[i].broken);
		used += regions[i].size;
	}
	pool->tg->ops->stats(pool->tg, &stats);
	assert_int_equal(stats.used_bytes, used);
	return n;
}

static void expect_bytes(const struct target_region *region, uint8_t byte)
{
	for (uint64_t i = 0; i < region->size; i += 512)
		assert_int_equal(region->base[i], byte);
}

static void sweep(struct pool *pool, const struct change *change, int code)
{
	enum end end = DONE;
	int n;

	for (n = 1; n < MOST_STEPS; n++) {
		begin(pool, change);
		end = run_to(pool, change, n, code);
		if (end == PAST_THE_END)
			break;
		if (change->opens && end == FAILED) {
			struct stat st;

			assert_int_equal(lstat(pool->path, &st), -1); /* nothing was made */
			continue;
		}
		if (open_pool(pool, true))
			fail_msg("%s, step %d, code %d: %s", change->name, n, code, error_last());
		expect_no_leftovers(pool);
		change->check(pool, end == DONE, end == FAILED);
		transport_target_close(&pool->tg);
	}
	assert_int_equal(end, PAST_THE_END);
	print_message("%s: %d steps, code %d\n", change->name, n - 1, code);
	assert_true(n > 3);
}

/* -------- the changes -------- */

static void check_opened(struct pool *pool, bool done, bool failed)
{
	struct target_region regions[4];

	(void)done;
	(void)failed;
	assert_int_equal(list(pool, regions), 0);
}

static int make_region(struct pool *pool)
{
	struct target_region spec = { .kind = 1, .object = 2, .role = 1, .size = 2 * EXTENT };

	return pool->tg->ops->register_region(pool->tg, &spec);
}

static void check_made(struct pool *pool, bool done, bool failed)
{
	struct target_region regions[4];
	size_t n = list(pool, regions);

	expect_bytes(&regions[0], 0x5a);
	assert_true(n == 1 || n == 2);
	if (done)
		assert_int_equal(n, 2);
	if (failed)
		assert_int_equal(n, 1);
	if (n < 2)
		return;
	assert_int_equal(regions[1].object, 2);
	assert_int_equal(regions[1].size, 2 * EXTENT);
	expect_bytes(&regions[1], 0);
}

static int free_region(struct pool *pool)
{
	return pool->tg->ops->unregister_region(pool->tg, pool->old.id);
}

static void check_freed(struct pool *pool, bool done, bool failed)
{
	struct target_region regions[4];
	size_t n = list(pool, regions);

	(void)failed; /* its name may be gone, but not for good yet */
	assert_true(n <= 1);
	if (n == 1)
		expect_bytes(&regions[0], 0x5a);
	if (done)
		assert_int_equal(n, 0);
}

/* The page is the old one or the new one, whole; nothing else has changed. */
static void check_renewed(struct pool *pool, bool done, bool failed)
{
	struct target_region regions[4];
	uint8_t byte;

	(void)failed; /* it may have its name, but not for good yet */
	assert_int_equal(list(pool, regions), 1);
	byte = regions[0].base[PAGE * ATTACH_PAGE_BYTES];
	assert_true(byte == 0 || (byte == 0x33 && !done));
	for (uint64_t i = 0; i < EXTENT; i += 512)
		assert_int_equal(regions[0].base[i], i / ATTACH_PAGE_BYTES == PAGE ? byte : 0x5a);
}

static void check_pages_freed(struct pool *pool, bool done, bool failed)
{
	struct target_region regions[4];
	size_t n = list(pool, regions);

	(void)failed;
	assert_true(n == 0 || (n == 1 && !done));
	if (n == 0)
		return;
	for (uint64_t i = 0; i < EXTENT; i += 512)
		assert_int_equal(regions[0].base[i], i / ATTACH_PAGE_BYTES == PAGE ? 0x33 : 0x5a);
}

static int own_pool(struct pool *pool)
{
	return pool->tg->ops->own(pool->tg, store_new, "new");
}

static void check_owned(struct pool *pool, bool done, bool failed)
{
	struct target_region regions[4];
	struct pool_identity seen;
	bool is_new;

	(void)failed;
	assert_int_equal(list(pool, regions), 1);
	assert_int_equal(pool->tg->ops->identity(pool->tg, &seen), 0);
	is_new = strcmp(seen.store_name, "new") == 0;
	assert_memory_equal(seen.store_uuid, is_new ? store_new : store_old, 16);
	assert_true(is_new || !done);
	assert_string_equal(seen.store_name, is_new ? "new" : "old");
}

static int open_new(struct pool *pool)
{
	return open_pool(pool, true);
}

static const struct change changes[] = {
	{ "open", open_new, true, false, check_opened },
	{ "make", make_region, false, false, check_made },
	{ "free", free_region, false, false, check_freed },
	{ "own", own_pool, false, false, check_owned },
	{ "renew", renew_page, false, true, check_renewed },
	{ "free with pages", free_region, false, true, check_pages_freed },
};

#define CHANGES (sizeof(changes) / sizeof(changes[0]))

#define CASE(f) TEST_WITH(f, setup, teardown)

CASE(killed__at_every_call)
{
	for (size_t i = 0; i < CHANGES; i++)
		sweep(*state, &changes[i], 0);
}

CASE(failed__at_every_call)
{
	static const int codes[] = { EIO, ENOSPC };

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		for (size_t c = 0; c < CHANGES; c++)
			sweep(*state, &changes[c], codes[i]);
}

int main(void)
{
	if (test_skips_valgrind("ptrace"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}

#else

int main(void)
{
	printf("skipped: system calls are counted on x86-64 only\n");
	return TEST_EXIT_SKIP;
}

#endif
