/*
 * toy.h - the smallest transport, made by the recipe of docs/architecture.md: threads of one
 * process, requests executed one after another.
 */
#ifndef RLV_TESTS_SUPPORT_TOY_TOY_H
#define RLV_TESTS_SUPPORT_TOY_TOY_H

#include "transport/transport.h"

/* opts: with a clock, a timeout and the target, which it borrows until close. */
RLV_MUST_CHECK int toy_open(const struct transport_opts *opts, struct transport **tr_out);

#endif
