/* Tensors in the same memory are stored, compared and sent once. */
#include "tests/support/fixture/weights_fixture.h"
#include "tests/support/must.h"
#include "tests/support/temp_dir.h"

#include "client/weights/weights.h"

#include <errno.h>
#include <string.h>

#define ELEMENTS 40000u
#define BYTES (ELEMENTS * sizeof(float))

static float embed[ELEMENTS], other[ELEMENTS], small[7];

static const struct rlv_weights_opts opts = {
	.size = sizeof(opts), .bytes = 2 * BYTES + 512, .anchor_every = 64, .max_clients = 8
};

static int set_up(void **state)
{
	for (uint32_t i = 0; i < ELEMENTS; i++)
		embed[i] = other[i] = (float)i;
	return weights_fixture_open(state);
}

static struct rlv_generations *join(void)
{
	struct rlv_generations *weights = NULL;

	must(rlv_weights_create(weights_store, "policy", &opts, &weights), "rlv_weights_create");
	return weights;
}

#define TENSORS 4
/* The last publish. */
static struct rlv_tensor last[TENSORS];

/* Publishes four tensors, of which the last lies at `head`. */
static int publish(struct rlv_generations *weights, uint64_t version, const float *head)
{
	const struct rlv_tensor tensors[TENSORS] = {
		{ .size = sizeof(tensors[0]),
		  .dtype = RLV_F32,
		  .ndim = 2,
		  .name = "embed",
		  .shape = { ELEMENTS / 100, 100 },
		  .data = embed },
		{ .size = sizeof(tensors[0]),
		  .dtype = RLV_F32,
		  .ndim = 1,
		  .name = "bias",
		  .shape = { 7 },
		  .data = small },
		{ .size = sizeof(tensors[0]),
		  .dtype = RLV_F32,
		  .ndim = 1,
		  .name = "part",
		  .shape = { 50 },
		  .data = embed },
		{ .size = sizeof(tensors[0]),
		  .dtype = RLV_F32,
		  .ndim = 2,
		  .name = "head",
		  .shape = { 100, ELEMENTS / 100 },
		  .data = head },
	};

	memcpy(last, tensors, sizeof(last));
	return rlv_weights_publish(weights, tensors, TENSORS, version, 0);
}

/* All tensors of the generation are as they were published, and the last one is at the first, or not. */
static void expect_last(const struct rlv_generation *got, bool tied)
{
	assert_int_equal(got->n_tensors, TENSORS);
	for (uint32_t i = 0; i < TENSORS; i++) {
		assert_string_equal(got->tensors[i].name, last[i].name);
		assert_memory_equal(got->tensors[i].shape, last[i].shape, sizeof(last[i].shape));
		assert_memory_equal(got->tensors[i].data, last[i].data, got->tensors[i].bytes);
	}
	assert_int_equal(got->tensors[3].bytes, BYTES);
	assert_int_equal(got->tensors[3].data == got->tensors[0].data, tied);
	assert_int_equal(got->bytes,
			 (tied ? 1 : 2) * BYTES + 64 + 256); /* part: stored beside it */
}

static void expect_fetch(struct rlv_generations *weights, uint64_t version, uint32_t deltas,
			 bool tied)
{
	struct rlv_generation got = RLV_GENERATION_INIT;

	must(rlv_weights_fetch(weights, version - 1, 0, &got), "rlv_weights_fetch");
	assert_int_equal(got.version, version);
	assert_int_equal(got.n_deltas, deltas);
	assert_int_equal(got.flags, 0);
	expect_last(&got, tied);
	rlv_generation_release(&got);
}

/* Once in the payload; and once in deltas, which say so by their bytes. */
TEST_WITH(tied__are_stored_and_sent_once, set_up, weights_fixture_close)
{
	struct rlv_generations *learner = join(), *actor = join(), *late;
	uint64_t changed = 50, bytes;

	must(publish(learner, 1, embed), "publish");
	assert_int_equal(learner->table.gens[0].payload, BYTES + 64 + 256);
	expect_fetch(actor, 1, 0, true);
	for (uint64_t v = 2; v < 8; v++) {
		for (uint64_t i = 0; i < changed; i++)
			embed[100 + i * 700] += 1;
		must(publish(learner, v, embed), "publish");
		bytes = learner->table.gens[0].delta.bytes;
		assert_in_range(bytes, changed * 6, changed * 6 + 200);
		expect_fetch(actor, v, v == 2 ? 1 : 2, true);
	}
	late = join();
	expect_fetch(late, 7, 6, true);
	assert_int_equal(learner->stats.anchors, 1);
	weights_fixture_leave(&late);
	weights_fixture_leave(&actor);
	weights_fixture_leave(&learner);
}

/* Tied tensors may have memory of their own in the next generation, and the reverse: each is an anchor, also of another handle. */
TEST_WITH(tied__changes_make_an_anchor, set_up, weights_fixture_close)
{
	struct rlv_generations *learner = join(), *second = join(), *actor = join();

	must(publish(learner, 1, embed), "publish");
	expect_fetch(actor, 1, 0, true);
	embed[3] = -1;
	must(publish(learner, 2, embed), "publish of a delta");
	expect_fetch(actor, 2, 1, true);
	other[5] = -2;
	must(publish(learner, 3, other), "publish of what is not tied any more");
	assert_int_equal(learner->stats.anchors, 2);
	expect_fetch(actor, 3, 0, false);
	other[6] = -3;
	must(publish(learner, 4, other), "publish of a delta");
	assert_int_equal(learner->stats.anchors, 2);
	expect_fetch(actor, 4, 1, false);
	must(publish(second, 5, embed), "publish of what is tied again");
	expect_fetch(actor, 5, 0, true);
	weights_fixture_leave(&actor);
	weights_fixture_leave(&second);
	weights_fixture_leave(&learner);
}

/* Only what is tied may differ: other names, shapes or dtypes are another tree. */
TEST_WITH(tied__is_no_excuse_for_other_tensors, set_up, weights_fixture_close)
{
	struct rlv_generations *learner = join();
	struct rlv_tensor tensors[TENSORS];

	must(publish(learner, 1, embed), "publish");
	memcpy(tensors, last, sizeof(last));
	tensors[3].data = other;
	tensors[3].name = "tail";
	expect(rlv_weights_publish(learner, tensors, TENSORS, 2, 0), -EINVAL);
	tensors[3] = last[3];
	tensors[3].shape[0] = ELEMENTS / 100;
	tensors[3].shape[1] = 100;
	expect(rlv_weights_publish(learner, tensors, TENSORS, 2, 0), -EINVAL);
	tensors[3] = last[3];
	tensors[3].dtype = RLV_I32;
	expect(rlv_weights_publish(learner, tensors, TENSORS, 2, 0), -EINVAL);
	expect(rlv_weights_publish(learner, tensors, TENSORS - 1, 2, 0), -EINVAL);
	tensors[1].name = "embed";
	expect(rlv_weights_publish(learner, tensors, TENSORS, 2, RLV_PUBLISH_NEW_TREE), -EINVAL);
	tensors[1].name = "bias";
	must(rlv_weights_publish(learner, tensors, TENSORS, 2, RLV_PUBLISH_NEW_TREE), "publish");
	weights_fixture_leave(&learner);
}

/* Generations that are only tied fit, where those with memory of their own do not. */
TEST_WITH(tied__count_once_for_the_bound, set_up, weights_fixture_close)
{
	const struct rlv_weights_opts tight = { .size = sizeof(tight), .bytes = BYTES + 320 };
	struct rlv_generations *learner = NULL;

	must(rlv_weights_create(weights_store, "tight", &tight, &learner), "rlv_weights_create");
	must(publish(learner, 1, embed), "publish");
	expect(publish(learner, 2, other), -ERANGE);
	must(publish(learner, 3, embed), "publish");
	weights_fixture_leave(&learner);
}

static void expect_streamed(struct rlv_generations *weights)
{
	struct rlv_generation got = RLV_GENERATION_INIT;
	uint32_t ready;

	must(rlv_weights_begin(weights, 0, 0, &got, &ready), "rlv_weights_begin");
	assert_true(ready < TENSORS);
	while (ready < TENSORS) {
		must(rlv_weights_more(weights, &got, &ready), "rlv_weights_more");
		for (uint32_t i = 0; i < ready; i++)
			assert_memory_equal(got.tensors[i].data, last[i].data,
					    got.tensors[i].bytes);
	}
	expect_last(&got, true);
	rlv_generation_release(&got);
}

/* In parts, and without a copy. */
TEST(tied__in_parts_and_mapped)
{
	const struct rlv_store_opts pool = { .size = sizeof(pool), .pool_bytes = 32 << 20 };
	struct rlv_generation got = RLV_GENERATION_INIT;
	struct rlv_generations *learner, *actor;
	char dir[TEMP_DIR_BYTES], uri[TEMP_DIR_BYTES + 16];

	temp_dir_make(dir);
	snprintf(uri, sizeof(uri), "embed:%s/pool", dir);
	must(rlv_store_open(uri, &pool, &weights_store), uri);
	learner = join();
	actor = join();
	must(rlv_weights_limit(actor, 4096), "rlv_weights_limit");
	must(publish(learner, 1, embed), "publish");
	expect_streamed(actor);
	must(rlv_weights_map(actor, 0, 0, &got), "rlv_weights_map");
	assert_int_equal(got.mapped, 2 * BYTES + 7 * 4 + 50 * 4); /* of tensors */
	expect_last(&got, true);
	rlv_generation_release(&got);
	weights_fixture_leave(&actor);
	weights_fixture_leave(&learner);
	must(rlv_store_close(&weights_store), "rlv_store_close");
	temp_dir_remove(dir);
}

int main(void)
{
	return test_run(NULL, NULL);
}
