/* Values in chunks that a client holds where they are, while others replace them. */
#include "tests/support/fixture/heap_fixture.h"
#include "tests/support/must_internal.h"

#include "transport/barrier.h"

#include "base/mem/alloc.h"

#include <errno.h>
#include <string.h>

#define EXTENT 65536u
#define SHARE (EXTENT - 64u)
#define CHUNKS 3u
#define LEN (CHUNKS * SHARE)

static uint8_t value[LEN], seen[SHARE];

static int put(struct heap_client *client, const char *key, uint8_t number)
{
	uint64_t version;

	memset(value, number, sizeof(value));
	return heap_fixture_put(client, key, value, sizeof(value), &version);
}

static int hold(struct heap_client *client, const char *text, struct heap_hold *out)
{
	const struct chain_key key =
		chain_key(text, (uint32_t)strlen(text), client->heap->desc.seed);

	return heap_hold(&client->acc, &key, out);
}

static const struct heap_pin *line_of(const struct heap_client *client)
{
	return (const void *)(client->heap->tree->base + heap_pin_off(client->owner));
}

static void end(struct heap_client *client, struct heap_hold *held)
{
	heap_hold_end(line_of(client), held);
	mem_free((void *)held->manifest);
}

/* All bytes of what is held are those of the put. */
static void expect_held(const struct heap_client *client, const struct heap_hold *held,
			uint8_t number)
{
	assert_int_equal(held->len, LEN);
	assert_int_equal(heap_manifest_chunks(held->manifest), CHUNKS);
	for (uint32_t i = 0; i < CHUNKS; i++) {
		transport_copy_racy(seen,
				    client->heap->rows->base +
					    heap_manifest_place(held->manifest, i) +
					    sizeof(struct heap_entry),
				    sizeof(seen));
		for (uint32_t k = 0; k < SHARE; k++)
			assert_int_equal(seen[k], number);
	}
}

struct rig {
	struct heap_fixture fx;
	struct heap_client writer, holder;
};

/* Room for three values, and what lies beside them. */
static void rig_open(struct rig *rig)
{
	heap_fixture_open(&rig->fx, 100, 3 * CHUNKS + 3);
	heap_fixture_join(&rig->fx, 1, NULL, &rig->writer);
	heap_fixture_join(&rig->fx, 2, NULL, &rig->holder);
	must(put(&rig->writer, "k", 1));
}

static void rig_close(struct rig *rig)
{
	heap_fixture_expect_sound(&rig->fx, NULL);
	heap_fixture_leave(&rig->writer);
	heap_fixture_close(&rig->fx);
}

TEST(heap_hold__keeps_the_value_while_others_put)
{
	struct heap_hold held;
	struct rig rig;

	rig_open(&rig);
	must(hold(&rig.holder, "k", &held));
	for (uint8_t i = 2; i < 60; i++) {
		must(put(&rig.writer, "k", i));
		expect_held(&rig.holder, &held, 1);
	}
	end(&rig.holder, &held);
	must(hold(&rig.holder, "k", &held));
	expect_held(&rig.holder, &held, 59);
	end(&rig.holder, &held);
	heap_fixture_leave(&rig.holder);
	rig_close(&rig);
}

/* Puts "k" until the heap is full. Returns how often it could. */
static uint8_t put_until_full(struct rig *rig, uint8_t from)
{
	uint8_t n = 0;
	int ret = 0;

	while (ret == 0 && n < 20)
		ret = put(&rig->writer, "k", (uint8_t)(from + n++));
	if (ret)
		assert_int_equal(ret, -ENOSPC);
	return ret ? n - 1 : n;
}

TEST(heap_hold_end__gives_the_space_back)
{
	struct heap_hold first, second;
	struct rig rig;

	rig_open(&rig);
	must(hold(&rig.holder, "k", &first));
	must(put(&rig.writer, "k", 2));
	must(hold(&rig.holder, "k", &second));
	must(put(&rig.writer, "k", 3)); /* all room is taken: of two values, and the newest */
	assert_int_equal(put_until_full(&rig, 4), 0);
	expect_held(&rig.holder, &first, 1);
	expect_held(&rig.holder, &second, 2);
	end(&rig.holder, &first);
	assert_int_equal(put_until_full(&rig, 4), 20);
	expect_held(&rig.holder, &second, 2);
	end(&rig.holder, &second);
	heap_fixture_leave(&rig.holder);
	rig_close(&rig);
}

TEST(heap_hold__of_a_killed_client_ends_with_the_fence)
{
	struct heap_hold first, second;
	struct rig rig;

	rig_open(&rig);
	must(hold(&rig.holder, "k", &first));
	must(put(&rig.writer, "k", 2));
	must(hold(&rig.holder, "k", &second));
	must(put(&rig.writer, "k", 3));
	assert_int_equal(put_until_full(&rig, 4), 0);
	/* The owner itself, whose part has come back, keeps its holds. */
	must(heap_settle_self(rig.fx.heap, 2));
	assert_int_equal(put_until_full(&rig, 4), 0);
	mem_free((void *)first.manifest);
	mem_free((void *)second.manifest);
	heap_fixture_kill(&rig.holder);
	must(heap_settle(rig.fx.heap, 2));
	assert_int_equal(put_until_full(&rig, 4), 20);
	rig_close(&rig);
}

/* The writer dies: who takes its extents over respects the holds. */
TEST(heap_hold__outlives_the_writer)
{
	struct heap_client other;
	struct heap_hold held;
	struct rig rig;

	rig_open(&rig);
	must(hold(&rig.holder, "k", &held));
	must(put(&rig.writer, "k", 2));
	heap_fixture_kill(&rig.writer);
	must(heap_settle(rig.fx.heap, 1));
	heap_fixture_join(&rig.fx, 3, NULL, &other);
	for (uint8_t i = 3; i < 40; i++) {
		must(put(&other, "k", i));
		expect_held(&rig.holder, &held, 1);
	}
	end(&rig.holder, &held);
	heap_fixture_leave(&rig.holder);
	rig.writer = other;
	rig_close(&rig);
}

/* Lines that say anything: who has them holds back what they name, or all until the fence, and nothing else. */
TEST(heap_hold__lines_that_lie_hold_back_what_a_pin_can)
{
	struct heap_pin lie = { .pin = { 0 } };
	struct rig rig;

	rig_open(&rig);
	for (uint32_t i = 0; i < HEAP_HOLDS; i++)
		lie.holds[i].raw = HEAP_HELD | UINT64_C(0x9e3779b97f4a7c15) * (i + 1);
	for (uint32_t owner = 2; owner <= HEAP_FIXTURE_CLIENTS; owner++)
		must(transport_store(rig.fx.heap->tree, heap_pin_off(owner), &lie, sizeof(lie)));
	assert_int_equal(put_until_full(&rig, 2), 20);
	lie.holds[3].raw = 1; /* an epoch: the first one */
	must(transport_store(rig.fx.heap->tree, heap_pin_off(5), &lie, sizeof(lie)));
	for (uint8_t i = 0; i < 3; i++)
		(void)!put(&rig.writer, "k", i);
	assert_int_equal(put(&rig.writer, "k", 3), -EAGAIN);
	must(heap_settle(rig.fx.heap, 5));
	assert_int_equal(put_until_full(&rig, 4), 20);
	heap_fixture_leave(&rig.holder);
	rig_close(&rig);
}

/* A client that was fenced meanwhile: its slot, and the place in the line, are another's. */
TEST(heap_hold_end__leaves_the_holds_of_others)
{
	struct heap_hold first, second;
	struct rig rig;

	rig_open(&rig);
	must(hold(&rig.holder, "k", &first));
	must(heap_settle(rig.fx.heap, rig.holder.owner));
	must(put(&rig.writer, "k", 2));
	must(hold(&rig.holder, "k", &second));
	assert_int_equal(second.place, first.place);
	end(&rig.holder, &first);
	assert_int_equal(line_of(&rig.holder)->holds[second.place].raw, second.word);
	end(&rig.holder, &second);
	assert_int_equal(line_of(&rig.holder)->holds[second.place].raw, 0);
	heap_fixture_leave(&rig.holder);
	rig_close(&rig);
}

TEST(heap_hold__errors)
{
	struct heap_hold held[HEAP_HOLDS], more;
	struct heap_client reader;
	uint64_t version;
	struct rig rig;

	rig_open(&rig);
	heap_fixture_join(&rig.fx, 0, NULL, &reader);
	assert_int_equal(hold(&reader, "k", &more), -EACCES);
	assert_int_equal(hold(&rig.holder, "nothing", &more), -ENOENT);
	must(heap_fixture_put(&rig.writer, "small", "abc", 3, &version));
	must(hold(&rig.holder, "small", &more));
	assert_null(more.manifest);
	for (uint32_t i = 0; i < HEAP_HOLDS; i++)
		must(hold(&rig.holder, "k", &held[i]));
	assert_int_equal(hold(&rig.holder, "k", &more), -EBUSY);
	for (uint32_t i = 0; i < HEAP_HOLDS; i++)
		end(&rig.holder, &held[i]);
	for (uint32_t i = 0; i < HEAP_HOLDS; i++)
		assert_int_equal(line_of(&rig.holder)->holds[i].raw, 0);
	heap_fixture_leave(&reader);
	heap_fixture_leave(&rig.holder);
	rig_close(&rig);
}

int main(void)
{
	return test_run(NULL, NULL);
}
