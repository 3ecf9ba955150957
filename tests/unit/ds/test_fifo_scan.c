/*
 * fifo and lifo views through the public API: the order of items, and consuming them.
 */
#include "relive/relive.h"

#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

#define BLOCK 32

struct queue {
	struct rlv_store *store;
	struct rlv_table *table;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	uint32_t version; /* of the policy that acts */
};

static const struct rlv_column number_column = { .name = "number", .dtype = RLV_I64 };

static void queue_open(struct queue *q, struct rlv_view view)
{
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_sampler_opts sampler = RLV_SAMPLER_OPTS_INIT;

	opts.columns = &number_column;
	opts.n_columns = 1;
	opts.capacity = 2048;
	opts.block = BLOCK;
	opts.max_writers = 2;
	opts.views = &view;
	opts.n_views = 1;
	sampler.short_batch = true;
	q->version = 0;
	assert_int_equal(rlv_store_open("embed:", NULL, &q->store), 0);
	assert_int_equal(rlv_table_create(q->store, "queue", &opts, &q->table), 0);
	assert_int_equal(rlv_writer_open(q->table, NULL, &q->writer), 0);
	assert_int_equal(rlv_sampler_open(q->table, &sampler, &q->sampler), 0);
}

static void queue_close(struct queue *q)
{
	struct rlv_verify_report report = { .size = sizeof(report) };

	assert_int_equal(rlv_writer_close(&q->writer), 0);
	assert_int_equal(rlv_sampler_close(&q->sampler), 0);
	assert_int_equal(rlv_table_verify(q->table, &report), 0);
	assert_string_equal(report.first_problem, "");
	assert_int_equal(rlv_table_close(&q->table), 0);
	assert_int_equal(rlv_store_close(&q->store), 0);
}

static int queue_put(struct queue *q, int64_t first, uint32_t n)
{
	int64_t numbers[1024];
	const void *columns[] = { numbers };
	struct rlv_steps steps = RLV_STEPS_INIT;

	for (uint32_t i = 0; i < n; i++)
		numbers[i] = first + i;
	steps.columns = columns;
	steps.n = n;
	steps.policy_version = q->version;
	return rlv_writer_append(q->writer, 0, &steps, NULL);
}

/* Takes up to n items and checks that they are first, first + step, ...; how many came. */
static uint32_t queue_get(struct queue *q, uint32_t n, int64_t first, int64_t step)
{
	const struct rlv_batch *batch;
	const int64_t *numbers;
	uint32_t got;

	if (rlv_sampler_sample(q->sampler, n, 0, &batch))
		return 0;
	numbers = batch->arrays[0].data;
	got = batch->n;
	for (uint32_t i = 0; i < got; i++)
		assert_int_equal(numbers[i], first + (int64_t)i * step);
	rlv_batch_release(q->sampler, batch);
	return got;
}

TEST(sample__fifo_gives_the_oldest_again_and_again)
{
	struct queue q;

	queue_open(&q, (struct rlv_view){ .selector = RLV_FIFO });
	assert_int_equal(queue_put(&q, 0, 100), 0);
	assert_int_equal(queue_get(&q, 70, 0, 1), 70);
	assert_int_equal(queue_get(&q, 70, 0, 1), 70);
	queue_close(&q);
}

TEST(sample__lifo_gives_the_newest_first)
{
	struct queue q;

	queue_open(&q, (struct rlv_view){ .selector = RLV_LIFO });
	assert_int_equal(queue_put(&q, 0, 100), 0);
	assert_int_equal(queue_get(&q, 70, 99, -1), 70);
	assert_int_equal(queue_put(&q, 100, 3), 0);
	assert_int_equal(queue_get(&q, 5, 102, -1), 5);
	queue_close(&q);
}

TEST(sample__queue_hands_every_item_out_once_in_order)
{
	struct rlv_view view = { .selector = RLV_FIFO, .max_times_sampled = 1 };
	int64_t put = 0;
	int64_t got = 0;
	struct queue q;

	view.limiter = rlv_limiter_queue(200);
	queue_open(&q, view);
	/* Several times round the ring, with amounts that fit no block. */
	while (got < 20000) {
		assert_int_equal(queue_put(&q, put, 150), 0);
		put += 150;
		for (uint32_t n = 1; n && got < put; got += n)
			n = queue_get(&q, put - got < 37 ? (uint32_t)(put - got) : 37, got, 1);
		assert_int_equal(got, put);
	}
	queue_close(&q);
}

TEST(sample__stale_items_of_a_queue_leave_room)
{
	struct rlv_view view = { .selector = RLV_FIFO, .max_times_sampled = 1, .max_staleness = 1 };
	struct queue q;

	view.limiter = rlv_limiter_queue(10);
	queue_open(&q, view);
	/* Each round of five is followed by a newer policy's item, which makes the other five stale. */
	q.version = 10;
	assert_int_equal(queue_put(&q, 0, 1), 0);
	assert_int_equal(queue_get(&q, 1, 0, 1), 1);
	for (int64_t round = 1; round < 20; round++) {
		q.version = 1;
		assert_int_equal(queue_put(&q, 1000, 5), 0);
		q.version = 10;
		assert_int_equal(queue_put(&q, round, 1), 0);
		assert_int_equal(queue_get(&q, 1, round, 1), 1);
	}
	queue_close(&q);
}

TEST(append__full_queue_times_out_and_names_the_view)
{
	struct rlv_view view = { .selector = RLV_FIFO, .max_times_sampled = 1 };
	struct rlv_writer_opts opts = RLV_WRITER_OPTS_INIT;
	struct queue q;

	view.limiter = rlv_limiter_queue(10);
	queue_open(&q, view);
	assert_int_equal(rlv_writer_close(&q.writer), 0);
	opts.timeout_ns = 1000000;
	assert_int_equal(rlv_writer_open(q.table, &opts, &q.writer), 0);
	assert_int_equal(queue_put(&q, 0, 12), -ETIMEDOUT);
	assert_non_null(strstr(rlv_last_error(), "view 0"));
	assert_int_equal(queue_get(&q, 10, 0, 1), 10);
	assert_int_equal(queue_put(&q, 10, 2), 0);
	assert_int_equal(queue_get(&q, 2, 10, 1), 2);
	queue_close(&q);
}

TEST(create__fifo_over_shards_is_refused)
{
	const struct rlv_view view = { .selector = RLV_FIFO };
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_table *table = NULL;
	struct rlv_store *store;

	opts.columns = &number_column;
	opts.n_columns = 1;
	opts.capacity = 1 << 16;
	opts.shards = 2;
	opts.views = &view;
	opts.n_views = 1;
	assert_int_equal(rlv_store_open("embed:", NULL, &store), 0);
	assert_int_equal(rlv_table_create(store, "queue", &opts, &table), -EINVAL);
	assert_non_null(strstr(rlv_last_error(), "shards"));
	assert_null(table);
	assert_int_equal(rlv_store_close(&store), 0);
}

int main(void)
{
	return test_run(NULL, NULL);
}
