/*
 * Http: GET /metrics and GET /healthz of a daemon, from a thread and an event loop of their own.
 *
 *        thread                                    the daemon's loop
 *        accept, read, check the request
 *        rings ------------ http_fd() ------------> http_turn(): makes the pages
 *        sends them <------------------------------ rings
 *        or 503 after HTTP_PATIENCE_NS
 *
 * Pages are made by the loop, which may read the daemon's state, and only when one is asked for. A loop
 * that is stuck does not make its page: a probe hears of it by the 503, within 5 s. A loop that is
 * about to wait for somebody else, for a bounded time, lends its turn to the thread meanwhile.
 *
 * Everything that a peer sends is input. A request has HTTP_HEAD_BYTES and HTTP_LIMIT_S, a connection
 * is for one request, and HTTP_MAX_CONNS are open at once: the oldest gives way to a new one, so
 * that peers who say nothing keep nobody out. Nothing here touches the control plane's connections.
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
#define HTTP_LIMIT_S 5 /* for the request, and again for reading the answer */
#define HTTP_PATIENCE_NS (3 * (uint64_t)CLOCK_NS_PER_S)

struct http;

struct http_opts {
	const char *address; /* [IP:]PORT; without IP the loopback */
	/* Both are called by whoever has the turn. */
	void (*metrics)(void *ctx, struct metrics *m);
	int (*health)(void *ctx); /* 0, or a code with error_last() */
	void *ctx;
};

/* Checks [IP:]PORT, IPv6 in brackets. -EINVAL. */
RLV_MUST_CHECK int http_check_address(const char *text);

/* Listens, and starts the thread. -EINVAL, -EADDRINUSE, -ENOMEM. */
RLV_MUST_CHECK int http_open(const struct http_opts *opts, struct http **http_out);
/* NULL is a no-op. */
void http_close(struct http **http);

/* Readable: it is time for http_turn. -1 where http is NULL. */
int http_fd(const struct http *http);
/* Makes the pages that are asked for. http may be NULL. Thread: the daemon's loop, and the next two. */
void http_turn(struct http *http);

/* Until then, or http_take, the thread makes pages itself: the loop touches nothing that they show. */
void http_lend(struct http *http, uint64_t until_ns);
void http_take(struct http *http);

#endif
