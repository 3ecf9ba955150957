#include "bench/pool/corun_job.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"
#include "bench/harness/time.h"
#include "program/spawn.h"
#include "relive/pool.h"

#define POOL "corun"
#define STEPS 32u /* of an iteration */
#define WAIT_NS (60 * CLOCK_NS_PER_S)

/* What a job tells; in memory that all share. */
struct board {
	_Atomic uint32_t ready, go; /* release: what is written before is seen */
	struct {
		uint64_t warm_ns, end_ns, address_space;
		int error;
		char why[200];
	} jobs[CORUN_JOBS];
};

/* Tensors of an iteration, the last one on top. */
struct stack {
	void *tensors[STEPS * 2];
	uint64_t bytes[STEPS * 2], held;
	uint32_t n;
};

static uint64_t extents(uint64_t bytes)
{
	return (bytes + CORUN_EXTENT - 1) / CORUN_EXTENT * CORUN_EXTENT;
}

uint64_t corun_peak(const struct corun_job *job)
{
	return extents(job->curve.peak) + 4 * CORUN_EXTENT;
}

uint64_t corun_persistent(const struct corun_job *job)
{
	return extents(job->persistent);
}

static double multiply(uint32_t products)
{
	static double a[64][64], b[64][64], c[64][64];

	for (uint32_t i = 0; i < products; i++) {
		a[i % 64][i / 64 % 64] = b[i / 64 % 64][i % 64] = i;
		for (uint32_t x = 0; x < 64; x++) {
			for (uint32_t y = 0; y < 64; y++) {
				for (uint32_t z = 0; z < 64; z++)
					c[x][z] += a[x][y] * b[y][z];
			}
		}
	}
	return c[1][2];
}

static int stack_push(struct rlv_pool *pool, struct stack *stack, uint64_t bytes)
{
	int ret = rlv_pool_alloc(pool, RLV_POOL_ITERATION, bytes, 0, &stack->tensors[stack->n]);

	if (ret)
		return ret;
	memset(stack->tensors[stack->n], 1, bytes);
	stack->bytes[stack->n++] = bytes;
	stack->held += bytes;
	return 0;
}

/* Takes and frees tensors until that many bytes are held. */
static int stack_hold(struct rlv_pool *pool, struct stack *stack, uint64_t bytes)
{
	int ret = 0;

	while (ret == 0 && stack->held > bytes) {
		stack->held -= stack->bytes[--stack->n];
		ret = rlv_pool_free(pool, stack->tensors[stack->n], stack->bytes[stack->n]);
	}
	return ret == 0 && stack->held < bytes ? stack_push(pool, stack, bytes - stack->held) : ret;
}

static int job_iteration(struct rlv_pool *pool, const struct corun_job *job, struct stack *stack)
{
	volatile double sum = multiply(job->acts);
	int ret = rlv_pool_iteration_begin(pool, WAIT_NS), ended;

	if (ret)
		return ret;
	for (uint32_t step = 0; ret == 0 && step < STEPS; step++) {
		uint64_t most = 0;

		for (uint32_t bin = 0; bin < CURVE_BINS / STEPS; bin++)
			most = max_u64(most, job->curve.bins[step * (CURVE_BINS / STEPS) + bin]);
		ret = stack_hold(pool, stack, extents(most));
		sum = sum + multiply(job->products / STEPS);
	}
	if (ret == 0)
		ret = stack_hold(pool, stack, 0);
	ended = rlv_pool_iteration_end(pool);
	return ret ? ret : ended;
}

static int job_run(const struct corun_job *job, struct rlv_pool *pool, struct board *board,
		   uint64_t *warm_ns_out)
{
	static struct stack stack;
	uint64_t limit = time_wall_ns() + WAIT_NS;
	uint32_t stream;
	void *weights = NULL;
	int ret = rlv_pool_stream(pool, NULL, &stream);

	if (ret == 0)
		ret = rlv_pool_alloc(pool, RLV_POOL_PERSISTENT, job->persistent, stream, &weights);
	if (ret == 0)
		memset(weights, 2, job->persistent);
	atomic_fetch_add_explicit(&board->ready, 1, memory_order_release);
	while (!atomic_load_explicit(&board->go, memory_order_acquire) && time_wall_ns() < limit)
		usleep(500);
	for (uint32_t i = 0; ret == 0 && i < job->iterations; i++) {
		if (i == CORUN_WARM)
			*warm_ns_out = time_wall_ns();
		ret = job_iteration(pool, job, &stack);
	}
	return ret;
}

/* The most that this process had; 0: the kernel does not say. */
static uint64_t address_space(void)
{
	FILE *file = fopen("/proc/self/status", "re");
	char line[128];
	uint64_t kib = 0;

	while (file && !kib && fgets(line, sizeof(line), file)) {
		if (strncmp(line, "VmPeak:", 7) == 0)
			kib = strtoull(line + 7, NULL, 10);
	}
	if (file)
		(void)fclose(file);
	return kib * 1024;
}

/* A process's life. A job that reserves its peak waits in rlv_pool_alloc until it is admitted. */
static void job_live(const struct corun_job *job, uint32_t index, struct board *board,
		     const struct memory_group *group)
{
	struct rlv_pool_opts opts = RLV_POOL_OPTS_INIT;
	struct rlv_pool *pool = NULL;
	char name[32];
	int ret = group ? memory_group_enter(group) : 0;

	snprintf(name, sizeof(name), "%s-%" PRIu32, job->name, index);
	opts.persistent_bytes = corun_persistent(job) + (job->reserves ? corun_peak(job) : 0);
	opts.iteration_bytes = job->reserves ? 0 : corun_peak(job);
	opts.timeout_ns = WAIT_NS;
	if (ret == 0)
		ret = rlv_pool_open(POOL, name, &opts, &pool);
	if (ret == 0)
		ret = job_run(job, pool, board, &board->jobs[index].warm_ns);
	board->jobs[index].end_ns = time_wall_ns();
	board->jobs[index].address_space = address_space();
	if (ret) {
		board->jobs[index].error = ret;
		snprintf(board->jobs[index].why, sizeof(board->jobs[index].why), "%s",
			 rlv_last_error());
	}
	if (rlv_pool_close(&pool) && ret == 0)
		ret = -EIO;
	_exit(ret != 0);
}

static int broker_start(uint64_t budget, pid_t *pid_out)
{
	char size[32], extent[32];
	const char *const argv[] = { "relive-poold", "--name",    POOL,    "--size",
				     size,           "--extent",  extent,  "--order",
				     "fair",         "--sharing", "peaks", "--log-level",
				     "error",        NULL };
	const struct spawn_daemon daemon = { .binary = argv[0], .argv = argv, .tied = true };
	uint64_t limit = time_wall_ns() + 10 * CLOCK_NS_PER_S;
	struct rlv_pool_info info = RLV_POOL_INFO_INIT;
	int ret;

	snprintf(size, sizeof(size), "%" PRIu64, extents(budget));
	snprintf(extent, sizeof(extent), "%" PRIu64, CORUN_EXTENT);
	ret = spawn_daemon(&daemon, pid_out);
	while (ret == 0 && rlv_pool_status(POOL, &info)) {
		if (time_wall_ns() > limit)
			return error_set(-EHOSTDOWN, "the broker does not answer: %s",
					 rlv_last_error());
		usleep(1000);
	}
	return ret;
}

/* Keeps other jobs from being alone, who then would not give memory back. */
static int witness_join(struct rlv_pool **pool_out)
{
	struct rlv_pool_opts opts = RLV_POOL_OPTS_INIT;
	int ret = rlv_pool_open(POOL, "witness", &opts, pool_out);

	return ret ? error_set(ret, "%s", rlv_last_error()) : 0;
}

/* Of jobs that reserve, one is admitted after the other. */
static int board_run(struct board *board, struct corun_job *jobs, uint32_t n,
		     const struct memory_group *group)
{
	uint32_t wait_for = jobs[0].reserves ? 1 : n;
	uint64_t limit = time_wall_ns() + WAIT_NS, begin;
	pid_t pids[CORUN_JOBS];
	uint32_t started = 0;
	int ret = 0;

	for (; ret == 0 && started < n; started += ret == 0) {
		ret = spawn_fork(&pids[started]);
		if (ret == 0 && pids[started] == 0)
			job_live(&jobs[started], started, board, group);
	}
	while (atomic_load_explicit(&board->ready, memory_order_acquire) < wait_for &&
	       time_wall_ns() < limit)
		usleep(500);
	begin = time_wall_ns();
	atomic_store_explicit(&board->go, 1, memory_order_release);
	for (uint32_t i = 0; i < started; i++) {
		int status = spawn_wait(pids[i]);

		jobs[i].address_space = board->jobs[i].address_space;
		jobs[i].jct_s = (double)(board->jobs[i].end_ns - begin) / 1e9;
		jobs[i].iteration_s = (double)(board->jobs[i].end_ns - board->jobs[i].warm_ns) /
				      1e9 / (jobs[i].iterations - CORUN_WARM);
		if (ret == 0 && status)
			ret = error_set(board->jobs[i].error ? board->jobs[i].error : -ECHILD,
					"job %s: %s", jobs[i].name,
					board->jobs[i].error ? board->jobs[i].why : "killed");
	}
	return ret;
}

int corun_jobs(struct corun_job *jobs, uint32_t n, const struct corun_place *place)
{
	struct board *board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct rlv_pool *witness = NULL;
	pid_t broker = 0;
	int ret;

	if (board == MAP_FAILED)
		return error_set(-errno, "corun: no memory");
	ret = broker_start(place->budget, &broker);
	if (ret == 0)
		ret = witness_join(&witness);
	if (ret == 0)
		ret = board_run(board, jobs, n, place->group);
	if (rlv_pool_close(&witness) && ret == 0)
		ret = error_set(-EHOSTDOWN, "corun: %s", rlv_last_error());
	if (broker > 0)
		spawn_stop(broker, CLOCK_NS_PER_S);
	munmap(board, sizeof(*board));
	return ret;
}
