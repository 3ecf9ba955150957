/* Provisioning of shards while nodes are slow, leave or return; rights of clients there. */
#include "tests/support/fixture/fleet.h"
#include "tests/support/must_internal.h"

#include <errno.h>
#include <string.h>

static uint32_t regions_at(struct fleet *fx, uint32_t n)
{
	struct target_stats stats;

	fx->mem[n].target->ops->stats(fx->mem[n].target, &stats);
	return stats.regions;
}

static int create(struct fleet *fx, const char *name, struct catalog_object **table_out)
{
	struct table_wish wish = fleet_wish(1, false);

	snprintf(wish.desc.name, sizeof(wish.desc.name), "%s", name);
	must(table_plan(&wish.desc, &wish.opts));
	return table_create(&fx->cat, &wish, table_out);
}

/* Runs it to its end. */
static void finish(struct fleet *fx, const char *name)
{
	int ret = create(fx, name, &fx->table);

	while (ret == -EAGAIN) {
		fleet_settle(fx);
		ret = create(fx, name, &fx->table);
	}
	must(ret);
}

#define CASE(f) TEST_WITH(f, fleet_setup, fleet_teardown)

CASE(catalog_create__does_not_wait_for_a_node_at_work)
{
	struct fleet *fx = *state;

	fleet_start(fx, 0);
	atomic_store(&fx->mem[0].hold, true);
	assert_int_equal(create(fx, "t", &fx->table), -EAGAIN);
	assert_null(catalog_find(&fx->cat, "t"));
	assert_int_equal(fx->progress, 0);
	atomic_store(&fx->mem[0].hold, false);
	finish(fx, "t");
	assert_ptr_equal(catalog_find(&fx->cat, "t"), fx->table);
	assert_true(fx->progress > 0);
	assert_null(fx->cat.provisionings);
}

/* Two clients that want it at once, or one that asks again. */
CASE(catalog_create__twice_is_one_table)
{
	struct catalog_object *first = NULL;
	struct fleet *fx = *state;

	fleet_start(fx, 0);
	assert_int_equal(create(fx, "t", &first), -EAGAIN);
	assert_int_equal(create(fx, "t", &fx->table), -EAGAIN);
	finish(fx, "t");
	first = fx->table;
	finish(fx, "t");
	assert_ptr_equal(fx->table, first);
	assert_int_equal(regions_at(fx, 0), REGION_ROLES - 1);
}

CASE(catalog_create__of_two_at_once_have_ids_of_their_own)
{
	struct catalog_object *first;
	struct fleet *fx = *state;

	fleet_start(fx, 0);
	assert_int_equal(create(fx, "a", &fx->table), -EAGAIN);
	assert_int_equal(create(fx, "b", &fx->table), -EAGAIN);
	finish(fx, "a");
	first = fx->table;
	finish(fx, "b");
	assert_int_not_equal(first->id, fx->table->id);
}

CASE(catalog_create__a_node_that_goes_at_work_is_replaced)
{
	struct fleet *fx = *state;

	fleet_start(fx, 0);
	fleet_start(fx, 1);
	atomic_store(&fx->mem[0].hold, true);
	atomic_store(&fx->mem[1].hold, true);
	assert_int_equal(create(fx, "t", &fx->table), -EAGAIN);
	assert_ptr_equal(fx->cat.provisionings->object->parts[0].node, fx->node[0]);
	fleet_go_down(fx, 0);
	atomic_store(&fx->mem[1].hold, false);
	finish(fx, "t");
	assert_ptr_equal(fx->table->parts[0].node, fx->node[1]);
	assert_int_equal(regions_at(fx, 1), REGION_ROLES - 1);
}

CASE(catalog_create__no_node_left_gives_ehostdown_and_leaves_nothing)
{
	struct fleet *fx = *state;

	fleet_start(fx, 0);
	atomic_store(&fx->mem[0].hold, true);
	assert_int_equal(create(fx, "t", &fx->table), -EAGAIN);
	fleet_go_down(fx, 0);
	assert_int_equal(create(fx, "t", &fx->table), -EHOSTDOWN);
	assert_null(fx->cat.provisionings);
	assert_null(catalog_find(&fx->cat, "t"));
}

/* The regions exist, the table does not yet; the node reconnects with all its regions. */
CASE(catalog_node_up__keeps_the_regions_of_a_making)
{
	struct fleet *fx = *state;

	fleet_start(fx, 0);
	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++) {
		assert_int_equal(create(fx, "t", &fx->table), -EAGAIN);
		fleet_settle(fx);
	}
	assert_int_equal(regions_at(fx, 0), REGION_ROLES - 1);
	fleet_go_down(fx, 0);
	fleet_join(fx, 0);
	fleet_settle(fx);
	assert_int_equal(regions_at(fx, 0), REGION_ROLES - 1);
	finish(fx, "t"); /* no region is left to be asked for */
	assert_int_equal(regions_at(fx, 0), REGION_ROLES - 1);
}

CASE(catalog_drop__frees_what_is_still_made_for_the_table)
{
	struct fleet *fx = *state;

	fleet_start(fx, 0);
	finish(fx, "t");
	atomic_store(&fx->mem[0].hold, true);
	assert_int_equal(catalog_add_part(&fx->cat, fx->table, fx->node[0], NULL), -EAGAIN);
	atomic_store(&fx->mem[0].hold, false);
	must(catalog_drop(&fx->cat, fx->table));
	fleet_settle(fx);
	assert_int_equal(regions_at(fx, 0), 0);
	assert_null(fx->cat.provisionings);
}

/* -------- rights -------- */

/* Rights that the node gives the client by the grant. */
static uint32_t rights_of(struct transport *tr, const struct region_grant *grant)
{
	struct region *region = NULL;
	uint32_t rights;

	must(transport_attach(tr, grant, &region));
	rights = region->rights;
	transport_detach(&region);
	return rights;
}

/* Of a client with slot 3: by enum region_role and part_place. */
static void expect_rights(struct fleet *fx, uint64_t client_id, enum part_access access,
			  const uint32_t rights[PART_PLACES])
{
	const struct transport_opts opts = { .clock = clock_monotonic(),
					     .timeout_ns = 10 * CLOCK_NS_PER_S,
					     .client_id = client_id };
	const struct catalog_guest guest = { client_id, client_id, access, 3 };
	struct catalog_grants grants;
	struct transport *tr = NULL;

	must(fleet_grant(fx, 0, &guest, &grants));
	must(transport_open(fx->mem[0].target->ops->uri(fx->mem[0].target), &opts, &tr));
	for (uint32_t at = REGION_TREE; at < PART_PLACES; at++) {
		if (rights[at])
			assert_int_equal(rights_of(tr, &grants.places[at]), rights[at]);
		else
			assert_int_equal(grants.places[at].bytes, 0);
	}
	transport_close(&tr);
}

CASE(catalog_grant__rights_are_those_of_the_access)
{
	const struct slot_holder holder = { .client_id = 70 };
	struct fleet *fx = *state;
	uint32_t owner = 0;
	uint32_t rights[PART_PLACES] = {
		[REGION_TREE] = RIGHT_READ, [REGION_ROWS] = RIGHT_READ, [REGION_SLOTS] = RIGHT_READ,
		[REGION_PAGES] = 0,         [PART_LIMITS] = RIGHT_ALL,  [PART_PAGE] = RIGHT_ALL
	};

	fleet_start(fx, 0);
	finish(fx, "t");
	while (owner < 3)
		must(slots_get(&fx->table->slots, &holder, 0, &owner));
	expect_rights(fx, 71, PART_READS, rights);
	rights[REGION_TREE] = RIGHT_ALL;
	expect_rights(fx, 72, PART_LEARNS, rights);
	rights[REGION_ROWS] = RIGHT_READ | RIGHT_WRITE; /* atomics are for trees */
	expect_rights(fx, 73, PART_WRITES, rights);
}

int main(void)
{
	if (test_skips_valgrind("no pidfds"))
		return TEST_EXIT_SKIP;
	if (test_skips_msan("SQLite"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
