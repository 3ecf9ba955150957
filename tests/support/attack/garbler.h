/*
 * garbler.h - stands between who dials the metadata server and the server: it ends both TLS
 * connections with the token, so that frames pass through it in clear, and spoils some of them on their
 * way, in both directions. To each side the other one lies.
 */
#ifndef RLV_TESTS_SUPPORT_ATTACK_GARBLER_H
#define RLV_TESTS_SUPPORT_ATTACK_GARBLER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "wire/tls.h"

#define GARBLER_CONNS 64

struct garbler {
	uint16_t port; /* to dial */
	uint16_t server_port;
	uint64_t seed;
	atomic_uint one_in; /* frames of which one is spoiled; 0 = none. Of new connections, too */
	atomic_uint spare;  /* frames of a direction that pass as they are, first */
	atomic_ullong frames, spoiled, conns;

	struct tls *to_client, *to_server;
	int listener;
	int stop[2];
	pthread_t thread;
};

/* Asserts that it works. */
void garbler_open(struct garbler *garbler, uint16_t server_port, const char *token, uint64_t seed);
/* Ends all connections. */
void garbler_close(struct garbler *garbler);

#endif
