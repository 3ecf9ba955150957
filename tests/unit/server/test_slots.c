#include "tests/support/fixture/shard_fixture.h"
#include "tests/support/test.h"

#include "catalog/kind_table.h"

#include "ds/replay/settle.h"
#include "ds/part/slot.h"
#include "ds/sumtree/rebuild.h"

#include <errno.h>
#include <string.h>

struct fixture {
	struct shard_fixture shard, second;
	struct part *parts[2]; /* the second one: after with_second */
	struct catalog_part places[2];
	struct catalog_object object;
	struct slots slots;
	bool proved; /* of any client, in any shard */
	uint32_t holders;
	uint64_t last_holder;
};

static int init_slots(struct fixture *fx)
{
	fx->object = (struct catalog_object){
		.kind = &kind_table,
		.max_clients = fx->shard.desc.max_clients,
		.max_streams = fx->shard.desc.max_writers,
		.parts = fx->places,
		.attached = fx->parts,
		.n_cut = fx->shard.desc.n_shards,
	};
	return slots_init(&fx->slots, &fx->object);
}

static int setup(void **state)
{
	static struct fixture fx;

	memset(&fx, 0, sizeof(fx));
	shard_fixture_open(&fx.shard, NULL);
	fx.parts[0] = &fx.shard.shard->part;
	assert_int_equal(init_slots(&fx), 0);
	fx.proved = true;
	*state = &fx;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	slots_fini(&fx->slots);
	shard_fixture_close(&fx->shard);
	if (fx->second.shard)
		shard_fixture_close(&fx->second);
	return 0;
}

static void see(void *ctx, const struct slot_holder *holder)
{
	struct fixture *fx = ctx;

	fx->holders++;
	fx->last_holder = holder->client_id;
}

/* The table has two shards. */
static void with_second(struct fixture *fx)
{
	shard_fixture_open(&fx->second, NULL);
	fx->parts[1] = &fx->second.shard->part;
	fx->slots.n_parts = 2;
}

/* The shard's node is back; the server has attached the shard. */
static void second_is_back(struct fixture *fx)
{
	fx->parts[1] = &fx->second.shard->part;
	assert_int_equal(slots_read(&fx->slots, 1, see, fx), 0);
}

static struct slot_holder holder_of(uint64_t client_id)
{
	struct slot_holder holder = { .client_id = client_id };

	assert_int_equal(process_self(&holder.process), 0);
	return holder;
}

static uint32_t get(struct fixture *fx, uint64_t client_id)
{
	const struct slot_holder holder = holder_of(client_id);
	uint32_t owner = 0;

	assert_int_equal(slots_get(&fx->slots, &holder, 0, &owner), 0);
	return owner;
}

static bool is_proved(void *ctx, uint32_t shard)
{
	(void)shard;
	return ((struct fixture *)ctx)->proved;
}

static int settle(struct fixture *fx, uint64_t client_id, bool *drift)
{
	const struct slots_dead dead = { client_id, is_proved, fx };

	return slots_settle(&fx->slots, &dead, drift);
}

static struct slot_info info_of(struct fixture *fx, uint32_t shard, uint32_t owner)
{
	struct slot_info info;

	assert_int_equal(slot_read(fx->parts[shard], owner - 1, &info), 0);
	return info;
}

static enum slot_state state_of(struct fixture *fx, uint32_t owner)
{
	return info_of(fx, 0, owner).state;
}

#define CASE(f) TEST_WITH(f, setup, teardown)

CASE(slots_get__is_live_in_the_region)
{
	struct fixture *fx = *state;
	uint32_t owner = get(fx, 77);
	struct slot_info info;

	assert_int_equal(slot_read(fx->parts[0], owner - 1, &info), 0);
	assert_int_equal(info.state, SLOT_LIVE);
	assert_true(info.lease == 77);
	assert_true(slots_any(&fx->slots, 77));
}

CASE(slots_get__all_taken_gives_enospc)
{
	struct slot_holder holder = holder_of(1);
	struct fixture *fx = *state;
	uint32_t owner = 0, before;

	for (uint32_t i = 0; i < fx->shard.desc.max_clients; i++) {
		holder.client_id = 1 + i % 2;
		holder.process.pid = 4711 + i % 2;
		assert_int_equal(slots_get(&fx->slots, &holder, 0, &owner), 0);
	}
	before = owner;
	assert_int_equal(slots_get(&fx->slots, &holder, 1, &owner), -ENOSPC);
	assert_non_null(strstr(error_last(), "all 16 (max_clients)"));
	assert_non_null(strstr(error_last(), "most, 8, by client"));
	assert_int_equal(owner, before);
}

/* Under as many leases as it likes: the last ones are for others. */
CASE(slots_get__one_process_gets_seven_eighths)
{
	struct fixture *fx = *state;
	struct slot_holder holder = holder_of(1), other = holder_of(99);
	uint32_t n = fx->shard.desc.max_clients, owner = 0, first = 0;

	other.process.pid = holder.process.pid + 1;
	for (uint32_t i = 0; i < n - n / 8; i++) {
		holder.client_id = 1 + i % 3;
		assert_int_equal(slots_get(&fx->slots, &holder, 0, &owner), 0);
		first = first ? first : owner;
	}
	assert_int_equal(slots_get(&fx->slots, &holder, 0, &owner), -ENOSPC);
	assert_non_null(strstr(error_last(), "this process holds 14 of the 16 client slots"));
	assert_int_equal(slots_get(&fx->slots, &other, 0, &owner), 0);
	assert_int_equal(slots_put(&fx->slots, 1, first), 0);
	holder.client_id = 1;
	assert_int_equal(slots_get(&fx->slots, &holder, 0, &owner), 0);
}

CASE(slots_get__an_absent_shard_gives_ehostdown)
{
	const struct slot_holder holder = holder_of(1);
	struct fixture *fx = *state;
	uint32_t owner;

	fx->parts[0] = NULL;
	assert_int_equal(slots_get(&fx->slots, &holder, 1, &owner), -EHOSTDOWN);
}

/*
 * A live client may still write the page of a slot that it returned; nobody uses that pin any more.
 */
CASE(slots_get__a_page_that_another_client_has_mapped_is_the_last)
{
	struct fixture *fx = *state;
	uint32_t first = get(fx, 77), owner = 0;

	assert_int_equal(slots_put(&fx->slots, 77, first), 0);
	assert_int_equal(get(fx, 77), first);
	assert_int_equal(slots_put(&fx->slots, 77, first), 0);
	for (uint32_t i = 1; i <= fx->shard.desc.max_clients; i++) {
		const struct slot_holder other = { .client_id = 100 + i }; /* of other hosts */

		assert_int_equal(slots_get(&fx->slots, &other, 0, &owner), 0);
		assert_int_equal(owner == first, i == fx->shard.desc.max_clients);
	}
	assert_int_equal(slots_put(&fx->slots, 101, first == 1 ? 2 : 1), 0);
	slots_forget(&fx->slots, 101);
	assert_int_equal(get(fx, 79), first == 1 ? 2 : 1);
}

CASE(slots_put__is_free_again)
{
	struct fixture *fx = *state;
	uint32_t owner = get(fx, 77);

	assert_int_equal(slots_put(&fx->slots, 77, owner), 0);
	assert_false(slots_any(&fx->slots, 77));
	assert_int_equal(slots_put(&fx->slots, 77, owner), 0);
	slots_forget(&fx->slots, 77);
	assert_int_equal(get(fx, 78), owner);
}

CASE(slots_put__anothers_gives_eacces)
{
	struct fixture *fx = *state;
	uint32_t owner = get(fx, 77);

	assert_int_equal(slots_put(&fx->slots, 78, owner), -EACCES);
	assert_true(slots_any(&fx->slots, 77));
}

CASE(slots_put__no_such_owner_gives_einval)
{
	struct fixture *fx = *state;

	assert_int_equal(slots_put(&fx->slots, 77, 0), -EINVAL);
	assert_int_equal(slots_put(&fx->slots, 77, fx->shard.desc.max_clients + 1), -EINVAL);
}

/* The client is inside a call: only a fence may take its slot. */
CASE(slots_put__not_idle_gives_ebusy)
{
	struct fixture *fx = *state;
	uint32_t owner = get(fx, 77);
	struct access acc;

	shard_fixture_access(shard_of(fx->parts[0]), owner, &acc);
	assert_int_equal(access_enter(&acc), 0);
	assert_int_equal(slots_put(&fx->slots, 77, owner), -EBUSY);
	assert_true(slots_any(&fx->slots, 77));
	assert_int_equal(access_leave(&acc), 0);
	assert_int_equal(slots_put(&fx->slots, 77, owner), 0);
	access_close(&acc);
}

CASE(slots_read__finds_who_was_there_before)
{
	struct fixture *fx = *state;
	uint32_t owner = get(fx, 77);

	slots_fini(&fx->slots);
	assert_int_equal(init_slots(fx), 0);
	assert_false(slots_any(&fx->slots, 77));
	assert_int_equal(slots_read(&fx->slots, 0, see, fx), 0);
	assert_int_equal(fx->holders, 1);
	assert_true(fx->last_holder == 77);
	assert_true(slots_any(&fx->slots, 77));
	assert_true(get(fx, 78) != owner);
}

CASE(slots_settle__an_idle_client_leaves_no_drift)
{
	struct fixture *fx = *state;
	bool drift = true;

	(void)get(fx, 77);
	(void)get(fx, 77);
	(void)get(fx, 78);
	assert_int_equal(settle(fx, 77, &drift), 0);
	assert_false(drift);
	assert_false(slots_any(&fx->slots, 77));
	assert_true(slots_any(&fx->slots, 78));
}

CASE(slots_settle__one_in_a_call_leaves_drift)
{
	struct fixture *fx = *state;
	uint32_t owner = get(fx, 77);
	struct access acc;
	bool drift = false;

	shard_fixture_access(shard_of(fx->parts[0]), owner, &acc);
	assert_int_equal(access_enter(&acc), 0);
	assert_int_equal(settle(fx, 77, &drift), 0);
	assert_true(drift);
	access_close(&acc);
}

CASE(slots_settle__an_absent_shard_is_settled_later)
{
	struct fixture *fx = *state;
	struct shard *shard = shard_of(fx->parts[0]);
	bool drift;

	(void)get(fx, 77);
	fx->parts[0] = NULL;
	assert_int_equal(settle(fx, 77, &drift), -EAGAIN);
	assert_true(slots_any(&fx->slots, 77));
	fx->parts[0] = &shard->part;
	assert_int_equal(settle(fx, 77, &drift), 0);
	assert_false(slots_any(&fx->slots, 77));
}

CASE(slots_settle__nothing_is_touched_before_the_proof)
{
	struct fixture *fx = *state;
	uint32_t owner = get(fx, 77);
	bool drift;

	fx->proved = false;
	assert_int_equal(settle(fx, 77, &drift), -EAGAIN);
	assert_int_equal(state_of(fx, owner), SLOT_LIVE);
	assert_true(slots_any(&fx->slots, 77));
	fx->proved = true;
	assert_int_equal(settle(fx, 77, &drift), 0);
	assert_int_equal(state_of(fx, owner), SLOT_FREE);
}

CASE(slots_get__streams_of_all_writers_are_counted)
{
	struct fixture *fx = *state;
	const struct slot_holder a = holder_of(77), b = holder_of(78);
	uint32_t max = fx->shard.desc.max_writers, first, owner = 4711;

	assert_int_equal(slots_get(&fx->slots, &a, max, &first), 0);
	assert_int_equal(slots_get(&fx->slots, &b, 1, &owner), -ENOSPC);
	assert_non_null(strstr(error_last(), "max_writers"));
	assert_int_equal(owner, 4711);
	assert_int_equal(slots_get(&fx->slots, &b, 0, &owner), 0); /* a sampler */
	assert_int_equal(slots_put(&fx->slots, 77, first), 0);
	assert_int_equal(slots_get(&fx->slots, &b, 1, &owner), 0);
}

CASE(slots_join__a_shard_that_was_away_learns_who_came)
{
	struct fixture *fx = *state;
	struct shard *shard = shard_of(fx->parts[0]);
	uint32_t owner;

	/* Adds a shard, as if it had existed from the start. */
	owner = get(fx, 77);
	assert_int_equal(slot_release(&shard->part, owner - 1), 0);
	assert_int_equal(slots_read(&fx->slots, 0, see, fx), 0);
	assert_int_equal(slots_join(&fx->slots, 0), 0);
	assert_int_equal(state_of(fx, owner), SLOT_LIVE);
}

CASE(slots_join__a_shard_that_was_away_learns_who_left)
{
	struct fixture *fx = *state;
	struct shard *shard = shard_of(fx->parts[0]);
	uint32_t owner = get(fx, 77);

	fx->parts[0] = NULL;
	assert_int_equal(slots_put(&fx->slots, 77, owner), 0);
	assert_false(slots_any(&fx->slots, 77));
	fx->parts[0] = &shard->part;
	assert_int_equal(slots_read(&fx->slots, 0, see, fx), 0);
	assert_int_equal(slots_join(&fx->slots, 0), 0);
	assert_int_equal(state_of(fx, owner), SLOT_FREE);
	assert_false(slots_any(&fx->slots, 77));
}

/*
 * Opens and closes a handle, as an evaluator does with a sampler, after each restart of the server.
 */
CASE(slots_put__is_free_again_while_a_shard_is_away)
{
	struct fixture *fx = *state;

	with_second(fx);
	fx->parts[1] = NULL;
	for (uint32_t i = 0; i < 3 * fx->shard.desc.max_clients; i++)
		assert_int_equal(slots_put(&fx->slots, 77, get(fx, 77)), 0);
	second_is_back(fx);
	assert_int_equal(fx->holders, 0);
	assert_int_equal(slots_join(&fx->slots, 1), 0);
	assert_int_equal(info_of(fx, 1, 1).state, SLOT_FREE);
}

/* The slot was returned there; the id belongs to another client now. */
CASE(slots_join__an_id_that_another_has_by_then)
{
	struct fixture *fx = *state;
	uint32_t owner;

	with_second(fx);
	owner = get(fx, 77);
	fx->parts[1] = NULL;
	assert_int_equal(slots_put(&fx->slots, 77, owner), 0);
	slots_forget(&fx->slots, 77);
	assert_int_equal(get(fx, 78), owner);
	second_is_back(fx);
	assert_true(info_of(fx, 1, owner).lease == 77);
	assert_int_equal(fx->holders, 0);
	assert_int_equal(slots_join(&fx->slots, 1), 0);
	assert_int_equal(info_of(fx, 1, owner).state, SLOT_LIVE);
	assert_true(info_of(fx, 1, owner).lease == 78);
}

/* The client leaves no trace, so that it is not watched for ever. */
CASE(slots_settle__who_came_while_a_shard_was_away)
{
	struct fixture *fx = *state;
	bool drift;

	with_second(fx);
	fx->parts[1] = NULL;
	(void)get(fx, 77);
	assert_int_equal(settle(fx, 77, &drift), 0);
	assert_false(slots_any(&fx->slots, 77));
}

/*
 * The id of a dead client is reused at once; the shard waits until the dead client is settled
 * there.
 */
CASE(slots_settle__an_id_that_a_shard_still_has)
{
	struct fixture *fx = *state;
	uint32_t owner;
	bool drift;

	with_second(fx);
	owner = get(fx, 77);
	fx->parts[1] = NULL;
	assert_int_equal(settle(fx, 77, &drift), -EAGAIN);
	assert_int_equal(get(fx, 78), owner);
	assert_true(slots_any(&fx->slots, 77));
	second_is_back(fx);
	fx->proved = false;
	assert_int_equal(settle(fx, 77, &drift), -EAGAIN);
	assert_int_equal(slots_join(&fx->slots, 1), -EAGAIN);
	assert_true(info_of(fx, 1, owner).lease == 77);
	fx->proved = true;
	assert_int_equal(settle(fx, 77, &drift), 0);
	assert_int_equal(slots_join(&fx->slots, 1), 0);
	assert_true(info_of(fx, 1, owner).lease == 78);
	assert_int_equal(info_of(fx, 0, owner).state, SLOT_LIVE);
	assert_true(info_of(fx, 0, owner).lease == 78);
}

/* A restarted server repairs the shard; the slot's first holder is still alive. */
CASE(slots_put__of_before_a_restart_with_a_shard_away)
{
	struct fixture *fx = *state;
	uint32_t owner;

	with_second(fx);
	owner = get(fx, 77);
	slots_fini(&fx->slots);
	fx->parts[1] = NULL;
	assert_int_equal(init_slots(fx), 0);
	fx->slots.n_parts = 2;
	assert_int_equal(slots_read(&fx->slots, 0, see, fx), 0);
	assert_int_equal(slots_join(&fx->slots, 0), 0);
	assert_int_equal(slots_put(&fx->slots, 77, owner), 0);
	slots_forget(&fx->slots, 77);
	assert_int_equal(get(fx, 78), owner);
	second_is_back(fx);
	assert_int_equal(slots_join(&fx->slots, 1), 0);
	assert_true(info_of(fx, 1, owner).lease == 78);
}

/* The server has begun anew, and the node has not come yet: when it does, nobody has the slot. */
CASE(slots_put__before_its_shard_is_there)
{
	struct fixture *fx = *state;
	struct shard *shard = shard_of(fx->parts[0]);
	uint32_t owner = get(fx, 77);

	slots_fini(&fx->slots);
	fx->parts[0] = NULL;
	assert_int_equal(init_slots(fx), 0);
	assert_int_equal(slots_put(&fx->slots, 77, owner), 0);
	assert_int_equal(slots_put(&fx->slots, 77, owner), 0);
	fx->parts[0] = &shard->part;
	assert_int_equal(slots_read(&fx->slots, 0, see, fx), 0);
	assert_int_equal(fx->holders, 0);
	assert_int_equal(slots_join(&fx->slots, 0), 0);
	assert_int_equal(state_of(fx, owner), SLOT_FREE);
	assert_false(slots_any(&fx->slots, 77));
}

/* An orphan's slot in a shard is not the one that the holder of the same id gives back. */
CASE(slots_put__leaves_an_orphan_of_the_same_id_alone)
{
	struct fixture *fx = *state;
	uint32_t owner = get(fx, 77);

	fx->slots.entries[owner - 1].holder.client_id = 78;
	assert_int_equal(slots_read(&fx->slots, 0, see, fx), 0);
	assert_int_equal(slots_put(&fx->slots, 78, owner), 0);
	assert_int_equal(state_of(fx, owner), SLOT_LIVE);
	assert_true(slots_any(&fx->slots, 77));
}

/* The client's connection ended before its block was full, and then it closed its handles. */
CASE(slots_join__what_who_left_had_open_is_closed)
{
	struct fixture *fx = *state;
	struct shard *shard = shard_of(fx->parts[0]);
	uint32_t owner = get(fx, 77), closed = 0;
	struct ring_counters counters = { 0 };
	struct access acc;
	struct block blk;
	bool drift = false;

	shard_fixture_access(shard, owner, &acc);
	assert_int_equal(ring_claim(&acc, &blk, &counters), 0);
	assert_int_equal(access_enter(&acc), 0);
	fx->parts[0] = NULL;
	assert_int_equal(slots_put(&fx->slots, 77, owner), 0);
	fx->parts[0] = &shard->part;
	assert_int_equal(slots_join(&fx->slots, 0), 0);
	assert_int_equal(state_of(fx, owner), SLOT_FREE);
	assert_int_equal(part_rebuild_needed(&shard->part, &drift), 0);
	assert_true(drift);
	assert_int_equal(shard_close_blocks(shard, owner, &closed), 0);
	assert_int_equal(closed, 0);
	access_close(&acc);
}

CASE(slots_put__closes_what_is_open)
{
	struct fixture *fx = *state;
	uint32_t owner = get(fx, 77), closed = 0;
	struct ring_counters counters = { 0 };
	struct access acc;
	struct block blk;

	shard_fixture_access(shard_of(fx->parts[0]), owner, &acc);
	assert_int_equal(ring_claim(&acc, &blk, &counters), 0);
	assert_int_equal(slots_put(&fx->slots, 77, owner), 0);
	assert_int_equal(shard_close_blocks(shard_of(fx->parts[0]), owner, &closed), 0);
	assert_int_equal(closed, 0);
	access_close(&acc);
}

/* The book was lost and the id given to another before the shard came. */
CASE(slots_join__waits_for_a_stray_to_be_settled)
{
	struct fixture *fx = *state;
	uint32_t owner = get(fx, 77);
	bool drift;

	fx->slots.entries[owner - 1].holder.client_id = 78;
	assert_int_equal(slots_read(&fx->slots, 0, see, fx), 0);
	assert_true(fx->last_holder == 77);
	assert_int_equal(slots_join(&fx->slots, 0), -EAGAIN);
	assert_true(slots_any(&fx->slots, 77));
	assert_int_equal(settle(fx, 77, &drift), 0);
	assert_false(slots_any(&fx->slots, 77));
	assert_int_equal(slots_join(&fx->slots, 0), 0);
	assert_int_equal(state_of(fx, owner), SLOT_LIVE);
	assert_true(slots_any(&fx->slots, 78));
}

/* The shard has the orphan's slot: settling the other must not touch it. */
CASE(slots_settle__leaves_an_orphan_of_the_same_id_alone)
{
	struct fixture *fx = *state;
	uint32_t owner = get(fx, 77);
	bool drift;

	fx->slots.entries[owner - 1].holder.client_id = 78;
	assert_int_equal(slots_read(&fx->slots, 0, see, fx), 0);
	assert_int_equal(settle(fx, 78, &drift), 0);
	assert_int_equal(state_of(fx, owner), SLOT_LIVE);
	assert_true(slots_any(&fx->slots, 77));
}

CASE(slots_settle__a_lost_shard_needs_nothing)
{
	struct fixture *fx = *state;
	bool drift;

	(void)get(fx, 77);
	fx->parts[0] = NULL;
	fx->places[0].state = PART_LOST;
	assert_int_equal(settle(fx, 77, &drift), 0);
	assert_false(slots_any(&fx->slots, 77));
}

int main(void)
{
	return test_run(NULL, NULL);
}
