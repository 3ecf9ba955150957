/*
 * The control plane with real daemons and clients, whose frames are spoiled on their way, in both
 * directions, inside of TLS: a client that lies to the server and a server that lies to its clients, a
 * rogue memory node and a server that lies to its nodes. Before the proof and behind it. No signal, no
 * call over its deadline, and afterwards everything works.
 *
 * RLV_FUZZ_SECONDS: of all cases together (6).
 */
#include "tests/support/attack/garbler.h"
#include "tests/support/processes.h"
#include "tests/support/fixture/store_fixture.h"
#include "tests/support/must.h"

#include "relive/relive.h"

#include "base/os/clock.h"
#include "base/rng.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define POOL "64M"
#define CASES 3
#define CLIENTS 6
#define TIMEOUT_NS (500 * CLOCK_NS_PER_MS)
#define OVERRUN_NS (10 * CLOCK_NS_PER_S) /* of a call with that timeout: it hangs */
#define CODES 200
#define ONE_IN 10

/* Results of the clients, in shared memory. */
struct tally {
	atomic_bool go;
	atomic_uint port; /* of the garbler */
	atomic_ullong calls;
	atomic_ullong codes[CODES];
	atomic_ullong longest_ns;
};

struct fixture {
	struct processes ps;
	uint16_t port;
	char token[PROCESSES_TOKEN_BYTES];
	pid_t metad, honest, rogue;
	struct garbler garbler;
	struct tally *tally;
	uint64_t seed;
	struct rlv_store *store;
};

struct client {
	struct fixture *fx;
	uint64_t seed;
	uint64_t until_ns;
	uint64_t began_ns; /* the call in progress */
	struct rng rng;
};

static const struct rlv_column columns[] = {
	{ .name = "obs", .dtype = RLV_F32, .role = RLV_OBS, .ndim = 1, .shape = { 4 } },
	{ .name = "reward", .dtype = RLV_F32, .role = RLV_REWARD },
};

static int setup(void **state)
{
	static struct fixture fx;
	const char *const node[] = { "--size", POOL, NULL };
	char listen[32];
	const char *const args[] = { "--listen", listen, "--lease", "0.5", NULL };

	memset(&fx, 0, sizeof(fx));
	fx.seed = test_seed("garbled frames", 1);
	processes_init(&fx.ps);
	fx.port = processes_free_port();
	snprintf(listen, sizeof(listen), "127.0.0.1:%u", fx.port);
	fx.metad = processes_metad(&fx.ps, "s", args);
	processes_token(&fx.ps, "s", fx.token);
	setenv("RELIVE_TOKEN", fx.token, 1);
	fx.honest = processes_memnode(&fx.ps, "s", "honest", node);
	fx.tally = mmap(NULL, sizeof(*fx.tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	assert_true(fx.tally != MAP_FAILED);
	*state = &fx;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	expect(rlv_store_close(&fx->store), 0);
	if (fx->garbler.port)
		garbler_close(&fx->garbler);
	munmap(fx->tally, sizeof(*fx->tally));
	unsetenv("RELIVE_TOKEN");
	processes_fini(&fx->ps);
	return 0;
}

/* Of one case. */
static int64_t seconds(void)
{
	const char *text = getenv("RLV_FUZZ_SECONDS");
	int64_t all = text && *text ? strtol(text, NULL, 10) : 2 * CASES;

	return all > CASES ? all / CASES : 1;
}

/* -------- a client -------- */

static int saw(struct client *client, int code)
{
	struct tally *tally = client->fx->tally;
	uint64_t took = clock_now_ns(clock_monotonic()) - client->began_ns;
	unsigned long long longest = atomic_load(&tally->longest_ns);

	while (took > longest && !atomic_compare_exchange_weak(&tally->longest_ns, &longest, took))
		;
	atomic_fetch_add(&tally->calls, 1);
	atomic_fetch_add(&tally->codes[code <= 0 && code > -CODES ? -code : CODES - 1], 1);
	return code;
}

#define CALL(client, call) ((client)->began_ns = clock_now_ns(clock_monotonic()), saw(client, call))

static int append(struct client *client, struct rlv_writer *writer)
{
	static const float obs[16][4], rewards[16];
	const void *const data[] = { obs, rewards };
	struct rlv_steps steps = RLV_STEPS_INIT;

	steps.n = 16;
	steps.columns = data;
	return CALL(client, rlv_writer_append(writer, 0, &steps, NULL));
}

static void learn(struct client *client, struct rlv_sampler *sampler)
{
	static const float td[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	const struct rlv_batch *batch = NULL;

	if (CALL(client, rlv_sampler_sample(sampler, 8, TIMEOUT_NS, &batch)))
		return;
	(void)CALL(client, rlv_sampler_update(sampler, batch->key, td, batch->n, NULL));
	rlv_batch_release(sampler, batch);
}

static void use_table(struct client *client, struct rlv_table *table)
{
	struct rlv_sampler_opts sampling = RLV_SAMPLER_OPTS_INIT;
	struct rlv_writer_opts writing = RLV_WRITER_OPTS_INIT;
	struct rlv_table_info info = { .size = sizeof(info) };
	struct rlv_sampler *sampler = NULL;
	struct rlv_writer *writer = NULL;

	writing.timeout_ns = TIMEOUT_NS;
	if (CALL(client, rlv_writer_open(table, &writing, &writer)) == 0)
		for (int i = 0; i < 4 && append(client, writer) == 0; i++)
			;
	(void)CALL(client, rlv_table_info(table, &info));
	if (CALL(client, rlv_sampler_open(table, &sampling, &sampler)) == 0)
		learn(client, sampler);
	if (sampler)
		(void)CALL(client, rlv_sampler_close(&sampler));
	if (writer)
		(void)CALL(client, rlv_writer_close(&writer));
}

static void use_store(struct client *client, struct rlv_store *store)
{
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_store_info info = { .size = sizeof(info) };
	struct rlv_table *table = NULL;
	char names[8][RLV_NAME_BYTES], name[8];
	size_t n = 8;

	snprintf(name, sizeof(name), "t%u", (uint32_t)rng_uniform_u64(&client->rng, 3));
	opts.columns = columns;
	opts.n_columns = 2;
	opts.capacity = 1024;
	(void)CALL(client, rlv_store_info(store, &info));
	(void)CALL(client, rlv_store_tables(store, names, &n));
	if (CALL(client, rlv_table_create(store, name, &opts, &table)) == 0)
		use_table(client, table);
	if (table)
		(void)CALL(client, rlv_table_close(&table));
	if (rng_uniform_u64(&client->rng, 4) == 0)
		(void)CALL(client, rlv_table_drop(store, name));
}

static int run_client(void *ctx)
{
	struct client *client = ctx;
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	char uri[64];

	while (!atomic_load(&client->fx->tally->go))
		processes_sleep_ns(CLOCK_NS_PER_MS);
	client->until_ns = deadline_after(clock_monotonic(), seconds() * CLOCK_NS_PER_S);
	rng_seed(&client->rng, client->seed, 1);
	opts.timeout_ns = TIMEOUT_NS;
	snprintf(uri, sizeof(uri), "relive://127.0.0.1:%u", atomic_load(&client->fx->tally->port));
	while (clock_now_ns(clock_monotonic()) < client->until_ns) {
		struct rlv_store *store = NULL;

		if (CALL(client, rlv_store_open(uri, &opts, &store)) == 0)
			use_store(client, store);
		if (store)
			(void)CALL(client, rlv_store_close(&store));
	}
	return 0;
}

/* -------- all of them -------- */

static void print_tally(const struct fixture *fx, const char *what)
{
	const struct tally *tally = fx->tally;

	print_message("{\"garbled\":\"%s\",\"seed\":%llu,\"connections\":%llu,\"frames\":%llu,"
		      "\"spoiled\":%llu,\"calls\":%llu,\"longest_ms\":%llu",
		      what, (unsigned long long)fx->seed, atomic_load(&fx->garbler.conns),
		      atomic_load(&fx->garbler.frames), atomic_load(&fx->garbler.spoiled),
		      atomic_load(&tally->calls),
		      atomic_load(&tally->longest_ns) / CLOCK_NS_PER_MS);
	for (int i = 0; i < CODES; i++)
		if (atomic_load(&tally->codes[i]))
			print_message(",\"%s\":%llu", i ? rlv_error_name(-i) : "0",
				      atomic_load(&tally->codes[i]));
	print_message("}\n");
}

/* All are forked before there are threads: a child has their locks as they were, for ever. */
static void run_clients(struct fixture *fx, uint32_t one_in, uint32_t spare,
			void (*start)(struct fixture *fx))
{
	struct client clients[CLIENTS];
	pid_t pids[CLIENTS];

	for (uint32_t i = 0; i < CLIENTS; i++) {
		clients[i] = (struct client){
			.fx = fx,
			.seed = fx->seed + i,
		};
		pids[i] = processes_fork(&fx->ps, run_client, &clients[i]);
	}
	garbler_open(&fx->garbler, fx->port, fx->token, fx->seed << 20);
	if (start)
		start(fx);
	atomic_store(&fx->garbler.spare, spare);
	atomic_store(&fx->garbler.one_in, one_in);
	atomic_store(&fx->tally->port, fx->garbler.port);
	atomic_store(&fx->tally->go, true);
	for (uint32_t i = 0; i < CLIENTS; i++)
		assert_int_equal(processes_wait(&fx->ps, pids[i],
						(int)seconds() * 1000 + 12 * PROCESSES_WAIT_MS),
				 0);
}

static void expect_answers(struct fixture *fx)
{
	struct tally *tally = fx->tally;

	assert_true(processes_runs(&fx->ps, fx->metad));
	assert_true(processes_runs(&fx->ps, fx->honest));
	assert_true(atomic_load(&fx->garbler.spoiled) > 0);
	assert_true(atomic_load(&tally->calls) > 0);
	assert_int_equal(atomic_load(&tally->codes[CODES - 1]), 0);
	assert_true(atomic_load(&tally->longest_ns) < TIMEOUT_NS + OVERRUN_NS);
}

static bool table_is_made(void *ctx)
{
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_table *table = NULL;
	struct fixture *fx = ctx;

	opts.columns = columns;
	opts.n_columns = 2;
	opts.capacity = 1024;
	return rlv_table_create(fx->store, "afterwards", &opts, &table) == 0 &&
	       rlv_table_close(&table) == 0;
}

/* No frame is damaged any more. Leftovers of clients go with their leases. */
static void expect_works(struct fixture *fx)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;

	atomic_store(&fx->garbler.one_in, 0);
	opts.timeout_ns = PROCESSES_WAIT_MS * CLOCK_NS_PER_MS;
	expect(rlv_store_open("shm:s", &opts, &fx->store), 0);
	if (!processes_until(table_is_made, fx))
		fail_msg("no table can be made: %s", rlv_last_error());
}

#define CASE(f) TEST_WITH(f, setup, teardown)

CASE(clients__behind_the_proof)
{
	struct fixture *fx = *state;

	run_clients(fx, ONE_IN, 2, NULL);
	print_tally(fx, "clients, behind the proof");
	expect_answers(fx);
	expect_works(fx);
}

CASE(clients__before_the_proof)
{
	struct fixture *fx = *state;

	run_clients(fx, 2, 0, NULL);
	print_tally(fx, "clients, before the proof");
	expect_answers(fx);
	expect_works(fx);
}

static void start_rogue(struct fixture *fx)
{
	char uri[64];
	const char *const args[] = { "--size", POOL, "--metad", uri, "--transport", "shm", NULL };

	snprintf(uri, sizeof(uri), "relive://127.0.0.1:%u", fx->garbler.port);
	fx->rogue = processes_memnode(&fx->ps, "s", "rogue", args);
}

/* The node gets requests for memory and grants; its frames and the server's are damaged. */
CASE(node__and_its_server)
{
	struct fixture *fx = *state;

	run_clients(fx, ONE_IN, 0, start_rogue);
	print_tally(fx, "memory node");
	expect_answers(fx);
	if (!processes_runs(&fx->ps, fx->rogue))
		assert_true(processes_wait(&fx->ps, fx->rogue, PROCESSES_WAIT_MS) < 128);
	expect_works(fx);
}

int main(void)
{
	return test_run(NULL, NULL);
}
