/*
 * clients.h - who may be holding mappings of this target's regions.
 *
 * A client is known from its first connection on. It is forgotten when it has said goodbye on
 * every connection over which it attached something, or when it is proved dead. The pidfd is
 * its own, opened on itself, so it can never name another process. Not locked.
 */
#ifndef RLV_TRANSPORT_ATTACH_CLIENTS_H
#define RLV_TRANSPORT_ATTACH_CLIENTS_H

#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct client {
	struct client *next;
	uint64_t id;
	pid_t pid;
	uint64_t start_time; /* clock ticks since boot */
	int pidfd;           /* -1: only within this process so far */
	uint32_t embedded;   /* initiators of this process */
	uint32_t connected;  /* sockets that said hello */
	uint32_t attached;   /* sockets that attached something and said no goodbye */
};

struct clients {
	struct client *first;
	uint32_t n;
};

/* The client with that id, or NULL; it stays the table's. */
struct client *clients_find(const struct clients *clients, uint64_t id);

/*
 * Adds a client with this process's pid, no pidfd and no connections; it is the table's. -ENOMEM.
 */
RLV_MUST_CHECK int clients_add(struct clients *clients, uint64_t id, struct client **client_out);

void clients_remove(struct clients *clients, struct client *client);

/* Removes and frees the client if its embedded, connected and attached are all 0. */
void clients_settle(struct clients *clients, struct client *client);

void clients_fini(struct clients *clients);

#endif
