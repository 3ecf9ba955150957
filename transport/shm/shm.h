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

/*
 * Opens a transport to opts->target, a target of kind shm in this process; its memory lives until
 * close. -EINVAL: opts->target is none, or rest, the URI after "embed:", is not empty; errors of
 * target_join.
 */
RLV_MUST_CHECK int shm_open_embed(const char *rest, const struct transport_opts *opts,
				  struct transport **tr_out);

/*
 * Opens a transport to the target whose unix socket is at path. Connecting and greeting take at
 * most opts->open_ns each. -EINVAL: path is empty; errors of attach_open.
 */
RLV_MUST_CHECK int shm_open_socket(const char *path, const struct transport_opts *opts,
				   struct transport **tr_out);

#endif
