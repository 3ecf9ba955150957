#include "server/memnode.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "transport/transport.h"

#include "wire/dial.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/runtime_dir.h"

#include "server/memnode_service.h"
#include "server/version.h"

#define DEFAULT_POOL_BYTES ((uint64_t)1 << 30)
#define LOOK_NS (100 * CLOCK_NS_PER_MS) /* how soon a stop is noticed */
#define RETRY_FIRST_MS 20
#define RETRY_LAST_MS 1000
#define REFUSED_NS (3 * CLOCK_NS_PER_S) /* how long a name may still be in use by our former self */

struct memnode {
	struct memnode_opts opts;
	struct runtime_dir dir;
	char role_name[64]; /* memnode-NAME: of lock, pid file and socket */
	char uri[RUNTIME_PATH_BYTES + 8];
	int lock_fd;
	struct transport_target *target;
	pthread_t server;
	bool serving;
	_Atomic bool stop_server;
	uint64_t term;   /* highest seen: a lower one is a zombie's */
	bool registered; /* once at least */
};

static bool stopped(const struct memnode *node)
{
	return node->opts.stop && *node->opts.stop;
}

static uint64_t deadline_in(int64_t ns)
{
	return deadline_after(clock_monotonic(), ns);
}

/* -------- pool and socket -------- */

static uint64_t available_bytes(void)
{
	char line[128];
	uint64_t kib = 0;
	FILE *file = fopen("/proc/meminfo", "re");

	if (!file)
		return UINT64_MAX;
	while (kib == 0 && fgets(line, sizeof(line), file))
		if (strncmp(line, "MemAvailable:", 13) == 0)
			kib = strtoull(line + 13, NULL, 10);
	fclose(file);
	return kib ? kib * 1024 : UINT64_MAX;
}

static int check_memory(uint64_t bytes)
{
	uint64_t available = available_bytes();

	if (bytes <= available)
		return 0;
	return error_set(-ENOMEM,
			 "pool of %" PRIu64 " MiB: the host has %" PRIu64 " MiB available, "
			 "take a smaller --size or a --file",
			 bytes >> 20, available >> 20);
}

static int open_target(struct memnode *node)
{
	struct target_opts opts = {
		.pool_bytes = node->opts.pool_bytes,
		.path = node->opts.path,
		.create = true,
		.page_kind = PAGE_THP,
	};
	char path[RUNTIME_PATH_BYTES], file[RUNTIME_PATH_BYTES];
	int ret = 0;

	if (!opts.path) {
		opts.pool_bytes = opts.pool_bytes ? opts.pool_bytes : DEFAULT_POOL_BYTES;
		ret = check_memory(opts.pool_bytes);
	}
	if (ret == 0) {
		snprintf(file, sizeof(file), "%s.sock", node->role_name);
		ret = runtime_dir_file(&node->dir, file, path);
	}
	if (ret == 0)
		ret = transport_target_open("shm", &opts, &node->target);
	if (ret)
		return ret;
	snprintf(node->uri, sizeof(node->uri), "shm:%s", path);
	return node->target->ops->listen(node->target, path);
}

static void *serve_target(void *arg)
{
	struct memnode *node = arg;

	/* M1 pairs with M2: nothing but the wish itself */
	while (!atomic_load_explicit(&node->stop_server, memory_order_acquire)) {
		int ret = node->target->ops->progress(node->target, LOOK_NS);

		if (ret) {
			log_error("serve: %s", error_last());
			usleep(LOOK_NS / CLOCK_NS_PER_US);
		}
	}
	return NULL;
}

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
	return ret;
}

int memnode_open(const struct memnode_opts *opts, struct memnode **node_out)
{
	struct memnode *node;
	int ret;

	if (!runtime_name_is_valid(opts->name))
		return error_set(-EINVAL, "node name \"%.64s\": want letters, digits, _ - .",
				 opts->name);
	node = mem_zalloc(sizeof(*node));
	if (!node)
		return error_set(-ENOMEM, "memory node: no memory");
	node->opts = *opts;
	node->lock_fd = -1;
	ret = take_name(node);
	if (ret == 0)
		ret = open_target(node);
	if (ret == 0) {
		ret = -pthread_create(&node->server, NULL, serve_target, node);
		node->serving = ret == 0;
	}
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
	if (node->serving) {
		/* M2 pairs with M1 */
		atomic_store_explicit(&node->stop_server, true, memory_order_release);
		pthread_join(node->server, NULL);
	}
	if (node->target)
		transport_target_close(&node->target);
	if (node->lock_fd >= 0)
		runtime_dir_unlock(&node->dir, node->role_name, node->lock_fd);
	mem_free(node);
	*node_ptr = NULL;
}

/* -------- the control connection -------- */

static int send_registration(struct memnode *node, struct channel *ch, Relive__NodeRegion *regions,
			     size_t n)
{
	Relive__NodeRegisterRequest request = RELIVE__NODE_REGISTER_REQUEST__INIT;
	Relive__NodeRegion **list = mem_array(n + 1, sizeof(Relive__NodeRegion *));
	Relive__NodeRegisterReply *reply;
	struct channel_frame frame;
	struct target_stats now;
	int ret;

	if (!list)
		return error_set(-ENOMEM, "register: no memory");
	for (size_t i = 0; i < n; i++)
		list[i] = &regions[i];
	node->target->ops->stats(node->target, &now);
	request.name = (char *)node->opts.name;
	request.uri = node->uri;
	request.incarnation = node->target->incarnation;
	request.pool_bytes = now.pool_bytes;
	request.pages = (char *)now.page_kind;
	request.persistent = node->opts.path != NULL;
	request.sole_opener = now.sole_opener;
	request.n_regions = n;
	request.regions = list;
	ret = channel_call(ch, RELIVE__TYPE__TYPE_NODE_REGISTER, &request.base,
			   deadline_in(MEMNODE_CALL_NS), &frame);
	mem_free(list);
	if (ret)
		return ret;
	reply = (Relive__NodeRegisterReply *)channel_unpack(
		&relive__node_register_reply__descriptor, &frame);
	if (!reply)
		return -EPROTO;
	ret = dial_status(reply->status);
	relive__node_register_reply__free_unpacked(reply, NULL);
	return ret;
}

static int announce(struct memnode *node, struct channel *ch)
{
	struct target_region *regions = NULL;
	Relive__NodeRegion *messages;
	size_t n = 0;
	int ret = memnode_list_regions(node->target, &regions, &n);

	if (ret)
		return ret;
	messages = mem_array(n + 1, sizeof(*messages));
	if (!messages)
		ret = error_set(-ENOMEM, "register: no memory");
	for (size_t i = 0; ret == 0 && i < n; i++) {
		relive__node_region__init(&messages[i]);
		messages[i].region = regions[i].id;
		messages[i].kind = regions[i].kind;
		messages[i].table_id = regions[i].table_id;
		messages[i].shard = regions[i].shard;
		messages[i].size = regions[i].size;
	}
	if (ret == 0)
		ret = send_registration(node, ch, messages, n);
	mem_free(messages);
	mem_free(regions);
	return ret;
}

static int connect_server(struct memnode *node, struct channel *ch)
{
	char token[256], socket[RUNTIME_PATH_BYTES];
	const char *env = getenv("RELIVE_TOKEN");
	struct dial_opts opts = {
		.host = node->opts.host,
		.port = node->opts.port,
		.token = env ? env : token,
		.role = "memnode",
		.software = SERVER_VERSION,
		.deadline_ns = deadline_in(MEMNODE_CALL_NS),
	};
	struct dial_peer peer;
	int ret = env ? 0 : runtime_dir_token(&node->dir, token);

	if (ret == 0 && !opts.host) {
		ret = runtime_dir_file(&node->dir, "metad.sock", socket);
		opts.socket = socket;
	}
	if (ret == 0)
		ret = dial_open(&opts, ch, &peer);
	if (ret)
		return ret;
	if (peer.term < node->term)
		ret = error_set(-ESTALE, "server of term %" PRIu64 ": this node knows %" PRIu64,
				peer.term, node->term);
	if (ret == 0)
		ret = announce(node, ch);
	if (ret)
		channel_fini(ch);
	else
		node->term = peer.term;
	return ret;
}

/* Answers until the connection ends or we are stopped. */
static void serve(struct memnode *node, struct channel *ch)
{
	const struct memnode_service svc = {
		.target = node->target,
		.name = node->opts.name,
		.uri = node->uri,
		.persistent = node->opts.path != NULL,
		.term = node->term,
	};
	int ret = 0;

	while (!stopped(node) && (ret == 0 || ret == -ETIMEDOUT)) {
		ret = channel_wait(ch, deadline_in(LOOK_NS));
		if (ret == 0)
			ret = memnode_answer(&svc, ch);
		else if (ret != -ETIMEDOUT)
			break;
	}
	if (!stopped(node))
		log_warn("control connection: %s", error_last());
	channel_fini(ch);
}

static void pause_jittered(const struct memnode *node, uint32_t round)
{
	uint32_t most = (uint32_t)RETRY_FIRST_MS << (round < 6 ? round : 6);
	uint32_t dice = 0;
	uint64_t end;

	if (most > RETRY_LAST_MS)
		most = RETRY_LAST_MS;
	(void)!getrandom(&dice, sizeof(dice), GRND_NONBLOCK);
	end = deadline_in((int64_t)(most / 2 + dice % (most / 2)) * CLOCK_NS_PER_MS);
	while (!stopped(node) && !deadline_expired(clock_monotonic(), end))
		usleep(10 * 1000);
}

/* Refused at the first attempt, and not for want of a server. */
static bool is_final(const struct memnode *node, int code, uint64_t patience)
{
	if (node->registered)
		return false;
	if (code == -EEXIST)
		return deadline_expired(clock_monotonic(), patience);
	return code == -EACCES || code == -EPROTO;
}

int memnode_run(struct memnode *node)
{
	uint64_t patience = deadline_in(REFUSED_NS);
	uint32_t round = 0;
	int last = 0;

	while (!stopped(node)) {
		struct channel ch;
		int ret = connect_server(node, &ch);

		if (ret == 0) {
			log_info("registered node %s term %" PRIu64, node->opts.name, node->term);
			node->registered = true;
			round = 0;
			last = 0;
			serve(node, &ch);
			continue;
		}
		if (is_final(node, ret, patience))
			return ret;
		if (ret != last)
			log_warn("register: %s", error_last());
		last = ret;
		pause_jittered(node, round++);
	}
	return 0;
}
