/*
 * calls.c - opens the module that links rdma-core.
 */
#include "transport/verbs/calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

#include "transport/fork.h"

#define MODULE "librelive-verbs.so"

static const struct verbs_calls *_Atomic chosen; /* by verbs_calls_use */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static const struct verbs_calls *loaded; /* written once, before pthread_once returns */
static char reason[ERROR_TEXT_BYTES];    /* why it is NULL; likewise */
static uint32_t forks;                   /* fork_watch() then; likewise */

/*
 * Opens the module: beside the file that this code is in (librelive, or a program with librelive.a
 * in it), or in the lib folder beside its folder, or where the system looks. NULL: dlopen failed.
 */
static void *open_beside(void)
{
	static const char *const places[] = { "", "../" RLV_LIBDIR "/", "../lib/" };
	char self[PATH_MAX] = "", path[PATH_MAX + 64];
	struct link_map *map = NULL;
	Dl_info info;

	if (!dladdr1((void *)(uintptr_t)&once, &info, (void **)&map, RTLD_DL_LINKMAP) || !map ||
	    !*map->l_name || !realpath(map->l_name, self))
		(void)!readlink("/proc/self/exe", self, sizeof(self) - 1);
	for (size_t i = 0; *self && i < sizeof(places) / sizeof(places[0]); i++) {
		int folder = (int)(strrchr(self, '/') - self) + 1;
		int n = snprintf(path, sizeof(path), "%.*s%s" MODULE, folder, self, places[i]);

		if (n > 0 && (size_t)n < sizeof(path) && access(path, F_OK) == 0)
			return dlopen(path, RTLD_NOW | RTLD_LOCAL);
	}
	return dlopen(MODULE, RTLD_NOW | RTLD_LOCAL);
}

static void verbs_calls_fail(const char *what)
{
	(void)snprintf(reason, sizeof(reason),
		       "verbs: %s: install rdma-core (libibverbs, librdmacm) and keep " MODULE
		       " beside librelive, or name it in RLV_VERBS_MODULE",
		       what);
}

static void module_load(void)
{
	const char *named = getenv("RLV_VERBS_MODULE");
	void *module = named && *named ? dlopen(named, RTLD_NOW | RTLD_LOCAL) : open_beside();
	const struct verbs_calls *calls;
	verbs_calls_fn fn;
	int ret;

	if (!module) {
		const char *text = dlerror();

		verbs_calls_fail(text ? text : MODULE);
		return;
	}
	/* ISO C has no conversion from an object's pointer to a function's */
	*(void **)(&fn) = dlsym(module, VERBS_CALLS_SYMBOL);
	calls = fn ? fn() : NULL;
	if (!calls || calls->version != VERBS_CALLS_VERSION) {
		verbs_calls_fail(MODULE " is of another version");
		(void)dlclose(module);
		return;
	}
	ret = calls->fork_init();
	if (ret)
		log_warn("ibv_fork_init error %s", strerror(ret));
	ret = fork_watch(&forks);
	if (ret)
		verbs_calls_fail(error_last());
	else
		loaded = calls;
}

int verbs_calls_load(const struct verbs_calls **calls_out)
{
	const struct verbs_calls *calls = atomic_load(&chosen);

	if (!calls) {
		(void)pthread_once(&once, module_load);
		calls = loaded;
	}
	if (!calls)
		return error_set(-ENOTSUP, "%s", reason);
	if (calls == loaded && fork_happened(forks))
		return error_set(-ECHILD,
				 "verbs: rdma-core was used before fork() and does not work in the "
				 "child: start workers by spawn or forkserver");
	*calls_out = calls;
	return 0;
}

void verbs_calls_use(const struct verbs_calls *calls)
{
	atomic_store(&chosen, calls);
}
