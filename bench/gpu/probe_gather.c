/*
 * probe_gather.c - rows from pinned host memory and from the device: a kernel, a batch of copies, copies
 * one by one, and a CPU that gathers into a pinned ring first.
 */
#include "bench/gpu/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device/cuda/gather_lanes.h"
#include "device/cuda/gather_ptx.h"

#define SOURCE_BYTES (512 * MIB)
#define TARGET_BYTES (32 * MIB)
#define ROWS_MOST ((size_t)65536)
#define COPIES_MOST ((size_t)8192)
#define REPEATS 11

struct arena {
	uint8_t *host, *ring;             /* pinned: source, and a ring of TARGET_BYTES */
	struct gather_row *rows;          /* pinned */
	cu_u64 host_at, ring_at, rows_at; /* as the device sees them */
	struct extent device, target, table;
	struct cu_function *kernel;
	struct cu_stream *stream;
	uint8_t *expected, *seen;
};

static void *pinned(size_t bytes, cu_u64 *at)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t began = now_ns();

	if (memory == MAP_FAILED ||
	    !ok("cuMemHostRegister",
		cu->host_register(memory, bytes, CU_HOST_PORTABLE | CU_HOST_DEVICEMAP)) ||
	    !ok("cuMemHostGetDevicePointer", cu->host_device_pointer(at, memory, 0)))
		return NULL;
	if (bytes >= SOURCE_BYTES)
		figure("gather_register_512mib", (double)(now_ns() - began) / 1e6, "ms");
	return memory;
}

static bool arena_open(struct arena *a)
{
	struct cu_module *module;
	uint64_t began = now_ns(), x = 88172645463325252u;

	if (!ok("cuModuleLoadData", cu->module_load(&module, gather_ptx)) ||
	    !ok("cuModuleGetFunction", cu->module_function(&a->kernel, module, "relive_gather")))
		return false;
	figure("gather_load_ptx", (double)(now_ns() - began) / 1e6, "ms");
	a->stream = stream_make();
	a->host = pinned(SOURCE_BYTES, &a->host_at);
	a->ring = pinned(TARGET_BYTES, &a->ring_at);
	a->rows = pinned(ROWS_MOST * sizeof(*a->rows), (cu_u64 *)&a->rows_at);
	a->expected = malloc(TARGET_BYTES);
	a->seen = malloc(TARGET_BYTES);
	if (!a->host || !a->ring || !a->rows || !a->expected || !a->seen ||
	    !extent_make(&a->device, SOURCE_BYTES) || !extent_make(&a->target, TARGET_BYTES) ||
	    !extent_make(&a->table, 2 * MIB))
		return false;
	for (size_t i = 0; i < SOURCE_BYTES / 8; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		((uint64_t *)(void *)a->host)[i] = x;
	}
	return ok("cuMemcpyAsync", cu->copy(a->device.at, a->host_at, SOURCE_BYTES, a->stream)) &&
	       ok("cuStreamSynchronize", cu->stream_wait(a->stream));
}

struct trial {
	struct arena *a;
	cu_u64 from;
	size_t n, bytes;
};

static void trial_rows(const struct trial *t)
{
	static uint64_t x = 362436069;

	for (size_t i = 0; i < t->n; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		t->a->rows[i].from = (x >> 20) % (SOURCE_BYTES / t->bytes) * t->bytes;
		t->a->rows[i].to = i * t->bytes;
	}
}

static bool by_kernel(const struct trial *t)
{
	struct arena *a = t->a;
	unsigned shift = 0, blocks;
	struct gather_work work = { (gather_u8 *)a->target.at,
				    (const gather_u8 *)t->from,
				    (const struct gather_row *)a->table.at,
				    t->n,
				    t->bytes,
				    16,
				    0 };
	void *args[] = { &work };

	while ((16u << shift) < t->bytes && shift < 8)
		shift++;
	work.shift = shift;
	blocks = (unsigned)(((t->n << shift) + 255) / 256);
	if (blocks > 132 * 8)
		blocks = 132 * 8;
	return ok("cuMemcpyAsync",
		  cu->copy(a->table.at, a->rows_at, t->n * sizeof(*a->rows), a->stream)) &&
	       ok("cuLaunchKernel",
		  cu->launch(a->kernel, blocks, 1, 1, 256, 1, 1, 0, a->stream, args, NULL));
}

static bool by_batch(const struct trial *t)
{
	static cu_u64 to[COPIES_MOST], from[COPIES_MOST];
	static size_t sizes[COPIES_MOST];
	struct cu_copy_attributes attributes = { .order = CU_COPY_ORDER_STREAM };
	size_t first = 0;

	if (!cu->copy_batch)
		return false;
	for (size_t i = 0; i < t->n; i++) {
		to[i] = t->a->target.at + t->a->rows[i].to;
		from[i] = t->from + t->a->rows[i].from;
		sizes[i] = t->bytes;
	}
	return ok("cuMemcpyBatchAsync",
		  cu->copy_batch(to, from, sizes, t->n, &attributes, &first, 1, t->a->stream));
}

static bool by_copies(const struct trial *t)
{
	bool good = true;

	for (size_t i = 0; good && i < t->n; i++)
		good = ok("cuMemcpyAsync",
			  cu->copy(t->a->target.at + t->a->rows[i].to, t->from + t->a->rows[i].from,
				   t->bytes, t->a->stream));
	return good;
}

/* The CPU's loop is the kernel's, with one lane. */
static void on_cpu(const struct trial *t, uint8_t *to)
{
	gather_lanes((struct gather_work){ to, t->a->host, t->a->rows, t->n, t->bytes, 16, 0 }, 0,
		     1);
}

static bool by_ring(const struct trial *t)
{
	on_cpu(t, t->a->ring);
	return ok("cuMemcpyAsync",
		  cu->copy(t->a->target.at, t->a->ring_at, t->n * t->bytes, t->a->stream));
}

static bool trial_right(const struct trial *t)
{
	on_cpu(t, t->a->expected);
	return ok("cuMemcpyAsync", cu->copy((cu_u64)(uintptr_t)t->a->seen, t->a->target.at,
					    t->n * t->bytes, t->a->stream)) &&
	       ok("cuStreamSynchronize", cu->stream_wait(t->a->stream)) &&
	       !memcmp(t->a->seen, t->a->expected, t->n * t->bytes);
}

static void trial_run(struct trial t, const char *name, bool (*way)(const struct trial *),
		      size_t most)
{
	double gb_s[REPEATS], us[REPEATS];
	char text[96];
	size_t n = 0;
	bool right = true;

	if (t.n > most)
		t.n = most;
	for (size_t i = 0; i < REPEATS && right; i++) {
		uint64_t began;
		double ns;

		trial_rows(&t);
		(void)ok("cuMemsetD8Async", cu->fill(t.a->target.at, 0, TARGET_BYTES, t.a->stream));
		(void)ok("cuStreamSynchronize", cu->stream_wait(t.a->stream));
		began = now_ns();
		if (!way(&t) || !ok("cuStreamSynchronize", cu->stream_wait(t.a->stream)))
			return;
		ns = (double)(now_ns() - began);
		gb_s[n] = (double)(t.n * t.bytes) / ns;
		us[n++] = ns / 1e3;
		right = trial_right(&t);
	}
	(void)snprintf(text, sizeof(text), "gather_%s_%zu_rows_of_%zu", name, t.n, t.bytes);
	printf("figure %s %.4g GB/s %.4g us %s\n", text, median(gb_s, n), median(us, n),
	       right ? "right" : "WRONG");
}

void part_gather(void)
{
	static const size_t sizes[] = { 64, 256, 1024, 4096, 16384, 65536 };
	static struct arena a;

	if (!arena_open(&a))
		return;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t n = TARGET_BYTES / sizes[i] < ROWS_MOST ? TARGET_BYTES / sizes[i]
							       : ROWS_MOST;
		struct trial host = { &a, a.host_at, n, sizes[i] },
			     device = { &a, a.device.at, n, sizes[i] };
		struct trial few = { &a, a.host_at, 256, sizes[i] };

		trial_run(host, "host_kernel", by_kernel, ROWS_MOST);
		trial_run(host, "host_ring", by_ring, ROWS_MOST);
		trial_run(host, "host_batch", by_batch, COPIES_MOST);
		trial_run(host, "host_copies", by_copies, COPIES_MOST);
		trial_run(device, "device_kernel", by_kernel, ROWS_MOST);
		trial_run(device, "device_batch", by_batch, COPIES_MOST);
		trial_run(few, "host_kernel", by_kernel, ROWS_MOST);
		trial_run(few, "host_ring", by_ring, ROWS_MOST);
		trial_run(few, "host_batch", by_batch, COPIES_MOST);
	}
}
