/*
 * rpc_named.c - requests that name an object and wait for no node.
 */
#include "server/metad/rpc_call.h"

#include <errno.h>
#include <string.h>

#include "catalog/catalog.h"

#include "ds/replay/shard.h"

int rpc_find_kind(uint32_t id, const struct object_kind **kind_out)
{
	*kind_out = object_kind_find(id ? id : OBJECT_TABLE);
	return *kind_out ? 0
			 : error_set(-ENOTSUP, "objects of kind %u: unknown to this server", id);
}

int rpc_take_uuid(const ProtobufCBinaryData *bytes, uint8_t uuid[16])
{
	memset(uuid, 0, 16);
	if (bytes->len != 0 && bytes->len != 16)
		return error_set(-EPROTO, "request: a uuid of %zu bytes", bytes->len);
	if (bytes->len)
		memcpy(uuid, bytes->data, 16);
	return 0;
}

/* The object that a request names, by kind, name and uuid, if that is given. */
static int find_named(const struct call *call, uint32_t kind_id, const char *name,
		      const ProtobufCBinaryData *uuid_bytes, struct catalog_object **object_out)
{
	const struct object_kind *kind;
	uint8_t uuid[16];
	int ret = rpc_find_kind(kind_id, &kind);

	if (ret == 0)
		ret = table_name_check(name);
	if (ret == 0)
		ret = rpc_take_uuid(uuid_bytes, uuid);
	return ret ? ret : catalog_find_named(&call->md->catalog, kind, name, uuid, object_out);
}

int rpc_table_drop(const struct call *call, const ProtobufCMessage *message)
{
	const Relive__TableDropRequest *request = (const Relive__TableDropRequest *)message;
	struct catalog_object *object;
	int ret = find_named(call, request->kind, request->name, &request->uuid, &object);

	if (ret)
		return ret;
	return request->unless_loaded ? catalog_abandon(&call->md->catalog, object)
				      : catalog_drop(&call->md->catalog, object);
}

int rpc_table_commit(const struct call *call, const ProtobufCMessage *message)
{
	const Relive__TableCommitRequest *request = (const Relive__TableCommitRequest *)message;
	struct catalog *cat = &call->md->catalog;
	struct catalog_object *object, *replaced;
	int ret = find_named(call, request->kind, request->name, &request->uuid, &object);

	if (ret == 0 && object->loader != call->client->holder.client_id)
		ret = catalog_check_loaded(cat, object);
	if (ret == 0)
		ret = catalog_commit(cat, object, &replaced);
	if (ret == 0)
		catalog_commit_end(cat, object, replaced);
	return ret;
}

int rpc_table_list(const struct call *call, const ProtobufCMessage *message)
{
	Relive__TableListReply reply = RELIVE__TABLE_LIST_REPLY__INIT;
	const struct catalog *cat = &call->md->catalog;
	const struct object_kind *kind;
	char *names[OBJECT_MAX_ID];
	int ret = rpc_find_kind(((const Relive__TableListRequest *)message)->kind, &kind);

	if (ret)
		return ret;
	reply.names = names;
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++)
		if (catalog_seen(cat, id, kind))
			names[reply.n_names++] = cat->objects[id]->name;
	return rpc_answer(call, &reply.base, &reply.status);
}
