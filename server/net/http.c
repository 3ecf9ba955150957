#include "server/net/http.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/os/lock.h"
#include "base/log.h"

#include "server/net/http_conn.h"

static LOCK_ROLE(http_role, "pages", LOCK_RANK_SERVER);

struct http {
	struct http_opts opts;
	pthread_t thread;
	bool running;
	int ask_fd;              /* thread -> loop */
	int made_fd;             /* loop -> thread */
	struct event_base *base; /* used by the thread, as are the following */
	struct event *on_made;
	struct http_conns conns;
	struct lock lock;
	bool stops LOCK_GUARDED_BY(http_role);
	uint32_t wanted LOCK_GUARDED_BY(http_role);     /* 1 << enum http_path */
	uint64_t lent_until LOCK_GUARDED_BY(http_role); /* 0 = the loop makes pages */
	/* The last version of each page; code 0 = none since the last look. */
	struct http_answer made[HTTP_PATHS] LOCK_GUARDED_BY(http_role);
};

/* -------- pages -------- */

/* Makes the page: 200, or 503 with the error if the daemon is not healthy; 503 without a text: no
   memory. The caller frees the text by free(). */
static struct http_answer make_page(struct http *http, enum http_path path)
{
	struct http_answer made = { .code = 200 };
	struct metrics page;

	if (metrics_open(&page))
		return (struct http_answer){ .code = 503 };
	if (path == HTTP_HEALTHZ) {
		made.code = http->opts.health(http->opts.ctx) ? 503 : 200;
		fprintf(page.file, "%s\n", made.code == 200 ? "ok" : error_last());
	} else {
		http->opts.metrics(http->opts.ctx, &page);
		metrics_process(&page);
	}
	if (metrics_close(&page)) {
		free(page.text); /* NOLINT: of open_memstream */
		return (struct http_answer){ .code = 503 };
	}
	made.text = page.text;
	made.bytes = page.bytes;
	return made;
}

void http_turn(struct http *http)
{
	uint32_t wanted;
	eventfd_t n;

	if (!http)
		return;
	(void)eventfd_read(http->ask_fd, &n);
	lock_acquire(&http->lock, &http_role);
	wanted = http->wanted;
	http->wanted = 0;
	lock_release(&http->lock, &http_role);
	for (enum http_path path = 0; path < HTTP_PATHS; path++) {
		struct http_answer made;

		if (!(wanted >> path & 1))
			continue;
		made = make_page(http, path);
		lock_acquire(&http->lock, &http_role);
		free(http->made[path].text); /* NOLINT: of open_memstream */
		http->made[path] = made;
		lock_release(&http->lock, &http_role);
	}
	if (wanted)
		(void)eventfd_write(http->made_fd, 1);
}

void http_lend(struct http *http, uint64_t until_ns)
{
	if (!http)
		return;
	lock_acquire(&http->lock, &http_role);
	http->lent_until = until_ns;
	lock_release(&http->lock, &http_role);
	/* The maker of the pages that were asked for meanwhile. */
	(void)eventfd_write(until_ns ? http->made_fd : http->ask_fd, 1);
}

/* -------- the thread -------- */

/* Sends the pages made by the loop to the peers that wait. During a loan it makes the wanted pages
   itself, under the lock, which the loop takes to continue. */
static void on_made(evutil_socket_t fd, short what, void *arg)
{
	struct http *http = arg;
	struct http_answer made[HTTP_PATHS];
	eventfd_t n;

	(void)what;
	(void)eventfd_read(fd, &n);
	lock_acquire(&http->lock, &http_role);
	if (http->stops)
		(void)event_base_loopbreak(http->base);
	memcpy(made, http->made, sizeof(made));
	memset(http->made, 0, sizeof(http->made));
	if (clock_now_ns(clock_monotonic()) < http->lent_until) {
		for (enum http_path path = 0; path < HTTP_PATHS; path++)
			if (http->wanted >> path & 1) {
				free(made[path].text); /* NOLINT: of open_memstream */
				made[path] = make_page(http, path);
			}
		http->wanted = 0;
	}
	lock_release(&http->lock, &http_role);
	for (enum http_path path = 0; path < HTTP_PATHS; path++) {
		if (made[path].code)
			http_conns_answer(&http->conns, path, &made[path]);
		free(made[path].text); /* NOLINT: of open_memstream */
	}
}

static void on_ask(void *ctx, enum http_path path)
{
	struct http *http = ctx;
	bool lent;

	lock_acquire(&http->lock, &http_role);
	http->wanted |= 1u << path;
	lent = http->lent_until != 0;
	lock_release(&http->lock, &http_role);
	(void)eventfd_write(lent ? http->made_fd : http->ask_fd, 1);
}

static void *http_serve(void *arg)
{
	struct http *http = arg;

	(void)event_base_dispatch(http->base);
	return NULL;
}

/* -------- open and close -------- */

static int parse_address(const char *text, struct sockaddr_storage *out, int *len_out)
{
	char full[128];
	uint16_t port;
	size_t digits = strspn(text, "0123456789");

	snprintf(full, sizeof(full), "%s%s", text[digits] ? "" : "127.0.0.1:", text);
	memset(out, 0, sizeof(*out));
	*len_out = (int)sizeof(*out);
	if (strlen(text) > 64 || evutil_parse_sockaddr_port(full, (struct sockaddr *)out, len_out))
		return error_set(-EINVAL,
				 "--metrics %.64s: want [IP:]PORT, as 9117, 0.0.0.0:9117 or "
				 "[::]:9117",
				 text);
	/* The port is at the same offset in both address families. */
	memcpy(&port, (const char *)out + 2, sizeof(port));
	return port ? 0 : error_set(-EINVAL, "--metrics %.64s: want a port", text);
}

int http_check_address(const char *text)
{
	struct sockaddr_storage address;
	int len;

	return parse_address(text, &address, &len);
}

int http_open(const struct http_opts *opts, struct http **http_out)
{
	struct http *http = mem_zalloc(sizeof(*http));
	struct sockaddr_storage address;
	sigset_t all, old;
	int ret, len;

	if (!http)
		return error_set(-ENOMEM, "/metrics: cannot allocate memory");
	http->opts = *opts;
	lock_init(&http->lock, &http_role);
	http->ask_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	http->made_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	http->base = event_base_new();
	if (http->base)
		http->on_made =
			event_new(http->base, http->made_fd, EV_READ | EV_PERSIST, on_made, http);
	ret = parse_address(opts->address, &address, &len);
	if (ret == 0 && (http->ask_fd < 0 || http->made_fd < 0 || !http->on_made ||
			 event_add(http->on_made, NULL)))
		ret = error_set(-ENOMEM, "event loop of /metrics: no memory or no descriptor");
	if (ret == 0)
		ret = http_conns_open(&http->conns, http->base, (struct sockaddr *)&address, len);
	http->conns.on_ask = on_ask;
	http->conns.ctx = http;
	if (ret == 0) {
		/* The daemon's signals are not delivered to this thread. */
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &old);
		ret = pthread_create(&http->thread, NULL, http_serve, http);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
		http->running = ret == 0;
		if (ret)
			ret = error_set(-ret, "start the thread of /metrics: %s", strerror(ret));
	}
	if (ret) {
		http_close(&http);
		return ret;
	}
	log_info("serve /metrics and /healthz at %s", opts->address);
	*http_out = http;
	return 0;
}

LOCK_UNCHECKED void http_close(struct http **http_ptr)
{
	struct http *http = *http_ptr;

	if (!http)
		return;
	if (http->running) {
		lock_acquire(&http->lock, &http_role);
		http->stops = true;
		lock_release(&http->lock, &http_role);
		(void)eventfd_write(http->made_fd, 1);
		pthread_join(http->thread, NULL);
	}
	http_conns_close(&http->conns);
	if (http->on_made)
		event_free(http->on_made);
	if (http->base)
		event_base_free(http->base);
	for (size_t i = 0; i < HTTP_PATHS; i++)
		free(http->made[i].text); /* NOLINT: of open_memstream */
	if (http->ask_fd >= 0)
		close(http->ask_fd);
	if (http->made_fd >= 0)
		close(http->made_fd);
	lock_fini(&http->lock);
	mem_free(http);
	*http_ptr = NULL;
}

int http_fd(const struct http *http)
{
	return http ? http->ask_fd : -1;
}
