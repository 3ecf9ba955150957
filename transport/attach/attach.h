/*
 * attach.h - the initiator's end of the unix socket (wire/attach_layout.h).
 *
 * It waits for each answer, at most for the transport's timeout, unless it is asked for in two steps.
 * After any failure of the socket the connection is dead, and every later call answers -ECONNRESET.
 */
#ifndef RLV_TRANSPORT_ATTACH_ATTACH_H
#define RLV_TRANSPORT_ATTACH_ATTACH_H

#include <stdbool.h>

#include "transport/transport.h"

struct attach;

/*
 * Connects and greets. persistent_out: the pool survives a power failure. -ECONNREFUSED (nobody
 * listens), -ETIMEDOUT, -EPROTO (no shm target, or of another version), -EEXIST (client id in use).
 */
RLV_MUST_CHECK int attach_open(const char *path, const struct transport_opts *opts,
			       struct attach **attach_out, bool *persistent_out);

/* A region, or the range of it that was granted, and the mapping that it lies in. */
struct attached {
	struct region region;
	uint8_t *map;
	uint64_t map_bytes;
	struct region_grant grant;
	uint32_t flags; /* enum attach_flags */
	bool on_device; /* DAX: msync knows nothing of it */
	int fd;         /* kept open: a pool file's shared lock; -1 = none */
};

/* Maps the range of grant and fills *out. fd: set only if the transport hands out a descriptor. */
RLV_MUST_CHECK int attach_region(struct attach *attach, const struct region_grant *grant,
				 struct attached *out);

/*
 * See transport_prepare: begins the renewal of a page that the target makes, or looks how far it is.
 * -EAGAIN: in progress. -ETIMEDOUT: no answer within the timeout, and the connection is closed.
 */
RLV_MUST_CHECK int attach_prepare(struct attach *attach, const struct attached *at, uint64_t off);
/* 1: the target is making a page, or made one since the last call; 0; or an error of attach_prepare. */
RLV_MUST_CHECK int attach_renewing(struct attach *attach);
/* The region is being detached: its pages that are being made are nobody's. */
void attach_forget_renewals(struct attach *attach, uint32_t region);

/*
 * See transport_renew. Does not wait: the target handles it before any later request. -EAGAIN: the
 * target does not read its socket, or it is making the page (attach_prepare).
 */
RLV_MUST_CHECK int attach_renew(struct attach *attach, const struct attached *at, uint64_t off);

/*
 * attach_region in two steps that do not wait. -EAGAIN: not yet. *out is filled in from begin on, while
 * other calls wait for their answers, too: it stays where it is until end, the next begin, or close.
 */
RLV_MUST_CHECK int attach_region_begin(struct attach *attach, const struct region_grant *grant,
				       struct attached *out);
RLV_MUST_CHECK int attach_region_end(struct attach *attach, struct attached *out);

/* Unmaps it, and closes fd; nothing to do where it is not mapped. */
void attach_release(struct attached *at);

/* All regions are unmapped. A forked child (forked) says no goodbye. NULL is a no-op. */
void attach_close(struct attach *attach, bool forked);

#endif
