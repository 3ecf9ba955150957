/*
 * probe_share.c - one extent in two processes: aliasing, deaths, events, and hand-over without a call.
 */
#include "bench/gpu/probe.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHARED_BYTES (32 * MIB)

/* Child: takes an extent, says whether it holds 0x5a, fills it with 0xa5, and stays. */
void child_importer(int socket)
{
	struct extent extent;
	char byte;
	int fd = receive_fd(socket, &byte, 1);
	uint64_t began;

	if (!context_open())
		return;
	began = now_ns();
	if (!extent_adopt(&extent, fd, SHARED_BYTES))
		return;
	figure("share_import_and_map", (double)(now_ns() - began) / 1e3, "us");
	(void)close(fd);
	byte = (char)extent_holds(&extent, 0x5a);
	(void)(extent_fill(&extent, 0xa5) && send_bytes(socket, &byte, 1) &&
	       receive_bytes(socket, &byte, 1));
	(void)pause();
}

/* Child: makes an extent of 0x3c and sends it; then spins on the GPU, if told so, until it is killed. */
void child_owner(int socket)
{
	struct extent extent;
	char byte = 0;

	if (!context_open() || !extent_make(&extent, SHARED_BYTES) || !extent_fill(&extent, 0x3c))
		return;
	(void)send_fd(socket, extent_export(&extent), &byte, 1);
	(void)receive_bytes(socket, &byte, 1);
	if (byte)
		(void)spin(stream_make(), 3000000000u);
	(void)pause();
}

static double kill_child(int pid)
{
	uint64_t began = now_ns();
	int status;

	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, &status, 0);
	return (double)(now_ns() - began) / 1e6;
}

static void share_kill_importer(void)
{
	struct extent extent;
	int socket, pid, fd;
	char byte = 0;
	size_t before = 0, after = 0, all;

	if (!extent_make(&extent, SHARED_BYTES) || !extent_fill(&extent, 0x5a))
		return;
	fd = extent_export(&extent);
	pid = child_start("importer", &socket);
	if (send_fd(socket, fd, &byte, 1) && receive_bytes(socket, &byte, 1)) {
		fact("share_importer_sees_bytes", "%s", byte ? "yes" : "no");
		fact("share_owner_sees_bytes", "%s", extent_holds(&extent, 0xa5) ? "yes" : "no");
	}
	(void)cu->mem_info(&before, &all);
	figure("share_kill_importer", kill_child(pid), "ms");
	(void)cu->mem_info(&after, &all);
	figure("share_back_after_kill", ((double)after - (double)before) / (double)MIB, "MiB");
	fact("share_owner_intact_after_kill", "%s",
	     extent_holds(&extent, 0xa5) && extent_fill(&extent, 1) && extent_holds(&extent, 1)
		     ? "yes"
		     : "no");
	(void)close(fd);
	(void)close(socket);
	extent_drop(&extent);
}

static void share_kill_owner(bool in_kernel)
{
	struct extent extent;
	int socket, pid = child_start("owner", &socket), fd;
	char byte = 0;
	char name[64];

	fd = receive_fd(socket, &byte, 1);
	if (fd < 0 || !extent_adopt(&extent, fd, SHARED_BYTES))
		return;
	(void)close(fd);
	byte = in_kernel;
	(void)send_bytes(socket, &byte, 1);
	(void)usleep(200000);
	(void)snprintf(name, sizeof(name), "share_kill_%s_owner", in_kernel ? "busy" : "idle");
	figure(name, kill_child(pid), "ms");
	(void)snprintf(name, sizeof(name), "share_importer_intact_after_%s_owner",
		       in_kernel ? "busy" : "idle");
	fact(name, "%s",
	     extent_holds(&extent, 0x3c) && extent_fill(&extent, 2) && extent_holds(&extent, 2)
		     ? "yes"
		     : "no");
	(void)close(socket);
	extent_drop(&extent);
}

void part_share(void)
{
	static double exports[200];
	struct extent extent;

	share_kill_importer();
	share_kill_owner(false);
	if (!extent_make(&extent, SHARED_BYTES))
		return;
	for (int i = 0; i < 200; i++) {
		uint64_t began = now_ns();
		int fd = extent_export(&extent);

		exports[i] = (double)(now_ns() - began) / 1e3;
		(void)close(fd);
	}
	spread("share_export", exports, 200, "us");
	extent_drop(&extent);
	share_kill_owner(true); /* last: under MPS this context is lost as well */
}

/* Child: opens the event, says what a query before its recording's end gives, and waits for it. */
void child_events(int socket)
{
	struct cu_ipc_event handle;
	struct cu_event *event;
	struct cu_stream *stream;
	int fd = receive_fd(socket, &handle, sizeof(handle));
	volatile uint64_t *page = page_adopt(fd);
	unsigned first;

	if (!page || !context_open() ||
	    !ok("cuIpcOpenEventHandle", cu->event_import(&event, handle)))
		return;
	stream = stream_make();
	page[2] = 1;     /* opened */
	while (!page[0]) /* recorded */
		;
	first = cu->event_query(event);
	fact("events_query_before_end", "%s",
	     first == CU_NOT_READY ? "not ready"
	     : first               ? "error"
				   : "ready");
	(void)ok("cuStreamWaitEvent", cu->stream_wait_event(stream, event, 0));
	while (cu->event_query(event) == CU_NOT_READY)
		;
	page[1] = now_ns();
	(void)ok("cuStreamSynchronize", cu->stream_wait(stream));
	page[3] = now_ns();
	(void)ok("cuEventDestroy", cu->event_destroy(event));
}

void part_events(void)
{
	struct cu_event *event, *own;
	struct cu_ipc_event handle;
	struct cu_stream *stream = stream_make();
	static double query[200];
	int socket, fd, pid;
	volatile uint64_t *page = page_make(&fd);
	uint64_t began, ended;

	if (!page ||
	    !ok("cuEventCreate",
		cu->event_create(&event, CU_EVENT_INTERPROCESS_FLAG | CU_EVENT_NO_TIMING_FLAG)) ||
	    !ok("cuIpcGetEventHandle", cu->event_export(&handle, event)))
		return;
	(void)(spin(stream, 1000) && ok("cuStreamSynchronize", cu->stream_wait(stream)));
	pid = child_start("events", &socket);
	(void)send_fd(socket, fd, &handle, sizeof(handle));
	began = now_ns();
	while (!page[2] && now_ns() - began < 10000000000u)
		;
	(void)(spin(stream, 100000000) && ok("cuEventRecord", cu->event_record(event, stream)));
	page[0] = 1;
	(void)ok("cuStreamSynchronize", cu->stream_wait(stream));
	ended = now_ns();
	child_end(pid);
	figure("events_other_sees_ready_after_end", ((double)page[1] - (double)ended) / 1e3, "us");
	figure("events_other_stream_wakes_after_end", ((double)page[3] - (double)ended) / 1e3,
	       "us");
	(void)ok("cuEventDestroy", cu->event_destroy(event));
	if (!ok("cuEventCreate", cu->event_create(&own, CU_EVENT_NO_TIMING_FLAG)))
		return;
	for (int i = 0; i < 200; i++) {
		began = now_ns();
		(void)ok("cuEventRecord", cu->event_record(own, stream));
		while (cu->event_query(own) == CU_NOT_READY)
			;
		query[i] = (double)(now_ns() - began) / 1e3;
	}
	spread("events_record_to_query", query, 200, "us");
}

/* The first and the last word of the extent are value: 8 bytes by copy. */
static bool ends_hold(const struct extent *extent, uint8_t value, struct cu_stream *stream)
{
	uint8_t ends[2] = { 0, 0 };

	return ok("cuMemcpyAsync", cu->copy((cu_u64)(uintptr_t)&ends[0], extent->at, 1, stream)) &&
	       ok("cuMemcpyAsync", cu->copy((cu_u64)(uintptr_t)&ends[1],
					    extent->at + extent->bytes - 1, 1, stream)) &&
	       ok("cuStreamSynchronize", cu->stream_wait(stream)) && ends[0] == value &&
	       ends[1] == value;
}

#define HANDOVERS 100

struct side {
	struct extent extent;
	struct cu_stream *stream;
	volatile uint64_t *page;
	cu_u64 marks; /* the page, as the GPU sees it */
};

static bool side_open(struct side *side, int page_fd)
{
	side->page = page_adopt(page_fd);
	side->stream = stream_make();
	return side->page &&
	       ok("cuMemHostRegister", cu->host_register((void *)(uintptr_t)side->page, PAGE,
							 CU_HOST_PORTABLE | CU_HOST_DEVICEMAP)) &&
	       ok("cuMemHostGetDevicePointer",
		  cu->host_device_pointer(&side->marks, (void *)(uintptr_t)side->page, 0));
}

static bool wait_word(volatile uint64_t *word, uint64_t value)
{
	uint64_t began = now_ns();

	while (*word < value) {
		if (now_ns() - began > 5000000000u)
			return false;
	}
	return true;
}

/* Our turn: the whole extent becomes value, and our word becomes turn when the GPU has done it. */
static bool turn(struct side *side, int word, uint8_t value, uint64_t number)
{
	return ok("cuMemsetD8Async",
		  cu->fill(side->extent.at, value, side->extent.bytes, side->stream)) &&
	       ok("cuStreamWriteValue64",
		  cu->stream_write(side->stream, side->marks + 8 * (cu_u64)word, number, 0));
}

void child_handover(int socket)
{
	struct side side = { 0 };
	char byte;
	int extent_fd = receive_fd(socket, &byte, 1), page_fd = receive_fd(socket, &byte, 1);
	int wrong = 0;

	if (!context_open() || !side_open(&side, page_fd) ||
	    !extent_adopt(&side.extent, extent_fd, SHARED_BYTES) || !send_bytes(socket, &byte, 1))
		return;
	for (uint64_t i = 1; i <= HANDOVERS && wait_word(&side.page[0], i); i++) {
		if (i % 4 == 0) /* else only the time of the hand-over itself */
			wrong += !ends_hold(&side.extent, (uint8_t)i, side.stream);
		if (!turn(&side, 1, (uint8_t)~i, i))
			return;
	}
	fact("handover_wrong_bytes_in_child", "%d", wrong);
}

void part_handover(void)
{
	static double round_trips[HANDOVERS];
	struct side side = { 0 };
	int socket, page_fd = -1, pid, wrong = 0;
	char byte = 0;
	size_t n = 0;

	if (!page_make(&page_fd) || !side_open(&side, page_fd) ||
	    !extent_make(&side.extent, SHARED_BYTES))
		return;
	pid = child_start("handover", &socket);
	if (!send_fd(socket, extent_export(&side.extent), &byte, 1) ||
	    !send_fd(socket, page_fd, &byte, 1) || !receive_bytes(socket, &byte, 1))
		return;
	for (uint64_t i = 1; i <= HANDOVERS; i++) {
		uint64_t began = now_ns();

		if (!turn(&side, 0, (uint8_t)i, i) || !wait_word(&side.page[1], i))
			break;
		if (i % 4)
			round_trips[n++] = (double)(now_ns() - began) / 1e3;
		wrong += !ends_hold(&side.extent, (uint8_t)~i, side.stream);
	}
	child_end(pid);
	fact("handover_wrong_bytes", "%d", wrong);
	spread("handover_round_trip_two_fills_of_32mib", round_trips, n, "us");
}
