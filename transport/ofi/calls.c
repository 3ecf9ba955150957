/*
 * calls.c - the module that links libfabric.
 */
#include "transport/ofi/calls.h"

#include "transport/module.h"

static const char *ofi_module_begin(const void *table)
{
	const struct ofi_calls *calls = table;

	return calls->version == OFI_CALLS_VERSION ? NULL : "the module is of another version";
}

int ofi_calls_load(const struct ofi_calls **calls_out)
{
	static struct module module = { .lock = LOCK_INIT(&module_role),
					.name = "ofi",
					.file = "librelive-ofi.so",
					.env = "RLV_OFI_MODULE",
					.symbol = OFI_CALLS_SYMBOL,
					.library = "libfabric",
					.install = "libfabric",
					.forks = true,
					.begin = ofi_module_begin };
	const void *table;
	int ret = module_load(&module, &table);

	if (ret == 0)
		*calls_out = table;
	return ret;
}
