/*
 * test_backing.c - a target as the lower half of another one.
 */
#include "tests/support/test.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transport/attach/backing.h"

#define CLIENT 9
#define REGION ((uint64_t)2 << 20)

struct fixture {
	struct transport_target *tg;
	struct target_region spec;
	struct region_grant grant;
};

static int begin(void **state)
{
	struct target_opts opts = { .pool_bytes = 2 * REGION };
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	*state = f;
	f->spec = (struct target_region){ .kind = 3, .size = REGION };
	assert_int_equal(transport_target_open("shm", &opts, &f->tg), 0);
	assert_int_equal(f->tg->ops->register_region(f->tg, &f->spec), 0);
	assert_int_equal(transport_grant(f->tg, CLIENT, f->spec.id, RIGHT_READ, &f->grant), 0);
	return 0;
}

static int end(void **state)
{
	struct fixture *f = *state;

	transport_target_close(&f->tg);
	free(f);
	return 0;
}

static void backing_hold__by_a_grant_gives_its_region(void **state)
{
	struct fixture *f = *state;
	struct backing_region region = { 0 };
	struct target_stats stats;

	assert_int_equal(backing_hold(f->tg, CLIENT, &f->grant, &region), 0);
	assert_memory_equal(&region.info, &f->spec, sizeof(f->spec));
	assert_int_equal(region.rights, RIGHT_READ);
	f->tg->ops->stats(f->tg, &stats);
	assert_int_equal(stats.attaches, 1);
	backing_release(f->tg, &region);
	assert_null(region.held);
	backing_release(f->tg, &region);
}

static void backing_hold__by_a_grant_of_another_gives_eacces(void **state)
{
	struct fixture *f = *state;
	struct backing_region region = { .rights = 99 };

	assert_int_equal(backing_hold(f->tg, CLIENT + 1, &f->grant, &region), -EACCES);
	f->grant.data[3] ^= 1;
	assert_true(backing_hold(f->tg, CLIENT, &f->grant, &region) < 0);
	assert_int_equal(region.rights, 99); /* untouched */
}

static void backing_release__of_a_dropped_region_frees_it(void **state)
{
	struct fixture *f = *state;
	struct backing_region region = { 0 };

	assert_int_equal(backing_hold(f->tg, CLIENT, &f->grant, &region), 0);
	assert_int_equal(f->tg->ops->unregister_region(f->tg, f->spec.id), 0);
	region.info.base[0] = 1; /* still mapped */
	backing_release(f->tg, &region);
	assert_int_equal(backing_hold(f->tg, CLIENT, &f->grant, &region), -EACCES);
}

static void backing_knows__who_attached_here(void **state)
{
	struct fixture *f = *state;
	struct transport_opts opts = { .target = f->tg, .client_id = CLIENT };
	struct transport *tr = NULL;

	assert_false(backing_knows(f->tg, CLIENT));
	assert_int_equal(transport_open("embed:", &opts, &tr), 0);
	assert_true(backing_knows(f->tg, CLIENT));
	assert_false(backing_knows(f->tg, CLIENT + 1));
	transport_close(&tr);
	assert_false(backing_knows(f->tg, CLIENT));
}

static void backing_is_persistent__not_of_memory(void **state)
{
	struct fixture *f = *state;

	assert_false(backing_is_persistent(f->tg));
}

static int use_in_child(struct fixture *f)
{
	struct backing_region region = { 0 };

	return backing_hold(f->tg, CLIENT, &f->grant, &region) != -ECHILD ||
	       backing_knows(f->tg, CLIENT);
}

static void backing_hold__in_a_forked_child_gives_echild(void **state)
{
	int status = 0;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(use_in_child(*state));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

#define BACKING_TEST(fn) cmocka_unit_test_setup_teardown(fn, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		BACKING_TEST(backing_hold__by_a_grant_gives_its_region),
		BACKING_TEST(backing_hold__by_a_grant_of_another_gives_eacces),
		BACKING_TEST(backing_release__of_a_dropped_region_frees_it),
		BACKING_TEST(backing_knows__who_attached_here),
		BACKING_TEST(backing_is_persistent__not_of_memory),
		BACKING_TEST(backing_hold__in_a_forked_child_gives_echild),
	};

	return TEST_RUN(tests, NULL, NULL);
}
