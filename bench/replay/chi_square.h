/*
 * chi_square.h - Pearson's chi-squared test of counts against expected shares.
 */
#ifndef RLV_BENCH_REPLAY_CHI_SQUARE_H
#define RLV_BENCH_REPLAY_CHI_SQUARE_H

#include <stddef.h>
#include <stdint.h>

/* P(X >= statistic) for X chi-square distributed with df degrees of freedom, 1, 2, .. */
double chi_square_p(double statistic, double df);

struct chi_square {
	double statistic;
	double df;
	double p; /* 1 if there is nothing to compare */
};

/*
 * Tests n counts against shares proportional to weight (not negative). A class of weight 0 with a
 * count makes the statistic infinite and p 0.
 */
struct chi_square chi_square_test(const uint64_t *seen, const double *weight, size_t n);

#endif
