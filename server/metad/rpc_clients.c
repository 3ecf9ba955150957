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
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		const struct catalog_object *table = md->catalog.objects[id];
		Relive__ClientTable count = RELIVE__CLIENT_TABLE__INIT;

		for (uint32_t slot = 0; table && slot < table->slots.n; slot++) {
			const struct slot_entry *held = &table->slots.entries[slot];

			if (!held->taken || held->holder.client_id != info->client_id)
				continue;
			count.slots++;
			count.streams += held->streams;
		}
		if (count.slots == 0)
			continue;
		info->slots += count.slots;
		info->streams += count.streams;
		if (info->n_tables == TABLES) {
			info->tables_left_out++;
			continue;
		}
		count.name = (char *)table->name;
		entry->objects[info->n_tables] = count;
		entry->list[info->n_tables] = &entry->objects[info->n_tables];
		info->n_tables++;
	}
}

static int by_id(const void *a, const void *b)
{
	uint64_t left = (*(const struct client *const *)a)->holder.client_id;
	uint64_t right = (*(const struct client *const *)b)->holder.client_id;

	return (left > right) - (left < right);
}

int rpc_client_list(const struct call *call, const ProtobufCMessage *message)
{
	const Relive__ClientListRequest *request = (const Relive__ClientListRequest *)message;
	Relive__ClientListReply reply = RELIVE__CLIENT_LIST_REPLY__INIT;
	uint32_t n = 0, all = liveness_count(&call->md->live);
	const struct client **clients = mem_array(all + 1, sizeof(struct client *));
	struct page *page = mem_zalloc(sizeof(*page));
	int ret;

	if (!clients || !page) {
		ret = error_set(-ENOMEM, "cannot allocate memory for %u clients", all);
		goto out;
	}
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
	ret = rpc_answer(call, &reply.base, &reply.status);
out:
	mem_free(page);
	mem_free(clients);
	return ret;
}
