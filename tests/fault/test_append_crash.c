/*
 * A crash at every step. The victim claims, writes, publishes, updates or settles on shared memory,
 * one machine instruction at a time; at each state of the memory a survivor fences it, settles its
 * slot, rebuilds, checks every invariant and goes on working.
 */
#include "tests/support/attack/crash_step.h"
#include "tests/support/fake/memory_transport.h"
#include "tests/support/fixture/shard_fixture.h"
#include "tests/support/test.h"

#include "ds/replay/change.h"
#include "ds/replay/settle.h"
#include "ds/limiter/limiter.h"
#include "ds/replay/recover.h"
#include "ds/replay/shard_check.h"
#include "ds/part/slot.h"
#include "ds/sumtree/rebuild.h"

#include <errno.h>
#include <string.h>

#define VICTIM 1u
#define SURVIVOR 2u
#define REBUILDER 3u
#define BLOCK 16u
#define FILLED 3u    /* blocks published before */
#define PRIORITY 100 /* of the first item of a block */

/* One shard in memory shared by child and parent, and a handle of this process to it. */
struct scene {
	uint8_t *memory;
	uint64_t bytes; /* of all regions */
	struct table_desc desc;
	bool over_a_wire;
	uint64_t kept; /* items that must exist, wherever the victim was killed */
	uint32_t first_slot;
	uint32_t first_gen;
	bool updating; /* the victim changes priorities of the first block */
};

struct handle_to {
	struct memory_transport mt;
	struct shard *shard;
};

static struct scene scene;
static struct handle_to victim;
static struct access victim_acc;

static void must(int rc, const char *what)
{
	if (rc)
		fail_msg("%s: %s: %s", what, error_name(rc), error_last());
}

static uint64_t region_bytes(uint32_t role)
{
	return (table_region_bytes(&scene.desc, role) + 4095) & ~4095ull;
}

/* The regions one behind the other. */
static struct part_regions make_parts(struct memory_transport *mt, uint8_t *memory, bool in_place)
{
	struct part_regions regions = { .owner = 0 };

	memory_transport_init(mt, memory, region_bytes(REGION_TREE), in_place);
	regions.at[REGION_TREE] = &mt->region;
	for (uint32_t role = REGION_ROWS; role < REGION_ROLES; role++) {
		memory += region_bytes(role - 1);
		regions.at[role] = memory_transport_add(mt, memory, region_bytes(role));
	}
	return regions;
}

static int connect_to(struct handle_to *to, uint8_t *memory, bool in_place)
{
	const struct part_regions regions = make_parts(&to->mt, memory, in_place);

	return shard_open(&regions, &scene.desc, &to->shard);
}

static void disconnect(struct handle_to *to)
{
	shard_close(&to->shard);
	memory_transport_fini(&to->mt);
}

/* -------- the scene -------- */

static void fill(struct shard *shard, uint32_t owner, uint32_t blocks)
{
	struct access acc;

	shard_fixture_access(shard, owner, &acc);
	for (uint32_t i = 0; i < blocks; i++) {
		uint32_t slot = shard_fixture_fill_block(&acc, PRIORITY);

		if (i == 0)
			scene.first_slot = slot + shard->desc.window_max - 1;
	}
	access_close(&acc);
}

static uint64_t leaf_at(const struct shard *shard, uint32_t view, uint32_t slot)
{
	uint64_t word = 0;

	must(transport_load(shard->tree, shard_leaf_off(shard, view, slot), &word), "leaf");
	return word;
}

static void open_scene(bool over_a_wire)
{
	static const struct limit_desc queue = {
		.min_size = 1, .spi = 1 << LIMIT_SPI_BITS, .min_diff = 0, .max_diff = 1024 << 16
	};
	struct shard_fixture_opts opts = {
		.capacity = 256, .block = BLOCK, .max_writers = 1, .limit = &queue
	};
	struct shard_ids ids = { .first_ticket = 1000 };
	struct shard_fixture fx;
	struct handle_to here;
	struct part_regions regions;

	memset(&scene, 0, sizeof(scene));
	shard_fixture_open(&fx, &opts);
	scene.desc = fx.desc;
	shard_fixture_close(&fx);
	scene.over_a_wire = over_a_wire;
	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++)
		scene.bytes += region_bytes(role);
	scene.memory = crash_step_memory(scene.bytes);
	regions = make_parts(&here.mt, scene.memory, true);
	must(shard_format(&regions, &scene.desc, &ids), "format");
	must(shard_open(&regions, &scene.desc, &here.shard), "open");
	for (uint32_t owner = VICTIM; owner <= REBUILDER; owner++)
		shard_fixture_take_slot(here.shard, owner);
	fill(here.shard, SURVIVOR, FILLED);
	scene.kept = FILLED * (BLOCK - scene.desc.window_max + 1);
	scene.first_gen = leaf_gen(leaf_at(here.shard, 0, scene.first_slot));
	disconnect(&here);
}

static void close_scene(void)
{
	crash_step_free(scene.memory, scene.bytes);
}

static int setup_in_place(void **state)
{
	(void)state;
	open_scene(false);
	return 0;
}

static int setup_over_a_wire(void **state)
{
	(void)state;
	open_scene(true);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	close_scene();
	return 0;
}

/* -------- the survivor -------- */

static void check_shard(struct shard *shard, struct shard_check_report *report)
{
	struct shard_check_opts opts = { .rows = true, .limit_slack = BLOCK };

	must(shard_check(shard, &opts, report), "check");
	if (report->problems)
		fail_msg("%llu problems: %s", (unsigned long long)report->problems,
			 report->text[0]);
}

static void rebuild(struct shard *shard)
{
	struct rebuild_opts opts = { .owner = REBUILDER };
	struct rebuild_report report = { 0 };
	bool needed = false;

	must(part_rebuild_needed(&shard->part, &needed), "rebuild_needed");
	if (needed)
		must(sumtree_rebuild_until_clean(shard, &opts, 4, &report), "rebuild");
}

/* The first block's items: as they were, or with the priority that the victim gives. */
static void check_first_block(const struct shard *shard)
{
	for (uint32_t i = 0; i < BLOCK - shard->desc.window_max + 1; i++) {
		uint64_t word = leaf_at(shard, 0, scene.first_slot + i), p = leaf_priority(word);
		uint64_t was = PRIORITY + i;

		assert_int_equal(leaf_gen(word), scene.first_gen);
		assert_true(p == was || (scene.updating && p == was + 5000));
	}
}

/* Admissions of the dead one are back: nothing stands between admitted and committed. */
static void check_admissions(struct shard *shard)
{
	struct limiter lim;
	struct limiter_words words;

	limiter_init(&lim, shard, 0, SURVIVOR);
	must(limiter_read(&lim, &words), "limiter_read");
	assert_true((int64_t)words.ins_admitted <= (int64_t)words.ins_committed);
	assert_true((int64_t)(words.ins_committed - words.ins_admitted) <= BLOCK);
	must(limiter_try_insert(&lim, 1), "insert after the crash");
	must(limiter_commit_insert(&lim, 1, 0), "give back");
}

static void go_on(struct handle_to *to)
{
	struct shard_check_report report;

	check_shard(to->shard, &report);
	assert_int_equal(report.open_blocks, 0);
	assert_int_equal(report.busy_slots, 0);
	assert_true(report.live[0] >= scene.kept);
	check_first_block(to->shard);
	check_admissions(to->shard);
	fill(to->shard, SURVIVOR, 2);
	check_shard(to->shard, &report);
	assert_true(report.live[0] >= scene.kept + 2);
}

static void keep_first(struct scene *was)
{
	*was = scene;
}

/* The victim is dead: only its stores so far remain. */
static void survive(void *ctx, uint8_t *memory)
{
	struct handle_to to;
	struct scene was;

	(void)ctx;
	keep_first(&was);
	must(connect_to(&to, memory, true), "connect");
	must(shard_settle(to.shard, VICTIM, NULL), "settle");
	rebuild(to.shard);
	go_on(&to);
	shard_fixture_take_slot(to.shard, VICTIM);
	disconnect(&to);
	scene = was;
}

/* -------- victims -------- */

static int prepare_access(void *ctx)
{
	int rc = connect_to(&victim, scene.memory, !scene.over_a_wire);

	(void)ctx;
	return rc ? rc : access_open(&victim_acc, victim.shard, VICTIM, 3);
}

/* All rows of the block: one write before the publishing chain, or in place. */
static int publish(struct block *blk, uint32_t n)
{
	static uint8_t rows[BLOCK * 256];
	static struct leaf_op ops[2][BLOCK];
	struct transport_io io = { .region = victim.shard->rows,
				   .off = shard_row_off(victim.shard, blk->first),
				   .src = rows,
				   .len = BLOCK * scene.desc.row_bytes };
	struct shard_change change = { .acc = &victim_acc, .rows = &io, .n_rows = 1 };

	if (io.len > sizeof(rows))
		return -EINVAL;
	shard_fixture_make_rows(blk, rows);
	if (!scene.over_a_wire) {
		shard_fixture_write_rows(blk);
		change.n_rows = 0;
	}
	for (uint32_t v = 0; v < scene.desc.n_views; v++) {
		change.ops[v] = ops[v];
		change.n[v] = n;
		for (uint32_t i = 0; i < n; i++)
			ops[v][i] = (struct leaf_op){ .slot = blk->first + BLOCK - n + i,
						      .gen = blk->gen,
						      .priority = PRIORITY + i };
	}
	return change_publish(&change, 1);
}

static int append(void *ctx)
{
	struct ring_counters counters = { 0 };
	struct limiter lim;
	struct block blk;
	uint32_t n = BLOCK - scene.desc.window_max + 1;
	int rc = access_enter(&victim_acc);

	(void)ctx;
	limiter_init(&lim, victim.shard, 0, VICTIM);
	if (!rc)
		rc = ring_claim(&victim_acc, &blk, &counters);
	if (!rc)
		rc = access_leave(&victim_acc);
	if (rc)
		return rc;
	rc = limiter_try_insert(&lim, n);
	if (!rc)
		rc = publish(&blk, n);
	if (!rc)
		rc = limiter_commit_insert(&lim, n, n);
	return rc ? rc : ring_close(&blk);
}

static int update(void *ctx)
{
	uint32_t n = BLOCK - scene.desc.window_max + 1;
	static struct leaf_op ops[BLOCK];
	struct shard_change change = { .acc = &victim_acc, .ops = { ops }, .n = { n } };

	(void)ctx;
	for (uint32_t i = 0; i < n; i++)
		ops[i] = (struct leaf_op){ .slot = scene.first_slot + i,
					   .gen = scene.first_gen,
					   .priority = PRIORITY + i + 5000 };
	return change_update(&change, 1);
}

/* A rebuild pass whose rebuilder is the victim. */
static int pass(void *ctx)
{
	struct rebuild_opts opts = { .owner = VICTIM };
	struct rebuild_report report = { 0 };

	(void)ctx;
	return sumtree_rebuild_pass(victim.shard, &opts, &report);
}

/* The server is killed while it settles: the next one settles again (survive). */
static int settle(void *ctx)
{
	(void)ctx;
	return shard_settle(victim.shard, VICTIM, NULL);
}

static int recover(void *ctx)
{
	(void)ctx;
	return recover_shard(victim.shard, NULL, NULL);
}

/* Recovery of a recovery: everybody's slot is gone afterwards. */
static void recover_again(void *ctx, uint8_t *memory)
{
	struct handle_to to;
	struct scene was;

	(void)ctx;
	keep_first(&was);
	must(connect_to(&to, memory, true), "connect");
	must(recover_shard(to.shard, NULL, NULL), "recover");
	shard_fixture_take_slot(to.shard, SURVIVOR);
	go_on(&to);
	disconnect(&to);
	scene = was;
}

/* -------- races of earlier prototypes -------- */

static void open_block(struct block *blk)
{
	struct ring_counters counters = { 0 };

	must(prepare_access(NULL), "access");
	must(access_enter(&victim_acc), "enter");
	must(ring_claim(&victim_acc, blk, &counters), "claim");
}

static void check_at_rest(void)
{
	struct shard_check_report report;

	access_close(&victim_acc);
	check_shard(victim.shard, &report);
	disconnect(&victim);
}

static void one_pass(void)
{
	struct rebuild_opts opts = { .owner = REBUILDER };
	struct rebuild_report report = { 0 };

	must(sumtree_rebuild_pass(victim.shard, &opts, &report), "pass");
}

/* The delta comes from the word that the CAS replaced, not from the one that was claimed. */
static void publish__after_a_pass_since_the_claim(void **state)
{
	struct block blk;

	(void)state;
	open_block(&blk);
	if (scene.over_a_wire) { /* a chain enters and leaves by itself */
		must(access_leave(&victim_acc), "leave");
		one_pass();
		must(publish(&blk, BLOCK - scene.desc.window_max + 1), "publish");
	} else {
		one_pass();
		shard_fixture_write_rows(&blk);
		must(shard_fixture_publish(&blk, PRIORITY), "publish");
		must(access_leave(&victim_acc), "leave");
	}
	must(ring_close(&blk), "close");
	check_at_rest();
}

/* Drawn before the claim, updated after it: priority 0 is no item, whatever its generation. */
static void update__of_a_claimed_leaf_is_dropped(void **state)
{
	struct leaf_op op = { .priority = 7 };
	struct block blk;

	(void)state;
	open_block(&blk);
	op.slot = blk.first + BLOCK - 1;
	op.gen = blk.gen;
	must(sumtree_update(&victim.shard->trees[0], &victim_acc.epoch, &op, 1,
			    victim_acc.deltas[0]),
	     "update");
	assert_int_equal(op.result, LEAF_ABSENT);
	assert_int_equal(leaf_priority(leaf_at(victim.shard, 0, op.slot)), 0);
	must(access_leave(&victim_acc), "leave");
	must(ring_close(&blk), "close");
	check_at_rest();
}

/* The same with the leaf's word as the updater last saw it. */
static void update__of_a_retired_leaf_is_dropped(void **state)
{
	struct leaf_op op = { .slot = scene.first_slot, .gen = scene.first_gen, .priority = 7 };

	(void)state;
	must(prepare_access(NULL), "access");
	must(access_enter(&victim_acc), "enter");
	must(sumtree_consume(&victim.shard->trees[0], &victim_acc.epoch, &op, 1,
			     victim_acc.deltas[0]),
	     "take");
	assert_int_equal(op.result, LEAF_DONE);
	must(sumtree_update(&victim.shard->trees[0], &victim_acc.epoch, &op, 1,
			    victim_acc.deltas[0]),
	     "update");
	assert_int_equal(op.result, LEAF_ABSENT);
	must(access_leave(&victim_acc), "leave");
	check_at_rest();
}

/* -------- tests -------- */

static void step_through(struct crash_step step, uint64_t least)
{
	struct crash_step_report report;

	step.bytes = scene.bytes;
	crash_step_run(&step, scene.memory, &report);
	print_message("%llu instructions, %llu states, %llu crashes survived\n",
		      (unsigned long long)report.instructions, (unsigned long long)report.states,
		      (unsigned long long)report.looks);
	assert_int_equal(report.rc, 0);
	assert_true(report.looks >= least);
}

static void append__killed_at_every_step(void **state)
{
	(void)state;
	step_through(
		(struct crash_step){ .prepare = prepare_access, .run = append, .look = survive },
		80);
}

static void update__killed_at_every_step(void **state)
{
	(void)state;
	scene.updating = true;
	step_through(
		(struct crash_step){ .prepare = prepare_access, .run = update, .look = survive },
		BLOCK);
}

static void rebuild__killed_at_every_step(void **state)
{
	(void)state;
	step_through((struct crash_step){ .prepare = prepare_access, .run = pass, .look = survive },
		     100);
}

/* The victim died with a block half published and its sums not yet added. */
static int prepare_half(void *ctx)
{
	struct ring_counters counters = { 0 };
	struct limiter lim;
	struct block blk;
	int rc = prepare_access(ctx);

	limiter_init(&lim, victim.shard, 0, VICTIM);
	if (!rc)
		rc = access_enter(&victim_acc);
	if (!rc)
		rc = ring_claim(&victim_acc, &blk, &counters);
	if (rc)
		return rc;
	shard_fixture_write_rows(&blk);
	rc = limiter_try_insert(&lim, BLOCK);
	return rc ? rc : shard_fixture_publish(&blk, PRIORITY);
}

static void settle__killed_at_every_step(void **state)
{
	(void)state;
	step_through((struct crash_step){ .prepare = prepare_half, .run = settle, .look = survive },
		     5);
}

static void recover__killed_at_every_step(void **state)
{
	(void)state;
	step_through((struct crash_step){ .prepare = prepare_half,
					  .run = recover,
					  .look = recover_again },
		     20);
}

#define CASE(f, setup) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define WIRE(f) \
	{ \
#f " (over a wire)", f, setup_over_a_wire, teardown, NULL \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(append__killed_at_every_step, setup_in_place),
		WIRE(append__killed_at_every_step),
		CASE(update__killed_at_every_step, setup_in_place),
		WIRE(update__killed_at_every_step),
		CASE(rebuild__killed_at_every_step, setup_in_place),
		CASE(settle__killed_at_every_step, setup_in_place),
		CASE(recover__killed_at_every_step, setup_in_place),
		CASE(publish__after_a_pass_since_the_claim, setup_in_place),
		WIRE(publish__after_a_pass_since_the_claim),
		CASE(update__of_a_claimed_leaf_is_dropped, setup_in_place),
		CASE(update__of_a_retired_leaf_is_dropped, setup_in_place),
	};

	return TEST_RUN(tests, NULL, NULL);
}
