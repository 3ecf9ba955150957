/*
 * What heaps cost the metadata server: no call by a handle of clover and direct, however many there are;
 * one for each call of central. Its memory does not grow with versions, in any mode.
 */
#include "tests/support/fixture/store_fixture.h"
#include "tests/support/must.h"
#include "tests/support/processes.h"

#include "relive/kv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENTS 32u
#define CALLS 20u
#define VERSIONS 30000u

struct fixture {
	struct processes ps;
	pid_t metad;
	struct rlv_store *store;
};

static void open_store(struct fixture *fx)
{
	const char *const memory[] = { "--size", "128M", NULL };

	processes_init(&fx->ps);
	fx->metad = processes_metad(&fx->ps, "s", NULL);
	(void)processes_memnode(&fx->ps, "s", "a", memory);
	fx->store = NULL;
	must(rlv_store_open("shm:s", NULL, &fx->store), "rlv_store_open");
	store_fixture_await_node(fx->store);
}

static void close_store(struct fixture *fx)
{
	must(rlv_store_close(&fx->store), "rlv_store_close");
	processes_fini(&fx->ps);
}

static struct rlv_kv *create(const struct fixture *fx, enum rlv_kv_mode mode)
{
	const struct rlv_kv_opts opts = { .size = sizeof(opts),
					  .keys = 1000,
					  .bytes = 32 << 20,
					  .extent_bytes = mode == RLV_KV_CLOVER ? 64 << 10 : 1024,
					  .mode = mode };
	struct rlv_kv *kv = NULL;

	must(rlv_kv_create(fx->store, "h", &opts, &kv), "rlv_kv_create");
	return kv;
}

static uint64_t server_calls(struct rlv_kv *kv)
{
	struct rlv_kv_info info = RLV_KV_INFO_INIT;

	must(rlv_kv_info(kv, &info), "rlv_kv_info");
	return info.server_calls;
}

static void put_and_get(struct rlv_kv *kv, uint32_t key, uint32_t times)
{
	static const uint8_t bytes[500];
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;
	char text[16];
	struct rlv_bytes name = { text, (size_t)snprintf(text, sizeof(text), "k%u", key) };

	for (uint32_t i = 0; i < times; i++) {
		must(rlv_kv_put(kv, name, (struct rlv_bytes){ bytes, sizeof(bytes) }, NULL), "put");
		must(rlv_kv_get(kv, name, &value), "get");
	}
}

static void expect_calls(enum rlv_kv_mode mode, uint64_t calls_each)
{
	struct rlv_kv *kvs[CLIENTS] = { NULL };
	uint64_t before[CLIENTS];
	struct fixture fx;

	open_store(&fx);
	kvs[0] = create(&fx, mode);
	for (uint32_t i = 1; i < CLIENTS; i++)
		must(rlv_kv_open(fx.store, "h", &kvs[i]), "rlv_kv_open");
	for (uint32_t i = 0; i < CLIENTS; i++)
		before[i] = server_calls(kvs[i]);
	for (uint32_t i = 0; i < CLIENTS; i++)
		put_and_get(kvs[i], i % 8, CALLS);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		assert_int_equal(server_calls(kvs[i]) - before[i], calls_each);
		must(rlv_kv_close(&kvs[i]), "rlv_kv_close");
	}
	close_store(&fx);
}

TEST(clover__32_clients_do_not_call_the_server)
{
	expect_calls(RLV_KV_CLOVER, 0);
}

TEST(direct__32_clients_do_not_call_the_server)
{
	expect_calls(RLV_KV_DIRECT, 0);
}

TEST(central__each_call_is_one_of_the_server)
{
	expect_calls(RLV_KV_CENTRAL, 2 * CALLS);
}

/* Resident memory of a process, in KiB. */
static uint64_t resident_kib(pid_t pid)
{
	char path[64], line[128];
	unsigned long kib = 0;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	file = fopen(path, "r");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		if (strncmp(line, "RssAnon:", 8) == 0)
			kib = strtoul(line + 8, NULL, 10);
	(void)fclose(file);
	assert_true(kib > 0);
	return kib;
}

#if defined(__SANITIZE_ADDRESS__)
#define NOISE_KIB 4096u /* of what was freed the sanitizer keeps some, and the allocator's arenas */
#else
#define NOISE_KIB 512u
#endif

/* The server's, if it is sanitized, keeps less of what was freed. */
static void keep_little(void)
{
	const char *now = getenv("ASAN_OPTIONS");
	char text[256];

	(void)snprintf(text, sizeof(text),
		       "%s:quarantine_size_mb=1:thread_local_quarantine_size_kb=64",
		       now ? now : "");
	assert_int_equal(setenv("ASAN_OPTIONS", text, 1), 0);
}

static void expect_no_growth(enum rlv_kv_mode mode)
{
	struct rlv_kv_info info = RLV_KV_INFO_INIT;
	struct fixture fx;
	struct rlv_kv *kv;
	uint64_t before;

	keep_little();
	open_store(&fx);
	kv = create(&fx, mode);
	put_and_get(kv, 0, 1000);
	before = resident_kib(fx.metad);
	put_and_get(kv, 0, VERSIONS);
	print_message("%u versions: %d KiB more\n", VERSIONS,
		      (int)(resident_kib(fx.metad) - before));
	assert_true(resident_kib(fx.metad) <= before + NOISE_KIB);
	must(rlv_kv_info(kv, &info), "rlv_kv_info");
	assert_int_equal(info.keys, 1);
	assert_int_equal(info.mode, mode);
	assert_int_equal(info.coordinator_cpu_ns != 0, mode == RLV_KV_CENTRAL);
	must(rlv_kv_close(&kv), "rlv_kv_close");
	close_store(&fx);
}

TEST(clover__versions_take_no_memory_of_the_server)
{
	expect_no_growth(RLV_KV_CLOVER);
}

TEST(central__versions_take_no_memory_of_the_server)
{
	expect_no_growth(RLV_KV_CENTRAL);
}

int main(void)
{
	return test_run(NULL, NULL);
}
