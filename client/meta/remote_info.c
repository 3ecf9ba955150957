/* remote_info.c - the metadata server's answers about the store, its nodes, waits and clients. */
#include "client/meta/remote.h"

#include "wire/control.pb-c.h"

#include "base/bits.h"

#include <stdio.h>

static void take_node(const Relive__NodeInfo *in, struct rlv_node_info *out)
{
	snprintf(out->name, sizeof(out->name), "%s", in->name);
	snprintf(out->address, sizeof(out->address), "%s", in->uri);
	snprintf(out->pages, sizeof(out->pages), "%s", in->pages);
	out->pool_bytes = in->pool_bytes;
	out->used_bytes = in->used_bytes;
	out->incarnation = in->incarnation;
	snprintf(out->transport, sizeof(out->transport), "%s", in->transport);
	snprintf(out->why, sizeof(out->why), "%s", in->why);
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
	for (size_t i = 0; i < in->broken.len; i++)
		out->broken += bits_popcount(in->broken.data[i]);
}

/* Asks the server for the state of the store; why: with the waits of all clients. */
static int ask_info(struct meta *meta, bool why, Relive__StoreInfoReply **info_out)
{
	Relive__StoreInfoRequest request = RELIVE__STORE_INFO_REQUEST__INIT;

	request.why = why;
	return remote_get(meta, RELIVE__TYPE__TYPE_STORE_INFO, &request.base,
			  &relive__store_info_reply__descriptor, info_out);
}

int remote_info(struct meta *meta, struct rlv_store_info *out)
{
	Relive__StoreInfoReply *info;
	size_t len = 0;
	int ret = ask_info(meta, false, &info);

	if (ret)
		return ret;
	snprintf(out->server_version, sizeof(out->server_version), "%s", info->software);
	out->term = rpc_lease(meta->rpc).term;
	out->n_tables = info->tables;
	out->n_clients = info->clients;
	out->rebuilds = info->rebuilds;
	out->clock_ns = info->clock_ns;
	out->n_nodes = (uint32_t)info->n_nodes;
	for (size_t i = 0; i < info->n_waiting && len < sizeof(out->waiting); i++) {
		int n = snprintf(out->waiting + len, sizeof(out->waiting) - len, "%s%s",
				 i ? "; " : "", info->waiting[i]);

		len += n > 0 ? (size_t)n : 0;
	}
	protobuf_c_message_free_unpacked(&info->base, NULL);
	return 0;
}

int remote_nodes(struct meta *meta, struct rlv_node_info *nodes, size_t *n_inout)
{
	Relive__StoreInfoReply *info;
	int ret = ask_info(meta, false, &info);

	if (ret)
		return ret;
	for (size_t i = 0; i < info->n_nodes && i < *n_inout; i++)
		take_node(info->nodes[i], &nodes[i]);
	*n_inout = info->n_nodes;
	protobuf_c_message_free_unpacked(&info->base, NULL);
	return 0;
}

int remote_heaps(struct meta *meta, struct rlv_heap_info *heaps, size_t *n_inout)
{
	Relive__StoreInfoReply *info;
	int ret = ask_info(meta, false, &info);

	if (ret)
		return ret;
	for (size_t i = 0; i < info->n_heaps && i < *n_inout; i++) {
		const Relive__HeapInfo *in = info->heaps[i];

		heaps[i] = (struct rlv_heap_info){ .mode = in->mode,
						   .parts = in->parts,
						   .copies_wanted = in->wanted,
						   .copies = in->whole,
						   .copies_filling = in->filling };
		snprintf(heaps[i].name, sizeof(heaps[i].name), "%s", in->name);
	}
	*n_inout = info->n_heaps;
	protobuf_c_message_free_unpacked(&info->base, NULL);
	return 0;
}

int remote_lags(struct meta *meta, struct rlv_lag *lags, size_t *n_inout)
{
	Relive__StoreInfoReply *info;
	int ret = ask_info(meta, false, &info);

	if (ret)
		return ret;
	for (size_t i = 0; i < info->n_lags && i < *n_inout; i++) {
		const Relive__Lag *in = info->lags[i];

		lags[i] = (struct rlv_lag){ .kind = in->kind == OBJECT_HEAP ? RLV_LAG_PUBLISH
									    : RLV_LAG_STALENESS,
					    .readers = in->readers,
					    .newest = in->newest,
					    .least = (double)in->least_milli / 1000,
					    .mean = (double)in->mean_milli / 1000,
					    .most = (double)in->most };
		snprintf(lags[i].name, sizeof(lags[i].name), "%s", in->name);
		for (size_t p = 0; p < in->n_landings && p < ARRAY_LEN(lags[i].landings); p++)
			lags[i].landings[p] = in->landings[p];
	}
	*n_inout = info->n_lags;
	protobuf_c_message_free_unpacked(&info->base, NULL);
	return 0;
}

/* -------- waits -------- */

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
	Relive__StoreInfoReply *info;
	int ret = ask_info(meta, true, &info);

	if (ret)
		return ret;
	for (size_t i = 0; i < info->n_waits && i < *n_inout; i++)
		take_wait(info->waits[i], &waits[i]);
	*n_inout = info->n_waits + info->waits_left_out;
	protobuf_c_message_free_unpacked(&info->base, NULL);
	return 0;
}

/* -------- clients -------- */

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
	out->n_tables = (uint32_t)info->n_tables + info->tables_left_out;
	for (size_t i = 0; i < info->n_tables && i < ARRAY_LEN(out->tables); i++) {
		snprintf(out->tables[i].name, sizeof(out->tables[i].name), "%s",
			 info->tables[i]->name);
		out->tables[i].slots = info->tables[i]->slots;
		out->tables[i].streams = info->tables[i]->streams;
	}
}

int remote_clients(struct meta *meta, struct rlv_client_info *clients, size_t *n_inout)
{
	Relive__ClientListRequest request = RELIVE__CLIENT_LIST_REQUEST__INIT;
	size_t room = *n_inout, n = 0;
	uint32_t left = 1;

	while (left && (n < room || n == 0)) {
		Relive__ClientListReply *page;
		int ret = remote_get(meta, RELIVE__TYPE__TYPE_CLIENT_LIST, &request.base,
				     &relive__client_list_reply__descriptor, &page);

		if (ret)
			return ret;
		for (size_t i = 0; i < page->n_clients; i++) {
			if (clients && n + i < room)
				take_client(page->clients[i], &clients[n + i]);
			request.after = page->clients[i]->client_id;
		}
		n += page->n_clients;
		left = page->n_clients ? page->left_out : 0;
		protobuf_c_message_free_unpacked(&page->base, NULL);
	}
	*n_inout = n + left;
	return 0;
}
