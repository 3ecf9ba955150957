/* Weights of several publishers. */
#include "tests/support/fixture/weights_fixture.h"
#include "tests/support/must.h"

#include "relive/weights.h"

#include <errno.h>
#include <string.h>

#define RANKS 3u
#define ELEMENTS 5000u

static const struct rlv_weights_opts small = {
	.size = sizeof(small), .bytes = 4 * ELEMENTS + 64, .keep = 3, .max_clients = 8
};

static struct rlv_shards *join_with(uint32_t rank, const struct rlv_weights_opts *weights)
{
	const struct rlv_shards_opts opts = {
		.size = sizeof(opts), .ranks = RANKS, .rank = rank, .weights = weights
	};
	struct rlv_shards *shards = NULL;

	must(rlv_shards_open(weights_store, "policy", &opts, &shards), "rlv_shards_open");
	return shards;
}

static struct rlv_shards *join(uint32_t rank)
{
	return join_with(rank, &small);
}

static uint32_t element(uint32_t rank, uint64_t version, uint32_t i)
{
	return rank * 1000000 + i + (i % 100 <= version % 100 ? (uint32_t)version : 0);
}

static int publish(struct rlv_shards *shards, uint32_t rank, uint64_t version)
{
	static uint32_t values[ELEMENTS];
	const struct rlv_tensor tensor = weights_fixture_tensor(values, ELEMENTS);

	for (uint32_t i = 0; i < ELEMENTS; i++)
		values[i] = element(rank, version, i);
	return rlv_shards_publish(shards, &tensor, 1, version, 0);
}

static void expect_fetch(struct rlv_shards *shards, uint64_t than, uint64_t version)
{
	struct rlv_generation got[RANKS];

	for (uint32_t r = 0; r < RANKS; r++)
		got[r] = (struct rlv_generation)RLV_GENERATION_INIT;
	must(rlv_shards_fetch(shards, than, 0, got), "rlv_shards_fetch");
	for (uint32_t r = 0; r < RANKS; r++) {
		const uint32_t *values = got[r].tensors[0].data;

		assert_int_equal(got[r].version, version);
		for (uint32_t i = 0; i < ELEMENTS; i++)
			assert_int_equal(values[i], element(r, version, i));
		rlv_generation_release(&got[r]);
	}
}

TEST_WITH(shards__are_visible_when_all_are_there, weights_fixture_open, weights_fixture_close)
{
	struct rlv_shards *ranks[RANKS], *actor;
	struct rlv_generation got[RANKS];
	uint64_t version;

	for (uint32_t r = 0; r < RANKS; r++) {
		ranks[r] = join(r);
		got[r] = (struct rlv_generation)RLV_GENERATION_INIT;
	}
	actor = join(RLV_NO_RANK);
	expect(rlv_shards_poll(actor, &version), -ENODATA);
	for (uint64_t v = 1; v <= 30; v++) {
		for (uint32_t r = 0; r < RANKS; r++) {
			must(publish(ranks[(r + v) % RANKS], (uint32_t)((r + v) % RANKS), v),
			     "publish");
			if (r + 1 < RANKS)
				expect(rlv_shards_fetch(actor, v - 1, 0, got), -ETIMEDOUT);
		}
		expect_fetch(actor, v - 1, v);
		must(rlv_shards_poll(actor, &version), "poll");
		assert_int_equal(version, v);
	}
	for (uint32_t r = 0; r < RANKS; r++)
		must(rlv_shards_close(&ranks[r]), "close");
	must(rlv_shards_close(&actor), "close");
}

/* A rank that stops holds the others up before they drop what all have; its successor goes on. */
TEST_WITH(shards__never_drop_the_newest_of_all, weights_fixture_open, weights_fixture_close)
{
	struct rlv_shards *ranks[RANKS], *actor = join(RLV_NO_RANK);

	for (uint32_t r = 0; r < RANKS; r++) {
		ranks[r] = join(r);
		must(publish(ranks[r], r, 1), "publish");
	}
	must(rlv_shards_close(&ranks[2]), "close"); /* dead */
	for (uint32_t r = 0; r < 2; r++) {
		must(publish(ranks[r], r, 2), "publish");
		must(publish(ranks[r], r, 3), "publish");
		expect(publish(ranks[r], r, 4), -EAGAIN);
		assert_non_null(strstr(rlv_last_error(), "is at version 1"));
		expect_fetch(actor, 0, 1);
	}
	ranks[2] = join(2);
	must(publish(ranks[2], 2, 3), "publish"); /* 2 is left out */
	expect_fetch(actor, 1, 3);
	for (uint32_t r = 0; r < RANKS; r++) {
		must(publish(ranks[r], r, 4), "publish");
		must(rlv_shards_close(&ranks[r]), "close");
	}
	expect_fetch(actor, 3, 4);
	must(rlv_shards_close(&actor), "close");
}

/* -------- first tensors first -------- */

#define LAYERS 4u
#define CHUNK 61440u
#define WIDTH 30000u /* elements of a layer, which lies in three chunks */

static const struct rlv_weights_opts layered = { .size = sizeof(layered),
						 .bytes = LAYERS * (4 * WIDTH + 64),
						 .keep = 3,
						 .anchor_every = 1,
						 .max_clients = 8 };

static void publish_layers(struct rlv_shards *shards, uint32_t rank, uint64_t version)
{
	static uint32_t values[LAYERS][WIDTH];
	static const char *const names[LAYERS] = { "0", "1", "2", "3" };
	struct rlv_tensor tensors[LAYERS];

	for (uint32_t l = 0; l < LAYERS; l++) {
		for (uint32_t i = 0; i < WIDTH; i++)
			values[l][i] = element(rank * LAYERS + l, version, i);
		tensors[l] = (struct rlv_tensor){ .size = sizeof(tensors[l]),
						  .dtype = RLV_U32,
						  .ndim = 1,
						  .name = names[l],
						  .shape = { WIDTH },
						  .data = values[l] };
	}
	must(rlv_shards_publish(shards, tensors, LAYERS, version, 0), "rlv_shards_publish");
}

/* Returns how many tensors are ready, of all ranks: no rank is ahead of another by more than a layer. */
static uint32_t expect_ready(const struct rlv_generation *got, const uint32_t *ready,
			     uint64_t version)
{
	uint32_t all = 0, least = LAYERS, most = 0;

	for (uint32_t r = 0; r < RANKS; r++) {
		assert_int_equal(got[r].version, version);
		for (uint32_t l = 0; l < ready[r]; l++) {
			const uint32_t *values = got[r].tensors[l].data;

			for (uint32_t i = 0; i < WIDTH; i++)
				assert_int_equal(values[i], element(r * LAYERS + l, version, i));
		}
		all += ready[r];
		least = ready[r] < least ? ready[r] : least;
		most = ready[r] > most ? ready[r] : most;
	}
	assert_true(most - least <= 1);
	return all;
}

static void release(struct rlv_generation *got)
{
	for (uint32_t r = 0; r < RANKS; r++)
		rlv_generation_release(&got[r]);
}

TEST_WITH(shards__come_in_parts, weights_fixture_open, weights_fixture_close)
{
	struct rlv_shards *ranks[RANKS], *actor = join_with(RLV_NO_RANK, &layered);
	struct rlv_generation got[RANKS];
	uint32_t ready[RANKS], all, now;

	for (uint32_t r = 0; r < RANKS; r++) {
		got[r] = (struct rlv_generation)RLV_GENERATION_INIT;
		expect(rlv_shards_begin(actor, 0, 0, got, ready), -ETIMEDOUT);
		ranks[r] = join_with(r, &layered);
		publish_layers(ranks[r], r, 1);
	}
	publish_layers(ranks[1], 1, 2); /* of which nobody knows yet */
	must(rlv_shards_limit(actor, CHUNK), "rlv_shards_limit");
	must(rlv_shards_begin(actor, 0, 0, got, ready), "rlv_shards_begin");
	all = expect_ready(got, ready, 1);
	assert_int_equal(all, 0);
	for (; all < RANKS * LAYERS; all = now) {
		must(rlv_shards_more(actor, got, ready), "rlv_shards_more");
		now = expect_ready(got, ready, 1);
		assert_in_range(now, all + 1, RANKS * LAYERS);
	}
	must(rlv_shards_more(actor, got, ready), "rlv_shards_more");
	assert_int_equal(expect_ready(got, ready, 1), all);
	release(got);
	must(rlv_shards_begin(actor, 0, 0, got, ready), "rlv_shards_begin"); /* it has it */
	assert_int_equal(expect_ready(got, ready, 1), all);
	release(got);
	for (uint32_t r = 0; r < RANKS; r++)
		must(rlv_shards_close(&ranks[r]), "close");
	must(rlv_shards_close(&actor), "close");
}

TEST_WITH(shards__that_are_dropped_on_their_way, weights_fixture_open, weights_fixture_close)
{
	struct rlv_shards *ranks[RANKS], *actor = join_with(RLV_NO_RANK, &layered);
	struct rlv_generation got[RANKS];
	uint32_t ready[RANKS], all;
	int ret = 0;

	must(rlv_shards_limit(actor, CHUNK), "rlv_shards_limit");
	for (uint32_t r = 0; r < RANKS; r++) {
		got[r] = (struct rlv_generation)RLV_GENERATION_INIT;
		ranks[r] = join_with(r, &layered);
		publish_layers(ranks[r], r, 1);
	}
	must(rlv_shards_begin(actor, 0, 0, got, ready), "rlv_shards_begin");
	must(rlv_shards_more(actor, got, ready), "rlv_shards_more");
	for (uint64_t v = 2; v <= 5; v++)
		for (uint32_t r = 0; r < RANKS; r++)
			publish_layers(ranks[r], r, v);
	all = expect_ready(got, ready, 1);
	while (ret == 0 && all < RANKS * LAYERS) {
		ret = rlv_shards_more(actor, got, ready);
		all = expect_ready(got, ready, 1);
	}
	expect(ret, -EAGAIN);
	assert_non_null(strstr(rlv_last_error(), "rank "));
	release(got);
	must(rlv_shards_begin(actor, 1, 0, got, ready), "rlv_shards_begin");
	(void)expect_ready(got, ready, 5);
	release(got);
	for (uint32_t r = 0; r < RANKS; r++)
		must(rlv_shards_close(&ranks[r]), "close");
	must(rlv_shards_close(&actor), "close");
}

TEST_WITH(shards__what_is_refused, weights_fixture_open, weights_fixture_close)
{
	const struct rlv_weights_opts one = { .size = sizeof(one), .keep = 1 };
	struct rlv_shards_opts opts = { .size = sizeof(opts), .ranks = 2, .rank = 2 };
	struct rlv_shards *shards = NULL;

	expect(rlv_shards_open(weights_store, "policy", &opts, &shards), -EINVAL);
	opts.ranks = 0;
	expect(rlv_shards_open(weights_store, "policy", &opts, &shards), -EINVAL);
	opts.ranks = RLV_SHARDS_MAX + 1;
	expect(rlv_shards_open(weights_store, "policy", &opts, &shards), -EINVAL);
	opts = (struct rlv_shards_opts){ .size = sizeof(opts), .ranks = 2, .weights = &one };
	expect(rlv_shards_open(weights_store, "policy", &opts, &shards), -EINVAL);
	shards = join(RLV_NO_RANK);
	expect(publish(shards, 0, 1), -EINVAL);
	expect(rlv_shards_begin(shards, 0, 0, NULL, NULL), -EINVAL);
	expect(rlv_shards_more(shards, NULL, NULL), -EINVAL);
	expect(rlv_shards_limit(NULL, 0), -EINVAL);
	expect(rlv_shards_limit(shards, 1), -EINVAL);
	must(rlv_shards_close(&shards), "close");
	must(rlv_shards_close(&shards), "close again");
}

int main(void)
{
	return test_run(NULL, NULL);
}
