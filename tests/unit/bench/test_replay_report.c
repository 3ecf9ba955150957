#include "bench/replay/report.h"

#include <math.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "tests/support/test.h"

TEST(series_spread__best_follows_the_direction)
{
	const struct series series = { .n = 5, .value = { 3, 1, 5, 2, 4 } };
	struct spread up = series_spread(&series, true);
	struct spread down = series_spread(&series, false);

	assert_true(up.best == 5 && up.median == 3 && up.min == 1 && up.max == 5);
	assert_true(down.best == 1 && down.median == 3 && down.min == 1 && down.max == 5);
	assert_true(series.value[0] == 3);
}

TEST(series_spread__nothing_is_nan)
{
	const struct series series = { .n = 0 };

	assert_true(isnan(series_spread(&series, true).best));
}

static struct series counted(uint32_t n)
{
	struct series series = { .n = n };

	for (uint32_t i = 0; i < n; i++)
		series.value[(i * 7) % n] = i + 1; /* 7 divides no n here */
	return series;
}

/* The ranks are those of the tables of the sign test. */
TEST(series_interval__is_that_of_the_sign_test)
{
	static const struct {
		uint32_t n, low;
	} known[] = { { 1, 1 },  { 5, 1 },  { 6, 1 },  { 8, 1 },   { 9, 2 },
		      { 15, 4 }, { 20, 6 }, { 25, 8 }, { 40, 14 }, { 64, 24 } };

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		uint32_t n = known[i].n;
		struct series series = counted(n);
		struct interval got = series_interval(&series);

		assert_true(got.low == known[i].low && got.high == n + 1 - known[i].low);
		assert_true(got.median == (n + 1) / 2.0);
	}
	assert_true(isnan(series_interval(&(struct series){ .n = 0 }).low));
}

TEST(series_ratio__is_of_windows_that_both_have)
{
	const struct series a = { .n = 3, .value = { 1, 2, 4 } }, b = { .n = 2, .value = { 2, 1 } };
	struct series ratio = series_ratio(&a, &b);

	assert_int_equal(ratio.n, 2);
	assert_true(ratio.value[0] == 2 && ratio.value[1] == 0.5);
}

static struct replay_case *make_case(void)
{
	struct replay_case *c = mem_zalloc(sizeof(*c));

	assert_non_null(c);
	replay_config_init(&c->config);
	snprintf(c->config.label, sizeof(c->config.label), "a case");
	c->series[ROLE_SAMPLE][REPLAY_ITEMS] = (struct series){ .n = 2, .value = { 1000, 2000 } };
	c->series[ROLE_SAMPLE][REPLAY_P50] = (struct series){ .n = 2, .value = { 12, 11 } };
	c->line_ns = (struct series){ .n = 1, .value = { 9.5 } };
	return c;
}

TEST(replay_report_json__one_object_a_metric)
{
	struct replay_case *c = make_case();
	char text[16384] = "";
	FILE *file = fmemopen(text, sizeof(text), "w");
	struct json json;

	assert_non_null(file);
	json_init(&json, file);
	replay_report_json(c, "embed:", &json);
	assert_int_equal(json_finish(&json), 0);
	assert_non_null(strstr(text,
			       "{\"bench\":\"replay\",\"metric\":\"items_per_s\",\"value\":2000,"
			       "\"unit\":\"1/s\",\"params\":{\"role\":\"sample\","));
	assert_non_null(strstr(text, "\"metric\":\"p50_us\",\"value\":11,"));
	assert_non_null(strstr(text, "\"metric\":\"calib_line_ns\",\"value\":9.5,"));
	assert_non_null(strstr(text, "\"best\":2000,\"median\":1500,\"min\":1000,"));
	assert_null(strstr(text, "\"role\":\"insert\""));
	fclose(file);
	mem_free(c);
}

TEST(replay_report_text__shows_what_was_measured)
{
	struct replay_case *c = make_case();
	char text[4096] = "";
	FILE *file = fmemopen(text, sizeof(text), "w");

	assert_non_null(file);
	c->redraws = 3;
	assert_int_equal(replay_report_text(c, 1, file), 0);
	fclose(file);
	assert_non_null(strstr(text, "a case  sample        2.00 k"));
	assert_non_null(strstr(text, "corrupt reads caught 3"));
	assert_null(strstr(text, "insert"));
	mem_free(c);
}

int main(void)
{
	return test_run(NULL, NULL);
}
