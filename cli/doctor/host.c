/* host.c - versions, limits, memory, clock and namespaces of this host, or of this container. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include "relive/relive.h"

#include "base/os/runtime_dir.h"
#include "cli/doctor/doctor.h"

void doctor_versions(struct doctor *doctor)
{
	struct utsname host = { .release = "" };
	char own[32];

	(void)uname(&host);
	snprintf(own, sizeof(own), "%d.%d.%d", RLV_VERSION_MAJOR, RLV_VERSION_MINOR,
		 RLV_VERSION_PATCH);
	if (strcmp(own, rlv_version()) == 0)
		doctor_found(doctor, FINDING_OK, "relive and librelive %s, Linux %s", own,
			     host.release);
	else
		doctor_found(
			doctor, FINDING_WARNING,
			"relive %s runs on librelive %s\n"
			"install both from one release; LD_LIBRARY_PATH may name another folder",
			own, rlv_version());
}

void doctor_runtime_dir(struct doctor *doctor)
{
	char root[RUNTIME_PATH_BYTES], parent[RUNTIME_PATH_BYTES];
	struct runtime_dir dir;
	struct stat st;
	int ret = runtime_dir_root(root);
	bool is_there = ret == 0 && (lstat(root, &st) == 0 || errno != ENOENT);

	if (is_there)
		ret = runtime_dir_visit("default", &dir);
	if (ret && ret != -ENOENT) {
		doctor_found(
			doctor, FINDING_ERROR,
			"%s\nexport RELIVE_RUNTIME_DIR=/DIRECTORY, short, of this user, mode 0700",
			error_last());
	} else if (is_there) {
		doctor_found(doctor, FINDING_OK, "%s", root);
	} else {
		snprintf(parent, sizeof(parent), "%.*s/", (int)(strrchr(root, '/') - root), root);
		ret = access(parent, W_OK | X_OK) ? errno : 0;
		doctor_found(
			doctor, ret ? FINDING_ERROR : FINDING_OK,
			ret ? "%s cannot be made: %s\n"
			      "export RELIVE_RUNTIME_DIR=/DIRECTORY in which this user may write"
			    : "%s: the first relive up makes it",
			root, strerror(ret));
	}
}

/* -------- limits and pages -------- */

#define ENOUGH 65000 /* for 1000 shards of tables with 64 clients: docs/operations.md */
#define FEW 4096     /* of descriptors */

void doctor_limits(struct doctor *doctor)
{
	char mappings[DOCTOR_LINE_BYTES];
	struct rlimit files = { 0, 0 };

	(void)getrlimit(RLIMIT_NOFILE, &files);
	if (files.rlim_max >= ENOUGH)
		doctor_found(doctor, FINDING_OK, "open files: %llu",
			     (unsigned long long)files.rlim_max);
	else
		doctor_found(doctor, files.rlim_max < FEW ? FINDING_WARNING : FINDING_INFO,
			     "open files: %llu: a memory node has room for about %llu shards of 64 "
			     "clients\n"
			     "ulimit -Hn 65536 as root, LimitNOFILE=65536 of a unit, or docker run "
			     "--ulimit nofile=65536",
			     (unsigned long long)files.rlim_max,
			     (unsigned long long)files.rlim_max / 65);
	if (!doctor_line(mappings, "/proc/sys/vm/max_map_count"))
		return;
	if (strtoll(mappings, NULL, 10) >= ENOUGH)
		doctor_found(doctor, FINDING_OK, "mappings: %s", mappings);
	else
		doctor_found(doctor, FINDING_WARNING,
			     "mappings: %s, too few for 1000 shards of 64 clients\n"
			     "sysctl vm.max_map_count=262144",
			     mappings);
}

#define THP "/sys/kernel/mm/transparent_hugepage/"
#define RESERVED "/sys/kernel/mm/hugepages/hugepages-2048kB/"

static void check_thp(struct doctor *doctor, const char *file, const char *whose,
		      const char *wanted)
{
	char choices[DOCTOR_LINE_BYTES];

	if (doctor_line(choices, THP "%s", file) && !strstr(choices, "[never]") &&
	    !strstr(choices, "[deny]"))
		doctor_found(doctor, FINDING_OK, "%s may be on huge pages: %s", whose, choices);
	else
		doctor_found(doctor, FINDING_WARNING,
			     "%s is on small pages, with more TLB misses: %s\necho %s > " THP "%s",
			     whose, choices[0] ? choices : "none", wanted, file);
}

void doctor_huge_pages(struct doctor *doctor)
{
	char all[DOCTOR_LINE_BYTES], unused[DOCTOR_LINE_BYTES];

	check_thp(doctor, "enabled", "memory of embed: stores and of buffers", "madvise");
	check_thp(doctor, "shmem_enabled", "memory of nodes", "advise");
	doctor_line(all, RESERVED "nr_hugepages");
	if (doctor_line(unused, RESERVED "free_hugepages") && strtoll(unused, NULL, 10) > 0)
		doctor_found(doctor, FINDING_OK, "%s of %s reserved pages of 2 MiB are free",
			     unused, all);
	else
		doctor_found(
			doctor, FINDING_INFO,
			"none of %s reserved pages of 2 MiB is free: only --pages huge needs them\n"
			"sysctl vm.nr_hugepages=N",
			all[0] ? all : "0");
}

void doctor_clock(struct doctor *doctor)
{
	struct timex clock = { .modes = 0 };
	int state = adjtimex(&clock);

	if (state < 0)
		doctor_found(doctor, FINDING_INFO,
			     "adjtimex: %s\ntimedatectl, on the host of this container",
			     strerror(errno));
	else if (state == TIME_ERROR)
		doctor_found(
			doctor, FINDING_WARNING,
			"not synchronised: times in logs differ between hosts, and certificates "
			"may be refused\n"
			"timedatectl set-ntp true, on the host of a container");
	else
		doctor_found(doctor, FINDING_OK, "synchronised");
}

/* -------- containers -------- */

/* Makes, seals and maps a memfd as a memory node does. Returns the call that failed, or NULL. */
static const char *probe_memfd(size_t bytes)
{
	int fd = memfd_create("relive-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return "memfd_create";
	if (ftruncate(fd, (off_t)bytes))
		return "ftruncate";
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return "fcntl F_ADD_SEALS";
	/* descriptor and mapping end with the child */
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? "mmap"
											  : NULL;
}

void doctor_memfd(struct doctor *doctor)
{
	const char *failed = probe_memfd((size_t)2 << 20);

	if (failed)
		doctor_found(
			doctor, FINDING_ERROR,
			"%s: %s: no memory node can start here\n"
			"ulimit -f unlimited, sysctl vm.memfd_noexec=1, or a seccomp profile that allows it",
			failed, strerror(errno));
	else
		doctor_found(doctor, FINDING_OK, "can be made, sealed and mapped");
}

void doctor_dev_shm(struct doctor *doctor)
{
	struct statfs fs;
	unsigned long long mib = 0;

	if (statfs("/dev/shm", &fs) == 0 && fs.f_type == TMPFS_MAGIC)
		mib = (unsigned long long)fs.f_blocks * (unsigned long long)fs.f_bsize >> 20;
	if (mib >= 1024)
		doctor_found(doctor, FINDING_OK, "/dev/shm has %llu MiB", mib);
	else
		doctor_found(
			doctor, FINDING_INFO,
			"/dev/shm has %llu MiB: stores use memfds, but workers of PyTorch and "
			"libfabric's shm provider need it\n"
			"docker run --shm-size 8g, or an emptyDir of medium Memory at /dev/shm",
			mib);
}

void doctor_pid_namespace(struct doctor *doctor)
{
	static const char initial[] = "pid:[4026531836]"; /* PROC_PID_INIT_INO of every kernel */
	char own[64] = "";

	if (readlink("/proc/self/ns/pid", own, sizeof(own) - 1) < 0)
		doctor_found(doctor, FINDING_ERROR,
			     "/proc/self/ns/pid: %s\nmount -t proc proc /proc", strerror(errno));
	else if (strcmp(own, initial) == 0)
		doctor_found(doctor, FINDING_OK, "that of the host");
	else
		doctor_found(doctor, FINDING_INFO,
			     "one of a container: it maps memory of nodes in the same one alone\n"
			     "docker run --pid=host or --pid=container:NODE, or "
			     "shareProcessNamespace: true of a pod");
}
