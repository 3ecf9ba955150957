#include "server/metad/metad.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <event2/event.h>

#include "ds/sumtree/rebuild.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"
#include "base/os/random.h"

#include "server/metad/rpc.h"

/* -------- the tick: nodes, suspects, layouts, rebuilds -------- */

static void metad_schedule(struct metad *md, uint64_t at_ns)
{
	uint64_t now = clock_now_ns(clock_monotonic());
	uint64_t pause = at_ns > now ? at_ns - now : 0;
	struct timeval tv = {
		.tv_sec = (time_t)(pause / CLOCK_NS_PER_S),
		.tv_usec = (suseconds_t)(pause % CLOCK_NS_PER_S / CLOCK_NS_PER_US),
	};

	(void)evtimer_add(md->tick, &tv);
}

/* Who loads a table is watched from the start of this server, or of that table, on. */
static void watch_loaders(struct metad *md)
{
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		const struct catalog_object *object = md->catalog.objects[id];
		const struct slot_holder holder = { .client_id = object ? object->loader : 0 };

		if (holder.client_id)
			liveness_watch(&md->live, &holder);
	}
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct metad *md = arg;
	uint64_t next = nodes_tick(&md->nodes);

	(void)fd;
	(void)what;
	rpc_go_on(md);
	watch_loaders(md);
	next = min_u64(next, liveness_tick(&md->live));
	next = min_u64(next, catalog_tick(&md->catalog));
	next = min_u64(next, repair_tick(&md->repair));
	next = min_u64(next, nodes_attach_next(&md->nodes));
	metad_schedule(md, next);
}

void metad_hurry(struct metad *md)
{
	md->catalog.next_tick = 0;
	metad_schedule(md, 0);
}

/* -------- liveness asks -------- */

static bool metad_holds(void *ctx, uint64_t client_id)
{
	const struct metad *md = ctx;

	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++)
		if (md->catalog.objects[id] &&
		    slots_any(&md->catalog.objects[id]->slots, client_id))
			return true;
	return false;
}

static void look_for_drift(struct catalog_object *table)
{
	for (uint32_t s = 0; s < table->n_parts; s++) {
		bool needed = true;

		if (!table->attached[s])
			continue;
		if (part_rebuild_needed(table->attached[s], &needed))
			log_warn("%s shard %u: %s", table->text, s, error_last());
		table->parts[s].drift |= needed;
	}
}

/* The shards of a table that a dead client provably can no longer access. */
struct proof {
	const struct catalog_object *table;
	const struct client *client;
};

static bool is_proved(void *ctx, uint32_t shard)
{
	const struct proof *proof = ctx;

	return liveness_is_proved(proof->client, proof->table->parts[shard].node);
}

/* A table that the client was loading goes with it. */
static int drop_loading(struct metad *md, struct catalog_object *table)
{
	log_warn("%s: its loader, client %llu, is gone", table->text,
		 (unsigned long long)table->loader);
	return catalog_drop(&md->catalog, table);
}

static int on_dead(void *ctx, const struct client *client)
{
	struct metad *md = ctx;
	int first = 0;

	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		struct catalog_object *table = md->catalog.objects[id];
		struct proof proof = { table, client };
		const struct slots_dead dead = { client->holder.client_id, is_proved, &proof };
		bool drift = false;
		int ret;

		if (table && table->loader == dead.client_id) {
			ret = drop_loading(md, table);
			first = ret ? ret : first;
			continue;
		}
		if (table)
			slots_forget(&table->slots, dead.client_id);
		if (!table || !slots_any(&table->slots, dead.client_id))
			continue;
		ret = slots_settle(&table->slots, &dead, &drift);
		look_for_drift(table);
		if (ret)
			first = ret;
	}
	return first;
}

static void on_cut(void *ctx, struct conn *conn)
{
	(void)ctx;
	conn_drop(conn);
}

/* conn's client was forgotten: drops the pointer to it. rpc_serve answers further requests by
   -EOWNERDEAD. */
static void on_buried(void *ctx, struct conn *conn)
{
	(void)ctx;
	conn_set_user(conn, NULL);
}

static void on_fenced(void *ctx, uint64_t tag, struct node *node, int code,
		      const ProtobufCMessage *reply)
{
	const Relive__NodeFenceReply *answer = (const Relive__NodeFenceReply *)reply;
	struct metad *md = ctx;
	bool dead = code == 0 && answer && answer->result == FENCE_DEAD;

	liveness_answer(&md->live, tag, node, code, dead ? FENCE_DEAD : FENCE_ALIVE);
	metad_schedule(md, 0);
}

static int metad_fence(void *ctx, struct node *node, uint64_t client_id, enum fence_how how)
{
	return node_post_fence(node, client_id, how, on_fenced, ctx);
}

static const struct liveness_ops live_ops = {
	.holds = metad_holds,
	.fence = metad_fence,
	.on_dead = on_dead,
	.on_cut = on_cut,
	.on_buried = on_buried,
};

/* A newly attached shard has a slot of this holder: watches it, unless it is the server itself. */
static void on_holder(void *ctx, const struct slot_holder *holder)
{
	struct metad *md = ctx;

	if (holder->client_id != md->nodes.attach_client_id)
		liveness_watch(&md->live, holder);
}

static bool all_know(void *ctx, uint64_t layout)
{
	const struct metad *md = ctx;

	return liveness_all_know(&md->live, layout);
}

static void on_news(void *ctx)
{
	metad_hurry(ctx);
}

static const struct catalog_ops catalog_ops = {
	.on_holder = on_holder,
	.all_know = all_know,
	.on_progress = on_news,
};

static void on_node_down(void *ctx, struct node *node)
{
	struct metad *md = ctx;

	catalog_node_down(&md->catalog, node);
	metad_hurry(md);
}

static void on_node_lost(void *ctx, struct node *node)
{
	struct metad *md = ctx;

	catalog_node_lost(&md->catalog, node);
	metad_hurry(md);
}

static const struct nodes_ops node_ops = {
	.on_down = on_node_down,
	.on_lost = on_node_lost,
	.on_news = on_news,
};

/* -------- connections -------- */

static int on_ready(void *ctx, struct conn *conn, struct conn_lease *lease_out)
{
	const struct conn_peer *peer = conn_peer(conn);
	struct metad *md = ctx;
	struct liveness_guest guest = {
		.wanted_id = peer->wanted_id,
		.has_process = peer->has_process,
		.process = peer->process,
		.conn = conn,
	};
	struct client *client;
	int ret;

	if (peer->role == CONN_MEMNODE)
		return 0;
	memcpy(guest.secret, peer->secret, sizeof(guest.secret));
	ret = liveness_join(&md->live, &guest, &client);
	if (ret)
		return ret;
	memcpy(lease_out->secret, guest.secret, sizeof(guest.secret));
	conn_set_user(conn, client);
	lease_out->client_id = client->holder.client_id;
	lease_out->lease_ns = md->live.lease_ns;
	return 0;
}

static void on_frame(void *ctx, struct conn *conn, const struct channel_frame *frame)
{
	rpc_serve(ctx, conn, frame);
}

static void on_close(void *ctx, struct conn *conn)
{
	struct client *client = conn_user(conn);
	struct metad *md = ctx;

	persist_forget(&md->persist, conn);
	rpc_forget(md, conn);
	if (client && client->conn == conn) {
		liveness_part(&md->live, client);
		metad_schedule(md, 0);
	}
}

static const struct conn_ops ops = {
	.on_ready = on_ready,
	.on_frame = on_frame,
	.on_close = on_close,
};

/* -------- open -------- */

/*
 * Locks the store's name on this host, makes its token if missing, and opens the state database.
 * -EBUSY: another server has the lock; errors of mkdir and statedb_open.
 */
static int metad_open_state(struct metad *md)
{
	const char *store = md->opts.store, *dir;
	char path[4096];
	int n, pid = 0;
	int ret = runtime_dir_open(store, true, &md->dir);

	if (ret)
		return ret;
	ret = runtime_dir_lock(&md->dir, "metad", &md->lock_fd, &pid);
	if (ret == -EBUSY)
		return error_set(ret, "store %s has a metadata server already: pid %d", store, pid);
	if (ret == 0)
		ret = runtime_dir_share(&md->dir, md->opts.common.group);
	if (ret == 0)
		ret = runtime_dir_token_make(&md->dir, md->token);
	if (ret)
		return ret;
	dir = md->opts.dir ? md->opts.dir : md->dir.path;
	n = snprintf(path, sizeof(path), "%s/%s.db", dir, store);
	if (mkdir(dir, 0700) && errno != EEXIST)
		return error_set(-errno, "mkdir %s: %s", dir, strerror(errno));
	if (n < 0 || (size_t)n >= sizeof(path))
		return error_set(-ENAMETOOLONG, "state directory: its path is too long");
	ret = statedb_open(path, &md->store);
	if (ret)
		return error_prefix(ret, "%s: ", path);
	return process_self(&md->repair.self.process);
}

static int metad_load(struct metad *md)
{
	struct nodes *nodes = &md->nodes;
	uint64_t epoch = 0;
	int ret = store_number(md->store, "client", &nodes->former_client_id);

	if (ret)
		return ret;
	/* The next server cuts connections that this client id leaves open at the nodes. */
	ret = random_fill(&nodes->attach_client_id, sizeof(nodes->attach_client_id));
	if (ret)
		return ret;
	nodes->attach_client_id &= INT64_MAX;
	ret = store_number_put(md->store, "client", nodes->attach_client_id);
	if (ret == 0)
		ret = store_number(md->store, "epoch", &epoch);
	if (ret)
		return ret;
	md->epoch = epoch ? (uint32_t)epoch : 1; /* the first */
	nodes->base = md->base;
	nodes->store = md->store;
	nodes->clock = clock_monotonic();
	nodes->ops = &node_ops;
	nodes->ctx = md;
	nodes->lease_ns = md->opts.node_lease_ns;
	nodes->lost_ns = md->opts.node_lost_ns;
	md->persist.nodes = nodes;
	md->live = (struct liveness){
		.clock = clock_monotonic(),
		.store = md->store,
		.nodes = nodes,
		.ops = &live_ops,
		.ctx = md,
		.lease_ns = md->opts.lease_ns ? md->opts.lease_ns : 10 * (uint64_t)CLOCK_NS_PER_S,
		.stall_ns = md->opts.stall_ns ? md->opts.stall_ns : 60 * (uint64_t)CLOCK_NS_PER_S,
		.kill_stalled = md->opts.kill_stalled,
	};
	md->catalog.store = md->store;
	md->catalog.nodes = &nodes->first;
	md->catalog.clock = clock_monotonic();
	md->catalog.kind_of = object_kind_find;
	md->catalog.ops = &catalog_ops;
	md->catalog.ctx = md;
	md->catalog.name = md->opts.store;
	md->catalog.ramp_ns = md->opts.ramp_ns;
	md->catalog.trust = md->opts.trust;
	md->catalog.patience_ns = md->live.lease_ns;
	md->repair.cat = &md->catalog;
	md->repair.live = &md->live;
	md->repair.clock = clock_monotonic();
	md->repair.self.client_id = nodes->attach_client_id;
	ret = nodes_load(nodes);
	if (ret == 0)
		ret = liveness_load(&md->live);
	return ret ? ret : catalog_load(&md->catalog);
}

static void on_stop(evutil_socket_t fd, short what, void *arg)
{
	struct metad *md = arg;

	(void)what;
	log_info("stop: signal %d", (int)fd);
	(void)event_base_loopbreak(md->base);
}

static void on_page(evutil_socket_t fd, short what, void *arg)
{
	const struct metad *md = arg;

	(void)fd;
	(void)what;
	http_turn(md->http);
}

static int start_listening(struct metad *md)
{
	struct conns_opts opts = {
		.base = md->base,
		.ops = &ops,
		.ctx = md,
		.token = md->token,
		.epoch = md->epoch,
		.tls = md->opts.common.tls,
		.store_name = md->opts.store,
		.term = md->store->ids.term,
		.max_conns = md->opts.max_conns ? md->opts.max_conns : 1024,
	};
	const struct http_opts pages = {
		.address = md->opts.common.metrics,
		.metrics = metad_write_metrics,
		.health = metad_check_health,
		.ctx = md,
	};
	char path[RUNTIME_PATH_BYTES];
	int ret = runtime_dir_file(&md->dir, "metad.sock", path);

	memcpy(opts.store_uuid, md->store->ids.uuid, sizeof(opts.store_uuid));
	if (ret == 0)
		ret = conns_open(&opts, &md->conns);
	if (ret == 0 && md->opts.listen)
		ret = conns_listen_tcp(md->conns, md->opts.host, md->opts.port, &md->port);
	if (ret == 0)
		ret = conns_listen_socket(md->conns, path);
	if (ret == 0)
		ret = runtime_dir_share_socket(&md->dir, "metad.sock");
	if (ret || !pages.address)
		return ret;
	ret = http_open(&pages, &md->http);
	if (ret)
		return ret;
	md->page = event_new(md->base, http_fd(md->http), EV_READ | EV_PERSIST, on_page, md);
	if (!md->page || event_add(md->page, NULL))
		return error_set(-ENOMEM, "event loop: cannot allocate memory");
	return 0;
}

/* Announces the host that --listen names, or this host if that is all of its addresses. */
static int metad_announce(struct metad *md)
{
	const char *host = md->opts.host;
	struct announcement *news = &md->news;
	int ret;

	if (strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0) {
		if (gethostname(news->host, sizeof(news->host) - 1))
			return error_set(-errno, "name of this host: %s", strerror(errno));
	} else {
		snprintf(news->host, sizeof(news->host), "%s", *host ? host : "127.0.0.1");
	}
	news->port = md->port;
	memcpy(news->token, md->token, sizeof(md->token));
	ret = announce_write(md->opts.announce, news);
	return ret ? error_prefix(ret, "--announce: ") : 0;
}

int metad_open(const struct metad_opts *opts, struct metad **md_out)
{
	struct metad *md;
	int ret;

	if (opts->common.tls.cert && !opts->listen)
		return error_set(-EINVAL, "--tls-cert is for TCP connections: give --listen, too");
	md = mem_zalloc(sizeof(*md));
	if (!md)
		return error_set(-ENOMEM, "metadata server: cannot allocate memory");
	md->opts = *opts;
	md->lock_fd = -1;
	md->base = event_base_new();
	md->tick = md->base ? evtimer_new(md->base, on_tick, md) : NULL;
	md->stop[0] = md->base ? evsignal_new(md->base, SIGTERM, on_stop, md) : NULL;
	md->stop[1] = md->base ? evsignal_new(md->base, SIGINT, on_stop, md) : NULL;
	if (!md->tick || !md->stop[0] || !md->stop[1] || event_add(md->stop[0], NULL) ||
	    event_add(md->stop[1], NULL))
		ret = error_set(-ENOMEM, "event loop: cannot allocate memory");
	else
		ret = metad_open_state(md);
	if (ret == 0)
		ret = metad_load(md);
	if (ret == 0)
		ret = start_listening(md);
	if (ret == 0 && opts->announce)
		ret = metad_announce(md);
	if (ret) {
		metad_close(&md);
		return ret;
	}
	*md_out = md;
	return 0;
}

int metad_run(struct metad *md)
{
	metad_schedule(md, 0);
	log_info("serve store %s term %llu port %u", md->opts.store,
		 (unsigned long long)md->store->ids.term, md->port);
	return event_base_dispatch(md->base) < 0 ? error_set(-EIO, "event loop failed") : 0;
}

static void free_events(struct metad *md)
{
	struct event *events[] = { md->tick, md->stop[0], md->stop[1], md->page };

	for (size_t i = 0; i < ARRAY_LEN(events); i++)
		if (events[i])
			event_free(events[i]);
	if (md->base)
		event_base_free(md->base);
}

void metad_close(struct metad **md_ptr)
{
	struct metad *md = *md_ptr;

	if (!md)
		return;
	if (md->news.port)
		announce_remove(md->opts.announce, &md->news);
	http_close(&md->http);
	conns_close(&md->conns);
	persist_fini(&md->persist);
	rpc_fini(md);
	catalog_fini(&md->catalog);
	nodes_fini(&md->nodes);
	liveness_fini(&md->live);
	free_events(md);
	statedb_close(&md->store);
	if (md->lock_fd >= 0)
		runtime_dir_unlock(&md->dir, "metad", md->lock_fd);
	mem_free(md);
	*md_ptr = NULL;
}
