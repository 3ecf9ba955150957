/*
 * Gets of many keys in place: what is fetched ahead is a hint, whatever heads and guesses say.
 */
#include "tests/support/fixture/heap_fixture.h"
#include "tests/support/must_internal.h"

#include "ds/heap/find.h"

#include "base/bits.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define VALUE 500u /* bytes, of a value that has an entry */

enum kind { LONG, SHORT, DELETED, MISSING, KINDS };

struct many {
	struct heap_fixture fx;
	struct heap_client a;
	char names[HEAP_MANY][8];
	uint8_t got[HEAP_MANY][VALUE];
	struct heap_ask asks[HEAP_MANY];
};

static enum kind kind_of(uint32_t i)
{
	return (enum kind)(i % KINDS);
}

static void many_open(struct many *many)
{
	uint8_t value[VALUE] = { 0 };
	uint64_t version;

	heap_fixture_open(&many->fx, HEAP_MANY, 4);
	heap_fixture_join(&many->fx, 1, NULL, &many->a);
	for (uint32_t i = 0; i < HEAP_MANY; i++) {
		const struct heap_put none = { .deletes = true, .expected = HEAP_ANY_VERSION };
		struct heap_ask *ask = &many->asks[i];

		(void)snprintf(many->names[i], sizeof(many->names[i]), "key%u", i);
		*ask = (struct heap_ask){ .room = { many->got[i], VALUE } };
		ask->key = chain_key(many->names[i], (uint32_t)strlen(many->names[i]),
				     many->fx.desc.seed);
		value[0] = (uint8_t)i;
		if (kind_of(i) != MISSING)
			must(heap_fixture_put(&many->a, many->names[i], value,
					      kind_of(i) == LONG ? VALUE : 8, &version));
		if (kind_of(i) == DELETED)
			must(heap_put(&many->a.acc, &ask->key, &none, &version));
	}
}

static void many_close(struct many *many)
{
	heap_fixture_leave(&many->a);
	heap_fixture_close(&many->fx);
}

/* Gets n keys together; that with number `damaged` is expected to be so. */
static void many_expect(struct many *many, uint32_t n, uint32_t damaged)
{
	memset(many->got, 0xff, sizeof(many->got));
	must(heap_get_many(&many->a.acc, many->asks, n));
	for (uint32_t i = 0; i < n; i++) {
		const struct heap_ask *ask = &many->asks[i];
		bool exists = kind_of(i) == LONG || kind_of(i) == SHORT;

		assert_int_equal(ask->status, i == damaged ? -EBADMSG : exists ? 0 : -ENOENT);
		if (ask->status)
			continue;
		assert_int_equal(ask->value.len, kind_of(i) == LONG ? VALUE : 8);
		assert_int_equal(many->got[i][0], i);
	}
}

TEST(any_number_of_keys__is_found)
{
	struct many many;

	many_open(&many);
	for (uint32_t n = 1; n <= HEAP_MANY; n++)
		many_expect(&many, n, UINT32_MAX);
	many_close(&many);
}

/* Also one that leads behind the last bucket that a key may have. */
TEST(wrong_guesses__cost_no_more_than_time)
{
	struct many many;

	many_open(&many);
	for (uint64_t distance = 0; distance < HEAP_PROBES; distance++) {
		for (uint32_t i = 0; i < HEAP_MANY; i++) {
			const struct chain_key *key = &many.asks[i].key;

			*heap_guess_of(&many.a.acc, key) = head_make(
				distance * 2 * HEAP_PREFETCH_LINES + HEAP_PREFETCH_LINES,
				i % 2 ? (uint64_t)UINT32_MAX * 64 : 0, chain_head_tag(key));
		}
		many_expect(&many, HEAP_MANY, UINT32_MAX);
	}
	many_close(&many);
}

/* A head word that names no place of the rows region: nothing is loaded from there. */
TEST(damaged_head__is_an_error_of_its_key)
{
	const uint64_t places[] = { 0, 64, (uint64_t)1 << 30, (uint64_t)UINT32_MAX * 64 };
	const struct chain_key *key;
	struct many many;
	uint64_t off, word, bad;
	uint32_t bucket;

	many_open(&many);
	key = &many.asks[4].key;
	bucket = chain_place(key->hash, many.fx.desc.buckets) +
		 heap_guess_distance(*heap_guess_of(&many.a.acc, key), key);
	off = heap_head_off(many.fx.heap, bucket);
	must(transport_load(many.fx.heap->tree, off, &word));
	for (uint32_t i = 0; i < ARRAY_LEN(places); i++) {
		bad = head_make(head_version(word), places[i], head_tag(word));
		must(transport_store(many.fx.heap->tree, off, &bad, sizeof(bad)));
		many_expect(&many, HEAP_MANY, 4);
	}
	must(transport_store(many.fx.heap->tree, off, &word, sizeof(word)));
	many_expect(&many, HEAP_MANY, UINT32_MAX);
	many_close(&many);
}

int main(void)
{
	return test_run(NULL, NULL);
}
