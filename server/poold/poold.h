/*
 * Poold: the broker of the memory of devices as a daemon: one thread, one event loop.
 *
 *   jobs, commands ── unix socket ──> peers.c ──> broker.h, one for each device
 *   pidfd of each job ──────────────> its process has ended: all of its memory is free
 *   timer ──────────────────────────> broker_turn: progress, grants, limits
 *
 * Devices are memory of this host (device/host/backend_host.h). A job is of one device, which devices.c
 * chooses when it comes (device/placement.h). The rosters of jobs are kept beside the socket: after a
 * restart jobs go on with the memory that they hold, and come back when they ask for something.
 */
#ifndef RLV_SERVER_POOLD_POOLD_H
#define RLV_SERVER_POOLD_POOLD_H

#include "server/daemon/daemon.h"
#include "server/poold/broker.h"

#include "base/os/runtime_dir.h"

#define POOLD_DEVICES 16u

struct poold_opts {
	const char *name;
	struct broker_opts broker;     /* policies, and what is alike for all devices */
	uint64_t bytes[POOLD_DEVICES]; /* of each device; 0 = 9/10 of what a CUDA device has */
	uint32_t cuda[POOLD_DEVICES];  /* 1 + number of the CUDA device; 0 = memory of the host */
	uint32_t n_devices;
	struct daemon_common common;
};

struct event;
struct event_base;
struct http;
struct metrics;
struct peer;

/* The process of a job. */
struct poold_process {
	int pidfd; /* -1: none */
	struct event *ended;
};

struct poold_device {
	struct poold *poold;
	struct backend *backend;
	struct broker *broker;
	struct poold_process processes[LEDGER_JOBS];
};

struct poold {
	struct poold_opts opts;
	struct runtime_dir dir;
	int lock_fd;
	struct poold_device devices[POOLD_DEVICES]; /* opts.n_devices of them */
	struct event_base *base;
	struct event *tick, *stop[2], *page, *accept;
	struct http *http;
	int listener;
	char path[RUNTIME_PATH_BYTES]; /* of the socket; "": none */
	struct peer *peers;            /* newest first */
	uint32_t n_peers;
	const struct peer *asking; /* whose request is handled, NULL */
};

/* Errors: -EBUSY: another process is this pool's broker; -EINVAL: sizes; -EPROTO: the roster is of
   another pool; those of the runtime directory and of bind(2). */
RLV_MUST_CHECK int poold_open(const struct poold_opts *opts, struct poold **poold_out);
/* Serves until SIGTERM or SIGINT. */
RLV_MUST_CHECK int poold_run(struct poold *poold);
void poold_close(struct poold **poold);

/* Does what is due and sets the timer. */
void poold_turn(struct poold *poold);

/* Opens the device of that number, with the jobs of its roster. */
RLV_MUST_CHECK int poold_device_open(struct poold *poold, uint32_t number);
void poold_device_close(struct poold_device *device);
static inline uint32_t poold_device_number(const struct poold_device *device)
{
	return (uint32_t)(device - device->poold->devices);
}
/* The device for a job that says hello. -EEXIST: another device has a job of its name; -EINVAL: no such
   device; -ENOSPC: none has room for its needs. */
RLV_MUST_CHECK int poold_place(struct poold *poold, const struct lease_hello *hello,
			       struct poold_device **device_out);
/* Watches the process of a job; takes over pidfd. -ENOMEM: pidfd is closed. */
RLV_MUST_CHECK int poold_watch(struct poold_device *device, uint32_t job, int pidfd);

/* Takes back what permits jobs have, so that what is said of them is as of now. */
void poold_recall(const struct poold *poold);

/* Content of /metrics and /healthz. */
void poold_write_metrics(void *ctx, struct metrics *m);
int poold_check_health(void *ctx);

#endif
