/*
 * shm.h - transport over memory shared by processes of one host, and within one process.
 *
 *   embed:      initiator ---------- calls ---------> target      regions: the target's mapping
 *   shm:PATH    initiator -- unix socket, fds -----> target      regions: the initiator's mapping
 *
 * Data operations are C11 atomics and copies on the mapped region: the target runs no code for
 * them.
 */
#ifndef RLV_TRANSPORT_SHM_SHM_H
#define RLV_TRANSPORT_SHM_SHM_H

#include "transport/transport.h"

/* rest: the URI after the scheme, "" here. opts->target is borrowed until close. */
RLV_MUST_CHECK int shm_open_embed(const char *rest, const struct transport_opts *opts,
				  struct transport **tr_out);

/* path: the target's socket. Ends within opts->timeout_ns. */
RLV_MUST_CHECK int shm_open_socket(const char *path, const struct transport_opts *opts,
				   struct transport **tr_out);

#endif
