/*
 * device/backend.h over every backend: host memory, CUDA over the fake driver with each kind of marks,
 * and CUDA over the machine's own driver if RLV_TEST_GPU is set. Bytes are seen through copies, as no CPU
 * can touch the memory of a real device.
 */
#include "tests/support/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "base/power.h"
#include "device/host/backend_host.h"
#include "device/cuda/backend_cuda.h"
#include "tests/support/fake/fake_cuda.h"

static struct backend *dev;
static uint64_t extent;               /* bytes of one, for this backend */
static uint64_t marks;                /* of stream_done: they rise over all streams */
static struct backend_progress *page; /* of a backend that was given one */

static int open_host(struct backend **backend_out)
{
	static const struct backend_host_opts opts = { .device_bytes = 8 << 20,
						       .bytes_per_us = 1 << 20 };

	return backend_host_open(&opts, backend_out);
}

static int open_cuda(struct backend **backend_out)
{
	return backend_cuda_open(&(struct backend_cuda_opts){ 0 }, backend_out);
}

static int open_cuda_events(struct backend **backend_out)
{
	return backend_cuda_open(&(struct backend_cuda_opts){ .events = true }, backend_out);
}

/* As a job of a broker, whose page is there before the device is open. */
static int open_cuda_shared(struct backend **backend_out)
{
	struct backend_cuda_opts opts = { .events = true };
	struct backend *host;
	int ret = open_host(&host);

	if (ret)
		return ret;
	ret = host->ops->progress_export(host, &opts.page_fd);
	host->ops->close(host);
	if (ret)
		return ret;
	ret = backend_cuda_open(&opts, backend_out);
	page = mmap(NULL, sizeof(*page), PROT_READ, MAP_SHARED, opts.page_fd, 0);
	assert_ptr_not_equal(page, MAP_FAILED);
	(void)close(opts.page_fd);
	return ret;
}

static const struct subject {
	const char *name;
	int (*open)(struct backend **backend_out);
	bool fake;
} subjects[] = {
	{ "host", open_host, false },
	{ "cuda, fake driver", open_cuda, true },
	{ "cuda with events, fake driver", open_cuda_events, true },
	{ "cuda with shared events, fake driver", open_cuda_shared, true },
	{ "cuda", open_cuda, false },
	{ "cuda with events", open_cuda_events, false },
	{ "cuda with shared events", open_cuda_shared, false },
};
static const struct subject *subject;

static int begin(void **state)
{
	struct backend_info info;

	(void)state;
	assert_int_equal(subject->open(&dev), 0);
	dev->ops->info(dev, &info);
	extent = info.granularity;
	marks = 0;
	return 0;
}

static int end(void **state)
{
	(void)state;
	dev->ops->close(dev);
	if (page)
		(void)munmap(page, sizeof(*page));
	page = NULL;
	return 0;
}

static uint32_t stream_make(void)
{
	uint32_t stream;

	assert_int_equal(dev->ops->stream_open(dev, NULL, &stream), 0);
	return stream;
}

/* Until the stream's work so far is done. */
static void stream_done(uint32_t stream)
{
	uint64_t seq = 0, deadline = deadline_after(clock_monotonic(), 10 * CLOCK_NS_PER_S);

	assert_int_equal(dev->ops->stream_mark(dev, stream, ++marks), 0);
	while (seq < marks) {
		if (subject->open == open_host)
			backend_host_advance(dev, 1000000);
		assert_int_equal(dev->ops->stream_progress(dev, stream, &seq), 0);
		assert_true(clock_now_ns(clock_monotonic()) < deadline);
	}
	assert_int_equal(seq, marks);
}

static uint64_t mapped(uint64_t *handle_out)
{
	uint64_t va;

	assert_int_equal(dev->ops->reserve(dev, 2 * extent, &va), 0);
	assert_int_equal(dev->ops->extent_create(dev, extent, handle_out), 0);
	assert_int_equal(dev->ops->map(dev, va, extent, *handle_out), 0);
	assert_int_equal(dev->ops->set_access(dev, va, extent, BACKEND_ACCESS_READ_WRITE), 0);
	return va;
}

static void bytes_are(uint32_t stream, uint64_t va, const char *expected, size_t n)
{
	char seen[64] = "";
	const struct backend_copy copy = { (uint64_t)(uintptr_t)seen, va, n };

	assert_int_equal(dev->ops->copy_batch(dev, stream, &copy, 1), 0);
	stream_done(stream);
	assert_memory_equal(seen, expected, n);
}

TEST_WITH(map__pairs_are_enforced, begin, end)
{
	uint64_t handle, other, va = mapped(&handle);

	assert_int_equal(dev->ops->map(dev, va, extent, handle), -EBUSY);
	assert_int_equal(dev->ops->map(dev, va + 2 * extent, extent, handle), -EINVAL);
	assert_int_equal(dev->ops->map(dev, va + extent, extent, handle + 1), -EINVAL);
	assert_int_equal(dev->ops->map(dev, va + extent, 2 * extent, handle), -EINVAL);
	assert_int_equal(dev->ops->extent_release(dev, handle), -EBUSY);
	assert_int_equal(dev->ops->unreserve(dev, va, 2 * extent), -EBUSY);
	assert_int_equal(dev->ops->unreserve(dev, va, extent), -EINVAL);
	assert_int_equal(dev->ops->unmap(dev, va, extent / 2), -EINVAL);
	assert_int_equal(dev->ops->unmap(dev, va + extent, extent), -EINVAL);
	assert_int_equal(dev->ops->set_access(dev, va, 2 * extent, BACKEND_ACCESS_READ_WRITE),
			 -EINVAL);
	assert_int_equal(dev->ops->extent_create(dev, extent, &other), 0);
	assert_int_equal(dev->ops->map(dev, va + extent, extent, other), 0);
	assert_int_equal(dev->ops->set_access(dev, va, 2 * extent, BACKEND_ACCESS_READ_WRITE), 0);
	assert_int_equal(dev->ops->unmap(dev, va, 2 * extent), 0);
	assert_int_equal(dev->ops->unmap(dev, va, extent), -EINVAL);
	assert_int_equal(dev->ops->extent_release(dev, handle), 0);
	assert_int_equal(dev->ops->extent_release(dev, handle), -EINVAL);
	assert_int_equal(dev->ops->unreserve(dev, va, 2 * extent), 0);
	assert_int_equal(dev->ops->reserve(dev, extent + 1, &va), -EINVAL);
	assert_int_equal(dev->ops->extent_create(dev, extent / 2, &handle), -EINVAL);
}

TEST_WITH(extent_import__aliases_the_bytes_and_outlives_its_maker, begin, end)
{
	struct backend *maker = dev;
	uint64_t handle, imported, va = mapped(&handle), other;
	uint32_t stream = stream_make();
	int fd;

	assert_int_equal(dev->ops->fill(dev, stream, va, extent, 'm'), 0);
	stream_done(stream);
	assert_int_equal(dev->ops->extent_export(dev, handle, &fd), 0);
	begin(NULL);
	assert_int_equal(dev->ops->extent_import(dev, fd, extent, &imported), 0);
	(void)close(fd);
	maker->ops->close(maker);
	stream = stream_make();
	assert_int_equal(dev->ops->reserve(dev, extent, &other), 0);
	assert_int_equal(dev->ops->map(dev, other, extent, imported), 0);
	assert_int_equal(dev->ops->set_access(dev, other, extent, BACKEND_ACCESS_READ_WRITE), 0);
	bytes_are(stream, other + extent - 3, "mmm", 3);
}

/* What a second mapping of one extent writes, the first one sees. */
TEST_WITH(map__one_extent_at_two_places, begin, end)
{
	uint64_t handle, va = mapped(&handle);
	uint32_t stream = stream_make();

	assert_int_equal(dev->ops->map(dev, va + extent, extent, handle), 0);
	assert_int_equal(dev->ops->set_access(dev, va + extent, extent, BACKEND_ACCESS_READ_WRITE),
			 0);
	assert_int_equal(dev->ops->fill(dev, stream, va + extent, 4, 't'), 0);
	bytes_are(stream, va, "tttt", 4);
	assert_int_equal(dev->ops->unmap(dev, va, extent), 0);
	assert_int_equal(dev->ops->extent_release(dev, handle), -EBUSY);
}

TEST_WITH(stream_mark__rises_and_is_reached, begin, end)
{
	uint32_t stream = stream_make();
	uint64_t seq = 1;

	assert_int_equal(dev->ops->stream_progress(dev, stream, &seq), 0);
	assert_int_equal(seq, 0);
	for (int i = 0; i < 200; i++) /* more than a backend may have outstanding */
		assert_int_equal(dev->ops->stream_mark(dev, stream, ++marks), 0);
	assert_int_equal(dev->ops->stream_mark(dev, stream, marks), -EINVAL);
	stream_done(stream);
	assert_int_equal(dev->ops->stream_close(dev, stream), 0);
	assert_int_equal(dev->ops->stream_mark(dev, stream, marks + 1), -EINVAL);
	assert_int_equal(stream_make(), stream);
	assert_int_equal(dev->ops->stream_mark(dev, stream, marks), -EINVAL); /* they go on */
	stream_done(stream);
}

TEST_WITH(progress_export__another_mapping_sees_the_marks, begin, end)
{
	uint32_t stream = stream_make();
	struct backend_info info;
	volatile uint64_t *words;
	int fd, ret = dev->ops->progress_export(dev, &fd);

	dev->ops->info(dev, &info);
	if (!(info.caps & BACKEND_PROGRESS_PAGE)) {
		assert_int_equal(ret, -ENOTSUP);
		return;
	}
	assert_int_equal(ret, 0);
	words = mmap(NULL, BACKEND_STREAMS * sizeof(*words), PROT_READ, MAP_SHARED, fd, 0);
	(void)close(fd);
	assert_ptr_not_equal(words, MAP_FAILED);
	marks = 41;
	stream_done(stream);
	assert_int_equal(words[stream], 42);
	(void)munmap((void *)(uintptr_t)words, BACKEND_STREAMS * sizeof(*words));
}

/* The driver opens an event in other processes alone; so does the fake, but it does not look. */
TEST_WITH(event_ask__another_process_sees_the_last_mark, begin, end)
{
	uint8_t nothing[BACKEND_EVENT_BYTES] = "nothing";
	uint32_t stream = stream_make();

	assert_true(dev->ops->event_ask(dev, nothing) < 0);
	stream_done(stream);
	if (!page)
		return;
	assert_int_equal(page->events[stream].made, 1);
	assert_int_equal(page->events[stream + 1].made, 0);
	if (subject->fake)
		assert_int_equal(dev->ops->event_ask(dev, page->events[stream].handle), 0);
	assert_int_equal(page->reached[stream], marks);
}

TEST_WITH(host_register__memory_takes_part_in_copies, begin, end)
{
	uint32_t stream = stream_make();
	uint64_t handle, va = mapped(&handle);
	uint8_t *pages = aligned_alloc(4096, 8192);
	struct backend_copy in, back;

	assert_non_null(pages);
	memset(pages, 5, 4096);
	assert_int_equal(dev->ops->host_register(dev, pages, 8192), 0);
	assert_int_equal(dev->ops->host_register(dev, NULL, 8192), -EINVAL);
	in = (struct backend_copy){ va, (uint64_t)(uintptr_t)pages, 4096 };
	back = (struct backend_copy){ (uint64_t)(uintptr_t)pages + 4096, va, 4096 };
	assert_int_equal(dev->ops->copy_batch(dev, stream, &in, 1), 0);
	assert_int_equal(dev->ops->copy_batch(dev, stream, &back, 1), 0);
	stream_done(stream);
	assert_int_equal(pages[4096 + 7], 5);
	assert_int_equal(dev->ops->host_unregister(dev, pages), 0);
	free(pages);
	assert_int_equal(dev->ops->stream_close(dev, stream), 0);
}

/* Memory that this process may only read, as a learner has the rows of a table. */
static uint8_t *pages_to_read(size_t bytes)
{
	int fd = memfd_create("rows", MFD_CLOEXEC);
	uint8_t text[8192];
	void *map;

	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (uint8_t)(i * 7 + i / 251);
	assert_true(fd >= 0 && bytes <= sizeof(text));
	assert_int_equal(write(fd, text, bytes), (ssize_t)bytes);
	map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	(void)close(fd);
	assert_ptr_not_equal(map, MAP_FAILED);
	return map;
}

TEST_WITH(gather__copies_rows_of_memory_that_is_shared, begin, end)
{
	enum { N = 50, BYTES = 80, TO = 4096 };
	uint32_t stream = stream_make();
	uint64_t handle, va = mapped(&handle);
	uint8_t *from = pages_to_read(8192), seen[N * BYTES];
	struct backend_row rows[N];
	struct backend_gather work = { .to = va + TO, .rows = va, .n = N, .bytes = BYTES };
	struct backend_copy in = { va, (uint64_t)(uintptr_t)rows, sizeof(rows) };
	struct backend_copy out = { (uint64_t)(uintptr_t)seen, va + TO, sizeof(seen) };

	if (dev->ops->gather(dev, stream, &(struct backend_gather){ 0 }) == -ENOTSUP) {
		assert_string_equal(subject->name, "host");
		return;
	}
	assert_int_equal(dev->ops->host_share(dev, from, 8192, &work.from), 0);
	for (uint64_t i = 0; i < N; i++) {
		rows[i] = (struct backend_row){ i * 136 % 8112, (N - 1 - i) * BYTES };
		work.places |= rows[i].from | rows[i].to;
	}
	assert_int_equal(dev->ops->copy_batch(dev, stream, &in, 1), 0);
	assert_int_equal(dev->ops->gather(dev, stream, &work), 0);
	assert_int_equal(dev->ops->copy_batch(dev, stream, &out, 1), 0);
	stream_done(stream);
	for (uint64_t i = 0; i < N; i++)
		assert_memory_equal(seen + rows[i].to, from + rows[i].from, BYTES);
	assert_int_equal(dev->ops->gather(dev, BACKEND_STREAMS, &work), -EINVAL);
	assert_int_equal(dev->ops->host_unregister(dev, from), 0);
	(void)munmap(from, 8192);
}

TEST_WITH(graph__runs_what_was_recorded_over_the_bytes_of_then, begin, end)
{
	uint64_t handle, va = mapped(&handle), graph = 0, none = 0;
	uint32_t stream = stream_make();
	static uint64_t from, to;
	struct backend_copy in = { va + 64, (uint64_t)(uintptr_t)&from, 8 };
	struct backend_copy out = { (uint64_t)(uintptr_t)&to, va + 64, 8 };

	if (dev->ops->graph_launch(dev, stream, 0) == -ENOTSUP) {
		assert_string_equal(subject->name, "host");
		return;
	}
	from = to = 1;
	assert_int_equal(dev->ops->graph_begin(dev, stream), 0);
	assert_int_equal(dev->ops->copy_batch(dev, stream, &in, 1), 0);
	assert_int_equal(dev->ops->copy_batch(dev, stream, &out, 1), 0);
	assert_int_equal(dev->ops->graph_end(dev, stream, &graph), 0);
	to = 0;
	stream_done(stream);
	assert_int_equal(to, 0); /* recorded, not run */
	for (from = 7; from < 10; from++) {
		assert_int_equal(dev->ops->graph_launch(dev, stream, graph), 0);
		stream_done(stream);
		assert_int_equal(to, from);
	}
	assert_int_equal(dev->ops->graph_begin(dev, stream), 0);
	assert_int_equal(dev->ops->graph_end(dev, stream, NULL), 0); /* forgotten */
	assert_int_equal(dev->ops->graph_launch(dev, stream, graph + 1), -EINVAL);
	assert_int_equal(dev->ops->graph_drop(dev, graph), 0);
	assert_int_equal(dev->ops->graph_drop(dev, graph), -EINVAL);
	assert_int_equal(dev->ops->graph_drop(dev, none), 0);
	assert_int_equal(dev->ops->graph_begin(dev, BACKEND_STREAMS), -EINVAL);
}

TEST_WITH(weigh__has_the_probabilities_that_a_copy_brings, begin, end)
{
	enum { N = 100, TO = 4096 };
	uint32_t stream = stream_make();
	uint64_t handle, va = mapped(&handle), graph = 0;
	static double probability[N];
	static float seen[N];
	struct backend_weights work = { va + TO, va, N, 1 << 20, -0.4 };
	struct backend_copy in = { va, (uint64_t)(uintptr_t)probability, sizeof(probability) };
	struct backend_copy out = { (uint64_t)(uintptr_t)seen, va + TO, sizeof(seen) };

	if (dev->ops->weigh(dev, stream, &work) == -ENOTSUP) {
		assert_string_equal(subject->name, "host");
		return;
	}
	assert_int_equal(dev->ops->graph_begin(dev, stream), 0);
	assert_int_equal(dev->ops->copy_batch(dev, stream, &in, 1), 0);
	assert_int_equal(dev->ops->weigh(dev, stream, &work), 0);
	assert_int_equal(dev->ops->copy_batch(dev, stream, &out, 1), 0);
	assert_int_equal(dev->ops->graph_end(dev, stream, &graph), 0);
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < N; i++)
			probability[i] = (i + 1) * 0x1p-17 / (round + 1);
		if (round < 2) {
			assert_int_equal(dev->ops->copy_batch(dev, stream, &in, 1), 0);
			assert_int_equal(dev->ops->weigh(dev, stream, &work), 0);
			assert_int_equal(dev->ops->copy_batch(dev, stream, &out, 1), 0);
		} else {
			assert_int_equal(dev->ops->graph_launch(dev, stream, graph), 0);
		}
		stream_done(stream);
		for (int i = 0; i < N; i++)
			assert_true(seen[i] ==
				    (float)power_of(probability[i] * work.factor, work.power));
	}
	assert_int_equal(dev->ops->graph_drop(dev, graph), 0);
	work.n = 0;
	assert_int_equal(dev->ops->weigh(dev, stream, &work), 0);
	assert_int_equal(dev->ops->weigh(dev, BACKEND_STREAMS, &work), -EINVAL);
}

TEST_WITH(copy_batch__copies_to_and_from_the_host, begin, end)
{
	enum { N = 300 }; /* more than one call of a driver takes */
	uint64_t handle, va = mapped(&handle);
	uint32_t stream = stream_make();
	static char from[N * 8], to[N * 8];
	struct backend_copy in[N], back[N];

	for (uint64_t i = 0; i < N; i++) {
		(void)snprintf(from + i * 8, 8, "%07d", (int)i);
		in[i] = (struct backend_copy){ va + (N - 1 - i) * 8,
					       (uint64_t)(uintptr_t)from + i * 8, 8 };
		back[i] = (struct backend_copy){ (uint64_t)(uintptr_t)to + i * 8,
						 va + (N - 1 - i) * 8, 8 };
	}
	assert_int_equal(dev->ops->copy_batch(dev, stream, in, N), 0);
	assert_int_equal(dev->ops->copy_batch(dev, stream, back, N), 0);
	stream_done(stream);
	assert_memory_equal(to, from, sizeof(to));
	assert_int_equal(dev->ops->copy_batch(dev, stream, in, 0), 0);
	assert_int_equal(dev->ops->copy_batch(dev, BACKEND_STREAMS, in, 1), -EINVAL);
}

TEST_WITH(stream_open__all_places_taken, begin, end)
{
	uint32_t stream;

	for (int i = 0; i < BACKEND_STREAMS; i++)
		(void)stream_make();
	assert_int_equal(dev->ops->stream_open(dev, NULL, &stream), -ENOSPC);
	assert_int_equal(dev->ops->stream_close(dev, BACKEND_STREAMS), -EINVAL);
}

TEST_WITH(dmabuf_export__gives_a_file_or_says_why_not, begin, end)
{
	struct backend_info info;
	uint64_t handle, va = mapped(&handle), off = 1;
	int fd = -1, ret = dev->ops->dmabuf_export(dev, va, extent, &fd, &off);

	dev->ops->info(dev, &info);
	assert_int_equal(ret, info.caps & BACKEND_EXPORTS_DMABUF ? 0 : -ENOTSUP);
	if (ret)
		return;
	assert_int_equal(off, 0);
	assert_int_equal(lseek(fd, 0, SEEK_END), (off_t)extent);
	(void)close(fd);
}

TEST_WITH(calls__forked_child_is_echild, begin, end)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		uint64_t va;

		_exit(dev->ops->reserve(dev, extent, &va) == -ECHILD ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* One driver for a process: the fake one, or with RLV_TEST_GPU the machine's. */
int main(void)
{
	bool gpu = getenv("RLV_TEST_GPU") != NULL;
	int failed = 0;

	if (!gpu)
		(void)fake_cuda_open();
	for (size_t i = 0; i < sizeof(subjects) / sizeof(subjects[0]); i++) {
		subject = &subjects[i];
		if (subject->open != open_host && subject->fake == gpu)
			continue;
		print_message("backend: %s\n", subject->name);
		failed += test_run(NULL, NULL);
	}
	return failed;
}
