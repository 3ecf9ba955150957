/* The broker of a pool: each call of the backend fails once, each allocation fails once, through the
   lives of two jobs. A request that fails changes nothing, and succeeds when it is repeated. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/mem/alloc.h"
#include "device/backend_fault.h"
#include "device/host/backend_host.h"
#include "server/poold/broker.h"
#include "tests/support/fake/fake_clock.h"
#include "tests/support/must.h"
#include "tests/support/sealed_page.h"
#include "tests/support/test.h"

#define EXTENT ((uint64_t)4096)
#define EXTENTS 8u

struct scene {
	struct fake_clock clock; /* stands: a grant that is late would be the last of its job */
	struct backend *host;
	struct backend_fault fault;
	struct broker *broker;
	int pages[2][2]; /* of each job */
	uint32_t job[2];
	struct lease_ref refs[2][LEASE_REFS];
	int fds[2][LEASE_REFS];
	uint32_t n[2];
	int failures;
};

static void wake(void *ctx, uint32_t job)
{
	(void)ctx;
	assert_true(job < LEDGER_JOBS);
}

static void check(const struct scene *s)
{
	if (s->broker)
		must(broker_check(s->broker), "broker_check");
}

/* Makes a call until it succeeds: one failure is injected. */
#define AGAIN(s, call) \
	do { \
		int again_ret = call; \
\
		if (again_ret) { \
			(s)->failures++; \
			assert_true(again_ret == -ENOMEM); \
			check(s); \
			again_ret = call; \
		} \
		must(again_ret, #call); \
	} while (0)

static int open_broker(struct scene *s)
{
	const struct broker_opts opts = { .backend = &s->fault.base,
					  .clock = &s->clock.clock,
					  .bytes = EXTENTS * EXTENT,
					  .extent_bytes = EXTENT,
					  .strict = true,
					  .sharing = GATE_CURVES,
					  .wake = wake };

	return broker_open(&opts, &s->broker);
}

static void join(struct scene *s, int i)
{
	const struct broker_peer peer = { .process = { .pid = (uint32_t)i + 1 } };
	struct lease_hello hello = { .persistent = EXTENT, .peak = 6 * EXTENT, .weight = 1000 };

	memcpy(hello.name, i ? "two" : "one", 4);
	AGAIN(s, broker_hello(s->broker, &peer, &hello, s->pages[i], &s->job[i]));
}

static int take_once(struct scene *s, int i, uint32_t n)
{
	struct lease_message out = { .n_fds = 0 };
	int ret = broker_take(s->broker, s->job[i], n, &out);

	for (uint32_t k = 0; ret == 0 && k < n; k++) {
		s->refs[i][s->n[i]] = out.answer.refs[k];
		s->fds[i][s->n[i]++] = out.fds[k];
	}
	return ret;
}

static void give(struct scene *s, int i, uint32_t n)
{
	struct lease_refs refs = { .n = n };

	s->n[i] -= n;
	memcpy(refs.refs, s->refs[i] + s->n[i], n * sizeof(refs.refs[0]));
	for (uint32_t k = 0; k < n; k++)
		close(s->fds[i][s->n[i] + k]);
	AGAIN(s, broker_give(s->broker, s->job[i], &refs));
	(void)broker_turn(s->broker);
}

/* All that a job holds, to a broker that knows nothing of it. */
static int hold_once(struct scene *s, int i)
{
	struct lease_message in = { .n_fds = s->n[i] };

	in.refs.n = s->n[i];
	in.refs.flags = LEASE_LAST;
	memcpy(in.refs.refs, s->refs[i], s->n[i] * sizeof(s->refs[i][0]));
	memcpy(in.fds, s->fds[i], s->n[i] * sizeof(in.fds[0]));
	return broker_hold(s->broker, s->job[i], &in);
}

static void life(struct scene *s)
{
	const struct lease_limit limit = { .kind = LEASE_LIMIT_BUDGET, .bytes = 7 * EXTENT };
	const struct lease_refs none = { .n = 0 };

	AGAIN(s, open_broker(s));
	join(s, 0);
	join(s, 1);
	AGAIN(s, take_once(s, 0, 1));
	AGAIN(s, broker_begin(s->broker, s->job[0]));
	AGAIN(s, take_once(s, 0, 6));
	give(s, 0, 6);
	AGAIN(s, broker_end(s->broker, s->job[0], 0));
	AGAIN(s, take_once(s, 1, 5)); /* of which the other one had some */
	AGAIN(s, broker_limit(s->broker, &limit));
	give(s, 1, 3);

	broker_close(&s->broker); /* its roster was in memory */
	AGAIN(s, open_broker(s));
	join(s, 0);
	join(s, 1);
	AGAIN(s, hold_once(s, 0));
	AGAIN(s, hold_once(s, 1));
	give(s, 0, 1);
	AGAIN(s, broker_park(s->broker, s->job[0]));
	AGAIN(s, broker_resume(s->broker, s->job[0]));
	AGAIN(s, take_once(s, 0, 2));
	broker_bye(s->broker, s->job[0], &none);
	broker_died(s->broker, s->job[1]);
	(void)broker_turn(s->broker);
	must(broker_check(s->broker), "broker_check");
	assert_int_equal(s->broker->ledger.held, 0);
}

static void scene_begin(struct scene *s, uint64_t fail_at)
{
	const struct backend_host_opts host = { .device_bytes = 4 * EXTENTS * EXTENT };

	memset(s, 0, sizeof(*s));
	fake_clock_init(&s->clock, CLOCK_NS_PER_S);
	must(backend_host_open(&host, &s->host), "open");
	backend_fault_init(&s->fault, s->host, fail_at, -ENOMEM);
	sealed_pages(s->pages[0]);
	sealed_pages(s->pages[1]);
}

static void scene_end(struct scene *s)
{
	mem_fail_after(0);
	s->fault.fail_at = 0;
	broker_close(&s->broker);
	for (int i = 0; i < 2; i++) {
		for (uint32_t k = 0; k < s->n[i]; k++)
			close(s->fds[i][k]);
	}
	for (int i = 0; i < 2; i++) {
		close(s->pages[i][0]);
		close(s->pages[i][1]);
	}
	s->host->ops->close(s->host);
}

TEST(broker__each_call_of_the_backend_fails_once)
{
	uint64_t n = 1;

	for (;; n++) {
		struct scene s;
		bool last;

		scene_begin(&s, n);
		life(&s);
		last = s.fault.calls < n;
		assert_true(last || s.failures == 1);
		scene_end(&s);
		if (last)
			break;
	}
	assert_true(n > 20);
}

TEST(broker__each_allocation_fails_once)
{
	uint64_t n = 1;
	bool fired = true;

	for (; fired; n++) {
		struct scene s;

		scene_begin(&s, 0);
		mem_fail_after(n);
		life(&s);
		fired = mem_fail_fired();
		assert_int_equal(s.failures, fired);
		scene_end(&s);
	}
	assert_true(n > 6);
}

int main(void)
{
	return test_run(NULL, NULL);
}
