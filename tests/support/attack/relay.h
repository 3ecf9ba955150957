/*
 * relay.h - a relay between a client and a server on loopback: forwards and records both
 * directions, and changes one byte on request.
 */
#ifndef RLV_TESTS_SUPPORT_ATTACK_RELAY_H
#define RLV_TESTS_SUPPORT_ATTACK_RELAY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RELAY_BYTES 65536

struct relay_side {
	uint8_t bytes[RELAY_BYTES]; /* the first bytes of this direction */
	size_t n;
};

struct relay {
	uint16_t port; /* to dial */
	uint16_t server_port;
	size_t change; /* number of the client's byte to change; SIZE_MAX = none */
	struct relay_side client, server;
	int listener;
	int stop[2];
	pthread_t thread;
};

/* Starts a relay for one connection. Fails the test on any error. */
void relay_open(struct relay *relay, uint16_t server_port, size_t change);
/* Ends both connections; afterwards client and server may be read. */
void relay_close(struct relay *relay);

bool relay_side_has(const struct relay_side *side, const void *bytes, size_t len);

#endif
