/*
 * paths.c - which paths the host and the device have for batches, and why the others are not taken.
 */
#include "client/landing/state.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "client/store/abi.h"

#include "base/bits.h"

const char landing_no_dmabuf[] = "the device exports no dma-buf: NVIDIA's open kernel modules do, "
				 "with a driver for CUDA 11.7 or later";

const char landing_pool_needs_dmabuf[] = "RDMA reaches memory of a pool as a dma-buf alone";

static bool has_entries(const char *path)
{
	DIR *dir = opendir(path);
	const struct dirent *entry = NULL;

	while (dir && (entry = readdir(dir)) && entry->d_name[0] == '.')
		;
	if (dir)
		closedir(dir);
	return entry;
}

const char *landing_lacks_rdma(const char *sys, bool by_address)
{
	static const char *const modules[] = { "nvidia_peermem", "nv_peer_mem" };
	char path[256];

	snprintf(path, sizeof(path), "%s/class/infiniband", sys);
	if (!has_entries(path))
		return "the host has no RDMA device";
	for (size_t i = 0; by_address && i < ARRAY_LEN(modules); i++) {
		snprintf(path, sizeof(path), "%s/module/%s", sys, modules[i]);
		if (access(path, F_OK) == 0)
			return NULL;
	}
	return by_address ? "no driver of peers is loaded: modprobe nvidia-peermem" : NULL;
}

/* NULL: nothing. An error's text is good until the next one. */
static const char *path_lacks(struct rlv_landing *landing, uint32_t path)
	LOCK_REQUIRES(landing_role)
{
	struct backend *dev = landing->backend;
	struct backend_info info;

	if (!dev)
		return path == RLV_LANDING_IN_PLACE ? NULL : "the device's memory is the host's";
	dev->ops->info(dev, &info);
	switch (path) {
	case RLV_LANDING_IN_PLACE:
		return "the device has memory of its own";
	case RLV_LANDING_DMABUF:
		if (!(info.caps & BACKEND_EXPORTS_DMABUF))
			return landing_no_dmabuf;
		return landing_lacks_rdma("/sys", false);
	case RLV_LANDING_PEERMEM:
		return landing->pool ? landing_pool_needs_dmabuf : landing_lacks_rdma("/sys", true);
	case RLV_LANDING_GATHER: /* loads the kernel */
		return dev->ops->gather(dev, landing->streams[0].number,
					&(struct backend_gather){ 0 })
			       ? error_last()
			       : NULL;
	case RLV_LANDING_PINNED:
		return landing->unpinned[0] ? landing->unpinned : NULL;
	default:
		return NULL;
	}
}

static void paths_probe(struct rlv_landing *landing) LOCK_REQUIRES(landing_role)
{
	static const uint32_t order[LANDING_PATHS] = { RLV_LANDING_IN_PLACE, RLV_LANDING_DMABUF,
						       RLV_LANDING_PEERMEM,  RLV_LANDING_GATHER,
						       RLV_LANDING_PINNED,   RLV_LANDING_PLAIN };

	for (uint32_t i = 0; i < LANDING_PATHS; i++) {
		struct rlv_landing_path_info *one = &landing->paths[i];
		const char *lacks = path_lacks(landing, order[i]);

		*one = (struct rlv_landing_path_info){ .path = order[i], .possible = !lacks };
		snprintf(one->why, sizeof(one->why), "%s", lacks ? lacks : "");
	}
	landing->probed = true;
}

static bool is_rdma(uint32_t path)
{
	return path == RLV_LANDING_DMABUF || path == RLV_LANDING_PEERMEM;
}

/* Of a path that could be. */
static const char *why_not_taken(const struct rlv_landing *landing, uint32_t path)
	LOCK_REQUIRES(landing_role)
{
	switch (path) {
	case RLV_LANDING_GATHER:
		return "a wish (opts.path), since it locks the table's memory";
	case RLV_LANDING_PINNED:
		return "no batch was copied";
	case RLV_LANDING_PLAIN:
		return "page-locked memory is faster";
	default:
		if (!landing->direct || landing->avoid & 1u << path)
			return "opts.path or opts.avoid excludes it";
		return landing->info.reason[0] ? landing->info.reason
					       : "for tables over verbs: no batch came so";
	}
}

int rlv_landing_paths(struct rlv_landing *landing, struct rlv_landing_path_info *paths, size_t size,
		      size_t *n_inout)
{
	struct abi_array array = { .theirs = paths, .size = size, .n_inout = n_inout };
	int ret = landing_enter(landing);

	if (ret == 0 && (!n_inout || (*n_inout && !paths)))
		ret = error_set(-EINVAL, "paths or n_inout is NULL");
	if (ret == 0)
		ret = abi_array_begin(&array, sizeof(*paths), "paths");
	if (ret)
		return ret;
	lock_acquire(&landing->lock, &landing_role);
	if (!landing->probed)
		paths_probe(landing);
	for (uint32_t i = 0; i < LANDING_PATHS && i < array.n; i++) {
		struct rlv_landing_path_info *one = (struct rlv_landing_path_info *)array.ours + i;

		*one = landing->paths[i];
		one->batches = landing->landed[one->path];
		if (one->batches) { /* whatever sysfs says */
			one->possible = 1;
			one->why[0] = 0;
		} else if (is_rdma(one->path) && landing->fallen[0]) { /* so does this */
			snprintf(one->why, sizeof(one->why), "%.190s", landing->fallen);
		} else if (one->possible && one->path != landing->info.path) {
			snprintf(one->why, sizeof(one->why), "%.190s",
				 why_not_taken(landing, one->path));
		}
	}
	array.n = LANDING_PATHS;
	lock_release(&landing->lock, &landing_role);
	return abi_array_end(&array, 0);
}

const char *rlv_landing_path_name(uint32_t path)
{
	static const char *const names[] = {
		[RLV_LANDING_IN_PLACE] = "in place", [RLV_LANDING_PINNED] = "pinned",
		[RLV_LANDING_GATHER] = "gather",     [RLV_LANDING_DMABUF] = "dmabuf",
		[RLV_LANDING_PEERMEM] = "peermem",   [RLV_LANDING_PLAIN] = "plain",
	};

	return path < ARRAY_LEN(names) && names[path] ? names[path] : "none";
}

uint32_t landing_count(struct rlv_landing *landing, uint32_t apart)
{
	uint32_t path = apart;

	lock_acquire(&landing->lock, &landing_role);
	if (!path && !landing->backend)
		path = RLV_LANDING_IN_PLACE;
	else if (!path)
		path = landing->unpinned[0] ? RLV_LANDING_PLAIN : RLV_LANDING_PINNED;
	landing->landed[path]++;
	landing->info.path = path;
	lock_release(&landing->lock, &landing_role);
	return path;
}
