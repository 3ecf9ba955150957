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
#include "wire/region.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/runtime_dir.h"

#include "server/version.h"

#define DEFAULT_POOL_BYTES ((uint64_t)1 << 30)
#define MAX_REGIONS 4096u
#define LOOK_NS (100 * CLOCK_NS_PER_MS) /* how soon a stop is noticed */
#define CALL_NS (5 * CLOCK_NS_PER_S)
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

/* -------- requests of the metadata server -------- */

/* What an answer is made of. Its words stand in the status until it was sent. */
struct answer {
	Relive__Status status;
	Relive__StatusReply plain;
	Relive__NodeRegion region;
	Relive__NodeRegionReply region_reply;
	struct region_grant grant;
	Relive__NodeGrantReply grant_reply;
	Relive__NodeFenceReply fence_reply;
	Relive__NodeInfo info;
	Relive__NodeStatsReply stats_reply;
	const ProtobufCMessage *message;
};

static int region_new(struct memnode *node, const ProtobufCMessage *message, struct answer *out)
{
	const Relive__NodeRegion *request = (const Relive__NodeRegion *)message;
	struct target_region spec = {
		.kind = request->kind,
		.table_id = request->table_id,
		.shard = request->shard,
		.size = request->size,
	};
	int ret = node->target->ops->register_region(node->target, &spec);

	relive__node_region__init(&out->region);
	relive__node_region_reply__init(&out->region_reply);
	out->region.region = spec.id;
	out->region.kind = spec.kind;
	out->region.table_id = spec.table_id;
	out->region.shard = spec.shard;
	out->region.size = spec.size;
	out->region_reply.status = &out->status;
	out->region_reply.region = ret ? NULL : &out->region;
	out->message = &out->region_reply.base;
	return ret;
}

static int region_free(struct memnode *node, const ProtobufCMessage *message, struct answer *out)
{
	const Relive__NodeRegion *request = (const Relive__NodeRegion *)message;

	(void)out;
	return node->target->ops->unregister_region(node->target, request->region);
}

static int grant(struct memnode *node, const ProtobufCMessage *message, struct answer *out)
{
	const Relive__NodeGrantRequest *request = (const Relive__NodeGrantRequest *)message;
	int ret = node->target->ops->grant(node->target, request->client_id, request->region,
					   request->rights, &out->grant);

	relive__node_grant_reply__init(&out->grant_reply);
	out->grant_reply.status = &out->status;
	if (ret == 0) {
		out->grant_reply.grant.data = out->grant.data;
		out->grant_reply.grant.len = out->grant.bytes;
	}
	out->message = &out->grant_reply.base;
	return ret;
}

static int take_back(struct memnode *node, const ProtobufCMessage *message, struct answer *out)
{
	const Relive__NodeGrantRequest *request = (const Relive__NodeGrantRequest *)message;

	(void)out;
	return node->target->ops->revoke(node->target, request->client_id, request->region);
}

static int fence(struct memnode *node, const ProtobufCMessage *message, struct answer *out)
{
	const Relive__NodeFenceRequest *request = (const Relive__NodeFenceRequest *)message;
	enum fence_result result = FENCE_ALIVE;
	int ret =
		node->target->ops->fence(node->target, request->client_id, request->kill, &result);

	relive__node_fence_reply__init(&out->fence_reply);
	out->fence_reply.status = &out->status;
	out->fence_reply.result = (uint32_t)result;
	out->message = &out->fence_reply.base;
	return ret;
}

static int stats(struct memnode *node, const ProtobufCMessage *message, struct answer *out)
{
	struct target_stats now;

	(void)message;
	node->target->ops->stats(node->target, &now);
	relive__node_info__init(&out->info);
	relive__node_stats_reply__init(&out->stats_reply);
	out->info.name = (char *)node->opts.name;
	out->info.uri = node->uri;
	out->info.pool_bytes = now.pool_bytes;
	out->info.used_bytes = now.used_bytes;
	out->info.regions = now.regions;
	out->info.incarnation = node->target->incarnation;
	out->info.state = 1;
	out->info.pages = (char *)now.page_kind;
	out->stats_reply.status = &out->status;
	out->stats_reply.info = &out->info;
	out->message = &out->stats_reply.base;
	return 0;
}

static int list_regions(struct memnode *node, struct target_region **regions_out, size_t *n_out)
{
	struct target_region *regions = mem_array(MAX_REGIONS, sizeof(*regions));
	size_t n = MAX_REGIONS;
	int ret;

	if (!regions)
		return error_set(-ENOMEM, "regions: no memory");
	ret = node->target->ops->list_regions(node->target, regions, &n);
	if (ret) {
		mem_free(regions);
		return ret;
	}
	*regions_out = regions;
	*n_out = n;
	return 0;
}

static int persist(struct memnode *node, const ProtobufCMessage *message, struct answer *out)
{
	struct target_region *regions;
	size_t n;
	int ret;

	(void)message;
	(void)out;
	if (!node->opts.path)
		return 0;
	ret = list_regions(node, &regions, &n);
	if (ret)
		return ret;
	/* Rows first: a leaf must not outlive what it stands for. */
	for (size_t i = 0; ret == 0 && i < n; i++)
		if (regions[i].kind == REGION_ROWS)
			ret = node->target->ops->persist(node->target, regions[i].id, 0, 0);
	for (size_t i = 0; ret == 0 && i < n; i++)
		if (regions[i].kind != REGION_ROWS)
			ret = node->target->ops->persist(node->target, regions[i].id, 0, 0);
	mem_free(regions);
	return ret;
}

static const struct {
	uint16_t type;
	const ProtobufCMessageDescriptor *kind;
	int (*serve)(struct memnode *node, const ProtobufCMessage *request, struct answer *out);
} services[] = {
	{ RELIVE__TYPE__TYPE_NODE_REGION_NEW, &relive__node_region__descriptor, region_new },
	{ RELIVE__TYPE__TYPE_NODE_REGION_FREE, &relive__node_region__descriptor, region_free },
	{ RELIVE__TYPE__TYPE_NODE_GRANT, &relive__node_grant_request__descriptor, grant },
	{ RELIVE__TYPE__TYPE_NODE_REVOKE, &relive__node_grant_request__descriptor, take_back },
	{ RELIVE__TYPE__TYPE_NODE_FENCE, &relive__node_fence_request__descriptor, fence },
	{ RELIVE__TYPE__TYPE_NODE_STATS, &relive__empty__descriptor, stats },
	{ RELIVE__TYPE__TYPE_NODE_PERSIST, &relive__empty__descriptor, persist },
};

static int serve_frame(struct memnode *node, const struct channel_frame *frame, struct answer *out)
{
	ProtobufCMessage *message;
	int ret;

	if (frame->head.term < node->term)
		return error_set(-ESTALE, "term %" PRIu64 ": this node knows %" PRIu64,
				 frame->head.term, node->term);
	for (size_t i = 0; i < sizeof(services) / sizeof(services[0]); i++) {
		if (services[i].type != frame->head.type)
			continue;
		message = channel_unpack(services[i].kind, frame);
		if (!message)
			return -EPROTO;
		ret = services[i].serve(node, message, out);
		protobuf_c_message_free_unpacked(message, NULL);
		return ret;
	}
	return error_set(-ENOTSUP, "a memory node knows no request of type %u", frame->head.type);
}

static int answer_one(struct memnode *node, struct channel *ch)
{
	struct answer out = { .message = NULL };
	struct channel_frame frame;
	int ret = channel_receive(ch, deadline_in(CALL_NS), &frame);

	if (ret)
		return ret;
	relive__status__init(&out.status);
	relive__status_reply__init(&out.plain);
	out.plain.status = &out.status;
	error_clear();
	out.status.code = serve_frame(node, &frame, &out);
	out.status.message = out.status.code ? (char *)error_last() : (char *)"";
	if (!out.message)
		out.message = &out.plain.base;
	return channel_send(ch, (uint16_t)(frame.head.type | FRAME_ANSWER), frame.head.request_id,
			    out.message, deadline_in(CALL_NS));
}

/* -------- the control connection -------- */

static int send_registration(struct memnode *node, struct channel *ch, Relive__NodeRegion *regions,
			     size_t n)
{
	Relive__NodeRegisterRequest request = RELIVE__NODE_REGISTER_REQUEST__INIT;
	Relive__NodeRegion **list = mem_array(n + 1, sizeof(*list));
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
			   deadline_in(CALL_NS), &frame);
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
	int ret = list_regions(node, &regions, &n);

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
		.deadline_ns = deadline_in(CALL_NS),
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
	int ret = 0;

	while (!stopped(node) && (ret == 0 || ret == -ETIMEDOUT)) {
		ret = channel_wait(ch, deadline_in(LOOK_NS));
		if (ret == 0)
			ret = answer_one(node, ch);
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
