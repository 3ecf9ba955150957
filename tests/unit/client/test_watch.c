/* Waits for other clients: times and texts of warnings, and when a wait gives up. */
#include "tests/support/fixture/nodes_fixture.h"
#include "tests/support/test.h"

#include "client/writer/append.h"
#include "client/sampler/sampler.h"

#include <errno.h>
#include <string.h>

#define MS CLOCK_NS_PER_MS
#define S ((uint64_t)CLOCK_NS_PER_S)

/* An item after 41 steps; nothing is drawn before 10 of them. */
static const struct rlv_view late_view = { .n_step = 40, .limiter = { .min_size = 10 } };

/* -------- by a clock that is moved -------- */

struct rig {
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	struct rlv_watch watch;
	uint32_t lines;
	enum rlv_log_level level;
	char line[512];
};

static void hear(void *ctx, enum rlv_log_level level, const char *line)
{
	struct rig *rig = ctx;

	rig->lines++;
	rig->level = level;
	snprintf(rig->line, sizeof(rig->line), "%s", line);
}

static struct rig *open_rig(enum nodes_reach reach)
{
	const struct nodes_opts opts = { .reach = reach,
					 .table = { .views = &late_view, .n_views = 1 } };
	static struct rig rig;

	memset(&rig, 0, sizeof(rig));
	nodes_open(&rig.nx, &opts);
	rig.writer = replay_writer(&rig.nx.fx, 1);
	rig.sampler = replay_sampler(&rig.nx.fx, NULL);
	nodes_time(&rig.nx, &rig.sampler->h);
	rig.watch = (struct rlv_watch)RLV_WATCH_INIT;
	rlv_log_set(hear, &rig, RLV_LOG_WARN);
	return &rig;
}

static void close_rig(struct rig *rig)
{
	rlv_log_set(NULL, NULL, RLV_LOG_ERROR);
	replay_sampler_done(&rig->sampler);
	replay_writer_done(&rig->writer);
	nodes_close(&rig->nx);
}

static int after(struct rig *rig, uint64_t ns)
{
	fake_clock_advance(&rig->nx.clock, ns);
	return rlv_sampler_watch(rig->sampler, 4, &rig->watch);
}

static void check_warning(enum nodes_reach reach)
{
	struct rig *rig = open_rig(reach);

	assert_int_equal(after(rig, 0), 0);
	assert_string_equal(rig->watch.text, "");
	assert_int_equal(after(rig, 1 * S), 0);
	assert_non_null(strstr(rig->watch.text, "waits for 10 more inserts"));
	assert_int_equal(rig->lines, 0);
	assert_int_equal(after(rig, 1 * S), 0);
	assert_true(rig->watch.warned);
	assert_int_equal(rig->lines, 1);
	assert_int_equal(rig->level, RLV_LOG_WARN);
	assert_non_null(strstr(rig->line, "sample of 4 from view 0 of table t: waits for 10 more "
					  "inserts (0 items inserted, min_size 10, 0 sampled)"));
	assert_int_equal(after(rig, 30 * S), 0);
	assert_int_equal(rig->lines, 1);
	close_rig(rig);
}

TEST(sampler_watch__warns_after_two_seconds)
{
	check_warning(NODES_IN_PLACE);
	check_warning(NODES_WIRE);
}

TEST(sampler_watch__warns_once_a_minute)
{
	struct rig *rig = open_rig(NODES_IN_PLACE);

	for (uint32_t i = 0; i < 3; i++) {
		rig->watch = (struct rlv_watch)RLV_WATCH_INIT;
		assert_int_equal(after(rig, 0), 0);
		assert_int_equal(after(rig, 25 * S), 0);
		assert_int_equal(rig->watch.warned, i == 0);
	}
	rig->watch = (struct rlv_watch)RLV_WATCH_INIT;
	assert_int_equal(after(rig, 0), 0);
	assert_int_equal(after(rig, 25 * S), 0);
	assert_int_equal(rig->lines, 2);
	close_rig(rig);
}

/* Rows that complete no item are progress, too: one in each of the three shards' turns. */
static void check_progress(enum nodes_reach reach)
{
	struct rig *rig = open_rig(reach);

	assert_int_equal(after(rig, 0), 0);
	for (uint32_t i = 0; i < 30; i++) {
		assert_int_equal(after(rig, 50 * S), 0);
		replay_append_plain(&rig->nx.fx, rig->writer, 0, 1);
		assert_int_equal(after(rig, 1 * S), 0);
	}
	assert_int_equal(after(rig, 59 * S), 0);
	replay_expect(after(rig, 1 * S), -ETIMEDOUT, "10 more inserts");
	replay_expect(after(rig, 1 * S), -ETIMEDOUT, "no progress for 60 s");
	replay_append_plain(&rig->nx.fx, rig->writer, 0, 1);
	assert_int_equal(after(rig, 1 * S), 0);
	close_rig(rig);
}

TEST(sampler_watch__every_row_is_progress)
{
	check_progress(NODES_IN_PLACE);
	check_progress(NODES_WIRE);
}

TEST(sampler_watch__looks_at_once_when_asked)
{
	struct rig *rig = open_rig(NODES_IN_PLACE);

	assert_int_equal(after(rig, 0), 0);
	rig->watch.looked_ns = 0;
	assert_int_equal(after(rig, 0), 0);
	assert_non_null(strstr(rig->watch.text, "waits for 10 more inserts"));
	close_rig(rig);
}

TEST(sampler_watch__while_the_counts_are_away)
{
	struct rig *rig = open_rig(NODES_WIRE);
	const struct rlv_batch *batch;

	nodes_cut(&rig->nx, rig->nx.control, 1);
	replay_expect(rlv_sampler_sample(rig->sampler, 4, 0, &batch), -EHOSTDOWN, NULL);
	assert_int_equal(after(rig, 0), 0);
	assert_int_equal(after(rig, 3 * S), 0);
	assert_non_null(strstr(rig->line, "keeps the counts of view 0, cannot be reached"));
	replay_expect(after(rig, 60 * S), -ETIMEDOUT, "no progress");
	nodes_return(&rig->nx, rig->nx.control);
	close_rig(rig);
}

TEST(watch__wrong_arguments)
{
	struct rig *rig = open_rig(NODES_IN_PLACE);
	struct rlv_watch none = { 0 };

	replay_expect(rlv_sampler_watch(NULL, 1, &rig->watch), -EINVAL, "sampler");
	replay_expect(rlv_sampler_watch(rig->sampler, 1, NULL), -EINVAL, "watch is NULL");
	replay_expect(rlv_sampler_watch(rig->sampler, 1, &none), -EINVAL, "_INIT macro");
	replay_expect(rlv_writer_watch(NULL, &rig->watch), -EINVAL, "writer");
	replay_expect(rlv_writer_watch(rig->writer, &none), -EINVAL, "_INIT macro");
	close_rig(rig);
}

/* -------- calls that wait -------- */

static void open_stalling(struct replay_fixture *fx, const struct rlv_view *view)
{
	const struct rlv_table_opts opts = { .n_views = 1, .views = view };

	replay_open(fx, &opts);
	fx->store->stall_ns = 20 * MS;
}

TEST(sampler_sample__gives_up_where_all_stalls)
{
	const struct rlv_batch *batch;
	struct rlv_sampler *sampler;
	struct replay_fixture fx;

	open_stalling(&fx, &late_view);
	sampler = replay_sampler(&fx, NULL);
	replay_expect(rlv_sampler_sample(sampler, 4, RLV_TIMEOUT_STALL, &batch), -ETIMEDOUT,
		      "waits for 10 more inserts");
	assert_non_null(strstr(rlv_last_error(), "no progress for 0.02 s"));
	replay_end(&fx, NULL, &sampler);
}

TEST(sampler_sample__with_a_timeout_goes_on_where_all_stalls)
{
	struct rig *rig = open_rig(NODES_IN_PLACE); /* whose clock moves by looks alone */
	const struct rlv_batch *batch;

	rig->nx.fx.store->stall_ns = 20 * MS;
	replay_expect(rlv_sampler_sample(rig->sampler, 4, 100 * MS, &batch), -ETIMEDOUT,
		      "waits for 10 more inserts");
	assert_null(strstr(rlv_last_error(), "no progress"));
	/* from the first refusal to behind the deadline */
	assert_in_range(replay_sampler_stats(rig->sampler).limiter_wait_ns, 80 * MS, 110 * MS);
	close_rig(rig);
}

/* the result of closing the writer, which may wait for room, too */
static void check_append(const struct rlv_view *view, const char *waits_for, int closed)
{
	struct rlv_writer_opts how = RLV_WRITER_OPTS_INIT;
	struct replay_put put = { .n = 100 };
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_watch watch = RLV_WATCH_INIT;
	int ret;

	open_stalling(&fx, view);
	how.timeout_ns = RLV_TIMEOUT_STALL;
	assert_int_equal(rlv_writer_open(fx.table, &how, &writer), 0);
	do
		ret = replay_append(&fx, writer, &put);
	while (ret == 0);
	replay_expect(ret, -ETIMEDOUT, waits_for);
	assert_non_null(strstr(rlv_last_error(), "no progress for 0.02 s"));
	assert_int_equal(rlv_writer_watch(writer, &watch), 0);
	watch.looked_ns = 0;
	assert_int_equal(rlv_writer_watch(writer, &watch), 0);
	assert_non_null(strstr(watch.text, waits_for));
	assert_int_equal(rlv_writer_close(&writer), closed);
	replay_close(&fx);
}

TEST(writer_append__gives_up_where_all_stalls)
{
	const struct rlv_view full = { .selector = RLV_FIFO,
				       .max_times_sampled = 1,
				       .limiter = rlv_limiter_queue(10) };
	const struct rlv_view no_room = { .selector = RLV_FIFO,
					  .max_times_sampled = 1,
					  .limiter = rlv_limiter_queue(15000) };

	check_append(&full,
		     "the limiter of view 0 of table t waits for 1 more sample (10 items inserted, "
		     "0 sampled; samples_per_insert 1, max_diff 10)",
		     0);
	check_append(&no_room, "waits for room", -ETIMEDOUT);
}

int main(void)
{
	return test_run(NULL, NULL);
}
