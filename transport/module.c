/*
 * module.c - looks for the file, and asks it for its table, once.
 */
#include "transport/module.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transport/fork.h"

#define SIGNALS 32 /* without those of real time */

LOCK_ROLE(module_role, "modules", LOCK_RANK_LEAF);

/*
 * Opens the module: beside the file that this code is in (librelive, or a program with librelive.a
 * in it), or in the lib folder beside its folder, or where the system looks. NULL: dlopen failed.
 */
static void *open_beside(const char *file)
{
	static const char *const places[] = { "", "../" RLV_LIBDIR "/", "../lib/" };
	char self[PATH_MAX] = "", path[PATH_MAX + 64];
	struct link_map *map = NULL;
	Dl_info info;

	if (!dladdr1((const void *)&module_role, &info, (void **)&map, RTLD_DL_LINKMAP) || !map ||
	    !*map->l_name || !realpath(map->l_name, self))
		(void)!readlink("/proc/self/exe", self, sizeof(self) - 1);
	for (size_t i = 0; *self && i < sizeof(places) / sizeof(places[0]); i++) {
		int folder = (int)(strrchr(self, '/') - self) + 1;
		int n = snprintf(path, sizeof(path), "%.*s%s%s", folder, self, places[i], file);

		if (n > 0 && (size_t)n < sizeof(path) && access(path, F_OK) == 0)
			return dlopen(path, RTLD_NOW | RTLD_LOCAL);
	}
	return dlopen(file, RTLD_NOW | RTLD_LOCAL);
}

static void module_fail(struct module *module, const char *what)
{
	(void)snprintf(module->reason, sizeof(module->reason),
		       "%s: %s: install %s and keep %s beside librelive, or name it in %s",
		       module->name, what, module->install, module->file, module->env);
}

/*
 * Libraries that a module links may take signals when they are loaded, as libfabric's PSM does, whose
 * handler of SIGTERM exits: the process's own dispositions are put back.
 */
static void put_back_signals(const struct sigaction before[SIGNALS])
{
	struct sigaction now;

	for (int number = 1; number < SIGNALS; number++) {
		if (sigaction(number, NULL, &now) == 0 &&
		    now.sa_sigaction != before[number].sa_sigaction)
			(void)sigaction(number, &before[number], NULL);
	}
}

static void module_open(struct module *module) LOCK_REQUIRES(module_role)
{
	const char *named = getenv(module->env), *bad;
	void *library = named && *named ? dlopen(named, RTLD_NOW | RTLD_LOCAL)
					: open_beside(module->file);
	const void *(*fn)(void);
	const void *table;

	if (!library) {
		const char *text = dlerror();

		module_fail(module, text ? text : module->file);
		return;
	}
	/* ISO C has no conversion from an object's pointer to a function's */
	*(void **)(&fn) = dlsym(library, module->symbol);
	table = fn ? fn() : NULL;
	bad = table ? module->begin(table) : "the module is of another version";
	if (!bad && fork_watch(&module->forked))
		bad = error_last();
	if (!bad) {
		module->table = table;
		return;
	}
	module_fail(module, bad);
	(void)dlclose(library);
}

int module_load(struct module *module, const void **table_out)
{
	struct sigaction before[SIGNALS] = { 0 };
	const void *table;

	lock_acquire(&module->lock, &module_role);
	if (!module->tried) {
		for (int number = 1; number < SIGNALS; number++)
			(void)sigaction(number, NULL, &before[number]);
		module_open(module);
		put_back_signals(before);
	}
	module->tried = true;
	table = module->table;
	lock_release(&module->lock, &module_role);
	if (!table)
		return error_set(-ENOTSUP, "%s", module->reason);
	if (!module->forks && fork_happened(module->forked))
		return error_set(-ECHILD,
				 "%s: %s was used before fork() and does not work in the child: "
				 "start workers by spawn or forkserver",
				 module->name, module->library);
	*table_out = table;
	return 0;
}
