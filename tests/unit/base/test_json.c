#include "base/json.h"

#include <errno.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/rng.h"
#include "tests/support/test.h"

static struct json json;
static FILE *stream;
static char *text; /* output after a flush */
static size_t len;

static int open_stream(void **state)
{
	(void)state;
	stream = open_memstream(&text, &len);
	assert_non_null(stream);
	json_init(&json, stream);
	return 0;
}

static int close_stream(void **state)
{
	(void)state;
	fclose(stream);
	free(text);
	return 0;
}

static const char *written(void)
{
	assert_int_equal(fflush(stream), 0);
	return text;
}

static void write_document(struct json *out)
{
	json_object_begin(out);
	json_put_string(out, "bench", "micro");
	json_put_double(out, "value", 41.2);
	json_key(out, "params");
	json_object_begin(out);
	json_put_u64(out, "leaves", 1048576);
	json_put_i64(out, "delta", -3);
	json_put_bool(out, "evicted", false);
	json_object_end(out);
	json_key(out, "list");
	json_array_begin(out);
	json_u64(out, UINT64_MAX);
	json_string(out, NULL);
	json_array_begin(out);
	json_array_end(out);
	json_bool(out, true);
	json_array_end(out);
	json_object_end(out);
	json_newline(out);
}

#define DOCUMENT \
	"{\"bench\":\"micro\",\"value\":41.2,\"params\":{\"leaves\":1048576,\"delta\":-3," \
	"\"evicted\":false},\"list\":[18446744073709551615,null,[],true]}\n"

#define ON_STREAM(test) TEST_WITH(test, open_stream, close_stream)

ON_STREAM(json__nested_document)
{
	assert_string_equal(written(), "");
	write_document(&json);
	write_document(&json);
	assert_int_equal(json_finish(&json), 0);
	assert_string_equal(written(), DOCUMENT DOCUMENT);
}

TEST(json__full_disk_is_eio)
{
	FILE *file = fopen("/dev/full", "w");
	struct json out;

	if (!file)
		skip();
	json_init(&out, file);
	write_document(&out);
	assert_int_equal(json_finish(&out), -EIO);
	fclose(file);
}

ON_STREAM(json_string__escapes)
{
	json_string(&json, "a\"b\\c\n\r\t\b\f\x01\x1f\x7f/\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
	assert_int_equal(json_finish(&json), 0);
	assert_string_equal(written(), "\"a\\\"b\\\\c\\n\\r\\t\\b\\f\\u0001\\u001f\x7f/"
				       "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"");
}

TEST(json_string__bad_utf8_is_replaced)
{
	static const char *const bad[] = {
		"\x80", "\xC0\xAF", "\xE0\x80\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80",
		"\xF8", "\xE2\x82", "\xC3",
	};
	static const size_t replaced[] = { 1, 2, 3, 3, 4, 1, 2, 1 };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		open_stream(NULL);
		json_string(&json, bad[i]);
		json_newline(&json);
		assert_int_equal(json_finish(&json), 0);
		assert_int_equal(len, 3 + 3 * replaced[i]);
		assert_memory_equal(written() + 1, "\xEF\xBF\xBD", 3);
		close_stream(NULL);
	}
}

ON_STREAM(json_string__null_is_null)
{
	json_string(&json, NULL);
	assert_int_equal(json_finish(&json), 0);
	assert_string_equal(written(), "null");
}

static void check_double(double value)
{
	open_stream(NULL);
	json_double(&json, value);
	assert_int_equal(json_finish(&json), 0);
	assert_true(strtod(written(), NULL) == value);
	close_stream(NULL);
}

TEST(json_double__reads_back_the_same)
{
	struct rng rng;

	check_double(0.1);
	check_double(1.0 / 3);
	check_double(DBL_MAX);
	check_double(-DBL_MIN);
	check_double(0x1p-1074);
	rng_seed(&rng, test_seed(__func__, 51), 0);
	for (int i = 0; i < 2000; i++) {
		uint64_t bits = rng_next_u64(&rng);
		double value;

		memcpy(&value, &bits, sizeof(value));
		if (isfinite(value))
			check_double(value);
	}
}

ON_STREAM(json_double__is_short_where_it_can)
{
	json_array_begin(&json);
	json_double(&json, 0.1);
	json_double(&json, 41.2);
	json_double(&json, 1e300);
	json_double(&json, 100);
	json_double(&json, -0.5);
	json_array_end(&json);
	assert_string_equal(written(), "[0.1,41.2,1e+300,100,-0.5]");
}

ON_STREAM(json_double__what_is_not_a_number_is_null)
{
	json_array_begin(&json);
	json_double(&json, (double)NAN);
	json_double(&json, (double)INFINITY);
	json_double(&json, (double)-INFINITY);
	json_array_end(&json);
	assert_int_equal(json_finish(&json), 0);
	assert_string_equal(written(), "[null,null,null]");
}

static void value_without_key(void)
{
	json_object_begin(&json);
	json_u64(&json, 1);
	json_object_end(&json);
}

static void key_without_value(void)
{
	json_object_begin(&json);
	json_key(&json, "a");
	json_object_end(&json);
}

static void key_in_array(void)
{
	json_array_begin(&json);
	json_key(&json, "a");
	json_array_end(&json);
}

static void key_outside(void)
{
	json_key(&json, "a");
}

static void wrong_end(void)
{
	json_array_begin(&json);
	json_object_end(&json);
}

static void end_of_nothing(void)
{
	json_object_end(&json);
}

static void left_open(void)
{
	json_array_begin(&json);
}

static void newline_inside(void)
{
	json_array_begin(&json);
	json_newline(&json);
	json_array_end(&json);
}

static void two_on_a_line(void)
{
	json_u64(&json, 1);
	json_u64(&json, 2);
}

static void too_deep(void)
{
	for (int i = 0; i <= JSON_DEPTH_MAX; i++)
		json_array_begin(&json);
	for (int i = 0; i < JSON_DEPTH_MAX; i++)
		json_array_end(&json);
}

TEST(json_finish__call_out_of_place_is_einval)
{
	static void (*const wrong[])(void) = {
		value_without_key, key_without_value, key_in_array,   key_outside,   wrong_end,
		end_of_nothing,    left_open,         newline_inside, two_on_a_line, too_deep,
	};

	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		open_stream(NULL);
		wrong[i]();
		assert_int_equal(json_finish(&json), -EINVAL);
		close_stream(NULL);
	}
}

ON_STREAM(json__deepest_nesting_works)
{
	for (int i = 0; i < JSON_DEPTH_MAX; i++)
		json_array_begin(&json);
	for (int i = 0; i < JSON_DEPTH_MAX; i++)
		json_array_end(&json);
	assert_int_equal(json_finish(&json), 0);
}

int main(void)
{
	return test_run(NULL, NULL);
}
