/* The fake driver keeps the rules for which the tests of the cuda backend need it. */
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "device/cuda/gather.h"
#include "tests/support/fake/fake_cuda.h"

#define EXTENT ((size_t)2 << 20)

static const struct fakecuda_control *fake;
static const struct cuda_calls *cu;
static const struct cu_mem_prop prop = {
	.type = CU_ALLOCATION_PINNED,
	.handle_types = CU_HANDLE_POSIX_FD,
	.location = { CU_LOCATION_DEVICE, 0 },
};
static const struct cu_mem_access access_all = { { CU_LOCATION_DEVICE, 0 }, CU_ACCESS_READWRITE };

static int setup(void **state)
{
	(void)state;
	fake = fake_cuda_open();
	fake->reset();
	return cuda_calls_load(&cu);
}

static uint8_t *bytes_at(cu_u64 at)
{
	return (uint8_t *)(uintptr_t)at;
}

static cu_u64 place(void)
{
	cu_u64 at;

	assert_int_equal(cu->mem_reserve(&at, EXTENT, 0, 0, 0), CU_OK);
	return at;
}

static void show(cu_u64 at, cu_u64 handle)
{
	assert_int_equal(cu->mem_map(at, EXTENT, 0, handle, 0), CU_OK);
	assert_int_equal(cu->mem_set_access(at, EXTENT, &access_all, 1), CU_OK);
}

static cu_u64 make(void)
{
	cu_u64 handle;

	assert_int_equal(cu->mem_create(&handle, EXTENT, &prop, 0), CU_OK);
	return handle;
}

static void drop(cu_u64 at, cu_u64 handle)
{
	assert_int_equal(cu->mem_unmap(at, EXTENT), CU_OK);
	assert_int_equal(cu->mem_unreserve(at, EXTENT), CU_OK);
	assert_int_equal(cu->mem_release(handle), CU_OK);
}

static struct cu_stream *stream_make(void)
{
	struct cu_stream *stream;

	assert_int_equal(cu->stream_create(&stream, CU_STREAM_NON_BLOCKING_FLAG, 0), CU_OK);
	return stream;
}

/* Whether a write there is a fault. The kernel writes: of a fault of ours a sanitizer makes a report. */
static bool faults(cu_u64 at)
{
	uint8_t one = 1;
	const struct iovec from = { &one, 1 }, to = { bytes_at(at), 1 };
	ssize_t n = process_vm_writev(getpid(), &from, 1, &to, 1, 0);

	assert_true(n == 1 || errno == EFAULT);
	return n != 1;
}

TEST_WITH(memory__aliases_what_was_exported, setup, NULL)
{
	cu_u64 handle = make(), at = place(), other_at = place(), other;
	int fd;

	show(at, handle);
	assert_int_equal(cu->mem_export(&fd, handle, CU_HANDLE_POSIX_FD, 0), CU_OK);
	assert_int_equal(cu->mem_import(&other, (void *)(intptr_t)fd, CU_HANDLE_POSIX_FD), CU_OK);
	(void)close(fd);
	show(other_at, other);
	bytes_at(at)[EXTENT - 1] = 77;
	assert_int_equal(bytes_at(other_at)[EXTENT - 1], 77);
	drop(at, handle);
	assert_int_equal(bytes_at(other_at)[EXTENT - 1], 77); /* memory lives while a handle does */
	drop(other_at, other);
	assert_int_equal(fake->violations(NULL, 0), 0);
	assert_int_equal(fake->created_bytes() + fake->mapped_bytes(), 0);
}

TEST_WITH(memory__faults_where_nothing_is_mapped_or_allowed, setup, NULL)
{
	cu_u64 handle = make(), at = place();

	assert_true(faults(at));
	assert_int_equal(cu->mem_map(at, EXTENT, 0, handle, 0), CU_OK);
	assert_true(faults(at));
	assert_int_equal(cu->mem_set_access(at, EXTENT, &access_all, 1), CU_OK);
	assert_false(faults(at));
	assert_int_equal(cu->mem_unmap(at, EXTENT), CU_OK);
	assert_true(faults(at));
	assert_int_equal(cu->mem_unreserve(at, EXTENT), CU_OK);
	assert_int_equal(cu->mem_release(handle), CU_OK);
}

TEST_WITH(memory__refuses_what_breaks_the_pairs, setup, NULL)
{
	cu_u64 handle = make(), at = place();
	char text[128];

	assert_int_equal(cu->mem_unmap(at, EXTENT), CU_INVALID_VALUE);
	show(at, handle);
	assert_int_equal(cu->mem_map(at, EXTENT, 0, handle, 0), CU_INVALID_VALUE);
	assert_int_equal(cu->mem_unmap(at, EXTENT / 2), CU_INVALID_VALUE);
	assert_int_equal(cu->mem_unreserve(at, EXTENT), CU_INVALID_VALUE);
	assert_int_equal(cu->mem_release(handle), CU_INVALID_VALUE);
	assert_int_equal(fake->violations(text, sizeof(text)), 5);
	assert_string_equal(text, "cuMemUnmap: not whole mappings");
	drop(at, handle);
	assert_int_equal(cu->mem_release(handle), CU_INVALID_VALUE);
	assert_int_equal(fake->violations(NULL, 0), 6);
}

TEST_WITH(memory__is_as_large_as_the_device, setup, NULL)
{
	cu_u64 handle, second;

	fake->memory(EXTENT);
	handle = make();
	assert_int_equal(cu->mem_create(&second, EXTENT, &prop, 0), CU_OUT_OF_MEMORY);
	assert_int_equal(cu->mem_release(handle), CU_OK);
	fake->memory((size_t)1 << 30);
}

TEST_WITH(clock__runs_work_when_its_time_has_come, setup, NULL)
{
	struct cu_stream *stream = stream_make();
	cu_u64 handle = make(), at = place();

	show(at, handle);
	fake->hold(1000);
	assert_int_equal(cu->fill(at, 5, EXTENT, stream), CU_OK);
	assert_int_equal(cu->fill(at, 6, EXTENT, stream), CU_OK);
	fake->advance(999);
	assert_int_not_equal(bytes_at(at)[0], 5);
	fake->advance(1);
	assert_int_equal(bytes_at(at)[0], 5);
	assert_int_equal(cu->stream_query(stream), CU_NOT_READY);
	assert_int_equal(cu->stream_wait(stream), CU_OK); /* moves the clock itself */
	assert_int_equal(bytes_at(at)[EXTENT - 1], 6);
	assert_int_equal(cu->stream_destroy(stream), CU_OK);
	drop(at, handle);
	assert_int_equal(fake->violations(NULL, 0), 0);
}

TEST_WITH(clock__orders_streams_by_events, setup, NULL)
{
	struct cu_stream *first = stream_make(), *second = stream_make();
	struct cu_event *event, *shared;
	struct cu_ipc_event ipc;
	cu_u64 handle = make(), at = place();

	show(at, handle);
	fake->hold(1000);
	assert_int_equal(cu->event_create(&event, CU_EVENT_INTERPROCESS_FLAG), CU_INVALID_VALUE);
	assert_int_equal(
		cu->event_create(&event, CU_EVENT_INTERPROCESS_FLAG | CU_EVENT_NO_TIMING_FLAG),
		CU_OK);
	assert_int_equal(cu->event_export(&ipc, event), CU_OK);
	assert_int_equal(cu->event_import(&shared, ipc), CU_OK);
	assert_int_equal(cu->fill(at, 1, EXTENT, first), CU_OK);
	assert_int_equal(cu->event_record(event, first), CU_OK);
	assert_int_equal(cu->event_query(shared), CU_NOT_READY);
	assert_int_equal(cu->stream_wait_event(second, shared, 0), CU_OK);
	assert_int_equal(cu->fill(at, 2, EXTENT, second), CU_OK);
	fake->advance(1000000);
	assert_int_equal(bytes_at(at)[0], 2);
	assert_int_equal(cu->event_query(shared), CU_OK);
	assert_int_equal(cu->event_destroy(shared), CU_OK);
	assert_int_equal(cu->event_destroy(event), CU_OK);
	assert_int_equal(cu->stream_destroy(first), CU_OK);
	assert_int_equal(cu->stream_destroy(second), CU_OK);
	drop(at, handle);
}

/* The fault that the pool exists to prevent: a second stream has the memory before the first is done. */
TEST_WITH(clock__catches_early_reuse, setup, NULL)
{
	struct cu_stream *loser = stream_make(), *winner = stream_make();
	cu_u64 handle = make(), at = place();
	char text[128];

	show(at, handle);
	fake->watch_reuse(true);
	fake->hold(1000);
	assert_int_equal(cu->fill(at, 1, EXTENT, loser), CU_OK);
	assert_int_equal(cu->fill(at, 2, EXTENT, winner), CU_OK);
	assert_int_equal(fake->violations(text, sizeof(text)), 1);
	assert_string_equal(text, "work over memory that another stream's work still uses");
	assert_int_equal(cu->mem_unmap(at, EXTENT), CU_OK); /* as the real one: nobody is asked */
	assert_int_equal(fake->violations(NULL, 0), 2);
	assert_int_equal(cu->stream_wait(loser), CU_ILLEGAL_ADDRESS);
	assert_int_equal(cu->stream_query(winner), CU_ILLEGAL_ADDRESS); /* the context is lost */
	fake->reset();
	assert_int_equal(cu->stream_destroy(loser), CU_OK);
	assert_int_equal(cu->stream_destroy(winner), CU_OK);
	fake->reset();
	assert_int_equal(cu->mem_unreserve(at, EXTENT), CU_OK);
	assert_int_equal(cu->mem_release(handle), CU_OK);
}

TEST_WITH(marks__are_written_behind_the_work, setup, NULL)
{
	static _Alignas(64) _Atomic uint64_t page[8];
	struct cu_stream *stream = stream_make();
	cu_u64 marks, handle = make(), at = place();

	page[0] = 0;
	show(at, handle);
	assert_int_equal(cu->host_register((void *)page, sizeof(page), CU_HOST_DEVICEMAP), CU_OK);
	assert_int_equal(cu->host_register((void *)page, sizeof(page), CU_HOST_DEVICEMAP),
			 CU_INVALID_VALUE);
	assert_int_equal(cu->host_device_pointer(&marks, (void *)page, 0), CU_OK);
	fake->hold(1000);
	assert_int_equal(cu->fill(at, 9, EXTENT, stream), CU_OK);
	assert_int_equal(cu->stream_write(stream, marks, 41, 0), CU_OK);
	fake->advance(1000);
	assert_int_equal(page[0], 0);
	fake->advance(1000);
	assert_int_equal(page[0], 41);
	assert_int_equal(bytes_at(at)[EXTENT - 1], 9);
	assert_int_equal(cu->stream_write(stream, marks, 42, 0), CU_OK);
	assert_int_equal(cu->host_unregister((void *)page), CU_OK); /* while a mark is to come */
	assert_int_equal(fake->violations(NULL, 0), 1);
	fake->reset();
	(void)cu->stream_destroy(stream);
	fake->reset();
	drop(at, handle);
}

TEST_WITH(gather__runs_as_a_kernel_over_device_addresses, setup, NULL)
{
	struct cu_stream *stream = stream_make();
	struct cuda_gather gather;
	cu_u64 handle = make(), at = place();
	struct gather_row *rows = (struct gather_row *)(uintptr_t)(at + EXTENT / 2);
	struct gather_work work = { bytes_at(at) + 4096, bytes_at(at), rows, 2, 32, 0, 0 };

	show(at, handle);
	for (int i = 0; i < 4096; i++)
		bytes_at(at)[i] = (uint8_t)i;
	rows[0] = (struct gather_row){ .from = 64, .to = 32 };
	rows[1] = (struct gather_row){ .from = 128, .to = 0 };
	assert_int_equal(cuda_gather_open(cu, &gather), 0);
	gather_fit(&work, rows);
	assert_int_equal(cuda_gather(&gather, stream, work), 0);
	assert_int_equal(cu->stream_wait(stream), CU_OK);
	assert_memory_equal(work.to, bytes_at(at) + 128, 32);
	assert_memory_equal(work.to + 32, bytes_at(at) + 64, 32);
	rows[1].from = EXTENT; /* outside: the kernel is what finds out */
	assert_int_equal(cuda_gather(&gather, stream, work), 0);
	assert_int_equal(cu->stream_wait(stream), CU_ILLEGAL_ADDRESS);
	fake->reset();
	cuda_gather_close(&gather);
	assert_int_equal(cu->stream_destroy(stream), CU_OK);
	drop(at, handle);
}

TEST_WITH(control__counts_and_fails_calls, setup, NULL)
{
	cu_u64 handle;

	fake->fail_call("cuMemCreate", 2, CU_OUT_OF_MEMORY);
	handle = make();
	assert_int_equal(cu->mem_release(handle), CU_OK);
	assert_int_equal(cu->mem_create(&handle, EXTENT, &prop, 0), CU_OUT_OF_MEMORY);
	handle = make();
	assert_int_equal(cu->mem_release(handle), CU_OK);
	assert_int_equal(fake->calls("cuMemCreate"), 3);
	assert_int_equal(fake->calls(NULL), 5);
}

int main(void)
{
	if (test_skips_msan("the fake driver"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
