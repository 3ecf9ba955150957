/*
 * Http: GET /metrics and GET /healthz of a daemon, in a thread with its own event loop.
 *
 *        thread                                    the daemon's loop
 *        accept, read, check the request
 *        rings ------------ http_fd() ------------> http_turn(): makes the pages
 *        sends them <------------------------------ rings
 *        or 503 after HTTP_PATIENCE_NS
 *
 * The daemon's loop makes the pages, because it may read the daemon's state, and only on request.
 * If the loop is stuck, a probe gets a 503 within 5 s. A loop that is about to block for a bounded
 * time lends its turn to the thread.
 *
 * All input of a peer is untrusted. A request is limited to HTTP_HEAD_BYTES and HTTP_LIMIT_S, a
 * connection to one request. HTTP_MAX_CONNS are open at once: the oldest is dropped for a new one,
 * so that silent peers block nobody. Nothing here touches connections of the control plane.
 */
#ifndef RLV_SERVER_NET_HTTP_H
#define RLV_SERVER_NET_HTTP_H

#include <stdbool.h>
#include <stdint.h>

#include "server/net/metrics.h"

#include "base/os/clock.h"
#include "base/error.h"

#define HTTP_MAX_CONNS 32u
#define HTTP_HEAD_BYTES 4096u
#define HTTP_LIMIT_S 5 /* for the request, and again for the answer */
#define HTTP_PATIENCE_NS (3 * (uint64_t)CLOCK_NS_PER_S)

struct http;

struct http_opts {
	const char *address; /* [IP:]PORT; default IP: loopback */
	/* Writes the page /metrics; called by the daemon's loop or, during a loan (http_lend), by
	   the thread. */
	void (*metrics)(void *ctx, struct metrics *m);
	int (*health)(void *ctx); /* 0, or an error with error_last() */
	void *ctx;
};

/* Checks that text is [IP:]PORT, with IPv6 in brackets and a port above 0. -EINVAL: it is not. */
RLV_MUST_CHECK int http_check_address(const char *text);

/* Listens on opts->address and starts the thread that serves it. -EINVAL (address), -EADDRINUSE and
   other errors of bind, -ENOMEM. */
RLV_MUST_CHECK int http_open(const struct http_opts *opts, struct http **http_out);
/* NULL is a no-op. */
void http_close(struct http **http);

/* Descriptor that polls readable when http_turn is due; -1 if http is NULL. */
int http_fd(const struct http *http);
/* Makes the pages that peers have requested; the thread sends them. http may be NULL. Thread: the
   daemon's loop, also for http_lend. */
void http_turn(struct http *http);

/* Until until_ns, or a call with 0, the thread makes the pages itself instead of http_turn, and the
   loop must not touch the data that they show. http may be NULL. */
void http_lend(struct http *http, uint64_t until_ns);

#endif
