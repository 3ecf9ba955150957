/*
 * toy.h - the least that is a transport, after the recipe of docs/architecture.md: threads of one
 * process, and requests that are done one after the other.
 */
#ifndef RLV_TESTS_SUPPORT_TOY_TOY_H
#define RLV_TESTS_SUPPORT_TOY_TOY_H

#include "transport/transport.h"

/* opts: with a clock, a timeout and the target, which it borrows until close. */
RLV_MUST_CHECK int toy_open(const struct transport_opts *opts, struct transport **tr_out);

#endif
