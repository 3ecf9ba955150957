#include "client/table/watch.h"

#include "client/table/handle.h"

#include "ds/limiter/limiter.h"
#include "ds/ring/ring.h"

#include "base/bits.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>

/* -------- progress -------- */

/* A hash of the counts and rows of all reachable shards: every insert, sample and row changes it. */
static int watch_trace(const struct handle *h, uint64_t *trace_out)
{
	uint32_t n_views = part_set_has_control(&h->set) ? h->desc->n_views : 0;
	uint64_t trace = 1;
	int ret = 0;

	for (uint32_t v = 0; ret == 0 && v < n_views; v++) {
		struct limiter_words words;
		struct limiter lim;

		limiter_init(&lim, handle_shard(h, h->set.control), v, 1);
		ret = limiter_read(&lim, &words);
		if (ret == 0)
			trace = ring_mix(ring_mix(trace, words.ins_committed), words.smp_committed);
	}
	for (uint32_t s = 0; ret == 0 && s < h->set.n_parts; s++)
		if (h->set.parts[s])
			ret = ring_trace(handle_shard(h, s), &trace);
	if (ret == 0)
		*trace_out = trace;
	return ret;
}

/* -------- the wait -------- */

int watch_wait(struct rlv_watch *watch, struct handle *h, watch_explain_fn explain, void *ctx)
{
	const uint64_t look_ns = 500 * (uint64_t)CLOCK_NS_PER_MS; /* four times within stall_ns */
	const uint64_t warn_ns = 2 * (uint64_t)CLOCK_NS_PER_S;
	const uint64_t warn_again_ns = 60 * (uint64_t)CLOCK_NS_PER_S;
	struct meta *meta = h->table->store->meta;
	uint64_t stall_ns = (uint64_t)h->table->store->stall_ns;
	uint64_t now_ns = clock_now_ns(h->clock);
	struct meta_wait wait;
	uint64_t trace;

	if (!watch->began_ns) {
		watch->began_ns = watch->looked_ns = watch->moved_ns = now_ns;
		watch->seen = 0;
	}
	if (watch->looked_ns && now_ns - watch->looked_ns < min_u64(look_ns, stall_ns / 4))
		return 0;
	/* The first look counts as progress; a failed one does not. */
	trace = watch->seen;
	if (watch_trace(h, &trace))
		log_debug("table %s: %s", h->desc->name, error_last());
	if (trace != watch->seen)
		watch->moved_ns = now_ns;
	watch->seen = trace;
	watch->looked_ns = now_ns;
	/* The server is told for `relive status --why`. */
	wait.view = explain(ctx, watch->text);
	wait.slot = h->slot.owner;
	wait.began_ns = watch->began_ns;
	wait.said_ns = now_ns;
	snprintf(wait.table, sizeof(wait.table), "%s", h->desc->name);
	snprintf(wait.words, sizeof(wait.words), "%s", watch->text);
	meta_wait(meta, &h->watch, &wait);
	if (!watch->warned && now_ns - watch->began_ns >= warn_ns &&
	    (!h->warned_ns || now_ns - h->warned_ns >= warn_again_ns)) {
		watch->warned = true;
		h->warned_ns = now_ns;
		log_warn("%s", watch->text);
	}
	if (now_ns - watch->moved_ns < stall_ns)
		return 0;
	return error_set(-ETIMEDOUT, "%s: no progress for %g s", watch->text,
			 (double)stall_ns / (double)CLOCK_NS_PER_S);
}

int watch_user_wait(struct rlv_watch *watch, struct handle *h, watch_explain_fn explain, void *ctx)
{
	struct rlv_watch ours;
	int ret = watch ? abi_check(watch, "watch->") : error_set(-EINVAL, "watch is NULL");

	if (ret == 0)
		ret = abi_read(&ours, sizeof(ours), watch, "watch->");
	if (ret)
		return ret;
	ret = watch_wait(&ours, h, explain, ctx);
	abi_write(watch, &ours, sizeof(ours));
	return ret;
}
