#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

#include "server/statedb/sql.h"
#include "server/statedb/statedb.h"

#include "base/crc32c.h"
#include "base/rng.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

static char dir[TEMP_DIR_BYTES], path[TEMP_DIR_BYTES + 16];

static int setup(void **state)
{
	struct catalog_store *store;

	temp_dir_make(dir);
	snprintf(path, sizeof(path), "%s/state.db", dir);
	assert_int_equal(statedb_open(path, &store), 0);
	*state = store;
	return 0;
}

static int teardown(void **state)
{
	static const char *const tails[] = { "", "-wal", "-shm" };
	struct catalog_store *store = *state;
	char name[sizeof(path) + 4];

	statedb_close(&store);
	for (size_t i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "%s%s", path, tails[i]);
		(void)unlink(name);
	}
	return rmdir(dir);
}

static struct catalog_store *reopen(void **state)
{
	struct catalog_store *store = *state;

	statedb_close(&store);
	assert_int_equal(statedb_open(path, &store), 0);
	*state = store;
	return store;
}

#define DESC_BYTES 2000u

/* Descriptor of object `id`: bytes that only its kind understands. */
static const uint8_t *make_desc(uint32_t id)
{
	static uint8_t descs[32][DESC_BYTES];
	uint8_t *desc = descs[id % 32];

	for (uint32_t i = 0; i < DESC_BYTES; i++)
		desc[i] = (uint8_t)(id + i % 251);
	return desc;
}

static struct store_object make_object(uint32_t id, const char *name)
{
	struct store_object object = {
		.kind = 3,
		.object = id,
		.state = STORE_OBJECT_LIVE,
		.desc = make_desc(id),
		.desc_len = DESC_BYTES,
	};

	snprintf(object.name, sizeof(object.name), "%s", name);
	return object;
}

struct seen {
	uint32_t n;
	struct store_object object;
	uint8_t desc[DESC_BYTES];
	struct store_part shard;
	struct store_node node;
	struct store_client client;
};

static int see_object(void *ctx, const void *record)
{
	const struct store_object *object = record;
	struct seen *seen = ctx;

	seen->n++;
	seen->object = *object;
	assert_int_equal(object->desc_len, DESC_BYTES);
	memcpy(seen->desc, object->desc, DESC_BYTES);
	return 0;
}

static int see_shard(void *ctx, const void *record)
{
	const struct store_part *shard = record;
	struct seen *seen = ctx;

	seen->n++;
	seen->shard = *shard;
	return 0;
}

static int see_node(void *ctx, const void *record)
{
	const struct store_node *node = record;
	struct seen *seen = ctx;

	seen->n++;
	seen->node = *node;
	return 0;
}

static int see_client(void *ctx, const void *record)
{
	const struct store_client *client = record;
	struct seen *seen = ctx;

	seen->n++;
	seen->client = *client;
	return 0;
}

#define CASE(f) TEST_WITH(f, setup, teardown)

CASE(store_open__same_uuid_and_next_term)
{
	struct store_ids first, second;

	first = ((struct catalog_store *)*state)->ids;
	second = reopen(state)->ids;
	assert_int_equal(first.term, 1);
	assert_int_equal(second.term, 2);
	assert_memory_equal(first.uuid, second.uuid, sizeof(first.uuid));
}

static void run_sql(const char *sql)
{
	sqlite3 *db;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
}

/* A later one, and an earlier one: pools of its time are refused as well. */
CASE(store_open__another_schema_gives_eproto)
{
	struct catalog_store *store = *state;

	statedb_close(&store);
	*state = NULL;
	run_sql("PRAGMA user_version = 99");
	assert_int_equal(statedb_open(path, &store), -EPROTO);
	assert_non_null(strstr(error_last(), "schema 99, this server knows 10"));
	run_sql("PRAGMA user_version = 9");
	assert_int_equal(statedb_open(path, &store), -EPROTO);
	assert_non_null(strstr(error_last(), "schema 9, this server knows 10"));
}

CASE(store_open__of_another_program_gives_eproto)
{
	struct catalog_store *store = *state;

	statedb_close(&store);
	*state = NULL;
	run_sql("PRAGMA application_id = 77;");
	assert_int_equal(statedb_open(path, &store), -EPROTO);
	assert_non_null(strstr(error_last(), "another program"));
}

/* -------- damage -------- */

#define FLIPS 200u

/* crc32c of all that a visitor is told, in its order. */
static int sum_table(void *ctx, const void *record)
{
	const struct store_object *table = record;
	uint32_t *sum = ctx,
		 words[] = { table->kind, table->state, table->control, table->auto_parts };

	*sum = crc32c(crc32c(*sum, words, sizeof(words)), table->desc, table->desc_len);
	return 0;
}

static int sum_shard(void *ctx, const void *record)
{
	const struct store_part *shard = record;
	uint64_t words[] = { shard->object,
			     shard->part,
			     shard->incarnation,
			     shard->regions[REGION_TREE],
			     shard->regions[REGION_ROWS],
			     shard->regions[REGION_SLOTS],
			     shard->regions[REGION_PAGES],
			     shard->state };
	uint32_t *sum = ctx;

	*sum = crc32c(crc32c(*sum, words, sizeof(words)), shard->node, strlen(shard->node));
	return 0;
}

static int sum_node(void *ctx, const void *record)
{
	const struct store_node *node = record;
	uint64_t words[] = { node->incarnation, node->persistent, node->draining, node->lost };
	uint32_t *sum = ctx;

	*sum = crc32c(crc32c(*sum, words, sizeof(words)), node->name, strlen(node->name));
	*sum = crc32c(*sum, node->uri, strlen(node->uri));
	return 0;
}

static int sum_client(void *ctx, const void *record)
{
	const struct store_client *client = record;
	uint64_t words[] = { client->id, client->process.pid, client->process.start_time };
	uint32_t *sum = ctx;

	*sum = crc32c(crc32c(*sum, words, sizeof(words)), client->process.boot_id, 16);
	return 0;
}

/* Reads all tables that a server reads; returns 0 or -errno. */
static int sum_all(struct catalog_store *store, uint32_t *sum_out)
{
	uint32_t sum = 0;
	uint64_t word = 0;
	struct store_ids ids;
	int ret;

	ids = store->ids;
	sum = crc32c(sum, ids.uuid, sizeof(ids.uuid));
	ret = store_each(store, STORE_OBJECTS, sum_table, &sum);
	if (ret == 0)
		ret = store_each(store, STORE_PARTS, sum_shard, &sum);
	if (ret == 0)
		ret = store_each(store, STORE_NODES, sum_node, &sum);
	if (ret == 0)
		ret = store_each(store, STORE_CLIENTS, sum_client, &sum);
	for (uint32_t s = 0; ret == 0 && s < 4; s++) {
		ret = store_lap(store, 7, s, &word);
		sum = crc32c(sum, &word, sizeof(word));
	}
	if (ret == 0)
		ret = store_number(store, "layout", &word);
	*sum_out = crc32c(sum, &word, sizeof(word));
	return ret;
}

static void fill(struct catalog_store *store)
{
	const struct store_node node = { .name = "node-a", .uri = "shm:/x", .incarnation = 5 };
	const struct store_client client = { .id = 99, .process = { .pid = 4711 } };
	const struct store_object table = make_object(7, "replay");

	assert_int_equal(store_put(store, STORE_OBJECTS, &table), 0);
	assert_int_equal(store_put(store, STORE_NODES, &node), 0);
	assert_int_equal(store_put(store, STORE_CLIENTS, &client), 0);
	for (uint32_t s = 0; s < 4; s++) {
		const struct store_part shard = { .object = 7,
						  .part = s,
						  .node = "node-a",
						  .regions = { 0, 4 * s + 1, 4 * s + 2, 4 * s + 3,
							       4 * s + 4 },
						  .state = 1,
						  .incarnation = 5 };

		assert_int_equal(store_put(store, STORE_PARTS, &shard), 0);
		assert_int_equal(store_lap_raise(store, 7, s, 65536), 0);
	}
	assert_int_equal(store_number_put(store, "layout", 12), 0);
}

static size_t read_file(uint8_t *bytes, size_t room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, bytes, room);

	close(fd);
	assert_true(n > 0 && (size_t)n < room);
	return (size_t)n;
}

static void write_file(const uint8_t *bytes, size_t n)
{
	int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);

	assert_int_equal(write(fd, bytes, n), n);
	close(fd);
}

/* Refused, or not a word of it is another one. */
CASE(store_open__with_bits_flipped_gives_an_error_or_all_of_it)
{
	static uint8_t image[1 << 18];
	struct catalog_store *store = *state;
	uint32_t want, got, refused = 0;
	struct rng rng;
	size_t n;

	fill(store);
	assert_int_equal(sum_all(store, &want), 0);
	statedb_close(&store);
	*state = NULL;
	n = read_file(image, sizeof(image));
	rng_seed(&rng, test_seed("flips of the state", 20261123), 0);
	for (uint32_t i = 0; i < FLIPS; i++) {
		size_t at = (size_t)rng_uniform_u64(&rng, n);
		uint8_t mask = (uint8_t)(1u << rng_uniform_u64(&rng, 8));
		int ret;

		image[at] ^= mask;
		write_file(image, n);
		image[at] ^= mask;
		ret = statedb_open(path, &store);
		refused += ret != 0;
		if (ret == 0 && sum_all(store, &got) == 0 && got != want)
			fail_msg("bit mask %#x at %zu goes unnoticed", mask, at);
		if (ret && ret != -EBADMSG && ret != -EPROTO && ret != -EACCES)
			fail_msg("bit mask %#x at %zu: %s", mask, at, error_last());
		statedb_close(&store);
	}
	assert_true(refused > 0);
}

/* Two servers on one state would each know half of it. */
CASE(store_open__already_open_gives_ebusy)
{
	struct catalog_store *second = NULL;

	assert_int_equal(statedb_open(path, &second), -EBUSY);
	assert_null(second);
}

CASE(store_open__no_database_gives_ebadmsg)
{
	struct catalog_store *store = *state;
	char garbage[8192];
	int fd;

	statedb_close(&store);
	*state = NULL;
	memset(garbage, 'x', sizeof(garbage));
	fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	assert_int_equal(write(fd, garbage, sizeof(garbage)), sizeof(garbage));
	close(fd);
	assert_int_equal(statedb_open(path, &store), -EBADMSG);
}

CASE(store_open__no_directory_gives_eacces)
{
	struct catalog_store *store = NULL;

	assert_int_equal(statedb_open("/tmp/rlv-no-such-dir/state.db", &store), -EACCES);
	assert_null(store);
}

CASE(store_table_put__survives)
{
	struct store_object table = make_object(7, "t");
	struct seen seen = { 0 };

	table.control = 12;
	table.auto_parts = true;
	assert_int_equal(store_put(*state, STORE_OBJECTS, &table), 0);
	assert_int_equal(store_each(reopen(state), STORE_OBJECTS, see_object, &seen), 0);
	assert_int_equal(seen.n, 1);
	assert_int_equal(seen.object.state, STORE_OBJECT_LIVE);
	assert_int_equal(seen.object.control, 12);
	assert_true(seen.object.auto_parts);
	assert_memory_equal(seen.desc, make_desc(7), DESC_BYTES);
}

CASE(store_table_put__replaces_the_state)
{
	struct store_object table = make_object(7, "t");
	struct seen seen = { 0 };

	assert_int_equal(store_put(*state, STORE_OBJECTS, &table), 0);
	table.state = STORE_OBJECT_CREATING;
	assert_int_equal(store_put(*state, STORE_OBJECTS, &table), 0);
	assert_int_equal(store_each(*state, STORE_OBJECTS, see_object, &seen), 0);
	assert_int_equal(seen.n, 1);
	assert_int_equal(seen.object.state, STORE_OBJECT_CREATING);
}

CASE(store_table_delete__takes_shards_and_leaves_laps)
{
	const struct store_part shard = { .object = 7, .part = 3, .node = "a", .regions = { 0, 1 } };
	const struct store_object table = make_object(7, "t");
	struct seen seen = { 0 };
	uint64_t first = 0;

	assert_int_equal(store_put(*state, STORE_OBJECTS, &table), 0);
	assert_int_equal(store_put(*state, STORE_PARTS, &shard), 0);
	assert_int_equal(store_lap_raise(*state, 7, 3, 99), 0);
	assert_int_equal(store_object_delete(*state, 7), 0);
	assert_int_equal(store_each(*state, STORE_OBJECTS, see_object, &seen), 0);
	assert_int_equal(store_each(*state, STORE_PARTS, see_shard, &seen), 0);
	assert_int_equal(seen.n, 0);
	assert_int_equal(store_lap(*state, 7, 3, &first), 0);
	assert_int_equal(first, 99);
}

CASE(store_shard_put__survives)
{
	const struct store_part shard = {
		.object = 255,
		.part = 1023,
		.node = "node-1",
		.incarnation = UINT64_MAX,
		.regions = { 0, 4095, 4094, 4093, 4092 },
		.state = 5,
	};
	struct seen seen = { 0 };

	assert_int_equal(store_put(*state, STORE_PARTS, &shard), 0);
	assert_int_equal(store_each(reopen(state), STORE_PARTS, see_shard, &seen), 0);
	assert_int_equal(seen.n, 1);
	assert_string_equal(seen.shard.node, "node-1");
	assert_true(seen.shard.incarnation == UINT64_MAX);
	assert_int_equal(seen.shard.state, 5);
	assert_int_equal(seen.shard.object, 255);
	assert_int_equal(seen.shard.part, 1023);
	assert_memory_equal(seen.shard.regions, shard.regions, sizeof(shard.regions));
}

CASE(store_node_put__survives)
{
	const struct store_node node = {
		.name = "a",
		.uri = "shm:/x",
		.incarnation = 1ull << 63,
		.persistent = true,
		.draining = true,
		.lost = true,
	};
	struct seen seen = { 0 };

	assert_int_equal(store_put(*state, STORE_NODES, &node), 0);
	assert_int_equal(store_put(*state, STORE_NODES, &node), 0);
	assert_int_equal(store_each(reopen(state), STORE_NODES, see_node, &seen), 0);
	assert_int_equal(seen.n, 1);
	assert_string_equal(seen.node.name, "a");
	assert_string_equal(seen.node.uri, "shm:/x");
	assert_true(seen.node.incarnation == 1ull << 63);
	assert_true(seen.node.persistent);
	assert_true(seen.node.draining);
	assert_true(seen.node.lost);
}

CASE(store_client_put__survives_until_deleted)
{
	const struct store_client client = {
		.id = INT64_MAX,
		.process = { .pid = 4711, .start_time = 17, .boot_id = { 1, 2, 3 } },
		.secret = { 4, 5, 6 },
	};
	struct seen seen = { 0 };

	assert_int_equal(store_put(*state, STORE_CLIENTS, &client), 0);
	assert_int_equal(store_each(reopen(state), STORE_CLIENTS, see_client, &seen), 0);
	assert_int_equal(seen.n, 1);
	assert_true(seen.client.id == INT64_MAX);
	assert_int_equal(seen.client.process.pid, 4711);
	assert_int_equal(seen.client.process.start_time, 17);
	assert_memory_equal(seen.client.process.boot_id, client.process.boot_id, 16);
	assert_memory_equal(seen.client.secret, client.secret, sizeof(client.secret));
	assert_int_equal(store_delete(*state, STORE_CLIENTS, &client, 1), 0);
	seen.n = 0;
	assert_int_equal(store_each(*state, STORE_CLIENTS, see_client, &seen), 0);
	assert_int_equal(seen.n, 0);
}

CASE(store_lap_raise__never_lowers)
{
	uint64_t first = 17;

	assert_int_equal(store_lap(*state, 1, 0, &first), 0);
	assert_int_equal(first, 0);
	assert_int_equal(store_lap_raise(*state, 1, 0, 100), 0);
	assert_int_equal(store_lap_raise(*state, 1, 0, 50), 0);
	assert_int_equal(store_lap(*state, 1, 0, &first), 0);
	assert_int_equal(first, 100);
}

CASE(store_number__absent_is_zero)
{
	uint64_t value = 1;

	assert_int_equal(store_number(*state, "nothing", &value), 0);
	assert_int_equal(value, 0);
	assert_int_equal(store_number_put(*state, "nothing", 5), 0);
	assert_int_equal(store_number(reopen(state), "nothing", &value), 0);
	assert_int_equal(value, 5);
}

CASE(store_rollback__nothing_holds)
{
	const struct store_object table = make_object(7, "t");
	struct seen seen = { 0 };

	assert_int_equal(store_begin(*state), 0);
	assert_int_equal(store_put(*state, STORE_OBJECTS, &table), 0);
	assert_int_equal(store_end(*state, -EIO), -EIO);
	assert_int_equal(store_each(*state, STORE_OBJECTS, see_object, &seen), 0);
	assert_int_equal(seen.n, 0);
}

CASE(store_table_put__disk_full_gives_enospc_and_nothing_holds)
{
	struct seen seen = { 0 };
	int ret = 0;
	uint32_t id = 0;

	assert_int_equal(
		statedb_sql_script(statedb_of(*state), "limit", "PRAGMA max_page_count = 24"), 0);
	while (ret == 0 && id < 255) {
		const struct store_object table = make_object(++id, "t");

		ret = store_put(*state, STORE_OBJECTS, &table);
	}
	assert_int_equal(ret, -ENOSPC);
	assert_non_null(strstr(error_last(), "full"));
	assert_int_equal(store_each(reopen(state), STORE_OBJECTS, see_object, &seen), 0);
	assert_int_equal(seen.n, id - 1);
}

static int stop_at_once(void *ctx, const void *record)
{
	const struct store_object *table = record;
	(void)table;
	(*(int *)ctx)++;
	return -EINTR;
}

CASE(store_each_table__ends_with_the_visitors_code)
{
	const struct store_object a = make_object(1, "a"), b = make_object(2, "b");
	int n = 0;

	assert_int_equal(store_put(*state, STORE_OBJECTS, &a), 0);
	assert_int_equal(store_put(*state, STORE_OBJECTS, &b), 0);
	assert_int_equal(store_each(*state, STORE_OBJECTS, stop_at_once, &n), -EINTR);
	assert_int_equal(n, 1);
}

CASE(store_backup__is_what_was_there_when_it_began)
{
	struct store_object table = make_object(7, "t"), later = make_object(8, "later");
	struct catalog_store *store = *state;
	struct seen seen = { 0 };
	uint8_t *bytes;
	size_t len;

	assert_int_equal(store_put(store, STORE_OBJECTS, &table), 0);
	assert_int_equal(statedb_backup(store, &bytes, &len), 0);
	assert_int_equal(store_put(store, STORE_OBJECTS, &later), 0);
	statedb_close(&store);
	write_file(bytes, len);
	statedb_backup_free(bytes);
	assert_int_equal(statedb_open(path, &store), 0);
	*state = store;
	assert_int_equal(store_each(store, STORE_OBJECTS, see_object, &seen), 0);
	assert_int_equal(seen.n, 1);
	assert_memory_equal(seen.desc, make_desc(7), DESC_BYTES);
}

int main(void)
{
	if (test_skips_msan("SQLite"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
