#include "tests/support/fixture/weights_fixture.h"
#include "tests/support/must.h"

#include "relive/weights.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ROWS 300
#define COLUMNS 257

/* A small policy. */
struct policy {
	float layer[ROWS][COLUMNS];
	uint16_t head[7]; /* bf16 */
	int64_t step;
};

static void policy_fill(struct policy *policy, uint64_t version)
{
	for (uint32_t i = 0; i < ROWS; i++)
		for (uint32_t k = 0; k < COLUMNS; k++)
			policy->layer[i][k] = (float)version + (float)(i * COLUMNS + k);
	for (uint32_t i = 0; i < 7; i++)
		policy->head[i] = (uint16_t)(version * 7 + i);
	policy->step = (int64_t)version;
}

#define TENSORS 4
static void policy_tensors(const struct policy *policy, struct rlv_tensor tensors[TENSORS])
{
	tensors[0] = (struct rlv_tensor){ .size = sizeof(tensors[0]),
					  .dtype = RLV_F32,
					  .ndim = 2,
					  .name = "layer/kernel",
					  .shape = { ROWS, COLUMNS },
					  .data = policy->layer };
	tensors[1] = (struct rlv_tensor){ .size = sizeof(tensors[0]),
					  .dtype = RLV_BF16,
					  .ndim = 1,
					  .name = "head",
					  .shape = { 7 },
					  .data = policy->head };
	tensors[2] = (struct rlv_tensor){ .size = sizeof(tensors[0]),
					  .dtype = RLV_F32,
					  .ndim = 2,
					  .name = "nothing",
					  .shape = { 0, 5 } };
	tensors[3] = (struct rlv_tensor){
		.size = sizeof(tensors[0]), .dtype = RLV_I64, .name = "step", .data = &policy->step
	};
}

static struct policy policy;

static int publish(struct rlv_generations *weights, uint64_t version, uint32_t flags)
{
	struct rlv_tensor tensors[TENSORS];

	policy_fill(&policy, version);
	policy_tensors(&policy, tensors);
	return rlv_weights_publish(weights, tensors, TENSORS, version, flags);
}

static void expect_version(const struct rlv_generation *got, uint64_t version)
{
	struct rlv_tensor want[TENSORS];

	policy_fill(&policy, version);
	policy_tensors(&policy, want);
	assert_int_equal(got->version, version);
	assert_int_equal(got->n_tensors, TENSORS);
	for (uint32_t i = 0; i < TENSORS; i++) {
		const struct rlv_tensor *tensor = &got->tensors[i];

		assert_string_equal(tensor->name, want[i].name);
		assert_int_equal(tensor->dtype, want[i].dtype);
		assert_int_equal(tensor->ndim, want[i].ndim);
		assert_memory_equal(tensor->shape, want[i].shape, sizeof(want[i].shape));
		assert_int_equal((uintptr_t)tensor->data % 64, 0);
		if (want[i].data)
			assert_memory_equal(tensor->data, want[i].data, tensor->bytes);
		else
			assert_int_equal(tensor->bytes, 0);
	}
}

static const struct rlv_weights_opts small = { .size = sizeof(small),
					       .bytes = sizeof(struct policy) + 256,
					       .max_clients = 8 };

static struct rlv_generations *create(const struct rlv_weights_opts *opts)
{
	struct rlv_generations *weights = NULL;

	must(rlv_weights_create(weights_store, "policy", opts, &weights), "rlv_weights_create");
	return weights;
}

static struct rlv_generations *join(void)
{
	struct rlv_generations *weights = NULL;

	must(rlv_weights_open(weights_store, "policy", &weights), "rlv_weights_open");
	return weights;
}

static struct rlv_generation fetch(struct rlv_generations *weights, uint64_t newer_than)
{
	struct rlv_generation generation = RLV_GENERATION_INIT;

	must(rlv_weights_fetch(weights, newer_than, 0, &generation), "rlv_weights_fetch");
	return generation;
}

TEST_WITH(weights__a_reader_gets_what_was_published, weights_fixture_open, weights_fixture_close)
{
	struct rlv_generations *learner = create(&small), *actor = join();
	struct rlv_generation none = RLV_GENERATION_INIT, got;
	uint64_t version = 0;

	expect(rlv_weights_poll(actor, &version), -ENODATA);
	expect(rlv_weights_fetch(actor, 0, 0, &none), -ETIMEDOUT);
	for (uint64_t i = 1; i <= 20; i++) {
		must(publish(learner, i * 10, 0), "publish");
		must(rlv_weights_poll(actor, &version), "poll");
		assert_int_equal(version, i * 10);
		must(rlv_weights_watch(actor, i * 10 - 1, 0, &version), "watch");
		expect(rlv_weights_watch(actor, i * 10, 0, &version), -ETIMEDOUT);
		got = fetch(actor, (i - 1) * 10);
		expect_version(&got, i * 10);
		rlv_generation_release(&got);
		expect(rlv_weights_fetch(actor, i * 10, 0, &none), -ETIMEDOUT);
	}
	weights_fixture_leave(&actor);
	actor = join(); /* later: without a publish */
	got = fetch(actor, 0);
	expect_version(&got, 200);
	weights_fixture_leave(&actor);
	expect_version(&got, 200); /* until it is released */
	rlv_generation_release(&got);
	rlv_generation_release(&got);
	weights_fixture_leave(&learner);
}

TEST_WITH(weights__a_generation_does_not_change_while_it_is_held, weights_fixture_open,
	  weights_fixture_close)
{
	struct rlv_generations *learner = create(&small), *actor = join();
	struct rlv_generation held[6];

	for (uint64_t i = 0; i < 6; i++) {
		must(publish(learner, i + 1, 0), "publish");
		held[i] = fetch(actor, i);
	}
	for (uint64_t i = 0; i < 6; i++) {
		expect_version(&held[i], i + 1);
		rlv_generation_release(&held[i]);
	}
	weights_fixture_leave(&actor);
	weights_fixture_leave(&learner);
}

TEST_WITH(weights__the_last_generations_stay, weights_fixture_open, weights_fixture_close)
{
	const struct rlv_weights_opts opts = { .size = sizeof(opts),
					       .bytes = sizeof(struct policy) + 256,
					       .keep = 3,
					       .anchor_every = 1,
					       .max_clients = 8 };
	struct rlv_generations *learner = create(&opts), *actor = join();
	struct rlv_weights_info info = RLV_WEIGHTS_INFO_INIT;
	struct rlv_generation got = RLV_GENERATION_INIT;

	for (uint64_t i = 1; i <= 9; i++)
		must(publish(learner, i, 0), "publish");
	must(rlv_weights_info(actor, &info), "info");
	assert_int_equal(info.generations, 3);
	assert_int_equal(info.oldest, 7);
	assert_int_equal(info.version, 9);
	for (uint64_t i = 7; i <= 9; i++) {
		must(rlv_weights_get(actor, i, &got), "get");
		expect_version(&got, i);
		rlv_generation_release(&got);
	}
	expect(rlv_weights_get(actor, 6, &got), -ENOENT);
	expect(rlv_weights_get(actor, 10, &got), -ENOENT);
	weights_fixture_leave(&actor);
	weights_fixture_leave(&learner);
}

TEST_WITH(weights__versions_rise, weights_fixture_open, weights_fixture_close)
{
	struct rlv_generations *learner = create(&small), *other = join();
	struct rlv_generation got;

	must(publish(learner, 5, 0), "publish");
	expect(publish(learner, 5, 0), -EEXIST);
	expect(publish(other, 4, 0), -EEXIST);
	expect(publish(other, 0, 0), -EINVAL);
	must(publish(other, 6, 0), "publish of another handle");
	must(publish(learner, 7, 0), "publish");
	got = fetch(other, 0);
	expect_version(&got, 7);
	rlv_generation_release(&got);
	weights_fixture_leave(&other);
	weights_fixture_leave(&learner);
}

/* A publish that is refused, and the message about it. */
static void expect_refused(struct rlv_generations *weights, struct rlv_tensor *tensors, size_t n,
			   int error, const char *says)
{
	expect(rlv_weights_publish(weights, tensors, n, 2, 0), error);
	if (!strstr(rlv_last_error(), says))
		fail_msg("%s: does not say %s", rlv_last_error(), says);
}

TEST_WITH(weights__other_trees_are_refused, weights_fixture_open, weights_fixture_close)
{
	struct rlv_generations *learner = create(&small);
	struct rlv_tensor tensors[TENSORS];
	struct rlv_generation got;

	must(publish(learner, 1, 0), "publish");
	policy_tensors(&policy, tensors);
	expect_refused(learner, tensors, 0, -EINVAL, "no tensors");
	expect_refused(learner, tensors, TENSORS - 1, -EINVAL, "RLV_PUBLISH_NEW_TREE");
	tensors[0].shape[0]--;
	expect_refused(learner, tensors, TENSORS, -EINVAL, "RLV_PUBLISH_NEW_TREE");
	tensors[0].shape[0]++;
	tensors[0].dtype = RLV_I32;
	expect_refused(learner, tensors, TENSORS, -EINVAL, "RLV_PUBLISH_NEW_TREE");
	tensors[0].dtype = 99;
	expect_refused(learner, tensors, TENSORS, -EINVAL, "tensors[0]: layer/kernel: dtype 99");
	policy_tensors(&policy, tensors);
	tensors[1].name = "hand";
	expect_refused(learner, tensors, TENSORS, -EINVAL, "RLV_PUBLISH_NEW_TREE");
	tensors[1].name = "";
	expect_refused(learner, tensors, TENSORS, -EINVAL, "tensors[1]");
	tensors[1].name = "step";
	expect(rlv_weights_publish(learner, tensors, TENSORS, 2, RLV_PUBLISH_NEW_TREE), -EINVAL);
	policy_tensors(&policy, tensors);
	tensors[3].ndim = 9;
	expect_refused(learner, tensors, TENSORS, -EINVAL, "ndim 9");
	tensors[3].ndim = 3;
	tensors[3].shape[0] = tensors[3].shape[1] = tensors[3].shape[2] = UINT64_MAX / 2;
	expect_refused(learner, tensors, TENSORS, -EINVAL, "too large");
	policy_tensors(&policy, tensors);
	tensors[3].data = NULL;
	expect_refused(learner, tensors, TENSORS, -EINVAL, "data is NULL");
	policy_tensors(&policy, tensors);
	tensors[0].shape[0] *= 2;
	expect(rlv_weights_publish(learner, tensors, TENSORS, 2, RLV_PUBLISH_NEW_TREE), -ERANGE);
	must(rlv_weights_publish(learner, tensors + 1, 1, 2, RLV_PUBLISH_NEW_TREE), "a new tree");
	got = fetch(learner, 1);
	assert_int_equal(got.n_tensors, 1);
	assert_memory_equal(got.tensors[0].data, policy.head, sizeof(policy.head));
	rlv_generation_release(&got);
	weights_fixture_leave(&learner);
}

TEST_WITH(weights__nan_is_refused_by_option, weights_fixture_open, weights_fixture_close)
{
	const uint16_t half[] = { 0x7c00 }, bfloat[] = { 0xff80 };
	const double doubles[] = { 1, NAN };
	struct rlv_generations *learner = create(&small);
	struct rlv_tensor tensor = {
		.size = sizeof(tensor), .name = "x", .ndim = 1, .shape = { 1 }
	};

	must(publish(learner, 1, RLV_PUBLISH_FINITE), "publish");
	for (uint32_t i = 0; i < 3; i++) {
		tensor.dtype = (uint32_t[]){ RLV_F16, RLV_BF16, RLV_F64 }[i];
		tensor.data = (const void *[]){ half, bfloat, doubles }[i];
		tensor.shape[0] = i == 2 ? 2 : 1;
		expect(rlv_weights_publish(learner, &tensor, 1, 2,
					   RLV_PUBLISH_FINITE | RLV_PUBLISH_NEW_TREE),
		       -ERANGE);
	}
	must(rlv_weights_publish(learner, &tensor, 1, 2, RLV_PUBLISH_NEW_TREE), "NaN");
	weights_fixture_leave(&learner);
}

/* Bytes of this process that are in memory. */
static uint64_t resident(void)
{
	unsigned long all, pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	assert_non_null(file);
	assert_int_equal(fscanf(file, "%lu %lu", &all, &pages), 2);
	(void)fclose(file);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Linux has it since 5.14. */
static bool kernel_populates(void)
{
#ifdef MADV_POPULATE_WRITE
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *at = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool does = at != MAP_FAILED && madvise(at, page, MADV_POPULATE_WRITE) == 0;

	if (at != MAP_FAILED)
		munmap(at, page);
	return does;
#else
	return false;
#endif
}

TEST_WITH(weights__prefault_takes_the_memory_of_all_generations, weights_fixture_open,
	  weights_fixture_close)
{
	struct rlv_weights_opts opts = { .size = sizeof(opts), .bytes = 8 << 20, .max_clients = 8 };
	struct rlv_generations *lazy = NULL, *ready = NULL;
	uint64_t before = resident(), between;

	must(rlv_weights_create(weights_store, "lazy", &opts, &lazy), "create");
	between = resident();
	opts.prefault = 1;
	must(rlv_weights_create(weights_store, "ready", &opts, &ready), "create");
	assert_true(between - before < 3 * opts.bytes);
	if (kernel_populates())
		assert_true(resident() - between >= 5 * opts.bytes);
	weights_fixture_leave(&lazy);
	weights_fixture_leave(&ready);
	opts.prefault = 2;
	expect(rlv_weights_create(weights_store, "ready", &opts, &ready), -EINVAL);
}

TEST_WITH(weights__options_and_names_are_checked, weights_fixture_open, weights_fixture_close)
{
	struct rlv_weights_opts opts = small;
	struct rlv_generations *weights = NULL, *same;
	struct rlv_kv *kv = NULL;

	opts.keep = RLV_WEIGHTS_KEEP + 1;
	expect(rlv_weights_create(weights_store, "policy", &opts, &weights), -EINVAL);
	opts = small;
	opts.anchor_every = RLV_WEIGHTS_ANCHOR_EVERY + 1;
	expect(rlv_weights_create(weights_store, "policy", &opts, &weights), -EINVAL);
	expect(rlv_weights_open(weights_store, "policy", &weights), -ENOENT);
	must(rlv_kv_create(weights_store, "values", NULL, &kv), "rlv_kv_create");
	expect(rlv_weights_open(weights_store, "values", &weights), -ENOENT);
	must(rlv_kv_close(&kv), "rlv_kv_close");
	weights = create(&small);
	same = create(&small);
	weights_fixture_leave(&same);
	opts = small;
	opts.bytes *= 100;
	expect(rlv_weights_create(weights_store, "policy", &opts, &same), -EEXIST);
	opts = small;
	opts.copies = 2; /* there is one node */
	expect(rlv_weights_create(weights_store, "copied", &opts, &same), -EINVAL);
	weights_fixture_leave(&weights);
}

TEST_WITH(weights__a_full_heap_keeps_what_it_has, weights_fixture_open, weights_fixture_close)
{
	static const uint8_t filler[40000];
	struct rlv_generations *learner = create(&small);
	struct rlv_generation got;
	struct rlv_kv *kv = NULL;
	char key[16];
	int ret = 0;

	must(publish(learner, 1, 0), "publish");
	weights_fixture_leave(&learner); /* with the free space that it has */
	learner = join();
	must(rlv_kv_open(weights_store, "policy", &kv), "rlv_kv_open");
	for (int i = 0; ret == 0; i++) {
		struct rlv_bytes of = { key, (size_t)snprintf(key, sizeof(key), "f%d", i) };

		ret = rlv_kv_put(kv, of, (struct rlv_bytes){ filler, sizeof(filler) }, NULL);
	}
	expect(ret, -ENOSPC);
	expect(publish(learner, 2, 0), -ENOSPC);
	got = fetch(learner, 0);
	expect_version(&got, 1);
	rlv_generation_release(&got);
	for (int i = 0; i < 20; i++) {
		struct rlv_bytes of = { key, (size_t)snprintf(key, sizeof(key), "f%d", i) };

		must(rlv_kv_delete(kv, of, NULL), "rlv_kv_delete");
	}
	must(rlv_kv_close(&kv), "rlv_kv_close");
	for (uint64_t i = 2; i < 12; i++)
		must(publish(learner, i, 0), "publish behind it");
	weights_fixture_leave(&learner);
}

/* In the caller's order, and not all of them. */
TEST_WITH(weights__are_copied_into_buffers_of_the_caller, weights_fixture_open,
	  weights_fixture_close)
{
	static struct policy mine, want;
	struct rlv_generations *weights = create(&small);
	struct rlv_tensor into[TENSORS], swap;
	struct rlv_generation got;

	must(publish(weights, 9, 0), "publish");
	got = fetch(weights, 0);
	policy_tensors(&mine, into);
	swap = into[0];
	into[0] = into[3];
	into[3] = swap;
	policy_fill(&want, 9);
	must(rlv_generation_copy(&got, into, TENSORS), "copy");
	assert_memory_equal(mine.layer, want.layer, sizeof(want.layer));
	assert_memory_equal(mine.head, want.head, sizeof(want.head));
	assert_int_equal(mine.step, 9);

	memset(&mine, 0, sizeof(mine));
	must(rlv_generation_copy(&got, into, 1), "copy");
	assert_int_equal(mine.step, 9);
	mine.step = 0;
	into[3].shape[1]++; /* what comes last is wrong: nothing is written */
	expect(rlv_generation_copy(&got, into, TENSORS), -EINVAL);
	assert_non_null(strstr(rlv_last_error(), "layer/kernel"));
	into[3].shape[1]--;
	into[3].dtype = RLV_I32;
	expect(rlv_generation_copy(&got, into, TENSORS), -EINVAL);
	into[3].name = "other";
	expect(rlv_generation_copy(&got, into, TENSORS), -EINVAL);
	into[3].name = NULL;
	expect(rlv_generation_copy(&got, into, TENSORS), -EINVAL);
	into[0].data = NULL;
	expect(rlv_generation_copy(&got, into, 1), -EINVAL);
	assert_int_equal(mine.step, 0);
	rlv_generation_release(&got);
	expect(rlv_generation_copy(&got, into, 1), -EINVAL);
	weights_fixture_leave(&weights);
}

int main(void)
{
	return test_run(NULL, NULL);
}
