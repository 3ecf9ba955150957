#include "tests/support/fake/fake_cuda.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/test.h"

/* build/bin/PROGRAM -> build/lib/fakecuda/libcuda.so.1 */
static void fake_path(char path[PATH_MAX])
{
	const char *bin = getenv("RLV_BIN_DIR");
	char self[PATH_MAX] = "";

	if (!bin) {
		assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
		*strrchr(self, '/') = 0;
		bin = self;
	}
	assert_true(snprintf(path, PATH_MAX, "%s/../lib/fakecuda/libcuda.so.1", bin) < PATH_MAX);
}

const struct fakecuda_control *fake_cuda_open(void)
{
	static const struct fakecuda_control *control;
	fakecuda_control_fn *fn;
	char path[PATH_MAX];
	void *library;

	if (control)
		return control;
	fake_path(path);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		fail_msg("%s", dlerror());
	*(void **)&fn = dlsym(library, FAKECUDA_SYMBOL);
	assert_non_null(fn);
	assert_int_equal(setenv("RLV_CUDA_LIBRARY", path, 1), 0);
	control = fn();
	return control;
}
