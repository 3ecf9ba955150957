/* fault.c - chooses the fault of each call, and forwards the rest to the inner transport. */
#include "tests/support/fake/fault.h"

#include <errno.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/rng.h"

#define RATE_ONE 65536u
#define RESULTS 64 /* failed chains whose result nobody has asked for yet */

struct fault {
	struct transport tr;
	struct transport *inner;
	struct fault_plan plan;
	struct fault_counts counts;
	struct rng rng;
	struct {
		uint64_t ticket;
		int code;
	} results[RESULTS];
	struct transport_wr wrs[TRANSPORT_VECTOR];
	uint16_t order[TRANSPORT_VECTOR];
};

enum verdict { GO_ON, TEAR, STOP };

static struct fault *of(struct transport *tr)
{
	return (struct fault *)tr;
}

static bool chance(struct fault *fault, uint32_t rate)
{
	return rate && rng_uniform_u64(&fault->rng, RATE_ONE) < rate;
}

/* -------- what happens to a call -------- */

static int fail(struct fault *fault, int code, const char *what)
{
	return error_set(code, "fault: call %llu %s", (unsigned long long)fault->counts.calls,
			 what);
}

static void maybe_delay(struct fault *fault)
{
	const struct fault_plan *plan = &fault->plan;

	if (!chance(fault, plan->delay_rate))
		return;
	fault->counts.delayed++;
	if (plan->delay)
		plan->delay(plan->delay_ctx, rng_uniform_u64(&fault->rng, plan->delay_ns + 1));
}

/* STOP: *ret_out is the answer. TEAR only if the call can be torn. */
static enum verdict decide(struct fault *fault, bool can_tear, int *ret_out)
{
	const struct fault_plan *plan = &fault->plan;
	uint64_t call = ++fault->counts.calls;

	maybe_delay(fault);
	if (plan->cut_at && call >= plan->cut_at) {
		*ret_out = fail(fault, -ECONNRESET, "comes after the cut");
		return STOP;
	}
	if (call == plan->fail_at || chance(fault, plan->fail_rate)) {
		fault->counts.failed++;
		*ret_out = fail(fault, plan->fail_code ? plan->fail_code : -ETIMEDOUT, "fails");
		return STOP;
	}
	if (chance(fault, plan->drop_rate)) {
		fault->counts.dropped++;
		*ret_out = fail(fault, -ETIMEDOUT, "is dropped");
		return STOP;
	}
	if (can_tear && chance(fault, plan->tear_rate)) {
		fault->counts.torn++;
		*ret_out = fail(fault, -ETIMEDOUT, "is torn");
		return TEAR;
	}
	return GO_ON;
}

/* Positions of n operations, shuffled if the plan says so. */
static void choose_order(struct fault *fault, size_t n)
{
	for (size_t i = 0; i < n; i++)
		fault->order[i] = (uint16_t)i;
	if (!fault->plan.reorder || n < 2)
		return;
	fault->counts.reordered++;
	for (size_t i = n - 1; i > 0; i--) {
		size_t j = rng_uniform_u64(&fault->rng, i + 1);
		uint16_t kept = fault->order[i];

		fault->order[i] = fault->order[j];
		fault->order[j] = kept;
	}
}

/* Results of atomics of the inner transport count as this one's. */
static void take_counts(struct fault *fault, const struct transport_stats *before)
{
	const struct transport_stats *after = &fault->inner->stats;

	transport_account_cas(&fault->tr, after->cas_failed - before->cas_failed,
			      after->unknown - before->unknown);
}

/* The inner transport's requests are waited for at once: here a call is done when it returns. */
static int run_inner(struct fault *fault, struct transport_wr *wrs, size_t n)
{
	struct transport *inner = fault->inner;
	struct transport_stats before = inner->stats;
	uint64_t ticket = 0;
	int ret = inner->ops->submit(inner, wrs, n, SUBMIT_UNORDERED, &ticket);

	if (ret == 0 && ticket) {
		inner->posted = ticket;
		ret = inner->ops->poll(inner, ticket, DEADLINE_NEVER);
	}
	take_counts(fault, &before);
	return ret;
}

static bool is_atomic(const struct transport_wr *wr)
{
	return wr->verb == VERB_CAS || wr->verb == VERB_FAA;
}

/* -------- requests in no order -------- */

/* A random number of the call's 8-byte units, in the order chosen. n of requests left in wrs. */
static size_t cut_io(struct fault *fault, size_t n)
{
	uint64_t units = 0, kept;

	for (size_t i = 0; i < n; i++)
		units += fault->wrs[i].io.len / 8;
	kept = rng_uniform_u64(&fault->rng, units ? units : 1);
	for (size_t i = 0; i < n; i++) {
		uint64_t mine = fault->wrs[i].io.len / 8;

		if (kept < mine) {
			fault->wrs[i].io.len = (uint32_t)(kept * 8);
			return kept ? i + 1 : i;
		}
		kept -= mine;
	}
	return n;
}

static int do_io(struct fault *fault, const struct transport_wr *wrs, size_t n, bool tear)
{
	choose_order(fault, n);
	for (size_t i = 0; i < n; i++)
		fault->wrs[i] = wrs[fault->order[i]];
	if (tear)
		n = cut_io(fault, n);
	return n ? run_inner(fault, fault->wrs, n) : 0;
}

/* true: it is to be done after all */
static bool is_done(struct fault *fault)
{
	switch (fault->plan.unknown) {
	case FAULT_UNKNOWN_DONE:
		return true;
	case FAULT_UNKNOWN_NOT_DONE:
		return false;
	case FAULT_UNKNOWN_COIN:
		break;
	}
	return rng_next_u64(&fault->rng) & 1;
}

static void lose(struct fault *fault, struct transport_atomic *op)
{
	fault->counts.unknown++;
	transport_account_cas(&fault->tr, 0, 1);
	op->status = ATOMIC_UNKNOWN;
	op->old = 0;
}

/* Does all but those whose request is lost, then forgets the results of those whose answer is. */
static int do_atomics(struct fault *fault, struct transport_wr *wrs, size_t n)
{
	bool lost[TRANSPORT_VECTOR] = { false };
	size_t doing = 0;
	int ret;

	choose_order(fault, n);
	for (size_t i = 0; i < n; i++) {
		uint16_t at = fault->order[i];

		lost[at] = chance(fault, fault->plan.unknown_rate);
		if (lost[at] && !is_done(fault))
			continue;
		fault->wrs[doing] = wrs[at];
		fault->order[doing++] = at;
	}
	ret = doing ? run_inner(fault, fault->wrs, doing) : 0;
	if (ret)
		return ret;
	for (size_t i = 0; i < doing; i++)
		wrs[fault->order[i]].atomic = fault->wrs[i].atomic;
	for (size_t i = 0; i < n; i++) {
		if (lost[i])
			lose(fault, &wrs[i].atomic);
	}
	return 0;
}

/* All of one verb. */
static int submit_unordered(struct fault *fault, struct transport_wr *wrs, size_t n)
{
	bool atomic = is_atomic(&wrs[0]);
	int ret = 0, done;
	enum verdict verdict = decide(fault, !atomic, &ret);

	if (verdict == STOP)
		return ret;
	done = atomic ? do_atomics(fault, wrs, n) : do_io(fault, wrs, n, verdict == TEAR);
	return ret ? ret : done;
}

/* -------- chains -------- */

/*
 * After a fault it is unknown which requests of the chain were executed: its atomics are unknown.
 */
static void lose_chain(struct fault *fault, struct transport_wr *wrs, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (is_atomic(&wrs[i]))
			lose(fault, &wrs[i].atomic);
	}
}

static void keep_result(struct fault *fault, uint64_t ticket, int code)
{
	fault->results[ticket % RESULTS].ticket = ticket;
	fault->results[ticket % RESULTS].code = code;
}

/* Torn: executed up to a random element. As on a network, poll reports the failure. */
static int submit_chain(struct fault *fault, struct transport_wr *wrs, size_t n,
			uint64_t *ticket_out)
{
	int ret = 0, done = 0;
	enum verdict verdict = decide(fault, true, &ret);
	size_t kept = verdict == GO_ON ? n : 0;

	if (verdict == TEAR)
		kept = rng_uniform_u64(&fault->rng, n);
	for (size_t i = 0; i < kept && done == 0; i++)
		done = is_atomic(&wrs[i]) ? do_atomics(fault, &wrs[i], 1)
					  : run_inner(fault, &wrs[i], 1);
	if (ret)
		lose_chain(fault, wrs, n);
	if (ret || done) {
		*ticket_out = fault->tr.posted + 1;
		keep_result(fault, *ticket_out, ret ? ret : done);
	}
	return 0;
}

static int fault_submit(struct transport *tr, struct transport_wr *wrs, size_t n,
			enum submit_order order, uint64_t *ticket_out)
{
	*ticket_out = 0;
	return order == SUBMIT_ORDERED ? submit_chain(of(tr), wrs, n, ticket_out)
				       : submit_unordered(of(tr), wrs, n);
}

static int fault_poll(struct transport *tr, uint64_t ticket, uint64_t deadline_ns)
{
	struct fault *fault = of(tr);
	int code = fault->results[ticket % RESULTS].code;

	(void)deadline_ns; /* each was waited for already */
	if (fault->results[ticket % RESULTS].ticket != ticket || code == 0)
		return 0;
	return error_set(code, "fault: chain %llu failed", (unsigned long long)ticket);
}

/* -------- the rest -------- */

static int fault_persist(struct transport *tr, struct region *region, uint64_t off, uint64_t len)
{
	struct fault *fault = of(tr);
	int ret = 0;

	if (decide(fault, false, &ret) == STOP)
		return ret;
	return fault->inner->ops->persist(fault->inner, region, off, len);
}

static int fault_order(struct transport *tr)
{
	return of(tr)->inner->ops->order(of(tr)->inner);
}

static int fault_attach(struct transport *tr, const struct region_grant *grant,
			struct region **region_out)
{
	return of(tr)->inner->ops->attach(of(tr)->inner, grant, region_out);
}

static void fault_detach(struct transport *tr, struct region *region)
{
	of(tr)->inner->ops->detach(of(tr)->inner, region);
}

static void fault_close(struct transport *tr)
{
	struct fault *fault = of(tr);

	fault->inner->ops->close(fault->inner);
	mem_free(fault);
}

static int fault_prepare(struct transport *tr, struct region *region, uint64_t off)
{
	const struct transport_ops *ops = of(tr)->inner->ops;

	return ops->prepare ? ops->prepare(of(tr)->inner, region, off) : 0;
}

static int fault_renew(struct transport *tr, struct region *region, uint64_t off)
{
	const struct transport_ops *ops = of(tr)->inner->ops;

	return ops->renew ? ops->renew(of(tr)->inner, region, off) : 0;
}

static const struct transport_ops fault_ops = {
	.name = "fault",
	.attach = fault_attach,
	.detach = fault_detach,
	.submit = fault_submit,
	.poll = fault_poll,
	.persist = fault_persist,
	.prepare = fault_prepare,
	.renew = fault_renew,
	.order = fault_order,
	.close = fault_close,
};

int fault_wrap(struct transport *inner, const struct fault_plan *plan, struct transport **tr_out)
{
	struct fault *fault = mem_zalloc(sizeof(*fault));

	if (!fault) {
		transport_close(&inner);
		return error_set(-ENOMEM, "no memory for a fault transport");
	}
	fault->inner = inner;
	fault->tr = *inner; /* capabilities, clock, timeout, generation */
	fault->tr.ops = &fault_ops;
	fault->tr.caps &=
		~(uint32_t)TRANSPORT_GUARDS; /* it hands on the requests of a chain one by one */
	fault->tr.chain = 0;                 /* as many as it has room for */
	fault->tr.stats = (struct transport_stats){ 0 };
	fault_set(&fault->tr, plan);
	*tr_out = &fault->tr;
	return 0;
}

void fault_set(struct transport *tr, const struct fault_plan *plan)
{
	struct fault *fault = of(tr);

	fault->plan = plan ? *plan : (struct fault_plan){ 0 };
	fault->counts = (struct fault_counts){ 0 };
	rng_seed(&fault->rng, fault->plan.seed, 0);
}

void fault_get(const struct transport *tr, struct fault_counts *counts_out)
{
	*counts_out = ((const struct fault *)tr)->counts;
}
