#include "ds/limiter/limiter.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>

#define SPI_ONE ((int64_t)1 << LIMIT_SPI_BITS)
#define SPI_MAX ((double)((uint64_t)1 << 32))
#define DIFF_MAX ((double)((uint64_t)1 << 46))

static int bound_init(double bound, const char *name, int64_t *fixed_out)
{
	if (isnan(bound))
		return error_set(-EINVAL, "limiter %s: NaN, want a number", name);
	if (fabs(bound) >= DBL_MAX) {
		*fixed_out = bound > 0 ? INT64_MAX : INT64_MIN;
		return 0;
	}
	if (fabs(bound) > DIFF_MAX)
		return error_set(-EINVAL, "limiter %s %g: finite bounds are within %g", name, bound,
				 DIFF_MAX);
	*fixed_out = llround(bound * (double)SPI_ONE);
	return 0;
}

int limit_desc_init(struct limit_desc *bounds, uint64_t min_size, double spi, double min_diff,
		    double max_diff)
{
	struct limit_desc full = { .min_size = min_size ? min_size : 1 };
	bool zeros = spi == 0 && min_diff == 0 && max_diff == 0;
	int rc;

	if (!(spi >= 0) || spi > SPI_MAX)
		return error_set(-EINVAL, "limiter samples_per_insert %g: must be 0 to %g", spi,
				 SPI_MAX);
	full.spi = (uint64_t)llround(spi * (double)SPI_ONE);
	if (spi > 0 && !full.spi)
		return error_set(-EINVAL, "limiter samples_per_insert %g: below 1/%lld", spi,
				 (long long)SPI_ONE);
	rc = bound_init(zeros ? -INFINITY : min_diff, "min_diff", &full.min_diff);
	if (!rc)
		rc = bound_init(zeros ? INFINITY : max_diff, "max_diff", &full.max_diff);
	if (rc)
		return rc;
	if (full.min_diff > full.max_diff)
		return error_set(-EINVAL, "limiter min_diff %g: larger than max_diff %g", min_diff,
				 max_diff);
	if (!full.spi && (full.min_diff != INT64_MIN || full.max_diff != INT64_MAX))
		return error_set(-EINVAL,
				 "limiter samples_per_insert 0: bounds %g and %g need a ratio",
				 min_diff, max_diff);
	*bounds = full;
	return 0;
}

/*
 * The difference starts at 0 and moves by +spi and -1: it is a multiple of their greatest common
 * divisor. Stuck = a value where an insert exceeds max_diff and a sample falls below min_diff.
 */
static bool can_get_stuck(const struct limit_desc *bounds)
{
	__int128 step = (__int128)bounds->spi, rest = SPI_ONE;
	__int128 above = (__int128)bounds->max_diff - (__int128)bounds->spi;
	__int128 below = (__int128)bounds->min_diff + SPI_ONE, at;

	if (bounds->min_diff == INT64_MIN || bounds->max_diff == INT64_MAX)
		return false;
	while (rest) { /* Euclid's algorithm */
		__int128 next = step % rest;

		step = rest;
		rest = next;
	}
	at = above / step;
	if (at * step > above)
		at--;
	return (at + 1) * step < below;
}

int limit_desc_check(const struct limit_desc *bounds, uint64_t capacity)
{
	if (bounds->min_diff > bounds->max_diff ||
	    (!bounds->spi && (bounds->min_diff != INT64_MIN || bounds->max_diff != INT64_MAX)))
		return error_set(-EINVAL, "limiter bounds %g and %g: do not fit the ratio %g",
				 limit_unscale(bounds->min_diff), limit_unscale(bounds->max_diff),
				 limit_unscale((int64_t)bounds->spi));
	if (bounds->spi > (uint64_t)SPI_MAX << LIMIT_SPI_BITS)
		return error_set(-EINVAL, "limiter samples_per_insert %g: at most %g",
				 limit_unscale((int64_t)bounds->spi), SPI_MAX);
	if (!bounds->min_size || bounds->min_size > capacity)
		return error_set(-EINVAL,
				 "limiter min_size %" PRIu64 ": must be 1 to the capacity %" PRIu64,
				 bounds->min_size, capacity);
	if (bounds->max_diff != INT64_MAX &&
	    (__int128)bounds->min_size * (__int128)bounds->spi > bounds->max_diff)
		return error_set(-EINVAL,
				 "limiter min_size %" PRIu64 ": max_diff %g stops the inserts at "
				 "%g items, with %g samples per insert and none sampled yet",
				 bounds->min_size, limit_unscale(bounds->max_diff),
				 (double)bounds->max_diff / (double)bounds->spi,
				 limit_unscale((int64_t)bounds->spi));
	if (can_get_stuck(bounds))
		return error_set(-EINVAL,
				 "limiter bounds %g and %g: too narrow, neither an insert (%g) nor "
				 "a sample (1) may fit between them",
				 limit_unscale(bounds->min_diff), limit_unscale(bounds->max_diff),
				 limit_unscale((int64_t)bounds->spi));
	return 0;
}
