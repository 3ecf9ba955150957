/* The broker never lets two running iterations wait for each other's memory. */
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "device/host/backend_host.h"
#include "server/poold/broker.h"
#include "tests/support/fake/fake_clock.h"
#include "tests/support/must_internal.h"
#include "tests/support/sealed_page.h"

#define EXTENT ((uint64_t)4096)
#define HOUR_NS (3600 * (uint64_t)CLOCK_NS_PER_S)

static struct fake_clock standing; /* a grant that is late would be the last of its job */
static struct backend *host;
static struct broker *broker;
static int pages[2];
static struct lease_ref held[2][8];
static uint32_t jobs[2], n_held[2];

static void wake(void *ctx, uint32_t job)
{
	(void)ctx;
	(void)job;
}

/* A job of 6 extents of 8, whose profile says 1. */
static void join(uint32_t i)
{
	const struct broker_peer peer = { .process = { .pid = i + 1 } };
	struct lease_hello hello = { .peak = 6 * EXTENT, .weight = 1000 };
	struct lease_profile profile = { .period_ns = HOUR_NS };

	hello.name[0] = (char)('a' + i);
	must(broker_hello(broker, &peer, &hello, pages, &jobs[i]));
	for (uint32_t bin = 0; bin < LEASE_BINS; bin++)
		profile.bins[bin] = EXTENT;
	must(broker_profile(broker, jobs[i], &profile));
}

static int begin(void **state)
{
	const struct backend_host_opts opts = { .device_bytes = 16 * EXTENT };
	struct broker_opts broker_opts = { .clock = &standing.clock,
					   .bytes = 8 * EXTENT,
					   .extent_bytes = EXTENT,
					   .sharing = GATE_CURVES,
					   .wake = wake };

	(void)state;
	memset(n_held, 0, sizeof(n_held));
	fake_clock_init(&standing, CLOCK_NS_PER_S);
	sealed_pages(pages);
	must(backend_host_open(&opts, &host));
	broker_opts.backend = host;
	must(broker_open(&broker_opts, &broker));
	join(0);
	join(1);
	must(broker_begin(broker, jobs[0]));
	must(broker_begin(broker, jobs[1]));
	return 0;
}

static int end(void **state)
{
	(void)state;
	must(broker_check(broker));
	broker_close(&broker);
	host->ops->close(host);
	close(pages[0]);
	close(pages[1]);
	return 0;
}

static int take(uint32_t i, uint32_t n)
{
	struct lease_message out = { .n_fds = 0 };
	int ret = broker_take(broker, jobs[i], n, &out);

	for (uint32_t k = 0; ret == 0 && k < n; k++)
		held[i][n_held[i]++] = out.answer.refs[k];
	lease_close_fds(&out);
	return ret;
}

static void give_all(uint32_t i)
{
	struct lease_refs refs = { .n = n_held[i] };

	memcpy(refs.refs, held[i], n_held[i] * sizeof(held[i][0]));
	n_held[i] = 0;
	must(broker_give(broker, jobs[i], &refs));
	must(broker_end(broker, jobs[i], 0));
	(void)broker_turn(broker);
}

TEST_WITH(take__that_would_keep_both_from_their_ends_waits, begin, end)
{
	must(take(0, 3));
	assert_int_equal(take(1, 3), -EAGAIN); /* 5 are free: both would lack 3, and 2 were left */
	must(take(1, 2));                      /* 3 are left: one can end, then the other */
	must(take(0, 3));
	assert_int_equal(take(1, 1), -EAGAIN);
	give_all(0);
	must(take(1, 4));
	give_all(1);
}

/* Both began at the same time: one of them is the oldest. */
TEST_WITH(take__of_the_oldest_goes_on_where_the_budget_has_shrunk, begin, end)
{
	const struct lease_limit limit = { .kind = LEASE_LIMIT_BUDGET, .bytes = 6 * EXTENT };

	must(take(0, 2));
	must(take(1, 3));
	must(broker_limit(broker, &limit)); /* 1 is left: neither can end for sure */
	assert_int_equal(take(1, 1), -EAGAIN);
	broker_cancel(broker, jobs[1]);
	must(take(0, 1));
}

int main(void)
{
	return test_run(NULL, NULL);
}
