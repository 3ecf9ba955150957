/*
 * test_target.c - a target as the first part of another one.
 */
#include "tests/support/test.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transport/attach/target.h"

#define CLIENT 9
#define REGION ((uint64_t)2 << 20)

struct fixture {
	struct transport_target *tg;
	struct target *target;
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
	f->target = target_of(f->tg);
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

#define TARGET_TEST(fn) TEST_WITH(fn, begin, end)

TARGET_TEST(target_attach__by_a_grant_gives_its_region)
{
	struct fixture *f = *state;
	struct target_map map = { 0 };
	struct target_stats stats;

	assert_int_equal(target_attach(f->target, CLIENT, &f->grant, &map), 0);
	assert_memory_equal(&map.region->info, &f->spec, sizeof(f->spec));
	assert_ptr_equal(map.base, f->spec.base);
	assert_int_equal(map.size, f->spec.size);
	assert_int_equal(map.rights, RIGHT_READ);
	f->tg->ops->stats(f->tg, &stats);
	assert_int_equal(stats.attaches, 1);
	target_detach(f->target, map.region);
}

TARGET_TEST(target_attach__by_a_grant_of_another_gives_eacces)
{
	struct fixture *f = *state;
	struct target_map map = { .rights = 99 };

	assert_int_equal(target_attach(f->target, CLIENT + 1, &f->grant, &map), -EACCES);
	f->grant.data[3] ^= 1;
	assert_true(target_attach(f->target, CLIENT, &f->grant, &map) < 0);
	assert_int_equal(map.rights, 99); /* untouched */
}

TARGET_TEST(target_detach__of_a_dropped_region_frees_it)
{
	struct fixture *f = *state;
	struct target_map map = { 0 };

	assert_int_equal(target_attach(f->target, CLIENT, &f->grant, &map), 0);
	assert_int_equal(f->tg->ops->unregister_region(f->tg, f->spec.id), 0);
	map.base[0] = 1; /* still mapped */
	target_detach(f->target, map.region);
	assert_int_equal(target_attach(f->target, CLIENT, &f->grant, &map), -EACCES);
}

TARGET_TEST(target_knows__who_attached_here)
{
	struct fixture *f = *state;
	struct transport_opts opts = { .target = f->tg, .client_id = CLIENT };
	struct transport *tr = NULL;

	assert_false(target_knows(f->target, CLIENT));
	assert_int_equal(transport_open("embed:", &opts, &tr), 0);
	assert_true(target_knows(f->target, CLIENT));
	assert_false(target_knows(f->target, CLIENT + 1));
	transport_close(&tr);
	assert_false(target_knows(f->target, CLIENT));
}

TARGET_TEST(target_is_persistent__not_of_memory)
{
	struct fixture *f = *state;

	assert_false(f->target->pool->persistent);
}

static int use_in_child(struct fixture *f)
{
	struct target_map map = { 0 };

	return target_attach(f->target, CLIENT, &f->grant, &map) != -ECHILD ||
	       target_knows(f->target, CLIENT);
}

TARGET_TEST(target_attach__in_a_forked_child_gives_echild)
{
	int status = 0;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(use_in_child(*state));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	return test_run(NULL, NULL);
}
