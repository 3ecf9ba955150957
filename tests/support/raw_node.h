/*
 * raw_node.h - an shm target, and peers of it that send it packets of their own.
 */
#ifndef RLV_TESTS_SUPPORT_RAW_NODE_H
#define RLV_TESTS_SUPPORT_RAW_NODE_H

#include <stdbool.h>

#include "tests/support/fake_clock.h"
#include "tests/support/temp_dir.h"
#include "transport/shm/packet.h"
#include "transport/transport.h"

struct raw_node {
	char dir[TEMP_DIR_BYTES];
	char path[96];
	struct fake_clock clock;
	struct transport_target *tg;
	struct target_region spec;
};

int raw_node_setup(void **state);
int raw_node_teardown(void **state);

#define NODE_TEST(fn) cmocka_unit_test_setup_teardown(fn, raw_node_setup, raw_node_teardown)

/* A connection to its socket. */
int raw_node_connect(struct raw_node *node);

/* Accepts, then reads what was sent. */
void raw_node_progress(struct raw_node *node);
bool raw_node_hung_up(int sock);

/* What a client of this process says at first; the test is skipped where that cannot be said. */
struct packet raw_node_hello(void);

/* Sends it and gives the status of the answer; 1 = hung up without one. */
int raw_node_greet(struct raw_node *node, int sock, struct packet *packet);

#endif
