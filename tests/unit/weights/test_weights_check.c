/* Full checks: a byte of a reader's memory that no delta writes. */
#include "tests/support/fixture/weights_fixture.h"
#include "tests/support/must.h"

#include "client/weights/weights.h"

#include <errno.h>
#include <string.h>

#define ELEMENTS 30001u /* of 2 bytes; the last run of the sum is short */
#define QUIET 29999u    /* does not change */

static uint16_t embed[ELEMENTS], head[ELEMENTS];
static struct rlv_generations *learner, *actor;

static int set_up(void **state)
{
	const struct rlv_weights_opts opts = { .size = sizeof(opts),
					       .bytes = 2 * sizeof(embed) + 256,
					       .anchor_every = 8,
					       .max_clients = 8 };

	learner = actor = NULL;
	for (uint32_t i = 0; i < ELEMENTS; i++)
		embed[i] = head[i] = (uint16_t)(i * 7);
	must(weights_fixture_open(state), "rlv_store_open");
	must(rlv_weights_create(weights_store, "policy", &opts, &learner), "rlv_weights_create");
	must(rlv_weights_open(weights_store, "policy", &actor), "rlv_weights_open");
	return 0;
}

static int tear_down(void **state)
{
	must(rlv_weights_close(&actor), "rlv_weights_close");
	must(rlv_weights_close(&learner), "rlv_weights_close");
	return weights_fixture_close(state);
}

/* Changes a few elements, and publishes: the first two tensors are tied. */
static void publish(uint64_t version)
{
	struct rlv_tensor tensors[4];

	for (uint32_t i = 0; i < 4; i++)
		tensors[i] = (struct rlv_tensor){ .size = sizeof(tensors[i]),
						  .dtype = RLV_BF16,
						  .ndim = 1,
						  .shape = { ELEMENTS },
						  .data = i < 2 ? embed : head };
	tensors[0].name = "embed";
	tensors[1].name = "tied";
	tensors[2].name = "head";
	tensors[3].name = "empty";
	tensors[3].shape[0] = 0;
	for (uint32_t i = 0; i < 40; i++) {
		embed[(i * 613 + version) % QUIET] ^= (uint16_t)version;
		head[(i * 701 + version) % QUIET] ^= 0x8000;
	}
	must(rlv_weights_publish(learner, tensors, 4, version, 0), "rlv_weights_publish");
}

/* Fetches version; true: it is what was published. */
static bool fetch(uint64_t version, struct rlv_generation *got)
{
	*got = (struct rlv_generation)RLV_GENERATION_INIT;
	must(rlv_weights_fetch(actor, version - 1, 0, got), "rlv_weights_fetch");
	assert_int_equal(got->version, version);
	assert_int_equal(got->n_tensors, 4);
	return memcmp(got->tensors[0].data, embed, sizeof(embed)) == 0 &&
	       memcmp(got->tensors[1].data, embed, sizeof(embed)) == 0 &&
	       memcmp(got->tensors[2].data, head, sizeof(head)) == 0;
}

static void expect_good(uint64_t version, uint32_t flags)
{
	struct rlv_generation got;

	publish(version);
	assert_true(fetch(version, &got));
	assert_int_equal(got.flags, flags);
	rlv_generation_release(&got);
}

/* Flips a bit of the buffer that lags, in that tensor, where no delta writes. */
static void flip(uint32_t tensor)
{
	const uint16_t *data = actor->spare->tensors[tensor].data;

	((uint16_t *)(uintptr_t)data)[QUIET + 1] ^= 4;
}

TEST_WITH(check__of_changes_does_not_see_a_byte_that_none_touches, set_up, tear_down)
{
	struct rlv_generation got;

	for (uint64_t v = 1; v < 4; v++)
		expect_good(v, 0);
	flip(0);
	publish(4);
	assert_false(fetch(4, &got));
	assert_int_equal(got.flags, 0);
	assert_int_equal(actor->stats.repairs, 0);
	rlv_generation_release(&got);
}

TEST_WITH(check__of_all_sees_it_and_reads_an_anchor, set_up, tear_down)
{
	must(rlv_weights_check(actor, RLV_CHECK_FULL), "rlv_weights_check");
	for (uint64_t v = 1; v < 40; v++) {
		bool flips = v > 3 && v % 3 == 0;

		if (flips)
			flip((uint32_t)v % 2 * 2);
		expect_good(v, flips ? RLV_GENERATION_REPAIRED : 0);
	}
	assert_int_equal(actor->stats.repairs, 12);
	assert_in_range(learner->stats.anchors, 4,
			6); /* also over those that have a delta beside them */
}

/* The buffer that the handle has may be copied, when the other one is held. */
TEST_WITH(check__of_all_follows_copies_of_a_buffer, set_up, tear_down)
{
	struct rlv_generation held[3];

	must(rlv_weights_check(actor, RLV_CHECK_FULL), "rlv_weights_check");
	for (uint64_t v = 1; v < 4; v++) {
		publish(v);
		assert_true(fetch(v, &held[v - 1]));
		assert_int_equal(held[v - 1].flags, 0);
		assert_int_equal(held[v - 1].n_deltas, v > 1);
	}
	((uint16_t *)(uintptr_t)held[2].tensors[2].data)[QUIET + 1] ^= 1;
	expect_good(4, RLV_GENERATION_REPAIRED);
	for (uint32_t i = 0; i < 3; i++)
		rlv_generation_release(&held[i]);
}

/* What the handle has when it begins with full checks was not added up: it reads an anchor. */
TEST_WITH(check__of_all_from_now_on, set_up, tear_down)
{
	for (uint64_t v = 1; v < 4; v++)
		expect_good(v, 0);
	flip(0);
	((uint16_t *)(uintptr_t)actor->current->tensors[2].data)[QUIET] ^= 1;
	must(rlv_weights_check(actor, RLV_CHECK_FULL), "rlv_weights_check");
	for (uint64_t v = 4; v < 10; v++)
		expect_good(v, 0);
	must(rlv_weights_check(actor, RLV_CHECK_FULL), "rlv_weights_check, again");
	flip(2);
	expect_good(10, RLV_GENERATION_REPAIRED);
	must(rlv_weights_check(actor, RLV_CHECK_CHANGES), "rlv_weights_check");
	expect_good(11, 0);
	expect(rlv_weights_check(actor, 2), -EINVAL);
	expect(rlv_weights_check(NULL, 0), -EINVAL);
}

/* An anchor that arrived in parts is what deltas begin with. */
TEST_WITH(check__of_all_behind_an_anchor_in_parts, set_up, tear_down)
{
	struct rlv_generation got = RLV_GENERATION_INIT;
	uint32_t ready;

	must(rlv_weights_check(actor, RLV_CHECK_FULL), "rlv_weights_check");
	must(rlv_weights_limit(actor, 4096), "rlv_weights_limit");
	publish(1);
	must(rlv_weights_begin(actor, 0, 0, &got, &ready), "rlv_weights_begin");
	assert_true(ready < 4);
	while (ready < 4)
		must(rlv_weights_more(actor, &got, &ready), "rlv_weights_more");
	rlv_generation_release(&got);
	expect_good(2, 0);
	expect_good(3, 0);
	flip(0);
	expect_good(4, RLV_GENERATION_REPAIRED);
}

int main(void)
{
	return test_run(NULL, NULL);
}
