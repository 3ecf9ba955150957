/*
 * Round trips of rlv_kv_* over a wire, exactly. The linker hands the library's transport_open to us
 * (cmake/tests.cmake), so that every transport of the store is wrapped.
 */
#include "tests/support/fake/wire_transport.h"
#include "tests/support/must.h"
#include "tests/support/wrap_open.h"

#include "relive/kv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int put_on_a_wire(struct transport **tr)
{
	*tr = wire_wrap(*tr);
	wire_lockstep(*tr);
	return 0;
}

WRAP_TRANSPORT_OPEN(put_on_a_wire)

static const uint8_t bytes[5000];

struct price {
	uint64_t round_trips, read, written, calls;
};

static struct price price(struct rlv_kv *kv)
{
	struct rlv_kv_info info = RLV_KV_INFO_INIT;

	must(rlv_kv_info(kv, &info), "rlv_kv_info");
	return (struct price){ info.round_trips, info.read_bytes, info.write_bytes,
			       info.server_calls };
}

/* What info itself costs. */
static struct price price_of_info(struct rlv_kv *kv)
{
	struct price a = price(kv), b = price(kv);

	return (struct price){ b.round_trips - a.round_trips, b.read - a.read,
			       b.written - a.written, b.calls - a.calls };
}

/* Of one call, and no request to the metadata server. */
static void expect_price(struct rlv_kv *kv, struct price before, uint64_t round_trips,
			 uint64_t read, uint64_t written)
{
	struct price after = price(kv), info = price_of_info(kv);

	assert_int_equal(after.round_trips - before.round_trips - info.round_trips, round_trips);
	assert_int_equal(after.read - before.read - info.read, read);
	assert_int_equal(after.written - before.written - info.written, written);
	assert_int_equal(after.calls - before.calls - info.calls, 0);
}

static void expect_one_request(struct rlv_kv *kv, struct price before)
{
	struct price after = price(kv), info = price_of_info(kv);

	assert_int_equal(after.round_trips - before.round_trips - info.round_trips, 0);
	assert_int_equal(after.calls - before.calls - info.calls, 1);
}

static struct rlv_kv *open_mode(struct rlv_store **store, enum rlv_kv_mode mode)
{
	const struct rlv_kv_opts opts = {
		.size = sizeof(opts), .keys = 100, .mode = mode, .extent_bytes = 2048
	};
	struct rlv_kv *kv = NULL;

	must(rlv_store_open("embed:", NULL, store), "rlv_store_open");
	must(rlv_kv_create(*store, "h", &opts, &kv), "rlv_kv_create");
	return kv;
}

TEST(cost__get_1_put_2_delete_2)
{
	const struct rlv_bytes key = { "k", 1 };
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;
	struct rlv_store *store = NULL;
	struct rlv_kv *kv = NULL;
	struct price before;
	uint64_t version;

	must(rlv_store_open("embed:", NULL, &store), "rlv_store_open");
	must(rlv_kv_create(store, "h", NULL, &kv), "rlv_kv_create");
	/* Each claims the first extent of its class. */
	must(rlv_kv_put(kv, key, (struct rlv_bytes){ bytes, 1 }, NULL), "put");
	must(rlv_kv_put(kv, key, (struct rlv_bytes){ bytes, 64 }, NULL), "put");
	must(rlv_kv_put(kv, key, (struct rlv_bytes){ bytes, 1000 }, NULL), "put");
	/* Pin, entry of 64 + 1 + 1000 -> 1072 bytes, cell without a value, end of the pin; the epoch and
	   the head record are read. */
	before = price(kv);
	must(rlv_kv_put(kv, key, (struct rlv_bytes){ bytes, 1000 }, NULL), "put");
	expect_price(kv, before, 2, 8 + 128, 8 + 1072 + 24 + 8);
	before = price(kv);
	must(rlv_kv_get(kv, key, &value), "get");
	expect_price(kv, before, 1, 1072 + 128, 0);
	before = price(kv);
	must(rlv_kv_get_range(kv, key, 10, 20, &value), "get_range");
	expect_price(kv, before, 1, 8 + 1072 + 128, 8 + 8);
	before = price(kv);
	must(rlv_kv_put_if(kv, key, (struct rlv_bytes){ bytes, 64 }, 4, &version), "put_if");
	expect_price(kv, before, 2, 8 + 128, 8 + 136 + 80 + 8);
	before = price(kv);
	must(rlv_kv_get(kv, key, &value), "get of a small value");
	expect_price(kv, before, 1, 128, 0);
	before = price(kv);
	must(rlv_kv_get_range(kv, key, 10, 20, &value), "get_range of a small value");
	expect_price(kv, before, 1, 8 + 128, 8 + 8);
	before = price(kv);
	expect(rlv_kv_get_newer(kv, key, 5, &value), -ENODATA);
	expect_price(kv, before, 1, 128, 0);
	before = price(kv);
	expect(rlv_kv_watch(kv, key, 5, 0, &version), -ETIMEDOUT);
	expect_price(kv, before, 1, 128, 0);
	before = price(kv);
	must(rlv_kv_delete(kv, key, NULL), "delete");
	expect_price(kv, before, 2, 8 + 128, 8 + 72 + 16 + 8);
	must(rlv_kv_close(&kv), "rlv_kv_close");
	must(rlv_store_close(&store), "rlv_store_close");
}

/* Lock: intent and head of the committed copy; second copy; committed copy; unlock. */
TEST(direct__get_1_put_4)
{
	const struct rlv_bytes key = { "k", 1 };
	const uint64_t head = 64 + 256;
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;
	struct rlv_store *store = NULL;
	struct rlv_kv *kv = open_mode(&store, RLV_KV_DIRECT);
	struct price before;
	uint64_t version;

	must(rlv_kv_put(kv, key, (struct rlv_bytes){ bytes, 1000 }, NULL), "put");
	before = price(kv);
	must(rlv_kv_put(kv, key, (struct rlv_bytes){ bytes, 1000 }, NULL), "put");
	expect_price(kv, before, 4, head, 8 + 2 * 1072);
	before = price(kv);
	must(rlv_kv_get(kv, key, &value), "get");
	expect_price(kv, before, 1, 1072, 0);
	before = price(kv);
	must(rlv_kv_put_if(kv, key, (struct rlv_bytes){ bytes, 64 }, 2, &version), "put_if");
	expect_price(kv, before, 4, head, 8 + 2 * 136);
	before = price(kv);
	expect(rlv_kv_put_if(kv, key, (struct rlv_bytes){ bytes, 64 }, 2, &version), -ESTALE);
	expect_price(kv, before, 2, head, 8);
	before = price(kv);
	must(rlv_kv_delete(kv, key, NULL), "delete");
	expect_price(kv, before, 4, head, 8 + 2 * 72);
	must(rlv_kv_close(&kv), "rlv_kv_close");
	must(rlv_store_close(&store), "rlv_store_close");
}

TEST(central__one_request_each)
{
	const struct rlv_bytes key = { "k", 1 };
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;
	struct rlv_store *store = NULL;
	struct rlv_kv *kv = open_mode(&store, RLV_KV_CENTRAL);
	struct price before = price(kv);
	uint64_t version;

	must(rlv_kv_put(kv, key, (struct rlv_bytes){ bytes, 1000 }, NULL), "put");
	expect_one_request(kv, before);
	before = price(kv);
	must(rlv_kv_get(kv, key, &value), "get");
	assert_int_equal(value.len, 1000);
	expect_one_request(kv, before);
	before = price(kv);
	must(rlv_kv_put_if(kv, key, (struct rlv_bytes){ bytes, 64 }, 1, &version), "put_if");
	expect_one_request(kv, before);
	before = price(kv);
	expect(rlv_kv_get_newer(kv, key, 2, &value), -ENODATA);
	expect_one_request(kv, before);
	before = price(kv);
	must(rlv_kv_delete(kv, key, NULL), "delete");
	expect_one_request(kv, before);
	must(rlv_kv_close(&kv), "rlv_kv_close");
	must(rlv_store_close(&store), "rlv_store_close");
}

/* A heap of two parts, and values of that many stripes of 128 KiB, in extents of 64 KiB. */
static struct rlv_kv *open_stripes(struct rlv_store **store)
{
	const struct rlv_kv_opts opts = { .size = sizeof(opts),
					  .keys = 400,
					  .bytes = 32 << 20,
					  .extent_bytes = 64 << 10,
					  .parts = 2,
					  .stripe_bytes = 128 << 10 };
	struct rlv_kv *kv = NULL;

	must(rlv_store_open("embed:", NULL, store), "rlv_store_open");
	must(rlv_kv_create(*store, "h", &opts, &kv), "rlv_kv_create");
	return kv;
}

static uint64_t round_trips_since(struct rlv_kv *kv, struct price before)
{
	struct price after = price(kv), info = price_of_info(kv);

	return after.round_trips - before.round_trips - info.round_trips;
}

/* Puts the key's next value, of n stripes or, if 0, of 64 bytes; returns the round trips. */
static uint64_t put_stripes(struct rlv_kv *kv, uint32_t n)
{
	static const uint8_t zeros[8 * (128 << 10)];
	struct price before = price(kv);
	uint64_t len = n ? (uint64_t)n * 2 * ((64 << 10) - 64) : 64;

	must(rlv_kv_put(kv, (struct rlv_bytes){ "k", 1 }, (struct rlv_bytes){ zeros, len }, NULL),
	     "rlv_kv_put");
	return round_trips_since(kv, before);
}

TEST(cost__stripes)
{
	static uint8_t memory[8 * (128 << 10)];
	struct rlv_kv_value value = { .size = sizeof(value),
				      .ptr = memory,
				      .room = sizeof(memory) };
	struct rlv_store *store = NULL;
	struct rlv_kv *kv = open_stripes(&store);
	struct price before, after, info;

	for (uint32_t i = 0; i < 6; i++)
		(void)put_stripes(kv, i % 3 * 2);
	/* A look, the intent 2, the swap 2, its end 4; for each stripe a look at its number and 4, for each that goes 2. */
	assert_int_equal(put_stripes(kv, 0), 9 + 4 * 2);
	assert_int_equal(put_stripes(kv, 0), 3);
	assert_int_equal(put_stripes(kv, 2), 9 + 2 * 5);
	assert_in_range(put_stripes(kv, 4), 9 + 4 * 5 + 2 * 2, 70); /* it collects space */
	for (uint32_t i = 0; i < 2; i++) {
		before = price(kv);
		must(rlv_kv_get(kv, (struct rlv_bytes){ "k", 1 }, &value), "rlv_kv_get");
		assert_int_equal(round_trips_since(kv, before), 1 + 4 * 3);
		assert_int_equal(value.len, 4 * 2 * ((64 << 10) - 64));
	}
	for (uint32_t i = 0; i < 2; i++) { /* then the handle has the chunk */
		before = price(kv);
		must(rlv_kv_get_range(kv, (struct rlv_bytes){ "k", 1 }, 5, 10, &value),
		     "rlv_kv_get_range");
		assert_int_equal(round_trips_since(kv, before), 3 - i);
	}
	assert_int_equal(put_stripes(kv, 0), 9 + 4 * 2);
	/* Of a longer value a put reads the header, and not the value. */
	for (uint32_t i = 0; i < 3; i++)
		must(rlv_kv_put(kv, (struct rlv_bytes){ "l", 1 },
				(struct rlv_bytes){ bytes, sizeof(bytes) }, NULL),
		     "rlv_kv_put");
	before = price(kv);
	must(rlv_kv_put(kv, (struct rlv_bytes){ "l", 1 },
			(struct rlv_bytes){ bytes, sizeof(bytes) }, NULL),
	     "rlv_kv_put");
	after = price(kv);
	info = price_of_info(kv);
	assert_int_equal(after.round_trips - before.round_trips - info.round_trips, 4);
	assert_in_range(after.read - before.read - info.read, 1, 1000);
	must(rlv_kv_close(&kv), "rlv_kv_close");
	must(rlv_store_close(&store), "rlv_store_close");
}

int main(void)
{
	return test_run(NULL, NULL);
}
