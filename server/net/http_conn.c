#include "server/net/http_conn.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/listener.h>

#include "server/net/flow.h"
#include "server/net/http.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"

enum { BACKLOG = 64 };

struct http_conn {
	struct timed_link link; /* in the queue of its state */
	struct timed_link age;  /* in conns->all */
	struct http_conns *conns;
	struct flow flow;
	enum http_path path; /* asked for */
};

/* -------- the request -------- */

int http_parse(const char *text, enum http_path *path_out)
{
	static const char *const paths[HTTP_PATHS] = { "/metrics", "/healthz" };
	static const char version[] = " HTTP/1.";
	size_t method = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
	const char *at = text + method + 1, *end;
	size_t target, len;

	if (method == 0 || text[method] != ' ')
		return 400;
	target = strcspn(at, " \r\n");
	len = strcspn(at, "? \r\n");
	if (at[0] != '/' || strncmp(at + target, version, strlen(version)) != 0)
		return 400;
	end = at + target + strlen(version);
	if ((*end != '0' && *end != '1') || end[1] != '\r' || end[2] != '\n')
		return 400;
	if (strncmp(text, "GET ", 4) != 0)
		return 405;
	for (enum http_path path = 0; path < HTTP_PATHS; path++)
		if (strlen(paths[path]) == len && strncmp(at, paths[path], len) == 0) {
			*path_out = path;
			return 200;
		}
	return 404;
}

/* -------- one connection -------- */

static struct http_conn *http_conn_of(struct timed_link *link)
{
	return (struct http_conn *)((char *)link - offsetof(struct http_conn, link));
}

static void http_conn_drop(struct http_conn *conn)
{
	timed_queue_remove(&conn->link);
	timed_queue_remove(&conn->age);
	flow_close(&conn->flow);
	mem_free(conn);
}

static void http_conn_enter(struct http_conn *conn, enum http_state state)
{
	timed_queue_add(&conn->conns->queues[state], &conn->link);
	timed_queue_schedule(conn->conns->queues, HTTP_STATES, conn->conns->sweep);
}

/* Sends the answer with an HTTP head, then lingers until the peer closes: closing first could lose
   the answer. */
static void send_answer(struct http_conn *conn, const struct http_answer *answer, const char *type)
{
	static const struct {
		int code;
		const char *words;
	} reasons[] = { { 200, "OK" },
			{ 400, "Bad Request" },
			{ 404, "Not Found" },
			{ 405, "Method Not Allowed" },
			{ 431, "Request Header Fields Too Large" },
			{ 503, "Service Unavailable" } };
	const char *reason = "Error";
	char head[256];
	int n;

	for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
		if (reasons[i].code == answer->code)
			reason = reasons[i].words;
	n = snprintf(head, sizeof(head),
		     "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s"
		     "Cache-Control: no-store\r\nConnection: close\r\n\r\n",
		     answer->code, reason, type, answer->bytes,
		     answer->code == 405 ? "Allow: GET\r\n" : "");

	flow_write(&conn->flow, head, (size_t)n);
	flow_write(&conn->flow, answer->text, answer->bytes);
	http_conn_enter(conn, HTTP_SENDING);
	flow_linger(&conn->flow, false);
}

static void send_words(struct http_conn *conn, int code, const char *words)
{
	const struct http_answer answer = { code, (char *)words, strlen(words) };

	send_answer(conn, &answer, "text/plain; charset=utf-8");
}

static void on_http_read(void *ctx)
{
	struct http_conn *conn = ctx;
	char head[HTTP_HEAD_BYTES + 1];
	ev_ssize_t n = evbuffer_copyout(conn->flow.in, head, HTTP_HEAD_BYTES);
	bool has_nul = n > 0 && memchr(head, '\0', (size_t)n);
	int code = 0; /* of a refusal; 0 = the head is not whole yet */

	head[n > 0 ? n : 0] = '\0';
	if (strstr(head, "\r\n\r\n"))
		code = http_parse(head, &conn->path);
	else if (has_nul)
		code = 400;
	else if (n == (ev_ssize_t)HTTP_HEAD_BYTES)
		code = 431;
	if (code == 200) {
		http_conn_enter(conn, HTTP_ASKING);
		flow_pause(&conn->flow); /* so that a peer may close its side */
		conn->conns->on_ask(conn->conns->ctx, conn->path);
	} else if (code) {
		send_words(conn, code,
			   code == 431 ? "the request is too long\n"
				       : "GET /metrics or GET /healthz\n");
	}
}

static void on_http_end(void *ctx, int code)
{
	(void)code;
	http_conn_drop(ctx);
}

static const struct flow_ops http_flow_ops = { .on_read = on_http_read, .on_end = on_http_end };

static void on_http_sweep(evutil_socket_t fd, short what, void *arg)
{
	struct http_conns *conns = arg;
	struct timed_link *ended;

	(void)fd;
	(void)what;
	while ((ended = timed_queue_ended(&conns->queues[HTTP_ASKING])) != NULL)
		send_words(http_conn_of(ended), 503,
			   "the daemon's loop is stuck: no answer for 3 s\n");
	for (int state = 0; state < HTTP_STATES; state++)
		while ((ended = timed_queue_ended(&conns->queues[state])) != NULL)
			http_conn_drop(http_conn_of(ended));
	timed_queue_schedule(conns->queues, HTTP_STATES, conns->sweep);
}

void http_conns_answer(struct http_conns *conns, enum http_path path,
		       const struct http_answer *answer)
{
	const char *type = path == HTTP_METRICS ? METRICS_TYPE : "text/plain; charset=utf-8";
	struct timed_link *next;

	for (struct timed_link *link = conns->queues[HTTP_ASKING].first; link; link = next) {
		next = link->next;
		if (http_conn_of(link)->path == path)
			send_answer(http_conn_of(link), answer, type);
	}
}

/* -------- accept -------- */

static void on_http_accept(struct evconnlistener *listener, evutil_socket_t fd,
			   struct sockaddr *address, int len, void *arg)
{
	struct http_conns *conns = arg;
	struct http_conn *conn = mem_zalloc(sizeof(*conn));
	struct stream stream;

	(void)listener;
	(void)address;
	(void)len;
	stream = stream_socket(fd);
	if (!conn) {
		stream_close(&stream);
		return;
	}
	if (conns->all.n >= HTTP_MAX_CONNS)
		http_conn_drop((struct http_conn *)((char *)conns->all.first -
						    offsetof(struct http_conn, age)));
	conn->conns = conns;
	conn->flow.ops = &http_flow_ops;
	conn->flow.ctx = conn;
	if (flow_open(&conn->flow, conns->base, &stream)) {
		mem_free(conn);
		return;
	}
	timed_queue_add(&conns->all, &conn->age);
	http_conn_enter(conn, HTTP_READING);
}

static void on_http_accept_error(struct evconnlistener *listener, void *arg)
{
	(void)listener;
	(void)arg;
	log_warn("accept for /metrics: %s", strerror(errno));
	usleep(10 * 1000); /* usually out of descriptors */
}

int http_conns_open(struct http_conns *conns, struct event_base *base,
		    const struct sockaddr *address, int len)
{
	const unsigned flags = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE;

	conns->base = base;
	conns->queues[HTTP_READING].limit_ns = HTTP_LIMIT_S * CLOCK_NS_PER_S;
	conns->queues[HTTP_ASKING].limit_ns = HTTP_PATIENCE_NS;
	conns->queues[HTTP_SENDING].limit_ns = HTTP_LIMIT_S * CLOCK_NS_PER_S;
	conns->sweep = evtimer_new(base, on_http_sweep, conns);
	if (!conns->sweep)
		return error_set(-ENOMEM, "listen for /metrics: cannot allocate memory");
	conns->listener =
		evconnlistener_new_bind(base, on_http_accept, conns, flags, BACKLOG, address, len);
	if (!conns->listener)
		return error_set(-errno, "listen for /metrics: %s", strerror(errno));
	evconnlistener_set_error_cb(conns->listener, on_http_accept_error);
	return 0;
}

void http_conns_close(struct http_conns *conns)
{
	for (int state = 0; state < HTTP_STATES; state++)
		while (conns->queues[state].first)
			http_conn_drop(http_conn_of(conns->queues[state].first));
	if (conns->listener)
		evconnlistener_free(conns->listener);
	if (conns->sweep)
		event_free(conns->sweep);
}
