/*
 * probe_memory.c - attributes, a context's bytes, the cost of extents, and what unmapping stalls.
 */
#include "bench/gpu/probe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void missing_calls(void)
{
	const struct {
		const char *name;
		bool there;
	} calls[] = {
#define CALL_THERE(member, name, since, required, arguments) { #name, cu->member != NULL },
		CUDA_CALLS(CALL_THERE)
#undef CALL_THERE
	};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		if (!calls[i].there)
			fact("missing_call", "%s", calls[i].name);
	}
}

void part_attributes(void)
{
	static const struct {
		unsigned attribute;
		const char *name;
	} attributes[] = {
		{ CU_ATTR_VMM, "attr_102_vmm" },
		{ CU_ATTR_POSIX_FD, "attr_103_posix_fd" },
		{ CU_ATTR_GDR_WITH_VMM, "attr_110_gdr_with_vmm" },
		{ CU_ATTR_GDR, "attr_116_gdr" },
		{ CU_ATTR_GDR_FLUSH_OPTIONS, "attr_117_flush_options" },
		{ CU_ATTR_GDR_WRITES_ORDERING, "attr_118_writes_ordering" },
		{ CU_ATTR_STREAM_MEM_OPS_64, "attr_122_mem_ops_64" },
		{ CU_ATTR_STREAM_WAIT_NOR, "attr_123_wait_nor" },
		{ CU_ATTR_DMA_BUF, "attr_124_dma_buf" },
		{ CU_ATTR_IPC_EVENTS, "attr_125_ipc_events" },
	};
	struct cu_mem_prop prop = extent_prop(false);
	char name[128] = "";
	int version = 0, value;
	size_t bytes = 0, all = 0;

	(void)ok("cuDriverGetVersion", cu->driver_version(&version));
	(void)ok("cuDeviceGetName", cu->device_name(name, sizeof(name), probe_device));
	fact("device", "%s", name);
	fact("driver_cuda", "%d", version);
	for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
		value = -1;
		(void)ok(attributes[i].name,
			 cu->device_attribute(&value, attributes[i].attribute, probe_device));
		fact(attributes[i].name, "%d", value);
	}
	if (ok("cuMemGetAllocationGranularity", cu->mem_granularity(&bytes, &prop, 0)))
		fact("granularity_minimum", "%zu", bytes);
	if (ok("cuMemGetAllocationGranularity", cu->mem_granularity(&bytes, &prop, 1)))
		fact("granularity_recommended", "%zu", bytes);
	if (ok("cuMemGetInfo", cu->mem_info(&bytes, &all)))
		fact("memory", "free %zu of %zu MiB", bytes / MIB, all / MIB);
	missing_calls();
}

static double free_mib(void)
{
	size_t bytes = 0, all = 0;

	(void)ok("cuMemGetInfo", cu->mem_info(&bytes, &all));
	return (double)bytes / (double)MIB;
}

/* Child: a context, then a kernel in a stream; each time it says so and waits for an answer. */
void child_context(int socket)
{
	char byte = 0;
	uint64_t began = now_ns();

	if (!context_open())
		return;
	figure("context_create", (double)(now_ns() - began) / 1e6, "ms");
	(void)(send_bytes(socket, &byte, 1) && receive_bytes(socket, &byte, 1));
	(void)(spin(stream_make(), 1000) && ok("cuCtxSynchronize", cu->context_wait()));
	(void)(send_bytes(socket, &byte, 1) && receive_bytes(socket, &byte, 1));
}

void part_context(void)
{
	double before = free_mib();

	for (int i = 0; i < 3; i++) {
		int socket, pid = child_start("context", &socket);
		char byte = 0;

		if (receive_bytes(socket, &byte, 1))
			figure("context_bytes", before - free_mib(), "MiB");
		(void)send_bytes(socket, &byte, 1);
		if (receive_bytes(socket, &byte, 1))
			figure("context_and_kernel_bytes", before - free_mib(), "MiB");
		(void)send_bytes(socket, &byte, 1);
		(void)close(socket);
		child_end(pid);
	}
	figure("context_left_behind", before - free_mib(), "MiB");
}

#define HANDLES_MOST 64
#define ROUNDS 5

struct times {
	double create[HANDLES_MOST * ROUNDS], map[HANDLES_MOST * ROUNDS],
		access[HANDLES_MOST * ROUNDS];
	double unmap[HANDLES_MOST * ROUNDS], release[HANDLES_MOST * ROUNDS];
	double access_all[ROUNDS], unmap_all[ROUNDS];
	size_t n;
};

static bool timed(double *us, const char *call, unsigned (*fn)(void *), void *ctx)
{
	uint64_t began = now_ns();
	unsigned result = fn(ctx);

	*us = (double)(now_ns() - began) / 1e3;
	return ok(call, result);
}

struct step {
	cu_u64 at, handle;
	size_t bytes;
	struct cu_mem_prop prop;
	struct cu_mem_access access;
};

static unsigned do_create(void *ctx)
{
	struct step *s = ctx;

	return cu->mem_create(&s->handle, s->bytes, &s->prop, 0);
}

static unsigned do_map(void *ctx)
{
	struct step *s = ctx;

	return cu->mem_map(s->at, s->bytes, 0, s->handle, 0);
}

static unsigned do_access(void *ctx)
{
	struct step *s = ctx;

	return cu->mem_set_access(s->at, s->bytes, &s->access, 1);
}

static unsigned do_unmap(void *ctx)
{
	struct step *s = ctx;

	return cu->mem_unmap(s->at, s->bytes);
}

static unsigned do_release(void *ctx)
{
	struct step *s = ctx;

	return cu->mem_release(s->handle);
}

static struct step step_of(cu_u64 at, size_t bytes)
{
	return (struct step){ .at = at,
			      .bytes = bytes,
			      .prop = extent_prop(false),
			      .access = { { CU_LOCATION_DEVICE, probe_device },
					  CU_ACCESS_READWRITE } };
}

/* One round: n extents of these bytes made, mapped one by one, unmapped, mapped and unmapped in one. */
static bool vmm_round(struct times *t, cu_u64 base, size_t bytes, size_t n, int round)
{
	struct step steps[HANDLES_MOST], all = step_of(base, n * bytes);
	size_t at = t->n;
	bool good = true;

	for (size_t i = 0; i < n; i++)
		steps[i] = step_of(base + i * bytes, bytes);
	for (size_t i = 0; good && i < n; i++)
		good = timed(&t->create[at + i], "cuMemCreate", do_create, &steps[i]);
	for (size_t i = 0; good && i < n; i++)
		good = timed(&t->map[at + i], "cuMemMap", do_map, &steps[i]);
	for (size_t i = 0; good && i < n; i++)
		good = timed(&t->access[at + i], "cuMemSetAccess", do_access, &steps[i]);
	for (size_t i = 0; good && i < n; i++)
		good = timed(&t->unmap[at + i], "cuMemUnmap", do_unmap, &steps[i]);
	for (size_t i = 0; good && i < n; i++)
		good = ok("cuMemMap", do_map(&steps[i]));
	good = good && timed(&t->access_all[round], "cuMemSetAccess", do_access, &all) &&
	       timed(&t->unmap_all[round], "cuMemUnmap", do_unmap, &all);
	for (size_t i = 0; good && i < n; i++)
		good = timed(&t->release[at + i], "cuMemRelease", do_release, &steps[i]);
	t->n += n;
	return good;
}

static void vmm_size(size_t mib, size_t n)
{
	struct times *t = calloc(1, sizeof(*t));
	cu_u64 base = 0;
	size_t bytes = mib * MIB;
	bool good = t && ok("cuMemAddressReserve", cu->mem_reserve(&base, n * bytes, 0, 0, 0));
	char name[64];

	for (int round = 0; good && round < ROUNDS; round++)
		good = vmm_round(t, base, bytes, n, round);
	if (good) {
#define SPREAD(what, count) \
	((void)snprintf(name, sizeof(name), "vmm_%zumib_" #what, mib), \
	 spread(name, t->what, count, "us"))
		SPREAD(create, t->n);
		SPREAD(map, t->n);
		SPREAD(access, t->n);
		SPREAD(unmap, t->n);
		SPREAD(release, t->n);
		(void)snprintf(name, sizeof(name), "vmm_%zumib_access_%zu_at_once", mib, n);
		spread(name, t->access_all, ROUNDS, "us");
		(void)snprintf(name, sizeof(name), "vmm_%zumib_unmap_%zu_at_once", mib, n);
		spread(name, t->unmap_all, ROUNDS, "us");
#undef SPREAD
	}
	if (base)
		(void)ok("cuMemAddressFree", cu->mem_unreserve(base, n * bytes));
	free(t);
}

/* Which kinds of access a device takes. */
static void vmm_access(void)
{
	static const struct {
		const char *name;
		unsigned flags;
	} kinds[] = { { "vmm_access_read", CU_ACCESS_READ },
		      { "vmm_access_none", CU_ACCESS_NONE } };
	struct extent extent;

	if (!extent_make(&extent, 2 * MIB))
		return;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct step step = step_of(extent.at, extent.bytes);
		const char *text = NULL;

		step.access.flags = kinds[i].flags;
		(void)cu->error_name(do_access(&step), &text);
		fact(kinds[i].name, "%s", text ? text : "?");
	}
	extent_drop(&extent);
}

void part_vmm(void)
{
	vmm_access();
	vmm_size(2, 64);
	vmm_size(8, 64);
	vmm_size(32, 32);
	vmm_size(128, 16);
}

/* A kernel that runs for ns in its stream: the longest step it took, and how many. */
static bool gap_start(struct cu_stream *stream, uint64_t ns, cu_u64 out, cu_u64 memory)
{
	static struct cu_function *function;
	void *args[] = { &ns, &out, &memory };

	if (!function)
		function = kernel("probe_gap");
	return function &&
	       ok("cuLaunchKernel", cu->launch(function, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

static void gap_report(const char *name, struct cu_stream *stream, cu_u64 out)
{
	uint64_t seen[2] = { 0 };
	char text[64];

	(void)(ok("cuStreamSynchronize", cu->stream_wait(stream)) &&
	       ok("cuMemcpyAsync", cu->copy((cu_u64)(uintptr_t)seen, out, sizeof(seen), stream)) &&
	       ok("cuStreamSynchronize", cu->stream_wait(stream)));
	(void)snprintf(text, sizeof(text), "stall_%s_longest_step", name);
	figure(text, (double)seen[0], "cycles");
	(void)snprintf(text, sizeof(text), "stall_%s_steps", name);
	figure(text, (double)seen[1], "steps");
}

#define STALL_NS 200000000u
#define STALL_CALLS 4000
#define HELD_BYTES (256 * MIB)

/* Maps and unmaps an extent all the time while the kernel runs, and times the calls. */
static void stall_calls(const struct extent *other, struct cu_stream *stream)
{
	static double map[STALL_CALLS], access[STALL_CALLS], unmap[STALL_CALLS];
	struct step step = step_of(other->at, other->bytes);
	size_t n = 0;
	bool good = true;

	step.handle = other->handle;
	while (good && n < STALL_CALLS && cu->stream_query(stream) == CU_NOT_READY) {
		good = timed(&unmap[n], "cuMemUnmap", do_unmap, &step) &&
		       timed(&map[n], "cuMemMap", do_map, &step) &&
		       timed(&access[n], "cuMemSetAccess", do_access, &step);
		n++;
	}
	spread("stall_map_beside_kernel", map, n, "us");
	spread("stall_access_beside_kernel", access, n, "us");
	spread("stall_unmap_beside_kernel", unmap, n, "us");
}

/* 2000 short kernels one after another: with and without unmapping beside them. */
static void stall_launches(const struct extent *other, struct cu_stream *stream, bool beside)
{
	struct step step = step_of(other->at, other->bytes);
	uint64_t began = now_ns();

	step.handle = other->handle;
	for (int i = 0; i < 2000; i++) {
		(void)spin(stream, 1000);
		if (beside && i % 20 == 0)
			(void)(ok("cuMemUnmap", do_unmap(&step)) && ok("cuMemMap", do_map(&step)) &&
			       ok("cuMemSetAccess", do_access(&step)));
	}
	(void)ok("cuStreamSynchronize", cu->stream_wait(stream));
	figure(beside ? "stall_launches_with_100_remaps" : "stall_launches_alone",
	       (double)(now_ns() - began) / 1e3, "us");
}

void part_stall(void)
{
	struct cu_stream *stream = stream_make();
	struct extent used, other;

	if (!extent_make(&used, 2 * MIB) || !extent_make(&other, 32 * MIB) ||
	    !gap_start(stream, 1000000, used.at, used.at + MIB))
		return;
	(void)ok("cuStreamSynchronize", cu->stream_wait(stream));
	for (int i = 0; i < 2; i++) {
		(void)gap_start(stream, STALL_NS, used.at, used.at + MIB);
		gap_report("alone", stream, used.at);
		(void)gap_start(stream, STALL_NS, used.at, used.at + MIB);
		stall_calls(&other, stream);
		gap_report("with_remaps", stream, used.at);
		stall_launches(&other, stream, false);
		stall_launches(&other, stream, true);
	}
}

static void dmabuf_try(const char *name, cu_u64 at, size_t bytes)
{
	int fd = -1;
	const char *text = NULL;
	uint64_t began = now_ns();
	unsigned result = cu->mem_range_handle
				  ? cu->mem_range_handle(&fd, at, bytes, CU_RANGE_DMA_BUF_FD, 0)
				  : CU_NOT_SUPPORTED;
	double us = (double)(now_ns() - began) / 1e3;

	(void)cu->error_name(result, &text);
	fact(name, "%s fd %d in %.1f us", text ? text : "?", fd, us);
	if (fd >= 0) {
		char link[64], target[64] = "";

		(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		(void)!readlink(link, target, sizeof(target) - 1);
		fact("dmabuf_is", "%s, %lld bytes", target, (long long)lseek(fd, 0, SEEK_END));
		(void)close(fd);
	}
}

/* The memory of a dma-buf is nobody else's as long as somebody has it open, or an RDMA device has it registered. */
static void dmabuf_holds_memory(void)
{
	struct extent extent;
	double before, dropped;
	int fd = -1;

	if (!extent_make(&extent, HELD_BYTES))
		return;
	if (!cu->mem_range_handle ||
	    cu->mem_range_handle(&fd, extent.at, HELD_BYTES, CU_RANGE_DMA_BUF_FD, 0)) {
		extent_drop(&extent);
		return;
	}
	before = free_mib();
	extent_drop(&extent);
	dropped = free_mib();
	(void)close(fd);
	figure("dmabuf_back_when_released", dropped - before, "MiB");
	figure("dmabuf_back_when_closed", free_mib() - dropped, "MiB");
}

void part_dmabuf(void)
{
	struct cu_mem_prop prop = extent_prop(true);
	struct cu_mem_access access = { { CU_LOCATION_DEVICE, probe_device }, CU_ACCESS_READWRITE };
	cu_u64 handles[2] = { 0 }, base = 0;
	size_t bytes = 2 * MIB;
	const char *text = NULL;
	unsigned result = cu->mem_create(&handles[0], bytes, &prop, 0);

	(void)cu->error_name(result, &text);
	fact("create_for_rdma", "%s", text ? text : "?");
	if (result) {
		prop = extent_prop(false);
		if (!ok("cuMemCreate", cu->mem_create(&handles[0], bytes, &prop, 0)))
			return;
	}
	if (!ok("cuMemCreate", cu->mem_create(&handles[1], bytes, &prop, 0)) ||
	    !ok("cuMemAddressReserve", cu->mem_reserve(&base, 2 * bytes, 0, 0, 0)) ||
	    !ok("cuMemMap", cu->mem_map(base, bytes, 0, handles[0], 0)) ||
	    !ok("cuMemMap", cu->mem_map(base + bytes, bytes, 0, handles[1], 0)) ||
	    !ok("cuMemSetAccess", cu->mem_set_access(base, 2 * bytes, &access, 1)))
		return;
	dmabuf_try("dmabuf_extent", base, bytes);
	dmabuf_try("dmabuf_part_of_extent", base + 64 * 1024, 64 * 1024);
	dmabuf_try("dmabuf_two_extents", base, 2 * bytes);
	dmabuf_try("dmabuf_not_page_aligned", base + 512, 4096);
	(void)ok("cuMemUnmap", cu->mem_unmap(base + bytes, bytes));
	dmabuf_try("dmabuf_half_unmapped", base, 2 * bytes);
	dmabuf_holds_memory();
}
