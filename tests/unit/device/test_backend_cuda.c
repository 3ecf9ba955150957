/* The cuda backend over the fake driver: calls that each step costs, failures at every call, lost devices. */
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem/alloc.h"
#include "device/cuda/backend_cuda.h"
#include "device/cuda/calls.h"
#include "tests/support/fake/fake_cuda.h"
#include "tests/support/must_internal.h"

#define EXTENT ((uint64_t)2 << 20)

static const struct fakecuda_control *fake;
static struct backend *dev;

static int begin_with(bool events)
{
	const struct backend_cuda_opts opts = { .events = events };

	fake = fake_cuda_open();
	fake->reset();
	assert_int_equal(backend_cuda_open(&opts, &dev), 0);
	return 0;
}

static int begin(void **state)
{
	(void)state;
	return begin_with(false);
}

static int end(void **state)
{
	char text[128] = "";

	(void)state;
	dev->ops->close(dev);
	if (fake->violations(text, sizeof(text)))
		fail_msg("broken rule: %s", text);
	assert_int_equal(fake->created_bytes() + fake->mapped_bytes(), 0);
	fake->reset();
	return 0;
}

static uint64_t mapped(uint64_t *handle_out)
{
	uint64_t va;

	assert_int_equal(dev->ops->reserve(dev, EXTENT, &va), 0);
	assert_int_equal(dev->ops->extent_create(dev, EXTENT, handle_out), 0);
	assert_int_equal(dev->ops->map(dev, va, EXTENT, *handle_out), 0);
	assert_int_equal(dev->ops->set_access(dev, va, EXTENT, BACKEND_ACCESS_READ_WRITE), 0);
	return va;
}

static uint64_t calls_before;

#define COSTS(n, step) \
	do { \
		calls_before = fake->calls(NULL); \
		assert_int_equal(step, 0); \
		assert_int_equal(fake->calls(NULL) - calls_before, n); \
	} while (0)

/* A thread whose context is the device's, as in a process that trains. */
static void own_context(void)
{
	const struct cuda_calls *calls;
	struct cu_context *context;

	assert_int_equal(cuda_calls_load(&calls), 0);
	assert_int_equal(calls->context_retain(&context, 0), CU_OK);
	assert_int_equal(calls->context_set(context), CU_OK);
	assert_int_equal(calls->context_release(0), CU_OK);
}

TEST_WITH(calls__of_each_step, begin, end)
{
	struct backend_copy copies[300] = { 0 };
	struct backend_info info;
	uint64_t va, handle, other, seq, off;
	uint32_t stream;
	int fd;

	own_context();
	COSTS(2, dev->ops->reserve(dev, 2 * EXTENT, &va));
	COSTS(2, dev->ops->extent_create(dev, EXTENT, &handle));
	COSTS(2, dev->ops->extent_export(dev, handle, &fd));
	COSTS(2, dev->ops->extent_import(dev, fd, EXTENT, &other));
	(void)close(fd);
	COSTS(2, dev->ops->map(dev, va, EXTENT, handle));
	COSTS(2, dev->ops->map(dev, va + EXTENT, EXTENT, other));
	COSTS(2, dev->ops->set_access(dev, va, 2 * EXTENT, BACKEND_ACCESS_READ_WRITE));
	COSTS(2, dev->ops->dmabuf_export(dev, va, EXTENT, &fd, &off));
	(void)close(fd);
	COSTS(2, dev->ops->stream_open(dev, NULL, &stream));
	COSTS(2, dev->ops->fill(dev, stream, va, EXTENT, 1));
	for (size_t i = 0; i < 300; i++)
		copies[i] = (struct backend_copy){ va + 4096 + i * 8, va, 8 };
	COSTS(2, dev->ops->copy_batch(dev, stream, copies, 1));
	COSTS(2, dev->ops->copy_batch(dev, stream, copies, 256));
	COSTS(3, dev->ops->copy_batch(dev, stream, copies, 300));
	COSTS(2, dev->ops->stream_mark(dev, stream, 1));
	do {
		COSTS(0, dev->ops->stream_progress(dev, stream, &seq));
	} while (seq < 1);
	COSTS(2, dev->ops->unmap(dev, va, 2 * EXTENT));
	COSTS(2, dev->ops->extent_release(dev, other));
	COSTS(2, dev->ops->unreserve(dev, va, 2 * EXTENT));
	COSTS(2, dev->ops->stream_close(dev, stream));
	COSTS(0, (dev->ops->info(dev, &info), 0));
	COSTS(0, (int)(dev->ops->now_ns(dev) == 0));
}

/*
 * A warm hand-over between two jobs that both have the extent mapped: the winner reads the loser's mark
 * in shared memory, and works. The driver has no part in it.
 */
TEST_WITH(calls__none_for_a_hand_over_of_mapped_memory, begin, end)
{
	struct backend *winner;
	uint64_t handle, imported, va = mapped(&handle), winner_va;
	uint32_t stream;
	volatile uint64_t *page;
	int fd, page_fd;

	assert_int_equal(backend_cuda_open(&(struct backend_cuda_opts){ 0 }, &winner), 0);
	assert_int_equal(dev->ops->extent_export(dev, handle, &fd), 0);
	assert_int_equal(winner->ops->extent_import(winner, fd, EXTENT, &imported), 0);
	(void)close(fd);
	assert_int_equal(winner->ops->reserve(winner, EXTENT, &winner_va), 0);
	assert_int_equal(winner->ops->map(winner, winner_va, EXTENT, imported), 0);
	assert_int_equal(
		winner->ops->set_access(winner, winner_va, EXTENT, BACKEND_ACCESS_READ_WRITE), 0);
	assert_int_equal(dev->ops->progress_export(dev, &page_fd), 0);
	page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, page_fd, 0);
	(void)close(page_fd);
	assert_int_equal(dev->ops->stream_open(dev, NULL, &stream), 0);
	assert_int_equal(dev->ops->fill(dev, stream, va, EXTENT, 7), 0);
	assert_int_equal(dev->ops->stream_mark(dev, stream, 1), 0);
	calls_before = fake->calls(NULL);
	while (page[stream] < 1)
		;
	assert_int_equal(((uint8_t *)(uintptr_t)winner_va)[EXTENT - 1], 7);
	assert_int_equal(fake->calls(NULL), calls_before);
	(void)munmap((void *)(uintptr_t)page, 4096);
	winner->ops->close(winner);
}

/* A thread with another context gets it back; two more calls. */
TEST_WITH(context__of_the_thread_is_put_back, begin, end)
{
	const struct cuda_calls *calls;
	struct cu_context *other = (struct cu_context *)(void *)&calls, *now = NULL;
	uint64_t va;

	assert_int_equal(cuda_calls_load(&calls), 0);
	assert_int_equal(calls->context_set(other), CU_OK);
	COSTS(4, dev->ops->reserve(dev, EXTENT, &va));
	assert_int_equal(calls->context_get(&now), CU_OK);
	assert_ptr_equal(now, other);
	assert_int_equal(calls->context_set(NULL), CU_OK);
}

TEST(marks__are_events_where_the_device_writes_none)
{
	struct backend_info info;
	uint64_t seq = 9;
	uint32_t stream;

	fake = fake_cuda_open();
	fake->reset();
	fake->attribute(CU_ATTR_STREAM_MEM_OPS_64, 0);
	assert_int_equal(backend_cuda_open(&(struct backend_cuda_opts){ 0 }, &dev), 0);
	dev->ops->info(dev, &info);
	assert_int_equal(info.caps & BACKEND_PROGRESS_PAGE, 0);
	own_context();
	fake->hold(1000);
	assert_int_equal(dev->ops->stream_open(dev, NULL, &stream), 0);
	for (uint64_t mark = 1; mark <= 40; mark++) /* eight more than the ring holds */
		assert_int_equal(dev->ops->stream_mark(dev, stream, mark), 0);
	COSTS(2, dev->ops->stream_progress(dev, stream, &seq));
	assert_int_equal(seq, 0);
	fake->advance(5000);
	assert_int_equal(dev->ops->stream_progress(dev, stream, &seq), 0);
	assert_int_equal(seq, 5);
	fake->advance(34999); /* the last mark is that of the 40th record */
	assert_int_equal(dev->ops->stream_progress(dev, stream, &seq), 0);
	assert_int_equal(seq, 31);
	assert_int_equal(dev->ops->stream_close(dev, stream), -EBUSY);
	fake->advance(1);
	assert_int_equal(dev->ops->stream_progress(dev, stream, &seq), 0);
	assert_int_equal(seq, 40);
	COSTS(0, dev->ops->stream_progress(dev, stream, &seq));
	assert_int_equal(dev->ops->stream_close(dev, stream), 0);
	end(NULL);
}

/* A page of progress as a job has one before its device is open. */
static int page_made(void)
{
	struct backend *first;
	int fd;

	must(backend_cuda_open(&(struct backend_cuda_opts){ 0 }, &first));
	must(first->ops->progress_export(first, &fd));
	first->ops->close(first);
	return fd;
}

/* A broker asks the event behind the last mark of a job that does not look at its own. */
TEST(marks__are_shared_events_on_a_page_that_was_given)
{
	struct backend_cuda_opts opts = { .events = true };
	const struct backend_progress *page;
	uint32_t stream;
	uint64_t seq;

	fake = fake_cuda_open();
	fake->reset();
	opts.page_fd = page_made();
	must(backend_cuda_open(&opts, &dev));
	page = mmap(NULL, sizeof(*page), PROT_READ, MAP_SHARED, opts.page_fd, 0);
	assert_ptr_not_equal(page, MAP_FAILED);
	own_context();
	fake->hold(1000);
	must(dev->ops->stream_open(dev, NULL, &stream));
	COSTS(6, dev->ops->stream_mark(dev, stream, 1)); /* makes two events and exports one */
	for (uint64_t mark = 2; mark <= 32; mark++)
		COSTS(4, dev->ops->stream_mark(dev, stream, mark));
	COSTS(3, dev->ops->stream_mark(dev, stream, 33));
	calls_before = fake->calls(NULL);
	assert_int_equal(dev->ops->event_ask(dev, page->events[stream].handle), -EAGAIN);
	assert_int_equal(fake->calls(NULL) - calls_before, 4);
	fake->advance(64000);
	assert_int_equal(dev->ops->event_ask(dev, page->events[stream].handle), -EAGAIN);
	fake->advance(1000);
	COSTS(4, dev->ops->event_ask(dev, page->events[stream].handle));
	assert_int_equal(page->reached[stream], 0);
	fake->advance(1000); /* the ring's event is behind it */
	must(dev->ops->stream_progress(dev, stream, &seq));
	assert_int_equal(seq, 33);
	assert_int_equal(page->reached[stream], 33);
	must(dev->ops->stream_close(dev, stream));
	must(dev->ops->event_ask(dev, page->events[stream].handle));
	end(NULL);
	assert_int_equal(page->events[stream].made, 0);
	(void)munmap((void *)(uintptr_t)page, sizeof(*page));
	(void)close(opts.page_fd);
}

/* Closing waits for what is under way; readers of the page see that it has ended. */
TEST(close__leaves_the_last_marks_on_the_page)
{
	struct backend_cuda_opts opts = { .events = true };
	const struct backend_progress *page;
	uint32_t stream;

	fake = fake_cuda_open();
	fake->reset();
	opts.page_fd = page_made();
	must(backend_cuda_open(&opts, &dev));
	page = mmap(NULL, sizeof(*page), PROT_READ, MAP_SHARED, opts.page_fd, 0);
	assert_ptr_not_equal(page, MAP_FAILED);
	fake->hold(1000);
	must(dev->ops->stream_open(dev, NULL, &stream));
	must(dev->ops->stream_mark(dev, stream, 5));
	end(NULL);
	assert_int_equal(page->reached[stream], 5);
	(void)munmap((void *)(uintptr_t)page, sizeof(*page));
	(void)close(opts.page_fd);
}

TEST(marks__are_not_shared_where_the_device_has_no_ipc_events)
{
	struct backend_cuda_opts opts = { 0 };
	const struct backend_progress *page;
	uint32_t stream;

	fake = fake_cuda_open();
	fake->reset();
	opts.page_fd = page_made();
	fake->attribute(CU_ATTR_STREAM_MEM_OPS_64, 0);
	fake->attribute(CU_ATTR_IPC_EVENTS, 0);
	must(backend_cuda_open(&opts, &dev));
	page = mmap(NULL, sizeof(*page), PROT_READ, MAP_SHARED, opts.page_fd, 0);
	assert_ptr_not_equal(page, MAP_FAILED);
	own_context();
	must(dev->ops->stream_open(dev, NULL, &stream));
	COSTS(3, dev->ops->stream_mark(dev, stream, 1));
	assert_int_equal(page->events[stream].made, 0);
	end(NULL);
	(void)munmap((void *)(uintptr_t)page, sizeof(*page));
	(void)close(opts.page_fd);
}

TEST(open__says_what_a_device_lacks)
{
	fake = fake_cuda_open();
	fake->reset();
	fake->attribute(CU_ATTR_POSIX_FD, 0);
	assert_int_equal(backend_cuda_open(&(struct backend_cuda_opts){ 0 }, &dev), -ENOTSUP);
	assert_non_null(strstr(error_last(), "use another device"));
	fake->reset();
	assert_int_equal(backend_cuda_open(&(struct backend_cuda_opts){ .device = 3 }, &dev),
			 -ENODEV);
	assert_non_null(strstr(error_last(), "cuDeviceGet: "));
	assert_non_null(strstr(error_last(), "CUDA_VISIBLE_DEVICES"));
}

static uint64_t worked; /* calls of a lifetime before its close */
static struct backend_cuda_opts life;
static struct backend_progress *life_page; /* NULL: it shares no events */

/* What a broker does where marks are shared events. */
static int ask(uint32_t stream)
{
	int ret = -EAGAIN;

	while (ret == -EAGAIN)
		ret = dev->ops->event_ask(dev, life_page->events[stream].handle);
	return ret;
}

/* Every kind of call once; what it made is closed also after a failure. */
static int lifetime(void)
{
	uint64_t va, handle, copy, seq;
	const struct backend_copy one = { 0 };
	uint32_t stream;
	int fd = -1, ret = backend_cuda_open(&life, &dev);

	if (ret)
		return ret;
	ret = dev->ops->reserve(dev, EXTENT, &va);
	ret = ret ? ret : dev->ops->extent_create(dev, EXTENT, &handle);
	ret = ret ? ret : dev->ops->extent_export(dev, handle, &fd);
	ret = ret ? ret : dev->ops->extent_import(dev, fd, EXTENT, &copy);
	ret = ret ? ret : dev->ops->map(dev, va, EXTENT, copy);
	ret = ret ? ret : dev->ops->set_access(dev, va, EXTENT, BACKEND_ACCESS_READ_WRITE);
	if (fd >= 0)
		(void)close(fd);
	ret = ret ? ret : dev->ops->dmabuf_export(dev, va, EXTENT, &fd, &seq);
	ret = ret ? ret : dev->ops->stream_open(dev, NULL, &stream);
	if (!ret)
		(void)close(fd);
	ret = ret ? ret : dev->ops->fill(dev, stream, va, EXTENT, 3);
	ret = ret ? ret : dev->ops->copy_batch(dev, stream, &one, 0);
	ret = ret ? ret : dev->ops->stream_mark(dev, stream, 1);
	if (!ret && life_page)
		ret = ask(stream);
	for (seq = 0; !ret && seq < 1;)
		ret = dev->ops->stream_progress(dev, stream, &seq);
	ret = ret ? ret : dev->ops->stream_close(dev, stream);
	ret = ret ? ret : dev->ops->unmap(dev, va, EXTENT);
	ret = ret ? ret : dev->ops->extent_release(dev, copy);
	ret = ret ? ret : dev->ops->extent_release(dev, handle);
	ret = ret ? ret : dev->ops->unreserve(dev, va, EXTENT);
	worked = fake->calls(NULL);
	if (ret)
		assert_non_null(strstr(error_last(), ": "));
	dev->ops->close(dev);
	return ret;
}

TEST(calls__of_events_that_fail_are_typed_and_leave_nothing)
{
	static const char *const names[] = { "cuEventCreate", "cuEventRecord",
					     "cuIpcGetEventHandle", "cuIpcOpenEventHandle",
					     "cuEventQuery" };
	static const struct {
		unsigned result;
		int code;
	} ways[] = { { CU_UNKNOWN, -EIO },
		     { CU_OUT_OF_MEMORY, -ENOMEM },
		     { CU_ILLEGAL_ADDRESS, -ENODEV } };

	fake = fake_cuda_open();
	fake->reset();
	life = (struct backend_cuda_opts){ .events = true, .page_fd = page_made() };
	life_page = mmap(NULL, sizeof(*life_page), PROT_READ, MAP_SHARED, life.page_fd, 0);
	assert_ptr_not_equal(life_page, MAP_FAILED);
	must(lifetime());
	for (size_t i = 0; i < ARRAY_LEN(names) * ARRAY_LEN(ways); i++) {
		const char *name = names[i % ARRAY_LEN(names)];
		size_t way = i / ARRAY_LEN(names);

		fake->reset();
		fake->fail_call(name, 1, ways[way].result);
		assert_int_equal(lifetime(), ways[way].code);
		assert_non_null(strstr(error_last(), name));
		assert_int_equal(fake->violations(NULL, 0), 0);
		if (ways[way].code != -ENODEV) /* with the device its memory is gone */
			assert_int_equal(fake->created_bytes() + fake->mapped_bytes(), 0);
	}
	fake->reset();
	(void)munmap(life_page, sizeof(*life_page));
	(void)close(life.page_fd);
	life_page = NULL;
	life = (struct backend_cuda_opts){ 0 };
}

/* Closing makes up for a call that failed: nothing is left. */
static void sweep(unsigned result, int code)
{
	uint64_t total;

	fake = fake_cuda_open();
	own_context();
	fake->reset();
	assert_int_equal(lifetime(), 0);
	total = worked;
	assert_true(total > 40);
	for (uint64_t n = 1; n <= total; n++) {
		int ret;

		fake->reset();
		fake->fail_call(NULL, n, result);
		ret = lifetime();
		if (ret != code)
			fail_msg("call %llu: %d, not %d: %s", (unsigned long long)n, ret, code,
				 error_last());
		assert_int_equal(fake->violations(NULL, 0), 0);
		if (code != -ENODEV) /* with the device its memory is gone */
			assert_int_equal(fake->created_bytes() + fake->mapped_bytes(), 0);
	}
	fake->reset();
}

TEST(calls__each_that_fails_is_typed_and_leaves_nothing)
{
	sweep(CU_UNKNOWN, -EIO);
	sweep(CU_OUT_OF_MEMORY, -ENOMEM);
	sweep(CU_NOT_SUPPORTED, -ENOTSUP);
	sweep(CU_ILLEGAL_ADDRESS, -ENODEV);
}

TEST_WITH(calls__lost_device_stays_lost, begin, NULL)
{
	uint64_t va, seq = 1;

	fake->lose(CU_ECC_UNCORRECTABLE);
	assert_int_equal(dev->ops->reserve(dev, EXTENT, &va), -ENODEV);
	assert_non_null(strstr(error_last(), "the device is lost: restart the process"));
	fake->lose(CU_OK);
	assert_int_equal(dev->ops->reserve(dev, EXTENT, &va), -ENODEV);
	assert_int_equal(dev->ops->stream_progress(dev, 0, &seq),
			 0); /* shared memory, which is not lost */
	assert_int_equal(seq, 0);
	dev->ops->close(dev);
}

TEST_WITH(extent_release__works_on_a_lost_device, begin, NULL)
{
	uint64_t handle, va = mapped(&handle), spare;

	assert_int_equal(dev->ops->extent_create(dev, EXTENT, &spare), 0);
	fake->lose(CU_ECC_UNCORRECTABLE);
	assert_int_equal(dev->ops->unmap(dev, va, EXTENT), -ENODEV);
	assert_int_equal(dev->ops->extent_release(dev, spare), 0);
	assert_int_equal(dev->ops->extent_release(dev, spare), -EINVAL);
	fake->lose(CU_OK); /* so that the next tests find nothing of this one */
	dev->ops->close(dev);
}

TEST(calls__each_failing_allocation_is_enomem)
{
	uint64_t n = 1;

	fake = fake_cuda_open();
	fake->reset();
	for (;; n++) {
		int ret;

		mem_fail_after(n);
		ret = lifetime();
		if (!mem_fail_fired())
			break;
		assert_int_equal(ret, -ENOMEM);
	}
	mem_fail_after(0);
	must(lifetime());
	assert_true(n > 5);
}

int main(void)
{
	if (test_skips_msan("the fake driver"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
