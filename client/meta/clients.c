#include "client/meta/clients.h"

#include "wire/control.pb-c.h"

#include <stdio.h>

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

/* Behind a client id, which becomes that of the last one. *left_out: how many come behind it. */
static int take_page(struct rpc *rpc, uint64_t *after, struct rlv_client_info *clients,
		     size_t *n_inout, uint32_t *left_out)
{
	Relive__ClientListRequest request = RELIVE__CLIENT_LIST_REQUEST__INIT;
	struct rpc_call call = {
		.type = RELIVE__TYPE__TYPE_CLIENT_LIST,
		.request = &request.base,
		.reply = &relive__client_list_reply__descriptor,
	};
	const Relive__ClientListReply *page;
	size_t room = *n_inout;
	ProtobufCMessage *reply;
	int ret;

	request.after = *after;
	ret = rpc_ask(rpc, &call, &reply);
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

int meta_clients(struct rpc *rpc, struct rlv_client_info *clients, size_t *n_inout)
{
	size_t room = *n_inout, n = 0;
	uint32_t left = 1;
	uint64_t after = 0;

	while (left && (n < room || n == 0)) {
		size_t some = room - n;
		int ret = take_page(rpc, &after, clients ? clients + n : NULL, &some, &left);

		if (ret)
			return ret;
		n += some;
	}
	*n_inout = n + left;
	return 0;
}
