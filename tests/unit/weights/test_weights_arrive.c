/* Generations whose first tensors are read while others are on their way. */
#include "tests/support/fixture/weights_fixture.h"
#include "tests/support/must.h"
#include "tests/support/temp_dir.h"

#include "relive/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LAYERS 8u
#define TENSORS (LAYERS + 2)
#define ELEMENTS 30011u
#define CHUNK 61440u

/* Layers, one without elements between them, and a scalar behind them. */
struct policy {
	uint16_t layer[LAYERS][ELEMENTS];
	int64_t step;
};

static struct policy policy;

/* No two places have the same run of bytes. */
static uint16_t element(uint64_t version, uint32_t i)
{
	uint32_t x = (uint32_t)version << 20 ^ (i + 1);

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return (uint16_t)(x ^ x >> 16);
}

static void policy_fill(uint64_t version)
{
	for (uint32_t i = 0; i < LAYERS; i++)
		for (uint32_t k = 0; k < ELEMENTS; k++)
			policy.layer[i][k] = element(version, i * ELEMENTS + k);
	policy.step = (int64_t)version;
}

static void policy_tensors(struct rlv_tensor tensors[TENSORS])
{
	static char names[TENSORS][16];
	uint32_t n = 0;

	for (uint32_t i = 0; i < TENSORS; i++) {
		bool is_layer = i != 3 && i != TENSORS - 1;

		snprintf(names[i], sizeof(names[i]), "layer/%u", i);
		tensors[i] = (struct rlv_tensor){ .size = sizeof(tensors[0]),
						  .dtype = RLV_BF16,
						  .ndim = 1,
						  .name = names[i],
						  .shape = { is_layer ? ELEMENTS : 0 },
						  .data = is_layer ? policy.layer[n] : NULL };
		n += is_layer;
	}
	tensors[TENSORS - 1].dtype = RLV_I64;
	tensors[TENSORS - 1].ndim = 0;
	tensors[TENSORS - 1].data = &policy.step;
}

static int publish(struct rlv_generations *weights, uint64_t version, uint32_t flags)
{
	struct rlv_tensor tensors[TENSORS];

	policy_fill(version);
	policy_tensors(tensors);
	return rlv_weights_publish(weights, tensors, TENSORS, version, flags);
}

static void expect_ready(const struct rlv_generation *got, uint64_t version, uint32_t ready)
{
	struct rlv_tensor want[TENSORS];

	policy_fill(version);
	policy_tensors(want);
	assert_int_equal(got->version, version);
	assert_int_equal(got->n_tensors, TENSORS);
	for (uint32_t i = 0; i < TENSORS; i++) {
		assert_string_equal(got->tensors[i].name, want[i].name);
		assert_int_equal(got->tensors[i].dtype, want[i].dtype);
		assert_int_equal(got->tensors[i].shape[0], want[i].shape[0]);
		if (i < ready && got->tensors[i].bytes)
			assert_memory_equal(got->tensors[i].data, want[i].data,
					    got->tensors[i].bytes);
	}
}

/* A handle that reads a chunk at a time. */
static struct rlv_generations *join(uint32_t keep, uint32_t anchor_every)
{
	const struct rlv_weights_opts opts = { .size = sizeof(opts),
					       .bytes = sizeof(policy) + 1024,
					       .keep = keep,
					       .anchor_every = anchor_every,
					       .max_clients = 8 };
	struct rlv_generations *weights = NULL;

	must(rlv_weights_create(weights_store, "policy", &opts, &weights), "rlv_weights_create");
	must(rlv_weights_limit(weights, CHUNK), "rlv_weights_limit");
	return weights;
}

static struct rlv_generation begin(struct rlv_generations *weights, uint32_t *ready)
{
	struct rlv_generation got = RLV_GENERATION_INIT;

	must(rlv_weights_begin(weights, 0, 0, &got, ready), "rlv_weights_begin");
	return got;
}

TEST_WITH(arrive__tensors_are_ready_in_their_order, weights_fixture_open, weights_fixture_close)
{
	struct rlv_generations *learner = join(2, 4), *actor = join(2, 4);
	struct rlv_generation none = RLV_GENERATION_INIT, got, whole = RLV_GENERATION_INIT;
	uint32_t ready, calls = 0;

	expect(rlv_weights_begin(actor, 0, 0, &none, &ready), -ETIMEDOUT);
	must(publish(learner, 1, 0), "publish");
	got = begin(actor, &ready);
	assert_int_equal(ready, 1); /* the first chunk has the head and the first layer */
	for (; ready < TENSORS; calls++) {
		uint32_t before = ready;

		expect_ready(&got, 1, ready);
		must(rlv_weights_more(actor, &got, &ready), "rlv_weights_more");
		assert_in_range(ready, before + 1, before + 3);
	}
	expect_ready(&got, 1, TENSORS);
	assert_int_equal(calls, LAYERS - 1);
	must(rlv_weights_more(actor, &got, &ready), "when all are ready");
	assert_int_equal(ready, TENSORS);
	/* It is what the handle has from then on: deltas lead on from it, and all is ready at once. */
	must(rlv_weights_fetch(actor, 0, 0, &whole), "rlv_weights_fetch");
	assert_ptr_equal(whole.data, got.data);
	rlv_generation_release(&whole);
	rlv_generation_release(&got);
	policy_fill(1);
	policy.layer[2][5] ^= 1;
	policy.step = 2;
	{
		struct rlv_tensor tensors[TENSORS];

		policy_tensors(tensors);
		must(rlv_weights_publish(learner, tensors, TENSORS, 2, 0), "publish a delta");
	}
	got = begin(actor, &ready);
	assert_int_equal(ready, TENSORS);
	assert_int_equal(got.n_deltas, 1);
	assert_int_equal(got.version, 2);
	rlv_generation_release(&got);
	weights_fixture_leave(&actor);
	weights_fixture_leave(&learner);
}

/* The publisher goes on meanwhile, so that the rest is gone: an error, and what was ready stays. */
TEST_WITH(arrive__a_generation_that_is_dropped_meanwhile, weights_fixture_open,
	  weights_fixture_close)
{
	struct rlv_generations *learner = join(1, 1), *actor = join(1, 1);
	struct rlv_generation old, got;
	uint32_t ready, before, now = 0;

	must(publish(learner, 1, 0), "publish");
	old = begin(actor, &ready);
	must(rlv_weights_more(actor, &old, &ready), "rlv_weights_more");
	before = ready;
	for (uint64_t v = 2; v < 12; v++) /* all chunks are used again */
		must(publish(learner, v, 0), "publish");
	expect(rlv_weights_more(actor, &old, &ready), -EAGAIN);
	assert_int_equal(ready, before);
	expect_ready(&old, 1, ready);
	got = begin(actor, &now);
	while (now < TENSORS)
		must(rlv_weights_more(actor, &got, &now), "rlv_weights_more");
	expect_ready(&got, 11, TENSORS);
	expect(rlv_weights_more(actor, &old, &ready), -EAGAIN);
	expect_ready(&old, 1, ready);
	rlv_generation_release(&old);
	expect(rlv_weights_more(actor, &old, &ready), -EINVAL);
	rlv_generation_release(&got);
	weights_fixture_leave(&actor);
	weights_fixture_leave(&learner);
}

/* Two that arrive in turn, one that is left and one that outlives its handle. */
TEST_WITH(arrive__several_at_once, weights_fixture_open, weights_fixture_close)
{
	struct rlv_generations *learner = join(4, 1), *actor = join(4, 1);
	struct rlv_generation got[3], newest = RLV_GENERATION_INIT;
	struct rlv_weights_info info = RLV_WEIGHTS_INFO_INIT;
	uint32_t ready[3], more = 0;

	for (uint64_t v = 1; v <= 3; v++) {
		must(publish(learner, v, 0), "publish");
		got[v - 1] = begin(actor, &ready[v - 1]);
	}
	rlv_generation_release(&got[1]);
	while (ready[2] < TENSORS) {
		if (ready[0] < TENSORS / 2)
			must(rlv_weights_more(actor, &got[0], &ready[0]), "of the first");
		must(rlv_weights_more(actor, &got[2], &ready[2]), "of the third");
	}
	must(rlv_weights_fetch(actor, 0, 0, &newest), "rlv_weights_fetch");
	assert_ptr_equal(newest.data, got[2].data);
	rlv_generation_release(&newest);
	while (ready[0] < TENSORS) /* an older one does not become what the handle has */
		must(rlv_weights_more(actor, &got[0], &ready[0]), "of the first");
	must(rlv_weights_info(actor, &info), "rlv_weights_info");
	assert_int_equal(info.publish_lag, 0);
	must(publish(learner, 4, 0), "publish");
	newest = begin(actor, &more);
	weights_fixture_leave(&actor);
	expect_ready(&got[0], 1, TENSORS);
	expect_ready(&got[2], 3, TENSORS);
	expect_ready(&newest, 4, more);
	rlv_generation_release(&got[0]);
	rlv_generation_release(&got[2]);
	rlv_generation_release(&newest);
	weights_fixture_leave(&learner);
}

/* Flips a bit of each such run of bytes of a file of the pool's folder. */
static void damage(const char *path, const void *bytes, size_t n)
{
	struct stat st;
	uint8_t *file, *at;
	uint32_t found = 0;
	int fd = open(path, O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	file = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(file != MAP_FAILED);
	for (at = file; (at = memmem(at, (size_t)(file + st.st_size - at), bytes, n)); found++)
		*at ^= 1;
	assert_true(found > 0);
	munmap(file, (size_t)st.st_size);
	close(fd);
}

/* A bit flips in a layer: those before it are ready, and no damaged one ever is. */
TEST(arrive__a_damaged_chunk)
{
	const struct rlv_store_opts pool = { .size = sizeof(pool), .pool_bytes = 32 << 20 };
	char dir[TEMP_DIR_BYTES], path[TEMP_DIR_BYTES + 8], uri[TEMP_DIR_BYTES + 16];
	struct rlv_generations *learner, *actor;
	struct rlv_generation got;
	uint32_t ready;
	int ret = 0;

	temp_dir_make(dir);
	snprintf(path, sizeof(path), "%s/pool", dir);
	snprintf(uri, sizeof(uri), "embed:%s", path);
	must(rlv_store_open(uri, &pool, &weights_store), uri);
	learner = join(2, 1);
	actor = join(2, 1);
	must(publish(learner, 1, 0), "publish");
	damage(path, &policy.layer[5][20000], 64);
	got = begin(actor, &ready);
	while (ret == 0 && ready < TENSORS)
		ret = rlv_weights_more(actor, &got, &ready);
	assert_int_equal(ret, -EBADMSG);
	assert_in_range(ready, 4, 6); /* the tensor without elements is the fourth */
	expect_ready(&got, 1, ready);
	expect(rlv_weights_more(actor, &got, &ready), -EBADMSG);
	rlv_generation_release(&got);
	must(publish(learner, 2, 0), "publish");
	got = begin(actor, &ready);
	while (ready < TENSORS)
		must(rlv_weights_more(actor, &got, &ready), "rlv_weights_more");
	expect_ready(&got, 2, TENSORS);
	rlv_generation_release(&got);
	weights_fixture_leave(&actor);
	weights_fixture_leave(&learner);
	must(rlv_store_close(&weights_store), "rlv_store_close");
	temp_dir_remove(dir);
}

TEST_WITH(arrive__arguments_are_checked, weights_fixture_open, weights_fixture_close)
{
	struct rlv_generations *weights = join(2, 1);
	struct rlv_generation got = RLV_GENERATION_INIT, unsized = { 0 };
	uint32_t ready = 0;

	must(publish(weights, 1, 0), "publish");
	expect(rlv_weights_begin(NULL, 0, 0, &got, &ready), -EINVAL);
	expect(rlv_weights_begin(weights, 0, 0, NULL, &ready), -EINVAL);
	expect(rlv_weights_begin(weights, 0, 0, &got, NULL), -EINVAL);
	expect(rlv_weights_begin(weights, 0, 0, &unsized, &ready), -EINVAL);
	expect(rlv_weights_more(weights, &got, &ready), -EINVAL); /* none was begun */
	expect(rlv_weights_more(weights, NULL, &ready), -EINVAL);
	expect(rlv_weights_more(weights, &unsized, &ready), -EINVAL);
	got = begin(weights, &ready);
	expect(rlv_weights_more(NULL, &got, &ready), -EINVAL);
	expect(rlv_weights_more(weights, &got, NULL), -EINVAL);
	rlv_generation_release(&got);
	weights_fixture_leave(&weights);
}

int main(void)
{
	return test_run(NULL, NULL);
}
