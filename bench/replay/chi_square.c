#include "bench/replay/chi_square.h"

#include <math.h>

/* A finite sum for whole degrees of freedom; each term by its logarithm, so that none overflows. */
double chi_square_p(double statistic, double df)
{
	double half = statistic / 2, first = fmod(df, 2) > 0 ? 0.5 : 0;
	double p = first > 0 ? erfc(sqrt(half)) : 0;

	if (!(statistic > 0))
		return 1;
	if (isinf(statistic))
		return 0;
	for (int i = 0; i < (int)(df / 2); i++)
		p += exp((first + i) * log(half) - half - lgamma(first + i + 1));
	return fmin(p, 1);
}

struct chi_square chi_square_test(const uint64_t *seen, const double *weight, size_t n)
{
	struct chi_square result = { .df = -1, .p = 1 };
	double total = 0, weights = 0;

	for (size_t i = 0; i < n; i++) {
		total += (double)seen[i];
		weights += weight[i];
	}
	for (size_t i = 0; i < n; i++) {
		double expected = weights > 0 ? total * weight[i] / weights : 0;
		double off = (double)seen[i] - expected;

		if (expected > 0) {
			result.statistic += off * off / expected;
			result.df += 1;
		} else if (seen[i]) {
			result.statistic = (double)INFINITY;
		}
	}
	if (result.df > 0)
		result.p = chi_square_p(result.statistic, result.df);
	else
		result.df = 0;
	if (isinf(result.statistic))
		result.p = 0;
	return result;
}
