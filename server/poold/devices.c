/*
 * devices.c - the devices of a pool: a backend, a broker and watched processes for each.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <event2/event.h>

#include "device/cuda/backend_cuda.h"
#include "device/host/backend_host.h"
#include "device/placement.h"

#include "base/log.h"
#include "base/os/pidfd.h"

#include "server/poold/peers.h"

/* -------- processes of jobs -------- */

static void poold_unwatch(struct poold_process *process)
{
	if (process->ended)
		event_free(process->ended);
	if (process->pidfd >= 0)
		close(process->pidfd);
	*process = (struct poold_process){ .pidfd = -1 };
}

static void on_ended(evutil_socket_t fd, short what, void *arg)
{
	struct poold_device *device = arg;
	uint32_t job = 0;

	(void)what;
	while (job < LEDGER_JOBS && device->processes[job].pidfd != (int)fd)
		job++;
	if (job == LEDGER_JOBS)
		return;
	poold_peers_drop(device, job);
	broker_died(device->broker, job);
	poold_unwatch(&device->processes[job]);
	poold_turn(device->poold);
}

int poold_watch(struct poold_device *device, uint32_t job, int pidfd)
{
	struct poold_process *process = &device->processes[job];

	poold_unwatch(process);
	process->pidfd = pidfd;
	process->ended = event_new(device->poold->base, pidfd, EV_READ, on_ended, device);
	if (process->ended && event_add(process->ended, NULL) == 0)
		return 0;
	poold_unwatch(process);
	return error_set(-ENOMEM, "event loop: cannot allocate memory");
}

/* Watches the processes of the jobs that the roster had. */
static int device_watch_all(struct poold_device *device)
{
	struct broker *broker = device->broker;

	for (uint32_t i = 0; i < LEDGER_JOBS; i++) {
		struct process_id id;
		int pidfd, ret;

		if (broker->jobs[i].state == BROKER_NOBODY)
			continue;
		id = roster_process(broker->jobs[i].kept);
		ret = pidfd_open_process(&id, &pidfd);
		if (ret == -ESRCH) {
			broker_died(broker, i);
			continue;
		}
		if (ret == 0)
			ret = poold_watch(device, i, pidfd);
		if (ret)
			return ret;
		log_info("job %s process %" PRIu32 " holds %" PRIu64 " extents",
			 broker->jobs[i].kept->name, id.pid, broker->ledger.jobs[i].held);
	}
	return 0;
}

/* -------- open and close -------- */

static void device_wake(void *ctx, uint32_t job)
{
	poold_peers_wake(ctx, job);
}

/* Extents that a user's jobs hold on the other devices. */
static uint64_t device_elsewhere(void *ctx, uint32_t uid)
{
	const struct poold_device *device = ctx;
	const struct poold *poold = device->poold;
	uint64_t held = 0;

	for (uint32_t i = 0; i < poold->opts.n_devices; i++) {
		const struct broker *broker = poold->devices[i].broker;

		if (&poold->devices[i] != device && broker)
			held += broker_user_held(broker, uid);
	}
	return held;
}

/* *bytes is what is shared of it. */
static int device_open_backend(struct poold_device *device, uint64_t *bytes)
{
	const struct backend_host_opts host = { .device_bytes = *bytes };
	const struct poold_opts *opts = &device->poold->opts;
	const uint32_t number = opts->cuda[poold_device_number(device)];
	const struct backend_cuda_opts cuda = { .device = (int)number - 1 };
	uint64_t extent = opts->broker.extent_bytes;
	struct backend_info info;
	int ret;

	if (!number)
		return backend_host_open(&host, &device->backend);
	ret = backend_cuda_open(&cuda, &device->backend);
	if (ret)
		return ret;
	device->backend->ops->info(device->backend, &info);
	if (!*bytes)
		*bytes = info.device_bytes / 10 * 9;
	if (*bytes > info.device_bytes)
		return error_set(-EINVAL, "--device cuda:%d: it has %" PRIu64 " bytes", cuda.device,
				 info.device_bytes);
	*bytes -= extent ? *bytes % extent : 0;
	return 0;
}

static int device_open_broker(struct poold_device *device, uint64_t bytes, const char *roster)
{
	struct broker_opts opts = device->poold->opts.broker;
	int ret = device_open_backend(device, &bytes);

	if (ret)
		return ret;
	opts.backend = device->backend;
	opts.clock = clock_monotonic();
	opts.roster = roster;
	opts.bytes = bytes;
	opts.scrubs = device->poold->opts.cuda[poold_device_number(device)] != 0;
	opts.wake = device_wake;
	opts.elsewhere = device_elsewhere;
	opts.ctx = device;
	ret = broker_open(&opts, &device->broker);
	if (ret)
		return ret;
	device->broker->opts.roster = NULL; /* it is open */
	return device_watch_all(device);
}

int poold_device_open(struct poold *poold, uint32_t number)
{
	struct poold_device *device = &poold->devices[number];
	char name[32] = "roster", path[RUNTIME_PATH_BYTES];
	int ret;

	device->poold = poold;
	for (uint32_t i = 0; i < LEDGER_JOBS; i++)
		device->processes[i].pidfd = -1;
	if (number)
		(void)snprintf(name, sizeof(name), "roster-%" PRIu32, number);
	ret = runtime_dir_file(&poold->dir, name, path);
	if (ret == 0 && number >= poold->opts.n_devices)
		return roster_retire(path);
	if (ret == 0)
		ret = device_open_broker(device, poold->opts.bytes[number], path);
	return ret ? error_prefix(ret, "device %" PRIu32 ": ", number) : 0;
}

void poold_device_close(struct poold_device *device)
{
	if (!device->poold)
		return;
	for (uint32_t i = 0; i < LEDGER_JOBS; i++)
		poold_unwatch(&device->processes[i]);
	broker_close(&device->broker);
	if (device->backend)
		device->backend->ops->close(device->backend);
}

/* -------- placement -------- */

/* -EEXIST: a device has a job of that name. */
static int poold_name_is_new(const struct poold *poold, const char *name)
{
	for (uint32_t i = 0; i < poold->opts.n_devices; i++) {
		if (broker_find(poold->devices[i].broker, name) != LEDGER_JOBS)
			return error_set(-EEXIST, "device %" PRIu32 " has a job %s", i, name);
	}
	return 0;
}

static int poold_choose(const struct poold *poold, const struct lease_hello *hello,
			uint32_t *number_out)
{
	const struct gate *gates[POOLD_DEVICES];
	struct curve curve = { .peak = hello->peak };
	const struct gate_request request = { .persistent = hello->persistent, .curve = &curve };

	*number_out = 0;
	if (poold->opts.n_devices == 1) /* its broker says what is wrong */
		return 0;
	for (uint32_t i = 0; i < poold->opts.n_devices; i++)
		gates[i] = broker_is_full(poold->devices[i].broker)
				   ? NULL
				   : &poold->devices[i].broker->gate;
	return placement_choose(gates, poold->opts.n_devices, &request, number_out);
}

int poold_place(struct poold *poold, const struct lease_hello *hello,
		struct poold_device **device_out)
{
	uint32_t number = hello->device - 1;
	int ret = hello->incarnation ? 0 : poold_name_is_new(poold, hello->name);

	if (ret == 0 && hello->device > poold->opts.n_devices)
		ret = error_set(-EINVAL, "job %s: device %" PRIu32 " of %" PRIu32, hello->name,
				number, poold->opts.n_devices);
	if (ret == 0 && !hello->device)
		ret = poold_choose(poold, hello, &number);
	if (ret == 0)
		*device_out = &poold->devices[number];
	return ret;
}
