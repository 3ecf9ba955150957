/* rpc_heap.c - this server as the coordinator of heaps of mode central. */
#include "server/metad/rpc_call.h"

#include <errno.h>

#include "catalog/kind_heap.h"

#include "ds/heap/central.h"

#include "base/os/clock.h"

int rpc_heap_call(const struct call *call, const ProtobufCMessage *message)
{
	const Relive__HeapCallRequest *request = (const Relive__HeapCallRequest *)message;
	const struct heap_part_name name = { .object = request->object,
					     .part = request->part,
					     .uuid = request->uuid.data,
					     .uuid_bytes = request->uuid.len };
	struct central_call heap = {
		.op = request->op,
		.bucket = request->bucket,
		.key = { .ptr = request->key.data, .len = (uint32_t)request->key.len },
		.put = { .value = request->value.data,
			 .len = request->value.len,
			 .deletes = request->deletes,
			 .expected = request->expected },
	};
	Relive__HeapCallReply reply = RELIVE__HEAP_CALL_REPLY__INIT;
	int ret = request->op == CENTRAL_PUT
			  ? roles_check(conn_peer(call->conn)->token.role, ROLES_WRITE, "heap put")
			  : 0;

	if (ret == 0)
		ret = kind_heap_call(&call->md->catalog, &name, &heap);
	if (ret)
		return ret;
	reply.bucket = heap.bucket;
	reply.version = request->op == CENTRAL_NEXT ? heap.found.version : heap.value.version;
	reply.deleted = heap.value.deleted;
	reply.value = (ProtobufCBinaryData){ heap.value.len, (uint8_t *)heap.value.ptr };
	if (request->op == CENTRAL_NEXT)
		reply.value = (ProtobufCBinaryData){ heap.found.len, (uint8_t *)heap.found.ptr };
	reply.value_len = heap.found.value_len;
	reply.cpu_ns = clock_read_ns(CLOCK_PROCESS_CPUTIME_ID);
	return rpc_answer(call, &reply.base, &reply.status);
}
