#include <errno.h>

#include "base/mem/alloc.h"
#include "cli/host/host_files.h"
#include "cli/host/host_lock.h"
#include "cli/host/host_loss.h"
#include "cli/host/host_start.h"
#include "cli/host/host_store.h"

/* No confirmation is needed if no data would be lost. */
static int confirm_loss(const struct host_down_opts *opts, const struct runtime_dir *dir,
			const struct host_daemons *daemons)
{
	bool keep = host_files_are_kept(dir);
	struct host_loss loss;
	int ret;

	for (uint32_t i = 0; i < daemons->n; i++) {
		const struct host_daemon *daemon = &daemons->at[i];

		keep |= host_daemon_is_on_file(daemon) && !host_daemon_is_elsewhere(daemon);
	}
	ret = host_loss_count(opts->store, daemons, &keep, &loss);
	if (ret)
		return ret;
	if ((loss.items || loss.unknown[0]) && !opts->confirm(opts->ctx, &loss))
		return -ECANCELED;
	return keep ? host_files_keep(dir) : 0;
}

static int bring_down(const struct host_down_opts *opts, struct host_daemons *daemons,
		      uint32_t *stopped_out, bool *gone_out)
{
	struct runtime_dir dir;
	int ret = runtime_dir_open(opts->store, false, &dir);

	*gone_out = ret == -ENOENT;
	if (ret == 0)
		ret = host_files_look(&dir, daemons);
	if (ret == 0)
		ret = confirm_loss(opts, &dir, daemons);
	if (ret)
		return ret;
	*stopped_out = 0;
	for (uint32_t i = 0; i < daemons->n; i++)
		*stopped_out += daemons->at[i].pid > 0;
	ret = host_files_end(&dir);
	if (ret == 0)
		ret = host_stop_all(&dir, daemons, opts->timeout_ns);
	if (ret == 0)
		*gone_out = host_files_clean(&dir);
	return ret;
}

int host_store_down(const struct host_down_opts *opts, uint32_t *stopped_out)
{
	struct host_daemons *daemons;
	struct runtime_dir dir;
	struct host_lock lock;
	bool gone = false;
	int ret = runtime_dir_open(opts->store, false, &dir);

	if (ret)
		return ret;
	daemons = mem_zalloc(sizeof(*daemons));
	if (!daemons)
		return error_set(-ENOMEM, "down: cannot allocate memory");
	ret = host_lock_take(opts->store, HOST_STORE_LOCK_NS, NULL, &lock);
	if (ret == 0) {
		ret = bring_down(opts, daemons, stopped_out, &gone);
		host_lock_give(&lock, gone);
	}
	mem_free(daemons);
	return ret;
}
