/*
 * contract_lost.c - an initiator whose target is killed, stopped, or not there. The target is this
 * program again (with an argument), because what wires link does not survive a fork.
 */
#include "tests/contract/suite/contract.h"
#include "tests/support/temp_dir.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLIENT 7
#define GRANTS 4

/* State that the target's process reports. */
struct place {
	char uri[TRANSPORT_URI_BYTES];  /* of an initiator that maps nothing */
	char near[TRANSPORT_URI_BYTES]; /* of one that maps the regions */
	struct region_grant grants[GRANTS];
};

static const char *lost_kind; /* of the target */
static bool lost_is_passive;

struct node {
	pid_t pid;
	char dir[TEMP_DIR_BYTES];
	struct place place;
	struct transport *tr;
	struct region *region;
};

/* -------- the target's process -------- */

static int listen_and_grant(struct transport_target *tg, const char *dir, struct place *place)
{
	struct target_region spec = { .kind = 1, .size = RIG_REGION };
	char address[128];
	int ret;

	(void)snprintf(address, sizeof(address), ":0;%s/node", dir);
	ret = tg->ops->listen(tg, address);
	if (ret == 0)
		ret = tg->ops->register_region(tg, &spec);
	for (int i = 0; ret == 0 && i < GRANTS; i++)
		ret = transport_grant(tg, CLIENT, spec.id, RIGHT_ALL, &place->grants[i]);
	if (ret)
		return ret;
	(void)snprintf(place->uri, sizeof(place->uri), "%s", tg->ops->uri(tg));
	memcpy(place->near, place->uri, sizeof(place->near));
	place->uri[strcspn(place->uri, ";")] = 0;
	return 0;
}

static int live_as_target(const char *dir)
{
	struct target_opts opts = { .pool_bytes = RIG_POOL };
	struct transport_target *tg;
	struct place place = { .uri = "" };

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (transport_target_open(lost_kind, &opts, &tg) || listen_and_grant(tg, dir, &place) ||
	    write(STDOUT_FILENO, &place, sizeof(place)) != (ssize_t)sizeof(place)) {
		print_error("target: %s\n", error_last());
		return 1;
	}
	while (tg->ops->progress(tg, (uint64_t)CLOCK_NS_PER_S) == 0)
		continue;
	return 1;
}

static void start_target(struct node *node)
{
	int pipes[2];

	temp_dir_make(node->dir);
	assert_int_equal(pipe(pipes), 0);
	node->pid = fork();
	assert_true(node->pid >= 0);
	if (node->pid == 0) {
		(void)dup2(pipes[1], STDOUT_FILENO);
		(void)execl("/proc/self/exe", "/proc/self/exe", node->dir, (char *)NULL);
		_exit(1);
	}
	close(pipes[1]);
	assert_int_equal(read(pipes[0], &node->place, sizeof(node->place)), sizeof(node->place));
	close(pipes[0]);
}

static void kill_target(struct node *node)
{
	char path[96];

	if (!node->pid)
		return;
	(void)kill(node->pid, SIGKILL);
	assert_int_equal(waitpid(node->pid, NULL, 0), node->pid);
	node->pid = 0;
	(void)snprintf(path, sizeof(path), "%s/node", node->dir);
	(void)unlink(path);
	(void)snprintf(path, sizeof(path), "%s/node.lock", node->dir);
	(void)unlink(path);
	(void)rmdir(node->dir);
}

/* The signal is sent at once; the threads of the target go on until they have got it. */
static void stop_target(struct node *node)
{
	int status;

	assert_int_equal(kill(node->pid, SIGSTOP), 0);
	assert_int_equal(waitpid(node->pid, &status, WUNTRACED), node->pid);
	assert_true(WIFSTOPPED(status));
}

static int setup(void **state)
{
	struct transport_opts opts = { .client_id = CLIENT };
	struct node *node = calloc(1, sizeof(*node));

	assert_non_null(node);
	start_target(node);
	if (transport_open(node->place.uri, &opts, &node->tr))
		fail_msg("open %s: %s", node->place.uri, error_last());
	if (transport_attach(node->tr, &node->place.grants[0], &node->region))
		fail_msg("attach: %s", error_last());
	*state = node;
	return 0;
}

static int teardown(void **state)
{
	struct node *node = *state;

	transport_close(&node->tr);
	kill_target(node);
	free(node);
	return 0;
}

/* -------- the tests -------- */

static void killed__every_call_gives_econnreset(void **state)
{
	struct node *node = *state;
	struct transport *tr = node->tr;
	struct transport_view view = { .region = node->region, .off = 64, .len = 8 };
	struct transport_wr wr = { .verb = VERB_FAA,
				   .atomic = { .region = node->region, .off = 64, .value = 1 } };
	struct region *again = NULL;
	uint64_t word, ticket;

	assert_int_equal(transport_load(node->region, 64, &word), 0);
	kill_target(node);
	assert_error(transport_load(node->region, 64, &word), -ECONNRESET);
	assert_int_equal(tr->broken, -ECONNRESET);
	assert_error(transport_store(node->region, 64, &word, 8), -ECONNRESET);
	assert_error(transport_view(tr, &view, 1), -ECONNRESET);
	assert_error(transport_submit(tr, &wr, 1, SUBMIT_ORDERED, &ticket), -ECONNRESET);
	assert_error(transport_order(tr), -ECONNRESET);
	assert_error(transport_attach(tr, &node->place.grants[1], &again), -ECONNRESET);
	assert_null(again);
}

/* What maps the regions, too, hears of it by whatever it does next, once the kernel says so. */
static void killed__a_detach_notices(void **state)
{
	enum { REGIONS = 14 }; /* pauses of 1 ms to 8 s between them */
	struct node *node = *state;
	struct transport_opts opts = { .client_id = CLIENT };
	struct region *regions[REGIONS] = { NULL };
	struct transport *near = NULL;

	assert_int_equal(transport_open(node->place.near, &opts, &near), 0);
	for (int i = 0; i < REGIONS; i++)
		assert_int_equal(transport_attach(near, &node->place.grants[0], &regions[i]), 0);
	kill_target(node);
	for (int i = 0; i < REGIONS && !near->broken; i++) {
		transport_detach(&regions[i]);
		(void)usleep(1000u << i);
	}
	assert_int_equal(near->broken, -ECONNRESET);
	transport_close(&near);
}

static void killed__atomics_are_unknown(void **state)
{
	struct node *node = *state;
	struct transport_atomic ops[3] = {
		{ .region = node->region, .off = 64, .value = 1 },
		{ .region = node->region, .off = 128, .value = 1 },
		{ .region = node->region, .off = 192, .value = 1 },
	};

	kill_target(node);
	assert_error(transport_faa(node->tr, ops, 3), -ECONNRESET);
	for (int i = 0; i < 3; i++)
		assert_int_equal(ops[i].status, ATOMIC_UNKNOWN);
	assert_int_equal(node->tr->stats.unknown, 3);
}

/* One-sided operations do not involve the target's process. */
static void stopped__words_go_on(void **state)
{
	struct node *node = *state;
	uint64_t word;

	stop_target(node);
	assert_int_equal(transport_faa_word(node->region, 64, 5, &word), 0);
	assert_int_equal(transport_load(node->region, 64, &word), 0);
	assert_int_equal(word, 5);
	assert_int_equal(kill(node->pid, SIGCONT), 0);
}

/* Where the target's process carries operations out. */
static void stopped__words_end_in_time(void **state)
{
	struct node *node = *state;
	struct transport_atomic op = { .region = node->region, .off = 64, .value = 1 };
	uint64_t word;

	assert_int_equal(transport_load(node->region, 64, &word), 0);
	node->tr->timeout_ns = 200 * (uint64_t)CLOCK_NS_PER_MS;
	stop_target(node);
	assert_error(transport_faa(node->tr, &op, 1), -ETIMEDOUT);
	assert_int_equal(op.status, ATOMIC_UNKNOWN);
	assert_error(transport_load(node->region, 64, &word), -ECONNRESET);
	assert_int_equal(kill(node->pid, SIGCONT), 0);
}

static void stopped__attach_ends_in_time(void **state)
{
	struct node *node = *state;
	struct region *again = NULL;
	uint64_t word;

	node->tr->timeout_ns = 200 * (uint64_t)CLOCK_NS_PER_MS;
	stop_target(node);
	assert_error(transport_attach(node->tr, &node->place.grants[1], &again), -ETIMEDOUT);
	assert_null(again);
	assert_error(transport_load(node->region, 64, &word), -ECONNRESET);
	assert_int_equal(kill(node->pid, SIGCONT), 0);
}

/* More messages than it has receives for. */
static void stopped__detaches_wait_until_it_goes_on(void **state)
{
	struct node *node = *state;
	struct region *regions[20];
	uint64_t word;
	pid_t waker;

	for (int i = 0; i < 20; i++)
		assert_int_equal(transport_attach(node->tr, &node->place.grants[0], &regions[i]),
				 0);
	stop_target(node);
	waker = fork();
	assert_true(waker >= 0);
	if (waker == 0) {
		(void)usleep(100 * 1000);
		_exit(kill(node->pid, SIGCONT) != 0);
	}
	for (int i = 0; i < 20; i++)
		transport_detach(&regions[i]);
	assert_int_equal(waitpid(waker, NULL, 0), waker);
	assert_int_equal(transport_load(node->region, 64, &word), 0);
}

static void stopped__connect_ends_in_time(void **state)
{
	struct node *node = *state;
	struct transport_opts opts = { .client_id = 8,
				       .timeout_ns = 200 * (uint64_t)CLOCK_NS_PER_MS };
	struct transport *tr = NULL;

	stop_target(node);
	assert_error(transport_open(node->place.uri, &opts, &tr), -ETIMEDOUT);
	assert_null(tr);
	assert_int_equal(kill(node->pid, SIGCONT), 0);
}

static void restarted__takes_a_new_link(void **state)
{
	struct node *node = *state;
	uint64_t incarnation = node->region->incarnation, word = 1;

	kill_target(node);
	transport_close(&node->tr);
	start_target(node);
	assert_int_equal(transport_open(node->place.uri,
					&(struct transport_opts){ .client_id = CLIENT }, &node->tr),
			 0);
	assert_int_equal(transport_attach(node->tr, &node->place.grants[0], &node->region), 0);
	assert_true(node->region->incarnation != incarnation);
	assert_int_equal(transport_load(node->region, 64, &word), 0);
	assert_int_equal(word, 0);
}

static void open__where_nobody_listens(void **state)
{
	struct node *node = *state;
	struct transport_opts opts = { .client_id = 8 };
	struct transport *tr = NULL;
	char uri[TRANSPORT_URI_BYTES];

	(void)snprintf(uri, sizeof(uri), "%.*s:1",
		       (int)(strrchr(node->place.uri, ':') - node->place.uri), node->place.uri);
	assert_error(transport_open(uri, &opts, &tr), -ECONNREFUSED);
	assert_null(tr);
}

static int open_in_child(struct node *node)
{
	struct transport_opts opts = { .client_id = 8 };
	struct transport *tr = NULL;

	/* what needs no process is a device, and that does not survive a fork */
	return transport_open(node->place.uri, &opts, &tr) != (lost_is_passive ? -ECHILD : 0);
}

static void open__in_a_forked_child(void **state)
{
	struct node *node = *state;
	uint64_t word;
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(open_in_child(node));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_int_equal(transport_load(node->region, 64, &word), 0);
}

int contract_run_lost(const char *kind, bool is_passive, int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(killed__every_call_gives_econnreset, setup,
						teardown),
		cmocka_unit_test_setup_teardown(killed__a_detach_notices, setup, teardown),
		cmocka_unit_test_setup_teardown(killed__atomics_are_unknown, setup, teardown),
		cmocka_unit_test_setup_teardown(stopped__attach_ends_in_time, setup, teardown),
		cmocka_unit_test_setup_teardown(stopped__detaches_wait_until_it_goes_on, setup,
						teardown),
		cmocka_unit_test_setup_teardown(stopped__connect_ends_in_time, setup, teardown),
		cmocka_unit_test_setup_teardown(restarted__takes_a_new_link, setup, teardown),
		cmocka_unit_test_setup_teardown(open__where_nobody_listens, setup, teardown),
		cmocka_unit_test_setup_teardown(open__in_a_forked_child, setup, teardown),
	};
	static const struct CMUnitTest stopped[] = {
		cmocka_unit_test_setup_teardown(stopped__words_go_on, setup, teardown),
		cmocka_unit_test_setup_teardown(stopped__words_end_in_time, setup, teardown),
	};
	int failed;

	lost_kind = kind;
	lost_is_passive = is_passive;
	if (argc > 1)
		return live_as_target(argv[1]);
	if (contract_lacks_device(kind))
		return TEST_EXIT_SKIP;
	failed = TEST_RUN(tests, NULL, NULL);
	return failed + _cmocka_run_group_tests("stopped", &stopped[!is_passive], 1, NULL, NULL);
}
