/*
 * fake_verbs_pair.h - a target and an initiator over the fake, in one thread and on a clock that the
 * test moves: while the initiator waits, the target serves.
 */
#ifndef RLV_TESTS_SUPPORT_FAKE_FAKE_VERBS_PAIR_H
#define RLV_TESTS_SUPPORT_FAKE_FAKE_VERBS_PAIR_H

#include "tests/support/fake/fake_clock.h"
#include "tests/support/fake/fake_verbs.h"

#include "transport/transport.h"

#define PAIR_CLIENT 7
#define PAIR_TIMEOUT_NS ((uint64_t)16 * CLOCK_NS_PER_MS) /* some waits are real */

struct fake_pair {
	const struct alloc_hooks *buffers; /* the target's; set it before, all else is zero */
	struct fake_clock clock;
	struct transport_target *tg;
	struct target_region spec; /* 4 MiB; the target sees its bytes */
	struct transport *tr;
	struct region *region;
};

/* A target on the device that fake_verbs_begin made. Fails the test on any error. */
void fake_pair_listen(struct fake_pair *pair);

/* Opens an initiator and attaches the region; returns the first error. */
int fake_pair_connect(struct fake_pair *pair);
int fake_pair_open(struct fake_pair *pair, struct transport **tr_out);
int fake_pair_attach(struct fake_pair *pair, struct transport *tr, struct region **region_out);

/* Closes both ends and the fake. */
void fake_pair_close(struct fake_pair *pair);

/* The usual beginning and end of a test whose state is a pair. */
int fake_pair_setup(void **state);
int fake_pair_teardown(void **state);

/* A word of the region as the target sees it. */
uint64_t *fake_pair_word(struct fake_pair *pair, uint64_t off);

#endif
