#include "program/units.h"

#include <errno.h>
#include <math.h>

#include "base/bits.h"
#include "tests/support/test.h"

static void check_bytes(const char *text, uint64_t expected)
{
	uint64_t value = 0;

	assert_int_equal(units_parse_bytes(text, &value), 0);
	assert_true(value == expected);
}

static void check_count(const char *text, uint64_t expected)
{
	uint64_t value = 0;

	assert_int_equal(units_parse_count(text, &value), 0);
	assert_true(value == expected);
}

TEST(units_parse_bytes__prefixes_are_powers_of_1024)
{
	check_bytes("0", 0);
	check_bytes("4096", 4096);
	check_bytes("18446744073709551615", UINT64_MAX);
	check_bytes("64K", 65536);
	check_bytes("64k", 65536);
	check_bytes("2MiB", UINT64_C(2) << 20);
	check_bytes("2MB", UINT64_C(2) << 20);
	check_bytes("1.5G", UINT64_C(3) << 29);
	check_bytes("16B", 16);
	check_bytes("1T", UINT64_C(1) << 40);
}

TEST(units_parse_count__prefixes_are_powers_of_1000)
{
	check_count("1000000", 1000000);
	check_count("500k", 500000);
	check_count("2M", 2000000);
	check_count("64Ki", 65536);
	check_count("1e6", 1000000);
	check_count("2^20", 1048576);
	check_count("2^0", 1);
	check_count("1.5k", 1500);
}

TEST(units_parse__what_is_no_size_is_einval)
{
	static const char *const bad[] = { "",    "K",     "-1",   "1Q",      "0x10",  "nan",
					   "inf", "1.2.3", "64K8", "1 M",     "1e",    "2^",
					   "^3",  "2^x",   "0.5",  "1.0001K", "1e400", "e6" };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		uint64_t value = 7;

		assert_int_not_equal(units_parse_bytes(bad[i], &value), 0);
		assert_int_not_equal(units_parse_count(bad[i], &value), 0);
		assert_true(value == 7);
	}
}

TEST(units_parse__what_does_not_fit_is_erange)
{
	uint64_t value;

	assert_int_equal(units_parse_bytes("16384P", &value), -ERANGE);
	assert_int_equal(units_parse_count("2^64", &value), -ERANGE);
	assert_int_equal(units_parse_count("10^99", &value), -ERANGE);
	assert_int_equal(units_parse_count("99999999999999999999", &value), -ERANGE);
}

TEST(units_parse_duration__units)
{
	int64_t ns;

	assert_int_equal(units_parse_duration("2", &ns), 0);
	assert_true(ns == 2000000000);
	assert_int_equal(units_parse_duration("1.5s", &ns), 0);
	assert_true(ns == 1500000000);
	assert_int_equal(units_parse_duration("500ms", &ns), 0);
	assert_true(ns == 500000000);
	assert_int_equal(units_parse_duration("50us", &ns), 0);
	assert_true(ns == 50000);
	assert_int_equal(units_parse_duration("3m", &ns), 0);
	assert_true(ns == INT64_C(180000000000));
	assert_int_equal(units_parse_duration("3h", &ns), -EINVAL);
	assert_int_equal(units_parse_duration("-1s", &ns), -EINVAL);
	assert_int_equal(units_parse_duration("99999999999", &ns), -ERANGE);
}

TEST(units_parse_number__takes_a_sign_and_no_more)
{
	double value;

	assert_int_equal(units_parse_number("-0.25", &value), 0);
	assert_true(value == -0.25);
	assert_int_equal(units_parse_number("1e3", &value), 0);
	assert_true(value == 1000);
	assert_int_equal(units_parse_number("1k", &value), -EINVAL);
	assert_int_equal(units_parse_number("--1", &value), -EINVAL);
}

TEST(units_format_si__three_figures)
{
	char text[UNITS_TEXT_BYTES];

	assert_string_equal(units_format_si(0, text), "0.00");
	assert_string_equal(units_format_si(512, text), "512");
	assert_string_equal(units_format_si(999.4, text), "999");
	assert_string_equal(units_format_si(999.6, text), "1.00 k");
	assert_string_equal(units_format_si(43.1e6, text), "43.1 M");
	assert_string_equal(units_format_si(9.996e6, text), "10.0 M");
	assert_string_equal(units_format_si(1.234e9, text), "1.23 G");
	assert_string_equal(units_format_si((double)NAN, text), "-");
}

TEST(units_format_bytes__powers_of_1024)
{
	char text[UNITS_TEXT_BYTES];

	assert_string_equal(units_format_bytes(64, text), "64 B");
	assert_string_equal(units_format_bytes(1536, text), "1.50 KiB");
	assert_string_equal(units_format_bytes(UINT64_C(1) << 30, text), "1 GiB");
	assert_string_equal(units_format_bytes(UINT64_MAX, text), "16 EiB");
}

int main(void)
{
	return test_run(NULL, NULL);
}
