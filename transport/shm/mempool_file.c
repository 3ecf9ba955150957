/*
 * mempool_file.c - pools in a file or on a DAX device.
 */
#include "transport/shm/mempool.h"

#include <errno.h>

int mempool_open_file(const struct target_opts *opts, struct mempool **pool_out)
{
	(void)pool_out;
	return error_set(-ENOTSUP, "pool %s: no pools in files yet", opts->path);
}
