#include "client/meta/waits.h"

#include "base/os/clock.h"

#include <stdio.h>

#define FRESH_NS (2 * (uint64_t)CLOCK_NS_PER_S) /* said longer ago, it has ended */

bool meta_waits_note(struct meta_watch *watch, const struct meta_wait *wait)
{
	bool first = wait->said_ns >= watch->said_ns + FRESH_NS;

	snprintf(watch->table, sizeof(watch->table), "%s", wait->table);
	snprintf(watch->words, sizeof(watch->words), "%s", wait->words);
	watch->view = wait->view;
	watch->slot = wait->slot;
	watch->began_ns = wait->began_ns;
	watch->said_ns = wait->said_ns;
	return first;
}

static void meta_waits_fill(struct meta_waits *out, uint32_t i, uint64_t now_ns)
{
	Relive__Waiting *wait = &out->waits[i];
	struct meta_watch *at = &out->at[i];

	relive__waiting__init(wait);
	wait->kind = RELIVE__WAIT_KIND__WAIT_LIMITER;
	wait->table = at->table;
	wait->words = at->words;
	wait->view = at->view;
	wait->slot = at->slot;
	wait->since_ns = now_ns > at->began_ns ? now_ns - at->began_ns : 0;
	out->list[i] = wait;
}

void meta_waits_collect(const struct meta_watch *first, struct meta_waits *out)
{
	uint64_t now_ns = clock_now_ns(clock_monotonic());

	out->n = 0;
	for (const struct meta_watch *watch = first; watch && out->n < META_WAITS_SENT;
	     watch = watch->next) {
		if (!watch->said_ns || now_ns >= watch->said_ns + FRESH_NS)
			continue;
		out->at[out->n] = *watch;
		meta_waits_fill(out, out->n++, now_ns);
	}
}
