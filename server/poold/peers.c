#include "server/poold/peers.h"
#include "server/poold/commands.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "wire/lease_message.h"

#include "base/bits.h"
#include "base/log.h"
#include "base/mem/alloc.h"
#include "base/os/pidfd.h"

enum { MESSAGES = 32 /* of one peer, before others get their turn */ };

struct peer {
	struct peer *next;
	struct poold *poold;
	struct event *event;
	int sock;
	struct poold_device *device; /* of its job; NULL: none */
	uint32_t job;
	uint32_t uid, pid;
	bool woken;             /* since its last request */
	struct job_list listed; /* for it to ask for the rest */
};

static void peer_drop(struct peer *peer)
{
	struct poold *poold = peer->poold;
	struct peer **link = &poold->peers;

	while (*link != peer)
		link = &(*link)->next;
	*link = peer->next;
	poold->n_peers--;
	if (peer->device)
		broker_connected(peer->device->broker, peer->job, false);
	if (peer->event)
		event_free(peer->event);
	close(peer->sock);
	job_list_free(&peer->listed);
	mem_free(peer);
}

static struct peer *peer_of(const struct poold_device *device, uint32_t job)
{
	struct peer *peer = device->poold->peers;

	while (peer && (peer->device != device || peer->job != job))
		peer = peer->next;
	return peer;
}

void poold_peers_drop(struct poold_device *device, uint32_t job)
{
	struct peer *peer;

	while ((peer = peer_of(device, job)))
		peer_drop(peer);
}

void poold_peers_drop_all(struct poold *poold)
{
	while (poold->peers)
		peer_drop(poold->peers);
}

void poold_peers_wake(struct poold_device *device, uint32_t job)
{
	struct lease_message message = { .n_fds = 0 };
	struct peer *peer = peer_of(device, job);

	if (!peer || peer->woken || device->poold->asking == peer)
		return;
	peer->woken = true;
	if (lease_send(peer->sock, &message, LEASE_WAKE))
		log_debug("wake job %" PRIu32 ": %s", job, error_last());
}

/* -------- jobs -------- */

/* The process at the other end, proved by its own pidfd. */
static int peer_process(const struct peer *peer, int pidfd, struct broker_peer *out)
{
	pid_t pid;
	int ret = pidfd_pid(pidfd, &pid);

	if (ret == 0 && (uint32_t)pid != peer->pid)
		ret = error_set(-EPERM, "the pidfd is of process %d, the peer is %" PRIu32,
				(int)pid, peer->pid);
	if (ret == 0)
		ret = process_read(peer->pid, &out->process);
	out->uid = peer->uid;
	return ret;
}

static int peer_hello(struct peer *peer, struct lease_message *message)
{
	struct poold_device *device;
	struct broker_peer process;
	uint32_t job;
	int pidfd = message->fds[0];
	int ret = peer_process(peer, pidfd, &process);

	if (ret == 0)
		ret = poold_place(peer->poold, &message->hello, &device);
	if (ret == 0)
		ret = broker_hello(device->broker, &process, &message->hello, message->fds + 1,
				   &job);
	if (ret)
		return ret;
	poold_peers_drop(device, job); /* an earlier connection of it */
	broker_connected(device->broker, job, true);
	peer->device = device;
	peer->job = job;
	message->fds[0] = -1;
	ret = poold_watch(device, job, pidfd);
	if (ret) /* without a proof of its end it could not be served */
		return error_prefix(-ECONNABORTED, "hello: ");
	log_info("job %s process %" PRIu32 " device %" PRIu32, message->hello.name, peer->pid,
		 poold_device_number(device));
	return 0;
}

static int peer_as_job(struct peer *peer, struct lease_message *in, struct lease_message *out)
{
	struct broker *broker = peer->device->broker;

	switch (in->head.type) {
	case LEASE_HOLD:
		return broker_hold(broker, peer->job, in);
	case LEASE_TAKE:
		return broker_take(broker, peer->job, in->take.n, out);
	case LEASE_GIVE:
		return broker_give(broker, peer->job, &in->refs);
	case LEASE_EXPOSE:
		return broker_expose(broker, peer->job, &in->refs);
	case LEASE_BEGIN:
		return broker_begin(broker, peer->job);
	case LEASE_END:
		return broker_end(broker, peer->job, in->end.remaining_ns);
	case LEASE_PROFILE:
		return broker_profile(broker, peer->job, &in->profile);
	case LEASE_PARK:
		return broker_park(broker, peer->job);
	case LEASE_RESUME:
		return broker_resume(broker, peer->job);
	case LEASE_CANCEL:
		broker_cancel(broker, peer->job);
		return 0;
	case LEASE_BYE:
		broker_bye(broker, peer->job, &in->refs);
		return 0;
	default: /* LEASE_ROOM */
		return 0;
	}
}

/* -------- requests -------- */

static void put_answer(const struct peer *peer, int ret, struct lease_answer *out)
{
	const struct broker *broker = peer->device ? peer->device->broker : NULL;
	struct gate_place place;

	out->status = ret;
	if (ret)
		snprintf(out->text, sizeof(out->text), "%s", error_last());
	if (!broker)
		return;
	place = broker_place(broker, peer->job);
	out->device = poold_device_number(peer->device);
	out->cuda = peer->poold->opts.cuda[out->device];
	out->extent_bytes = broker->opts.extent_bytes;
	out->device_bytes = broker->ledger.n * broker->opts.extent_bytes;
	out->flags = (broker->opts.strict ? LEASE_ANSWER_STRICT : 0) |
		     (broker->jobs[peer->job].wish ? LEASE_ANSWER_PARK : 0);
	for (uint32_t i = 0; i < LEDGER_JOBS; i++)
		out->others += i != peer->job && broker->jobs[i].state == BROKER_MEMBER;
	out->reason = (uint32_t)place.reason;
	out->position = place.position;
	out->room = broker_room(broker, peer->job);
	out->incarnation = broker->jobs[peer->job].kept->incarnation;
}

static bool is_of_job(uint16_t type)
{
	return type < LEASE_ASK || type == LEASE_PARK || type == LEASE_RESUME ||
	       type == LEASE_EXPOSE;
}

static int peer_ask(struct peer *peer, const struct lease_ask *ask)
{
	struct lease_message out = { .n_fds = 0 };
	int ret = 0;

	poold_recall(peer->poold);
	if (ask->first == LEASE_POOL)
		poold_ask(peer->poold, ask->device, &out.pool);
	else
		ret = poold_list_ask(peer->poold, &peer->listed, ask->first, &out.jobs);
	return ret ? ret
		   : lease_send(peer->sock, &out,
				ask->first == LEASE_POOL ? LEASE_POOL_ANSWER : LEASE_JOBS_ANSWER);
}

/* Handles one message and answers it. An error: hang up. */
static int peer_answer(struct peer *peer, struct lease_message *in)
{
	struct lease_message out = { .n_fds = 0 };
	bool bye = in->head.type == LEASE_BYE;
	int ret;

	if (in->head.type == LEASE_ASK)
		return peer_ask(peer, &in->ask);
	if (in->head.type == LEASE_LIMIT || in->head.type == LEASE_DRAIN)
		ret = poold_command(peer->poold, peer->uid, in);
	else if (in->head.type == LEASE_HELLO && !peer->device)
		ret = peer_hello(peer, in);
	else if (in->head.type != LEASE_HELLO && is_of_job(in->head.type) && peer->device)
		ret = peer_as_job(peer, in, &out);
	else
		return error_set(-EPROTO, "message of type %u: out of turn", in->head.type);
	if (bye)
		peer->device = NULL;
	put_answer(peer, ret, &out.answer);
	ret = ret == -ECONNABORTED ? ret : lease_send(peer->sock, &out, LEASE_ANSWER);
	lease_close_fds(&out);
	return ret;
}

static int peer_receive(struct peer *peer)
{
	struct lease_message message;
	int ret = lease_receive(peer->sock, &message);

	if (ret)
		return ret;
	peer->woken = false;
	peer->poold->asking = peer;
	ret = peer_answer(peer, &message);
	peer->poold->asking = NULL;
	lease_close_fds(&message);
	return ret == -EAGAIN ? error_set(-ECONNRESET, "the peer does not read") : ret;
}

static void on_message(evutil_socket_t fd, short what, void *arg)
{
	struct peer *peer = arg;
	struct poold *poold = peer->poold;
	int ret = 0;

	(void)fd;
	(void)what;
	for (int i = 0; i < MESSAGES && ret == 0; i++)
		ret = peer_receive(peer);
	if (ret && ret != -EAGAIN) {
		if (ret != -ECONNRESET)
			log_warn("hang up on process %" PRIu32 ": %s", peer->pid, error_last());
		peer_drop(peer);
	}
	poold_turn(poold);
}

void poold_peers_serve(struct poold *poold)
{
	struct peer *next;

	for (struct peer *peer = poold->peers; peer; peer = next) {
		next = peer->next;
		on_message(-1, 0, peer);
	}
}

/* Makes room for one more. */
static void peers_limit(struct poold *poold)
{
	struct peer *oldest = NULL;

	for (struct peer *peer = poold->peers; peer; peer = peer->next)
		oldest = peer->device ? oldest : peer;
	if (poold->n_peers >= PEERS_MAX && oldest)
		peer_drop(oldest);
}

int poold_peers_add(struct poold *poold, int sock)
{
	struct ucred cred = { 0 };
	socklen_t len = sizeof(cred);
	struct peer *peer;

	peers_limit(poold);
	peer = mem_zalloc(sizeof(*peer));
	if (!peer || getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len)) {
		mem_free(peer);
		close(sock);
		return error_set(-ENOMEM, "cannot take a connection: %m");
	}
	*peer = (struct peer){ .next = poold->peers,
			       .poold = poold,
			       .sock = sock,
			       .uid = cred.uid,
			       .pid = (uint32_t)cred.pid };
	poold->peers = peer;
	poold->n_peers++;
	peer->event = event_new(poold->base, sock, EV_READ | EV_PERSIST, on_message, peer);
	if (peer->event && event_add(peer->event, NULL) == 0)
		return 0;
	peer_drop(peer);
	return error_set(-ENOMEM, "event loop: cannot allocate memory");
}
