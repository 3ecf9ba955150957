/*
 * Each finding of `relive doctor`, provoked: by limits, namespaces and files mounted over those of
 * /proc and /sys, by a host that answers as told (tests/shadow/host.c), and by real stores.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "tests/support/certificates.h"
#include "tests/support/fixture/cli_fixture.h"
#include "tests/support/sockets.h"
#include "tests/support/test.h"

#define TOKEN "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define ON_FIXTURE(test) TEST_WITH(test, open_fixture, close_fixture)

static int open_fixture(void **state)
{
	unsetenv("RELIVE_TOKEN");
	return cli_fixture_open(state);
}

static int close_fixture(void **state)
{
	unsetenv("RELIVE_TOKEN");
	return cli_fixture_close(state);
}

/*
 * Runs the shell lines `before`, which may name $DIR and $SHADOW, then `relive doctor ARGS`; f->out
 * is what both print. namespaces: flags of unshare(1), or NULL. Fails the test at another status.
 */
static void examine(struct cli_fixture *f, int status, const char *namespaces, const char *before,
		    const char *args)
{
	const char *bin = getenv("RLV_BIN_DIR");
	char line[4096];
	size_t n;
	FILE *pipe;
	int got;

	snprintf(
		line, sizeof(line),
		"BIN=%s; SHADOW=$BIN/../lib/shadow/host; DIR=%s; export BIN SHADOW DIR; "
		"export ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0; exec 2>&1 </dev/null; "
		"exec timeout 60 %s %s sh -c 'set -e; %s exec $BIN/relive doctor %s'",
		bin ? bin : "bin", f->ps.dir, namespaces ? "unshare" : "",
		namespaces ? namespaces : "", before, args);
	pipe = popen(line, "re"); /* NOLINT(cert-env33-c): the words are ours */
	assert_non_null(pipe);
	n = fread(f->out, 1, sizeof(f->out) - 1, pipe);
	f->out[n] = 0;
	got = WEXITSTATUS(pclose(pipe));
	if (got != status)
		fail_msg("%s\nexit %d, not %d\n%s", line, got, status, f->out);
}

/* Expects a finding with the words `seen` in its line and `fix` in the next one; NULL: no fix. */
static void expect(const struct cli_fixture *f, const char *severity, const char *check,
		   const char *seen, const char *fix)
{
	static const char mark[] = "                        fix: ";
	char head[64];

	snprintf(head, sizeof(head), "%-8s %-14s ", severity, check);
	for (const char *line = f->out, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
		const char *next = end + 1, *words = strstr(line, seen);
		const char *remedy = fix ? strstr(next, fix) : NULL;
		bool has_fix = strncmp(next, mark, strlen(mark)) == 0;

		if (strncmp(line, head, strlen(head)) != 0 || !words || words > end)
			continue;
		if (has_fix == (fix != NULL) && (!fix || (remedy && remedy < strchr(next, '\n'))))
			return;
	}
	fail_msg("no '%s' of %s with '%s', fix '%s' in:\n..%s", severity, check, seen,
		 fix ? fix : "none", f->out + (strlen(f->out) > 700 ? strlen(f->out) - 700 : 0));
}

static void skip_without(const char *namespaces)
{
	char line[64];

	snprintf(line, sizeof(line), "unshare %s true 2>/dev/null", namespaces);
	if (system(line) == 0) /* NOLINT(cert-env33-c): the words are ours */
		return;
	print_message("skipped: no namespace can be made here: unshare %s\n", namespaces);
	skip();
}

#define PRELOAD "export LD_PRELOAD=$SHADOW/libfabric.so.1 "

/* -------- the host -------- */

ON_FIXTURE(doctor__usage)
{
	struct cli_fixture *f = *state;

	cli_expect(f, "doctor embed:", 2);
	cli_expect_words(f->err, "shm:NAME or relive://HOST:PORT");
	cli_expect(f, "doctor shm:a --store b", 2);
	cli_expect(f, "doctor --timeout", 2);
}

#define AS_NOBODY "setpriv --reuid 54321 --clear-groups "

ON_FIXTURE(doctor__without_processes)
{
	struct cli_fixture *f = *state;

	/* NOLINTNEXTLINE(cert-env33-c): the words are ours */
	if (system(AS_NOBODY "test -x \"$RLV_BIN_DIR/relive\" 2>/dev/null") != 0) {
		print_message("skipped: no other user can run our programs here\n");
		skip();
	}
	examine(f, 1, NULL, "exec " AS_NOBODY "sh -c \"ulimit -p 1; exec $BIN/relive doctor\";",
		"");
	expect(f, "error", "versions", "fork: Resource temporarily unavailable", "ulimit -u");
}

ON_FIXTURE(doctor__versions)
{
	struct cli_fixture *f = *state;

	examine(f, 0, NULL, "", "");
	expect(f, "ok", "versions", "relive and librelive 0.1.0, Linux", NULL);
	examine(f, 0, NULL, PRELOAD "SHADOW_VERSION=0.0.9;", "");
	expect(f, "warning", "versions", "relive 0.1.0 runs on librelive 0.0.9", "one release");
}

ON_FIXTURE(doctor__runtime_dir)
{
	struct cli_fixture *f = *state;

	examine(f, 0, NULL, "", "");
	expect(f, "ok", "runtime-dir", f->ps.dir, NULL);
	examine(f, 0, NULL, "export RELIVE_RUNTIME_DIR=$DIR/new;", "");
	expect(f, "ok", "runtime-dir", "the first relive up makes it", NULL);
	examine(f, 1, NULL, "export RELIVE_RUNTIME_DIR=$DIR/missing/new;", "");
	expect(f, "error", "runtime-dir", "cannot be made: No such file", "RELIVE_RUNTIME_DIR=");
	examine(f, 1, NULL, "export RELIVE_RUNTIME_DIR=relative;", "");
	expect(f, "error", "runtime-dir", "give an absolute path", "RELIVE_RUNTIME_DIR=");
	examine(f, 1, NULL, "mkdir -m 755 $DIR/open; export RELIVE_RUNTIME_DIR=$DIR/open;", "");
	expect(f, "error", "runtime-dir", "mode 755 lets others in", "0700");
}

ON_FIXTURE(doctor__limits)
{
	struct cli_fixture *f = *state;

	examine(f, 0, NULL, "ulimit -n 1000;", "");
	expect(f, "warning", "limits", "open files: 1000:", "LimitNOFILE");
	examine(f, 0, NULL, "ulimit -n 10000;", "");
	expect(f, "info", "limits", "about 153 shards", "LimitNOFILE");
	examine(f, 0, NULL, PRELOAD "SHADOW_LIMIT=65536;", "");
	expect(f, "ok", "limits", "open files: 65536", NULL);
	skip_without("-m");
	examine(f, 0, "-m", "echo 70000 >$DIR/n; mount --bind $DIR/n /proc/sys/vm/max_map_count;",
		"");
	expect(f, "ok", "limits", "mappings: 70000", NULL);
	examine(f, 0, "-m", "echo 999 >$DIR/n; mount --bind $DIR/n /proc/sys/vm/max_map_count;",
		"");
	expect(f, "warning", "limits", "mappings: 999,", "sysctl vm.max_map_count=");
}

/* Mounts an empty /sys with the files that `lines` write. */
#define SYS "mkdir $DIR/sys; cd $DIR/sys; "
#define SYS_END " mount --bind $DIR/sys /sys; rm -rf $DIR/sys.old; mv $DIR/sys $DIR/sys.old;"
#define THP "mkdir -p kernel/mm/transparent_hugepage; "
#define THP_AS(name, words) "echo \"" words "\" >kernel/mm/transparent_hugepage/" name "; "
#define RESERVED "r=kernel/mm/hugepages/hugepages-2048kB; mkdir -p $r; echo 8 >$r/nr_hugepages; "

/* Of a user who may have one process: the checks, which are processes, are named one after the other. */
ON_FIXTURE(doctor__no_processes_left)
{
	static const char alone[] =
		"setpriv --reuid 61234 --clear-groups --inh-caps +dac_read_search "
		"--ambient-caps +dac_read_search prlimit --nproc=1 ";
	struct cli_fixture *f = *state;
	char line[512];

	snprintf(line, sizeof(line), "%s true 2>/dev/null", alone);
	if (system(line) != 0) { /* NOLINT(cert-env33-c): the words are ours */
		print_message("skipped: no other user can be had here: setpriv needs root\n");
		skip();
	}
	snprintf(line, sizeof(line),
		 "export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0; exec %s $BIN/relive doctor;",
		 alone);
	examine(f, 1, NULL, line, "");
	expect(f, "error", "versions", "fork: Resource temporarily unavailable", "ulimit -u");
	expect(f, "error", "libfabric", "fork: Resource temporarily unavailable", "ulimit -u");
}

ON_FIXTURE(doctor__huge_pages)
{
	struct cli_fixture *f = *state;

	skip_without("-m");
	examine(f, 0, "-m", SYS SYS_END, "");
	expect(f, "warning", "huge-pages",
	       "memory of embed: stores and of buffers is on small pages",
	       "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
	expect(f, "warning", "huge-pages", "memory of nodes is on small pages",
	       "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled");
	expect(f, "info", "huge-pages", "none of 0 reserved pages", "sysctl vm.nr_hugepages=");
	examine(f, 0, "-m",
		SYS THP THP_AS("enabled", "always [never]") THP_AS("shmem_enabled", "never [deny]")
			RESERVED "echo 0 >$r/free_hugepages;" SYS_END,
		"");
	expect(f, "warning", "huge-pages", "always [never]", "echo madvise");
	expect(f, "warning", "huge-pages", "never [deny]", "echo advise");
	expect(f, "info", "huge-pages", "none of 8 reserved pages", "sysctl vm.nr_hugepages=");
	examine(f, 0, "-m",
		SYS THP THP_AS("enabled", "[madvise] never")
			THP_AS("shmem_enabled", "[advise] deny") RESERVED
		"echo 3 >$r/free_hugepages;" SYS_END,
		"");
	expect(f, "ok", "huge-pages", "[madvise] never", NULL);
	expect(f, "ok", "huge-pages", "[advise] deny", NULL);
	expect(f, "ok", "huge-pages", "3 of 8 reserved pages", NULL);
}

ON_FIXTURE(doctor__clock)
{
	struct cli_fixture *f = *state;

	examine(f, 0, NULL, PRELOAD "SHADOW_ADJTIMEX=0;", "");
	expect(f, "ok", "clock", "synchronised", NULL);
	examine(f, 0, NULL, PRELOAD "SHADOW_ADJTIMEX=5;", "");
	expect(f, "warning", "clock", "not synchronised", "timedatectl set-ntp true");
	examine(f, 0, NULL, PRELOAD "SHADOW_ADJTIMEX=-1;", "");
	expect(f, "info", "clock", "adjtimex: Operation not permitted", "timedatectl");
}

/* -------- containers -------- */

ON_FIXTURE(doctor__memfd)
{
	struct cli_fixture *f = *state;

	examine(f, 0, NULL, "", "");
	expect(f, "ok", "memfd", "sealed and mapped", NULL);
	examine(f, 1, NULL, PRELOAD "SHADOW_NO_MEMFD=1;", "");
	expect(f, "error", "memfd", "memfd_create: Permission denied", "memfd_noexec");
	examine(f, 1, NULL, "ulimit -f 1; trap \"\" XFSZ;", "");
	expect(f, "error", "memfd", "ftruncate: File too large", "memfd_noexec");
}

ON_FIXTURE(doctor__dev_shm)
{
	struct cli_fixture *f = *state;

	skip_without("-m");
	examine(f, 0, "-m", "mount -t tmpfs -o size=2G tmpfs /dev/shm;", "");
	expect(f, "ok", "dev-shm", "2048 MiB", NULL);
	examine(f, 0, "-m", "mount -t tmpfs -o size=64M tmpfs /dev/shm;", "");
	expect(f, "info", "dev-shm", "64 MiB", "docker run --shm-size");
	examine(f, 0, "-m", "mount --bind $DIR /dev/shm;", "");
	expect(f, "info", "dev-shm", "MiB", "docker run --shm-size");
}

ON_FIXTURE(doctor__pid_namespace)
{
	struct cli_fixture *f = *state;

	skip_without("-m -p -f");
	examine(f, 0, "-p -f --kill-child", "", "");
	expect(f, "info", "pid-namespace", "one of a container", "docker run --pid=");
	examine(f, 1, "-m", "mount -t tmpfs tmpfs /proc;", "");
	expect(f, "error", "pid-namespace", "No such file", "mount -t proc proc /proc");
}

/* -------- devices -------- */

#define PORT \
	"p=class/infiniband/mlx5_0/ports/1; mkdir -p $p/gids $p/gid_attrs/types $p/gid_attrs/ndevs; "
#define PORT_IS(state) \
	"echo \"" state "\" >$p/state; echo 100 Gb/sec >$p/rate; echo Ethernet >$p/link_layer; "
#define GID(i, gid, type) \
	"echo " gid " >$p/gids/" i "; echo \"" type "\" >$p/gid_attrs/types/" i \
	"; echo eth9 >$p/gid_attrs/ndevs/" i "; "
#define ZERO "0000:0000:0000:0000:0000:0000:0000:0000"
#define SOME "0000:0000:0000:0000:0000:ffff:0a00:0001"
#define MTU(n) "mkdir -p class/net/eth9; echo " n " >class/net/eth9/mtu; "
#define NO_LOCK "setpriv --bounding-set -ipc_lock "

ON_FIXTURE(doctor__memlock)
{
	struct cli_fixture *f = *state;

	if (geteuid() != 0) {
		print_message("skipped: only root has CAP_IPC_LOCK to give up\n");
		skip();
	}
	examine(f, 0, NULL, "ulimit -l 64; exec " NO_LOCK "$BIN/relive doctor;", "");
	expect(f, "info", "memlock", "64 KiB", "ulimit -l unlimited");
	skip_without("-m");
	examine(f, 0, "-m", SYS PORT SYS_END "ulimit -l 64; exec " NO_LOCK "$BIN/relive doctor;",
		"");
	expect(f, "warning", "memlock", "64 KiB", "ulimit -l unlimited");
	examine(f, 0, NULL, "ulimit -l 64;", "");
	expect(f, "ok", "memlock", "CAP_IPC_LOCK", NULL);
	examine(f, 0, NULL, PRELOAD "SHADOW_LIMIT=-1; exec " NO_LOCK "$BIN/relive doctor;", "");
	expect(f, "ok", "memlock", "unlimited", NULL);
}

ON_FIXTURE(doctor__rdma)
{
	struct cli_fixture *f = *state;

	skip_without("-m");
	examine(f, 0, "-m", SYS SYS_END, "");
	expect(f, "info", "rdma", "no device", "rdma link add");
	examine(f, 0, "-m", SYS PORT PORT_IS("1: DOWN") SYS_END "mount -t tmpfs tmpfs /dev;", "");
	expect(f, "warning", "rdma", "mlx5_0/ports/1: state 1: DOWN", "ip link set");
	expect(f, "warning", "rdma", "/dev/infiniband: uverbs* or rdma_cm is missing", "--device=");
	examine(f, 0, "-m",
		SYS PORT PORT_IS("4: ACTIVE") GID("0", ZERO, "") GID("1", SOME, "IB/RoCE v1")
			SYS_END,
		"");
	expect(f, "warning", "rdma", "has no GID", "ip address add");
	examine(f, 0, "-m",
		SYS PORT PORT_IS("4: ACTIVE") GID("0", SOME, "RoCE v2") MTU("1500") SYS_END, "");
	expect(f, "ok", "rdma", "active, 100 Gb/sec, Ethernet, 1 GIDs", NULL);
	expect(f, "info", "rdma", "MTU 1500 of eth9", "ip link set eth9 mtu 9000");
	examine(f, 0, "-m",
		SYS PORT PORT_IS("4: ACTIVE") GID("0", SOME, "RoCE v2") MTU("9000") SYS_END
		"mount -t tmpfs tmpfs /dev; mkdir /dev/infiniband; >/dev/infiniband/rdma_cm; "
		">/dev/infiniband/uverbs0;",
		"");
	expect(f, "ok", "rdma", "MTU 9000 of eth9", NULL);
	assert_null(strstr(f->out, "/dev/infiniband"));
}

ON_FIXTURE(doctor__libraries)
{
	static const char broken[] =
		"mkdir -p $DIR/lib; for l in libibverbs librdmacm libfabric; do "
		"echo >$DIR/lib/$l.so.1; done; export LD_LIBRARY_PATH=$DIR/lib;";
	struct cli_fixture *f = *state;

	examine(f, 0, NULL, broken, "");
	expect(f, "info", "libfabric", "libfabric.so.1:", "apt-get install libfabric1");
	skip_without("-m");
	examine(f, 0, "-m",
		SYS SYS_END
		"mkdir -p $DIR/lib; for l in libibverbs librdmacm; do echo >$DIR/lib/$l.so.1; done; "
		"export LD_LIBRARY_PATH=$DIR/lib;",
		"");
	expect(f, "info", "rdma", "libibverbs.so.1:", "apt-get install libibverbs1");
	expect(f, "info", "rdma", "librdmacm.so.1:", "apt-get install libibverbs1");
	examine(f, 0, "-m",
		SYS PORT SYS_END
		"mkdir -p $DIR/lib; for l in libibverbs librdmacm; do echo >$DIR/lib/$l.so.1; done; "
		"export LD_LIBRARY_PATH=$DIR/lib;",
		"");
	expect(f, "warning", "rdma", "libibverbs.so.1:", "apt-get install libibverbs1");
}

#define FABRIC(what) "export LD_LIBRARY_PATH=$SHADOW SHADOW_CALL=\"" what "\";"

ON_FIXTURE(doctor__libfabric)
{
	struct cli_fixture *f = *state;

	examine(f, 0, NULL, FABRIC("works"), "");
	expect(f, "ok", "libfabric", "libfabric 1.99: prov (d0) prov (d1)", NULL);
	examine(f, 0, NULL,
		"ln -s $BIN/../lib/librelive.so $DIR/libfabric.so.1; export LD_LIBRARY_PATH=$DIR;",
		"");
	expect(f, "info", "libfabric", "has no fi_version", "apt-get install libfabric1");
	examine(f, 0, NULL, FABRIC("fabric fails"), "");
	expect(f, "warning", "libfabric", "fi_getinfo: No data available", "fi_info");
	examine(f, 0, NULL, FABRIC("fabric crashes"), "");
	expect(f, "warning", "libfabric", "the check crashed: killed by SIGABRT", "send a report");
	examine(f, 0, NULL, FABRIC("fabric hangs"), "--timeout 500ms");
	expect(f, "warning", "libfabric", "no answer in 0.5 s", "--timeout 30s");
}

#define CUDA(library) "export RLV_CUDA_LIBRARY=" library ";"

ON_FIXTURE(doctor__gpu)
{
	struct cli_fixture *f = *state;

	examine(f, 0, NULL, CUDA("/none"), "");
	expect(f, "info", "gpu", "dlopen(/none): ", NULL);
	examine(f, 0, NULL, CUDA("$BIN/../lib/fakecuda/libcuda.so.1"), "");
	expect(f, "ok", "gpu",
	       "cuda:0 is fake device 0; batches come by the path pinned, with weights of the device",
	       NULL);
	expect(f, "info", "gpu", "path in place: the device has memory of its own", NULL);
	expect(f, "info", "gpu", "path gather: possible; a wish", NULL);
	examine(f, 0, NULL,
		CUDA("$BIN/../lib/fakecuda/libcuda.so.1") "export RLV_FAKECUDA=hide=cuMemMap;", "");
	expect(f, "info", "gpu", "cuMemMap: the CUDA driver (13.0) has no such call", NULL);
}

/* -------- the way to a store -------- */

ON_FIXTURE(doctor__sound_store_is_0)
{
	struct cli_fixture *f = *state;
	uint16_t port = processes_free_port();
	char line[128];

	snprintf(line, sizeof(line), "up --size 64M --listen 127.0.0.1:%u", port);
	cli_expect(f, line, 0);
	examine(f, 0, NULL, "", "--store default");
	expect(f, "ok", "address", "metad.sock accepts", NULL);
	expect(f, "ok", "server", "took our token", NULL);
	expect(f, "ok", "server", "relive 0.1.0, as ours", NULL);
	expect(f, "ok", "server", "its clock agrees with ours", NULL);
	expect(f, "ok", "nodes", "node 0 is up: shm:", NULL);
	expect(f, "info", "tables", "no table", "relive table create");
	cli_expect(f, "table create t --capacity 2^12", 0);
	snprintf(line, sizeof(line), "relive://127.0.0.1:%u --json", port);
	examine(f, 0, NULL, "", line);
	cli_expect_words(f->out,
			 "{\"findings\":[{\"check\":\"versions\",\"severity\":\"ok\",\"seen\":");
	cli_expect_words(f->out, "{\"check\":\"tables\",\"severity\":\"ok\",\"seen\":\"table t: "
				 "opened, 1 shards\"}],\"errors\":0,\"warnings\":");
}

ON_FIXTURE(doctor__address_on_this_host)
{
	struct cli_fixture *f = *state;
	pid_t pid;

	examine(f, 1, NULL, "", "shm:none");
	expect(f, "error", "address", "No such file", "relive up --store none");
	assert_null(strstr(f->out, "server         "));
	cli_expect(f, "up --size 32M --json", 0);
	pid = cli_pid(f, "\"metad_pid\":");
	examine(f, 1, NULL, "chmod 644 $DIR/default/token;", "shm:default");
	expect(f, "error", "address", "mode 644, want 0600", "relive token ROLE");
	examine(f, 1, NULL, "chmod 777 $DIR/default;", "shm:default");
	expect(f, "error", "address", "lets others in", "the user who started the store");
	setenv("RELIVE_TOKEN", TOKEN, 1);
	examine(f, 1, NULL, "chmod 700 $DIR/default;", "shm:default");
	expect(f, "ok", "address", "metad.sock accepts", NULL);
	cli_kill_daemon(pid);
	examine(f, 1, NULL, "chmod 700 $DIR/default;", "shm:default");
	expect(f, "error", "address", "Connection refused", "relive up --store default");
}

ON_FIXTURE(doctor__address_of_another_host)
{
	struct cli_fixture *f = *state;
	char args[64];

	snprintf(args, sizeof(args), "relive://127.0.0.1:%u", processes_free_port());
	examine(f, 1, NULL, "", args);
	expect(f, "error", "address", "Connection refused", "--listen HOST:PORT on that host");
	skip_without("-n");
	examine(f, 1, "-n", "", "relive://nobody.invalid");
	expect(f, "error", "address", "nobody.invalid:7117", "getent hosts");
	examine(f, 1, "-n", "", "relive://10.1.2.3:7117");
	expect(f, "error", "address", "Network is unreachable", "firewalls");
}

/* A server that accepts and never answers: the check is bounded, and Ctrl-C ends it at once. */
ON_FIXTURE(doctor__silent_server)
{
	struct cli_fixture *f = *state;
	uint64_t began = clock_now_ns(clock_monotonic());
	uint16_t port = 0;
	int fd = sockets_listen_tcp(&port);
	char args[64], before[128];

	setenv("RELIVE_TOKEN", TOKEN, 1);
	snprintf(args, sizeof(args), "relive://127.0.0.1:%u --timeout 2s", port);
	examine(f, 1, NULL, "", args);
	expect(f, "ok", "address", "accepts", NULL);
	expect(f, "error", "server", "does not answer", "relive up --store NAME");
	snprintf(before, sizeof(before),
		 "exec timeout -s INT 1 $BIN/relive doctor relive://127.0.0.1:%u --timeout 50s;",
		 port);
	examine(f, 124, NULL, before, "");
	assert_true(clock_now_ns(clock_monotonic()) - began < 25 * CLOCK_NS_PER_S);
	close(fd);
}

ON_FIXTURE(doctor__server_that_refuses)
{
	struct cli_fixture *f = *state;
	uint16_t port = processes_free_port();
	char line[128];

	snprintf(line, sizeof(line), "up --size 32M --listen 127.0.0.1:%u", port);
	cli_expect(f, line, 0);
	setenv("RELIVE_TOKEN", TOKEN, 1);
	snprintf(line, sizeof(line), "relive://127.0.0.1:%u", port);
	examine(f, 1, NULL, "", line);
	expect(f, "ok", "address", "accepts", NULL);
	expect(f, "error", "server", "EACCES", "set RELIVE_TOKEN");
	assert_null(strstr(f->out, "nodes          "));
}

#define TLS(name) \
	"export RELIVE_TLS_CERT=$DIR/" name ".pem RELIVE_TLS_KEY=$DIR/" name \
	".key RELIVE_TLS_CA=$DIR/" name "-ca.pem;"

ON_FIXTURE(doctor__server_with_certificates)
{
	struct cli_fixture *f = *state;
	struct certificates ours, others;
	uint16_t port = processes_free_port();
	char line[1024];

	certificates_make(&ours, f->ps.dir, "ours");
	certificates_make(&others, f->ps.dir, "others");
	snprintf(line, sizeof(line),
		 "up --size 32M --listen 127.0.0.1:%u --tls-cert %s --tls-key %s --tls-ca %s", port,
		 ours.cert, ours.key, ours.ca);
	cli_expect(f, line, 0);
	snprintf(line, sizeof(line), "relive://127.0.0.1:%u", port);
	examine(f, 1, NULL, "", line);
	expect(f, "error", "server", "it wants certificates", "set RELIVE_TOKEN");
	examine(f, 1, NULL, TLS("others"), line);
	expect(f, "error", "server", "certificates do not agree", "set RELIVE_TLS_CERT");
	examine(f, 0, NULL, TLS("ours"), line);
	expect(f, "ok", "server", "took our token", NULL);
}

/* Answers the first request on the socket by a frame of another version. */
static int answer_version_9(void *ctx)
{
	const int *listener = ctx;
	uint8_t request[256], frame[24] = { [4] = 1, [5] = 0x80, [6] = 9, [8] = 1 };
	int fd;

	while ((fd = accept(*listener, NULL, NULL)) >= 0) {
		if (read(fd, request, sizeof(request)) > 0)
			(void)!write(fd, frame, sizeof(frame));
		close(fd);
	}
	return 1;
}

ON_FIXTURE(doctor__server_of_another_protocol)
{
	struct cli_fixture *f = *state;
	char path[PROCESSES_PATH + 64];
	pid_t pid;
	int fd;

	processes_path(&f->ps, "old", path);
	assert_int_equal(mkdir(path, 0700), 0);
	processes_path(&f->ps, "old/metad.sock", path);
	fd = sockets_listen_unix(path, SOCK_STREAM);
	pid = processes_fork(&f->ps, answer_version_9, &fd);
	examine(f, 1, NULL, "umask 077; echo " TOKEN " >$DIR/old/token;", "shm:old");
	expect(f, "error", "server", "frames of version 9", "docs/versions.md");
	processes_kill(&f->ps, pid, SIGKILL);
	close(fd);
}

ON_FIXTURE(doctor__server_as_it_answers)
{
	struct cli_fixture *f = *state;

	cli_expect(f, "up --size 32M", 0);
	examine(f, 0, NULL, PRELOAD "SHADOW_VERSION=0.0.9;", "shm:default");
	expect(f, "info", "server", "relive 0.1.0, ours is 0.0.9", "install the server");
	examine(f, 0, NULL, PRELOAD "SHADOW_CLOCK_S=100;", "shm:default");
	expect(f, "warning", "server", "s behind ours", "set-ntp true, on both");
	examine(f, 0, NULL, PRELOAD "SHADOW_CLOCK_S=-100;", "shm:default");
	expect(f, "warning", "server", "s ahead of ours", "set-ntp true, on both");
	examine(f, 1, NULL, PRELOAD "SHADOW_CALL=\"info fails\";", "shm:default");
	expect(f, "error", "server", "(ETIMEDOUT)", "the log of relive-metad");
	examine(f, 1, NULL, PRELOAD "SHADOW_CALL=\"tables fails\";", "shm:default");
	expect(f, "error", "tables", "", "the log of relive-metad");
}

/* -------- nodes and tables -------- */

ON_FIXTURE(doctor__store_without_nodes)
{
	struct cli_fixture *f = *state;

	processes_metad(&f->ps, "s", NULL);
	examine(f, 1, NULL, "", "shm:s");
	expect(f, "error", "nodes", "has no memory node", "relive node add shm:s NAME");
}

ON_FIXTURE(doctor__nodes_as_the_server_sees_them)
{
	struct cli_fixture *f = *state;
	pid_t pid;

	cli_expect(f, "up --size 32M --nodes 2 --node-lease 10s --json", 0);
	pid = cli_pid(f, "\"memnode_pids\":[");
	examine(f, 0, NULL, PRELOAD "SHADOW_CALL=\"node lost\";", "shm:default");
	expect(f, "warning", "nodes", "is lost, with its items", "relive node add");
	examine(f, 1, NULL, PRELOAD "SHADOW_CALL=\"node broken\";", "shm:default");
	expect(f, "error", "nodes", "2 regions are broken", "relive inspect");
	cli_kill_daemon(pid);
	do /* until the server knows */
		cli_expect(f, "status shm:default --json", 0);
	while (!strstr(f->out, "\"state\":\"down\""));
	examine(f, 1, NULL, "", "shm:default");
	expect(f, "error", "nodes", "is down for", "relive up --store NAME on its host");
}

ON_FIXTURE(doctor__nodes_in_other_namespaces)
{
	struct cli_fixture *f = *state;

	skip_without("-m -p -f");
	cli_expect(f, "up --size 64M", 0);
	cli_expect(f, "table create t --capacity 2^12", 0);
	examine(f, 1, "-p -f --kill-child", "", "shm:default");
	expect(f, "error", "nodes", "in another pid namespace", "docker run --pid=container:NODE");
	expect(f, "error", "tables", "(EPERM)", "docker run --pid=container:NODE");
	examine(f, 1, "-p -f --kill-child", PRELOAD "SHADOW_CALL=\"node verbs\";", "shm:default");
	expect(f, "info", "nodes", "in another pid namespace", "docker run --pid=container:NODE");
	examine(f, 0, "-m", "mount -t tmpfs tmpfs /dev/shm;", "shm:default");
	expect(f, "info", "nodes", "another /dev/shm", "docker run --ipc=container:NODE");
	expect(f, "ok", "tables", "table t: opened, 1 shards", NULL);
}

/* A node whose socket is not reachable from here, as in a container without its folder. */
ON_FIXTURE(doctor__node_and_shard_out_of_reach)
{
	struct cli_fixture *f = *state;

	skip_without("-m");
	cli_expect(f, "up --size 64M --nodes 2", 0);
	cli_expect(f, "table create t --capacity 2^13 --shards auto", 0);
	examine(f, 1, "-m", "mount --bind /dev/null $DIR/default/memnode-1.sock;", "shm:default");
	expect(f, "error", "nodes", "node 1: connect", "--transport verbs");
	expect(f, "error", "tables", "on node 1, shm:", "relive status --why");
	expect(f, "ok", "tables", "table t: opened", NULL);
}

int main(void)
{
	return test_run(NULL, NULL);
}
