/*
 * Batches that land on a CUDA device: over the fake driver, or over the machine's own if RLV_TEST_GPU is set.
 * Bytes of the device are seen through copies.
 */
#include "tests/support/fixture/replay_fixture.h"
#include "tests/support/test.h"

#include "relive/landing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "client/landing/state.h"
#include "device/cuda/calls.h"
#include "ds/replay/priority.h"
#include "tests/support/fake/fake_cuda.h"

#define ITEMS 64
#define WAIT_NS 10000000000

static const struct rlv_view prioritized = { .selector = RLV_PRIORITIZED, .stack = 4, .alpha = 1 };

static struct {
	const struct fakecuda_control *fake; /* NULL: the machine's driver */
	const struct cuda_calls *cu;
	struct cu_context *context;
	struct replay_fixture fx;
	struct rlv_landing *landing;
	struct rlv_sampler *sampler;
	struct cu_stream *stream;
	void *td;       /* a buffer */
	uint64_t *gate; /* what the stream waits for */
	cu_u64 gate_at;
} at;

static bool on_gpu(void)
{
	return getenv("RLV_TEST_GPU") != NULL;
}

static void table_open(void)
{
	const struct rlv_table_opts opts = { .n_views = 1, .views = &prioritized };
	struct rlv_writer *writer;

	replay_open(&at.fx, &opts);
	writer = replay_writer(&at.fx, 1);
	replay_append_plain(&at.fx, writer, 0, 500);
	replay_writer_done(&writer);
	replay_oracle_end(&at.fx.oracle, 0);
}

static struct rlv_sampler *sampler_of(uint32_t batches)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;

	opts.batch_size = ITEMS;
	opts.batches = batches;
	opts.dest = at.landing;
	return replay_sampler(&at.fx, &opts);
}

static void driver_open(void)
{
	int device;

	at.fake = on_gpu() ? NULL : fake_cuda_open();
	if (at.fake)
		at.fake->reset();
	assert_int_equal(cuda_calls_load(&at.cu), 0);
	assert_int_equal(at.cu->device_get(&device, 0), CU_OK);
	assert_int_equal(at.cu->context_retain(&at.context, device), CU_OK);
	assert_int_equal(at.cu->context_set(at.context), CU_OK);
	assert_int_equal(at.cu->stream_create(&at.stream, CU_STREAM_NON_BLOCKING_FLAG, 0), CU_OK);
	at.gate = aligned_alloc(4096, 4096);
	assert_non_null(at.gate);
	*at.gate = 0;
	assert_int_equal(at.cu->host_register(at.gate, 4096, CU_HOST_PORTABLE | CU_HOST_DEVICEMAP),
			 CU_OK);
	assert_int_equal(at.cu->host_device_pointer(&at.gate_at, at.gate, 0), CU_OK);
}

static int begin(void **state)
{
	(void)state;
	driver_open();
	table_open();
	assert_int_equal(rlv_landing_open(NULL, &at.landing), 0);
	at.sampler = sampler_of(2);
	return 0;
}

static int end(void **state)
{
	char text[128] = "";

	(void)state;
	if (at.sampler)
		replay_sampler_done(&at.sampler);
	assert_int_equal(rlv_landing_close(&at.landing), 0);
	replay_close(&at.fx);
	assert_int_equal(at.cu->stream_destroy(at.stream), CU_OK);
	assert_int_equal(at.cu->host_unregister(at.gate), CU_OK);
	free(at.gate);
	if (at.fake) {
		if (at.fake->violations(text, sizeof(text)))
			fail_msg("broken rule: %s", text);
		assert_int_equal(at.fake->created_bytes() + at.fake->mapped_bytes(), 0);
		at.fake->reset();
	}
	return 0;
}

/* Bytes of the device, at the address of a host's side. */
static void *on_device(const void *host, size_t bytes)
{
	uint64_t address;
	void *copy = malloc(bytes);

	assert_non_null(copy);
	assert_int_equal(rlv_landing_device(at.landing, host, &address), 0);
	assert_int_equal(at.cu->copy((cu_u64)(uintptr_t)copy, address, bytes, NULL), CU_OK);
	assert_int_equal(at.cu->stream_wait(NULL), CU_OK);
	return copy;
}

static void expect_landed(const void *host, size_t bytes)
{
	void *copy = on_device(host, bytes);

	assert_memory_equal(copy, host, bytes);
	free(copy);
}

/* The device's are the CPU's for the default beta; the host's side has them after a fetch. */
static void expect_weights(const struct rlv_batch *batch)
{
	size_t bytes = batch->n * sizeof(*batch->weight);
	float want[ITEMS];
	void *seen = on_device(batch->weight, bytes);

	priority_weights(batch->probability, batch->n, 0, 0.4, want);
	assert_memory_equal(seen, want, bytes);
	free(seen);
	assert_int_equal(rlv_landing_fetch(at.landing, batch->weight, bytes), 0);
	assert_memory_equal(batch->weight, want, bytes);
}

static void expect_batch(const struct rlv_batch *batch)
{
	for (uint32_t a = 0; a < batch->n_arrays; a++) {
		const struct rlv_array *array = &batch->arrays[a];

		expect_landed(array->data, (size_t)array->strides[0] * batch->n);
	}
	expect_weights(batch);
	expect_landed(batch->probability, batch->n * sizeof(*batch->probability));
	expect_landed(batch->priority, batch->n * sizeof(*batch->priority));
	expect_landed(batch->key, batch->n * sizeof(*batch->key));
	expect_landed(batch->policy_version, batch->n * sizeof(*batch->policy_version));
}

static struct rlv_landing_info info_of(void)
{
	struct rlv_landing_info info = RLV_LANDING_INFO_INIT;

	assert_int_equal(rlv_landing_info(at.landing, &info), 0);
	return info;
}

/* -------- what lands -------- */

TEST_WITH(sample__is_on_the_device_with_one_copy, begin, end)
{
	struct rlv_landing_info info;
	const struct rlv_batch *batch;

	if (at.fake)
		at.fake->reset();
	batch = replay_sample(at.sampler, ITEMS);
	if (at.fake) {
		assert_int_equal(at.fake->calls("cuMemcpyAsync"), 1);
		assert_int_equal(at.fake->calls("cuStreamWriteValue64"), 1);
		assert_int_equal(at.fake->calls("cuLaunchKernel"), 1); /* weights */
		assert_int_equal(at.fake->calls("cuMemcpyBatchAsync"), 0);
	}
	expect_batch(batch);
	info = info_of();
	assert_int_equal(info.path, RLV_LANDING_PINNED);
	assert_int_equal(info.device, 0);
	assert_int_equal(info.batches, 1);
	assert_int_equal(info.buffers, 2);
	assert_true(info.copied_bytes > 0 && info.copied_bytes <= info.bytes);
	rlv_batch_release(at.sampler, batch);
}

/* A driver that locks no memory of the host: copies from other memory, and TD errors to it. */
TEST_WITH(open__memory_that_cannot_be_locked, begin, end)
{
	struct rlv_landing_path_info paths[6];
	struct rlv_landing *waited = at.landing;
	struct rlv_sampler *sampler = at.sampler;
	size_t n = ARRAY_LEN(paths);
	const struct rlv_batch *batch;

	if (!at.fake)
		skip();
	at.fake->fail_call("cuMemHostRegister", 2, CU_NOT_SUPPORTED); /* 1: marks */
	assert_int_equal(rlv_landing_open(NULL, &at.landing), 0);
	at.fake->reset();
	at.sampler = sampler_of(2);
	assert_int_equal(at.fake->calls("cuMemHostRegister"), 0);
	batch = replay_sample(at.sampler, ITEMS);
	expect_batch(batch);
	assert_int_equal(rlv_batch_path(batch), RLV_LANDING_PLAIN);
	assert_int_equal(info_of().path, RLV_LANDING_PLAIN);
	assert_int_equal(rlv_landing_paths(at.landing, paths, sizeof(paths[0]), &n), 0);
	assert_int_equal(paths[4].path, RLV_LANDING_PINNED);
	assert_int_equal(paths[4].possible, 0);
	assert_non_null(strstr(paths[4].why, "cuMemHostRegister: "));
	assert_int_equal(paths[5].batches, 1);
	rlv_batch_release(at.sampler, batch);
	replay_sampler_done(&at.sampler);
	assert_int_equal(rlv_landing_close(&at.landing), 0);
	at.landing = waited;
	at.sampler = sampler;
}

TEST(paths__by_rdma_need_a_device_and_a_driver_of_peers)
{
	static const char *const dirs[] = { "",
					    "/class",
					    "/class/infiniband",
					    "/class/infiniband/mlx5_0",
					    "/module",
					    "/module/nvidia_peermem" };
	char path[ARRAY_LEN(dirs)][128], root[] = "/tmp/relive-sysfs-XXXXXX";

	assert_non_null(mkdtemp(root));
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		const char *dmabuf, *peer;

		(void)snprintf(path[i], sizeof(path[i]), "%s%s", root, dirs[i]);
		assert_int_equal(i ? mkdir(path[i], 0700) : 0, 0);
		dmabuf = landing_lacks_rdma(root, false);
		peer = landing_lacks_rdma(root, true);
		if (i < 3)
			assert_non_null(strstr(dmabuf, "no RDMA device"));
		else
			assert_null(dmabuf);
		if (i < 5)
			assert_non_null(
				strstr(peer, i < 3 ? "no RDMA" : "modprobe nvidia-peermem"));
		else
			assert_null(peer);
	}
	for (size_t i = ARRAY_LEN(dirs); i-- > 0;)
		assert_int_equal(rmdir(path[i]), 0);
}

TEST_WITH(sample__of_fewer_copies_no_more_than_they_have, begin, end)
{
	uint64_t all, before;
	const struct rlv_batch *batch = replay_sample(at.sampler, ITEMS);

	rlv_batch_release(at.sampler, batch);
	all = info_of().copied_bytes;
	before = all;
	batch = replay_sample(at.sampler, ITEMS / 8);
	expect_batch(batch);
	assert_true(info_of().copied_bytes - before < all / 4);
	rlv_batch_release(at.sampler, batch);
}

TEST_WITH(sample__many_in_turn, begin, end)
{
	for (int i = 0; i < 100; i++) {
		const struct rlv_batch *batch;

		assert_int_equal(rlv_sampler_sample(at.sampler, ITEMS, WAIT_NS, &batch), 0);

		assert_int_equal(rlv_landing_use(at.landing, batch->key, at.stream), 0);
		expect_landed(batch->arrays[0].data,
			      (size_t)batch->arrays[0].strides[0] * batch->n);
		rlv_batch_release(at.sampler, batch);
	}
	assert_int_equal(info_of().batches, 100);
}

TEST_WITH(sample__unwaited_ends_before_the_copy, begin, end)
{
	struct rlv_landing_opts opts = RLV_LANDING_OPTS_INIT;
	struct rlv_sampler_opts sampler_opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_landing *waited = at.landing;
	const struct rlv_batch *first, *second;
	struct rlv_sampler *sampler;

	opts.unwaited = 1;
	assert_int_equal(rlv_landing_open(&opts, &at.landing), 0);
	sampler_opts.batch_size = ITEMS;
	sampler_opts.dest = at.landing;
	sampler = replay_sampler(&at.fx, &sampler_opts);
	if (at.fake)
		at.fake->hold(1000000); /* no copy ends now */
	first = replay_sample(sampler, ITEMS);
	second = replay_sample(sampler, ITEMS);
	if (at.fake)
		at.fake->advance(10000000);
	assert_int_equal(rlv_landing_wait(at.landing, first->key), 0);
	assert_int_equal(rlv_landing_wait(at.landing, second->weight), 0);
	assert_int_equal(rlv_landing_wait(at.landing, &opts), -EINVAL);
	if (at.fake)
		at.fake->reset();
	expect_batch(first);
	expect_batch(second);
	rlv_batch_release(sampler, first);
	rlv_batch_release(sampler, second);
	replay_sampler_done(&sampler);
	assert_int_equal(rlv_landing_close(&at.landing), 0);
	at.landing = waited;
}

/* -------- buffers that streams use -------- */

static void stream_stops(void)
{
	*at.gate = 0;
	assert_int_equal(at.cu->stream_wait_value(at.stream, at.gate_at, 1, 0), CU_OK);
}

static void stream_goes_on(void)
{
	__atomic_store_n(at.gate, 1, __ATOMIC_RELEASE);
}

TEST_WITH(release__buffer_waits_for_the_stream_that_uses_it, begin, end)
{
	const struct rlv_batch *first, *second, *none;

	stream_stops();
	first = replay_sample(at.sampler, ITEMS);
	assert_int_equal(rlv_landing_use(at.landing, first->weight, at.stream), 0);
	rlv_batch_release(at.sampler, first);
	second = replay_sample(at.sampler, ITEMS);
	assert_ptr_not_equal(second, first);
	rlv_batch_release(at.sampler, second); /* no stream uses it: it is filled at once */
	second = replay_sample(at.sampler, ITEMS);
	assert_ptr_not_equal(second, first);
	assert_int_equal(rlv_sampler_sample(at.sampler, ITEMS, 20000000, &none), -ETIMEDOUT);
	assert_non_null(strstr(rlv_last_error(), "the device still uses"));
	stream_goes_on();
	assert_int_equal(rlv_sampler_sample(at.sampler, ITEMS, WAIT_NS, &none), 0);
	assert_ptr_equal(none, first);
	rlv_batch_release(at.sampler, none);
	rlv_batch_release(at.sampler, second);
}

TEST_WITH(free__waits_for_the_stream, begin, end)
{
	void *buffer;
	uint64_t address;

	assert_int_equal(rlv_landing_alloc(at.landing, 64, 1000, &buffer), 0);
	assert_int_equal(rlv_landing_device(at.landing, (char *)buffer + 999, &address), 0);
	assert_int_equal(rlv_landing_use(at.landing, buffer, NULL), 0);
	assert_int_equal(at.cu->fill(address - 999, 7, 1000, NULL), CU_OK);
	rlv_landing_free(at.landing, buffer,
			 1000); /* the fake driver calls it a violation if it does not wait */
	assert_int_equal(rlv_landing_device(at.landing, buffer, &address), -EINVAL);
	assert_int_equal(info_of().buffers, 2);
}

/* -------- priorities from the device -------- */

static uint64_t td_on_device(float value)
{
	uint64_t address;
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	assert_int_equal(rlv_landing_alloc(at.landing, 64, ITEMS * sizeof(float), &at.td), 0);
	assert_int_equal(rlv_landing_device(at.landing, at.td, &address), 0);
	for (uint32_t byte = 0; byte < 4 * ITEMS; byte++)
		assert_int_equal(
			at.cu->fill(address + byte, (uint8_t)(bits >> byte % 4 * 8), 1, at.stream),
			CU_OK);
	return address;
}

TEST_WITH(update__td_errors_of_the_device_become_priorities, begin, end)
{
	const struct rlv_batch *batch = replay_sample(at.sampler, ITEMS);
	uint64_t key = batch->key[5];
	uint64_t td = td_on_device(-2.5f);
	bool seen = false;

	assert_int_equal(rlv_sampler_update_device(at.sampler, batch->key, td, ITEMS, at.stream),
			 0);
	rlv_batch_release(at.sampler, batch);
	assert_int_equal(rlv_sampler_flush(at.sampler), 0);
	for (int i = 0; !seen && i < 1000; i++) {
		assert_int_equal(rlv_sampler_sample(at.sampler, ITEMS, WAIT_NS, &batch), 0);
		for (uint32_t k = 0; k < batch->n; k++) {
			if (batch->key[k] != key)
				continue;
			seen = true;
			assert_true(batch->priority[k] > 2.45f && batch->priority[k] < 2.55f);
		}
		rlv_batch_release(at.sampler, batch);
	}
	assert_true(seen);
	rlv_landing_free(at.landing, at.td, ITEMS * sizeof(float));
}

TEST_WITH(update__wrong_td_error_is_dropped_and_told, begin, end)
{
	const struct rlv_batch *batch = replay_sample(at.sampler, ITEMS), *next;
	uint64_t td = td_on_device(0.0f / (float)(batch->n - ITEMS));

	assert_int_equal(rlv_sampler_update_device(at.sampler, batch->key, td, ITEMS, at.stream),
			 0);
	rlv_batch_release(at.sampler, batch);
	assert_int_equal(rlv_sampler_flush(at.sampler), -EINVAL);
	assert_int_equal(rlv_sampler_flush(at.sampler), 0);
	next = replay_sample(at.sampler, ITEMS);
	rlv_batch_release(at.sampler, next);
	rlv_landing_free(at.landing, at.td, ITEMS * sizeof(float));
}

TEST_WITH(update__four_are_on_their_way, begin, end)
{
	const struct rlv_batch *batch = replay_sample(at.sampler, ITEMS);
	uint64_t td = td_on_device(1);

	stream_stops();
	for (int i = 0; i < 4; i++)
		assert_int_equal(
			rlv_sampler_update_device(at.sampler, batch->key, td, ITEMS, at.stream), 0);
	assert_int_equal(rlv_sampler_update_device(at.sampler, batch->key, td, ITEMS, at.stream),
			 -EBUSY);
	stream_goes_on();
	assert_int_equal(rlv_sampler_flush(at.sampler), 0);
	assert_int_equal(rlv_sampler_update_device(at.sampler, batch->key, td, ITEMS, at.stream),
			 0);
	rlv_batch_release(at.sampler, batch);
	assert_int_equal(rlv_sampler_flush(at.sampler), 0);
	rlv_landing_free(at.landing, at.td, ITEMS * sizeof(float));
}

/* -------- bad input and faults -------- */

TEST_WITH(calls__bad_input_is_einval, begin, end)
{
	struct rlv_landing_opts opts = RLV_LANDING_OPTS_INIT;
	struct rlv_landing *none = NULL, *left = at.landing;
	const struct rlv_batch *batch = replay_sample(at.sampler, ITEMS);
	uint64_t address, keys[1] = { batch->key[0] };
	void *buffer;

	opts.device = -1;
	assert_int_equal(rlv_landing_open(&opts, &none), -EINVAL);
	opts.device = 77;
	assert_int_equal(rlv_landing_open(&opts, &none), -ENODEV);
	assert_int_equal(rlv_landing_open(NULL, NULL), -EINVAL);
	assert_int_equal(rlv_landing_close(&left), -EBUSY);
	assert_ptr_equal(left, at.landing);
	assert_int_equal(rlv_landing_device(at.landing, keys, &address), -EINVAL);
	assert_int_equal(rlv_landing_use(at.landing, keys, NULL), -EINVAL);
	assert_int_equal(rlv_landing_alloc(at.landing, 3, 10, &buffer), -EINVAL);
	assert_int_equal(rlv_landing_alloc(at.landing, 8192, 10, &buffer), -EINVAL);
	assert_int_equal(rlv_landing_alloc(at.landing, 64, 0, &buffer), -EINVAL);
	assert_int_equal(rlv_sampler_update_device(at.sampler, keys, 0, 1, NULL), -EINVAL);
	assert_int_equal(rlv_sampler_update_device(at.sampler, keys, 1, ITEMS + 1, NULL), -EINVAL);
	rlv_batch_release(at.sampler, batch);
}

TEST_WITH(use__of_more_streams_than_are_known_is_enospc, begin, end)
{
	const struct rlv_batch *batch = replay_sample(at.sampler, ITEMS);
	struct cu_stream *streams[16];
	int ret = 0;

	for (int i = 0; i < 16; i++) {
		assert_int_equal(at.cu->stream_create(&streams[i], CU_STREAM_NON_BLOCKING_FLAG, 0),
				 CU_OK);
		ret = rlv_landing_use(at.landing, batch->key, streams[i]);
		assert_int_equal(ret, i < 15 ? 0 : -ENOSPC);
	}
	rlv_batch_release(at.sampler, batch);
	replay_sampler_done(&at.sampler); /* it waits for the streams */
	for (int i = 0; i < 16; i++)
		assert_int_equal(at.cu->stream_destroy(streams[i]), CU_OK);
}

TEST_WITH(calls__forked_child_is_echild, begin, end)
{
	const struct rlv_batch *batch;
	int status;
	pid_t child;

	if (on_gpu())
		skip();
	batch = replay_sample(at.sampler, ITEMS);
	child = fork();
	if (child == 0) {
		uint64_t address;

		_exit(rlv_landing_device(at.landing, batch->key, &address) == -ECHILD ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	rlv_batch_release(at.sampler, batch);
}

/* One life of a landing and a sampler; the first error of it. */
static int life(void)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	const struct rlv_batch *batch = NULL;
	struct rlv_landing *landing = NULL;
	struct rlv_sampler *sampler = NULL;
	int ret = rlv_landing_open(NULL, &landing), closed;

	opts.batch_size = ITEMS;
	opts.batches = 1;
	opts.dest = landing;
	if (ret == 0)
		ret = rlv_sampler_open(at.fx.table, &opts, &sampler);
	if (ret == 0)
		ret = rlv_sampler_sample(sampler, ITEMS, WAIT_NS, &batch);
	if (ret == 0)
		ret = rlv_landing_use(landing, batch->key, at.stream);
	if (batch)
		rlv_batch_release(sampler, batch);
	closed = rlv_sampler_close(&sampler);
	ret = ret ? ret : closed;
	closed = rlv_landing_close(&landing);
	return ret ? ret : closed;
}

static bool no_memory_is_left(size_t before)
{
	return at.fake->created_bytes() <= before;
}

TEST_WITH(life__each_call_of_the_driver_fails_once, begin, end)
{
	size_t before;
	uint64_t n = 1;
	int ret = -EIO;

	if (!at.fake)
		skip();
	before = at.fake->created_bytes();
	for (; ret; n++) {
		at.fake->reset();
		at.fake->fail_call(NULL, n, CU_OUT_OF_MEMORY);
		ret = life();
		if (at.fake->calls(NULL) < n)
			break;
		if (ret && ret != -ENOMEM)
			fail_msg("call %d: %d", (int)n, ret);
		ret = -EIO; /* calls that end something may fail without an error */
		assert_true(no_memory_is_left(before + ((size_t)4 << 20)));
	}
	assert_true(n > 30);
	at.fake->reset();
	assert_int_equal(life(), 0);
}

TEST_WITH(life__device_is_lost_at_each_call, begin, end)
{
	const struct rlv_batch *batch = NULL;

	if (!at.fake)
		skip();
	at.fake->lose(CU_ILLEGAL_ADDRESS);
	assert_int_equal(rlv_sampler_sample(at.sampler, ITEMS, WAIT_NS, &batch), -ENODEV);
	assert_int_equal(rlv_sampler_sample(at.sampler, ITEMS, WAIT_NS, &batch), -ENODEV);
	at.fake->lose(0);
}

TEST_WITH(sample__device_that_is_lost_behind_the_copy_is_enodev, begin, end)
{
	const struct rlv_batch *batch = NULL;

	if (!at.fake)
		skip();
	at.fake->reset();
	at.fake->fail_call("cuStreamWriteValue64", 1, CU_ILLEGAL_ADDRESS);
	assert_int_equal(rlv_sampler_sample(at.sampler, ITEMS, WAIT_NS, &batch), -ENODEV);
	at.fake->reset();
}

int main(void)
{
	return test_run(NULL, NULL);
}
