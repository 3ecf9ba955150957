/*
 * remote_target.h - a target in another process, with the operations of one: so that a test of a
 * target and its clients can be run over two processes.
 *
 *   test program  struct transport_target -- socket --> the same program, run again: the target
 *
 * Where RLV_TEST_TARGET names HOST:PORT, the target's process is not started: it runs there, perhaps on
 * another host, as `PROGRAM remote-target HOST:PORT`.
 *
 * What it cannot carry is memory: base of a region is NULL. Its process serves clients by itself, so
 * progress only waits. One thread at a time.
 */
#ifndef RLV_TESTS_SUPPORT_REMOTE_TARGET_H
#define RLV_TESTS_SUPPORT_REMOTE_TARGET_H

#include "transport/transport.h"

/* First thing in main: in the process of a target it serves, and does not return. */
void remote_target_main(int argc, char **argv);

/* As transport_target_open, of memory. */
RLV_MUST_CHECK int remote_target_open(const char *kind, const struct target_opts *opts,
				      struct transport_target **tg_out);

#endif
