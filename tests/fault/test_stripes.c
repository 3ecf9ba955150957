/*
 * The n-th change or read under a key or a hidden key fails, n = 1, 2, .. until a call passes; so does the n-th
 * allocation. The call returns an error, or does what it is for; the key has its old value or the new one, and the
 * next call leaves no stripe that no value names.
 */
#include "tests/support/must.h"

#include "relive/kv.h"

#include "ds/heap/keys.h"

#include "base/mem/alloc.h"

#include <errno.h>
#include <string.h>

#define EXTENT 65536u
#define SHARE (EXTENT - 64u) /* of a value, in a stripe of one extent */
#define BYTES (4u * SHARE - 100u)

/* How the n-th call of heap_put or heap_get fails. */
enum failure {
	PUT_FULL,     /* -ENOSPC, and nothing was put */
	PUT_BREAKS,   /* -EIO, and nothing was put */
	PUT_LOST,     /* its answer is lost; it was done */
	PUT_NOT_DONE, /* its answer is lost; it was not done */
	GET_BREAKS,
	GET_DAMAGED,
	GET_OVERTAKEN, /* another client puts some values before it */
	FAILURES,
};

static enum failure failure;
static int64_t left; /* calls until it fails; 0 = none fails */
static bool fired;

int __real_heap_put(struct heap_access *acc, const struct chain_key *key,
		    const struct heap_put *put, uint64_t *version_out);
int __wrap_heap_put(struct heap_access *acc, const struct chain_key *key,
		    const struct heap_put *put, uint64_t *version_out);
int __real_heap_get(struct heap_access *acc, const struct chain_key *key,
		    const struct heap_room *room, struct heap_value *out);
int __wrap_heap_get(struct heap_access *acc, const struct chain_key *key,
		    const struct heap_room *room, struct heap_value *out);

static void overtake(void);

static bool fails_now(bool puts)
{
	bool now = puts == (failure < GET_BREAKS) && left > 0 && --left == 0;

	fired |= now;
	return now;
}

int __wrap_heap_put(struct heap_access *acc, const struct chain_key *key,
		    const struct heap_put *put, uint64_t *version_out)
{
	if (!fails_now(true))
		return __real_heap_put(acc, key, put, version_out);
	if (failure == PUT_FULL || failure == PUT_BREAKS)
		return failure == PUT_FULL ? -ENOSPC : -EIO;
	if (failure == PUT_LOST && __real_heap_put(acc, key, put, version_out))
		return -EIO;
	acc->in_doubt = true;
	return -ECONNRESET;
}

int __wrap_heap_get(struct heap_access *acc, const struct chain_key *key,
		    const struct heap_room *room, struct heap_value *out)
{
	if (!fails_now(false))
		return __real_heap_get(acc, key, room, out);
	if (failure == GET_OVERTAKEN) {
		overtake();
		return __real_heap_get(acc, key, room, out);
	}
	return failure == GET_BREAKS ? -EIO : -EBADMSG;
}

int __real_heap_look(struct heap_access *acc, const struct chain_key *key, struct heap_value *out);
int __wrap_heap_look(struct heap_access *acc, const struct chain_key *key, struct heap_value *out);

int __wrap_heap_look(struct heap_access *acc, const struct chain_key *key, struct heap_value *out)
{
	if (!fails_now(false))
		return __real_heap_look(acc, key, out);
	if (failure == GET_OVERTAKEN) {
		overtake();
		return __real_heap_look(acc, key, out);
	}
	return failure == GET_BREAKS ? -EIO : -EBADMSG;
}

static const struct rlv_bytes key = { "k", 1 };

static struct rlv_bytes value_of(uint32_t number, size_t len)
{
	static uint32_t words[BYTES / 4 + 1];

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		words[i] = number;
	return (struct rlv_bytes){ words, len };
}

struct scene {
	struct rlv_store *store;
	struct rlv_kv *kv;
};

static int scene_try(struct scene *s)
{
	const struct rlv_kv_opts opts = { .size = sizeof(opts),
					  .keys = 2000,
					  .bytes = 8 << 20,
					  .extent_bytes = EXTENT,
					  .parts = 3,
					  .max_clients = 2,
					  .stripe_bytes = EXTENT };
	struct rlv_store_opts store = RLV_STORE_OPTS_INIT;
	int ret;

	memset(s, 0, sizeof(*s));
	store.pages = RLV_PAGES_SMALL;
	ret = rlv_store_open("embed:", &store, &s->store);
	return ret ? ret : rlv_kv_create(s->store, "h", &opts, &s->kv);
}

static void verify(struct rlv_kv *kv)
{
	struct rlv_kv_report report = RLV_KV_REPORT_INIT;

	must(rlv_kv_verify(kv, &report), "rlv_kv_verify");
	if (report.problems)
		fail_msg("%s", report.first_problem);
}

static void scene_close(struct scene *s)
{
	must(rlv_kv_close(&s->kv), "rlv_kv_close");
	must(rlv_store_close(&s->store), "rlv_store_close");
}

/* Returns the number of the value that the key has, which is whole; 0 = none. */
static uint32_t number_of(struct rlv_kv *kv, const size_t lens[3])
{
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;
	int ret = rlv_kv_get(kv, key, &value);
	uint32_t number;

	if (ret == -ENOENT)
		return 0;
	must(ret, "rlv_kv_get");
	memcpy(&number, value.ptr, sizeof(number));
	assert_in_range(number, 1, 2);
	assert_int_equal(value.len, lens[number]);
	assert_true(memcmp(value.ptr, value_of(number, value.len).ptr, value.len) == 0);
	return number;
}

static int change(struct rlv_kv *kv, size_t len)
{
	return len ? rlv_kv_put(kv, key, value_of(2, len), NULL) : rlv_kv_delete(kv, key, NULL);
}

/* Makes the change with the n-th call failing, which has lens[1] bytes replaced by lens[2]; false: it had fewer. */
static bool fail_at(struct scene *s, int64_t n, const size_t lens[3])
{
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;
	bool done = false;
	uint32_t number;
	int ret;

	must(rlv_kv_put(s->kv, key, value_of(1, lens[1]), NULL), "rlv_kv_put");
	fired = false;
	left = n;
	ret = change(s->kv, lens[2]);
	if (failure >= GET_BREAKS && ret == 0)
		(void)!rlv_kv_get(s->kv, key, &value);
	left = 0;
	number = number_of(s->kv, lens);
	done = number == (lens[2] ? 2 : 0);
	assert_true(done || number == 1);
	if (ret == 0)
		assert_true(done);
	else if (ret != -ECONNRESET)
		assert_false(done);
	/* The next call completes what this one could not. */
	must(rlv_kv_put(s->kv, key, value_of(1, lens[1]), NULL), "rlv_kv_put");
	(void)number_of(s->kv, lens);
	if (failure != GET_DAMAGED) /* of a damaged one nobody knows the stripes */
		verify(s->kv);
	return fired;
}

static void fail_each(enum failure how)
{
	static const size_t all[][3] = {
		{ 0, BYTES, BYTES - 8 }, { 0, 40, BYTES }, { 0, BYTES, 40 }, { 0, BYTES, 0 }
	};

	failure = how;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		struct scene s;
		int64_t n = 1;

		must(scene_try(&s), "open");
		while (fail_at(&s, n, all[i]))
			n++;
		assert_true(n > 4);
		scene_close(&s);
	}
}

TEST(stripes__when_each_put_finds_no_room)
{
	fail_each(PUT_FULL);
}

TEST(stripes__when_each_put_breaks)
{
	fail_each(PUT_BREAKS);
}

TEST(stripes__when_the_answer_of_each_put_is_lost)
{
	fail_each(PUT_LOST);
}

TEST(stripes__when_each_put_is_lost)
{
	fail_each(PUT_NOT_DONE);
}

TEST(stripes__when_each_get_breaks)
{
	fail_each(GET_BREAKS);
}

TEST(stripes__when_each_get_finds_damage)
{
	fail_each(GET_DAMAGED);
}

/* -------- a reader and a writer -------- */

static struct rlv_kv *writer;
static uint32_t newest; /* number of the newest value */

static void put_newest(void)
{
	const uint64_t len = newest % 3 ? BYTES - 8 * (uint64_t)newest : 40;

	newest++;
	must(rlv_kv_put(writer, key, value_of(newest, len), NULL), "rlv_kv_put");
}

static uint32_t
	overtakes; /* puts at a time: with some of them the same numbers of stripes come again */

static void overtake(void)
{
	for (uint32_t i = 0; i < overtakes; i++)
		put_newest();
}

/* Gets a value whole, and none that was replaced before; the writer puts before the n-th look. False: it had fewer. */
static bool read_overtaken(struct rlv_kv *reader, int64_t n)
{
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;
	uint32_t before, number;

	while (newest % 3 == 1) /* the last one is short */
		put_newest();
	before = newest;
	fired = false;
	left = n;
	must(rlv_kv_get(reader, key, &value), "rlv_kv_get");
	left = 0;
	memcpy(&number, value.ptr, sizeof(number));
	assert_in_range(number, before, newest);
	for (uint64_t i = 0; i < value.len / 4; i++)
		if (((const uint32_t *)value.ptr)[i] != number)
			fail_msg("a value of %u has a part of %u", number,
				 ((const uint32_t *)value.ptr)[i]);
	return fired;
}

TEST(stripes__when_a_reader_is_overtaken_at_each_step)
{
	struct rlv_kv *reader = NULL;
	struct scene s;

	must(scene_try(&s), "open");
	must(rlv_kv_open(s.store, "h", &reader), "rlv_kv_open");
	failure = GET_OVERTAKEN;
	writer = s.kv;
	newest = 0;
	put_newest();
	for (overtakes = 1; overtakes < 40; overtakes++) {
		int64_t n = 1;

		while (read_overtaken(reader, n))
			n++;
		assert_in_range(n, 5, 20);
	}
	must(rlv_kv_close(&reader), "rlv_kv_close");
	verify(s.kv);
	scene_close(&s);
}

/* Returns what a life with one value comes to; the allocations that fail are those of all its calls. */
static int live(struct scene *s)
{
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;
	int ret = scene_try(s);

	ret = ret ? ret : rlv_kv_put(s->kv, key, value_of(1, BYTES), NULL);
	ret = ret ? ret : rlv_kv_put(s->kv, key, value_of(2, BYTES), NULL);
	ret = ret ? ret : rlv_kv_get(s->kv, key, &value);
	ret = ret ? ret : rlv_kv_get_range(s->kv, key, SHARE - 1, 2 * SHARE, &value);
	return ret ? ret : rlv_kv_delete(s->kv, key, NULL);
}

TEST(stripes__when_each_allocation_fails)
{
	struct scene s;
	bool more = true;

	for (uint64_t n = 1; more; n++) {
		int ret;

		mem_fail_after(n);
		ret = live(&s);
		more = mem_fail_fired();
		mem_fail_after(0);
		if (!more)
			must(ret, "without a failure");
		else if (ret)
			assert_int_equal(ret, -ENOMEM);
		if (s.kv) {
			must(rlv_kv_put(s.kv, key, value_of(1, BYTES), NULL), "rlv_kv_put");
			verify(s.kv);
			must(rlv_kv_close(&s.kv), "rlv_kv_close");
		}
		if (s.store)
			must(rlv_store_close(&s.store), "rlv_store_close");
	}
}

int main(void)
{
	return test_run(NULL, NULL);
}
