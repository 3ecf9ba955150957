/*
 * listen.c - binds, and hands connection events to the peers.
 */
#include "transport/verbs/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem/alloc.h"
#include "base/log.h"

#include "transport/verbs/message.h"
#include "transport/verbs/peers.h"

enum {
	BACKLOG = 128,
	EVENTS = 64, /* served at a time */
};

/* -------- addresses -------- */

static int bind_to(struct listener *listener, struct sockaddr *address)
{
	struct node_address *mine = &listener->address;

	if (listener->calls->cm_bind_addr(listener->id, address) == 0)
		return 0;
	return error_set(-errno, "listen on %s port %s: rdma_bind_addr: %s%s",
			 mine->host[0] ? mine->host : "every address", mine->port, strerror(errno),
			 errno == ENODEV ? ": no RDMA device has this address" : "");
}

static int bind_host(struct listener *listener)
{
	struct node_address *mine = &listener->address;
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *found = NULL;
	int ret;

	if (listener->calls->cm_getaddrinfo(mine->host, mine->port, &hints, &found))
		return error_set(-ENOENT, "listen on %s: no such host", mine->host);
	ret = bind_to(listener, found->ai_src_addr);
	listener->calls->cm_freeaddrinfo(found);
	if (ret)
		return ret;
	if (!listener->id->verbs)
		return error_set(-ENODEV, "listen on %s: no RDMA device has this address",
				 mine->host);
	listener->context = listener->id->verbs;
	return 0;
}

/*
 * Finds the first address of this host that an RDMA device has, among those of loopback interfaces
 * (IFF_LOOPBACK) or of the others (0). It becomes the clients' address, its device the listener's.
 * False: none.
 */
static bool find_address(struct listener *listener, const struct ifaddrs *all, unsigned loopback)
{
	for (const struct ifaddrs *at = all; at; at = at->ifa_next) {
		const struct sockaddr_in6 *in6 = (const void *)at->ifa_addr;
		struct rdma_cm_id *id = NULL;
		bool v6 = in6 && at->ifa_addr->sa_family == AF_INET6;
		bool v4 = in6 && at->ifa_addr->sa_family == AF_INET;

		if ((at->ifa_flags & IFF_LOOPBACK) != loopback || !(at->ifa_flags & IFF_UP) ||
		    (!v6 && !v4) || (v6 && IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr)))
			continue;
		if (listener->calls->cm_create_id(listener->channel, &id, NULL, RDMA_PS_TCP))
			continue;
		if (listener->calls->cm_bind_addr(id, at->ifa_addr) == 0)
			listener->context = id->verbs;
		(void)listener->calls->cm_destroy_id(id);
		if (!listener->context)
			continue;
		(void)getnameinfo(at->ifa_addr, v6 ? sizeof(*in6) : sizeof(struct sockaddr_in),
				  listener->address.host, sizeof(listener->address.host), NULL, 0,
				  NI_NUMERICHOST);
		return true;
	}
	return false;
}

/*
 * Binds the port on every address, of both families where the host has both, and chooses the
 * device: preferably one that other hosts reach, else one of the loopback. -ENODEV: there is none.
 */
static int bind_all(struct listener *listener)
{
	uint16_t port = htons((uint16_t)strtoul(listener->address.port, NULL, 10));
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = port };
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = port };
	struct ifaddrs *all = NULL;
	int ret = bind_to(listener, (struct sockaddr *)&v6);

	if (ret && ret != -EADDRINUSE)
		ret = bind_to(listener, (struct sockaddr *)&v4);
	if (ret)
		return ret;
	if (getifaddrs(&all))
		return error_set(-errno, "getifaddrs: %s", strerror(errno));
	if (!find_address(listener, all, 0) && !find_address(listener, all, IFF_LOOPBACK))
		ret = error_set(
			-ENODEV,
			"listen on every address: no address of this host belongs to an RDMA device");
	freeifaddrs(all);
	return ret;
}

/* -------- opening -------- */

int listener_open(const struct verbs_calls *calls, const struct node_address *address,
		  struct listener **listener_out)
{
	struct listener *listener = mem_zalloc(sizeof(*listener));
	int ret;

	if (!listener)
		return error_set(-ENOMEM, "cannot allocate memory for a listener");
	listener->calls = calls;
	listener->address = *address;
	listener->channel = calls->cm_create_event_channel();
	if (!listener->channel)
		ret = error_set(-errno, "rdma_create_event_channel: %s", strerror(errno));
	else if (fcntl(listener->channel->fd, F_SETFL, O_NONBLOCK))
		ret = error_set(-errno, "fcntl: %s", strerror(errno));
	else if (calls->cm_create_id(listener->channel, &listener->id, NULL, RDMA_PS_TCP))
		ret = error_set(-errno, "rdma_create_id: %s", strerror(errno));
	else
		ret = listener->address.host[0] ? bind_host(listener) : bind_all(listener);
	if (ret) {
		listener_close(listener, false);
		return ret;
	}
	(void)snprintf(listener->address.port, sizeof(listener->address.port), "%u",
		       ntohs(calls->cm_get_src_port(listener->id)));
	*listener_out = listener;
	return 0;
}

int listener_start(struct listener *listener, struct peers *peers)
{
	listener->peers = peers;
	if (listener->calls->cm_listen(listener->id, BACKLOG))
		return error_set(-errno, "rdma_listen: %s", strerror(errno));
	return 0;
}

void listener_close(struct listener *listener, bool forked)
{
	if (!listener)
		return;
	if (!forked && listener->id)
		(void)listener->calls->cm_destroy_id(listener->id);
	if (!forked && listener->channel)
		listener->calls->cm_destroy_event_channel(listener->channel);
	if (forked && listener->channel)
		close(listener->channel->fd);
	mem_free(listener);
}

/* -------- events -------- */

/*
 * Accepts a queue pair (peers_connect), or rejects it with the reason. The event is copied and
 * acknowledged first: its memory is ours only until then, and an id can be destroyed only after it.
 */
static void on_request(struct listener *listener, struct rdma_cm_event *event)
{
	struct rdma_conn_param param = event->param.conn;
	struct rdma_cm_id *id = event->id;
	union verbs_any message;
	int ret = message_read(&message, VERBS_HELLO, param.private_data, param.private_data_len);

	(void)listener->calls->cm_ack_event(event);
	id->context = NULL;
	if (ret == 0)
		ret = peers_connect(listener->peers, id, &message.hello, &param);
	if (ret == 0)
		return;
	message = (union verbs_any){ .refusal.status = ret };
	(void)snprintf(message.refusal.text, VERBS_TEXT_BYTES, "%.*s", VERBS_TEXT_BYTES - 1,
		       error_last());
	message_seal(&message, VERBS_REFUSAL);
	log_debug("refuse connection: %s", error_last());
	(void)listener->calls->cm_reject(id, message.bytes, sizeof(message.refusal));
	(void)listener->calls->cm_destroy_id(id);
}

void listener_serve(struct listener *listener)
{
	const struct verbs_calls *calls = listener->calls;
	struct rdma_cm_event *event = NULL;

	for (int i = 0; i < EVENTS && calls->cm_get_event(listener->channel, &event) == 0; i++) {
		enum rdma_cm_event_type type = event->event;
		struct peer *peer = event->id->context;
		bool ours = event->id == listener->id;

		if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
			on_request(listener, event);
			continue;
		}
		(void)calls->cm_ack_event(event);
		if (ours) {
			log_error("listen on %s port %s: %s", listener->address.host,
				  listener->address.port, calls->cm_event_str(type));
		} else if (type != RDMA_CM_EVENT_ESTABLISHED && peer) {
			log_debug("link ends: %s", calls->cm_event_str(type));
			peers_drop(listener->peers, peer);
		}
	}
}
