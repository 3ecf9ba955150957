/*
 * fault.c - decides for each call what goes wrong, and does the rest through the inner transport.
 */
#include "tests/support/fake/fault.h"

#include <errno.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/rng.h"

#include "transport/start.h"

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
	struct transport_io io[TRANSPORT_VECTOR];
	struct transport_atomic atomics[TRANSPORT_VECTOR];
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

/* What the inner transport finds out about atomics counts as ours. */
static void take_counts(struct fault *fault, const struct transport_stats *before)
{
	const struct transport_stats *after = &fault->inner->stats;

	transport_account_cas(&fault->tr, after->cas_failed - before->cas_failed,
			      after->unknown - before->unknown);
}

/* -------- reads and writes -------- */

/* A random number of the call's 8-byte units, in the order chosen. n of operations left in io. */
static size_t cut_io(struct fault *fault, size_t n)
{
	uint64_t units = 0, kept;

	for (size_t i = 0; i < n; i++)
		units += fault->io[i].len / 8;
	kept = rng_uniform_u64(&fault->rng, units ? units : 1);
	for (size_t i = 0; i < n; i++) {
		uint64_t mine = fault->io[i].len / 8;

		if (kept < mine) {
			fault->io[i].len = (uint32_t)(kept * 8);
			return kept ? i + 1 : i;
		}
		kept -= mine;
	}
	return n;
}

static size_t gather_io(struct fault *fault, const struct transport_io *io, size_t n, bool tear)
{
	choose_order(fault, n);
	for (size_t i = 0; i < n; i++)
		fault->io[i] = io[fault->order[i]];
	return tear ? cut_io(fault, n) : n;
}

/* The inner transport's calls are waited for at once: here a call is done when it returns. */
static int settle(struct fault *fault, int started)
{
	return transport_settle(fault->inner, started);
}

static int fault_read(struct transport *tr, const struct transport_io *io, size_t n)
{
	struct fault *fault = of(tr);
	int ret = 0, done = 0;
	enum verdict verdict = decide(fault, true, &ret);

	if (verdict == STOP)
		return ret;
	n = gather_io(fault, io, n, verdict == TEAR);
	if (n)
		done = settle(fault, fault->inner->ops->read(fault->inner, fault->io, n));
	return ret ? ret : done;
}

static int fault_write(struct transport *tr, const struct transport_io *io, size_t n)
{
	struct fault *fault = of(tr);
	int ret = 0, done = 0;
	enum verdict verdict = decide(fault, true, &ret);

	if (verdict == STOP)
		return ret;
	n = gather_io(fault, io, n, verdict == TEAR);
	if (n)
		done = settle(fault, fault->inner->ops->write(fault->inner, fault->io, n));
	return ret ? ret : done;
}

static int fault_view(struct transport *tr, struct transport_view *views, size_t n)
{
	struct fault *fault = of(tr);
	int ret = 0;

	if (decide(fault, false, &ret) == STOP)
		return ret;
	return settle(fault, fault->inner->ops->view(fault->inner, views, n));
}

static void fault_view_end(struct transport *tr)
{
	of(tr)->inner->ops->view_end(of(tr)->inner);
}

/* -------- atomics -------- */

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

typedef int (*atomic_fn)(struct transport *tr, struct transport_atomic *ops, size_t n);

/* Does all but those whose request is lost, then forgets the results of those whose answer is. */
static int do_atomics(struct fault *fault, atomic_fn fn, struct transport_atomic *ops, size_t n)
{
	struct transport_stats before = fault->inner->stats;
	bool lost[TRANSPORT_VECTOR] = { false };
	size_t doing = 0;
	int ret;

	choose_order(fault, n);
	for (size_t i = 0; i < n; i++) {
		uint16_t at = fault->order[i];

		lost[at] = chance(fault, fault->plan.unknown_rate);
		if (lost[at] && !is_done(fault))
			continue;
		fault->atomics[doing] = ops[at];
		fault->order[doing++] = at;
	}
	ret = doing ? settle(fault, fn(fault->inner, fault->atomics, doing)) : 0;
	take_counts(fault, &before);
	if (ret)
		return ret;
	for (size_t i = 0; i < doing; i++)
		ops[fault->order[i]] = fault->atomics[i];
	for (size_t i = 0; i < n; i++) {
		if (lost[i])
			lose(fault, &ops[i]);
	}
	return 0;
}

static int fault_cas(struct transport *tr, struct transport_atomic *ops, size_t n)
{
	struct fault *fault = of(tr);
	int ret = 0;

	if (decide(fault, false, &ret) == STOP)
		return ret;
	return do_atomics(fault, fault->inner->ops->cas, ops, n);
}

static int fault_faa(struct transport *tr, struct transport_atomic *ops, size_t n)
{
	struct fault *fault = of(tr);
	int ret = 0;

	if (decide(fault, false, &ret) == STOP)
		return ret;
	return do_atomics(fault, fault->inner->ops->faa, ops, n);
}

/* -------- chains -------- */

static int do_wr(struct fault *fault, struct transport_wr *wr)
{
	const struct transport_ops *ops = fault->inner->ops;

	switch (wr->verb) {
	case VERB_READ:
		return ops->read(fault->inner, &wr->io, 1);
	case VERB_WRITE:
		return ops->write(fault->inner, &wr->io, 1);
	case VERB_CAS:
		return do_atomics(fault, ops->cas, &wr->atomic, 1);
	case VERB_FAA:
		return do_atomics(fault, ops->faa, &wr->atomic, 1);
	}
	return -EINVAL;
}

/* After a fault nobody can tell what of the chain happened: its atomics are unknown. */
static void lose_chain(struct fault *fault, struct transport_wr *wrs, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (wrs[i].verb == VERB_CAS || wrs[i].verb == VERB_FAA)
			lose(fault, &wrs[i].atomic);
	}
}

static void keep_result(struct fault *fault, uint64_t ticket, int code)
{
	fault->results[ticket % RESULTS].ticket = ticket;
	fault->results[ticket % RESULTS].code = code;
}

/* Torn: done up to a random element. As on a network, poll is who says so. */
static int fault_post(struct transport *tr, struct transport_wr *wrs, size_t n,
		      uint64_t *ticket_out)
{
	struct fault *fault = of(tr);
	int ret = 0, done = 0;
	enum verdict verdict = decide(fault, true, &ret);
	size_t kept = verdict == GO_ON ? n : 0;

	if (verdict == TEAR)
		kept = rng_uniform_u64(&fault->rng, n);
	for (size_t i = 0; i < kept && done == 0; i++)
		done = do_wr(fault, &wrs[i]);
	if (ret)
		lose_chain(fault, wrs, n);
	*ticket_out = tr->posted + 1;
	keep_result(fault, *ticket_out, ret ? ret : done);
	return 0;
}

static int fault_poll(struct transport *tr, uint64_t ticket, uint64_t deadline_ns)
{
	struct fault *fault = of(tr);
	int code = fault->results[ticket % RESULTS].code;

	(void)deadline_ns; /* done_wr waited for each already */
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

static int fault_renew(struct transport *tr, struct region *region, uint64_t off)
{
	const struct transport_ops *ops = of(tr)->inner->ops;

	return ops->renew ? ops->renew(of(tr)->inner, region, off) : 0;
}

static const struct transport_ops fault_ops = {
	.name = "fault",
	.attach = fault_attach,
	.detach = fault_detach,
	.view = fault_view,
	.view_end = fault_view_end,
	.read = fault_read,
	.write = fault_write,
	.cas = fault_cas,
	.faa = fault_faa,
	.post = fault_post,
	.poll = fault_poll,
	.persist = fault_persist,
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
