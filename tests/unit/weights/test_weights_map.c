/* Generations that are read where their publisher put them. */
#include "tests/support/must.h"
#include "tests/support/temp_dir.h"

#include "client/weights/weights.h"

#include "ds/weights/tree.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TENSORS 64u
#define BIG 3u /* longer than five chunks of 64 KiB; most others share theirs, or lie in two */
#define BIG_ELEMENTS 90001u
#define MOST (400u << 10) /* elements of all */

static uint32_t values[MOST];
static char names[TENSORS][8];
static struct rlv_tensor tensors[TENSORS];
static struct rlv_store *store;
static struct rlv_generations *learner, *actor;
static char dir[TEMP_DIR_BYTES], uri[TEMP_DIR_BYTES + 16];

/* Odd sizes; the last ones are small. */
static uint32_t elements_of(uint32_t tensor)
{
	return tensor == BIG ? BIG_ELEMENTS : tensor < 40 ? 1 + tensor * 977 % 9000 : tensor % 7;
}

static uint64_t all_bytes(void)
{
	uint64_t bytes = 0;

	for (uint32_t t = 0; t < TENSORS; t++)
		bytes += 4 * (uint64_t)elements_of(t);
	return bytes;
}

static uint32_t element(uint64_t version, uint32_t tensor, uint32_t i)
{
	return (uint32_t)version * 1000003u + tensor * 7919u + i;
}

static int publish(uint64_t version, uint32_t flags)
{
	uint32_t *to = values;

	for (uint32_t t = 0; t < TENSORS; to += elements_of(t), t++) {
		assert_true(to + elements_of(t) <= values + MOST);
		for (uint32_t i = 0; i < elements_of(t); i++)
			to[i] = element(version, t, i);
		snprintf(names[t], sizeof(names[t]), "t%u", t);
		tensors[t] = (struct rlv_tensor){ .size = sizeof(tensors[t]),
						  .dtype = RLV_U32,
						  .ndim = 1,
						  .name = names[t],
						  .shape = { elements_of(t) },
						  .data = to };
	}
	return rlv_weights_publish(learner, tensors, TENSORS, version, flags);
}

static struct rlv_generation map(uint64_t version)
{
	struct rlv_generation got = RLV_GENERATION_INIT;

	must(rlv_weights_map(actor, version - 1, 0, &got), "rlv_weights_map");
	assert_int_equal(got.version, version);
	return got;
}

static void expect_whole(const struct rlv_generation *got)
{
	assert_int_equal(got->n_tensors, TENSORS);
	for (uint32_t t = 0; t < TENSORS; t++) {
		const uint32_t *data = got->tensors[t].data;

		assert_string_equal(got->tensors[t].name, names[t]);
		assert_int_equal((uintptr_t)data % 64, 0);
		for (uint32_t i = 0; i < elements_of(t); i++)
			if (data[i] != element(got->version, t, i))
				fail_msg("tensor %u of version %u: element %u is %u", t,
					 (unsigned)got->version, i, data[i]);
	}
}

static void open_at(const char *at, uint32_t anchor_every)
{
	const struct rlv_store_opts pool = { .size = sizeof(pool), .pool_bytes = 160 << 20 };
	struct rlv_weights_opts opts = RLV_WEIGHTS_OPTS_INIT;

	opts.bytes = all_bytes() + TENSORS * 64;
	opts.anchor_every = anchor_every;
	opts.max_clients = 4;
	must(rlv_store_open(at, &pool, &store), "rlv_store_open");
	must(rlv_weights_create(store, "policy", &opts, &learner), "rlv_weights_create");
	must(rlv_weights_open(store, "policy", &actor), "rlv_weights_open");
	must(publish(1, 0), "rlv_weights_publish");
}

static void close_all(void)
{
	must(rlv_weights_close(&actor), "rlv_weights_close");
	must(rlv_weights_close(&learner), "rlv_weights_close");
	must(rlv_store_close(&store), "rlv_store_close");
}

/* Whole, and no byte of it was copied. */
static void expect_mapped(const struct rlv_generation *got)
{
	const uint8_t *begin = got->data;

	expect_whole(got);
	assert_int_equal(got->mapped, all_bytes());
	for (uint32_t t = 0; t < TENSORS; t++) {
		const uint8_t *data = got->tensors[t].data;

		assert_int_equal(got->tensors[t].mapped, 1);
		assert_true(data >= begin && data + got->tensors[t].bytes <= begin + got->bytes);
	}
}

/* A store whose memory is a file, which can be mapped twice. */
static void make_uri(void)
{
	temp_dir_make(dir);
	snprintf(uri, sizeof(uri), "embed:%s/pool", dir);
}

static void open_shared(uint32_t anchor_every)
{
	make_uri();
	open_at(uri, anchor_every);
}

static void close_shared(void)
{
	char path[sizeof(dir) + 8];

	close_all();
	snprintf(path, sizeof(path), "%s/pool", dir);
	temp_dir_remove(path);
	temp_dir_remove(dir);
}

TEST(weights_map__tensors_stay_while_others_publish)
{
	struct rlv_weights_info info = RLV_WEIGHTS_INFO_INIT;
	struct rlv_generation got;
	uint32_t ready = 0;

	open_shared(1);
	got = map(1);
	expect_mapped(&got);
	must(rlv_weights_more(actor, &got, &ready), "rlv_weights_more");
	assert_int_equal(ready, TENSORS);
	for (uint64_t version = 2; version < 30; version++) {
		must(publish(version, 0), "rlv_weights_publish");
		expect_whole(&got);
	}
	must(rlv_weights_info(actor, &info), "rlv_weights_info");
	assert_int_equal(info.publish_lag, 28);
	rlv_generation_release(&got);
	got = map(29);
	expect_mapped(&got);
	rlv_generation_release(&got);
	close_shared();
}

static bool is_scattered(const struct rlv_generation *got)
{
	const struct weights_buffer *buffer = got->hold;
	const struct heap_manifest *manifest = buffer->view->hold.manifest;

	for (uint32_t i = 1; i < manifest->n; i++)
		if (heap_manifest_place(manifest, i) !=
		    heap_manifest_place(manifest, i - 1) + HEAP_EXTENT_LEAST)
			return true;
	return false;
}

/* Each generation takes what those before it left. */
TEST(weights_map__of_chunks_that_are_scattered_copies_nothing)
{
	struct rlv_generation first, second;
	uint32_t scattered = 0;

	open_shared(1);
	first = map(1);
	must(publish(2, 0), "rlv_weights_publish");
	second = map(2);
	for (uint64_t version = 3; version < 12; version++) {
		struct rlv_generation got;

		must(publish(version, 0), "rlv_weights_publish");
		got = map(version);
		expect_mapped(&got);
		scattered += is_scattered(&got);
		rlv_generation_release(&got);
		if (version == 6)
			rlv_generation_release(&first);
	}
	assert_true(scattered > 0);
	expect_mapped(&second);
	rlv_generation_release(&second);
	close_shared();
}

TEST(weights_map__cannot_be_written)
{
	struct rlv_generation got;
	int fds[2];

	open_shared(1);
	got = map(1);
	assert_int_equal(got.tensors[0].mapped, 1);
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(write(fds[1], "x", 1), 1);
	assert_int_equal(read(fds[0], (void *)(uintptr_t)got.tensors[0].data, 1), -1);
	assert_int_equal(errno, EFAULT);
	close(fds[0]);
	close(fds[1]);
	rlv_generation_release(&got);
	close_shared();
}

/* Holds generations of which each is replaced, until publishes find no room: two always have it. */
TEST(weights_map__heap_is_full_when_too_many_are_held)
{
	struct rlv_generation got[7];
	uint64_t version = 1;
	uint32_t n = 0;
	int ret = 0;

	open_shared(1);
	while (ret == 0 && n < 7) {
		got[n++] = map(version);
		for (uint32_t k = 0; ret == 0 && k < 4; k++)
			ret = publish(++version, 0);
	}
	expect(ret, -ENOSPC);
	assert_in_range(n, 3, 6);
	for (uint32_t i = 0; i < n; i++)
		expect_whole(&got[i]);
	rlv_generation_release(&got[1]);
	must(publish(++version, 0), "rlv_weights_publish");
	for (uint32_t i = 0; i < n; i++) {
		if (i != 1)
			expect_whole(&got[i]);
		rlv_generation_release(&got[i]);
	}
	close_shared();
}

TEST(weights_map__errors)
{
	struct rlv_generation got = RLV_GENERATION_INIT, held;

	open_shared(8);
	expect(rlv_weights_map(NULL, 0, 0, &got), -EINVAL);
	expect(rlv_weights_map(actor, 1, 0, &got), -ETIMEDOUT);
	held = map(1);
	values[0]++; /* the next generation is a delta */
	must(rlv_weights_publish(learner, tensors, TENSORS, 2, 0), "rlv_weights_publish");
	expect(rlv_weights_map(actor, 1, 0, &got), -ENOTSUP);
	assert_non_null(strstr(rlv_last_error(), "RLV_PUBLISH_ANCHOR"));
	must(publish(3, RLV_PUBLISH_ANCHOR), "rlv_weights_publish");
	expect(rlv_weights_close(&actor), -EBUSY);
	assert_non_null(actor);
	rlv_generation_release(&held);
	held = map(3);
	expect_whole(&held);
	rlv_generation_release(&held);
	close_shared();
}

TEST(weights_map__of_private_memory_is_not_supported)
{
	struct rlv_generation got = RLV_GENERATION_INIT;

	open_at("embed:", 1);
	expect(rlv_weights_map(actor, 0, 0, &got), -ENOTSUP);
	assert_non_null(strstr(rlv_last_error(), "rlv_weights_fetch"));
	close_all();
}

/* Puts the newest anchor again, changed, with shares that begin pages or as those of old, and a table that names it. */
static void put_again(void (*change)(struct weights_entry *head), bool paged)
{
	static uint64_t entry[MOST];
	struct rlv_kv_value anchor = { .size = sizeof(anchor),
				       .ptr = entry,
				       .room = sizeof(entry) };
	struct weights_entry *head = (void *)entry;
	struct weights_table table = { .n = 0 };
	struct rlv_kv_value list = { .size = sizeof(list), .ptr = &table, .room = sizeof(table) };
	struct heap_put put = { .value = entry, .expected = HEAP_ANY_VERSION, .paged = paged };
	struct weights_key key;
	struct rlv_kv *kv;

	must(rlv_kv_open(store, "policy", &kv), "rlv_kv_open");
	must(rlv_kv_get(kv, weights_table_key, &list), "rlv_kv_get");
	key = weights_entry_key(table.gens[0].owner, table.gens[0].anchor_index);
	must(rlv_kv_get(kv, weights_key_bytes(&key), &anchor), "rlv_kv_get");
	if (change)
		change(head);
	table.gens[0].tree = weights_tree_hash(head);
	put.len = anchor.len;
	must(kv_put(kv, weights_key_bytes(&key), &put, &table.gens[0].anchor.entry), "kv_put");
	must(rlv_kv_put(kv, weights_table_key, (struct rlv_bytes){ &table, list.len }, NULL),
	     "rlv_kv_put");
	must(rlv_kv_close(&kv), "rlv_kv_close");
}

TEST(weights_map__of_an_older_layout_copies_all)
{
	struct rlv_generation got;

	open_shared(1);
	put_again(NULL, false);
	got = map(1);
	expect_whole(&got);
	assert_int_equal(got.mapped, 0);
	assert_int_equal(got.tensors[0].mapped, 0);
	rlv_generation_release(&got);
	put_again(NULL, true);
	got = map(1);
	expect_mapped(&got);
	rlv_generation_release(&got);
	close_shared();
}

static void overlap(struct weights_entry *head)
{
	struct weights_tensor *all = (void *)(head + 1);

	for (uint32_t t = 0; t < TENSORS; t++) {
		all[t].off = 0;
		all[t].shape[0] = head->payload / 4;
		all[t].bytes = head->payload;
	}
}

static void run_over(struct weights_entry *head)
{
	struct weights_tensor *last = (struct weights_tensor *)(void *)(head + 1) + TENSORS - 1;

	last->off = head->payload;
	last->shape[0] = 1;
	last->bytes = 4;
}

/* Whatever the head says, tensors are within the value. */
TEST(weights_map__of_a_head_that_lies)
{
	struct rlv_generation got;

	open_shared(1);
	put_again(overlap, true);
	got = map(1);
	for (uint32_t t = 0; t < TENSORS; t++) {
		assert_ptr_equal(got.tensors[t].data, got.data);
		assert_int_equal(got.tensors[t].bytes, got.bytes);
	}
	rlv_generation_release(&got);
	put_again(run_over, true);
	expect(rlv_weights_map(actor, 0, 0, &got), -EBADMSG);
	must(publish(2, RLV_PUBLISH_NEW_TREE), "rlv_weights_publish");
	got = map(2);
	expect_mapped(&got);
	rlv_generation_release(&got);
	close_shared();
}

/* The child has neither the hold nor the mapping, and its release leaves the parent's alone. */
TEST(weights_map__release_in_a_forked_child)
{
	struct rlv_generation got;
	int status;
	pid_t pid;

	open_shared(1);
	got = map(1);
	pid = fork();
	if (pid == 0) {
		rlv_generation_release(&got);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	for (uint64_t version = 2; version < 12; version++)
		must(publish(version, 0), "rlv_weights_publish");
	expect_whole(&got);
	rlv_generation_release(&got);
	close_shared();
}

/* A process ends with the store's file open, and holds all that the heap has room for. */
static void hold_all_and_end(void)
{
	struct rlv_generation got = RLV_GENERATION_INIT;
	uint64_t version = 1;
	int ret = 0;

	open_at(uri, 1);
	while (ret == 0) {
		ret = rlv_weights_map(actor, version - 1, 0, &got);
		for (uint32_t k = 0; ret == 0 && k < 4; k++)
			ret = publish(++version, 0);
	}
	_exit(ret != -ENOSPC);
}

TEST(weights_map__holds_of_a_killed_process_end_with_its_file)
{
	uint64_t version;
	int status;
	pid_t pid;

	make_uri();
	pid = fork();
	if (pid == 0)
		hold_all_and_end();
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	must(rlv_store_open(uri, NULL, &store), "rlv_store_open");
	must(rlv_weights_open(store, "policy", &learner), "rlv_weights_open");
	must(rlv_weights_open(store, "policy", &actor), "rlv_weights_open");
	must(rlv_weights_poll(learner, &version), "rlv_weights_poll");
	for (uint32_t i = 0; i < 10; i++)
		must(publish(++version, 0), "rlv_weights_publish");
	close_shared();
}

/* Of weights whose chunks have 256 KiB. */
TEST(weights_map__of_less_than_a_chunk)
{
	struct rlv_generation got = RLV_GENERATION_INIT;
	struct rlv_weights_opts opts = RLV_WEIGHTS_OPTS_INIT;
	const uint32_t few = 10;

	open_shared(1);
	must(rlv_weights_close(&actor), "rlv_weights_close");
	must(rlv_weights_close(&learner), "rlv_weights_close");
	opts.bytes = 16 << 20;
	opts.anchor_every = 1;
	must(rlv_weights_create(store, "small", &opts, &learner), "rlv_weights_create");
	must(rlv_weights_open(store, "small", &actor), "rlv_weights_open");
	must(rlv_weights_publish(learner, &tensors[BIG + 1], few, 1, 0), "rlv_weights_publish");
	must(rlv_weights_map(actor, 0, 0, &got), "rlv_weights_map");
	assert_in_range(got.bytes, 64 << 10, 255 << 10);
	for (uint32_t t = 0; t < few; t++) {
		assert_int_equal(got.tensors[t].mapped, 1);
		assert_memory_equal(got.tensors[t].data, tensors[BIG + 1 + t].data,
				    got.tensors[t].bytes);
	}
	rlv_generation_release(&got);
	must(rlv_weights_publish(learner, tensors, 1, 2, RLV_PUBLISH_NEW_TREE),
	     "rlv_weights_publish");
	must(rlv_weights_map(actor, 1, 0, &got), "rlv_weights_map");
	assert_int_equal(got.mapped, 0); /* it has less than 64 KiB */
	assert_int_equal(got.tensors[0].mapped, 0);
	assert_memory_equal(got.tensors[0].data, tensors[0].data, got.tensors[0].bytes);
	rlv_generation_release(&got);
	close_shared();
}

int main(void)
{
	return test_run(NULL, NULL);
}
