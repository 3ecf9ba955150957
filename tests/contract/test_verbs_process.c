/*
 * test_verbs_process.c - RDMA with real processes: which of them is dead, which is cut off, and what
 * a node that dies means.
 *
 * A process that has used rdma-core cannot go on in a forked child, so a peer is this program again:
 *
 *   test_verbs_process peer once|forever URI GRANT   attaches, counts at WORD, says "x"
 *   test_verbs_process node                          says URI, GRANT of a region of its own
 */
#include "tests/contract/suite/contract.h"
#include "tests/support/gauge.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OTHER 50
#define WORD 64
#define LINE_BYTES 1024

static const char *self; /* this program's path */

enum { EXIT_CUT = 3, EXIT_OTHERWISE = 4 };

/* -------- the other processes -------- */

static void put_grant(const struct region_grant *grant, char *text)
{
	for (uint32_t i = 0; i < grant->bytes; i++)
		(void)snprintf(text + 2 * i, 3, "%02x", grant->data[i]);
}

static struct region_grant take_grant(const char *text)
{
	struct region_grant grant = { .bytes = (uint32_t)strlen(text) / 2 };

	for (uint32_t i = 0; i < grant.bytes; i++) {
		const char digits[] = { text[2 * i], text[2 * i + 1], 0 };

		grant.data[i] = (uint8_t)strtoul(digits, NULL, 16);
	}
	return grant;
}

static int run_peer(const char *mode, const char *uri, const char *text)
{
	struct transport_opts opts = { .client_id = OTHER };
	struct region_grant grant = take_grant(text);
	struct transport *tr = NULL;
	struct region *region = NULL;
	uint64_t old;
	int ret;

	if (transport_open(uri, &opts, &tr) || transport_attach(tr, &grant, &region) ||
	    transport_faa_word(region, WORD, 1, &old) || write(STDOUT_FILENO, "x\n", 2) != 2) {
		(void)fprintf(stderr, "peer: %s\n", error_last());
		return 1;
	}
	while (strcmp(mode, "once") == 0)
		pause();
	do {
		ret = transport_faa_word(region, WORD, 1, &old);
	} while (ret == 0);
	transport_close(&tr);
	return ret == -ECONNRESET || ret == -EIO ? EXIT_CUT : EXIT_OTHERWISE;
}

static int run_node(void)
{
	struct target_opts opts = { .pool_bytes = RIG_POOL };
	struct target_region spec = { .kind = 1, .size = RIG_REGION };
	char text[2 * TRANSPORT_GRANT_BYTES + 1];
	struct transport_target *tg = NULL;
	struct region_grant grant;

	if (transport_target_open("verbs", &opts, &tg) || tg->ops->listen(tg, ":0") ||
	    tg->ops->register_region(tg, &spec) ||
	    transport_grant(tg, OTHER, spec.id, RIGHT_ALL, &grant)) {
		(void)fprintf(stderr, "node: %s\n", error_last());
		return 1;
	}
	put_grant(&grant, text);
	(void)printf("%s %s\n", tg->ops->uri(tg), text);
	(void)fflush(stdout);
	for (;;)
		(void)!tg->ops->progress(tg, (uint64_t)CLOCK_NS_PER_S);
}

struct process {
	pid_t pid;
	char line[LINE_BYTES]; /* the first that it said */
};

/* Starts this program again and waits until it has said a line. */
static struct process start(const char *const *args)
{
	struct process process = { 0 };
	int pipes[2];
	FILE *said;

	assert_int_equal(pipe(pipes), 0);
	process.pid = fork();
	assert_true(process.pid >= 0);
	if (process.pid == 0) {
		(void)dup2(pipes[1], STDOUT_FILENO);
		close(pipes[0]);
		close(pipes[1]);
		(void)execv(self, (char *const *)(uintptr_t)args);
		_exit(127);
	}
	close(pipes[1]);
	said = fdopen(pipes[0], "r");
	assert_non_null(said);
	if (!fgets(process.line, sizeof(process.line), said))
		fail_msg("process says nothing");
	(void)fclose(said);
	return process;
}

static struct process start_peer(struct rig *rig, const char *mode)
{
	char text[2 * TRANSPORT_GRANT_BYTES + 1] = "";
	const char *args[] = { self, "peer", mode, rig->uri, text, NULL };
	struct region_grant grant;

	assert_int_equal(transport_grant(rig->tg, OTHER, rig->spec.id, RIGHT_ALL, &grant), 0);
	put_grant(&grant, text);
	return start(args);
}

static int wait_for(const struct process *process)
{
	int status = 0;

	assert_int_equal(waitpid(process->pid, &status, 0), process->pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void end(const struct process *process)
{
	assert_int_equal(kill(process->pid, SIGKILL), 0);
	assert_int_equal(wait_for(process), 128 + SIGKILL);
}

static enum fence_result fence(struct rig *rig, enum fence_how how)
{
	enum fence_result result = FENCE_ALIVE;

	assert_int_equal(rig->tg->ops->fence(rig->tg, OTHER, how, &result), 0);
	return result;
}

/* The kernel of a dead process says goodbye for it, in its own time. */
static void assert_dead_soon(struct rig *rig)
{
	enum fence_result result = fence(rig, FENCE_ASK);

	for (int i = 0; i < 10000 && result != FENCE_DEAD; i++) {
		(void)rig->tg->ops->progress(rig->tg, (uint64_t)CLOCK_NS_PER_MS);
		result = fence(rig, FENCE_ASK);
	}
	assert_int_equal(result, FENCE_DEAD);
}

static struct target_stats stats_of(struct rig *rig)
{
	struct target_stats stats;

	rig->tg->ops->stats(rig->tg, &stats);
	return stats;
}

static void assert_same_gauges(struct rig *rig, const struct target_stats *before)
{
	struct target_stats now = stats_of(rig);

	assert_int_equal(gauge_of(now, "qps"), gauge_of(*before, "qps"));
	assert_int_equal(gauge_of(now, "mrs"), gauge_of(*before, "mrs"));
	assert_int_equal(gauge_of(now, "windows"), gauge_of(*before, "windows"));
	assert_int_equal(now.clients, before->clients);
}

/* -------- clients -------- */

static void peer__shares_the_words(void **state)
{
	struct rig *rig = rig_of(state);
	struct process peer = start_peer(rig, "once");
	uint64_t old = 0;

	assert_int_equal(transport_faa_word(rig->region, WORD, 1, &old), 0);
	assert_int_equal(old, 1);
	end(&peer);
}

static void fence__of_a_killed_process(void **state)
{
	struct rig *rig = rig_of(state);
	struct target_stats before = stats_of(rig);
	struct process peer = start_peer(rig, "forever");

	assert_int_equal(fence(rig, FENCE_ASK), FENCE_ALIVE);
	assert_true(gauge_of(stats_of(rig), "qps") > gauge_of(before, "qps"));
	end(&peer);
	assert_dead_soon(rig);
	assert_same_gauges(rig, &before);
	assert_true(rig_load(rig->region, WORD) > 0); /* what it did stays */
}

static void fence__cut_of_a_stopped_process(void **state)
{
	struct rig *rig = rig_of(state);
	struct target_stats before = stats_of(rig);
	struct process peer = start_peer(rig, "forever");
	uint64_t count;

	assert_int_equal(kill(peer.pid, SIGSTOP), 0);
	assert_int_equal(fence(rig, FENCE_ASK), FENCE_ALIVE); /* stopped is not dead */
	assert_int_equal(fence(rig, FENCE_CUT), rig->kind->far ? FENCE_DEAD : FENCE_ALIVE);
	assert_int_equal(gauge_of(stats_of(rig), "qps"), gauge_of(before, "qps"));
	count = rig_load(rig->region, WORD);
	assert_int_equal(kill(peer.pid, SIGCONT), 0);
	assert_int_equal(wait_for(&peer), EXIT_CUT);
	assert_int_equal(rig_load(rig->region, WORD), count);
	assert_dead_soon(rig);
	assert_same_gauges(rig, &before);
}

static void fence__kills_when_told(void **state)
{
	struct rig *rig = rig_of(state);
	struct target_stats before = stats_of(rig);
	struct process peer = start_peer(rig, "forever");

	assert_int_equal(fence(rig, FENCE_KILL), FENCE_DEAD);
	/* of a process that maps nothing here only the queue pairs are known */
	assert_int_equal(wait_for(&peer), rig->kind->far ? EXIT_CUT : 128 + SIGKILL);
	assert_same_gauges(rig, &before);
}

/* -------- nodes -------- */

static void node__in_another_process_that_is_killed(void **state)
{
	const char *args[] = { self, "node", NULL };
	struct transport_opts opts = { .client_id = OTHER };
	struct process node = start(args);
	char uri[TRANSPORT_URI_BYTES], text[2 * TRANSPORT_GRANT_BYTES + 1];
	struct region_grant grant;
	struct transport *tr = NULL;
	struct region *region = NULL;
	uint64_t old, word = 7;
	int ret = 0;

	(void)state;
	assert_int_equal(sscanf(node.line, "%255s %512s", uri, text), 2);
	grant = take_grant(text);
	assert_int_equal(transport_open(uri, &opts, &tr), 0);
	assert_int_equal(transport_attach(tr, &grant, &region), 0);
	assert_null(region->base);
	rig_store(region, 4096, word);
	assert_int_equal(transport_faa_word(region, 4096, 1, &old), 0);
	assert_int_equal(old, 7);
	assert_int_equal(rig_load(region, 4096), 8);
	end(&node);
	for (int i = 0; i < 1000 && ret == 0; i++)
		ret = transport_load(region, 4096, &word);
	assert_int_equal(ret, -ECONNRESET);
	assert_int_equal(tr->broken, -ECONNRESET);
	transport_close(&tr);
}

static const struct CMUnitTest tests[] = {
	CONTRACT_TEST(peer__shares_the_words),
	CONTRACT_TEST(fence__of_a_killed_process),
	CONTRACT_TEST(fence__cut_of_a_stopped_process),
	CONTRACT_TEST(fence__kills_when_told),
};

int main(int argc, char **argv)
{
	static const struct contract_kind near = { .name = "verbs processes",
						   .target = "verbs",
						   .listens = true };
	static const struct contract_kind far = {
		.name = "verbs far processes", .target = "verbs", .listens = true, .far = true
	};
	static const struct CMUnitTest nodes[] = {
		cmocka_unit_test(node__in_another_process_that_is_killed),
	};
	int failed;

	self = argv[0];
	if (argc == 5 && strcmp(argv[1], "peer") == 0)
		return run_peer(argv[2], argv[3], argv[4]);
	if (argc == 2 && strcmp(argv[1], "node") == 0)
		return run_node();
	if (contract_lacks_device("verbs"))
		return TEST_EXIT_SKIP;
	contract_use(&near);
	failed = TEST_RUN(tests, NULL, NULL);
	contract_use(&far);
	failed += TEST_RUN(tests, NULL, NULL);
	return failed + TEST_RUN(nodes, NULL, NULL);
}
