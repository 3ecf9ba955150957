/*
 * A target that claims to make pages, and sends arbitrary answers: the requester gets an error or a
 * page, never hangs, and leaks nothing.
 */
#include "tests/support/fake/fake_clock.h"
#include "tests/support/sockets.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/attach/packet.h"
#include "transport/pool/map.h"
#include "transport/transport.h"

#include "base/rng.h"

#define REGION_BYTES ((uint64_t)2 << 20)
#define LEASE_NS CLOCK_NS_PER_S

enum answer {
	RIGHT,
	NEVER,
	ANOTHER_PAGE,
	NO_PAGE,
	NO_DESCRIPTOR,
	SHORT_FILE,
	REFUSAL,
	TWICE,
	ANOTHER_TYPE,
	HANG_UP,
	NOISE,
	SAME_PAGE,   /* for ever, of the second region */
	FULL_SOCKET, /* reads nothing for a while once it answered a second region */
	WHEN_TOLD,   /* a page for each post */
};

struct liar {
	char dir[TEMP_DIR_BYTES], path[96];
	struct fake_clock clock;
	int listener, sock;
	enum answer answer;
	int regions; /* that were asked for */
	sem_t reads; /* FULL_SOCKET, WHEN_TOLD: the target may go on ... */
	sem_t rests; /* ... FULL_SOCKET: it has answered the second region, and reads nothing more */
	struct rng rng;
	pthread_t thread;
	struct transport *tr;
	struct region *region;
};

/* -------- the target -------- */

static void send_with(const struct liar *liar, struct packet *packet, enum attach_type type, int fd)
{
	packet->fd = fd;
	packet_seal(packet, type);
	(void)!packet_send(liar->sock, packet);
	map_close(fd);
}

static int file_of(uint64_t bytes)
{
	int fd = -1;

	assert_int_equal(map_memfd(1, bytes, 0, &fd), 0);
	return fd;
}

static void answer_region(const struct liar *liar)
{
	struct packet reply = { .fd = -1 };

	reply.region_reply.region = 1;
	reply.region_reply.rights = RIGHT_ALL;
	reply.region_reply.size = REGION_BYTES;
	reply.region_reply.flags = ATTACH_MAKES_PAGES | ATTACH_MAY_RENEW;
	if (liar->answer == FULL_SOCKET || (liar->answer == SAME_PAGE && liar->regions == 1))
		reply.region_reply.flags |= ATTACH_PAGES;
	send_with(liar, &reply, ATTACH_REGION_REPLY, file_of(REGION_BYTES));
}

/* No page has memory of its own, or always the same has. */
static void answer_page(const struct liar *liar)
{
	struct packet reply = { .fd = -1 };

	if (liar->answer == SAME_PAGE) {
		reply.region_reply.size = ATTACH_PAGE_BYTES;
		reply.region_reply.offset = ATTACH_PAGE_BYTES;
	}
	send_with(liar, &reply, ATTACH_REGION_REPLY,
		  liar->answer == SAME_PAGE ? file_of(ATTACH_PAGE_BYTES) : -1);
}

static void make_noise(struct liar *liar, struct packet *reply, int *fd)
{
	uint8_t *body = (uint8_t *)&reply->region_reply + sizeof(reply->head);
	size_t n = sizeof(reply->region_reply) - sizeof(reply->head) - sizeof(uint32_t);

	for (uint32_t i = 0; i < 4; i++)
		body[rng_next_u64(&liar->rng) % n] = (uint8_t)rng_next_u64(&liar->rng);
	if (rng_next_u64(&liar->rng) % 4 == 0) {
		map_close(*fd);
		*fd = -1;
	}
}

static void answer_renewal(struct liar *liar, const struct packet *ask)
{
	struct packet reply = { .fd = -1 };
	struct attach_region_reply *out = &reply.region_reply;
	enum attach_type type = ATTACH_RENEW_REPLY;
	int fd = -1;

	out->region = 1;
	out->rights = RIGHT_ALL;
	out->size = liar->answer == NO_PAGE ? 0 : ATTACH_PAGE_BYTES;
	out->offset = (uint64_t)ask->region.page * ATTACH_PAGE_BYTES;
	if (liar->answer == ANOTHER_PAGE)
		out->offset += ATTACH_PAGE_BYTES;
	if (liar->answer == REFUSAL) {
		out->status = -ENOSPC;
		(void)snprintf(out->text, sizeof(out->text), "the disk is full");
	} else if (liar->answer != NO_DESCRIPTOR) {
		fd = file_of(liar->answer == SHORT_FILE ? 512 : ATTACH_PAGE_BYTES);
	}
	if (liar->answer == NOISE)
		make_noise(liar, &reply, &fd);
	if (liar->answer == ANOTHER_TYPE)
		type = ATTACH_REGION_REPLY;
	if (liar->answer == TWICE)
		send_with(liar, &reply, type, file_of(ATTACH_PAGE_BYTES));
	send_with(liar, &reply, type, fd);
}

static void answer_one(struct liar *liar, const struct packet *ask)
{
	struct packet reply = { .fd = -1 };

	switch (ask->head.type) {
	case ATTACH_HELLO:
		send_with(liar, &reply, ATTACH_HELLO_REPLY, -1);
		return;
	case ATTACH_REGION:
		if (ask->region.page) {
			answer_page(liar);
			return;
		}
		answer_region(liar);
		if (++liar->regions == 2 && liar->answer == FULL_SOCKET) {
			(void)sem_post(&liar->rests);
			(void)sem_wait(&liar->reads);
		}
		return;
	case ATTACH_RENEW:
		if (liar->answer == WHEN_TOLD)
			(void)sem_wait(&liar->reads);
		if (liar->answer == HANG_UP)
			(void)shutdown(liar->sock, SHUT_RDWR);
		else if (liar->answer != NEVER && liar->answer != FULL_SOCKET)
			answer_renewal(liar, ask);
		return;
	default:
		return;
	}
}

static void *run(void *arg)
{
	struct liar *liar = arg;
	struct packet ask;
	int ret = 0;

	liar->sock = accept4(liar->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	while (ret == 0 || ret == -EAGAIN) {
		struct pollfd ready = { .fd = liar->sock, .events = POLLIN };

		(void)poll(&ready, 1, -1);
		ret = packet_receive(liar->sock, &ask);
		if (ret == 0)
			answer_one(liar, &ask);
		if (ret == 0)
			packet_drop_fd(&ask);
	}
	close(liar->sock);
	return NULL;
}

/* -------- the requester -------- */

static void begin(struct liar *liar, enum answer answer, uint64_t seed)
{
	struct region_grant grant = { .bytes = 16 };
	char uri[128];
	struct transport_opts opts = { .clock = &liar->clock.clock,
				       .timeout_ns = LEASE_NS,
				       .client_id = 1 };

	memset(liar, 0, sizeof(*liar));
	liar->answer = answer;
	assert_int_equal(sem_init(&liar->reads, 0, 0), 0);
	assert_int_equal(sem_init(&liar->rests, 0, 0), 0);
	rng_seed(&liar->rng, seed, 0);
	fake_clock_init(&liar->clock, 1000);
	temp_dir_make(liar->dir);
	(void)snprintf(liar->path, sizeof(liar->path), "%s/node", liar->dir);
	(void)snprintf(uri, sizeof(uri), "shm:%s", liar->path);
	liar->listener = sockets_listen_unix(liar->path, SOCK_SEQPACKET);
	assert_int_equal(pthread_create(&liar->thread, NULL, run, liar), 0);
	assert_int_equal(transport_open(uri, &opts, &liar->tr), 0);
	assert_int_equal(transport_attach(liar->tr, &grant, &liar->region), 0);
}

static void end(struct liar *liar)
{
	transport_detach(&liar->region);
	transport_close(&liar->tr);
	pthread_join(liar->thread, NULL);
	close(liar->listener);
	(void)sem_destroy(&liar->reads);
	(void)sem_destroy(&liar->rests);
	temp_dir_remove(liar->dir);
}

static int renew(const struct liar *liar, uint64_t off)
{
	int ret;

	do {
		ret = transport_renew(liar->region, off);
	} while (ret == -EAGAIN);
	return ret;
}

static void expect(enum answer answer, int code)
{
	struct liar liar;

	begin(&liar, answer, 1);
	assert_int_equal(renew(&liar, 4096), code);
	if (code)
		assert_true(error_last()[0] != '\0');
	end(&liar);
}

TEST(renew__as_it_should_be)
{
	expect(RIGHT, 0);
}

TEST(renew__with_a_wrong_answer)
{
	expect(ANOTHER_PAGE, -EPROTO);
	expect(NO_PAGE, -EPROTO);
	expect(NO_DESCRIPTOR, -EPROTO);
	expect(SHORT_FILE, -EPROTO);
	expect(HANG_UP, -ECONNRESET);
	expect(ANOTHER_TYPE, -EPROTO);
}

TEST(renew__that_is_refused_says_why)
{
	struct liar liar;

	begin(&liar, REFUSAL, 1);
	for (int i = 0; i < 2; i++) { /* and may be asked for again */
		assert_int_equal(renew(&liar, 4096), -ENOSPC);
		assert_non_null(strstr(error_last(), "the disk is full"));
	}
	assert_int_equal(liar.tr->broken, 0);
	end(&liar);
}

/* The second answer is that to the next request, or to none. */
TEST(renew__answered_twice)
{
	struct liar liar;
	int ret = 0;

	begin(&liar, TWICE, 1);
	for (uint64_t page = 1; ret == 0 && page < 4; page++)
		ret = renew(&liar, page * 4096);
	assert_int_equal(ret, -EPROTO);
	end(&liar);
}

/* No call waits: the simulated clock passes the deadline, and the connection is given up. */
TEST(renew__without_an_answer)
{
	struct liar liar;

	begin(&liar, NEVER, 1);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(transport_prepare(liar.region, 4096), -EAGAIN);
		assert_int_equal(transport_renew(liar.region, 8192), -EAGAIN);
		assert_true(transport_renewing(liar.tr));
	}
	fake_clock_advance(&liar.clock, LEASE_NS);
	assert_int_equal(transport_prepare(liar.region, 4096), -ETIMEDOUT);
	assert_int_equal(liar.tr->broken, -ETIMEDOUT);
	assert_int_equal(transport_renew(liar.region, 8192), -ECONNRESET);
	assert_false(transport_renewing(liar.tr));
	end(&liar);
}

/* A target that makes one page after the other has the time of each. */
TEST(renew__of_many_takes_the_time_of_each)
{
	struct liar liar;
	int ret;

	begin(&liar, WHEN_TOLD, 1);
	for (uint64_t page = 1; page <= 4; page++)
		assert_int_equal(transport_prepare(liar.region, page * 4096), -EAGAIN);
	for (uint64_t page = 1; page <= 4; page++) {
		fake_clock_advance(&liar.clock, LEASE_NS - 1);
		assert_int_equal(transport_prepare(liar.region, page * 4096), -EAGAIN);
		assert_int_equal(sem_post(&liar.reads), 0);
		do {
			ret = transport_prepare(liar.region, page * 4096);
		} while (ret == -EAGAIN);
		assert_int_equal(ret, 0);
	}
	end(&liar);
}

TEST(renew__of_a_region_that_is_detached_meanwhile)
{
	struct region_grant grant = { .bytes = 16 };
	struct liar liar;

	begin(&liar, RIGHT, 1);
	assert_true(transport_prepare(liar.region, 4096) <= 0);
	transport_detach(&liar.region);
	assert_int_equal(transport_attach(liar.tr, &grant, &liar.region), 0);
	assert_int_equal(renew(&liar, 4096), 0);
	assert_int_equal(renew(&liar, 4096), 0);
	end(&liar);
}

TEST(attach__where_the_same_page_comes_again)
{
	struct region_grant grant = { .bytes = 16 };
	struct region *second = NULL;
	struct liar liar;

	begin(&liar, SAME_PAGE, 1);
	assert_int_equal(transport_attach(liar.tr, &grant, &second), -EPROTO);
	assert_null(second);
	end(&liar);
}

/* The request for the pages of a region meets a full socket: it is sent once there is room again. */
TEST(attach__in_two_steps_over_a_full_socket)
{
	struct region_grant grant = { .bytes = 16 };
	struct region *second = NULL;
	struct liar liar;
	int ret = -EAGAIN;

	begin(&liar, FULL_SOCKET, 1);
	assert_int_equal(transport_attach_begin(liar.tr, &grant), 0);
	while (sem_wait(&liar.rests)) /* interrupted */
		;
	for (uint64_t off = 0; off < REGION_BYTES; off += 4096)
		assert_int_equal(transport_prepare(liar.region, off), -EAGAIN);
	assert_int_equal(transport_attach_end(liar.tr, &grant, &second), -EAGAIN);
	assert_int_equal(sem_post(&liar.reads), 0);
	for (int i = 0; ret == -EAGAIN && i < 10000; i++) {
		usleep(1000);
		ret = transport_attach_end(liar.tr, &grant, &second);
	}
	assert_int_equal(ret, 0);
	transport_detach(&second);
	end(&liar);
}

static uint32_t open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	uint32_t n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* Each answer has some of its bytes changed: a page or an error, and no descriptor stays. */
TEST(renew__with_noise_in_the_answers)
{
	uint64_t rounds = 300, errors = 0, seed = 20240920;
	uint32_t files = 0;

	for (uint64_t i = 0; i < rounds; i++) {
		struct liar liar;
		int ret = 0;

		begin(&liar, NOISE, seed + i);
		for (uint64_t page = 1; ret == 0 && page < 8; page++)
			ret = renew(&liar, page * 4096);
		errors += ret != 0;
		end(&liar);
		files = i == 0 ? open_files() : files;
		assert_int_equal(open_files(), files);
	}
	print_message("%llu of %llu ended with an error\n", (unsigned long long)errors,
		      (unsigned long long)rounds);
	assert_true(errors > 0);
}

int main(void)
{
	return test_run(NULL, NULL);
}
