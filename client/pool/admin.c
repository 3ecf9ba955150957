#include "relive/pool.h"

#include "client/pool/lease.h"
#include "client/store/abi.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static int pool_connect(const char *pool, int *sock_out)
{
	return pool ? lease_connect(pool, sock_out) : error_set(-EINVAL, "pool is NULL");
}

/* Sends one request and takes its answer, of that type. */
static int pool_call(int sock, struct lease_message *message, enum lease_type type,
		     enum lease_type answer)
{
	int ret =
		lease_call(sock, message, type, deadline_after(clock_monotonic(), LEASE_ANSWER_NS));

	if (ret == -ECONNRESET || ret == -ETIMEDOUT)
		return error_set(-EHOSTDOWN, "%s", error_last());
	if (ret == 0 && message->head.type != answer)
		ret = error_set(-EPROTO, "the pool's broker answers with type %u",
				message->head.type);
	if (ret == 0 && answer == LEASE_ANSWER && message->answer.status)
		ret = error_set(message->answer.status, "%s", message->answer.text);
	return ret;
}

static int pool_once(const char *pool, struct lease_message *message, enum lease_type type,
		     enum lease_type answer)
{
	int sock, ret = pool_connect(pool, &sock);

	if (ret)
		return ret;
	ret = pool_call(sock, message, type, answer);
	close(sock);
	return ret;
}

/* Adds what a device has. */
static void pool_add_device(struct rlv_pool_info *info, const struct lease_pool_answer *from)
{
	info->flags |= from->flags;
	info->jobs += from->jobs;
	info->device_bytes += from->device_bytes;
	info->budget_bytes += from->budget;
	info->held_bytes += from->held;
	info->extent_bytes = from->extent_bytes;
	info->handovers += from->handovers;
	info->deaths += from->deaths;
	info->adopted += from->adopted;
	info->iterations += from->iterations;
	info->overshoots += from->overshoots;
	info->cut += from->cut;
}

static int pool_ask_device(int sock, uint32_t device, struct lease_message *message)
{
	memset(message, 0, sizeof(*message));
	message->ask.first = LEASE_POOL;
	message->ask.device = device;
	return pool_call(sock, message, LEASE_ASK, LEASE_POOL_ANSWER);
}

int rlv_pool_status(const char *pool, struct rlv_pool_info *info_out)
{
	struct rlv_pool_info info = RLV_POOL_INFO_INIT;
	struct lease_message message;
	int sock, ret = abi_check(info_out, "info_out->");

	if (ret == 0)
		ret = pool_connect(pool, &sock);
	if (ret)
		return ret;
	info.devices = 1;
	for (uint32_t i = 0; i < info.devices && ret == 0; i++) {
		ret = pool_ask_device(sock, i, &message);
		if (ret)
			break;
		info.devices = message.pool.devices;
		pool_add_device(&info, &message.pool);
	}
	close(sock);
	if (ret == 0)
		abi_write(info_out, &info, sizeof(info));
	return ret;
}

int rlv_pool_devices(const char *pool, struct rlv_pool_device_info *devices, size_t size,
		     size_t *n_inout)
{
	struct abi_array array = { .theirs = devices, .size = size, .n_inout = n_inout };
	struct rlv_pool_device_info *ours;
	struct lease_message message;
	size_t room, n = 1;
	int sock, ret = abi_array_begin(&array, sizeof(*ours), "devices");

	if (ret)
		return ret;
	ours = array.ours;
	room = array.n;
	ret = pool_connect(pool, &sock);
	if (ret)
		return abi_array_end(&array, ret);
	for (uint32_t i = 0; i < n && ret == 0; i++) {
		ret = pool_ask_device(sock, i, &message);
		if (ret)
			break;
		n = message.pool.devices;
		if (i >= room)
			continue;
		memcpy(ours[i].name, message.pool.name, sizeof(ours[i].name));
		ours[i].number = i;
		ours[i].jobs = message.pool.jobs;
		ours[i].device_bytes = message.pool.device_bytes;
		ours[i].budget_bytes = message.pool.budget;
		ours[i].held_bytes = message.pool.held;
		ours[i].handovers = message.pool.handovers;
	}
	close(sock);
	array.n = n;
	return abi_array_end(&array, ret);
}

static void pool_take_job(const struct lease_job *from, struct rlv_pool_job *to)
{
	memcpy(to->name, from->name, sizeof(to->name));
	to->pid = from->pid;
	to->uid = from->uid;
	to->state = from->state;
	to->reason = from->reason;
	to->position = from->position;
	to->connected = from->connected;
	to->priority = from->priority;
	to->device = from->device;
	to->held_bytes = from->held;
	to->most_bytes = from->most;
	to->quota_bytes = from->quota;
	to->persistent_bytes = from->persistent;
	to->iteration_bytes = from->peak;
	to->iterations = from->iterations;
	to->waited_ns = from->waited_ns;
	to->served_ns = from->served_ns;
}

int rlv_pool_jobs(const char *pool, struct rlv_pool_job *jobs, size_t size, size_t *n_inout)
{
	struct abi_array array = { .theirs = jobs, .size = size, .n_inout = n_inout };
	struct lease_message message;
	struct rlv_pool_job *ours;
	size_t room, n = 0, total = 0;
	int sock, ret = abi_array_begin(&array, sizeof(*ours), "jobs");

	if (ret)
		return ret;
	ours = array.ours;
	room = array.n;
	ret = pool_connect(pool, &sock);
	if (ret)
		return abi_array_end(&array, ret);
	do {
		memset(&message, 0, sizeof(message));
		message.ask.first = (uint32_t)n;
		ret = pool_call(sock, &message, LEASE_ASK, LEASE_JOBS_ANSWER);
		if (ret == 0 && (message.jobs.first != n || (n && message.jobs.total != total)))
			ret = error_set(-EPROTO, "the pool's broker answers for other jobs");
		if (ret)
			break;
		total = message.jobs.total;
		for (uint32_t i = 0; i < message.jobs.n && n + i < room; i++)
			pool_take_job(&message.jobs.jobs[i], &ours[n + i]);
		n += message.jobs.n;
	} while (n < total);
	close(sock);
	array.n = n;
	return abi_array_end(&array, ret);
}

static int pool_limit_one(const char *pool, const struct lease_limit *limit)
{
	struct lease_message message = { .limit = *limit };

	return pool_once(pool, &message, LEASE_LIMIT, LEASE_ANSWER);
}

int rlv_pool_limit(const char *pool, uint64_t bytes)
{
	return pool_limit_one(pool,
			      &(struct lease_limit){ .kind = LEASE_LIMIT_BUDGET, .bytes = bytes });
}

int rlv_pool_limit_device(const char *pool, uint32_t device, uint64_t bytes)
{
	if (device == UINT32_MAX)
		return error_set(-EINVAL, "device: there is none of that number");
	return pool_limit_one(pool, &(struct lease_limit){ .kind = LEASE_LIMIT_BUDGET,
							   .device = device + 1,
							   .bytes = bytes });
}

int rlv_pool_limit_user(const char *pool, uint32_t uid, uint64_t bytes)
{
	return pool_limit_one(pool, &(struct lease_limit){
					    .kind = LEASE_LIMIT_USER, .uid = uid, .bytes = bytes });
}

int rlv_pool_limit_job(const char *pool, const char *name, uint64_t bytes)
{
	struct lease_limit limit = { .kind = LEASE_LIMIT_JOB, .bytes = bytes };

	if (!name || strlen(name) >= sizeof(limit.name))
		return error_set(-EINVAL, "name: want 1 to 63 bytes");
	memcpy(limit.name, name, strlen(name) + 1);
	return pool_limit_one(pool, &limit);
}

int rlv_pool_drain(const char *pool, int on)
{
	struct lease_message message = { .n_fds = 0 };

	message.drain.on = on != 0;
	return pool_once(pool, &message, LEASE_DRAIN, LEASE_ANSWER);
}
