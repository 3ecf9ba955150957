#include "server/metad/rpc_call.h"

#include <errno.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"

#include "catalog/kind_table.h"
#include "server/daemon/version.h"
#include "server/metad/waits.h"

static void slot_put(const struct call *call, const ProtobufCMessage *message)
{
	const Relive__SlotRequest *request = (const Relive__SlotRequest *)message;
	struct catalog_object *table = catalog_find_same(&call->md->catalog, request->table_id,
							 request->table_uuid.data,
							 request->table_uuid.len);
	uint64_t client_id = call->client->holder.client_id;
	int ret = 0;

	if (table && (request->lease == 0 || request->lease == client_id))
		ret = slots_put(&table->slots, client_id, request->owner);
	conn_answer_status(call->conn, call->head, ret);
}

/* -------- the store -------- */

/* A node in an answer, with the objects that it points to. */
struct node_row {
	Relive__NodeInfo info;
	Relive__Gauge gauges[TARGET_GAUGES];
	Relive__Gauge *gauge_list[TARGET_GAUGES];
};

/* From its last ping: no node is asked. */
static void fill_node(const struct metad *md, struct node *node, struct node_row *row)
{
	Relive__NodeInfo *info = &row->info;

	relive__node_info__init(info);
	info->name = node->name;
	info->uri = node->uri;
	info->pool_bytes = node->pool_bytes;
	info->used_bytes = node->used_bytes;
	info->incarnation = node->incarnation;
	info->regions = node->regions;
	info->state = metad_node_state(node);
	info->pages = node->pages;
	info->transport = node->transport;
	info->clients = node->clients;
	info->n_gauges = node->n_gauges;
	info->gauges = row->gauge_list;
	for (uint32_t i = 0; i < node->n_gauges; i++) {
		relive__gauge__init(&row->gauges[i]);
		row->gauges[i].name = node->gauges[i].name;
		row->gauges[i].value = node->gauges[i].value;
		row->gauge_list[i] = &row->gauges[i];
	}
	info->broken = (ProtobufCBinaryData){ sizeof(node->broken), node->broken };
	info->agent_cpu_ns = node->agent_cpu_ns;
	info->process_cpu_ns = node->process_cpu_ns;
	info->silent_ns = clock_now_ns(md->live.clock) -
			  (node->remote->heard ? node->remote->heard : node->down_since);
	info->shards = catalog_parts_of(&md->catalog, node, NULL);
}

static void store_info(const struct call *call, const ProtobufCMessage *message)
{
	Relive__StoreInfoReply reply = RELIVE__STORE_INFO_REPLY__INIT;
	struct metad *md = call->md;
	uint32_t n = nodes_count(&md->nodes, false);
	struct node_row *rows = mem_array(n + 1, sizeof(*rows));
	Relive__NodeInfo **list = mem_array(n + 1, sizeof(Relive__NodeInfo *));
	char *waiting[OBJECT_MAX_ID];
	Relive__Status status;
	int ret = rows && list ? 0 : error_set(-ENOMEM, "cannot allocate memory for %u nodes", n);

	if (ret == 0 && ((const Relive__StoreInfoRequest *)message)->why)
		ret = waits_fill(md, &reply);
	rpc_set_status(&status, ret);
	reply.status = &status;
	reply.software = (char *)SERVER_VERSION;
	reply.store_name = (char *)md->opts.store;
	reply.tables = catalog_count(&md->catalog, &kind_table);
	reply.clients = liveness_count(&md->live);
	reply.rebuilds = md->repair.done;
	reply.waiting = waiting;
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++)
		if (md->repair.waiting[id].words[0])
			waiting[reply.n_waiting++] = md->repair.waiting[id].words;
	for (struct node *node = md->nodes.first; ret == 0 && node; node = node->next) {
		fill_node(md, node, &rows[reply.n_nodes]);
		list[reply.n_nodes] = &rows[reply.n_nodes].info;
		reply.n_nodes++;
	}
	reply.nodes = list;
	conn_answer(call->conn, call->head, &reply.base);
	waits_free(&reply);
	mem_free(rows);
	mem_free(list);
}

static void rpc_persist(const struct call *call, const ProtobufCMessage *message)
{
	(void)message;
	persist_begin(&call->md->persist, call->conn, call->head);
}

static void lease_renew(const struct call *call, const ProtobufCMessage *message)
{
	const Relive__LeaseRenewRequest *request = (const Relive__LeaseRenewRequest *)message;
	Relive__LeaseRenewReply reply = RELIVE__LEASE_RENEW_REPLY__INIT;
	Relive__Status status;

	/* Each frame renews the lease. */
	call->client->layout = request->layout;
	waits_say(&call->client->waits, (const Relive__Waiting *const *)request->waits,
		  request->n_waits, clock_now_ns(call->md->live.clock));
	rpc_set_status(&status, 0);
	reply.status = &status;
	reply.layout = catalog_newest_layout(&call->md->catalog);
	reply.lease_ns = call->md->live.lease_ns;
	conn_answer(call->conn, call->head, &reply.base);
}

/* -------- nodes -------- */

static struct node *node_of(const struct call *call, const ProtobufCMessage *message, int *code)
{
	const Relive__NodeNameRequest *request = (const Relive__NodeNameRequest *)message;
	struct node *node = nodes_find(&call->md->nodes, request->name);

	if (!node)
		*code = error_set(-ENOENT, "no memory node %.64s in this store", request->name);
	return node;
}

/* Start moving all its shards. -EHOSTDOWN: no other node can take the shards of some table. */
static int begin_drain(struct metad *md, struct node *node)
{
	int ret;

	if (!node->up)
		return error_set(-EHOSTDOWN, "memory node %s is down: drop it, or wait for it",
				 node->name);
	if (nodes_count(&md->nodes, true) == 1 && catalog_parts_of(&md->catalog, node, NULL))
		return error_set(-EHOSTDOWN,
				 "memory node %s is the only one that is up: what it "
				 "holds has nowhere to go",
				 node->name);
	ret = nodes_set_draining(&md->nodes, node, true);
	for (uint32_t id = 1; ret == 0 && id <= OBJECT_MAX_ID; id++)
		if (md->catalog.objects[id])
			catalog_spread_soon(md->catalog.objects[id]);
	metad_hurry(md);
	return ret;
}

static void node_drain(const struct call *call, const ProtobufCMessage *message)
{
	Relive__NodeDrainReply reply = RELIVE__NODE_DRAIN_REPLY__INIT;
	struct catalog_leaving leaving = { 0 };
	Relive__Status status;
	int ret = 0;
	struct node *node = node_of(call, message, &ret);

	if (node && !(node->up && node->draining))
		ret = begin_drain(call->md, node);
	if (node)
		reply.shards = catalog_parts_of(&call->md->catalog, node, &leaving);
	reply.items_left = leaving.items_left;
	reply.items_begin = leaving.items_begin;
	rpc_set_status(&status, ret);
	reply.status = &status;
	conn_answer(call->conn, call->head, &reply.base);
}

static void node_drop(const struct call *call, const ProtobufCMessage *message)
{
	int ret = 0;
	struct node *node = node_of(call, message, &ret);

	if (node)
		ret = nodes_drop(&call->md->nodes, node);
	metad_hurry(call->md);
	conn_answer_status(call->conn, call->head, ret);
}

static void node_forget(const struct call *call, const ProtobufCMessage *message)
{
	struct metad *md = call->md;
	int ret = 0;
	struct node *node = node_of(call, message, &ret);

	if (node && node->up)
		node_read(node); /* it may have disconnected just now */
	if (node && !node->up)
		ret = catalog_node_forget(&md->catalog, node);
	if (node && ret == 0) {
		liveness_forget_node(&md->live, node);
		ret = nodes_forget(&md->nodes, node);
	}
	conn_answer_status(call->conn, call->head, ret);
}

static void node_register(const struct call *call, const ProtobufCMessage *message)
{
	metad_register(call->md, call->conn, call->head,
		       (const Relive__NodeRegisterRequest *)message);
}

/* -------- dispatch -------- */

/* Permissions: the one place where a request is checked against the role of its token. */
static const struct service {
	uint16_t type;
	enum conn_role role;
	uint32_t roles; /* permitted token roles */
	const char *name;
	const ProtobufCMessageDescriptor *kind;
	void (*serve)(const struct call *call, const ProtobufCMessage *message);
} services[] = {
	{ RELIVE__TYPE__TYPE_TABLE_CREATE, CONN_CLIENT, ROLES_ADMIN, "table create",
	  &relive__table_create_request__descriptor, rpc_table_create },
	{ RELIVE__TYPE__TYPE_TABLE_OPEN, CONN_CLIENT, ROLES_READ, "table open",
	  &relive__table_open_request__descriptor, rpc_table_open },
	{ RELIVE__TYPE__TYPE_TABLE_DROP, CONN_CLIENT, ROLES_ADMIN, "table drop",
	  &relive__table_drop_request__descriptor, rpc_table_drop },
	{ RELIVE__TYPE__TYPE_TABLE_LIST, CONN_CLIENT, ROLES_READ, "table list",
	  &relive__table_list_request__descriptor, rpc_table_list },
	{ RELIVE__TYPE__TYPE_SLOT_GET, CONN_CLIENT, ROLES_LEARN, "client slot",
	  &relive__slot_request__descriptor, rpc_slot_get },
	{ RELIVE__TYPE__TYPE_SLOT_PUT, CONN_CLIENT, ROLES_LEARN, "client slot",
	  &relive__slot_request__descriptor, slot_put },
	{ RELIVE__TYPE__TYPE_STORE_INFO, CONN_CLIENT, ROLES_ANY, "store info",
	  &relive__store_info_request__descriptor, store_info },
	{ RELIVE__TYPE__TYPE_PERSIST, CONN_CLIENT, ROLES_WRITE, "persist",
	  &relive__empty__descriptor, rpc_persist },
	{ RELIVE__TYPE__TYPE_BACKUP, CONN_CLIENT, ROLES_ADMIN, "backup",
	  &relive__backup_request__descriptor, rpc_backup },
	{ RELIVE__TYPE__TYPE_LEASE_RENEW, CONN_CLIENT, ROLES_ANY, "lease",
	  &relive__lease_renew_request__descriptor, lease_renew },
	{ RELIVE__TYPE__TYPE_TABLE_REBALANCE, CONN_CLIENT, ROLES_ADMIN, "table rebalance",
	  &relive__table_rebalance_request__descriptor, rpc_table_rebalance },
	{ RELIVE__TYPE__TYPE_NODE_DRAIN, CONN_CLIENT, ROLES_ADMIN, "node drain",
	  &relive__node_name_request__descriptor, node_drain },
	{ RELIVE__TYPE__TYPE_NODE_DROP, CONN_CLIENT, ROLES_ADMIN, "node drop",
	  &relive__node_name_request__descriptor, node_drop },
	{ RELIVE__TYPE__TYPE_NODE_FORGET, CONN_CLIENT, ROLES_ADMIN, "node forget",
	  &relive__node_name_request__descriptor, node_forget },
	{ RELIVE__TYPE__TYPE_CLIENT_LIST, CONN_CLIENT, ROLES_ADMIN, "client list",
	  &relive__client_list_request__descriptor, rpc_client_list },
	{ RELIVE__TYPE__TYPE_NODE_REGISTER, CONN_MEMNODE, ROLES_NODE, "node register",
	  &relive__node_register_request__descriptor, node_register },
	{ RELIVE__TYPE__TYPE_TOKEN, CONN_CLIENT, ROLES_ADMIN, "token",
	  &relive__token_request__descriptor, rpc_token },
};

void rpc_serve(struct metad *md, struct conn *conn, const struct channel_frame *frame)
{
	const struct call call = {
		.md = md,
		.conn = conn,
		.client = conn_user(conn),
		.head = &frame->head,
	};
	const struct conn_peer *peer = conn_peer(conn);
	const struct service *service = NULL;
	ProtobufCMessage *message;
	int ret;

	for (size_t i = 0; i < ARRAY_LEN(services); i++)
		if (services[i].type == frame->head.type && services[i].role == peer->role)
			service = &services[i];
	if (peer->role == CONN_CLIENT && rpc_check_client(&call)) {
		conn_answer_status(conn, call.head, -EOWNERDEAD);
		return;
	}
	if (call.client)
		liveness_renew(&md->live, call.client);
	if (!service) {
		conn_answer_status(conn, call.head,
				   error_set(-ENOTSUP, "request of type %u: unknown to this server",
					     call.head->type));
		return;
	}
	ret = roles_check(peer->token.role, service->roles, service->name);
	if (ret) {
		conn_answer_status(conn, call.head, ret);
		return;
	}
	error_clear();
	message = channel_unpack(service->kind, frame);
	if (!message) {
		conn_refuse(conn, call.head, -EPROTO);
		return;
	}
	service->serve(&call, message);
	protobuf_c_message_free_unpacked(message, NULL);
}
