/* An append of several rows is admitted by the limiters as a whole; priorities of new items. */
#include "tests/support/fixture/replay_fixture.h"
#include "tests/support/test.h"

#include "client/writer/append.h"

#include <errno.h>
#include <string.h>

/* A limiter that admits ten items, and more only after a sample. */
#define TEN \
	{ \
		.min_size = 1, .samples_per_insert = 1, .min_diff = -1000, .max_diff = 10 \
	}

struct rig {
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_steps steps;
	struct append_batch put;
};

static struct rig *open_rig(const struct rlv_view *views, uint32_t n_views, uint32_t streams)
{
	const struct rlv_table_opts opts = {
		.views = views, .n_views = n_views, .block = 32, .shards = 2, .max_writers = 4
	};
	static struct rig rig;

	memset(&rig, 0, sizeof(rig));
	replay_open(&rig.fx, &opts);
	rig.writer = replay_writer(&rig.fx, streams);
	rig.steps = (struct rlv_steps)RLV_STEPS_INIT;
	rig.steps.columns = replay_columns(&rig.fx, 0, 0, 16);
	rig.put = (struct append_batch){ .w = rig.writer,
					 .streams = rig.writer->streams,
					 .n = streams,
					 .src = { .steps = &rig.steps } };
	assert_int_equal(handle_begin(&rig.writer->h, 0), 0);
	assert_int_equal(writer_read_maxima(rig.writer), 0);
	assert_int_equal(writer_rooms(rig.writer, &rig.put), 0);
	return &rig;
}

static void close_rig(struct rig *rig)
{
	(void)!rlv_writer_close(&rig->writer); /* the limiter may be against it */
	replay_close(&rig->fx);
}

static int put(struct rig *rig, uint32_t n, uint32_t *refused)
{
	int ret;

	rig->put.src.n = n;
	rig->put.admitted = false;
	ret = writer_append_batch(&rig->put);
	if (ret)
		*refused = rig->writer->waits_for;
	return ret;
}

TEST(writer_rooms__each_stream_gets_a_block_of_its_own)
{
	const struct rlv_view view = { .n_step = 1 };
	struct rig *rig = open_rig(&view, 1, 4);

	for (uint32_t i = 0; i < 4; i++) {
		const struct block *blk = &rig->writer->streams[i].blk;

		assert_true(stream_has_room(rig->writer, &rig->writer->streams[i]));
		for (uint32_t k = 0; k < i; k++)
			assert_true(blk->acc != rig->writer->streams[k].blk.acc ||
				    blk->index != rig->writer->streams[k].blk.index);
	}
	assert_int_equal(rig->writer->ring.claimed, 4);
	assert_int_equal(writer_rooms(rig->writer, &rig->put), 0); /* nothing more */
	assert_int_equal(rig->writer->ring.claimed, 4);
	close_rig(rig);
}

TEST(writer_put__refused_by_a_limiter_leaves_all_as_it_was)
{
	const struct rlv_view view = { .n_step = 1, .limiter = TEN };
	struct rig *rig = open_rig(&view, 1, 1);
	struct stream *st = &rig->writer->streams[0];
	uint32_t refused = 9, used;

	assert_int_equal(put(rig, 10, &refused), 0);
	used = st->blk.used;
	assert_int_equal(put(rig, 5, &refused), -EAGAIN);
	assert_int_equal(refused, 0);
	assert_int_equal(st->blk.used, used);
	assert_int_equal(put(rig, 1, &refused), 0); /* of the tenth item: one row waits */
	assert_int_equal(st->blk.used, used + 1);
	assert_int_equal(replay_info(rig->fx.table).views[0].inserted, 10);
	close_rig(rig);
}

/* The first view would have them, but the second does not: neither has. */
TEST(writer_put__refused_by_one_view_is_refused_by_all)
{
	const struct rlv_view views[] = { { .n_step = 1, .limiter = TEN },
					  { .n_step = 1,
					    .limiter = { .min_size = 1,
							 .samples_per_insert = 1,
							 .min_diff = -1000,
							 .max_diff = 4 } } };
	struct rig *rig = open_rig(views, 2, 1);
	struct limiter_words words;
	uint32_t refused = 9;

	assert_int_equal(put(rig, 5, &refused), 0);
	assert_int_equal(put(rig, 5, &refused), -EAGAIN);
	assert_int_equal(refused, 1);
	for (uint32_t v = 0; v < 2; v++) {
		assert_int_equal(admission_read(&rig->writer->admissions[v], &words), 0);
		assert_int_equal(words.ins_admitted, 4);
		assert_int_equal(words.ins_committed, 4);
	}
	close_rig(rig);
}

TEST(writer_put__rows_of_a_refused_call_are_planned_anew)
{
	const struct rlv_view view = { .n_step = 1, .limiter = TEN };
	struct rig *rig = open_rig(&view, 1, 1);
	struct stream *st = &rig->writer->streams[0];
	uint32_t refused;

	assert_int_equal(put(rig, 12, &refused), -EAGAIN);
	assert_int_equal(st->course.step, 0);
	assert_false(st->course.in_episode);
	assert_int_equal(put(rig, 6, &refused), 0);
	assert_int_equal(st->course.step, 6);
	assert_true(st->course.in_episode);
	assert_int_equal(st->planned, 0);
	close_rig(rig);
}

/* Appends n rows to a stream, so many at once at most; each seventh ends an episode. Returns the items. */
static uint64_t put_rows(struct rig *rig, uint32_t stream, uint32_t n, uint32_t at_once)
{
	uint64_t before = replay_info(rig->fx.table).views[0].inserted;
	uint16_t flags[16];
	uint32_t refused;

	rig->put.streams = &rig->writer->streams[stream];
	rig->put.n = 1;
	rig->steps.flags = flags;
	for (uint32_t done = 0; done < n; done += rig->put.src.n) {
		uint32_t now = n - done < at_once ? n - done : at_once;

		for (uint32_t i = 0; i < now; i++)
			flags[i] = (done + i) % 7 == 6 ? RLV_TERMINATED : 0;
		assert_int_equal(put(rig, now, &refused), 0);
	}
	return replay_info(rig->fx.table).views[0].inserted - before;
}

/* Past the end of the memory for flags, steps and TD errors, where the last ones move to its beginning. */
TEST(writer_put__rows_one_by_one_make_the_items_of_rows_at_once)
{
	const struct rlv_view view = { .n_step = 3, .stack = 2 };
	struct rig *rig = open_rig(&view, 1, 2);
	uint32_t n = 3 * STREAM_META;
	uint64_t items = put_rows(rig, 0, n, 1);
	const struct stream *st = rig->writer->streams;

	assert_in_range(items, n / 2, n);
	assert_int_equal(put_rows(rig, 1, n, 16), items);
	for (uint32_t i = 0; i < head_rows(rig->writer); i++) {
		assert_int_equal(stream_meta(&st[0]).flags[i], stream_meta(&st[1]).flags[i]);
		assert_int_equal(stream_meta(&st[0]).steps[i], stream_meta(&st[1]).steps[i]);
	}
	close_rig(rig);
}

/* The number of rows that always make an item of a view with a period is UINT32_MAX. */
TEST(writer_put__an_endless_episode_has_items_at_its_period_only)
{
	const struct rlv_view view = { .stack = 2, .period = 4, .selector = RLV_UNIFORM };
	struct rig *rig = open_rig(&view, 1, 1);
	struct stream *st = &rig->writer->streams[0];
	uint64_t before;
	uint32_t refused;

	assert_int_equal(put(rig, 4, &refused), 0);
	before = replay_info(rig->fx.table).views[0].inserted;
	st->course.calm = COURSE_CALM_MOST - 2;
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(put(rig, 1 + i % 3, &refused), 0);
	assert_int_equal(st->course.calm, COURSE_CALM_MOST);
	assert_int_equal(replay_info(rig->fx.table).views[0].inserted - before, 15 / 4);
	close_rig(rig);
}

TEST(writer_read_maxima__one_before_the_first_then_the_largest)
{
	const struct rlv_view view = { .n_step = 1, .alpha = 1 };
	struct rig *rig = open_rig(&view, 1, 1);
	uint64_t scale = rig->writer->h.desc->views[0].scale;
	const double td[] = { 2, 50, 3, 1 };
	uint32_t refused;

	assert_int_equal(rig->writer->default_quanta[0], scale);
	rig->steps.td_error = td;
	assert_int_equal(put(rig, 4, &refused), 0);
	assert_int_equal(writer_read_maxima(rig->writer), 0);
	assert_in_range(rig->writer->default_quanta[0], 50 * scale, 51 * scale);
	close_rig(rig);
}

/* The tail of each row of a vector is its own: stream, step, flags and generation. */
TEST(writer_put__rows_of_a_vector_have_their_tails)
{
	static const uint16_t ends[] = { 0, RLV_TERMINATED, 0, 0 };
	const struct rlv_view view = { .n_step = 1 };
	struct rig *rig = open_rig(&view, 1, 4);
	uint32_t refused;

	rig->steps.policy_version = 7;
	for (uint32_t call = 0; call < 3; call++) {
		rig->steps.flags = call == 1 ? ends : NULL;
		assert_int_equal(put(rig, 1, &refused), 0);
		for (uint16_t i = 0; i < 4; i++) {
			const struct stream *st = &rig->writer->streams[i];
			const uint8_t *row = ring_row(&st->blk, st->blk.used - 1);
			bool is_first = call == 0 || (call == 2 && i == 1);
			bool is_last = call == 1 && i == 1;
			struct row_tail tail;

			memcpy(&tail, row + rig->writer->h.desc->tail_off, sizeof(tail));
			assert_int_equal(tail.stream, i);
			assert_int_equal(tail.step, is_first ? 0 : call);
			assert_int_equal(tail.flags, (is_first ? ROW_FIRST : 0) |
							     (is_last ? ROW_TERMINATED : 0));
			assert_int_equal(tail.gen, st->blk.gen);
			assert_int_equal(tail.policy_version, 7);
		}
	}
	close_rig(rig);
}

int main(void)
{
	return test_run(NULL, NULL);
}
