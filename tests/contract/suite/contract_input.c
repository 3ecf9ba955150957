/*
 * contract_input.c - malformed messages to a node over RDMA: it hangs up on their sender and serves
 * others as before.
 */
#include "tests/contract/suite/contract.h"

#if RLV_HAVE_VERBS

#include <errno.h>
#include <string.h>

#include "tests/support/fake/fake_clock.h"
#include "tests/support/fake/raw_verbs.h"
#include "tests/support/gauge.h"

#include "transport/verbs/peers.h"

#define OTHER 50

static uint64_t links; /* numbers of links, never the same */

static struct raw *join(struct rig *rig, uint32_t n_qps)
{
	union verbs_any hello = raw_hello(OTHER, ++links, 0, n_qps);
	int refusal = 0;
	struct raw *raw = raw_connect(rig->uri, &hello, sizeof(hello.hello), &refusal);

	if (!raw)
		fail_msg("refused: %d", refusal);
	return raw;
}

static struct target_stats stats_of(struct transport_target *tg)
{
	struct target_stats stats;

	tg->ops->stats(tg, &stats);
	return stats;
}

/* A hang-up may still be on its way. */
static void assert_qps(struct transport_target *tg, uint64_t want)
{
	for (int i = 0; i < 10000 && gauge_of(stats_of(tg), "qps") != want; i++)
		(void)tg->ops->progress(tg, (uint64_t)CLOCK_NS_PER_MS);
	assert_int_equal(gauge_of(stats_of(tg), "qps"), want);
}

/* The client that was there before notices nothing. */
static void assert_serves(struct rig *rig)
{
	uint64_t old;

	assert_int_equal(transport_faa_word(rig->region, 64, 1, &old), 0);
	(void)rig_attach(rig, rig->tr, RIG_CLIENT, RIGHT_READ);
}

static union verbs_any attach_message(struct rig *rig, uint32_t request)
{
	union verbs_any message = { .attach = { .request = request } };
	struct region_grant grant;

	assert_int_equal(transport_grant(rig->tg, OTHER, rig->spec.id, RIGHT_ALL, &grant), 0);
	message.attach.grant_bytes = grant.bytes;
	memcpy(message.attach.grant, grant.data, grant.bytes);
	message_seal(&message, VERBS_ATTACH);
	return message;
}

/* -------- HELLO -------- */

static int refusal_of(struct rig *rig, const void *bytes, size_t n)
{
	int refusal = 0;
	struct raw *raw = raw_connect(rig->uri, bytes, n, &refusal);

	raw_close(raw);
	return refusal;
}

static void hello__that_is_none_is_refused(void **state)
{
	struct rig *rig = rig_of(state);
	union verbs_any good = raw_hello(OTHER, ++links, 0, 1), bad;
	uint64_t qps = gauge_of(stats_of(rig->tg), "qps");

	assert_int_equal(refusal_of(rig, NULL, 0), -EPROTO);
	assert_int_equal(refusal_of(rig, good.bytes, 20), -EPROTO);
	for (size_t at = 0; at < sizeof(good.hello); at += 3) {
		bad = good;
		bad.bytes[at] ^= 0x81;
		assert_int_equal(refusal_of(rig, bad.bytes, sizeof(bad.hello)), -EPROTO);
	}
	bad = raw_hello(OTHER, links, 1, 1);
	assert_int_equal(refusal_of(rig, bad.bytes, sizeof(bad.hello)), -EPROTO);
	bad = raw_hello(OTHER, links, 0, VERBS_LINK_QPS + 1);
	assert_int_equal(refusal_of(rig, bad.bytes, sizeof(bad.hello)), -EPROTO);
	bad = raw_hello(OTHER, links, 0, 0);
	assert_int_equal(refusal_of(rig, bad.bytes, sizeof(bad.hello)), -EPROTO);
	assert_int_equal(gauge_of(stats_of(rig->tg), "qps"), qps);
	assert_serves(rig);
}

static void hello__that_does_not_fit_its_link_is_refused(void **state)
{
	struct rig *rig = rig_of(state);
	struct raw *raw = join(rig, 2);
	union verbs_any hello = raw_hello(OTHER, links, 0, 2);

	assert_int_equal(refusal_of(rig, hello.bytes, sizeof(hello.hello)), -EPROTO);
	hello = raw_hello(OTHER, links, 1, 3);
	assert_int_equal(refusal_of(rig, hello.bytes, sizeof(hello.hello)), -EPROTO);
	raw_close(raw);
	assert_serves(rig);
}

/* -------- messages -------- */

static void hangs_up_on(struct rig *rig, const void *bytes, size_t n)
{
	uint64_t qps = gauge_of(stats_of(rig->tg), "qps");
	struct raw *raw = join(rig, 1);

	(void)raw_send(raw, bytes, n);
	raw_wait_hang_up(raw);
	assert_qps(rig->tg, qps);
	raw_close(raw);
}

static void message__that_is_none_ends_the_link(void **state)
{
	struct rig *rig = rig_of(state);
	union verbs_any good = attach_message(rig, 1), bad = good;
	uint8_t long_one[VERBS_MESSAGE_MAX + 64] = { 0 };

	bad.attach.request = 2;
	hangs_up_on(rig, bad.bytes, sizeof(bad.attach)); /* crc32c */
	hangs_up_on(rig, good.bytes, sizeof(good.attach) - 8);
	hangs_up_on(rig, good.bytes, 4);
	memcpy(long_one, good.bytes, sizeof(good.attach));
	hangs_up_on(rig, long_one, VERBS_MESSAGE_MAX);
	hangs_up_on(rig, long_one, sizeof(long_one));
	bad = raw_hello(OTHER, 1, 0, 1);
	hangs_up_on(rig, bad.bytes, sizeof(bad.hello));
	bad = (union verbs_any){ .attached.request = 1 };
	bad.attached.status = -EIO;
	message_seal(&bad, VERBS_ATTACHED);
	hangs_up_on(rig, bad.bytes, sizeof(bad.attached));
	assert_serves(rig);
}

static void message__with_immediate_data_ends_the_link(void **state)
{
	struct rig *rig = rig_of(state);
	union verbs_any message = attach_message(rig, 1);
	struct raw *raw = join(rig, 1);

	memcpy(raw->memory, message.bytes, sizeof(message.attach));
	(void)raw_do(raw, IBV_WR_SEND_WITH_IMM, 0, 0, sizeof(message.attach));
	raw_wait_hang_up(raw);
	raw_close(raw);
	assert_serves(rig);
}

static void attach__before_the_link_is_whole_ends_it(void **state)
{
	struct rig *rig = rig_of(state);
	struct raw *raw = join(rig, 2);
	union verbs_any message = attach_message(rig, 1);

	(void)raw_send(raw, message.bytes, sizeof(message.attach));
	raw_wait_hang_up(raw);
	raw_close(raw);
	assert_serves(rig);
}

static void attach__with_a_number_in_use_ends_the_link(void **state)
{
	struct rig *rig = rig_of(state);
	struct raw *raw = join(rig, 1);
	union verbs_any message = attach_message(rig, 1), answer;

	assert_int_equal(raw_send(raw, message.bytes, sizeof(message.attach)), IBV_WC_SUCCESS);
	raw_receive(raw, &answer);
	assert_int_equal(answer.attached.status, 0);
	(void)raw_send(raw, message.bytes, sizeof(message.attach));
	raw_wait_hang_up(raw);
	raw_close(raw);
	assert_serves(rig);
}

static void attach__by_a_bad_grant_leaves_the_link(void **state)
{
	struct rig *rig = rig_of(state);
	struct raw *raw = join(rig, 1);
	union verbs_any message = attach_message(rig, 1), bad = message, answer;

	bad.attach.grant[40] ^= 1;
	message_seal(&bad, VERBS_ATTACH);
	assert_int_equal(raw_send(raw, bad.bytes, sizeof(bad.attach)), IBV_WC_SUCCESS);
	raw_receive(raw, &answer);
	assert_true(answer.attached.status < 0);
	assert_true(answer.attached.text[0] != 0);
	assert_int_equal(raw_send(raw, message.bytes, sizeof(message.attach)), IBV_WC_SUCCESS);
	raw_receive(raw, &answer);
	assert_int_equal(answer.attached.status, 0);
	raw_close(raw);
}

/*
 * The client posts no receive, so the node's answers find no buffer; it serves others while it
 * retries.
 */
static void attach__by_one_who_does_not_listen_ends_the_link(void **state)
{
	struct rig *rig = rig_of(state);
	struct raw *raw = join(rig, 1);

	for (uint32_t i = 1; i <= 4; i++) {
		union verbs_any message = attach_message(rig, i);

		assert_int_equal(raw_send(raw, message.bytes, sizeof(message.attach)),
				 IBV_WC_SUCCESS);
		assert_serves(rig);
	}
	raw_wait_hang_up(raw);
	raw_close(raw);
	assert_serves(rig);
}

/* -------- floods -------- */

/* A second node, whose time stands still until it is moved. */
static struct transport_target *node_with(struct fake_clock *clock)
{
	struct target_opts opts = { .pool_bytes = RIG_POOL, .clock = &clock->clock };
	struct transport_target *tg = NULL;

	fake_clock_init(clock, 1000);
	assert_int_equal(transport_target_open("verbs", &opts, &tg), 0);
	assert_int_equal(tg->ops->listen(tg, ":0"), 0);
	return tg;
}

/* The same with a thread that serves it. */
static void *serve(void *arg)
{
	struct rig *node = arg;

	while (!atomic_load(&node->stop))
		(void)node->tg->ops->progress(node->tg, (uint64_t)CLOCK_NS_PER_MS);
	return NULL;
}

static void connect__without_a_grant_is_bounded(void **state)
{
	struct fake_clock clock;
	struct rig node = { .tg = node_with(&clock) };
	struct raw *raws[PEERS_UNPROVED_MAX];
	union verbs_any hello;
	pthread_t thread;

	(void)state;
	(void)snprintf(node.uri, sizeof(node.uri), "%s", node.tg->ops->uri(node.tg));
	assert_int_equal(pthread_create(&thread, NULL, serve, &node), 0);
	for (int i = 0; i < PEERS_UNPROVED_MAX; i++)
		raws[i] = join(&node, 1);
	hello = raw_hello(OTHER, ++links, 0, 1);
	assert_int_equal(refusal_of(&node, hello.bytes, sizeof(hello.hello)), -ECONNREFUSED);
	for (int i = 0; i < PEERS_UNPROVED_MAX; i++)
		raw_close(raws[i]);
	assert_qps(node.tg, 0);
	raw_close(join(&node, 1)); /* there is room again */
	atomic_store(&node.stop, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	transport_target_close(&node.tg);
}

struct joining {
	const char *uri;
	struct raw *raw;
};

static void *join_node(void *arg)
{
	struct joining *joining = arg;
	union verbs_any hello = raw_hello(OTHER, 1, 0, 1);
	int refusal;

	joining->raw = raw_connect(joining->uri, &hello, sizeof(hello.hello), &refusal);
	return NULL;
}

static void connect__without_a_grant_ends_in_time(void **state)
{
	struct fake_clock clock;
	struct transport_target *tg = node_with(&clock);
	struct joining joining = { .uri = tg->ops->uri(tg) };
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, join_node, &joining), 0);
	assert_qps(tg, 1);
	fake_clock_advance(&clock, PEERS_PROOF_NS - 1);
	assert_int_equal(tg->ops->progress(tg, 0), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(gauge_of(stats_of(tg), "qps"), 1);
	fake_clock_advance(&clock, 1);
	assert_int_equal(tg->ops->progress(tg, 0), 0);
	assert_int_equal(gauge_of(stats_of(tg), "qps"), 0);
	raw_wait_hang_up(joining.raw);
	raw_close(joining.raw);
	transport_target_close(&tg);
}

/* -------- addresses -------- */

static int listen_at(const char *address)
{
	struct target_opts opts = { .pool_bytes = RIG_REGION };
	struct transport_target *tg = NULL;
	int ret;

	error_clear();
	assert_int_equal(transport_target_open("verbs", &opts, &tg), 0);
	ret = tg->ops->listen(tg, address);
	if (ret)
		assert_true(error_last()[0] != 0);
	transport_target_close(&tg);
	return ret;
}

static void listen__at_what_is_no_address(void **state)
{
	struct rig *rig = rig_of(state);

	assert_int_equal(listen_at("nowhere"), -EINVAL);
	assert_int_equal(listen_at("192.0.2.1:0"), -EADDRNOTAVAIL);
	assert_int_equal(listen_at("no-such-host.invalid:0"), -ENOENT);
	/* in use: so rdma_cm says it where the other has every address */
	assert_int_equal(listen_at(rig->uri + strlen("verbs:")), -EADDRNOTAVAIL);
	assert_error(rig->tg->ops->listen(rig->tg, ":0"), -EALREADY);
	assert_serves(rig);
}

static const struct CMUnitTest tests[] = {
	CONTRACT_TEST(hello__that_is_none_is_refused),
	CONTRACT_TEST(hello__that_does_not_fit_its_link_is_refused),
	CONTRACT_TEST(message__that_is_none_ends_the_link),
	CONTRACT_TEST(message__with_immediate_data_ends_the_link),
	CONTRACT_TEST(attach__before_the_link_is_whole_ends_it),
	CONTRACT_TEST(attach__with_a_number_in_use_ends_the_link),
	CONTRACT_TEST(attach__by_a_bad_grant_leaves_the_link),
	CONTRACT_TEST(connect__without_a_grant_ends_in_time),
};
/* Cases that the fake cannot simulate: retries, hundreds of connections, other hosts. */
static const struct CMUnitTest device_tests[] = {
	CONTRACT_TEST(attach__by_one_who_does_not_listen_ends_the_link),
	CONTRACT_TEST(connect__without_a_grant_is_bounded),
	CONTRACT_TEST(listen__at_what_is_no_address),
};

int contract_run_input(bool device)
{
	static const struct contract_kind kind = { .name = "verbs input",
						   .target = "verbs",
						   .listens = true };
	int failed;

	contract_use(&kind);
	failed = TEST_RUN(tests, NULL, NULL);
	return device ? failed + TEST_RUN(device_tests, NULL, NULL) : failed;
}

#endif
