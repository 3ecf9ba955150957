/*
 * commands.h - requests of anybody who may connect: what a pool has, limits, drain.
 */
#ifndef RLV_SERVER_POOLD_COMMANDS_H
#define RLV_SERVER_POOLD_COMMANDS_H

#include "server/poold/poold.h"

/* Answers ASK. Returns the type of the answer. */
enum lease_type poold_ask(const struct poold *poold, const struct lease_ask *ask,
			  struct lease_message *out);
/* LIMIT and DRAIN of a user. -EACCES; errors of broker_limit: nothing has changed. */
RLV_MUST_CHECK int poold_command(struct poold *poold, uint32_t uid, const struct lease_message *in);

#endif
