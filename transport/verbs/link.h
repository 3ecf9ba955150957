/*
 * link.h - the connection of one transport: one or more RC queue pairs to one target, made by
 * rdma_cm and used together.
 *
 *   link_open    resolve address -> resolve route -> queue pair -> connect HELLO -> WELCOME, for
 *                each queue pair in turn, all before one deadline
 *   link_cut     destroys the queue pairs: the device writes nothing into our memory any more
 *
 * Queue pair 0 receives messages, too. Device, port, GID and MTU are what rdma_cm and the routing
 * table choose for the address; the choice is logged.
 *
 * Thread: owner.
 */
#ifndef RLV_TRANSPORT_VERBS_LINK_H
#define RLV_TRANSPORT_VERBS_LINK_H

#include <stdbool.h>

#include "transport/verbs/device.h"
#include "transport/verbs/message.h"

#include "base/os/clock.h"

/*
 * A peer is given up after it has not acknowledged a packet for 7 times 4.096 us << 14 (67 ms):
 * half a second, longer than a pause of its scheduler. Software RDMA treats 7 retries as endless,
 * so 6. Also the retries of the target's answers that find no receive here.
 */
#define LINK_ACK_TIMEOUT 14
#define LINK_ACK_TIMEOUT_MAX 20 /* half a minute */
#define LINK_RETRIES 6

struct link_opts {
	const char *host, *port; /* borrowed by link_open */
	const struct clock *clock;
	uint64_t timeout_ns; /* for all of it */
	uint64_t client_id;
	uint64_t replaces; /* link that it replaces; 0 = none */
	uint32_t qps;   /* queue pairs; 0 = as many as the device needs for READS reads in flight */
	uint32_t depth; /* of a send queue; 0 = usual */
	uint32_t ack_timeout; /* 4.096 us << it; 0 = LINK_ACK_TIMEOUT */
};

struct link {
	const struct verbs_calls *calls;
	struct verbs_device *device;
	struct ibv_pd *domain; /* the device's, or a parent domain over it */
	struct ibv_cq *sends;  /* completions of all send queues */
	struct ibv_cq *receives;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *ids[VERBS_LINK_QPS];
	struct ibv_qp *qps[VERBS_LINK_QPS]; /* NULL after link_cut */
	uint32_t n_qps;
	uint32_t depth;        /* work requests in each send queue */
	uint32_t inline_bytes; /* inline data of a work request, at most */
	bool cut;

	uint64_t number; /* random: identifies the link at the target */
	struct verbs_welcome welcome;

	/* private */
	struct link_opts opts;
	struct ibv_td *td;  /* NULL: the provider locks each post and poll */
	struct mem buffers; /* for incoming messages; registered */
	uint32_t key;       /* of buffers */
	uint32_t share;     /* of the device's outstanding work: depth * n_qps */
};

/*
 * Connects all queue pairs of a new link to opts->host. -ECONNREFUSED (no listener or no route),
 * -ETIMEDOUT, -EPROTO (peer of another version), -ENOTSUP (no rdma-core, no RDMA device for the
 * address, or one without atomics), -ENOENT (no such host), and the target's refusals with their
 * messages. The system resolves host names, with time limits of its own.
 */
RLV_MUST_CHECK int link_open(const struct link_opts *opts, struct link **link_out);

/* 0, or -ECONNRESET if the target has hung up. Cost: a system call. */
RLV_MUST_CHECK int link_check(struct link *link);

/*
 * Waits for one message of the target. -ETIMEDOUT: none before the deadline; -ECONNRESET: the
 * target hung up, or the receive failed; -EPROTO: not a valid message.
 */
RLV_MUST_CHECK int link_receive(struct link *link, union verbs_any *message_out,
				uint64_t deadline_ns);

/*
 * Destroys the queue pairs at once: the device writes nothing into our memory any more. A second
 * call is a no-op.
 */
void link_cut(struct link *link);

/*
 * Cuts the link if needed and frees it. forked: a child only frees; the queue pairs are its
 * parent's. NULL is a no-op.
 */
void link_close(struct link *link, bool forked);

#endif
