#include "server/poold/poold.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/mem/alloc.h"

#include "server/net/http.h"
#include "server/poold/peers.h"

void poold_recall(const struct poold *poold)
{
	for (uint32_t i = 0; i < poold->opts.n_devices; i++)
		broker_recall(poold->devices[i].broker);
}

/* -------- events -------- */

/* Turns all devices; the first ones again, as what a later one took back may be what the quota of a user
   lacked there. */
static uint64_t poold_turn_devices(struct poold *poold)
{
	uint64_t due = DEADLINE_NEVER;
	uint32_t n = poold->opts.n_devices;

	for (uint32_t i = 0; i + 1 < n; i++)
		(void)broker_turn(poold->devices[i].broker);
	for (uint32_t i = n; i--;)
		due = deadline_min(due, broker_turn(poold->devices[i].broker));
	return due;
}

void poold_turn(struct poold *poold)
{
	uint64_t due = poold_turn_devices(poold), now = clock_now_ns(clock_monotonic());
	uint64_t pause = due > now ? due - now : 0;
	struct timeval tv = {
		.tv_sec = (time_t)(pause / CLOCK_NS_PER_S),
		.tv_usec = (suseconds_t)(pause % CLOCK_NS_PER_S / CLOCK_NS_PER_US),
	};

	if (due == DEADLINE_NEVER)
		(void)evtimer_del(poold->tick);
	else
		(void)evtimer_add(poold->tick, &tv);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	poold_turn(arg);
}

static void on_stop(evutil_socket_t fd, short what, void *arg)
{
	struct poold *poold = arg;

	(void)what;
	log_info("stop: signal %d", (int)fd);
	(void)event_base_loopbreak(poold->base);
}

static void on_page(evutil_socket_t fd, short what, void *arg)
{
	const struct poold *poold = arg;

	(void)fd;
	(void)what;
	http_turn(poold->http);
}

static void on_connect(evutil_socket_t fd, short what, void *arg)
{
	struct poold *poold = arg;
	int sock = accept4((int)fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)what;
	if (sock < 0) {
		if (errno != EAGAIN)
			log_warn("accept %s %m", poold->path);
		return;
	}
	if (poold_peers_add(poold, sock))
		log_warn("%s", error_last());
}

/* -------- open and close -------- */

static int poold_listen(struct poold *poold)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int ret = runtime_dir_file(&poold->dir, "poold.sock", poold->path);

	if (ret)
		return ret;
	memcpy(address.sun_path, poold->path, sizeof(address.sun_path));
	poold->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (poold->listener < 0)
		return error_set(-errno, "socket: %s", strerror(errno));
	/* We hold the lock of the name: the socket's former owner is gone. */
	(void)unlink(poold->path);
	if (bind(poold->listener, (struct sockaddr *)&address, sizeof(address)) ||
	    chmod(poold->path, 0600) || listen(poold->listener, SOMAXCONN))
		return error_set(-errno, "listen on %s: %s", poold->path, strerror(errno));
	ret = runtime_dir_share_socket(&poold->dir, "poold.sock");
	if (ret)
		return ret;
	poold->accept =
		event_new(poold->base, poold->listener, EV_READ | EV_PERSIST, on_connect, poold);
	if (!poold->accept || event_add(poold->accept, NULL))
		return error_set(-ENOMEM, "event loop: cannot allocate memory");
	return 0;
}

static int poold_take_name(struct poold *poold)
{
	char folder[RUNTIME_PATH_BYTES];
	int pid = 0, ret;

	if (!runtime_name_is_valid(poold->opts.name))
		return error_set(-EINVAL, "--name %.64s: want letters, digits, _ - .",
				 poold->opts.name);
	(void)snprintf(folder, sizeof(folder), "pool-%s", poold->opts.name);
	ret = runtime_dir_open(folder, true, &poold->dir);
	if (ret == 0)
		ret = runtime_dir_lock(&poold->dir, "poold", &poold->lock_fd, &pid);
	if (ret == -EBUSY)
		return error_set(ret, "pool %s has a broker: process %d", poold->opts.name, pid);
	return ret ? ret : runtime_dir_share(&poold->dir, poold->opts.common.group);
}

/* Devices that an earlier broker had, and this one has not, must be without jobs. */
static int poold_open_devices(struct poold *poold)
{
	int ret = 0;

	for (uint32_t i = 0; i < POOLD_DEVICES && ret == 0; i++)
		ret = poold_device_open(poold, i);
	return ret;
}

static int poold_open_pages(struct poold *poold)
{
	const struct http_opts pages = {
		.address = poold->opts.common.metrics,
		.metrics = poold_write_metrics,
		.health = poold_check_health,
		.ctx = poold,
	};
	int ret = pages.address ? http_open(&pages, &poold->http) : 0;

	if (ret || !poold->http)
		return ret;
	poold->page =
		event_new(poold->base, http_fd(poold->http), EV_READ | EV_PERSIST, on_page, poold);
	if (!poold->page || event_add(poold->page, NULL))
		return error_set(-ENOMEM, "event loop: cannot allocate memory");
	return 0;
}

int poold_open(const struct poold_opts *opts, struct poold **poold_out)
{
	struct poold *poold = mem_zalloc(sizeof(*poold));
	int ret;

	if (!poold)
		return error_set(-ENOMEM, "broker: cannot allocate memory");
	poold->opts = *opts;
	poold->lock_fd = poold->listener = -1;
	poold->base = event_base_new();
	poold->tick = poold->base ? evtimer_new(poold->base, on_tick, poold) : NULL;
	poold->stop[0] = poold->base ? evsignal_new(poold->base, SIGTERM, on_stop, poold) : NULL;
	poold->stop[1] = poold->base ? evsignal_new(poold->base, SIGINT, on_stop, poold) : NULL;
	if (!poold->tick || !poold->stop[0] || !poold->stop[1] || event_add(poold->stop[0], NULL) ||
	    event_add(poold->stop[1], NULL))
		ret = error_set(-ENOMEM, "event loop: cannot allocate memory");
	else
		ret = poold_take_name(poold);
	if (ret == 0)
		ret = poold_open_devices(poold);
	if (ret == 0)
		ret = poold_open_pages(poold);
	if (ret == 0)
		ret = poold_listen(poold);
	if (ret) {
		poold_close(&poold);
		return ret;
	}
	*poold_out = poold;
	return 0;
}

int poold_run(struct poold *poold)
{
	poold_turn(poold);
	log_info("serve pool %s devices %" PRIu32, poold->opts.name, poold->opts.n_devices);
	return event_base_dispatch(poold->base) < 0 ? error_set(-EIO, "event loop failed") : 0;
}

void poold_close(struct poold **poold_inout)
{
	struct poold *poold = *poold_inout;
	struct event *events[] = { poold->tick, poold->stop[0], poold->stop[1], poold->page,
				   poold->accept };

	poold_peers_drop_all(poold);
	http_close(&poold->http);
	for (uint32_t i = 0; i < poold->opts.n_devices; i++)
		poold_device_close(&poold->devices[i]);
	for (size_t i = 0; i < ARRAY_LEN(events); i++) {
		if (events[i])
			event_free(events[i]);
	}
	if (poold->base)
		event_base_free(poold->base);
	if (poold->listener >= 0) {
		close(poold->listener);
		(void)unlink(poold->path);
	}
	if (poold->lock_fd >= 0)
		runtime_dir_unlock(&poold->dir, "poold", poold->lock_fd);
	mem_free(poold);
	*poold_inout = NULL;
}
