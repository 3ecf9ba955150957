#include "server/rpc.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bits.h"
#include "base/log.h"

#include "server/version.h"

/* One request on its way to its answer. */
struct call {
	struct metad *md;
	struct conn *conn;
	struct client *client; /* NULL: a memory node */
	const struct frame_header *head;
};

static void set_status(Relive__Status *status, int code)
{
	relive__status__init(status);
	status->code = code;
	status->message = code ? (char *)error_last() : (char *)"";
}

/* -------- tables -------- */

struct places {
	Relive__ShardPlace *places;
	Relive__ShardPlace **list;
	struct catalog_grants *grants;
};

static void places_fini(struct places *places)
{
	mem_free(places->places);
	mem_free(places->list);
	mem_free(places->grants);
}

static int places_init(struct places *places, uint32_t n)
{
	places->places = mem_array(n, sizeof(*places->places));
	places->list = mem_array(n, sizeof(Relive__ShardPlace *));
	places->grants = mem_array(n, sizeof(*places->grants));
	if (places->places && places->list && places->grants)
		return 0;
	places_fini(places);
	return error_set(-ENOMEM, "%u shards: no memory", n);
}

static ProtobufCBinaryData grant_bytes(struct region_grant *grant)
{
	return (ProtobufCBinaryData){ grant->bytes, grant->data };
}

static int grant_all(const struct call *call, struct catalog_table *table, bool read_only,
		     struct places *out)
{
	int ret = 0;

	for (uint32_t s = 0; ret == 0 && s < table->desc.n_shards; s++) {
		ret = catalog_grant(table, s, call->client->holder.client_id, read_only,
				    &out->grants[s]);
		if (ret)
			break;
		relive__shard_place__init(&out->places[s]);
		out->places[s].node_uri = table->shards[s].node->uri;
		out->places[s].tree_grant = grant_bytes(&out->grants[s].tree);
		out->places[s].rows_grant = grant_bytes(&out->grants[s].rows);
		out->list[s] = &out->places[s];
	}
	return ret;
}

static void answer_table(const struct call *call, struct catalog_table *table, bool read_only)
{
	Relive__TableReply reply = RELIVE__TABLE_REPLY__INIT;
	Relive__Status status;
	struct places places;
	int ret = places_init(&places, table->desc.n_shards);

	if (ret) {
		conn_answer_status(call->conn, call->head, ret);
		return;
	}
	ret = grant_all(call, table, read_only, &places);
	set_status(&status, ret);
	reply.status = &status;
	if (ret == 0) {
		reply.desc = (ProtobufCBinaryData){ sizeof(table->desc), (uint8_t *)&table->desc };
		reply.n_shards = table->desc.n_shards;
		reply.shards = places.list;
	}
	conn_answer(call->conn, call->head, &reply.base);
	places_fini(&places);
}

static void table_create(const struct call *call, const ProtobufCMessage *message)
{
	const Relive__TableCreateRequest *request = (const Relive__TableCreateRequest *)message;
	struct catalog_table *table;
	struct table_desc desc;
	int ret = 0;

	if (request->desc.len != sizeof(desc))
		ret = error_set(-EPROTO, "table descriptor of %zu bytes, want %zu",
				request->desc.len, sizeof(desc));
	else
		memcpy(&desc, request->desc.data, sizeof(desc));
	if (ret == 0)
		ret = catalog_create(&call->md->catalog, &desc, &table);
	if (ret)
		conn_answer_status(call->conn, call->head, ret);
	else
		answer_table(call, table, false);
}

static void table_open(const struct call *call, const ProtobufCMessage *message)
{
	const Relive__TableOpenRequest *request = (const Relive__TableOpenRequest *)message;
	struct catalog_table *table = catalog_find(&call->md->catalog, request->name);

	if (table)
		answer_table(call, table, request->read_only);
	else
		conn_answer_status(
			call->conn, call->head,
			error_set(-ENOENT, "no table %.64s in this store", request->name));
}

static void table_drop(const struct call *call, const ProtobufCMessage *message)
{
	const Relive__TableDropRequest *request = (const Relive__TableDropRequest *)message;

	conn_answer_status(call->conn, call->head, catalog_drop(&call->md->catalog, request->name));
}

static void table_list(const struct call *call, const ProtobufCMessage *message)
{
	Relive__TableListReply reply = RELIVE__TABLE_LIST_REPLY__INIT;
	const struct catalog *cat = &call->md->catalog;
	char *names[TABLE_MAX_ID];
	Relive__Status status;

	(void)message;
	set_status(&status, 0);
	reply.status = &status;
	reply.names = names;
	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++)
		if (cat->tables[id])
			names[reply.n_names++] = cat->tables[id]->desc.name;
	conn_answer(call->conn, call->head, &reply.base);
}

/* -------- slots -------- */

static struct catalog_table *table_of(const struct call *call, const Relive__SlotRequest *request)
{
	return catalog_find_same(&call->md->catalog, request->table_id, request->table_uuid.data,
				 request->table_uuid.len);
}

static void slot_get(const struct call *call, const ProtobufCMessage *message)
{
	struct catalog_table *table = table_of(call, (const Relive__SlotRequest *)message);
	Relive__SlotReply reply = RELIVE__SLOT_REPLY__INIT;
	Relive__Status status;
	int ret;

	if (!table)
		ret = error_set(-ESTALE, "the table was dropped");
	else if (!call->client->has_process)
		ret = error_set(-ENOTSUP,
				"a client whose process this host cannot see cannot hold a slot");
	else
		ret = slots_get(&table->slots, &call->client->holder, &reply.owner);
	set_status(&status, ret);
	reply.status = &status;
	conn_answer(call->conn, call->head, &reply.base);
}

static void slot_put(const struct call *call, const ProtobufCMessage *message)
{
	const Relive__SlotRequest *request = (const Relive__SlotRequest *)message;
	struct catalog_table *table = table_of(call, request);
	int ret = 0;

	if (table)
		ret = slots_put(&table->slots, call->client->holder.client_id, request->owner);
	conn_answer_status(call->conn, call->head, ret);
}

/* -------- the store -------- */

static void fill_node(struct node *node, Relive__NodeInfo *info)
{
	if (node->up && node_stats(node))
		log_debug("stats: %s", error_last());
	relive__node_info__init(info);
	info->name = node->name;
	info->uri = node->uri;
	info->pool_bytes = node->pool_bytes;
	info->used_bytes = node->used_bytes;
	info->incarnation = node->incarnation;
	info->regions = node->regions;
	info->state = node->up;
	info->pages = node->pages;
}

static void fill_info(struct metad *md, Relive__StoreInfoReply *reply, char **waiting)
{
	reply->software = (char *)SERVER_VERSION;
	reply->store_name = (char *)md->opts.store;
	reply->tables = catalog_count(&md->catalog);
	reply->clients = liveness_count(&md->live);
	reply->rebuilds = md->repair.done;
	reply->waiting = waiting;
	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++)
		if (md->repair.waiting[id][0])
			waiting[reply->n_waiting++] = md->repair.waiting[id];
}

static void store_info(const struct call *call, const ProtobufCMessage *message)
{
	Relive__StoreInfoReply reply = RELIVE__STORE_INFO_REPLY__INIT;
	struct metad *md = call->md;
	uint32_t n = nodes_count(&md->nodes, false);
	Relive__NodeInfo *infos = mem_array(n + 1, sizeof(*infos));
	Relive__NodeInfo **list = mem_array(n + 1, sizeof(Relive__NodeInfo *));
	char *waiting[TABLE_MAX_ID];
	Relive__Status status;
	int ret = infos && list ? 0 : error_set(-ENOMEM, "%u nodes: no memory", n);

	(void)message;
	set_status(&status, ret);
	reply.status = &status;
	fill_info(md, &reply, waiting);
	for (struct node *node = md->nodes.first; ret == 0 && node; node = node->next) {
		fill_node(node, &infos[reply.n_nodes]);
		list[reply.n_nodes] = &infos[reply.n_nodes];
		reply.n_nodes++;
	}
	reply.nodes = list;
	conn_answer(call->conn, call->head, &reply.base);
	mem_free(infos);
	mem_free(list);
}

static void persist(const struct call *call, const ProtobufCMessage *message)
{
	int ret = 0;

	(void)message;
	for (struct node *node = call->md->nodes.first; ret == 0 && node; node = node->next)
		ret = node_persist(node);
	conn_answer_status(call->conn, call->head, ret);
}

static void lease_renew(const struct call *call, const ProtobufCMessage *message)
{
	(void)message; /* every frame renews */
	conn_answer_status(call->conn, call->head, 0);
}

static void node_register(const struct call *call, const ProtobufCMessage *message)
{
	metad_register(call->md, call->conn, call->head,
		       (const Relive__NodeRegisterRequest *)message);
}

/* -------- dispatch -------- */

static const struct service {
	uint16_t type;
	enum conn_role role;
	const ProtobufCMessageDescriptor *kind;
	void (*serve)(const struct call *call, const ProtobufCMessage *message);
} services[] = {
	{ RELIVE__TYPE__TYPE_TABLE_CREATE, CONN_CLIENT, &relive__table_create_request__descriptor,
	  table_create },
	{ RELIVE__TYPE__TYPE_TABLE_OPEN, CONN_CLIENT, &relive__table_open_request__descriptor,
	  table_open },
	{ RELIVE__TYPE__TYPE_TABLE_DROP, CONN_CLIENT, &relive__table_drop_request__descriptor,
	  table_drop },
	{ RELIVE__TYPE__TYPE_TABLE_LIST, CONN_CLIENT, &relive__table_list_request__descriptor,
	  table_list },
	{ RELIVE__TYPE__TYPE_SLOT_GET, CONN_CLIENT, &relive__slot_request__descriptor, slot_get },
	{ RELIVE__TYPE__TYPE_SLOT_PUT, CONN_CLIENT, &relive__slot_request__descriptor, slot_put },
	{ RELIVE__TYPE__TYPE_STORE_INFO, CONN_CLIENT, &relive__store_info_request__descriptor,
	  store_info },
	{ RELIVE__TYPE__TYPE_PERSIST, CONN_CLIENT, &relive__empty__descriptor, persist },
	{ RELIVE__TYPE__TYPE_LEASE_RENEW, CONN_CLIENT, &relive__empty__descriptor, lease_renew },
	{ RELIVE__TYPE__TYPE_NODE_REGISTER, CONN_MEMNODE,
	  &relive__node_register_request__descriptor, node_register },
};

static const struct service *find_service(const struct call *call)
{
	enum conn_role role = conn_peer(call->conn)->role;

	for (size_t i = 0; i < ARRAY_LEN(services); i++)
		if (services[i].type == call->head->type && services[i].role == role)
			return &services[i];
	return NULL;
}

void rpc_serve(struct metad *md, struct conn *conn, const struct channel_frame *frame)
{
	const struct call call = {
		.md = md,
		.conn = conn,
		.client = conn_user(conn),
		.head = &frame->head,
	};
	const struct service *service = find_service(&call);
	ProtobufCMessage *message;

	if (call.client)
		liveness_renew(&md->live, call.client);
	if (!service) {
		conn_answer_status(conn, call.head,
				   error_set(-ENOTSUP, "no request of type %u", call.head->type));
		return;
	}
	error_clear();
	message = channel_unpack(service->kind, frame);
	if (!message) {
		log_warn("drop connection of pid %u: %s", conn_peer(conn)->process.pid,
			 error_last());
		conn_drop(conn);
		return;
	}
	service->serve(&call, message);
	protobuf_c_message_free_unpacked(message, NULL);
}
