/* The relive command as users see it: exit codes, output, and files left behind. */
#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/os/process.h"
#include "bench/harness/canvas.h"
#include "tests/support/fixture/cli_fixture.h"
#include "tests/support/png_file.h"
#include "tests/support/test.h"

#define ON_FIXTURE(test) TEST_WITH(test, cli_fixture_open, cli_fixture_close)

/* -------- usage -------- */

ON_FIXTURE(relive__wrong_usage_is_2_and_says_where_help_is)
{
	static const char *const lines[] = {
		"",
		"nonsense",
		"up --nonsense",
		"up --size 1",
		"up --nodes 0",
		"up --file a --dax b",
		"up --stalled maybe",
		"up --pages maybe",
		"node add a --pages maybe",
		"down extra",
		"status shm:a extra",
		"table",
		"table nonsense",
		"table info",
		"node",
		"node drain",
		"node nonsense a",
		"up --nodes 2 --rdma-listen 10.0.0.1:7",
		"inspect a b c",
		"pool",
		"pool nonsense",
		"pool simulate --nonsense",
		"pool simulate --policy best",
		"pool simulate --seeds 0",
		"pool simulate --set zico --policy fifo",
		"pool simulate --set zico --png jobs.png",
		"pool corun --set none",
		"pool corun --rounds 0",
		"bench",
		"bench replay --actors x",
		"bench replay --loop --actors 2",
		"bench replay --layout window --view 1,3",
		"bench kv --clients 65",
		"bench kv --value 2M",
		"bench weights --actors 65",
		"bench weights --density 101",
		"bench weights --codec --actors 1",
		"demo --seconds 0",
	};
	struct cli_fixture *f = *state;

	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		cli_expect(f, lines[i], 2);
		assert_true(f->err[0] != 0);
		assert_string_equal(f->out, "");
	}
}

ON_FIXTURE(relive__each_command_has_help)
{
	static const char *const commands[] = { "up",     "down",    "status", "table",
						"node",   "inspect", "demo",   "bench replay",
						"bench",  "version", "backup", "restore",
						"doctor", "" };
	struct cli_fixture *f = *state;

	for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
		char line[64];

		snprintf(line, sizeof(line), "%s --help", commands[i]);
		cli_expect(f, line, 0);
		cli_expect_words(f->out, "Usage: relive");
		assert_string_equal(f->err, "");
	}
}

ON_FIXTURE(relive_version__as_json)
{
	struct cli_fixture *f = *state;

	cli_expect(f, "version --json", 0);
	cli_expect_words(f->out, "{\"version\":\"0.1.0\",\"commit\":\"");
}

/* -------- stores -------- */

ON_FIXTURE(relive_up__status_and_down)
{
	struct cli_fixture *f = *state;

	cli_expect(f, "status", 1);
	cli_expect_words(f->err, "relive up --store default");
	cli_expect(f, "up --size 64M --pages huge", 0); /* or what there is */
	assert_string_equal(f->out, "shm:default\n");
	cli_expect(f, "status", 0);
	cli_expect_words(f->out, "64 MiB");
	cli_expect(f, "status shm:default --json", 0);
	cli_expect_words(f->out, "\"state\":\"up\"");
	cli_expect_words(f->out, "\"pool_bytes\":67108864");
	cli_expect(f, "down", 0);
	cli_expect_words(f->out, "2 daemons stopped");
	cli_expect(f, "status", 1);
	cli_expect(f, "down", 1);
	cli_expect_words(f->err, "no store default");
}

/*
 * A node is added, another one drained and stopped, and its record dropped: the output of each
 * step.
 */
ON_FIXTURE(relive_node__add_drain_and_drop)
{
	struct cli_fixture *f = *state;

	cli_expect(f, "up --store n --size 64M --nodes 2 --node-lease 10s --slow-start 500ms", 0);
	cli_expect(f, "table create shm:n t --shards auto --capacity 8192", 0);
	cli_expect_words(f->out, "\nshards              2\n");
	cli_expect(f, "node add shm:n extra --size 64M", 0);
	cli_expect_words(f->out, "node extra is up");
	cli_expect(f, "node add shm:n extra --size 64M", 1);
	cli_expect_words(f->err, "runs already");
	cli_expect(f, "status shm:n --json", 0);
	cli_expect_words(f->out, "\"transport\":\"shm\"");
	cli_expect(f, "node drop shm:n 0", 1);
	cli_expect_words(f->err, "is up");
	cli_expect(f, "node drain shm:n nobody", 1);
	cli_expect_words(f->err, "nobody");
	cli_expect(f, "node drain shm:n 0 --wait 60s", 0);
	cli_expect_words(f->out, "it can be stopped");
	cli_expect(f, "status shm:n", 0);
	cli_expect_words(f->out, "draining");
	cli_expect(f, "table shards shm:n t", 0);
	cli_expect_words(f->out, "gone");
	cli_expect_words(f->out, "extra");
	cli_expect(f, "table rebalance shm:n t", 0);
	cli_expect_words(f->out, "0 new shards");
	cli_expect(f, "down --store n", 0);
	cli_expect_words(f->out, "4 daemons");
}

ON_FIXTURE(relive_up__json_names_the_pids)
{
	struct cli_fixture *f = *state;

	cli_expect(f, "up --size 64M --nodes 2 --json", 0);
	cli_expect_words(f->out, "\"uri\":\"shm:default\"");
	assert_int_equal(kill(cli_pid(f, "\"metad_pid\":"), 0), 0);
	cli_expect(f, "status", 0);
	cli_expect_words(f->out, "\n1 ");
}

ON_FIXTURE(relive_up__daemon_that_fails_shows_its_log)
{
	struct cli_fixture *f = *state;
	char line[256], path[PROCESSES_PATH + 64];

	processes_path(&f->ps, "pool", path);
	snprintf(line, sizeof(line), "up --store a --size 64M --file %s", path);
	cli_expect(f, line, 0);
	snprintf(line, sizeof(line), "up --store b --size 64M --file %s", path);
	cli_expect(f, line, 1);
	cli_expect_words(f->err, "relive-memnode ended");
	cli_expect_words(f->err, "in use");
	processes_path(&f->ps, "b", path);
	assert_int_equal(access(path, F_OK), -1);
	cli_expect(f, "status shm:a", 0);
}

ON_FIXTURE(relive_up__file_keeps_its_tables)
{
	struct cli_fixture *f = *state;
	char line[256], path[PROCESSES_PATH + 64];

	processes_path(&f->ps, "pool", path);
	snprintf(line, sizeof(line), "up --store a --size 64M --file %s", path);
	cli_expect(f, line, 0);
	cli_expect(f, "table create shm:a kept --capacity 2^14", 0);
	cli_expect(f, "down --store a", 0);
	cli_expect(f, line, 0);
	cli_expect(f, "table list shm:a", 0);
	cli_expect_words(f->out, "kept");
	cli_expect(f, "inspect shm:a", 0);
}

ON_FIXTURE(relive_up__listens_for_other_hosts)
{
	struct cli_fixture *f = *state;
	uint16_t port = processes_free_port();
	char line[128];

	snprintf(line, sizeof(line), "up --size 64M --listen 127.0.0.1:%u", port);
	cli_expect(f, line, 0);
	snprintf(line, sizeof(line), "status relive://127.0.0.1:%u", port);
	cli_expect(f, line, 0);
}

ON_FIXTURE(relive_down__kills_what_does_not_end)
{
	struct cli_fixture *f = *state;
	struct process_id id;
	pid_t pid;

	cli_expect(f, "up --size 64M --json", 0);
	pid = cli_pid(f, "\"memnode_pids\":[");
	assert_int_equal(process_read((uint32_t)pid, &id), 0);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	cli_expect(f, "down --timeout 200ms", 0);
	assert_true(process_is_gone(&id));
}

/* -------- tables -------- */

ON_FIXTURE(relive_table__create_info_list_drop)
{
	struct cli_fixture *f = *state;

	cli_expect(f, "up --size 128M", 0);
	cli_expect(f, "table list", 0);
	cli_expect(f, "table create frames --columns atari --capacity 4096 --stack 4 --n-step 3",
		   0);
	cli_expect_words(f->out, "u8[84,84]");
	cli_expect(f, "table create shm:default other --shards 2", 0);
	cli_expect(f, "table list", 0);
	cli_expect_words(f->out, "frames");
	cli_expect_words(f->out, "other");
	cli_expect(f, "table info frames --json", 0);
	cli_expect_words(f->out, "\"capacity\":4096");
	cli_expect_words(f->out, "\"stack\":4,\"n_step\":3");
	cli_expect(f, "table create frames", 1);
	cli_expect_words(f->err, "EEXIST");
	cli_expect(f, "table drop frames", 0);
	cli_expect(f, "table info frames", 1);
	cli_expect_words(f->err, "ENOENT");
	cli_expect(f, "table create huge --capacity 2^22 --columns atari", 1);
	cli_expect_words(f->err, "ENOSPC");
	cli_expect(f, "table create bad --columns a:f31", 1);
	cli_expect_words(f->err, "f31");
}

ON_FIXTURE(relive_inspect__sound_tables_are_0)
{
	struct cli_fixture *f = *state;

	cli_expect(f, "up --size 64M", 0);
	cli_expect(f, "inspect", 0);
	cli_expect(f, "table create one --capacity 2^14", 0);
	cli_expect(f, "inspect", 0);
	cli_expect_words(f->out, "one: 0 items");
	cli_expect(f, "inspect shm:default one --json", 0);
	cli_expect_words(f->out, "\"problems\":0");
	cli_expect(f, "inspect shm:default two", 1);
}

/* -------- bench -------- */

/* A directory in ours: of a private store of the bench or the demo. */
static bool private_store_is_up(void *ctx)
{
	const struct cli_fixture *f = ctx;
	DIR *folder = opendir(f->ps.dir);
	const struct dirent *entry;
	bool found = false;

	assert_non_null(folder);
	while ((entry = readdir(folder)) != NULL)
		found |= strncmp(entry->d_name, "relive-", 7) == 0;
	closedir(folder);
	return found;
}

#define SHORT "--seconds 0.5 --windows 5 --capacity 2^14 "

ON_FIXTURE(relive_bench__processes_as_json)
{
	static const char *const words[] = {
		"\"metric\":\"items_per_s\"",
		"\"metric\":\"bytes_per_s\"",
		"\"metric\":\"p50_us\"",
		"\"metric\":\"p99_us\"",
		"\"metric\":\"bytes_per_op\"",
		"\"metric\":\"round_trips_per_op\"",
		"\"metric\":\"calib_line_ns\"",
		"\"metric\":\"memcpy_gbps\"",
		"\"role\":\"insert\"",
		"\"role\":\"sample\"",
		"\"role\":\"update\"",
		"\"commit\":\"",
		"\"seed\":1",
	};
	struct cli_fixture *f = *state;

	cli_expect(f, "bench replay --actors 2 --learners 1 --json " SHORT, 0);
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		cli_expect_words(f->out, words[i]);
	for (const char *line = f->out; *line; line = strchr(line, '\n') + 1) {
		assert_memory_equal(line, "{\"bench\":\"replay\",", 18);
		assert_non_null(strchr(line, '\n'));
	}
	assert_false(private_store_is_up(f));
}

ON_FIXTURE(relive_bench__kv_as_json)
{
	static const char *const words[] = {
		"\"metric\":\"ops_per_s\"",
		"\"metric\":\"p99_us\"",
		"\"metric\":\"bytes_per_op\"",
		"\"metric\":\"round_trips_per_op\"",
		"\"metric\":\"cpu_us_per_kop\"",
		"\"metric\":\"ms_calls_per_kop\"",
		"\"mode\":\"clover\"",
		"\"mode\":\"direct\"",
		"\"mode\":\"central\"",
		"\"role\":\"server\"",
		"\"op\":\"get\"",
		"\"op\":\"put\"",
		"\"workload\":\"d\"",
		"\"role\":\"client\"",
		"\"commit\":\"",
		"\"seed\":1",
	};
	struct cli_fixture *f = *state;

	cli_expect(f, "bench kv --workload d --clients 2 --keys 500 --seconds 0.5 --json", 0);
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		cli_expect_words(f->out, words[i]);
	for (const char *line = f->out; *line; line = strchr(line, '\n') + 1) {
		assert_memory_equal(line, "{\"bench\":\"kv\",", 14);
		assert_non_null(strchr(line, '\n'));
	}
	assert_false(private_store_is_up(f));
	for (const char *workload = "abcfw"; *workload; workload++) {
		char line[64];

		snprintf(line, sizeof(line), "bench kv --workload %c --keys 100 --seconds 0.1",
			 *workload);
		cli_expect(f, line, 0);
	}
	cli_expect(f, "bench kv --mode direct --workload c --keys 100 --seconds 0.1", 0);
	cli_expect_words(f->out, "direct c zipf");
	assert_null(strstr(f->out, "clover"));
	cli_expect(f, "bench kv --mode other", 2);
}

/* Round trips are those of a wire: docs/kv.md. Here the clients map the memory of two nodes. */
ON_FIXTURE(relive_bench__kv_with_copies)
{
	struct cli_fixture *f = *state;

	cli_expect(f,
		   "bench kv --workload w --copies 2 --writers many --clients 2 --keys 100 "
		   "--seconds 0.1 --json",
		   0);
	cli_expect_words(f->out, "\"copies\":2");
	cli_expect_words(f->out, "\"writers\":\"many\"");
	cli_expect_words(f->out, "\"mode\":\"clover\"");
	assert_null(strstr(f->out, "direct"));
	cli_expect(f, "bench kv --workload w --copies 2 --keys 100 --seconds 0.1 --json", 0);
	cli_expect_words(f->out, "\"writers\":\"one\"");
	cli_expect(f, "bench kv --copies 2 --clients 2", 2);
	cli_expect(f, "bench kv --copies 4", 2);
	cli_expect(f, "bench kv --writers many", 2);
	cli_expect(f, "bench kv --copies 2 --mode direct", 2);
}

ON_FIXTURE(relive_bench__kv_refuses)
{
	struct cli_fixture *f = *state;

	cli_expect(f, "bench kv --store shm:nothing", 1);
	cli_expect(f, "bench kv --workload x", 2);
}

ON_FIXTURE(relive_bench__weights)
{
	static const char *const words[] = {
		"\"role\":\"publish\"",      "\"role\":\"fetch\"",
		"\"metric\":\"gbps\"",       "\"metric\":\"of_memcpy\"",
		"\"metric\":\"pause_us\"",   "\"metric\":\"first_byte_us\"",
		"\"metric\":\"first_gbps\"", "\"actors\":2",
		"\"bytes\":1048576",         "\"density\":0.02",
	};
	struct cli_fixture *f = *state;

	cli_expect(f, "bench weights --bytes 1M --actors 2 --density 2 --windows 2 --json", 0);
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		cli_expect_words(f->out, words[i]);
	for (const char *line = f->out; *line; line = strchr(line, '\n') + 1) {
		assert_memory_equal(line, "{\"bench\":\"weights\",", 19);
		assert_non_null(strchr(line, '\n'));
	}
	assert_false(private_store_is_up(f));
	cli_expect(f, "bench weights --bytes 1M --view --windows 2 --json", 0);
	cli_expect_words(f->out, "\"metric\":\"copies_per_byte\",\"value\":0,");
	cli_expect_words(f->out, "\"view\":true");
	cli_expect(f, "bench weights --codec --bytes 1M --windows 2", 0);
	cli_expect_words(f->out, "diff");
	cli_expect_words(f->out, "apply");
	assert_null(strstr(f->out, "publish"));
	cli_expect(f, "bench weights --store shm:nothing --bytes 1M", 1);
}

static void assert_png(const char *path)
{
	static struct png_file png;

	png_file_read(path, &png);
	assert_int_equal(png.width, PICTURE_WIDTH);
	assert_int_equal(png.height % PICTURE_PANEL, 0);
	assert_true(png_file_count(&png, CANVAS_LINE, 0, png.height) > 100);
}

ON_FIXTURE(relive_pool__simulates_jobs_and_draws_their_memory)
{
	static const char *const metrics[] = { "avg_jct_s",          "p99_jct_s",
					       "makespan_s",         "stall_s",
					       "utilisation",        "violations",
					       "speedup_over_serial" };
	const char *traces = " --traces " RLV_TEST_SOURCE_DIR "/tests/data/pool-traces.txt";
	struct cli_fixture *f = *state;
	char line[512], word[64];

	snprintf(line, sizeof(line), "pool simulate --png %s/jobs.png --jobs 10 --seeds 2 --json%s",
		 f->ps.dir, traces);
	cli_expect(f, line, 0);
	for (size_t i = 0; i < ARRAY_LEN(metrics); i++) {
		snprintf(word, sizeof(word), "{\"bench\":\"pool_simulate\",\"metric\":\"%s\"",
			 metrics[i]);
		cli_expect_words(f->out, word);
	}
	cli_expect_words(f->out, "\"policy\":\"pack+srtf\"");
	snprintf(line, sizeof(line), "%s/jobs.png", f->ps.dir);
	assert_png(line);
	snprintf(line, sizeof(line), "pool simulate --png %s --jobs 10 --seeds 1%s", f->ps.dir,
		 traces);
	cli_expect(f, line, 1);
	cli_expect_words(f->err, "no regular file");
	snprintf(line, sizeof(line), "pool simulate --policy fair --budget 8M%s", traces);
	cli_expect(f, line, 1);
	cli_expect_words(f->err, "the budget is 8388608 (ENOSPC)");
	cli_expect(f, "pool simulate --policy fifo --traces /nonexistent", 1);
	snprintf(line, sizeof(line), "pool simulate --policy fifo --table %s --format openb%s",
		 RLV_TEST_SOURCE_DIR "/README.md", traces);
	cli_expect(f, line, 1);
	cli_expect_words(f->err, "the header has no column name");
}

ON_FIXTURE(relive_pool__standard_sets_run)
{
	static const struct {
		const char *set, *words;
	} sets[] = {
		{ "search", "makespan_over_fifo" },
		{ "services", "static shares" },
		{ "phases", "cost_over_colocated" },
	};
	struct cli_fixture *f = *state;
	char line[512];

	for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
		snprintf(line, sizeof(line),
			 "pool simulate --set %s --seeds 1 --traces %s/tests/data/pool-traces.txt",
			 sets[i].set, RLV_TEST_SOURCE_DIR);
		cli_expect(f, line, 0);
		cli_expect_words(f->out, sets[i].words);
	}
}

ON_FIXTURE(relive_bench__trace_and_threads)
{
	struct cli_fixture *f = *state;
	char line[512];

	snprintf(line, sizeof(line),
		 "bench replay --trace %s/tests/data/pong-small.rlvt --threads " SHORT,
		 RLV_TEST_SOURCE_DIR);
	cli_expect(f, line, 0);
	cli_expect_words(f->out, "memcpy");
}

ON_FIXTURE(relive_bench__environments_and_loop)
{
	struct cli_fixture *f = *state;

	cli_expect(f, "bench replay --actors 1 --learners 0 --envs 16 " SHORT, 0);
	cli_expect_words(f->out, "insert");
	cli_expect(f, "bench replay --loop --view 2,1 --inflight 4 --layout window " SHORT, 0);
	cli_expect_words(f->out, "update");
}

ON_FIXTURE(relive_bench__beside)
{
	struct cli_fixture *f = *state;

	cli_expect(f, "bench replay --actors 0 --processes --beside '--learners 2' --json " SHORT,
		   0);
	cli_expect_words(f->out, "\"case\":\"--learners 2\"");
	cli_expect_words(f->out, "\"metric\":\"items_ratio_low\"");
	cli_expect(f, "bench replay --loop --beside '--shards 2' " SHORT, 0);
	cli_expect_words(f->out, "update: ");
	cli_expect_words(f->out, "5 pairs");
	cli_expect(f, "bench replay --actors 0 --beside '--learners 2' " SHORT, 2);
	cli_expect_words(f->err, "--processes");
	cli_expect(f, "bench replay --beside '--batch 0' " SHORT, 2);
	cli_expect_words(f->err, "--beside: --batch");
}

ON_FIXTURE(relive_bench__check_of_processes)
{
	struct cli_fixture *f = *state;

	cli_expect(f, "bench replay --actors 2 --learners 2 --check --view 3,3 " SHORT, 0);
	cli_expect_words(f->out, " 0 wrong; 0 broken invariants");
	cli_expect_words(f->out, "learner 1: chi-square");
}

ON_FIXTURE(relive_bench__check_of_frames_and_shards)
{
	struct cli_fixture *f = *state;

	cli_expect(
		f,
		"bench replay --shape obs:u8[20,20],action:i32,reward:f64,done:bool --view 4,1 --shards 3 "
		"--check --json --layout window " SHORT,
		0);
	cli_expect_words(f->out, "\"items_wrong\":0,\"problems\":0");
	cli_expect_words(f->out, "\"check\":\"chi_square\"");
}

ON_FIXTURE(relive_bench__limiter_holds_the_ratio)
{
	struct cli_fixture *f = *state;

	cli_expect(f, "bench replay --spi 4 " SHORT, 0);
	cli_expect_words(f->out, "limiter waits");
}

ON_FIXTURE(relive_bench__store_that_is_up)
{
	struct cli_fixture *f = *state;

	cli_expect(f, "up --size 128M", 0);
	cli_expect(f, "bench replay --store shm:default --actors 1 --learners 1 " SHORT, 0);
	cli_expect(f, "table list --json", 0);
	assert_string_equal(f->out, "[]\n");
	cli_expect(f, "bench replay --store shm:nothing " SHORT, 1);
}

ON_FIXTURE(relive_bench__interrupt_leaves_nothing)
{
	struct cli_fixture *f = *state;
	const char *const args[] = { "bench", "replay", "--actors", "1", "--seconds", "60", NULL };
	pid_t pid = processes_start(&f->ps, "relive", args);

	assert_true(processes_until(private_store_is_up, f));
	usleep(300000);
	assert_int_equal(kill(pid, SIGINT), 0);
	assert_int_equal(processes_wait(&f->ps, pid, PROCESSES_WAIT_MS), 1);
	assert_false(private_store_is_up(f));
}

ON_FIXTURE(relive_demo__shows_kills_and_an_exact_tree)
{
	struct cli_fixture *f = *state;
	char path[sizeof(f->ps.dir) + 16], args[sizeof(path) + 64];

	snprintf(path, sizeof(path), "%s/demo.png", f->ps.dir);
	snprintf(args, sizeof(args), "demo --seconds 3 --picture %s", path);
	cli_expect(f, args, 0);
	cli_expect_words(f->out, "actor 0 is gone");
	cli_expect_words(f->out, "memory node node-1 is back");
	cli_expect_words(f->out, "publish_lag");
	cli_expect_words(f->out, "learner-1 ");
	cli_expect_words(f->out, "every leaf, sum, block and counter is exact");
	cli_expect_words(f->out, "Throughputs");
	cli_expect_words(f->err, " steps/s in");
	assert_false(private_store_is_up(f));
	assert_png(path);
}

ON_FIXTURE(relive_demo__interrupt_leaves_nothing)
{
	struct cli_fixture *f = *state;
	const char *const args[] = { "demo", "--seconds", "60", NULL };
	pid_t pid = processes_start(&f->ps, "relive", args);

	assert_true(processes_until(private_store_is_up, f));
	usleep(500000);
	assert_int_equal(kill(pid, SIGINT), 0);
	assert_int_equal(processes_wait(&f->ps, pid, PROCESSES_WAIT_MS), 1);
	assert_false(private_store_is_up(f));
}

int main(void)
{
	return test_run(NULL, NULL);
}
