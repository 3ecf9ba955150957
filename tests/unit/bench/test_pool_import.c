/* Job tables and memory traces: what is read, and the line that a bad row is named by. */
#include "bench/pool/import.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "bench/pool/trace.h"
#include "tests/support/test.h"

#define GIB (1024.0 * 1024 * 1024)

static char path[64];
static struct job_table table;
static struct traces traces;

static void write_file(const char *text)
{
	FILE *file;

	snprintf(path, sizeof(path), "/tmp/rlv-import-%d", (int)getpid());
	file = fopen(path, "w");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static int read_as(enum import_format format, const char *text)
{
	const struct import_opts opts = { format, 16 * GIB, 0.5, 2 * GIB };
	int ret;

	write_file(text);
	job_table_free(&table);
	ret = job_table_read(path, &opts, &table);
	unlink(path);
	return ret;
}

static bool close_to(double a, double b)
{
	return fabs(a - b) < 1e-6 * (1 + fabs(b));
}

TEST(job_table_read__salus)
{
	assert_int_equal(read_as(IMPORT_SALUS,
				 "tiny_8_2min,120.5,512,240,train --model tiny\n"
				 "\n"
				 "wide_64_9min, 540 ,8192.5,90,train --model wide\r\n"),
			 0);
	assert_int_equal(table.n, 2);
	assert_true(close_to(table.rows[0].duration_s, 120.5));
	assert_true(close_to(table.rows[0].peak_bytes, GIB / 2));
	assert_int_equal(table.rows[1].iterations, 90);
	assert_true(close_to(table.rows[1].duration_s, 540));
	job_table_free(&table);
}

TEST(job_table_read__openb_by_the_names_of_its_columns)
{
	/* Another order of columns; a CPU pod, one of 2 GPUs, one that never ran. */
	assert_int_equal(
		read_as(IMPORT_OPENB,
			"num_gpu,name,gpu_milli,qos,scheduled_time,creation_time,deletion_time\n"
			"1,late,1000,LS,900,800,1000\n"
			"1,early,250,BE,100,100,700\n"
			"0,cpu,0,BE,1,1,2\n"
			"2,pair,1000,LS,1,1,2\n"
			"1,never,500,BE,,5,6\n"),
		0);
	assert_int_equal(table.n, 2);
	assert_int_equal(table.left_out, 3);
	assert_true(close_to(table.rows[0].arrival_s, 0));
	assert_true(close_to(table.rows[0].duration_s, 600));
	assert_true(close_to(table.rows[0].demand, 0.25));
	assert_true(close_to(table.rows[0].peak_bytes, 4 * GIB));
	assert_true(close_to(table.rows[1].arrival_s, 700));
	job_table_free(&table);
}

TEST(job_table_read__philly)
{
	assert_int_equal(read_as(IMPORT_PHILLY, "Small\tpython3 a.py -x 1\t--steps\t600\t30\t1\n"
						"Large\tpython3 b.py\t-n\t10\t10\t8\n"
						"Other\t\t-n\t20\t50\t1\n"),
			 0);
	assert_int_equal(table.n, 2);
	assert_int_equal(table.left_out, 1);
	assert_true(close_to(table.rows[0].duration_s, 300));
	assert_true(close_to(table.rows[1].arrival_s, 20));
	assert_true(close_to(table.rows[1].peak_bytes, 2 * GIB));
	job_table_free(&table);
}

TEST(job_table_read__bad_rows_are_named)
{
	static const struct {
		enum import_format format;
		const char *text, *message;
	} cases[] = {
		{ IMPORT_SALUS, "a,10,10,5,x\nb,ten,10,5,x\n",
		  ":2: seconds 'ten' is not a number" },
		{ IMPORT_SALUS, "a,10,10\n", ":1: no iterations" },
		{ IMPORT_SALUS, "# a\n\na,-1,10,5,x\n", ":3: seconds -1 is not between" },
		{ IMPORT_SALUS, "a,1,10,0,x\n", ":1: iterations 0 is not between" },
		{ IMPORT_SALUS, "a,nan,10,1,x\n", ":1: seconds 'nan' is not a number" },
		{ IMPORT_OPENB, "name,num_gpu,gpu_milli,creation_time\n",
		  ":1: the header has no column deletion_time" },
		{ IMPORT_OPENB,
		  "name,num_gpu,gpu_milli,creation_time,deletion_time,scheduled_time\n"
		  "p,1,500,10,20,30\n",
		  ":2: deletion_time 20 is not between" },
		{ IMPORT_OPENB,
		  "name,num_gpu,gpu_milli,creation_time,deletion_time,scheduled_time\n"
		  "p,1,1500,10,40,30\n",
		  ":2: gpu_milli 1500 of one GPU" },
		{ IMPORT_OPENB,
		  "name,num_gpu,gpu_milli,creation_time,deletion_time,scheduled_time\np,1\n",
		  ":2: no gpu_milli" },
		{ IMPORT_PHILLY, "A\tx\t-n\t5\n", ":1: no arrival" },
		{ IMPORT_PHILLY, "A\tx\t-n\t5\t-3\t1\n", ":1: arrival -3 is not between" },
		{ IMPORT_PHILLY, "A,x,-n,5,3,1\n", ":1: no steps" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_int_equal(read_as(cases[i].format, cases[i].text), -EINVAL);
		if (!strstr(error_last(), cases[i].message))
			fail_msg("%s: not %s", error_last(), cases[i].message);
		job_table_free(&table);
	}
}

TEST(job_table_read__long_lines_and_empty_files)
{
	static char text[3000];

	memset(text, 'x', sizeof(text) - 2);
	assert_int_equal(read_as(IMPORT_SALUS, text), -EINVAL);
	assert_non_null(strstr(error_last(), ":1: the line has more than"));
	memset(text, ',', 100);
	text[100] = '\0';
	assert_int_equal(read_as(IMPORT_SALUS, text), -EINVAL);
	assert_non_null(strstr(error_last(), ":1: more than 32 fields"));
	assert_int_equal(read_as(IMPORT_SALUS, "# none\n"), -ENODATA);
	assert_int_equal(job_table_read("/nonexistent", &(struct import_opts){ 0 }, &table),
			 -ENOENT);
}

static int read_traces(const char *text)
{
	int ret;

	write_file(text);
	ret = traces_read(path, &traces);
	unlink(path);
	return ret;
}

TEST(traces_read__points_become_curves)
{
	struct curve scaled;

	assert_int_equal(read_traces("# comment\n"
				     "trace one cpu 2560 77 3\n0 5\n1280 9\n2000 1\n"
				     "trace two cpu 1000 0 1\n500 4\n"),
			 0);
	assert_int_equal(traces.n, 2);
	assert_null(traces_find(&traces, "three"));
	assert_int_equal(traces_find(&traces, "one")->persistent, 77);
	assert_int_equal(curve_at(&traces.traces[0].curve, 1279), 5);
	assert_int_equal(curve_at(&traces.traces[0].curve, 1280), 9);
	assert_int_equal(curve_at(&traces.traces[0].curve, 2559), 1);
	assert_int_equal(curve_at(&traces.traces[1].curve, 0), 0);
	trace_scaled(&traces.traces[0], 25600, 90, &scaled);
	assert_int_equal(scaled.peak, 90);
	assert_int_equal(curve_at(&scaled, 12799), 50);
}

TEST(traces_read__bad_lines_are_named)
{
	static const struct {
		const char *text, *message;
	} cases[] = {
		{ "", ":0: no trace" },
		{ "1 2\n", ":1: expected one of at most 16 lines: trace NAME" },
		{ "trace a cpu 5 0 1\n0 1\n", ":1: period 5 is not between" },
		{ "trace a cpu 500 0 2\n0 1\n", ":2: trace a ends after 1 of its points" },
		{ "trace a cpu 500 0 2\n9 1\n8 1\n", ":3: time 8 is not between 9 and 500" },
		{ "trace a cpu 500 0 1\n9\n", ":2: no bytes" },
		{ "trace a-name-that-is-much-too-long cpu 500 0 1\n0 1\n", ":1: the name has" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_int_equal(read_traces(cases[i].text), -EINVAL);
		if (!strstr(error_last(), cases[i].message))
			fail_msg("%s: not %s", error_last(), cases[i].message);
	}
}

TEST(traces_read__recorded_ones)
{
	static const char *const files[] = { RLV_TEST_SOURCE_DIR "/tests/data/pool-traces.txt",
					     RLV_TEST_SOURCE_DIR
					     "/tests/data/pool-traces-gpu.txt" };

	for (size_t f = 0; f < ARRAY_LEN(files); f++) {
		assert_int_equal(traces_read(files[f], &traces), 0);
		assert_int_equal(traces.n, 6);
		for (uint32_t i = 0; i < traces.n; i++)
			assert_true(traces.traces[i].curve.peak > (uint64_t)10 << 20);
	}
}

int main(void)
{
	return test_run(NULL, NULL);
}
