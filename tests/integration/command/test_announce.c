/*
 * A server that announces itself in a file: relive://@FILE waits for it, follows the server to
 * another port, and needs no token of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/fixture/cli_fixture.h"
#include "tests/support/held_items.h"
#include "tests/support/must.h"
#include "tests/support/test.h"

#include "base/os/clock.h"

#include "relive/relive.h"

#define ON_FIXTURE(test) TEST_WITH(test, cli_fixture_open, cli_fixture_close)
#define UP "up --store a --size 64M --listen 127.0.0.1:0 --json --announce "
#define METAD "\"metad_pid\":"

struct announced {
	char path[PROCESSES_PATH + 64];
	char uri[PROCESSES_PATH + 96];
	char up[PROCESSES_PATH + 160]; /* of the command */
};

static void name_file(const struct cli_fixture *f, struct announced *file)
{
	processes_path(&f->ps, "store.uri", file->path);
	snprintf(file->uri, sizeof(file->uri), "relive://@%s", file->path);
	snprintf(file->up, sizeof(file->up), UP "%s", file->path);
}

static int open_within(const char *uri, int64_t ms, struct rlv_store **store_out)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;

	opts.timeout_ns = ms * CLOCK_NS_PER_MS;
	return rlv_store_open(uri, &opts, store_out);
}

#define PATIENCE_MS (6 * PROCESSES_WAIT_MS) /* of a client that waits for a command, too */

static int open_and_close(void *uri)
{
	struct rlv_store *store = NULL;
	int ret = open_within(uri, PATIENCE_MS, &store);

	if (ret == 0)
		ret = rlv_store_close(&store);
	if (ret)
		fprintf(stderr, "%s\n", rlv_last_error());
	return ret != 0;
}

ON_FIXTURE(announce__clients_wait_for_the_file)
{
	struct cli_fixture *f = *state;
	struct announced file;
	struct rlv_store *store = NULL;
	uint64_t began = clock_now_ns(clock_monotonic());
	pid_t client;

	name_file(f, &file);
	assert_int_equal(open_within(file.uri, 200, &store), -ECONNREFUSED);
	assert_true(clock_now_ns(clock_monotonic()) - began >= 200 * CLOCK_NS_PER_MS);
	assert_non_null(strstr(rlv_last_error(), file.path));
	client = processes_fork(&f->ps, open_and_close, file.uri);
	processes_sleep_ns(100 * CLOCK_NS_PER_MS);
	cli_expect(f, file.up, 0);
	assert_int_equal(processes_wait(&f->ps, client, PATIENCE_MS), 0);
	cli_expect(f, "down --store a", 0);
	assert_int_equal(access(file.path, F_OK), -1);
}

ON_FIXTURE(announce__a_killed_servers_file_is_read_until_it_names_another)
{
	struct cli_fixture *f = *state;
	struct rlv_store_info info = { .size = sizeof(info) };
	struct announced file;
	struct rlv_store *store = NULL;
	pid_t client;

	name_file(f, &file);
	cli_expect(f, file.up, 0);
	expect(open_within(file.uri, PROCESSES_WAIT_MS, &store), 0);
	cli_kill_daemon(cli_pid(f, METAD));
	assert_int_equal(access(file.path, F_OK), 0);
	client = processes_fork(&f->ps, open_and_close, file.uri);
	processes_sleep_ns(100 * CLOCK_NS_PER_MS);
	cli_expect(f, "up --store a", 0);
	assert_int_equal(processes_wait(&f->ps, client, PATIENCE_MS), 0);
	expect(rlv_store_info(store, &info), 0); /* at another port */
	assert_int_equal(info.term, 2);
	expect(rlv_store_close(&store), 0);
}

ON_FIXTURE(announce__memory_nodes_and_commands_take_the_file)
{
	struct cli_fixture *f = *state;
	struct announced file;
	char line[PROCESSES_PATH + 160];

	name_file(f, &file);
	cli_expect(f, file.up, 0);
	snprintf(line, sizeof(line), "node add %s b --transport shm --size 64M", file.uri);
	cli_expect(f, line, 0);
	snprintf(line, sizeof(line), "status %s", file.uri);
	cli_expect(f, line, 0);
	cli_expect_words(f->out, "\nb ");
	held_items_check(file.uri, held_items_put(file.uri), "announced");
}

/* All addresses of this host, at any port, by its name. */
ON_FIXTURE(announce__needs_no_listen)
{
	struct cli_fixture *f = *state;
	struct announced file;
	char line[PROCESSES_PATH + 160], host[256] = "", text[512] = "";
	int fd;

	name_file(f, &file);
	snprintf(line, sizeof(line), "up --store a --size 64M --announce %s", file.path);
	cli_expect(f, line, 0);
	assert_int_equal(gethostname(host, sizeof(host) - 1), 0);
	fd = open(file.path, O_RDONLY);
	assert_true(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	assert_memory_equal(text, "relive://", 9);
	assert_memory_equal(text + 9, host, strlen(host));
	assert_int_equal(text[9 + strlen(host)], ':');
	cli_expect(f, "status shm:a",
		   0); /* others may come: a network, or what is missing for one */
	if (!strstr(f->out, "verbs: RDMA device here") &&
	    !strstr(f->out, "ofi: no RDMA device here"))
		cli_expect_words(f->out, "shm: no RDMA device here; ");
	cli_expect(f, "up --store b --size 64M --listen 127.0.0.1:0", 0);
	cli_expect(f, "status shm:b --json", 0);
	cli_expect_words(f->out, "\"transport\":\"shm\",\"why\":\"server on this host\"");
}

ON_FIXTURE(announce__a_file_that_others_may_read_is_refused)
{
	struct cli_fixture *f = *state;
	struct announced file;
	struct rlv_store *store = NULL;

	name_file(f, &file);
	cli_expect(f, file.up, 0);
	assert_int_equal(chmod(file.path, 0644), 0);
	assert_int_equal(open_within(file.uri, PROCESSES_WAIT_MS, &store), -EACCES);
	assert_non_null(strstr(rlv_last_error(), "0600"));
}

ON_FIXTURE(announce__a_missing_folder_is_an_error_of_up)
{
	struct cli_fixture *f = *state;

	cli_expect(f, "up --store a --size 64M --announce /nowhere/a.uri", 1);
	cli_expect_words(f->err, "/nowhere/a.uri");
}

int main(void)
{
	return test_run(NULL, NULL);
}
