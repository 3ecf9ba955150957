/* Batches: their arrays, layouts and owners. */
#include "tests/support/fixture/replay_fixture.h"
#include "tests/support/test.h"

#include "base/mem/chunk.h"

#include <errno.h>
#include <string.h>

static const struct rlv_view stacked = { .selector = RLV_UNIFORM, .stack = 4 };

static void open_view(struct replay_fixture *fx, const struct rlv_view *view)
{
	const struct rlv_table_opts opts = { .n_views = 1, .views = view };
	struct rlv_writer *writer;

	replay_open(fx, &opts);
	writer = replay_writer(fx, 1);
	for (uint32_t n = 1; n < 20; n++)
		replay_append_episode(fx, writer, 0, n, n % 2 ? RLV_TERMINATED : RLV_TRUNCATED,
				      n % 4 == 0);
	replay_writer_done(&writer);
	replay_oracle_end(&fx->oracle, 0);
}

static void open_stacked(struct replay_fixture *fx)
{
	open_view(fx, &stacked);
}

static void expect_array(const struct rlv_array *array, const char *name, uint32_t dtype,
			 const int64_t *shape)
{
	assert_string_equal(array->name, name);
	assert_int_equal(array->dtype, dtype);
	for (uint32_t d = 0; d < array->ndim; d++)
		assert_int_equal(array->shape[d], shape[d]);
	assert_int_equal(shape[array->ndim], 0);
}

TEST(sampler_sample__arrays_in_signature_order)
{
	struct replay_fixture fx;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;

	open_stacked(&fx);
	sampler = replay_sampler(&fx, NULL);
	batch = replay_sample(sampler, 30);
	assert_int_equal(batch->n, 30);
	assert_int_equal(batch->n_arrays, 10);
	expect_array(&batch->arrays[0], "obs", RLV_F32, (int64_t[]){ 30, 4, 3, 0 });
	expect_array(&batch->arrays[1], "next_obs", RLV_F32, (int64_t[]){ 30, 4, 3, 0 });
	expect_array(&batch->arrays[2], "frame", RLV_U8, (int64_t[]){ 30, 4, 2, 3, 0 });
	expect_array(&batch->arrays[3], "next_frame", RLV_U8, (int64_t[]){ 30, 4, 2, 3, 0 });
	expect_array(&batch->arrays[4], "action", RLV_I32, (int64_t[]){ 30, 0 });
	expect_array(&batch->arrays[5], "reward", RLV_F32, (int64_t[]){ 30, 0 });
	expect_array(&batch->arrays[6], "bonus", RLV_F64, (int64_t[]){ 30, 0 });
	expect_array(&batch->arrays[7], "id", RLV_U64, (int64_t[]){ 30, 0 });
	expect_array(&batch->arrays[8], "discount", RLV_F32, (int64_t[]){ 30, 0 });
	expect_array(&batch->arrays[9], "steps", RLV_U32, (int64_t[]){ 30, 0 });
	rlv_batch_release(sampler, batch);
	replay_end(&fx, NULL, &sampler);
}

/* Strides of a packed array follow from its shape. */
TEST(sampler_sample__dense_arrays_are_packed)
{
	struct replay_fixture fx;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;

	open_stacked(&fx);
	sampler = replay_sampler(&fx, NULL);
	batch = replay_sample(sampler, 30);
	for (uint32_t a = 0; a < batch->n_arrays; a++) {
		const struct rlv_array *array = &batch->arrays[a];

		for (uint32_t d = 0; d + 1 < array->ndim; d++)
			assert_int_equal(array->strides[d],
					 array->strides[d + 1] * array->shape[d + 1]);
		assert_int_equal((uintptr_t)array->data % 64, 0);
	}
	assert_int_equal(batch->arrays[2].strides[3], 1);
	assert_int_equal(batch->arrays[0].strides[2], 4);
	rlv_batch_release(sampler, batch);
	replay_end(&fx, NULL, &sampler);
}

TEST(sampler_sample__window_shares_frames)
{
	const struct replay_look look = { .stack = 4, .n_step = 1, .gamma = 0.99 };
	struct rlv_sampler_opts opts = { .layout = RLV_WINDOW };
	struct replay_fixture fx;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;
	const struct rlv_array *obs, *next;

	open_stacked(&fx);
	sampler = replay_sampler(&fx, &opts);
	batch = replay_sample(sampler, 200);
	obs = replay_array(batch, "frame");
	next = replay_array(batch, "next_frame");
	assert_int_equal(obs->strides[0], 5 * REPLAY_FRAME);
	assert_int_equal(obs->strides[1], REPLAY_FRAME);
	assert_int_equal(next->strides[0], 5 * REPLAY_FRAME);
	assert_ptr_equal((uint8_t *)obs->data + REPLAY_FRAME, next->data);
	replay_check_batch(&fx.oracle, &stacked, &look, batch);
	rlv_batch_release(sampler, batch);
	replay_end(&fx, NULL, &sampler);
}

TEST(sampler_sample__both_layouts_give_the_same_items)
{
	struct rlv_sampler_opts dense = { .seed = 3 };
	struct rlv_sampler_opts window = { .seed = 3, .layout = RLV_WINDOW };
	const struct replay_look look = { .stack = 4, .n_step = 1, .gamma = 0.99 };
	struct rlv_sampler *samplers[2];
	const struct rlv_batch *batches[2];
	struct replay_fixture fx;

	open_stacked(&fx);
	samplers[0] = replay_sampler(&fx, &dense);
	samplers[1] = replay_sampler(&fx, &window);
	for (uint32_t i = 0; i < 2; i++) {
		batches[i] = replay_sample(samplers[i], 256);
		replay_check_batch(&fx.oracle, &stacked, &look, batches[i]);
	}
	assert_memory_equal(batches[0]->key, batches[1]->key, 256 * sizeof(uint64_t));
	for (uint32_t i = 0; i < 2; i++)
		replay_sampler_done(&samplers[i]);
	replay_close(&fx);
}

TEST(sampler_sample__window_of_every_n_step)
{
	static const struct rlv_view view = { .selector = RLV_UNIFORM, .stack = 3, .n_step = 5 };
	struct replay_fixture fx;

	open_view(&fx, &view);
	for (uint32_t n = 1; n <= view.n_step; n++) {
		struct rlv_sampler_opts opts = { .layout = RLV_WINDOW, .n_step = n };
		const struct replay_look look = { .stack = 3, .n_step = n, .gamma = 0.99 };
		struct rlv_sampler *sampler = replay_sampler(&fx, &opts);
		const struct rlv_batch *batch = replay_sample(sampler, 200);

		replay_check_batch(&fx.oracle, &view, &look, batch);
		rlv_batch_release(sampler, batch);
		replay_sampler_done(&sampler);
	}
	replay_close(&fx);
}

static void set_return(struct rlv_sampler *sampler, uint32_t n_step, double gamma)
{
	struct rlv_sample_opts opts = RLV_SAMPLE_OPTS_INIT;

	opts.n_step = n_step;
	opts.gamma = gamma;
	assert_int_equal(rlv_sampler_set_opts(sampler, &opts), 0);
}

/* One sampler, every n-step return; the previous batch is held and must not change. */
TEST(sampler_set_opts__every_return)
{
	static const struct rlv_view view = { .selector = RLV_UNIFORM, .stack = 3, .n_step = 5 };
	struct replay_fixture fx;

	open_view(&fx, &view);
	for (uint32_t layout = RLV_DENSE; layout <= RLV_WINDOW; layout++) {
		struct rlv_sampler_opts opts = { .layout = layout, .gamma = 0.9 };
		struct replay_look before = { .stack = 3, .n_step = 5, .gamma = 0.9 };
		struct rlv_sampler *sampler = replay_sampler(&fx, &opts);
		const struct rlv_batch *held = replay_sample(sampler, 200);

		for (uint32_t i = 0; i < 10; i++) {
			struct replay_look look = { 3, 1 + i * 3 % 5, i % 2 ? 0.5 : 0.9 };
			const struct rlv_batch *batch;

			set_return(sampler, look.n_step, i % 2 ? 0.5 : 0);
			batch = replay_sample(sampler, 200);
			replay_check_batch(&fx.oracle, &view, &look, batch);
			replay_check_batch(&fx.oracle, &view, &before, held);
			rlv_batch_release(sampler, held);
			held = batch;
			before = look;
		}
		replay_sampler_done(&sampler);
	}
	replay_close(&fx);
}

TEST(sampler_set_opts__wrong_values_change_nothing)
{
	static const struct rlv_view view = { .selector = RLV_UNIFORM, .n_step = 5 };
	const struct replay_look look = { .stack = 1, .n_step = 3, .gamma = 0.9 };
	struct rlv_sample_opts opts = RLV_SAMPLE_OPTS_INIT;
	struct rlv_sampler_opts how = { .n_step = 3, .gamma = 0.9 };
	const struct rlv_batch *batch;
	struct rlv_sampler *sampler;
	struct replay_fixture fx;

	open_view(&fx, &view);
	sampler = replay_sampler(&fx, &how);
	opts.gamma = 0.1;
	opts.n_step = 4;
	replay_expect(rlv_sampler_set_opts(sampler, &opts), -EINVAL, "n_step 4");
	opts.n_step = 1;
	opts.gamma = 1.1;
	replay_expect(rlv_sampler_set_opts(sampler, &opts), -EINVAL, "gamma 1.1");
	opts.size = 0;
	replay_expect(rlv_sampler_set_opts(sampler, &opts), -EINVAL, "size 0");
	replay_expect(rlv_sampler_set_opts(NULL, NULL), -EINVAL, "sampler");
	batch = replay_sample(sampler, 100);
	replay_check_batch(&fx.oracle, &view, &look, batch);
	set_return(sampler, 1, 0.5);
	rlv_batch_release(sampler, batch);
	assert_int_equal(rlv_sampler_set_opts(sampler, NULL), 0);
	batch = replay_sample(sampler, 100);
	replay_check_batch(&fx.oracle, &view, &look, batch);
	replay_end(&fx, NULL, &sampler);
}

/* Batches larger than the cache are written past it. */
TEST(sampler_sample__large_batches)
{
	const struct rlv_column columns[] = {
		{ .name = "frame",
		  .dtype = RLV_U8,
		  .role = RLV_OBS,
		  .ndim = 2,
		  .shape = { 84, 84 } },
		{ .name = "id", .dtype = RLV_U64 },
	};
	const struct rlv_view view = { .selector = RLV_UNIFORM, .stack = 4 };
	const struct rlv_table_opts opts = { .n_views = 1,
					     .views = &view,
					     .capacity = 512,
					     .max_writers = 1,
					     .n_columns = 2,
					     .columns = columns };
	static uint8_t frames[64][84 * 84];
	uint64_t ids[64];
	const void *data[2] = { frames, ids };
	struct rlv_steps steps = RLV_STEPS_INIT;
	struct replay_fixture fx;
	struct rlv_writer *writer;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	for (uint32_t i = 0; i < 64; i++) {
		memset(frames[i], (int)(i + 1), sizeof(frames[i]));
		ids[i] = i;
	}
	steps.n = 64;
	steps.columns = data;
	assert_int_equal(rlv_writer_append(writer, 0, &steps, NULL), 0);
	for (uint32_t layout = RLV_DENSE; layout <= RLV_WINDOW; layout++) {
		struct rlv_sampler_opts how = { .layout = layout };
		struct rlv_sampler *sampler = replay_sampler(&fx, &how);
		const struct rlv_batch *batch = replay_sample(sampler, 256);
		const struct rlv_array *next = replay_array(batch, "next_frame");

		for (uint32_t i = 0; i < batch->n; i++) {
			uint64_t id = replay_batch_id(batch, i);

			for (uint32_t p = 0; p < 4; p++) {
				const uint8_t *frame = (const uint8_t *)next->data +
						       i * next->strides[0] + p * next->strides[1];
				uint64_t want = id + 1 + p >= 3 ? id + 1 + p - 3 : 0;

				assert_int_equal(frame[0], want + 1);
				assert_memory_equal(frame, frame + 1, 84 * 84 - 1);
			}
		}
		rlv_batch_release(sampler, batch);
		replay_sampler_done(&sampler);
	}
	replay_end(&fx, &writer, NULL);
}

TEST(sampler_sample__all_batches_held_gives_ebusy)
{
	struct rlv_sampler_opts opts = { .batches = 3 };
	const struct rlv_batch *held[3], *more;
	struct replay_fixture fx;
	struct rlv_sampler *sampler;
	uint64_t first;

	open_stacked(&fx);
	sampler = replay_sampler(&fx, &opts);
	for (uint32_t i = 0; i < 3; i++)
		held[i] = replay_sample(sampler, 8);
	first = replay_batch_id(held[0], 0);
	replay_expect(rlv_sampler_sample(sampler, 8, 0, &more), -EBUSY, "3 batches are held");
	assert_int_equal(replay_batch_id(held[0], 0), first);
	rlv_batch_release(sampler, held[1]);
	more = replay_sample(sampler, 8);
	assert_ptr_equal(more, held[1]);
	replay_sampler_done(&sampler); /* releases the held batches */
	replay_close(&fx);
}

TEST(sampler_sample__as_many_batches_as_are_held)
{
	const struct replay_look look = { .stack = 4, .n_step = 1, .gamma = 0.99 };
	struct rlv_sampler_opts opts = { .batches = RLV_BATCHES_ANY, .batch_size = 8 };
	const struct rlv_batch *held[100];
	struct replay_fixture fx;
	struct rlv_sampler *sampler;

	open_stacked(&fx);
	sampler = replay_sampler(&fx, &opts);
	for (uint32_t i = 0; i < 100; i++)
		held[i] = replay_sample(sampler, 8);
	for (uint32_t i = 0; i < 100; i++)
		replay_check_batch(&fx.oracle, &stacked, &look, held[i]);
	rlv_batch_release(sampler, held[57]);
	assert_ptr_equal(replay_sample(sampler, 8), held[57]);
	replay_end(&fx, NULL, &sampler);
}

TEST(batch_release__null_and_foreign_are_no_ops)
{
	struct rlv_sampler_opts opts = { .batches = 1 };
	struct replay_fixture fx;
	struct rlv_sampler *sampler, *other;
	const struct rlv_batch *batch, *more;

	open_stacked(&fx);
	sampler = replay_sampler(&fx, &opts);
	other = replay_sampler(&fx, &opts);
	batch = replay_sample(sampler, 8);
	rlv_batch_release(sampler, NULL);
	rlv_batch_release(NULL, batch);
	rlv_batch_release(other, batch);
	replay_expect(rlv_sampler_sample(sampler, 8, 0, &more), -EBUSY, NULL);
	rlv_batch_release(sampler, batch);
	batch = replay_sample(sampler, 8);
	replay_sampler_done(&other);
	replay_end(&fx, NULL, &sampler);
}

/* -------- memory of the caller's -------- */

/* One arena; every free is counted. */
struct arena {
	_Alignas(64) uint8_t bytes[1 << 16];
	size_t used;
	unsigned allocs, frees;
};

static void *arena_alloc(void *ctx, size_t align, size_t bytes)
{
	struct arena *arena = ctx;
	void *ptr = arena->bytes + arena->used;

	if (arena->used + bytes > sizeof(arena->bytes))
		return NULL;
	assert_int_equal((uintptr_t)ptr % align, 0);
	arena->used += (bytes + align - 1) / align * align;
	arena->allocs++;
	return ptr;
}

static void arena_free(void *ctx, void *ptr, size_t bytes)
{
	struct arena *arena = ctx;

	assert_true((uint8_t *)ptr >= arena->bytes);
	assert_true((uint8_t *)ptr + bytes <= arena->bytes + sizeof(arena->bytes));
	arena->frees++;
}

TEST(sampler_open__batches_lie_in_memory_given)
{
	static struct arena arena;
	const struct rlv_memory memory = { arena_alloc, arena_free, &arena };
	struct rlv_sampler_opts opts = { .memory = &memory, .batches = 2, .batch_size = 16 };
	struct replay_fixture fx;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;

	open_stacked(&fx);
	sampler = replay_sampler(&fx, &opts);
	assert_int_equal(arena.allocs, 2);
	batch = replay_sample(sampler, 16);
	for (uint32_t a = 0; a < batch->n_arrays; a++) {
		assert_true((uint8_t *)batch->arrays[a].data >= arena.bytes);
		assert_true((uint8_t *)batch->arrays[a].data < arena.bytes + arena.used);
	}
	assert_int_equal(arena.frees, 0);
	replay_sampler_done(&sampler);
	assert_int_equal(arena.frees, 2);
	replay_close(&fx);
}

TEST(sampler_open__memory_given_is_not_enough)
{
	static struct arena arena;
	const struct rlv_memory memory = { arena_alloc, arena_free, &arena };
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_sampler *sampler = NULL;
	struct replay_fixture fx;

	open_stacked(&fx);
	opts.memory = &memory;
	opts.batches = 64;
	replay_expect(rlv_sampler_open(fx.table, &opts, &sampler), -ENOMEM, NULL);
	assert_null(sampler);
	assert_int_equal(arena.allocs, arena.frees);
	replay_close(&fx);
}

/* The sample that finds no room fails; those that are held stay, and one that is released serves. */
TEST(sampler_sample__memory_given_is_used_up)
{
	static struct arena arena;
	const struct rlv_memory memory = { arena_alloc, arena_free, &arena };
	struct rlv_sampler_opts opts = { .memory = &memory,
					 .batches = RLV_BATCHES_ANY,
					 .batch_size = 16 };
	const struct rlv_batch *last, *more;
	struct replay_fixture fx;
	struct rlv_sampler *sampler;

	open_stacked(&fx);
	sampler = replay_sampler(&fx, &opts);
	last = replay_sample(sampler, 16);
	while (rlv_sampler_sample(sampler, 16, 0, &more) == 0)
		last = more;
	replay_expect(rlv_sampler_sample(sampler, 16, 0, &more), -ENOMEM, "bytes");
	rlv_batch_release(sampler, last);
	assert_ptr_equal(replay_sample(sampler, 16), last);
	replay_sampler_done(&sampler);
	assert_int_equal(arena.allocs, arena.frees);
	replay_close(&fx);
}

/* How many bytes of the arena are not as the test left them. */
static size_t arena_changed(const struct arena *arena)
{
	size_t changed = 0;

	for (size_t i = 0; i < sizeof(arena->bytes); i++)
		changed += arena->bytes[i] != 0xee;
	return changed;
}

TEST(sampler_sample__takes_a_buffer_when_it_needs_one)
{
	static struct arena arena;
	const struct rlv_memory memory = { arena_alloc, arena_free, &arena };
	struct rlv_sampler_opts opts = { .memory = &memory, .batches = 2, .batch_size = 16 };
	struct replay_fixture fx;
	struct rlv_sampler *sampler;

	open_stacked(&fx);
	memset(arena.bytes, 0xee, sizeof(arena.bytes));
	sampler = replay_sampler(&fx, &opts);
	assert_int_equal(arena_changed(&arena), 0);
	for (int i = 0; i < 3; i++) {
		rlv_batch_release(sampler, replay_sample(sampler, 16));
		assert_in_range(arena_changed(&arena), 1, arena.used / 2);
	}
	replay_sample(sampler, 16);
	replay_sample(sampler, 16);
	assert_in_range(arena_changed(&arena), arena.used / 2 + 1, arena.used);
	replay_sampler_done(&sampler);

	opts.batches = RLV_BATCHES_ANY;
	arena.used = arena.allocs = 0;
	sampler = replay_sampler(&fx, &opts);
	assert_int_equal(arena.allocs, 0);
	rlv_batch_release(sampler, replay_sample(sampler, 16));
	rlv_batch_release(sampler, replay_sample(sampler, 16));
	assert_int_equal(arena.allocs, 1);
	replay_sampler_done(&sampler);
	replay_close(&fx);
}

TEST(sampler_open__batches_lie_in_one_chunk_each)
{
	struct rlv_sampler_opts opts = { .batches = 2, .batch_size = 16 };
	const struct rlv_batch *batch;
	struct rlv_sampler *sampler;
	struct replay_fixture fx;
	struct chunk_usage usage;
	uint32_t first, index;

	open_stacked(&fx);
	sampler = replay_sampler(&fx, &opts);
	batch = replay_sample(sampler, 16);
	assert_true(chunk_find(batch->arrays[0].data, 16, &first));
	for (uint32_t a = 0; a < batch->n_arrays; a++) {
		assert_true(chunk_find(batch->arrays[a].data, 16, &index));
		assert_int_equal(index, first);
	}
	assert_true(chunk_find(batch->key, 16 * sizeof(*batch->key), &index));
	replay_sampler_done(&sampler);
	chunk_usage(&usage);
	assert_int_equal(usage.chunks, 0);
	replay_close(&fx);
}

int main(void)
{
	return test_run(NULL, NULL);
}
