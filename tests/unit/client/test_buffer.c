#include <relive/relive.h>

#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

TEST(buffer_alloc__is_found_until_it_is_freed)
{
	char *buffer = NULL, *part;

	assert_int_equal(rlv_buffer_alloc(4096, 10000, (void **)&buffer), 0);
	assert_int_equal((uintptr_t)buffer % 4096, 0);
	memset(buffer, 1, 10000);
	part = buffer + 9999;
	assert_int_equal(rlv_buffer_find(buffer, 10000), 0);
	assert_int_equal(rlv_buffer_find(part, 1), 0);
	rlv_buffer_free(buffer, 10000);
	assert_int_equal(rlv_buffer_find(part, 1), -ENOENT);
}

TEST(buffer_find__memory_of_others_is_enoent)
{
	static const char mine[64];

	assert_int_equal(rlv_buffer_find(mine, sizeof(mine)), -ENOENT);
	assert_int_equal(rlv_buffer_find(NULL, 1), -ENOENT);
	assert_int_equal(rlv_buffer_find(mine, 0), -ENOENT);
}

TEST(buffer_alloc__bad_arguments_are_named)
{
	void *buffer = NULL;

	assert_int_equal(rlv_buffer_alloc(64, 1, NULL), -EINVAL);
	assert_non_null(strstr(rlv_last_error(), "buffer_out"));
	assert_int_equal(rlv_buffer_alloc(48, 1, &buffer), -EINVAL);
	assert_non_null(strstr(rlv_last_error(), "align 48"));
	assert_int_equal(rlv_buffer_alloc(0, 1, &buffer), -EINVAL);
	assert_int_equal(rlv_buffer_alloc((size_t)4 << 20, 1, &buffer), -EINVAL);
	assert_int_equal(rlv_buffer_alloc(64, 0, &buffer), -EINVAL);
	assert_non_null(strstr(rlv_last_error(), "bytes 0"));
	assert_int_equal(rlv_buffer_alloc(64, SIZE_MAX, &buffer), -ENOMEM);
	assert_null(buffer);
	rlv_buffer_free(NULL, 1);
}

int main(void)
{
	return test_run(NULL, NULL);
}
