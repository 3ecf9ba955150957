/* The checker of histories: known-bad ones, and against all orders on small random ones. */
#include "tests/support/history.h"
#include "tests/support/test.h"

#include "base/rng.h"

#include <string.h>

#define PUT(s, e, v, ver) \
	{ \
		.start = s, .end = e, .kind = HISTORY_PUT, .value = v, .version = ver \
	}
#define GET(s, e, v, ver) \
	{ \
		.start = s, .end = e, .kind = HISTORY_GET, .value = v, .version = ver \
	}
#define PUT_IF(s, e, v, ver, exp) \
	{ \
		.start = s, .end = e, .kind = HISTORY_PUT_IF, .value = v, .version = ver, \
		.expected = exp \
	}

static void expect_history(const struct history_call *calls, size_t n, bool good)
{
	struct history_call copy[12];
	const char *why;

	memcpy(copy, calls, n * sizeof(*calls));
	assert_int_equal(history_check_all_orders(calls, n), good);
	if (history_check(copy, n, &why) != good)
		fail_msg("%s", good ? why : "the history passes");
}

#define EXPECT(good, ...) \
	do { \
		const struct history_call calls[] = { __VA_ARGS__ }; \
		expect_history(calls, sizeof(calls) / sizeof(*calls), good); \
	} while (0)

TEST(good_histories__pass)
{
	EXPECT(true, GET(1, 2, 0, 0));
	EXPECT(true, PUT(1, 4, 7, 1), GET(2, 3, 0, 0), GET(2, 5, 7, 1));
	EXPECT(true, PUT(1, 10, 7, 2), PUT(2, 3, 8, 1), GET(4, 5, 8, 1), GET(11, 12, 7, 2));
	EXPECT(true, PUT(1, HISTORY_PENDING, 7, 0), GET(5, 6, 7, 1));
	EXPECT(true, PUT(1, HISTORY_PENDING, 7, 0), GET(5, 6, 0, 0));
	EXPECT(true, PUT(1, HISTORY_PENDING, 7, 0), PUT(5, 6, 8, 2));
	EXPECT(true, PUT(1, 2, 7, 1), PUT_IF(3, 4, 8, 2, 1));
	EXPECT(true, PUT(1, 2, 7, 1),
	       { .start = 3, .end = 4, .kind = HISTORY_PUT_IF, .refused = true, .expected = 0 });
}

TEST(bad_histories__fail)
{
	/* A stale read, and one that goes back. */
	EXPECT(false, PUT(1, 2, 7, 1), GET(3, 4, 0, 0));
	EXPECT(false, PUT(1, 9, 7, 1), GET(2, 3, 7, 1), GET(4, 5, 0, 0));
	/* A lost update: both replaced version 1. */
	EXPECT(false, PUT(1, 2, 7, 1), PUT_IF(3, 6, 8, 2, 1), PUT_IF(3, 6, 9, 2, 1));
	EXPECT(false, PUT(1, 2, 7, 1), PUT_IF(3, 6, 8, 3, 1), PUT(3, 6, 9, 2));
	/* A value that nobody put, or under another version. */
	EXPECT(false, PUT(1, 2, 7, 1), GET(3, 4, 8, 1));
	EXPECT(false, GET(3, 4, 8, 1));
	EXPECT(false, PUT(1, 2, 7, 1), PUT(3, 4, 8, 2), GET(3, 4, 7, 2));
	/* A put that was seen before it began, or whose version is too old. */
	EXPECT(false, GET(1, 2, 7, 1), PUT(3, 4, 7, 1));
	EXPECT(false, PUT(1, 2, 7, 2), PUT(3, 4, 8, 1));
	/* A missing version. */
	EXPECT(false, PUT(1, 2, 7, 1), PUT(3, 4, 8, 3));
	EXPECT(false, PUT(9, HISTORY_PENDING, 9, 0), PUT(1, 2, 7, 1), PUT(3, 4, 8, 3));
	/* A pending put that was done twice. */
	EXPECT(false, PUT(1, HISTORY_PENDING, 7, 0), GET(2, 3, 7, 1), PUT(4, 5, 8, 2),
	       GET(6, 7, 7, 3));
	/* Refused without reason. */
	EXPECT(false, PUT(1, 2, 7, 1),
	       { .start = 3, .end = 4, .kind = HISTORY_PUT_IF, .refused = true, .expected = 1 });
}

/* A run of a register with calls that overlap, in which then a number may be changed. */
static size_t make_history(struct rng *rng, struct history_call calls[12])
{
	size_t n = 1 + rng_uniform_u64(rng, 8);
	uint64_t version = 0, value = 0;

	for (size_t i = 0; i < n; i++) {
		struct history_call *call = &calls[i];
		uint64_t at = 10 * (i + 1); /* it takes effect then */

		*call = (struct history_call){
			.start = at - 1 - rng_uniform_u64(rng, 25),
			.end = at + 1 + rng_uniform_u64(rng, 25),
			.kind = (uint32_t)rng_uniform_u64(rng, 3),
		};
		call->start = call->start > at ? 0 : call->start;
		call->expected = call->kind == HISTORY_PUT_IF ? rng_uniform_u64(rng, version + 2)
							      : 0;
		call->refused = call->kind == HISTORY_PUT_IF && call->expected != version;
		if (call->kind == HISTORY_GET || call->refused) {
			call->value = call->refused ? 0 : value;
			call->version = call->refused ? 0 : version;
			continue;
		}
		call->value = value = 100 + i;
		call->version = ++version;
		if (rng_uniform_u64(rng, 4) == 0) {
			call->end = HISTORY_PENDING;
			call->version = 0;
		}
	}
	if (rng_uniform_u64(rng, 2) == 0)
		return n;
	switch (rng_uniform_u64(rng, 4)) {
	case 0:
		calls[rng_uniform_u64(rng, n)].start += 20;
		break;
	case 1:
		calls[rng_uniform_u64(rng, n)].version += 1 - 2 * rng_uniform_u64(rng, 2);
		break;
	case 2:
		calls[rng_uniform_u64(rng, n)].value = 100 + rng_uniform_u64(rng, n);
		break;
	default:
		calls[rng_uniform_u64(rng, n)].refused ^= true;
	}
	return n;
}

/* What no client reports: a pending call with a version, ends before starts, a get of half a value. */
static bool is_possible(const struct history_call *calls, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct history_call *c = &calls[i];

		if (c->start >= c->end || c->version > 20 ||
		    (c->end == HISTORY_PENDING && c->version) ||
		    (c->refused &&
		     (c->kind != HISTORY_PUT_IF || c->version || c->end == HISTORY_PENDING)) ||
		    (c->kind != HISTORY_GET && !c->refused &&
		     (c->end != HISTORY_PENDING && !c->version)) ||
		    (c->kind == HISTORY_GET && !c->version != !c->value))
			return false;
		for (size_t k = 0; k < i; k++)
			if (c->kind != HISTORY_GET && calls[k].kind != HISTORY_GET &&
			    c->value == calls[k].value && c->value)
				return false;
	}
	return true;
}

TEST(random_histories__as_all_orders_say)
{
	struct rng rng;
	struct history_call calls[12], copy[12];
	uint32_t good = 0, bad = 0;
	const char *why;

	rng_seed(&rng, test_seed("histories", 3), 0);
	for (uint32_t i = 0; i < 200000; i++) {
		size_t n = make_history(&rng, calls);
		bool want, has, refused = false;

		if (!is_possible(calls, n))
			continue;
		memcpy(copy, calls, sizeof(calls));
		want = history_check_all_orders(calls, n);
		for (size_t k = 0; k < n; k++)
			refused |= calls[k].refused;
		has = history_check(copy, n, &why);
		if (has != want && (want || !refused)) {
			for (size_t k = 0; k < n; k++)
				print_message(
					"kind %u %d..%d value %d version %d expected %d refused %d\n",
					calls[k].kind, (int)calls[k].start, (int)calls[k].end,
					(int)calls[k].value, (int)calls[k].version,
					(int)calls[k].expected, calls[k].refused);
			fail_msg("round %u: all orders say %d; %s", i, want, why ? why : "");
		}
		good += want;
		bad += !want;
	}
	print_message("good %u bad %u\n", good, bad);
	assert_true(good > 10000 && bad > 5000);
}

int main(void)
{
	return test_run(NULL, NULL);
}
