/* change.h - changes elements at places that are as far apart as independent draws are. */
#ifndef RLV_BENCH_WEIGHTS_CHANGE_H
#define RLV_BENCH_WEIGHTS_CHANGE_H

#include <math.h>

#include "base/rng.h"

static inline void change_elements(struct rng *rng, uint8_t *bytes, uint64_t elements,
				   uint32_t element_bytes, double density)
{
	double scale = density < 1 ? 1 / log1p(-density) : 0;

	for (uint64_t i = 0; density > 0; i++) {
		if (density < 1)
			i += (uint64_t)(log1p(-rng_uniform_double(rng)) * scale);
		if (i >= elements)
			return;
		/* Odd, so that no value comes back within 255 generations. */
		bytes[i * element_bytes] += (uint8_t)(1 + 2 * (i & 63));
	}
}

#endif
