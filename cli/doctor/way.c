/* way.c - the way from this host to a store: address, server, memory nodes, memory. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "relive/relive.h"

#include "base/os/clock.h"
#include "base/os/runtime_dir.h"
#include "cli/cli.h"
#include "cli/doctor/doctor.h"
#include "cli/store_status.h"
#include "cli/tcp.h"

/* One call of the library, of several in a check, gets that part of the check's time. */
#define PART 4

#define SHARE_PIDS "docker run --pid=container:NODE, or shareProcessNamespace: true of a pod"

/* -------- address -------- */

/*
 * Connects to a unix socket and closes it again. *pid_out: the process that listens, 0 = it is not
 * in our pid namespace.
 */
static int probe_socket(const char *path, int type, pid_t *pid_out)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), ret = 0;
	struct ucred peer = { 0 };
	socklen_t len = sizeof(peer);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof(address)) ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len))
		ret = error_set(-errno, "connect %s: %m", path);
	if (fd >= 0)
		close(fd);
	*pid_out = peer.pid;
	return ret;
}

static void check_local(struct doctor *doctor, const char *name)
{
	char path[RUNTIME_PATH_BYTES] = "", token[RUNTIME_TOKEN_BYTES];
	const char *given = getenv("RELIVE_TOKEN");
	struct runtime_dir dir;
	int ret = runtime_dir_visit(name, &dir), token_ret;
	pid_t pid;

	if (ret == 0)
		ret = runtime_dir_file(&dir, "metad.sock", path);
	if (ret == 0)
		ret = probe_socket(path, SOCK_STREAM, &pid);
	token_ret = ret ? 0 : runtime_dir_token(&dir, token);
	if (ret == -EACCES)
		doctor_found(
			doctor, FINDING_ERROR,
			"%s\nrun as the user who started the store, or relive up --group GROUP",
			error_last());
	else if (ret)
		doctor_found(
			doctor, FINDING_ERROR,
			"%s\nrelive up --store %s, or set RELIVE_RUNTIME_DIR as its daemons have "
			"it",
			error_last(), name);
	else if (token_ret && (token_ret != -EACCES || !given || !*given))
		doctor_found(
			doctor, FINDING_ERROR,
			"%s\nexport RELIVE_TOKEN=TOKEN, as relive token ROLE of its owner prints",
			error_last());
	else
		doctor_found(doctor, FINDING_OK, "%s accepts", path);
}

static void check_remote(struct doctor *doctor, const char *where)
{
	uint64_t deadline = deadline_after(clock_monotonic(), doctor->timeout_ns / PART * 3);
	bool has_port = strchr(*where == '[' ? where + strcspn(where, "]") : where, ':');
	const char *fix = "relive up --store NAME --listen HOST:PORT on that host";
	char address[CLI_STORE_BYTES];
	int fd, ret;

	snprintf(address, sizeof(address), "%s%s", where, has_port ? "" : ":7117");
	ret = tcp_connect(address, deadline, &fd);
	if (ret == -ENOENT)
		fix = "a name that this host resolves: getent hosts NAME";
	else if (ret == -ETIMEDOUT || ret == -EHOSTUNREACH || ret == -ENETUNREACH)
		fix = "let TCP to that port through: routes, firewalls, network policies";
	if (ret) {
		doctor_found(doctor, FINDING_ERROR, "%s: %s\n%s", address, error_last(), fix);
		return;
	}
	doctor_found(doctor, FINDING_OK, "%s accepts", address);
	close(fd);
}

void doctor_address(struct doctor *doctor)
{
	if (strncmp(doctor->uri, "shm:", 4) == 0)
		check_local(doctor, doctor->uri + 4);
	else
		check_remote(doctor, doctor->uri + strlen("relive://"));
}

/* -------- nodes: as the server sees them, and their sockets on this host -------- */

/* True if both processes have the same link /proc/PID/ns/pid; also when it cannot be read. */
static bool same_pid_namespace(pid_t pid)
{
	char path[64], theirs[64] = "", ours[64] = "";

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
	return pid && (readlink(path, theirs, sizeof(theirs) - 1) < 0 ||
		       readlink("/proc/self/ns/pid", ours, sizeof(ours) - 1) < 0 ||
		       strcmp(ours, theirs) == 0);
}

/*
 * Checks the socket of a node that is on this host. address: shm:PATH, or
 * TRANSPORT:HOST:PORT;PATH.
 */
static void check_node_socket(struct doctor *doctor, const struct rlv_node_info *node)
{
	bool is_shm = strcmp(node->transport, "shm") == 0; /* else the network is left */
	const char *path = strchr(node->address, is_shm ? ':' : ';');
	struct stat ours, theirs;
	char shm[64];
	pid_t pid;

	if (!path)
		return;
	if (probe_socket(path + 1, SOCK_SEQPACKET, &pid)) {
		if (is_shm)
			doctor_found(
				doctor, FINDING_ERROR,
				"node %s: %s: it serves its own host alone\n"
				"relive node add URI NAME --transport verbs for a node that RDMA "
				"reaches, or mount the folder of its socket here",
				node->name, error_last());
		return;
	}
	if (!same_pid_namespace(pid)) {
		doctor_found(
			doctor, is_shm ? FINDING_ERROR : FINDING_INFO,
			"node %s: it is in another pid namespace, so we cannot map its memory\n" SHARE_PIDS,
			node->name);
		return;
	}
	snprintf(shm, sizeof(shm), "/proc/%d/root/dev/shm", (int)pid);
	if (stat("/dev/shm", &ours) == 0 && stat(shm, &theirs) == 0 && ours.st_dev != theirs.st_dev)
		doctor_found(doctor, FINDING_INFO,
			     "node %s: it has another /dev/shm: memfds need none, libfabric's shm "
			     "provider does\n"
			     "docker run --ipc=container:NODE, or one emptyDir at /dev/shm of both",
			     node->name);
}

static void check_node(struct doctor *doctor, const struct rlv_node_info *node)
{
	if (node->state == RLV_NODE_LOST) {
		doctor_found(doctor, FINDING_WARNING,
			     "node %s is lost, with its items\nrelive node add URI NAME",
			     node->name);
	} else if (!store_node_is_up(node)) {
		doctor_found(doctor, FINDING_ERROR,
			     "node %s, %s, is down for %.1f s\n"
			     "relive up --store NAME on its host starts it again",
			     node->name, node->address, (double)node->silent_ns / CLOCK_NS_PER_S);
	} else if (node->broken) {
		doctor_found(doctor, FINDING_ERROR,
			     "node %s: %u regions are broken\n"
			     "relive inspect; the log of the node names the files",
			     node->name, node->broken);
	} else {
		doctor_found(doctor, FINDING_OK, "node %s is %s: %s", node->name,
			     node->state == RLV_NODE_DRAINING ? "draining" : "up", node->address);
		check_node_socket(doctor, node);
	}
}

/* -------- tables: their memory is opened, as writers and samplers do -------- */

#define TABLES 16  /* that are tried */
#define SHARDS 256 /* of each */

static void check_table(struct doctor *doctor, struct rlv_store *store, const char *name)
{
	static struct rlv_shard_info shards[SHARDS];
	struct rlv_table *table;
	size_t n = SHARDS;
	int ret = rlv_table_open(store, name, &table);

	if (ret == 0)
		ret = rlv_table_shards(table, shards, sizeof(shards[0]), &n);
	if (ret) { /* the child ends, and an open table with it */
		doctor_found(doctor, FINDING_ERROR, "table %s: %s (%s)\n%s", name, rlv_last_error(),
			     rlv_error_name(ret),
			     ret == -EPERM ? SHARE_PIDS
			     : ret == -ENOMEM
				     ? "ulimit -l unlimited, or more memory"
				     : "relive status --why; the log of the node says more");
		return;
	}
	doctor_found(doctor, FINDING_OK, "table %s: opened, %zu shards", name, n);
	for (size_t i = 0; i < n && i < SHARDS; i++)
		if (shards[i].state == RLV_SHARD_DOWN)
			doctor_found(
				doctor, FINDING_ERROR,
				"table %s: shard %u on node %s, %s, is not reachable from here\n"
				"relive status --why; the log of the node says more",
				name, shards[i].shard, shards[i].node, shards[i].address);
	cli_closed(rlv_table_close(&table), "table");
}

static void check_tables(struct doctor *doctor, struct rlv_store *store)
{
	char names[TABLES][RLV_NAME_BYTES];
	size_t n = TABLES;

	if (rlv_store_tables(store, names, &n))
		doctor_found(doctor, FINDING_ERROR, "%s\nthe log of relive-metad says more",
			     rlv_last_error());
	else if (n == 0)
		doctor_found(doctor, FINDING_INFO,
			     "no table, so no memory was opened\n"
			     "relive table create NAME, then relive doctor again");
	else
		for (size_t i = 0; i < n && i < TABLES; i++)
			check_table(doctor, store, names[i]);
}

/* -------- server -------- */

/* The server read its clock after `asked` and before `answered`, which are of ours. */
static void check_clocks(struct doctor *doctor, uint64_t theirs, uint64_t asked, uint64_t answered)
{
	double ahead = ((double)theirs - (double)answered) / CLOCK_NS_PER_S;
	double behind = ((double)asked - (double)theirs) / CLOCK_NS_PER_S;

	if (theirs && (ahead > 1 || behind > 1))
		doctor_found(
			doctor, FINDING_WARNING,
			"its clock is %.1f s %s ours: times in logs differ, and certificates may "
			"be refused\n"
			"timedatectl set-ntp true, on both hosts",
			ahead > 1 ? ahead : behind, ahead > 1 ? "ahead of" : "behind");
	else if (theirs)
		doctor_found(doctor, FINDING_OK, "its clock agrees with ours within 1 s");
}

static void check_server(struct doctor *doctor, struct rlv_store *store)
{
	uint64_t asked = clock_read_ns(CLOCK_REALTIME), answered;
	struct store_status status;
	int ret = store_status_read(store, &status);

	answered = clock_read_ns(CLOCK_REALTIME);
	if (ret) {
		doctor_found(doctor, FINDING_ERROR, "%s (%s)\nthe log of relive-metad says more",
			     rlv_last_error(), rlv_error_name(ret));
		return;
	}
	if (strcmp(status.info.server_version, rlv_version()) == 0)
		doctor_found(doctor, FINDING_OK, "relive %s, as ours", rlv_version());
	else
		doctor_found(doctor, FINDING_INFO,
			     "relive %s, ours is %s, with the same protocol\n"
			     "install the server's release here",
			     status.info.server_version, rlv_version());
	check_clocks(doctor, status.info.clock_ns, asked, answered);
	doctor->check = "nodes";
	for (size_t i = 0; i < status.n_nodes; i++)
		check_node(doctor, &status.nodes[i]);
	if (status.n_nodes == 0)
		doctor_found(doctor, FINDING_ERROR,
			     "the store has no memory node\nrelive node add %s NAME", doctor->uri);
	doctor->check = "tables";
	check_tables(doctor, store);
}

void doctor_server(struct doctor *doctor)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	uint64_t began = clock_read_ns(CLOCK_MONOTONIC);
	char remedy[CLI_REMEDY_BYTES];
	struct rlv_store *store;
	int ret;

	opts.timeout_ns = doctor->timeout_ns / PART;
	opts.read_only = true;
	ret = rlv_store_open(doctor->uri, &opts, &store);
	if (ret) {
		doctor_found(doctor, FINDING_ERROR, "%s (%s)\n%s", rlv_last_error(),
			     rlv_error_name(ret),
			     ret == -EPROTO ? "install the server's release here: docs/versions.md"
					    : cli_open_remedy(doctor->uri, ret, remedy));
		return;
	}
	doctor_found(doctor, FINDING_OK, "took our token, in %.1f ms",
		     (double)(clock_read_ns(CLOCK_MONOTONIC) - began) / CLOCK_NS_PER_MS);
	check_server(doctor, store);
	cli_closed(rlv_store_close(&store), "store");
}
