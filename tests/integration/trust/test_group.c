/*
 * Stores that a group of users of this host shares: who may connect, and that its processes are known
 * for dead or alive where /proc hides them. Run by root; members are users without a name.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "relive/relive.h"

#include "base/os/process.h"
#include "tests/support/fixture/cli_fixture.h"
#include "tests/support/attack/crash_rows.h"
#include "tests/support/attack/other_user.h"
#include "tests/support/test.h"

#define STEPS 200
#define TOKEN_BYTES 65
#define UP "up --store a --size 64M --group 65530"

struct group {
	struct cli_fixture *f;
	char token[TOKEN_BYTES];
	const char *line; /* of the command, for run_line */
	int ready;        /* pipe: a member has its table open */
	int proc;         /* the mounts before hide_processes, -1: they are as they were */
};

static int setup(void **state)
{
	struct group *g = calloc(1, sizeof(*g));

	assert_non_null(g);
	g->proc = -1;
	assert_int_equal(cli_fixture_open((void **)&g->f), 0);
	*state = g;
	return 0;
}

static int teardown(void **state)
{
	struct group *g = *state;

	cli_fixture_close((void **)&g->f);
	if (g->proc >= 0) {
		assert_int_equal(setns(g->proc, CLONE_NEWNS), 0);
		close(g->proc);
	}
	free(g);
	return 0;
}

static void path_of(const struct group *g, const char *file, char path[160])
{
	snprintf(path, 160, "%s/a/%s", g->f->ps.dir, file);
}

static void read_token(struct group *g)
{
	char path[160];
	FILE *file;

	path_of(g, "token", path);
	file = fopen(path, "re");
	assert_non_null(file);
	assert_non_null(fgets(g->token, sizeof(g->token), file));
	fclose(file);
}

static void expect_mode(const char *path, unsigned int mode)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, mode);
	assert_int_equal(st.st_gid, OTHER_GROUP);
}

static int run_line(void *ctx)
{
	const struct group *g = ctx;

	return cli_run(g->f, g->line);
}

/* Output of a command that another user ran. */
static const char *last_error(struct group *g)
{
	char path[PROCESSES_PATH + 64];
	FILE *file;
	size_t n;

	processes_path(&g->f->ps, "err", path);
	file = fopen(path, "re");
	assert_non_null(file);
	n = fread(g->f->err, 1, sizeof(g->f->err) - 1, file);
	g->f->err[n] = 0;
	fclose(file);
	return g->f->err;
}

/* -------- members of the group, as child processes -------- */

static int failed(const char *what, int ret)
{
	fprintf(stderr, "member: %s: %s: %s\n", what, rlv_error_name(ret), rlv_last_error());
	return 1;
}

static int open_store(const struct group *g, struct rlv_store **store_out)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;

	opts.token = g->token[0] ? g->token : NULL;
	opts.timeout_ns = PROCESSES_WAIT_MS * INT64_C(1000000);
	return rlv_store_open("shm:a", &opts, store_out);
}

/* A table for one writer: the next one needs its slot. */
static int make_table(struct rlv_store *store, struct rlv_table **table_out)
{
	struct rlv_table_opts opts = crash_table_opts(4096);

	opts.max_writers = 1;
	return rlv_table_create(store, "t", &opts, table_out);
}

static int append(struct rlv_table *table, struct rlv_writer **writer_out)
{
	static struct crash_rows rows;
	int ret = rlv_writer_open(table, NULL, writer_out);

	crash_rows_fill(&rows, 1, 0, STEPS);
	return ret ? ret : rlv_writer_append(*writer_out, 0, &rows.steps, NULL);
}

static int draw(struct rlv_table *table)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_sampler *sampler = NULL;
	const struct rlv_batch *batch;
	float td[256] = { 0 };
	char why[CRASH_WHY];
	int ret;

	opts.gamma = 1;
	ret = rlv_sampler_open(table, &opts, &sampler);
	if (ret)
		return failed("open a sampler", ret);
	ret = rlv_sampler_sample(sampler, 256, 0, &batch);
	if (ret)
		return failed("sample", ret);
	if (crash_batch_check(batch, why)) {
		fprintf(stderr, "member: wrong item: %s\n", why);
		return 1;
	}
	ret = rlv_sampler_update(sampler, batch->key, td, batch->n, NULL);
	if (ret)
		return failed("update", ret);
	rlv_batch_release(sampler, batch);
	return rlv_sampler_close(&sampler);
}

static int use_all(void *ctx)
{
	struct rlv_writer *writer = NULL;
	struct rlv_store *store = NULL;
	struct rlv_table *table = NULL;
	int ret = open_store(ctx, &store);

	if (ret)
		return failed("open the store", ret);
	ret = make_table(store, &table);
	if (ret)
		return failed("create a table", ret);
	ret = append(table, &writer);
	if (ret || rlv_writer_close(&writer))
		return failed("append", ret);
	if (draw(table))
		return 1;
	return rlv_table_close(&table) || rlv_store_close(&store);
}

/* Refused, with words: 0. */
static int be_refused(void *ctx)
{
	const struct group *g = ctx;
	const char *words = g->token[0] ? "group 65530" : "RELIVE_TOKEN";
	struct rlv_store *store = NULL;
	int ret = open_store(g, &store);

	return ret == -EACCES && strstr(rlv_last_error(), words) ? 0 : failed(words, ret);
}

#define CASE(fn) TEST_WITH(fn, setup, teardown)

/* -------- rights to connect -------- */

CASE(group__member_appends_samples_and_updates)
{
	static const char *const sockets[] = { "metad.sock", "memnode-0.sock", "memnode-x.sock" };
	struct group *g = *state;
	char path[160];

	cli_expect(g->f, UP, 0);
	cli_expect(g->f, "node add shm:a x --size 32M", 0);
	path_of(g, "", path);
	expect_mode(path, 0750);
	expect_mode(g->f->ps.dir, 0750);
	for (size_t i = 0; i < sizeof(sockets) / sizeof(sockets[0]); i++) {
		path_of(g, sockets[i], path);
		expect_mode(path, 0660);
	}
	read_token(g);
	assert_int_equal(other_user_run(OTHER_CLIENT, OTHER_GROUP, use_all, g), 0);
}

CASE(group__who_is_not_in_it_cannot_connect)
{
	struct group *g = *state;

	cli_expect(g->f, UP, 0);
	read_token(g);
	assert_int_equal(other_user_run(OTHER_CLIENT, 0, be_refused, g), 0);
}

CASE(group__member_needs_a_token)
{
	struct group *g = *state;

	cli_expect(g->f, UP, 0);
	assert_int_equal(other_user_run(OTHER_CLIENT, OTHER_GROUP, be_refused, g), 0);
}

/* Stopping, adding and restoring are the owner's. */
CASE(group__member_cannot_stop_the_store)
{
	struct group *g = *state;

	cli_expect(g->f, UP, 0);
	read_token(g);
	g->line = "down --store a --force 2>/dev/null";
	assert_int_not_equal(other_user_run(OTHER_CLIENT, OTHER_GROUP, run_line, g), 0);
	assert_int_equal(other_user_run(OTHER_CLIENT, OTHER_GROUP, use_all, g), 0);
}

CASE(up__without_a_group_is_for_its_user_alone)
{
	struct group *g = *state;
	struct stat st;
	char path[160];

	cli_expect(g->f, "up --store a --size 64M", 0);
	path_of(g, "metad.sock", path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	path_of(g, "", path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	read_token(g);
	assert_int_equal(chmod(g->f->ps.dir, 0711), 0); /* it is the store's that counts */
	assert_int_not_equal(other_user_run(OTHER_CLIENT, OTHER_GROUP, use_all, g), 0);
}

/* -------- descriptors given to clients -------- */

/* Of a mapping of 4 KiB that may be written: all bytes that its descriptor opened. 0: another mapping. */
static uint64_t file_bytes(const char *line)
{
	uint64_t from, to;
	char path[64], *end;
	struct stat st;

	from = strtoull(line, &end, 16);
	to = strtoull(end + 1, &end, 16);
	if (to - from != 4096 || strncmp(end, " rw-s", 5) != 0 || !strstr(line, "region-"))
		return 0;
	snprintf(path, sizeof(path), "/proc/self/map_files/%llx-%llx", (unsigned long long)from,
		 (unsigned long long)to);
	return stat(path, &st) ? UINT64_MAX : (uint64_t)st.st_size;
}

/*
 * A client with an open writer maps its own page and that of the limiters, and no other client's
 * page.
 */
static int look_at_pages(void *ctx)
{
	struct rlv_writer *writer = NULL;
	struct rlv_store *store = NULL;
	struct rlv_table *table = NULL;
	uint32_t pages = 0;
	char line[512];
	FILE *maps;
	int ret = open_store(ctx, &store);

	if (ret == 0)
		ret = make_table(store, &table);
	if (ret == 0)
		ret = append(table, &writer);
	if (ret)
		return failed("open a writer", ret);
	maps = fopen("/proc/self/maps", "re");
	while (maps && fgets(line, sizeof(line), maps)) {
		uint64_t bytes = file_bytes(line);

		pages += bytes != 0;
		if (bytes && bytes != 4096) {
			fprintf(stderr, "a page of a file of %llu bytes: %s",
				(unsigned long long)bytes, line);
			return 1;
		}
	}
	if (maps)
		fclose(maps);
	return pages >= 2 ? 0 : failed("pages mapped", (int)pages);
}

/* Root alone may look at the files of its mappings. */
CASE(page__of_a_client_is_a_file_of_its_own)
{
	struct group *g = *state;

	cli_expect(g->f, UP, 0);
	read_token(g);
	assert_int_equal(other_user_run(0, 0, look_at_pages, g), 0);
}

CASE(page__in_a_directory_is_a_file_of_its_own)
{
	struct group *g = *state;
	char line[256];

	snprintf(line, sizeof(line), UP " --file %s/pool", g->f->ps.dir);
	cli_expect(g->f, line, 0);
	read_token(g);
	assert_int_equal(other_user_run(0, 0, look_at_pages, g), 0);
}

/* -------- groups that cannot be -------- */

static void expect_nothing_started(const struct group *g)
{
	char path[160];

	path_of(g, "", path);
	assert_int_equal(access(path, F_OK), -1);
}

CASE(up__of_an_unknown_group_starts_nothing)
{
	struct group *g = *state;

	cli_expect(g->f, "up --store a --group no-such-group", 2);
	cli_expect_words(g->f->err,
			 "--group: group no-such-group: this host has no group of that name");
	expect_nothing_started(g);
}

CASE(up__of_a_group_that_its_user_is_not_in_starts_nothing)
{
	struct group *g = *state;

	assert_int_equal(chown(g->f->ps.dir, OTHER_NODE, OTHER_NODE), 0);
	g->line = UP;
	assert_int_equal(other_user_run(OTHER_NODE, 0, run_line, g), 2);
	cli_expect_words(last_error(g), "uid 65531 is not in it");
	expect_nothing_started(g);
}

/* Else its members would lose the stores that they have there. */
CASE(up__where_another_group_is_let_in_is_refused)
{
	struct group *g = *state;

	cli_expect(g->f, UP, 0);
	read_token(g);
	cli_expect(g->f, "up --store b --size 64M --group 65529", 1);
	cli_expect_words(g->f->err, "RELIVE_RUNTIME_DIR of its own");
	assert_int_equal(other_user_run(OTHER_CLIENT, OTHER_GROUP, use_all, g), 0);
}

/* -------- dead or alive -------- */

/* Hides processes of other users in /proc from all processes started later. */
static void hide_processes(struct group *g)
{
	g->proc = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	assert_true(g->proc >= 0);
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("proc", "/proc", "proc", 0, "hidepid=2")) {
		print_message("skipped: no /proc can be mounted here: %s\n", strerror(errno));
		skip();
	}
}

static int look_at_parent(void *ctx)
{
	const struct process_id *parent = ctx;
	struct process_id id;

	if (process_read(parent->pid, &id) != -EACCES)
		return 1;
	return process_is_gone(parent) ? 2 : 0;
}

CASE(process__that_proc_hides_is_not_gone)
{
	struct group *g = *state;
	struct process_id self;

	hide_processes(g);
	assert_int_equal(process_self(&self), 0);
	assert_int_equal(other_user_run(OTHER_CLIENT, 0, look_at_parent, &self), 0);
}

/* Has the only slot of a writer, says so, and is killed. */
static int hold_slot(void *ctx)
{
	const struct group *g = ctx;
	struct rlv_writer *writer = NULL;
	struct rlv_store *store = NULL;
	struct rlv_table *table = NULL;
	int ret = open_store(g, &store);

	if (ret == 0)
		ret = make_table(store, &table);
	if (ret == 0)
		ret = append(table, &writer);
	if (ret)
		return failed("hold a slot", ret);
	if (write(g->ready, "r", 1) != 1)
		return 1;
	for (;;)
		pause();
}

static bool gets_slot(void *ctx)
{
	struct rlv_writer *writer = NULL;

	return append(ctx, &writer) == 0;
}

static int take_slot(void *ctx)
{
	struct rlv_store *store = NULL;
	struct rlv_table *table = NULL;
	int ret = open_store(ctx, &store);

	if (ret == 0)
		ret = rlv_table_open(store, "t", &table);
	if (ret)
		return failed("open the table", ret);
	if (!processes_until(gets_slot, table))
		return failed("take the slot", -ETIMEDOUT);
	return draw(table);
}

static int hold_as_member(void *ctx)
{
	return other_user_run(OTHER_CLIENT, OTHER_GROUP, hold_slot, ctx);
}

/* The member's pid is that of the writer that the table names. */
static pid_t start_holder(struct group *g)
{
	int ends[2];
	pid_t pid;
	char byte;

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	g->ready = ends[1];
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)setpgid(0, 0);
		_exit(hold_as_member(g));
	}
	close(ends[1]);
	assert_int_equal(read(ends[0], &byte, 1), 1);
	close(ends[0]);
	return pid;
}

/* Store and clients are three users, whose processes are hidden from each other in /proc. */
CASE(group__slot_of_a_killed_member_is_taken_by_another)
{
	struct group *g = *state;
	pid_t holder;

	hide_processes(g);
	assert_int_equal(chown(g->f->ps.dir, OTHER_NODE, OTHER_NODE), 0);
	g->line = UP;
	assert_int_equal(other_user_run(OTHER_NODE, OTHER_GROUP, run_line, g), 0);
	read_token(g);
	holder = start_holder(g);
	assert_int_equal(kill(-holder, SIGKILL), 0);
	assert_int_equal(waitpid(holder, NULL, 0), holder);
	assert_int_equal(other_user_run(OTHER_CLIENT + 1, OTHER_GROUP, take_slot, g), 0);
}

int main(void)
{
	if (other_user_skips() || test_skips_valgrind("forked children are other users"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
