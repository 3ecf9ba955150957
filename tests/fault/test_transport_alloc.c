/*
 * Every allocation of the transport fails once, in every place: each call then answers -ENOMEM (or
 * does without), leaks nothing, and works when tried again.
 */
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/mem/alloc.h"
#include "tests/support/fake/fault.h"
#include "transport/transport.h"

#define MOST 200 /* allocations of one scenario */

struct scene {
	char dir[TEMP_DIR_BYTES];
	char pool[96];
	char uri[128];
	bool in_file, listens;
};

static int use(struct transport_target *tg, const char *uri)
{
	struct transport_opts opts = { .target = tg, .client_id = 3 };
	struct target_region spec = { .kind = 1, .size = 2 << 20 };
	struct region_grant grant;
	struct region *region = NULL;
	struct transport *tr = NULL;
	uint64_t old;
	int ret = tg->ops->register_region(tg, &spec);

	if (ret)
		return ret;
	ret = transport_grant(tg, 3, spec.id, RIGHT_ALL, &grant);
	if (ret == 0)
		ret = transport_open(uri, &opts, &tr);
	if (ret == 0)
		ret = fault_wrap(tr, NULL, &tr);
	if (ret)
		tr = NULL;
	if (ret == 0)
		ret = transport_attach(tr, &grant, &region);
	if (ret == 0)
		ret = transport_faa_word(region, 64, 1, &old);
	transport_close(&tr);
	if (tg->ops->unregister_region(tg, spec.id))
		return -EIO;
	return ret;
}

struct server {
	struct transport_target *tg;
	_Atomic bool stop;
};

static void *serve(void *arg)
{
	struct server *server = arg;

	while (!atomic_load(&server->stop))
		(void)!server->tg->ops->progress(server->tg, (uint64_t)CLOCK_NS_PER_MS);
	return NULL;
}

static int use_by_socket(struct transport_target *tg, const struct scene *scene)
{
	struct server server = { .tg = tg };
	pthread_t thread;
	int ret = tg->ops->listen(tg, scene->uri + strlen("shm:"));

	if (ret)
		return ret;
	assert_int_equal(pthread_create(&thread, NULL, serve, &server), 0);
	ret = use(tg, scene->uri);
	atomic_store(&server.stop, true);
	pthread_join(thread, NULL);
	return ret;
}

static int run(const struct scene *scene)
{
	struct target_opts opts = { .pool_bytes = 4 << 20,
				    .private_memory = !scene->listens,
				    .exclusive = !scene->listens,
				    .create = true };
	struct transport_target *tg = NULL;
	int ret;

	if (scene->in_file)
		opts.path = scene->pool;
	ret = transport_target_open("shm", &opts, &tg);
	if (ret)
		return ret;
	ret = scene->listens ? use_by_socket(tg, scene) : use(tg, "embed:");
	transport_target_close(&tg);
	return ret;
}

static void sweep(bool in_file, bool listens)
{
	struct scene scene = { .in_file = in_file, .listens = listens };
	uint64_t n = 1;
	int ret;

	temp_dir_make(scene.dir);
	(void)snprintf(scene.pool, sizeof(scene.pool), "%s/pool", scene.dir);
	(void)snprintf(scene.uri, sizeof(scene.uri), "shm:%s/node", scene.dir);
	for (; n < MOST; n++) {
		mem_fail_after(n);
		ret = run(&scene);
		if (!mem_fail_fired())
			break;
		mem_fail_after(0);
		/* a peer that has no memory for us hangs up; huge pages have a fallback */
		if (ret != -ENOMEM && ret != -ECONNRESET && ret != 0)
			fail_msg("allocation %llu: %d %s", (unsigned long long)n, ret,
				 error_last());
		assert_int_equal(run(&scene), 0); /* nothing is left of it */
	}
	mem_fail_after(0);
	assert_int_equal(ret, 0);
	assert_in_range(n, 5, MOST - 1);
	print_message("%llu allocations\n", (unsigned long long)n - 1);
	(void)unlink(scene.pool);
	assert_int_equal(rmdir(scene.dir), 0);
}

TEST(alloc_sweep__embed)
{
	sweep(false, false);
}

TEST(alloc_sweep__embed_file)
{
	sweep(true, false);
}

TEST(alloc_sweep__shm)
{
	sweep(false, true);
}

TEST(alloc_sweep__shm_file)
{
	sweep(true, true);
}

/* A pool that holds regions: opening it again allocates for each. */
TEST(alloc_sweep__reopen)
{
	struct target_opts opts = { .pool_bytes = 8 << 20, .exclusive = true, .create = true };
	struct target_region spec = { .kind = 1, .size = 2 << 20 };
	struct transport_target *tg = NULL;
	char dir[TEMP_DIR_BYTES], path[96];
	uint64_t n = 1;
	int ret = -1;

	temp_dir_make(dir);
	(void)snprintf(path, sizeof(path), "%s/pool", dir);
	opts.path = path;
	assert_int_equal(transport_target_open("shm", &opts, &tg), 0);
	assert_int_equal(tg->ops->register_region(tg, &spec), 0);
	assert_int_equal(tg->ops->register_region(tg, &spec), 0);
	transport_target_close(&tg);
	for (; n < MOST; n++) {
		mem_fail_after(n);
		ret = transport_target_open("shm", &opts, &tg);
		if (!mem_fail_fired())
			break;
		assert_int_equal(ret, -ENOMEM);
	}
	mem_fail_after(0);
	assert_int_equal(ret, 0);
	assert_int_equal(n - 1, 4); /* target, pool, two regions */
	transport_target_close(&tg);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
	return test_run(NULL, NULL);
}
