#include "cli/host/host_store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/host/host_files.h"
#include "cli/host/host_start.h"
#include "program/spawn.h"

int host_store_private(uint64_t bytes, struct host_store *store_out)
{
	struct host_store_opts opts = { .node = HOST_NODE_OPTS_INIT, .tied = true };
	const char *tmp = getenv("TMPDIR");
	char root[RUNTIME_PATH_BYTES];
	int ret;

	opts.node.store = "private";
	opts.node.bytes = bytes;
	/* A socket name is limited to 108 bytes, so a deep TMPDIR is unusable. */
	if (!tmp || !*tmp || strlen(tmp) > 40)
		tmp = "/tmp";
	snprintf(root, sizeof(root), "%s/relive-XXXXXX", tmp);
	if (!mkdtemp(root))
		return error_set(-errno, "create directory %s: %m", root);
	if (setenv("RELIVE_RUNTIME_DIR", root, 1)) {
		rmdir(root);
		return error_set(-ENOMEM, "set RELIVE_RUNTIME_DIR");
	}
	ret = host_store_up(&opts, NULL, store_out);
	if (ret)
		host_files_remove(root);
	else
		memcpy(store_out->temp_root, root, sizeof(root));
	return ret;
}

void host_store_close(struct host_store *store)
{
	for (uint32_t i = 0; i < store->n_nodes; i++)
		spawn_stop(store->nodes[i], HOST_GRACE_NS);
	spawn_stop(store->metad, HOST_GRACE_NS);
	store->n_nodes = 0;
	store->metad = 0;
	if (store->temp_root[0])
		host_files_remove(store->temp_root);
	store->temp_root[0] = 0;
}
