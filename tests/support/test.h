/* test.h - include of every cmocka test: cmocka with the headers that it needs, and the seed. */
#ifndef RLV_TESTS_SUPPORT_TEST_H
#define RLV_TESTS_SUPPORT_TEST_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* Exit status of a test program whose hardware or tool is missing: shown as skipped. */
#define TEST_EXIT_SKIP 77

#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
#define TEST_MSAN 1
#endif
#endif
#ifndef TEST_MSAN
#define TEST_MSAN 0
#endif

/*
 * MSan takes memory written by uninstrumented libraries for uninitialised: a test that calls one of
 * Debian's calls this and returns TEST_EXIT_SKIP.
 */
static inline bool test_skips_msan(const char *library)
{
	if (TEST_MSAN)
		print_message("skipped: %s is not built for MSan\n", library);
	return TEST_MSAN;
}

/*
 * Under valgrind a forked child answers for the memory of its parent, and there are no pidfds before
 * 3.20: a test program that needs either says so here and returns TEST_EXIT_SKIP.
 */
static inline bool test_skips_valgrind(const char *why)
{
	bool under = getenv("RLV_TEST_VALGRIND") != NULL;

	if (under)
		print_message("skipped: under valgrind: %s\n", why);
	return under;
}

#define TEST_RUN(tests, setup, teardown) cmocka_run_group_tests(tests, setup, teardown)

/*
 * A test registers itself, so it needs no line in a table:
 *
 *   TEST(name) { .. }                        or, with a setup and a teardown:
 *   TEST_WITH(name, setup, teardown) { .. }  `state` is set by setup
 *
 * main calls test_run, which runs them in the order of their lines.
 */
#define TEST(name) TEST_WITH(name, NULL, NULL)
#define TEST_WITH(name, setup, teardown) \
	static void name(void **state); \
	__attribute__((constructor)) static void name##__registers(void) \
	{ \
		static struct test_case entry = { \
			cmocka_unit_test_setup_teardown(name, setup, teardown), \
			__LINE__, \
			NULL, \
		}; \
\
		test_register(&entry); \
	} \
	static void name(__attribute__((unused)) void **state)

#define TEST_MOST 128 /* of a program */

struct test_case {
	struct CMUnitTest test;
	int line;
	struct test_case *next;
};

static struct test_case *test_cases; /* in the order of their lines */

static inline void test_register(struct test_case *entry)
{
	struct test_case **at = &test_cases;

	while (*at && (*at)->line < entry->line)
		at = &(*at)->next;
	entry->next = *at;
	*at = entry;
}

/* Runs all tests; setup and teardown are the group's. Returns the number of failed tests. */
static inline int test_run(CMFixtureFunction setup, CMFixtureFunction teardown)
{
	struct CMUnitTest tests[TEST_MOST];
	size_t n = 0;

	for (const struct test_case *entry = test_cases; entry; entry = entry->next) {
		if (n == TEST_MOST) {
			print_error("more than %d tests in a program\n", TEST_MOST);
			return EXIT_FAILURE;
		}
		tests[n++] = entry->test;
	}
	return _cmocka_run_group_tests("tests", tests, n, setup, teardown);
}

/* The seed of a random test: RLV_TEST_SEED, or usual. Printed, so that a failure can be repeated. */
static inline uint64_t test_seed(const char *name, uint64_t usual)
{
	const char *text = getenv("RLV_TEST_SEED");
	uint64_t seed = text && *text ? strtoull(text, NULL, 0) : usual;

	print_message("seed of %s: RLV_TEST_SEED=%llu\n", name, (unsigned long long)seed);
	return seed;
}

/*
 * Pearson's chi-square of n counts against the expected numbers, as a standard normal by
 * Wilson and Hilferty: above 5 is one run in three million. Expect at least 5 of each.
 */
static inline double test_chi_square_z(const uint64_t *seen, const double *expected, size_t n)
{
	double chi = 0, df = (double)n - 1, variance = 2 / (9 * df);

	for (size_t i = 0; i < n; i++) {
		double d = (double)seen[i] - expected[i];

		chi += d * d / expected[i];
	}
	return (cbrt(chi / df) - (1 - variance)) / sqrt(variance);
}

#endif
