/*
 * rpc_clients.c - lists all leases, with each client's slots in each table. Answers are bounded;
 * the next request starts after the last id.
 */
#include "server/metad/rpc_call.h"

#include <errno.h>
#include <stdlib.h>

#include "base/mem/alloc.h"
#include "base/bits.h"

#define AT_ONCE 64u /* clients per answer */
#define TABLES 16u  /* tables per client */

struct entry {
	Relive__ClientInfo info;
	Relive__ClientTable objects[TABLES];
	Relive__ClientTable *list[TABLES];
	char address[96];
};

struct page {
	struct entry entries[AT_ONCE];
	Relive__ClientInfo *list[AT_ONCE];
};

static void add_table(struct entry *entry, const struct catalog_object *table, uint64_t client_id)
{
	Relive__ClientTable count = RELIVE__CLIENT_TABLE__INIT;

	for (uint32_t slot = 0; slot < table->slots.n; slot++) {
		const struct slot_entry *held = &table->slots.entries[slot];

		if (!held->taken || held->holder.client_id != client_id)
			continue;
		count.slots++;
		count.streams += held->streams;
	}
	if (count.slots == 0)
		return;
	entry->info.slots += count.slots;
	entry->info.streams += count.streams;
	if (entry->info.n_tables == TABLES) {
		entry->info.tables_left_out++;
		return;
	}
	count.name = (char *)table->name;
	entry->objects[entry->info.n_tables] = count;
	entry->list[entry->info.n_tables] = &entry->objects[entry->info.n_tables];
	entry->info.n_tables++;
}

static void clients_fill(const struct metad *md, const struct client *client, struct entry *entry)
{
	uint64_t now = clock_now_ns(md->live.clock);
	Relive__ClientInfo *info = &entry->info;

	relive__client_info__init(info);
	info->client_id = client->holder.client_id;
	info->pid = client->holder.process.pid;
	info->address = entry->address;
	info->age_ns = now - client->since;
	info->lease_ns = client->lease_until > now ? client->lease_until - now : 0;
	info->fenced = client->fenced;
	info->tables = entry->list;
	if (client->conn) {
		info->role = (char *)token_role_name(conn_peer(client->conn)->token.role);
		conn_address(client->conn, entry->address, sizeof(entry->address));
	}
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++)
		if (md->catalog.objects[id])
			add_table(entry, md->catalog.objects[id], info->client_id);
}

static int by_id(const void *a, const void *b)
{
	uint64_t left = (*(const struct client *const *)a)->holder.client_id;
	uint64_t right = (*(const struct client *const *)b)->holder.client_id;

	return (left > right) - (left < right);
}

void rpc_client_list(const struct call *call, const ProtobufCMessage *message)
{
	const Relive__ClientListRequest *request = (const Relive__ClientListRequest *)message;
	Relive__ClientListReply reply = RELIVE__CLIENT_LIST_REPLY__INIT;
	uint32_t all = liveness_count(&call->md->live);
	const struct client **clients = mem_array(all + 1, sizeof(struct client *));
	struct page *page = mem_zalloc(sizeof(*page));
	Relive__Status status;
	int ret = clients && page
			  ? 0
			  : error_set(-ENOMEM, "cannot allocate memory for %u clients", all);

	rpc_set_status(&status, ret);
	reply.status = &status;
	if (ret == 0) {
		uint32_t n = 0;

		for (struct client *client = call->md->live.first; client; client = client->next)
			if (client->holder.client_id > request->after)
				clients[n++] = client;
		qsort(clients, n, sizeof(struct client *), by_id);
		reply.n_clients = min_u64(n, AT_ONCE);
		reply.left_out = n - (uint32_t)reply.n_clients;
		reply.clients = page->list;
		for (uint32_t i = 0; i < reply.n_clients; i++) {
			clients_fill(call->md, clients[i], &page->entries[i]);
			page->list[i] = &page->entries[i].info;
		}
	}
	conn_answer(call->conn, call->head, &reply.base);
	mem_free(page);
	mem_free(clients);
}
