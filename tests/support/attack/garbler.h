/*
 * garbler.h - a man in the middle between a client and the metadata server. It terminates TLS on
 * both sides with the token and damages some frames in both directions, so that each side receives
 * frames that the other one never sent.
 */
#ifndef RLV_TESTS_SUPPORT_ATTACK_GARBLER_H
#define RLV_TESTS_SUPPORT_ATTACK_GARBLER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "wire/control/tls.h"

#define GARBLER_CONNS 64

struct garbler {
	uint16_t port; /* to dial */
	uint16_t server_port;
	uint64_t seed;
	atomic_uint one_in; /* one frame in so many is damaged, also on new connections; 0 = none */
	atomic_uint spare;  /* frames of each direction that pass unchanged at first */
	atomic_ullong frames, spoiled, conns;

	struct tls *to_client, *to_server;
	int listener;
	int stop[2];
	pthread_t thread;
};

/* Fails the test on any error. */
void garbler_open(struct garbler *garbler, uint16_t server_port, const char *token, uint64_t seed);
/* Ends all connections. */
void garbler_close(struct garbler *garbler);

#endif
