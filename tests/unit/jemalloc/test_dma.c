/*
 * librelive-jemalloc as a program uses it: linked, over the public headers alone.
 */
#include <relive/jemalloc.h>

#include "tests/support/test.h"

#include <jemalloc/jemalloc.h>

#include <errno.h>
#include <string.h>

TEST(dma_alloc__is_memory_that_devices_know)
{
	char *buffer = rlv_dma_alloc(4096, 5000), *small = rlv_dma_alloc(8, 40);

	assert_non_null(buffer);
	assert_non_null(small);
	assert_int_equal((uintptr_t)buffer % 4096, 0);
	memset(buffer, 1, 5000);
	assert_int_equal(rlv_buffer_find(buffer, 5000), 0);
	assert_int_equal(rlv_buffer_find(small, 40), 0);
	rlv_dma_free(buffer);
	rlv_dma_free(small);
	rlv_dma_free(NULL);
}

TEST(dma_alloc__bad_alignment_is_null)
{
	assert_null(rlv_dma_alloc(48, 100));
	assert_null(rlv_dma_alloc(0, 100));
	assert_null(rlv_dma_alloc((size_t)4 << 20, 100));
}

TEST(dma_arena__is_for_mallocx)
{
	unsigned arena;
	void *buffer;

	assert_int_equal(rlv_dma_arena(NULL), -EINVAL);
	assert_int_equal(rlv_dma_arena(&arena), 0);
	buffer = mallocx(1000, MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE | MALLOCX_ZERO);
	assert_int_equal(rlv_buffer_find(buffer, 1000), 0);
	dallocx(buffer, MALLOCX_TCACHE_NONE);
}

TEST(dma_memory__batches_of_a_sampler)
{
	const struct rlv_column column = { .name = "obs", .dtype = RLV_F32, .role = RLV_OBS };
	struct rlv_table_opts table_opts = RLV_TABLE_OPTS_INIT;
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_store *store = NULL;
	struct rlv_table *table = NULL;
	struct rlv_sampler *sampler = NULL;

	table_opts.columns = &column;
	table_opts.n_columns = 1;
	table_opts.capacity = 4096;
	opts.memory = rlv_dma_memory();
	assert_int_equal(rlv_store_open("embed:", NULL, &store), 0);
	assert_int_equal(rlv_table_create(store, "t", &table_opts, &table), 0);
	assert_int_equal(rlv_sampler_open(table, &opts, &sampler), 0);
	assert_int_equal(rlv_sampler_close(&sampler), 0);
	assert_int_equal(rlv_table_close(&table), 0);
	assert_int_equal(rlv_store_close(&store), 0);
}

int main(void)
{
	return test_run(NULL, NULL);
}
