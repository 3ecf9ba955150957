/* device/cuda/calls.h: drivers that are missing, too old or broken, and what is said of them. */
#include "tests/support/test.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "device/cuda/calls.h"
#include "tests/support/fake/fake_cuda.h"

static const struct fakecuda_control *fake;

static void load_fails(int code, const char *call, const char *remedy)
{
	const struct cuda_calls *calls = NULL;

	assert_int_equal(cuda_calls_load(&calls), code);
	assert_null(calls);
	if (!strstr(error_last(), call) || !strstr(error_last(), remedy))
		fail_msg("\"%s\" names no %s, or no remedy (%s)", error_last(), call, remedy);
}

static int fake_setup(void **state)
{
	(void)state;
	fake = fake_cuda_open();
	fake->reset();
	return 0;
}

/* Once a load worked its table stays: the tests of failures come first. */
TEST(load__without_libcuda_says_what_to_install)
{
	(void)setenv(CUDA_LIBRARY_ENV, "/nowhere/libcuda.so.1", 1);
	load_fails(-ENOTSUP, "dlopen(/nowhere/libcuda.so.1)", "install the NVIDIA driver");
	(void)unsetenv(CUDA_LIBRARY_ENV);
}

TEST(load__refuses_a_library_that_is_no_driver)
{
	(void)setenv(CUDA_LIBRARY_ENV, "libm.so.6", 1);
	load_fails(-ENOTSUP, "cuGetProcAddress_v2", "install a driver for CUDA 12.0");
	(void)unsetenv(CUDA_LIBRARY_ENV);
}

TEST_WITH(load__names_the_first_call_that_an_old_driver_lacks, fake_setup, NULL)
{
	fake->driver(10010);
	load_fails(-ENOTSUP, "cuDevicePrimaryCtxRelease",
		   "(10.1) has no such call: install a driver for CUDA 11.0");
	fake->reset();
	fake->hide("cuMemCreate");
	load_fails(-ENOTSUP, "cuMemCreate", "install a driver for CUDA 10.2");
}

TEST_WITH(load__names_cuinit_when_there_is_no_gpu, fake_setup, NULL)
{
	fake->fail_call("cuInit", 1, CU_NO_DEVICE);
	load_fails(-ENODEV, "cuInit: CUDA_ERROR_NO_DEVICE (100)", "nvidia-smi");
}

TEST_WITH(load__names_the_stub_of_the_toolkit, fake_setup, NULL)
{
	fake->fail_call("cuInit", 1, CU_STUB_LIBRARY);
	load_fails(-ENOTSUP, "cuInit", "the toolkit's stub");
}

/* A driver of CUDA 12.4: what is optional is NULL, the same table is given from then on. */
TEST_WITH(load__leaves_out_what_is_optional, fake_setup, NULL)
{
	const struct cuda_calls *calls = NULL, *again = NULL;

	fake->driver(12040);
	assert_int_equal(cuda_calls_load(&calls), 0);
	assert_null(calls->copy_batch);
	assert_non_null(calls->stream_write);
	assert_non_null(calls->mem_create);
	fake->lose(CU_ECC_UNCORRECTABLE);
	assert_int_equal(cuda_calls_load(&again), 0);
	assert_ptr_equal(again, calls);
}

TEST_WITH(result__gives_each_kind_of_failure_its_code, fake_setup, NULL)
{
	static const struct {
		unsigned result;
		int code;
		const char *remedy;
	} cases[] = {
		{ CU_OUT_OF_MEMORY, -ENOMEM, "budget" },
		{ CU_NOT_READY, -EAGAIN, "again" },
		{ CU_ILLEGAL_ADDRESS, -ENODEV, "restart the process" },
		{ CU_ECC_UNCORRECTABLE, -ENODEV, "restart the process" },
		{ CU_NOT_SUPPORTED, -ENOTSUP, "lacks" },
		{ CU_INVALID_VALUE, -EINVAL, "report" },
		{ 12345, -EIO, "kernel's log" },
	};
	const struct cuda_calls *calls;

	assert_int_equal(cuda_calls_load(&calls), 0);
	assert_int_equal(cuda_result(calls, "cuMemMap", CU_OK), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(cuda_result(calls, "cuMemMap", cases[i].result), cases[i].code);
		assert_non_null(strstr(error_last(), "cuMemMap: "));
		assert_non_null(strstr(error_last(), cases[i].remedy));
	}
}

int main(void)
{
	return test_run(NULL, NULL);
}
