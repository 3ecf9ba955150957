#include "client/meta/report.h"

#include "base/bits.h"

/* Adds the wait of a call, if it waits now and there is room. */
static void report_wait(struct report *out, const struct meta_wait *wait, uint64_t now_ns)
{
	size_t n = out->request.n_waits;
	Relive__Waiting *to = &out->waits[n];

	if (n == REPORT_WAITS || !wait->said_ns || now_ns >= wait->said_ns + META_WAIT_FRESH_NS)
		return;
	out->said[n] = *wait;
	relive__waiting__init(to);
	to->kind = RELIVE__WAIT_KIND__WAIT_LIMITER;
	to->table = out->said[n].table;
	to->words = out->said[n].words;
	to->view = wait->view;
	to->slot = wait->slot;
	to->since_ns = now_ns > wait->began_ns ? now_ns - wait->began_ns : 0;
	out->wait_list[out->request.n_waits++] = to;
}

void report_make(struct meta *meta, struct report *out)
{
	uint64_t now_ns = clock_now_ns(clock_monotonic());
	Relive__LeaseRenewRequest *request = &out->request;

	relive__lease_renew_request__init(request);
	request->waits = out->wait_list;
	request->layout = atomic_load_explicit(&meta->layout, memory_order_relaxed);
	lock_acquire(&meta->lock, &meta_role);
	for (struct meta_watch *watch = meta->watches; watch; watch = watch->next) {
		request->layout =
			min_u64(request->layout,
				atomic_load_explicit(&watch->layout, memory_order_relaxed));
		report_wait(out, &watch->wait, now_ns);
	}
	lock_release(&meta->lock, &meta_role);
}
