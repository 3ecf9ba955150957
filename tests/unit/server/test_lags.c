#include "server/metad/lags.h"

#include "server/metad/metad.h"

#include "tests/support/test.h"

#include "base/bits.h"
#include "base/mem/alloc.h"

#define OBJECTS 20u /* more than a client's report may have */

struct rig {
	struct metad md;
	struct client client;
	struct object_kind kind;
	struct catalog_object objects[OBJECTS + 1];
	Relive__Progress progress[OBJECTS], *list[OBJECTS];
	uint32_t landings[LAGS_PATHS + 1]; /* one more than is kept */
	struct lags lags;
};

static struct rig rig;

static int setup(void **state)
{
	(void)state;
	rig = (struct rig){ .kind.id = OBJECT_TABLE };
	for (uint32_t id = 1; id <= OBJECTS; id++) {
		rig.objects[id] = (struct catalog_object){ .id = id,
							   .kind = &rig.kind,
							   .uuid = { (uint8_t)id } };
		rig.md.catalog.objects[id] = &rig.objects[id];
	}
	rig.md.live.first = &rig.client;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	mem_free(rig.client.lags);
	return 0;
}

/* A report of two readers of each of the first n objects: at 4 and 6, with an item of 3. */
static void say(uint32_t n, uint64_t newest, bool writes)
{
	Relive__LeaseRenewRequest request = RELIVE__LEASE_RENEW_REQUEST__INIT;

	for (uint32_t i = 0; i < n; i++) {
		Relive__Progress *one = rig.list[i] = &rig.progress[i];

		relive__progress__init(one);
		one->object = i + 1;
		one->uuid = (ProtobufCBinaryData){ 16, rig.objects[i + 1].uuid };
		one->newest = newest;
		one->readers = 2;
		one->read_milli = 10000;
		one->best_milli = 6000;
		one->oldest = 3;
		one->landings = rig.landings;
		one->n_landings = ARRAY_LEN(rig.landings);
	}
	request.n_progress = n;
	request.progress = rig.list;
	lags_say(&rig.md, &rig.client, &request, writes);
}

static size_t fill(void)
{
	lags_fill(&rig.md, &rig.lags);
	return rig.lags.n;
}

TEST_WITH(lags_fill__is_behind_the_newest_version, setup, teardown)
{
	say(1, 9, true);
	assert_int_equal(fill(), 1);
	assert_int_equal(rig.lags.all[0].newest, 9);
	assert_int_equal(rig.lags.all[0].readers, 2);
	assert_int_equal(rig.lags.all[0].least_milli, 3000);
	assert_int_equal(rig.lags.all[0].mean_milli, 4000);
	assert_int_equal(rig.lags.all[0].most, 6);
}

TEST_WITH(lags_fill__leaves_silent_and_fenced_clients_out, setup, teardown)
{
	say(1, 9, true);
	rig.client.suspect_since = 1;
	assert_int_equal(fill(), 1);
	assert_int_equal(rig.lags.all[0].readers, 0);
	assert_int_equal(rig.lags.all[0].most, 0);
	rig.client.suspect_since = 0;
	rig.client.fenced = true;
	assert_int_equal(fill(), 1);
	assert_int_equal(rig.lags.all[0].readers, 0);
	rig.client.fenced = false;
	say(0, 0, true);
	assert_null(rig.client.lags);
	assert_int_equal(fill(), 1);
	assert_int_equal(rig.lags.all[0].newest, 9);
}

TEST_WITH(lags_say__of_a_reader_raises_no_version, setup, teardown)
{
	say(1, UINT64_MAX, false);
	assert_int_equal(fill(), 1);
	assert_int_equal(rig.lags.all[0].newest, 0);
	assert_int_equal(rig.lags.all[0].least_milli, 0); /* it has read what nobody told of */
	assert_int_equal(rig.lags.all[0].most, 0);
}

TEST_WITH(lags_say__is_bounded_and_ignores_other_objects, setup, teardown)
{
	say(OBJECTS, 9, true);
	assert_int_equal(fill(), LAGS_CLIENT);
	rig.objects[1].uuid[0] = 0xff; /* dropped, and made anew */
	rig.objects[1].newest = 0;
	assert_int_equal(fill(), LAGS_CLIENT - 1);
	rig.md.catalog.objects[2] = NULL;
	assert_int_equal(fill(), LAGS_CLIENT - 2);
	rig.progress[2].object = UINT32_MAX;
	rig.progress[2].uuid.len = 3;
	lags_say(&rig.md, &rig.client,
		 &(Relive__LeaseRenewRequest){ .n_progress = 3, .progress = rig.list }, true);
	assert_int_equal(fill(), LAGS_CLIENT - 1);
	assert_int_equal(rig.lags.all[0].readers, 2); /* the new object 1 */
	assert_int_equal(rig.lags.all[1].readers, 0); /* object 3, whose report is wrong */
}

/* Of a client the last report counts alone. */
TEST_WITH(lags_fill__counts_landings_by_path, setup, teardown)
{
	for (uint32_t path = 0; path < ARRAY_LEN(rig.landings); path++)
		rig.landings[path] = path + 1;
	say(2, 9, true);
	say(1, 9, true);
	assert_int_equal(fill(), 2);
	assert_int_equal(rig.lags.all[0].n_landings, LAGS_PATHS);
	for (uint32_t path = 0; path < LAGS_PATHS; path++)
		assert_int_equal(rig.lags.all[0].landings[path], path + 1);
	assert_int_equal(rig.lags.all[1].n_landings, 0); /* it has no reader any more */
}

int main(void)
{
	return test_run(NULL, NULL);
}
