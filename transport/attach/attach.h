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
 * Connects to the target's socket at path and sends HELLO. *persistent_out: the pool survives a
 * power failure. -ECONNREFUSED (nobody listens), -ETIMEDOUT, -EPROTO (no shm target, or of another
 * version), -EEXIST (another process uses the client id), -EPERM (another pid namespace).
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

/*
 * Requests the range of grant from the target, waits, maps it and fills *out. out->fd: set only if
 * the pool is in files, else untouched. Errors: the target's, and -ETIMEDOUT.
 */
RLV_MUST_CHECK int attach_region(struct attach *attach, const struct region_grant *grant,
				 struct attached *out);

/*
 * Requests from the target, once, a new page at off, or looks whether it is there. 0: it is
 * (attach_renew maps it), or this target makes no pages. -EAGAIN: not yet. -ETIMEDOUT: no answer
 * within the timeout, and the connection is closed. -EACCES: at is not all of a region of pages
 * with all rights.
 */
RLV_MUST_CHECK int attach_prepare(struct attach *attach, const struct attached *at, uint64_t off);
/*
 * Takes the target's answers. 1: it is making a page, or has made one since the last call; 0:
 * neither; or the error that ended the connection.
 */
RLV_MUST_CHECK int attach_renewing(struct attach *attach);
/*
 * For a region that is being detached: drops the pages that the target made for it, and those that
 * it is still making when they come.
 */
void attach_forget_renewals(struct attach *attach, uint32_t region);

/*
 * Gives the page at off new zeroed memory and maps it: a memfd that it sends to the target, or the
 * page that the target made (attach_prepare). Never waits; the target handles it before any later
 * request. No-op where pages cannot be renewed. -EAGAIN: the target does not read its socket, or
 * the page is not made yet.
 */
RLV_MUST_CHECK int attach_renew(struct attach *attach, const struct attached *at, uint64_t off);

/*
 * attach_region in two steps that do not wait: begin sends the request, end takes the answers.
 * -EAGAIN of end: not all have come, call it again. Other calls may fill in *out, too: it stays
 * where it is until end returns another code, the next begin, or close.
 */
RLV_MUST_CHECK int attach_region_begin(struct attach *attach, const struct region_grant *grant,
				       struct attached *out);
RLV_MUST_CHECK int attach_region_end(struct attach *attach, struct attached *out);

/* Closes at->fd, if it is not -1, and removes the mapping, if there is one. */
void attach_release(struct attached *at);

/*
 * Says BYE (not in a forked child: forked), closes the socket and frees attach. The caller has
 * unmapped all regions. NULL is a no-op.
 */
void attach_close(struct attach *attach, bool forked);

#endif
