/*
 * Round trips of rlv_weights_* over a wire, exactly. The linker hands the library's transport_open to us
 * (cmake/tests.cmake), so that every transport of the store is wrapped.
 */
#include "tests/support/fake/wire_transport.h"
#include "tests/support/must.h"
#include "tests/support/wrap_open.h"

#include "relive/weights.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

static int put_on_a_wire(struct transport **tr)
{
	*tr = wire_wrap(*tr);
	wire_lockstep(*tr);
	return 0;
}

WRAP_TRANSPORT_OPEN(put_on_a_wire)

ssize_t __wrap_getrandom(void *to, size_t n, unsigned flags);

/* Keys are hashed by the uuid of their heap: if it is left to chance, a few stores of a hundred have two keys at one
   place, which costs one more look. */
ssize_t __wrap_getrandom(void *to, size_t n, unsigned flags)
{
	static uint8_t last;

	(void)flags;
	for (size_t i = 0; i < n; i++)
		((uint8_t *)to)[i] = last = (uint8_t)(last * 181 + 59);
	return (ssize_t)n;
}

#define ELEMENTS 400000u /* of 2 bytes: 14 chunks of 64 KiB */
#define SHARE 61440u     /* bytes of a chunk, without its header and lead */

static uint16_t values[ELEMENTS];

static int publish(struct rlv_generations *weights, uint64_t version)
{
	const struct rlv_tensor tensor = { .size = sizeof(tensor),
					   .dtype = RLV_BF16,
					   .ndim = 1,
					   .name = "x",
					   .shape = { ELEMENTS },
					   .data = values };

	return rlv_weights_publish(weights, &tensor, 1, version, 0);
}

static struct rlv_weights_info now(struct rlv_generations *weights)
{
	struct rlv_weights_info info = RLV_WEIGHTS_INFO_INIT;

	must(rlv_weights_info(weights, &info), "rlv_weights_info");
	return info;
}

/* Counts since `before`, without those of info itself. */
static struct rlv_weights_info since(struct rlv_generations *weights,
				     struct rlv_weights_info before)
{
	struct rlv_weights_info a = now(weights), b = now(weights);

	a.round_trips -= before.round_trips + (b.round_trips - a.round_trips);
	a.read_bytes -= before.read_bytes + (b.read_bytes - a.read_bytes);
	a.write_bytes -= before.write_bytes + (b.write_bytes - a.write_bytes);
	return a;
}

TEST(cost__of_anchors_and_deltas)
{
	const struct rlv_weights_opts opts = { .size = sizeof(opts),
					       .bytes = 2 * ELEMENTS,
					       .keep = 2,
					       .anchor_every = 4,
					       .max_clients = 8 };
	struct rlv_generation got = RLV_GENERATION_INIT;
	struct rlv_store *store = NULL;
	struct rlv_generations *learner = NULL, *actor = NULL;
	struct rlv_weights_info before, did;
	uint64_t version;

	must(rlv_store_open("embed:", NULL, &store), "rlv_store_open");
	must(rlv_weights_create(store, "policy", &opts, &learner), "rlv_weights_create");
	must(rlv_weights_open(store, "policy", &actor), "rlv_weights_open");
	for (version = 1; version <= 16; version++) { /* all extents and keys have been used */
		values[version] ^= 1;
		must(publish(learner, version), "publish");
		must(rlv_weights_fetch(actor, 0, 0, &got), "fetch");
		rlv_generation_release(&got);
	}

	(void)now(learner); /* ends what its last put left under way */
	before = now(actor);
	must(rlv_weights_poll(actor, &version), "poll");
	expect(rlv_weights_fetch(actor, 16, 0, &got), -ETIMEDOUT);
	did = since(actor, before);
	assert_int_equal(did.round_trips, 2); /* one each */
	assert_int_equal(did.read_bytes, 2 * 128);

	for (version = 17; version <= 24; version++) {
		bool anchor = version % 4 == 1, drops = version % 4 == 2;

		values[version] ^= 1;
		before = now(learner);
		must(publish(learner, version), "publish");
		did = since(learner, before);
		if (anchor) { /* with a delta; and what collecting the chunks of 64 KiB costs */
			assert_in_range(did.round_trips, 9, 42);
			assert_in_range(did.write_bytes, sizeof(values), sizeof(values) + 2400);
		} else { /* a look at the table, entry, table; and 5 entries of 4 generations are emptied together */
			assert_int_equal(did.round_trips, 5 + (drops ? 5 * 2 : 0));
			assert_in_range(did.write_bytes, 0, 1200);
		}
		before = now(actor);
		must(rlv_weights_fetch(actor, version - 1, 0, &got), "fetch");
		did = since(actor, before);
		assert_memory_equal(got.data, values, sizeof(values));
		rlv_generation_release(&got);
		/* A look, the table; then the deltas of two generations, as the buffer lags. */
		assert_int_equal(did.round_trips, 4);
		assert_in_range(did.read_bytes, 0, 1600);
	}
	must(rlv_weights_close(&actor), "rlv_weights_close");
	must(rlv_weights_close(&learner), "rlv_weights_close");
	must(rlv_store_close(&store), "rlv_store_close");
}

/* Reads the newest generation with a reader that has the one k before it, in both of its buffers or in none.
   Returns what that has read. */
static struct rlv_weights_info
fetch_behind(struct rlv_store *store, struct rlv_generations *learner, uint32_t k, uint32_t rare)
{
	struct rlv_generation got = RLV_GENERATION_INIT, older = RLV_GENERATION_INIT;
	struct rlv_generations *actor = NULL;
	struct rlv_weights_info before, did;

	must(rlv_weights_open(store, "policy", &actor), "rlv_weights_open");
	must(rlv_weights_fetch(actor, 0, 0, &got), "fetch");
	(void)now(actor); /* ends what its fetch left under way */
	for (uint32_t i = 0; i < k; i++) {
		for (uint32_t at = i; at < ELEMENTS; at += rare)
			values[at]++;
		must(publish(learner, got.version + 1 + i), "publish");
	}
	before = now(actor);
	must(rlv_weights_fetch(actor, got.version, 0, &older), "fetch");
	did = since(actor, before);
	assert_int_equal(older.version, got.version + k);
	assert_memory_equal(older.data, values, sizeof(values));
	did.deltas -= before.deltas;
	rlv_generation_release(&older);
	rlv_generation_release(&got);
	must(rlv_weights_close(&actor), "rlv_weights_close");
	return did;
}

/* Round trips of a publish of an anchor, and of reading it, with that many bytes under way at most. */
static struct rlv_weights_info bounded(struct rlv_generations *weights, uint64_t bytes,
				       uint64_t version)
{
	struct rlv_generation got = RLV_GENERATION_INIT;
	struct rlv_weights_info before, published, read;

	must(rlv_weights_limit(weights, bytes), "rlv_weights_limit");
	before = now(weights);
	must(publish(weights, version), "publish");
	published = since(weights, before);
	before = now(weights);
	must(rlv_weights_get(weights, version, &got), "get");
	read = since(weights, before);
	assert_memory_equal(got.data, values, sizeof(values));
	rlv_generation_release(&got);
	read.published = published.round_trips;
	return read;
}

/* The head of the anchor is read, with what a range reads ahead: when others are tied than before, as when it is another tree. */
TEST(cost__of_a_comparison_with_the_generation_before)
{
	struct rlv_tensor tensor = { .size = sizeof(tensor),
				     .dtype = RLV_U16,
				     .ndim = 1,
				     .name = "x",
				     .shape = { ELEMENTS },
				     .data = values };
	struct rlv_store *store = NULL;
	struct rlv_generations *learner = NULL;
	struct rlv_weights_info before, did;

	must(rlv_store_open("embed:", NULL, &store), "rlv_store_open");
	must(rlv_weights_create(store, "policy", NULL, &learner), "rlv_weights_create");
	must(publish(learner, 1), "publish");
	values[1] ^= 1;
	must(publish(learner, 2), "publish of a delta");
	before = now(learner);
	expect(rlv_weights_publish(learner, &tensor, 1, 3, 0), -EINVAL);
	did = since(learner, before);
	assert_int_equal(did.round_trips, 1 + 2); /* a look at the table */
	must(rlv_weights_close(&learner), "rlv_weights_close");
	must(rlv_store_close(&store), "rlv_store_close");
}

/* An anchor has 13 shares, and a rest below 4096. */
TEST(cost__of_a_bound_on_bytes_under_way)
{
	const struct rlv_weights_opts opts = { .size = sizeof(opts),
					       .bytes = 2 * ELEMENTS,
					       .keep = 1,
					       .anchor_every = 1,
					       .max_clients = 8 };
	static const struct {
		uint64_t bytes, more; /* round trips than without */
	} bounds[] = { { 3 * SHARE + 100, 4 }, { SHARE, 13 }, { 20000, 13 * 4 }, { 4096, 13 * 15 } };
	struct rlv_generations *weights = NULL;
	struct rlv_store *store = NULL;
	struct rlv_weights_info whole, parts;
	uint64_t version = 0;

	must(rlv_store_open("embed:", NULL, &store), "rlv_store_open");
	must(rlv_weights_create(store, "policy", &opts, &weights), "rlv_weights_create");
	while (version < 12) /* all extents have been used */
		must(publish(weights, ++version), "publish");
	whole = bounded(weights, 0, ++version);
	for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
		parts = bounded(weights, bounds[i].bytes, ++version);
		assert_int_equal(parts.round_trips, whole.round_trips + bounds[i].more);
		assert_in_range(parts.published, bounds[i].more,
				whole.published + bounds[i].more + 30);
		assert_int_equal(parts.read_bytes, whole.read_bytes);
	}
	expect(rlv_weights_limit(weights, 4095), -EINVAL);
	expect(rlv_weights_limit(NULL, 0), -EINVAL);
	must(rlv_weights_close(&weights), "rlv_weights_close");
	must(rlv_store_close(&store), "rlv_store_close");
}

#define LAYERS 8u

/* Begins with the newest generation, and reads its first tensors or all, by `bytes` at a time. */
static struct rlv_weights_info arrive(struct rlv_generations *actor, uint64_t bytes, uint32_t most)
{
	struct rlv_generation got = RLV_GENERATION_INIT;
	struct rlv_weights_info before;
	uint32_t ready = 0;

	must(rlv_weights_limit(actor, bytes), "rlv_weights_limit");
	before = now(actor);
	must(rlv_weights_begin(actor, 0, 0, &got, &ready), "rlv_weights_begin");
	while (ready < most)
		must(rlv_weights_more(actor, &got, &ready), "rlv_weights_more");
	for (uint32_t i = 0; i < ready; i++)
		assert_memory_equal(got.tensors[i].data, &values[i * (ELEMENTS / LAYERS)],
				    got.tensors[i].bytes);
	rlv_generation_release(&got);
	return since(actor, before);
}

/* Each chunk is read once, in order: 2 round trips for each part. */
TEST(cost__of_tensors_that_are_read_as_they_arrive)
{
	const struct rlv_weights_opts opts = { .size = sizeof(opts),
					       .bytes = 2 * ELEMENTS + LAYERS * 64,
					       .keep = 2,
					       .anchor_every = 1,
					       .max_clients = 8 };
	static const struct bound {
		uint64_t bytes, parts;
	} bounds[] = { { SHARE, 14 }, { 2 * SHARE, 7 }, { 6 * SHARE, 3 } };
	struct rlv_generations *learner = NULL, *actor = NULL;
	struct rlv_tensor layers[LAYERS];
	struct rlv_store *store = NULL;
	struct rlv_weights_info first = { 0 }, all;
	char names[LAYERS][8];
	uint64_t version = 0;

	for (uint32_t i = 0; i < LAYERS; i++) {
		snprintf(names[i], sizeof(names[i]), "%u", i);
		layers[i] = (struct rlv_tensor){ .size = sizeof(layers[i]),
						 .dtype = RLV_BF16,
						 .ndim = 1,
						 .name = names[i],
						 .shape = { ELEMENTS / LAYERS },
						 .data = &values[i * (ELEMENTS / LAYERS)] };
	}
	must(rlv_store_open("embed:", NULL, &store), "rlv_store_open");
	must(rlv_weights_create(store, "policy", &opts, &learner), "rlv_weights_create");
	must(rlv_weights_open(store, "policy", &actor), "rlv_weights_open");
	for (size_t i = 0; i < 4 * (sizeof(bounds) / sizeof(bounds[0])); i++) {
		const struct bound *bound = &bounds[i / 4];

		must(rlv_weights_publish(learner, layers, LAYERS, ++version, 0), "publish");
		must(rlv_weights_poll(actor, &version), "poll"); /* a look at the table */
		if (i % 4 < 3) { /* the actor has seen the keys of all entries */
			first = arrive(actor, bound->bytes, 0);
			continue;
		}
		all = arrive(actor, bound->bytes, LAYERS);
		assert_int_equal(first.round_trips, 4);
		assert_in_range(first.read_bytes, bound->bytes, bound->bytes + 1800);
		assert_int_equal(all.round_trips, 4 + 2 * (bound->parts - 1));
		assert_in_range(all.read_bytes, 2 * ELEMENTS,
				2 * ELEMENTS + 2000 + 500 * bound->parts);
	}
	must(rlv_weights_close(&actor), "rlv_weights_close");
	must(rlv_weights_close(&learner), "rlv_weights_close");
	must(rlv_store_close(&store), "rlv_store_close");
}

/* What an actor reads that is k generations behind: k deltas, over anchors, too; or one anchor, where that is less. */
TEST(cost__of_an_actor_that_lags)
{
	const struct rlv_weights_opts opts = { .size = sizeof(opts),
					       .bytes = 2 * ELEMENTS,
					       .keep = 12,
					       .anchor_every = 8,
					       .max_clients = 8 };
	struct rlv_generations *learner = NULL;
	struct rlv_store *store = NULL;
	struct rlv_weights_info did;
	uint64_t first, each, by_anchor = 0;

	must(rlv_store_open("embed:", NULL, &store), "rlv_store_open");
	must(rlv_weights_create(store, "policy", &opts, &learner), "rlv_weights_create");
	must(publish(learner, 1), "publish");
	first = fetch_behind(store, learner, 1, 1000).read_bytes;
	each = fetch_behind(store, learner, 2, 1000).read_bytes - first;
	assert_in_range(each, ELEMENTS / 1000 * 4, ELEMENTS / 1000 * 4 + 2000);
	for (uint32_t k = 3; k <= 12; k++) {
		did = fetch_behind(store, learner, k, 1000);
		assert_int_equal(did.deltas, k);
		assert_int_equal(did.read_bytes, first + (k - 1) * each);
		assert_int_equal(did.round_trips, 2 + 2 * k);
	}
	/* A delta has a tenth of the bytes of an anchor, behind which there are up to 5. */
	each = fetch_behind(store, learner, 1, 20).read_bytes;
	for (uint32_t k = 9; k <= 12; k++) {
		did = fetch_behind(store, learner, k, 20);
		assert_in_range(did.read_bytes, 9 * sizeof(values) / 10, k * each);
		if (did.deltas < k) {
			assert_in_range(did.deltas, 0, 5);
			assert_in_range(did.read_bytes, sizeof(values),
					sizeof(values) + 5000 + did.deltas * each);
			by_anchor++;
		}
	}
	assert_true(by_anchor > 0);
	must(rlv_weights_close(&learner), "rlv_weights_close");
	must(rlv_store_close(&store), "rlv_store_close");
}

int main(void)
{
	return test_run(NULL, NULL);
}
