/*
 * host.c - a host that answers as the environment says, for tests of `relive doctor`: loaded before
 * librelive and libc, or opened as libfabric.so.1. Without its variable a call is the real one.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#include "relive/relive.h"

#define SHOWN __attribute__((visibility("default")))

SHOWN const char *rlv_version(void)
{
	const char *version = getenv("SHADOW_VERSION");

	return version ? version : "0.1.0";
}

SHOWN int adjtimex(struct timex *clock)
{
	const char *state = getenv("SHADOW_ADJTIMEX");

	(void)clock;
	errno = EPERM;
	return state ? atoi(state) : TIME_OK; /* NOLINT(cert-err34-c): the words are ours */
}

SHOWN int clock_gettime(clockid_t id, struct timespec *at)
{
	const char *ahead = getenv("SHADOW_CLOCK_S");
	int ret = (int)syscall(SYS_clock_gettime, id, at);

	if (ahead && id == CLOCK_REALTIME)
		at->tv_sec += strtol(ahead, NULL, 10);
	return ret;
}

SHOWN int getrlimit(__rlimit_resource_t resource, struct rlimit *limit)
{
	const char *most = getenv("SHADOW_LIMIT");
	int ret = (int)syscall(SYS_prlimit64, 0, resource, NULL, limit);

	if (most)
		limit->rlim_cur = limit->rlim_max = strtoull(most, NULL, 10);
	return ret;
}

SHOWN int memfd_create(const char *name, unsigned flags)
{
	if (!getenv("SHADOW_NO_MEMFD"))
		return (int)syscall(SYS_memfd_create, name, flags);
	errno = EACCES;
	return -1;
}

static bool is_faked(const char *call)
{
	const char *name = getenv("SHADOW_CALL");

	return name && strcmp(name, call) == 0;
}

/* -------- the store -------- */

SHOWN int rlv_store_info(struct rlv_store *store, struct rlv_store_info *info_out)
{
	int (*real)(struct rlv_store *, struct rlv_store_info *);

	*(void **)(&real) = dlsym(RTLD_NEXT, "rlv_store_info");
	return is_faked("info fails") ? -ETIMEDOUT : real(store, info_out);
}

SHOWN int rlv_store_tables(struct rlv_store *store, char (*names)[RLV_NAME_BYTES], size_t *n_inout)
{
	int (*real)(struct rlv_store *, char(*)[RLV_NAME_BYTES], size_t *);

	*(void **)(&real) = dlsym(RTLD_NEXT, "rlv_store_tables");
	return is_faked("tables fails") ? -ETIMEDOUT : real(store, names, n_inout);
}

/* Node 0 as one that was lost, has broken regions, or is reached by RDMA. */
SHOWN int rlv_store_nodes(struct rlv_store *store, struct rlv_node_info *nodes, size_t size,
			  size_t *n_inout)
{
	int (*real)(struct rlv_store *, struct rlv_node_info *, size_t, size_t *);
	int ret;

	*(void **)(&real) = dlsym(RTLD_NEXT, "rlv_store_nodes");
	ret = real(store, nodes, size, n_inout);
	if (ret)
		return ret;
	if (is_faked("node lost"))
		nodes->state = RLV_NODE_LOST;
	if (is_faked("node broken"))
		nodes->broken = 2;
	if (is_faked("node verbs")) {
		char path[sizeof(nodes->address)];

		snprintf(path, sizeof(path), "%s", strchr(nodes->address, ':') + 1);
		snprintf(nodes->address, sizeof(nodes->address), "verbs:10.0.0.1:7;%.200s", path);
		snprintf(nodes->transport, sizeof(nodes->transport), "verbs");
	}
	return 0;
}

/* -------- libfabric -------- */

struct shadow_attr {
	void *object;
	const char *name, *provider;
};

/* As struct fi_info begins. */
struct shadow_info {
	struct shadow_info *next;
	uint64_t caps, mode;
	uint32_t format;
	size_t source_len, dest_len;
	void *source, *dest, *handle, *tx, *rx, *ep;
	struct shadow_attr *domain, *fabric;
};

SHOWN uint32_t fi_version(void);
SHOWN int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
		     const struct shadow_info *hints, struct shadow_info **info_out);

uint32_t fi_version(void)
{
	return 1u << 16 | 99;
}

int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
	       const struct shadow_info *hints, struct shadow_info **info_out)
{
	static struct shadow_attr domains[2] = { { NULL, "d0", NULL }, { NULL, "d1", NULL } };
	static struct shadow_attr fabric = { NULL, "f", "prov" };
	static struct shadow_info second = { .domain = &domains[1], .fabric = &fabric };
	static struct shadow_info first = { &second, .domain = &domains[0], .fabric = &fabric };

	(void)node, (void)service, (void)flags, (void)hints;
	if (is_faked("fabric crashes"))
		abort();
	if (is_faked("fabric hangs"))
		pause();
	*info_out = &first;
	return is_faked("fabric fails") || version != fi_version() ? -ENODATA : 0;
}
