/*
 * gather.c - shapes and launches of the kernels.
 */
#include "device/cuda/gather.h"

#include "device/cuda/gather_ptx.h"

#define THREADS 256u      /* of a block: rows are shared by at most so many */
#define SHIFT_MOST 8u     /* 1 << 8 = THREADS */
#define BLOCKS_MOST 1056u /* 8 for each multiprocessor of an H100 */

int cuda_gather_open(const struct cuda_calls *calls, struct cuda_gather *gather_out)
{
	struct cuda_gather gather = { .calls = calls };
	int err = cuda_result(calls, "cuModuleLoadData",
			      calls->module_load(&gather.module, gather_ptx));

	if (err)
		return err;
	err = cuda_result(calls, "cuModuleGetFunction",
			  calls->module_function(&gather.rows, gather.module, "relive_gather"));
	if (!err)
		err = cuda_result(
			calls, "cuModuleGetFunction",
			calls->module_function(&gather.weights, gather.module, "relive_weights"));
	if (err)
		(void)calls->module_unload(gather.module);
	else
		*gather_out = gather;
	return err;
}

void cuda_gather_close(struct cuda_gather *gather)
{
	(void)gather->calls->module_unload(gather->module);
	*gather = (struct cuda_gather){ 0 };
}

void gather_fit(struct gather_work *work, const struct gather_row *rows)
{
	gather_u64 places = 0;

	for (gather_u64 i = 0; i < work->n; i++)
		places |= rows[i].from | rows[i].to;
	gather_fit_places(work, places);
}

void gather_fit_places(struct gather_work *work, gather_u64 places)
{
	gather_u64 all = (gather_u64)(uintptr_t)work->to | (gather_u64)(uintptr_t)work->from |
			 work->bytes | places;

	work->unit = all % 16 == 0 ? 16 : all % 8 == 0 ? 8 : all % 4 == 0 ? 4 : 1;
	work->shift = 0;
	while (work->shift < SHIFT_MOST && (gather_u64)work->unit << work->shift < work->bytes)
		work->shift++;
}

/* A lane for each of so many, up to what the device runs at once. */
static int launch(const struct cuda_gather *gather, struct cu_function *function,
		  struct cu_stream *stream, gather_u64 lanes, void *work)
{
	gather_u64 blocks = (lanes + THREADS - 1) / THREADS;
	void *arguments[] = { work };

	if (!blocks)
		return 0;
	if (blocks > BLOCKS_MOST)
		blocks = BLOCKS_MOST;
	return cuda_result(gather->calls, "cuLaunchKernel",
			   gather->calls->launch(function, (unsigned)blocks, 1, 1, THREADS, 1, 1, 0,
						 stream, arguments, NULL));
}

int cuda_gather(const struct cuda_gather *gather, struct cu_stream *stream, struct gather_work work)
{
	return launch(gather, gather->rows, stream, work.n << work.shift, &work);
}

int cuda_weights(const struct cuda_gather *gather, struct cu_stream *stream,
		 struct weights_work work)
{
	return launch(gather, gather->weights, stream, work.n, &work);
}

void gather_on_cpu(struct gather_work work)
{
	work.shift = 0;
	gather_lanes(work, 0, 1);
}
