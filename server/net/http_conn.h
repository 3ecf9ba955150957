/*
 * Http connections: accept, one request each, its answer. On one event loop, as flows (flow.h); http.h
 * has the limits.
 *
 *   READING --- whole head ---> ASKING --- http_conns_answer, or too late ---> SENDING, linger
 *      |                                                                         ^
 *      +------------------------- refused: 4xx ----------------------------------+
 */
#ifndef RLV_SERVER_NET_HTTP_CONN_H
#define RLV_SERVER_NET_HTTP_CONN_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#include "server/net/timed_queue.h"

enum http_path { HTTP_METRICS, HTTP_HEALTHZ, HTTP_PATHS };
enum http_state { HTTP_READING, HTTP_ASKING, HTTP_SENDING, HTTP_STATES };

struct event;
struct event_base;
struct evconnlistener;
struct sockaddr;

struct http_conns {
	struct event_base *base;
	struct evconnlistener *listener;
	struct timed_queue queues[HTTP_STATES];
	struct timed_queue all; /* without a limit: oldest first */
	struct event *sweep;    /* timer of the next deadline */
	void (*on_ask)(void *ctx, enum http_path path);
	void *ctx;
};

struct http_answer {
	int code;
	char *text;
	size_t bytes;
};

/* Parses a request head (0-terminated): 200 and *path_out, or the status code of the refusal. */
int http_parse(const char *text, enum http_path *path_out);

/* Listens on address by events on base. The caller has zeroed conns, and sets on_ask and ctx before
   the loop runs. -ENOMEM, -EADDRINUSE and other errors of bind. */
RLV_MUST_CHECK int http_conns_open(struct http_conns *conns, struct event_base *base,
				   const struct sockaddr *address, int len);
void http_conns_close(struct http_conns *conns);

/* Sends the answer, whose text is copied, to all connections that have asked for that page and
   wait. */
void http_conns_answer(struct http_conns *conns, enum http_path path,
		       const struct http_answer *answer);

#endif
