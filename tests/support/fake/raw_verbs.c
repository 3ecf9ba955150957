/*
 * raw_verbs.c - rdma_cm and verbs step by step, where each must succeed.
 */
#include "tests/support/fake/raw_verbs.h"

#if RLV_HAVE_VERBS

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <sched.h>
#include <string.h>

#include "tests/support/test.h"

#include "base/os/clock.h"

#include "transport/attach/address.h"

#define WAIT_MS 20000
#define RECEIVES 2
#define INBOX (RAW_MEMORY - (size_t)RECEIVES * VERBS_MESSAGE_MAX)

union verbs_any raw_hello(uint64_t client_id, uint64_t link, uint32_t index, uint32_t n_qps)
{
	union verbs_any message = {
		.hello = { .client_id = client_id, .link = link, .index = index, .n_qps = n_qps }
	};

	message_seal(&message, VERBS_HELLO);
	return message;
}

/* -------- connecting -------- */

static struct rdma_cm_event *next_event(struct raw *raw)
{
	struct pollfd ready = { .fd = raw->channel->fd, .events = POLLIN };
	struct rdma_cm_event *event = NULL;

	do {
		if (poll(&ready, 1, WAIT_MS) != 1)
			fail_msg("rdma_cm says nothing");
		if (raw->calls->cm_get_event(raw->channel, &event) && errno != EAGAIN)
			fail_msg("rdma_get_cm_event: %s", strerror(errno));
	} while (!event);
	return event;
}

static void step(struct raw *raw, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = next_event(raw);

	if (event->event != type)
		fail_msg("event %s status %d", raw->calls->cm_event_str(event->event),
			 event->status);
	(void)raw->calls->cm_ack_event(event);
}

static void resolve(struct raw *raw, const char *uri)
{
	struct node_address address;
	struct addrinfo *found = NULL;

	assert_int_equal(strncmp(uri, "verbs:", 6), 0);
	assert_int_equal(node_address_parse(uri + 6, &address), 0);
	assert_int_equal(getaddrinfo(address.host, address.port, NULL, &found), 0);
	raw->channel = raw->calls->cm_create_event_channel();
	assert_non_null(raw->channel);
	assert_int_equal(raw->calls->cm_create_id(raw->channel, &raw->id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(raw->calls->cm_resolve_addr(raw->id, NULL, found->ai_addr, WAIT_MS), 0);
	freeaddrinfo(found);
	step(raw, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(raw->calls->cm_resolve_route(raw->id, WAIT_MS), 0);
	step(raw, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

static void post_receive(struct raw *raw, uint64_t i)
{
	struct ibv_sge sge = { .addr = (uintptr_t)raw->memory + INBOX + i * VERBS_MESSAGE_MAX,
			       .length = VERBS_MESSAGE_MAX,
			       .lkey = raw->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;

	assert_int_equal(ibv_post_recv(raw->id->qp, &wr, &bad), 0);
}

static void make_qp(struct raw *raw)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = RAW_DEPTH,
						  .max_recv_wr = RECEIVES,
						  .max_send_sge = 1,
						  .max_recv_sge = 1 } };

	raw->pd = raw->calls->alloc_pd(raw->id->verbs);
	attr.send_cq = raw->sends = raw->calls->create_cq(raw->id->verbs, RAW_DEPTH, NULL, NULL, 0);
	attr.recv_cq = raw->receives =
		raw->calls->create_cq(raw->id->verbs, RECEIVES, NULL, NULL, 0);
	assert_true(raw->pd && raw->sends && raw->receives);
	assert_int_equal(raw->calls->cm_create_qp(raw->id, raw->pd, &attr), 0);
	raw->memory = aligned_alloc(4096, RAW_MEMORY);
	assert_non_null(raw->memory);
	memset(raw->memory, 0, RAW_MEMORY);
	raw->mr = raw->calls->reg_mr(raw->pd, raw->memory, RAW_MEMORY, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(raw->mr);
	for (uint64_t i = 0; i < RECEIVES; i++)
		post_receive(raw, i);
}

static int refusal_of(const struct rdma_cm_event *event)
{
	const struct rdma_conn_param *conn = &event->param.conn;
	union verbs_any message;

	if (message_read(&message, VERBS_REFUSAL, conn->private_data, conn->private_data_len))
		return -ECONNREFUSED;
	return message.refusal.status;
}

static int greet(struct raw *raw, const void *data, size_t n)
{
	struct rdma_conn_param param = { .private_data = n ? data : "",
					 .private_data_len = (uint8_t)n,
					 .responder_resources = 1,
					 .initiator_depth = 16,
					 .retry_count = 3,
					 .rnr_retry_count = 6 };
	uint8_t timeout = 14; /* 67 ms */
	struct rdma_cm_event *event;
	int refusal = 0;

	(void)raw->calls->cm_set_option(raw->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
					&timeout, sizeof(timeout));
	assert_int_equal(raw->calls->cm_connect(raw->id, &param), 0);
	event = next_event(raw);
	if (event->event == RDMA_CM_EVENT_REJECTED)
		refusal = refusal_of(event);
	else if (event->event != RDMA_CM_EVENT_ESTABLISHED)
		fail_msg("event %s", raw->calls->cm_event_str(event->event));
	(void)raw->calls->cm_ack_event(event);
	return refusal;
}

struct raw *raw_connect(const char *uri, const void *data, size_t n, int *refusal_out)
{
	struct raw *raw = calloc(1, sizeof(*raw));

	assert_non_null(raw);
	assert_int_equal(verbs_calls_load(&raw->calls), 0);
	resolve(raw, uri);
	make_qp(raw);
	*refusal_out = greet(raw, data, n);
	if (*refusal_out == 0)
		return raw;
	raw_close(raw);
	return NULL;
}

void raw_close(struct raw *raw)
{
	if (!raw)
		return;
	raw->calls->cm_destroy_qp(raw->id);
	assert_int_equal(raw->calls->cm_destroy_id(raw->id), 0);
	raw->calls->cm_destroy_event_channel(raw->channel);
	assert_int_equal(raw->calls->destroy_cq(raw->sends), 0);
	assert_int_equal(raw->calls->destroy_cq(raw->receives), 0);
	assert_int_equal(raw->calls->dereg_mr(raw->mr), 0);
	assert_int_equal(raw->calls->dealloc_pd(raw->pd), 0);
	free(raw->memory);
	free(raw);
}

/* -------- operations -------- */

static void wait_for(struct ibv_cq *cq, struct ibv_wc *wc)
{
	uint64_t deadline = deadline_after(clock_monotonic(), WAIT_MS * CLOCK_NS_PER_MS);
	int n;

	while ((n = ibv_poll_cq(cq, 1, wc)) == 0 && !deadline_expired(clock_monotonic(), deadline))
		(void)sched_yield();
	if (n != 1)
		fail_msg("no completion");
}

static void post(struct raw *raw, struct ibv_send_wr *wr, uint32_t len)
{
	struct ibv_sge sge = { .addr = (uintptr_t)raw->memory,
			       .length = len,
			       .lkey = raw->mr->lkey };
	struct ibv_send_wr *bad;

	wr->sg_list = &sge;
	wr->num_sge = 1;
	wr->send_flags = IBV_SEND_SIGNALED;
	assert_int_equal(ibv_post_send(raw->id->qp, wr, &bad), 0);
}

void raw_post(struct raw *raw, enum ibv_wr_opcode opcode, uint64_t address, uint32_t key,
	      uint32_t len)
{
	struct ibv_send_wr wr = { .opcode = opcode };

	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		bool cas = opcode == IBV_WR_ATOMIC_CMP_AND_SWP;

		wr.wr.atomic.remote_addr = address;
		wr.wr.atomic.rkey = key;
		wr.wr.atomic.compare_add = cas ? 0 : 1;
		wr.wr.atomic.swap = 1;
	} else {
		wr.wr.rdma.remote_addr = address;
		wr.wr.rdma.rkey = key;
	}
	post(raw, &wr, len);
}

enum ibv_wc_status raw_wait(struct raw *raw)
{
	struct ibv_wc wc;

	wait_for(raw->sends, &wc);
	return wc.status;
}

enum ibv_wc_status raw_do(struct raw *raw, enum ibv_wr_opcode opcode, uint64_t address,
			  uint32_t key, uint32_t len)
{
	raw_post(raw, opcode, address, key, len);
	return raw_wait(raw);
}

enum ibv_wc_status raw_send(struct raw *raw, const void *bytes, size_t n)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND };

	memcpy(raw->memory, bytes, n);
	post(raw, &wr, (uint32_t)n);
	return raw_wait(raw);
}

void raw_receive(struct raw *raw, union verbs_any *message_out)
{
	struct ibv_wc wc;

	wait_for(raw->receives, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(message_receive(message_out,
					 raw->memory + INBOX + wc.wr_id * VERBS_MESSAGE_MAX,
					 wc.byte_len),
			 0);
	post_receive(raw, wc.wr_id);
}

/* A node that hangs up before it has heard that we are connected rejects. */
void raw_wait_hang_up(struct raw *raw)
{
	struct rdma_cm_event *event = next_event(raw);

	if (event->event != RDMA_CM_EVENT_DISCONNECTED && event->event != RDMA_CM_EVENT_REJECTED)
		fail_msg("event %s", raw->calls->cm_event_str(event->event));
	(void)raw->calls->cm_ack_event(event);
}

#endif
