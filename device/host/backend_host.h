/*
 * backend_host.h - a device made of this host's memory, on a clock that the caller moves.
 *
 * Extents are memfds, so that an exported fd and its import are the same bytes. Reserved addresses
 * without an extent have no access: a use after unmap is a SIGSEGV. A stream is a queue; its work
 * takes time on the virtual clock, and has its effect when the clock passes its end, not before. So
 * a schedule of 10^6 steps takes no real time, and memory that is given away too early is seen.
 */
#ifndef RLV_DEVICE_BACKEND_HOST_H
#define RLV_DEVICE_BACKEND_HOST_H

#include "device/backend.h"

struct backend_host_opts {
	uint64_t device_bytes;
	uint64_t granularity;  /* a power of two, at least the host's page; 0 = the page */
	uint64_t bytes_per_us; /* of copies and fills; 0 = they take no time */
};

/* -EINVAL, -ENOMEM. Thread: setup. */
RLV_MUST_CHECK int backend_host_open(const struct backend_host_opts *opts,
				     struct backend **backend_out);

/* Queues work of that duration on a stream; fn runs at its end, on the thread that moves the clock.
   fn NULL: it only takes time. -EINVAL, -ENOMEM. Thread: any, one per stream. */
RLV_MUST_CHECK int backend_host_work(struct backend *backend, uint32_t stream, uint64_t ns,
				     void (*fn)(void *ctx), void *ctx);

/* Moves the clock, and runs all work that ends until then in the order of its ends. Thread: any. */
void backend_host_advance(struct backend *backend, uint64_t ns);

#endif
