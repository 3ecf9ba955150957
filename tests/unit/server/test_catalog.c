/*
 * The catalog over a state database and a node that is down: checks, loading, and forgetting. With
 * live nodes it is tested by real daemons (tests/integration).
 */
#include "tests/support/fake/fake_clock.h"
#include "tests/support/test.h"

#include "catalog/kind_table.h"

#include "server/node/nodes.h"
#include "server/statedb/statedb.h"

#include <errno.h>
#include <string.h>

struct fixture {
	struct fake_clock clock;
	struct catalog_store *store;
	struct nodes nodes;
	struct catalog cat;
};

static void on_holder(void *ctx, const struct slot_holder *holder)
{
	(void)ctx;
	(void)holder;
}

static bool all_know(void *ctx, uint64_t layout)
{
	(void)ctx;
	(void)layout;
	return true;
}

static void on_progress(void *ctx)
{
	(void)ctx;
}

static const struct catalog_ops ops = { on_holder, all_know, on_progress };

static void load(struct fixture *fx)
{
	const struct store_node node = { .name = "a", .uri = "shm:/nowhere", .incarnation = 1 };

	assert_int_equal(store_put(fx->store, STORE_NODES, &node), 0);
	fx->nodes = (struct nodes){ .store = fx->store, .clock = &fx->clock.clock };
	fx->cat = (struct catalog){
		.kind_of = object_kind_find,
		.store = fx->store,
		.nodes = &fx->nodes.first,
		.clock = &fx->clock.clock,
		.ops = &ops,
	};
	assert_int_equal(nodes_load(&fx->nodes), 0);
	assert_int_equal(catalog_load(&fx->cat), 0);
}

static void unload(struct fixture *fx)
{
	catalog_fini(&fx->cat);
	nodes_fini(&fx->nodes);
}

static int setup(void **state)
{
	static struct fixture fx;

	memset(&fx, 0, sizeof(fx));
	fake_clock_init(&fx.clock, 1000);
	assert_int_equal(statedb_open(":memory:", &fx.store), 0);
	load(&fx);
	*state = &fx;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	unload(fx);
	statedb_close(&fx->store);
	return 0;
}

static struct table_desc plan_with(const char *name, uint32_t table_id, uint64_t capacity,
				   const struct table_plan_opts *opts)
{
	struct table_desc desc = {
		.table_id = table_id,
		.capacity = capacity,
		.n_shards = 2,
		.n_columns = 1,
		.n_views = 1,
		.max_writers = 2,
		.max_clients = 4,
		.columns = { { .name = "x", .dtype = DTYPE_F32, .bytes = 4 } },
		.views = { { .stack = 1, .n_step = 1, .period = 1, .alpha = 0.6 } },
	};

	desc.views[0].limit = (struct limit_desc){ .min_size = 1,
						   .spi = 1 << LIMIT_SPI_BITS,
						   .min_diff = INT64_MIN,
						   .max_diff = INT64_MAX };
	snprintf(desc.name, sizeof(desc.name), "%s", name);
	if (table_plan(&desc, opts))
		fail_msg("%s", error_last());
	return desc;
}

static struct table_desc plan(const char *name, uint32_t table_id)
{
	const struct table_plan_opts opts = { .block = 0 };

	return plan_with(name, table_id, 4096, &opts);
}

static void put_planned(struct fixture *fx, const struct table_desc *desc, uint32_t state)
{
	struct table_desc sealed = *desc;
	uint32_t id = desc->table_id;
	struct store_object table = {
		.kind = OBJECT_TABLE,
		.object = id,
		.state = state,
		.desc = &sealed,
		.desc_len = sizeof(sealed),
	};
	struct store_part shard = {
		.kind = OBJECT_TABLE,
		.object = id,
		.node = "a",
		.incarnation = 1,
		.regions = { 0, 1, 2, 3, 4 },
		.state = PART_ACTIVE,
	};

	memset(sealed.uuid, (int)id, sizeof(sealed.uuid));
	table_desc_seal(&sealed, 0);
	assert_int_equal(store_put(fx->store, STORE_OBJECTS, &table), 0);
	for (shard.part = 0; shard.part < 2; shard.part++)
		assert_int_equal(store_put(fx->store, STORE_PARTS, &shard), 0);
}

static void put_table(struct fixture *fx, const char *name, uint32_t id, uint32_t state)
{
	const struct table_desc desc = plan(name, id);

	put_planned(fx, &desc, state);
}

static int create(struct fixture *fx, const struct table_desc *desc, struct catalog_object **out)
{
	const struct table_wish wish = { .desc = *desc };

	return table_create(&fx->cat, &wish, out);
}

static int count(void *ctx, const void *record)
{
	const struct store_object *table = record;
	(void)table;
	(*(uint32_t *)ctx)++;
	return 0;
}

static uint32_t stored_tables(struct fixture *fx)
{
	uint32_t n = 0;

	assert_int_equal(store_each(fx->store, STORE_OBJECTS, count, &n), 0);
	return n;
}

#define CASE(f) TEST_WITH(f, setup, teardown)

CASE(catalog_create__no_node_gives_ehostdown_and_leaves_nothing)
{
	const struct table_desc desc = plan("t", 0);
	struct catalog_object *table = NULL;
	struct fixture *fx = *state;

	assert_int_equal(create(fx, &desc, &table), -EHOSTDOWN);
	assert_non_null(strstr(error_last(), "no memory node is up"));
	assert_null(table);
	assert_null(catalog_find(&fx->cat, "t"));
	assert_int_equal(stored_tables(fx), 0);
}

CASE(catalog_create__changed_descriptor_is_refused)
{
	struct table_desc desc = plan("t", 0);
	struct catalog_object *table = NULL;
	struct fixture *fx = *state;

	desc.capacity++;
	assert_int_equal(create(fx, &desc, &table), -EBADMSG);
	desc.capacity--;
	desc.headers_off += 64;
	table_desc_seal(&desc, 0);
	assert_int_equal(create(fx, &desc, &table), -EPROTO);
	assert_int_equal(stored_tables(fx), 0);
}

/* Laps that a failed creation set aside are never given out again. */
CASE(catalog_create__laps_only_rise)
{
	const struct table_desc desc = plan("t", 0);
	struct catalog_object *table = NULL;
	struct fixture *fx = *state;
	uint64_t first = 0;

	assert_int_equal(create(fx, &desc, &table), -EHOSTDOWN);
	assert_int_equal(store_lap(fx->store, fx->cat.last_id, 0, &first), 0);
	assert_true(first > 0);
}

CASE(catalog_load__live_tables_are_there)
{
	struct fixture *fx = *state;
	struct catalog_object *table;

	put_table(fx, "t", 9, STORE_OBJECT_LIVE);
	unload(fx);
	load(fx);
	table = catalog_find(&fx->cat, "t");
	assert_non_null(table);
	assert_int_equal(table->id, 9);
	assert_int_equal(catalog_count(&fx->cat, &kind_table), 1);
	assert_ptr_equal(catalog_find_same(&fx->cat, 9, table->uuid, 16), table);
	assert_null(catalog_find_same(&fx->cat, 9, (const uint8_t[16]){ 0 }, 16));
	assert_null(catalog_find_same(&fx->cat, 9, table->uuid, 15));
	assert_null(catalog_find_same(&fx->cat, 8, table->uuid, 16));
	assert_null(catalog_find_same(&fx->cat, 4711, table->uuid, 16));
}

CASE(catalog_load__half_made_is_forgotten)
{
	struct fixture *fx = *state;

	put_table(fx, "made", 1, STORE_OBJECT_CREATING);
	put_table(fx, "live", 3, STORE_OBJECT_LIVE);
	unload(fx);
	load(fx);
	assert_null(catalog_find(&fx->cat, "made"));
	assert_non_null(catalog_find(&fx->cat, "live"));
	assert_int_equal(stored_tables(fx), 1);
}

CASE(catalog_load__damaged_descriptor_gives_ebadmsg)
{
	struct table_desc desc = plan("t", 1);
	const struct store_object table = {
		.kind = OBJECT_TABLE,
		.object = 1,
		.state = STORE_OBJECT_LIVE,
		.desc = &desc,
		.desc_len = sizeof(desc),
	};
	struct fixture *fx = *state;

	desc.crc ^= 1;
	assert_int_equal(store_put(fx->store, STORE_OBJECTS, &table), 0);
	unload(fx);
	fx->nodes = (struct nodes){ .store = fx->store, .clock = &fx->clock.clock };
	fx->cat = (struct catalog){ .store = fx->store,
				    .kind_of = object_kind_find,
				    .nodes = &fx->nodes.first,
				    .clock = &fx->clock.clock };
	assert_int_equal(catalog_load(&fx->cat), -EBADMSG);
}

CASE(catalog_create__same_signature_finds_the_table)
{
	const struct table_desc desc = plan("t", 0);
	struct catalog_object *table = NULL;
	struct fixture *fx = *state;

	put_table(fx, "t", 9, STORE_OBJECT_LIVE);
	unload(fx);
	load(fx);
	assert_int_equal(create(fx, &desc, &table), 0);
	assert_int_equal(table->id, 9);
}

/* The table was planned for a wire; later clients plan as always. */
CASE(catalog_create__same_signature_of_a_remote_plan_finds_the_table)
{
	const struct table_plan_opts remote = { .remote = true };
	const struct table_plan_opts local = { .remote = false };
	const uint64_t capacity = 1 << 20;
	const struct table_desc made = plan_with("t", 9, capacity, &remote),
				desc = plan_with("t", 0, capacity, &local);
	struct catalog_object *table = NULL;
	struct fixture *fx = *state;

	assert_int_not_equal(made.tree.fanout[0], desc.tree.fanout[0]);
	put_planned(fx, &made, STORE_OBJECT_LIVE);
	unload(fx);
	load(fx);
	assert_int_equal(create(fx, &desc, &table), 0);
	assert_int_equal(table_state_of(table)->desc.tree.fanout[0], made.tree.fanout[0]);
}

CASE(catalog_create__another_signature_gives_eexist)
{
	struct catalog_object *table = NULL;
	struct fixture *fx = *state;
	struct table_desc desc;

	put_table(fx, "t", 9, STORE_OBJECT_LIVE);
	unload(fx);
	load(fx);
	desc = plan("t", 0);
	desc.views[0].alpha = 0.7;
	table_desc_seal(&desc, 0);
	assert_int_equal(create(fx, &desc, &table), -EEXIST);
}

CASE(catalog_grant__node_down_gives_ehostdown)
{
	const struct catalog_guest guest = { .asker = 1, .client_id = 1 };
	struct catalog_grants grants;
	struct fixture *fx = *state;

	put_table(fx, "t", 9, STORE_OBJECT_LIVE);
	unload(fx);
	load(fx);
	assert_int_equal(catalog_grant(catalog_find(&fx->cat, "t"), 0, &guest, &grants),
			 -EHOSTDOWN);
	assert_non_null(strstr(error_last(), "node a is down"));
}

CASE(catalog_drop__forgets_also_when_the_node_is_down)
{
	struct fixture *fx = *state;

	put_table(fx, "t", 9, STORE_OBJECT_LIVE);
	unload(fx);
	load(fx);
	assert_int_equal(catalog_drop(&fx->cat, catalog_find(&fx->cat, "t")), 0);
	assert_null(catalog_find(&fx->cat, "t"));
	assert_int_equal(stored_tables(fx), 0);
}

CASE(nodes_admit__checks_name_and_address)
{
	struct node_news news = { .name = "b", .uri = "shm:/x", .incarnation = 1 };
	struct fixture *fx = *state;

	assert_int_equal(nodes_admit(&fx->nodes, &news), 0);
	news.name = "../b";
	assert_int_equal(nodes_admit(&fx->nodes, &news), -EINVAL);
	news.name = "b";
	news.uri = "embed:";
	assert_int_equal(nodes_admit(&fx->nodes, &news), -EINVAL);
	news.uri = "shm:/x";
	news.incarnation = 0;
	assert_int_equal(nodes_admit(&fx->nodes, &news), -EINVAL);
}

int main(void)
{
	if (test_skips_msan("SQLite"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
