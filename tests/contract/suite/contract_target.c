/*
 * contract_target.c - regions, grants, fences, and the order of closing.
 */
#include "tests/contract/suite/contract.h"

#include <errno.h>
#include <string.h>

static enum fence_result fence(struct rig *rig, uint64_t client_id)
{
	enum fence_result result = FENCE_ALIVE;

	assert_int_equal(rig->tg->ops->fence(rig->tg, client_id, FENCE_ASK, &result), 0);
	return result;
}

static void register__gives_whole_zeroed_extents(void **state)
{
	struct rig *rig = rig_of(state);
	struct target_region spec = { .kind = 2, .object = 5, .part = 6, .size = 100 };

	assert_int_equal(rig->tg->ops->register_region(rig->tg, &spec), 0);
	assert_int_equal(spec.size, 2 << 20);
	assert_int_not_equal(spec.id, rig->spec.id);
	for (size_t i = 0; spec.base && i < spec.size; i++)
		assert_int_equal(spec.base[i], 0);
}

static void register__of_no_bytes(void **state)
{
	struct rig *rig = rig_of(state);
	struct target_region spec = { .kind = 2 };

	assert_error(rig->tg->ops->register_region(rig->tg, &spec), -EINVAL);
	spec.size = UINT64_MAX;
	assert_error(rig->tg->ops->register_region(rig->tg, &spec), -EINVAL);
}

static void register__in_a_full_pool(void **state)
{
	struct rig *rig = rig_of(state);
	struct target_region spec = { .kind = 2, .size = RIG_POOL - RIG_REGION + 1 };

	assert_error(rig->tg->ops->register_region(rig->tg, &spec), -ENOSPC);
	assert_non_null(strstr(error_last(), "29360128")); /* what is left */
	assert_int_equal(spec.id, 0);
	spec.size = RIG_POOL - RIG_REGION;
	assert_int_equal(rig->tg->ops->register_region(rig->tg, &spec), 0);
}

/* Extents of a file that a client may still map are not given back: here none does any more. */
static void unregister__gives_the_room_back(void **state)
{
	struct rig *rig = rig_of(state);
	struct target_region spec = { .kind = 2, .size = RIG_POOL - RIG_REGION };

	transport_detach(&rig->region);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(rig->tg->ops->register_region(rig->tg, &spec), 0);
		if (spec.base) {
			assert_int_equal(spec.base[8192], 0);
			spec.base[8192] = 1;
		}
		assert_int_equal(rig->tg->ops->unregister_region(rig->tg, spec.id), 0);
	}
	assert_error(rig->tg->ops->unregister_region(rig->tg, spec.id), -ENOENT);
	assert_error(rig->tg->ops->unregister_region(rig->tg, 0), -ENOENT);
	assert_error(rig->tg->ops->unregister_region(rig->tg, 4096), -ENOENT);
}

static void unregister__leaves_mappings_valid(void **state)
{
	struct rig *rig = rig_of(state);
	struct region_grant grant;
	struct region *region = NULL;

	rig_store(rig->region, 1024, 2); /* in the superblock */
	assert_int_equal(transport_grant(rig->tg, RIG_CLIENT, rig->spec.id, RIGHT_ALL, &grant), 0);
	assert_int_equal(rig->tg->ops->unregister_region(rig->tg, rig->spec.id), 0);
	assert_int_equal(rig_load(rig->region, 1024), 2);
	rig_store(rig->region, RIG_REGION - 8, 9);
	assert_int_equal(rig_load(rig->region, RIG_REGION - 8), 9);
	assert_error(transport_attach(rig->tr, &grant, &region), -EACCES);
	assert_error(transport_grant(rig->tg, RIG_CLIENT, rig->spec.id, RIGHT_ALL, &grant),
		     -ENOENT);
}

static void list__names_the_live_regions(void **state)
{
	struct rig *rig = rig_of(state);
	struct target_region spec = { .kind = 2, .object = 8, .part = 1, .size = 8 }, seen[4];
	size_t n = 4;

	assert_int_equal(rig->tg->ops->register_region(rig->tg, &spec), 0);
	assert_int_equal(rig->tg->ops->list_regions(rig->tg, seen, &n), 0);
	assert_int_equal(n, 2);
	assert_memory_equal(&seen[0], &rig->spec, sizeof(rig->spec));
	assert_memory_equal(&seen[1], &spec, sizeof(spec));
	n = 1;
	assert_error(rig->tg->ops->list_regions(rig->tg, seen, &n), -ENOSPC);
	assert_int_equal(n, 2);
}

static void grant__of_what_is_not_there(void **state)
{
	struct rig *rig = rig_of(state);
	struct region_grant grant;

	assert_error(transport_grant(rig->tg, 1, 4095, RIGHT_ALL, &grant), -ENOENT);
	assert_error(transport_grant(rig->tg, 1, rig->spec.id, 0, &grant), -EINVAL);
	assert_error(transport_grant(rig->tg, 1, rig->spec.id, 8, &grant), -EINVAL);
}

static struct region *attach_range(struct rig *rig, uint64_t off, uint64_t len, uint32_t rights)
{
	const struct region_range range = { .region = rig->spec.id, .off = off, .len = len };
	struct region_grant grant;
	struct region *region = NULL;

	assert_int_equal(rig->tg->ops->grant(rig->tg, RIG_CLIENT, &range, rights, &grant), 0);
	if (transport_attach(rig->tr, &grant, &region))
		fail_msg("attach: %s", error_last());
	return region;
}

static void grant__of_a_range_opens_that_alone(void **state)
{
	struct rig *rig = rig_of(state);
	struct region *second, *third;
	uint64_t word = 5;

	second = attach_range(rig, 4096, 4096, RIGHT_ALL);
	third = attach_range(rig, 8192, 8192, RIGHT_READ);
	assert_int_equal(second->id, rig->spec.id);
	assert_int_equal(second->size, 4096);
	assert_int_equal(third->size, 8192);
	rig_store(second, 0, 11);
	rig_store(second, 4088, 12);
	rig_store(rig->region, 8192, 13);
	assert_int_equal(transport_faa_word(second, 0, 1, &word), 0);
	assert_int_equal(rig_load(rig->region, 4096), 12);
	assert_int_equal(rig_load(rig->region, 8184), 12);
	assert_int_equal(rig_load(third, 0), 13);
	assert_error(transport_store(second, 4096, &word, 8), -EINVAL);
	assert_error(transport_load(second, 4096, &word), -EINVAL);
	assert_error(transport_faa_word(second, 4096, 1, &word), -EINVAL);
	assert_error(transport_store(third, 0, &word, 8), -EACCES);
	assert_int_equal(rig_load(rig->region, 8192), 13);
	transport_detach(&second);
	assert_int_equal(rig_load(third, 0), 13);
	transport_detach(&third);
}

static void grant__of_a_wrong_range(void **state)
{
	static const uint64_t wrong[][2] = {
		{ 0, 4095 },          { 8, 4096 },
		{ 4096, 0 },          { 0, RIG_REGION + 4096 },
		{ RIG_REGION, 4096 }, { UINT64_MAX - 4095, 4096 },
	};
	struct rig *rig = rig_of(state);
	struct region_grant grant;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		const struct region_range range = { .region = rig->spec.id,
						    .off = wrong[i][0],
						    .len = wrong[i][1] };

		assert_error(rig->tg->ops->grant(rig->tg, 1, &range, RIGHT_ALL, &grant), -EINVAL);
	}
}

/*
 * True where a socket hands out memory: over a wire and in a pool of one file, pages have no memory
 * of their own.
 */
static bool has_pages(const struct rig *rig)
{
	return strcmp(rig->tr->ops->name, "shm") == 0 && rig->kind->listens &&
	       (!rig->kind->in_file || rig->kind->in_dir);
}

/* Until the page is there, which the target of a directory pool makes meanwhile. */
static void renew(struct region *region, uint64_t off)
{
	int ret;

	do {
		ret = transport_renew(region, off);
	} while (ret == -EAGAIN);
	assert_int_equal(ret, 0);
}

static void renew__ends_what_others_have_of_a_page(void **state)
{
	struct rig *rig = rig_of(state);
	struct region *old, *now, *beside;
	uint64_t left = has_pages(rig) ? 0 : 7;

	renew(rig->region, 4096);
	renew(rig->region, 8192);
	old = attach_range(rig, 4096, 4096, RIGHT_ALL);
	beside = attach_range(rig, 8192, 4096, RIGHT_ALL);
	rig_store(old, 0, 7);
	rig_store(beside, 0, 8);
	assert_int_equal(rig_load(rig->region, 4096), 7);
	assert_int_equal(rig_load(rig->region, 8192), 8);
	renew(rig->region, 4096);
	assert_int_equal(rig_load(rig->region, 4096), left);
	now = attach_range(rig, 4096, 4096, RIGHT_ALL);
	rig_store(now, 0, 9);
	assert_int_equal(rig_load(rig->region, 4096), 9);
	assert_int_equal(rig_load(old, 0), has_pages(rig) ? 7 : 9);
	rig_store(old, 8, 10); /* reaches nobody, where pages have memory of their own */
	assert_int_equal(rig_load(now, 8), has_pages(rig) ? 0 : 10);
	assert_int_equal(rig_load(rig->region, 4104), has_pages(rig) ? 0 : 10);
	assert_int_equal(rig_load(rig->region, 8192), 8);
	transport_detach(&old);
	transport_detach(&now);
	transport_detach(&beside);
}

/* Attaches as a restarted metadata server does. */
static void renew__is_seen_by_who_attaches_all_later(void **state)
{
	struct rig *rig = rig_of(state);
	struct transport *tr;
	struct region *page, *all;

	renew(rig->region, RIG_REGION - 4096);
	renew(rig->region, 4096);
	page = attach_range(rig, RIG_REGION - 4096, 4096, RIGHT_ALL);
	rig_store(page, 8, 5);
	tr = rig_open(rig, RIG_CLIENT + 1);
	all = rig_attach(rig, tr, RIG_CLIENT + 1, RIGHT_ALL);
	assert_int_equal(rig_load(all, RIG_REGION - 4088), 5);
	rig_store(all, RIG_REGION - 4088, 6);
	rig_store(all, 4096, 3);
	assert_int_equal(rig_load(page, 8), 6);
	assert_int_equal(rig_load(rig->region, 4096), 3);
	rig_store(all, 8192, 4); /* beside it, of the region itself */
	assert_int_equal(rig_load(rig->region, 8192), 4);
	transport_detach(&page);
	transport_close(&tr);
}

#define MANY 150 /* more than one answer has */

/* In one step and in two. */
static void renew__of_many_pages(void **state)
{
	struct rig *rig = rig_of(state);
	struct transport *tr = rig_open(rig, RIG_CLIENT + 1);
	struct region *all = rig_attach(rig, tr, RIG_CLIENT + 1, RIGHT_ALL), *later = NULL;
	struct region_grant grant;
	int ret;

	transport_detach(&all);
	for (uint64_t i = 1; i <= MANY; i++) {
		renew(rig->region, i * 8192);
		rig_store(rig->region, i * 8192, i);
	}
	all = rig_attach(rig, tr, RIG_CLIENT + 1, RIGHT_ALL);
	assert_int_equal(transport_grant(rig->tg, RIG_CLIENT + 1, rig->spec.id, RIGHT_ALL, &grant),
			 0);
	assert_int_equal(transport_attach_begin(tr, &grant), 0);
	do {
		ret = transport_attach_end(tr, &grant, &later);
	} while (ret == -EAGAIN);
	assert_int_equal(ret, 0);
	for (uint64_t i = 1; i <= MANY; i++) {
		assert_int_equal(rig_load(all, i * 8192), i);
		rig_store(all, i * 8192 + 8, i + 1);
		assert_int_equal(rig_load(later, i * 8192 + 8), i + 1);
	}
	transport_detach(&later);
	transport_detach(&all);
	transport_close(&tr);
}

/* The answers to both come in turn, that to the region in several parts. */
static void renew__while_a_region_is_being_attached(void **state)
{
	struct rig *rig = rig_of(state);
	struct region *all = NULL;
	struct region_grant grant;
	int ret;

	if (!rig->kind->in_dir) /* a client that sends memory gets no answer */
		return;
	for (uint64_t i = 1; i <= MANY; i++)
		renew(rig->region, i * 8192);
	assert_int_equal(transport_grant(rig->tg, RIG_CLIENT, rig->spec.id, RIGHT_ALL, &grant), 0);
	assert_int_equal(transport_attach_begin(rig->tr, &grant), 0);
	do {
		renew(rig->region, 4096);
		ret = transport_attach_end(rig->tr, &grant, &all);
	} while (ret == -EAGAIN);
	assert_int_equal(ret, 0);
	rig_store(rig->region, MANY * 8192, 5);
	assert_int_equal(rig_load(all, MANY * 8192), 5);
	renew(rig->region, 4096);
	transport_detach(&all);
}

/* All are asked for before the first answer; none is made twice. */
static void prepare__of_many_pages(void **state)
{
	struct rig *rig = rig_of(state);
	bool waits;

	do {
		waits = false;
		for (uint64_t i = 1; i <= MANY; i++) {
			int ret = transport_prepare(rig->region, i * 8192);

			assert_true(ret == 0 || ret == -EAGAIN);
			waits |= ret == -EAGAIN;
		}
	} while (waits);
	(void)transport_renewing(rig->tr); /* says once that they were made */
	assert_false(transport_renewing(rig->tr));
	for (uint64_t i = 1; has_pages(rig) && i <= MANY; i++) {
		assert_int_equal(transport_renew(rig->region, i * 8192), 0);
		assert_int_equal(rig_load(rig->region, i * 8192), 0);
	}
}

/* A page that was asked for goes with its region; the next one of its place is another. */
static void prepare__then_detach(void **state)
{
	struct rig *rig = rig_of(state);
	struct region *page;

	if (!has_pages(rig))
		return;
	assert_true(transport_prepare(rig->region, 4096) <= 0);
	transport_detach(&rig->region);
	rig->region = rig_attach(rig, rig->tr, RIG_CLIENT, RIGHT_ALL);
	renew(rig->region, 4096);
	page = attach_range(rig, 4096, 4096, RIGHT_ALL);
	rig_store(page, 0, 7);
	assert_int_equal(rig_load(rig->region, 4096), 7);
	transport_detach(&page);
}

/*
 * A stopped client delays nobody, and continues to read afterwards. Files that the node makes
 * itself.
 */
static void renew__of_a_target_that_does_not_read(void **state)
{
	struct rig *rig = rig_of(state);
	uint64_t n = 0;
	int ret = 0;

	if (!has_pages(rig) || rig->kind->apart || rig->kind->in_dir)
		return;
	atomic_store(&rig->stop, true);
	assert_int_equal(pthread_join(rig->server, NULL), 0);
	rig->serving = false;
	for (; ret == 0 && n < 100000; n++)
		ret = transport_renew(rig->region, 4096);
	assert_int_equal(ret, -EAGAIN);
	assert_true(n > 64);
	for (uint64_t i = 0; i < n; i++)
		assert_int_equal(rig->tg->ops->progress(rig->tg, 0), 0);
	assert_int_equal(transport_renew(rig->region, 4096), 0);
	assert_int_equal(rig->tg->ops->progress(rig->tg, 0), 0);
	print_message("pages that wait in a socket: %llu\n", (unsigned long long)n - 1);
}

static void renew__ends_the_grants_of_a_page(void **state)
{
	struct rig *rig = rig_of(state);
	const struct region_range range = { .region = rig->spec.id, .off = 4096, .len = 4096 };
	struct region_grant grant;
	struct region *page;

	if (!has_pages(rig))
		return;
	assert_int_equal(rig->tg->ops->grant(rig->tg, RIG_CLIENT, &range, RIGHT_ALL, &grant), 0);
	renew(rig->region, 4096);
	assert_error(transport_attach(rig->tr, &grant, &page), -EACCES);
	assert_int_equal(rig->tg->ops->grant(rig->tg, RIG_CLIENT, &range, RIGHT_ALL, &grant), 0);
	assert_int_equal(transport_attach(rig->tr, &grant, &page), 0);
	transport_detach(&page);
}

/* All of a tree is granted to clients: its pages would cost its node a descriptor each. */
static void renew__is_of_regions_of_pages(void **state)
{
	struct rig *rig = rig_of(state);
	struct target_region spec = { .kind = 1, .object = 2, .part = 3, .size = RIG_REGION };
	struct region_grant grant;
	struct region *tree;

	if (!has_pages(rig))
		return;
	spec.role = 1;
	assert_int_equal(rig->tg->ops->register_region(rig->tg, &spec), 0);
	assert_int_equal(transport_grant(rig->tg, RIG_CLIENT, spec.id, RIGHT_ALL, &grant), 0);
	assert_int_equal(transport_attach(rig->tr, &grant, &tree), 0);
	assert_error(transport_renew(tree, 4096), -EACCES);
	transport_detach(&tree);
}

static void renew__is_for_who_has_all_of_it(void **state)
{
	struct rig *rig = rig_of(state);
	struct transport *tr = rig_open(rig, RIG_CLIENT + 1);
	struct region *page, *reads;

	assert_error(transport_renew(rig->region, 8), -EINVAL);
	assert_error(transport_renew(rig->region, RIG_REGION), -EINVAL);
	page = attach_range(rig, 4096, 4096, RIGHT_ALL);
	reads = rig_attach(rig, tr, RIG_CLIENT + 1, RIGHT_READ);
	rig_store(page, 0, 7);
	if (has_pages(rig)) {
		assert_error(transport_renew(page, 0), -EACCES);
		assert_error(transport_renew(reads, 4096), -EACCES);
	}
	assert_int_equal(rig_load(rig->region, 4096), 7);
	transport_detach(&page);
	transport_close(&tr);
}

static void attach__by_a_damaged_grant(void **state)
{
	struct rig *rig = rig_of(state);
	struct region_grant grant, bad;
	struct region *region = NULL;

	assert_int_equal(transport_grant(rig->tg, RIG_CLIENT, rig->spec.id, RIGHT_ALL, &grant), 0);
	for (uint32_t bit = 0; bit < grant.bytes * 8; bit += 5) {
		bad = grant;
		bad.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_true(transport_attach(rig->tr, &bad, &region) < 0);
		assert_null(region);
	}
	bad = grant;
	bad.bytes--;
	assert_true(transport_attach(rig->tr, &bad, &region) < 0);
	bad.bytes = 0;
	assert_error(transport_attach(rig->tr, &bad, &region), -EINVAL);
	bad.bytes = TRANSPORT_GRANT_BYTES + 1;
	assert_error(transport_attach(rig->tr, &bad, &region), -EINVAL);
	assert_error(transport_attach(rig->tr, NULL, &region), -EINVAL);
	/* and the good one still works */
	assert_int_equal(transport_attach(rig->tr, &grant, &region), 0);
}

static void attach__by_the_grant_of_another_client(void **state)
{
	struct rig *rig = rig_of(state);
	struct region_grant grant;
	struct region *region = NULL;

	assert_int_equal(transport_grant(rig->tg, 8, rig->spec.id, RIGHT_ALL, &grant), 0);
	assert_error(transport_attach(rig->tr, &grant, &region), -EACCES);
}

static void attach__after_revoke(void **state)
{
	struct rig *rig = rig_of(state);
	struct region_grant grant, again;
	struct region *region = NULL;

	assert_int_equal(transport_grant(rig->tg, RIG_CLIENT, rig->spec.id, RIGHT_ALL, &grant), 0);
	assert_int_equal(rig->tg->ops->revoke(rig->tg, RIG_CLIENT, rig->spec.id), 0);
	assert_error(transport_attach(rig->tr, &grant, &region), -EACCES);
	assert_int_equal(transport_grant(rig->tg, RIG_CLIENT, rig->spec.id, RIGHT_ALL, &again), 0);
	assert_error(transport_attach(rig->tr, &grant, &region),
		     -EACCES); /* the slot's new secret */
	assert_int_equal(transport_attach(rig->tr, &again, &region), 0);
}

static void attach__after_detach_finds_the_bytes(void **state)
{
	struct rig *rig = rig_of(state);

	rig_store(rig->region, 4096, 31);
	transport_detach(&rig->region);
	assert_null(rig->region);
	rig->region = rig_attach(rig, rig->tr, RIG_CLIENT, RIGHT_ALL);
	assert_int_equal(rig_load(rig->region, 4096), 31);
}

static void attach__by_another_client_sees_the_same_bytes(void **state)
{
	struct rig *rig = rig_of(state);
	struct transport *tr = rig_open(rig, 8);
	struct region *region = rig_attach(rig, tr, 8, RIGHT_READ);

	rig_store(rig->region, 4096, 31);
	assert_int_equal(rig_load(region, 4096), 31);
	assert_int_equal(region->incarnation, rig->tg->incarnation);
	assert_int_equal(region->size, RIG_REGION);
	assert_int_equal(region->id, rig->spec.id);
	assert_int_equal(region->rights, RIGHT_READ);
	transport_close(&tr);
}

static void call__over_two_regions(void **state)
{
	struct rig *rig = rig_of(state);
	struct target_region first = rig->spec;
	struct region *second;
	uint64_t one = 1, two = 2;

	rig->spec.size = RIG_REGION;
	assert_int_equal(rig->tg->ops->register_region(rig->tg, &rig->spec), 0);
	second = rig_attach(rig, rig->tr, RIG_CLIENT, RIGHT_ALL);
	struct transport_io io[2] = {
		{ .region = rig->region, .off = 64, .src = &one, .len = 8 },
		{ .region = second, .off = 64, .src = &two, .len = 8 },
	};

	assert_int_equal(transport_write(rig->tr, io, 2), 0);
	assert_int_equal(rig_load(rig->region, 64), 1);
	assert_int_equal(rig_load(second, 64), 2);
	rig->spec = first;
}

static void fence__of_a_client_that_was_never_seen(void **state)
{
	assert_int_equal(fence(rig_of(state), 12345), FENCE_DEAD);
}

static void fence__of_a_live_client_changes_nothing(void **state)
{
	struct rig *rig = rig_of(state);

	assert_int_equal(fence(rig, RIG_CLIENT), FENCE_ALIVE);
	rig_attach(rig, rig->tr, RIG_CLIENT, RIGHT_READ);
	assert_int_equal(rig_load(rig->region, 64), 0);
}

static void fence__of_this_process_does_not_kill_it(void **state)
{
	struct rig *rig = rig_of(state);
	enum fence_result result;
	uint64_t word;

	if (rig->region->base && rig->kind->apart)
		return; /* it is not this process that asks */
	if (rig->region->base) {
		assert_error(rig->tg->ops->fence(rig->tg, RIG_CLIENT, FENCE_KILL, &result),
			     -EDEADLK);
		return;
	}
	/* all that it has is a connection, which ends */
	assert_int_equal(rig->tg->ops->fence(rig->tg, RIG_CLIENT, FENCE_KILL, &result), 0);
	assert_int_equal(result, FENCE_DEAD);
	assert_error(transport_load(rig->region, 64, &word), -ECONNRESET);
}

static void fence__of_a_client_that_said_goodbye(void **state)
{
	struct rig *rig = rig_of(state);
	enum fence_result result = FENCE_ALIVE;

	transport_close(&rig->tr);
	/* the goodbye may still be on its way */
	for (int i = 0; i < 10000 && result != FENCE_DEAD; i++) {
		result = fence(rig, RIG_CLIENT);
		if (result != FENCE_DEAD)
			(void)rig->tg->ops->progress(rig->tg, (uint64_t)CLOCK_NS_PER_MS);
	}
	assert_int_equal(result, FENCE_DEAD);
}

static void fence__ends_the_grants(void **state)
{
	struct rig *rig = rig_of(state);
	struct region_grant grant;
	struct region *region = NULL;
	struct transport *tr;

	assert_int_equal(transport_grant(rig->tg, 8, rig->spec.id, RIGHT_ALL, &grant), 0);
	assert_int_equal(fence(rig, 8), FENCE_DEAD);
	tr = rig_open(rig, 8);
	assert_error(transport_attach(tr, &grant, &region), -EACCES);
	transport_close(&tr);
}

static void stats__of_the_target(void **state)
{
	struct rig *rig = rig_of(state);
	struct target_stats stats;

	rig->tg->ops->stats(rig->tg, &stats);
	assert_int_equal(stats.pool_bytes, RIG_POOL);
	assert_int_equal(stats.used_bytes, RIG_REGION);
	assert_int_equal(stats.regions, 1);
	assert_int_equal(stats.clients, 1);
	assert_int_equal(stats.attaches, rig->kind->twice ? 2 : 1);
	assert_int_equal(stats.fences, 0);
	assert_true(stats.sole_opener);
	assert_non_null(strstr("thp hugetlb 4k file dax", stats.page_kind));
}

static void own__is_told_by_identity(void **state)
{
	struct rig *rig = rig_of(state);
	const uint8_t store[16] = { 1, 2, 3 }, zero[16] = { 0 };
	bool stays = (rig->tr->caps & TRANSPORT_PERSISTENT) != 0;
	struct pool_identity seen;

	assert_int_equal(rig->tg->ops->identity(rig->tg, &seen), 0);
	assert_memory_equal(seen.store_uuid, zero, 16);
	assert_int_equal(memcmp(seen.pool_uuid, zero, 16) != 0, stays);
	assert_int_equal(rig->tg->ops->own(rig->tg, store, "alpha"), 0);
	assert_int_equal(rig->tg->ops->identity(rig->tg, &seen), 0);
	assert_memory_equal(seen.store_uuid, stays ? store : zero, 16);
	assert_string_equal(seen.store_name, stays ? "alpha" : "");
}

static void persist__of_the_target(void **state)
{
	struct rig *rig = rig_of(state);
	int expected = rig->tr->caps & TRANSPORT_PERSISTENT ? 0 : -ENOTSUP;

	assert_int_equal(rig->tg->ops->persist(rig->tg, rig->spec.id, 4096, 8), expected);
	assert_int_equal(rig->tg->ops->persist(rig->tg, rig->spec.id, 0, 0), expected);
	assert_error(rig->tg->ops->persist(rig->tg, rig->spec.id, RIG_REGION, 8), -EINVAL);
	assert_error(rig->tg->ops->persist(rig->tg, 4000, 0, 8), -ENOENT);
}

static void close__of_the_target_first(void **state)
{
	struct rig *rig = rig_of(state);
	struct region_grant grant;
	struct region *region = NULL;
	uint64_t word;

	rig_store(rig->region, 4096, 5);
	assert_int_equal(transport_grant(rig->tg, RIG_CLIENT, rig->spec.id, RIGHT_ALL, &grant), 0);
	rig_close_target(rig);
	if (rig->region->base) {
		assert_int_equal(rig_load(rig->region, 4096), 5);
		rig_store(rig->region, RIG_REGION - 8, 6);
	} else {
		assert_int_equal(transport_load(rig->region, 4096, &word), -ECONNRESET);
		assert_int_equal(rig->tr->broken, -ECONNRESET);
	}
	assert_true(transport_attach(rig->tr, &grant, &region) < 0);
	assert_null(region);
	transport_detach(&rig->region);
}

static void close__of_nothing(void **state)
{
	struct transport *tr = NULL;
	struct transport_target *tg = NULL;
	struct region *region = NULL;

	(void)state;
	transport_detach(&region);
	transport_close(&tr);
	transport_close(NULL);
	transport_target_close(&tg);
}

const struct CMUnitTest contract_target_tests[] = {
	CONTRACT_TEST(register__gives_whole_zeroed_extents),
	CONTRACT_TEST(register__of_no_bytes),
	CONTRACT_TEST(register__in_a_full_pool),
	CONTRACT_TEST(unregister__gives_the_room_back),
	CONTRACT_TEST(unregister__leaves_mappings_valid),
	CONTRACT_TEST(list__names_the_live_regions),
	CONTRACT_TEST(grant__of_what_is_not_there),
	CONTRACT_TEST(grant__of_a_range_opens_that_alone),
	CONTRACT_TEST(grant__of_a_wrong_range),
	CONTRACT_TEST(renew__ends_what_others_have_of_a_page),
	CONTRACT_TEST(renew__is_seen_by_who_attaches_all_later),
	CONTRACT_TEST(renew__of_many_pages),
	CONTRACT_TEST(renew__while_a_region_is_being_attached),
	CONTRACT_TEST(prepare__of_many_pages),
	CONTRACT_TEST(prepare__then_detach),
	CONTRACT_TEST(renew__of_a_target_that_does_not_read),
	CONTRACT_TEST(renew__ends_the_grants_of_a_page),
	CONTRACT_TEST(renew__is_of_regions_of_pages),
	CONTRACT_TEST(renew__is_for_who_has_all_of_it),
	CONTRACT_TEST(attach__by_a_damaged_grant),
	CONTRACT_TEST(attach__by_the_grant_of_another_client),
	CONTRACT_TEST(attach__after_revoke),
	CONTRACT_TEST(attach__after_detach_finds_the_bytes),
	CONTRACT_TEST(attach__by_another_client_sees_the_same_bytes),
	CONTRACT_TEST(call__over_two_regions),
	CONTRACT_TEST(fence__of_a_client_that_was_never_seen),
	CONTRACT_TEST(fence__of_a_live_client_changes_nothing),
	CONTRACT_TEST(fence__of_this_process_does_not_kill_it),
	CONTRACT_TEST(fence__of_a_client_that_said_goodbye),
	CONTRACT_TEST(fence__ends_the_grants),
	CONTRACT_TEST(stats__of_the_target),
	CONTRACT_TEST(own__is_told_by_identity),
	CONTRACT_TEST(persist__of_the_target),
	CONTRACT_TEST(close__of_the_target_first),
	CONTRACT_TEST(close__of_nothing),
};
const size_t contract_target_count =
	sizeof(contract_target_tests) / sizeof(contract_target_tests[0]);
