/*
 * Reads of several transports that are posted together: what comes, what it costs, and how the end
 * of one connection is told.
 */
#include "tests/support/test.h"
#include "tests/support/fake/wire_transport.h"

#include "tests/support/fake/fault.h"
#include "transport/transport.h"
#include "transport/wait_set.h"

#include "wire/region.h"

#include <errno.h>
#include <string.h>

#define NODES 3
#define CLIENT 5
#define WORDS 700u /* of each node: more than one call takes */

struct side {
	struct transport_target *tg;
	struct transport *tr, *fault;
	struct region *region;
};

struct rig {
	struct side sides[NODES];
	struct transport_io io[NODES * WORDS];
	uint64_t got[NODES * WORDS];
	struct wait_set reads;
};

static uint64_t word_of(uint32_t node, uint64_t i)
{
	return 1000000 * (node + 1) + i;
}

static void side_open(struct side *side, uint32_t node, bool wire)
{
	const struct target_opts opts = { .pool_bytes = 8u << 20, .private_memory = true };
	struct target_region spec = { .role = REGION_ROWS, .size = 2u << 20 };
	struct transport_opts tropts = { .client_id = CLIENT };
	struct region_grant grant;

	assert_int_equal(transport_target_open("shm", &opts, &side->tg), 0);
	assert_int_equal(side->tg->ops->register_region(side->tg, &spec), 0);
	assert_int_equal(transport_grant(side->tg, CLIENT, spec.id, RIGHT_ALL, &grant), 0);
	tropts.target = side->tg;
	assert_int_equal(transport_open("embed:", &tropts, &side->tr), 0);
	assert_int_equal(fault_wrap(side->tr, NULL, &side->fault), 0);
	side->tr = wire ? wire_wrap(side->fault) : side->fault;
	if (wire)
		wire_lockstep(side->tr);
	assert_int_equal(transport_attach(side->tr, &grant, &side->region), 0);
	for (uint64_t i = 0; i < WORDS; i++) {
		uint64_t word = word_of(node, i);

		assert_int_equal(transport_store(side->region, i * 8, &word, 8), 0);
	}
}

static struct rig *open_rig(bool wire)
{
	static struct rig rig;

	memset(&rig, 0, sizeof(rig));
	for (uint32_t n = 0; n < NODES; n++)
		side_open(&rig.sides[n], n, wire);
	for (uint32_t k = 0; k < NODES * WORDS; k++)
		rig.io[k] = (struct transport_io){
			.region = rig.sides[k % NODES].region,
			.off = k / NODES * 8,
			.dst = &rig.got[k],
			.len = 8,
		};
	return &rig;
}

static void close_rig(struct rig *rig)
{
	for (uint32_t n = 0; n < NODES; n++) {
		transport_detach(&rig->sides[n].region);
		transport_close(&rig->sides[n].tr);
		transport_target_close(&rig->sides[n].tg);
	}
}

static uint64_t phases(const struct rig *rig)
{
	uint64_t sum = 0;

	for (uint32_t n = 0; n < NODES; n++)
		sum += rig->sides[n].tr->stats.phases;
	return sum;
}

static void expect_words(const struct rig *rig, uint32_t but)
{
	for (uint32_t k = 0; k < NODES * WORDS; k++)
		if (k % NODES != but)
			assert_int_equal(rig->got[k], word_of(k % NODES, k / NODES));
}

TEST(reads_wait__any_number_over_all_transports_is_one_phase)
{
	for (int wire = 0; wire < 2; wire++) {
		struct rig *rig = open_rig(wire);
		uint64_t before = phases(rig);

		assert_int_equal(wait_set_read(&rig->reads, rig->io, NODES * WORDS), 0);
		assert_int_equal(wait_set_wait(&rig->reads), 0);
		expect_words(rig, NODES);
		if (wire) /* in place each of a call's 256 is a phase of its own */
			assert_int_equal(phases(rig) - before, 1);
		for (uint32_t n = 0; n < NODES; n++)
			assert_int_equal(rig->sides[n].tr->stats.reads, WORDS);
		close_rig(rig);
	}
}

TEST(reads_look__says_not_yet_and_counts_nothing)
{
	struct rig *rig = open_rig(true);
	uint64_t before = phases(rig), word;

	assert_int_equal(wait_set_read(&rig->reads, rig->io, NODES * WORDS), 0);
	assert_int_equal(wait_set_look(&rig->reads), -EAGAIN);
	assert_int_equal(wait_set_look(&rig->reads), -EAGAIN);
	assert_int_equal(phases(rig), before);
	for (uint32_t n = 0; n < NODES; n++) /* somebody else waits: time passes */
		assert_int_equal(transport_load(rig->sides[n].region, 0, &word), 0);
	before = phases(rig);
	assert_int_equal(wait_set_look(&rig->reads), 0);
	assert_int_equal(phases(rig), before);
	expect_words(rig, NODES);
	assert_int_equal(wait_set_look(&rig->reads), 0); /* there is nothing more */
	close_rig(rig);
}

/* Both into the same word: without a fence either may be the last. */
TEST(reads__behind_a_fence_come_after_those_before_it)
{
	struct rig *rig = open_rig(true);
	struct transport_io io[4];
	uint64_t before = phases(rig), got[3];

	for (uint32_t k = 0; k < 4; k++) {
		io[k] = rig->io[k * NODES];
		io[k].dst = &got[k % 3];
	}
	for (uint32_t i = 0; i < 64; i++) {
		assert_int_equal(wait_set_read_fenced(&rig->reads, io, 4, 3), 0);
		assert_int_equal(wait_set_wait(&rig->reads), 0);
		assert_int_equal(got[0], word_of(0, 3));
	}
	assert_int_equal(phases(rig) - before, 2 * 64);
	close_rig(rig);
}

TEST(reads__of_nothing_are_done)
{
	struct wait_set reads = { 0 };

	assert_int_equal(wait_set_wait(&reads), 0);
	assert_int_equal(wait_set_read(&reads, NULL, 0), 0);
	assert_int_equal(wait_set_look(&reads), 0);
}

TEST(reads__one_lost_connection_spoils_nothing_of_the_others)
{
	const struct fault_plan cut = { .cut_at = 1 };

	for (int look = 0; look < 2; look++) {
		struct rig *rig = open_rig(true);
		uint64_t word;
		int ret;

		fault_set(rig->sides[1].fault, &cut);
		assert_int_equal(wait_set_read(&rig->reads, rig->io, NODES * WORDS), 0);
		for (uint32_t n = 0; look && n < NODES; n++)
			(void)!transport_load(rig->sides[n].region, 0, &word);
		ret = look ? wait_set_look(&rig->reads) : wait_set_wait(&rig->reads);
		assert_int_equal(ret, -ECONNRESET);
		assert_int_equal(rig->sides[1].tr->broken, -ECONNRESET);
		assert_int_equal(rig->sides[0].tr->broken, 0);
		expect_words(rig, 1);
		close_rig(rig);
	}
}

TEST(reads_post__of_a_bad_range_is_refused)
{
	struct rig *rig = open_rig(true);

	rig->io[4].off = 3;
	assert_int_equal(wait_set_read(&rig->reads, rig->io, 9), -EINVAL);
	assert_int_equal(wait_set_wait(&rig->reads), -EINVAL);
	assert_int_equal(rig->reads.n, 0);
	close_rig(rig);
}

int main(void)
{
	return test_run(NULL, NULL);
}
