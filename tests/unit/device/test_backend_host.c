#include "device/host/backend_host.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem/alloc.h"
#include "tests/support/test.h"

#define EXTENT ((uint64_t)64 << 10)

static struct backend *dev;

/* The kernel reads: of a fault of ours a sanitizer makes a report. */
static bool readable(uint64_t va)
{
	uint8_t one;
	const struct iovec to = { &one, 1 }, from = { (void *)(uintptr_t)va, 1 };
	ssize_t n = process_vm_readv(getpid(), &to, 1, &from, 1, 0);

	assert_true(n == 1 || errno == EFAULT);
	return n == 1;
}

static int begin(void **state)
{
	const struct backend_host_opts opts = { .device_bytes = 4 * EXTENT, .bytes_per_us = 1024 };

	(void)state;
	assert_int_equal(backend_host_open(&opts, &dev), 0);
	return 0;
}

static int end(void **state)
{
	(void)state;
	dev->ops->close(dev);
	return 0;
}

static uint64_t mapped(uint64_t *handle_out)
{
	uint64_t va;

	assert_int_equal(dev->ops->reserve(dev, 2 * EXTENT, &va), 0);
	assert_int_equal(dev->ops->extent_create(dev, EXTENT, handle_out), 0);
	assert_int_equal(dev->ops->map(dev, va, EXTENT, *handle_out), 0);
	assert_int_equal(dev->ops->set_access(dev, va, EXTENT, BACKEND_ACCESS_READ_WRITE), 0);
	return va;
}

TEST_WITH(map__no_access_before_set_access_and_after_unmap, begin, end)
{
	uint64_t va, handle;

	assert_int_equal(dev->ops->reserve(dev, EXTENT, &va), 0);
	assert_false(readable(va));
	assert_int_equal(dev->ops->extent_create(dev, EXTENT, &handle), 0);
	assert_int_equal(dev->ops->map(dev, va, EXTENT, handle), 0);
	assert_false(readable(va));
	assert_int_equal(dev->ops->set_access(dev, va, EXTENT, BACKEND_ACCESS_READ_WRITE), 0);
	assert_true(readable(va));
	assert_int_equal(dev->ops->unmap(dev, va, EXTENT), 0);
	assert_false(readable(va));
	assert_int_equal(dev->ops->extent_release(dev, handle), 0);
	assert_int_equal(dev->ops->unreserve(dev, va, EXTENT), 0);
}

TEST_WITH(map__pairs_are_enforced, begin, end)
{
	uint64_t handle, other, va = mapped(&handle);

	assert_int_equal(dev->ops->map(dev, va, EXTENT, handle), -EBUSY);
	assert_int_equal(dev->ops->map(dev, va + 2 * EXTENT, EXTENT, handle), -EINVAL);
	assert_int_equal(dev->ops->map(dev, va + EXTENT, EXTENT, handle + 1), -EINVAL);
	assert_int_equal(dev->ops->map(dev, va + EXTENT, EXTENT / 2, handle), -EINVAL);
	assert_int_equal(dev->ops->extent_release(dev, handle), -EBUSY);
	assert_int_equal(dev->ops->unreserve(dev, va, 2 * EXTENT), -EBUSY);
	assert_int_equal(dev->ops->unreserve(dev, va, EXTENT), -EINVAL);
	assert_int_equal(dev->ops->unmap(dev, va, EXTENT / 2), -EINVAL);
	assert_int_equal(dev->ops->unmap(dev, va + EXTENT, EXTENT), -EINVAL);
	assert_int_equal(dev->ops->set_access(dev, va, 2 * EXTENT, BACKEND_ACCESS_READ), -EINVAL);
	assert_int_equal(dev->ops->extent_create(dev, EXTENT, &other), 0);
	assert_int_equal(dev->ops->map(dev, va + EXTENT, EXTENT, other), 0);
	assert_int_equal(dev->ops->set_access(dev, va, 2 * EXTENT, BACKEND_ACCESS_READ), 0);
	assert_int_equal(dev->ops->unmap(dev, va, 2 * EXTENT), 0);
	assert_int_equal(dev->ops->unmap(dev, va, EXTENT), -EINVAL);
	assert_int_equal(dev->ops->extent_release(dev, handle), 0);
	assert_int_equal(dev->ops->extent_release(dev, handle), -EINVAL);
}

TEST_WITH(extent_create__device_is_full, begin, end)
{
	uint64_t handle;

	assert_int_equal(dev->ops->extent_create(dev, EXTENT + 1, &handle), -EINVAL);
	assert_int_equal(dev->ops->extent_create(dev, 5 * EXTENT, &handle), -ENOMEM);
	assert_int_equal(dev->ops->extent_create(dev, 4 * EXTENT, &handle), 0);
	assert_int_equal(dev->ops->extent_create(dev, EXTENT, &handle), -ENOMEM);
	assert_int_equal(dev->ops->extent_release(dev, handle), 0);
	assert_int_equal(dev->ops->extent_create(dev, EXTENT, &handle), 0);
}

TEST_WITH(extent_import__aliases_the_bytes_and_outlives_its_maker, begin, end)
{
	struct backend *maker = dev;
	uint64_t handle, imported, va = mapped(&handle), other;
	int fd;

	memcpy((void *)(uintptr_t)va, "bytes", 6);
	assert_int_equal(dev->ops->extent_export(dev, handle, &fd), 0);
	begin(NULL);
	assert_int_equal(dev->ops->extent_import(dev, fd, 2 * EXTENT, &imported), -EINVAL);
	assert_int_equal(dev->ops->extent_import(dev, fd, EXTENT, &imported), 0);
	close(fd);
	maker->ops->close(maker);
	assert_int_equal(dev->ops->reserve(dev, EXTENT, &other), 0);
	assert_int_equal(dev->ops->map(dev, other, EXTENT, imported), 0);
	assert_int_equal(dev->ops->set_access(dev, other, EXTENT, BACKEND_ACCESS_READ), 0);
	assert_string_equal((const char *)(uintptr_t)other, "bytes");
}

TEST_WITH(stream_mark__reached_when_the_work_before_it_ends, begin, end)
{
	uint64_t seq;
	uint32_t stream;

	assert_int_equal(dev->ops->stream_open(dev, NULL, &stream), 0);
	assert_int_equal(backend_host_work(dev, stream, 100, NULL, NULL), 0);
	assert_int_equal(dev->ops->stream_mark(dev, stream, 1), 0);
	assert_int_equal(dev->ops->stream_mark(dev, stream, 1), -EINVAL);
	assert_int_equal(dev->ops->stream_close(dev, stream), -EBUSY);
	backend_host_advance(dev, 99);
	assert_int_equal(dev->ops->stream_progress(dev, stream, &seq), 0);
	assert_int_equal(seq, 0);
	backend_host_advance(dev, 1);
	assert_int_equal(dev->ops->stream_progress(dev, stream, &seq), 0);
	assert_int_equal(seq, 1);
	assert_int_equal(dev->ops->now_ns(dev), 100);
	assert_int_equal(dev->ops->stream_close(dev, stream), 0);
	assert_int_equal(dev->ops->stream_mark(dev, stream, 2), -EINVAL);
}

TEST_WITH(progress_export__another_mapping_sees_the_marks, begin, end)
{
	uint32_t stream;
	int fd;
	const uint64_t *page;

	assert_int_equal(dev->ops->progress_export(dev, &fd), 0);
	page = mmap(NULL, BACKEND_STREAMS * sizeof(*page), PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	assert_ptr_not_equal(page, MAP_FAILED);
	assert_int_equal(dev->ops->stream_open(dev, NULL, &stream), 0);
	assert_int_equal(dev->ops->stream_mark(dev, stream, 7), 0);
	backend_host_advance(dev, 0);
	assert_int_equal(page[stream], 7);
	munmap((void *)(uintptr_t)page, BACKEND_STREAMS * sizeof(*page));
}

TEST_WITH(copy_batch__has_its_effect_at_its_end, begin, end)
{
	uint64_t handle, va = mapped(&handle);
	char *bytes = (char *)(uintptr_t)va;
	const struct backend_copy copies[] = { { va + 2048, va, 1024 }, { va + 4096, va, 1024 } };
	uint32_t stream;

	assert_int_equal(dev->ops->stream_open(dev, NULL, &stream), 0);
	assert_int_equal(dev->ops->fill(dev, stream, va, 1024, 'x'), 0);
	assert_int_equal(dev->ops->copy_batch(dev, stream, copies, 2), 0);
	assert_int_equal(bytes[0], 0);
	backend_host_advance(dev, 1000);
	assert_int_equal(bytes[1023], 'x');
	assert_int_equal(bytes[2048], 0);
	backend_host_advance(dev, 2000);
	assert_int_equal(bytes[2048], 'x');
	assert_int_equal(bytes[5119], 'x');
	assert_int_equal(bytes[5120], 0);
}

struct step {
	int *counter, order;
};

static void count(void *ctx)
{
	struct step *step = ctx;

	step->order = ++*step->counter;
}

TEST_WITH(backend_host_advance__runs_work_of_all_streams_by_its_ends, begin, end)
{
	int counter = 0;
	struct step late = { &counter, 0 }, early = { &counter, 0 };
	uint32_t one, two;

	assert_int_equal(dev->ops->stream_open(dev, NULL, &one), 0);
	assert_int_equal(dev->ops->stream_open(dev, NULL, &two), 0);
	assert_int_equal(backend_host_work(dev, one, 20, count, &late), 0);
	assert_int_equal(backend_host_work(dev, two, 10, count, &early), 0);
	backend_host_advance(dev, 100);
	assert_int_equal(early.order, 1);
	assert_int_equal(late.order, 2);
}

TEST_WITH(stream_open__all_places_taken, begin, end)
{
	uint32_t stream;

	for (int i = 0; i < BACKEND_STREAMS; i++)
		assert_int_equal(dev->ops->stream_open(dev, NULL, &stream), 0);
	assert_int_equal(dev->ops->stream_open(dev, NULL, &stream), -ENOSPC);
	assert_int_equal(dev->ops->stream_open(dev, &stream, &stream), -EINVAL);
}

TEST_WITH(calls__forked_child_is_echild, begin, end)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		uint64_t va;

		_exit(dev->ops->reserve(dev, EXTENT, &va) == -ECHILD ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static int lifetime(void)
{
	const struct backend_host_opts opts = { .device_bytes = 4 * EXTENT };
	struct backend *host;
	uint64_t handle, copy, va;
	uint32_t stream;
	int fd = -1, ret = backend_host_open(&opts, &host);

	if (ret)
		return ret;
	ret = host->ops->reserve(host, EXTENT, &va);
	ret = ret ? ret : host->ops->extent_create(host, EXTENT, &handle);
	ret = ret ? ret : host->ops->extent_export(host, handle, &fd);
	ret = ret ? ret : host->ops->extent_import(host, fd, EXTENT, &copy);
	ret = ret ? ret : host->ops->map(host, va, EXTENT, copy);
	ret = ret ? ret : host->ops->set_access(host, va, EXTENT, BACKEND_ACCESS_READ);
	ret = ret ? ret : host->ops->stream_open(host, NULL, &stream);
	ret = ret ? ret : host->ops->fill(host, stream, va, 0, 0);
	ret = ret ? ret : host->ops->stream_mark(host, stream, 1);
	ret = ret ? ret : host->ops->unmap(host, va, EXTENT);
	if (fd >= 0)
		close(fd);
	host->ops->close(host);
	return ret;
}

TEST(calls__each_failing_allocation_is_enomem)
{
	uint64_t n = 1;

	for (;; n++) {
		int ret;

		mem_fail_after(n);
		ret = lifetime();
		if (!mem_fail_fired())
			break;
		assert_int_equal(ret, -ENOMEM);
	}
	mem_fail_after(0);
	assert_int_equal(lifetime(), 0);
	assert_true(n > 8);
}

int main(void)
{
	return test_run(NULL, NULL);
}
