/*
 * The trees are mapped read-only but for the page that was written last. Leaves lie behind inner nodes and are changed first, in rising
 * order: the first write below the one before is not of a leaf any more.
 */
#include "tests/support/attack/mid_call.h"

#include "wire/region.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HEAD_BYTES 4096u /* the superblock stays writable */
#define TREES 8u
#define PAGE 4096u

struct tree {
	uint8_t *at;
	size_t len;
	uint8_t *last; /* page written before */
};

static struct tree trees[TREES];
static uint32_t n_trees;
static void (*on_hold)(void *ctx);
static void *hold_ctx;

/* By the C library's own function: sanitizers keep SIGSEGV to themselves. */
static int catch_writes(void (*handler)(int number, siginfo_t *info, void *context))
{
	const struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
	void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
	void *found = libc ? dlsym(libc, "sigaction") : NULL;
	int (*call)(int number, const struct sigaction *new, struct sigaction *old);

	if (!found)
		return -ENOSYS;
	memcpy(&call, &found, sizeof(call));
	return call(SIGSEGV, &action, NULL) ? -errno : 0;
}

static void release_all(void)
{
	for (uint32_t i = 0; i < n_trees; i++)
		(void)mprotect(trees[i].at, trees[i].len, PROT_READ | PROT_WRITE);
	n_trees = 0;
}

void mid_call_posts(void)
{
	void (*hold)(void *ctx) = on_hold;

	release_all();
	on_hold = NULL;
	if (hold)
		hold(hold_ctx);
}

static void on_write(int number, siginfo_t *info, void *context)
{
	uint8_t *page = (uint8_t *)((uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1));

	(void)number;
	(void)context;
	for (uint32_t i = 0; i < n_trees; i++) {
		struct tree *tree = &trees[i];

		if (page < tree->at || page >= tree->at + tree->len)
			continue;
		if (tree->last && page < tree->last) {
			mid_call_posts();
			return;
		}
		if (tree->last)
			(void)mprotect(tree->last, PAGE, PROT_READ);
		tree->last = page;
		(void)mprotect(page, PAGE, PROT_READ | PROT_WRITE);
		return;
	}
	abort(); /* a fault of another kind */
}

static bool is_tree(const void *at, size_t len)
{
	const struct region_superblock *sb = at;

	return len > HEAD_BYTES && sb->magic == REGION_MAGIC && sb->role == REGION_TREE;
}

int mid_call_arm(void (*hold)(void *ctx), void *ctx)
{
	int ret = catch_writes(on_write);
	FILE *maps = fopen("/proc/self/maps", "r");
	uintptr_t begin, end;
	char line[512];

	if (ret || !maps) {
		if (maps)
			(void)fclose(maps);
		return ret ? ret : -EIO;
	}
	on_hold = hold;
	hold_ctx = ctx;
	while (n_trees < TREES && fgets(line, sizeof(line), maps)) {
		if (!strstr(line, "rw-s") || sscanf(line, "%lx-%lx", &begin, &end) != 2 ||
		    !is_tree((const void *)begin, end - begin))
			continue;
		trees[n_trees] = (struct tree){ .at = (uint8_t *)begin + HEAD_BYTES,
						.len = end - begin - HEAD_BYTES };
		if (mprotect(trees[n_trees].at, trees[n_trees].len, PROT_READ))
			break;
		n_trees++;
	}
	(void)fclose(maps);
	return 0;
}
