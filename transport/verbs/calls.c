/*
 * calls.c - the module that links rdma-core.
 */
#include "transport/verbs/calls.h"

#include <stdatomic.h>
#include <string.h>

#include "base/log.h"

#include "transport/module.h"

static const struct verbs_calls *_Atomic chosen; /* by verbs_calls_use */

static const char *verbs_module_begin(const void *table)
{
	const struct verbs_calls *calls = table;
	int ret;

	if (calls->version != VERBS_CALLS_VERSION)
		return "the module is of another version";
	ret = calls->fork_init();
	if (ret)
		log_warn("ibv_fork_init error %s", strerror(ret));
	return NULL;
}

static struct module verbs_module = { .lock = LOCK_INIT(&module_role),
				      .name = "verbs",
				      .file = "librelive-verbs.so",
				      .env = "RLV_VERBS_MODULE",
				      .symbol = VERBS_CALLS_SYMBOL,
				      .library = "rdma-core",
				      .install = "rdma-core (libibverbs, librdmacm)",
				      .begin = verbs_module_begin };

int verbs_calls_load(const struct verbs_calls **calls_out)
{
	const struct verbs_calls *calls = atomic_load(&chosen);
	const void *table = calls;
	int ret = calls ? 0 : module_load(&verbs_module, &table);

	if (ret == 0)
		*calls_out = table;
	return ret;
}

void verbs_calls_use(const struct verbs_calls *calls)
{
	atomic_store(&chosen, calls);
}
