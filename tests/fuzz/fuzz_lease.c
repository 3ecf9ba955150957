/*
 * fuzz_lease.c - messages of a job to the broker of a pool, and what it does with them. Each message
 * of the input is its type (4 bits), its job (1 bit), whether the page of permits has the first bytes of the body
 * (1 bit; 2 are free), a time that passes (8 bits), a length (16 bits), and a
 * body, to which the head is added. Type 0 is a broker's list of jobs, of which a client may read what it counts.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/host/backend_host.h"
#include "server/poold/broker.h"
#include "tests/support/sealed_page.h"
#include "wire/lease_message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define EXTENT ((uint64_t)4096)
#define EXTENTS 8u
#define JOBS 2u

static struct backend *device;
static uint64_t now;
static int pages[2];
static void *permit;

static uint64_t fuzz_now(void *ctx)
{
	(void)ctx;
	return now;
}

static const struct clock fuzz_clock = { fuzz_now, NULL };

static void fuzz_wake(void *ctx, uint32_t job)
{
	(void)ctx;
	if (job >= LEDGER_JOBS)
		abort();
}

static void start(void)
{
	const struct backend_host_opts host = { .device_bytes = 2 * EXTENTS * EXTENT };

	sealed_pages(pages);
	permit = mmap(NULL, sizeof(struct lease_permit), PROT_WRITE, MAP_SHARED, pages[1], 0);
	if (permit == MAP_FAILED || backend_host_open(&host, &device))
		abort();
}

static struct broker *open_broker(void)
{
	const struct broker_opts opts = { .backend = device,
					  .clock = &fuzz_clock,
					  .bytes = EXTENTS * EXTENT,
					  .extent_bytes = EXTENT,
					  .sharing = GATE_CURVES,
					  .aging = 1,
					  .iteration_ns = 1000,
					  .wake = fuzz_wake };
	struct broker *broker;

	if (broker_open(&opts, &broker))
		abort();
	return broker;
}

/* A job of process `at` says hello. */
static uint32_t hello(struct broker *broker, const struct lease_message *message, uint32_t at)
{
	const struct broker_peer peer = { .process = { .pid = at + 1 } };
	uint32_t job;

	return broker_hello(broker, &peer, &message->hello, pages, &job) ? LEDGER_NOBODY : job;
}

static void handle(struct broker *broker, struct lease_message *in, uint32_t *jobs, uint32_t at)
{
	struct lease_message out = { .n_fds = 0 };
	uint32_t job = jobs[at];
	int ret = 0;

	if (in->head.type == LEASE_HELLO)
		jobs[at] = job == LEDGER_NOBODY || in->hello.incarnation ? hello(broker, in, at)
									 : job;
	else if (in->head.type == LEASE_LIMIT)
		ret = broker_limit(broker, &in->limit);
	else if (in->head.type == LEASE_DRAIN)
		broker_drain(broker, in->drain.on);
	else if (job == LEDGER_NOBODY)
		return;
	else if (in->head.type == LEASE_HOLD)
		ret = broker_hold(broker, job, in);
	else if (in->head.type == LEASE_TAKE)
		ret = broker_take(broker, job, in->take.n, &out);
	else if (in->head.type == LEASE_GIVE)
		ret = broker_give(broker, job, &in->refs);
	else if (in->head.type == LEASE_EXPOSE)
		ret = broker_expose(broker, job, &in->refs);
	else if (in->head.type == LEASE_BEGIN)
		ret = broker_begin(broker, job);
	else if (in->head.type == LEASE_END)
		ret = broker_end(broker, job, in->end.remaining_ns);
	else if (in->head.type == LEASE_PROFILE)
		ret = broker_profile(broker, job, &in->profile);
	else if (in->head.type == LEASE_PARK)
		ret = broker_park(broker, job);
	else if (in->head.type == LEASE_RESUME)
		ret = broker_resume(broker, job);
	else if (in->head.type == LEASE_CANCEL)
		broker_cancel(broker, job);
	else if (in->head.type == LEASE_BYE) {
		broker_bye(broker, job, &in->refs);
		broker_died(broker, job); /* marks of noise may never be reached */
		jobs[at] = LEDGER_NOBODY;
	}
	if (ret > 0)
		abort();
	lease_close_fds(&out);
}

static void read_jobs(const struct lease_jobs_answer *answer)
{
	if (answer->total > LEASE_JOBS_MOST || answer->first + answer->n > answer->total ||
	    (answer->n == 0 && answer->first < answer->total))
		abort();
	for (uint32_t i = 0; i < answer->n; i++) {
		if (strlen(answer->jobs[i].name) >= LEASE_NAME_BYTES)
			abort();
	}
}

static void one(struct broker *broker, uint32_t *jobs, uint16_t word, const uint8_t *bytes,
		size_t n)
{
	static const size_t sizes[] = { 2272, 136, 1560, 24, 1560, 16, 24, 2072,
					16,   16,  1560, 24, 104,  24, 16, 16 };
	struct lease_message message = { .n_fds = 0 };
	uint16_t type = word & 15;
	size_t room = sizes[type] > sizeof(message.head) ? sizes[type] - sizeof(message.head) : 0;

	memcpy(message.bytes + sizeof(message.head), bytes, n < room ? n : room);
	if (type == 0)
		type = LEASE_JOBS_ANSWER;
	else if (type > LEASE_DRAIN) /* as answers are not for a broker */
		type = (uint16_t)(type == LEASE_DRAIN + 1 ? LEASE_PARK : LEASE_RESUME);
	else if (type == LEASE_GIVE && word & 64)
		type = LEASE_EXPOSE;
	lease_seal(&message, (enum lease_type)type);
	message.n_fds = type == LEASE_HELLO ? 3 : type == LEASE_HOLD ? message.refs.n : 0;
	if (message.n_fds > LEASE_REFS || lease_check(&message, message.head.bytes))
		return;
	if (type == LEASE_JOBS_ANSWER) {
		read_jobs(&message.jobs);
		return;
	}
	for (size_t i = 0; i < message.n_fds; i++)
		message.fds[i] = pages[0];
	if (word & 32 && n >= sizeof(struct lease_permit))
		memcpy(permit, bytes, sizeof(struct lease_permit));
	handle(broker, &message, jobs, word >> 4 & (JOBS - 1));
	now += word >> 8;
	(void)broker_turn(broker);
	if (broker_check(broker))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint32_t jobs[JOBS] = { LEDGER_NOBODY, LEDGER_NOBODY };
	struct lease_message raw = { .n_fds = 0 };
	struct broker *broker;

	if (!device)
		start();
	memcpy(raw.bytes, data, size < LEASE_BYTES_MAX ? size : LEASE_BYTES_MAX);
	(void)!lease_check(&raw, size < LEASE_BYTES_MAX ? size : LEASE_BYTES_MAX);
	broker = open_broker();
	while (size >= 4) {
		uint16_t word = (uint16_t)(data[0] | data[1] << 8);
		size_t n = (size_t)(data[2] | data[3] << 8);

		data += 4;
		size -= 4;
		n = n < size ? n : size;
		one(broker, jobs, word, data, n);
		data += n;
		size -= n;
	}
	broker_close(&broker);
	return 0;
}
