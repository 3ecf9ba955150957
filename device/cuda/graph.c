/*
 * graph.c - work of a stream that is recorded once and launched many times.
 */
#include <errno.h>
#include <inttypes.h>

#include "device/cuda/backend_cuda_state.h"
#include "base/bits.h"
#include "base/mem/alloc.h"

/* Drivers of CUDA 11.4 and later have all of it. */
static int graphs_need(const struct cuda_calls *calls)
{
	const struct {
		const char *name;
		bool there;
	} needed[] = {
		{ "cuStreamBeginCapture", calls->capture_begin != NULL },
		{ "cuStreamEndCapture", calls->capture_end != NULL },
		{ "cuGraphInstantiateWithFlags", calls->graph_instantiate != NULL },
		{ "cuGraphLaunch", calls->graph_launch != NULL },
		{ "cuGraphDestroy", calls->graph_destroy != NULL },
		{ "cuGraphExecDestroy", calls->graph_exec_destroy != NULL },
	};

	for (size_t i = 0; i < ARRAY_LEN(needed); i++) {
		if (!needed[i].there)
			return error_set(-ENOTSUP,
					 "%s: the CUDA driver has no such call: install a driver "
					 "for CUDA 11.4 or later, or do without graphs",
					 needed[i].name);
	}
	return 0;
}

static struct cu_graph_exec **graph_of(struct backend_cuda *cuda, uint64_t graph)
{
	if (graph == 0 || graph > cuda->n_graphs || !cuda->graphs[graph - 1])
		return NULL;
	return &cuda->graphs[graph - 1];
}

/* A free place, growing the table. 0: no memory. */
static uint64_t graph_place(struct backend_cuda *cuda)
{
	size_t old = cuda->n_graphs, n = old ? 2 * old : 8;

	for (size_t i = 0; i < old; i++) {
		if (!cuda->graphs[i])
			return i + 1;
	}
	if (!mem_grow(&cuda->graphs, old, n, sizeof(struct cu_graph_exec *)))
		return 0;
	cuda->n_graphs = n;
	return old + 1;
}

/* Only this thread's calls belong to the recording: other threads are not kept from theirs. */
int cuda_graph_begin(struct backend *backend, uint32_t number)
{
	struct backend_cuda *cuda = cuda_of(backend);
	struct cu_context *before;
	int err = graphs_need(cuda->calls);
	struct cuda_stream *stream = err ? NULL : cuda_stream_enter(cuda, number, &before, &err);

	if (!stream)
		return err;
	return cuda_leave(
		cuda, before,
		cuda_check(cuda, "cuStreamBeginCapture",
			   cuda->calls->capture_begin(stream->native, CU_CAPTURE_RELAXED)));
}

static int graph_make(struct backend_cuda *cuda, struct cu_graph *recorded, uint64_t *graph_out)
{
	struct cu_graph_exec *made = NULL;
	uint64_t place = graph_place(cuda);
	int err = place ? 0 : error_set(-ENOMEM, "graph: no memory");

	if (!err)
		err = cuda_check(cuda, "cuGraphInstantiateWithFlags",
				 cuda->calls->graph_instantiate(&made, recorded, 0));
	if (!err) {
		cuda->graphs[place - 1] = made;
		*graph_out = place;
	}
	return err;
}

/* The recording ends also where the context cannot be had: marks would be recorded, and never seen. */
int cuda_graph_end(struct backend *backend, uint32_t number, uint64_t *graph_out)
{
	struct backend_cuda *cuda = cuda_of(backend);
	struct cu_graph *recorded = NULL;
	struct cu_context *before = cuda->context;
	unsigned result;
	int err;

	if (number >= BACKEND_STREAMS || !cuda->streams[number].native)
		return error_set(-EINVAL, "stream %" PRIu32 " is not open", number);
	err = cuda_enter(cuda, &before);
	if (err == -ECHILD)
		return err;
	result = cuda->calls->capture_end(cuda->streams[number].native, &recorded);
	err = err ? err : cuda_check(cuda, "cuStreamEndCapture", result);
	if (!err && graph_out)
		err = graph_make(cuda, recorded, graph_out);
	if (recorded)
		(void)cuda->calls->graph_destroy(recorded);
	return cuda_leave(cuda, before, err);
}

int cuda_graph_launch(struct backend *backend, uint32_t number, uint64_t graph)
{
	struct backend_cuda *cuda = cuda_of(backend);
	struct cu_graph_exec **exec = graph_of(cuda, graph);
	struct cu_context *before;
	struct cuda_stream *stream;
	int err;

	if (!graph)
		return graphs_need(cuda->calls);
	if (!exec)
		return error_set(-EINVAL, "launch: no graph %" PRIu64, graph);
	stream = cuda_stream_enter(cuda, number, &before, &err);
	if (!stream)
		return err;
	return cuda_leave(cuda, before,
			  cuda_check(cuda, "cuGraphLaunch",
				     cuda->calls->graph_launch(*exec, stream->native)));
}

int cuda_graph_drop(struct backend *backend, uint64_t graph)
{
	struct backend_cuda *cuda = cuda_of(backend);
	struct cu_graph_exec **exec = graph_of(cuda, graph);
	struct cu_context *before;
	int err;

	if (!graph)
		return 0;
	if (!exec)
		return error_set(-EINVAL, "drop: no graph %" PRIu64, graph);
	err = cuda_enter(cuda, &before);
	if (!err)
		err = cuda_leave(cuda, before,
				 cuda_check(cuda, "cuGraphExecDestroy",
					    cuda->calls->graph_exec_destroy(*exec)));
	if (!err) /* else the backend's close tries again */
		*exec = NULL;
	return err;
}

void cuda_graphs_close(struct backend_cuda *cuda)
{
	for (size_t i = 0; i < cuda->n_graphs; i++) {
		if (cuda->graphs[i])
			(void)cuda->calls->graph_exec_destroy(cuda->graphs[i]);
	}
}
