#include "bench/replay/chi_square.h"

#include <math.h>

#define MAX_TERMS 10000
#define PRECISION 1e-15
#define TINY 1e-300

/* Regularised lower incomplete gamma function, by its power series: accurate for x < a + 1. */
static double gamma_series(double a, double x)
{
	double term = 1 / a, sum = term;

	for (int i = 1; i < MAX_TERMS && term > sum * PRECISION; i++) {
		term *= x / (a + i);
		sum += term;
	}
	return sum * exp(a * log(x) - x - lgamma(a));
}

/* Regularised upper incomplete gamma function, by its continued fraction (modified Lentz). */
static double gamma_fraction(double a, double x)
{
	double b = x + 1 - a, c = 1 / TINY, d = 1 / b, value = d;

	for (int i = 1; i < MAX_TERMS; i++) {
		double step = -i * (i - a);

		b += 2;
		d = step * d + b;
		d = 1 / (fabs(d) < TINY ? TINY : d);
		c = b + step / c;
		c = fabs(c) < TINY ? TINY : c;
		value *= c * d;
		if (fabs(c * d - 1) < PRECISION)
			break;
	}
	return value * exp(a * log(x) - x - lgamma(a));
}

double chi_square_p(double statistic, double df)
{
	double a = df / 2, x = statistic / 2;

	if (!(x > 0))
		return 1;
	if (isinf(x))
		return 0;
	return x < a + 1 ? 1 - gamma_series(a, x) : gamma_fraction(a, x);
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
