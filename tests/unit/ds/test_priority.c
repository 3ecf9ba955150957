/* Priorities and weights against libm, at every vector level. */
#include "tests/support/test.h"

#include <errno.h>
#include <float.h>
#include <string.h>

#include "ds/replay/priority.h"

#include "base/bits.h"
#include "base/os/cpu.h"
#include "base/error.h"
#include "base/rng.h"

#define N 1003u /* no multiple of a vector */

static const enum cpu_level levels[] = { CPU_PLAIN, CPU_AVX2, CPU_AVX512 };

static struct view_desc view_of(double alpha, double eps)
{
	return (struct view_desc){
		.alpha = alpha,
		.eps = eps,
		.scale = 1u << 20,
		.max_prio = ((uint64_t)1 << 40) - 1,
	};
}

static int lift_limit(void **state)
{
	(void)state;
	cpu_level_limit(CPU_AVX512);
	return 0;
}

/* Values of every size, with the ends and the special ones among them. */
static void fill_values(float *values, uint64_t seed)
{
	static const float special[] = { 0, FLT_MIN, FLT_TRUE_MIN, 1, 1e-6f, 2, 1e6f, FLT_MAX };
	struct rng rng;

	rng_seed(&rng, seed, 0);
	for (uint32_t i = 0; i < N; i++)
		values[i] = (float)exp2(rng_uniform_double(&rng) * 40 - 25);
	memcpy(values, special, sizeof(special));
}

static double exact_quanta(const struct view_desc *view, double td)
{
	double quanta = pow(td + view->eps, view->alpha) * (double)view->scale;

	if (quanta > (double)view->max_prio)
		return (double)view->max_prio;
	return quanta < 1 ? 1 : quanta;
}

TEST(priority_from_td__is_libm_rounded_up)
{
	static const double alphas[] = { 0, 0.1, 0.4, 0.6, 0.7, 1, 2 };
	static const double epss[] = { 0, 1e-6, 0.01 };
	uint64_t seed = test_seed("priority_from_td", 3), clamped = 0;
	float td[N];
	uint64_t quanta[N];

	fill_values(td, seed);
	for (uint32_t a = 0; a < ARRAY_LEN(alphas) * ARRAY_LEN(epss); a++) {
		struct view_desc view =
			view_of(alphas[a / ARRAY_LEN(epss)], epss[a % ARRAY_LEN(epss)]);

		priority_from_td(&view, td, N, quanta, &clamped);
		for (uint32_t i = 0; i < N; i++) {
			double exact = exact_quanta(&view, td[i]);

			assert_true((double)quanta[i] >= exact * (1 - 1e-11));
			assert_true((double)quanta[i] <= exact * (1 + 1e-11) + 1);
		}
	}
}

TEST_WITH(priority_from_td__same_bits_at_every_level, NULL, lift_limit)
{
	uint64_t seed = test_seed("priority levels", 5), clamped[3] = { 0 };
	static uint64_t quanta[3][N];
	struct view_desc view = view_of(0.6, 1e-6);
	float td[N];

	fill_values(td, seed);
	for (uint32_t l = 0; l < 3; l++) {
		cpu_level_limit(levels[l]);
		priority_from_td(&view, td, N, quanta[l], &clamped[l]);
	}
	assert_memory_equal(quanta[0], quanta[1], sizeof(quanta[0]));
	assert_memory_equal(quanta[0], quanta[2], sizeof(quanta[0]));
	assert_int_equal(clamped[0], clamped[1]);
	assert_int_equal(clamped[0], clamped[2]);
}

TEST(priority_from_td__zero_is_one_quantum)
{
	struct view_desc view = view_of(0.6, 0);
	const float td[2] = { 0, FLT_TRUE_MIN };
	uint64_t quanta[2], clamped = 0;

	priority_from_td(&view, td, 2, quanta, &clamped);
	assert_int_equal(quanta[0], 1);
	assert_int_equal(quanta[1], 1);
	assert_int_equal(clamped, 0);
}

TEST(priority_from_td__alpha_0_is_uniform)
{
	struct view_desc view = view_of(0, 0);
	const float td[3] = { 0, 3, FLT_MAX };
	uint64_t quanta[3], clamped = 0;

	priority_from_td(&view, td, 3, quanta, &clamped);
	for (int i = 0; i < 3; i++)
		assert_int_equal(quanta[i], view.scale);
}

TEST(priority_from_td__too_large_is_clamped_and_counted)
{
	struct view_desc view = view_of(1, 0);
	const float td[3] = { 1, 1e30f, FLT_MAX };
	uint64_t quanta[3], clamped = 40;

	priority_from_td(&view, td, 3, quanta, &clamped);
	assert_int_equal(quanta[0], view.scale);
	assert_int_equal(quanta[1], view.max_prio);
	assert_int_equal(quanta[2], view.max_prio);
	assert_int_equal(clamped, 42);
}

TEST(priority_quanta_one__is_what_arrays_give)
{
	struct view_desc view = view_of(0.6, 1e-6);
	uint64_t quanta[N], clamped = 0;
	float td[N];

	fill_values(td, 9);
	priority_from_td(&view, td, N, quanta, &clamped);
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(priority_quanta_one(&view, td[i], &clamped), quanta[i]);
}

TEST(priority_from_value__scales_only)
{
	struct view_desc view = view_of(0.6, 1e-6);
	const float values[3] = { 1, 0.5f, 3.25f };
	uint64_t quanta[3], clamped = 0;

	priority_from_value(&view, values, 3, quanta, &clamped);
	assert_int_equal(quanta[0], view.scale);
	assert_int_equal(quanta[1], view.scale / 2);
	assert_int_equal(quanta[2], view.scale * 13 / 4);
}

TEST(priority_to_value__undoes_from_value)
{
	struct view_desc view = view_of(0.6, 1e-6);
	const float values[3] = { 1, 0.5f, 3.25f };
	uint64_t quanta[3], clamped = 0;
	float back[3];

	priority_from_value(&view, values, 3, quanta, &clamped);
	for (int i = 0; i < 3; i++)
		quanta[i] = leaf_make(3, LEAF_GEN_MASK, quanta[i]);
	priority_to_value(&view, quanta, 3, back);
	for (int i = 0; i < 3; i++)
		assert_true(back[i] == values[i]);
}

TEST(priority_check__names_the_first_bad_value)
{
	static const float bad[] = { NAN, -NAN, -1, -FLT_TRUE_MIN, INFINITY, -INFINITY };
	float values[5] = { 0, 1, 0, 4, 5 };

	assert_int_equal(priority_check(values, 5), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		values[2] = bad[i];
		assert_int_equal(priority_check(values, 5), -EINVAL);
		assert_non_null(strstr(error_last(), "priorities[2]"));
	}
}

static void fill_probabilities(double *p, uint64_t seed)
{
	struct rng rng;

	rng_seed(&rng, seed, 0);
	for (uint32_t i = 0; i < N; i++)
		p[i] = exp2(-1 - rng_uniform_double(&rng) * 50);
}

static void expect_weights(const double *p, double beta, bool by_max)
{
	double items = 1e6, least = 1;
	float weights[N];

	for (uint32_t i = 0; i < N; i++)
		least = p[i] < least ? p[i] : least;
	priority_weights(p, N, by_max ? 0 : items, beta, weights);
	for (uint32_t i = 0; i < N; i++) {
		double exact = pow(by_max ? p[i] / least : p[i] * items, -beta);

		assert_true(fabs(weights[i] - exact) <= 2 * FLT_EPSILON * exact);
		if (by_max)
			assert_true(weights[i] <= 1);
	}
}

TEST(priority_weights__are_libm_s_within_2_ulp)
{
	static const double betas[] = { 0, 0.4, 0.5, 1, 1.7 };
	double p[N];

	fill_probabilities(p, test_seed("priority_weights", 12));
	for (size_t b = 0; b < ARRAY_LEN(betas); b++) {
		expect_weights(p, betas[b], true);
		expect_weights(p, betas[b], false);
	}
}

TEST_WITH(priority_weights__same_bits_at_every_level, NULL, lift_limit)
{
	static float weights[3][N];
	double p[N];

	fill_probabilities(p, 13);
	for (uint32_t l = 0; l < 3; l++) {
		cpu_level_limit(levels[l]);
		priority_weights(p, N, 0, 0.4, weights[l]);
	}
	assert_memory_equal(weights[0], weights[1], sizeof(weights[0]));
	assert_memory_equal(weights[0], weights[2], sizeof(weights[0]));
}

int main(void)
{
	return test_run(NULL, NULL);
}
