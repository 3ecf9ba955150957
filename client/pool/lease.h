/*
 * lease.h - the connection of a process to the broker of a pool (wire/lease_layout.h).
 *
 * Each request is answered at once; a broker that does not within LEASE_ANSWER_NS is gone. After a
 * failure of the connection the next request connects anew until its deadline, and then presents
 * what the job holds. Thread: any; a lock orders requests.
 */
#ifndef RLV_CLIENT_POOL_LEASE_H
#define RLV_CLIENT_POOL_LEASE_H

#include "wire/lease_message.h"
#include "wire/lease_permit.h"

#include "base/os/clock.h"
#include "base/os/lock.h"

#define LEASE_ANSWER_NS (10 * CLOCK_NS_PER_S)
#define LEASE_LOOK_NS (20 * CLOCK_NS_PER_MS) /* a WAKE that another thread took is seen then */

struct lease {
	struct lock lock;
	char pool[LEASE_NAME_BYTES];
	int sock;    /* constant while the lease lives: a new connection takes its number */
	bool broken; /* connect anew */
	struct lease_hello hello;
	int pidfd, page_fd, permit_fd;
	struct lease_permit *permit;
	/* Presents all that is held, by lease_ask; called with the lock. */
	int (*present)(void *ctx);
	void *ctx;
	uint32_t resumed; /* times that it came back */
};

/* Connects to a pool's broker and closes again with close(2). -ENOENT no such pool, -EHOSTDOWN
   nobody listens, -EACCES. */
RLV_MUST_CHECK int lease_connect(const char *pool, int *sock_out);

/* Sends a request over a socket and waits for its answer, in the same place, until the deadline.
   Errors of the connection: -ECONNRESET, -EPROTO, -ETIMEDOUT. */
RLV_MUST_CHECK int lease_call(int sock, struct lease_message *message, enum lease_type type,
			      uint64_t deadline_ns);

/* Says hello. lease: pool, hello, descriptors, permit, present and ctx are set. */
RLV_MUST_CHECK int lease_open(struct lease *lease, struct lease_message *answer_out);
/* Closes the socket; descriptors and permit stay the caller's. */
void lease_close(struct lease *lease);

/*
 * A request of the job: message->answer holds the answer, whose status, as an error, is returned.
 * -EHOSTDOWN: no broker came back until deadline_ns. An answer's descriptors are the caller's.
 */
RLV_MUST_CHECK int lease_request(struct lease *lease, struct lease_message *message,
				 enum lease_type type, uint64_t deadline_ns);
/* The same, of present: it does not connect anew. */
RLV_MUST_CHECK int lease_ask(struct lease *lease, struct lease_message *message,
			     enum lease_type type);

/* True: an iteration has begun by the job's permit, of a broker that is there. */
bool lease_begin(const struct lease *lease);

/* Waits for a WAKE, LEASE_LOOK_NS, or the deadline, whatever is first. */
void lease_wait(const struct lease *lease, uint64_t deadline_ns);

#endif
