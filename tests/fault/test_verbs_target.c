/*
 * Every call of rdma-core and every allocation of a node and its client fails once, in every place:
 * the call above answers with an error or does without, nothing of the device is left, and it works
 * when tried again.
 */
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

#include "tests/support/fake/fake_verbs.h"
#include "tests/support/gauge.h"

#include "base/mem/alloc.h"
#include "transport/transport.h"

#define CLIENT 3
#define MOST 400 /* calls, or allocations, of one run */

static void progress(void *ctx)
{
	struct transport_target *tg = ctx;

	(void)!tg->ops->progress(tg, 0);
}

/* Whatever became of the client, its node has nothing of it any more. */
static void assert_forgotten(struct transport_target *tg)
{
	struct target_stats stats;

	fake_verbs.idle = NULL;
	assert_int_equal(tg->ops->progress(tg, 0), 0);
	tg->ops->stats(tg, &stats);
	assert_int_equal(gauge_of(stats, "qps"), 0);
	assert_int_equal(gauge_of(stats, "windows"), 0);
	assert_int_equal(stats.clients, 0);
}

static int use(struct transport_target *tg)
{
	struct transport_opts opts = { .client_id = CLIENT,
				       .timeout_ns = 10 * (uint64_t)CLOCK_NS_PER_S };
	struct target_region spec = { .kind = 1, .size = 2 << 20 };
	struct region_grant grant;
	struct region *region = NULL;
	struct transport *tr = NULL;
	uint64_t old;
	int ret = tg->ops->register_region(tg, &spec);

	if (ret)
		return ret;
	ret = transport_grant(tg, CLIENT, spec.id, RIGHT_ALL, &grant);
	if (ret == 0)
		ret = transport_open(tg->ops->uri(tg), &opts, &tr);
	if (ret == 0)
		ret = transport_attach(tr, &grant, &region);
	if (ret == 0)
		ret = transport_faa_word(region, 64, 1, &old);
	transport_close(&tr);
	assert_forgotten(tg);
	if (tg->ops->unregister_region(tg, spec.id))
		return -EIO;
	return ret;
}

static int run(bool no_windows)
{
	struct target_opts opts = { .pool_bytes = 8 << 20 };
	struct target_region early = { .kind = 1, .size = 2 << 20 };
	struct transport_target *tg = NULL;
	int ret;

	fake_verbs.no_windows = no_windows;
	ret = transport_target_open("verbs", &opts, &tg);
	if (ret)
		return ret;
	fake_verbs.idle_ctx = tg;
	fake_verbs.idle = progress;
	ret = tg->ops->register_region(tg, &early); /* before it listens */
	if (ret == 0)
		ret = tg->ops->listen(tg, "192.0.2.1:0");
	if (ret == 0)
		ret = use(tg);
	fake_verbs.idle = NULL;
	transport_target_close(&tg);
	return ret;
}

static void assert_clean(uint32_t n)
{
	if (fake_verbs_live())
		fail_msg("step %u: %u objects are left", n, fake_verbs_live());
	if (fake_verbs_rule())
		fail_msg("step %u: %s", n, fake_verbs_rule());
}

static void sweep_calls(bool no_windows)
{
	uint32_t n = 1, failed = 0;
	int ret = 0;

	for (; n < MOST; n++) {
		fake_verbs.fail_call = n;
		fake_verbs.fail_fired = false;
		ret = run(no_windows);
		fake_verbs.fail_call = 0;
		if (!fake_verbs.fail_fired)
			break;
		failed += ret < 0;
		assert_clean(n);
	}
	assert_int_equal(ret, 0);
	assert_in_range(n, 30, MOST - 1);
	assert_true(failed > n / 2);
	print_message("%u calls, of which %u are needed\n", n - 1, failed);
}

static void sweep_allocations(bool no_windows)
{
	uint32_t n = 1;
	int ret = 0;

	for (; n < MOST; n++) {
		mem_fail_after(n);
		ret = run(no_windows);
		if (!mem_fail_fired())
			break;
		mem_fail_after(0);
		assert_clean(n);
	}
	mem_fail_after(0);
	assert_int_equal(ret, 0);
	assert_in_range(n, 10, MOST - 1);
	print_message("%u allocations\n", n - 1);
}

static int begin(void **state)
{
	(void)state;
	fake_verbs_begin();
	return 0;
}

static int end(void **state)
{
	(void)state;
	fake_verbs_end();
	return 0;
}

TEST_WITH(call_sweep__with_windows, begin, end)
{
	sweep_calls(false);
}

TEST_WITH(call_sweep__with_domains, begin, end)
{
	sweep_calls(true);
}

TEST_WITH(allocation_sweep__with_windows, begin, end)
{
	sweep_allocations(false);
}

TEST_WITH(allocation_sweep__with_domains, begin, end)
{
	sweep_allocations(true);
}

int main(void)
{
	return test_run(NULL, NULL);
}
