/*
 * Nodes with a simulated clock, over socket pairs whose other end is the test: registration, and
 * when they are down or lost.
 */
#include "tests/support/fake/fake_clock.h"
#include "tests/support/sockets.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

#include "server/node/nodes.h"
#include "server/statedb/statedb.h"

#include <errno.h>
#include <event2/event.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LEASE_NS 1000000000u
#define ANSWER_NS (10 * CLOCK_NS_PER_S)
#define LOST_NS (5 * (uint64_t)LEASE_NS)

struct fixture {
	struct fake_clock clock;
	struct catalog_store *store;
	struct event_base *base;
	struct nodes nodes;
	struct channel peer; /* the node's end of the connection */
	bool connected;
	uint32_t downs, losses;
	int answers; /* of a posted fence */
	int code;
	uint32_t result;
};

static void on_down(void *ctx, struct node *node)
{
	(void)node;
	((struct fixture *)ctx)->downs++;
}

static void on_lost(void *ctx, struct node *node)
{
	(void)node;
	((struct fixture *)ctx)->losses++;
}

static void on_news(void *ctx)
{
	(void)ctx;
}

static const struct nodes_ops ops = { on_down, on_lost, on_news };

static void load(struct fixture *fx)
{
	fx->nodes = (struct nodes){
		.base = fx->base,
		.store = fx->store,
		.clock = &fx->clock.clock,
		.ops = &ops,
		.ctx = fx,
		.lease_ns = LEASE_NS,
		.lost_ns = LOST_NS,
	};
	assert_int_equal(nodes_load(&fx->nodes), 0);
}

static int setup(void **state)
{
	static struct fixture fx;

	memset(&fx, 0, sizeof(fx));
	fake_clock_init(&fx.clock, 1000);
	fx.base = event_base_new();
	assert_non_null(fx.base);
	assert_int_equal(statedb_open(":memory:", &fx.store), 0);
	load(&fx);
	*state = &fx;
	return 0;
}

static void hang_up(struct fixture *fx)
{
	if (fx->connected)
		channel_fini(&fx->peer);
	fx->connected = false;
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	nodes_fini(&fx->nodes);
	hang_up(fx);
	event_base_free(fx->base);
	statedb_close(&fx->store);
	return 0;
}

/* A node in memory, of that life. */
static struct node_news news_of(uint64_t incarnation)
{
	return (struct node_news){
		.name = "a",
		.uri = "shm:/tmp/a",
		.pages = "4k",
		.incarnation = incarnation,
		.pool_bytes = 1 << 20,
	};
}

static struct node *join(struct fixture *fx, const struct node_news *news)
{
	struct node *node = NULL;
	struct channel ch;
	bool replaced;
	int fds[2];

	hang_up(fx);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	channel_init(&ch, stream_socket(fds[0]));
	channel_init(&fx->peer, stream_socket(fds[1]));
	fx->connected = true;
	assert_int_equal(nodes_admit(&fx->nodes, news), 0);
	assert_int_equal(nodes_join(&fx->nodes, news, &ch, &node, &replaced), 0);
	return node;
}

static void advance(struct fixture *fx, uint64_t ns)
{
	fake_clock_advance(&fx->clock, ns);
	(void)nodes_tick(&fx->nodes);
}

/* The server's last request, which has arrived already. */
static struct frame_header take_request(struct fixture *fx)
{
	struct channel_frame frame;

	if (channel_receive(&fx->peer, deadline_after(clock_monotonic(), ANSWER_NS), &frame))
		fail_msg("%s", error_last());
	return frame.head;
}

static bool is_asked(struct fixture *fx)
{
	return channel_is_readable(&fx->peer);
}

static void answer(struct fixture *fx, const struct frame_header *head,
		   const ProtobufCMessage *message)
{
	assert_int_equal(channel_send(&fx->peer, (uint16_t)(head->type | FRAME_ANSWER),
				      head->request_id, message,
				      deadline_after(clock_monotonic(), ANSWER_NS)),
			 0);
}

static void answer_ping(struct fixture *fx)
{
	Relive__NodeStatsReply reply = RELIVE__NODE_STATS_REPLY__INIT;
	Relive__Status status = RELIVE__STATUS__INIT;
	Relive__NodeInfo info = RELIVE__NODE_INFO__INIT;
	struct frame_header head = take_request(fx);

	assert_int_equal(head.type, RELIVE__TYPE__TYPE_NODE_STATS);
	status.message = (char *)"";
	info.name = info.uri = info.pages = info.transport = (char *)"x";
	info.used_bytes = 4711;
	info.agent_cpu_ns = 12;
	reply.status = &status;
	reply.info = &info;
	answer(fx, &head, &reply.base);
}

#define CASE(f) TEST_WITH(f, setup, teardown)

CASE(nodes_tick__pings_and_hears)
{
	const struct node_news news = news_of(1);
	struct fixture *fx = *state;
	const struct node *node = join(fx, &news);

	for (int i = 0; i < 20; i++) {
		advance(fx, LEASE_NS / NODE_PINGS);
		answer_ping(fx);
	}
	advance(fx, 0);
	assert_true(node->up);
	assert_int_equal(node->used_bytes, 4711);
	assert_int_equal(node->agent_cpu_ns, 12);
}

CASE(nodes_tick__a_silent_node_is_down_after_its_lease)
{
	const struct node_news news = news_of(1);
	struct fixture *fx = *state;
	const struct node *node = join(fx, &news);

	advance(fx, LEASE_NS); /* the first ping goes out */
	advance(fx, LEASE_NS - 1);
	assert_true(node->up);
	advance(fx, 1);
	assert_false(node->up);
	assert_int_equal(fx->downs, 1);
	advance(fx, LEASE_NS);
	assert_int_equal(fx->downs, 1);
}

/* The server was stopped for long: the answer is there, and it is read before anybody is judged. */
CASE(nodes_tick__an_answer_that_waits_is_heard_first)
{
	const struct node_news news = news_of(1);
	struct fixture *fx = *state;
	const struct node *node = join(fx, &news);

	advance(fx, LEASE_NS);
	answer_ping(fx);
	advance(fx, 100 * (uint64_t)LEASE_NS);
	assert_true(node->up);
}

CASE(nodes_tick__the_end_of_a_connection_is_down)
{
	const struct node_news news = news_of(1);
	struct fixture *fx = *state;
	const struct node *node = join(fx, &news);

	hang_up(fx);
	advance(fx, 1);
	assert_false(node->up);
	assert_int_equal(fx->downs, 1);
}

CASE(nodes_tick__garbage_is_the_end_of_a_connection)
{
	const struct node_news news = news_of(1);
	struct fixture *fx = *state;
	const struct node *node = join(fx, &news);
	const struct frame_header unasked = { .type = RELIVE__TYPE__TYPE_NODE_STATS,
					      .request_id = 99 };
	Relive__Empty nothing = RELIVE__EMPTY__INIT;

	answer(fx, &unasked, &nothing.base);
	advance(fx, 1);
	assert_false(node->up);
}

CASE(nodes_tick__down_for_too_long_is_lost_once)
{
	const struct node_news news = news_of(1);
	struct fixture *fx = *state;
	const struct node *node = join(fx, &news);

	hang_up(fx);
	advance(fx, 1);
	advance(fx, LOST_NS - 1);
	assert_false(node->lost);
	advance(fx, 1);
	assert_true(node->lost);
	advance(fx, LOST_NS);
	assert_int_equal(fx->losses, 1);
}

/* The node's pool is on a disk. */
CASE(nodes_tick__a_node_on_a_file_is_not_lost_by_time)
{
	struct node_news news = news_of(1);
	struct fixture *fx = *state;
	struct node *node;

	news.persistent = true;
	node = join(fx, &news);
	hang_up(fx);
	advance(fx, 1);
	advance(fx, 100 * LOST_NS);
	assert_false(node->lost);
	assert_int_equal(nodes_drop(&fx->nodes, node), 0);
	assert_true(node->lost);
	assert_int_equal(fx->losses, 1);
}

CASE(nodes_tick__back_in_time_is_not_lost)
{
	const struct node_news news = news_of(1);
	struct fixture *fx = *state;
	const struct node *node = join(fx, &news);

	hang_up(fx);
	advance(fx, 1);
	advance(fx, LOST_NS / 2);
	(void)join(fx, &news);
	assert_true(node->up);
	hang_up(fx);
	advance(fx, 1);
	advance(fx, LOST_NS / 2 + 2);
	assert_int_equal(fx->losses, 0);
}

CASE(nodes_load__known_ones_have_their_time_from_now)
{
	const struct node_news news = news_of(1);
	struct fixture *fx = *state;

	(void)join(fx, &news);
	nodes_fini(&fx->nodes);
	fake_clock_advance(&fx->clock, 100 * LOST_NS);
	load(fx);
	advance(fx, LOST_NS - 1);
	assert_int_equal(fx->losses, 0);
	advance(fx, 1);
	assert_int_equal(fx->losses, 1);
	/* And once lost it is lost, also after a restart. */
	nodes_fini(&fx->nodes);
	load(fx);
	advance(fx, LOST_NS);
	assert_int_equal(fx->losses, 1);
	assert_true(nodes_find(&fx->nodes, "a")->lost);
}

CASE(nodes_drop__one_that_is_up_gives_ebusy)
{
	const struct node_news news = news_of(1);
	struct fixture *fx = *state;
	struct node *node = join(fx, &news);

	assert_int_equal(nodes_drop(&fx->nodes, node), -EBUSY);
	assert_false(node->lost);
}

CASE(nodes_set_draining__holds_over_a_restart_but_not_over_a_new_life)
{
	struct node_news news = news_of(1);
	struct fixture *fx = *state;
	struct node *node = join(fx, &news);

	assert_int_equal(nodes_set_draining(&fx->nodes, node, true), 0);
	nodes_fini(&fx->nodes);
	load(fx);
	assert_true(nodes_find(&fx->nodes, "a")->draining);
	assert_true(join(fx, &news)->draining);
	hang_up(fx);
	news.incarnation = 2;
	assert_false(join(fx, &news)->draining);
}

CASE(nodes_is_witness__another_life_on_a_file_is_none)
{
	struct node_news news = news_of(1);
	struct fixture *fx = *state;
	uint64_t before;
	struct node *node;

	news.persistent = true;
	node = join(fx, &news);
	before = fx->nodes.generation;
	assert_true(nodes_is_witness(node, before));
	hang_up(fx);
	news.incarnation = 2;
	node = join(fx, &news);
	assert_false(nodes_is_witness(node, before));
	assert_true(nodes_is_witness(node, fx->nodes.generation));
	node->sole_opener = true;
	assert_true(nodes_is_witness(node, before));
}

static void on_fenced(void *ctx, uint64_t tag, struct node *node, int code,
		      const ProtobufCMessage *reply)
{
	struct fixture *fx = ctx;

	(void)node;
	assert_true(tag == 77);
	fx->answers++;
	fx->code = code;
	fx->result = reply ? ((const Relive__NodeFenceReply *)reply)->result : 0;
}

/* It is one of that client, so hard. */
static void expect_fence(struct fixture *fx, uint64_t client_id, enum fence_how how)
{
	Relive__NodeFenceRequest *request;
	struct channel_frame frame;

	if (channel_receive(&fx->peer, deadline_after(clock_monotonic(), ANSWER_NS), &frame))
		fail_msg("%s", error_last());
	assert_int_equal(frame.head.type, RELIVE__TYPE__TYPE_NODE_FENCE);
	request = (Relive__NodeFenceRequest *)channel_unpack(
		&relive__node_fence_request__descriptor, &frame);
	assert_non_null(request);
	assert_true(request->client_id == client_id);
	assert_int_equal(request->how, how);
	relive__node_fence_request__free_unpacked(request, NULL);
}

static void answer_fence(struct fixture *fx)
{
	Relive__NodeFenceReply reply = RELIVE__NODE_FENCE_REPLY__INIT;
	Relive__Status status = RELIVE__STATUS__INIT;
	struct frame_header head = take_request(fx);

	assert_int_equal(head.type, RELIVE__TYPE__TYPE_NODE_FENCE);
	status.message = (char *)"";
	reply.status = &status;
	reply.result = FENCE_ALIVE;
	answer(fx, &head, &reply.base);
}

/* To the end of an attempt, if one is made. */
static int attach(struct node *node)
{
	const uint32_t id = 1;
	struct region *region = NULL;
	int ret = node_attach(node, &id, 1, &region);

	while (ret == -EAGAIN && node_is_attaching(node)) {
		(void)sched_yield();
		ret = node_attach(node, &id, 1, &region);
	}
	assert_null(region);
	return ret;
}

/* An unreachable address must not cost its timeout at every look. */
CASE(node_attach__after_a_failure_is_not_tried_for_a_while)
{
	struct node_news news = news_of(1);
	struct fixture *fx = *state;
	struct node *node;

	news.uri = "shm:/nonexistent/socket";
	node = join(fx, &news);
	assert_int_equal(attach(node), -ECONNREFUSED);
	assert_int_equal(attach(node), -EAGAIN);
	fake_clock_advance(&fx->clock, LEASE_NS / 2);
	assert_int_equal(attach(node), -ECONNREFUSED);
	fake_clock_advance(&fx->clock, LEASE_NS / 2);
	assert_int_equal(attach(node), -EAGAIN); /* the pause has doubled */
}

/* The first connection over a NIC loads libraries and opens the device: longer than a lease. */
CASE(node_attach__waits_longer_than_a_lease_for_a_slow_connection)
{
	char dir[TEMP_DIR_BYTES], uri[NODE_URI_BYTES];
	struct node_news news = news_of(1);
	struct fixture *fx = *state;
	struct node *node;
	int mute, ret;

	if (test_skips_valgrind("no pidfds"))
		skip();
	temp_dir_make(dir);
	snprintf(uri, sizeof(uri), "shm:%s/mute", dir);
	mute = sockets_listen_unix(uri + strlen("shm:"), SOCK_SEQPACKET);
	news.uri = uri;
	node = join(fx, &news);
	for (uint64_t t = 0; t < NODE_REACH_NS; t += LEASE_NS) {
		const uint32_t id = 1;
		struct region *region = NULL;

		assert_int_equal(node_attach(node, &id, 1, &region), -EAGAIN);
		assert_true(node_is_attaching(node));
		fake_clock_advance(&fx->clock, LEASE_NS);
	}
	fake_clock_advance(&fx->clock, LEASE_NS);
	ret = attach(node);
	close(mute);
	temp_dir_remove(dir);
	assert_int_equal(ret, -ETIMEDOUT);
}

CASE(node_post_fence__is_told_once)
{
	const struct node_news news = news_of(1);
	struct fixture *fx = *state;
	struct node *node = join(fx, &news);

	assert_int_equal(node_post_fence(node, 77, FENCE_CUT, on_fenced, fx), 0);
	assert_int_equal(fx->answers, 0);
	answer_fence(fx);
	node_read(node);
	assert_int_equal(fx->answers, 0); /* not in the middle of somebody's call */
	node_deliver(node);
	node_deliver(node);
	assert_int_equal(fx->answers, 1);
	assert_int_equal(fx->code, 0);
	assert_int_equal(fx->result, FENCE_ALIVE);
}

CASE(node_post_fence__ends_with_the_connection)
{
	const struct node_news news = news_of(1);
	struct fixture *fx = *state;
	struct node *node = join(fx, &news);

	assert_int_equal(node_post_fence(node, 77, FENCE_CUT, on_fenced, fx), 0);
	hang_up(fx);
	advance(fx, 1);
	assert_int_equal(fx->answers, 1);
	assert_int_equal(fx->code, -EHOSTDOWN);
	assert_int_equal(node_post_fence(node, 77, FENCE_CUT, on_fenced, fx), -EHOSTDOWN);
	assert_int_equal(fx->answers, 1);
}

/* Answers may come in any order, and one that is too late harms nobody. */
CASE(node_post_fence__its_time_is_over)
{
	const struct node_news news = news_of(1);
	struct fixture *fx = *state;
	struct node *node = join(fx, &news);
	struct frame_header late;
	Relive__NodeFenceReply reply = RELIVE__NODE_FENCE_REPLY__INIT;

	assert_int_equal(node_post_fence(node, 77, FENCE_CUT, on_fenced, fx), 0);
	late = take_request(fx);
	for (uint64_t t = 0; t <= NODE_DEATH_NS; t += LEASE_NS / 2) {
		advance(fx, LEASE_NS / 2);
		if (is_asked(fx))
			answer_ping(fx);
	}
	assert_int_equal(fx->answers, 1);
	assert_int_equal(fx->code, -ETIMEDOUT);
	answer(fx, &late, &reply.base);
	advance(fx, 1);
	assert_true(node->up);
	assert_int_equal(fx->answers, 1);
}

CASE(nodes_cut_former__asks_the_node_to_cut_it)
{
	const struct node_news news = news_of(1);
	struct fixture *fx = *state;
	struct node *node = join(fx, &news);

	nodes_cut_former(&fx->nodes, node); /* there was none */
	assert_false(is_asked(fx));
	fx->nodes.former_client_id = 99;
	nodes_cut_former(&fx->nodes, node);
	expect_fence(fx, 99, FENCE_CUT);
}

int main(void)
{
	if (test_skips_msan("SQLite"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
