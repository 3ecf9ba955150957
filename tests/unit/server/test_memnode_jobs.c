/*
 * Requests to a memory node, at once and by the worker, over a target in memory.
 */
#include "tests/support/test.h"

#include "server/memnode/jobs.h"

#include "wire/region.h"

#include "base/mem/alloc.h"
#include "base/os/clock.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#define WAIT_MS 10000
#define TERM 3

struct fixture {
	struct memnode_service svc;
	struct memnode_jobs *jobs;
	uint8_t body[256];
};

static uint64_t agent_cpu_ns(void *ctx)
{
	(void)ctx;
	return 4711;
}

static int setup(void **state)
{
	static struct fixture fx;
	const struct target_opts opts = { .pool_bytes = 16 << 20, .private_memory = true };

	memset(&fx, 0, sizeof(fx));
	fx.svc = (struct memnode_service){
		.name = "a",
		.uri = "embed:",
		.term = TERM,
		.agent_cpu_ns = agent_cpu_ns,
	};
	assert_int_equal(transport_target_open("shm", &opts, &fx.svc.target), 0);
	assert_int_equal(memnode_jobs_open(&fx.jobs), 0);
	*state = &fx;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	memnode_jobs_close(&fx->jobs);
	transport_target_close(&fx->svc.target);
	return 0;
}

static struct channel_frame frame_of(struct fixture *fx, uint16_t type,
				     const ProtobufCMessage *message)
{
	struct channel_frame frame = {
		.head = { .type = type, .request_id = 5, .term = TERM },
		.body = fx->body,
	};

	frame.head.length = (uint32_t)protobuf_c_message_get_packed_size(message);
	assert_true(frame.head.length <= sizeof(fx->body));
	protobuf_c_message_pack(message, fx->body);
	return frame;
}

static struct channel_frame region_frame(struct fixture *fx, uint64_t size)
{
	Relive__NodeRegion request = RELIVE__NODE_REGION__INIT;

	request.kind = OBJECT_TABLE;
	request.object = 1;
	request.role = REGION_ROWS;
	request.size = size;
	return frame_of(fx, RELIVE__TYPE__TYPE_NODE_REGION_NEW, &request.base);
}

static struct memnode_job *await_job(struct fixture *fx)
{
	struct pollfd ready = { .fd = memnode_jobs_fd(fx->jobs), .events = POLLIN };

	assert_int_equal(poll(&ready, 1, WAIT_MS), 1);
	return memnode_jobs_get(fx->jobs);
}

#define CASE(f) TEST_WITH(f, setup, teardown)

CASE(memnode_serve__stats_say_what_it_is)
{
	struct fixture *fx = *state;
	Relive__Empty request = RELIVE__EMPTY__INIT;
	const struct channel_frame frame =
		frame_of(fx, RELIVE__TYPE__TYPE_NODE_STATS, &request.base);
	struct memnode_answer answer;

	while (clock_read_ns(CLOCK_PROCESS_CPUTIME_ID) == 0) /* where it counts in ticks */
		;
	memnode_serve(&fx->svc, &frame, &answer);
	assert_int_equal(answer.status.code, 0);
	assert_ptr_equal(answer.message, &answer.stats_reply.base);
	assert_string_equal(answer.info.transport, "shm");
	assert_true(answer.info.agent_cpu_ns == 4711);
	assert_true(answer.info.process_cpu_ns > 0);
	assert_true(answer.info.pool_bytes == 16 << 20);
}

CASE(memnode_serve__a_zombie_server_is_refused)
{
	struct fixture *fx = *state;
	struct channel_frame frame = region_frame(fx, 1 << 20);
	struct memnode_answer answer;

	frame.head.term = TERM - 1;
	memnode_serve(&fx->svc, &frame, &answer);
	assert_int_equal(answer.status.code, -ESTALE);
	assert_non_null(strstr(answer.status.message, "term"));
}

CASE(memnode_serve__unknown_request_gives_enotsup)
{
	struct fixture *fx = *state;
	Relive__Empty request = RELIVE__EMPTY__INIT;
	const struct channel_frame frame = frame_of(fx, 99, &request.base);
	struct memnode_answer answer;

	memnode_serve(&fx->svc, &frame, &answer);
	assert_int_equal(answer.status.code, -ENOTSUP);
	assert_int_equal(memnode_line_of(&frame), MEMNODE_AT_ONCE);
}

CASE(memnode_serve__body_that_is_none_gives_eproto)
{
	struct fixture *fx = *state;
	struct channel_frame frame = region_frame(fx, 1 << 20);
	struct memnode_answer answer;

	memset(fx->body, 0xff, sizeof(fx->body));
	memnode_serve(&fx->svc, &frame, &answer);
	assert_int_equal(answer.status.code, -EPROTO);
}

CASE(memnode_line_of__only_a_fence_that_kills_may_take_long)
{
	struct fixture *fx = *state;
	Relive__NodeFenceRequest request = RELIVE__NODE_FENCE_REQUEST__INIT;
	Relive__Empty nothing = RELIVE__EMPTY__INIT;
	struct channel_frame frame;

	request.how = FENCE_CUT;
	frame = frame_of(fx, RELIVE__TYPE__TYPE_NODE_FENCE, &request.base);
	assert_int_equal(memnode_line_of(&frame), MEMNODE_AT_ONCE);
	request.how = FENCE_KILL;
	frame = frame_of(fx, RELIVE__TYPE__TYPE_NODE_FENCE, &request.base);
	assert_int_equal(memnode_line_of(&frame), MEMNODE_WORK);
	frame = frame_of(fx, RELIVE__TYPE__TYPE_NODE_PERSIST, &nothing.base);
	assert_int_equal(memnode_line_of(&frame), MEMNODE_PERSIST);
	frame = region_frame(fx, 1);
	assert_int_equal(memnode_line_of(&frame), MEMNODE_WORK);
}

CASE(memnode_jobs__done_in_turn_with_their_answers)
{
	struct fixture *fx = *state;
	struct memnode_job *job;

	for (uint64_t i = 1; i <= 3; i++) {
		struct channel_frame frame = region_frame(fx, 1 << 20);

		frame.head.request_id = i;
		assert_int_equal(memnode_jobs_put(fx->jobs, &fx->svc, &frame, 7), 0);
		memset(fx->body, 0, sizeof(fx->body)); /* it has a copy */
	}
	for (uint64_t i = 1; i <= 3; i++) {
		job = await_job(fx);
		assert_non_null(job);
		assert_true(job->head.request_id == i);
		assert_true(job->connection == 7);
		assert_int_equal(job->answer.status.code, 0);
		assert_true(job->answer.region.size >= 1 << 20);
		mem_free(job);
	}
	assert_null(memnode_jobs_get(fx->jobs));
}

CASE(memnode_jobs__words_of_a_failure_come_with_it)
{
	struct fixture *fx = *state;
	const struct channel_frame frame = region_frame(fx, (uint64_t)1 << 30);
	struct memnode_job *job;

	assert_int_equal(memnode_jobs_put(fx->jobs, &fx->svc, &frame, 1), 0);
	job = await_job(fx);
	assert_non_null(job);
	assert_int_equal(job->answer.status.code, -ENOSPC);
	assert_true(strlen(job->answer.status.message) > 10);
	assert_null(job->answer.region_reply.region);
	mem_free(job);
}

static uint64_t used_bytes(const struct fixture *fx)
{
	struct target_stats now;

	fx->svc.target->ops->stats(fx->svc.target, &now);
	return now.used_bytes;
}

CASE(memnode_undo__a_region_that_nobody_heard_of_is_freed)
{
	struct fixture *fx = *state;
	const struct channel_frame fits = region_frame(fx, 1 << 20);
	struct channel_frame too_large;
	struct memnode_job *job;

	assert_int_equal(memnode_jobs_put(fx->jobs, &fx->svc, &fits, 1), 0);
	job = await_job(fx);
	assert_non_null(job);
	assert_true(used_bytes(fx) >= 1 << 20);
	memnode_undo(&job->svc, &job->head, &job->answer);
	assert_true(used_bytes(fx) == 0);
	mem_free(job);
	too_large = region_frame(fx, (uint64_t)1 << 30);
	assert_int_equal(memnode_jobs_put(fx->jobs, &fx->svc, &too_large, 1), 0);
	job = await_job(fx);
	assert_non_null(job);
	memnode_undo(&job->svc, &job->head, &job->answer); /* there is nothing of it */
	mem_free(job);
}

CASE(memnode_jobs_close__answers_that_nobody_took_are_freed)
{
	struct fixture *fx = *state;
	const struct channel_frame frame = region_frame(fx, 1 << 20);

	for (int i = 0; i < 5; i++)
		assert_int_equal(memnode_jobs_put(fx->jobs, &fx->svc, &frame, 1), 0);
	memnode_jobs_close(&fx->jobs);
	assert_null(fx->jobs);
	memnode_jobs_close(&fx->jobs);
}

int main(void)
{
	return test_run(NULL, NULL);
}
