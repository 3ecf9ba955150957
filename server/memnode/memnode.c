#include "server/memnode/memnode.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "transport/transport.h"

#include "wire/control/announce.h"
#include "wire/control/dial.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"
#include "base/os/runtime_dir.h"

#include "server/net/http.h"
#include "server/memnode/choice.h"
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
	struct memnode_choice choice;
	char listen[CHOICE_LISTEN_BYTES]; /* opts.listen, unless NULL */
	struct memnode_service svc;       /* its term: the highest one seen */
	pthread_t agent;
	bool serving;
	int stop_agent;           /* eventfd: readable = stop the agent */
	int bell;                 /* eventfd: the agent reads it to show that it runs */
	_Atomic uint64_t rung_ns; /* time of an unanswered ring, 0 = none; relaxed: a time only */
	struct http *http;        /* NULL = not served */
	struct memnode_jobs *lines[MEMNODE_LINES]; /* by enum memnode_line; [0] is NULL */
	uint64_t silence_ns;  /* the server is dialled again after so much silence */
	uint64_t connections; /* number of ended connections to the server */
	struct memnode_registrations registrations;
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

/*
 * Writes the address on which the target listens. shm: socket path; over a wire: HOST:PORT;PATH,
 * or HOST:PORT for a device whose clients are not trusted: clients of this host then reach it over the
 * network, too. -ENAMETOOLONG.
 */
static int listen_address(const struct memnode *node, const struct target_opts *opts,
			  const char *kind, const char *path, char address[TRANSPORT_URI_BYTES])
{
	bool mapped = !opts->path || opts->dir || opts->trust_clients;
	const char *at = node->opts.listen ? node->opts.listen : ":0";
	int n;

	if (strcmp(kind, "shm") != 0)
		n = snprintf(address, TRANSPORT_URI_BYTES, "%s%s%s", at, mapped ? ";" : "",
			     mapped ? path : "");
	else
		n = snprintf(address, TRANSPORT_URI_BYTES, "%s", path);
	if (n < 0 || n >= TRANSPORT_URI_BYTES)
		return error_set(-ENAMETOOLONG, "listen on %.64s: address too long", at);
	return 0;
}

/*
 * Sets target->path and target->dir: a pool is a directory, or a device. -ENOTDIR: a regular file,
 * which would give each client a descriptor of all other clients' data. Errors of looking at the
 * path are left to the pool.
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
	char address[TRANSPORT_URI_BYTES], file[RUNTIME_PATH_BYTES], path[RUNTIME_PATH_BYTES];
	uint64_t available = pages_available();
	const char *kind;
	int ret = memnode_choose(&node->opts, &node->choice);

	if (ret == 0)
		ret = choose_path(&node->opts, &opts);
	kind = node->choice.kind;
	if (ret == 0 && !opts.path) {
		if (!opts.pool_bytes)
			opts.pool_bytes = UINT64_C(1) << 30;
		if (opts.pool_bytes > available)
			ret = error_set(-ENOMEM,
					"pool of %" PRIu64 " MiB: the host has %" PRIu64
					" MiB available, take a smaller --size or a --file",
					opts.pool_bytes >> 20, available >> 20);
	}
	snprintf(file, sizeof(file), "%s.sock", node->role_name);
	if (ret == 0)
		ret = runtime_dir_file(&node->dir, file, path);
	if (ret == 0)
		ret = listen_address(node, &opts, kind, path, address);
	if (ret == 0)
		ret = transport_target_open(kind, &opts, &node->svc.target);
	if (ret == 0 && opts.path)
		ret = memnode_pool_begin(node->svc.target);
	if (ret == 0)
		ret = node->svc.target->ops->listen(node->svc.target, address);
	/*
	 * Pages of a pool that a wire knows are not files of their own: another user of this host,
	 * who would map them all, goes over the wire, where keys keep him to his page.
	 */
	if (ret || (strcmp(kind, "shm") != 0 && !opts.trust_clients))
		return ret;
	ret = runtime_dir_share_socket(&node->dir, file);
	return ret == -ENOENT ? 0 : ret; /* a device has no socket */
}

/* -------- the agent -------- */

/* Thread of the agent: serves clients until stop_agent is readable. Sleeps until a client needs
   service; a target without a descriptor is polled every LOOK_NS. */
static void *serve_clients(void *arg)
{
	struct memnode *node = arg;
	int fd = node->svc.target->ops->poll_fd(node->svc.target);
	struct pollfd ready[] = { { .fd = node->stop_agent, .events = POLLIN },
				  { .fd = node->bell, .events = POLLIN },
				  { .fd = fd, .events = POLLIN } };
	eventfd_t n;

	for (;;) {
		(void)poll(ready, 3, fd < 0 ? LOOK_NS / CLOCK_NS_PER_MS : -1);
		if (ready[0].revents)
			return NULL;
		/* Answers check_health. */
		if (eventfd_read(node->bell, &n) == 0)
			atomic_store_explicit(&node->rung_ns, 0, memory_order_relaxed);
		if (node->svc.target->ops->progress(node->svc.target, 0)) {
			log_error("serve: %s", error_last());
			usleep(LOOK_NS / CLOCK_NS_PER_US);
		}
	}
}

static void stop_agent(struct memnode *node)
{
	if (node->serving && eventfd_write(node->stop_agent, 1) == 0)
		pthread_join(node->agent, NULL);
	if (node->stop_agent >= 0)
		close(node->stop_agent);
	if (node->bell >= 0)
		close(node->bell);
}

static uint64_t agent_cpu_ns(void *ctx)
{
	const struct memnode *node = ctx;
	clockid_t clock;

	return pthread_getcpuclockid(node->agent, &clock) ? 0 : clock_read_ns(clock);
}

/* -------- pages -------- */

static void write_metrics(void *ctx, struct metrics *m)
{
	const struct memnode *node = ctx;

	memnode_write_metrics(&node->svc, node->opts.store, &node->registrations, m);
}

/*
 * Checks that the socket and the pool exist, and rings the agent. -ETIMEDOUT: it has not answered a
 * ring for HTTP_PATIENCE_NS. A missing server is no error: clients continue, and a restart would
 * lose a pool in memory.
 */
static int check_health(void *ctx)
{
	struct memnode *node = ctx;
	const char *uri = node->svc.uri;
	uint64_t now = clock_now_ns(clock_monotonic());
	uint64_t rung = atomic_load_explicit(&node->rung_ns, memory_order_relaxed);

	if (strncmp(uri, "shm:", 4) == 0 && access(uri + 4, F_OK))
		return error_set(-errno, "socket %s: %s", uri + 4, strerror(errno));
	if (node->opts.path && access(node->opts.path, F_OK))
		return error_set(-errno, "pool %s: %s", node->opts.path, strerror(errno));
	if (rung && now - rung > HTTP_PATIENCE_NS)
		return error_set(-ETIMEDOUT, "the thread that serves clients is stuck");
	if (rung)
		return 0;
	atomic_store_explicit(&node->rung_ns, now, memory_order_relaxed);
	(void)eventfd_write(node->bell, 1);
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
	node->svc.name = node->opts.name;
	node->svc.why = node->choice.why;
	node->svc.persistent = node->opts.path != NULL;
	node->svc.agent_cpu_ns = agent_cpu_ns;
	node->svc.ctx = node;
	ret = memnode_take_network(opts, node->listen);
	node->opts.listen = node->listen[0] ? node->listen : NULL;
	if (ret == 0)
		ret = take_name(node);
	if (ret == 0)
		ret = open_target(node);
	if (ret == 0) {
		node->svc.uri = node->svc.target->ops->uri(node->svc.target);
		ret = memnode_jobs_open(&node->lines[MEMNODE_WORK]);
	}
	if (ret == 0)
		ret = memnode_jobs_open(&node->lines[MEMNODE_PERSIST]);
	node->stop_agent = eventfd(0, EFD_CLOEXEC);
	node->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (ret == 0 && (node->stop_agent < 0 || node->bell < 0))
		ret = error_set(-errno, "eventfd: %s", strerror(errno));
	if (ret == 0) {
		ret = pthread_create(&node->agent, NULL, serve_clients, node);
		node->serving = ret == 0;
		if (ret)
			ret = error_set(-ret, "start the thread of the agent: %s", strerror(ret));
	}
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
	if (node->svc.target && node->opts.path)
		memnode_pool_end(node->svc.target);
	if (node->svc.target)
		transport_target_close(&node->svc.target);
	if (node->lock_fd >= 0)
		runtime_dir_unlock(&node->dir, node->role_name, node->lock_fd);
	mem_free(node);
	*node_ptr = NULL;
}

/* -------- the control connection -------- */

/* Takes all finished jobs: sends the answers of those that came over the current connection, ch;
   undoes those of ended connections. After an error ch must be closed. */
static int send_done(const struct memnode *node, struct memnode_jobs *jobs, struct channel *ch)
{
	struct memnode_job *job;
	int ret = 0;

	while (ret == 0 && (job = memnode_jobs_get(jobs)) != NULL) {
		if (job->connection == node->connections)
			ret = memnode_reply(ch, &job->head, &job->answer);
		else
			memnode_undo(&job->svc, &job->head, &job->answer);
		mem_free(job);
	}
	return ret;
}

/* The claim to register with: opts.claim until a registration is accepted, then POOL_KEEP. */
static uint32_t claim_of(const struct memnode *node)
{
	return node->registrations.n ? RELIVE__POOL_CLAIM__POOL_KEEP : node->opts.claim;
}

static int send_registration(struct memnode *node, struct channel *ch,
			     const struct memnode_regions *regions)
{
	Relive__NodeRegisterRequest request = RELIVE__NODE_REGISTER_REQUEST__INIT;
	Relive__NodeRegisterReply *reply;
	struct channel_frame frame;
	struct target_stats now;
	struct pool_identity pool;
	int ret = node->svc.target->ops->identity(node->svc.target, &pool);

	if (ret)
		return ret;
	node->svc.target->ops->stats(node->svc.target, &now);
	request.name = (char *)node->opts.name;
	request.uri = (char *)node->svc.uri;
	request.incarnation = node->svc.target->incarnation;
	request.pool_bytes = now.pool_bytes;
	request.pages = (char *)now.page_kind;
	request.persistent = node->svc.persistent;
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
	if (ret == 0 && reply->store_uuid.len != sizeof(pool.store_uuid))
		ret = error_set(-EPROTO, "register: the server sent a store uuid of %zu bytes",
				reply->store_uuid.len);
	/* Before serving, record in the pool the store that accepted it. */
	if (ret == 0 &&
	    memcmp(reply->store_uuid.data, pool.store_uuid, sizeof(pool.store_uuid)) != 0)
		ret = node->svc.target->ops->own(node->svc.target, reply->store_uuid.data,
						 reply->store_name[0] ? reply->store_name
								      : node->opts.store);
	node->silence_ns =
		max_u64(10 * CLOCK_NS_PER_S, 2 * min_u64(reply->lease_ns, INT64_MAX / 4));
	relive__node_register_reply__free_unpacked(reply, NULL);
	return ret;
}

static const char *file_or_env(const char *path, const char *variable)
{
	return path ? path : getenv(variable);
}

/* Sets *token to RELIVE_TOKEN if that is set and is a role token or the server's host is given;
   else to token_out: "" for @FILE, which has it, or the store's token read from its file here. */
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
	token_out[0] = 0;
	return announce_path(node->opts.host) ? 0 : runtime_dir_token(&node->dir, token_out);
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
	if (peer.term < node->svc.term)
		ret = error_set(-ESTALE,
				"server of term %" PRIu64 ": an older one than term %" PRIu64
				", which this node has served",
				peer.term, node->svc.term);
	if (ret == 0)
		ret = send_done(node, node->lines[MEMNODE_WORK], NULL); /* no recipient: undone */
	if (ret == 0)
		ret = memnode_regions_open(node->svc.target, claim_of(node) != 0, &regions);
	if (ret == 0) {
		ret = send_registration(node, ch, &regions);
		memnode_regions_close(&regions);
	}
	if (ret)
		channel_fini(ch);
	else
		node->svc.term = peer.term;
	return ret;
}

/* Receives one request from ch and answers it at once, or queues it as a job. An error ends the
   connection. */
static int take_request(struct memnode *node, struct channel *ch)
{
	struct memnode_answer answer;
	struct channel_frame frame;
	enum memnode_line line;
	int ret = channel_receive(ch, deadline_in(MEMNODE_CALL_NS), &frame);

	if (ret)
		return ret;
	line = memnode_line_of(&frame);
	if (line != MEMNODE_AT_ONCE)
		return memnode_jobs_put(node->lines[line], &node->svc, &frame, node->connections);
	memnode_serve(&node->svc, &frame, &answer);
	return memnode_reply(ch, &frame.head, &answer);
}

/* Serves requests from ch until the connection fails, the server is silent for silence_ns, or the
   node is stopped; then closes ch. */
static void serve_requests(struct memnode *node, struct channel *ch)
{
	struct pollfd ready[] = {
		{ .fd = ch->stream.fd, .events = POLLIN },
		{ .fd = memnode_jobs_fd(node->lines[MEMNODE_WORK]), .events = POLLIN },
		{ .fd = memnode_jobs_fd(node->lines[MEMNODE_PERSIST]), .events = POLLIN },
		{ .fd = http_fd(node->http), .events = POLLIN },
	};
	uint64_t heard = clock_now_ns(clock_monotonic());
	int ret = 0;

	while (!memnode_stopped(node) && ret == 0) {
		bool any = poll(ready, 4, LOOK_NS / CLOCK_NS_PER_MS) > 0;

		if (any && ready[3].revents)
			http_turn(node->http);
		if (any && ready[0].revents) {
			ret = take_request(node, ch);
			heard = clock_now_ns(clock_monotonic());
		}
		if (ret == 0 && any && ready[1].revents)
			ret = send_done(node, node->lines[MEMNODE_WORK], ch);
		if (ret == 0 && any && ready[2].revents)
			ret = send_done(node, node->lines[MEMNODE_PERSIST], ch);
		/* A host that loses power does not close its connections. */
		if (ret == 0 && clock_now_ns(clock_monotonic()) - heard > node->silence_ns)
			ret = error_set(-ETIMEDOUT, "the server is silent");
	}
	if (!memnode_stopped(node))
		log_warn("control connection: %s", error_last());
	channel_fini(ch);
	node->connections++;
}

/* Sleeps before the next registration, for a random time that grows with `round` to 1 s at most; up
   to 5 s after -EPERM, which needs an operator. Ends early if the node is stopped. */
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
		http_lend(node->http, 0);
		if (ret == 0) {
			log_info("registered node %s term %" PRIu64, node->opts.name,
				 node->svc.term);
			round = 0;
			last = 0;
			node->registrations.n++;
			node->registrations.connected = true;
			serve_requests(node, &ch);
			node->registrations.connected = false;
			continue;
		}
		/* At the first registration a refusal is final, unlike a server out of reach. */
		if (node->registrations.n == 0 &&
		    (ret == -EACCES || ret == -EPROTO || ret == -EPERM || ret == -EINVAL ||
		     ((ret == -EEXIST || ret == -ENOSPC) &&
		      deadline_expired(clock_monotonic(), patience))))
			return ret;
		if (ret != last)
			log_warn("register: %s", error_last());
		last = ret;
		pause_jittered(node, ret, round++);
	}
	return 0;
}
