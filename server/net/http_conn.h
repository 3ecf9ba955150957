/*
 * Http connections: accept, one request each, its answer. On one event loop; http.h has the limits.
 *
 *   READING --- whole head ---> ASKING --- http_conns_answer, or too late ---> SENDING --> closing
 *      |                                                                         ^
 *      +------------------------- refused: 4xx ----------------------------------+
 */
#ifndef RLV_SERVER_NET_HTTP_CONN_H
#define RLV_SERVER_NET_HTTP_CONN_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum http_path { HTTP_METRICS, HTTP_HEALTHZ, HTTP_PATHS };

struct event_base;
struct evconnlistener;
struct http_conn;
struct sockaddr;

struct http_conns {
	struct event_base *base;
	struct evconnlistener *listener;
	struct http_conn *first; /* newest first */
	uint32_t n;
	void (*on_ask)(void *ctx, enum http_path path);
	void *ctx;
};

struct http_answer {
	int code;
	const char *text;
	size_t bytes;
};

/* Parses a request head (0-terminated): 200 and *path_out, or the status code of the refusal. */
int http_parse(const char *text, enum http_path *path_out);

/* conns is zeroed; the caller sets on_ask and ctx before the loop runs. -EADDRINUSE, ... */
RLV_MUST_CHECK int http_conns_open(struct http_conns *conns, struct event_base *base,
				   const struct sockaddr *address, int len);
void http_conns_close(struct http_conns *conns);

/* Answers all requests for that page. */
void http_conns_answer(struct http_conns *conns, enum http_path path,
		       const struct http_answer *answer);

#endif
