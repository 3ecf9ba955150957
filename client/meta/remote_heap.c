/* remote_heap.c - calls of the coordinator of a heap of mode central. */
#include "client/meta/remote.h"

#include "ds/heap/central.h"

#include "wire/control.pb-c.h"

#include <errno.h>

static void take_answer(const struct heap_access *acc, const Relive__HeapCallReply *reply,
			struct central_call *call)
{
	call->bucket = reply->bucket;
	call->cpu_ns = reply->cpu_ns;
	call->value = (struct heap_value){ .ptr = reply->value.data,
					   .len = reply->value.len,
					   .version = reply->version,
					   .deleted = reply->deleted };
	call->found = (struct heap_key){ .ptr = reply->value.data,
					 .len = (uint32_t)reply->value.len,
					 .value_len = reply->value_len,
					 .version = reply->version };
	central_take(acc, call);
}

int remote_heap_call(struct meta *meta, const struct meta_object *object,
		     const struct heap_access *acc, struct central_call *call)
{
	Relive__HeapCallRequest request = RELIVE__HEAP_CALL_REQUEST__INIT;
	const struct rpc_call ask = { .type = RELIVE__TYPE__TYPE_HEAP_CALL,
				      .once = call->op == CENTRAL_PUT,
				      .request = &request.base,
				      .reply = &relive__heap_call_reply__descriptor };
	Relive__HeapCallReply *reply;
	int ret;

	request.object = object->number;
	request.uuid = (ProtobufCBinaryData){ sizeof(object->uuid), (uint8_t *)object->uuid };
	request.part = acc->link.part;
	request.op = call->op;
	request.bucket = call->bucket;
	request.key = (ProtobufCBinaryData){ call->key.len, (uint8_t *)call->key.ptr };
	request.expected = call->put.expected;
	request.deletes = call->put.deletes;
	if (!call->put.deletes)
		request.value = (ProtobufCBinaryData){ call->put.len, (uint8_t *)call->put.value };
	ret = rpc_ask(meta->rpc, &ask, &reply);
	if (ret)
		return ret == -ECONNREFUSED ? error_set(-EHOSTDOWN, "%s", error_last()) : ret;
	take_answer(acc, reply, call);
	protobuf_c_message_free_unpacked(&reply->base, NULL);
	return 0;
}
