/*
 * link.c - connects, one step of rdma_cm after the other, and hangs up.
 */
#include "transport/verbs/link.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"
#include "base/os/random.h"

enum {
	RECEIVES = 4, /* messages that may come before we look */
	DEPTH = 512,
	DEPTH_MIN = 8,
	READS = 32,   /* in flight at once: enough for the bandwidth of any link */
	QPS = 4,      /* more than that many for READS only if asked */
	INLINE = 128, /* a leaf, a slot, a small row */
	YIELDS = 256, /* looks at the queue before a wait for a message sleeps */
};

/*
 * A silent target is given up in time for samplers to go on over the other nodes within a second
 * (docs/failure-model.md).
 */
static_assert((LINK_RETRIES + 1) * (UINT64_C(4096) << LINK_ACK_TIMEOUT) < CLOCK_NS_PER_S * 6 / 10,
	      "a silent target is given up too late");

static_assert(VERBS_SHARE_MIN >= DEPTH_MIN, "the smallest share has no room for a queue pair");

/* -------- events of rdma_cm -------- */

static int event_error(const struct link *link, const struct rdma_cm_event *event)
{
	const struct rdma_conn_param *conn = &event->param.conn;
	const char *what = link->calls->cm_event_str(event->event);
	union verbs_any message;

	switch (event->event) {
	case RDMA_CM_EVENT_REJECTED:
		/*
		 * The event carries the target's refusal, or, from rdma_cm itself, a reason code
		 * only.
		 */
		if (message_read(&message, VERBS_REFUSAL, conn->private_data,
				 conn->private_data_len))
			return error_set(-ECONNREFUSED,
					 "connect: rejected, reason %d: nobody listens there",
					 event->status);
		return error_set(message.refusal.status < 0 ? message.refusal.status : -EPROTO,
				 "memory node: %s", message.refusal.text);
	case RDMA_CM_EVENT_ADDR_ERROR:
		if (event->status == -ENODEV)
			return error_set(-ENOTSUP, "no RDMA device reaches that address");
		return error_set(-ECONNREFUSED, "connect: %s: %s", what, strerror(-event->status));
	case RDMA_CM_EVENT_UNREACHABLE:
		return error_set(-ETIMEDOUT, "connect: %s, status %d", what, event->status);
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return error_set(-ECONNRESET, "%s", what);
	default:
		return error_set(-ECONNREFUSED, "connect: %s, status %d", what, event->status);
	}
}

static int late(void)
{
	return error_set(-ETIMEDOUT, "connect: the memory node did not answer in time");
}

/*
 * Waits for the next rdma_cm event; one of another type is an error. *event_out is the caller's to
 * acknowledge; event_out NULL: this call does it. -ETIMEDOUT: none before the deadline.
 */
static int wait_event(struct link *link, enum rdma_cm_event_type type, uint64_t deadline,
		      struct rdma_cm_event **event_out)
{
	struct pollfd ready = { .fd = link->channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;
	int ret;

	while (link->calls->cm_get_event(link->channel, &event)) {
		if (errno != EAGAIN && errno != EINTR)
			return error_set(-EIO, "rdma_get_cm_event: %s", strerror(errno));
		if (deadline_expired(link->opts.clock, deadline))
			return late();
		if (poll(&ready, 1, deadline_left_ms(link->opts.clock, deadline)) < 0 &&
		    errno != EINTR)
			return error_set(-EIO, "poll: %s", strerror(errno));
	}
	ret = event->event == type ? 0 : event_error(link, event);
	if (ret == 0 && event_out)
		*event_out = event;
	else
		(void)link->calls->cm_ack_event(event);
	return ret;
}

int link_check(struct link *link)
{
	struct rdma_cm_event *event;
	int ret = 0;

	if (link->cut)
		return error_set(-ECONNRESET, "the connection to the memory node was lost earlier");
	while (ret == 0 && link->calls->cm_get_event(link->channel, &event) == 0) {
		if (event->event == RDMA_CM_EVENT_DISCONNECTED ||
		    event->event == RDMA_CM_EVENT_DEVICE_REMOVAL)
			ret = event_error(link, event);
		(void)link->calls->cm_ack_event(event);
	}
	return ret;
}

/* -------- resources of the device -------- */

/*
 * Takes the device that the first resolved address tells, chooses number and depth of the queue
 * pairs, and makes the domain, completion queues and receive buffers.
 */
static int use_device(struct link *link, struct ibv_context *context)
{
	uint64_t qps = link->opts.qps, depth = link->opts.depth ? link->opts.depth : DEPTH;
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_parent_domain_init_attr attr = { 0 };
	const struct ibv_device_attr *limits;
	uint32_t share;
	int ret = verbs_device_get(link->calls, context, &link->device);

	if (ret)
		return ret;
	/*
	 * Room in all send queues is within the link's share of the device: where that is small,
	 * queue pairs are fewer than wished rather than too short to be of use.
	 */
	limits = &link->device->attr;
	if (!qps)
		qps = min_u64(div_up(READS, (uint64_t)limits->max_qp_init_rd_atom), QPS);
	depth = min_u64(depth,
			min_u64((uint64_t)limits->max_qp_wr, (uint64_t)limits->max_cqe / qps));
	depth = max_u64(depth, DEPTH_MIN);
	share = verbs_device_reserve(link->device, (uint32_t)(depth * qps));
	qps = min_u64(qps, share / DEPTH_MIN);
	depth = max_u64(min_u64(depth, share / qps), DEPTH_MIN); /* a share has room for that */
	link->depth = 1u << bits_log2_floor(depth);
	link->n_qps = (uint32_t)qps;
	link->share = link->depth * link->n_qps;
	verbs_device_unreserve(link->device, share - link->share);
	/* In a parent domain of one thread, queue pairs need no locks. Not each device has them. */
	attr.pd = link->device->pd;
	attr.td = link->td = ibv_alloc_td(context, &td_attr);
	link->domain = link->td ? ibv_alloc_parent_domain(context, &attr) : NULL;
	if (!link->domain)
		link->domain = link->device->pd;
	link->sends = link->calls->create_cq(context, (int)link->share, NULL, NULL, 0);
	if (link->sends)
		link->receives = link->calls->create_cq(context, RECEIVES, NULL, NULL, 0);
	if (!link->receives)
		return verbs_device_error(link->device, "ibv_create_cq");
	return verbs_device_memory(link->device, &link->buffers,
				   (size_t)RECEIVES * VERBS_MESSAGE_MAX, &link->key);
}

/* -------- one queue pair -------- */

static int make_qp(struct link *link, uint32_t i)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = link->sends,
		.recv_cq = link->receives,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = link->depth,
			 .max_recv_wr = i == 0 ? RECEIVES : 1,
			 .max_send_sge = 1,
			 .max_recv_sge = 1,
			 .max_inline_data = INLINE },
	};
	int ret = link->calls->cm_create_qp(link->ids[i], link->domain, &attr);

	if (ret && errno == EINVAL) { /* the device has no room for that much inline data */
		attr.cap.max_inline_data = 0;
		ret = link->calls->cm_create_qp(link->ids[i], link->domain, &attr);
	}
	if (ret)
		return verbs_device_error(link->device, "rdma_create_qp");
	link->qps[i] = link->ids[i]->qp;
	link->inline_bytes = (uint32_t)min_u64(attr.cap.max_inline_data, INLINE);
	for (uint64_t r = 0; i == 0 && ret == 0 && r < RECEIVES; r++)
		ret = verbs_device_receive(link->qps[0], r, link->buffers.ptr, link->key);
	return ret;
}

static int connect_qp(struct link *link, uint32_t i, uint64_t deadline)
{
	int reads = link->device->attr.max_qp_init_rd_atom;
	union verbs_any hello = { .hello = { .client_id = link->opts.client_id,
					     .link = link->number,
					     .index = i,
					     .n_qps = link->n_qps,
					     .replaces = link->opts.replaces } };
	struct rdma_conn_param param = {
		.private_data = &hello,
		.private_data_len = sizeof(hello.hello),
		.responder_resources = 1,
		.initiator_depth = (uint8_t)min_u64((uint64_t)reads, UINT8_MAX),
		.retry_count = LINK_RETRIES,
		.rnr_retry_count = LINK_RETRIES,
	};
	uint8_t timeout = (uint8_t)link->opts.ack_timeout;
	const struct rdma_conn_param *conn;
	struct rdma_cm_event *event = NULL;
	union verbs_any message;
	int ret;

	if (link->calls->cm_set_option(link->ids[i], RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
				       &timeout, sizeof(timeout)))
		log_info("device %s keeps its own acknowledgement timeout: %m", link->device->name);
	message_seal(&hello, VERBS_HELLO);
	if (link->calls->cm_connect(link->ids[i], &param))
		return error_set(-errno, "rdma_connect: %s", strerror(errno));
	ret = wait_event(link, RDMA_CM_EVENT_ESTABLISHED, deadline, &event);
	if (ret)
		return ret;
	conn = &event->param.conn;
	ret = message_read(&message, VERBS_WELCOME, conn->private_data, conn->private_data_len);
	if (ret == 0 && i && message.welcome.incarnation != link->welcome.incarnation)
		ret = error_set(-ECONNRESET, "the target restarted while we connected");
	if (ret == 0) {
		link->welcome = message.welcome;
		log_debug("link qp %u of %u reads %u accepted of %d", i, link->n_qps,
			  conn->initiator_depth, reads);
	}
	(void)link->calls->cm_ack_event(event);
	return ret;
}

static int link_resolve(struct link *link, uint32_t i, struct sockaddr *addr, uint64_t deadline)
{
	int ms = deadline_left_ms(link->opts.clock, deadline);
	int ret;

	if (!ms)
		return late(); /* to the kernel no time at all is an invalid argument */
	if (link->calls->cm_create_id(link->channel, &link->ids[i], NULL, RDMA_PS_TCP))
		return error_set(-errno, "rdma_create_id: %s", strerror(errno));
	if (link->calls->cm_resolve_addr(link->ids[i], NULL, addr, ms))
		return errno == ENODEV
			       ? error_set(-ENOTSUP, "no RDMA device reaches that address")
			       : error_set(-errno, "rdma_resolve_addr: %s", strerror(errno));
	ret = wait_event(link, RDMA_CM_EVENT_ADDR_RESOLVED, deadline, NULL);
	if (ret)
		return ret;
	if (link->calls->cm_resolve_route(link->ids[i], ms))
		return error_set(-errno, "rdma_resolve_route: %s", strerror(errno));
	return wait_event(link, RDMA_CM_EVENT_ROUTE_RESOLVED, deadline, NULL);
}

static int connect_to(struct link *link, struct sockaddr *addr, uint64_t deadline)
{
	struct ibv_port_attr port = { 0 };
	char text[INET6_ADDRSTRLEN];
	const struct rdma_cm_id *id;
	int ret = 0;

	link->n_qps = 1; /* until the device is known */
	for (uint32_t i = 0; ret == 0 && i < link->n_qps; i++) {
		ret = link_resolve(link, i, addr, deadline);
		if (ret == 0 && i == 0)
			ret = use_device(link, link->ids[0]->verbs);
		if (ret == 0 && link->ids[i]->verbs != link->device->context)
			ret = error_set(-ENOTSUP, "the address is reached over two devices");
		if (ret == 0)
			ret = make_qp(link, i);
		if (ret == 0)
			ret = connect_qp(link, i, deadline);
	}
	if (ret)
		return ret;
	id = link->ids[0];
	if (link->calls->query_port(id->verbs, id->port_num, &port))
		port.active_mtu = IBV_MTU_256;
	log_info("link over device %s port %u gid %s by the route to the address mtu %d "
		 "qps %u depth %u inline %u locks %d",
		 link->device->name, id->port_num,
		 inet_ntop(AF_INET6, id->route.addr.addr.ibaddr.sgid.raw, text, sizeof(text)),
		 128 << port.active_mtu, link->n_qps, link->depth, link->inline_bytes,
		 link->domain == link->device->pd);
	return 0;
}

/* -------- hanging up -------- */

void link_cut(struct link *link)
{
	link->cut = true;
	for (uint32_t i = 0; i < VERBS_LINK_QPS; i++) {
		if (link->qps[i])
			link->calls->cm_destroy_qp(link->ids[i]);
		link->qps[i] = NULL;
		if (link->ids[i])
			(void)link->calls->cm_destroy_id(link->ids[i]);
		link->ids[i] = NULL;
	}
}

/* Frees all but the struct and its channel, so that another address can be tried. */
static void link_drop(struct link *link)
{
	const struct verbs_calls *calls = link->calls;

	link_cut(link);
	if (!link->device)
		return;
	if (link->sends)
		(void)calls->destroy_cq(link->sends);
	if (link->receives)
		(void)calls->destroy_cq(link->receives);
	link->sends = link->receives = NULL;
	if (link->domain && link->domain != link->device->pd)
		(void)calls->dealloc_pd(link->domain);
	if (link->td)
		(void)ibv_dealloc_td(link->td);
	link->td = NULL;
	chunk_drop(&link->buffers);
	verbs_device_unreserve(link->device, link->share);
	link->share = 0;
	verbs_device_put(&link->device);
}

void link_close(struct link *link, bool forked)
{
	if (!link)
		return;
	if (!forked) {
		link_drop(link);
		if (link->channel)
			link->calls->cm_destroy_event_channel(link->channel);
	}
	mem_free(link);
}

/* -------- opening -------- */

int link_open(const struct link_opts *opts, struct link **link_out)
{
	uint64_t deadline =
		deadline_after(opts->clock, (int64_t)min_u64(opts->timeout_ns, INT64_MAX));
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *list = NULL;
	struct link *link = mem_zalloc(sizeof(*link));
	int ret, unknown = 0;

	if (!link)
		return error_set(-ENOMEM, "cannot allocate memory for a connection");
	link->opts = *opts;
	if (!link->opts.ack_timeout)
		link->opts.ack_timeout = LINK_ACK_TIMEOUT;
	ret = verbs_calls_load(&link->calls);
	if (ret)
		goto err_close;
	link->channel = link->calls->cm_create_event_channel();
	if (!link->channel)
		ret = error_set(errno == ENODEV || errno == ENOENT ? -ENOTSUP : -errno,
				"rdma_create_event_channel: %s: this host has no RDMA device",
				strerror(errno));
	else if (fcntl(link->channel->fd, F_SETFL, O_NONBLOCK) ||
		 fcntl(link->channel->fd, F_SETFD, FD_CLOEXEC))
		ret = error_set(-errno, "fcntl: %s", strerror(errno));
	else
		ret = random_fill(&link->number, sizeof(link->number));
	if (ret == 0)
		unknown = getaddrinfo(opts->host, opts->port, &hints, &list);
	if (unknown)
		ret = error_set(-ENOENT, "%s port %s: %s", opts->host, opts->port,
				gai_strerror(unknown));
	if (ret)
		goto err_close;
	ret = error_set(-ENOENT, "%s: has no address", opts->host);
	for (struct addrinfo *a = list; ret && a; a = a->ai_next) {
		link_drop(link);
		link->cut = false;
		ret = connect_to(link, a->ai_addr, deadline);
	}
	freeaddrinfo(list);
	if (ret) {
		ret = error_prefix(ret, "verbs:%s:%s: ", opts->host, opts->port);
		goto err_close;
	}
	*link_out = link;
	return 0;

err_close:
	link_close(link, false);
	return ret;
}

/* -------- messages -------- */

int link_receive(struct link *link, union verbs_any *message_out, uint64_t deadline_ns)
{
	const struct timespec pause = { .tv_nsec = 50 * CLOCK_NS_PER_US };
	struct ibv_wc wc;
	int n, ret;

	for (uint32_t looks = 0; (n = ibv_poll_cq(link->receives, 1, &wc)) == 0; looks++) {
		ret = link_check(link);
		if (ret)
			return ret;
		if (deadline_expired(link->opts.clock, deadline_ns))
			return error_set(-ETIMEDOUT, "the memory node did not answer in time");
		/* A target on this host may need this processor to answer. */
		if (looks < YIELDS)
			(void)sched_yield();
		else
			(void)nanosleep(&pause, NULL);
	}
	if (n < 0)
		return error_set(-ECONNRESET, "ibv_poll_cq fails");
	if (wc.status != IBV_WC_SUCCESS)
		return error_set(-ECONNRESET, "receive: %s", link->calls->wc_status_str(wc.status));
	if (wc.wr_id >= RECEIVES || wc.byte_len > VERBS_MESSAGE_MAX)
		return error_set(-EPROTO, "receive: %u bytes", wc.byte_len);
	ret = message_receive(message_out, link->buffers.ptr + wc.wr_id * VERBS_MESSAGE_MAX,
			      wc.byte_len);
	return ret ? ret
		   : verbs_device_receive(link->qps[0], wc.wr_id, link->buffers.ptr, link->key);
}
