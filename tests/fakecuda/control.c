/*
 * control.c - counts, failures, versions and attributes of the fake driver, and its table of calls.
 */
#include "tests/fakecuda/control.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/fakecuda/fake.h"

EXPORT const struct fakecuda_control *fakecuda_control(void);

#define ATTRIBUTES 160

static const struct {
	const char *name;
	void (*fn)(void);
	int since;
} table[] = {
#define FAKE_ENTRY(member, name, since, required, arguments) { #name, (void (*)(void))name, since },
	CUDA_CALLS(FAKE_ENTRY)
};

/* kvcached's figures of an A100 for an extent of 2 MiB, in ns. */
static const struct {
	enum fake_call call;
	long ns;
} latencies[] = {
	{ FAKE_mem_create, 193000 },
	{ FAKE_mem_map, 1450 },
	{ FAKE_mem_set_access, 36000 },
	{ FAKE_mem_unmap, 25600 },
};

pthread_mutex_t fake_mutex = PTHREAD_MUTEX_INITIALIZER;

static struct state {
	uint64_t calls[FAKE_CALLS];
	int fail_call; /* of the table, or -1: any */
	uint64_t fail_in;
	unsigned fail_result, lost;
	int driver, hidden;
	int attributes[ATTRIBUTES];
	bool slow;
	uint64_t violations;
	char violation[256];
} state;

void fake_lock(void)
{
	(void)pthread_mutex_lock(&fake_mutex);
}

void fake_unlock(void)
{
	(void)pthread_mutex_unlock(&fake_mutex);
}

void fake_violation(const char *fmt, ...)
{
	va_list args;

	if (state.violations++)
		return;
	va_start(args, fmt);
	(void)vsnprintf(state.violation, sizeof(state.violation), fmt, args);
	va_end(args);
}

void fake_lose(unsigned result)
{
	state.lost = result;
}

unsigned fake_lost(void)
{
	return state.lost;
}

static int call_named(const char *name)
{
	for (int i = 0; name && i < FAKE_CALLS; i++) {
		if (!strcmp(table[i].name, name))
			return i;
	}
	return -1;
}

unsigned fake_enter(enum fake_call call)
{
	struct timespec pause = { 0 };
	unsigned result;

	if (call == FAKE_error_name)
		return CU_OK;
	fake_lock();
	state.calls[call]++;
	result = state.lost;
	if (!result && state.fail_in && (state.fail_call < 0 || state.fail_call == (int)call) &&
	    --state.fail_in == 0)
		result = state.fail_result;
	for (size_t i = 0; state.slow && i < sizeof(latencies) / sizeof(latencies[0]); i++) {
		if (latencies[i].call == call)
			pause.tv_nsec = latencies[i].ns;
	}
	fake_unlock();
	if (pause.tv_nsec)
		(void)nanosleep(&pause, NULL);
	return result;
}

static void control_defaults(void)
{
	static const unsigned there[] = {
		CU_ATTR_VMM,        CU_ATTR_POSIX_FD,          CU_ATTR_GDR_WITH_VMM,
		CU_ATTR_GDR,        CU_ATTR_STREAM_MEM_OPS_64, CU_ATTR_DMA_BUF,
		CU_ATTR_IPC_EVENTS, CU_ATTR_GDR_FLUSH_OPTIONS, CU_ATTR_HOST_READONLY
	};

	memset(&state, 0, sizeof(state));
	state.fail_call = state.hidden = -1;
	state.driver = 13000;
	for (size_t i = 0; i < sizeof(there) / sizeof(there[0]); i++)
		state.attributes[there[i]] = 1;
	state.attributes[CU_ATTR_GDR_WRITES_ORDERING] = CU_GDR_ORDERED_TO_OWNER;
}

static void control_environment(const char *text)
{
	char word[64];
	int used;

	for (; text && sscanf(text, " %63s%n", word, &used) == 1; text += used) {
		if (!strncmp(word, "driver=", 7))
			state.driver = atoi(word + 7);
		else if (!strncmp(word, "memory_mib=", 11))
			(void)fake_memory(strtoull(word + 11, NULL, 10) << 20);
		else if (!strncmp(word, "hide=", 5))
			state.hidden = call_named(word + 5);
		else if (!strncmp(word, "latencies=", 10))
			state.slow = atoi(word + 10) != 0;
	}
}

__attribute__((constructor)) static void control_begin(void)
{
	control_defaults();
	control_environment(getenv("RLV_FAKECUDA"));
}

static void control_reset(void)
{
	fake_lock();
	control_defaults();
	fake_hold(0);
	fake_watch_reuse(false);
	fake_unlock();
}

static uint64_t control_calls(const char *name)
{
	int only = call_named(name);
	uint64_t sum = 0;

	fake_lock();
	for (int i = 0; i < FAKE_CALLS; i++)
		sum += !name || i == only ? state.calls[i] : 0;
	fake_unlock();
	return sum;
}

static void control_fail(const char *name, uint64_t nth, unsigned result)
{
	fake_lock();
	state.fail_call = call_named(name);
	state.fail_in = nth;
	state.fail_result = result;
	fake_unlock();
}

static void control_lose(unsigned result)
{
	fake_lock();
	fake_lose(result);
	fake_unlock();
}

static void control_driver(int version)
{
	state.driver = version;
}

static void control_hide(const char *name)
{
	state.hidden = call_named(name);
}

static void control_attribute(unsigned attribute, int value)
{
	if (attribute < ATTRIBUTES)
		state.attributes[attribute] = value;
}

static void control_memory(size_t bytes)
{
	fake_lock();
	(void)fake_memory(bytes);
	fake_unlock();
}

static void control_latencies(bool on)
{
	state.slow = on;
}

static void control_hold(uint64_t op_ns)
{
	fake_lock();
	fake_hold(op_ns);
	fake_unlock();
}

static void control_advance(uint64_t ns)
{
	fake_lock();
	fake_advance(ns);
	fake_unlock();
}

static uint64_t control_violations(char *text, size_t bytes)
{
	uint64_t n;

	fake_lock();
	n = state.violations;
	if (text)
		(void)snprintf(text, bytes, "%s", state.violation);
	fake_unlock();
	return n;
}

static void control_watch_reuse(bool on)
{
	fake_lock();
	fake_watch_reuse(on);
	fake_unlock();
}

static size_t control_mapped_bytes(void)
{
	size_t bytes;

	fake_lock();
	bytes = fake_mapped_bytes();
	fake_unlock();
	return bytes;
}

static size_t control_created_bytes(void)
{
	size_t bytes;

	fake_lock();
	bytes = fake_created_bytes();
	fake_unlock();
	return bytes;
}

const struct fakecuda_control *fakecuda_control(void)
{
	static const struct fakecuda_control control = {
		.reset = control_reset,
		.calls = control_calls,
		.fail_call = control_fail,
		.lose = control_lose,
		.driver = control_driver,
		.hide = control_hide,
		.attribute = control_attribute,
		.memory = control_memory,
		.latencies = control_latencies,
		.hold = control_hold,
		.advance = control_advance,
		.violations = control_violations,
		.watch_reuse = control_watch_reuse,
		.mapped_bytes = control_mapped_bytes,
		.created_bytes = control_created_bytes,
		.graphs = fake_graphs,
	};

	return &control;
}

unsigned cuGetProcAddress_v2(const char *name, void **fn, int version, uint64_t flags,
			     unsigned *status)
{
	int at = call_named(name);

	(void)flags;
	*fn = NULL;
	*status = 1;
	if (at < 0 || at == state.hidden || !table[at].fn || table[at].since > state.driver)
		return CU_NOT_FOUND;
	if (version < table[at].since) {
		*status = 2;
		return CU_NOT_FOUND;
	}
	*status = 0;
	*(void (**)(void))fn = table[at].fn;
	return CU_OK;
}

unsigned cuInit(unsigned flags)
{
	FAKE_ENTER(init);
	return flags ? CU_INVALID_VALUE : CU_OK;
}

unsigned cuDriverGetVersion(int *version)
{
	FAKE_ENTER(driver_version);
	*version = state.driver;
	return CU_OK;
}

unsigned cuDeviceGetCount(int *count)
{
	FAKE_ENTER(device_count);
	*count = 1;
	return CU_OK;
}

unsigned cuDeviceGet(int *device, int ordinal)
{
	FAKE_ENTER(device_get);
	*device = 0;
	return ordinal ? CU_INVALID_DEVICE : CU_OK;
}

unsigned cuDeviceGetName(char *name, int len, int device)
{
	FAKE_ENTER(device_name);
	(void)snprintf(name, (size_t)len, "fake device %d", device);
	return CU_OK;
}

unsigned cuDeviceGetAttribute(int *value, unsigned attribute, int device)
{
	FAKE_ENTER(device_attribute);
	if (device || attribute >= ATTRIBUTES)
		return CU_INVALID_VALUE;
	*value = state.attributes[attribute];
	return CU_OK;
}

/* There is one context, and every thread that sets it has it. */
static _Thread_local struct cu_context *current;
static char context;

unsigned cuDevicePrimaryCtxRetain(struct cu_context **context_out, int device)
{
	FAKE_ENTER(context_retain);
	*context_out = (struct cu_context *)(void *)&context;
	return device ? CU_INVALID_DEVICE : CU_OK;
}

unsigned cuDevicePrimaryCtxRelease(int device)
{
	FAKE_ENTER(context_release);
	return device ? CU_INVALID_DEVICE : CU_OK;
}

unsigned cuCtxSetCurrent(struct cu_context *wanted)
{
	FAKE_ENTER(context_set);
	current = wanted;
	return CU_OK;
}

unsigned cuCtxGetCurrent(struct cu_context **context_out)
{
	FAKE_ENTER(context_get);
	*context_out = current;
	return CU_OK;
}

unsigned cuFlushGPUDirectRDMAWrites(unsigned target, unsigned scope)
{
	FAKE_ENTER(flush_rdma_writes);
	return target == CU_FLUSH_CURRENT_CONTEXT && scope == CU_FLUSH_TO_OWNER ? CU_OK
										: CU_INVALID_VALUE;
}

unsigned cuGetErrorName(unsigned error, const char **text)
{
	static const struct {
		unsigned error;
		const char *name;
	} names[] = {
		{ CU_OK, "CUDA_SUCCESS" },
		{ CU_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE" },
		{ CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY" },
		{ CU_NO_DEVICE, "CUDA_ERROR_NO_DEVICE" },
		{ CU_NOT_FOUND, "CUDA_ERROR_NOT_FOUND" },
		{ CU_NOT_READY, "CUDA_ERROR_NOT_READY" },
		{ CU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS" },
		{ CU_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED" },
	};

	*text = "an error of the fake driver";
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (names[i].error == error)
			*text = names[i].name;
	}
	return CU_OK;
}
