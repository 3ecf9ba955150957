/*
 * test_verbs_device.c - one object for each device, the memory that it knows, and shares of it.
 */
#include "tests/support/fake/fake_verbs_state.h"
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

#include "base/mem/chunk.h"
#include "transport/verbs/device.h"

static const struct verbs_calls *calls;

static int setup(void **state)
{
	struct verbs_device *device = NULL;

	fake_verbs_begin();
	assert_int_equal(verbs_calls_load(&calls), 0);
	assert_int_equal(verbs_device_get(calls, fake_context(), &device), 0);
	*state = device;
	return 0;
}

static int teardown(void **state)
{
	struct verbs_device *device = *state;

	verbs_device_put(&device);
	verbs_device_put(&device); /* of none: nothing */
	fake_verbs_end();
	return 0;
}

#define DEVICE_TEST(fn) TEST_WITH(fn, setup, teardown)

DEVICE_TEST(get__of_one_context_is_one_device)
{
	struct verbs_device *device = *state, *again = NULL;
	uint32_t live = fake_verbs_live();

	assert_int_equal(verbs_device_get(calls, fake_context(), &again), 0);
	assert_ptr_equal(again, device);
	assert_int_equal(fake_verbs_live(), live);
	verbs_device_put(&again);
	assert_null(again);
	assert_int_equal(fake_verbs_live(), live);
}

DEVICE_TEST(get__tells_what_the_device_can)
{
	const struct verbs_device *device = *state;

	assert_int_equal(device->attr.max_qp_init_rd_atom, fake_verbs.reads);
	assert_int_equal(device->attr.max_qp_rd_atom, fake_verbs.reads);
	assert_int_equal(device->attr.max_qp_wr, fake_verbs.wrs);
	assert_int_equal(device->attr.max_cqe, fake_verbs.completions);
	assert_true(device->windows);
	assert_string_equal(device->name, calls->get_device_name(fake_context()->device));
}

DEVICE_TEST(key__of_a_chunk_that_came_later)
{
	const struct verbs_device *device = *state;
	uint32_t key = 0, other = 0;
	struct mem chunk = { 0 }, part;

	assert_true(chunk_make_room(&chunk, 4096));
	part = chunk_mem(chunk.ptr + 4088, 8);
	assert_true(verbs_device_key(device, &chunk, &key));
	assert_true(verbs_device_key(device, &part, &other));
	assert_int_equal(key, other);
	chunk_drop(&chunk);
}

DEVICE_TEST(key__of_a_chunk_that_was_there)
{
	struct verbs_device *device = *state;
	struct mem chunk = { 0 };
	uint32_t key = 0;

	assert_true(chunk_make_room(&chunk, 4096));
	verbs_device_put(&device);
	assert_int_equal(verbs_device_get(calls, fake_context(), &device), 0);
	*state = device;
	assert_true(verbs_device_key(device, &chunk, &key));
	chunk_drop(&chunk);
}

DEVICE_TEST(key__of_other_memory)
{
	const struct verbs_device *device = *state;
	struct mem chunk = { 0 }, other, beyond, gone;
	uint64_t word;
	uint32_t key;

	assert_true(chunk_make_room(&chunk, 4096));
	gone = chunk;
	other = chunk_mem(&word, sizeof(word));
	beyond = chunk_mem(chunk.ptr, (size_t)CHUNK_UNIT + 1);
	assert_false(verbs_device_key(device, &other, &key));
	assert_false(verbs_device_key(device, &beyond, &key));
	assert_false(verbs_device_key(device, NULL, &key));
	chunk_drop(&chunk);
	assert_false(verbs_device_key(device, &chunk, &key));
	assert_false(verbs_device_key(device, &gone, &key));
}

DEVICE_TEST(key__of_a_chunk_that_could_not_be_registered)
{
	struct verbs_device *device = *state;
	uint32_t before, key;
	struct mem chunk = { 0 };

	before = fake_verbs_live();
	fake_verbs.fail_call = 1;
	assert_true(chunk_make_room(&chunk, 4096));
	assert_int_equal(chunk.kind, MEM_REGISTERED);
	assert_true(fake_verbs.fail_fired);
	assert_false(verbs_device_key(device, &chunk, &key));
	assert_int_equal(fake_verbs_live(), before);
	chunk_drop(&chunk);
}

DEVICE_TEST(register__counts_what_is_held)
{
	struct verbs_device *device = *state;
	uint32_t before;
	struct ibv_mr *mr = NULL;
	uint64_t words[8];
	const struct mem mem = { .ptr = (uint8_t *)words, .len = sizeof(words) };

	before = fake_verbs_live();
	assert_int_equal(
		verbs_device_register(device, device->pd, &mem, IBV_ACCESS_LOCAL_WRITE, &mr), 0);
	assert_int_equal(fake_verbs_live(), before + 1);
	assert_true(verbs_device_deregister(device, mr));
	assert_true(verbs_device_deregister(device, NULL));
	assert_int_equal(fake_verbs_live(), before);
}

DEVICE_TEST(register__failure_names_the_device_and_the_size)
{
	struct verbs_device *device = *state;
	struct ibv_mr *mr = NULL;
	uint64_t word;
	const struct mem mem = { .ptr = (uint8_t *)&word, .len = sizeof(word) };

	fake_verbs.fail_call = 1;
	assert_int_equal(verbs_device_register(device, device->pd, &mem, 0, &mr), -ENOMEM);
	assert_non_null(strstr(error_last(), device->name));
	assert_non_null(strstr(error_last(), "8 bytes"));
	assert_non_null(strstr(error_last(), "ulimit -l"));
	assert_null(mr);
}

static const struct mem device_mem = { .kind = MEM_DEVICE,
				       .dmabuf_fd = 3,
				       .dmabuf_off = 64,
				       .ptr = (uint8_t *)0x7000000000, /* never read */
				       .len = 4096 };

DEVICE_TEST(register_dmabuf__where_there_is_no_such_call)
{
	struct verbs_device *device = *state;
	struct ibv_mr *mr = NULL;

	assert_null(calls->reg_dmabuf_mr);
	assert_int_equal(verbs_device_register(device, device->pd, &device_mem, 0, &mr), -ENOTSUP);
	assert_null(mr);
}

/* NOLINTNEXTLINE(readability-function-size): rdma-core says what its arguments are */
static struct ibv_mr *reg_dmabuf(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				 int fd, int access)
{
	static uint8_t memory[4096];

	assert_int_equal(fd, 3);
	assert_int_equal(offset, 64);
	assert_int_equal(iova, 0x7000000000); /* so that requests use the owner's addresses */
	assert_int_equal(length, 4096);
	return calls->reg_mr(pd, memory, length, access);
}

DEVICE_TEST(register_dmabuf__counts_like_other_memory)
{
	struct verbs_device *device = *state;
	struct verbs_calls more = *calls;
	struct ibv_mr *mr = NULL;
	uint32_t before;

	more.reg_dmabuf_mr = reg_dmabuf;
	device->calls = &more;
	before = fake_verbs_live();
	assert_int_equal(verbs_device_register(device, device->pd, &device_mem, 0, &mr), 0);
	assert_int_equal(fake_verbs_live(), before + 1);
	assert_true(verbs_device_deregister(device, mr));
	device->calls = calls;
}

DEVICE_TEST(reserve__gives_halves_of_what_is_left)
{
	struct verbs_device *device = *state;
	uint32_t first = verbs_device_reserve(device, UINT32_MAX);
	uint32_t second = verbs_device_reserve(device, UINT32_MAX);
	uint32_t all[64];

	assert_true(first >= 4 * VERBS_SHARE_MIN);
	assert_int_equal(second, first / 2);
	assert_int_equal(verbs_device_reserve(device, 32), 32);
	for (int i = 0; i < 64; i++) {
		all[i] = verbs_device_reserve(device, UINT32_MAX);
		assert_true(all[i] >= VERBS_SHARE_MIN);
	}
	for (int i = 0; i < 64; i++)
		verbs_device_unreserve(device, all[i]);
	verbs_device_unreserve(device, 32);
	verbs_device_unreserve(device, second);
	verbs_device_unreserve(device, first);
	assert_int_equal(verbs_device_reserve(device, UINT32_MAX), first);
	verbs_device_unreserve(device, first);
}

int main(void)
{
	return test_run(NULL, NULL);
}
