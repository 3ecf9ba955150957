/*
 * link.h - an initiator's connection to its target: a TCP connection for messages and lists, and where
 * the target has a provider a port, whose requests go to the target's endpoint.
 *
 *   link_open    connect -> HELLO -> WELCOME -> our port, all before one deadline
 *   link_cut     closes both: nothing writes into our memory any more
 *
 * Thread: owner.
 */
#ifndef RLV_TRANSPORT_OFI_LINK_H
#define RLV_TRANSPORT_OFI_LINK_H

#include <stdbool.h>

#include "base/os/clock.h"

#include "transport/ofi/message.h"
#include "transport/ofi/port.h"

struct ofi_link_opts {
	const char *host, *port; /* borrowed by ofi_link_open */
	const struct clock *clock;
	uint64_t timeout_ns; /* for all of it */
	uint64_t client_id;
	uint64_t replaces; /* link that it replaces; 0 = none */
};

struct ofi_link {
	struct ofi_stream stream;
	struct ofi_port port;
	const struct clock *clock;
	uint64_t number; /* random: identifies the link at the target */
	struct ofi_welcome welcome;
	uint32_t endpoint_bytes; /* of the target's endpoint; 0: not known yet, or none */
	uint8_t endpoint[OFI_ENDPOINT_BYTES];
	fi_addr_t peer;
	bool cut;
};

/*
 * Connects. -ECONNREFUSED (nobody listens, or too many links), -ETIMEDOUT, -EPROTO (peer of another
 * version), -ENOENT (no such host), -ENOTSUP (no libfabric, or not the target's provider), and the
 * target's refusals with their messages. The system resolves host names, with time limits of its
 * own. After an error the caller calls ofi_link_close.
 */
RLV_MUST_CHECK int ofi_link_open(const struct ofi_link_opts *opts, struct ofi_link *link);

/* 0, or -ECONNRESET if the target has hung up. Cost: a system call. */
RLV_MUST_CHECK int ofi_link_check(struct ofi_link *link);

/*
 * Waits until the connection is readable or writable (POLLIN, POLLOUT). -ETIMEDOUT.
 */
RLV_MUST_CHECK int ofi_link_wait(struct ofi_link *link, short events, uint64_t deadline_ns);

/*
 * Sends a request and, if answer_out is not NULL, waits for the answer; no list is outstanding.
 * -ETIMEDOUT; -ECONNRESET;
 * -EPROTO: not a valid message, or not the answer of an ATTACH. After an error the link is of no
 * use.
 */
RLV_MUST_CHECK int ofi_link_ask(struct ofi_link *link, union ofi_any *request,
				enum ofi_message type, struct ofi_attached *answer_out,
				uint64_t deadline_ns);

/* Closes the port and the connection. A second call is a no-op. */
void ofi_link_cut(struct ofi_link *link);

/* Cuts the link. forked: a child only closes its copy of the connection. */
void ofi_link_close(struct ofi_link *link, bool forked);

#endif
