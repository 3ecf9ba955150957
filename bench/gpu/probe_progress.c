/*
 * probe_progress.c - marks that the GPU writes to a page of a memfd, as another process sees them.
 */
#include "bench/gpu/probe.h"

#include <stdio.h>
#include <unistd.h>

#define MARKS 2000
#define STOP UINT64_MAX

/* Child without a context: word 2 gets the time, then word 1 the value, of each change of word 0. */
void child_watcher(int socket)
{
	char byte;
	volatile uint64_t *page = page_adopt(receive_fd(socket, &byte, 1));
	uint64_t last = 0;

	if (!page || !send_bytes(socket, &byte, 1))
		return;
	while (last != STOP) {
		uint64_t value = __atomic_load_n(&page[0], __ATOMIC_ACQUIRE);

		if (value != last) {
			page[2] = now_ns();
			__atomic_store_n(&page[1], value, __ATOMIC_RELEASE);
			last = value;
		}
	}
}

static bool await(volatile uint64_t *word, uint64_t value)
{
	uint64_t began = now_ns();

	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value) {
		if (now_ns() - began > 2000000000u)
			return false;
	}
	return true;
}

static void marks_timed(volatile uint64_t *page, cu_u64 at, struct cu_stream *stream)
{
	static double seen[MARKS], call[MARKS];
	size_t n = 0;

	for (uint64_t i = 1; i <= MARKS; i++) {
		uint64_t began = now_ns();

		if (!ok("cuStreamWriteValue64", cu->stream_write(stream, at, i, 0)))
			return;
		call[n] = (double)(now_ns() - began) / 1e3;
		if (!await(&page[1], i)) {
			printf("failed progress: no other process saw mark %llu\n",
			       (unsigned long long)i);
			return;
		}
		seen[n++] = (double)(page[2] - began) / 1e3;
	}
	spread("progress_call", call, n, "us");
	spread("progress_seen_by_other_process", seen, n, "us");
}

/* A mark behind a kernel of 2 ms is seen after it, not before. */
static void mark_behind_kernel(volatile uint64_t *page, cu_u64 at, struct cu_stream *stream)
{
	static double late[50];

	for (int i = 0; i < 50; i++) {
		uint64_t began = now_ns();

		if (!spin(stream, 2000000) ||
		    !ok("cuStreamWriteValue64",
			cu->stream_write(stream, at, 10000 + (uint64_t)i, 0)) ||
		    !await(&page[1], 10000 + (uint64_t)i))
			return;
		late[i] = (double)(page[2] - began) / 1e3;
	}
	spread("progress_behind_kernel_of_2000us", late, 50, "us");
}

/* Marks in a captured graph: the value is the graph's, so each replay writes the same. */
static void mark_captured(volatile uint64_t *page, cu_u64 at, struct cu_stream *stream)
{
	struct cu_graph *graph = NULL;
	struct cu_graph_exec *exec = NULL;
	unsigned result;
	const char *text = NULL;

	if (!ok("cuStreamBeginCapture", cu->capture_begin(stream, CU_CAPTURE_RELAXED)))
		return;
	result = cu->stream_write(stream, at, 77777, 0);
	(void)cu->error_name(result, &text);
	fact("progress_mark_under_capture", "%s", text ? text : "?");
	if (!ok("cuStreamEndCapture", cu->capture_end(stream, &graph)) || result ||
	    !ok("cuGraphInstantiate", cu->graph_instantiate(&exec, graph, 0)))
		return;
	for (int i = 0; i < 3; i++) {
		if (!ok("cuStreamWriteValue64", cu->stream_write(stream, at, 5, 0)) ||
		    !await(&page[1], 5) || !ok("cuGraphLaunch", cu->graph_launch(exec, stream)))
			return;
		fact("progress_graph_mark_seen", "%s", await(&page[1], 77777) ? "yes" : "no");
	}
	(void)ok("cuGraphExecDestroy", cu->graph_exec_destroy(exec));
	(void)ok("cuGraphDestroy", cu->graph_destroy(graph));
}

static void mark_batches(cu_u64 at, struct cu_stream *stream)
{
	uint64_t began = now_ns();

	for (uint64_t i = 0; i < 10000; i++) {
		if (!ok("cuStreamWriteValue64", cu->stream_write(stream, at + 64, i, 0)))
			return;
	}
	(void)ok("cuStreamSynchronize", cu->stream_wait(stream));
	figure("progress_marks_back_to_back", (double)(now_ns() - began) / 1e3 / 10000, "us");
}

void part_progress(void)
{
	struct cu_stream *stream = stream_make();
	int fd = -1, socket, pid;
	volatile uint64_t *page = page_make(&fd);
	cu_u64 at = 0;
	char byte = 0;
	uint64_t began = now_ns();

	if (!page ||
	    !ok("cuMemHostRegister", cu->host_register((void *)(uintptr_t)page, PAGE,
						       CU_HOST_PORTABLE | CU_HOST_DEVICEMAP)))
		return;
	figure("progress_register_page", (double)(now_ns() - began) / 1e3, "us");
	if (!ok("cuMemHostGetDevicePointer",
		cu->host_device_pointer(&at, (void *)(uintptr_t)page, 0)))
		return;
	fact("progress_same_address_on_device", "%s", at == (cu_u64)(uintptr_t)page ? "yes" : "no");
	pid = child_start("watcher", &socket);
	if (!send_fd(socket, fd, &byte, 1) || !receive_bytes(socket, &byte, 1))
		return;
	if (cu->stream_write) {
		(void)spin(stream, 1000);
		marks_timed(page, at, stream);
		mark_behind_kernel(page, at, stream);
		if (cu->capture_begin)
			mark_captured(page, at, stream);
		mark_batches(at, stream);
	}
	page[0] = STOP;
	child_end(pid);
}
