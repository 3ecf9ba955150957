/*
 * Whose a pool is: a file names the store that it belongs to, and keeps that name.
 */
#include "tests/support/fixture/pool_fixture.h"
#include "tests/support/test.h"

#include "relive/relive.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "transport/transport.h"
#include "wire/pool_layout.h"

#define POOL_BYTES ((uint64_t)8 << 20)

static const uint8_t nobody[16], store_a[16] = { 0xa }, store_b[16] = { 0xb };

/* In its next life, if it is open. */
static void reopen(struct pool_fixture *pool)
{
	struct target_opts opts = { .path = pool->path, .pool_bytes = POOL_BYTES, .create = true };

	transport_target_close(&pool->tg);
	if (transport_target_open("shm", &opts, &pool->tg))
		fail_msg("%s", error_last());
}

static void own(struct pool_fixture *pool, const uint8_t uuid[16], const char *name)
{
	assert_int_equal(pool->tg->ops->own(pool->tg, uuid, name), 0);
}

static struct pool_identity identity_of(struct pool_fixture *pool)
{
	struct pool_identity seen;

	assert_int_equal(pool->tg->ops->identity(pool->tg, &seen), 0);
	return seen;
}

static void expect_owner(struct pool_fixture *pool, const uint8_t uuid[16], const char *name)
{
	struct pool_identity seen = identity_of(pool);

	assert_memory_equal(seen.store_uuid, uuid, 16);
	assert_string_equal(seen.store_name, name);
}

POOL_TEST(own__is_kept)
{
	struct pool_fixture *pool = *state;
	struct pool_identity made, seen;

	reopen(pool);
	expect_owner(pool, nobody, "");
	made = identity_of(pool);
	assert_memory_not_equal(made.pool_uuid, nobody, 16);
	own(pool, store_a, "alpha");
	expect_owner(pool, store_a, "alpha");
	reopen(pool);
	expect_owner(pool, store_a, "alpha");
	own(pool, store_b, "b"); /* a shorter name leaves nothing of the longer one */
	reopen(pool);
	expect_owner(pool, store_b, "b");
	seen = identity_of(pool);
	assert_memory_equal(seen.pool_uuid, made.pool_uuid, 16);
}

static void copy_of_super(const struct pool_fixture *pool, uint8_t bytes[256])
{
	int fd = open(pool->path, O_RDONLY | O_CLOEXEC);

	assert_int_equal(pread(fd, bytes, 256, 0), 256);
	close(fd);
}

static void put_back(const struct pool_fixture *pool, off_t off, const uint8_t *bytes, size_t n)
{
	int fd = open(pool->path, O_WRONLY | O_CLOEXEC);

	assert_int_equal(pwrite(fd, bytes, n, off), n);
	close(fd);
}

/* Killed between the two copies: the one that is written first says what holds. */
POOL_TEST(own__killed_between_the_copies)
{
	struct pool_fixture *pool = *state;
	uint8_t old[256];

	reopen(pool);
	own(pool, store_a, "alpha");
	copy_of_super(pool, old);
	own(pool, store_b, "beta");
	transport_target_close(&pool->tg);
	put_back(pool, 0, old, sizeof(old));
	reopen(pool);
	expect_owner(pool, store_b, "beta");
	transport_target_close(&pool->tg);
	put_back(pool, POOL_SUPERBLOCK_OFF1, old, 100); /* cut in the middle */
	reopen(pool);
	expect_owner(pool, store_b, "beta");
}

POOL_TEST(own__by_a_store_with_a_long_name)
{
	struct pool_fixture *pool = *state;
	char name[100], cut[64];

	(void)snprintf(name, sizeof(name), "%099d", 7);
	(void)snprintf(cut, sizeof(cut), "%.63s", name);
	reopen(pool);
	own(pool, store_a, name);
	reopen(pool);
	expect_owner(pool, store_a, cut);
}

static void open_embedded(const struct pool_fixture *pool)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	struct rlv_store *store;
	char uri[128];

	opts.pool_bytes = POOL_BYTES;
	(void)snprintf(uri, sizeof(uri), "embed:%s", pool->path);
	if (rlv_store_open(uri, &opts, &store))
		fail_msg("%s", rlv_last_error());
	assert_int_equal(rlv_store_close(&store), 0);
}

/* The store of a file is made with the file, and no opening changes it. */
POOL_TEST(embed__keeps_its_store)
{
	struct pool_fixture *pool = *state;
	struct pool_identity first, then;

	open_embedded(pool);
	reopen(pool);
	first = identity_of(pool);
	assert_memory_not_equal(first.store_uuid, nobody, 16);
	assert_non_null(strstr(first.store_name, "embed:"));
	transport_target_close(&pool->tg);
	open_embedded(pool);
	reopen(pool);
	then = identity_of(pool);
	assert_memory_equal(&first, &then, sizeof(first));
}

/* What a memory node has kept is not taken for a store of its own, whose tables are not complete. */
POOL_TEST(embed__of_a_pool_of_another_store_is_refused)
{
	struct target_region spec = { .kind = 1, .object = 1, .role = 1, .size = 4096 };
	struct pool_fixture *pool = *state;
	struct rlv_store *store = NULL;
	char uri[128];
	size_t n = 1;

	reopen(pool);
	own(pool, store_a, "alpha");
	assert_int_equal(pool->tg->ops->register_region(pool->tg, &spec), 0);
	transport_target_close(&pool->tg);
	(void)snprintf(uri, sizeof(uri), "embed:%s", pool->path);
	assert_int_equal(rlv_store_open(uri, NULL, &store), -EPERM);
	assert_non_null(strstr(rlv_last_error(), "alpha"));
	assert_non_null(strstr(rlv_last_error(), pool->path));
	reopen(pool);
	assert_int_equal(pool->tg->ops->list_regions(pool->tg, &spec, &n), 0);
	assert_int_equal(n, 1);
}

int main(void)
{
	return test_run(NULL, NULL);
}
