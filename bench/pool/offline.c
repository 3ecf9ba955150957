#include "bench/pool/offline.h"

#include "bench/pool/sim.h"

/* A cycle of that many bins: job k begins at bin k * shift. */
struct cycle {
	const struct curve *curve;
	unsigned n, bins, shift;
};

/* True if the cycle stays within room; *time_out: wall time of it, in bins of one job alone. */
static bool cycle_fits(const struct cycle *cycle, uint64_t room, double gain, double *time_out)
{
	*time_out = 0;
	for (unsigned at = 0; at < cycle->bins; at++) {
		uint64_t sum = 0;
		unsigned running = 0;

		for (unsigned k = 0; k < cycle->n; k++) {
			unsigned begin = k * cycle->shift % cycle->bins;
			unsigned phase = (at + cycle->bins - begin) % cycle->bins;

			running += phase < CURVE_BINS;
			sum += phase < CURVE_BINS ? cycle->curve->bins[phase] : 0;
		}
		if (sum > room)
			return false;
		*time_out += running / sim_capacity(gain, running);
	}
	return true;
}

double offline_best(const struct curve *curve, unsigned n, uint64_t room, double gain)
{
	double best = 1, time;

	if (n < 2)
		return best;
	for (unsigned bins = CURVE_BINS; bins < n * CURVE_BINS; bins++) {
		struct cycle cycle = { curve, n, bins, 0 };
		unsigned from = n == 2 ? bins - CURVE_BINS : bins / n;
		unsigned to = n == 2 ? CURVE_BINS : bins / n;

		for (cycle.shift = from; cycle.shift <= to; cycle.shift++) {
			if (!cycle_fits(&cycle, room, gain, &time))
				continue;
			if (n * CURVE_BINS / time > best)
				best = n * CURVE_BINS / time;
			break;
		}
		if (best > 1 && gain >= 1)
			break; /* a longer cycle has less together */
	}
	return best;
}
