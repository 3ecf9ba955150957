/*
 * The disk with the server's state is full: requests that need a write get an error with the file's
 * name; all others succeed, also for new clients.
 */
#include "tests/support/attack/crash_rows.h"
#include "tests/support/processes.h"
#include "tests/support/fixture/store_fixture.h"
#include "tests/support/test.h"

#include "relive/relive.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

struct fixture {
	struct processes ps;
	char dir[PROCESSES_PATH + 64]; /* of the state */
	bool mounted;
	pid_t metad;
	struct rlv_store *store;
	struct rlv_table *table;
	struct rlv_writer *writer;
	struct crash_rows rows;
};

static void must(int ret)
{
	if (ret)
		fail_msg("%s: %s", rlv_error_name(ret), rlv_last_error());
}

static int setup(void **state)
{
	static struct fixture fx;

	memset(&fx, 0, sizeof(fx));
	(void)signal(SIGXFSZ, SIG_IGN); /* the daemons have it so, too */
	processes_init(&fx.ps);
	processes_path(&fx.ps, "state", fx.dir);
	assert_int_equal(mkdir(fx.dir, 0700), 0);
	*state = &fx;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	(void)!rlv_writer_close(&fx->writer);
	(void)!rlv_table_close(&fx->table);
	(void)!rlv_store_close(&fx->store);
	if (fx->metad)
		processes_kill(&fx->ps, fx->metad, SIGKILL);
	if (fx->mounted)
		assert_int_equal(umount(fx->dir), 0);
	processes_fini(&fx->ps);
	return 0;
}

static void append(struct fixture *fx, uint32_t first)
{
	crash_rows_fill(&fx->rows, 1, first, CRASH_EPISODE);
	must(rlv_writer_append(fx->writer, 0, &fx->rows.steps, NULL));
}

/* A table with items, and a client that appends to it. */
static void start(struct fixture *fx)
{
	const char *const metad[] = { "--dir", fx->dir, NULL };
	const char *const node[] = { "--size", "32M", NULL };

	fx->metad = processes_metad(&fx->ps, "s", metad);
	(void)processes_memnode(&fx->ps, "s", "a", node);
	must(rlv_store_open("shm:s", NULL, &fx->store));
	store_fixture_await_node(fx->store);
	fx->table = store_fixture_crash_table(fx->store, 1024, 0);
	must(rlv_writer_open(fx->table, NULL, &fx->writer));
	append(fx, 0);
}

static int create(struct fixture *fx)
{
	struct rlv_table_opts opts = crash_table_opts(1024);
	struct rlv_table *table = NULL;
	int ret;

	ret = rlv_table_create(fx->store, "other", &opts, &table);
	if (ret == 0)
		must(rlv_table_close(&table));
	return ret;
}

static void expect_refused(struct fixture *fx, int code, const char *words)
{
	char file[sizeof(fx->dir) + 16];
	int ret = create(fx);

	snprintf(file, sizeof(file), "%s/s.db", fx->dir);
	if (ret != code || !strstr(rlv_last_error(), file) || !strstr(rlv_last_error(), words))
		fail_msg("create: %s: %s", rlv_error_name(ret), rlv_last_error());
}

/* A new client. */
static void expect_new_client_reads(void)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_store_info info = { .size = sizeof(info) };
	const struct rlv_batch *batch = NULL;
	struct rlv_sampler *sampler = NULL;
	struct rlv_table *table = NULL;
	struct rlv_store *store = NULL;
	char why[CRASH_WHY];

	opts.gamma = 1;
	must(rlv_store_open("shm:s", NULL, &store));
	must(rlv_store_info(store, &info));
	assert_int_equal(info.n_tables, 1);
	must(rlv_table_open(store, "t", &table));
	must(rlv_sampler_open(table, &opts, &sampler));
	must(rlv_sampler_sample(sampler, 16, 0, &batch));
	assert_int_equal(crash_batch_check(batch, why), 0);
	rlv_batch_release(sampler, batch);
	must(rlv_sampler_close(&sampler));
	must(rlv_table_close(&table));
	must(rlv_store_close(&store));
}

static void expect_goes_on(struct fixture *fx, int code, const char *words)
{
	expect_refused(fx, code, words);
	expect_new_client_reads();
	append(fx, CRASH_EPISODE);
	expect_refused(fx, code, words);
	assert_true(processes_runs(&fx->ps, fx->metad));
}

#define CASE(f) TEST_WITH(f, setup, teardown)

/*
 * Limits file sizes of the server, as a quota or a failing disk does. Pages of clients are memory
 * and fit the limit.
 */
CASE(metad__may_write_no_file)
{
	struct rlimit limit = { .rlim_cur = 4096, .rlim_max = RLIM_INFINITY };
	struct fixture *fx = *state;

	start(fx);
	assert_int_equal(prlimit(fx->metad, RLIMIT_FSIZE, &limit, NULL), 0);
	expect_goes_on(fx, -EIO, "cannot be written");
	limit.rlim_cur = RLIM_INFINITY;
	assert_int_equal(prlimit(fx->metad, RLIMIT_FSIZE, &limit, NULL), 0);
	must(create(fx));
}

/* To the last byte. */
static void fill_up(const char *path)
{
	static const char zeros[4096];
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	while (write(fd, zeros, sizeof(zeros)) > 0)
		;
	close(fd);
}

CASE(metad__on_a_disk_that_is_full)
{
	struct fixture *fx = *state;
	char fill[sizeof(fx->dir) + 16];

	if (mount("none", fx->dir, "tmpfs", 0, "size=1m,mode=0700")) {
		print_message("skipped: mount of a tmpfs: %s\n", strerror(errno));
		skip();
	}
	fx->mounted = true;
	start(fx);
	snprintf(fill, sizeof(fill), "%s/fill", fx->dir);
	fill_up(fill);
	expect_goes_on(fx, -ENOSPC, "is full");
	assert_int_equal(unlink(fill), 0);
	must(create(fx));
}

int main(void)
{
	return test_run(NULL, NULL);
}
