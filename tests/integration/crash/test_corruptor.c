/*
 * Flips one bit in each class of bytes of each kind of file, opens what is left, and holds it against
 * docs/failure-model.md:
 *
 *   always      nobody crashes or hangs; a refusal has a code of damage, and leaves the file as it was;
 *               what opens has its table, and can be appended to and closed
 *   not closed  (the mark is set, rows have checksums) no item is wrong
 *   closed      an item is wrong only where rows or leaves were hit, and verify sees that
 *
 * Prints a line of JSON for each kind, state and class. RLV_TEST_FLIPS: flips for each class, instead
 * of a few.
 */
#include "tests/support/attack/corrupt.h"
#include "tests/support/attack/crash_rows.h"
#include "tests/support/attack/kept.h"
#include "tests/support/sockets.h"
#include "tests/support/temp_dir.h"
#include "tests/support/must.h"
#include "tests/support/store_nodes.h"

#include "relive/relive.h"

#include "transport/pool/region_name.h"
#include "wire/region.h"

#include "base/bits.h"
#include "base/os/clock.h"
#include "base/os/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define POOL_BYTES (12u << 20)
#define POOL_TEXT "12M"
#define FILES_MAX 8u
#define BATCH 4096u
#define TIMEOUT_NS (20 * (int64_t)CLOCK_NS_PER_S)
#define LIMIT_S 30 /* time limit of a process, which otherwise hangs */
#define SANITIZER_EXIT 99

/* Result of one process for one flip; in memory shared with this process. */
struct verdict {
	int code; /* of the first call that failed */
	bool was_open, has_table;
	uint32_t problems; /* that verify saw */
	uint32_t wrong;    /* items */
	uint64_t items;
	char words[256];
};

enum outcome { OPENED, REFUSED, CRASHED, HUNG };

struct tally {
	uint32_t flips, refused, repaired, lost, wrong, crashes, hangs;
};

static struct verdict *verdict;
static struct corrupt_file files[FILES_MAX];
static uint32_t n_files;
static struct rng rng;
static char dir[TEMP_DIR_BYTES];

static void path_of(const char *name, char path[128])
{
	snprintf(path, 128, "%s/%s", dir, name);
}

/* -------- a client that meets damage -------- */

static int note(int code)
{
	verdict->code = code;
	snprintf(verdict->words, sizeof(verdict->words), "%s", rlv_last_error());
	return code;
}

static int draw(struct rlv_table *table, uint32_t view)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	const struct rlv_batch *batch;
	struct rlv_sampler *sampler;
	char why[CRASH_WHY];
	int ret;

	opts.view = view;
	opts.batch_size = BATCH;
	opts.gamma = 1;
	opts.seed = 1;
	ret = rlv_sampler_open(table, &opts, &sampler);
	if (ret)
		return ret;
	ret = rlv_sampler_sample(sampler, BATCH, 0, &batch);
	if (ret == 0)
		verdict->wrong += crash_batch_check(batch, why);
	if (ret == -ENODATA || ret == -ETIMEDOUT)
		ret = 0;
	if (rlv_sampler_close(&sampler) && ret == 0)
		ret = -EIO;
	return ret;
}

static int append(struct rlv_table *table)
{
	struct rlv_writer *writer;
	int ret = rlv_writer_open(table, NULL, &writer), closed;

	if (ret)
		return ret;
	ret = kept_append(writer, KEPT_STEPS, KEPT_STEPS + KEPT_MORE);
	closed = rlv_writer_close(&writer);
	return ret ? ret : closed;
}

static int use_table(struct rlv_table *table)
{
	struct rlv_verify_report report = { .size = sizeof(report) };
	struct rlv_table_info info = { .size = sizeof(info) };
	int ret = rlv_table_verify(table, &report);

	verdict->problems = report.problems;
	if (ret == 0)
		ret = rlv_table_info(table, &info);
	verdict->items = (uint64_t)info.views[0].items;
	for (uint32_t view = 0; ret == 0 && view < CRASH_VIEWS; view++)
		ret = draw(table, view);
	return ret ? ret : append(table);
}

static int use_store(struct rlv_store *store)
{
	struct rlv_table *table;
	int ret = rlv_table_open(store, "kept", &table), closed;

	if (ret == -ENOENT)
		return 0;
	verdict->has_table = true;
	if (ret)
		return note(ret);
	verdict->was_open = true;
	ret = use_table(table);
	if (ret)
		(void)note(ret);
	closed = rlv_table_close(&table);
	return ret ? ret : closed;
}

static bool node_is_up(struct rlv_store *store)
{
	struct rlv_store_info info = { .size = sizeof(info) };

	return rlv_store_info(store, &info) == 0 && info.n_nodes == 1 &&
	       store_node_at(store, 0).state == RLV_NODE_UP;
}

/* A repair lasts. */
static void open_again(const char *uri, const struct rlv_store_opts *opts)
{
	struct rlv_store *store;
	int ret = rlv_store_open(uri, opts, &store);

	if (ret)
		(void)note(ret);
	else
		(void)!rlv_store_close(&store);
}

static void look_at_store(const char *uri)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	uint64_t deadline = deadline_after(clock_monotonic(), TIMEOUT_NS);
	struct rlv_store *store;
	int ret;

	opts.pool_bytes = strncmp(uri, "embed:", 6) == 0 ? POOL_BYTES : 0;
	ret = rlv_store_open(uri, &opts, &store);
	if (ret) {
		(void)note(ret);
		return;
	}
	while (!node_is_up(store) && !deadline_expired(clock_monotonic(), deadline))
		usleep(2000);
	ret = use_store(store);
	if (rlv_store_close(&store) && ret == 0)
		(void)note(-EIO);
	if (ret == 0)
		open_again(uri, &opts);
}

static pid_t start_child(void)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(LIMIT_S);
	}
	return pid;
}

static enum outcome outcome_of(int status)
{
	if (WIFSIGNALED(status))
		return WTERMSIG(status) == SIGALRM ? HUNG : CRASHED;
	return WEXITSTATUS(status) == SANITIZER_EXIT ? CRASHED : OPENED;
}

/* In a process of its own, so that a crash is seen as one. */
static enum outcome look(const char *uri)
{
	pid_t pid = start_child();
	enum outcome outcome;
	int status;

	if (pid == 0) {
		look_at_store(uri);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	outcome = WIFEXITED(status) && WEXITSTATUS(status) ? CRASHED : outcome_of(status);
	return outcome == OPENED && verdict->code && !verdict->was_open ? REFUSED : outcome;
}

/* -------- the store that is damaged -------- */

/* Leaves a table of KEPT_STEPS steps behind. */
static int work(const char *uri, bool closed)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	struct rlv_writer *writer;
	struct rlv_table *table;
	struct rlv_store *store;
	int ret;

	opts.pool_bytes = strncmp(uri, "embed:", 6) == 0 ? POOL_BYTES : 0;
	ret = rlv_store_open(uri, &opts, &store);
	if (ret == 0)
		ret = kept_create(store, &table);
	if (ret == 0)
		ret = rlv_writer_open(table, NULL, &writer);
	if (ret == 0)
		ret = kept_append(writer, 0, KEPT_STEPS);
	if (ret || !closed)
		return ret;
	ret = rlv_writer_close(&writer);
	if (ret == 0)
		ret = rlv_table_close(&table);
	return ret ? ret : rlv_store_close(&store);
}

static void run_worker(const char *uri, bool closed)
{
	pid_t pid = start_child();
	int status, ret;

	if (pid == 0) {
		ret = work(uri, closed);
		if (ret)
			fprintf(stderr, "worker: %s\n", rlv_last_error());
		_exit(ret ? 1 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static struct corrupt_file *read_file(const char *name)
{
	char path[128];

	path_of(name, path);
	assert_true(n_files < FILES_MAX);
	corrupt_read(&files[n_files], path);
	return &files[n_files++];
}

static void forget_files(void)
{
	while (n_files > 0) {
		n_files--;
		(void)unlink(files[n_files].path);
		corrupt_free(&files[n_files]);
	}
}

/* -------- embed:FILE -------- */

static void embed_uri(char uri[160])
{
	snprintf(uri, 160, "embed:%s/file", dir);
}

static void embed_make(bool closed)
{
	char uri[160];

	embed_uri(uri);
	run_worker(uri, closed);
	corrupt_map_pool(read_file("file"));
}

static enum outcome embed_look(void)
{
	char uri[160];

	embed_uri(uri);
	return look(uri);
}

/* -------- a node's pool, and the catalog of its server -------- */

static pid_t metad, memnode;

static pid_t start_daemon(const char *const *args)
{
	const char *bin = getenv("RLV_BIN_DIR");
	char program[256], log[128];
	pid_t pid = start_child();
	int fd;

	if (pid)
		return pid;
	alarm(0);
	path_of("log", log);
	fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	dup2(fd, STDOUT_FILENO);
	dup2(fd, STDERR_FILENO);
	snprintf(program, sizeof(program), "%s/%s", bin ? bin : RLV_TEST_BIN_DIR, args[0]);
	execv(program, (char *const *)args);
	_exit(98);
}

static bool has_ended(pid_t *pid, enum outcome *outcome)
{
	int status;

	if (*pid == 0 || waitpid(*pid, &status, WNOHANG) != *pid)
		return false;
	*pid = 0;
	*outcome = outcome_of(status) == OPENED ? REFUSED : CRASHED;
	return true;
}

/* A socket has its name before it listens. */
static bool listens(const char *path, int type)
{
	int sock = sockets_connect_unix(path, type);

	if (sock >= 0)
		close(sock);
	return sock >= 0;
}

/* false: it ended before it listened. */
static bool await_socket(pid_t *pid, const char *name, int type, enum outcome *outcome)
{
	uint64_t deadline = deadline_after(clock_monotonic(), LIMIT_S * CLOCK_NS_PER_S);
	char path[128];

	path_of(name, path);
	while (!listens(path, type)) {
		if (has_ended(pid, outcome))
			return false;
		if (deadline_expired(clock_monotonic(), deadline)) {
			*outcome = HUNG;
			return false;
		}
		usleep(1000);
	}
	return true;
}

static void end_daemon(pid_t *pid, int number, enum outcome *outcome)
{
	int status;

	if (*pid == 0 || has_ended(pid, outcome))
		return;
	assert_int_equal(kill(*pid, number), 0);
	assert_int_equal(waitpid(*pid, &status, 0), *pid);
	if (WIFSIGNALED(status) && WTERMSIG(status) != number)
		*outcome = CRASHED;
	*pid = 0;
}

static bool start_daemons(enum outcome *outcome)
{
	char pool[128], path[128];
	const char *const server[] = { "relive-metad", "--store", "s", NULL };
	const char *const node[] = { "relive-memnode", "--store", "s",      "--name",  "a",
				     "--file",         pool,      "--size", POOL_TEXT, NULL };

	path_of("pool", pool);
	path_of("s/metad.sock", path);
	(void)unlink(path);
	path_of("s/memnode-a.sock", path);
	(void)unlink(path);
	metad = start_daemon(server);
	if (!await_socket(&metad, "s/metad.sock", SOCK_STREAM, outcome))
		return false;
	memnode = start_daemon(node);
	return await_socket(&memnode, "s/memnode-a.sock", SOCK_SEQPACKET, outcome);
}

static void end_daemons(int number, enum outcome *outcome)
{
	end_daemon(&memnode, number, outcome);
	end_daemon(&metad, number, outcome);
}

/* The files of the pool's directory: its superblock, and a region each. */
static void map_directory(void)
{
	const struct corrupt_file *tree = NULL;
	struct target_region regions[REGION_ROLES];
	char path[128], name[REGION_NAME_BYTES + 8];
	const struct dirent *entry;
	uint32_t n = 0, page;
	DIR *folder;

	corrupt_map_directory(read_file("pool/pool"));
	path_of("pool", path);
	folder = opendir(path);
	assert_non_null(folder);
	while ((entry = readdir(folder)) != NULL)
		if (n < ARRAY_LEN(regions) &&
		    region_name_parse(entry->d_name, &regions[n], &page) && page == REGION_WHOLE)
			n++;
	closedir(folder);
	/* of one shard; the tree says what the others are */
	assert_int_equal(n, REGION_ROLES - 1);
	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++)
		for (uint32_t i = 0; i < n; i++) {
			struct corrupt_region region = { .role = role };
			struct corrupt_file *file;

			if (regions[i].role != role)
				continue;
			memcpy(name, "pool/", 6);
			region_name_format(&regions[i], REGION_WHOLE, name + 5);
			file = read_file(name);
			region.bytes = file->bytes;
			region.tree = tree ? tree->image : NULL;
			corrupt_map_region(file, &region);
			tree = tree ? tree : file;
		}
}

static void node_make(bool closed)
{
	enum outcome outcome = OPENED;

	assert_true(start_daemons(&outcome));
	run_worker("shm:s", closed);
	end_daemons(closed ? SIGTERM : SIGKILL, &outcome);
	assert_int_equal(outcome, OPENED);
	map_directory();
	corrupt_map_db(read_file("s/s.db"));
	corrupt_map_wal(read_file("s/s.db-wal"));
}

static enum outcome node_look(void)
{
	enum outcome outcome = OPENED, of_client;

	if (!start_daemons(&outcome)) {
		end_daemons(SIGKILL, &(enum outcome){ OPENED });
		return outcome;
	}
	of_client = look("shm:s");
	end_daemons(SIGKILL, &outcome);
	return outcome == OPENED ? of_client : outcome;
}

/* -------- flips -------- */

static const struct kind {
	const char *name;
	void (*make)(bool closed);
	enum outcome (*look)(void);
	bool one_process; /* a refused file is unchanged */
	uint32_t flips;
} kinds[] = {
	{ "embed:FILE", embed_make, embed_look, true, 12 },
	{ "node", node_make, node_look, false, 2 },
};

struct round {
	const struct kind *kind;
	bool closed;
	uint64_t items; /* with nothing flipped */
	enum corrupt_class class;
	struct tally tally;
};

static void write_files(const struct corrupt_file *hit, size_t off, uint8_t mask)
{
	memset(verdict, 0, sizeof(*verdict));
	for (uint32_t f = 0; f < n_files; f++)
		corrupt_write(&files[f], &files[f] == hit ? off : 0, &files[f] == hit ? mask : 0);
}

static bool is_content(enum corrupt_class class)
{
	return class == CORRUPT_LEAVES || class == CORRUPT_ROW_COLUMNS ||
	       class == CORRUPT_ROW_TAIL || class == CORRUPT_BLOCK_HEADERS;
}

static const char *judge_opened(const struct round *round)
{
	if (!verdict->has_table)
		return "the table is gone";
	if (verdict->code)
		return "it cannot be used";
	if (verdict->wrong && !(round->closed && is_content(round->class) && verdict->problems))
		return "items are wrong";
	if (verdict->items < round->items && !is_content(round->class))
		return "items are lost";
	return NULL;
}

static const char *judge_refused(const struct round *round, const struct corrupt_file *hit,
				 size_t off, uint8_t mask)
{
	if (verdict->code && verdict->code != -EBADMSG && verdict->code != -EPROTO)
		return "refused, not as damage";
	if (round->kind->one_process && !corrupt_is_same(hit, off, mask))
		return "refused, and changed";
	return NULL;
}

static const char *judge(struct round *round, enum outcome outcome, const struct corrupt_file *hit,
			 size_t off, uint8_t mask)
{
	struct tally *tally = &round->tally;

	tally->flips++;
	switch (outcome) {
	case CRASHED:
		tally->crashes++;
		return "a process crashed";
	case HUNG:
		tally->hangs++;
		return "a process hangs";
	case REFUSED:
		tally->refused++;
		return judge_refused(round, hit, off, mask);
	default:
		tally->wrong += verdict->wrong;
		tally->repaired += verdict->problems == 0;
		if (verdict->items < round->items)
			tally->lost += (uint32_t)(round->items - verdict->items);
		return judge_opened(round);
	}
}

static void flip_one(struct round *round, const struct corrupt_file *file)
{
	size_t off = corrupt_pick(file, round->class, &rng);
	uint8_t mask = (uint8_t)(1u << rng_uniform_u64(&rng, 8));
	const char *broken;

	write_files(file, off, mask);
	broken = judge(round, round->kind->look(), file, off, mask);
	if (broken)
		fail_msg("%s %s, %s, bit %#x at %zu: %s: code %d \"%s\", items %llu of %llu, wrong "
			 "%u, problems %u",
			 round->kind->name, round->closed ? "closed" : "not closed",
			 corrupt_class_name(round->class), mask, off, broken, verdict->code,
			 verdict->words, (unsigned long long)verdict->items,
			 (unsigned long long)round->items, verdict->wrong, verdict->problems);
}

static void print_tally(const struct round *round)
{
	const struct tally *tally = &round->tally;

	print_message("{\"file\":\"%s\",\"closed\":%s,\"class\":\"%s\",\"flips\":%u,"
		      "\"refused\":%u,\"repaired\":%u,\"lost_items\":%u,\"wrong\":%u,"
		      "\"crashes\":%u,\"hangs\":%u}\n",
		      round->kind->name, round->closed ? "true" : "false",
		      corrupt_class_name(round->class), tally->flips, tally->refused,
		      tally->repaired, tally->lost, tally->wrong, tally->crashes, tally->hangs);
}

static uint32_t flips_of(const struct kind *kind)
{
	const char *text = getenv("RLV_TEST_FLIPS");

	return text && *text ? (uint32_t)strtoul(text, NULL, 0) : kind->flips;
}

static void flip_class(const struct round *like, enum corrupt_class class)
{
	struct round round = *like;
	uint32_t n = flips_of(round.kind);

	round.class = class;
	for (uint32_t f = 0; f < n_files; f++)
		for (uint32_t i = 0; files[f].total[class] && i < n; i++)
			flip_one(&round, &files[f]);
	if (round.tally.flips)
		print_tally(&round);
}

static void flip_kind(const struct kind *kind, bool closed)
{
	struct round round = { .kind = kind, .closed = closed };

	rng_seed(&rng, test_seed("flips", 20261123), closed);
	kind->make(closed);
	write_files(NULL, 0, 0);
	assert_int_equal(kind->look(), OPENED);
	must(verdict->code, verdict->words);
	assert_int_equal(verdict->wrong, 0);
	assert_int_equal(verdict->problems, 0);
	assert_true(verdict->items > KEPT_STEPS / 2);
	round.items = verdict->items;
	for (uint32_t class = 0; class < CORRUPT_CLASSES; class ++)
		flip_class(&round, (enum corrupt_class) class);
}

/* Of us it is set already; of what we start it says what a status means. */
static void tell_sanitizers_apart(void)
{
	const char *now = getenv("ASAN_OPTIONS");
	char text[512];

	snprintf(text, sizeof(text), "%s:exitcode=%d", now ? now : "", SANITIZER_EXIT);
	setenv("ASAN_OPTIONS", text, 1);
}

static int setup(void **state)
{
	(void)state;
	tell_sanitizers_apart();
	snprintf(dir, sizeof(dir), "/dev/shm/relive-flip-%d", (int)getpid());
	assert_int_equal(mkdir(dir, 0700), 0);
	setenv("RELIVE_RUNTIME_DIR", dir, 1);
	verdict = mmap(NULL, sizeof(*verdict), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	return verdict == MAP_FAILED ? -1 : 0;
}

static int teardown(void **state)
{
	char command[160];

	(void)state;
	end_daemons(SIGKILL, &(enum outcome){ OPENED });
	forget_files();
	munmap(verdict, sizeof(*verdict));
	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

#define CASE(f) TEST_WITH(f, setup, teardown)

/* -------- tests -------- */

CASE(embed_file__not_closed)
{
	flip_kind(&kinds[0], false);
}

CASE(embed_file__closed)
{
	flip_kind(&kinds[0], true);
}

CASE(node__not_closed)
{
	flip_kind(&kinds[1], false);
}

CASE(node__closed)
{
	flip_kind(&kinds[1], true);
}

int main(void)
{
	if (test_skips_valgrind("forks"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
