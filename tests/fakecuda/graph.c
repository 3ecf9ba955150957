/*
 * graph.c - work that streams record, and graphs of it that are launched.
 */
#include <stdlib.h>

#include "tests/fakecuda/stream.h"

/* A recorded graph, and one that can be launched: both are lists of work, in its order. */
struct cu_graph {
	struct op_list ops;
};

struct cu_graph_exec {
	struct op_list ops;
};

static _Atomic size_t live; /* of both */

size_t fake_graphs(void)
{
	return atomic_load(&live);
}

unsigned cuStreamBeginCapture(struct cu_stream *stream, unsigned mode)
{
	FAKE_ENTER(capture_begin);
	if (mode > CU_CAPTURE_RELAXED)
		return CU_INVALID_VALUE;
	return stream_record(stream);
}

unsigned cuStreamEndCapture(struct cu_stream *stream, struct cu_graph **graph_out)
{
	struct cu_graph *graph = calloc(1, sizeof(*graph));
	unsigned result;

	if (!graph)
		return CU_OUT_OF_MEMORY;
	result = stream_recorded(stream, &graph->ops); /* also of a call that fails */
	if (result == CU_OK)
		result = fake_enter(FAKE_capture_end);
	if (result) {
		op_list_free(&graph->ops);
		free(graph);
		return result;
	}
	(void)atomic_fetch_add(&live, 1);
	*graph_out = graph;
	return CU_OK;
}

unsigned cuGraphInstantiateWithFlags(struct cu_graph_exec **exec_out, struct cu_graph *graph,
				     cu_u64 flags)
{
	struct cu_graph_exec *exec;
	unsigned result = CU_OK;

	FAKE_ENTER(graph_instantiate);
	if (!graph || flags)
		return CU_INVALID_VALUE;
	exec = calloc(1, sizeof(*exec));
	if (!exec)
		return CU_OUT_OF_MEMORY;
	for (const struct op *op = graph->ops.first; op && result == CU_OK; op = op->next)
		result = op_list_add(&exec->ops, op) ? CU_OK : CU_OUT_OF_MEMORY;
	if (result) {
		op_list_free(&exec->ops);
		free(exec);
		return result;
	}
	(void)atomic_fetch_add(&live, 1);
	*exec_out = exec;
	return CU_OK;
}

unsigned cuGraphLaunch(struct cu_graph_exec *exec, struct cu_stream *stream)
{
	unsigned result = CU_OK;

	FAKE_ENTER(graph_launch);
	for (const struct op *op = exec->ops.first; op && result == CU_OK; op = op->next)
		result = stream_submit(stream, op);
	return result;
}

unsigned cuGraphDestroy(struct cu_graph *graph)
{
	op_list_free(&graph->ops); /* also of a call that fails: nobody asks twice */
	free(graph);
	(void)atomic_fetch_sub(&live, 1);
	FAKE_ENTER(graph_destroy);
	return CU_OK;
}

unsigned cuGraphExecDestroy(struct cu_graph_exec *exec)
{
	FAKE_ENTER(graph_exec_destroy);
	op_list_free(&exec->ops);
	free(exec);
	(void)atomic_fetch_sub(&live, 1);
	return CU_OK;
}
