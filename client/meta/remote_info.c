/* remote_info.c - the metadata server's answers about the store, its nodes, waits and clients. */
#include "client/meta/remote.h"

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

/* why: with the waits of all clients. */
static int ask_info(struct meta *meta, bool why, ProtobufCMessage **reply_out)
{
	Relive__StoreInfoRequest request = RELIVE__STORE_INFO_REQUEST__INIT;

	request.why = why;
	return rpc_get(meta->rpc, RELIVE__TYPE__TYPE_STORE_INFO, &request.base,
		       &relive__store_info_reply__descriptor, reply_out);
}

int remote_info(struct meta *meta, struct rlv_store_info *out)
{
	const Relive__StoreInfoReply *info;
	struct rpc_lease lease;
	ProtobufCMessage *reply;
	int ret = ask_info(meta, false, &reply);

	if (ret)
		return ret;
	info = (const Relive__StoreInfoReply *)reply;
	rpc_lease(meta->rpc, &lease);
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

int remote_nodes(struct meta *meta, struct rlv_node_info *nodes, size_t *n_inout)
{
	const Relive__StoreInfoReply *info;
	ProtobufCMessage *reply;
	int ret = ask_info(meta, false, &reply);

	if (ret)
		return ret;
	info = (const Relive__StoreInfoReply *)reply;
	for (size_t i = 0; i < info->n_nodes && i < *n_inout; i++)
		take_node(info->nodes[i], &nodes[i]);
	*n_inout = info->n_nodes;
	protobuf_c_message_free_unpacked(reply, NULL);
	return 0;
}

/* -------- waits -------- */

/* -------- from the server -------- */

static void take_wait(const Relive__Waiting *in, struct rlv_wait *out)
{
	*out = (struct rlv_wait){
		.kind = in->kind,
		.pid = in->pid,
		.client_id = in->client_id,
		.slot = in->slot,
		.view = in->view,
		.shard = in->shard,
		.since_ns = in->since_ns,
		.left = in->left,
		.stopped = in->stopped != 0,
	};
	snprintf(out->table, sizeof(out->table), "%s", in->table);
	snprintf(out->node, sizeof(out->node), "%s", in->node);
	snprintf(out->words, sizeof(out->words), "%s", in->words);
}

int remote_waits(struct meta *meta, struct rlv_wait *waits, size_t *n_inout)
{
	const Relive__StoreInfoReply *info;
	ProtobufCMessage *reply;
	int ret = ask_info(meta, true, &reply);

	if (ret)
		return ret;
	info = (const Relive__StoreInfoReply *)reply;
	for (size_t i = 0; i < info->n_waits && i < *n_inout; i++)
		take_wait(info->waits[i], &waits[i]);
	*n_inout = info->n_waits + info->waits_left_out;
	protobuf_c_message_free_unpacked(reply, NULL);
	return 0;
}

/* -------- clients -------- */

static void take_tables(const Relive__ClientInfo *info, struct rlv_client_info *out)
{
	const size_t room = sizeof(out->tables) / sizeof(out->tables[0]);

	out->n_tables = (uint32_t)info->n_tables + info->tables_left_out;
	for (size_t i = 0; i < info->n_tables && i < room; i++) {
		snprintf(out->tables[i].name, sizeof(out->tables[i].name), "%s",
			 info->tables[i]->name);
		out->tables[i].slots = info->tables[i]->slots;
		out->tables[i].streams = info->tables[i]->streams;
	}
}

static void take_client(const Relive__ClientInfo *info, struct rlv_client_info *out)
{
	*out = (struct rlv_client_info){
		.id = info->client_id,
		.pid = (uint32_t)info->pid,
		.fenced = info->fenced != 0,
		.age_ns = info->age_ns,
		.lease_ns = info->lease_ns,
		.slots = info->slots,
		.streams = info->streams,
	};
	snprintf(out->role, sizeof(out->role), "%s", info->role);
	snprintf(out->address, sizeof(out->address), "%s", info->address);
	take_tables(info, out);
}

/*
 * Reads the clients after a client id, which becomes the last one read. *left_out: number of
 * clients after it.
 */
static int take_page(struct meta *meta, uint64_t *after, struct rlv_client_info *clients,
		     size_t *n_inout, uint32_t *left_out)
{
	Relive__ClientListRequest request = RELIVE__CLIENT_LIST_REQUEST__INIT;
	const Relive__ClientListReply *page;
	size_t room = *n_inout;
	ProtobufCMessage *reply;
	int ret;

	request.after = *after;
	ret = rpc_get(meta->rpc, RELIVE__TYPE__TYPE_CLIENT_LIST, &request.base,
		      &relive__client_list_reply__descriptor, &reply);
	if (ret)
		return ret;
	page = (const Relive__ClientListReply *)reply;
	for (size_t i = 0; i < page->n_clients; i++) {
		if (clients && i < room)
			take_client(page->clients[i], &clients[i]);
		*after = page->clients[i]->client_id;
	}
	*n_inout = page->n_clients;
	*left_out = page->n_clients ? page->left_out : 0;
	protobuf_c_message_free_unpacked(reply, NULL);
	return 0;
}

int remote_clients(struct meta *meta, struct rlv_client_info *clients, size_t *n_inout)
{
	size_t room = *n_inout, n = 0;
	uint32_t left = 1;
	uint64_t after = 0;

	while (left && (n < room || n == 0)) {
		size_t some = room - n;
		int ret = take_page(meta, &after, clients ? clients + n : NULL, &some, &left);

		if (ret)
			return ret;
		n += some;
	}
	*n_inout = n + left;
	return 0;
}
