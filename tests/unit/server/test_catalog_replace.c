/* Tables that are loaded to replace one of their name: until the commit that one is there, afterwards the new one. */
#include "tests/support/fixture/fleet.h"
#include "tests/support/must_internal.h"
#include "tests/support/toy_kind/toy_kind.h"

#include "server/statedb/statedb.h"

#include <errno.h>
#include <string.h>

#define LOADER 7u

/* -------- helpers -------- */

/* One step of the load of that number, which makes a table of so many shards beside the one that is there. */
static int load_step(struct fleet *fx, uint8_t load, uint32_t n_shards,
		     struct catalog_object **made_out)
{
	const struct table_wish details = fleet_wish(n_shards, false);
	struct catalog_wish wish = {
		.kind = &kind_table,
		.name = "t",
		.details = &details,
		.loader = LOADER,
		.beside = true,
	};

	memset(wish.uuid, load, sizeof(wish.uuid));
	return catalog_create(&fx->cat, &wish, made_out);
}

static int load(struct fleet *fx, uint8_t number, uint32_t n_shards,
		struct catalog_object **made_out)
{
	int ret = load_step(fx, number, n_shards, made_out);

	while (ret == -EAGAIN) {
		fleet_settle(fx);
		ret = load_step(fx, number, n_shards, made_out);
	}
	return ret;
}

/* A node with a table "t" of two shards. */
static void start_with_table(struct fleet *fx, bool on_file)
{
	if (on_file)
		fleet_start_on_file(fx, 0);
	else
		fleet_start(fx, 0);
	fleet_make_table(fx, 2, false);
}

static void restart_server(struct fleet *fx)
{
	memory_node_hang_up(&fx->mem[0]);
	catalog_fini(&fx->cat);
	nodes_fini(&fx->nodes);
	fleet_load(fx);
}

static uint32_t regions_at(struct fleet *fx, uint32_t n)
{
	struct target_stats stats;

	fx->mem[n].target->ops->stats(fx->mem[n].target, &stats);
	return stats.regions;
}

static uint32_t regions_of(uint32_t n_shards)
{
	return n_shards * (REGION_ROLES - REGION_TREE);
}

/* The loading word that all parts of the object have. */
static uint64_t word_of(const struct catalog_object *object)
{
	uint64_t first = 0;

	for (uint32_t s = 0; s < object->n_parts; s++) {
		uint64_t word;

		must(transport_load(object->attached[s]->slots,
				    offsetof(struct region_superblock, loading), &word));
		first = s ? first : word;
		assert_int_equal(word, first);
	}
	return first;
}

static void uuid_of(uint8_t load, uint8_t uuid[16])
{
	memset(uuid, load, 16);
}

static struct catalog_object *loaded_as(struct fleet *fx, uint8_t load)
{
	struct catalog_object *object;
	uint8_t uuid[16];

	uuid_of(load, uuid);
	return catalog_find_named(&fx->cat, &kind_table, "t", uuid, &object) == 0 ? object : NULL;
}

#define CASE(f) TEST_WITH(f, fleet_setup, fleet_teardown)

/* -------- beside -------- */

CASE(catalog_create__beside_a_table_leaves_it_there)
{
	struct fleet *fx = *state;
	struct table_wish same = fleet_wish(2, false);
	struct catalog_object *old, *made, *found;

	fx->cat.last_id = OBJECT_MAX_ID - 1; /* the new one has a smaller number than the old one */
	start_with_table(fx, false);
	old = fx->table;
	assert_int_equal(load_step(fx, 1, 1, &made), -EAGAIN);
	must(table_create(&fx->cat, &same, &found)); /* while it is being made ... */
	assert_ptr_equal(found, old);
	assert_int_equal(load(fx, 2, 1, &made), -EBUSY);
	must(load(fx, 1, 1, &made));
	assert_ptr_not_equal(made, old);
	must(table_create(&fx->cat, &same, &found)); /* ... and when it is */
	assert_ptr_equal(found, old);
	assert_ptr_equal(catalog_find(&fx->cat, "t"), old);
	assert_ptr_equal(loaded_as(fx, 1), made);
	assert_int_equal(catalog_count(&fx->cat, &kind_table), 1);
	assert_int_equal(word_of(made), REGION_MARKED);
	must(load(fx, 1, 1, &found)); /* asks again */
	assert_ptr_equal(found, made);
	assert_int_equal(load(fx, 2, 1, &found), -EBUSY);
	assert_non_null(
		strstr(error_last(), "by client 7: wait for that load, or end that client"));
	must(catalog_drop(&fx->cat, made)); /* its client has died */
	fleet_settle(fx);
	assert_ptr_equal(catalog_find(&fx->cat, "t"), old);
	assert_int_equal(regions_at(fx, 0), regions_of(2));
}

CASE(catalog_create__beside_another_kind_gives_eexist)
{
	struct fleet *fx = *state;
	struct catalog_object *toy, *made;
	int ret;

	fleet_start(fx, 0);
	while ((ret = toy_create(&fx->cat, "t", 1, &toy)) == -EAGAIN)
		fleet_settle(fx);
	must(ret);
	assert_int_equal(load(fx, 1, 1, &made), -EEXIST);
	assert_ptr_equal(catalog_find(&fx->cat, "t"), toy);
}

CASE(catalog_create__beside_a_table_that_is_being_made_gives_ebusy)
{
	struct fleet *fx = *state;
	struct table_wish wish = fleet_wish(2, false);
	struct catalog_object *made;

	fleet_start(fx, 0);
	assert_int_equal(table_create(&fx->cat, &wish, &fx->table), -EAGAIN);
	assert_int_equal(load(fx, 1, 1, &made), -EBUSY);
	assert_non_null(strstr(error_last(), "table t is being made: load it again"));
	must(fleet_create(fx, &wish, &fx->table));
	must(load(fx, 1, 1, &made));
}

CASE(catalog_create__without_room_for_both_leaves_the_first)
{
	struct fleet *fx = *state;
	struct catalog_object *made;

	fleet_start(fx, 0);
	fleet_make_table(fx, 4, false);
	assert_int_equal(load(fx, 1, 4, &made), -ENOSPC);
	assert_non_null(strstr(error_last(), "table t stays until the new one is loaded, so both "
					     "need room: drop it first, or add memory: "));
	fleet_settle(fx);
	assert_ptr_equal(catalog_find(&fx->cat, "t"), fx->table);
	assert_int_equal(regions_at(fx, 0), regions_of(4));
	must(load(fx, 1, 1, &made)); /* a smaller one has room */
}

/* -------- commit -------- */

CASE(catalog_commit__replaces_what_is_there_in_one_step)
{
	struct fleet *fx = *state;
	struct catalog_object *made, *replaced;
	uint8_t old_uuid[16], zero[16] = { 0 };
	uint64_t loader = 0;

	start_with_table(fx, false);
	memcpy(old_uuid, fx->table->uuid, sizeof(old_uuid));
	must(load(fx, 1, 1, &made));
	must(catalog_commit(&fx->cat, made, &replaced));
	assert_ptr_equal(replaced, fx->table);
	assert_ptr_equal(catalog_find(&fx->cat, "t"), made);
	assert_int_equal(catalog_count(&fx->cat, &kind_table), 1);
	assert_int_equal(word_of(made), region_replaces(old_uuid));
	must(store_loader(fx->store, made->id, &loader));
	assert_int_equal(loader, 0);
	catalog_commit_end(&fx->cat, made, replaced);
	fleet_settle(fx);
	assert_int_equal(word_of(made), 0);
	assert_int_equal(regions_at(fx, 0), regions_of(1));
	must(catalog_commit(&fx->cat, made, &replaced)); /* again */
	assert_null(replaced);
	assert_int_equal(catalog_abandon(&fx->cat, made), -EALREADY);
	/* Who had opened the earlier one by its uuid hears that it is gone. */
	assert_int_equal(catalog_find_named(&fx->cat, &kind_table, "t", old_uuid, &replaced),
			 -ESTALE);
	must(catalog_find_named(&fx->cat, &kind_table, "t", zero, &replaced));
	assert_ptr_equal(replaced, made);
}

/* The words that handles of the earlier one read. */
CASE(catalog_commit_end__tells_those_that_have_the_earlier_one_mapped)
{
	struct fleet *fx = *state;
	struct catalog_object *made, *replaced;
	struct region *slots[2] = { NULL };
	uint64_t word;

	start_with_table(fx, false);
	for (uint32_t s = 0; s < 2; s++)
		while (fx->node[0]->ops->attach(fx->node[0], &fx->table->parts[s].ids[REGION_SLOTS],
						1, &slots[s]) == -EAGAIN)
			fleet_settle(fx);
	must(load(fx, 1, 1, &made));
	must(catalog_commit(&fx->cat, made, &replaced));
	catalog_commit_end(&fx->cat, made, replaced);
	for (uint32_t s = 0; s < 2; s++) {
		must(transport_load(slots[s], offsetof(struct region_superblock, state), &word));
		assert_int_equal(word, REGION_DROPPED);
		transport_detach(&slots[s]);
	}
}

CASE(catalog_commit__after_a_drop_replaces_nothing)
{
	struct fleet *fx = *state;
	struct table_wish wish = fleet_wish(2, false);
	struct catalog_object *made, *other;

	start_with_table(fx, false);
	must(load(fx, 1, 1, &made));
	must(catalog_drop(&fx->cat, catalog_find(&fx->cat, "t")));
	assert_ptr_equal(catalog_find(&fx->cat, "t"), made);
	assert_int_equal(table_create(&fx->cat, &wish, &other),
			 -EBUSY); /* the name is the load's */
	must(catalog_commit(&fx->cat, made, &other));
	assert_null(other);
	fleet_settle(fx);
	assert_int_equal(word_of(made), 0);
	assert_int_equal(regions_at(fx, 0), regions_of(1));
}

CASE(catalog_commit__without_a_part_changes_nothing)
{
	struct fleet *fx = *state;
	struct catalog_object *made, *replaced;
	uint32_t id;

	start_with_table(fx, true);
	id = fx->table->id;
	must(load(fx, 1, 1, &made));
	restart_server(fx);
	made = loaded_as(fx, 1);
	assert_int_equal(catalog_find(&fx->cat, "t")->id, id);
	assert_int_equal(made->loader, LOADER);
	assert_int_equal(catalog_commit(&fx->cat, made, &replaced), -EHOSTDOWN);
	assert_int_equal(catalog_find(&fx->cat, "t")->id, id);
	fleet_join(fx, 0);
	fleet_tick(fx, 0);
	must(catalog_commit(&fx->cat, made, &replaced));
	assert_int_equal(replaced->id, id);
	catalog_commit_end(&fx->cat, made, replaced);
	fleet_settle(fx);
	assert_int_equal(regions_at(fx, 0), regions_of(1));
}

/* -------- the store -------- */

/* A store whose n-th call that changes something fails. */
struct frail {
	struct catalog_store base;
	struct catalog_store *real;
	uint32_t left; /* 0 = none fails */
};

static int frail_step(struct catalog_store *store)
{
	struct frail *frail = (struct frail *)store;

	return frail->left && --frail->left == 0 ? error_set(-EIO, "the disk is gone") : 0;
}

static struct catalog_store *real_of(struct catalog_store *store)
{
	return ((struct frail *)store)->real;
}

static int frail_begin(struct catalog_store *store)
{
	int ret = frail_step(store);

	return ret ? ret : store_begin(real_of(store));
}

static int frail_end(struct catalog_store *store, int code)
{
	int ret = code ? code : frail_step(store);

	return store_end(real_of(store), ret);
}

static int frail_put(struct catalog_store *store, enum store_rows rows, const void *record)
{
	int ret = frail_step(store);

	return ret ? ret : store_put(real_of(store), rows, record);
}

static int frail_remove(struct catalog_store *store, enum store_rows rows, const void *record,
			uint32_t n_keys)
{
	int ret = frail_step(store);

	return ret ? ret : store_delete(real_of(store), rows, record, n_keys);
}

static int frail_find(struct catalog_store *store, enum store_rows rows, void *record,
		      bool *found_out)
{
	return store_find(real_of(store), rows, record, found_out);
}

static int frail_each(struct catalog_store *store, enum store_rows rows,
		      int (*fn)(void *ctx, const void *record), void *ctx)
{
	return store_each(real_of(store), rows, fn, ctx);
}

static const struct store_ops frail_ops = {
	.begin = frail_begin,
	.end = frail_end,
	.put = frail_put,
	.remove = frail_remove,
	.find = frail_find,
	.each = frail_each,
};

/* The catalog as it is and as a restart finds it: the earlier table, and the load that goes on. */
static void expect_both(struct fleet *fx, uint32_t old_id)
{
	assert_int_equal(catalog_find(&fx->cat, "t")->id, old_id);
	assert_int_equal(catalog_find(&fx->cat, "t")->loader, 0);
	assert_int_equal(loaded_as(fx, 1)->loader, LOADER);
	assert_int_equal(catalog_count(&fx->cat, &kind_table), 1);
}

CASE(catalog_commit__whatever_the_store_fails_at_is_all_or_nothing)
{
	struct fleet *fx = *state;
	struct frail frail = { .base = { .ops = &frail_ops } };
	struct catalog_object *made, *replaced = NULL;
	uint32_t old_id, n = 1;
	int ret;

	start_with_table(fx, true);
	old_id = fx->table->id;
	must(load(fx, 1, 1, &made));
	frail.base.ids = fx->store->ids;
	frail.real = fx->store;
	for (;; n++) {
		fx->cat.store = &frail.base;
		frail.left = n;
		ret = catalog_commit(&fx->cat, made, &replaced);
		fx->cat.store = fx->store;
		if (ret == 0 && frail.left)
			break;
		assert_int_equal(ret, -EIO);
		expect_both(fx, old_id);
		restart_server(fx);
		expect_both(fx, old_id);
		fleet_join(fx, 0);
		fleet_tick(fx, 0);
		made = loaded_as(fx, 1);
	}
	assert_true(n > 8);
	catalog_commit_end(&fx->cat, made, replaced);
	fleet_settle(fx);
	assert_int_equal(regions_at(fx, 0), regions_of(1));
}

CASE(catalog_commit__cut_short_after_it_is_done_by_a_restart)
{
	struct fleet *fx = *state;
	struct catalog_object *made, *replaced;

	start_with_table(fx, true);
	must(load(fx, 1, 1, &made));
	must(catalog_commit(&fx->cat, made, &replaced));
	catalog_object_free(replaced); /* the server is killed here */
	restart_server(fx);
	made = loaded_as(fx, 1);
	assert_ptr_equal(catalog_find(&fx->cat, "t"), made);
	assert_int_equal(made->loader, 0);
	fleet_join(fx, 0);
	fleet_settle(fx);
	fleet_tick(fx, 0);
	assert_int_equal(regions_at(fx, 0), regions_of(1));
	assert_int_equal(catalog_count(&fx->cat, &kind_table), 1);
}

/* -------- without the catalog -------- */

/* The words of so many parts name the earlier one, and so many of its parts are marked as dropped. */
static void cut_commit(struct fleet *fx, struct catalog_object *made, uint32_t words,
		       uint32_t dropped)
{
	for (uint32_t s = 0; s < words; s++)
		must(part_set_loaded(made->attached[s], region_replaces(fx->table->uuid)));
	for (uint32_t s = 0; s < dropped; s++)
		must(part_set_state(fx->table->attached[s], REGION_DROPPED));
}

static void lose_catalog(struct fleet *fx)
{
	memory_node_hang_up(&fx->mem[0]);
	catalog_fini(&fx->cat);
	nodes_fini(&fx->nodes);
	statedb_close(&fx->store);
	must(statedb_open(":memory:", &fx->store));
	fleet_load(fx);
	memory_node_restart(&fx->mem[0]);
}

/* A load of two shards beside a table of two, up to that step; the catalog is lost. */
static void cut_and_lose(struct fleet *fx, uint32_t words, uint32_t dropped, uint8_t old_uuid[16])
{
	struct catalog_object *made;

	start_with_table(fx, true);
	memcpy(old_uuid, fx->table->uuid, 16);
	must(load(fx, 1, 2, &made));
	cut_commit(fx, made, words, dropped);
	lose_catalog(fx);
}

static void expect_adopted(struct fleet *fx, const uint8_t uuid[16])
{
	fleet_settle(fx);
	fleet_tick(fx, 0);
	assert_int_equal(catalog_count(&fx->cat, &kind_table), 1);
	assert_memory_equal(catalog_find(&fx->cat, "t")->uuid, uuid, 16);
	assert_int_equal(regions_at(fx, 0), regions_of(2));
}

CASE(catalog_take__of_a_commit_cut_short_before_all_words_adopts_the_earlier_one)
{
	const uint32_t both = RELIVE__POOL_CLAIM__POOL_ADOPT_DISCARD;
	struct fleet *fx = *state;
	uint8_t old[16];

	cut_and_lose(fx, 1, 0, old);
	assert_int_equal(fleet_claim(fx, 0, RELIVE__POOL_CLAIM__POOL_ADOPT), -EPERM);
	must(fleet_claim(fx, 0, both));
	expect_adopted(fx, old);
}

static void expect_new_one(struct fleet *fx, uint32_t dropped)
{
	uint8_t old[16], new[16];

	uuid_of(1, new);
	cut_and_lose(fx, 2, dropped, old);
	must(fleet_claim(fx, 0, RELIVE__POOL_CLAIM__POOL_ADOPT));
	expect_adopted(fx, new);
}

CASE(catalog_take__of_a_commit_cut_short_after_the_words_adopts_the_new_one)
{
	expect_new_one(*state, 0);
}

CASE(catalog_take__of_a_commit_cut_short_in_the_drop_adopts_the_new_one)
{
	expect_new_one(*state, 1);
}

int main(void)
{
	if (test_skips_valgrind("no pidfds"))
		return TEST_EXIT_SKIP;
	if (test_skips_msan("SQLite"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
