/* Publishers that send deltas, and readers that apply them. */
#include "tests/support/fixture/weights_fixture.h"
#include "tests/support/must.h"
#include "tests/support/temp_dir.h"

#include "relive/weights.h"

#include "base/rng.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ELEMENTS 20000u
#define VERSIONS 48u

static struct rng rng;
/* What each version was. */
static uint16_t history[VERSIONS + 1][ELEMENTS];

static const struct rlv_weights_opts opts = { .size = sizeof(opts),
					      .bytes = 2 * ELEMENTS + 64,
					      .keep = 3,
					      .anchor_every = 8,
					      .max_clients = 8 };

static int set_up(void **state)
{
	rng_seed(&rng, 1, 0);
	return weights_fixture_open(state);
}

static struct rlv_generations *join(void)
{
	struct rlv_generations *weights = NULL;

	must(rlv_weights_create(weights_store, "policy", &opts, &weights), "rlv_weights_create");
	return weights;
}

/* Publishes a version, of whose elements about one of `rare` changed. */
static int publish(struct rlv_generations *weights, uint64_t version, uint64_t rare)
{
	const struct rlv_tensor tensors[] = {
		{ .size = sizeof(tensors[0]),
		  .dtype = RLV_BF16,
		  .ndim = 1,
		  .name = "first",
		  .shape = { ELEMENTS / 2 },
		  .data = history[version] },
		{ .size = sizeof(tensors[0]),
		  .dtype = RLV_BF16,
		  .ndim = 2,
		  .name = "second",
		  .shape = { ELEMENTS / 4, 2 },
		  .data = history[version] + ELEMENTS / 2 },
	};

	memcpy(history[version], history[version - 1], sizeof(history[0]));
	for (uint32_t i = 0; i < ELEMENTS; i++)
		if (rng_uniform_u64(&rng, rare) == 0)
			history[version][i] ^= (uint16_t)(1 + rng_uniform_u64(&rng, 65535));
	return rlv_weights_publish(weights, tensors, 2, version, 0);
}

static void expect_version(const struct rlv_generation *got, uint64_t version)
{
	assert_int_equal(got->version, version);
	assert_int_equal(got->n_tensors, 2);
	assert_memory_equal(got->tensors[0].data, history[version], ELEMENTS);
	assert_memory_equal(got->tensors[1].data, history[version] + ELEMENTS / 2, ELEMENTS);
}

static struct rlv_generation fetch(struct rlv_generations *weights, uint64_t version)
{
	struct rlv_generation got = RLV_GENERATION_INIT;

	must(rlv_weights_fetch(weights, version - 1, 0, &got), "rlv_weights_fetch");
	expect_version(&got, version);
	return got;
}

static struct rlv_weights_info info_of(struct rlv_generations *weights)
{
	struct rlv_weights_info info = RLV_WEIGHTS_INFO_INIT;

	must(rlv_weights_info(weights, &info), "rlv_weights_info");
	return info;
}

/* One reader follows, one comes now and then, one is new each time; all kept versions can be had. */
TEST_WITH(deltas__lead_every_reader_to_the_version, set_up, weights_fixture_close)
{
	struct rlv_generations *learner = join(), *follows = join(), *lags = join(), *late;
	struct rlv_generation got, held = RLV_GENERATION_INIT;

	for (uint64_t v = 1; v <= VERSIONS; v++) {
		must(publish(learner, v, 100), "publish");
		got = fetch(follows, v);
		assert_int_equal(got.n_deltas, v == 1 ? 0 : v == 2 ? 1 : 2); /* also over anchors */
		rlv_generation_release(&got);
		if (v % 5 == 0) {
			rlv_generation_release(&held);
			held = fetch(lags, v);
		} else if (v > 5) {
			expect_version(&held, v - v % 5);
		}
		if (v % 9 == 0) {
			late = join();
			got = fetch(late, v);
			rlv_generation_release(&got);
			for (uint64_t old = info_of(late).oldest; old < v; old++) {
				must(rlv_weights_get(late, old, &got), "rlv_weights_get");
				expect_version(&got, old);
				rlv_generation_release(&got);
			}
			assert_true(info_of(late).oldest <= v - 2);
			weights_fixture_leave(&late);
		}
	}
	rlv_generation_release(&held);
	assert_int_equal(info_of(learner).anchors, VERSIONS / 8);
	assert_int_equal(info_of(follows).repairs, 0);
	weights_fixture_leave(&follows);
	weights_fixture_leave(&lags);
	weights_fixture_leave(&learner);
}

/* Where most changes, anchors are smaller; when that ends, there are deltas again. */
TEST_WITH(deltas__only_where_they_pay, set_up, weights_fixture_close)
{
	struct rlv_generations *learner = join(), *actor = join();
	struct rlv_generation got;
	uint64_t anchors;

	for (uint64_t v = 1; v <= VERSIONS; v++) {
		bool dense = v > 10 && v <= 30;

		must(publish(learner, v, dense ? 2 : 200), "publish");
		if (v == 30)
			assert_int_equal(info_of(learner).anchors, 2 + 20);
		got = fetch(actor, v);
		rlv_generation_release(&got);
	}
	anchors = info_of(learner).anchors - 22;
	assert_in_range(anchors, (VERSIONS - 30) / 8, (VERSIONS - 30) / 8 + 3);
	weights_fixture_leave(&actor);
	weights_fixture_leave(&learner);
}

/* Deltas need the copy of the generation before: another publisher's comes as an anchor. */
TEST_WITH(deltas__of_two_publishers, set_up, weights_fixture_close)
{
	struct rlv_generations *learners[2] = { join(), join() }, *actor = join();
	struct rlv_generation got;

	for (uint64_t v = 1; v <= 24; v++) {
		must(publish(learners[v / 6 % 2], v, 100), "publish");
		got = fetch(actor, v);
		rlv_generation_release(&got);
	}
	assert_int_equal(info_of(learners[0]).anchors + info_of(learners[1]).anchors, 5);
	weights_fixture_leave(&learners[0]);
	weights_fixture_leave(&learners[1]);
	weights_fixture_leave(&actor);
}

/* A reader whose memory is not what it should be: the sum says so, and it takes the anchor. */
TEST_WITH(deltas__on_a_damaged_copy, set_up, weights_fixture_close)
{
	struct rlv_generations *learner = join(), *actor = join();
	struct rlv_generation got;
	uint16_t *memory;

	must(publish(learner, 1, 100), "publish");
	got = fetch(actor, 1);
	memory = (uint16_t *)(uintptr_t)got.tensors[0].data;
	for (uint32_t i = 0; i < ELEMENTS / 2; i++)
		memory[i] ^= 1;
	rlv_generation_release(&got);
	must(publish(learner, 2, 100), "publish");
	got = fetch(actor, 2);
	assert_int_equal(got.flags, RLV_GENERATION_REPAIRED);
	rlv_generation_release(&got);
	must(publish(learner, 3, 100), "publish");
	got = fetch(actor, 3);
	assert_int_equal(info_of(actor).repairs, 2); /* the damaged one was the other buffer */
	rlv_generation_release(&got);
	must(publish(learner, 4, 100), "publish");
	got = fetch(actor, 4);
	assert_int_equal(got.flags, 0);
	rlv_generation_release(&got);
	weights_fixture_leave(&actor);
	weights_fixture_leave(&learner);
}

/* Changes one byte of each place in the file that has these bytes. */
static void damage(const char *path, const void *bytes, size_t n)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct stat st;
	uint8_t *at, *file;
	uint32_t found = 0;

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	file = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(file != MAP_FAILED);
	for (at = file; (at = memmem(at, (size_t)(file + st.st_size - at), bytes, n)); found++)
		*at ^= 1;
	assert_true(found > 0);
	munmap(file, (size_t)st.st_size);
	close(fd);
}

/* Entries whose bytes flip in the store: an error, and what was fetched stays; the next anchor is good. */
TEST(deltas__of_damaged_entries)
{
	const struct rlv_store_opts pool = { .size = sizeof(pool), .pool_bytes = 32 << 20 };
	struct rlv_generations *learner, *actor, *late;
	struct rlv_generation first, got = RLV_GENERATION_INIT;
	char dir[TEMP_DIR_BYTES], path[TEMP_DIR_BYTES + 8], uri[TEMP_DIR_BYTES + 16];

	temp_dir_make(dir);
	snprintf(path, sizeof(path), "%s/pool", dir);
	snprintf(uri, sizeof(uri), "embed:%s", path);
	must(rlv_store_open(uri, &pool, &weights_store), uri);
	learner = join();
	actor = join();
	must(publish(learner, 1, 2), "publish");
	first = fetch(actor, 1);
	must(publish(learner, 2, 100), "publish");
	damage(path, "DLT1", 4);
	expect(rlv_weights_fetch(actor, 0, 0, &got), -EBADMSG);
	expect_version(&first, 1);
	must(rlv_weights_get(actor, 1, &got), "rlv_weights_get");
	expect_version(&got, 1);
	rlv_generation_release(&got);
	late = join();
	damage(path, history[1] + 5000, 64);
	expect(rlv_weights_get(late, 1, &got), -EBADMSG);
	for (uint64_t v = 3; v < 9; v++)
		must(publish(learner, v, 2), "publish of anchors");
	got = fetch(actor, 8);
	rlv_generation_release(&got);
	got = fetch(late, 8);
	rlv_generation_release(&got);
	rlv_generation_release(&first);
	weights_fixture_leave(&late);
	weights_fixture_leave(&actor);
	weights_fixture_leave(&learner);
	must(rlv_store_close(&weights_store), "rlv_store_close");
	temp_dir_remove(dir);
}

int main(void)
{
	return test_run(NULL, NULL);
}
