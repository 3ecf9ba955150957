/*
 * clients.c - a list: clients are counted in hundreds, and looked up on the control path only.
 */
#include "transport/attach/clients.h"

#include <errno.h>
#include <unistd.h>

#include "base/mem/alloc.h"

struct client *clients_find(const struct clients *clients, uint64_t id)
{
	struct client *client = clients->first;

	while (client && client->id != id)
		client = client->next;
	return client;
}

int clients_add(struct clients *clients, uint64_t id, struct client **client_out)
{
	struct client *client = mem_zalloc(sizeof(*client));

	if (!client)
		return error_set(-ENOMEM, "cannot allocate memory for client %llu",
				 (unsigned long long)id);
	client->id = id;
	client->pid = getpid();
	client->pidfd = -1;
	client->next = clients->first;
	clients->first = client;
	clients->n++;
	*client_out = client;
	return 0;
}

void clients_remove(struct clients *clients, struct client *client)
{
	struct client **link = &clients->first;

	while (*link != client)
		link = &(*link)->next;
	*link = client->next;
	clients->n--;
	if (client->pidfd >= 0)
		close(client->pidfd);
	mem_free(client);
}

void clients_settle(struct clients *clients, struct client *client)
{
	if (client->embedded == 0 && client->connected == 0 && client->attached == 0)
		clients_remove(clients, client);
}

void clients_fini(struct clients *clients)
{
	while (clients->first)
		clients_remove(clients, clients->first);
}
