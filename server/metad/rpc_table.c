/*
 * rpc_table.c - requests about tables and other objects: their kind says what a wish means, and
 * descriptors pass through unread. A request that waits for nodes is parked, and answered when
 * they have answered; the server continues meanwhile.
 */
#include "server/metad/rpc_call.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "catalog/catalog.h"

#include "ds/replay/shard.h"

#include "base/mem/alloc.h"

/* The catalog's numbers are those of the wire. */
_Static_assert((int)PART_NONE == RELIVE__SHARD_STATE__SHARD_NONE &&
		       (int)PART_ACTIVE == RELIVE__SHARD_STATE__SHARD_ACTIVE &&
		       (int)PART_DRAINING == RELIVE__SHARD_STATE__SHARD_DRAINING &&
		       (int)PART_DOWN == RELIVE__SHARD_STATE__SHARD_DOWN &&
		       (int)PART_LOST == RELIVE__SHARD_STATE__SHARD_LOST &&
		       (int)PART_GONE == RELIVE__SHARD_STATE__SHARD_GONE &&
		       (int)PART_WEIGHT_FULL == RELIVE__SHARD_WEIGHT__SHARD_WEIGHT_FULL,
	       "states of parts");

/* -------- table answers -------- */

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
	return error_set(-ENOMEM, "cannot allocate memory for %u shards", n);
}

static ProtobufCBinaryData grant_bytes(struct region_grant *grant)
{
	return (ProtobufCBinaryData){ grant->bytes, grant->data };
}

/* An answer about a table, its recipient, and whether grants are outstanding. */
struct answer {
	const struct call *call;
	struct catalog_object *table;
	struct catalog_guest guest;
	bool waits;
};

/* True if the catalog's next ticks will make the shard usable: its node is up. */
static bool is_on_its_way(const struct catalog_part *shard)
{
	return catalog_state_is_usable(shard->state) && shard->node && shard->node->up &&
	       !shard->joined && !shard->refused && !shard->broken && !shard->recovering;
}

/* Fills in a shard, with its grants if it is usable. */
static int fill_place(struct answer *answer, uint32_t s, struct places *out)
{
	struct catalog_object *table = answer->table;
	const struct catalog_part *shard = &table->parts[s];
	Relive__ShardPlace *place = &out->places[s];
	int ret;

	relive__shard_place__init(place);
	out->list[s] = place;
	place->state = catalog_part_view(table, s);
	place->node = shard->node ? shard->node->name : (char *)"";
	place->node_uri = (char *)catalog_part_uri(table, s);
	place->incarnation = shard->incarnation;
	answer->waits |= is_on_its_way(shard);
	if (!catalog_state_is_usable(place->state))
		return 0;
	ret = catalog_grant(table, s, &answer->guest, &out->grants[s]);
	answer->waits |= ret == -EAGAIN;
	if (ret == -EHOSTDOWN || ret == -EAGAIN || ret == -ETIMEDOUT) {
		place->state = RELIVE__SHARD_STATE__SHARD_DOWN; /* asked for again soon */
		return 0;
	}
	place->tree_grant = grant_bytes(&out->grants[s].places[REGION_TREE]);
	place->rows_grant = grant_bytes(&out->grants[s].places[REGION_ROWS]);
	place->slots_grant = grant_bytes(&out->grants[s].places[REGION_SLOTS]);
	place->limits_grant = grant_bytes(&out->grants[s].places[PART_LIMITS]);
	place->page_grant = grant_bytes(&out->grants[s].places[PART_PAGE]);
	if (place->state == RELIVE__SHARD_STATE__SHARD_ACTIVE)
		place->weight = catalog_weight(&answer->call->md->catalog, shard, &place->ramp_ns);
	return ret;
}

static int no_shard(const struct catalog_object *table)
{
	for (uint32_t s = 0; s < table->n_parts; s++)
		if (table->parts[s].refused)
			return error_set(table->refusal.code, "%s", table->refusal.text);
	if (catalog_object_is_recovering(table))
		return error_set(-EHOSTDOWN,
				 "%s: all rows are being read, since a memory node did not "
				 "end cleanly: open it again in some seconds",
				 table->text);
	return error_set(-EHOSTDOWN,
			 "%s: none of its %u %ss is there: memory nodes are down or lost",
			 table->text, table->n_parts, table->kind->part);
}

static int fill_places(struct answer *answer, struct places *out)
{
	struct catalog_object *table = answer->table;
	bool any = false;
	int ret = 0;

	for (uint32_t s = 0; ret == 0 && s < table->n_parts; s++) {
		ret = fill_place(answer, s, out);
		any |= ret == 0 && catalog_state_is_usable(out->places[s].state);
	}
	return ret || any ? ret : no_shard(table);
}

static void send_table(const struct answer *answer, const struct places *places, int code)
{
	const struct catalog_object *table = answer->table;
	Relive__TableReply reply = RELIVE__TABLE_REPLY__INIT;
	Relive__Status status;

	rpc_set_status(&status, code);
	reply.status = &status;
	if (code == 0) {
		reply.desc.data = (uint8_t *)table->desc;
		reply.desc.len = table->desc_len;
		reply.object = table->id;
		reply.uuid = (ProtobufCBinaryData){ sizeof(table->uuid), (uint8_t *)table->uuid };
		reply.max_clients = table->max_clients;
		reply.n_shards = table->n_parts;
		reply.shards = places->list;
		reply.control = table->control;
		reply.layout = table->layout;
	}
	conn_answer(answer->call->conn, answer->call->head, &reply.base);
}

/* -------- parked requests -------- */

/* A request whose answer waits for nodes. It is completed even if its client has left. */
struct rpc_parked {
	struct rpc_parked *next;
	struct conn *conn; /* NULL = disconnected or fenced */
	struct frame_header head;
	/* Advances the request and answers it when complete: 0. -EAGAIN: not yet. */
	int (*go_on)(const struct call *call, struct rpc_parked *parked);
	uint64_t asker; /* its asker number, for grants */
	uint64_t until; /* deadline; nodes without an answer by then are left out; 0 = not started */
	const struct object_kind *kind;
	struct catalog_wish wish;     /* for create; details are owned */
	char name[OBJECT_NAME_BYTES]; /* but for client slots */
	Relive__TableAccess access;   /* for open and create: the client's access */
	uint32_t owner;               /* its client slot, 0 = none */
	uint32_t added, draining;
	uint32_t table_id, streams; /* for a client slot */
	uint8_t table_uuid[16];
};

static struct rpc_parked *new_parked(const struct call *call)
{
	struct rpc_parked *parked = mem_zalloc(sizeof(*parked));

	if (!parked) {
		conn_answer_status(call->conn, call->head,
				   error_set(-ENOMEM, "cannot allocate memory"));
		return NULL;
	}
	parked->conn = call->conn;
	parked->head = *call->head;
	parked->asker = ++call->md->last_asker;
	return parked;
}

static void free_parked(struct metad *md, struct rpc_parked *parked)
{
	for (struct node *node = md->nodes.first; node; node = node->next)
		node_forget_asker(node, parked->asker);
	mem_free((void *)parked->wish.details);
	mem_free(parked);
}

static void table_request_begin(const struct call *call, struct rpc_parked *parked)
{
	if (parked->go_on(call, parked) != -EAGAIN) {
		free_parked(call->md, parked);
		return;
	}
	parked->next = call->md->parked;
	call->md->parked = parked;
}

/* A client that waits for us counts as alive. */
static bool goes_on(struct metad *md, struct rpc_parked *parked)
{
	struct call call = { .md = md, .conn = parked->conn, .head = &parked->head };
	int ret = 0;

	if (call.conn) {
		call.client = conn_user(call.conn);
		ret = rpc_check_client(&call);
	}
	if (ret) {
		conn_answer_status(call.conn, call.head, ret);
		call.conn = parked->conn = NULL;
	}
	if (call.conn)
		liveness_renew(&md->live, call.client);
	return parked->go_on(&call, parked) == -EAGAIN;
}

void rpc_go_on(struct metad *md)
{
	struct rpc_parked **link = &md->parked;

	while (*link) {
		struct rpc_parked *parked = *link;

		if (goes_on(md, parked)) {
			link = &parked->next;
			continue;
		}
		*link = parked->next;
		free_parked(md, parked);
	}
}

void rpc_forget(struct metad *md, const struct conn *conn)
{
	for (struct rpc_parked *parked = md->parked; parked; parked = parked->next)
		if (parked->conn == conn)
			parked->conn = NULL;
	rpc_backup_forget(md, conn);
}

void rpc_fini(struct metad *md)
{
	while (md->parked) {
		struct rpc_parked *parked = md->parked;

		md->parked = parked->next;
		free_parked(md, parked);
	}
	rpc_backup_forget(md, NULL);
}

/* -------- named objects -------- */

/* kind 0: tables. */
static int find_kind(uint32_t id, const struct object_kind **kind_out)
{
	*kind_out = object_kind_find(id ? id : OBJECT_TABLE);
	return *kind_out ? 0
			 : error_set(-ENOTSUP, "objects of kind %u: unknown to this server", id);
}

/* The object of that kind and name, which was checked. -ENOENT. */
static int find_object(const struct metad *md, const struct object_kind *kind, const char *name,
		       struct catalog_object **object_out)
{
	*object_out = catalog_find(&md->catalog, name);
	if (*object_out && (*object_out)->kind == kind)
		return 0;
	return error_set(-ENOENT, "no %s %.64s in this store", kind->name, name);
}

/* Parks a request about the object of that kind and name; NULL: it was answered. */
static struct rpc_parked *new_named(const struct call *call, uint32_t kind, const char *name)
{
	const struct object_kind *found;
	struct rpc_parked *parked;
	int ret = find_kind(kind, &found);

	if (ret == 0)
		ret = table_name_check(name);
	if (ret) {
		conn_answer_status(call->conn, call->head, ret);
		return NULL;
	}
	parked = new_parked(call);
	if (!parked)
		return NULL;
	parked->kind = found;
	snprintf(parked->name, sizeof(parked->name), "%s", name);
	return parked;
}

/* -------- answers with grants -------- */

/*
 * Asks all nodes at once; they have one node lease to answer. A node without an answer by then is
 * left out: the client uses the other shards, and asks again. -EAGAIN: not yet.
 */
static int answer_table(const struct call *call, struct rpc_parked *parked,
			struct catalog_object *table)
{
	struct metad *md = call->md;
	struct answer answer = {
		.call = call,
		.table = table,
		.guest = { parked->asker, call->client->holder.client_id,
			   (enum part_access)parked->access, parked->owner },
	};
	uint64_t now = clock_now_ns(clock_monotonic());
	struct places places;
	int ret = places_init(&places, table->n_parts);

	if (ret) {
		conn_answer_status(call->conn, call->head, ret);
		return 0;
	}
	ret = fill_places(&answer, &places);
	if (parked->until == 0)
		parked->until = now + md->nodes.lease_ns;
	if ((ret == 0 || ret == -EHOSTDOWN) && answer.waits && now < parked->until) {
		places_fini(&places);
		return -EAGAIN;
	}
	/* A node may have left meanwhile: the version must match the answer. */
	catalog_refresh(&md->catalog, table);
	send_table(&answer, &places, ret);
	places_fini(&places);
	return 0;
}

/* -------- create -------- */

static int go_on_creating(const struct call *call, struct rpc_parked *parked)
{
	struct catalog_object *table;
	int ret = catalog_create(&call->md->catalog, &parked->wish, &table);

	if (ret == -EAGAIN)
		return ret;
	if (!call->conn)
		return 0;
	if (ret == 0)
		return answer_table(call, parked, table);
	conn_answer_status(call->conn, call->head, ret);
	return 0;
}

void rpc_table_create(const struct call *call, const ProtobufCMessage *message)
{
	const Relive__TableCreateRequest *request = (const Relive__TableCreateRequest *)message;
	struct rpc_parked *parked = new_parked(call);
	int ret;

	if (!parked)
		return;
	ret = find_kind(request->kind, &parked->kind);
	if (ret == 0) {
		const struct kind_request wanted = {
			.desc = request->desc.data,
			.len = request->desc.len,
			.auto_parts = request->auto_shards,
			.crc_by_nodes = request->crc_by_nodes,
			.block = request->block,
			.fanout = request->fanout,
			.n_fanout = request->n_fanout,
		};

		snprintf(parked->name, sizeof(parked->name), "%s", request->name);
		parked->wish = (struct catalog_wish){ .kind = parked->kind,
						      .name = parked->name,
						      .auto_parts = request->auto_shards };
		ret = parked->kind->take_wish(&wanted, &parked->wish.details, parked->name);
	}
	if (ret == 0)
		ret = table_name_check(parked->name);
	if (ret) {
		conn_answer_status(call->conn, call->head, ret);
		free_parked(call->md, parked);
		return;
	}
	parked->access = RELIVE__TABLE_ACCESS__TABLE_ACCESS_READ; /* reopened for work */
	parked->go_on = go_on_creating;
	table_request_begin(call, parked);
}

/* -------- rebalance -------- */

static void answer_rebalance(const struct call *call, const struct rpc_parked *parked, int code)
{
	Relive__TableRebalanceReply reply = RELIVE__TABLE_REBALANCE_REPLY__INIT;
	Relive__Status status;

	rpc_set_status(&status, code);
	reply.status = &status;
	reply.added = parked->added;
	reply.draining = parked->draining;
	conn_answer(call->conn, call->head, &reply.base);
}

static int go_on_rebalancing(const struct call *call, struct rpc_parked *parked)
{
	struct catalog_object *table;
	enum placement_kind kind;
	int ret = find_object(call->md, parked->kind, parked->name, &table), step = 0;

	while (ret == 0 && (step = catalog_spread_step(&call->md->catalog, table, &kind)) > 0) {
		parked->added++;
		parked->draining += kind == PLACEMENT_MOVE;
	}
	if (step == -EAGAIN)
		return step;
	if (call->conn)
		answer_rebalance(call, parked, ret ? ret : step);
	return 0;
}

void rpc_table_rebalance(const struct call *call, const ProtobufCMessage *message)
{
	const Relive__TableRebalanceRequest *request =
		(const Relive__TableRebalanceRequest *)message;
	struct rpc_parked *parked = new_named(call, request->kind, request->name);

	if (!parked)
		return;
	parked->go_on = go_on_rebalancing;
	table_request_begin(call, parked);
}

/* -------- client slots -------- */

/* The nodes make the page of the slot, for one node lease at most. */
static int go_on_slot(const struct call *call, struct rpc_parked *parked)
{
	struct catalog_object *table = catalog_find_same(&call->md->catalog, parked->table_id,
							 parked->table_uuid,
							 sizeof(parked->table_uuid));
	Relive__SlotReply reply = RELIVE__SLOT_REPLY__INIT;
	Relive__Status status;
	int ret;

	if (!call->conn)
		return 0;
	if (table)
		ret = slots_get(&table->slots, &call->client->holder, parked->streams,
				&reply.owner);
	else
		ret = error_set(-ESTALE, "the table was dropped");
	if (ret == -EAGAIN)
		return ret;
	rpc_set_status(&status, ret);
	reply.status = &status;
	conn_answer(call->conn, call->head, &reply.base);
	return 0;
}

void rpc_slot_get(const struct call *call, const ProtobufCMessage *message)
{
	const Relive__SlotRequest *request = (const Relive__SlotRequest *)message;
	struct catalog_object *table = catalog_find_same(&call->md->catalog, request->table_id,
							 request->table_uuid.data,
							 request->table_uuid.len);
	struct rpc_parked *parked;
	int ret = 0;

	if (request->streams)
		ret = roles_check(conn_peer(call->conn)->token.role, ROLES_WRITE, "append");
	if (ret == 0 && !table)
		ret = error_set(-ESTALE, "the table was dropped");
	if (ret) {
		conn_answer_status(call->conn, call->head, ret);
		return;
	}
	parked = new_parked(call);
	if (!parked)
		return;
	parked->table_id = request->table_id;
	memcpy(parked->table_uuid, table->uuid, sizeof(parked->table_uuid));
	parked->streams = request->streams;
	parked->go_on = go_on_slot;
	table_request_begin(call, parked);
	metad_hurry(call->md); /* looks for the pages soon */
}

/* -------- the rest -------- */

static int go_on_opening(const struct call *call, struct rpc_parked *parked)
{
	struct catalog_object *table;
	int ret;

	if (!call->conn)
		return 0;
	ret = find_object(call->md, parked->kind, parked->name, &table);
	/* The slot must still be the client's: it may have lost or returned it meanwhile. */
	if (ret == 0 && parked->owner &&
	    !slots_has(&table->slots, call->client->holder.client_id, parked->owner))
		ret = error_set(-EACCES, "client slot %u of %s is another client's", parked->owner,
				table->text);
	if (ret == 0)
		return answer_table(call, parked, table);
	conn_answer_status(call->conn, call->head, ret);
	return 0;
}

void rpc_table_open(const struct call *call, const ProtobufCMessage *message)
{
	const Relive__TableOpenRequest *request = (const Relive__TableOpenRequest *)message;
	struct rpc_parked *parked;
	Relive__TableAccess access;
	int ret = roles_access(conn_peer(call->conn)->token.role, request, &access);

	if (ret) {
		conn_answer_status(call->conn, call->head, ret);
		return;
	}
	parked = new_named(call, request->kind, request->name);
	if (!parked)
		return;
	parked->access = access;
	parked->owner = request->owner;
	parked->go_on = go_on_opening;
	table_request_begin(call, parked);
}

void rpc_table_drop(const struct call *call, const ProtobufCMessage *message)
{
	const Relive__TableDropRequest *request = (const Relive__TableDropRequest *)message;
	const struct object_kind *kind;
	struct catalog_object *object;
	int ret = find_kind(request->kind, &kind);

	if (ret == 0)
		ret = table_name_check(request->name);
	if (ret == 0)
		ret = find_object(call->md, kind, request->name, &object);
	if (ret == 0)
		ret = catalog_drop(&call->md->catalog, request->name);
	conn_answer_status(call->conn, call->head, ret);
}

void rpc_table_list(const struct call *call, const ProtobufCMessage *message)
{
	Relive__TableListReply reply = RELIVE__TABLE_LIST_REPLY__INIT;
	const struct catalog *cat = &call->md->catalog;
	const struct object_kind *kind;
	char *names[OBJECT_MAX_ID];
	Relive__Status status;

	rpc_set_status(&status,
		       find_kind(((const Relive__TableListRequest *)message)->kind, &kind));
	reply.status = &status;
	reply.names = names;
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++)
		if (cat->objects[id] && cat->objects[id]->kind == kind)
			names[reply.n_names++] = cat->objects[id]->name;
	conn_answer(call->conn, call->head, &reply.base);
}
