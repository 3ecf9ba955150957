/*
 * role.c - what an actor and a learner have in common.
 */
#include "cli/demo/loop.h"

#include <errno.h>
#include <stdio.h>

#include "base/os/clock.h"

#define TIMEOUT_NS (20 * CLOCK_NS_PER_S)

int loop_role_failed(struct loop_role *role, int ret, const char *what)
{
	if (ret == -ECONNRESET || ret == -EHOSTDOWN || ret == -ETIMEDOUT || ret == -EAGAIN) {
		/* relaxed: a count for display */
		atomic_fetch_add_explicit(&role->gauge->repeats, 1, memory_order_relaxed);
		return 0;
	}
	return ret ? worker_fail(&role->worker, ret, what, rlv_last_error()) : 0;
}

int loop_role_open(struct loop_role *role)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	char name[RLV_NAME_BYTES];
	int ret;

	opts.timeout_ns = TIMEOUT_NS;
	snprintf(name, sizeof(name), "policy-%u", role->policy);
	ret = rlv_store_open(role->shared->uri, &opts, &role->store);
	if (ret == 0)
		ret = rlv_table_open(role->store, LOOP_TABLE, &role->table);
	if (ret == 0)
		ret = rlv_weights_open(role->store, name, &role->weights);
	return ret ? worker_fail(&role->worker, ret, "open the store", rlv_last_error()) : 0;
}

void loop_role_close(struct loop_role *role)
{
	int ret = rlv_weights_close(&role->weights), closed;

	closed = role->table ? rlv_table_close(&role->table) : 0;
	ret = ret ? ret : closed;
	closed = rlv_store_close(&role->store);
	ret = ret ? ret : closed;
	if (ret && !role->worker.slot->error)
		(void)worker_fail(&role->worker, ret, "close the store", rlv_last_error());
}

/* Roles have no windows: they run until they are told to quit. */
void loop_role_begin(struct worker *worker)
{
	(void)worker;
}

int loop_role_end(struct worker *worker)
{
	(void)worker;
	return 0;
}

struct rlv_tensor loop_tensor(float *weights)
{
	struct rlv_tensor tensor = RLV_TENSOR_INIT;

	tensor.name = "network";
	tensor.dtype = RLV_F32;
	tensor.ndim = 1;
	tensor.shape[0] = NETWORK_WEIGHTS;
	tensor.data = weights;
	return tensor;
}
