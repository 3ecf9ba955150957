/* fake_verbs_cm.c - rdma_cm: every address leads to the one device, every port to its listener. */
#include "tests/support/fake/fake_verbs_state.h"

#include "tests/support/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define PORT 7471
#define PRIVATE_BYTES 196 /* as much as comes with any event, padded with zeros */

struct event {
	struct rdma_cm_event event; /* first */
	struct event *next;
	uint8_t data[PRIVATE_BYTES];
};

struct cm_channel {
	struct rdma_event_channel channel; /* first */
	struct event *events;
	uint32_t users;
};

static struct fake_id *ids;

/* -------- events -------- */

static struct rdma_event_channel *create_event_channel(void)
{
	struct cm_channel *channel;
	FAKE_CALL;

	if (fake_fails())
		return NULL;
	channel = fake_new(sizeof(*channel));
	channel->channel.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return &channel->channel;
}

static void destroy_event_channel(struct rdma_event_channel *channel)
{
	FAKE_CALL;

	fake_rule(((struct cm_channel *)channel)->users == 0, "destroy_event_channel: in use");
	close(channel->fd);
	fake_drop(channel);
}

static struct event *push(struct rdma_cm_id *id, enum rdma_cm_event_type type,
			  const struct rdma_conn_param *param)
{
	struct cm_channel *channel = (struct cm_channel *)id->channel;
	struct event *event = fake_new(sizeof(*event));
	struct event **at = &channel->events;
	uint64_t one = 1;

	event->event.id = id;
	event->event.event = type;
	if (param) {
		event->event.param.conn = *param;
		memcpy(event->data, param->private_data, param->private_data_len);
		event->event.param.conn.private_data = event->data;
		event->event.param.conn.private_data_len = PRIVATE_BYTES;
	}
	while (*at)
		at = &(*at)->next;
	*at = event;
	assert_int_equal(write(channel->channel.fd, &one, sizeof(one)), sizeof(one));
	return event;
}

static int get_event(struct rdma_event_channel *ibv, struct rdma_cm_event **event_out)
{
	struct cm_channel *channel = (struct cm_channel *)ibv;
	struct event *event;
	uint64_t seen;
	FAKE_CALL;

	if (!channel->events)
		fake_idle();
	event = channel->events;
	if (!event) {
		(void)!read(ibv->fd, &seen, sizeof(seen));
		errno = EAGAIN;
		return -1;
	}
	channel->events = event->next;
	*event_out = &event->event;
	return 0;
}

static int ack_event(struct rdma_cm_event *event)
{
	FAKE_CALL;

	fake_drop(event);
	return 0;
}

static const char *event_str(enum rdma_cm_event_type type)
{
	switch (type) {
	case RDMA_CM_EVENT_REJECTED:
		return "rejected";
	case RDMA_CM_EVENT_DISCONNECTED:
		return "disconnected";
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return "device removed";
	default:
		return "an event";
	}
}

/* -------- ids -------- */

static struct fake_id *new_id(struct rdma_event_channel *channel, void *context)
{
	struct fake_id *id = fake_new(sizeof(*id));

	id->id.channel = channel;
	id->id.context = context;
	id->id.port_num = 1;
	((struct cm_channel *)channel)->users++;
	id->next = ids;
	ids = id;
	return id;
}

static int create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
		     enum rdma_port_space ps)
{
	FAKE_CALL;

	if (fake_fails())
		return -1;
	fake_rule(ps == RDMA_PS_TCP, "create_id: not RC");
	*id = &new_id(channel, context)->id;
	return 0;
}

/* The other end hears of it, and its queue pair is of no use any more. */
static void hang_up(struct fake_id *id)
{
	struct fake_id *other = id->other;

	if (!other)
		return;
	other->other = NULL;
	id->other = NULL;
	if (!id->connected || !other->connected || fake_verbs.lose_goodbyes)
		return;
	push(&other->id, RDMA_CM_EVENT_DISCONNECTED, NULL);
	if (other->id.qp)
		fake_fail_qp(fake_qp_of(&other->id));
}

static void end_id(struct fake_id *id);

/* Pending events; of a listener also its unseen requests. */
static void forget_events(struct fake_id *id)
{
	struct event **at = &((struct cm_channel *)id->id.channel)->events;

	while (*at) {
		struct event *event = *at;
		bool request = event->event.listen_id == &id->id;

		if (event->event.id != &id->id && !request) {
			at = &event->next;
			continue;
		}
		*at = event->next;
		if (request)
			end_id((struct fake_id *)event->event.id);
		fake_drop(event);
	}
}

static void end_id(struct fake_id *id)
{
	struct fake_id **at = &ids;

	fake_rule(!id->id.qp, "destroy_id: its queue pair is still there");
	hang_up(id);
	forget_events(id);
	while (*at != id)
		at = &(*at)->next;
	*at = id->next;
	((struct cm_channel *)id->id.channel)->users--;
	fake_drop(id);
}

static int destroy_id(struct rdma_cm_id *id)
{
	FAKE_CALL;

	end_id((struct fake_id *)id);
	return 0;
}

static int create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	FAKE_CALL;

	return fake_fails() ? -1 : fake_make_qp(id, pd, attr);
}

static void destroy_qp(struct rdma_cm_id *id)
{
	FAKE_CALL;

	fake_end_qp(fake_qp_of(id));
	id->qp = NULL;
}

/* -------- the way there -------- */

static int bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	FAKE_CALL;

	(void)addr;
	if (fake_fails())
		return -1;
	id->verbs = fake_context();
	return 0;
}

static int resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst, int ms)
{
	FAKE_CALL;

	(void)src;
	(void)dst;
	(void)ms;
	if (fake_fails())
		return -1;
	id->verbs = fake_context();
	push(id, RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
	return 0;
}

static int resolve_route(struct rdma_cm_id *id, int ms)
{
	FAKE_CALL;

	if (fake_fails())
		return -1;
	if (!ms) { /* as the kernel does */
		errno = EINVAL;
		return -1;
	}
	push(id, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
	return 0;
}

static int listen_on(struct rdma_cm_id *id, int backlog)
{
	FAKE_CALL;

	(void)backlog;
	if (fake_fails())
		return -1;
	((struct fake_id *)id)->listening = true;
	return 0;
}

static __be16 get_src_port(struct rdma_cm_id *id)
{
	(void)id;
	return htons(PORT);
}

static int set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t bytes)
{
	FAKE_CALL;

	(void)id;
	if (fake_fails())
		return -1;
	if (level == RDMA_OPTION_ID && name == RDMA_OPTION_ID_ACK_TIMEOUT && bytes == 1)
		fake_verbs.ack_timeout = *(const uint8_t *)value;
	return 0;
}

static int get_addrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
			struct rdma_addrinfo **res)
{
	struct sockaddr_in *addr;
	FAKE_CALL;

	(void)node;
	(void)service;
	(void)hints;
	if (fake_fails())
		return -1;
	*res = fake_new(sizeof(**res) + sizeof(*addr));
	addr = (struct sockaddr_in *)(void *)(*res + 1);
	addr->sin_family = AF_INET;
	addr->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	(*res)->ai_src_addr = (struct sockaddr *)addr;
	(*res)->ai_src_len = sizeof(*addr);
	return 0;
}

static void free_addrinfo(struct rdma_addrinfo *res)
{
	FAKE_CALL;

	fake_drop(res);
}

/* -------- connections -------- */

static struct fake_id *find_listener(void)
{
	struct fake_id *id = ids;

	while (id && !id->listening)
		id = id->next;
	return id;
}

static void note_active(struct fake_id *id, const struct rdma_conn_param *param)
{
	struct fake_qp *qp = fake_qp_of(&id->id);

	id->active = true;
	qp->active = true;
	qp->number = fake_verbs.connected++;
	fake_verbs.room += qp->cap.max_send_wr;
	fake_verbs.connect = *param;
	fake_verbs.connect.private_data = NULL;
}

static int connect_id(struct rdma_cm_id *ibv, struct rdma_conn_param *param)
{
	struct fake_id *id = (struct fake_id *)ibv, *listener, *other;
	FAKE_CALL;

	if (fake_fails())
		return -1;
	note_active(id, param);
	listener = find_listener();
	if (!listener) {
		push(ibv, RDMA_CM_EVENT_REJECTED, NULL)->event.status = 8;
		return 0;
	}
	other = new_id(listener->id.channel, listener->id.context);
	other->id.verbs = fake_context();
	other->other = id;
	id->other = other;
	push(&other->id, RDMA_CM_EVENT_CONNECT_REQUEST, param)->event.listen_id = &listener->id;
	return 0;
}

static int accept_id(struct rdma_cm_id *ibv, struct rdma_conn_param *param)
{
	struct fake_id *id = (struct fake_id *)ibv, *other;
	FAKE_CALL;

	if (fake_fails())
		return -1;
	other = id->other;
	if (!other || !other->id.qp) {
		errno = ECONNRESET; /* it does not wait any more */
		return -1;
	}
	fake_qp_of(ibv)->peer = fake_qp_of(&other->id);
	fake_qp_of(&other->id)->peer = fake_qp_of(ibv);
	id->connected = other->connected = true;
	push(&other->id, RDMA_CM_EVENT_ESTABLISHED, param);
	push(ibv, RDMA_CM_EVENT_ESTABLISHED, NULL);
	return 0;
}

static int reject_id(struct rdma_cm_id *ibv, const void *data, uint8_t bytes)
{
	struct rdma_conn_param param = { .private_data = data, .private_data_len = bytes };
	struct fake_id *id = (struct fake_id *)ibv;
	FAKE_CALL;

	if (id->other) {
		push(&id->other->id, RDMA_CM_EVENT_REJECTED, &param)->event.status = 28;
		id->other->other = NULL;
	}
	id->other = NULL;
	return 0;
}

static int disconnect_id(struct rdma_cm_id *ibv)
{
	FAKE_CALL;

	hang_up((struct fake_id *)ibv);
	if (ibv->qp)
		fake_fail_qp(fake_qp_of(ibv));
	return 0;
}

void fake_cm_event_all(enum rdma_cm_event_type type)
{
	for (struct fake_id *id = ids; id; id = id->next)
		if (id->active && id->connected)
			push(&id->id, type, NULL);
}

void fake_cm_calls(struct verbs_calls *calls)
{
	ids = NULL;
	calls->cm_create_event_channel = create_event_channel;
	calls->cm_destroy_event_channel = destroy_event_channel;
	calls->cm_create_id = create_id;
	calls->cm_destroy_id = destroy_id;
	calls->cm_bind_addr = bind_addr;
	calls->cm_listen = listen_on;
	calls->cm_resolve_addr = resolve_addr;
	calls->cm_resolve_route = resolve_route;
	calls->cm_create_qp = create_qp;
	calls->cm_destroy_qp = destroy_qp;
	calls->cm_connect = connect_id;
	calls->cm_accept = accept_id;
	calls->cm_reject = reject_id;
	calls->cm_disconnect = disconnect_id;
	calls->cm_get_event = get_event;
	calls->cm_ack_event = ack_event;
	calls->cm_event_str = event_str;
	calls->cm_set_option = set_option;
	calls->cm_getaddrinfo = get_addrinfo;
	calls->cm_freeaddrinfo = free_addrinfo;
	calls->cm_get_src_port = get_src_port;
}
