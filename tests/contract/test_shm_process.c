/*
 * test_shm_process.c - shm with real processes: death, rights to write, and processes that do not
 * answer.
 */
#include "tests/support/sockets.h"
#include "tests/contract/suite/contract.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transport/attach/packet.h"

#define OTHER 50

/* A process that attaches the region with rights, says so, and then waits for its end. */
struct peer {
	pid_t pid;
	int say;
};

static void live_as_peer(struct rig *rig, const struct region_grant *grant, int say)
{
	struct transport_opts opts = { .client_id = OTHER };
	struct region *region = NULL;
	struct transport *tr = NULL;
	uint64_t old;

	if (transport_open(rig->uri, &opts, &tr) || transport_attach(tr, grant, &region) ||
	    transport_faa_word(region, 64, 1, &old) || write(say, "x", 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

static struct peer start_peer(struct rig *rig)
{
	struct region_grant grant;
	struct peer peer;
	int pipes[2];
	char byte = 0;

	assert_int_equal(transport_grant(rig->tg, OTHER, rig->spec.id, RIGHT_ALL, &grant), 0);
	assert_int_equal(pipe(pipes), 0);
	peer.pid = fork();
	assert_true(peer.pid >= 0);
	if (peer.pid == 0) {
		close(pipes[0]);
		live_as_peer(rig, &grant, pipes[1]);
	}
	close(pipes[1]);
	assert_int_equal(read(pipes[0], &byte, 1), 1);
	close(pipes[0]);
	return peer;
}

static void end_peer(const struct peer *peer)
{
	int status;

	(void)kill(peer->pid, SIGKILL);
	assert_int_equal(waitpid(peer->pid, &status, 0), peer->pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static enum fence_result fence(struct rig *rig, enum fence_how how)
{
	enum fence_result result = FENCE_ALIVE;

	assert_int_equal(rig->tg->ops->fence(rig->tg, OTHER, how, &result), 0);
	return result;
}

static void peer__shares_the_words(void **state)
{
	struct rig *rig = rig_of(state);
	struct peer peer = start_peer(rig);

	assert_int_equal(rig_load(rig->region, 64), 1);
	end_peer(&peer);
}

static void fence__of_a_live_process(void **state)
{
	struct rig *rig = rig_of(state);
	struct peer peer = start_peer(rig);

	assert_int_equal(fence(rig, FENCE_ASK), FENCE_ALIVE);
	assert_int_equal(kill(peer.pid, SIGSTOP), 0);
	assert_int_equal(fence(rig, FENCE_ASK), FENCE_ALIVE); /* stopped is not dead */
	end_peer(&peer);
}

static void fence__of_a_killed_process(void **state)
{
	struct rig *rig = rig_of(state);
	struct peer peer = start_peer(rig);
	struct target_stats stats;

	end_peer(&peer);
	assert_int_equal(fence(rig, FENCE_ASK), FENCE_DEAD);
	rig->tg->ops->stats(rig->tg, &stats);
	assert_int_equal(stats.clients, 1);
	assert_int_equal(stats.fences, 1);
	assert_int_equal(rig_load(rig->region, 64), 1); /* what it did stays */
}

/* Nobody has waited for it yet, so its number is not free; but its memory is gone. */
static void fence__of_a_zombie(void **state)
{
	struct rig *rig = rig_of(state);
	struct peer peer = start_peer(rig);
	siginfo_t info;

	assert_int_equal(kill(peer.pid, SIGKILL), 0);
	assert_int_equal(waitid(P_PID, (id_t)peer.pid, &info, WEXITED | WNOWAIT), 0);
	assert_int_equal(fence(rig, FENCE_ASK), FENCE_DEAD);
	end_peer(&peer);
}

static void fence__kills_when_told(void **state)
{
	struct rig *rig = rig_of(state);
	struct peer peer = start_peer(rig);

	assert_int_equal(kill(peer.pid, SIGSTOP), 0);
	assert_int_equal(fence(rig, FENCE_KILL), FENCE_DEAD);
	end_peer(&peer);
	assert_int_equal(fence(rig, FENCE_ASK), FENCE_DEAD);
}

static int open_as_other(struct rig *rig)
{
	struct transport_opts opts = { .client_id = OTHER };
	struct transport *tr = NULL;

	return -transport_open(rig->uri, &opts, &tr);
}

static void open__with_the_client_id_of_another_process(void **state)
{
	struct rig *rig = rig_of(state);
	struct peer peer = start_peer(rig);

	assert_int_equal(rig_in_child(open_as_other, rig), EEXIST);
	end_peer(&peer);
	/* dead, but not fenced: its attachments must still be settled */
	assert_int_equal(rig_in_child(open_as_other, rig), EEXIST);
	assert_int_equal(fence(rig, FENCE_ASK), FENCE_DEAD);
	assert_int_equal(rig_in_child(open_as_other, rig), 0);
}

static void attach__to_read_maps_nothing_writable(void **state)
{
	struct rig *rig = rig_of(state);
	struct region_grant grant;
	struct transport_opts opts = { .client_id = OTHER };
	struct region *region = NULL;
	struct transport *tr = NULL;
	int pipes[2];

	assert_int_equal(transport_grant(rig->tg, OTHER, rig->spec.id, RIGHT_READ, &grant), 0);
	assert_int_equal(transport_open(rig->uri, &opts, &tr), 0);
	assert_int_equal(transport_attach(tr, &grant, &region), 0);
	/* the kernel says EFAULT where we would fault */
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(write(pipes[1], "12345678", 8), 8);
	assert_int_equal(read(pipes[0], region->base + 64, 8), -1);
	assert_int_equal(errno, EFAULT);
	close(pipes[0]);
	close(pipes[1]);
	transport_close(&tr);
}

static int count_mapped(struct rig *rig)
{
	char line[512];
	FILE *file = fopen("/proc/self/maps", "re");
	int n = 0;

	(void)rig;
	if (!file)
		return 99;
	while (fgets(line, sizeof(line), file))
		n += strstr(line, "relive-region") != NULL;
	fclose(file);
	return n;
}

static void attach__is_not_inherited_by_a_fork(void **state)
{
	struct rig *rig = rig_of(state);

	assert_int_equal(count_mapped(rig), 2); /* the target's and the initiator's */
	assert_int_equal(rig_in_child(count_mapped, rig), 0);
}

static void unregister__frees_the_memory_of_mappers(void **state)
{
	struct rig *rig = rig_of(state);

	rig_store(rig->region, 1024, 2);
	rig_store(rig->region, 4096, 3);
	assert_int_equal(rig->tg->ops->unregister_region(rig->tg, rig->spec.id), 0);
	assert_int_equal(rig_load(rig->region, 1024), 2);
	assert_int_equal(rig_load(rig->region, 4096), 0);
}

/* -------- targets that are none -------- */

static int open_with_timeout(const char *path, uint64_t timeout_ns)
{
	struct transport_opts opts = { .client_id = OTHER, .timeout_ns = timeout_ns };
	struct transport *tr = NULL;
	char uri[160];

	(void)snprintf(uri, sizeof(uri), "shm:%s", path);
	return transport_open(uri, &opts, &tr);
}

static int listen_at(char *path, size_t room, struct rig *rig, int type)
{
	(void)snprintf(path, room, "%s/strange", rig->dir);
	return sockets_listen_unix(path, type);
}

static void open__where_nobody_listens(void **state)
{
	struct rig *rig = rig_of(state);
	char path[96];
	int sock;

	(void)snprintf(path, sizeof(path), "%s/nothing", rig->dir);
	assert_error(open_with_timeout(path, 0), -ECONNREFUSED);
	sock = listen_at(path, sizeof(path), rig, SOCK_SEQPACKET);
	close(sock);
	assert_error(open_with_timeout(path, 0), -ECONNREFUSED);
	unlink(path);
}

static void open__where_a_stream_socket_listens(void **state)
{
	struct rig *rig = rig_of(state);
	char path[96];
	int sock = listen_at(path, sizeof(path), rig, SOCK_STREAM);

	assert_error(open_with_timeout(path, 0), -EPROTO);
	close(sock);
	unlink(path);
}

static void open__of_a_target_that_says_nothing(void **state)
{
	struct rig *rig = rig_of(state);
	char path[96];
	int sock = listen_at(path, sizeof(path), rig, SOCK_SEQPACKET);

	assert_error(open_with_timeout(path, 30 * (uint64_t)CLOCK_NS_PER_MS), -ETIMEDOUT);
	close(sock);
	unlink(path);
}

struct liar {
	int sock;
	uint8_t bytes[256];
	size_t len;
};

static void *answer_once(void *arg)
{
	struct liar *liar = arg;
	int sock = accept(liar->sock, NULL, NULL);
	uint8_t hello[256];

	if (recv(sock, hello, sizeof(hello), 0) > 0 && liar->len)
		(void)!send(sock, liar->bytes, liar->len, MSG_NOSIGNAL);
	close(sock);
	return NULL;
}

static int open_of_liar(struct rig *rig, struct liar *liar)
{
	pthread_t thread;
	char path[96];
	int ret;

	liar->sock = listen_at(path, sizeof(path), rig, SOCK_SEQPACKET);
	assert_int_equal(pthread_create(&thread, NULL, answer_once, liar), 0);
	ret = open_with_timeout(path, 0);
	pthread_join(thread, NULL);
	close(liar->sock);
	unlink(path);
	return ret;
}

static void open__of_a_target_that_hangs_up(void **state)
{
	struct liar liar = { 0 };

	assert_error(open_of_liar(rig_of(state), &liar), -ECONNRESET);
}

static void open__of_a_target_that_talks_garbage(void **state)
{
	struct liar liar = { .len = 192 };

	assert_error(open_of_liar(rig_of(state), &liar), -EPROTO);
}

static void open__of_a_target_that_answers_something_else(void **state)
{
	struct packet packet = { .fd = -1 };
	struct liar liar = { .len = sizeof(struct attach_region_reply) };

	packet_seal(&packet, ATTACH_REGION_REPLY);
	memcpy(liar.bytes, packet.bytes, liar.len);
	assert_error(open_of_liar(rig_of(state), &liar), -EPROTO);
}

static void open__of_a_target_of_another_version(void **state)
{
	struct packet packet = { .fd = -1 };
	struct liar liar = { .len = sizeof(struct attach_hello_reply) };

	packet_seal(&packet, ATTACH_HELLO_REPLY);
	packet.head.version = 2;
	memcpy(liar.bytes, packet.bytes, liar.len);
	assert_error(open_of_liar(rig_of(state), &liar), -EPROTO);
	assert_non_null(strstr(error_last(), "version 2"));
}

static void open__many_at_once(void **state)
{
	struct rig *rig = rig_of(state);
	struct transport *trs[40];

	for (uint64_t i = 0; i < 40; i++)
		trs[i] = rig_open(rig, 100 + i / 2);
	for (int i = 0; i < 40; i++)
		transport_close(&trs[i]);
}

int main(void)
{
	static const struct contract_kind kind = { .name = "shm processes", .listens = true };
	const struct CMUnitTest tests[] = {
		CONTRACT_TEST(peer__shares_the_words),
		CONTRACT_TEST(fence__of_a_live_process),
		CONTRACT_TEST(fence__of_a_killed_process),
		CONTRACT_TEST(fence__of_a_zombie),
		CONTRACT_TEST(fence__kills_when_told),
		CONTRACT_TEST(open__with_the_client_id_of_another_process),
		CONTRACT_TEST(attach__to_read_maps_nothing_writable),
		CONTRACT_TEST(attach__is_not_inherited_by_a_fork),
		CONTRACT_TEST(unregister__frees_the_memory_of_mappers),
		CONTRACT_TEST(open__where_nobody_listens),
		CONTRACT_TEST(open__where_a_stream_socket_listens),
		CONTRACT_TEST(open__of_a_target_that_says_nothing),
		CONTRACT_TEST(open__of_a_target_that_hangs_up),
		CONTRACT_TEST(open__of_a_target_that_talks_garbage),
		CONTRACT_TEST(open__of_a_target_that_answers_something_else),
		CONTRACT_TEST(open__of_a_target_of_another_version),
		CONTRACT_TEST(open__many_at_once),
	};

	contract_use(&kind);
	return TEST_RUN(tests, NULL, NULL);
}
