/*
 * Values in stripes whose memory is damaged, and manifests and intents of a hostile client: a get returns what was put,
 * or an error, and a put makes a damaged key sound again.
 */
#include "tests/support/must.h"

#include "client/kv/stripe.h"

#include "base/mem/alloc.h"
#include "base/rng.h"

#include <errno.h>
#include <string.h>

#define EXTENT 65536u
#define SHARE (EXTENT - 64u) /* of a value, in a stripe of one extent */
#define BYTES (4u * SHARE + 100u)
#define PARTS 3u

static uint8_t value[BYTES], back[BYTES];
static const struct rlv_bytes key = { "k", 1 };

struct scene {
	struct rlv_store *store;
	struct rlv_kv *kv;
	struct chain_key key;
	uint32_t home;
};

static void scene_open(struct scene *s)
{
	const struct rlv_kv_opts opts = { .size = sizeof(opts),
					  .keys = 2000,
					  .bytes = 12 << 20,
					  .extent_bytes = EXTENT,
					  .parts = PARTS,
					  .max_clients = 4,
					  .stripe_bytes = EXTENT };

	memset(s, 0, sizeof(*s));
	must(rlv_store_open("embed:", NULL, &s->store), "rlv_store_open");
	must(rlv_kv_create(s->store, "h", &opts, &s->kv), "rlv_kv_create");
	s->key = chain_key(key.ptr, (uint32_t)key.len, s->kv->desc.seed);
	s->home = chain_part(s->key.hash, PARTS);
	for (uint32_t i = 0; i < BYTES; i++)
		value[i] = (uint8_t)(i * 7 + i / 251);
}

static void scene_close(struct scene *s)
{
	must(rlv_kv_close(&s->kv), "rlv_kv_close");
	must(rlv_store_close(&s->store), "rlv_store_close");
}

static void put(struct scene *s)
{
	must(rlv_kv_put(s->kv, key, (struct rlv_bytes){ value, BYTES }, NULL), "rlv_kv_put");
}

static int get(struct scene *s)
{
	struct rlv_kv_value got = { .size = sizeof(got), .ptr = back, .room = sizeof(back) };
	int ret = rlv_kv_get(s->kv, key, &got);

	if (ret == 0) {
		assert_int_equal(got.len, BYTES);
		assert_true(memcmp(back, value, BYTES) == 0);
	}
	return ret;
}

static void expect_sound(struct scene *s)
{
	struct rlv_kv_report report = RLV_KV_REPORT_INIT;

	must(get(s), "rlv_kv_get");
	must(rlv_kv_verify(s->kv, &report), "rlv_kv_verify");
	if (report.problems)
		fail_msg("%s", report.first_problem);
}

static uint8_t *rows_of(struct scene *s, uint32_t part, size_t *bytes_out)
{
	struct heap_access *acc = kv_access(s->kv, part);

	*bytes_out = acc->heap->rows->size;
	return acc->heap->rows->base;
}

/* The manifest, where the key's entry has it. */
static uint8_t *manifest_of(struct scene *s)
{
	const uint32_t magic = STRIPE_MANIFEST_MAGIC;
	size_t bytes;
	uint8_t *rows = rows_of(s, s->home, &bytes),
		*at = memmem(rows, bytes, &magic, sizeof(magic));

	assert_non_null(at);
	return at;
}

/* Each byte of the entry: header, key, manifest. */
TEST(a_damaged_manifest__is_not_read)
{
	struct scene s;
	uint32_t refused = 0, bytes = 65 + (uint32_t)stripe_manifest_bytes(5);
	uint8_t *entry;

	scene_open(&s);
	put(&s);
	entry = manifest_of(&s) - 65;
	for (uint32_t i = 0; i < bytes; i++) {
		entry[i] ^= (uint8_t)(1u << i % 8);
		refused += get(&s) != 0;
		entry[i] ^= (uint8_t)(1u << i % 8);
	}
	assert_int_equal(refused, bytes);
	must(get(&s), "rlv_kv_get");
	entry[70] ^= 1;
	expect(get(&s), -EBADMSG);
	put(&s); /* of the damaged one nobody knows the stripes */
	must(get(&s), "rlv_kv_get");
	scene_close(&s);
}

TEST(a_damaged_stripe__is_not_read)
{
	struct rlv_kv_value got = RLV_KV_VALUE_INIT;
	struct scene s;

	scene_open(&s);
	put(&s);
	for (uint32_t i = 0; i < 5; i++) {
		size_t bytes, n = i < 4 ? SHARE : 100;
		uint8_t *rows = rows_of(&s, stripe_part(&s.kv->desc, s.home, i), &bytes);
		uint8_t *at = memmem(rows, bytes, value + i * SHARE, n);

		assert_non_null(at);
		at[n / 2] ^= 4;
		expect(get(&s), -EBADMSG);
		/* The handle has some chunks, which it read before. */
		if (rlv_kv_get_range(s.kv, key, i * SHARE + n / 2, 1, &got) == 0)
			assert_int_equal(*(const uint8_t *)got.ptr, value[i * SHARE + n / 2]);
		must(rlv_kv_get_range(s.kv, key, (i + 1) % 5 * SHARE, 1, &got), "rlv_kv_get_range");
		at[n / 2] ^= 4;
	}
	must(get(&s), "rlv_kv_get");
	expect_sound(&s);
	scene_close(&s);
}

/* A put of bytes that stand for a manifest, under the key. */
static void put_manifest(struct scene *s, const void *bytes, size_t len)
{
	const struct heap_put put = {
		.value = bytes, .len = len, .expected = HEAP_ANY_VERSION, .striped = BYTES
	};
	uint64_t version;

	must(kv_part_put(s->kv, s->home, &s->key, &put, &version), "kv_part_put");
}

TEST(a_forged_manifest__is_refused)
{
	uint8_t good[256], bad[256];
	struct rlv_kv_value got = RLV_KV_VALUE_INIT;
	size_t len = stripe_manifest_bytes(5);
	struct scene s;
	struct rng rng;
	int ret;

	assert_true(len <= sizeof(good));
	scene_open(&s);
	put(&s);
	memcpy(good, manifest_of(&s), len);
	put_manifest(&s, good, len); /* the same: it is a value */
	must(get(&s), "rlv_kv_get");
	rng_seed(&rng, 3, 0);
	for (uint32_t i = 0; i < 2000; i++) {
		/* In the head, or the version of a stripe: under another number may be another stripe of that version. */
		size_t n = rng_uniform_u64(&rng, sizeof(struct stripe_manifest) + 5 * 8);
		size_t over =
			n < sizeof(struct stripe_manifest) ? 0 : n - sizeof(struct stripe_manifest);
		size_t at = over ? sizeof(struct stripe_manifest) + over / 8 * 16 + 8 + over % 8
				 : n;

		memcpy(bad, good, len);
		bad[at] ^= (uint8_t)(1u << rng_uniform_u64(&rng, 8));
		put_manifest(&s, bad, len);
		ret = get(&s);
		assert_true(ret == -EBADMSG || ret == -ERANGE); /* that many bytes it may have */
		(void)!rlv_kv_get_range(s.kv, key, rng_uniform_u64(&rng, BYTES), 10, &got);
	}
	for (size_t n = 97; n < len; n++) {
		put_manifest(&s, good, n);
		expect(get(&s), -EBADMSG);
	}
	put_manifest(&s, good, len);
	must(get(&s), "rlv_kv_get");
	put(&s);
	expect_sound(&s);
	scene_close(&s);
}

/* A hidden key of another slot whose value is a manifest: stripes have no stripes. */
TEST(a_stripe__is_no_manifest)
{
	struct stripe_name name;
	struct stripes stripes;
	struct scene s;
	uint64_t version;
	uint8_t bytes[256];
	struct heap_put put_of = { .value = bytes, .expected = HEAP_ANY_VERSION, .striped = SHARE };

	scene_open(&s);
	put(&s);
	must(stripes_read(&s.kv->desc, manifest_of(&s), stripe_manifest_bytes(5), &stripes),
	     "stripes_read");
	put_of.len = stripe_manifest_bytes(5);
	stripes_write(&stripes, bytes);
	stripe_name_data(&s.kv->desc, stripes.owner, stripes.refs[1].number, &name);
	must(kv_part_put(s.kv, stripe_part(&s.kv->desc, s.home, 1), &name.key, &put_of, &version),
	     "kv_part_put");
	stripes.refs[1].version = version;
	stripes_write(&stripes, bytes);
	put_manifest(&s, bytes, put_of.len);
	expect(get(&s), -EBADMSG);
	put(&s);
	expect_sound(&s);
	stripes_free(&stripes);
	scene_close(&s);
}

TEST(a_forged_intent__does_nothing_to_others)
{
	struct stripe_name name;
	struct scene s;
	struct rng rng;
	uint8_t bytes[200];

	scene_open(&s);
	put(&s);
	rng_seed(&rng, 4, 0);
	for (uint32_t i = 0; i < 3000; i++) {
		/* Of a slot without a client, or of ours. */
		uint32_t owner = i % 2 ? 3 : s.kv->slot.owner;
		struct stripe_intent head = { .magic = STRIPE_INTENT_MAGIC,
					      .key_len = 1,
					      .part = s.home,
					      .n_new = 3,
					      .n_old = 2,
					      .old_owner = 1 };
		struct heap_put put_of = { .value = bytes,
					   .len = sizeof(head) + 5 * sizeof(struct stripe_ref) + 1,
					   .expected = HEAP_ANY_VERSION };
		uint64_t version;

		for (size_t k = 0; k < sizeof(bytes); k++)
			bytes[k] = (uint8_t)rng_uniform_u64(&rng, 256);
		memcpy(bytes, &head, sizeof(head));
		if (i % 3)
			bytes[rng_uniform_u64(&rng, sizeof(head))] ^=
				(uint8_t)(1u << rng_uniform_u64(&rng, 8));
		put_of.len -= i % 5 == 0 ? rng_uniform_u64(&rng, put_of.len) : 0;
		stripe_name_intent(&s.kv->desc, owner, &name);
		must(kv_part_put(s.kv, stripe_intent_part(&s.kv->desc, owner), &name.key, &put_of,
				 &version),
		     "kv_part_put");
		s.kv->stripes->pending = true;
		(void)kv_stripes_settle(s.kv);
		must(get(&s), "rlv_kv_get");
	}
	put(&s);
	expect_sound(&s);
	scene_close(&s);
}

/* What weights put lies in the part of its key, where readers map it. */
TEST(a_value_to_be_mapped__stays_in_its_part)
{
	const struct heap_put paged = {
		.value = value, .len = BYTES, .paged = true, .expected = HEAP_ANY_VERSION
	};
	struct heap_access *acc;
	struct heap_hold hold;
	struct scene s;

	scene_open(&s);
	acc = kv_access(s.kv, s.home);
	put(&s);
	must(heap_hold(acc, &s.key, &hold), "heap_hold");
	assert_null(hold.manifest); /* in stripes: it is not mapped */
	must(kv_put(s.kv, key, &paged, NULL), "kv_put");
	expect_sound(&s);
	must(heap_hold(acc, &s.key, &hold), "heap_hold");
	assert_non_null(hold.manifest);
	assert_int_equal(hold.len, BYTES);
	heap_hold_end((const void *)(acc->heap->tree->base + heap_pin_off(acc->owner)), &hold);
	mem_free((void *)hold.manifest);
	put(&s);
	expect_sound(&s);
	scene_close(&s);
}

/* A program from before stripes knows HEAP_DESC_MAGIC alone, and so has to meet another magic. */
TEST(a_descriptor__has_stripes_and_their_magic)
{
	struct heap_desc desc;
	struct scene s;

	scene_open(&s);
	desc = s.kv->desc;
	assert_int_equal(desc.magic, HEAP_DESC_MAGIC_STRIPED);
	assert_int_equal(heap_desc_check(&desc), 0);
	desc.magic = HEAP_DESC_MAGIC;
	heap_desc_seal(&desc);
	assert_int_equal(heap_desc_check(&desc), -EBADMSG);
	desc.stripe = 0;
	heap_desc_seal(&desc);
	assert_int_equal(heap_desc_check(&desc), 0);
	desc.magic = HEAP_DESC_MAGIC_STRIPED;
	heap_desc_seal(&desc);
	assert_int_equal(heap_desc_check(&desc), -EBADMSG);
	for (uint32_t stripe = 1; stripe < 256; stripe++) {
		desc.stripe = (uint8_t)stripe;
		heap_desc_seal(&desc);
		assert_int_equal(heap_desc_check(&desc),
				 stripe >= 16 && stripe <= HEAP_STRIPE_MOST ? 0 : -EBADMSG);
	}
	scene_close(&s);
}

int main(void)
{
	return test_run(NULL, NULL);
}
