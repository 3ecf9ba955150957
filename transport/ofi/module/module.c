/*
 * module.c - librelive-ofi.so: the table of transport/ofi/calls.h over libfabric itself. The only
 * code of ours that is linked to libfabric.
 */
#include "transport/ofi/calls.h"

#include <stdlib.h>

/*
 * Settings of libfabric that only its environment has. By default an endpoint over TCP takes 70 MB:
 * it has a shared receive queue, and 2048 buffers of 16 KiB for messages, which here are atomics.
 * It takes one completion at a time, and looks for new connections every 10 ms.
 */
static void use_less(void)
{
	(void)setenv("FI_OFI_RXM_USE_SRX", "0", 0);
	(void)setenv("FI_OFI_RXM_BUFFER_SIZE", "2048", 0);
	(void)setenv("FI_OFI_RXM_COMP_PER_PROGRESS", "16", 0);
	(void)setenv("FI_OFI_RXM_CM_PROGRESS_INTERVAL", "1000", 0);
}

static const struct ofi_calls calls = {
	.version = OFI_CALLS_VERSION,
	.getinfo = fi_getinfo,
	.freeinfo = fi_freeinfo,
	.dupinfo = fi_dupinfo,
	.fabric = fi_fabric,
	.strerror = fi_strerror,
};

__attribute__((visibility("default"))) const void *rlv_ofi_calls(void);

const void *rlv_ofi_calls(void)
{
	use_less();
	return &calls;
}
