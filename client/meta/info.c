#include "client/meta/info.h"

#include "wire/control.pb-c.h"

#include "base/bits.h"

#include <stdio.h>

static uint32_t count_bits(const ProtobufCBinaryData *bytes)
{
	uint32_t n = 0;

	for (size_t i = 0; i < bytes->len; i++)
		n += bits_popcount(bytes->data[i]);
	return n;
}

static void take_node(const Relive__NodeInfo *in, struct rlv_node_info *out)
{
	snprintf(out->name, sizeof(out->name), "%s", in->name);
	snprintf(out->address, sizeof(out->address), "%s", in->uri);
	snprintf(out->pages, sizeof(out->pages), "%s", in->pages);
	out->pool_bytes = in->pool_bytes;
	out->used_bytes = in->used_bytes;
	out->incarnation = in->incarnation;
	snprintf(out->transport, sizeof(out->transport), "%s", in->transport);
	out->regions = in->regions;
	out->state = in->state;
	out->shards = in->shards;
	out->clients = in->clients;
	out->n_gauges = (uint32_t)min_u64(in->n_gauges, ARRAY_LEN(out->gauges));
	for (uint32_t i = 0; i < out->n_gauges; i++) {
		snprintf(out->gauges[i].name, sizeof(out->gauges[i].name), "%s",
			 in->gauges[i]->name);
		out->gauges[i].value = in->gauges[i]->value;
	}
	out->agent_cpu_ns = in->agent_cpu_ns;
	out->process_cpu_ns = in->process_cpu_ns;
	out->silent_ns = in->silent_ns;
	out->broken = count_bits(&in->broken);
}

static void take_waiting(const Relive__StoreInfoReply *info, struct rlv_store_info *out)
{
	size_t len = 0;

	for (size_t i = 0; i < info->n_waiting && len < sizeof(out->waiting); i++) {
		int n = snprintf(out->waiting + len, sizeof(out->waiting) - len, "%s%s",
				 i ? "; " : "", info->waiting[i]);

		len += n > 0 ? (size_t)n : 0;
	}
}

static int ask_info(struct rpc *rpc, ProtobufCMessage **reply_out)
{
	Relive__StoreInfoRequest request = RELIVE__STORE_INFO_REQUEST__INIT;
	struct rpc_call call = {
		.type = RELIVE__TYPE__TYPE_STORE_INFO,
		.request = &request.base,
		.reply = &relive__store_info_reply__descriptor,
	};

	return rpc_ask(rpc, &call, reply_out);
}

int meta_info(struct rpc *rpc, struct rlv_store_info *out)
{
	const Relive__StoreInfoReply *info;
	struct rpc_lease lease;
	ProtobufCMessage *reply;
	int ret = ask_info(rpc, &reply);

	if (ret)
		return ret;
	info = (const Relive__StoreInfoReply *)reply;
	rpc_lease(rpc, &lease);
	snprintf(out->server_version, sizeof(out->server_version), "%s", info->software);
	out->term = lease.term;
	out->n_tables = info->tables;
	out->n_clients = info->clients;
	out->rebuilds = info->rebuilds;
	out->n_nodes = (uint32_t)info->n_nodes;
	take_waiting(info, out);
	protobuf_c_message_free_unpacked(reply, NULL);
	return 0;
}

int meta_nodes(struct rpc *rpc, struct rlv_node_info *nodes, size_t *n_inout)
{
	const Relive__StoreInfoReply *info;
	ProtobufCMessage *reply;
	int ret = ask_info(rpc, &reply);

	if (ret)
		return ret;
	info = (const Relive__StoreInfoReply *)reply;
	for (size_t i = 0; i < info->n_nodes && i < *n_inout; i++)
		take_node(info->nodes[i], &nodes[i]);
	*n_inout = info->n_nodes;
	protobuf_c_message_free_unpacked(reply, NULL);
	return 0;
}
