#include "tests/support/must.h"
#include "tests/support/temp_dir.h"

#include "relive/kv.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct rlv_bytes text(const char *words)
{
	return (struct rlv_bytes){ words, strlen(words) };
}

static struct rlv_store *open_store(const char *uri)
{
	struct rlv_store *store = NULL;

	must(rlv_store_open(uri, NULL, &store), uri);
	return store;
}

static struct rlv_kv *open_mode(struct rlv_store *store, enum rlv_kv_mode mode)
{
	const struct rlv_kv_opts opts = { .size = sizeof(opts),
					  .keys = 1000,
					  .bytes = 4 << 20,
					  .extent_bytes = mode == RLV_KV_CLOVER ? 64 << 10 : 8192,
					  .parts = 2,
					  .mode = mode };
	struct rlv_kv *kv = NULL;

	must(rlv_kv_create(store, "h", &opts, &kv), "rlv_kv_create");
	return kv;
}

static struct rlv_kv *open_kv(struct rlv_store *store)
{
	return open_mode(store, RLV_KV_CLOVER);
}

static uint64_t put(struct rlv_kv *kv, const char *key, const char *value)
{
	uint64_t version = 0;

	must(rlv_kv_put(kv, text(key), text(value), &version), "rlv_kv_put");
	return version;
}

static void expect_text(struct rlv_kv *kv, const char *key, const char *want, uint64_t version)
{
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;

	must(rlv_kv_get(kv, text(key), &value), "rlv_kv_get");
	assert_int_equal(value.len, strlen(want));
	assert_memory_equal(value.ptr, want, value.len);
	assert_int_equal(value.version, version);
}

static void close_all(struct rlv_store **store, struct rlv_kv **kv)
{
	struct rlv_kv_report report = RLV_KV_REPORT_INIT;

	must(rlv_kv_verify(*kv, &report), "rlv_kv_verify");
	if (report.problems)
		fail_msg("%s", report.first_problem);
	must(rlv_kv_close(kv), "rlv_kv_close");
	assert_null(*kv);
	must(rlv_store_close(store), "rlv_store_close");
}

static void keeps_versions(enum rlv_kv_mode mode)
{
	struct rlv_store *store = open_store("embed:");
	struct rlv_kv *kv = open_mode(store, mode), *other = NULL;
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;
	struct rlv_kv_info info = RLV_KV_INFO_INIT;
	uint64_t version;
	char small[4];

	assert_int_equal(put(kv, "a", "one"), 1);
	assert_int_equal(put(kv, "b", "two"), 1);
	assert_int_equal(put(kv, "a", "three"), 2);
	must(rlv_kv_open(store, "h", &other), "rlv_kv_open");
	expect_text(other, "a", "three", 2);
	expect_text(other, "b", "two", 1);
	must(rlv_kv_put_if(other, text("a"), text("four"), 2, &version), "rlv_kv_put_if");
	expect(rlv_kv_put_if(kv, text("a"), text("five"), 2, &version), -ESTALE);
	expect_text(kv, "a", "four", 3);
	must(rlv_kv_delete(kv, text("a"), &version), "rlv_kv_delete");
	assert_int_equal(version, 4);
	expect(rlv_kv_get(other, text("a"), &value), -ENOENT);
	expect(rlv_kv_delete(kv, text("a"), NULL), -ENOENT);
	value.ptr = small;
	value.room = 2;
	expect(rlv_kv_get(other, text("b"), &value), -ERANGE);
	assert_int_equal(value.len, 3);
	value.room = sizeof(small);
	must(rlv_kv_get(other, text("b"), &value), "rlv_kv_get");
	assert_memory_equal(small, "two", 3);
	must(rlv_kv_info(kv, &info), "rlv_kv_info");
	assert_int_equal(info.keys, 2);
	assert_int_equal(info.parts_up, 2);
	assert_int_equal(info.round_trips, 0);
	assert_string_equal(info.name, "h");
	assert_int_equal(info.mode, mode);
	expect(rlv_store_close(&store), -EBUSY);
	must(rlv_kv_close(&other), "rlv_kv_close");
	close_all(&store, &kv);
}

TEST(kv__keeps_versions_under_keys)
{
	keeps_versions(RLV_KV_CLOVER);
}

TEST(kv__keeps_versions_under_keys_direct)
{
	keeps_versions(RLV_KV_DIRECT);
}

TEST(kv__keeps_versions_under_keys_central)
{
	keeps_versions(RLV_KV_CENTRAL);
}

/* Of values of one place and, in clover, of several. */
static void gets_ranges(enum rlv_kv_mode mode)
{
	static uint8_t bytes[200000], memory[100];
	const uint64_t len = mode == RLV_KV_CLOVER ? sizeof(bytes) : 5000;
	struct rlv_store *store = open_store("embed:");
	struct rlv_kv *kv = open_mode(store, mode);
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7 + i / 256);
	put(kv, "a", "first");
	must(rlv_kv_get_range(kv, text("a"), 1, 3, &value), "rlv_kv_get_range");
	assert_int_equal(value.len, 3);
	assert_memory_equal(value.ptr, "irs", 3);
	assert_int_equal(value.version, 1);
	must(rlv_kv_put(kv, text("a"), (struct rlv_bytes){ bytes, len }, NULL), "rlv_kv_put");
	must(rlv_kv_get_range(kv, text("a"), 1000, 3000, &value), "rlv_kv_get_range");
	assert_int_equal(value.len, 3000);
	assert_memory_equal(value.ptr, bytes + 1000, 3000);
	assert_int_equal(value.version, 2);
	must(rlv_kv_get_range(kv, text("a"), len, 1, &value), "rlv_kv_get_range");
	assert_int_equal(value.len, 0);
	value.ptr = memory;
	value.room = sizeof(memory);
	must(rlv_kv_get_range(kv, text("a"), len - 100, UINT64_MAX, &value), "rlv_kv_get_range");
	assert_int_equal(value.len, 100);
	assert_memory_equal(memory, bytes + len - 100, 100);
	expect(rlv_kv_get_range(kv, text("a"), len - 101, UINT64_MAX, &value), -ERANGE);
	assert_int_equal(value.len, 101);
	value.ptr = NULL;
	expect(rlv_kv_get_range(kv, text("a"), 0, 1, &value), -EINVAL);
	value.room = 0;
	expect(rlv_kv_get_range(kv, text("none"), 0, 1, &value), -ENOENT);
	expect(rlv_kv_get_range(kv, text(""), 0, 1, &value), -EINVAL);
	expect(rlv_kv_get_range(kv, text("a"), 0, 1, NULL), -EINVAL);
	must(rlv_kv_delete(kv, text("a"), NULL), "rlv_kv_delete");
	expect(rlv_kv_get_range(kv, text("a"), 0, 1, &value), -ENOENT);
	close_all(&store, &kv);
}

TEST(kv__get_range_reads_a_part)
{
	gets_ranges(RLV_KV_CLOVER);
}

TEST(kv__get_range_reads_a_part_direct)
{
	gets_ranges(RLV_KV_DIRECT);
}

TEST(kv__get_range_reads_a_part_central)
{
	gets_ranges(RLV_KV_CENTRAL);
}

/* Absent, deleted, small and large values, keys that come twice, and memory that is too small. */
static void gets_many(enum rlv_kv_mode mode)
{
	enum { KEYS = 150 };
	static struct rlv_kv_item items[KEYS + 4];
	static uint8_t memory[KEYS + 4][2000], want[2000];
	static char keys[KEYS][8];
	struct rlv_store *store = open_store("embed:");
	struct rlv_kv *kv = open_mode(store, mode);

	for (size_t i = 0; i < KEYS; i++) {
		snprintf(keys[i], sizeof(keys[i]), "k%zu", i);
		memset(want, (int)i, sizeof(want));
		must(rlv_kv_put(kv, text(keys[i]), (struct rlv_bytes){ want, 13 * i }, NULL),
		     keys[i]);
	}
	must(rlv_kv_delete(kv, text("k7"), NULL), "rlv_kv_delete");
	for (size_t i = 0; i < KEYS + 4; i++) {
		items[i] = (struct rlv_kv_item)RLV_KV_ITEM_INIT;
		items[i].key = i < KEYS ? text(keys[i]) : text(i == KEYS ? "none" : "k149");
		items[i].ptr = memory[i];
		items[i].room = sizeof(memory[i]);
	}
	items[KEYS + 1].room = 100;
	must(rlv_kv_get_many(kv, items, KEYS + 4), "rlv_kv_get_many");
	for (size_t i = 0; i < KEYS; i++) {
		memset(want, (int)i, sizeof(want));
		assert_int_equal(items[i].status, i == 7 ? -ENOENT : 0);
		if (i == 7)
			continue;
		assert_int_equal(items[i].len, 13 * i);
		assert_int_equal(items[i].version, 1);
		assert_memory_equal(memory[i], want, 13 * i);
	}
	assert_int_equal(items[KEYS].status, -ENOENT);
	assert_int_equal(items[KEYS + 1].status, -ERANGE);
	assert_int_equal(items[KEYS + 1].len, 13 * 149);
	assert_int_equal(items[KEYS + 3].status, 0);
	must(rlv_kv_get_many(kv, NULL, 0), "rlv_kv_get_many of none");
	items[3].key.len = 0;
	expect(rlv_kv_get_many(kv, items, 4), -EINVAL);
	assert_non_null(strstr(rlv_last_error(), "items[3]"));
	close_all(&store, &kv);
}

TEST(kv__get_many_answers_each_key)
{
	gets_many(RLV_KV_CLOVER);
}

TEST(kv__get_many_answers_each_key_direct)
{
	gets_many(RLV_KV_DIRECT);
}

TEST(kv__get_many_answers_each_key_central)
{
	gets_many(RLV_KV_CENTRAL);
}

/* Old, new, deleted and equal keys, and values of all sizes; each has its version. */
static void puts_many(enum rlv_kv_mode mode)
{
	enum { KEYS = 150 };
	static struct rlv_kv_item items[KEYS + 2];
	static uint8_t memory[KEYS + 2][2000];
	static char keys[KEYS][8];
	struct rlv_store *store = open_store("embed:");
	struct rlv_kv *kv = open_mode(store, mode);
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;

	must(rlv_kv_put(kv, text("k7"), text("old"), NULL), "rlv_kv_put");
	must(rlv_kv_delete(kv, text("k7"), NULL), "rlv_kv_delete");
	for (size_t i = 0; i < KEYS + 2; i++) {
		items[i] = (struct rlv_kv_item)RLV_KV_ITEM_INIT;
		if (i < KEYS)
			snprintf(keys[i], sizeof(keys[i]), "k%zu", i);
		items[i].key = text(i < KEYS ? keys[i] : "k149");
		memset(memory[i], (int)i, sizeof(memory[i]));
		items[i].ptr = i ? memory[i] : NULL;
		items[i].len = i < KEYS ? 13 * i : 10;
	}
	must(rlv_kv_put_many(kv, items, KEYS + 2), "rlv_kv_put_many");
	for (size_t i = 0; i < KEYS + 2; i++) {
		assert_int_equal(items[i].status, 0);
		assert_int_equal(items[i].version, i == 7 ? 3 : i < KEYS ? 1 : 2 + i - KEYS);
		must(rlv_kv_get(kv, items[i].key, &value), "rlv_kv_get");
		assert_int_equal(value.len, i < KEYS - 1 ? 13 * i : 10);
		assert_memory_equal(value.ptr, memory[i < KEYS - 1 ? i : KEYS + 1], value.len);
	}
	must(rlv_kv_put_many(kv, NULL, 0), "rlv_kv_put_many of none");
	items[3].ptr = NULL;
	expect(rlv_kv_put_many(kv, items, 4), -EINVAL);
	assert_non_null(strstr(rlv_last_error(), "items[3]"));
	must(rlv_kv_get(kv, text("k1"), &value), "rlv_kv_get");
	assert_int_equal(value.version, 1);
	/* A dropped heap: the call has ended before the items. */
	must(rlv_kv_drop(store, "h"), "rlv_kv_drop");
	expect(rlv_kv_put_many(kv, items, 2), -ESTALE);
	assert_int_equal(items[0].status, -ECANCELED);
	assert_int_equal(items[1].status, -ECANCELED);
	must(rlv_kv_close(&kv), "rlv_kv_close");
	kv = open_mode(store, mode);
	close_all(&store, &kv);
}

TEST(kv__put_many_puts_each_key)
{
	puts_many(RLV_KV_CLOVER);
}

TEST(kv__put_many_puts_each_key_direct)
{
	puts_many(RLV_KV_DIRECT);
}

TEST(kv__put_many_puts_each_key_central)
{
	puts_many(RLV_KV_CENTRAL);
}

static void watches(enum rlv_kv_mode mode)
{
	struct rlv_store *store = open_store("embed:");
	struct rlv_kv *kv = open_mode(store, mode);
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;
	uint64_t version = 0;

	expect(rlv_kv_watch(kv, text("a"), 0, 0, &version), -ETIMEDOUT);
	expect(rlv_kv_watch(kv, text("a"), 0, 2000000, &version), -ETIMEDOUT);
	expect(rlv_kv_get_newer(kv, text("a"), 0, &value), -ENODATA);
	put(kv, "a", "one");
	must(rlv_kv_watch(kv, text("a"), 0, 0, &version), "rlv_kv_watch");
	assert_int_equal(version, 1);
	expect(rlv_kv_get_newer(kv, text("a"), 1, &value), -ENODATA);
	must(rlv_kv_get_newer(kv, text("a"), 0, &value), "rlv_kv_get_newer");
	assert_int_equal(value.version, 1);
	must(rlv_kv_delete(kv, text("a"), NULL), "rlv_kv_delete");
	must(rlv_kv_watch(kv, text("a"), 1, -1, &version), "rlv_kv_watch");
	assert_int_equal(version, 2);
	expect(rlv_kv_get_newer(kv, text("a"), 1, &value), -ENOENT);
	close_all(&store, &kv);
}

TEST(kv__watch_and_newer_see_the_next_version)
{
	watches(RLV_KV_CLOVER);
}

TEST(kv__watch_and_newer_see_the_next_version_direct)
{
	watches(RLV_KV_DIRECT);
}

TEST(kv__watch_and_newer_see_the_next_version_central)
{
	watches(RLV_KV_CENTRAL);
}

struct waiter {
	struct rlv_store *store;
	uint64_t version;
	int ret;
};

static void *wait_for_one(void *arg)
{
	struct waiter *waiter = arg;
	struct rlv_kv *kv = NULL;

	waiter->ret = rlv_kv_open(waiter->store, "h", &kv);
	if (waiter->ret == 0)
		waiter->ret = rlv_kv_watch(kv, text("w"), 0, 10000000000, &waiter->version);
	if (waiter->ret == 0)
		waiter->ret = rlv_kv_close(&kv);
	return NULL;
}

TEST(kv__watch_wakes_another_thread)
{
	struct rlv_store *store = open_store("embed:");
	struct rlv_kv *kv = open_kv(store);
	struct waiter waiter = { .store = store };
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, wait_for_one, &waiter), 0);
	usleep(3000);
	put(kv, "w", "now");
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(waiter.ret, 0);
	assert_int_equal(waiter.version, 1);
	close_all(&store, &kv);
}

static void walks(enum rlv_kv_mode mode)
{
	struct rlv_store *store = open_store("embed:");
	struct rlv_kv *kv = open_mode(store, mode);
	struct rlv_kv_walk walk = RLV_KV_WALK_INIT;
	bool seen[100] = { false };
	char key[16];
	uint32_t n = 0;
	int ret;

	for (uint32_t i = 0; i < 100; i++) {
		(void)snprintf(key, sizeof(key), "k%02u", i);
		put(kv, key, key);
	}
	must(rlv_kv_delete(kv, text("k33"), NULL), "rlv_kv_delete");
	while ((ret = rlv_kv_next(kv, &walk)) == 0) {
		unsigned i;

		assert_int_equal(walk.key_len, 3);
		assert_int_equal(walk.value_len, 3);
		(void)snprintf(key, sizeof(key), "%.*s", (int)walk.key_len, (const char *)walk.key);
		i = (unsigned)atoi(key + 1);
		assert_true(i < 100 && !seen[i]);
		seen[i] = true;
		n++;
	}
	expect(ret, -ENODATA);
	assert_int_equal(n, 99);
	close_all(&store, &kv);
}

TEST(kv__walks_over_all_parts)
{
	walks(RLV_KV_CLOVER);
}

TEST(kv__walks_over_all_parts_direct)
{
	walks(RLV_KV_DIRECT);
}

TEST(kv__walks_over_all_parts_central)
{
	walks(RLV_KV_CENTRAL);
}

TEST(kv__bad_arguments_are_refused)
{
	const struct rlv_kv_opts odd = { .size = sizeof(odd), .extent_bytes = 100000 };
	const struct rlv_kv_opts huge = { .size = sizeof(huge), .bytes = UINT64_MAX };
	const struct rlv_kv_opts parts = { .size = sizeof(parts), .parts = 65 };
	const struct rlv_kv_opts other = { .size = sizeof(other), .keys = 5000 };
	const struct rlv_kv_opts mode = { .size = sizeof(mode), .mode = 3 };
	const struct rlv_kv_opts writers = { .size = sizeof(writers), .writers = 2 };
	const struct rlv_kv_opts direct = { .size = sizeof(direct), .mode = RLV_KV_DIRECT };
	struct rlv_store *store = open_store("embed:");
	struct rlv_kv *kv = open_kv(store), *none = NULL;
	struct rlv_table_opts table = RLV_TABLE_OPTS_INIT;
	struct rlv_column column = { .name = "a", .dtype = RLV_F32 };
	struct rlv_table *t = NULL;
	struct rlv_kv_value value = { 0 };
	char names[2][RLV_NAME_BYTES];
	char long_key[257] = "";
	size_t n = 2;

	expect(rlv_kv_create(store, "x", &odd, &none), -EINVAL);
	expect(rlv_kv_create(store, "x", &huge, &none), -EINVAL);
	expect(rlv_kv_create(store, "x", &parts, &none), -EINVAL);
	expect(rlv_kv_create(store, "x", &mode, &none), -EINVAL);
	expect(rlv_kv_create(store, "x", &writers, &none), -EINVAL);
	expect(rlv_kv_create(store, "h", &direct, &none), -EEXIST);
	expect(rlv_kv_create(store, "a/b", NULL, &none), -EINVAL);
	expect(rlv_kv_create(store, "h", &other, &none), -EEXIST);
	expect(rlv_kv_open(store, "x", &none), -ENOENT);
	expect(rlv_kv_open(store, NULL, &none), -EINVAL);
	assert_null(none);
	expect(rlv_kv_put(NULL, text("a"), text("b"), NULL), -EINVAL);
	expect(rlv_kv_put(kv, (struct rlv_bytes){ NULL, 1 }, text("b"), NULL), -EINVAL);
	expect(rlv_kv_put(kv, text(""), text("b"), NULL), -EINVAL);
	expect(rlv_kv_put(kv, (struct rlv_bytes){ long_key, 257 }, text("b"), NULL), -EINVAL);
	must(rlv_kv_put(kv, (struct rlv_bytes){ long_key, 256 }, text("b"), NULL), "a long key");
	expect(rlv_kv_put(kv, text("a"), (struct rlv_bytes){ NULL, 1 }, NULL), -EINVAL);
	expect(rlv_kv_put(kv, text("a"), (struct rlv_bytes){ long_key, (size_t)1 << 40 }, NULL),
	       -ERANGE);
	must(rlv_kv_put(kv, text("a"), (struct rlv_bytes){ NULL, 0 }, NULL), "an empty value");
	expect(rlv_kv_get(kv, text("a"), &value), -EINVAL);
	expect(rlv_kv_get(kv, text("a"), NULL), -EINVAL);
	value = (struct rlv_kv_value){ .size = sizeof(value), .room = 8 };
	expect(rlv_kv_get(kv, text("a"), &value), -EINVAL);
	/* A name is a table's or a heap's. */
	expect(rlv_table_open(store, "h", &t), -ENOENT);
	table.columns = &column;
	table.n_columns = 1;
	table.capacity = 1024;
	expect(rlv_table_create(store, "h", &table, &t), -EEXIST);
	must(rlv_table_create(store, "t", &table, &t), "rlv_table_create");
	expect(rlv_kv_open(store, "t", &none), -ENOENT);
	expect(rlv_kv_drop(store, "t"), -ENOENT);
	must(rlv_store_kvs(store, names, &n), "rlv_store_kvs");
	assert_int_equal(n, 1);
	assert_string_equal(names[0], "h");
	must(rlv_store_tables(store, names, &n), "rlv_store_tables");
	assert_int_equal(n, 1);
	assert_string_equal(names[0], "t");
	must(rlv_table_close(&t), "rlv_table_close");
	close_all(&store, &kv);
}

TEST(kv__dropped_is_stale)
{
	struct rlv_store *store = open_store("embed:");
	struct rlv_kv *kv = open_kv(store);

	put(kv, "a", "one");
	must(rlv_kv_drop(store, "h"), "rlv_kv_drop");
	expect(rlv_kv_put(kv, text("a"), text("two"), NULL), -ESTALE);
	must(rlv_kv_close(&kv), "rlv_kv_close");
	kv = open_kv(store);
	assert_int_equal(put(kv, "a", "one"), 1);
	close_all(&store, &kv);
}

TEST(kv__in_a_forked_child_is_the_parents)
{
	struct rlv_store *store = open_store("embed:");
	struct rlv_kv *kv = open_kv(store);
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;
	int status = 0;
	pid_t child;

	put(kv, "a", "one");
	child = fork();
	if (child == 0) {
		int bad = rlv_kv_put(kv, text("a"), text("two"), NULL) != -ECHILD ||
			  rlv_kv_get(kv, text("a"), &value) != -ECHILD;

		(void)!rlv_kv_close(&kv);
		_exit(bad || kv);
	}
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	expect_text(kv, "a", "one", 1);
	assert_int_equal(put(kv, "a", "two"), 2);
	close_all(&store, &kv);
}

static void is_there_again(enum rlv_kv_mode mode)
{
	struct rlv_store_opts reads = RLV_STORE_OPTS_INIT;
	char dir[TEMP_DIR_BYTES], uri[TEMP_DIR_BYTES + 16];
	struct rlv_store *store;
	struct rlv_kv *kv;
	char big[5000];

	temp_dir_make(dir);
	(void)snprintf(uri, sizeof(uri), "embed:%s/pool", dir);
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = 0;
	for (uint64_t round = 1; round < 4; round++) {
		store = open_store(uri);
		kv = open_mode(store, mode);
		if (round > 1) {
			expect_text(kv, "a", "one", round - 1);
			expect_text(kv, "b", big, round - 1);
		}
		assert_int_equal(put(kv, "a", "one"), round);
		assert_int_equal(put(kv, "b", big), round);
		close_all(&store, &kv);
	}
	reads.read_only = true;
	must(rlv_store_open(uri, &reads, &store), "read-only");
	must(rlv_kv_open(store, "h", &kv), "rlv_kv_open");
	expect_text(kv, "b", big, 3);
	expect(rlv_kv_put(kv, text("a"), text("two"), NULL), -EACCES);
	close_all(&store, &kv);
	(void)unlink(uri + strlen("embed:"));
	(void)rmdir(dir);
}

TEST(kv__in_a_file_is_there_again)
{
	is_there_again(RLV_KV_CLOVER);
}

TEST(kv__in_a_file_is_there_again_direct)
{
	is_there_again(RLV_KV_DIRECT);
}

/* Another process is another coordinator. */
TEST(kv__in_a_file_is_there_again_central)
{
	is_there_again(RLV_KV_CENTRAL);
}

int main(void)
{
	return test_run(NULL, NULL);
}
