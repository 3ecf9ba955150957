/*
 * debtor.h - a learner that owes the tree its deltas: it stops in the middle of an update,
 * behind the leaves, until it is told to pay or is killed.
 */
#ifndef RLV_TESTS_SUPPORT_ATTACK_DEBTOR_H
#define RLV_TESTS_SUPPORT_ATTACK_DEBTOR_H

#include <stdatomic.h>
#include <stdbool.h>

#include "tests/support/processes.h"

#define DEBTOR_WHY 256

/* In memory of both processes. */
struct debtor {
	atomic_bool owes; /* it is in its first update, or has failed */
	atomic_bool pays; /* once more, and then the end */
	char why[DEBTOR_WHY];
};

/* One of table "t" in shm:s, which owes and was sent the signal then; 0 = none. debtor->why says what failed. */
pid_t debtor_start(struct processes *ps, struct debtor *debtor, int signal);

#endif
