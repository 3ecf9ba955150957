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

#include "base/bits.h"
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

/* A shard in an answer, with its grants. */
struct place_row {
	Relive__ShardPlace place;
	struct catalog_grants grants;
};

static ProtobufCBinaryData grant_bytes(struct region_grant *grant)
{
	return (ProtobufCBinaryData){ grant->bytes, grant->data };
}

/* Fills in row for shard s, with the guest's grants if the shard is usable; without an answer from
   its node it is DOWN. Sets *waits_out if its grants or its attachment are outstanding. */
static int fill_place(struct catalog_object *table, uint32_t s, const struct catalog_guest *guest,
		      struct place_row *row, bool *waits_out)
{
	const struct catalog_part *shard = &table->parts[s];
	struct region_grant *grants = row->grants.places;
	Relive__ShardPlace *place = &row->place;
	int ret;

	relive__shard_place__init(place);
	place->state = catalog_part_view(table, s);
	place->node = shard->node ? shard->node->name : (char *)"";
	place->node_uri = (char *)catalog_part_uri(table, s);
	place->incarnation = shard->incarnation;
	/* Its node is up: the catalog's next ticks will make it usable. */
	*waits_out |= catalog_state_is_usable(shard->state) && shard->node && shard->node->up &&
		      !shard->joined && !shard->refused && !shard->broken && !shard->recovering;
	if (!catalog_state_is_usable(place->state))
		return 0;
	ret = catalog_grant(table, s, guest, &row->grants);
	*waits_out |= ret == -EAGAIN;
	if (ret == -EHOSTDOWN || ret == -EAGAIN || ret == -ETIMEDOUT) {
		place->state = RELIVE__SHARD_STATE__SHARD_DOWN; /* asked for again soon */
		return 0;
	}
	place->tree_grant = grant_bytes(&grants[REGION_TREE]);
	place->rows_grant = grant_bytes(&grants[REGION_ROWS]);
	place->slots_grant = grant_bytes(&grants[REGION_SLOTS]);
	place->limits_grant = grant_bytes(&grants[PART_LIMITS]);
	place->page_grant = grant_bytes(&grants[PART_PAGE]);
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

/* -------- parked requests -------- */

/* A request whose answer waits for nodes. It is completed even if its client has left. */
struct rpc_parked {
	struct rpc_parked *next;
	struct conn *conn; /* NULL = disconnected or fenced */
	struct frame_header head;
	/* Advances the request. -EAGAIN: not yet complete; else as of a handler (rpc_call.h). */
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
	uint8_t table_uuid[16];     /* the same; for open: zero = none is meant */
};

/* Makes a request that can wait for nodes, not in the list yet. name: of its object, NULL = without
   one. -ENOTSUP: unknown kind; errors of table_name_check; -ENOMEM. */
static int new_parked(const struct call *call, uint32_t kind, const char *name,
		      struct rpc_parked **parked_out)
{
	const struct object_kind *found;
	struct rpc_parked *parked;
	int ret = rpc_find_kind(kind, &found);

	if (ret == 0 && name)
		ret = table_name_check(name);
	if (ret)
		return ret;
	parked = mem_zalloc(sizeof(*parked));
	if (!parked)
		return error_set(-ENOMEM, "cannot allocate memory");
	parked->conn = call->conn;
	parked->head = *call->head;
	parked->asker = ++call->md->last_asker;
	parked->kind = found;
	snprintf(parked->name, sizeof(parked->name), "%s", name ? name : "");
	*parked_out = parked;
	return 0;
}

static void free_parked(struct metad *md, struct rpc_parked *parked)
{
	for (struct node *node = md->nodes.first; node; node = node->next)
		node_forget_asker(node, parked->asker);
	mem_free((void *)parked->wish.details);
	mem_free(parked);
}

/* Advances the request. True if it stays parked; else it was answered, unless its client has left,
   and freed. */
static bool parked_goes_on(const struct call *call, struct rpc_parked *parked)
{
	int ret = parked->go_on(call, parked);

	if (ret == -EAGAIN)
		return true;
	if (call->conn && ret != RPC_ANSWERED)
		conn_answer_status(call->conn, call->head, ret);
	free_parked(call->md, parked);
	return false;
}

static int parked_begin(const struct call *call, struct rpc_parked *parked)
{
	if (parked_goes_on(call, parked)) {
		parked->next = call->md->parked;
		call->md->parked = parked;
	}
	return RPC_ANSWERED;
}

void rpc_go_on(struct metad *md)
{
	struct rpc_parked **link = &md->parked, *parked;

	while ((parked = *link) != NULL) {
		struct rpc_parked *next = parked->next;
		struct call call = { .md = md, .conn = parked->conn, .head = &parked->head };

		if (call.conn) {
			int ret;

			call.client = conn_user(call.conn);
			ret = rpc_check_client(&call);
			if (ret) {
				conn_answer_status(call.conn, call.head, ret);
				call.conn = parked->conn = NULL;
			} else {
				/* A client that waits for us counts as alive. */
				liveness_renew(&md->live, call.client);
			}
		}
		if (parked_goes_on(&call, parked))
			link = &parked->next;
		else
			*link = next;
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

/* -------- answers with grants -------- */

/*
 * Answers with the table's shards and the client's grants on them. Asks all nodes at once: -EAGAIN
 * until they have granted, for one node lease at most. A node without an answer by then is left
 * out: the client uses the other shards, and asks again. -EHOSTDOWN: no shard is usable.
 */
static int answer_table(const struct call *call, struct rpc_parked *parked,
			struct catalog_object *table)
{
	const struct catalog_guest guest = { parked->asker, call->client->holder.client_id,
					     (enum part_access)parked->access, parked->owner };
	struct place_row *rows = mem_array(table->n_parts, sizeof(*rows));
	Relive__ShardPlace **list = mem_array(table->n_parts, sizeof(Relive__ShardPlace *));
	Relive__TableReply reply = RELIVE__TABLE_REPLY__INIT;
	uint64_t now = clock_now_ns(clock_monotonic());
	struct metad *md = call->md;
	bool any = false, waits = false;
	int ret = 0;

	if (!rows || !list) {
		ret = error_set(-ENOMEM, "cannot allocate memory for %u shards", table->n_parts);
		goto out;
	}
	for (uint32_t s = 0; ret == 0 && s < table->n_parts; s++) {
		Relive__ShardPlace *place = list[s] = &rows[s].place;

		ret = fill_place(table, s, &guest, &rows[s], &waits);
		if (place->state == RELIVE__SHARD_STATE__SHARD_ACTIVE)
			place->weight =
				catalog_weight(&md->catalog, &table->parts[s], &place->ramp_ns);
		any |= ret == 0 && catalog_state_is_usable(place->state);
	}
	if (ret == 0 && !any)
		ret = no_shard(table);
	if (parked->until == 0)
		parked->until = now + md->nodes.lease_ns;
	if ((ret == 0 || ret == -EHOSTDOWN) && waits && now < parked->until) {
		ret = -EAGAIN;
		goto out;
	}
	/* A node may have left meanwhile: the version must match the answer. */
	catalog_refresh(&md->catalog, table);
	if (ret)
		goto out;
	reply.desc = (ProtobufCBinaryData){ table->desc_len, (uint8_t *)table->desc };
	reply.object = table->id;
	reply.uuid = (ProtobufCBinaryData){ sizeof(table->uuid), (uint8_t *)table->uuid };
	reply.max_clients = table->max_clients;
	reply.n_shards = table->n_parts;
	reply.shards = list;
	reply.control = table->control;
	reply.layout = table->layout;
	ret = rpc_answer(call, &reply.base, &reply.status);
out:
	mem_free(rows);
	mem_free(list);
	return ret;
}

/* -------- create -------- */

static int go_on_creating(const struct call *call, struct rpc_parked *parked)
{
	struct catalog_object *table;
	int ret = catalog_create(&call->md->catalog, &parked->wish, &table);

	return ret || !call->conn ? ret : answer_table(call, parked, table);
}

int rpc_table_create(const struct call *call, const ProtobufCMessage *message)
{
	const Relive__TableCreateRequest *request = (const Relive__TableCreateRequest *)message;
	const struct kind_request wanted = {
		.desc = request->desc.data,
		.len = request->desc.len,
		.auto_parts = request->auto_shards,
		.crc_by_nodes = request->crc_by_nodes,
		.block = request->block,
		.fanout = request->fanout,
		.n_fanout = request->n_fanout,
	};
	struct rpc_parked *parked;
	int ret = new_parked(call, request->kind, NULL, &parked);

	if (ret)
		return ret;
	snprintf(parked->name, sizeof(parked->name), "%s", request->name);
	parked->wish = (struct catalog_wish){ .kind = parked->kind,
					      .name = parked->name,
					      .auto_parts = request->auto_shards };
	ret = parked->kind->take_wish(&wanted, &parked->wish.details, parked->name);
	if (ret == 0)
		ret = table_name_check(parked->name);
	if (ret == 0)
		ret = rpc_take_uuid(&request->loads, parked->wish.uuid);
	if (request->loads.len)
		parked->wish.loader = call->client->holder.client_id;
	parked->wish.beside = parked->wish.loader && request->beside;
	if (ret) {
		free_parked(call->md, parked);
		return ret;
	}
	parked->access = RELIVE__TABLE_ACCESS__TABLE_ACCESS_READ; /* reopened for work */
	parked->go_on = go_on_creating;
	return parked_begin(call, parked);
}

/* -------- rebalance -------- */

static int go_on_rebalancing(const struct call *call, struct rpc_parked *parked)
{
	Relive__TableRebalanceReply reply = RELIVE__TABLE_REBALANCE_REPLY__INIT;
	struct catalog_object *table;
	enum placement_kind kind;
	int ret = catalog_find_named(&call->md->catalog, parked->kind, parked->name,
				     parked->table_uuid, &table);

	if (ret)
		return ret;
	while ((ret = catalog_spread_step(&call->md->catalog, table, &kind)) > 0) {
		parked->added++;
		parked->draining += kind == PLACEMENT_MOVE;
	}
	if (ret || !call->conn)
		return ret;
	reply.added = parked->added;
	reply.draining = parked->draining;
	return rpc_answer(call, &reply.base, &reply.status);
}

int rpc_table_rebalance(const struct call *call, const ProtobufCMessage *message)
{
	const Relive__TableRebalanceRequest *request =
		(const Relive__TableRebalanceRequest *)message;
	struct rpc_parked *parked;
	int ret = new_parked(call, request->kind, request->name, &parked);

	if (ret)
		return ret;
	parked->go_on = go_on_rebalancing;
	return parked_begin(call, parked);
}

/* -------- client slots -------- */

/* Gets the client a slot and answers with it. -EAGAIN until the nodes have made the slot's page;
   after a node lease -EHOSTDOWN. -ESTALE: the table was dropped. */
static int go_on_slot(const struct call *call, struct rpc_parked *parked)
{
	struct catalog_object *table = catalog_find_same(&call->md->catalog, parked->table_id,
							 parked->table_uuid,
							 sizeof(parked->table_uuid));
	Relive__SlotReply reply = RELIVE__SLOT_REPLY__INIT;
	int ret;

	if (!call->conn)
		return 0;
	if (!table)
		return error_set(-ESTALE, "the table was dropped");
	ret = slots_get(&table->slots, &call->client->holder, parked->streams, &reply.owner);
	return ret ? ret : rpc_answer(call, &reply.base, &reply.status);
}

int rpc_slot_get(const struct call *call, const ProtobufCMessage *message)
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
	if (ret == 0)
		ret = new_parked(call, OBJECT_TABLE, NULL, &parked);
	if (ret)
		return ret;
	parked->table_id = request->table_id;
	memcpy(parked->table_uuid, table->uuid, sizeof(parked->table_uuid));
	parked->streams = request->streams;
	parked->go_on = go_on_slot;
	metad_hurry(call->md); /* looks for the pages soon */
	return parked_begin(call, parked);
}

/* -------- the rest -------- */

static int go_on_opening(const struct call *call, struct rpc_parked *parked)
{
	struct catalog_object *table;
	int ret;

	if (!call->conn)
		return 0;
	ret = catalog_find_named(&call->md->catalog, parked->kind, parked->name, parked->table_uuid,
				 &table);
	if (ret == 0 && bits_all_zero(parked->table_uuid, sizeof(parked->table_uuid)))
		ret = catalog_check_loaded(&call->md->catalog, table);
	/* The slot must still be the client's: it may have lost or returned it meanwhile. */
	if (ret == 0 && parked->owner &&
	    !slots_has(&table->slots, call->client->holder.client_id, parked->owner))
		ret = error_set(-EACCES, "client slot %u of %s is another client's", parked->owner,
				table->text);
	return ret ? ret : answer_table(call, parked, table);
}

int rpc_table_open(const struct call *call, const ProtobufCMessage *message)
{
	const Relive__TableOpenRequest *request = (const Relive__TableOpenRequest *)message;
	struct rpc_parked *parked;
	Relive__TableAccess access;
	int ret = roles_access(conn_peer(call->conn)->token.role, request, &access);

	if (ret == 0)
		ret = new_parked(call, request->kind, request->name, &parked);
	if (ret)
		return ret;
	ret = rpc_take_uuid(&request->uuid, parked->table_uuid);
	if (ret) {
		free_parked(call->md, parked);
		return ret;
	}
	parked->access = access;
	parked->owner = request->owner;
	parked->go_on = go_on_opening;
	return parked_begin(call, parked);
}
