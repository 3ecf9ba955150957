#include "server/memnode/memnode.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "transport/transport.h"

#include "wire/dial.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"
#include "base/os/runtime_dir.h"

#include "server/net/http.h"
#include "server/memnode/jobs.h"
#include "server/memnode/pages.h"
#include "server/memnode/pool.h"
#include "server/memnode/service.h"
#include "server/daemon/version.h"

#define LOOK_NS (100 * CLOCK_NS_PER_MS) /* latency of noticing a stop */

enum { RETRY_FIRST_MS = 20, RETRY_LAST_MS = 1000, RETRY_REFUSED_MS = 5000 };

struct memnode {
	struct memnode_opts opts;
	struct runtime_dir dir;
	char role_name[64]; /* memnode-NAME: for lock, pid file and socket */
	int lock_fd;
	struct transport_target *target;
	pthread_t agent;
	bool serving;
	int stop_agent;           /* eventfd: readable = stop the agent */
	int bell;                 /* eventfd: the agent reads it to show that it runs */
	_Atomic uint64_t rung_ns; /* time of an unanswered ring, 0 = none; relaxed: a time only */
	struct http *http;        /* NULL = not served */
	struct memnode_jobs *lines[MEMNODE_LINES]; /* by enum memnode_line; [0] is NULL */
	uint64_t silence_ns;  /* the server is dialled again after so much silence */
	uint64_t connections; /* number of ended connections to the server */
	uint64_t term;        /* highest term seen: a lower one is from a stale server */
	bool registered;      /* registered at least once */
	bool connected;       /* connected to the server and registered */
	uint64_t registrations;
};

static bool memnode_stopped(const struct memnode *node)
{
	return node->opts.stop && *node->opts.stop;
}

static uint64_t deadline_in(int64_t ns)
{
	return deadline_after(clock_monotonic(), ns);
}

/* -------- pool and socket -------- */

/* Binding works only for a local address. */
static bool is_of_this_host(const char *host)
{
	struct addrinfo wanted = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;
	bool is = false;

	if (getaddrinfo(host, NULL, &wanted, &found))
		return false;
	for (const struct addrinfo *at = found; at && !is; at = at->ai_next) {
		int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

		is = fd >= 0 && bind(fd, at->ai_addr, at->ai_addrlen) == 0;
		if (fd >= 0)
			close(fd);
	}
	freeaddrinfo(found);
	return is;
}

/* Target kind. NULL: unknown transport. */
static const char *choose_kind(const struct memnode_opts *opts)
{
	const char *wish = opts->transport ? opts->transport : "auto";

	if (strcmp(wish, "shm") == 0)
		return opts->listen ? NULL : "shm";
	if (strcmp(wish, "verbs") == 0)
		return "verbs";
	if (strcmp(wish, "auto") != 0)
		return NULL;
	return opts->listen || (opts->host && !is_of_this_host(opts->host)) ? "verbs" : "shm";
}

/*
 * Target name. shm: socket path; verbs: HOST:PORT;PATH, or HOST:PORT for a device, which clients of
 * this host then reach over the network, too.
 */
static int listen_address(const struct memnode *node, const struct target_opts *opts,
			  const char *kind, char address[TRANSPORT_URI_BYTES])
{
	bool mapped = !opts->path || opts->dir || opts->trust_clients;
	char path[RUNTIME_PATH_BYTES], file[RUNTIME_PATH_BYTES];
	const char *at = node->opts.listen ? node->opts.listen : ":0";
	int n, ret;

	snprintf(file, sizeof(file), "%s.sock", node->role_name);
	ret = runtime_dir_file(&node->dir, file, path);
	if (ret)
		return ret;
	if (strcmp(kind, "verbs") == 0)
		n = snprintf(address, TRANSPORT_URI_BYTES, "%s%s%s", at, mapped ? ";" : "",
			     mapped ? path : "");
	else
		n = snprintf(address, TRANSPORT_URI_BYTES, "%s", path);
	if (n < 0 || n >= TRANSPORT_URI_BYTES)
		return error_set(-ENAMETOOLONG, "listen on %.64s: address too long", at);
	return 0;
}

/*
 * A pool is a directory or a device. A pool in one file would give each client a descriptor of all
 * other clients' data. Errors of looking at the path are left to the pool.
 */
static int choose_path(const struct memnode_opts *opts, struct target_opts *target)
{
	struct stat st;
	bool is_there = opts->path && stat(opts->path, &st) == 0;

	if (is_there && S_ISREG(st.st_mode))
		return error_set(-ENOTDIR,
				 "pool %s: is a file, and a memory node keeps its pool in a "
				 "directory (a pool in one file is opened by embed:%s)",
				 opts->path, opts->path);
	target->path = opts->path;
	target->dir = opts->path && !(is_there && S_ISCHR(st.st_mode));
	return 0;
}

static int open_target(struct memnode *node)
{
	struct target_opts opts = {
		.pool_bytes = node->opts.pool_bytes,
		.create = true,
		.page_kind = node->opts.pages,
		.buffers = node->opts.buffers,
		.trust_clients = node->opts.trust_clients,
	};
	const char *kind = choose_kind(&node->opts);
	char address[TRANSPORT_URI_BYTES], file[RUNTIME_PATH_BYTES];
	uint64_t available = pages_available();
	int ret = choose_path(&node->opts, &opts);

	if (!kind)
		return error_set(-EINVAL,
				 "transport %.16s%s: want auto, shm (without --listen) or verbs",
				 node->opts.transport, node->opts.listen ? " with --listen" : "");
	if (ret == 0 && !opts.path) {
		if (!opts.pool_bytes)
			opts.pool_bytes = UINT64_C(1) << 30;
		if (opts.pool_bytes > available)
			ret = error_set(-ENOMEM,
					"pool of %" PRIu64 " MiB: the host has %" PRIu64
					" MiB available, take a smaller --size or a --file",
					opts.pool_bytes >> 20, available >> 20);
	}
	if (ret == 0)
		ret = listen_address(node, &opts, kind, address);
	if (ret == 0)
		ret = transport_target_open(kind, &opts, &node->target);
	if (ret == 0 && opts.path)
		ret = memnode_pool_begin(node->target);
	if (ret == 0)
		ret = node->target->ops->listen(node->target, address);
	/*
	 * Pages of a pool that a device knows are not files of their own: another user of this host,
	 * who would map them all, goes over RDMA, where windows keep him to his page.
	 */
	if (ret || (strcmp(kind, "verbs") == 0 && !opts.trust_clients))
		return ret;
	snprintf(file, sizeof(file), "%s.sock", node->role_name);
	ret = runtime_dir_share_socket(&node->dir, file);
	return ret == -ENOENT ? 0 : ret; /* a device has no socket */
}

/* -------- the agent -------- */

/* Sleeps until a client needs service: a target without a descriptor is polled periodically. */
static void *serve_clients(void *arg)
{
	struct memnode *node = arg;
	int fd = node->target->ops->poll_fd(node->target);
	struct pollfd ready[] = { { .fd = node->stop_agent, .events = POLLIN },
				  { .fd = node->bell, .events = POLLIN },
				  { .fd = fd, .events = POLLIN } };
	uint64_t n;

	for (;;) {
		(void)poll(ready, 3, fd < 0 ? LOOK_NS / CLOCK_NS_PER_MS : -1);
		if (ready[0].revents)
			return NULL;
		/* Answers check_health. */
		if (read(node->bell, &n, sizeof(n)) == (ssize_t)sizeof(n))
			atomic_store_explicit(&node->rung_ns, 0, memory_order_relaxed);
		if (node->target->ops->progress(node->target, 0)) {
			log_error("serve: %s", error_last());
			usleep(LOOK_NS / CLOCK_NS_PER_US);
		}
	}
}

static int start_agent(struct memnode *node)
{
	int ret;

	node->stop_agent = eventfd(0, EFD_CLOEXEC);
	node->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (node->stop_agent < 0 || node->bell < 0)
		return error_set(-errno, "eventfd: %s", strerror(errno));
	ret = pthread_create(&node->agent, NULL, serve_clients, node);
	if (ret)
		return error_set(-ret, "start the thread of the agent: %s", strerror(ret));
	node->serving = true;
	return 0;
}

static void stop_agent(struct memnode *node)
{
	const uint64_t one = 1;

	if (node->serving && write(node->stop_agent, &one, sizeof(one)) == (ssize_t)sizeof(one))
		pthread_join(node->agent, NULL);
	if (node->stop_agent >= 0)
		close(node->stop_agent);
	if (node->bell >= 0)
		close(node->bell);
}

static uint64_t agent_cpu_ns(void *ctx)
{
	const struct memnode *node = ctx;
	struct timespec ts = { 0 };
	clockid_t clock;

	if (pthread_getcpuclockid(node->agent, &clock) || clock_gettime(clock, &ts))
		return 0;
	return (uint64_t)ts.tv_sec * CLOCK_NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* -------- pages -------- */

static void write_metrics(void *ctx, struct metrics *m)
{
	struct memnode *node = ctx;
	const struct memnode_state state = {
		.name = node->opts.name,
		.store = node->opts.store,
		.target = node->target,
		.registered = node->connected,
		.registrations = node->registrations,
		.agent_cpu_ns = agent_cpu_ns(node),
	};

	memnode_write_metrics(&state, m);
}

/*
 * Healthy without the server: clients continue, and a restart would lose a pool in memory. Rings the
 * agent, and checks that it has answered the previous ring.
 */
static int check_health(void *ctx)
{
	struct memnode *node = ctx;
	const char *uri = node->target->ops->uri(node->target);
	uint64_t now = clock_now_ns(clock_monotonic());
	uint64_t rung = atomic_load_explicit(&node->rung_ns, memory_order_relaxed);
	const uint64_t one = 1;

	if (strncmp(uri, "shm:", 4) == 0 && access(uri + 4, F_OK))
		return error_set(-errno, "socket %s: %s", uri + 4, strerror(errno));
	if (node->opts.path && access(node->opts.path, F_OK))
		return error_set(-errno, "pool %s: %s", node->opts.path, strerror(errno));
	if (rung && now - rung > HTTP_PATIENCE_NS)
		return error_set(-ETIMEDOUT, "the thread that serves clients is stuck");
	if (rung)
		return 0;
	atomic_store_explicit(&node->rung_ns, now, memory_order_relaxed);
	(void)!write(node->bell, &one, sizeof(one));
	return 0;
}

/* -------- open and close -------- */

static int take_name(struct memnode *node)
{
	int pid = 0;
	int ret = runtime_dir_open(node->opts.store, true, &node->dir);

	if (ret)
		return ret;
	snprintf(node->role_name, sizeof(node->role_name), "memnode-%s", node->opts.name);
	ret = runtime_dir_lock(&node->dir, node->role_name, &node->lock_fd, &pid);
	if (ret == -EBUSY)
		return error_set(ret, "memory node %s of store %s runs already: pid %d",
				 node->opts.name, node->opts.store, pid);
	return ret ? ret : runtime_dir_share(&node->dir, node->opts.group);
}

int memnode_open(const struct memnode_opts *opts, struct memnode **node_out)
{
	struct http_opts pages = {
		.address = opts->metrics,
		.metrics = write_metrics,
		.health = check_health,
	};
	struct memnode *node;
	int ret;

	if (!runtime_name_is_valid(opts->name))
		return error_set(-EINVAL, "node name \"%.64s\": want letters, digits, _ - .",
				 opts->name);
	node = mem_zalloc(sizeof(*node));
	if (!node)
		return error_set(-ENOMEM, "memory node: cannot allocate memory");
	node->opts = *opts;
	node->lock_fd = -1;
	node->stop_agent = node->bell = -1;
	ret = take_name(node);
	if (ret == 0)
		ret = open_target(node);
	if (ret == 0)
		ret = memnode_jobs_open(&node->lines[MEMNODE_WORK]);
	if (ret == 0)
		ret = memnode_jobs_open(&node->lines[MEMNODE_PERSIST]);
	if (ret == 0)
		ret = start_agent(node);
	pages.ctx = node;
	if (ret == 0 && pages.address)
		ret = http_open(&pages, &node->http);
	if (ret) {
		memnode_close(&node);
		return ret;
	}
	*node_out = node;
	return 0;
}

void memnode_close(struct memnode **node_ptr)
{
	struct memnode *node = *node_ptr;

	if (!node)
		return;
	http_close(&node->http);
	stop_agent(node);
	for (size_t i = 0; i < MEMNODE_LINES; i++)
		memnode_jobs_close(&node->lines[i]);
	if (node->target && node->opts.path)
		memnode_pool_end(node->target);
	if (node->target)
		transport_target_close(&node->target);
	if (node->lock_fd >= 0)
		runtime_dir_unlock(&node->dir, node->role_name, node->lock_fd);
	mem_free(node);
	*node_ptr = NULL;
}

/* -------- the control connection -------- */

/* Send the answers of the current connection, ch; undo jobs of ended connections. */
static int send_done(const struct memnode *node, struct memnode_jobs *jobs, struct channel *ch)
{
	struct memnode_job *job;
	int ret = 0;

	while (ret == 0 && (job = memnode_jobs_get(jobs)) != NULL) {
		if (job->connection == node->connections)
			ret = memnode_reply(ch, &job->head, &job->answer);
		else
			memnode_undo(&job->svc, &job->head, &job->answer);
		memnode_job_free(job);
	}
	return ret;
}

/* Before serving, record in the pool the store that accepted it. */
static int own_pool(struct memnode *node, const struct pool_identity *pool,
		    const Relive__NodeRegisterReply *reply)
{
	const char *name = reply->store_name[0] ? reply->store_name : node->opts.store;

	if (reply->store_uuid.len != sizeof(pool->store_uuid))
		return error_set(-EPROTO, "register: the server sent a store uuid of %zu bytes",
				 reply->store_uuid.len);
	if (memcmp(reply->store_uuid.data, pool->store_uuid, sizeof(pool->store_uuid)) == 0)
		return 0;
	return node->target->ops->own(node->target, reply->store_uuid.data, name);
}

/* An operator's claim is valid until the first accepted registration. */
static uint32_t claim_of(const struct memnode *node)
{
	return node->registered ? RELIVE__POOL_CLAIM__POOL_KEEP : node->opts.claim;
}

static int send_registration(struct memnode *node, struct channel *ch,
			     const struct memnode_regions *regions)
{
	Relive__NodeRegisterRequest request = RELIVE__NODE_REGISTER_REQUEST__INIT;
	Relive__NodeRegisterReply *reply;
	struct channel_frame frame;
	struct target_stats now;
	struct pool_identity pool;
	int ret = node->target->ops->identity(node->target, &pool);

	if (ret)
		return ret;
	node->target->ops->stats(node->target, &now);
	request.name = (char *)node->opts.name;
	request.uri = (char *)node->target->ops->uri(node->target);
	request.incarnation = node->target->incarnation;
	request.pool_bytes = now.pool_bytes;
	request.pages = (char *)now.page_kind;
	request.persistent = node->opts.path != NULL;
	request.sole_opener = now.sole_opener;
	request.pool_uuid = (ProtobufCBinaryData){ sizeof(pool.pool_uuid), pool.pool_uuid };
	request.store_uuid = (ProtobufCBinaryData){ sizeof(pool.store_uuid), pool.store_uuid };
	request.store_name = pool.store_name;
	request.claim = (Relive__PoolClaim)claim_of(node);
	request.n_regions = regions->n;
	request.regions = regions->list;
	ret = channel_call(ch, RELIVE__TYPE__TYPE_NODE_REGISTER, &request.base,
			   deadline_in(MEMNODE_CALL_NS), &frame);
	if (ret)
		return ret;
	reply = (Relive__NodeRegisterReply *)channel_unpack(
		&relive__node_register_reply__descriptor, &frame);
	if (!reply)
		return -EPROTO;
	ret = dial_status(reply->status);
	if (ret == 0)
		ret = own_pool(node, &pool, reply);
	node->silence_ns =
		max_u64(10 * CLOCK_NS_PER_S, 2 * min_u64(reply->lease_ns, INT64_MAX / 4));
	relive__node_register_reply__free_unpacked(reply, NULL);
	return ret;
}

static const char *file_or_env(const char *path, const char *variable)
{
	return path ? path : getenv(variable);
}

/* Finds the token: RELIVE_TOKEN, or the token file of the store on this host. */
static int find_token(const struct memnode *node, char token_out[RUNTIME_TOKEN_BYTES],
		      const char **token)
{
	const char *env = getenv("RELIVE_TOKEN");
	struct token_id id = { .epoch = 0 };
	bool given = env && *env;
	int ret = given ? token_parse("RELIVE_TOKEN", env, &id) : 0;

	/* On this host the store's own token comes from the file, role tokens from RELIVE_TOKEN. */
	if (given && (node->opts.host || id.epoch)) {
		*token = env;
		return ret;
	}
	*token = token_out;
	return runtime_dir_token(&node->dir, token_out);
}

static int connect_server(struct memnode *node, struct channel *ch)
{
	const struct tls_files *tls = &node->opts.tls;
	char token[RUNTIME_TOKEN_BYTES], socket[RUNTIME_PATH_BYTES];
	struct dial_opts opts = {
		.host = node->opts.host,
		.port = node->opts.port,
		.tls = { file_or_env(tls->cert, "RELIVE_TLS_CERT"),
			 file_or_env(tls->key, "RELIVE_TLS_KEY"),
			 file_or_env(tls->ca, "RELIVE_TLS_CA") },
		.role = "memnode",
		.software = SERVER_VERSION,
		.deadline_ns = deadline_in(MEMNODE_CALL_NS),
	};
	struct memnode_regions regions;
	struct dial_peer peer;
	int ret = find_token(node, token, &opts.token);

	if (ret == 0 && !opts.host) {
		ret = runtime_dir_file(&node->dir, "metad.sock", socket);
		opts.socket = socket;
	}
	if (ret == 0)
		ret = dial_open(&opts, ch, &peer);
	if (ret)
		return ret;
	if (peer.term < node->term)
		ret = error_set(-ESTALE,
				"server of term %" PRIu64 ": an older one than term %" PRIu64
				", which this node has served",
				peer.term, node->term);
	if (ret == 0)
		ret = send_done(node, node->lines[MEMNODE_WORK], NULL); /* no recipient: undone */
	if (ret == 0)
		ret = memnode_regions_open(node->target, claim_of(node) != 0, &regions);
	if (ret == 0) {
		ret = send_registration(node, ch, &regions);
		memnode_regions_close(&regions);
	}
	if (ret)
		channel_fini(ch);
	else
		node->term = peer.term;
	return ret;
}

/* Answers one request, at once or by a job. An error ends the connection. */
static int take_request(struct memnode *node, const struct memnode_service *svc, struct channel *ch)
{
	struct memnode_answer answer;
	struct channel_frame frame;
	enum memnode_line line;
	int ret = channel_receive(ch, deadline_in(MEMNODE_CALL_NS), &frame);

	if (ret)
		return ret;
	line = memnode_line_of(&frame);
	if (line != MEMNODE_AT_ONCE)
		return memnode_jobs_put(node->lines[line], svc, &frame, node->connections);
	memnode_serve(svc, &frame, &answer);
	return memnode_reply(ch, &frame.head, &answer);
}

static int serve_once(struct memnode *node, const struct memnode_service *svc, struct channel *ch,
		      uint64_t *heard)
{
	struct pollfd ready[] = {
		{ .fd = ch->stream.fd, .events = POLLIN },
		{ .fd = memnode_jobs_fd(node->lines[MEMNODE_WORK]), .events = POLLIN },
		{ .fd = memnode_jobs_fd(node->lines[MEMNODE_PERSIST]), .events = POLLIN },
		{ .fd = http_fd(node->http), .events = POLLIN },
	};
	int ret = 0;

	if (poll(ready, 4, LOOK_NS / CLOCK_NS_PER_MS) <= 0)
		return 0;
	if (ready[3].revents)
		http_turn(node->http);
	if (ready[0].revents) {
		ret = take_request(node, svc, ch);
		*heard = clock_now_ns(clock_monotonic());
	}
	if (ret == 0 && ready[1].revents)
		ret = send_done(node, node->lines[MEMNODE_WORK], ch);
	if (ret == 0 && ready[2].revents)
		ret = send_done(node, node->lines[MEMNODE_PERSIST], ch);
	return ret;
}

/* Serve until the connection ends or the node is stopped. */
static void memnode_serve_request(struct memnode *node, struct channel *ch)
{
	const struct memnode_service svc = {
		.target = node->target,
		.name = node->opts.name,
		.uri = node->target->ops->uri(node->target),
		.persistent = node->opts.path != NULL,
		.term = node->term,
		.agent_cpu_ns = agent_cpu_ns,
		.ctx = node,
	};
	uint64_t heard = clock_now_ns(clock_monotonic());
	int ret = 0;

	while (!memnode_stopped(node) && ret == 0) {
		ret = serve_once(node, &svc, ch, &heard);
		/* A host that loses power does not close its connections. */
		if (ret == 0 && clock_now_ns(clock_monotonic()) - heard > node->silence_ns)
			ret = error_set(-ETIMEDOUT, "the server is silent");
	}
	if (!memnode_stopped(node))
		log_warn("control connection: %s", error_last());
	channel_fini(ch);
	node->connections++;
}

/* Refusals that need an operator are retried after a long pause. */
static void pause_jittered(const struct memnode *node, int code, uint32_t round)
{
	uint32_t most =
		(uint32_t)min_u64((uint64_t)RETRY_FIRST_MS << min_u64(round, 6), RETRY_LAST_MS);
	uint32_t dice = 0;
	uint64_t end;

	if (code == -EPERM)
		most = RETRY_REFUSED_MS;
	(void)!getrandom(&dice, sizeof(dice), GRND_NONBLOCK);
	end = deadline_in((int64_t)(most / 2 + dice % (most / 2)) * CLOCK_NS_PER_MS);
	while (!memnode_stopped(node) && !deadline_expired(clock_monotonic(), end)) {
		http_turn(node->http);
		usleep(10 * 1000);
	}
}

/* True if refused at the first registration for a reason other than an unreachable server. */
static bool is_final(const struct memnode *node, int code, uint64_t patience)
{
	if (node->registered)
		return false;
	if (code == -EEXIST || code == -ENOSPC)
		return deadline_expired(clock_monotonic(), patience);
	return code == -EACCES || code == -EPROTO || code == -EPERM || code == -EINVAL;
}

int memnode_run(struct memnode *node)
{
	uint64_t patience =
		deadline_in(3 * CLOCK_NS_PER_S); /* our former process may hold the name */
	uint32_t round = 0;
	int last = 0;

	while (!memnode_stopped(node)) {
		struct channel ch;
		int ret;

		/* connect, handshake and registration */
		http_lend(node->http, deadline_in(3 * MEMNODE_CALL_NS));
		ret = connect_server(node, &ch);
		http_take(node->http);
		if (ret == 0) {
			log_info("registered node %s term %" PRIu64, node->opts.name, node->term);
			node->registered = true;
			round = 0;
			last = 0;
			node->registrations++;
			node->connected = true;
			memnode_serve_request(node, &ch);
			node->connected = false;
			continue;
		}
		if (is_final(node, ret, patience))
			return ret;
		if (ret != last)
			log_warn("register: %s", error_last());
		last = ret;
		pause_jittered(node, ret, round++);
	}
	return 0;
}
