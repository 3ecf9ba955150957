/*
 * A handle's limiter while its control shard moves, leaves and returns: its reservations are always
 * those of the call in progress.
 */
#include "tests/support/fixture/nodes_fixture.h"
#include "tests/support/test.h"

#include "client/writer/append.h"

#include <errno.h>

static const struct rlv_view views[] = {
	{ .limiter = { .min_size = 1, .samples_per_insert = 1, .min_diff = -50, .max_diff = 50 } },
	{ .selector = RLV_UNIFORM },
};

struct rig {
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	struct admission *bounded, *free;
};

static void rig_open(struct rig *rig)
{
	const struct nodes_opts opts = { .nodes = 2, .table = { .views = views, .n_views = 2 } };

	nodes_open(&rig->nx, &opts);
	rig->writer = replay_writer(&rig->nx.fx, 1);
	rig->bounded = &rig->writer->admissions[0];
	rig->free = &rig->writer->admissions[1];
}

static void rig_close(struct rig *rig)
{
	replay_writer_done(&rig->writer);
	nodes_close(&rig->nx);
}

static void expect_words(struct admission *adm, uint64_t admitted, uint64_t committed)
{
	struct limiter_words words;

	assert_int_equal(admission_read(adm, &words), 0);
	assert_int_equal(words.ins_admitted, admitted);
	assert_int_equal(words.ins_committed, committed);
}

TEST(admission_follow__what_a_call_holds_moves_along)
{
	struct rig rig;

	rig_open(&rig);
	assert_int_equal(admission_try_insert(rig.bounded, 10), 0);
	assert_int_equal(admission_commit_insert(rig.bounded, 10, 10), 0);
	assert_int_equal(admission_try_insert(rig.bounded, 7), 0);
	expect_words(rig.bounded, 17, 10);
	nodes_move_control(&rig.nx, 1);
	assert_int_equal(handle_begin(&rig.writer->h, 0), 0);
	assert_int_equal(rig.bounded->control, 1);
	expect_words(rig.bounded, 17, 10);
	assert_int_equal(admission_commit_insert(rig.bounded, 7, 5), 0);
	expect_words(rig.bounded, 15, 15);
	rig_close(&rig);
}

TEST(admission_follow__what_a_failed_call_left_is_given_back)
{
	struct rig rig;

	rig_open(&rig);
	assert_int_equal(admission_try_insert(rig.bounded, 9), 0);
	rig.bounded->inserts = 0; /* as where the answer to the CAS was lost */
	nodes_cut(&rig.nx, 0, 1);
	rig.writer->h.set.nodes[0].tr->broken = -ECONNRESET;
	assert_int_equal(handle_begin(&rig.writer->h, 0), 0);
	assert_false(rig.bounded->here);
	nodes_return(&rig.nx, 0);
	while (!rig.bounded->here)
		assert_int_equal(handle_begin(&rig.writer->h, 0), 0);
	expect_words(rig.bounded, 0, 0);
	assert_int_equal(admission_try_insert(rig.bounded, 50), 0);
	assert_int_equal(admission_commit_insert(rig.bounded, 50, 50), 0);
	assert_int_equal(admission_try_insert(rig.bounded, 1), -EAGAIN);
	rig_close(&rig);
}

TEST(admission_try_insert__away_only_what_is_bounded_waits)
{
	struct limiter_words words;
	struct rig rig;

	rig_open(&rig);
	nodes_cut(&rig.nx, 0, 1);
	rig.writer->h.set.nodes[0].tr->broken = -ECONNRESET;
	assert_int_equal(handle_begin(&rig.writer->h, 0), 0);
	replay_expect(admission_try_insert(rig.bounded, 1), -EHOSTDOWN, "view 0");
	assert_int_equal(admission_try_insert(rig.free, 1), 0);
	assert_int_equal(admission_commit_insert(rig.free, 1, 1), 0);
	replay_expect(admission_try_sample(rig.free, 1), -EHOSTDOWN, "view 1");
	replay_expect(admission_read(rig.free, &words), -EHOSTDOWN, "view 1");
	nodes_return(&rig.nx, 0);
	rig_close(&rig);
}

int main(void)
{
	return test_run(NULL, NULL);
}
