/*
 * The metadata server's edge with a real daemon: peers that are slow to prove the token, peers that do
 * not read their answers, and what all of them do to those who behave.
 */
#include "tests/support/processes.h"
#include "tests/support/sockets.h"
#include "tests/support/must.h"
#include "tests/support/store_nodes.h"

#include "relive/relive.h"

#include "transport/transport.h"

#include "wire/control.pb-c.h"
#include "wire/control/dial.h"
#include "wire/control/frame.h"

#include "base/os/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLOW 1100
#define REQUESTS 100000u
#define RSS_GROWTH_KB (32 << 10)

struct edge {
	struct processes ps;
	pid_t metad;
	uint16_t port;
	char listen[32];
	char uri[64];
	char token[PROCESSES_TOKEN_BYTES];
	int slow[SLOW];
	uint32_t n_slow;
	struct rlv_store *stores[16];
};

/* Or the server's size says nothing under ASan. */
static int keep_no_freed_memory(void **state)
{
	const char *now = getenv("ASAN_OPTIONS");
	char text[512];

	(void)state;
	snprintf(text, sizeof(text), "%s:quarantine_size_mb=1", now ? now : "");
	setenv("ASAN_OPTIONS", text, 1);
	return 0;
}

static int setup(void **state)
{
	static struct edge edge;

	memset(&edge, 0, sizeof(edge));
	processes_init(&edge.ps);
	edge.port = processes_free_port();
	snprintf(edge.listen, sizeof(edge.listen), "127.0.0.1:%u", edge.port);
	snprintf(edge.uri, sizeof(edge.uri), "relive://%s", edge.listen);
	*state = &edge;
	return 0;
}

static int teardown(void **state)
{
	struct edge *edge = *state;

	for (uint32_t i = 0; i < edge->n_slow; i++)
		close(edge->slow[i]);
	for (uint32_t i = 0; i < 16; i++)
		(void)!rlv_store_close(&edge->stores[i]);
	unsetenv("RELIVE_TOKEN");
	processes_fini(&edge->ps);
	return 0;
}

static void start(struct edge *edge, const char *option, const char *value)
{
	const char *const args[] = { "--listen", edge->listen, option, value, NULL };

	edge->metad = processes_metad(&edge->ps, "s", args);
	processes_token(&edge->ps, "s", edge->token);
	setenv("RELIVE_TOKEN", edge->token, 1);
}

static int try_open(const char *uri, struct rlv_store **store)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;

	opts.timeout_ns = (int64_t)PROCESSES_WAIT_MS * 1000000;
	return rlv_store_open(uri, &opts, store);
}

/* -------- slow peers -------- */

static int connect_name(const char *path, int type)
{
	int fd = sockets_connect_unix(path, type);

	assert_true(fd >= 0);
	return fd;
}

static int connect_unix(const struct edge *edge)
{
	char path[PROCESSES_PATH + 64];

	processes_path(&edge->ps, "s/metad.sock", path);
	return connect_name(path, SOCK_STREAM);
}

static void allow_descriptors(void)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = limit.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* The begin of a record of TLS, and of a frame. */
static const uint8_t tls_begin[] = { 0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3 };
static const uint8_t frame_begin[] = { 64, 0, 0, 0, 1, 0, 1, 0 };

static int connect_slow(const struct edge *edge, bool local)
{
	const uint8_t *bytes = local ? frame_begin : tls_begin;
	int fd = local ? connect_unix(edge) : sockets_connect_tcp(edge->port);

	assert_true(fd >= 0);
	(void)!send(fd, bytes, 1, MSG_NOSIGNAL);
	return fd;
}

static void keep_slow_peers(struct edge *edge, bool local)
{
	allow_descriptors();
	while (edge->n_slow < SLOW)
		edge->slow[edge->n_slow++] = connect_slow(edge, local);
}

#define CASE(f) TEST_WITH(f, setup, teardown)

CASE(metad__1100_slow_peers_over_tcp_keep_nobody_out)
{
	struct edge *edge = *state;

	start(edge, NULL, NULL);
	keep_slow_peers(edge, false);
	expect(try_open(edge->uri, &edge->stores[0]), 0);
	expect(try_open("shm:s", &edge->stores[1]), 0);
}

CASE(metad__1100_slow_peers_at_the_socket_keep_nobody_out)
{
	struct edge *edge = *state;

	start(edge, NULL, NULL);
	keep_slow_peers(edge, true);
	expect(try_open("shm:s", &edge->stores[0]), 0);
	expect(try_open(edge->uri, &edge->stores[1]), 0);
}

static void fill_queue(struct edge *edge)
{
	char path[PROCESSES_PATH + 64];
	int fd;

	allow_descriptors();
	processes_path(&edge->ps, "s/metad.sock", path);
	while ((fd = sockets_connect_unix(path, SOCK_STREAM | SOCK_NONBLOCK)) >= 0) {
		assert_true(edge->n_slow < SLOW);
		edge->slow[edge->n_slow++] = fd;
	}
}

static int continue_soon(void *ctx)
{
	usleep(200 * 1000);
	return kill(*(pid_t *)ctx, SIGCONT);
}

CASE(store_open__waits_for_a_place_in_a_full_queue)
{
	struct edge *edge = *state;

	start(edge, NULL, NULL);
	processes_kill(&edge->ps, edge->metad, SIGSTOP);
	fill_queue(edge);
	(void)processes_fork(&edge->ps, continue_soon, &edge->metad);
	expect(try_open("shm:s", &edge->stores[0]), 0);
}

/* Runs in a child, whose failures do not fail the test. */
static int come_back(void *ctx)
{
	struct edge *edge = ctx;

	for (;;)
		for (uint32_t i = 0; i < SLOW; i++) {
			struct pollfd ended = { .fd = edge->slow[i], .events = POLLIN | POLLRDHUP };

			if (ended.fd >= 0 && poll(&ended, 1, 0) == 0)
				continue;
			close(ended.fd);
			edge->slow[i] = sockets_connect_tcp(edge->port);
			(void)!send(edge->slow[i], tls_begin, 1, MSG_NOSIGNAL);
		}
	return 0;
}

/* Peers reconnect as fast as they can: new ones drop no peer that is about to prove the token. */
CASE(metad__slow_peers_that_come_back_keep_nobody_out)
{
	struct rlv_store *store = NULL;
	struct edge *edge = *state;

	start(edge, NULL, NULL);
	keep_slow_peers(edge, false);
	(void)processes_fork(&edge->ps, come_back, edge);
	for (int i = 0; i < 50; i++) {
		expect(try_open(edge->uri, &store), 0);
		expect(rlv_store_close(&store), 0);
	}
}

/* A byte every now and then is no hello: false when the server has hung up. */
static bool drip(int fd, const uint8_t *bytes, size_t len, uint32_t i)
{
	uint8_t byte = i < len ? bytes[i] : 0;
	struct pollfd ended = { .fd = fd, .events = POLLIN };

	return poll(&ended, 1, 300) == 0 && send(fd, &byte, 1, MSG_NOSIGNAL) == 1;
}

static void expect_hangup_while_dripping(struct edge *edge, bool local)
{
	uint64_t limit = deadline_after(clock_monotonic(), PROCESSES_WAIT_MS * CLOCK_NS_PER_MS);
	const uint8_t *bytes = local ? frame_begin : tls_begin;
	size_t len = local ? sizeof(frame_begin) : sizeof(tls_begin);
	uint32_t i = 1;

	start(edge, NULL, NULL);
	edge->slow[edge->n_slow++] = connect_slow(edge, local);
	while (drip(edge->slow[0], bytes, len, i++))
		if (deadline_expired(clock_monotonic(), limit))
			fail_msg("the server waits after %u bytes and %d ms", i, PROCESSES_WAIT_MS);
}

CASE(metad__peer_that_drips_over_tcp_is_dropped)
{
	expect_hangup_while_dripping(*state, false);
}

CASE(metad__peer_that_drips_at_the_socket_is_dropped)
{
	expect_hangup_while_dripping(*state, true);
}

/* -------- room that is kept -------- */

/* 16 connections: clients over TCP get 14. */
CASE(metad__full_of_tcp_clients_takes_unix_clients_and_nodes)
{
	const char *const node[] = { "--size", "4M", NULL };
	struct rlv_store_info info = { .size = sizeof(info) };
	struct edge *edge = *state;
	uint32_t n = 0;
	int ret = 0;

	start(edge, "--max-conns", "16");
	while (ret == 0 && n < 15)
		ret = try_open(edge->uri, &edge->stores[n++]);
	expect(ret, -ECONNREFUSED);
	assert_int_equal(n, 15);
	assert_non_null(strstr(rlv_last_error(), "--max-conns"));
	assert_null(strstr(rlv_last_error(), "start it on its host")); /* it runs */
	expect(try_open("shm:s", &edge->stores[15]), 0);
	(void)processes_memnode(&edge->ps, "s", "a", node);
	for (n = 0; n < 500 && store_node_at(edge->stores[15], 0).state != RLV_NODE_UP; n++)
		processes_sleep_ns(10 * CLOCK_NS_PER_MS);
	expect(rlv_store_info(edge->stores[15], &info), 0);
	assert_int_equal(info.n_nodes, 1);
	assert_int_equal(store_node_at(edge->stores[15], 0).state, RLV_NODE_UP);
}

/* The kernel's list of TCP connections says which timer runs: 02 is that of keepalive. */
static bool is_kept_alive(void *ctx)
{
	const struct edge *edge = ctx;
	char line[512], ends[2][64], state[8], queues[32], timer[32];
	FILE *file = fopen("/proc/net/tcp", "re");
	bool found = false;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		unsigned int local = 0;

		if (sscanf(line, " %*s %63s %63s %7s %31s %31s", ends[0], ends[1], state, queues,
			   timer) != 5 ||
		    !strchr(ends[0], ':'))
			continue;
		local = (unsigned int)strtoul(strchr(ends[0], ':') + 1, NULL, 16);
		if (local == edge->port && strcmp(state, "01") == 0)
			found = strncmp(timer, "02:", 3) == 0;
	}
	(void)fclose(file);
	return found;
}

CASE(metad__proved_tcp_connections_are_kept_alive)
{
	struct edge *edge = *state;

	start(edge, NULL, NULL);
	expect(try_open(edge->uri, &edge->stores[0]), 0);
	assert_true(processes_until(is_kept_alive, edge));
}

/* -------- a peer that does not read -------- */

static int prove(struct edge *edge, struct channel *ch)
{
	char path[PROCESSES_PATH + 64];
	const struct dial_opts opts = {
		.socket = path,
		.token = edge->token,
		.role = "client",
		.software = "test",
		.deadline_ns = deadline_after(clock_monotonic(), 10 * CLOCK_NS_PER_S),
	};
	struct dial_peer peer;

	processes_path(&edge->ps, "s/metad.sock", path);
	return dial_open(&opts, ch, &peer);
}

static long rss_kb(pid_t pid)
{
	char path[64];
	long pages = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
	file = fopen(path, "re");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%*d %ld", &pages), 1);
	(void)fclose(file);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static bool write_frame(int fd, uint16_t type, uint32_t i)
{
	const struct frame_header head = { .type = type, .request_id = i };
	struct pollfd ready = { .fd = fd, .events = POLLOUT };
	uint8_t bytes[FRAME_HEADER_BYTES];
	size_t sent = 0;

	expect(frame_encode(&head, bytes), 0);
	while (sent < sizeof(bytes)) {
		ssize_t n = send(fd, bytes + sent, sizeof(bytes) - sent, MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN)
			n = poll(&ready, 1, PROCESSES_WAIT_MS * 3) == 1 ? 0 : -1;
		if (n < 0)
			return false;
		sent += (size_t)n;
	}
	return true;
}

/* 0: all were taken. Else which one the server did not take, and hung up instead. */
static uint32_t flood(struct edge *edge, int fd, uint16_t type, long *peak_kb)
{
	for (uint32_t i = 1; i <= REQUESTS; i++) {
		long now = i % 64 ? 0 : rss_kb(edge->metad);

		*peak_kb = now > *peak_kb ? now : *peak_kb;
		if (!write_frame(fd, type, i))
			return i;
		if (*peak_kb > 8l * RSS_GROWTH_KB)
			fail_msg("%u requests not read: the server has %ld kB", i, *peak_kb);
	}
	return 0;
}

static void expect_bounded(struct edge *edge, uint16_t type)
{
	long before = 0, peak = 0;
	struct channel ch;
	uint32_t cut;

	start(edge, NULL, NULL);
	expect(try_open("shm:s", &edge->stores[0]), 0);
	expect(prove(edge, &ch), 0);
	before = rss_kb(edge->metad);
	cut = flood(edge, ch.stream.fd, type, &peak);
	print_message("the server took %u requests, and grew from %ld to %ld kB\n", cut, before,
		      peak);
	channel_fini(&ch);
	assert_true(peak - before < RSS_GROWTH_KB);
	assert_true(cut > 0);
	expect(try_open("shm:s", &edge->stores[1]), 0); /* others are served */
}

CASE(metad__backups_that_nobody_reads_are_bounded)
{
	expect_bounded(*state, RELIVE__TYPE__TYPE_BACKUP);
}

CASE(metad__answers_that_nobody_reads_are_bounded)
{
	expect_bounded(*state, RELIVE__TYPE__TYPE_STORE_INFO);
}

/* -------- a memory node's socket -------- */

/* More peers than the node admits without a HELLO; they have five seconds for it. */
CASE(memnode__silent_peers_keep_nobody_out)
{
	const char *const args[] = { "--size", "4M", NULL };
	const struct transport_opts opts = { .client_id = 4711 };
	char uri[PROCESSES_PATH + 80] = "shm:", path[PROCESSES_PATH + 64];
	static int silent[4200];
	struct transport *tr = NULL;
	struct edge *edge = *state;
	uint32_t n = 0;

	start(edge, NULL, NULL);
	(void)processes_memnode(&edge->ps, "s", "a", args);
	processes_path(&edge->ps, "s/memnode-a.sock", path);
	allow_descriptors();
	while (n < 4200)
		silent[n++] = connect_name(path, SOCK_SEQPACKET);
	strncat(uri, path, sizeof(uri) - 5);
	expect(transport_open(uri, &opts, &tr), 0);
	transport_close(&tr);
	while (n > 0)
		close(silent[--n]);
}

/* -------- the log -------- */

static void throw_garbage(struct edge *edge, uint32_t n)
{
	static const uint8_t garbage[64] = "GET / HTTP/1.1\r\n\r\n";
	struct pollfd ended = { .events = POLLIN };
	char byte;

	for (uint32_t i = 0; i < n; i++) {
		ended.fd = connect_unix(edge);
		(void)!send(ended.fd, garbage, sizeof(garbage), MSG_NOSIGNAL);
		assert_int_equal(shutdown(ended.fd, SHUT_WR), 0);
		do
			assert_int_equal(poll(&ended, 1, PROCESSES_WAIT_MS), 1);
		while (read(ended.fd, &byte, 1) > 0);
		close(ended.fd);
	}
}

static uint32_t count_lines(const char *path, char *text, size_t room)
{
	FILE *file = fopen(path, "re");
	uint32_t lines = 0;
	size_t n;

	assert_non_null(file);
	n = fread(text, 1, room - 1, file);
	(void)fclose(file);
	text[n] = '\0';
	for (size_t i = 0; i < n; i++)
		lines += text[i] == '\n';
	return lines;
}

CASE(metad__log_of_a_thousand_refusals_is_short)
{
	char path[PROCESSES_PATH + 64];
	static char text[1 << 20];
	struct edge *edge = *state;
	uint32_t lines;

	processes_path(&edge->ps, "log", path);
	start(edge, "--log", path);
	throw_garbage(edge, 1000);
	expect(try_open("shm:s", &edge->stores[0]), 0);
	lines = count_lines(path, text, sizeof(text));
	print_message("1000 refusals make %u lines\n", lines);
	assert_true(lines < 300);
	assert_non_null(strstr(text, "more like this"));
	assert_non_null(strstr(text, "joins")); /* lines of another kind are not left out */
}

static bool has_lines(void *ctx)
{
	struct stat st;

	return stat(ctx, &st) == 0 && st.st_size > 0 && st.st_size < 65536;
}

CASE(metad__log_that_is_full_begins_anew)
{
	char path[PROCESSES_PATH + 64], former[PROCESSES_PATH + 64];
	struct edge *edge = *state;
	struct stat st;

	processes_path(&edge->ps, "log", path);
	processes_path(&edge->ps, "log.1", former);
	assert_int_equal(close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)), 0);
	assert_int_equal(truncate(path, 64 << 20), 0); /* sparse */
	start(edge, "--log", path);
	assert_true(processes_until(has_lines, path));
	assert_int_equal(stat(former, &st), 0);
	assert_int_equal(st.st_size, 64 << 20);
}

int main(void)
{
	return test_run(keep_no_freed_memory, NULL);
}
