/*
 * calls.c - looks for libcuda, and for each call in it.
 */
#include "device/cuda/calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/os/lock.h"

static LOCK_ROLE(cuda_role, "cuda calls", LOCK_RANK_LEAF);

static const struct entry {
	const char *name;
	size_t at; /* of the member */
	int since;
	bool required;
} entries[] = {
#define CUDA_ENTRY(member, name, since, required, arguments) \
	{ #name, offsetof(struct cuda_calls, member), since, required },
	CUDA_CALLS(CUDA_ENTRY)
#undef CUDA_ENTRY
};

static struct {
	struct lock lock;
	struct cuda_calls calls;
	bool ready;
} driver = { .lock = LOCK_INIT(&cuda_role) };

typedef unsigned get_proc_fn(const char *name, void **fn, int version, uint64_t flags,
			     unsigned *status);

/* ISO C has no conversion from an object's pointer to a function's: the bytes are the same. */
static void *symbol(void *library, const char *name)
{
	return dlsym(library, name);
}

static int too_old(const struct entry *entry, int version)
{
	return error_set(-ENOTSUP,
			 "%s: the CUDA driver (%d.%d) has no such call: install a driver for CUDA "
			 "%d.%d or later",
			 entry->name, version / 1000, version % 1000 / 10, entry->since / 1000,
			 entry->since % 1000 / 10);
}

static int look_up(void *library, struct cuda_calls *calls)
{
	get_proc_fn *get_proc;
	unsigned (*version_fn)(int *);
	int version = 0;

	*(void **)&get_proc = symbol(library, "cuGetProcAddress_v2");
	*(void **)&version_fn = symbol(library, "cuDriverGetVersion");
	if (version_fn)
		(void)version_fn(&version);
	if (!get_proc)
		return too_old(&(struct entry){ "cuGetProcAddress_v2", 0, 12000, true }, version);
	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		const struct entry *entry = &entries[i];
		void *fn = NULL;
		unsigned status = 0;

		if (get_proc(entry->name, &fn, entry->since, CU_PROC_DEFAULT, &status) != CU_OK ||
		    status)
			fn = NULL;
		if (!fn && entry->required)
			return too_old(entry, version);
		*(void **)((char *)calls + entry->at) = fn;
	}
	return 0;
}

static int driver_open(struct cuda_calls *calls)
{
	const char *named = getenv(CUDA_LIBRARY_ENV);
	const char *file = named && *named ? named : CUDA_LIBRARY;
	void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	int err;

	if (!library)
		return error_set(
			-ENOTSUP,
			"dlopen(%s): %s: install the NVIDIA driver, name its library in " CUDA_LIBRARY_ENV
			", or use the host backend",
			file, dlerror());
	err = look_up(library, calls);
	if (!err)
		err = cuda_result(calls, "cuInit", calls->init(0));
	if (err)
		(void)dlclose(library);
	return err;
}

int cuda_calls_load(const struct cuda_calls **calls_out)
{
	int err = 0;

	lock_acquire(&driver.lock, &cuda_role);
	if (!driver.ready)
		err = driver_open(&driver.calls);
	driver.ready = !err;
	lock_release(&driver.lock, &cuda_role);
	if (!err)
		*calls_out = &driver.calls;
	return err;
}

static const struct meaning {
	unsigned result;
	int code;
	const char *remedy;
} meanings[] = {
	{ CU_OUT_OF_MEMORY, -ENOMEM, "lower the pool's budget, or free memory of other processes" },
	{ CU_NOT_READY, -EAGAIN, "ask again later" },
	{ CU_INVALID_VALUE, -EINVAL, "a fault in the device pool: report it" },
	{ CU_INVALID_HANDLE, -EINVAL, "a fault in the device pool: report it" },
	{ CU_STUB_LIBRARY, -ENOTSUP,
	  "it is the toolkit's stub: put the driver's libcuda.so.1 before it" },
	{ CU_NO_DEVICE, -ENODEV, "no GPU is visible: see nvidia-smi and CUDA_VISIBLE_DEVICES" },
	{ CU_INVALID_DEVICE, -ENODEV, "see nvidia-smi and CUDA_VISIBLE_DEVICES" },
	{ CU_ECC_UNCORRECTABLE, -ENODEV, "the device is lost: restart the process" },
	{ CU_ILLEGAL_ADDRESS, -ENODEV, "the context is lost: restart the process" },
	{ CU_CONTEXT_IS_DESTROYED, -ENODEV, "the context is lost: restart the process" },
	{ CU_HARDWARE_STACK_ERROR, -ENODEV, "the context is lost: restart the process" },
	{ CU_LAUNCH_FAILED, -ENODEV, "the context is lost: restart the process" },
	{ CU_MPS_CLIENT_TERMINATED, -ENODEV, "the context is lost: restart the process" },
	{ CU_DEINITIALIZED, -ENODEV, "the driver has shut down: the process is exiting" },
	{ CU_UNSUPPORTED_PTX_VERSION, -ENOTSUP, "install a newer driver" },
	{ CU_NOT_SUPPORTED, -ENOTSUP, "this device or driver lacks it" },
	{ CU_SYSTEM_NOT_READY, -ENOTSUP, "start nvidia-fabricmanager" },
	{ CU_SYSTEM_DRIVER_MISMATCH, -ENOTSUP, "restart the machine: driver and libcuda differ" },
	{ CU_NOT_PERMITTED, -EACCES, "the process lacks the right" },
	{ CU_OPERATING_SYSTEM, -EIO, "look at the limits of open files and locked memory" },
};

int cuda_result(const struct cuda_calls *calls, const char *call, unsigned result)
{
	const char *name = NULL;
	int code = -EIO;
	const char *remedy = "see the kernel's log for lines of NVRM";

	if (result == CU_OK)
		return 0;
	for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++) {
		if (meanings[i].result == result) {
			code = meanings[i].code;
			remedy = meanings[i].remedy;
		}
	}
	(void)calls->error_name(result, &name);
	return error_set(code, "%s: %s (%u): %s", call, name ? name : "unknown result", result,
			 remedy);
}
