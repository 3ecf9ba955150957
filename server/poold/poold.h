/*
 * Poold: the broker of a device's memory as a daemon: one thread, one event loop.
 *
 *   jobs, commands ── unix socket ──> peers.c ──> broker.h
 *   pidfd of each job ──────────────> its process has ended: all of its memory is free
 *   timer ──────────────────────────> broker_turn: progress, grants, limits
 *
 * The device is memory of this host (device/backend_host.h). The roster of jobs is kept beside the
 * socket: after a restart jobs go on with the memory that they hold, and come back when they ask
 * for something.
 */
#ifndef RLV_SERVER_POOLD_POOLD_H
#define RLV_SERVER_POOLD_POOLD_H

#include "server/daemon/daemon.h"
#include "server/poold/broker.h"

#include "base/os/runtime_dir.h"

struct poold_opts {
	const char *name;
	struct broker_opts broker; /* sizes and policies */
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

struct poold {
	struct poold_opts opts;
	struct runtime_dir dir;
	int lock_fd;
	struct backend *backend;
	struct broker *broker;
	struct event_base *base;
	struct event *tick, *stop[2], *page, *accept;
	struct http *http;
	int listener;
	char path[RUNTIME_PATH_BYTES]; /* of the socket; "": none */
	struct poold_process processes[LEDGER_JOBS];
	struct peer *peers; /* newest first */
	uint32_t n_peers;
	uint32_t asking; /* place of the job whose request is handled, LEDGER_NOBODY */
};

/* Errors: -EBUSY: another process is this pool's broker; -EINVAL: sizes; -EPROTO: the roster is of
   another pool; those of the runtime directory and of bind(2). */
RLV_MUST_CHECK int poold_open(const struct poold_opts *opts, struct poold **poold_out);
/* Serves until SIGTERM or SIGINT. */
RLV_MUST_CHECK int poold_run(struct poold *poold);
void poold_close(struct poold **poold);

/* Does what is due and sets the timer. */
void poold_turn(struct poold *poold);
/* Watches the process of a job; takes over pidfd. -ENOMEM: pidfd is closed. */
RLV_MUST_CHECK int poold_watch(struct poold *poold, uint32_t job, int pidfd);

/* Content of /metrics and /healthz. */
void poold_write_metrics(void *ctx, struct metrics *m);
int poold_check_health(void *ctx);

#endif
