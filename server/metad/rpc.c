#include "server/metad/rpc_call.h"

#include <errno.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"

#include "catalog/kind_heap.h"
#include "catalog/kind_table.h"
#include "server/daemon/version.h"
#include "server/metad/lags.h"
#include "server/metad/waits.h"

static int slot_put(const struct call *call, const ProtobufCMessage *message)
{
	const Relive__SlotRequest *request = (const Relive__SlotRequest *)message;
	struct catalog_object *table = catalog_find_same(&call->md->catalog, request->table_id,
							 request->table_uuid.data,
							 request->table_uuid.len);
	uint64_t client_id = call->client->holder.client_id;

	if (table && (request->lease == 0 || request->lease == client_id))
		return slots_put(&table->slots, client_id, request->owner);
	return 0;
}

/* -------- the store -------- */

/* A node in an answer, with the objects that it points to. */
struct node_row {
	Relive__NodeInfo info;
	Relive__Gauge gauges[TARGET_GAUGES];
	Relive__Gauge *gauge_list[TARGET_GAUGES];
};

/* Fills in row from what the server knows of the node, e.g. by its last ping: the node is not
   asked. */
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
	info->why = node->why;
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

/* Adds the heaps to the reply: at most OBJECT_MAX_ID. */
static void fill_heaps(const struct metad *md, Relive__HeapInfo *infos, Relive__HeapInfo **list,
		       Relive__StoreInfoReply *reply)
{
	reply->heaps = list;
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		const struct catalog_object *heap = md->catalog.objects[id];
		Relive__HeapInfo *info = &infos[reply->n_heaps];
		struct heap_state state;

		if (!heap || heap->kind != &kind_heap)
			continue;
		state = kind_heap_state(heap);
		relive__heap_info__init(info);
		info->name = (char *)heap->name;
		info->mode = state.mode;
		info->parts = state.parts;
		info->wanted = state.wanted;
		info->whole = state.whole;
		info->filling = state.filling;
		list[reply->n_heaps++] = info;
	}
}

static int store_info(const struct call *call, const ProtobufCMessage *message)
{
	Relive__StoreInfoReply reply = RELIVE__STORE_INFO_REPLY__INIT;
	struct metad *md = call->md;
	uint32_t n = nodes_count(&md->nodes, false);
	struct node_row *rows = mem_array(n + 1, sizeof(*rows));
	Relive__NodeInfo **list = mem_array(n + 1, sizeof(Relive__NodeInfo *));
	Relive__HeapInfo heaps[OBJECT_MAX_ID], *heap_list[OBJECT_MAX_ID];
	char *waiting[OBJECT_MAX_ID];
	struct lags lags;
	int ret = rows && list ? 0 : error_set(-ENOMEM, "cannot allocate memory for %u nodes", n);

	if (ret == 0 && ((const Relive__StoreInfoRequest *)message)->why)
		ret = waits_fill(md, &reply);
	if (ret == 0) {
		reply.software = (char *)SERVER_VERSION;
		reply.store_name = (char *)md->opts.store;
		reply.tables = catalog_count(&md->catalog, &kind_table);
		reply.clients = liveness_count(&md->live);
		reply.rebuilds = md->repair.done;
		reply.clock_ns = clock_read_ns(CLOCK_REALTIME);
		reply.waiting = waiting;
		for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++)
			if (md->repair.waiting[id].words[0])
				waiting[reply.n_waiting++] = md->repair.waiting[id].words;
		for (struct node *node = md->nodes.first; node; node = node->next) {
			fill_node(md, node, &rows[reply.n_nodes]);
			list[reply.n_nodes] = &rows[reply.n_nodes].info;
			reply.n_nodes++;
		}
		reply.nodes = list;
		fill_heaps(md, heaps, heap_list, &reply);
		lags_fill(md, &lags);
		reply.lags = lags.list;
		reply.n_lags = lags.n;
		ret = rpc_answer(call, &reply.base, &reply.status);
	}
	waits_free(&reply);
	mem_free(rows);
	mem_free(list);
	return ret;
}

static int store_persist(const struct call *call, const ProtobufCMessage *message)
{
	(void)message;
	persist_begin(&call->md->persist, call->conn, call->head);
	return RPC_ANSWERED;
}

static int lease_renew(const struct call *call, const ProtobufCMessage *message)
{
	const Relive__LeaseRenewRequest *request = (const Relive__LeaseRenewRequest *)message;
	Relive__LeaseRenewReply reply = RELIVE__LEASE_RENEW_REPLY__INIT;

	/* Each frame renews the lease. */
	call->client->layout = request->layout;
	lags_say(call->md, call->client, request, conn_peer(call->conn)->token.role != TOKEN_READ);
	waits_say(&call->client->waits, (const Relive__Waiting *const *)request->waits,
		  request->n_waits, clock_now_ns(call->md->live.clock));
	reply.layout = catalog_newest_layout(&call->md->catalog);
	reply.lease_ns = call->md->live.lease_ns;
	return rpc_answer(call, &reply.base, &reply.status);
}

/* -------- dispatch -------- */

/* Permissions: the one place where a request is checked against the role of its token. */
static const struct service {
	uint16_t type;
	enum conn_role role;
	uint32_t roles; /* permitted token roles */
	const char *name;
	const ProtobufCMessageDescriptor *kind;
	int (*serve)(const struct call *call, const ProtobufCMessage *message);
} services[] = {
	{ RELIVE__TYPE__TYPE_TABLE_CREATE, CONN_CLIENT, ROLES_ADMIN, "table create",
	  &relive__table_create_request__descriptor, rpc_table_create },
	{ RELIVE__TYPE__TYPE_TABLE_OPEN, CONN_CLIENT, ROLES_READ, "table open",
	  &relive__table_open_request__descriptor, rpc_table_open },
	{ RELIVE__TYPE__TYPE_TABLE_DROP, CONN_CLIENT, ROLES_ADMIN, "table drop",
	  &relive__table_drop_request__descriptor, rpc_table_drop },
	{ RELIVE__TYPE__TYPE_TABLE_COMMIT, CONN_CLIENT, ROLES_ADMIN, "table commit",
	  &relive__table_commit_request__descriptor, rpc_table_commit },
	{ RELIVE__TYPE__TYPE_TABLE_LIST, CONN_CLIENT, ROLES_READ, "table list",
	  &relive__table_list_request__descriptor, rpc_table_list },
	{ RELIVE__TYPE__TYPE_SLOT_GET, CONN_CLIENT, ROLES_LEARN, "client slot",
	  &relive__slot_request__descriptor, rpc_slot_get },
	{ RELIVE__TYPE__TYPE_SLOT_PUT, CONN_CLIENT, ROLES_LEARN, "client slot",
	  &relive__slot_request__descriptor, slot_put },
	{ RELIVE__TYPE__TYPE_STORE_INFO, CONN_CLIENT, ROLES_ANY, "store info",
	  &relive__store_info_request__descriptor, store_info },
	{ RELIVE__TYPE__TYPE_PERSIST, CONN_CLIENT, ROLES_WRITE, "persist",
	  &relive__empty__descriptor, store_persist },
	{ RELIVE__TYPE__TYPE_BACKUP, CONN_CLIENT, ROLES_ADMIN, "backup",
	  &relive__backup_request__descriptor, rpc_backup },
	{ RELIVE__TYPE__TYPE_LEASE_RENEW, CONN_CLIENT, ROLES_ANY, "lease",
	  &relive__lease_renew_request__descriptor, lease_renew },
	{ RELIVE__TYPE__TYPE_TABLE_REBALANCE, CONN_CLIENT, ROLES_ADMIN, "table rebalance",
	  &relive__table_rebalance_request__descriptor, rpc_table_rebalance },
	{ RELIVE__TYPE__TYPE_NODE_DRAIN, CONN_CLIENT, ROLES_ADMIN, "node drain",
	  &relive__node_name_request__descriptor, rpc_node_drain },
	{ RELIVE__TYPE__TYPE_NODE_DROP, CONN_CLIENT, ROLES_ADMIN, "node drop",
	  &relive__node_name_request__descriptor, rpc_node_drop },
	{ RELIVE__TYPE__TYPE_NODE_FORGET, CONN_CLIENT, ROLES_ADMIN, "node forget",
	  &relive__node_name_request__descriptor, rpc_node_forget },
	{ RELIVE__TYPE__TYPE_CLIENT_LIST, CONN_CLIENT, ROLES_ADMIN, "client list",
	  &relive__client_list_request__descriptor, rpc_client_list },
	{ RELIVE__TYPE__TYPE_NODE_REGISTER, CONN_MEMNODE, ROLES_NODE, "node register",
	  &relive__node_register_request__descriptor, rpc_node_register },
	{ RELIVE__TYPE__TYPE_HEAP_CALL, CONN_CLIENT, ROLES_READ, "heap call",
	  &relive__heap_call_request__descriptor, rpc_heap_call },
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
	int ret = peer->role == CONN_CLIENT ? rpc_check_client(&call) : 0;
	const struct service *service = NULL;
	ProtobufCMessage *message;

	for (size_t i = 0; i < ARRAY_LEN(services); i++)
		if (services[i].type == frame->head.type && services[i].role == peer->role)
			service = &services[i];
	if (ret == 0 && call.client)
		liveness_renew(&md->live, call.client);
	if (ret == 0 && !service)
		ret = error_set(-ENOTSUP, "request of type %u: unknown to this server",
				frame->head.type);
	if (ret == 0)
		ret = roles_check(peer->token.role, service->roles, service->name);
	if (ret == 0) {
		error_clear();
		message = channel_unpack(service->kind, frame);
		if (!message) {
			conn_refuse(conn, call.head, -EPROTO);
			return;
		}
		ret = service->serve(&call, message);
		protobuf_c_message_free_unpacked(message, NULL);
	}
	if (ret != RPC_ANSWERED)
		conn_answer_status(conn, call.head, ret);
}
