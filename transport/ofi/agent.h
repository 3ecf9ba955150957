/*
 * agent.h - the thread that serves the links of a target: carries out what comes over their connections,
 * and drives their ports.
 *
 * It sleeps in epoll_wait on all descriptors. What comes wakes it; it serves that, looks on for a
 * moment if processors are free (patience.h), because requests come in bursts, and sleeps again. Ports whose provider has no descriptor are
 * driven every AGENT_BLIND_US.
 *
 * It serves with the target's lock held, and nobody else touches a link without it: so whoever holds
 * the lock knows that nothing of a link is under way. Such callers come first (ofi_agent_enter).
 */
#ifndef RLV_TRANSPORT_OFI_AGENT_H
#define RLV_TRANSPORT_OFI_AGENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "base/os/lock.h"

#include "transport/ofi/patience.h"
#include "transport/ofi/peers.h"

extern const struct lock_role ofi_role;

struct ofi_agent {
	struct lock *lock;       /* the target's; borrowed, as peers is */
	struct ofi_peers *peers; /* guarded by it */
	int ring, bell;          /* -1: not open */
	_Atomic bool stop;
	_Atomic uint32_t wanting; /* callers that want the lock */
	uint64_t held_ns;         /* the thread's: since when answers wait; 0: none does */
	bool started;
	pthread_t thread;
	clockid_t cpu; /* of the thread */
};

/* Opens the ring, which ofi_peers_open needs. The caller calls ofi_agent_stop even on failure. */
RLV_MUST_CHECK int ofi_agent_open(struct ofi_agent *agent, struct lock *lock);
RLV_MUST_CHECK int ofi_agent_start(struct ofi_agent *agent, struct ofi_peers *peers);

/* Ends the thread and closes the ring. The lock is not held. forked: a child only closes. */
void ofi_agent_stop(struct ofi_agent *agent, bool forked);

/* Takes the target's lock before the agent does again. */
void ofi_agent_enter(struct ofi_agent *agent) LOCK_ACQUIRES(ofi_role);

/*
 * Serves what has come, as the thread does. True if there was anything, or a port has more to do. The
 * lock is held.
 */
bool ofi_agent_serve(struct ofi_agent *agent) LOCK_REQUIRES(ofi_role);

/* CPU time that the thread has used, in ms; 0: it has not started. */
uint64_t ofi_agent_cpu_ms(const struct ofi_agent *agent);

#endif
