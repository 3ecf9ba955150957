#include "server/net/http_conn.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>

#include "server/net/http.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"

enum { BACKLOG = 64 };

enum state { READING, ASKING, SENDING, CLOSING };

struct http_conn {
	struct http_conn *prev, *next;
	struct http_conns *conns;
	struct bufferevent *bev;
	struct event *timer;
	enum state state;
	enum http_path path; /* state ASKING only */
	bool half;           /* the peer has closed its side */
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

static void http_conn_drop(struct http_conn *conn)
{
	struct http_conns *conns = conn->conns;

	if (conn->prev)
		conn->prev->next = conn->next;
	else
		conns->first = conn->next;
	if (conn->next)
		conn->next->prev = conn->prev;
	conns->n--;
	if (conn->bev)
		bufferevent_free(conn->bev);
	if (conn->timer)
		event_free(conn->timer);
	mem_free(conn);
}

static void set_timer(struct http_conn *conn, uint64_t seconds)
{
	const struct timeval limit = { .tv_sec = (time_t)seconds };

	(void)event_add(conn->timer, &limit);
}

static const char *reason_of(int code)
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

	for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
		if (reasons[i].code == code)
			return reasons[i].words;
	return "Error";
}

static void send_answer(struct http_conn *conn, const struct http_answer *answer, const char *type)
{
	struct evbuffer *out = bufferevent_get_output(conn->bev);

	conn->state = SENDING;
	set_timer(conn, HTTP_LIMIT_S);
	if (evbuffer_add_printf(out,
				"HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s"
				"Cache-Control: no-store\r\nConnection: close\r\n\r\n",
				answer->code, reason_of(answer->code), type, answer->bytes,
				answer->code == 405 ? "Allow: GET\r\n" : "") < 0 ||
	    evbuffer_add(out, answer->text, answer->bytes) ||
	    bufferevent_enable(conn->bev, EV_READ | EV_WRITE))
		http_conn_drop(conn);
}

static void send_words(struct http_conn *conn, int code, const char *words)
{
	const struct http_answer answer = { code, words, strlen(words) };

	send_answer(conn, &answer, "text/plain; charset=utf-8");
}

static void http_conn_serve(struct http_conn *conn, const char *head)
{
	int code = http_parse(head, &conn->path);

	if (code != 200) {
		send_words(conn, code, "GET /metrics or GET /healthz\n");
		return;
	}
	conn->state = ASKING;
	set_timer(conn, HTTP_PATIENCE_NS / CLOCK_NS_PER_S);
	conn->conns->on_ask(conn->conns->ctx, conn->path);
}

static void on_read(struct bufferevent *bev, void *arg)
{
	struct http_conn *conn = arg;
	struct evbuffer *in = bufferevent_get_input(bev);
	char head[HTTP_HEAD_BYTES + 1];
	ev_ssize_t n;

	if (conn->state !=
	    READING) { /* unread input would reset the connection and lose the answer */
		(void)evbuffer_drain(in, evbuffer_get_length(in));
		return;
	}
	n = evbuffer_copyout(in, head, HTTP_HEAD_BYTES);
	head[n > 0 ? n : 0] = '\0';
	if (strstr(head, "\r\n\r\n"))
		http_conn_serve(conn, head);
	else if (n > 0 && memchr(head, '\0', (size_t)n))
		send_words(conn, 400, "GET /metrics or GET /healthz\n");
	else if (n == (ev_ssize_t)HTTP_HEAD_BYTES)
		send_words(conn, 431, "the request is too long\n");
}

static void on_written(struct bufferevent *bev, void *arg)
{
	struct http_conn *conn = arg;

	if (conn->state != SENDING)
		return;
	if (conn->half) {
		http_conn_drop(conn);
		return;
	}
	conn->state = CLOSING; /* the peer closes first, or its answer could be lost */
	(void)shutdown(bufferevent_getfd(bev), SHUT_WR);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
	struct http_conn *conn = arg;
	bool waits = conn->state == ASKING || conn->state == SENDING;

	(void)bev;
	conn->half = true;
	if (!(what & BEV_EVENT_EOF) || !waits)
		http_conn_drop(conn);
}

static void on_time(evutil_socket_t fd, short what, void *arg)
{
	struct http_conn *conn = arg;

	(void)fd;
	(void)what;
	if (conn->state == ASKING)
		send_words(conn, 503, "the daemon's loop is stuck: no answer for 3 s\n");
	else
		http_conn_drop(conn);
}

void http_conns_answer(struct http_conns *conns, enum http_path path,
		       const struct http_answer *answer)
{
	const char *type = path == HTTP_METRICS ? METRICS_TYPE : "text/plain; charset=utf-8";
	struct http_conn *next;

	for (struct http_conn *conn = conns->first; conn; conn = next) {
		next = conn->next;
		if (conn->state == ASKING && conn->path == path)
			send_answer(conn, answer, type);
	}
}

/* -------- accept -------- */

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address,
		      int len, void *arg)
{
	struct http_conns *conns = arg;
	struct http_conn *conn = mem_zalloc(sizeof(*conn)), *oldest = conns->first;

	(void)listener;
	(void)address;
	(void)len;
	if (!conn) {
		close(fd);
		return;
	}
	while (oldest && oldest->next)
		oldest = oldest->next;
	if (oldest && conns->n >= HTTP_MAX_CONNS)
		http_conn_drop(oldest);
	conn->conns = conns;
	conn->next = conns->first;
	if (conns->first)
		conns->first->prev = conn;
	conns->first = conn;
	conns->n++;
	conn->bev = bufferevent_socket_new(conns->base, fd, BEV_OPT_CLOSE_ON_FREE);
	conn->timer = evtimer_new(conns->base, on_time, conn);
	if (!conn->bev)
		close(fd);
	if (!conn->bev || !conn->timer) {
		http_conn_drop(conn);
		return;
	}
	bufferevent_setcb(conn->bev, on_read, on_written, on_event, conn);
	bufferevent_setwatermark(conn->bev, EV_READ, 0, HTTP_HEAD_BYTES);
	set_timer(conn, HTTP_LIMIT_S);
	if (bufferevent_enable(conn->bev, EV_READ))
		http_conn_drop(conn);
}

static void on_accept_error(struct evconnlistener *listener, void *arg)
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
	conns->listener =
		evconnlistener_new_bind(base, on_accept, conns, flags, BACKLOG, address, len);
	if (!conns->listener)
		return error_set(-errno, "listen for /metrics: %s", strerror(errno));
	evconnlistener_set_error_cb(conns->listener, on_accept_error);
	return 0;
}

void http_conns_close(struct http_conns *conns)
{
	while (conns->first)
		http_conn_drop(conns->first);
	if (conns->listener)
		evconnlistener_free(conns->listener);
}
