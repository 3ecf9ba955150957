/* devices.c - RDMA devices as sysfs shows them, and the libraries that use them. */
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/doctor/doctor.h"

#define DEVICES "/sys/class/infiniband/"
#define CAP_IPC_LOCK 14

/* Calls fn, which may be NULL, for each path that matches; returns their number. */
static size_t each_path(struct doctor *doctor, const char *pattern,
			void (*fn)(struct doctor *doctor, const char *path))
{
	glob_t found = { 0 };
	size_t n = glob(pattern, 0, NULL, &found) ? 0 : found.gl_pathc;

	for (size_t i = 0; fn && i < n; i++)
		fn(doctor, found.gl_pathv[i]);
	globfree(&found);
	return n;
}

void doctor_memlock(struct doctor *doctor)
{
	bool is_rdma = each_path(doctor, DEVICES "*", NULL) > 0;
	struct rlimit limit = { 0, 0 };
	uint64_t capabilities = 0;
	char line[DOCTOR_LINE_BYTES];
	FILE *file = fopen("/proc/self/status", "re");

	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, "CapEff:", 7) == 0)
			capabilities = strtoull(line + 7, NULL, 16);
	if (file)
		fclose(file);
	(void)getrlimit(RLIMIT_MEMLOCK, &limit);
	if (limit.rlim_cur == RLIM_INFINITY || (capabilities >> CAP_IPC_LOCK & 1))
		doctor_found(doctor, FINDING_OK, "%s",
			     limit.rlim_cur == RLIM_INFINITY ? "unlimited"
							     : "unlimited by CAP_IPC_LOCK");
	else
		doctor_found(doctor, is_rdma ? FINDING_WARNING : FINDING_INFO,
			     "%llu KiB: RDMA locks all memory that it registers\n"
			     "ulimit -l unlimited as root, memlock in limits.conf, "
			     "LimitMEMLOCK=infinity of a unit, or docker run --ulimit memlock=-1",
			     (unsigned long long)limit.rlim_cur >> 10);
}

/* -------- RDMA -------- */

/*
 * Counts the GIDs of a port that connections may have, of InfiniBand or RoCE v2; netdev_out: the
 * interface of the last one, or "".
 */
static uint32_t count_gids(const char *port, char netdev_out[DOCTOR_LINE_BYTES])
{
	char gid[DOCTOR_LINE_BYTES], type[DOCTOR_LINE_BYTES];
	uint32_t n = 0;

	netdev_out[0] = 0;
	for (uint32_t i = 0; doctor_line(gid, "%s/gids/%u", port, i); i++) {
		if (strspn(gid, "0:") == strlen(gid)) /* an empty entry */
			continue;
		if (doctor_line(type, "%s/gid_attrs/types/%u", port, i) && strstr(type, "RoCE v1"))
			continue;
		n++;
		doctor_line(netdev_out, "%s/gid_attrs/ndevs/%u", port, i);
	}
	return n;
}

/* RoCE packets of 4096 bytes need an Ethernet MTU with their headers, of 84 bytes at most. */
#define ROCE_MTU 4180

static void check_port(struct doctor *doctor, const char *path)
{
	char state[DOCTOR_LINE_BYTES], rate[DOCTOR_LINE_BYTES], layer[DOCTOR_LINE_BYTES];
	char netdev[DOCTOR_LINE_BYTES], mtu[DOCTOR_LINE_BYTES];
	const char *name = path + strlen(DEVICES);
	uint32_t gids = count_gids(path, netdev);

	doctor_line(rate, "%s/rate", path);
	doctor_line(layer, "%s/link_layer", path);
	if (!doctor_line(state, "%s/state", path) || !strstr(state, "ACTIVE"))
		doctor_found(doctor, FINDING_WARNING,
			     "%s: state %s\n"
			     "ip link set NETDEV up; on InfiniBand a cable, and a subnet manager",
			     name, state);
	else if (gids == 0)
		doctor_found(doctor, FINDING_WARNING,
			     "%s: active, but has no GID of RoCE v2 or InfiniBand, so no address\n"
			     "ip address add ADDRESS/PREFIX dev NETDEV",
			     name);
	else
		doctor_found(doctor, FINDING_OK, "%s: active, %s, %s, %u GIDs", name, rate, layer,
			     gids);
	if (!netdev[0] || !doctor_line(mtu, "/sys/class/net/%s/mtu", netdev))
		return;
	if (strtol(mtu, NULL, 10) >= ROCE_MTU)
		doctor_found(doctor, FINDING_OK, "%s: MTU %s of %s", name, mtu, netdev);
	else
		doctor_found(doctor, FINDING_INFO,
			     "%s: MTU %s of %s: RDMA packets are smaller than 4096 bytes\n"
			     "ip link set %s mtu 9000, if all hosts and switches between have it",
			     name, mtu, netdev, netdev);
}

static void check_library(struct doctor *doctor, const char *name, enum severity severity)
{
	if (!dlopen(name, RTLD_LAZY | RTLD_LOCAL))
		doctor_found(doctor, severity,
			     "%s\napt-get install libibverbs1 librdmacm1 ibverbs-providers",
			     dlerror());
}

void doctor_rdma(struct doctor *doctor)
{
	size_t devices = each_path(doctor, DEVICES "*", NULL);
	enum severity severity = devices ? FINDING_WARNING : FINDING_INFO;

	each_path(doctor, DEVICES "*/ports/*", check_port);
	if (devices == 0)
		doctor_found(
			doctor, FINDING_INFO,
			"no device: other hosts' memory is not reached by RDMA\n"
			"modprobe rdma_rxe; rdma link add rxe0 type rxe netdev eth0 (Soft-RoCE)");
	else if (access("/dev/infiniband/rdma_cm", R_OK | W_OK) ||
		 each_path(doctor, "/dev/infiniband/uverbs*", NULL) == 0)
		doctor_found(
			doctor, FINDING_WARNING,
			"/dev/infiniband: uverbs* or rdma_cm is missing, or not open to us\n"
			"modprobe -a ib_uverbs rdma_ucm, or docker run --device=/dev/infiniband");
	check_library(doctor, "libibverbs.so.1", severity);
	check_library(doctor, "librdmacm.so.1", severity);
}

/* -------- libfabric -------- */

/*
 * Heads of struct fi_info, fi_domain_attr and fi_fabric_attr as all of libfabric.so.1 have them: it
 * is opened when it is there, and nothing of it is linked.
 */
struct fabric_attr {
	void *object;
	const char *name;
	const char *provider; /* of fi_fabric_attr alone */
};

struct fabric_info {
	struct fabric_info *next;
	uint64_t caps, mode;
	uint32_t format;
	size_t source_len, dest_len;
	void *source, *dest, *handle, *tx, *rx, *ep;
	const struct fabric_attr *domain, *fabric;
};

struct fabric_calls {
	uint32_t (*version)(void);
	int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
		       const struct fabric_info *hints, struct fabric_info **info_out);
};

static void list_providers(struct doctor *doctor, const struct fabric_calls *calls)
{
	uint32_t version = calls->version();
	struct fabric_info *info = NULL;
	char text[512] = "", pair[128];
	size_t len = 0;
	int ret = calls->getinfo(version, NULL, NULL, 0, NULL, &info);

	if (ret) {
		doctor_found(doctor, FINDING_WARNING,
			     "fi_getinfo: %s (%d)\nFI_LOG_LEVEL=info fi_info, of libfabric-bin",
			     strerror(-ret), ret);
		return;
	}
	for (; info; info = info->next) { /* the list ends with the child */
		snprintf(pair, sizeof(pair), " %s (%s)", info->fabric->provider,
			 info->domain->name);
		if (!strstr(text, pair) && len + strlen(pair) < sizeof(text))
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s", pair);
	}
	doctor_found(doctor, FINDING_OK, "libfabric %u.%u:%s", version >> 16, version & 0xffff,
		     text);
}

void doctor_libfabric(struct doctor *doctor)
{
	void *library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
	struct fabric_calls calls = { NULL, NULL };
	const char *why = library ? NULL : dlerror();

	if (library) { /* ISO C has no conversion from an object's pointer to a function's */
		*(void **)(&calls.version) = dlsym(library, "fi_version");
		*(void **)(&calls.getinfo) = dlsym(library, "fi_getinfo");
	}
	if (calls.version && calls.getinfo)
		list_providers(doctor, &calls);
	else
		doctor_found(doctor, FINDING_INFO, "%s\napt-get install libfabric1",
			     why ? why : "libfabric.so.1 has no fi_version or no fi_getinfo");
}
