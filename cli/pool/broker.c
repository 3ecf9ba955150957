/*
 * relive pool status, queue, top, limit, drain: commands to the broker of a pool.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "relive/pool.h"

#include "base/bits.h"
#include "base/os/clock.h"
#include "cli/cli.h"
#include "cli/pool/pool.h"
#include "cli/record.h"

#define MOST_DEVICES 16
#define MOST_JOBS (64 * MOST_DEVICES)

/* -------- what is printed -------- */

static const char *const states[] = { "idle", "waits", "runs", "leaves", "parked", NULL };
static const char *const reasons[] = {
	"ready", "waits for admission", "waits for memory", "waits for its turn", "idle", NULL
};

static const struct field pool_fields[] = {
	FIELD(rlv_pool_info, devices, FIELD_U32, "devices", NULL),
	FIELD(rlv_pool_info, jobs, FIELD_U32, "jobs", NULL),
	FIELD(rlv_pool_info, device_bytes, FIELD_BYTES, "device_bytes", NULL),
	FIELD(rlv_pool_info, budget_bytes, FIELD_BYTES, "budget_bytes", NULL),
	FIELD(rlv_pool_info, held_bytes, FIELD_BYTES, "held_bytes", NULL),
	FIELD(rlv_pool_info, extent_bytes, FIELD_BYTES, "extent_bytes", NULL),
	FIELD(rlv_pool_info, handovers, FIELD_U64, "handovers", NULL),
	FIELD(rlv_pool_info, iterations, FIELD_U64, "iterations", NULL),
	FIELD(rlv_pool_info, overshoots, FIELD_U64, "overshoots", NULL),
	FIELD(rlv_pool_info, cut, FIELD_U64, "cut", NULL),
	FIELD(rlv_pool_info, deaths, FIELD_U64, "deaths", NULL),
	FIELD(rlv_pool_info, adopted, FIELD_U64, "adopted", NULL),
};

static const struct record pool_type = RECORD(rlv_pool_info, pool_fields);

static const struct field device_fields[] = {
	FIELD(rlv_pool_device_info, number, FIELD_U32, "device", ">device"),
	FIELD(rlv_pool_device_info, name, FIELD_TEXT, "name", "name"),
	FIELD(rlv_pool_device_info, jobs, FIELD_U32, "jobs", ">jobs"),
	FIELD(rlv_pool_device_info, device_bytes, FIELD_BYTES, "device_bytes", ">memory"),
	FIELD(rlv_pool_device_info, budget_bytes, FIELD_BYTES, "budget_bytes", ">budget"),
	FIELD(rlv_pool_device_info, held_bytes, FIELD_BYTES, "held_bytes", ">held"),
	FIELD(rlv_pool_device_info, handovers, FIELD_U64, "handovers", ">handovers"),
};

static const struct record device_type = RECORD(rlv_pool_device_info, device_fields);

static const struct field job_fields[] = {
	FIELD(rlv_pool_job, name, FIELD_TEXT, "job", "job"),
	FIELD(rlv_pool_job, device, FIELD_U32, "device", ">device"),
	FIELD(rlv_pool_job, pid, FIELD_U32, "pid", ">pid"),
	FIELD(rlv_pool_job, uid, FIELD_U32, "uid", ">uid"),
	{ "state", "state", FIELD_NAME, offsetof(struct rlv_pool_job, state), states, NULL },
	FIELD(rlv_pool_job, connected, FIELD_BOOL, "connected", "connected"),
	FIELD(rlv_pool_job, held_bytes, FIELD_BYTES, "held_bytes", ">held"),
	FIELD(rlv_pool_job, most_bytes, FIELD_BYTES, "most_bytes", ">most"),
	FIELD(rlv_pool_job, quota_bytes, FIELD_BYTES, "quota_bytes", ">quota"),
	FIELD(rlv_pool_job, persistent_bytes, FIELD_BYTES, "persistent_bytes", NULL),
	FIELD(rlv_pool_job, iteration_bytes, FIELD_BYTES, "iteration_bytes", NULL),
	FIELD(rlv_pool_job, iterations, FIELD_U64, "iterations", ">iterations"),
	FIELD(rlv_pool_job, waited_ns, FIELD_NS, "waited_ns", ">waited"),
	FIELD(rlv_pool_job, served_ns, FIELD_NS, "served_ns", ">served"),
};

static const struct record job_type = RECORD(rlv_pool_job, job_fields);

static const struct field queue_fields[] = {
	FIELD(rlv_pool_job, position, FIELD_U32, "position", ">position"),
	FIELD(rlv_pool_job, name, FIELD_TEXT, "job", "job"),
	FIELD(rlv_pool_job, device, FIELD_U32, "device", ">device"),
	FIELD(rlv_pool_job, pid, FIELD_U32, "pid", ">pid"),
	{ "reason", "reason", FIELD_NAME, offsetof(struct rlv_pool_job, reason), reasons, NULL },
	FIELD(rlv_pool_job, persistent_bytes, FIELD_BYTES, "persistent_bytes", ">persistent"),
	FIELD(rlv_pool_job, iteration_bytes, FIELD_BYTES, "iteration_bytes", ">iteration"),
	FIELD(rlv_pool_job, waited_ns, FIELD_NS, "waited_ns", ">waited"),
};

static const struct record queue_type = RECORD(rlv_pool_job, queue_fields);

/* -------- status, queue, top -------- */

/* All numbers of a later version must have names, too. */
static int pool_read(const char *pool, struct rlv_pool_job jobs[MOST_JOBS], size_t *n_out)
{
	int ret;

	*n_out = MOST_JOBS;
	ret = rlv_pool_jobs(pool, jobs, sizeof(jobs[0]), n_out);
	if (ret)
		return cli_fail(ret, "jobs of pool %s", pool);
	*n_out = min_u64(*n_out, MOST_JOBS);
	for (size_t i = 0; i < *n_out; i++) {
		jobs[i].state = (uint32_t)min_u64(jobs[i].state, ARRAY_LEN(states) - 2);
		jobs[i].reason = (uint32_t)min_u64(jobs[i].reason, ARRAY_LEN(reasons) - 2);
	}
	return CLI_OK;
}

static int pool_print(const char *pool, bool as_json)
{
	struct rlv_pool_info info = RLV_POOL_INFO_INIT;
	struct rlv_pool_device_info devices[MOST_DEVICES];
	struct rlv_pool_job jobs[MOST_JOBS];
	struct json *json = NULL;
	size_t n, n_devices = MOST_DEVICES;
	int ret = rlv_pool_status(pool, &info), code;

	if (ret == 0)
		ret = rlv_pool_devices(pool, devices, sizeof(devices[0]), &n_devices);
	if (ret)
		return cli_fail(ret, "pool %s", pool);
	n_devices = min_u64(n_devices, MOST_DEVICES);
	code = pool_read(pool, jobs, &n);
	if (code)
		return code;
	if (as_json) {
		json = cli_json_begin();
		json_put_string(json, "pool", pool);
		json_put_bool(json, "strict", info.flags & RLV_POOL_STRICT);
		json_put_bool(json, "drains", info.flags & RLV_POOL_DRAINS);
		record_members(&pool_type, &info, json);
		json_key(json, "device_list");
		(void)record_list(&device_type, devices, n_devices, json);
		json_key(json, "list");
	} else {
		printf("pool %s%s%s\n", pool, info.flags & RLV_POOL_STRICT ? ", strict" : "",
		       info.flags & RLV_POOL_DRAINS ? ", draining: no new jobs" : "");
		record_lines(&pool_type, &info);
		if (n_devices > 1)
			(void)record_list(&device_type, devices, n_devices, NULL);
	}
	code = n || json ? record_list(&job_type, jobs, n, json) : CLI_OK;
	return json ? cli_json_end(json) : code;
}

/* Options of a command of a pool. */
#define POOL_OPTIONS(name, json) \
	{ "pool", "NAME", "the pool, as given to relive-poold --name (default 0)", &(name), \
	  ARG_TEXT }, \
	{ \
		"json", NULL, "print JSON: one object", &(json), ARG_FLAG \
	}

int pool_status_command(int argc, char **argv)
{
	const char *pool = "0";
	bool json = false;
	const struct arg_option options[] = { POOL_OPTIONS(pool, json) };
	const struct args args = {
		.usage = "pool status [OPTIONS]",
		.summary =
			"Prints what a pool has, and its jobs: what they hold, and whether they run.",
		.options = options,
		.n_options = ARRAY_LEN(options),
	};
	int code = cli_parse(&args, argc, argv);

	return code != CLI_CONTINUE ? code : pool_print(pool, json);
}

static int by_position(const void *a, const void *b)
{
	const struct rlv_pool_job *x = a, *y = b;

	if (x->reason != y->reason)
		return (x->reason > y->reason) - (x->reason < y->reason);
	return (x->position > y->position) - (x->position < y->position);
}

int pool_queue(int argc, char **argv)
{
	const char *pool = "0";
	bool as_json = false;
	struct rlv_pool_job jobs[MOST_JOBS];
	struct json *json = NULL;
	size_t n, waiting = 0;
	const struct arg_option options[] = { POOL_OPTIONS(pool, as_json) };
	const struct args args = {
		.usage = "pool queue [OPTIONS]",
		.summary = "Lists the jobs that wait, why, and how many jobs are before each.",
		.options = options,
		.n_options = ARRAY_LEN(options),
	};
	int code = cli_parse(&args, argc, argv);

	if (code != CLI_CONTINUE)
		return code;
	code = pool_read(pool, jobs, &n);
	if (code)
		return code;
	for (size_t i = 0; i < n; i++) {
		if (jobs[i].state == RLV_POOL_JOB_WAITS)
			jobs[waiting++] = jobs[i];
	}
	qsort(jobs, waiting, sizeof(jobs[0]), by_position);
	if (as_json) {
		json = cli_json_begin();
		json_key(json, "queue");
	}
	code = record_list(&queue_type, jobs, waiting, json);
	return json ? cli_json_end(json) : code;
}

int pool_top(int argc, char **argv)
{
	const char *pool = "0";
	bool json = false;
	int64_t every_ns = CLOCK_NS_PER_S;
	uint64_t times = UINT64_MAX;
	const struct arg_option options[] = {
		POOL_OPTIONS(pool, json),
		{ "every", "TIME", "pause between two (default 1s)", &every_ns, ARG_DURATION },
		{ "times", "N", "end after so many (default: never)", &times, ARG_COUNT },
	};
	const struct args args = {
		.usage = "pool top [OPTIONS]",
		.summary = "Prints what relive pool status prints, again and again.",
		.options = options,
		.n_options = ARRAY_LEN(options),
	};
	int code = cli_parse(&args, argc, argv);

	if (code != CLI_CONTINUE)
		return code;
	if (every_ns <= 0) {
		cli_error("pool top: --every: want more than 0");
		return CLI_USAGE;
	}
	code = CLI_OK;
	for (uint64_t i = 0; i < times && code == CLI_OK; i++) {
		const struct timespec pause = { .tv_sec = every_ns / CLOCK_NS_PER_S,
						.tv_nsec = every_ns % CLOCK_NS_PER_S };

		if (i)
			(void)nanosleep(&pause, NULL);
		code = pool_print(pool, json);
		if (fflush(stdout))
			code = CLI_FAILURE;
	}
	return code;
}

/* -------- limit, drain -------- */

int pool_limit_command(int argc, char **argv)
{
	const char *pool = "0", *job = NULL;
	bool json = false;
	uint32_t user = UINT32_MAX, device = UINT32_MAX;
	uint64_t bytes = UINT64_MAX;
	const struct arg_option options[] = {
		POOL_OPTIONS(pool, json),
		{ "bytes", "BYTES", "the limit, with K, M, G or T; 0 for a user or job: none",
		  &bytes, ARG_BYTES },
		{ "user", "UID", "of what the jobs of this user hold together", &user,
		  ARG_COUNT32 },
		{ "job", "NAME", "of what this job holds", &job, ARG_TEXT },
		{ "device", "N", "the budget of this device, not of each", &device, ARG_COUNT32 },
	};
	const struct args args = {
		.usage = "pool limit --bytes BYTES [OPTIONS]",
		.summary =
			"Sets the budget of each device, the quota of a user, or that of a job, while jobs\n"
			"run. What is held above it stays until it is freed.",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.examples = "  relive pool limit --bytes 6G\n"
			    "  relive pool limit --user 1000 --bytes 2G\n",
	};
	int code = cli_parse(&args, argc, argv), ret;

	if (code != CLI_CONTINUE)
		return code;
	if (bytes == UINT64_MAX) {
		cli_error("pool limit: --bytes is missing");
		return CLI_USAGE;
	}
	if ((job != NULL) + (user != UINT32_MAX) + (device != UINT32_MAX) > 1) {
		cli_error("pool limit: give one of --user, --job and --device");
		return CLI_USAGE;
	}
	if (job)
		ret = rlv_pool_limit_job(pool, job, bytes);
	else if (user != UINT32_MAX)
		ret = rlv_pool_limit_user(pool, user, bytes);
	else if (device != UINT32_MAX)
		ret = rlv_pool_limit_device(pool, device, bytes);
	else
		ret = rlv_pool_limit(pool, bytes);
	if (ret)
		return cli_fail(ret, "limit pool %s", pool);
	return cli_result(
		json,
		(const struct param[]){ { .key = "pool", .text = pool },
					{ .key = "bytes", .number = bytes, .kind = PARAM_NUMBER } },
		2, "pool %s: limit set\n", pool);
}

int pool_drain(int argc, char **argv)
{
	const char *pool = "0";
	bool json = false, off = false;
	const struct arg_option options[] = {
		POOL_OPTIONS(pool, json),
		{ "off", NULL, "take new jobs again", &off, ARG_FLAG },
	};
	const struct args args = {
		.usage = "pool drain [OPTIONS]",
		.summary =
			"Lets a pool take no new jobs. Jobs that it has go on; relive pool status says\n"
			"when the last one has left.",
		.options = options,
		.n_options = ARRAY_LEN(options),
	};
	int code = cli_parse(&args, argc, argv), ret;

	if (code != CLI_CONTINUE)
		return code;
	ret = rlv_pool_drain(pool, !off);
	if (ret)
		return cli_fail(ret, "drain pool %s", pool);
	return cli_result(json, (const struct param[]){ { .key = "pool", .text = pool } }, 1,
			  "pool %s: %s\n", pool, off ? "takes new jobs" : "takes no new jobs");
}
