#include "python/src/sampler/pace.h"

#include <string.h>

#define STAY_FIRST 256
#define STAY_MOST 16384
#define GROUP 4 /* cycles; those of the library's batches are short and long by turns */

/* Mean of the faster half of the timed groups: in others somebody lost a core. */
static int64_t pace_mean(int64_t *ns)
{
	int64_t sum = 0;

	for (uint32_t n = 0; n < PACE_GROUPS / 2; n++) {
		uint32_t least = 0;

		for (uint32_t i = 1; i < PACE_GROUPS; i++)
			if (ns[i] < ns[least])
				least = i;
		sum += ns[least];
		ns[least] = INT64_MAX;
	}
	return sum / (PACE_GROUPS / 2 * GROUP);
}

static void pace_begin(struct pace *p, bool timing, enum pace_way way)
{
	p->timing = timing;
	p->way = way;
	p->cycles = 0;
	memset(p->ns, 0, sizeof(p->ns));
}

/* Stays with the fastest of the first n ways; the same as last time: for longer. */
static void pace_settle(struct pace *p, uint32_t n)
{
	enum pace_way best = PACE_LIBRARY;

	for (uint32_t way = 1; way < n; way++)
		if (p->mean_ns[way] < p->mean_ns[best])
			best = way;
	if (!p->stay || best != p->best)
		p->stay = STAY_FIRST;
	else if (p->stay < STAY_MOST)
		p->stay *= 2;
	p->best = best;
	pace_begin(p, false, best);
}

void pace_next(struct pace *p, int64_t cycle_ns, uint32_t depth, bool thread_can_pay)
{
	uint32_t n = thread_can_pay ? PACE_WAYS : PACE_THREAD, at = p->cycles++;

	if (!p->timing) {
		if (p->cycles > p->stay)
			pace_begin(p, true, PACE_LIBRARY);
		return;
	}
	if (at > depth) /* before, batches came the other way */
		p->ns[(at - depth - 1) / GROUP] += cycle_ns;
	if (at < depth + PACE_GROUPS * GROUP)
		return;
	p->mean_ns[p->way] = pace_mean(p->ns);
	if ((uint32_t)p->way + 1 < n)
		pace_begin(p, true, p->way + 1);
	else
		pace_settle(p, n);
}
