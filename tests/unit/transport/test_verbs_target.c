/*
 * test_verbs_target.c - the verbs target beside its data path: addresses, forks, fences, events.
 */
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/fake/fake_clock.h"
#include "tests/support/fake/fake_verbs.h"
#include "tests/support/gauge.h"

#include "transport/transport.h"
#include "transport/verbs/peers.h"

#define CLIENT 7
#define REGION ((uint64_t)2 << 20)

/* A node and, after join, a client of this host. */
struct node {
	char dir[TEMP_DIR_BYTES], pool[96];
	struct fake_clock time; /* of the target */
	struct transport_target *tg;
	struct target_region spec;
	struct transport *tr;
	struct region *region;
	_Atomic bool stop;
	uint32_t pinning; /* regions that are being registered */
	uint32_t answers; /* to questions meanwhile */
};

static void progress(void *ctx)
{
	struct transport_target *tg = ctx;

	assert_int_equal(tg->ops->progress(tg, 0), 0);
}

static int begin_with(void **state, struct target_opts opts)
{
	struct node *node = calloc(1, sizeof(*node));

	assert_non_null(node);
	*state = node;
	fake_verbs_begin();
	temp_dir_make(node->dir);
	(void)snprintf(node->pool, sizeof(node->pool), "%s/pool", node->dir);
	fake_clock_init(&node->time, CLOCK_NS_PER_S);
	opts.clock = &node->time.clock;
	opts.path = opts.create ? node->pool : NULL;
	assert_int_equal(transport_target_open("verbs", &opts, &node->tg), 0);
	fake_verbs.idle_ctx = node->tg;
	fake_verbs.idle = progress;
	node->spec = (struct target_region){ .kind = 1, .size = REGION };
	assert_int_equal(node->tg->ops->register_region(node->tg, &node->spec), 0);
	return 0;
}

static int begin(void **state)
{
	return begin_with(state, (struct target_opts){ .pool_bytes = 4 * REGION });
}

static int begin_in_file(void **state)
{
	return begin_with(state, (struct target_opts){ .pool_bytes = 8 * REGION, .create = true });
}

static int end(void **state)
{
	struct node *node = *state;

	transport_close(&node->tr);
	fake_verbs.idle = NULL;
	transport_target_close(&node->tg);
	fake_verbs_end();
	(void)unlink(node->pool);
	assert_int_equal(rmdir(node->dir), 0);
	free(node);
	return 0;
}

static void listen_far(struct node *node)
{
	assert_int_equal(node->tg->ops->listen(node->tg, "192.0.2.1:0"), 0);
}

/* The node's own thread, which its socket needs: a client here waits for an answer. */
static void *serve(void *arg)
{
	struct node *node = arg;

	while (!atomic_load(&node->stop))
		(void)node->tg->ops->progress(node->tg, (uint64_t)CLOCK_NS_PER_MS);
	return NULL;
}

static int attach(struct node *node, uint64_t client_id)
{
	struct transport_opts opts = { .client_id = client_id };
	struct region_grant grant;
	int ret;

	assert_int_equal(transport_grant(node->tg, client_id, node->spec.id, RIGHT_ALL, &grant), 0);
	ret = transport_open(node->tg->ops->uri(node->tg), &opts, &node->tr);
	return ret ? ret : transport_attach(node->tr, &grant, &node->region);
}

static struct target_stats stats_of(struct node *node)
{
	struct target_stats stats;

	node->tg->ops->stats(node->tg, &stats);
	return stats;
}

#define VERBS_TEST(fn) TEST_WITH(fn, begin, end)

/* -------- listening -------- */

VERBS_TEST(listen__of_no_address_is_for_this_process)
{
	struct node *node = *state;

	assert_int_equal(node->tg->ops->listen(node->tg, NULL), 0);
	assert_int_equal(node->tg->ops->poll_fd(node->tg), -1);
	assert_int_equal(node->tg->ops->progress(node->tg, 0), 0);
	assert_int_equal(fake_verbs_live(), 0);
	assert_int_equal(gauge_of(stats_of(node), "mrs"), 0);
	assert_string_equal(node->tg->ops->uri(node->tg), "");
}

VERBS_TEST(listen__of_a_bad_address_leaves_nothing)
{
	struct node *node = *state;

	assert_int_equal(node->tg->ops->listen(node->tg, "here"), -EINVAL);
	assert_int_equal(node->tg->ops->listen(node->tg, "192.0.2.1:0;/no/such/folder"), -ENOENT);
	assert_int_equal(fake_verbs_live(), 0);
	assert_int_equal(node->tg->ops->poll_fd(node->tg), -1);
	listen_far(node);
	assert_true(node->tg->ops->poll_fd(node->tg) >= 0);
	assert_int_equal(node->tg->ops->listen(node->tg, "192.0.2.1:0"), -EALREADY);
}

VERBS_TEST(listen__of_a_device_without_atomics_gives_enotsup)
{
	struct node *node = *state;

	fake_verbs.no_atomics = true;
	assert_int_equal(node->tg->ops->listen(node->tg, "192.0.2.1:0"), -ENOTSUP);
	assert_int_equal(fake_verbs_live(), 0);
}

VERBS_TEST(uri__names_the_port_that_was_found)
{
	static const char start[] = "verbs:192.0.2.1:";
	struct node *node = *state;
	const char *uri;

	listen_far(node);
	uri = node->tg->ops->uri(node->tg);
	assert_int_equal(strncmp(uri, start, strlen(start)), 0);
	assert_true(strtoul(uri + strlen(start), NULL, 10) > 0);
}

VERBS_TEST(uri__of_every_address_names_one)
{
	struct node *node = *state;

	assert_int_equal(node->tg->ops->listen(node->tg, ":0"), 0);
	assert_non_null(strchr(node->tg->ops->uri(node->tg), ':'));
	assert_null(strstr(node->tg->ops->uri(node->tg), "verbs::"));
}

VERBS_TEST(register__pins_each_region_once)
{
	struct node *node = *state;
	struct target_region spec = { .kind = 1, .size = REGION };

	listen_far(node);
	assert_int_equal(gauge_of(stats_of(node), "mrs"), 1); /* the one from before */
	assert_int_equal(node->tg->ops->register_region(node->tg, &spec), 0);
	assert_int_equal(gauge_of(stats_of(node), "mrs"), 2);
	assert_int_equal(node->tg->ops->unregister_region(node->tg, spec.id), 0);
	assert_int_equal(gauge_of(stats_of(node), "mrs"), 1);
	assert_int_equal(attach(node, CLIENT), 0);
	assert_int_equal(gauge_of(stats_of(node), "mrs"),
			 1); /* the link's messages lie in a chunk */
}

VERBS_TEST(register__that_cannot_be_pinned_is_undone)
{
	struct node *node = *state;
	struct target_region spec = { .kind = 1, .size = REGION };

	listen_far(node);
	fake_verbs.fail_call = 1;
	assert_true(node->tg->ops->register_region(node->tg, &spec) < 0);
	assert_int_equal(spec.id, 0);
	assert_int_equal(stats_of(node).regions, 1);
	assert_int_equal(node->tg->ops->register_region(node->tg, &spec), 0);
}

/* A node is asked all the time whether it is there. */
static void answer(void *ctx)
{
	struct node *node = ctx;

	assert_int_equal(stats_of(node).regions, 1 + node->pinning);
	progress(node->tg);
	node->answers++;
}

VERBS_TEST(register__answers_others_while_memory_is_pinned)
{
	struct node *node = *state;
	struct target_region spec = { .kind = 1, .size = REGION };

	listen_far(node);
	fake_verbs.slow_pins = true;
	fake_verbs.idle_ctx = node;
	fake_verbs.idle = answer;
	node->pinning = 1;
	assert_int_equal(node->tg->ops->register_region(node->tg, &spec), 0);
	assert_int_equal(node->answers, 1);
	node->pinning = 0;
	assert_int_equal(node->tg->ops->unregister_region(node->tg, spec.id), 0);
	assert_int_equal(node->answers, 2);
	fake_verbs.slow_pins = false;
}

/* The extents of a region that a client can still reach are not given to another. */
TEST_WITH(unregister__keeps_the_memory_while_a_client_has_a_key, begin_in_file, end)
{
	struct node *node = *state;
	struct target_region spec = { .kind = 1 };
	struct target_stats stats = stats_of(node);

	listen_far(node);
	spec.size = stats.pool_bytes - stats.used_bytes;
	assert_int_equal(node->tg->ops->register_region(node->tg, &spec), 0);
	spec = (struct target_region){ .kind = 1, .size = REGION };
	assert_int_equal(node->tg->ops->register_region(node->tg, &spec), -ENOSPC);
	assert_int_equal(attach(node, CLIENT), 0);
	assert_int_equal(node->tg->ops->unregister_region(node->tg, node->spec.id), 0);
	assert_int_equal(node->tg->ops->register_region(node->tg, &spec), -ENOSPC);
	transport_close(&node->tr);
	fake_verbs.idle = NULL;
	progress(node->tg);
	assert_int_equal(node->tg->ops->register_region(node->tg, &spec), 0);
}

VERBS_TEST(embed__is_not_for_words_that_a_nic_changes)
{
	struct node *node = *state;
	struct transport_opts opts = { .target = node->tg };
	struct transport *tr = NULL;

	assert_int_equal(transport_open("embed:", &opts, &tr), -EINVAL);
	assert_non_null(strstr(error_last(), "verbs"));
}

/* -------- fences -------- */

static enum fence_result fence(struct node *node, uint64_t client_id, enum fence_how how)
{
	enum fence_result result = FENCE_ALIVE;

	assert_int_equal(node->tg->ops->fence(node->tg, client_id, how, &result), 0);
	return result;
}

VERBS_TEST(fence__of_itself_leaves_its_connections)
{
	struct node *node = *state;
	enum fence_result result;
	char address[96];
	pthread_t thread;
	uint64_t old;

	(void)snprintf(address, sizeof(address), "192.0.2.1:0;%s/node", node->dir);
	assert_int_equal(node->tg->ops->listen(node->tg, address), 0);
	fake_verbs.idle = NULL;
	assert_int_equal(pthread_create(&thread, NULL, serve, node), 0);
	assert_int_equal(attach(node, CLIENT), 0);
	atomic_store(&node->stop, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	fake_verbs.idle = progress;
	assert_non_null(node->region->base);
	assert_int_equal(stats_of(node).clients, 1); /* though it came both ways */
	assert_int_equal(node->tg->ops->fence(node->tg, CLIENT, FENCE_KILL, &result), -EDEADLK);
	assert_int_equal(transport_faa_word(node->region, 64, 1, &old), 0);
	/* it can still use its mapping, but not the device */
	assert_int_equal(fence(node, CLIENT, FENCE_CUT), FENCE_ALIVE);
	assert_int_equal(gauge_of(stats_of(node), "qps"), 0);
	assert_int_equal(gauge_of(stats_of(node), "windows"), 0);
	assert_true(transport_faa_word(node->region, 64, 1, &old) < 0);
	assert_int_equal(node->tr->broken, -ECONNRESET);
}

VERBS_TEST(fence__cut_and_its_memory_of_whom)
{
	struct node *node = *state;

	listen_far(node);
	for (uint64_t id = 1; id <= PEERS_FENCED_MAX + 1; id++)
		assert_int_equal(fence(node, id, FENCE_CUT), FENCE_DEAD);
	assert_int_equal(fence(node, 2, FENCE_CUT), FENCE_DEAD); /* known: remembered once */
	assert_int_equal(attach(node, 2), -EOWNERDEAD);
	assert_int_equal(attach(node, PEERS_FENCED_MAX + 1), -EOWNERDEAD);
	assert_int_equal(attach(node, 1), 0); /* so many cuts ago */
}

VERBS_TEST(revoke__takes_the_windows_back)
{
	struct node *node = *state;
	uint64_t old;

	listen_far(node);
	assert_int_equal(attach(node, CLIENT), 0);
	assert_true(gauge_of(stats_of(node), "windows") > 0);
	assert_int_equal(node->tg->ops->revoke(node->tg, CLIENT, node->spec.id), 0);
	assert_int_equal(gauge_of(stats_of(node), "windows"), 0);
	assert_true(gauge_of(stats_of(node), "qps") > 0);
	assert_true(transport_faa_word(node->region, 64, 1, &old) < 0);
}

VERBS_TEST(close__of_the_client_ends_its_link)
{
	struct node *node = *state;

	listen_far(node);
	assert_int_equal(attach(node, CLIENT), 0);
	assert_int_equal(stats_of(node).clients, 1);
	transport_close(&node->tr);
	fake_verbs.idle = NULL;
	assert_int_equal(fence(node, CLIENT, FENCE_ASK), FENCE_DEAD); /* it looks first */
	assert_int_equal(gauge_of(stats_of(node), "qps"), 0);
	assert_int_equal(gauge_of(stats_of(node), "windows"), 0);
	assert_int_equal(stats_of(node).clients, 0);
}

/* -------- clients that went without a word -------- */

/* The target serves its links when it makes progress; requests are answered then. */
static void look_later(struct node *node, uint64_t delta_ns)
{
	fake_verbs.idle = NULL;
	fake_clock_advance(&node->time, delta_ns);
	progress(node->tg);
	progress(node->tg);
	fake_verbs.idle = progress;
}

VERBS_TEST(probe__finds_a_client_that_is_gone)
{
	struct node *node = *state;

	listen_far(node);
	assert_int_equal(attach(node, CLIENT), 0);
	fake_verbs.lose_goodbyes = true; /* as while the network is down */
	transport_close(&node->tr);
	look_later(node, PROBE_NS - 1);
	assert_true(gauge_of(stats_of(node), "qps") > 0);
	look_later(node, 1);
	assert_int_equal(gauge_of(stats_of(node), "qps"), 0);
	assert_int_equal(gauge_of(stats_of(node), "windows"), 0);
	assert_int_equal(stats_of(node).clients, 0);
}

VERBS_TEST(probe__leaves_a_client_that_is_there)
{
	struct node *node = *state;
	uint64_t old;

	listen_far(node);
	assert_int_equal(attach(node, CLIENT), 0);
	for (int i = 0; i < 3; i++)
		look_later(node, PROBE_LIMIT_NS);
	assert_true(gauge_of(stats_of(node), "qps") > 0);
	assert_int_equal(transport_faa_word(node->region, 64, 1, &old), 0);
}

/* Some devices try for ever. */
VERBS_TEST(probe__without_an_answer_has_a_limit)
{
	struct node *node = *state;

	listen_far(node);
	assert_int_equal(attach(node, CLIENT), 0);
	fake_verbs.hold_passive = true;
	look_later(node, PROBE_NS);
	look_later(node, PROBE_LIMIT_NS - 1);
	assert_true(gauge_of(stats_of(node), "qps") > 0);
	look_later(node, 1);
	assert_int_equal(gauge_of(stats_of(node), "qps"), 0);
}

/* The target's own descriptor wakes its thread for that. */
VERBS_TEST(poll_fd__is_readable_without_a_client)
{
	struct node *node = *state;
	struct pollfd ready = { .events = POLLIN };
	int looks;

	listen_far(node);
	ready.fd = node->tg->ops->poll_fd(node->tg);
	looks = poll(&ready, 1, 10 * (int)(PEERS_LOOK_NS / CLOCK_NS_PER_MS));
	assert_int_equal(looks, 1);
	for (int i = 0; looks && i < 10; i++) { /* the next look may be due already */
		look_later(node, 0);
		looks = poll(&ready, 1, 0);
	}
	assert_int_equal(looks, 0);
}

/* -------- forks -------- */

static int use_in_child(struct node *node)
{
	struct target_region spec = { .kind = 1, .size = REGION };
	enum fence_result result;
	struct target_stats stats;

	node->tg->ops->stats(node->tg, &stats);
	if (node->tg->ops->register_region(node->tg, &spec) != -ECHILD ||
	    node->tg->ops->unregister_region(node->tg, node->spec.id) != -ECHILD ||
	    node->tg->ops->revoke(node->tg, CLIENT, node->spec.id) != -ECHILD ||
	    node->tg->ops->fence(node->tg, CLIENT, FENCE_CUT, &result) != -ECHILD ||
	    node->tg->ops->listen(node->tg, ":0") != -ECHILD ||
	    node->tg->ops->progress(node->tg, 0) != -ECHILD || gauge_of(stats, "qps") ||
	    node->tg->ops->poll_fd(node->tg) != -1)
		return 1;
	transport_target_close(&node->tg);
	return 0;
}

VERBS_TEST(close__in_a_forked_child_leaves_the_parents_device)
{
	struct node *node = *state;
	uint64_t old;
	int status = 0;
	pid_t pid;

	listen_far(node);
	assert_int_equal(attach(node, CLIENT), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(use_in_child(node));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(transport_faa_word(node->region, 64, 1, &old), 0);
}

int main(void)
{
	if (test_skips_valgrind("forks"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
